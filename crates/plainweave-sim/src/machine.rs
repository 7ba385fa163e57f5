//! Simulated machines: how many workers, what they share, how fast each of them is.

use crate::costs::{Costs, Picos};
use crate::policy::{Topology, WorkerId};

/// The most workers of a machine.
pub(crate) const MAX_WORKERS: usize = 256;

/// The machines that have a name, and what they are.
pub(crate) const MACHINES: &[(&str, &str)] = &[
    ("epyc", "4 workers a cache group, 64 a socket: two EPYC 7702 without the second threads of their cores"),
    ("flat", "one cache for all"),
    ("numa", "8 workers a cache group and a socket"),
    ("hybrid", "one cache; the upper half of the workers takes twice as long to compute (P and E cores)"),
];

/// A simulated machine.
#[derive(Clone, Debug)]
pub struct Machine {
    pub(crate) topology: Topology,
    pub(crate) costs: Costs,
    /// From this worker on, computing takes twice as long.
    pub(crate) slow_from: WorkerId,
    /// Whether workers without work sleep, as the runtime's do. If not they search without end, as the published
    /// schedulers' do.
    pub(crate) sleeps: bool,
}

impl Machine {
    /// Returns the machine of a name with `workers` workers.
    ///
    /// # Errors
    /// There is no such machine, or it cannot have that many: a message that says what is allowed.
    pub fn named(name: &str, workers: usize) -> Result<Self, String> {
        if workers == 0 || workers > MAX_WORKERS {
            return Err(format!("{workers} workers: a simulated machine has 1 to {MAX_WORKERS}"));
        }
        let levels = |group: usize, socket: usize| Topology { group, socket, ..Topology::flat(workers) };
        let (topology, slow_from) = match name {
            "epyc" => (levels(4, 64), workers),
            "flat" => (Topology::flat(workers), workers),
            "numa" => (levels(8, 8), workers),
            "hybrid" => (Topology::flat(workers), workers.div_ceil(2)),
            _ => {
                let names: Vec<_> = MACHINES.iter().map(|(name, _)| *name).collect();
                return Err(format!("no simulated machine is called '{name}'; there are: {}", names.join(", ")));
            }
        };
        Ok(Self { topology, costs: Costs::default(), slow_from, sleeps: true })
    }

    /// Makes workers without work search without end in place of sleeping.
    #[must_use]
    pub fn without_sleep(mut self) -> Self {
        self.sleeps = false;
        self
    }

    /// Returns the number of workers.
    #[must_use]
    pub fn workers(&self) -> usize {
        self.topology.workers
    }

    /// Returns how long a computation takes on a worker.
    pub(crate) fn computing(&self, worker: WorkerId, time: Picos) -> Picos {
        if worker >= self.slow_from { 2 * time } else { time }
    }
}
