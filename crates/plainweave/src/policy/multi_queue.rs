//! MultiQueue: many small queues, pushes to a random one, pops from the better of two random ones
//! (Rihani, Sanders and Dementiev, 2015). Here the better is the one whose oldest task has waited
//! longer, so it is a relaxed global FIFO. An early version of the CFA runtime used it, with four
//! lanes a worker and three pushes of four to the worker's own.
//!
//! For it: nobody owns a queue, so there is nobody to steal from and none can hold tasks back; the
//! chance that a task waits much longer than others is small. Against it: that chance is all (no
//! bound is promised), every pop touches lines of others, and an idle machine is searched lane by
//! lane. Pinned tasks wait in a lane of their worker and compete by the same rule.

use std::collections::VecDeque;

use super::pinned::Pinned;
use super::settings::{Key, Settings, key, number};
use super::stamped::Stamped;
use super::{Cx, DirectSwitch, Effort, Policy, Ready, Task, Topology, Wake, WorkerId};

/// The published constants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MultiQueueParams {
    /// Lanes for each worker, at least 1.
    pub lanes: usize,
    /// How many of 256 pushes by a worker go to its own lanes, at most 256.
    pub own: usize,
    /// Pairs of lanes that a pop draws before it looks at all of them.
    pub draws: u32,
}

impl Default for MultiQueueParams {
    fn default() -> Self {
        Self {
            lanes: 4,
            own: 192,
            draws: 25,
        }
    }
}

impl Settings for MultiQueueParams {
    const KEYS: &'static [Key] = &[
        key("lanes", "1..64", "lanes for each worker"),
        key(
            "own",
            "0..256",
            "how many of 256 pushes by a worker go to its own lanes",
        ),
        key(
            "draws",
            "0..1000",
            "pairs of lanes drawn by a pop before it looks at all of them",
        ),
    ];

    fn set(&mut self, key: &str, value: &str) -> Option<()> {
        match key {
            "lanes" => self.lanes = number(value, 1..=64)?,
            "own" => self.own = number(value, 0..=256)?,
            _ => self.draws = number(value, 0..=1000)?,
        }
        Some(())
    }
}

/// Many small queues: pushes go to a random one; pops take from the one of two random ones whose
/// oldest task has waited longer (Rihani, Sanders and Dementiev, 2015).
pub struct MultiQueue<T> {
    params: MultiQueueParams,
    lanes: Stamped<T>,
}

/// A worker's half of [`MultiQueue`].
pub struct MultiQueueLocal<T> {
    worker: WorkerId,
    pinned: Pinned<VecDeque<(u64, T)>>,
}

impl<T: Task> MultiQueue<T> {
    /// The better of two random lanes, if one of them has something.
    fn draw(&self, cx: &mut Cx) -> Option<usize> {
        let all = self.lanes.count();
        let a = cx.below(all);

        let b = cx.below(all);
        match (self.lanes.oldest(a), self.lanes.oldest(b)) {
            (Some(first), Some(second)) => Some(if first <= second { a } else { b }),
            (Some(_), None) => Some(a),
            (None, other) => other.map(|_| b),
        }
    }

    fn pop_lanes(&self, cx: &mut Cx) -> Option<T> {
        let drawn = (0..self.params.draws).find_map(|_| {
            let lane = self.draw(cx)?;
            self.lanes.try_pop(lane)
        });

        let all = || {
            let first = cx.below(self.lanes.count());
            (first..self.lanes.count())
                .chain(0..first)
                .find_map(|lane| self.lanes.pop(lane))
        };

        drawn.or_else(all).map(|(_, task)| task)
    }
}

impl<T: Task + 'static> Policy<T> for MultiQueue<T> {
    type Params = MultiQueueParams;
    type Local = MultiQueueLocal<T>;

    const SPARES: bool = true;
    const DIRECT: DirectSwitch = DirectSwitch::Waits;

    fn new(params: MultiQueueParams, topology: &Topology) -> Self {
        Self {
            lanes: Stamped::new(params.lanes * topology.workers),
            params,
        }
    }

    fn attach(&self, worker: WorkerId) -> MultiQueueLocal<T> {
        MultiQueueLocal {
            worker,
            pinned: Pinned::new(VecDeque::new(), false),
        }
    }

    fn push(
        &self,
        cx: &mut Cx,
        local: Option<&mut MultiQueueLocal<T>>,
        task: T,
        why: Ready,
    ) -> Wake {
        let mut wake = Wake::Any;
        let lane = match local {
            Some(local) if local.pinned.keeps(&task) => {
                local.pinned.tasks.push_back((cx.now(), task));
                return Wake::None;
            }
            Some(local) => {
                wake = why.wake(|| local.pinned.tasks.is_empty() && !self.lanes.has_tasks());
                let own = cx.below(256) < self.params.own;
                if own {
                    Some(local.worker * self.params.lanes + cx.below(self.params.lanes))
                } else {
                    None
                }
            }
            None => None,
        };

        let lane = lane.unwrap_or_else(|| cx.below(self.lanes.count()));
        self.lanes.push(cx, lane, task);
        wake
    }

    fn pop(&self, cx: &mut Cx, local: &mut MultiQueueLocal<T>, _: Effort) -> Option<T> {
        let pinned_first = local.pinned.go_first();
        let Some((pinned, _)) = local.pinned.tasks.front() else {
            return self.pop_lanes(cx);
        };
        let drawn = self
            .draw(cx)
            .and_then(|lane| self.lanes.oldest(lane).map(|time| (time, lane)));
        let movable = match drawn {
            Some((time, lane)) if time < *pinned || (time == *pinned && !pinned_first) => {
                self.lanes.try_pop(lane)
            }
            _ => None,
        };

        movable
            .or_else(|| local.pinned.tasks.pop_front())
            .map(|(_, task)| task)
    }

    fn maybe_ready(&self, _: WorkerId) -> bool {
        self.lanes.has_tasks()
    }

    fn pop_spare(&self, cx: &mut Cx) -> Option<T> {
        self.pop_lanes(cx)
    }

    fn maybe_ready_spare(&self) -> bool {
        self.lanes.has_tasks()
    }

    fn drain(&self, mut local: MultiQueueLocal<T>, sink: &mut dyn FnMut(T)) {
        local
            .pinned
            .tasks
            .drain(..)
            .for_each(|(_, task)| sink(task));
        self.lanes.drain(sink);
    }
}
