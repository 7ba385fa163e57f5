//! Whether a pool's only regular worker has company: a spare worker, which might sleep.
//!
//! # Why it is hard
//! A worker that has pushed a task looks for a sleeping worker to wake, with a full fence before
//! (`atomics/sleepers`, step 1), 5 to 8 ns for each fiber that yields or is woken. A sole worker
//! has nobody to wake. But a spare worker may start at any moment, look for tasks, find none and
//! sleep: either the push must find it, or it the push.
//!
//! # Protocol
//! As `atomics/biased_lock`: each side makes its mark, then looks at the other's, and the side that
//! seldom comes pays for both barriers.
//! 1. The worker pushes, *light barrier*, loads `has` ([`Company::is_there`]). If it is set, it
//!    goes on with step 1 of `atomics/sleepers`.
//! 2. Whoever starts a spare worker sets `has`, *heavy barrier*, and starts it
//!    ([`Company::arrives`]). Only then may that one look for tasks.
//!
//! If the worker's load comes before the heavy barrier, so does its push, and the new one finds it.
//! If it comes after, it sees the mark. The mark is withdrawn when no other worker has a thread
//! ([`Company::is_gone`]): a push that looks earlier wakes nobody in vain, one that looks later has
//! nobody to wake.
//!
//! Who pushes from outside the worker's thread does not ask here: the worker itself may sleep.
//! (Model: `loom_who_arrives_finds_what_was_pushed`, with fences.)

use crate::atomics::barrier;
use crate::shim::atomic::{AtomicBool, Ordering};

/// Whether a worker that has pushed something may have anybody to wake.
#[derive(Debug)]
pub(crate) struct Company {
    has: AtomicBool,
    /// `membarrier` works, so the worker needs no fence.
    asymmetric: bool,
}

impl Company {
    /// Creates it for a pool of that many regular workers.
    pub(crate) fn new(regular: usize) -> Self {
        Self {
            has: AtomicBool::new(regular > 1),
            asymmetric: barrier::register(),
        }
    }

    /// Returns whether there may be somebody to wake.
    ///
    /// Context: a worker that has pushed a task, or a fiber of its.
    #[inline]
    pub(crate) fn is_there(&self) -> bool {
        barrier::light(self.asymmetric);
        self.has.load(Ordering::Relaxed)
    }

    /// Notes that another worker is about to start. Returns false if it must not, because the
    /// kernel refuses the barrier that it did not refuse before.
    ///
    /// Context: whoever starts spare workers.
    pub(crate) fn arrives(&self) -> bool {
        if self.has.swap(true, Ordering::Relaxed) {
            return true;
        }
        let passed = barrier::heavy(self.asymmetric);
        self.has.store(passed, Ordering::Relaxed);
        passed
    }

    /// Notes that no other worker has a thread.
    ///
    /// Context: as for [`Self::arrives`], in a pool with one regular worker.
    pub(crate) fn is_gone(&self) {
        self.has.store(false, Ordering::Relaxed);
    }
}

#[cfg(all(test, loom))]
mod loom_models {
    use super::*;
    use crate::shim::Arc;
    use crate::shim::atomic::AtomicUsize;

    /// A task is pushed while a spare worker starts: that one finds it, or the pusher looks for
    /// somebody to wake. (Without the fences of `atomics/sleepers`, which come after this.)
    #[test]
    fn loom_who_arrives_finds_what_was_pushed() {
        loom::model(|| {
            let pool = Arc::new((Company::new(1), AtomicUsize::new(0)));
            let pushes = pool.clone();
            let pusher = loom::thread::spawn(move || {
                pushes.1.store(1, Ordering::Release);
                pushes.0.is_there()
            });

            assert!(pool.0.arrives());
            let finds = pool.1.load(Ordering::Acquire) == 1;
            let wakes = pusher.join().unwrap();
            assert!(finds || wakes);
        });
    }
}
