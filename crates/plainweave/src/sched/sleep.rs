//! How a worker falls asleep and how others wake it: the worker's side. What is decided, and in
//! which order, is in [`super::idle`]; the protocol, its fences and its proof are in
//! `atomics/sleepers`. This file has the queues of the "last look", and the threads that signal.
//!
//! 1. [`Worker::idle`]: out of fibers, the worker reads its inbox, then searches other workers'
//!    queues if few enough workers search already. 2. It announces its sleep and takes its **last
//!    look**: grants (it marks their queue, so that the next sender signals), the inbox, the
//!    policy's queues, the pool's end, its role. 3. It sleeps in its driver until a completion, a
//!    timer or a signal. 4. Afterwards it runs what it finds. If a push woke it, it counts as
//!    searching until it has found something ([`Worker::found`]), and the last searcher to find
//!    something wakes the next worker.
//!
//! A thread that pushes ([`PoolShared::act_on`]) or sends something to an inbox (`wake::send_to`)
//! asks `Sleepers` which worker, if any, it must signal.

use std::cell::Cell;

use super::idle::{self, Idler};
use super::pool::{PoolShared, bump};
use super::worker::Worker;
use crate::atomics::sleepers::Sleepers;
use crate::fiber::FiberTask;
use crate::io::driver::Wait;
use crate::policy::{Effort, Policy, Wake, WorkerId};
use crate::timer::Nanos;

impl PoolShared {
    /// Wakes the worker that a policy's push asks for.
    #[inline]
    pub(super) fn act_on(&self, wake: Wake) {
        if wake != Wake::None {
            self.wake_worker(wake);
        }
    }

    /// Does the same after a push by a worker, or by a fiber of its.
    #[inline]
    pub(super) fn act_on_own(&self, wake: Wake) {
        if wake != Wake::None && self.company.is_there() {
            self.wake_worker(wake);
        }
    }

    fn wake_worker(&self, wake: Wake) {
        if let Some(worker) = idle::chosen(&self.sleepers, self.workers.most(), wake) {
            self.workers[worker].signal();
        }
    }
}

impl<P: Policy<FiberTask>> Idler for Worker<P> {
    type Task = FiberTask;

    fn id(&self) -> WorkerId {
        self.ctx.id()
    }

    fn regular(&self) -> usize {
        self.ctx.pool().regular()
    }

    fn sleepers(&self) -> &Sleepers {
        &self.ctx.pool().sleepers
    }

    fn searching(&self) -> &Cell<bool> {
        &self.searching
    }

    fn has_mail(&self) -> bool {
        Worker::has_mail(self)
    }

    fn read_mail(&self) {
        Worker::read_mail(self);
    }

    fn pop(&self, effort: Effort) -> Option<FiberTask> {
        self.policy.pop(effort)
    }

    fn maybe_ready(&self, worker: WorkerId) -> bool {
        self.policy.maybe_ready(worker)
    }

    fn maybe_ready_spare(&self) -> bool {
        self.ctx.pool().outside.maybe_ready_spare()
    }

    fn publish(&self) {
        // The steps stay in the budget, which a sleep that is cancelled must not refill: it counts
        // down to the next look at the driver.
        let steps = self.stride.get() - self.budget.get();
        self.publish_counts(steps);
        self.extra.set(-i64::from(steps));
    }

    fn doze(&self) -> bool {
        self.mailbox.grants.doze()
    }

    fn is_called(&self) -> bool {
        // A turn may have swallowed the signal for what its worker had looked at before.
        self.ctx.pool().is_stopping() || !self.is_active() || self.close_if_requested()
    }

    fn rouse(&self) {
        self.mailbox.grants.rouse();
        self.ctx.pool().watchdog_bell.notice();
    }

    fn fall_asleep(&self, awake: impl FnOnce()) {
        let ctx = &self.ctx;
        // All steps have been published.
        self.extra.set(0);
        self.budget.set(self.stride.get());
        let tidy = ctx.tidy(ctx.last_reading());
        let next = earlier(ctx.io().timers.borrow().next_wake(), tidy);
        self.sleep(next.map_or(Wait::Forever, Wait::Until), awake);
        self.last_turn.set(ctx.last_reading());
    }

    fn wake_another(&self) {
        self.ctx.pool().act_on(Wake::Any);
    }

    fn run_found(&self, task: FiberTask) {
        self.extra.set(self.extra.get() + 1);
        self.resume(task);
    }
}

impl<P: Policy<FiberTask>> Worker<P> {
    /// Searches for work elsewhere, and sleeps if there is none.
    pub(super) fn idle(&self) {
        self.ctx.leave_fibers();
        self.extra.set(self.extra.get() - 1);
        self.mailbox.ran_dry();
        self.ctx.set_dry(true);
        idle::idle(self);
    }

    /// Runs the task that a searching worker found; the last searcher wakes another if there is
    /// more work.
    pub(super) fn found(&self, task: FiberTask) {
        idle::found(self, task);
    }

    /// Sleeps in the driver as `wait` says, then calls `awake`, and counts the time.
    pub(super) fn sleep(&self, wait: Wait, awake: impl FnOnce()) {
        let idle = &self.ctx.shared().counts.idle;
        let lane = &self.ctx.lane;
        bump(&self.ctx.shared().sleeps);
        idle.begin(self.ctx.now());
        lane.iter().for_each(|lane| lane.sleeps());
        self.ctx.turn(wait, || {
            lane.iter().for_each(|lane| lane.awake());
            awake();
        });
        idle.end(self.ctx.last_reading());
    }
}

pub(super) fn earlier(a: Option<Nanos>, b: Option<Nanos>) -> Option<Nanos> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}
