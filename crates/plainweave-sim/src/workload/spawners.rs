//! Fibers that spawn what a workload consists of, one after the other and without a pause.

use super::{Action, Step};
use crate::costs::Picos;
use crate::task::{Fibers, TaskId};

/// The kind of a spawner's fiber. A workload's other fibers have other kinds.
pub(super) const SPAWNER: usize = 0;

/// The spawners of a run, and what they have left to spawn.
pub(super) struct Spawners {
    spawners: u64,
    /// How many fibers they spawn, all together.
    total: u64,
    /// What a spawner computes before each spawn.
    create: Picos,
    arrived: u64,
}

impl Spawners {
    pub(super) fn new(spawners: u64, total: u64, create: Picos) -> Self {
        Self {
            spawners,
            total,
            create,
            arrived: 0,
        }
    }

    /// How many fibers spawner `n` spawns.
    fn share(&self, n: u64) -> u64 {
        self.total / self.spawners + u64::from(n < self.total % self.spawners)
    }

    /// Returns the next spawner. All of them come at the beginning.
    pub(super) fn arrival(&mut self, fibers: &mut Fibers) -> Option<(Picos, TaskId)> {
        if self.arrived == self.spawners {
            return None;
        }
        let spawner = fibers.create(SPAWNER, 0);
        fibers.get(spawner).other = self.arrived as usize;
        self.arrived += 1;
        Some((0, spawner))
    }

    /// Returns what a spawner does next; `create` makes the fiber of a number.
    pub(super) fn next(
        &self,
        spawner: TaskId,
        step: &mut Step<'_>,
        create: impl FnOnce(&mut Step<'_>, u64) -> TaskId,
    ) -> Action {
        let this = step.fibers.get(spawner);
        let turn = this.step;
        let first = this.other as u64;
        this.step += 1;

        if turn >= 2 * self.share(first) {
            Action::End
        } else if turn.is_multiple_of(2) {
            Action::Compute(self.create)
        } else {
            Action::Spawn(create(step, first + turn / 2 * self.spawners))
        }
    }
}
