//! A worker's half of the policy, and the way to it for fibers, which do not know which policy it is.

use std::cell::RefCell;
use std::sync::Arc;

use crate::fiber::FiberTask;
use crate::policy::{Cx, Effort, Policy, Ready, Wake};

/// The door through which fibers push, whatever the policy.
pub(crate) trait PushLocal {
    fn push(&self, task: FiberTask, why: Ready) -> Wake;
    fn set_now(&self, now: u64);
}

/// A worker's half of the policy.
pub(crate) struct Half<P: Policy<FiberTask>> {
    pub(crate) policy: Arc<P>,
    pub(crate) inner: RefCell<(P::Local, Cx)>,
}

impl<P: Policy<FiberTask>> PushLocal for Half<P> {
    #[inline]
    fn push(&self, task: FiberTask, why: Ready) -> Wake {
        let (local, cx) = &mut *self.inner.borrow_mut();
        self.policy.push(cx, Some(local), task, why)
    }

    #[inline]
    fn set_now(&self, now: u64) {
        self.inner.borrow_mut().1.set_now(now);
    }
}

impl<P: Policy<FiberTask>> Half<P> {
    #[inline(always)]
    pub(crate) fn pop(&self, effort: Effort) -> Option<FiberTask> {
        let (local, cx) = &mut *self.inner.borrow_mut();
        self.policy.pop(cx, local, effort)
    }
}
