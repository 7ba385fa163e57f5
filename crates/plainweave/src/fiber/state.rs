//! The state word of a fiber: who owns its stack, and which queue it may be on.
//!
//! Blocking is "register where the waker will find me, then suspend". A waker on another core may come between the two,
//! while the fiber still runs on its stack. So the *worker*, and only after the switch has saved the stack, publishes
//! `PARKED`; a waker that comes earlier leaves `NOTIFIED` behind and the worker queues the fiber again.
//!
//! | word | stack belongs to | on a queue? |
//! |---|---|---|
//! | `AWAKE` (0) | the worker that runs it, or the queue that holds it | maybe |
//! | `NOTIFIED` | as above; a wake-up is owed | maybe |
//! | `PARKED` | nobody: whoever adds `NOTIFIED` to it owns it now | no |
//! | `PARKED, NOTIFIED` | the waker, between winning and pushing | no |
//! | `FINISHED` | the worker that frees it | no |
//!
//! 1. Worker, after the switch: `AWAKE -> PARKED` (`park`, release: the stack's contents go with it). If the word is
//!    `NOTIFIED` instead, it takes the notification and queues the fiber.
//! 2. Waker: `fetch_or(NOTIFIED)` (`wake`, acquire and release). If it found exactly `PARKED`, it alone stores `AWAKE`
//!    and pushes the fiber; in any other state somebody else will look.
//!
//! Either the waker's read-modify-write comes first and the worker's exchange fails, or the worker's comes first and
//! the waker finds `PARKED`: one of the two queues the fiber, never both (models `loom_wake_is_never_lost`,
//! `loom_two_wakers_push_once`).

use crate::shim::atomic::{AtomicU32, Ordering};

const AWAKE: u32 = 0;
/// A wake-up has come since the fiber last parked.
const NOTIFIED: u32 = 1;
/// Suspended, its stack saved, on no queue.
const PARKED: u32 = 2;
/// Its body has ended; wake-ups mean nothing.
const FINISHED: u32 = 4;

/// See the module's table.
#[derive(Debug)]
pub(crate) struct State(AtomicU32);

impl State {
    /// A new fiber is awake: it is about to be queued.
    pub(crate) fn new() -> Self {
        Self(AtomicU32::new(AWAKE))
    }

    /// The worker that has just switched away from the fiber. True: it is parked. False: a wake-up came first, the
    /// caller still owns the fiber and queues it.
    #[inline]
    pub(crate) fn park(&self) -> bool {
        if self.0.compare_exchange(AWAKE, PARKED, Ordering::AcqRel, Ordering::Acquire).is_ok() {
            return true;
        }
        self.0.store(AWAKE, Ordering::Relaxed);
        false
    }

    /// Any thread. True: the caller now owns the fiber and must queue it.
    #[inline]
    pub(crate) fn wake(&self) -> bool {
        if self.0.fetch_or(NOTIFIED, Ordering::AcqRel) != PARKED {
            return false;
        }
        self.0.store(AWAKE, Ordering::Release);
        true
    }

    /// The worker that ran the fiber to its end.
    #[inline]
    pub(crate) fn finish(&self) {
        self.0.store(FINISHED, Ordering::Release);
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
        if m.state.wake() {
            m.queued.fetch_add(1, Ordering::AcqRel);
        }
    }

    /// The fiber looks at its flag, suspends, and the worker parks it: it ends up parked only if nobody set the flag.
    #[test]
    fn loom_wake_is_never_lost() {
        loom::model(|| {
            let m = model();
            let other = m.clone();
            let t = loom::thread::spawn(move || waker(&other));
            let seen = m.flag.load(Ordering::Acquire) == 1;
            if !seen && !m.state.park() {
                m.queued.fetch_add(1, Ordering::AcqRel);
            }
            t.join().unwrap();
            assert!(seen || m.queued.load(Ordering::Acquire) == 1, "parked for ever");
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
            let parked = m.state.park();
            for t in threads {
                t.join().unwrap();
            }
            let queued = m.queued.load(Ordering::Acquire);
            assert!(if parked { queued == 1 } else { queued == 0 }, "parked {parked}, queued {queued} times");
        });
    }
}
