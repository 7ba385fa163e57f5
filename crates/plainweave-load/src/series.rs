//! The seconds of a run, one after the other, as figures.

use super::clock::Nanos;
use super::collect::Second;
use super::results::Figures;
use super::text::key;

/// What happened in one second. Times are in microseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Point {
    /// Seconds since the start of load, at its end.
    pub(super) at: f64,
    /// Successful answers a second, with those of the warm-up.
    pub(super) rate: f64,
    /// Failed requests a second.
    pub(super) errors: f64,
    /// p50, p90, p99, p99.9 and greatest; `None` without an answer that counts.
    pub(super) latency: Option<[f64; 5]>,
}

/// Names of a point's latencies.
pub(super) const NAMES: [&str; 5] = ["p50", "p90", "p99", "p99.9", "max"];
const PERCENTILES: [f64; 5] = [50.0, 90.0, 99.0, 99.9, 100.0];

/// The end of a run is too short to have a rate: a few answers in a millisecond are not thousands a
/// second.
const TOO_SHORT: Nanos = 100_000_000;

impl Point {
    /// Returns what is drawn of a second; nothing of one that is too short, unless it is all there
    /// is.
    pub(super) fn of(second: &Second<'_>) -> Option<Self> {
        if second.number > 0 && second.length < TOO_SHORT {
            return None;
        }
        let tally = second.tally;
        let length = second.length as f64 / 1e9;
        let latency = |percentile| tally.latency.value_at_percentile(percentile) as f64 / 1e3;

        Some(Self {
            at: second.number as f64 + length,
            rate: (tally.ok + tally.warming) as f64 / length,
            errors: tally.failures.total() as f64 / length,
            latency: (!tally.latency.is_empty()).then(|| PERCENTILES.map(latency)),
        })
    }

    pub(super) fn figures(&self) -> Figures {
        let latencies = self
            .latency
            .iter()
            .flat_map(|latency| NAMES.iter().zip(latency))
            .map(|(name, us)| (key(&format!("latency_{name}"), "us"), *us));
        [
            ("at_seconds", self.at),
            ("rate_per_second", self.rate),
            ("errors_per_second", self.errors),
        ]
        .map(|(name, value)| (name.to_owned(), value))
        .into_iter()
        .chain(latencies)
        .collect()
    }
}
