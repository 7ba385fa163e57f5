//! The state word of a fiber: who owns its stack, and which queue it may be on.
//!
//! This is the protocol of fibers that may move at any time. A pinned fiber needs fewer atomic
//! operations: see [`super::pinned_state`].
//!
//! Blocking is "register with the waking side, then suspend". A waker on another core may come
//! between the two, while the fiber still runs on its stack. So it is the *worker* that publishes
//! `SUSPENDED`, and only after the switch has saved the stack. A waker that comes earlier sets
//! `NOTIFIED`, and the worker queues the fiber again.
//!
//! | word | stack belongs to | on a queue? |
//! |---|---|---|
//! | `AWAKE` (0) | the worker that runs it, or the queue that holds it | maybe |
//! | `NOTIFIED` | as above; a wake-up is owed | maybe |
//! | `SUSPENDED` | nobody: whoever clears that bit owns it | no |
//! | `FINISHED` | the worker that frees it | no |
//!
//! 1. Worker, after the switch: adds `SUSPENDED` (`suspend`, release: it publishes the saved
//!    stack). If the word says `NOTIFIED`, it takes the notification instead and queues the fiber.
//! 2. Waker: one compare-and-exchange (`wake`, acquire and release). If the fiber is suspended, it
//!    clears `SUSPENDED`, and it alone pushes the fiber. In any other state it adds `NOTIFIED`,
//!    which the worker finds when the fiber next suspends.
//!
//! Either the waker's exchange comes first and the worker's fails, or the worker's comes first and
//! the waker finds `SUSPENDED`: one of the two queues the fiber, never both (models
//! `loom_wake_is_never_lost`, `loom_two_wakers_push_once`; a plain cell stands for the stack
//! there). The exchange is the last access of a waker to a fiber that it did not win.
//!
//! A dump claims a suspended fiber for a moment, to read what its frames hold ([`State::claim`]):
//! it clears `SUSPENDED` as a waker does, and then adds it again as a worker does. A wake-up in
//! between finds the fiber awake and leaves `NOTIFIED`, and the dump queues the fiber
//! (`loom_a_claim_loses_no_wake`).
//!
//! # Payloads
//! A wake-up may carry a payload that must not get lost and is delivered once: a token (`unpark`)
//! or a grant (a semaphore's permit, a lock). It travels in the same exchange, so it costs nothing:
//! the waker that wins the fiber owns the fiber's cells and stores the payload there, where the
//! fiber takes it without an atomic operation (`Header::take`). A waker that does not win sets a
//! bit in the word, which [`State::take`] clears. (`loom_a_grant_comes_once`.) These bits do not
//! keep a fiber from suspending: it may wait for something else.

#[cfg(all(test, loom))]
mod models;

use crate::shim::atomic::{AtomicU32, Ordering};

const AWAKE: u32 = 0;
/// A wake-up has come since the fiber last suspended.
const NOTIFIED: u32 = 1;
/// Suspended, with its stack saved, on no queue.
const SUSPENDED: u32 = 2;
/// Its body has ended; wake-ups have no effect.
pub(super) const FINISHED: u32 = 4;
/// A token came while the fiber was not suspended.
pub(super) const TOKEN: u32 = 8;
/// A grant came while the fiber was not suspended.
pub(super) const GRANT: u32 = 16;
/// Pinned fibers only: it has suspended at least once; wakers on other threads send its worker a
/// message.
pub(super) const PINNED: u32 = 32;
/// Pinned fibers only: another thread woke it; with `PINNED`, a message to its worker is in flight.
pub(super) const REMOTE_WAKE: u32 = 64;
/// Its task was dropped before it started: it is on its way to a worker that refuses it.
const LOST: u32 = 128;

/// What a wake-up carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WakePayload {
    /// Nothing: the fiber checks its condition again.
    Nothing,
    /// The token of `park` and `unpark`.
    Token,
    /// What the fiber is queued for in a `sync/wait_queue`.
    Grant,
}

impl WakePayload {
    pub(super) fn bit(self) -> u32 {
        match self {
            WakePayload::Nothing => 0,
            WakePayload::Token => TOKEN,
            WakePayload::Grant => GRANT,
        }
    }
}

/// The state word; the table above lists its values.
#[derive(Debug)]
pub(crate) struct State(pub(super) AtomicU32);

impl State {
    /// Creates the state of a new fiber: awake, because it is about to be queued.
    pub(crate) fn new() -> Self {
        Self(AtomicU32::new(AWAKE))
    }

    /// Publishes that the fiber is suspended; its worker has just switched away from it. Returns
    /// false if a wake-up came first: the caller still owns the fiber and queues it.
    #[inline]
    pub(crate) fn suspend(&self) -> bool {
        let mut seen = AWAKE;
        loop {
            if seen & NOTIFIED != 0 {
                self.0.fetch_and(!NOTIFIED, Ordering::AcqRel);
                return false;
            }

            // A failure need not acquire: nothing is done with the word before another operation on
            // it.
            match self.0.compare_exchange(
                seen,
                seen | SUSPENDED,
                Ordering::AcqRel,
                Ordering::Relaxed,
            ) {
                Ok(_) => return true,
                Err(now) => seen = now,
            }
        }
    }

    /// Wakes the fiber. Returns true if the caller now owns it: it stores the `payload` in the
    /// fiber and must queue it. Returns false if another thread owns it: the payload is in the
    /// word.
    #[inline]
    pub(crate) fn wake(&self, payload: WakePayload) -> bool {
        let mut seen = self.0.load(Ordering::Relaxed);
        loop {
            let won = seen & SUSPENDED != 0;
            let next = if won {
                seen & !SUSPENDED
            } else {
                seen | NOTIFIED | payload.bit()
            };

            // Also when nothing changes: whoever takes the notification must see the waker's
            // earlier writes.
            match self
                .0
                .compare_exchange_weak(seen, next, Ordering::AcqRel, Ordering::Relaxed)
            {
                Ok(_) => return won,
                Err(now) => seen = now,
            }
        }
    }

    /// Takes a suspended fiber from whoever may wake it, without waking it. Returns true if the
    /// caller now owns it: it must call [`Self::suspend`] soon, and queue the fiber if that returns
    /// false.
    ///
    /// Context: not for pinned fibers.
    pub(crate) fn claim(&self) -> bool {
        let seen = self.0.load(Ordering::Relaxed);
        let claimed = seen & !SUSPENDED;
        seen != claimed
            && self
                .0
                .compare_exchange(seen, claimed, Ordering::AcqRel, Ordering::Relaxed)
                .is_ok()
    }

    /// Takes a payload of this kind out of the word. Returns true if there was one.
    ///
    /// Context: the fiber itself.
    #[inline]
    pub(crate) fn take(&self, payload: WakePayload) -> bool {
        let there = self.0.load(Ordering::Relaxed) & payload.bit() != 0;
        if there {
            self.0.fetch_and(!payload.bit(), Ordering::AcqRel);
        }
        there
    }

    /// Marks the fiber as ended; the worker that ran it calls this.
    #[inline]
    pub(crate) fn finish(&self) {
        self.0.store(FINISHED, Ordering::Release);
    }

    /// Marks a fiber that has not started, and will not; called by the holder of its task.
    pub(crate) fn lose(&self) {
        self.0.fetch_or(LOST, Ordering::AcqRel);
    }

    /// Returns whether the fiber will not start, to the worker that has its task.
    #[inline]
    pub(crate) fn is_lost(&self) -> bool {
        self.0.load(Ordering::Relaxed) & LOST != 0
    }

    /// Returns whether the fiber has ended.
    pub(crate) fn is_finished(&self) -> bool {
        self.0.load(Ordering::Acquire) & FINISHED != 0
    }
}
