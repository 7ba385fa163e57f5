//! Spare workers: they run fibers while others are held up, and rest when these are back.
//!
//! A fiber that blocks its thread in the kernel (a lock of `std` that another fiber holds, a `read`
//! of `std::net`) takes its worker with it. If the fibers behind it may move, others run them; but
//! if every worker is held up, nobody does, and if one of *them* holds the lock, it is a deadlock.
//! So the watchdog adds a worker (`watchdog/spares` says when).
//!
//! # The life of a spare worker
//! It has a number above the regular workers' (`sched/workers`) and a thread. The first few have a
//! driver of their own: fibers that wait there may do so for days, so such a thread lasts as long
//! as the pool. The others, of which there may be thousands, have neither driver nor timers: their
//! fibers wait at another worker's (`sched/lent`), so nothing is left behind when their thread
//! ends. It begins with [`Role::Absent`], [`Role::Starting`], then
//! * [`Role::Active`]: it pops, searches and sleeps like any worker, by the protocol of
//!   `sched/sleep`, except that it has no half of the policy ([`Policy::pop_spare`]): what it makes
//!   ready goes to the shared half. So it has nothing to hand back when it rests, and a policy does
//!   not learn that it exists.
//! * [`Role::Released`]: the watchdog needs it no longer. It finishes the fiber that it runs; the
//!   watchdog may change its mind until then.
//! * [`Role::Resting`], with a driver: it sleeps in its driver, where fibers that it ran may still
//!   wait. What becomes ready there goes to the shared half, for others. It runs a fiber only if
//!   nobody else may: one that is pinned by an operation that must still be cancelled at this
//!   driver. The watchdog may make it active again.
//! * [`Role::Ended`], without one: it leaves its loop, and the watchdog joins its thread; then it
//!   is absent again, and a new thread may start in its place.
//!
//! One with a driver rests from the start: it serves those without (`sched/lent`).
//!
//! # No push is stranded
//! A worker that rests or ends has no bit in `Sleepers` and does not count as searching, so no
//! pusher relies on it; before that it ends a search as a worker that has found something, and
//! wakes another in its place ([`Worker::leave`]). The inbox of a resting one it must read itself:
//! whoever sends something there always signals (`wake::send_to`), because the bit does not say
//! that it sleeps. To one without a driver nobody sends anything: no fiber is pinned there. What is
//! pushed while all workers are held up, the watchdog's next scan finds. (Specification:
//! `tests/sleep_spec`, with a spare worker that leaves and joins, and with one that ends and starts
//! again. Models: `loom_` tests of `sched/models`.)
//!
//! # A fiber outlives the thread that ran it
//! A fiber remembers the worker that ran it last, by the address of its context, and what that
//! worker has lent it: the allocator's cache of its thread. When the thread has ended, a new
//! worker's context may lie at the same address. So a worker without a driver has each fiber forget
//! the place when it leaves it (`FiberTask::forget_place`).
//!
//! # Rejected
//! * *Handing the held-up worker's place over to another thread*, as Go does with its processors at
//!   a system call: here nobody announces a blocking call, and a fiber may enter the runtime at any
//!   moment while its place is taken away.
//! * *Halves of the policy for spare workers*: thousands of queues that thieves look into, for
//!   workers that seldom exist.
//! * *A driver for each*: three descriptors and a ring, for a thread that mostly waits for a lock.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

use super::idle;
use super::pool::PoolShared;
use super::sleep::earlier;
use super::worker::Worker;
use crate::fiber::FiberTask;
use crate::io::driver::Wait;
use crate::policy::{Cx, Effort, Policy, Ready, Task, Topology, Wake, WorkerId};

/// What a worker is doing, by the watchdog's will and its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Role {
    /// It has no thread, or its thread could not start.
    Absent,
    Starting,
    /// A regular worker is always active.
    Active,
    Released,
    Resting,
    /// It has no driver and leaves its loop; its thread ends.
    Ended,
}

/// A worker's role, and whether it is asleep in it.
#[derive(Debug)]
pub(crate) struct RoleCell {
    role: AtomicU8,
    /// Set while a resting worker is in its driver.
    sleeps: AtomicBool,
}

impl RoleCell {
    pub(super) fn new(role: Role) -> Self {
        Self {
            role: AtomicU8::new(role as u8),
            sleeps: AtomicBool::new(false),
        }
    }

    pub(crate) fn get(&self) -> Role {
        const ROLES: [Role; 6] = [
            Role::Absent,
            Role::Starting,
            Role::Active,
            Role::Released,
            Role::Resting,
            Role::Ended,
        ];
        ROLES[usize::from(self.role.load(Ordering::Acquire))]
    }

    /// Changes the role from `from` to `to`. Returns false if the role is another by now.
    pub(crate) fn change(&self, from: Role, to: Role) -> bool {
        self.role
            .compare_exchange(from as u8, to as u8, Ordering::AcqRel, Ordering::Relaxed)
            .is_ok()
    }

    /// Returns whether it takes part in running fibers.
    pub(crate) fn takes_part(&self) -> bool {
        matches!(self.get(), Role::Active | Role::Released)
    }

    /// Returns whether it does nothing: it has no thread, or rests and sleeps.
    pub(crate) fn is_idle(&self) -> bool {
        matches!(self.get(), Role::Absent | Role::Starting | Role::Ended)
            || self.sleeps.load(Ordering::SeqCst)
    }
}

impl PoolShared {
    /// Returns the number of regular workers; numbers from there on are spare workers'.
    #[inline]
    pub(crate) fn regular(&self) -> usize {
        self.numbers.regular
    }

    /// Returns how many workers take part in running fibers.
    pub(crate) fn taking_part(&self) -> usize {
        self.workers
            .iter()
            .filter(|worker| worker.role.takes_part())
            .count()
    }

    /// Returns whether a worker runs nothing at the moment, and nothing keeps it from sleeping.
    pub(crate) fn is_asleep(&self, id: WorkerId) -> bool {
        self.sleepers.is_asleep(id) || self.workers[id].role.is_idle()
    }
}

/// A policy as a spare worker uses it: the shared half, and a queue for fibers that must run on
/// this worker.
pub(crate) struct Spare<P>(pub(crate) Arc<P>);

/// A spare worker's half of [`Spare`].
pub(crate) struct SpareLocal {
    pinned: VecDeque<FiberTask>,
    rests: bool,
}

impl<P: Policy<FiberTask>> Policy<FiberTask> for Spare<P> {
    type Params = Arc<P>;
    type Local = SpareLocal;

    fn new(policy: Arc<P>, _: &Topology) -> Self {
        Self(policy)
    }

    fn attach(&self, _: WorkerId) -> SpareLocal {
        SpareLocal {
            pinned: VecDeque::new(),
            rests: false,
        }
    }

    fn push(
        &self,
        cx: &mut Cx,
        local: Option<&mut SpareLocal>,
        task: FiberTask,
        why: Ready,
    ) -> Wake {
        match local {
            Some(local) if task.pinned().is_some() => {
                local.pinned.push_back(task);
                Wake::None
            }
            _ => self.0.push(cx, None, task, why),
        }
    }

    fn pop(&self, cx: &mut Cx, local: &mut SpareLocal, _: Effort) -> Option<FiberTask> {
        local.pinned.pop_front().or_else(|| {
            if local.rests {
                None
            } else {
                self.0.pop_spare(cx)
            }
        })
    }

    fn maybe_ready(&self, _: WorkerId) -> bool {
        self.0.maybe_ready_spare()
    }

    /// The shared half is for the regular workers to drain.
    fn drain(&self, local: SpareLocal, sink: &mut dyn FnMut(FiberTask)) {
        local.pinned.into_iter().for_each(sink);
    }
}

impl<P: Policy<FiberTask>> Worker<P> {
    /// Returns whether it is to run fibers: false for a spare worker that the watchdog lets go.
    pub(super) fn is_active(&self) -> bool {
        self.role().get() == Role::Active
    }

    fn role(&self) -> &RoleCell {
        &self.ctx.shared().role
    }
}

impl<P: Policy<FiberTask>> Worker<Spare<P>> {
    /// Runs until the pool stops. Returns the operations still in flight.
    pub(crate) fn run_spare(self) -> usize {
        let waits_for_others = self.ctx.waits_for_others();
        self.set_rests(waits_for_others);
        let started = self.role().change(
            Role::Starting,
            if waits_for_others {
                Role::Resting
            } else {
                Role::Active
            },
        );
        debug_assert!(started, "the watchdog starts a spare worker that is absent");

        self.run_by(|worker| {
            match worker.role().get() {
                Role::Active => {
                    worker.set_rests(false);
                    worker.step();
                }
                Role::Resting => worker.rest(),
                Role::Ended => return false,
                _ => worker.leave(),
            }
            true
        })
    }

    fn set_rests(&self, rests: bool) {
        self.policy.inner.borrow_mut().0.rests = rests;
    }

    /// Stops running fibers, unless the watchdog has changed its mind.
    fn leave(&self) {
        idle::leave(self);
        // Without a driver nothing waits here, so nothing is left behind.
        let rests = self.ctx.has_driver();
        if self.role().change(
            Role::Released,
            if rests { Role::Resting } else { Role::Ended },
        ) {
            self.ctx.set_dry(true);
            self.set_rests(rests);
            if !rests {
                self.publish_counts(self.stride.get() - self.budget.get());
            }
        }
    }

    /// Sleeps in the driver, once, and runs what only this worker may run.
    fn rest(&self) {
        let ctx = &self.ctx;
        let pool = self.ctx.pool();
        if self.has_mail() {
            self.read_mail();
        }
        if let Some(task) = self.policy.pop(Effort::Quick) {
            return self.resume(task);
        }
        self.close_if_requested();
        self.publish_counts(0);
        let tidy = ctx.tidy(ctx.last_reading());
        let next = earlier(ctx.io().timers.borrow().next_wake(), tidy);

        self.role().sleeps.store(true, Ordering::SeqCst);
        self.sleep(next.map_or(Wait::Forever, Wait::Until), || {
            self.role().sleeps.store(false, Ordering::SeqCst);
            pool.watchdog_bell.notice();
        });
    }
}
