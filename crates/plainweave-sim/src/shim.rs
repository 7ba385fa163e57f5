//! Atomics, cells and locks as the runtime's `queue`, `policy` and `atomics` take them from
//! `crate::shim`, for simulated workers: each operation passes the [`meter`](crate::meter) first.
//!
//! This is where the simulator learns which shared cache lines an operation touches. The runtime's
//! files do not report it: they are compiled a second time, here, against this shim in place of the
//! one that hands out `std`'s types. So nothing is added to the runtime, nothing can be forgotten
//! in a queue, and a policy that is written tomorrow is metered as well.
//!
//! All simulated workers run on one thread of the kernel, one at a time, and change places only
//! inside these operations. So the types below need no more than `std`'s do, and every operation is
//! what its ordering asks for.

mod lock; // A lock for simulated workers, whose waiters do as `std`'s do on Linux.

pub(crate) use std::sync::Arc;

pub(crate) use lock::{Mutex, MutexGuard};

use crate::lines::Access;
use crate::meter;

/// Lets simulated time pass: the worker looks again a little later.
#[inline]
pub(crate) fn spin_loop() {
    meter::spin();
}

/// Does the same, whatever the turn: a simulated worker has a processor of its own.
#[inline]
pub(crate) fn relax(_: u32) {
    meter::spin();
}

/// Lets the time pass that a thief spends on a victim, beside the words it reads.
#[inline]
pub(crate) fn look_at_victim() {
    meter::look();
}

/// A cell behind the closure interface that the runtime's shim has. The slots of queues are such
/// cells.
#[derive(Debug)]
pub(crate) struct UnsafeCell<T>(std::cell::UnsafeCell<T>);

impl<T> UnsafeCell<T> {
    pub(crate) const fn new(value: T) -> Self {
        Self(std::cell::UnsafeCell::new(value))
    }

    /// Passes a pointer for reading; the caller ensures that nobody writes meanwhile.
    pub(crate) fn with<R>(&self, f: impl FnOnce(*const T) -> R) -> R {
        meter::touch(self, Access::Load);
        f(self.0.get())
    }

    /// Passes a pointer for writing; the caller ensures that nobody else accesses it meanwhile.
    pub(crate) fn with_mut<R>(&self, f: impl FnOnce(*mut T) -> R) -> R {
        meter::touch(self, Access::Store);
        f(self.0.get())
    }
}

/// Metered words.
pub(crate) mod atomic {
    use std::sync::atomic;

    pub(crate) use std::sync::atomic::Ordering;

    use crate::lines::Access;
    use crate::meter;

    /// Orders what comes before against what comes after: all stores of the worker arrive first.
    pub(crate) fn fence(_: Ordering) {
        meter::fence();
    }

    /// What all words have, whether or not a queue uses it.
    macro_rules! word {
        ([$($generic:tt)*] $name:ty, $std:ty, $value:ty) => {
            #[allow(dead_code, reason = "the runtime's files take what they need")]
            impl $($generic)* $name {
                pub(crate) const fn new(value: $value) -> Self {
                    Self(<$std>::new(value))
                }

                #[inline]
                pub(crate) fn load(&self, order: Ordering) -> $value {
                    meter::touch(self, Access::Load);
                    self.0.load(order)
                }

                #[inline]
                pub(crate) fn store(&self, value: $value, order: Ordering) {
                    meter::touch(self, Access::Store);
                    self.0.store(value, order);
                }

                #[inline]
                pub(crate) fn swap(&self, value: $value, order: Ordering) -> $value {
                    meter::touch(self, Access::Exchange);
                    self.0.swap(value, order)
                }

                #[inline]
                pub(crate) fn compare_exchange(
                    &self,
                    current: $value,
                    new: $value,
                    success: Ordering,
                    failure: Ordering,
                ) -> Result<$value, $value> {
                    meter::touch(self, Access::Exchange);
                    self.0.compare_exchange(current, new, success, failure)
                }

                /// Never fails without a reason, as on x86.
                #[inline]
                pub(crate) fn compare_exchange_weak(
                    &self,
                    current: $value,
                    new: $value,
                    success: Ordering,
                    failure: Ordering,
                ) -> Result<$value, $value> {
                    self.compare_exchange(current, new, success, failure)
                }
            }
        };
    }

    macro_rules! number {
        ($name:ident, $value:ty) => {
            #[derive(Debug, Default)]
            pub(crate) struct $name(atomic::$name);

            word!([] $name, atomic::$name, $value);

            #[allow(dead_code, reason = "the runtime's files take what they need")]
            impl $name {
                #[inline]
                pub(crate) fn fetch_add(&self, value: $value, order: Ordering) -> $value {
                    meter::touch(self, Access::Exchange);
                    self.0.fetch_add(value, order)
                }

                #[inline]
                pub(crate) fn fetch_sub(&self, value: $value, order: Ordering) -> $value {
                    meter::touch(self, Access::Exchange);
                    self.0.fetch_sub(value, order)
                }

                #[inline]
                pub(crate) fn fetch_and(&self, value: $value, order: Ordering) -> $value {
                    meter::touch(self, Access::Exchange);
                    self.0.fetch_and(value, order)
                }

                #[inline]
                pub(crate) fn fetch_or(&self, value: $value, order: Ordering) -> $value {
                    meter::touch(self, Access::Exchange);
                    self.0.fetch_or(value, order)
                }
            }
        };
    }

    number!(AtomicU64, u64);
    number!(AtomicUsize, usize);

    #[derive(Debug)]
    pub(crate) struct AtomicPtr<T>(atomic::AtomicPtr<T>);

    word!([<T>] AtomicPtr<T>, atomic::AtomicPtr<T>, *mut T);
}
