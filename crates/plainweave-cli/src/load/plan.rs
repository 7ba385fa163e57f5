//! How much load a run makes, and the part of it that falls to each worker.

use std::num::NonZeroUsize;
use std::time::Duration;

use anyhow::ensure;
use plainweave::Runtime;

use super::flags::{Arrivals, Common};
use super::ramp::Ramp;
use super::rates::Rate;
use super::schedule::{Pace, Schedule};
use crate::engine::{Io, Setup};
use crate::mode::Mode;

/// How much load, from where.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub(super) connections: usize,
    pub(super) workers: usize,
    pub(super) pace: Pace,
    /// Of an open loop: the mean over the measurement.
    pub(super) rate: Option<f64>,
    /// What the ramp leads from or to.
    peak: Option<f64>,
    ramp: Option<Ramp>,
    arrivals: Arrivals,
    /// What the load needs is put on the servers first.
    pub(super) loads: bool,
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
        let lead = given.ramp.unwrap_or_default();
        let warm_up = given.warm_up.unwrap_or_default() + lead;
        let open = given.rate.is_some() || given.rates.is_some() || given.search.is_some();
        ensure!(open || given.arrivals == Arrivals::Constant, "--arrivals is of an open loop: give --rate too");
        ensure!(open || lead.is_zero(), "--ramp is of an open loop: give --rate too");
        let steps = given.rates.is_some() || given.search.is_some();
        let changes = given.rate.is_some_and(|rate| rate.from != rate.to);
        ensure!(!(steps && changes), "--search goes by steps: give --rate as one number");
        ensure!(warm_up.is_zero() || duration.is_some(), "--warm-up with --requests alone: give --duration too");
        let measured = nanos(warm_up)..duration.map_or(u64::MAX, |duration| nanos(warm_up + duration));
        // Steps have their own rates, which a lead-in precedes too.
        let lead_in = (!lead.is_zero()).then(|| Ramp::new(0.0, 0, nanos(lead)));
        let (pace, peak, rate, ramp) = match given.rate {
            None => (Pace::OnAnswer, None, None, lead_in),
            Some(Rate { from, to }) if from == to => (pace(given.arrivals, to)?, Some(to), Some(to), lead_in),
            Some(Rate { from, to }) => {
                ensure!(duration.is_some(), "--rate {from}..{to} with --requests alone: give --duration too");
                ensure!(lead.is_zero(), "--rate {from}..{to} is a ramp itself: leave out --ramp");
                let ramp = Ramp::new(from / to, measured.start, measured.end);
                let mean = to * ramp.mean(measured.start, measured.end);
                (pace(given.arrivals, to)?, Some(to), Some(mean), Some(ramp))
            }
        };
        Ok(Self {
            connections,
            workers,
            pace,
            rate,
            peak,
            ramp,
            arrivals: given.arrivals,
            loads: true,
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

    /// Returns the plan of another step: at another rate, on servers that have what the load needs.
    pub(super) fn at_rate(&self, rate: f64, loads: bool) -> anyhow::Result<Self> {
        Ok(Self { pace: pace(self.arrivals, rate)?, rate: Some(rate), peak: Some(rate), loads, ..self.clone() })
    }

    /// Returns when the last request is due, in nanoseconds since the start of load; of random gaps, on average.
    pub(super) fn due_end(&self) -> u64 {
        let end = self.duration.map_or(u64::MAX, |duration| nanos(self.warm_up + duration));
        let all = self.requests.zip(self.peak).map_or(u64::MAX, |(requests, peak)| {
            let steady = requests as f64 / peak * 1e9;
            self.ramp.map_or(steady, |ramp| ramp.stretch(steady)) as u64
        });
        end.min(all)
    }

    pub(super) fn schedule(&self, worker: usize) -> Schedule {
        let end = self.duration.map_or(u64::MAX, |duration| nanos(self.warm_up + duration));
        let count = self.requests.map_or(u64::MAX, |requests| self.share(requests, worker));
        let phase = worker as f64 / self.workers as f64;
        let seed = self.seed ^ (worker as u64) << 32;
        Schedule::new(self.pace.share(self.workers), end, count, phase, seed).with_ramp(self.ramp)
    }

    pub(super) fn runtime(&self) -> anyhow::Result<Runtime> {
        let (workers, policy) = (Some(NonZeroUsize::MIN), self.policy.as_deref());
        Setup { name: "load", workers, io: self.io, policy, mode: self.mode, waits: None, stalls: None }.start()
    }
}

fn pace(arrivals: Arrivals, rate: f64) -> anyhow::Result<Pace> {
    let gap = 1e9 / rate;
    Ok(match arrivals {
        Arrivals::Constant => Pace::Constant(gap),
        Arrivals::Poisson => Pace::Poisson(gap),
        Arrivals::Distribution(distribution) => Pace::distribution(distribution, gap)?,
    })
}

pub(super) fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
