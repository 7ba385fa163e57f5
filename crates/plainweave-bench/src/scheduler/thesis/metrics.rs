//! The figures and their units.

use anyhow::Context;

use crate::harness::turns::Values;

/// A metric's name, and its value in one iteration.
pub(super) type Figure = (&'static str, f64);

/// Units by metric: what a child may report. The first are those of the published panels.
pub(super) const METRICS: [(&str, &str); 34] = [
    ("throughput", "1/s"),
    ("time_ms", "ms"),
    ("p50_us", "us"),
    ("p99_us", "us"),
    ("p999_us", "us"),
    ("p9999_us", "us"),
    ("insert_retries", "count"),
    ("insert_overflows", "count"),
    ("steal_attempts", "count"),
    ("steal_attempts_per_task", "1"),
    ("steals", "count"),
    ("fibers_per_steal", "1"),
    ("executed_least", "count"),
    ("executed_most", "count"),
    ("jain", "1"),
    ("rank_error", "1"),
    ("greatest_rank_error", "count"),
    ("greatest_wait_us", "us"),
    ("breach_rate", "1"),
    ("excellent_share", "1"),
    ("good_share", "1"),
    ("poor_share", "1"),
    ("create_ns", "ns"),
    ("created_per_s", "1/s"),
    ("drain_ms", "ms"),
    ("offered_per_s", "1/s"),
    ("shed_share", "1"),
    ("backlog_p50", "count"),
    ("backlog_p99", "count"),
    ("backlog_spread", "count"),
    ("clock_readings", "count"),
    ("clock_ns", "ns"),
    ("clock_ppm", "ppm"),
    ("far_repetitions", "count"),
];

/// Returns figures as a turn keeps them.
pub(super) fn values(figures: Vec<Figure>) -> Values {
    figures
        .into_iter()
        .map(|(name, value)| (name.to_owned(), value))
        .collect()
}

/// Returns the figures that a turn has kept.
///
/// # Errors
/// There is no such metric.
pub(super) fn figures(values: &[(String, f64)]) -> anyhow::Result<Vec<Figure>> {
    values
        .iter()
        .map(|(name, value)| Ok((known(name)?.0, *value)))
        .collect()
}

/// Returns a metric with its unit.
///
/// # Errors
/// There is no such metric.
pub(super) fn known(name: &str) -> anyhow::Result<(&'static str, &'static str)> {
    METRICS
        .iter()
        .find(|(metric, _)| *metric == name)
        .copied()
        .with_context(|| format!("no metric is called '{name}'"))
}
