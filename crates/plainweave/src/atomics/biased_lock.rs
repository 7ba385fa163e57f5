//! Who may touch a worker's driver, timers and parked connections: the worker, or the monitor while a fiber holds the
//! worker up.
//!
//! # Why it is hard
//! The worker comes here several times a request and the monitor next to never, so the worker should pay for neither a
//! lock nor a fence: an atomic read-modify-write is 8 ns here, and a request would take three of them.
//!
//! # Rejected
//! * *A mutex, or a compare-and-exchange*: for the said price.
//! * *Everything in atomics, by way of messages*: a worker that is held up reads none.
//! * *A flag around the fiber* ("the worker is out") instead of around each use: a fiber uses the driver while it runs.
//!
//! # Protocol
//! It is Dekker's: each side announces itself, then looks at the other. Between the two stands a full barrier, or both
//! could look first.
//! 1. The worker ([`Claim::enter`]): `inside` becomes 1, *light barrier*, look at `wanted`. Set: it takes `inside`
//!    back, waits until `wanted` is clear, and begins again. Calls nest, only the outermost does this.
//! 2. It leaves by storing 0 (release).
//! 3. The monitor ([`Claim::try_claim`]): `wanted` becomes true, *heavy barrier*, look at `inside` (acquire). Set: it
//!    takes `wanted` back and has not got it; it never waits. Else all is its own until it clears `wanted` (release).
//!
//! The light barrier is for the compiler only: `membarrier(2)`, the heavy one, makes every running thread of the
//! process pass a full barrier at that moment, on the worker's behalf. Where the kernel refuses it from the start both
//! are fences; where it refuses it later, the monitor gets no claim.
//! (Model: `loom_worker_and_monitor_exclude_each_other`, with fences.)

use std::time::Duration;

use crate::shim::atomic::{AtomicBool, AtomicU32, Ordering, fence};
use crate::shim::{compiler_fence, relax};

/// Turns of a worker that waits for the monitor before it sleeps instead, and for how long it does.
const PATIENCE: u32 = 128;
const NAP: Duration = Duration::from_micros(50);

/// Any thread. Whether a claim of the monitor's interrupts a worker that computes: the heavy barrier does.
pub(crate) fn can_interrupt() -> bool {
    barrier::register()
}

/// See the module's page.
#[derive(Debug)]
pub(crate) struct Claim {
    /// How many calls of the worker are inside. Written by the worker alone.
    inside: AtomicU32,
    /// The monitor has it, or is about to look whether it can.
    wanted: AtomicBool,
    /// There is a `membarrier`, so the worker needs no fence.
    asymmetric: bool,
}

impl Claim {
    pub(crate) fn new() -> Self {
        Self { inside: AtomicU32::new(0), wanted: AtomicBool::new(false), asymmetric: barrier::register() }
    }

    /// The worker. What the guard is for is the worker's until it is dropped. Nests.
    #[inline]
    pub(crate) fn enter(&self) -> Inside<'_> {
        let depth = self.inside.load(Ordering::Relaxed);
        self.inside.store(depth + 1, Ordering::Relaxed);
        if depth == 0 {
            self.light();
            if self.wanted.load(Ordering::Acquire) {
                self.wait();
            }
        }
        Inside(self)
    }

    #[inline(always)]
    fn light(&self) {
        if self.asymmetric {
            compiler_fence(Ordering::SeqCst);
        } else {
            fence(Ordering::SeqCst);
        }
    }

    /// The worker, which has announced itself and has seen that the monitor is here.
    #[cold]
    fn wait(&self) {
        let mut turn = 0;
        while self.wanted.load(Ordering::Acquire) {
            self.inside.store(0, Ordering::Release);
            while self.wanted.load(Ordering::Relaxed) {
                // The monitor may itself be waiting for a processor: it gets this one.
                relax(turn);
                turn += 1;
                if turn > PATIENCE {
                    std::thread::sleep(NAP);
                }
            }
            self.inside.store(1, Ordering::Relaxed);
            self.light();
        }
    }

    /// The monitor, one thread. `None`: the worker is inside, or cannot be asked.
    pub(crate) fn try_claim(&self) -> Option<Claimed<'_>> {
        self.wanted.store(true, Ordering::Relaxed);
        let passed = if self.asymmetric {
            barrier::pass()
        } else {
            fence(Ordering::SeqCst);
            true
        };
        if !passed || self.inside.load(Ordering::Acquire) != 0 {
            self.wanted.store(false, Ordering::Release);
            return None;
        }
        Some(Claimed(self))
    }
}

/// The worker is inside.
#[derive(Debug)]
pub(crate) struct Inside<'a>(&'a Claim);

impl Drop for Inside<'_> {
    #[inline]
    fn drop(&mut self) {
        let depth = self.0.inside.load(Ordering::Relaxed);
        self.0.inside.store(depth - 1, Ordering::Release);
    }
}

/// The monitor has it.
#[derive(Debug)]
pub(crate) struct Claimed<'a>(&'a Claim);

impl Drop for Claimed<'_> {
    fn drop(&mut self) {
        self.0.wanted.store(false, Ordering::Release);
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
    fn loom_worker_and_monitor_exclude_each_other() {
        loom::model(|| {
            let shared = Arc::new((Claim::new(), AtomicU32::new(0)));
            let add = |cell: &AtomicU32| cell.store(cell.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
            let other = shared.clone();
            let monitor = loom::thread::spawn(move || {
                let claimed = other.0.try_claim();
                if claimed.is_some() {
                    add(&other.1);
                }
                claimed.is_some()
            });
            for _ in 0..2 {
                let _inside = shared.0.enter();
                let _nested = shared.0.enter();
                add(&shared.1);
            }
            let claimed = monitor.join().unwrap();
            let _inside = shared.0.enter();
            assert_eq!(shared.1.load(Ordering::Relaxed), 2 + u32::from(claimed));
        });
    }
}
