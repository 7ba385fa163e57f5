//! The atomics of [`std::sync::atomic`], at which a test on virtual time may go on with others.
//!
//! In a program they are `std`'s, and cost the same. In a test with a schedule that is drawn
//! ([`crate::sim`]) any ready fiber may go on before each operation, as between any two
//! instructions of threads. So a test finds, say, a load and a store that ought to be one:
//!
//! ```
//! use std::sync::Arc;
//! use plainweave::sim;
//! use plainweave::sync::atomic::{AtomicU32, Ordering};
//!
//! let counted = |seed| {
//!     sim::run(seed, || {
//!         let count = Arc::new(AtomicU32::new(0));
//!         let add = |count: Arc<AtomicU32>| {
//!             move || count.store(count.load(Ordering::SeqCst) + 1, Ordering::SeqCst)
//!         };
//!         let fibers = [(); 2].map(|()| plainweave::spawn(add(count.clone())));
//!         fibers.into_iter().for_each(|fiber| fiber.join().unwrap());
//!         count.load(Ordering::SeqCst)
//!     })
//! };
//! // By threads hardly ever.
//! assert!((0..100).any(|seed| counted(seed) == 1) || cfg!(not(debug_assertions)));
//! ```
//!
//! All operations take place in the order of the schedule, as if each were `SeqCst`: what a weaker
//! ordering allows beyond that, loom finds.
//!
//! In such a test each operation may suspend. So hold a lock of [`crate::sync`] across one, not of
//! `std`, on which the next fiber would block the only worker; and no `RefCell` that fibers share.
//! On shared storage there are no points.

pub use std::sync::atomic::{Ordering, compiler_fence, fence};

use std::fmt;

use crate::thread::{HAS_POINTS, preemption_point};
use crate::worker_local::owns_storage;

/// Where a test may go on with others. Thread-local variables that are borrowed meanwhile have to
/// be the fiber's own.
#[inline(always)]
fn point() {
    if HAS_POINTS && owns_storage() {
        preemption_point();
    }
}

/// What all of them have.
macro_rules! atomic {
    ($name:ident $(<$of:ident>)?, $value:ty $(, $operation:ident)*) => {
        #[doc = concat!("[`std::sync::atomic::", stringify!($name), "`], with such points.")]
        #[repr(transparent)]
        pub struct $name$(<$of>)?(std::sync::atomic::$name$(<$of>)?);

        impl$(<$of>)? Default for $name$(<$of>)? {
            fn default() -> Self {
                Self(Default::default())
            }
        }

        impl$(<$of>)? $name$(<$of>)? {
            /// As `std`'s.
            #[must_use]
            pub const fn new(value: $value) -> Self {
                Self(std::sync::atomic::$name::new(value))
            }

            /// As `std`'s.
            pub fn get_mut(&mut self) -> &mut $value {
                self.0.get_mut()
            }

            /// As `std`'s.
            #[must_use]
            pub const fn into_inner(self) -> $value {
                self.0.into_inner()
            }

            /// As `std`'s.
            pub const fn as_ptr(&self) -> *mut $value {
                self.0.as_ptr()
            }

            /// As `std`'s.
            #[inline]
            pub fn load(&self, order: Ordering) -> $value {
                point();
                self.0.load(order)
            }

            /// As `std`'s.
            #[inline]
            pub fn store(&self, value: $value, order: Ordering) {
                point();
                self.0.store(value, order);
            }

            /// As `std`'s.
            #[inline]
            pub fn swap(&self, value: $value, order: Ordering) -> $value {
                point();
                self.0.swap(value, order)
            }

            /// As `std`'s.
            ///
            /// # Errors
            /// The value was not `current`; this is it.
            #[inline]
            pub fn compare_exchange(
                &self,
                current: $value,
                new: $value,
                success: Ordering,
                failure: Ordering,
            ) -> Result<$value, $value> {
                point();
                self.0.compare_exchange(current, new, success, failure)
            }

            /// As `std`'s.
            ///
            /// # Errors
            /// As for [`Self::compare_exchange`], or for no reason.
            #[inline]
            pub fn compare_exchange_weak(
                &self,
                current: $value,
                new: $value,
                success: Ordering,
                failure: Ordering,
            ) -> Result<$value, $value> {
                point();
                self.0.compare_exchange_weak(current, new, success, failure)
            }

            /// As `std`'s: a load, and exchanges until one succeeds.
            ///
            /// # Errors
            /// `f` gave nothing for this value.
            pub fn fetch_update(
                &self,
                set_order: Ordering,
                fetch_order: Ordering,
                mut f: impl FnMut($value) -> Option<$value>,
            ) -> Result<$value, $value> {
                let mut value = self.load(fetch_order);
                while let Some(next) = f(value) {
                    match self.compare_exchange_weak(value, next, set_order, fetch_order) {
                        Ok(before) => return Ok(before),
                        Err(now) => value = now,
                    }
                }
                Err(value)
            }

            $(
                /// As `std`'s.
                #[inline]
                pub fn $operation(&self, value: $value, order: Ordering) -> $value {
                    point();
                    self.0.$operation(value, order)
                }
            )*
        }

        impl$(<$of>)? From<$value> for $name$(<$of>)? {
            fn from(value: $value) -> Self {
                Self::new(value)
            }
        }

        impl$(<$of>)? fmt::Debug for $name$(<$of>)? {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

macro_rules! integers {
    ($($name:ident of $value:ty),*) => {$(
        atomic!(
            $name, $value, fetch_add, fetch_sub, fetch_and, fetch_nand, fetch_or, fetch_xor,
            fetch_max, fetch_min
        );
    )*};
}

atomic!(AtomicBool, bool, fetch_and, fetch_nand, fetch_or, fetch_xor);
atomic!(AtomicPtr<T>, *mut T);

impl AtomicBool {
    /// As `std`'s.
    #[inline]
    pub fn fetch_not(&self, order: Ordering) -> bool {
        self.fetch_xor(true, order)
    }
}

integers!(
    AtomicU8 of u8,
    AtomicU16 of u16,
    AtomicU32 of u32,
    AtomicU64 of u64,
    AtomicUsize of usize,
    AtomicI8 of i8,
    AtomicI16 of i16,
    AtomicI32 of i32,
    AtomicI64 of i64,
    AtomicIsize of isize
);
