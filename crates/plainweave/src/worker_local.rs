//! Values of a worker: for what should exist once for each OS thread, not once for each fiber.
//!
//! Each fiber has thread-local storage of its own (`fiber_local`), which is what code expects of a
//! thread. But a cache, a counter or a slot of a table that a crate keeps in a thread-local then
//! exists ten thousand times. Code that runs in [`with_worker_storage`] sees its worker's
//! thread-locals instead.
//!
//! # Why it is safe
//! The worker's storage names no fiber. So to this crate the code in there is a plain thread's: a
//! call of ours that would suspend the fiber blocks the thread, and nothing moves to another worker
//! meanwhile. To the language, the code runs on another thread than what surrounds it, which waits:
//! hence [`Send`] for what goes in and what comes out, as for a scoped thread. A panic is caught on
//! the storage that counts it, and goes on on the fiber's.

#![expect(
    unsafe_code,
    reason = "switches to the worker's thread-local storage for one call"
)]

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::thread::LocalKey;

use crate::fiber::{self, Header};
use crate::fiber_local;

/// Returns whether the calling code runs on a fiber's own thread-local storage: false on plain
/// threads, on fibers that share their worker's ([`Storage::Shared`](crate::Storage)), and within
/// [`with_worker_storage`].
#[must_use]
pub fn owns_storage() -> bool {
    fiber::current().is_some_and(Header::owns_storage)
}

/// Calls `f` on the thread-local storage of the worker that runs the calling fiber, and returns its
/// result. Where the caller has no storage of its own ([`owns_storage`]), it calls `f` as it is.
///
/// In `f` the caller is a plain thread, the worker's: what waits there holds up the worker,
/// deadlines and cancellation of the fiber do not apply, and locks that know their owner
/// (`stdout().lock()`) take it for somebody else than the fiber. So `f` should be short, and wait
/// for nothing. A panic of `f` passes through.
///
/// ```
/// use std::cell::Cell;
///
/// thread_local! { static CALLS: Cell<usize> = const { Cell::new(0) }; }
/// let runtime = plainweave::Runtime::builder().workers(1).max_workers(1).build()?;
/// let count = || CALLS.with(|calls| calls.replace(calls.get() + 1));
/// // Each of these fibers begins with a 0 of its own; the worker has one for all.
/// let own: Vec<_> = (0..3).map(|_| runtime.run(count)).collect();
/// let shared: Vec<_> = (0..3).map(|_| runtime.run(|| plainweave::with_worker_storage(count))).collect();
/// assert_eq!((own, shared), (vec![0, 0, 0], vec![0, 1, 2]));
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn with_worker_storage<R: Send>(f: impl FnOnce() -> R + Send) -> R {
    let host = fiber::current_host().filter(|_| owns_storage());
    let Some(home) = host.map(|host| host.home) else {
        return f();
    };
    // SAFETY: the base of the worker that runs this fiber, and so on this thread. The worker itself
    // is at its resume of the fiber, which uses no thread-local. Nobody else uses its storage, and
    // the fiber does not leave this thread before the base is restored: on the worker's storage no
    // call of this crate finds a fiber to suspend. `contained` is not inlined, and does not unwind.
    let result = unsafe { fiber_local::on(home, || contained(f)) };
    result.unwrap_or_else(|panic| resume_unwind(panic))
}

#[inline(never)]
fn contained<R>(f: impl FnOnce() -> R) -> std::thread::Result<R> {
    catch_unwind(AssertUnwindSafe(f))
}

/// A value for each worker, and for each plain thread; declared by
/// [`worker_local!`](crate::worker_local).
#[derive(Debug)]
pub struct WorkerLocal<T: 'static>(&'static LocalKey<T>);

impl<T: 'static> WorkerLocal<T> {
    #[doc(hidden)]
    #[must_use]
    pub const fn new(key: &'static LocalKey<T>) -> Self {
        Self(key)
    }

    /// Calls `f` with the value of the worker that runs the calling fiber, which is made first if
    /// need be. `f` runs as in [`with_worker_storage`]: it should wait for nothing.
    ///
    /// # Panics
    /// With a panic of `f` or of the initial expression; on a thread that ends, when the value has
    /// been dropped.
    pub fn with<R: Send>(&self, f: impl FnOnce(&T) -> R + Send) -> R {
        with_worker_storage(|| self.0.with(f))
    }
}

/// Declares values that exist once for each worker, and not once for each fiber as those of
/// `thread_local!` do: a [`WorkerLocal`]. The value is made on its worker, used there only, and
/// dropped when the worker's thread ends; so it need not be `Send`.
///
/// A fiber may find another worker's value after each call that suspends. So this is for caches,
/// counters and slots of tables, whose users do not mind, and not for what belongs to one task.
///
/// ```
/// use std::cell::RefCell;
///
/// plainweave::worker_local! {
///     /// Buffers that the worker's fibers use one after the other.
///     static BUFFERS: RefCell<Vec<Vec<u8>>> = RefCell::default();
/// }
///
/// plainweave::run(|| {
///     let mut buffer = BUFFERS.with(|kept| kept.borrow_mut().pop()).unwrap_or_default();
///     buffer.extend_from_slice(b"hello");
///     // Here the fiber may wait, and move: it owns the buffer.
///     plainweave::yield_now();
///     buffer.clear();
///     BUFFERS.with(|kept| kept.borrow_mut().push(buffer));
/// });
/// ```
#[macro_export]
macro_rules! worker_local {
    () => {};
    ($(#[$attr:meta])* $vis:vis static $name:ident: $type:ty = $init:expr; $($rest:tt)*) => {
        $crate::worker_local!($(#[$attr])* $vis static $name: $type = $init);
        $crate::worker_local!($($rest)*);
    };
    ($(#[$attr:meta])* $vis:vis static $name:ident: $type:ty = $init:expr) => {
        $(#[$attr])*
        $vis static $name: $crate::WorkerLocal<$type> = {
            ::std::thread_local! { static VALUE: $type = $init; }
            $crate::WorkerLocal::new(&VALUE)
        };
    };
}
