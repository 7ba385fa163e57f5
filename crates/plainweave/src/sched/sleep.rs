//! How a worker falls asleep and how others wake it. The protocol, its fences and its proof are in `atomics/sleepers`;
//! this file holds the worker's side of it: the queues of the "last look", and the threads that signal.
//!
//! 1. [`Worker::idle`]: out of fibers, the worker reads its inbox, then searches other workers' queues if few enough
//!    workers search already. 2. It announces its sleep and takes its **last look**: grants (it marks their queue, so
//!    that the next sender signals), the inbox, the policy's queues, the pool's end, its role. 3. It sleeps in its
//!    driver until a completion, a timer or a signal. 4. Afterwards it runs what it finds. If a push woke it, it counts
//!    as searching until it has found something ([`Worker::found`]), and the last searcher to find something wakes the
//!    next worker.
//!
//! A thread that pushes ([`PoolShared::act_on`]) or sends something to an inbox (`wake::send_to`) asks `Sleepers` which
//! worker, if any, it must signal.

use super::pool::{PoolShared, bump};
use super::worker::Worker;
use crate::atomics::sleepers::Slept;
use crate::fiber::FiberTask;
use crate::io::driver::Wait;
use crate::policy::{Effort, Policy, Wake};

impl PoolShared {
    /// Wakes the worker that a policy's push asks for.
    #[inline]
    pub(super) fn act_on(&self, wake: Wake) {
        if wake != Wake::None {
            self.wake_worker(wake);
        }
    }

    fn wake_worker(&self, wake: Wake) {
        match wake {
            Wake::None => {}
            Wake::Any => {
                if let Some(worker) = self.sleepers.wake_any() {
                    self.workers[worker].signal();
                }
            }
            Wake::Worker(worker) if worker < self.workers.len() => {
                if self.sleepers.wake_worker(worker) {
                    self.workers[worker].signal();
                }
            }
            // There is no such worker: the policy is wrong.
            Wake::Worker(_) => self.wake_worker(Wake::Any),
        }
    }
}

impl<P: Policy<FiberTask>> Worker<P> {
    /// Searches for work elsewhere, and sleeps if there is none.
    pub(super) fn idle(&self) {
        let (ctx, pool) = (&self.ctx, self.ctx.pool());
        ctx.leave_fibers();
        self.extra.set(self.extra.get() - 1);
        self.mailbox.ran_dry();
        ctx.set_dry(true);
        if self.has_mail() {
            return self.read_mail();
        }
        let mut searching = self.searching.take();
        if pool.regular() > 1 {
            searching = searching || pool.sleepers.begin_search();
            if searching && let Some(task) = self.policy.pop(Effort::Search) {
                return self.found(task);
            }
        }
        pool.sleepers.begin_sleep(ctx.id(), searching);
        let work = !self.mailbox.grants.doze() || self.has_mail() || self.policy.maybe_ready(ctx.id());
        // A turn may have swallowed the signal for what its worker had looked at before.
        if work || pool.is_stopping() || !self.is_active() || self.close_if_requested() {
            pool.sleepers.cancel_sleep(ctx.id());
            self.mailbox.grants.rouse();
            pool.watchdog_bell.notice();
            self.searching.set(true);
            // The task may be in another thief's hands: let it finish.
            std::hint::spin_loop();
            self.settle();
            return;
        }
        let next = earlier(ctx.io().timers.borrow().next_wake(), ctx.tidy(ctx.last_reading()));
        self.publish_counts(self.stride.get() - self.budget.get());
        self.budget.set(self.stride.get());
        self.sleep(next.map_or(Wait::Forever, Wait::Until), || {
            self.searching.set(pool.sleepers.end_sleep(ctx.id()) == Slept::Woken);
            self.mailbox.grants.rouse();
            pool.watchdog_bell.notice();
        });
        self.last_turn.set(ctx.last_reading());
        self.settle();
    }

    /// Sleeps in the driver as `wait` says, then calls `awake`, and counts the time.
    pub(super) fn sleep(&self, wait: Wait, awake: impl FnOnce()) {
        let (idle, lane) = (&self.ctx.shared().counts.idle, &self.ctx.lane);
        bump(&self.ctx.shared().sleeps);
        idle.begin(self.ctx.now());
        lane.iter().for_each(|lane| lane.sleeps());
        self.ctx.turn(wait, || {
            lane.iter().for_each(|lane| lane.awake());
            awake();
        });
        idle.end(self.ctx.last_reading());
    }

    /// Ends the search after a last look or a sleep if the worker's own queues have something.
    fn settle(&self) {
        if !self.searching.get() {
            return;
        }
        if self.has_mail() {
            self.read_mail();
        }
        if let Some(task) = self.policy.pop(Effort::Quick) {
            self.searching.set(false);
            self.found(task);
        }
    }

    /// Runs the task that a searching worker found; the last searcher wakes another if there is more work.
    pub(super) fn found(&self, task: FiberTask) {
        let pool = self.ctx.pool();
        self.extra.set(self.extra.get() + 1);
        if pool.sleepers.end_search() && (self.policy.maybe_ready(self.ctx.id()) || self.others_see_work()) {
            pool.act_on(Wake::Any);
        }
        self.resume(task);
    }

    /// Returns whether others would find a task, in this worker's own queue too: pushes during its search woke nobody.
    fn others_see_work(&self) -> bool {
        let pool = self.ctx.pool();
        match pool.regular() {
            1 => pool.outside.maybe_ready_spare(),
            regular => self.policy.maybe_ready((self.ctx.id() + 1) % regular),
        }
    }
}

pub(super) fn earlier(a: Option<u64>, b: Option<u64>) -> Option<u64> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}
