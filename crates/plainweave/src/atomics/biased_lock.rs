//! A biased lock: its owner takes it without an atomic read-modify-write or a fence, and one other
//! thread may try to take it (asymmetric Dekker). It guards a worker's driver, timers and idle
//! connections. The worker owns it; the watchdog takes it remotely while a fiber holds the worker
//! up.
//!
//! # Why it is hard
//! The worker takes the lock several times a request and the watchdog almost never, so the worker
//! should pay for neither a lock nor a fence: an atomic read-modify-write is 8 ns here, and a
//! request would take three of them.
//!
//! # Rejected
//! * *A mutex, or a compare-and-exchange*: that price.
//! * *Messages in place of shared access*: a worker that is held up reads none.
//! * *A flag around the fiber* ("the worker is out") instead of around each use: a fiber uses the
//!   driver while it runs.
//!
//! # Protocol
//! Each side announces itself, then looks at the other. A full barrier stands between the two
//! steps; without it both sides could look first.
//! 1. The owner ([`BiasedLock::lock`]): sets `depth` to 1, *light barrier*, loads `remote`. If it
//!    is set, the owner resets `depth`, waits until `remote` is clear, and begins again. Calls
//!    nest; only the outermost does this.
//! 2. The owner unlocks by storing 0 (release).
//! 3. The remote side ([`BiasedLock::try_lock_remote`]): sets `remote`, *heavy barrier*, loads
//!    `depth` (acquire). If it is not 0, it clears `remote` and has failed; it never waits.
//!    Otherwise it holds the lock until it clears `remote` (release).
//!
//! The barriers are those of `atomics/barrier`. If the kernel refuses the heavy one from the start,
//! both are fences; if it refuses later, the remote side never gets the lock.
//! (Model: `loom_owner_and_remote_exclude_each_other`, with fences.)

use std::time::Duration;

use crate::atomics::barrier;
use crate::shim::atomic::{AtomicBool, AtomicU32, Ordering};
use crate::shim::relax;

/// Spins of an owner that waits for the remote side before it sleeps instead, and the length of
/// each sleep.
const SPINS: u32 = 128;
const NAP: Duration = Duration::from_micros(50);

/// Returns whether locking remotely interrupts an owner that computes. The heavy barrier does.
pub(crate) fn can_interrupt() -> bool {
    barrier::register()
}

/// The lock. It holds no data: `sched/worker_io` keeps the state that it guards.
#[derive(Debug)]
pub(crate) struct BiasedLock {
    /// Nested calls of the owner that hold the lock. Written by the owner alone.
    depth: AtomicU32,
    /// The remote side holds the lock, or is trying to.
    remote: AtomicBool,
    /// `membarrier` works, so the owner needs no fence.
    asymmetric: bool,
}

impl BiasedLock {
    pub(crate) fn new() -> Self {
        Self {
            depth: AtomicU32::new(0),
            remote: AtomicBool::new(false),
            asymmetric: barrier::register(),
        }
    }

    /// Locks, waiting while the remote side holds the lock. Calls nest.
    ///
    /// Context: the owner.
    #[inline]
    pub(crate) fn lock(&self) -> OwnerGuard<'_> {
        let depth = self.depth.load(Ordering::Relaxed);
        self.depth.store(depth + 1, Ordering::Relaxed);
        if depth == 0 {
            barrier::light(self.asymmetric);
            if self.remote.load(Ordering::Acquire) {
                self.wait();
            }
        }

        OwnerGuard(self)
    }

    /// Waits for the remote side to unlock. The owner has announced itself and has seen `remote`
    /// set.
    #[cold]
    fn wait(&self) {
        let mut turn = 0;
        while self.remote.load(Ordering::Acquire) {
            self.depth.store(0, Ordering::Release);
            while self.remote.load(Ordering::Relaxed) {
                // The remote thread may itself be waiting for a processor: yield this one to it.
                relax(turn);
                turn += 1;
                if turn > SPINS {
                    std::thread::sleep(NAP);
                }
            }

            self.depth.store(1, Ordering::Relaxed);
            barrier::light(self.asymmetric);
        }
    }

    /// Tries to lock from one other thread. Returns `None` if the owner holds the lock or the
    /// barrier failed.
    pub(crate) fn try_lock_remote(&self) -> Option<RemoteGuard<'_>> {
        self.remote.store(true, Ordering::Relaxed);
        let passed = barrier::heavy(self.asymmetric);
        if !passed || self.depth.load(Ordering::Acquire) != 0 {
            self.remote.store(false, Ordering::Release);
            return None;
        }

        Some(RemoteGuard(self))
    }
}

/// The owner's hold on the lock.
#[derive(Debug)]
pub(crate) struct OwnerGuard<'a>(&'a BiasedLock);

impl Drop for OwnerGuard<'_> {
    #[inline]
    fn drop(&mut self) {
        let depth = self.0.depth.load(Ordering::Relaxed);
        self.0.depth.store(depth - 1, Ordering::Release);
    }
}

/// The remote side's hold on the lock.
#[derive(Debug)]
pub(crate) struct RemoteGuard<'a>(&'a BiasedLock);

impl Drop for RemoteGuard<'_> {
    fn drop(&mut self) {
        self.0.remote.store(false, Ordering::Release);
    }
}

#[cfg(all(test, loom))]
mod loom_models {
    use super::*;
    use crate::shim::Arc;

    /// Neither side loses the other's increment, although neither increments atomically.
    #[test]
    fn loom_owner_and_remote_exclude_each_other() {
        loom::model(|| {
            let shared = Arc::new((BiasedLock::new(), AtomicU32::new(0)));
            let add =
                |cell: &AtomicU32| cell.store(cell.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
            let other = shared.clone();
            let watchdog = loom::thread::spawn(move || {
                let claimed = other.0.try_lock_remote();
                if claimed.is_some() {
                    add(&other.1);
                }
                claimed.is_some()
            });

            for _ in 0..2 {
                let _inside = shared.0.lock();
                drop(shared.0.lock());
                add(&shared.1);
            }

            let claimed = watchdog.join().unwrap();
            let _inside = shared.0.lock();
            assert_eq!(shared.1.load(Ordering::Relaxed), 2 + u32::from(claimed));
        });
    }
}
