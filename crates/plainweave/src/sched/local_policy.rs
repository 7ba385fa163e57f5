//! A worker's local policy, and access to it for fibers, which do not know the type of the policy.

use std::cell::RefCell;
use std::sync::Arc;

use crate::fiber::{FiberTask, Movement};
use crate::policy::{Cx, Effort, Policy, Ready, Wake, WorkerId};
use crate::sched::worker::WorkerCtx;

/// Pushes fibers to a policy of any type.
pub(crate) trait PushLocal {
    fn push(&self, task: FiberTask, why: Ready) -> Wake;
    fn set_now(&self, now: u64);
}

/// A worker's local policy, and the part that all workers share.
pub(crate) struct LocalPolicy<P: Policy<FiberTask>> {
    pub(crate) shared: Arc<P>,
    pub(crate) inner: RefCell<(P::Local, Cx)>,
}

impl<P: Policy<FiberTask>> PushLocal for LocalPolicy<P> {
    #[inline]
    fn push(&self, task: FiberTask, why: Ready) -> Wake {
        let (local, cx) = &mut *self.inner.borrow_mut();
        self.shared.push(cx, Some(local), task, why)
    }

    #[inline]
    fn set_now(&self, now: u64) {
        self.inner.borrow_mut().1.set_now(now);
    }
}

impl<P: Policy<FiberTask>> LocalPolicy<P> {
    #[inline(always)]
    pub(crate) fn pop(&self, effort: Effort) -> Option<FiberTask> {
        let (local, cx) = &mut *self.inner.borrow_mut();
        self.shared.pop(cx, local, effort)
    }

    /// Returns the other worker on which a fiber is to start, if there is one. Called before the fiber's first run on
    /// `here`.
    #[inline(always)]
    pub(super) fn place(&self, task: &FiberTask, here: &WorkerCtx) -> Option<WorkerId> {
        if task.header().movement() != Movement::BeforeStart {
            return None;
        }
        let (_, cx) = &mut *self.inner.borrow_mut();
        let place = self.shared.place(cx, task, here)?;
        (place != here.id() && place < here.pool().workers.len()).then_some(place)
    }
}
