//! The state of a fiber that stays with one worker: most fibers, and most of their wake-ups come from that worker.
//!
//! # Concepts
//! An anchored fiber's *place* ([`PinnedState`]: awake, notified, suspended, finished) is plain memory that its worker
//! alone touches. A fiber of the same worker wakes it with a load and a store, and suspending it is a store: no atomic
//! read-modify-write where the general protocol ([`super::state`]) has two. Every other thread goes through the word:
//! it leaves `REMOTE_WAKE` there, and the fiber itself goes into the worker's inbox as a *message*: "look at this one".
//! The worker empties its inbox, takes what was left in the word, and wakes the fiber as if it had done so by itself.
//!
//! # Why it is hard
//! 1. A fiber that has not started has no worker yet: a message could go nowhere.
//! 2. A fiber has one link, so one message at a time may be on its way.
//! 3. A fiber may end, and its runtime with it, while a message about it is between the word and the inbox.
//!
//! # Protocol
//! 1. *Settling.* At its first suspension, and not before, the worker adds `PINNED` to the word. Who wakes the fiber
//!    earlier from elsewhere finds it unsettled and leaves `REMOTE_WAKE`, which that same read-modify-write finds: the
//!    fiber then is not suspended. A fiber that never waits never pays.
//! 2. *Waking from elsewhere:* `fetch_or(REMOTE_WAKE | what it payload)`. Found `PINNED` alone: the message is this
//!    waker's to send. Found `REMOTE_WAKE` as well: one is on its way, and its reader will see what this waker left.
//!    Found neither: see 1. Found `FINISHED`: too late.
//! 3. *Reading a message:* take `REMOTE_WAKE` and what was brought out of the word in one operation, then wake locally.
//!    From then on another message may be sent; the link is free, for the inbox was read before.
//! 4. *Ending.* A settled fiber's worker swaps in `FINISHED`. Found `REMOTE_WAKE`: a message is on its way. The fiber
//!    then stays on record, not counted as ended (so its pool stays, and with it the inbox), until that message has
//!    come. A fiber that never waited has none and ends with a store.
//!
//! Every wake-up reaches the fiber: posts and the worker's steps 1, 3 and 4 are read-modify-writes of one word, so each
//! post is either seen by the next of these steps or belongs to a message that has not been read
//! (`loom_a_post_reaches_the_fiber`, `loom_one_message_at_a_time`, `loom_no_message_outlives_its_fiber`).
//!
//! A fiber that waits alone for a grant needs none of this: it cannot end before the grant is there, so its worker is
//! sent the fiber's address (`queue/mpsc`), and wakes it as it would by itself. The word is not touched.
//!
//! # Rejected
//! *Settling at the start*: one read-modify-write more for each fiber, also those that never wait. *A counted reference
//! in each message*: it would keep the header, but not the pool.

use std::cell::Cell;

use super::state::{FINISHED, GRANT, PINNED, REMOTE_WAKE, State, TOKEN, WakePayload};
use crate::shim::atomic::Ordering;

/// Where an anchored fiber is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// It runs, or is on a queue.
    Awake,
    /// The same, and a wake-up is owed.
    Notified,
    /// Suspended, on no queue.
    Suspended,
    /// It has ended, and a message is on its way.
    Finished,
}

/// What a wake-up by the fiber's own worker, or a message about it, calls for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WakeAction {
    /// Queue the fiber.
    Queue,
    /// Nothing: it is awake and will look.
    Nothing,
    /// Free it: it was the message that it stayed for. (Only for a message.)
    Retire,
}

/// An anchored fiber's place. Its worker's thread only.
#[derive(Debug)]
pub(crate) struct PinnedState {
    place: Cell<Place>,
    has_suspended: Cell<bool>,
}

impl PinnedState {
    /// A new fiber.
    pub(crate) fn new() -> Self {
        Self { place: Cell::new(Place::Awake), has_suspended: Cell::new(false) }
    }

    /// Whether what comes out of an inbox is a message about the fiber. (Otherwise it is the fiber itself, which
    /// somebody else spawned for this worker or sent here to start.)
    #[inline]
    pub(crate) fn has_suspended(&self) -> bool {
        self.has_suspended.get()
    }

    /// A wake-up by the fiber's own worker.
    #[inline]
    pub(crate) fn wake(&self) -> WakeAction {
        match self.place.get() {
            Place::Suspended => {
                self.place.set(Place::Awake);
                WakeAction::Queue
            }
            Place::Awake | Place::Notified => {
                self.place.set(Place::Notified);
                WakeAction::Nothing
            }
            Place::Finished => WakeAction::Nothing,
        }
    }
}

impl State {
    /// The fiber's worker, which has just switched away from it. False: a wake-up came first; the fiber is still to be
    /// queued.
    #[inline]
    pub(crate) fn suspend_pinned(&self, local: &PinnedState) -> bool {
        if local.place.get() == Place::Notified {
            local.place.set(Place::Awake);
            return false;
        }
        if !local.has_suspended.get() && !self.first_suspension(local) {
            return false;
        }
        local.place.set(Place::Suspended);
        true
    }

    /// Step 1. False: a wake-up came first. What it brought stays in the word, for [`State::take`].
    #[cold]
    fn first_suspension(&self, local: &PinnedState) -> bool {
        local.has_suspended.set(true);
        let posted = self.0.fetch_or(PINNED, Ordering::AcqRel) & REMOTE_WAKE != 0;
        if posted {
            self.0.fetch_and(!REMOTE_WAKE, Ordering::AcqRel);
        }
        !posted
    }

    /// Any thread but the worker's. True: the caller sends the message. It touches the fiber only then; the fiber
    /// lives until the message has been read.
    #[inline]
    pub(crate) fn wake_remote(&self, payload: WakePayload) -> bool {
        let before = self.0.fetch_or(REMOTE_WAKE | payload.bit(), Ordering::AcqRel);
        before & (PINNED | REMOTE_WAKE | FINISHED) == PINNED
    }

    /// The fiber's worker, which has read a message about it. `bring` is called with each thing that wakers left.
    pub(crate) fn read(&self, local: &PinnedState, mut bring: impl FnMut(WakePayload)) -> WakeAction {
        if local.place.get() == Place::Finished {
            return WakeAction::Retire;
        }
        let before = self.0.fetch_and(!(REMOTE_WAKE | TOKEN | GRANT), Ordering::AcqRel);
        [WakePayload::Token, WakePayload::Grant].into_iter().filter(|b| before & b.bit() != 0).for_each(&mut bring);
        local.wake()
    }

    /// The fiber's worker, once, after its end. False: a message is on its way, the fiber is to be kept until
    /// [`State::read`] says `Retire`.
    #[inline]
    pub(crate) fn finish_pinned(&self, local: &PinnedState) -> bool {
        if !local.has_suspended.get() {
            self.finish();
            return true;
        }
        let posted = self.0.swap(FINISHED, Ordering::AcqRel) & REMOTE_WAKE != 0;
        if posted {
            local.place.set(Place::Finished);
        }
        !posted
    }
}

#[cfg(all(test, loom))]
mod loom_models {
    use super::*;
    use crate::shim::atomic::{AtomicU32, AtomicUsize};
    use loom::sync::Arc;

    /// A fiber whose waits `flag` satisfies, and the messages that its worker's inbox holds.
    struct Model {
        state: State,
        flag: AtomicU32,
        inbox: AtomicUsize,
    }

    fn model() -> Arc<Model> {
        Arc::new(Model { state: State::new(), flag: AtomicU32::new(0), inbox: AtomicUsize::new(0) })
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

    /// The worker reads a message if there is one.
    fn read(m: &Model, local: &PinnedState, grants: &mut u32) -> Option<WakeAction> {
        (m.inbox.swap(0, Ordering::AcqRel) == 1)
            .then(|| m.state.read(local, |payload| *grants += u32::from(payload == WakePayload::Grant)))
    }

    /// The fiber waits until `flag` says `n`; its worker suspends it, and waits for messages while it is suspended.
    fn run_until(m: &Model, local: &PinnedState, n: u32, grants: &mut u32) {
        while m.flag.load(Ordering::Relaxed) < n {
            if m.state.suspend_pinned(local) {
                while read(m, local, grants) != Some(WakeAction::Queue) {
                    loom::thread::yield_now();
                }
            }
        }
    }

    /// Two waits, one wake-up each, the second after the first was seen: neither is lost, whether it comes before the
    /// fiber has settled, while it runs or when it is suspended.
    #[test]
    fn loom_a_post_reaches_the_fiber() {
        loom::model(|| {
            let (m, local, mut grants) = (model(), PinnedState::new(), 0);
            let first = waker(&m, WakePayload::Nothing);
            run_until(&m, &local, 1, &mut grants);
            let second = waker(&m, WakePayload::Nothing);
            run_until(&m, &local, 2, &mut grants);
            first.join().unwrap();
            second.join().unwrap();
        });
    }

    /// Two wakers at once, one with a grant, which comes once, by a message or in the word.
    #[test]
    fn loom_one_message_at_a_time() {
        loom::model(|| {
            let (m, local, mut grants) = (model(), PinnedState::new(), 0);
            let wakers = [waker(&m, WakePayload::Grant), waker(&m, WakePayload::Nothing)];
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
            assert!(grants == 1 && !m.state.take(WakePayload::Grant), "granted twice");
        });
    }

    /// A fiber ends while two others wake it: it goes at once if no message is on its way, else with that message, and
    /// none is sent afterwards.
    #[test]
    fn loom_no_message_outlives_its_fiber() {
        loom::model(|| {
            let (m, local, mut grants) = (model(), PinnedState::new(), 0);
            let wakers = [waker(&m, WakePayload::Nothing), waker(&m, WakePayload::Token)];
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
            assert_eq!(m.inbox.load(Ordering::Acquire), 0, "a message about a fiber that is gone");
        });
    }
}
