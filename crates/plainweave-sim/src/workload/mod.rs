//! What simulated fibers do: a workload is a small machine that says what each fiber does next.
//!
//! A workload has no clock and no scheduler of its own; it costs what its actions cost. One file each.

mod micro;
mod open;
mod packets;

use micro::{Case, Micro};
use open::Open;
use packets::Packets;

use crate::costs::Picos;
use crate::task::{Fibers, TaskId};

/// What a fiber does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// It computes for so long.
    Compute(Picos),
    /// It spawns a fiber that it has created.
    Spawn(TaskId),
    /// It reads and writes a line of the workload's data.
    Touch(u64),
    /// It gives way.
    Yield,
    /// It waits until another fiber wakes it, or not at all if one has already.
    Wait,
    /// It wakes a fiber, which may have ended.
    Wake(TaskId),
    /// It ends.
    End,
}

/// What a workload may use while it decides.
pub(crate) struct Step<'a> {
    pub(crate) now: Picos,
    pub(crate) fibers: &'a mut Fibers,
    /// What it measures: the latency of one request, or what stands for one.
    pub(crate) latency: &'a mut dyn FnMut(Picos),
}

/// What fibers there are, and what they do.
pub(crate) trait Workload {
    /// Returns the next fiber that comes from outside the pool, and when. Times do not fall.
    fn arrival(&mut self, fibers: &mut Fibers) -> Option<(Picos, TaskId)>;

    /// Returns what a fiber does next.
    fn next(&mut self, fiber: TaskId, step: &mut Step<'_>) -> Action;

    /// Returns the number of what is counted for the throughput.
    fn operations(&self) -> u64;
}

/// A workload by name and size.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Load {
    kind: Kind,
    size: u64,
    percent: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Packets { spawners: u64 },
    Open,
    Stuck,
    Burst,
    Micro(Case),
}

/// A row of the table of workloads: its name, its kind, its number of requests, and what it is.
type Row = (&'static str, Kind, u64, &'static str);

/// The workloads that have a name.
pub(crate) const LOADS: &[Row] = &[
    (
        "packets",
        Kind::Packets { spawners: 1 },
        50_000,
        "one fiber spawns handlers without a pause; each scans a packet (OCaml schedulers' thesis)",
    ),
    ("packets-spawners", Kind::Packets { spawners: 4 }, 50_000, "the same by four fibers"),
    ("open", Kind::Open, 50_000, "requests of 10 us from outside, at --rate percent of what the workers can compute"),
    ("stuck", Kind::Stuck, 20_000, "the same beside a fiber that computes for 5 ms"),
    ("burst", Kind::Burst, 5_000, "requests of 10 us from outside, all at once"),
    ("yield", Kind::Micro(Case::Yield), 100_000, "100 fibers a worker yield (CFA thesis, as those below)"),
    ("cycle", Kind::Micro(Case::Cycle), 100_000, "rings of five fibers, 20 a worker, pass tokens on"),
    ("churn", Kind::Micro(Case::Churn), 100_000, "100 fibers a worker release and acquire random semaphores"),
    (
        "locality",
        Kind::Micro(Case::Locality),
        100_000,
        "100 fibers a worker write to their data and take each other's places",
    ),
    (
        "transfer",
        Kind::Micro(Case::Transfer),
        20,
        "a leader waits, without yielding, until all others have run; ends early if some do not within 2 ms",
    ),
];

impl Load {
    /// The most requests of a run.
    pub(crate) const MOST: u64 = 20_000_000;

    /// Returns the workload of a name; `size` takes the place of its own number of requests.
    ///
    /// # Errors
    /// There is none of that name, or the size makes no sense: a message that says what is allowed.
    pub fn named(name: &str, size: Option<u64>) -> Result<Self, String> {
        let Some((_, kind, own, _)) = LOADS.iter().find(|row| row.0 == name) else {
            let names: Vec<_> = LOADS.iter().map(|row| row.0).collect();
            return Err(format!("no simulated workload is called '{name}'; there are: {}", names.join(", ")));
        };
        let size = size.unwrap_or(*own);
        if size == 0 || size > Self::MOST {
            return Err(format!("size is {size}: 1 to {} are allowed", Self::MOST));
        }
        Ok(Self { kind: *kind, size, percent: 80 })
    }

    /// Makes requests from outside come at `percent` of what the workers can compute.
    #[must_use]
    pub fn at_rate(self, percent: u64) -> Self {
        Self { percent, ..self }
    }

    /// Returns whether requests come at a rate.
    #[must_use]
    pub fn has_rate(&self) -> bool {
        matches!(self.kind, Kind::Open | Kind::Stuck)
    }

    /// Returns the throughput that was published for a policy, by numbers of workers.
    pub(crate) fn published(&self, policy: &str) -> &'static [(f64, f64)] {
        let known = if self.kind == (Kind::Packets { spawners: 1 }) { packets::PUBLISHED } else { &[] };
        known.iter().find(|(name, _)| *name == policy).map_or(&[], |(_, points)| points)
    }

    pub(crate) fn build(&self, workers: usize, seed: u64) -> Box<dyn Workload> {
        let Self { kind, size, percent } = *self;
        match kind {
            Kind::Packets { spawners } => Box::new(Packets::new(size, spawners)),
            Kind::Open => Box::new(Open::steady(size, percent, workers, seed)),
            Kind::Stuck => Box::new(Open::steady(size, percent, workers, seed).beside_stuck()),
            Kind::Burst => Box::new(Open::burst(size, seed)),
            Kind::Micro(case) => Box::new(Micro::new(case, size, workers, seed)),
        }
    }
}
