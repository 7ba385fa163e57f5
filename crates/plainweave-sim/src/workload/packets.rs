//! Packets (OCaml schedulers' thesis, figures 7.1 to 7.7): one spawner, or several, schedule handlers without a pause.
//! Each handler scans a packet of 2,000 to 2,270 bytes. Latency is from a handler's spawn to its end.
//!
//! The two times are **fitted** to the published throughput: [`HANDLER`] to 0.33 million packets a second at 5 domains,
//! four of which run handlers, and [`CREATE`] to the peak of 1.55 million, which one spawner cannot exceed. All other
//! points of the figures are predicted.

use super::{Action, Step, Workload};
use crate::costs::{NANO, Picos};
use crate::task::{Fibers, TaskId};

/// A handler with the shortest packet.
const HANDLER: Picos = 11_000 * NANO;
/// What each longer template adds.
const LONGER: Picos = 160 * NANO;
/// Packet lengths.
const TEMPLATES: u64 = 10;
/// What a spawner does for a packet, beside the push.
const CREATE: Picos = 500 * NANO;

/// Throughput against domains as published, measured on two EPYC 7702 and read off charts: policies, and domains and
/// packets a second for each.
pub(crate) const PUBLISHED: &[(&str, &[(f64, f64)])] = &[
    ("ot-fifo-base", &[(5.0, 0.33e6), (80.0, 1.43e6), (115.0, 1.10e6)]),
    ("ot-lifo-base", &[(5.0, 0.33e6), (20.0, 1.55e6), (115.0, 0.90e6)]),
];

const SPAWNER: usize = 0;
const HANDLES: usize = 1;

pub(super) struct Packets {
    packets: u64,
    spawners: u64,
    started: u64,
}

impl Packets {
    pub(super) fn new(packets: u64, spawners: u64) -> Self {
        Self { packets, spawners, started: 0 }
    }

    /// The packets of spawner `n`.
    fn share(&self, n: u64) -> u64 {
        self.packets / self.spawners + u64::from(n < self.packets % self.spawners)
    }

    fn spawner(&self, fiber: TaskId, step: &mut Step<'_>) -> Action {
        let spawner = step.fibers.get(fiber);
        let turn = spawner.step;
        spawner.step += 1;
        if turn >= 2 * self.share(spawner.other as u64) {
            Action::End
        } else if turn.is_multiple_of(2) {
            Action::Compute(CREATE)
        } else {
            let handler = step.fibers.create(HANDLES, step.now);
            step.fibers.get(handler).step = (turn / 2 % TEMPLATES) << 1;
            Action::Spawn(handler)
        }
    }
}

impl Workload for Packets {
    fn arrival(&mut self, fibers: &mut Fibers) -> Option<(Picos, TaskId)> {
        if self.started == self.spawners {
            return None;
        }
        let spawner = fibers.create(SPAWNER, 0);
        fibers.get(spawner).other = self.started as usize;
        self.started += 1;
        Some((0, spawner))
    }

    fn next(&mut self, fiber: TaskId, step: &mut Step<'_>) -> Action {
        let this = step.fibers.get(fiber);
        if this.kind == SPAWNER {
            return self.spawner(fiber, step);
        }
        if this.step & 1 == 0 {
            this.step |= 1;
            return Action::Compute(HANDLER + (this.step >> 1) * LONGER);
        }
        (step.latency)(step.now - this.born);
        Action::End
    }

    fn operations(&self) -> u64 {
        self.packets
    }
}
