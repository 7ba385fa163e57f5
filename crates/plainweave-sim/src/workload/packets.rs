//! Packets (OCaml schedulers' thesis, figures 7.1 to 7.7): one spawner, or several, schedule
//! handlers without a pause. Each handler scans a packet of 2,000 to 2,270 bytes, and may be
//! delayed. Latency is from a handler's spawn to its end. `plainweave bench thesis packets` has the
//! same on real workers.

use super::spawners::{SPAWNER, Spawners};
use super::{Action, Step, Workload};
use crate::costs::{Costs, Picos};
use crate::task::{Fibers, TaskId};

/// Packet lengths.
pub(super) const TEMPLATES: u64 = 10;

/// Throughput against domains as published, measured on two EPYC 7702 and read off charts:
/// policies, and domains and packets a second for each.
pub(crate) const PUBLISHED: &[(&str, &[(f64, f64)])] = &[
    (
        "ot-fifo-base",
        &[(5.0, 0.33e6), (80.0, 1.43e6), (115.0, 1.10e6)],
    ),
    (
        "ot-lifo-base",
        &[(5.0, 0.33e6), (20.0, 1.55e6), (115.0, 0.90e6)],
    ),
];

const HANDLER: usize = 1;

/// What a handler does after its scan.
#[derive(Clone, Copy)]
pub(super) enum Delay {
    /// Nothing.
    None,
    /// It computes for so long, by the clock.
    Spin(Picos),
    /// Its thread sleeps for so long.
    Sleep(Picos),
    /// It sleeps for so long, and its worker does something else meanwhile.
    Suspend(Picos),
}

pub(super) struct Packets {
    packets: u64,
    spawners: Spawners,
    /// How many there are; their packets take turns in length.
    count: u64,
    delay: Delay,
    costs: Costs,
}

impl Packets {
    pub(super) fn new(packets: u64, spawners: u64, delay: Delay, costs: &Costs) -> Self {
        let costs = costs.clone();
        Self {
            packets,
            spawners: Spawners::new(spawners, packets, costs.create),
            count: spawners,
            delay,
            costs,
        }
    }
}

/// Returns how long a packet is scanned, by the number of its template.
pub(super) fn scan(template: u64, costs: &Costs) -> Picos {
    costs.scan + template * costs.longer
}

impl Workload for Packets {
    fn arrival(&mut self, fibers: &mut Fibers) -> Option<(Picos, TaskId)> {
        self.spawners.arrival(fibers)
    }

    fn next(&mut self, fiber: TaskId, step: &mut Step<'_>) -> Action {
        let this = step.fibers.get(fiber);
        if this.kind == SPAWNER {
            return self.spawners.next(fiber, step, |step, number| {
                let handler = step.fibers.create(HANDLER, step.now);
                step.fibers.get(handler).other = (number / self.count % TEMPLATES) as usize;
                handler
            });
        }

        this.step += 1;
        match this.step {
            1 => return Action::Compute(scan(this.other as u64, &self.costs)),
            2 => match self.delay {
                Delay::None => {}
                Delay::Spin(time) => return Action::HoldUp(time),
                Delay::Sleep(time) => return Action::HoldUp(time + self.costs.nap),
                Delay::Suspend(time) => return Action::Sleep(time),
            },
            _ => {}
        }

        (step.latency)(step.now - this.born);
        Action::End
    }

    fn operations(&self) -> u64 {
        self.packets
    }
}
