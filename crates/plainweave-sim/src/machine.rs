//! Simulated machines: how many workers, what they share, how fast each of them is.

use crate::costs::{Costs, Picos};
use crate::policy::{Topology, WorkerId};

/// The most workers of a machine.
pub(crate) const MAX_WORKERS: usize = 256;

/// The machines that have a name, and what they are.
pub(crate) const MACHINES: &[(&str, &str)] = &[
    (
        "epyc",
        "4 workers a cache group, 64 a socket: two EPYC 7702 without the second threads of their cores",
    ),
    ("flat", "one cache for all"),
    ("numa", "8 workers a cache group and a socket"),
    (
        "hybrid",
        "one cache; the upper half of the workers takes twice as long to compute (P and E cores)",
    ),
];

/// Fields of a described machine: names, least and greatest values, whether they are whole numbers.
const FIELDS: [(&str, f64, f64, bool); 6] = [
    ("core", 1.0, MAX_WORKERS as f64, true),
    ("group", 1.0, MAX_WORKERS as f64, true),
    ("socket", 1.0, MAX_WORKERS as f64, true),
    ("slow", 0.0, 100.0, false),
    ("slowdown", 1.0, 100.0, false),
    ("spares", 0.0, 1.0, true),
];

/// What a scenario says of a machine, whatever its number of workers.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Shape {
    /// Workers that share a core, as its hardware threads do.
    core: usize,
    /// Workers that share a last-level cache.
    group: usize,
    socket: usize,
    /// How many percent of the workers, the last ones, are slow.
    slow: f64,
    /// How many times longer computing takes on these.
    slowdown: f64,
    /// Whether policies expect spare workers, as they do under the runtime's default movement. None
    /// comes, but a worker that is alone then keeps its tasks where others could take them.
    spares: bool,
}

impl Shape {
    /// Puts a machine together from its fields. A level that is left out is as wide as the one
    /// inside it; the widest, all workers.
    ///
    /// # Errors
    /// A field is unknown or makes no sense: its name, and a message that says what is allowed.
    pub(crate) fn of<'a>(
        fields: impl Iterator<Item = (&'a str, f64)> + Clone,
    ) -> Result<Self, (&'a str, String)> {
        for (name, value) in fields.clone() {
            let Some((_, least, most, whole)) = FIELDS.iter().find(|(field, ..)| *field == name)
            else {
                let names = FIELDS.map(|(field, ..)| field).join(", ");
                return Err((name, format!("a machine has no '{name}'; it has: {names}")));
            };
            if !(*least..=*most).contains(&value) || *whole && value.fract() != 0.0 {
                let numbers = if *whole { "whole numbers from " } else { "" };
                return Err((
                    name,
                    format!("machine.{name} is {value}: {numbers}{least} to {most} are allowed"),
                ));
            }
        }
        let find = |name: &str| fields.clone().find(|(field, _)| *field == name);
        let value = |name: &str, own: f64| find(name).map_or(own, |(_, value)| value);
        let core = value("core", 1.0) as usize;
        let group = value(
            "group",
            if find("socket").is_some() {
                core
            } else {
                MAX_WORKERS.next_multiple_of(core)
            } as f64,
        );
        let group = group as usize;
        let socket = value("socket", MAX_WORKERS.next_multiple_of(group) as f64) as usize;
        for (outer, width, inner, part) in [
            ("group", group, "core", core),
            ("socket", socket, "group", group),
        ] {
            if !width.is_multiple_of(part) {
                let (name, _) = find(outer)
                    .or_else(|| find(inner))
                    .expect("one of them was given");
                let message = format!(
                    "machine.{outer} is {width}: multiples of machine.{inner}, {part}, are allowed"
                );
                return Err((name, message));
            }
        }
        let slow = value("slow", 0.0);
        let slowdown = value("slowdown", 2.0);
        let spares = value("spares", 0.0) == 1.0;
        Ok(Self {
            core,
            group,
            socket,
            slow,
            slowdown,
            spares,
        })
    }
}

fn check_workers(workers: usize) -> Result<(), String> {
    match workers {
        1..=MAX_WORKERS => Ok(()),
        _ => Err(format!(
            "{workers} workers: a simulated machine has 1 to {MAX_WORKERS}"
        )),
    }
}

/// A simulated machine.
#[derive(Clone, Debug)]
pub struct Machine {
    pub(crate) topology: Topology,
    pub(crate) costs: Costs,
    /// From this worker on, computing takes longer: this percentage of what it takes elsewhere.
    pub(crate) slow_from: WorkerId,
    pub(crate) slowdown: u64,
    /// Whether workers without work sleep, as the runtime's do. If not they search without end, as
    /// the published schedulers' do.
    pub(crate) sleeps: bool,
}

impl Machine {
    /// Returns the machine of a name with `workers` workers.
    ///
    /// # Errors
    /// There is no such machine, or it cannot have that many: a message that says what is allowed.
    pub fn named(name: &str, workers: usize) -> Result<Self, String> {
        check_workers(workers)?;
        let levels = |group: usize, socket: usize| Topology {
            group,
            socket,
            ..Topology::flat(workers)
        };
        let (topology, slow_from) = match name {
            "epyc" => (levels(4, 64), workers),
            "flat" => (Topology::flat(workers), workers),
            "numa" => (levels(8, 8), workers),
            "hybrid" => (Topology::flat(workers), workers.div_ceil(2)),
            _ => {
                let names: Vec<_> = MACHINES.iter().map(|(name, _)| *name).collect();
                return Err(format!(
                    "no simulated machine is called '{name}'; there are: {}",
                    names.join(", ")
                ));
            }
        };
        Ok(Self {
            topology,
            costs: Costs::default(),
            slow_from,
            slowdown: 200,
            sleeps: true,
        })
    }

    /// Returns the machine that a scenario describes, with `workers` workers.
    ///
    /// # Errors
    /// It cannot have that many: a message that says what is allowed.
    pub(crate) fn described(shape: &Shape, workers: usize) -> Result<Self, String> {
        check_workers(workers)?;
        let &Shape {
            core,
            group,
            socket,
            spares,
            ..
        } = shape;
        let topology = Topology {
            workers,
            core,
            group,
            socket,
            spares,
        };
        let slow = (workers as f64 * shape.slow / 100.0).round() as usize;
        let slowdown = (shape.slowdown * 100.0).round() as u64;
        Ok(Self {
            topology,
            costs: Costs::default(),
            slow_from: workers - slow,
            slowdown,
            sleeps: true,
        })
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
        if worker >= self.slow_from {
            time * self.slowdown / 100
        } else {
            time
        }
    }
}
