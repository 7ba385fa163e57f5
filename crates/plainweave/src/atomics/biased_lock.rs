//! A lock that its owner takes without an atomic read-modify-write or a fence, and that one other thread may try to
//! take: asymmetric Dekker. It guards a worker's driver, timers and idle connections; the worker owns it, and the
//! watchdog takes it remotely while a fiber holds the worker up.
//!
//! # Why it is hard
//! The worker comes here several times a request and the watchdog next to never, so the worker should pay for neither
//! a lock nor a fence: an atomic read-modify-write is 8 ns here, and a request would take three of them.
//!
//! # Rejected
//! * *A mutex, or a compare-and-exchange*: that price.
//! * *Everything in atomics, by way of messages*: a worker that is held up reads none.
//! * *A flag around the fiber* ("the worker is out") instead of around each use: a fiber uses the driver while it runs.
//!
//! # Protocol
//! Each side announces itself, then looks at the other. Between the two stands a full barrier, or both could look
//! first.
//! 1. The owner ([`BiasedLock::lock`]): `depth` becomes 1, *light barrier*, look at `remote`. Set: it takes `depth`
//!    back, waits until `remote` is clear, and begins again. Calls nest, only the outermost does this.
//! 2. It unlocks by storing 0 (release).
//! 3. The remote side ([`BiasedLock::try_lock_remote`]): `remote` becomes true, *heavy barrier*, look at `depth`
//!    (acquire). Not 0: it takes `remote` back and has not got the lock; it never waits. Else all is its own until it
//!    clears `remote` (release).
//!
//! The light barrier is for the compiler only: `membarrier(2)`, the heavy one, makes every running thread of the
//! process pass a full barrier at that moment, on the owner's behalf. Where the kernel refuses it from the start both
//! are fences; where it refuses it later, the remote side never gets the lock.
//! (Model: `loom_owner_and_remote_exclude_each_other`, with fences.)

use std::time::Duration;

use crate::shim::atomic::{AtomicBool, AtomicU32, Ordering, fence};
use crate::shim::{compiler_fence, relax};

/// Turns of an owner that waits for the remote side before it sleeps instead, and for how long it does.
const PATIENCE: u32 = 128;
const NAP: Duration = Duration::from_micros(50);

/// Returns whether locking remotely interrupts an owner that computes: the heavy barrier does.
pub(crate) fn can_interrupt() -> bool {
    barrier::register()
}

/// See the module's page.
#[derive(Debug)]
pub(crate) struct BiasedLock {
    /// How many calls of the owner are inside. Written by the owner alone.
    depth: AtomicU32,
    /// The remote side has it, or is about to look whether it can.
    remote: AtomicBool,
    /// There is a `membarrier`, so the owner needs no fence.
    asymmetric: bool,
}

impl BiasedLock {
    pub(crate) fn new() -> Self {
        Self { depth: AtomicU32::new(0), remote: AtomicBool::new(false), asymmetric: barrier::register() }
    }

    /// Locks, waiting for the remote side if it is there; the owner alone calls it. Nests.
    #[inline]
    pub(crate) fn lock(&self) -> OwnerGuard<'_> {
        let depth = self.depth.load(Ordering::Relaxed);
        self.depth.store(depth + 1, Ordering::Relaxed);
        if depth == 0 {
            self.light();
            if self.remote.load(Ordering::Acquire) {
                self.wait();
            }
        }
        OwnerGuard(self)
    }

    #[inline(always)]
    fn light(&self) {
        if self.asymmetric {
            compiler_fence(Ordering::SeqCst);
        } else {
            fence(Ordering::SeqCst);
        }
    }

    /// The owner, which has announced itself and has seen that the remote side is here.
    #[cold]
    fn wait(&self) {
        let mut turn = 0;
        while self.remote.load(Ordering::Acquire) {
            self.depth.store(0, Ordering::Release);
            while self.remote.load(Ordering::Relaxed) {
                // The other may itself be waiting for a processor: it gets this one.
                relax(turn);
                turn += 1;
                if turn > PATIENCE {
                    std::thread::sleep(NAP);
                }
            }
            self.depth.store(1, Ordering::Relaxed);
            self.light();
        }
    }

    /// Tries to lock from one other thread. `None`: the owner is inside, or the barrier failed.
    pub(crate) fn try_lock_remote(&self) -> Option<RemoteGuard<'_>> {
        self.remote.store(true, Ordering::Relaxed);
        let passed = if self.asymmetric {
            barrier::pass()
        } else {
            fence(Ordering::SeqCst);
            true
        };
        if !passed || self.depth.load(Ordering::Acquire) != 0 {
            self.remote.store(false, Ordering::Release);
            return None;
        }
        Some(RemoteGuard(self))
    }
}

/// The owner has the lock.
#[derive(Debug)]
pub(crate) struct OwnerGuard<'a>(&'a BiasedLock);

impl Drop for OwnerGuard<'_> {
    #[inline]
    fn drop(&mut self) {
        let depth = self.0.depth.load(Ordering::Relaxed);
        self.0.depth.store(depth - 1, Ordering::Release);
    }
}

/// The remote side has the lock.
#[derive(Debug)]
pub(crate) struct RemoteGuard<'a>(&'a BiasedLock);

impl Drop for RemoteGuard<'_> {
    fn drop(&mut self) {
        self.0.remote.store(false, Ordering::Release);
    }
}

/// The heavy barrier.
#[cfg(not(loom))]
mod barrier {
    use std::sync::OnceLock;

    use rustix::thread::{MembarrierCommand, membarrier};

    /// Any thread, before the first `pass`. Whether there is one.
    pub(super) fn register() -> bool {
        static THERE: OnceLock<bool> = OnceLock::new();
        *THERE.get_or_init(|| membarrier(MembarrierCommand::RegisterPrivateExpedited).is_ok())
    }

    /// Every running thread of the process passes a full barrier before this returns. False: none has. (The kernel may
    /// lack memory, and a seccomp filter may have come since.)
    pub(super) fn pass() -> bool {
        membarrier(MembarrierCommand::PrivateExpedited).is_ok()
    }
}

#[cfg(loom)]
mod barrier {
    pub(super) fn register() -> bool {
        false
    }

    pub(super) fn pass() -> bool {
        false
    }
}

#[cfg(all(test, loom))]
mod loom_models {
    use super::*;
    use crate::shim::Arc;

    /// Neither loses what the other has added, although they add without an atomic addition.
    #[test]
    fn loom_owner_and_remote_exclude_each_other() {
        loom::model(|| {
            let shared = Arc::new((BiasedLock::new(), AtomicU32::new(0)));
            let add = |cell: &AtomicU32| cell.store(cell.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
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
                let _nested = shared.0.lock();
                add(&shared.1);
            }
            let claimed = watchdog.join().unwrap();
            let _inside = shared.0.lock();
            assert_eq!(shared.1.load(Ordering::Relaxed), 2 + u32::from(claimed));
        });
    }
}
