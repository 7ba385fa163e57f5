//! How fibers end: their count, and what becomes of those that are left when their worker ends.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;
use std::rc::Rc;
use std::sync::atomic::Ordering;

use super::closure::drop_contained;
use super::local_policy::Drained;
use super::pool::{PoolShared, bump};
use super::worker::{Worker, WorkerCtx};
use crate::fiber::FiberTask;
use crate::fiber::blocks::Blocks;
use crate::fiber::cancel::shutting_down;
use crate::policy::{Policy, WorkerId};

impl WorkerCtx {
    /// Counts a fiber that has ended here, or will never start.
    #[inline]
    pub(super) fn count_end(&self) {
        bump(&self.shared().finished);
        if self.pool().is_closing() {
            self.pool().fiber_ended_late();
        }
    }

    /// Counts a fiber that will never start here, for lack of a stack.
    #[cold]
    pub(super) fn count_refused(&self) {
        self.pool().counts.refused.fetch_add(1, Ordering::Relaxed);
        self.count_end();
    }
}

impl<P: Policy<FiberTask>> Worker<P> {
    /// Ends the worker. The tasks left never ran, or never will again. Fibers that have not started
    /// are refused, so that their joins return; the others are leaked, because their frames may
    /// still be in use.
    pub(super) fn give_up(self) {
        let mut tasks: Vec<_> = self.mailbox.all(self.ctx.shared().inbox()).collect();
        tasks.extend(self.handed.take());
        let Self {
            mut ctx,
            policy,
            mailbox,
            ..
        } = self;
        ctx.policy = Rc::new(Drained);

        if let Ok(policy) = Rc::try_unwrap(policy).map_err(|_| ()) {
            let local = policy.inner.into_inner().0;
            let drain = || policy.shared.drain(local, &mut |task| tasks.push(task));
            if let Err(payload) = catch_unwind(AssertUnwindSafe(drain)) {
                drop_contained(payload);
            }
        }

        for task in tasks {
            if refuse(task, ctx.pool(), ctx.id(), Some(ctx.blocks())) {
                ctx.count_end();
            }
        }

        ctx.shared().leave(mailbox.grants);
    }
}

impl PoolShared {
    /// Refuses the fibers that were held back when the pool ended.
    ///
    /// Context: whoever has joined the workers' threads.
    pub(crate) fn refuse_held_back(&self) {
        for task in self.take_held_back() {
            refuse(task, self, 0, None);
        }
    }

    /// Refuses the fibers that were sent to a worker after it had left.
    ///
    /// Context: whoever has joined its thread.
    pub(crate) fn refuse_late(&self, worker: WorkerId) {
        for task in self.workers[worker].inbox().take_all() {
            refuse(task, self, worker, None);
        }
    }
}

/// Refuses a fiber that was left in a queue of a worker that leaves, or has left; false: it has
/// started, or is another's.
fn refuse(task: FiberTask, pool: &PoolShared, worker: WorkerId, blocks: Option<&Blocks>) -> bool {
    let header = task.header();
    if header.own.pinned.has_suspended() || task.has_started() {
        task.leak();
    } else if !ptr::eq(header.pool().as_ptr(), pool) {
        // Another runtime's, which may still be there.
        drop(task);
    } else if header.pinned_to().is_some_and(|home| home != worker) {
        task.leak();
    } else {
        task.refuse(shutting_down(), blocks);
        return true;
    }
    false
}
