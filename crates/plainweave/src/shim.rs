//! The single source of atomics, cells and threads for lock-free code: `std` in a build, `loom` in
//! a model. (The crate `plainweave-sim` compiles `queue`, `policy` and a part of `sched` once more,
//! with a shim of its own: simulated time.)
//!
//! Lock-free modules (`queue/*`, `atomics/*`) import from here and from nowhere else, so that the
//! file that runs is the file that was checked. Under `--cfg loom` every access goes through loom's
//! scheduler; capacities shrink there because the state space grows with them.

#[cfg(not(loom))]
mod imp {
    use rustix::fs::Timespec;
    use rustix::thread::futex;

    pub(crate) use std::hint::spin_loop;
    pub(crate) use std::sync::atomic::compiler_fence;
    pub(crate) use std::sync::{Arc, Condvar, Mutex, MutexGuard, atomic};

    /// Spins once; after `turn` 64 yields to other threads through the kernel.
    #[inline]
    pub(crate) fn relax(turn: u32) {
        if turn < 64 {
            std::hint::spin_loop()
        } else {
            std::thread::yield_now()
        }
    }

    /// Marks a thief's look at another worker's tasks. Does nothing here; a simulation charges it
    /// as time.
    #[inline(always)]
    pub(crate) fn look_at_victim() {}

    /// Waits until the word no longer holds `value`, or somebody calls [`futex_wake`], or `limit`
    /// has passed; may return for no reason.
    pub(crate) fn futex_wait(word: &atomic::AtomicU32, value: u32, limit: Option<&Timespec>) {
        // Whatever it says, the caller looks at the word again.
        let _ = futex::wait(word, futex::Flags::PRIVATE, value, limit);
    }

    /// Wakes one thread that waits for the word. May be called in a signal handler.
    pub(crate) fn futex_wake(word: &atomic::AtomicU32) {
        let _ = futex::wake(word, futex::Flags::PRIVATE, 1);
    }

    /// `std`'s cell behind loom's closure interface.
    #[derive(Debug)]
    pub(crate) struct UnsafeCell<T>(std::cell::UnsafeCell<T>);

    impl<T> UnsafeCell<T> {
        pub(crate) const fn new(value: T) -> Self {
            Self(std::cell::UnsafeCell::new(value))
        }

        /// Passes a pointer for reading; the caller ensures that nobody writes meanwhile.
        #[inline(always)]
        pub(crate) fn with<R>(&self, f: impl FnOnce(*const T) -> R) -> R {
            f(self.0.get())
        }

        /// Passes a pointer for writing; the caller ensures that nobody else accesses it meanwhile.
        #[inline(always)]
        pub(crate) fn with_mut<R>(&self, f: impl FnOnce(*mut T) -> R) -> R {
            f(self.0.get())
        }
    }
}

#[cfg(loom)]
mod imp {
    pub(crate) use loom::cell::UnsafeCell;
    pub(crate) use loom::sync::{Arc, Condvar, Mutex, MutexGuard, atomic};

    /// Has no effect in a model, so code that relies on it needs another way there.
    pub(crate) fn compiler_fence(_: atomic::Ordering) {}

    /// A model has no kernel.
    pub(crate) fn futex_wait(_: &atomic::AtomicU32, _: u32, _: Option<&rustix::fs::Timespec>) {
        loom::thread::yield_now();
    }

    pub(crate) fn futex_wake(_: &atomic::AtomicU32) {}

    pub(crate) fn relax(_: u32) {
        loom::thread::yield_now();
    }

    pub(crate) fn look_at_victim() {}

    /// Lets the other threads of the model run: what is waited for is theirs to do.
    pub(crate) fn spin_loop() {
        loom::thread::yield_now();
    }
}

pub(crate) use imp::*;
