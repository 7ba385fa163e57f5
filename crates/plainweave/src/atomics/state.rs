//! The state word of a fiber: who owns its stack, and which queue it may be on.
//!
//! This is the protocol of fibers that may move at any time. A fiber that stays where it started needs fewer atomic
//! operations: see [`super::pinned_state`].
//!
//! Blocking is "register where the waker will find me, then suspend". A waker on another core may come between the two,
//! while the fiber still runs on its stack. So the *worker*, and only after the switch has saved the stack, publishes
//! `SUSPENDED`; a waker that comes earlier leaves `NOTIFIED` behind and the worker queues the fiber again.
//!
//! | word | stack belongs to | on a queue? |
//! |---|---|---|
//! | `AWAKE` (0) | the worker that runs it, or the queue that holds it | maybe |
//! | `NOTIFIED` | as above; a wake-up is owed | maybe |
//! | `SUSPENDED` | nobody: whoever takes that bit away owns it now | no |
//! | `FINISHED` | the worker that frees it | no |
//!
//! 1. Worker, after the switch: adds `SUSPENDED` (`suspend`, release: the stack's contents go with it). If the word
//!    says `NOTIFIED`, it takes the notification instead and queues the fiber.
//! 2. Waker: one compare-and-exchange (`wake`, acquire and release). If the fiber is suspended, it takes `SUSPENDED`
//!    away: it alone pushes the fiber. In any other state it adds `NOTIFIED`, and somebody else will look.
//!
//! Either the waker's exchange comes first and the worker's fails, or the worker's comes first and the waker finds
//! `SUSPENDED`: one of the two queues the fiber, never both (models `loom_wake_is_never_lost`,
//! `loom_two_wakers_push_once`). A waker's last touch of a fiber that it did not win is its exchange.
//!
//! # What a wake-up brings
//! A wake-up may bring a thing that must not get lost and is given once: a token (`unpark`) or a grant (a semaphore's
//! permit, a lock). It travels in the same exchange, so it costs nothing: the waker that wins the fiber owns the
//! fiber's cells and leaves it there, where the fiber takes it without an atomic operation (`Header::take`). A waker
//! that does not win leaves it in the word, as a bit beside the others, from where [`State::take`] fetches it.
//! (`loom_a_grant_comes_once`.) Bits of this kind do not keep a fiber from being suspended: it may wait for something
//! else.

use crate::shim::atomic::{AtomicU32, Ordering};

const AWAKE: u32 = 0;
/// A wake-up has come since the fiber last suspended.
const NOTIFIED: u32 = 1;
/// Suspended, its stack saved, on no queue.
const SUSPENDED: u32 = 2;
/// Its body has ended; wake-ups mean nothing.
pub(super) const FINISHED: u32 = 4;
/// A token was left while the fiber was not suspended.
pub(super) const TOKEN: u32 = 8;
/// A grant was given while the fiber was not suspended.
pub(super) const GRANT: u32 = 16;
/// Anchored fibers only: it has been suspended once; whoever wakes it from elsewhere tells its worker.
pub(super) const PINNED: u32 = 32;
/// Anchored fibers only: somebody else woke it; if it is settled, a message is on its way to its worker.
pub(super) const REMOTE_WAKE: u32 = 64;
/// Its task was dropped before it started: it is on its way to a worker that refuses it.
const LOST: u32 = 128;

/// What a wake-up payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WakePayload {
    /// Nothing: the fiber looks at its condition again.
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

/// See the module's table.
#[derive(Debug)]
pub(crate) struct State(pub(super) AtomicU32);

impl State {
    /// A new fiber is awake: it is about to be queued.
    pub(crate) fn new() -> Self {
        Self(AtomicU32::new(AWAKE))
    }

    /// The worker that has just switched away from the fiber. True: it is suspended. False: a wake-up came first, the
    /// caller still owns the fiber and queues it.
    #[inline]
    pub(crate) fn suspend(&self) -> bool {
        let mut seen = AWAKE;
        loop {
            if seen & NOTIFIED != 0 {
                self.0.fetch_and(!NOTIFIED, Ordering::AcqRel);
                return false;
            }
            match self.0.compare_exchange(seen, seen | SUSPENDED, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return true,
                Err(now) => seen = now,
            }
        }
    }

    /// Any thread. True: the caller now owns the fiber, hands over what it `brings`, and must queue it. False: what it
    /// brings is in the word.
    #[inline]
    pub(crate) fn wake(&self, payload: WakePayload) -> bool {
        let mut seen = self.0.load(Ordering::Relaxed);
        loop {
            let won = seen & SUSPENDED != 0;
            let next = if won { seen & !SUSPENDED } else { seen | NOTIFIED | payload.bit() };
            // Also when nothing changes: whoever takes the notification must see what the waker wrote before.
            match self.0.compare_exchange_weak(seen, next, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => return won,
                Err(now) => seen = now,
            }
        }
    }

    /// The fiber itself. Whether such a thing was left in the word; it is taken out.
    #[inline]
    pub(crate) fn take(&self, payload: WakePayload) -> bool {
        let there = self.0.load(Ordering::Relaxed) & payload.bit() != 0;
        if there {
            self.0.fetch_and(!payload.bit(), Ordering::AcqRel);
        }
        there
    }

    /// The worker that ran the fiber to its end.
    #[inline]
    pub(crate) fn finish(&self) {
        self.0.store(FINISHED, Ordering::Release);
    }

    /// Whoever has the task of a fiber that has not started, and will not.
    pub(crate) fn lose(&self) {
        self.0.fetch_or(LOST, Ordering::AcqRel);
    }

    /// Returns whether the fiber will not start, to the worker that has its task.
    #[inline]
    pub(crate) fn is_lost(&self) -> bool {
        self.0.load(Ordering::Relaxed) & LOST != 0
    }

    /// Any thread.
    pub(crate) fn is_finished(&self) -> bool {
        self.0.load(Ordering::Acquire) & FINISHED != 0
    }
}

#[cfg(all(test, loom))]
mod loom_models {
    use super::*;
    use loom::sync::Arc;
    use loom::sync::atomic::AtomicUsize;

    /// A fiber whose one wait is satisfied by `flag`; counts how often it was queued.
    struct Model {
        state: State,
        flag: AtomicU32,
        queued: AtomicUsize,
    }

    fn model() -> Arc<Model> {
        Arc::new(Model { state: State::new(), flag: AtomicU32::new(0), queued: AtomicUsize::new(0) })
    }

    fn waker(m: &Model) {
        m.flag.fetch_add(1, Ordering::Release);
        if m.state.wake(WakePayload::Nothing) {
            m.queued.fetch_add(1, Ordering::AcqRel);
        }
    }

    /// The fiber looks at its flag, suspends, and the worker suspends it: it ends up suspended only if nobody set the
    /// flag.
    #[test]
    fn loom_wake_is_never_lost() {
        loom::model(|| {
            let m = model();
            let other = m.clone();
            let t = loom::thread::spawn(move || waker(&other));
            let seen = m.flag.load(Ordering::Acquire) == 1;
            if !seen && !m.state.suspend() {
                m.queued.fetch_add(1, Ordering::AcqRel);
            }
            t.join().unwrap();
            assert!(seen || m.queued.load(Ordering::Acquire) == 1, "suspended for ever");
        });
    }

    #[test]
    fn loom_two_wakers_push_once() {
        loom::model(|| {
            let m = model();
            let threads: Vec<_> = (0..2)
                .map(|_| {
                    let m = m.clone();
                    loom::thread::spawn(move || waker(&m))
                })
                .collect();
            let suspended = m.state.suspend();
            for t in threads {
                t.join().unwrap();
            }
            let queued = m.queued.load(Ordering::Acquire);
            assert!(if suspended { queued == 1 } else { queued == 0 }, "suspended {suspended}, queued {queued} times");
        });
    }

    /// A fiber that waits for a grant while another wakes it for no reason: it gets the grant, once, from the word or
    /// with the ownership, and whoever wins it pushes it.
    #[test]
    fn loom_a_grant_comes_once() {
        loom::model(|| {
            let m = model();
            let (granter, other) = (m.clone(), m.clone());
            // The granter that wins leaves the grant in the fiber's cells: here in `flag`.
            let granter = loom::thread::spawn(move || {
                if granter.state.wake(WakePayload::Grant) {
                    granter.flag.fetch_add(1, Ordering::Relaxed);
                    granter.queued.fetch_add(1, Ordering::AcqRel);
                }
            });
            let other = loom::thread::spawn(move || waker_for_nothing(&other));
            let mut grants = 0;
            let mut suspended = 0;
            while grants == 0 {
                grants += u32::from(m.state.take(WakePayload::Grant));
                if grants == 0 && m.state.suspend() {
                    suspended += 1;
                    // The push is what the fiber runs by.
                    while m.queued.load(Ordering::Acquire) < suspended {
                        loom::thread::yield_now();
                    }
                    grants += m.flag.swap(0, Ordering::Relaxed);
                }
            }
            granter.join().unwrap();
            other.join().unwrap();
            assert_eq!(grants, 1);
            assert!(!m.state.take(WakePayload::Grant) && m.flag.load(Ordering::Relaxed) == 0, "granted twice");
        });
    }

    fn waker_for_nothing(m: &Model) {
        if m.state.wake(WakePayload::Nothing) {
            m.queued.fetch_add(1, Ordering::AcqRel);
        }
    }
}
