//! From fiber to fiber: how one that leaves its stack goes on with the next.
//!
//! A worker's loop switches to a fiber and, when that leaves its stack, has it back: two switches a
//! fiber, with two writes of the base of thread-local storage, each of which takes as long as the
//! rest of the switch. A *direct switch* leads from the last fiber's stack to the next one's, and
//! the loop is not entered. Linux's own scheduler works like this (`context_switch`, then
//! `finish_task_switch` on the new stack).
//!
//! # The steps
//! 1. **Next** ([`Worker::next`]), on the stack of the fiber that leaves, which still runs: pops a
//!    task. There may be none, or one that cannot run yet; or the loop has to look at mail, driver
//!    and timers, or to stop. Then the fiber goes on with the loop, as it always does on a worker
//!    that records events, that is spare, or whose fibers share its storage. One that yields while
//!    nobody else is ready does not leave its stack at all.
//! 2. **Switch** (`context`): to the next fiber's stack and storage. Who has left, and why, goes
//!    along in a register ([`Left`]).
//! 3. **Settle** ([`Worker::settle`]), on the next fiber's stack, before anything of its own runs:
//!    does for the one that has left what the loop would do.
//!
//! | it | settling |
//! |---|---|
//! | yields (`Yield`) | pushes it again, as `Ready::Yielded` |
//! | yields to this worker's fibers, or to all | does so on a cold path (`requeue`) |
//! | goes to a worker with a driver (`Elsewhere`, `sched/lent`) | sends it there |
//! | suspends (`Suspend`) | publishes that, or queues it if a wake-up came first |
//! | ends (`End`) | retires it: record, stack, storage, memory block |
//! | ends while a message to it is in flight | keeps it on record until then (`deliver`) |
//!
//! # Why it is safe
//! * *Whoever leaves a stack cannot say that it has been left.* So it does not: the next one does,
//!   on a stack of its own. Until then the fiber is not suspended, in no queue and not ended; a
//!   wake-up leaves a notification, which settling finds. Neither step suspends, so nothing comes
//!   between.
//! * *Two threads never are on one block of storage.* The base is written with the stack, in one
//!   place; what another worker may resume, it may resume after that.
//! * *A policy's code runs on fibers' stacks*: only the code of policies that say so
//!   ([`Policy::DIRECT`]), each of which says it of itself. Its panic ends the process before any
//!   `catch_unwind` of the fiber's sees it. What it allocates comes from the worker's own cache,
//!   which the fiber was lent. It sees the fiber's thread-locals, as whatever the fiber calls does.
//!   If it makes some there, they are destroyed when the fiber ends; so a fiber that has ended asks
//!   for the next one on the worker's storage.
//! * *No destructor of the user's runs there.* A fiber's result and closure are gone when it ends;
//!   a fiber that cannot start is left to the loop ([`Worker::handed`]), which refuses it.
//! * *Stacks are deep enough*: what runs there takes less than a kilobyte where it is usual. What
//!   is rare and goes deeper is the loop's: exchanging stacks and storage with the pool, the
//!   driver, the watchdog's errands. If the stack overflows all the same, the report names the
//!   fiber whose stack it is.
//! * *No push is stranded.* Where a fiber yields, the next has been popped when it is pushed, so
//!   that it may have to wait long though nothing else is ready: a policy's answer that nobody need
//!   be woken for it holds only if its worker pops next. So others are woken all the same.
//!
//! # What it leaves as it is
//! Strides: a direct switch counts as a step of the loop, so mail is looked for four times a stride
//! and driver and timers are polled once, as before. The order: see [`DirectSwitch`]. And whoever
//! looks at a fiber from outside (dumps, gdb, samples of a stalled worker) finds it by its header
//! and by its stack, which are its own between any two instructions.
//!
//! # Rejected
//! * *One function per policy that pops, switches and settles*: one call through a pointer instead
//!   of two, but its return, after the switch, goes to wherever the next fiber has called it from,
//!   which the processor predicts from the last one's.
//! * *To push the one that yields before the next is popped*, so that any policy could do it: a
//!   thief may take it while its registers are still in use.

#![expect(
    unsafe_code,
    reason = "fibers find their worker by a pointer without its type"
)]

use std::ptr;

use super::local_policy::PushLocal;
use super::worker::Worker;
use crate::fiber::{Direct, FiberTask, Left, Movement, Switch, Target};
use crate::fiber_local::Storage;
use crate::policy::{DirectSwitch, Effort, Policy, Ready, Wake};

/// What its worker does next when a fiber has left its stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Beside {
    /// It asks the policy for a task.
    Loop,
    /// It runs the fiber that has been popped already.
    NextFiber,
}

impl Beside {
    /// Returns whom to wake for a fiber that has yielded, where the policy says `wake`.
    ///
    /// By the yield rule a policy wakes nobody for a task that its worker pops again at once
    /// (`policy/pinned`). A worker that runs another first does not.
    #[inline(always)]
    fn wake(self, wake: Wake, may_move: bool) -> Wake {
        if self == Beside::NextFiber && may_move && wake == Wake::None {
            Wake::Any
        } else {
            wake
        }
    }
}

/// What a fiber goes on with that leaves its stack.
enum Next {
    /// The next fiber, which has started.
    Fiber(FiberTask),
    /// The worker's loop.
    Loop,
    /// Itself: it has yielded, and nobody else is ready.
    Same,
}

impl<P: Policy<FiberTask>> Worker<P> {
    /// Has its fibers go on with one another from now on, if they may.
    ///
    /// Context: `self` stays at its address while fibers run.
    pub(super) fn open_direct(&self) {
        let ctx = &self.ctx;
        let pool = ctx.pool();
        // Fibers that may move have no messages in flight whose headers would have to be fetched
        // between two switches (`sched/mailbox`).
        let may = P::DIRECT != DirectSwitch::Never
            && pool.storage == Storage::Own
            && pool.movement == Movement::Anytime
            && !ctx.resumes_with_care;
        if may {
            ctx.host.direct.set(Some(Direct {
                worker: ptr::from_ref(self).cast(),
                next: next::<P>,
                settle: settle::<P>,
            }));
        }
    }

    /// Returns what to go on with in place of a fiber that leaves its stack for this reason.
    #[inline(always)]
    fn next(&self, how: Switch) -> Next {
        let goes_on = match how {
            Switch::Suspend => true,
            Switch::End => self.ctx.recycler.has_room(),
            Switch::Yield => P::DIRECT == DirectSwitch::Always,
            _ => false,
        };
        // The loop counts the step itself.
        let left = self.budget.get() - 1;
        if !goes_on || (self.mailbox.is_due(left) && (left == 0 || self.has_mail())) {
            return Next::Loop;
        }

        let next = match self.policy.pop(Effort::Quick) {
            Some(task) if task.has_started() => Next::Fiber(task),
            Some(task) => match self.begin(task) {
                Some(task) => Next::Fiber(task),
                None => return Next::Loop,
            },
            // Pushed first, it would be popped again.
            None if how == Switch::Yield => Next::Same,
            None => return Next::Loop,
        };
        self.budget.set(left);
        next
    }

    /// Prepares a fiber that has not started, with what the worker keeps; else hands it to the
    /// loop.
    #[inline(never)]
    fn begin(&self, task: FiberTask) -> Option<FiberTask> {
        let ctx = &self.ctx;
        let header = task.header();
        let simple = !ctx.pool().held_back.is_on()
            && header.movement() == Movement::Anytime
            && ctx.recycler.has_some(header.own.stack_size as usize);
        if simple {
            task.check_place(ctx.id(), ctx.pool_ptr());
            if self.start(&task).is_ok() {
                return Some(task);
            }
        }

        self.handed.set(Some(task));
        None
    }

    /// Does for a fiber that has left its stack what must be done: pushes it again, leaves it
    /// suspended, or retires it.
    // Inlined, as `resume` is: LLVM's choice would depend on the policy's size.
    #[inline(always)]
    pub(super) fn settle(&self, left: Left, beside: Beside) {
        let Left { task, how } = left;
        match how {
            Switch::Yield => {
                let may_move = task.header().pinned_to().is_none();
                let wake = self.policy.push(task, Ready::Yielded);
                let wake = beside.wake(wake, may_move);
                self.ctx.pool().act_on_own(wake);
            }
            Switch::YieldLocal => self.requeue(task, Ready::YieldedLocal),
            Switch::YieldShared => self.requeue(task, Ready::YieldedShared),
            Switch::Elsewhere => self.send_away(task),
            // From `suspended` on another worker may run the fiber, and free it: leaking touches
            // nothing of it.
            Switch::Suspend if task.header().suspended() => task.leak(),
            // It was woken while it left its stack, so it is still this worker's, and ready.
            Switch::Suspend => self.ctx.schedule_bound(task),
            Switch::End if task.finish() => self.retire(task),
            // It stays on record until the message in flight has arrived.
            Switch::End => task.leak(),
        }
    }
}

/// See [`Worker::next`].
///
/// # Safety
/// The pointer is to a worker of this type, on whose thread a fiber of its calls.
unsafe extern "C" fn next<P: Policy<FiberTask>>(worker: *const (), how: Switch) -> Target {
    // SAFETY: the caller's promise.
    let worker = unsafe { &*worker.cast::<Worker<P>>() };
    match worker.next(how) {
        Next::Fiber(task) => {
            let ctx = &worker.ctx;
            // SAFETY: this worker's own context; the caller switches to the fiber.
            let target = unsafe { task.target(ctx.host_ptr(), ctx.pool_ptr()) };
            // Whoever leaves it says who it is of.
            task.leak();
            target
        }
        Next::Loop => worker.ctx.host.target(),
        Next::Same => Target::NONE,
    }
}

/// See [`Worker::settle`].
///
/// # Safety
/// As for [`next`]; the message is one that a fiber has sent to the calling one.
unsafe extern "C" fn settle<P: Policy<FiberTask>>(worker: *const (), message: usize) {
    // SAFETY: the caller's promise.
    let (worker, left) = unsafe { (&*worker.cast::<Worker<P>>(), Left::decode(message)) };
    left.into_iter()
        .for_each(|left| worker.settle(left, Beside::NextFiber));
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn others_are_woken_for_a_fiber_that_yields_to_the_next() {
        use Beside::{Loop, NextFiber};
        let cases = [
            (Loop, Wake::None, true, Wake::None),
            (NextFiber, Wake::None, true, Wake::Any),
            // Nobody else may run it.
            (NextFiber, Wake::None, false, Wake::None),
            (NextFiber, Wake::Worker(3), true, Wake::Worker(3)),
            (Loop, Wake::Any, true, Wake::Any),
        ];
        for (beside, policy, may_move, woken) in cases {
            assert_eq!(
                beside.wake(policy, may_move),
                woken,
                "{beside:?} {policy:?}"
            );
        }
    }
}
