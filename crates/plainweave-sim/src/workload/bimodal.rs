//! Bimodal (OCaml schedulers' thesis): packets that pass through a chain of tasks, each of which
//! spawns the next. A few are heavy: the last tasks of their chains sleep, and hold up their
//! workers unless `wait=suspend`. Latency is from a chain's spawn to its end. `plainweave bench
//! thesis bimodal` has the same on real workers.
//!
//! The seed decides which packets are heavy: the same ones under every policy and on every machine.

use super::packets::{TEMPLATES, scan};
use super::spawners::{SPAWNER, Spawners};
use super::{Action, Step, Workload};
use crate::costs::{Costs, Picos};
use crate::policy::Cx;
use crate::task::{Fibers, TaskId};

/// What a run does, and how often.
pub(super) struct Parameters {
    pub(super) packets: u64,
    pub(super) spawners: u64,
    /// Tasks of a packet.
    pub(super) chain: u64,
    /// How many packets in a million are heavy.
    pub(super) heavy: usize,
    /// How many tasks of a heavy packet sleep.
    pub(super) sleeps: u64,
    /// For how long.
    pub(super) sleep: Picos,
    /// Whether their workers do something else meanwhile.
    pub(super) suspends: bool,
    /// Whether heavy packets go to the second pool.
    pub(super) staged: bool,
}

pub(super) struct Bimodal {
    parameters: Parameters,
    spawners: Spawners,
    seed: u64,
    costs: Costs,
}

impl Bimodal {
    pub(super) fn new(parameters: Parameters, seed: u64, costs: &Costs) -> Self {
        let spawners = Spawners::new(parameters.spawners, parameters.packets, costs.create);
        Self {
            parameters,
            spawners,
            seed,
            costs: costs.clone(),
        }
    }

    /// Returns whether a packet is heavy, and what draws the rest of it.
    fn draw(&self, packet: u64) -> (bool, Cx) {
        let mut random = Cx::new(self.seed.wrapping_mul(1 << 32).wrapping_add(packet));
        (random.below(1_000_000) < self.parameters.heavy, random)
    }

    /// Returns what a task works: it scans its packet, or it sleeps. Tasks of a chain count from 1.
    fn work(&self, packet: u64, task: u64) -> Action {
        let Parameters {
            chain,
            sleeps,
            sleep,
            suspends,
            ..
        } = self.parameters;
        let (is_heavy, mut random) = self.draw(packet);
        if is_heavy && task + sleeps > chain {
            return if suspends {
                Action::Sleep(sleep)
            } else {
                Action::HoldUp(sleep)
            };
        }

        Action::Compute(scan(random.below(TEMPLATES as usize) as u64, &self.costs))
    }

    /// Creates a task of a packet that was spawned at `born`. Its kind is its place in the chain.
    fn task(&self, fibers: &mut Fibers, packet: u64, place: u64, born: Picos) -> TaskId {
        let task = fibers.create(place as usize, born);
        let this = fibers.get(task);
        this.other = packet as usize;
        this.pool = usize::from(self.parameters.staged && self.draw(packet).0);
        task
    }
}

impl Workload for Bimodal {
    fn arrival(&mut self, fibers: &mut Fibers) -> Option<(Picos, TaskId)> {
        self.spawners.arrival(fibers)
    }

    fn next(&mut self, fiber: TaskId, step: &mut Step<'_>) -> Action {
        let this = step.fibers.get(fiber);
        if this.kind == SPAWNER {
            return self.spawners.next(fiber, step, |step, packet| {
                self.task(step.fibers, packet, 1, step.now)
            });
        }

        let packet = this.other as u64;
        let place = this.kind as u64;
        let born = this.born;
        this.step += 1;

        match this.step {
            1 => self.work(packet, place),
            2 if place < self.parameters.chain => {
                Action::Spawn(self.task(step.fibers, packet, place + 1, born))
            }
            2 => {
                (step.latency)(step.now - born);
                Action::End
            }
            _ => Action::End,
        }
    }

    fn operations(&self) -> u64 {
        self.parameters.packets
    }
}
