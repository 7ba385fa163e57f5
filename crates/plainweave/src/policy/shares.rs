//! Shares: each task runs in proportion to its weight (stride scheduling: Waldspurger and Weihl
//! 1995). A task's pass grows by a stride, the inverse of its weight, each time it runs, and the
//! least pass runs next. A task that comes or comes back starts at the pass of the last that ran:
//! sleeping saves nothing up.
//!
//! For it: weighted fairness without a clock. Nothing starves: a task of weight `w` waits for about
//! as many runs of a task of weight `v` as `v / w`. Against it: a run counts one, however long it
//! takes, since there is no preemption, so shares of *time* hold among tasks with runs of like
//! length; pinned tasks share with those of their worker only; all workers write the clock of
//! passes; and as of every ranked policy.

use crossbeam_utils::CachePadded;

use super::ranked::{Rank, Ranked};
use super::{Nanos, Task};
use crate::shim::atomic::AtomicU64;
use crate::shim::atomic::Ordering::Relaxed;

/// Each task runs in proportion to its weight (stride scheduling: Waldspurger and Weihl 1995). A
/// run counts one, however long it takes.
pub type Shares<T> = Ranked<T, Stride>;

/// What one run costs a task of weight 1. The pass of such a task, alone on a worker that switches
/// every 20 ns, comes to the end of its 64 bits after 42 days.
const ONE: u64 = 100_000;

/// The rank by pass. The pass stands in the task's stamp.
pub struct Stride {
    /// The pass of what ran last.
    clock: CachePadded<AtomicU64>,
}

impl<T: Task> Rank<T> for Stride {
    type Params = ();

    fn new((): ()) -> Self {
        Self {
            clock: CachePadded::new(AtomicU64::new(0)),
        }
    }

    fn key(&self, _: Nanos, task: &T) -> u64 {
        task.stamp().max(self.clock.load(Relaxed))
    }

    fn runs(&self, key: u64, task: &T) {
        if key > self.clock.load(Relaxed) {
            self.clock.store(key, Relaxed);
        }
        task.set_stamp(key + ONE / u64::from(task.weight().max(1)));
    }
}
