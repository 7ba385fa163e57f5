//! What a run came to.

use hdrhistogram::Histogram;

use crate::costs::{NANO, Picos};
use crate::meter::Traffic;
use crate::policy::Counts;
use crate::timeline::Timeline;

/// What a run came to. All times are simulated.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// How long it took, in nanoseconds.
    pub nanos: u64,
    /// What the throughput counts.
    pub operations: u64,
    /// Fibers that were started or went on.
    pub runs: u64,
    /// The latencies that the workload measures, in nanoseconds.
    pub latency: Histogram<u64>,
    /// What the workers' policies counted, all together.
    pub(crate) counts: Counts,
    /// What the workload measures beside latencies.
    pub(crate) own: Vec<(&'static str, &'static str, f64)>,
    pub(crate) traffic: Traffic,
    /// How often workers slept.
    pub sleeps: u64,
    /// The longest that a ready fiber waited while a worker slept and none searched, in
    /// nanoseconds.
    pub beside_sleeper: u64,
    /// The most fibers that started between a push and its pop.
    pub overtaken: u64,
    /// A number that two runs share only if everything went the same way.
    pub digest: u64,
    /// What each worker did when, if it was recorded.
    pub timeline: Option<Timeline>,
}

impl Outcome {
    /// Returns operations a second.
    #[must_use]
    pub fn throughput(&self) -> f64 {
        self.operations as f64 * 1e9 / self.nanos.max(1) as f64
    }

    /// Returns the latency that a part of all are at or below, in microseconds.
    pub(crate) fn latency_at(&self, part: f64) -> f64 {
        self.latency.value_at_quantile(part) as f64 / 1e3
    }

    /// Returns the figures by name and unit, in the order in which they are printed.
    #[must_use]
    pub fn figures(&self) -> Vec<(&'static str, &'static str, f64)> {
        let nanos = |time: Picos| time as f64 / NANO as f64;
        let each = |n: f64| n / self.operations.max(1) as f64;
        let mut figures = vec![
            ("throughput", "1/s", self.throughput()),
            ("time", "ms", self.nanos as f64 / 1e6),
            ("latency-p50", "us", self.latency_at(0.5)),
            ("latency-p99", "us", self.latency_at(0.99)),
            ("latency-p99.9", "us", self.latency_at(0.999)),
            ("latency-p99.99", "us", self.latency_at(0.9999)),
            ("insert-retries", "count", self.counts.insert_retries as f64),
            (
                "insert-overflows",
                "count",
                self.counts.insert_overflows as f64,
            ),
            ("spills", "count", self.counts.spills as f64),
            ("looks", "count", self.traffic.looks as f64),
            ("steal-attempts", "count", self.counts.steal_attempts as f64),
            ("steals", "count", self.counts.steals as f64),
            ("stolen", "count", self.counts.stolen as f64),
            ("sleeps", "count", self.sleeps as f64),
            ("transfers", "1/op", each(self.traffic.transfers as f64)),
            (
                "waited-for-lines",
                "ns/op",
                each(nanos(self.traffic.waited)),
            ),
            (
                "queued-for-lines",
                "ns/op",
                each(nanos(self.traffic.queued)),
            ),
            (
                "longest-beside-sleeper",
                "us",
                self.beside_sleeper as f64 / 1e3,
            ),
            ("overtaken", "count", self.overtaken as f64),
        ];
        figures.extend(&self.own);

        figures
    }
}

/// Returns the value that a part of all is below; `values` are in order.
pub(crate) fn at(values: &[f64], part: f64) -> f64 {
    values[((values.len() - 1) as f64 * part) as usize]
}

/// Puts values in order.
pub(crate) fn sorted(values: impl Iterator<Item = f64>) -> Vec<f64> {
    let mut values: Vec<_> = values.collect();
    values.sort_by(f64::total_cmp);
    values
}
