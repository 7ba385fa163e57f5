//! The state of a fiber that is pinned to one worker. Most fibers are, and most of their wake-ups
//! come from that worker.
//!
//! # Concepts
//! A pinned fiber's *phase* ([`PinnedState`]: awake, notified, suspended, finished) is plain memory
//! that only its worker touches. A fiber of the same worker wakes it with a load and a store, and
//! suspending it is a store: no atomic read-modify-write where the general protocol
//! ([`super::state`]) has two. Every other thread goes through the state word: it sets
//! `REMOTE_WAKE` there, and the fiber itself goes into the worker's inbox as a *message*: "look at
//! this one". The worker empties its inbox, takes the payload out of the word, and wakes the fiber
//! locally.
//!
//! # Why it is hard
//! 1. A fiber that has not started has no worker yet: a message would have nowhere to go.
//! 2. A fiber has one link, so only one message about it may be in flight.
//! 3. A fiber may end, and its runtime with it, while a message about it is between the word and
//!    the inbox.
//!
//! # Protocol
//! 1. *First suspension.* The worker adds `PINNED` to the word when the fiber first suspends, and
//!    not before. A remote waker that comes earlier finds neither bit and sets `REMOTE_WAKE`; the
//!    worker's read-modify-write then finds it, and the fiber does not suspend. A fiber that never
//!    waits never pays.
//! 2. *Remote wake-up:* `fetch_or(REMOTE_WAKE | payload)`. Found `PINNED` alone: this waker sends
//!    the message. Found `REMOTE_WAKE` as well: a message is in flight, and its reader will see
//!    this waker's payload. Found neither: as in step 1, no message is needed. Found `FINISHED`:
//!    too late.
//! 3. *Reading a message:* remove `REMOTE_WAKE` and the payload from the word in one operation,
//!    then wake locally. From then on another message may be sent. The link is free, because the
//!    message has left the inbox.
//! 4. *Ending.* The worker of a fiber that has suspended swaps in `FINISHED`. Found `REMOTE_WAKE`:
//!    a message is in flight. The fiber then stays on record and is not counted as ended (which
//!    keeps its pool alive, and so the inbox) until that message has arrived. A fiber that never
//!    suspended has none and ends with a store.
//!
//! Every wake-up reaches the fiber: remote wake-ups and the worker's steps 1, 3 and 4 are
//! read-modify-writes of one word, so each wake-up is either seen by the next of these steps or
//! belongs to a message that has not been read (`loom_a_remote_wake_reaches_the_fiber`,
//! `loom_one_message_at_a_time`, `loom_no_message_outlives_its_fiber`).
//!
//! A fiber that waits alone for a grant needs none of this. It cannot end before it has the grant,
//! so the granter sends its worker the fiber's address (`queue/mpsc`) and the worker wakes it
//! locally. The word is not touched.
//!
//! # Rejected
//! *Setting `PINNED` at the start*: one more read-modify-write for each fiber, including those that
//! never wait. *A counted reference in each message*: it would keep the header alive, but not the
//! pool.

use std::cell::Cell;

use super::state::{FINISHED, GRANT, PINNED, REMOTE_WAKE, State, TOKEN, WakePayload};
use crate::shim::atomic::Ordering;

/// What a pinned fiber does, as its worker knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum Phase {
    /// Running, or on a queue.
    Awake,
    /// As `Awake`, and a wake-up is owed.
    Notified,
    /// Suspended, on no queue.
    Suspended,
    /// Ended, with a message still in flight.
    Finished,
}

/// What the worker must do after a local wake-up or after reading a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WakeAction {
    /// Queue the fiber.
    Queue,
    /// Nothing: it is awake and will look at its condition.
    Nothing,
    /// Free it: this was the message that it was kept for. (Only after a message.)
    Retire,
}

/// A pinned fiber's phase.
///
/// Context: its worker's thread only.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct PinnedState {
    /// First field: debuggers read it (`fiber/layout`).
    phase: Cell<Phase>,
    has_suspended: Cell<bool>,
}

impl PinnedState {
    /// Creates the state of a new fiber.
    pub(crate) fn new() -> Self {
        Self {
            phase: Cell::new(Phase::Awake),
            has_suspended: Cell::new(false),
        }
    }

    /// Returns whether the fiber has suspended. If so, finding it in an inbox means a message about
    /// it; if not, it is the fiber itself, which another thread spawned for this worker or sent
    /// here to start.
    #[inline]
    pub(crate) fn has_suspended(&self) -> bool {
        self.has_suspended.get()
    }

    /// Returns whether the fiber is suspended.
    pub(crate) fn is_suspended(&self) -> bool {
        self.phase.get() == Phase::Suspended
    }

    /// Wakes the fiber locally.
    ///
    /// Context: its worker.
    #[inline]
    pub(crate) fn wake(&self) -> WakeAction {
        match self.phase.get() {
            Phase::Suspended => {
                self.phase.set(Phase::Awake);
                WakeAction::Queue
            }
            Phase::Awake | Phase::Notified => {
                self.phase.set(Phase::Notified);
                WakeAction::Nothing
            }
            Phase::Finished => WakeAction::Nothing,
        }
    }
}

impl State {
    /// Marks the fiber as suspended; its worker has just switched away from it. Returns false if a
    /// wake-up came first: the caller must queue the fiber.
    #[inline]
    pub(crate) fn suspend_pinned(&self, local: &PinnedState) -> bool {
        if local.phase.get() == Phase::Notified {
            local.phase.set(Phase::Awake);
            return false;
        }

        if !local.has_suspended.get() && !self.first_suspension(local) {
            return false;
        }
        local.phase.set(Phase::Suspended);
        true
    }

    /// Performs step 1. Returns false if a wake-up came first. Its payload stays in the word, for
    /// [`State::take`].
    #[cold]
    fn first_suspension(&self, local: &PinnedState) -> bool {
        local.has_suspended.set(true);
        let posted = self.0.fetch_or(PINNED, Ordering::AcqRel) & REMOTE_WAKE != 0;
        if posted {
            self.0.fetch_and(!REMOTE_WAKE, Ordering::AcqRel);
        }
        !posted
    }

    /// Performs step 2. Returns true if the caller must send the message; the fiber then lives
    /// until that has been read. After false the caller may use the fiber only through a reference
    /// of its own.
    ///
    /// Context: any thread except the worker's.
    #[inline]
    pub(crate) fn wake_remote(&self, payload: WakePayload) -> bool {
        let before = self
            .0
            .fetch_or(REMOTE_WAKE | payload.bit(), Ordering::AcqRel);
        before & (PINNED | REMOTE_WAKE | FINISHED) == PINNED
    }

    /// Performs step 3, after the worker has read a message about the fiber. Calls `bring` with
    /// each payload found.
    pub(crate) fn read(
        &self,
        local: &PinnedState,
        mut bring: impl FnMut(WakePayload),
    ) -> WakeAction {
        if local.phase.get() == Phase::Finished {
            return WakeAction::Retire;
        }
        let before = self
            .0
            .fetch_and(!(REMOTE_WAKE | TOKEN | GRANT), Ordering::AcqRel);
        [WakePayload::Token, WakePayload::Grant]
            .into_iter()
            .filter(|b| before & b.bit() != 0)
            .for_each(&mut bring);
        local.wake()
    }

    /// Performs step 4; the worker calls this once. Returns false if a message is in flight: the
    /// caller must keep the fiber until [`State::read`] returns `Retire`.
    #[inline]
    pub(crate) fn finish_pinned(&self, local: &PinnedState) -> bool {
        if !local.has_suspended.get() {
            self.finish();
            return true;
        }

        let posted = self.0.swap(FINISHED, Ordering::AcqRel) & REMOTE_WAKE != 0;
        if posted {
            local.phase.set(Phase::Finished);
        }
        !posted
    }
}

#[cfg(all(test, loom))]
mod loom_models {
    use super::*;
    use crate::shim::atomic::{AtomicU32, AtomicUsize};
    use loom::sync::Arc;

    /// A fiber that waits for `flag`, and the number of messages in its worker's inbox.
    struct Model {
        state: State,
        flag: AtomicU32,
        inbox: AtomicUsize,
    }

    fn model() -> Arc<Model> {
        Arc::new(Model {
            state: State::new(),
            flag: AtomicU32::new(0),
            inbox: AtomicUsize::new(0),
        })
    }

    fn wake_from_elsewhere(m: &Model, payload: WakePayload) {
        m.flag.fetch_add(1, Ordering::Relaxed);
        if m.state.wake_remote(payload) {
            let held = m.inbox.fetch_add(1, Ordering::AcqRel);
            assert_eq!(held, 0, "two messages about one fiber");
        }
    }

    fn waker(m: &Arc<Model>, payload: WakePayload) -> loom::thread::JoinHandle<()> {
        let m = m.clone();
        loom::thread::spawn(move || wake_from_elsewhere(&m, payload))
    }

    /// Reads a message, if there is one, as the worker.
    fn read(m: &Model, local: &PinnedState, grants: &mut u32) -> Option<WakeAction> {
        (m.inbox.swap(0, Ordering::AcqRel) == 1).then(|| {
            m.state.read(local, |payload| {
                *grants += u32::from(payload == WakePayload::Grant)
            })
        })
    }

    /// Waits until `flag` has reached `n`, as the fiber. Its worker suspends it, and reads messages
    /// while it is suspended.
    fn run_until(m: &Model, local: &PinnedState, n: u32, grants: &mut u32) {
        while m.flag.load(Ordering::Relaxed) < n {
            if m.state.suspend_pinned(local) {
                while read(m, local, grants) != Some(WakeAction::Queue) {
                    loom::thread::yield_now();
                }
            }
        }
    }

    /// Two waits, one wake-up each, the second after the first was seen: neither is lost, whether
    /// it comes before the fiber's first suspension, while it runs or while it is suspended.
    #[test]
    fn loom_a_remote_wake_reaches_the_fiber() {
        loom::model(|| {
            let m = model();
            let local = PinnedState::new();
            let mut grants = 0;
            let first = waker(&m, WakePayload::Nothing);
            run_until(&m, &local, 1, &mut grants);
            let second = waker(&m, WakePayload::Nothing);

            run_until(&m, &local, 2, &mut grants);
            first.join().unwrap();
            second.join().unwrap();
        });
    }

    /// Two wakers at once, one with a grant: the grant arrives exactly once, by a message or in the
    /// word.
    #[test]
    fn loom_one_message_at_a_time() {
        loom::model(|| {
            let m = model();
            let local = PinnedState::new();
            let mut grants = 0;
            let wakers = [
                waker(&m, WakePayload::Grant),
                waker(&m, WakePayload::Nothing),
            ];

            while grants == 0 {
                grants += u32::from(m.state.take(WakePayload::Grant));
                if grants == 0 && m.state.suspend_pinned(&local) {
                    while read(&m, &local, &mut grants) != Some(WakeAction::Queue) {
                        loom::thread::yield_now();
                    }
                }
            }

            wakers.into_iter().for_each(|w| w.join().unwrap());
            read(&m, &local, &mut grants);
            assert!(
                grants == 1 && !m.state.take(WakePayload::Grant),
                "granted twice"
            );
        });
    }

    /// A fiber ends while two others wake it: it is freed at once if no message is in flight,
    /// otherwise with that message, and none is sent afterwards.
    #[test]
    fn loom_no_message_outlives_its_fiber() {
        loom::model(|| {
            let m = model();
            let local = PinnedState::new();
            let mut grants = 0;
            let wakers = [
                waker(&m, WakePayload::Nothing),
                waker(&m, WakePayload::Token),
            ];
            run_until(&m, &local, 1, &mut grants);

            if !m.state.finish_pinned(&local) {
                loop {
                    match read(&m, &local, &mut grants) {
                        Some(call) => break assert_eq!(call, WakeAction::Retire),
                        None => loom::thread::yield_now(),
                    }
                }
            }

            wakers.into_iter().for_each(|w| w.join().unwrap());
            assert_eq!(
                m.inbox.load(Ordering::Acquire),
                0,
                "a message about a fiber that is gone"
            );
        });
    }
}
