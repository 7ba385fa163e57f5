//! `helping`: strict FIFO lanes, two a worker, and workers that help those that fall behind. The
//! scheduler of the Cforall (CFA) runtime; its constants changed over the years and are parameters
//! here.
//!
//! A worker pushes to its own lanes in turn; what comes from outside goes to the lanes where the
//! task last ran. A pop:
//! 1. *Hard bound* (ours, [`HelpingParams::every`]): every few pops the next of *all* lanes comes
//!    first, whatever its age. So the oldest task of any lane is taken before any worker has popped
//!    `every * lanes` times.
//! 2. *Help*: if an earlier pop has picked a target, take from it if its age exceeds
//!    [`HelpingParams::factor`] times the worst age of the worker's own lanes, and keep the target;
//!    else drop it.
//! 3. *Pick*, without a target: draw a lane. One of the same cache group becomes the target;
//!    another with a chance of [`HelpingParams::far`] in 256.
//! 4. The worker's own lanes, the oldest first. 5. When it searches: five random lanes, then all.
//!
//! A lane's age is how long its oldest task has waited, averaged with the waits of those before it
//! ([`HelpingParams::average`]), so that one late task alone does not draw everybody.
//!
//! For it: a task queued behind a busy worker is taken by others although these have work of their
//! own; stealing policies let it wait until somebody is idle. Movement `Anytime` makes the most of
//! this: pinned tasks wait in a lane of their worker, which counts among its own and cannot be
//! helped. Against it: every push and pop takes a lock, and a draw at each pop costs some
//! nanoseconds.

use std::collections::VecDeque;

use super::helping_params::HelpingParams;
use super::pinned::Pinned;
use super::stamped::Stamped;
use super::{Cx, DirectSwitch, Effort, Nanos, Policy, Ready, Task, Topology, Wake, WorkerId};

/// FIFO lanes, two a worker by default. A worker takes from another's lanes, even if it has tasks
/// itself, when those have waited for much longer than its own. The scheduler of the Cforall (CFA)
/// runtime.
pub struct Helping<T> {
    params: HelpingParams,
    topology: Topology,
    lanes: Stamped<T>,
}

/// A worker's half of [`Helping`].
pub struct HelpingLocal<T> {
    worker: WorkerId,
    pinned: Pinned<VecDeque<(Nanos, T)>>,
    target: Option<usize>,
    /// Pops until the next visit by schedule, and the lane it goes to.
    left: u32,
    next: usize,
    /// Which of its own lanes is next, to push to and to pop from.
    pushes: usize,
    turn: usize,
}

impl<T: Task> Helping<T> {
    /// How long a lane's oldest task has waited, averaged; 0: it is empty.
    fn age(&self, cx: &Cx, lane: usize) -> u64 {
        let Some(oldest) = self.lanes.oldest(lane) else {
            return 0;
        };
        self.params
            .average
            .add(self.lanes.average(lane), cx.now().saturating_sub(oldest))
    }

    fn own(&self, worker: WorkerId) -> std::ops::Range<usize> {
        worker * self.params.lanes..(worker + 1) * self.params.lanes
    }

    /// The age beyond which others deserve help.
    fn cutoff(&self, cx: &Cx, local: &HelpingLocal<T>) -> u64 {
        let pinned = local
            .pinned
            .tasks
            .front()
            .map_or(0, |(time, _)| cx.now().saturating_sub(*time));
        let worst = self.own(local.worker).map(|lane| self.age(cx, lane)).max();
        let worst = worst.unwrap_or(0).max(if pinned == 0 {
            0
        } else {
            self.params.average.scale(pinned)
        });

        if worst == 0 {
            0
        } else {
            self.params.average.times(worst, self.params.factor)
        }
    }

    fn take(&self, cx: &Cx, lane: usize, found: Option<(Nanos, T)>) -> Option<T> {
        let (time, task) = found?;
        let average = self
            .params
            .average
            .add(self.lanes.average(lane), cx.now().saturating_sub(time));
        self.lanes.set_average(lane, average);
        Some(task)
    }

    /// Steps 2 and 3.
    fn help(&self, cx: &mut Cx, local: &mut HelpingLocal<T>) -> Option<T> {
        let Some(target) = local.target.take() else {
            let lane = cx.below(self.lanes.count());
            let near = self
                .topology
                .group_of(local.worker)
                .contains(&(lane / self.params.lanes));
            let picked = !self.own(local.worker).contains(&lane)
                && (near || cx.below(256) < self.params.far);
            local.target = picked.then_some(lane);
            return None;
        };

        if self.age(cx, target) <= self.cutoff(cx, local) {
            return None;
        }
        cx.counts.steal_attempts += 1;
        let found = self.lanes.try_pop(target);
        let task = self.take(cx, target, found)?;
        cx.stole(target / self.params.lanes, 1);
        cx.counts.helped += 1;
        local.target = Some(target);

        Some(task)
    }

    /// Step 4: the oldest of the worker's own, in turn when several came at the same time.
    fn pop_own(&self, cx: &mut Cx, local: &mut HelpingLocal<T>) -> Option<T> {
        local.turn = local.turn.wrapping_add(1);
        let own = self.own(local.worker);
        let count = self.params.lanes;
        let lanes = (0..count).map(|i| own.start + (local.turn + i) % count);
        let lane = lanes
            .filter_map(|lane| Some((self.lanes.oldest(lane)?, lane)))
            .min_by_key(|(time, _)| *time);
        let pinned_first = local.pinned.go_first();
        let movable = match (lane, local.pinned.tasks.front()) {
            (Some((time, _)), Some((pinned, _))) => {
                time < *pinned || (time == *pinned && !pinned_first)
            }
            (lane, _) => lane.is_some(),
        };

        if let Some((_, lane)) = lane.filter(|_| movable) {
            let found = self.lanes.pop(lane);
            if let Some(task) = self.take(cx, lane, found) {
                return Some(task);
            }
        }

        local.pinned.tasks.pop_front().map(|(_, task)| task)
    }

    /// Step 5.
    fn search(&self, cx: &mut Cx, local: &mut HelpingLocal<T>) -> Option<T> {
        let all = self.lanes.count();
        let first = cx.below(all);
        let drawn: [usize; 5] = std::array::from_fn(|_| cx.below(all));
        let turn = drawn.into_iter().chain(first..all).chain(0..first);
        let (lane, found) = turn
            .filter_map(|lane| Some((lane, self.lanes.pop(lane)?)))
            .next()?;

        local.target = Some(lane).filter(|lane| !self.own(local.worker).contains(lane));
        self.count_foreign(cx, local.worker, lane);

        self.take(cx, lane, Some(found))
    }

    /// Counts a task that was taken from this lane as stolen, unless the lane is the worker's own.
    fn count_foreign(&self, cx: &mut Cx, worker: WorkerId, lane: usize) {
        if !self.own(worker).contains(&lane) {
            cx.counts.steal_attempts += 1;
            cx.stole(lane / self.params.lanes, 1);
        }
    }
}

impl<T: Task + 'static> Policy<T> for Helping<T> {
    type Params = HelpingParams;
    type Local = HelpingLocal<T>;

    const SPARES: bool = true;
    const DIRECT: DirectSwitch = DirectSwitch::Waits;

    fn new(params: HelpingParams, topology: &Topology) -> Self {
        Self {
            lanes: Stamped::new(params.lanes * topology.workers),
            topology: topology.clone(),
            params,
        }
    }

    fn attach(&self, worker: WorkerId) -> HelpingLocal<T> {
        let left = self.params.every;
        let next = self.own(worker).end;
        HelpingLocal {
            worker,
            pinned: Pinned::new(VecDeque::new(), false),
            target: None,
            left,
            next,
            pushes: 0,
            turn: 0,
        }
    }

    fn push(&self, cx: &mut Cx, local: Option<&mut HelpingLocal<T>>, task: T, why: Ready) -> Wake {
        let Some(local) = local else {
            let worker = task
                .last_worker()
                .unwrap_or_else(|| cx.below(self.topology.workers));
            let lane = self.own(worker).start + cx.below(self.params.lanes);
            self.lanes.push(cx, lane, task);
            return Wake::Any;
        };

        if local.pinned.keeps(&task) {
            local.pinned.tasks.push_back((cx.now(), task));
            return Wake::None;
        }

        let mut own = self.own(local.worker);
        let wake = why
            .wake(|| local.pinned.tasks.is_empty() && own.all(|l| self.lanes.oldest(l).is_none()));
        local.pushes = local.pushes.wrapping_add(1);
        self.lanes.push(
            cx,
            self.own(local.worker).start + local.pushes % self.params.lanes,
            task,
        );

        wake
    }

    fn pop(&self, cx: &mut Cx, local: &mut HelpingLocal<T>, effort: Effort) -> Option<T> {
        if self.params.every > 0 {
            local.left -= 1;
            if local.left == 0 {
                local.left = self.params.every;
                let lane = local.next % self.lanes.count();
                local.next = lane + 1;
                let found = self.lanes.pop(lane);
                if let Some(task) = self.take(cx, lane, found) {
                    self.count_foreign(cx, local.worker, lane);
                    return Some(task);
                }
            }
        }

        let task = if self.topology.workers > 1 {
            self.help(cx, local)
        } else {
            None
        };

        let task = task.or_else(|| self.pop_own(cx, local));
        task.or_else(|| {
            if effort == Effort::Search {
                self.search(cx, local)
            } else {
                None
            }
        })
    }

    fn maybe_ready(&self, _: WorkerId) -> bool {
        self.lanes.has_tasks()
    }

    fn pop_spare(&self, cx: &mut Cx) -> Option<T> {
        let first = cx.below(self.lanes.count());
        let all = self.lanes.count();
        (first..all)
            .chain(0..first)
            .find_map(|lane| self.lanes.pop(lane))
            .map(|(_, task)| task)
    }

    fn maybe_ready_spare(&self) -> bool {
        self.lanes.has_tasks()
    }

    fn drain(&self, mut local: HelpingLocal<T>, sink: &mut dyn FnMut(T)) {
        local
            .pinned
            .tasks
            .drain(..)
            .for_each(|(_, task)| sink(task));
        self.lanes.drain(sink);
    }
}
