//! How much load a run makes, and the part of it that falls to each worker.

use std::num::NonZeroUsize;
use std::time::Duration;

use anyhow::ensure;
use plainweave::Runtime;

use super::flags::{Arrivals, Common};
use super::schedule::{Pace, Schedule};
use crate::engine::{Io, Setup};
use crate::mode::Mode;

/// How much load, from where.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub(super) connections: usize,
    pub(super) workers: usize,
    pub(super) pace: Pace,
    pub(super) rate: Option<f64>,
    /// No starts after it, counted from the end of the warm-up.
    pub(super) duration: Option<Duration>,
    pub(super) requests: Option<u64>,
    pub(super) warm_up: Duration,
    pub(super) timeout: Duration,
    pub(super) depth: usize,
    pub(super) seed: u64,
    io: Option<Io>,
    policy: Option<String>,
    pub(super) mode: Mode,
}

impl Plan {
    pub(super) fn new(given: &Common, depth: usize) -> anyhow::Result<Self> {
        let requests = given.requests.map(|n| n.get());
        let duration = given.duration.or(requests.is_none().then_some(Duration::from_secs(10)));
        let connections = given.connections.get();
        let cpus = || std::thread::available_parallelism().map_or(1, |n| n.get());
        let workers = given.workers.map_or_else(cpus, NonZeroUsize::get).min(connections);
        let gap = |rate: f64| 1e9 / rate;
        let pace = match (given.rate, given.arrivals) {
            (None, _) => Pace::OnAnswer,
            (Some(rate), Arrivals::Constant) => Pace::Constant(gap(rate)),
            (Some(rate), Arrivals::Poisson) => Pace::Poisson(gap(rate)),
            (Some(rate), Arrivals::Distribution(distribution)) => Pace::distribution(distribution, gap(rate))?,
        };
        let warm_up = given.warm_up.unwrap_or_default();
        ensure!(warm_up.is_zero() || duration.is_some(), "--warm-up with --requests alone: give --duration too");
        Ok(Self {
            connections,
            workers,
            pace,
            rate: given.rate,
            duration,
            requests,
            warm_up,
            timeout: given.timeout,
            depth,
            seed: given.seed,
            io: given.io,
            policy: given.policy.clone(),
            mode: given.mode,
        })
    }

    /// Returns the part of `total` that falls to one of the workers.
    pub(super) fn share(&self, total: u64, worker: usize) -> u64 {
        let (worker, workers) = (worker as u64, self.workers as u64);
        total / workers + u64::from(worker < total % workers)
    }

    pub(super) fn schedule(&self, worker: usize) -> Schedule {
        let end = self.duration.map_or(u64::MAX, |duration| nanos(self.warm_up + duration));
        let count = self.requests.map_or(u64::MAX, |requests| self.share(requests, worker));
        let phase = worker as f64 / self.workers as f64;
        Schedule::new(self.pace.share(self.workers), end, count, phase, self.seed ^ (worker as u64) << 32)
    }

    pub(super) fn runtime(&self) -> anyhow::Result<Runtime> {
        let (workers, policy) = (Some(NonZeroUsize::MIN), self.policy.as_deref());
        Setup { name: "load", workers, io: self.io, policy, mode: self.mode, waits: None, reports: false }.start()
    }
}

pub(super) fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
