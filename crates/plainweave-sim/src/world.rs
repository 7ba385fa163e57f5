//! What the actors of a run share beside the pools: fibers, checker, workload, and what is counted.

use hdrhistogram::Histogram;

use crate::check::{Checker, Promises};
use crate::costs::{NANO, Picos};
use crate::policy::WorkerId;
use crate::stacks::Stacks;
use crate::task::{Fibers, TaskId};
use crate::timeline::Timeline;
use crate::workload::{Action, Step, Workload};

/// The longest latency that the histogram distinguishes, in nanoseconds: an hour.
const LONGEST: u64 = 3_600_000_000_000;

/// What the actors of a run share beside the pools.
pub(crate) struct World {
    pub(crate) fibers: Fibers,
    pub(crate) stacks: Stacks,
    pub(crate) checker: Checker,
    pub(crate) runs: u64,
    pub(crate) sleeps: u64,
    /// What each worker does when, if that is recorded.
    pub(crate) timeline: Option<Timeline>,
    /// Nothing more comes from outside.
    pub(crate) all_arrived: bool,
    pub(crate) workload: Box<dyn Workload>,
    /// What fibers report, in nanoseconds.
    pub(crate) latency: Histogram<u64>,
    /// Which fiber ran where and when: equal for runs that went the same way.
    pub(crate) digest: u64,
    /// When the last fiber ended.
    pub(crate) ended: Picos,
}

impl World {
    pub(crate) fn new(workload: Box<dyn Workload>, promises: Promises, pools: &[usize]) -> Self {
        Self {
            fibers: Fibers::default(),
            stacks: Stacks::new(pools.iter().sum()),
            checker: Checker::new(promises, pools),
            runs: 0,
            sleeps: 0,
            timeline: None,
            all_arrived: false,
            workload,
            latency: Histogram::new_with_bounds(1, LONGEST, 3).expect("the bounds are in order"),
            digest: 0,
            ended: 0,
        }
    }

    /// Returns what a fiber on `worker` does next.
    pub(crate) fn next(&mut self, fiber: TaskId, worker: WorkerId, now: Picos) -> Action {
        let latency = &mut self.latency;
        let mut record = |time: Picos| latency.saturating_record(time / NANO);
        self.workload.next(
            fiber,
            &mut Step {
                now,
                worker,
                fibers: &mut self.fibers,
                latency: &mut record,
            },
        )
    }

    /// Returns the next fiber that comes from outside, and when.
    pub(crate) fn arrival(&mut self) -> Option<(Picos, TaskId)> {
        let next = self.workload.arrival(&mut self.fibers);
        // Else an open loop whose fibers have all ended would be over before its next one comes.
        self.all_arrived = next.is_none();
        next
    }

    /// Notes that a worker has taken a fiber from its policy. In its pool its number is `in_pool`.
    pub(crate) fn starts(
        &mut self,
        fiber: TaskId,
        worker: WorkerId,
        in_pool: WorkerId,
        now: Picos,
    ) {
        self.checker.starts(now);
        let pool = self.fibers.get(fiber).pool;
        self.checker.pool(pool).popped(fiber, in_pool, now);
        self.runs += 1;

        // FNV-1a's step over what happened, where and when.
        for word in [fiber as u64, worker as u64, now] {
            self.digest = (self.digest ^ word).wrapping_mul(0x0100_0000_01B3);
        }
    }

    /// Notes that a fiber has ended on a worker.
    pub(crate) fn ends(&mut self, fiber: TaskId, worker: usize, now: Picos) {
        self.fibers.end(fiber);
        self.stacks.ends(fiber, worker);
        self.ended = self.ended.max(now);
    }

    /// Whether no fiber is left, and none comes.
    pub(crate) fn is_done(&self) -> bool {
        self.all_arrived && self.fibers.live() == 0
    }
}
