//! A worker's local policy, and access to it for fibers, which do not know the type of the policy.

use std::cell::RefCell;
use std::sync::Arc;

use crate::fiber::{FiberTask, Movement};
use crate::policy::{Counts, Cx, Effort, Policy, Ready, Wake, WorkerId};
use crate::sched::outside::PolicyCall;
use crate::sched::recorder::Steals;
use crate::sched::worker::WorkerCtx;
use crate::timer::Nanos;

/// Pushes fibers to a policy of any type.
pub(crate) trait PushLocal {
    fn push(&self, task: FiberTask, why: Ready) -> Wake;
    fn set_now(&self, now: Nanos);
    /// As [`Cx::set_handles_event`].
    fn set_handles_event(&self, event: bool) -> bool;
    /// Returns [`Cx::counts`].
    fn counts(&self) -> Counts;
}

/// A worker's local policy, and the part that all workers share.
pub(crate) struct LocalPolicy<P: Policy<FiberTask>> {
    pub(crate) shared: Arc<P>,
    pub(crate) inner: RefCell<(P::Local, Cx)>,
}

impl<P: Policy<FiberTask>> PushLocal for LocalPolicy<P> {
    #[inline]
    fn push(&self, task: FiberTask, why: Ready) -> Wake {
        let call = PolicyCall;
        let (local, cx) = &mut *self.inner.borrow_mut();
        let wake = self.shared.push(cx, Some(local), task, why);
        call.end();
        wake
    }

    #[inline]
    fn set_now(&self, now: Nanos) {
        self.inner.borrow_mut().1.set_now(now);
    }

    fn set_handles_event(&self, event: bool) -> bool {
        self.inner.borrow_mut().1.set_handles_event(event)
    }

    fn counts(&self) -> Counts {
        self.inner.borrow().1.counts
    }
}

impl<P: Policy<FiberTask>> LocalPolicy<P> {
    #[inline(always)]
    pub(crate) fn pop(&self, effort: Effort) -> Option<FiberTask> {
        let call = PolicyCall;
        let (local, cx) = &mut *self.inner.borrow_mut();
        let task = self.shared.pop(cx, local, effort);
        call.end();
        task
    }

    /// Returns what the policy has stolen so far.
    pub(super) fn steals(&self) -> Steals {
        let cx = &self.inner.borrow().1;
        Steals {
            count: cx.counts.steals,
            fibers: cx.counts.stolen,
            victim: cx.victim(),
        }
    }

    pub(super) fn maybe_ready(&self, worker: WorkerId) -> bool {
        let call = PolicyCall;
        let ready = self.shared.maybe_ready(worker);
        call.end();
        ready
    }

    /// Returns the other worker on which a fiber is to start, if there is one. Called before the
    /// fiber's first run on `here`.
    #[inline(always)]
    pub(super) fn place(&self, task: &FiberTask, here: &WorkerCtx) -> Option<WorkerId> {
        if task.header().movement() != Movement::BeforeStart {
            return None;
        }
        let call = PolicyCall;
        let (_, cx) = &mut *self.inner.borrow_mut();
        let place = self.shared.place(cx, task, here);
        call.end();
        let place = place?;

        (place != here.id() && place < here.pool().regular()).then_some(place)
    }
}

/// In place of a policy that has given up its tasks: fibers that are woken now stay behind.
pub(super) struct Drained;

impl PushLocal for Drained {
    fn push(&self, task: FiberTask, _: Ready) -> Wake {
        task.leak();
        Wake::None
    }

    fn set_now(&self, _: u64) {}

    fn set_handles_event(&self, _: bool) -> bool {
        false
    }

    fn counts(&self) -> Counts {
        Counts::default()
    }
}
