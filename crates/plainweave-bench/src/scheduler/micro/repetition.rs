//! A repetition: how a workload is run, and the figures that come of it.

use std::time::Instant;

use anyhow::Context;

use super::parameters::Shape;

/// How a workload is run.
#[derive(Clone, Debug)]
pub(super) struct Size {
    pub(super) workers: usize,
    /// How long it takes, unless the shape has iterations.
    pub(super) seconds: f64,
    pub(super) shape: Shape,
    /// Threads of `parked-fibers`.
    pub(super) fibers: usize,
    pub(super) clocked: bool,
    /// The kernel's threads: fewer of them, since each costs so much more.
    pub(super) heavy: bool,
    /// Resident bytes of the process before anything ran.
    pub(super) baseline: f64,
}

impl Size {
    /// Returns whether what began then, and has done `n` operations, is done. Reads the clock.
    pub(super) fn is_over(&self, n: u64, began: Instant) -> bool {
        match self.shape.iterations {
            Some(iterations) => n >= iterations,
            None => began.elapsed().as_secs_f64() >= self.seconds,
        }
    }
}

/// Units by metric: what a child may report.
const METRICS: [(&str, &str); 39] = [
    ("ns_per_op", "ns"),
    ("ns_per_op_per_worker", "ns"),
    ("ops", "count"),
    ("jain", "1"),
    ("max_over_min", "1"),
    ("delay_p999_ns", "ns"),
    ("delay_max_ns", "ns"),
    ("oldest_waiter_ns", "ns"),
    ("blocks_per_op", "1"),
    ("thread_migrations_per_op", "1"),
    ("data_migrations_per_op", "1"),
    ("us_per_transfer", "us"),
    ("transfer_p99_us", "us"),
    ("greatest_wait_us", "us"),
    ("rank_error", "1"),
    ("starved", "1"),
    ("bytes_per_fiber", "B"),
    ("new_mappings", "count"),
    ("ns_to_park", "ns"),
    ("ns_to_wake_and_join", "ns"),
    ("ns_alone", "ns"),
    ("ns_beside_10000", "ns"),
    ("ns_beside_50000", "ns"),
    ("wake_ns", "ns"),
    ("futex_wake_ns", "ns"),
    ("ratio_to_futex", "1"),
    ("cpu_us_per_s", "us"),
    ("times_woken", "count"),
    ("far_repetitions", "count"),
    ("c2c_ns", "ns"),
    ("steals", "count"),
    ("steal_attempts", "count"),
    ("fibers_per_steal", "1"),
    ("helped", "count"),
    ("spills", "count"),
    ("insert_retries", "count"),
    ("inbox_messages", "count"),
    ("idle_share", "1"),
    ("sleeps", "count"),
];

/// A figure of one repetition.
#[derive(Clone, Debug)]
pub(super) struct Figure {
    pub(super) metric: &'static str,
    pub(super) unit: &'static str,
    pub(super) value: f64,
}

impl Figure {
    pub(super) fn new(metric: &str, value: f64) -> Self {
        let known = METRICS.iter().find(|(name, _)| *name == metric);
        let (metric, unit) = *known.expect("in the table of metrics");
        Self {
            metric,
            unit,
            value,
        }
    }

    pub(super) fn line(&self) -> String {
        format!("{} {}", self.metric, self.value)
    }

    pub(super) fn parse(line: &str) -> anyhow::Result<Self> {
        let parsed = line.split_once(' ').and_then(|(name, value)| {
            let known = METRICS.iter().any(|(metric, _)| *metric == name);
            known.then(|| value.parse().map(|value| Self::new(name, value)).ok())?
        });
        parsed.with_context(|| format!("not a figure: '{line}'"))
    }
}
