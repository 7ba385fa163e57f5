//! Options (OCaml schedulers' thesis): binomial trees, a task for each time step, which spawns the
//! next. Most trees are shallow, a few are deep. Latency is from the beginning of the run to an
//! option's price. `plainweave bench thesis options` has the same on real workers.
//!
//! One fiber spawns all options. The first task of each builds the tree's leaves; the task of a
//! time step then folds them to one fewer. The seed decides which options are deep, the same ones
//! under every policy.

use super::spawners::{SPAWNER, Spawners};
use super::{Action, Step, Workload};
use crate::costs::{Costs, Picos};
use crate::policy::Cx;
use crate::task::{Fibers, TaskId};

/// An option's first task.
const BUILDS: usize = 1;
/// A time step.
const FOLDS: usize = 2;

/// How many options, and what they are.
pub(super) struct Parameters {
    pub(super) options: u64,
    /// Time steps of most.
    pub(super) depth: u64,
    /// Time steps of the deep ones.
    pub(super) deep: u64,
    /// One option in this many is deep.
    pub(super) deep_in: u64,
}

pub(super) struct Options {
    parameters: Parameters,
    spawners: Spawners,
    seed: u64,
    costs: Costs,
}

impl Options {
    pub(super) fn new(parameters: Parameters, seed: u64, costs: &Costs) -> Self {
        let spawners = Spawners::new(1, parameters.options, costs.task);
        Self {
            parameters,
            spawners,
            seed,
            costs: costs.clone(),
        }
    }

    fn depth(&self, option: u64) -> u64 {
        let mut random = Cx::new(self.seed.wrapping_mul(1 << 32).wrapping_add(option));
        let is_deep = random.below(self.parameters.deep_in as usize) == 0;
        if is_deep {
            self.parameters.deep
        } else {
            self.parameters.depth
        }
    }
}

/// Creates a task of an option that has `left` time steps to go.
fn task(fibers: &mut Fibers, kind: usize, left: u64) -> TaskId {
    let task = fibers.create(kind, 0);
    fibers.get(task).other = left as usize;
    task
}

impl Workload for Options {
    fn arrival(&mut self, fibers: &mut Fibers) -> Option<(Picos, TaskId)> {
        self.spawners.arrival(fibers)
    }

    fn next(&mut self, fiber: TaskId, step: &mut Step<'_>) -> Action {
        let this = step.fibers.get(fiber);
        if this.kind == SPAWNER {
            return self.spawners.next(fiber, step, |step, option| {
                task(step.fibers, BUILDS, self.depth(option))
            });
        }

        let left = this.other as u64;
        let builds = this.kind == BUILDS;
        this.step += 1;

        match this.step {
            // The time of the task that it spawns is in it.
            1 if builds => Action::Compute((left + 1) * self.costs.leaf + self.costs.task),
            1 => Action::Compute(left * self.costs.node + self.costs.task),
            2 if builds => Action::Spawn(task(step.fibers, FOLDS, left)),
            2 if left > 1 => Action::Spawn(task(step.fibers, FOLDS, left - 1)),
            2 => {
                (step.latency)(step.now);
                Action::End
            }
            _ => Action::End,
        }
    }

    fn operations(&self) -> u64 {
        self.parameters.options
    }
}
