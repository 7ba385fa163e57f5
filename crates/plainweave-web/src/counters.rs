//! What the server has done, in numbers, for the admin address.
//!
//! A count is a relaxed addition to a line that belongs to the CPU it happens on, so workers do not
//! meet there; a reader adds the lines up. Sums read while the server works are each right, not all
//! of one moment.

use std::array::from_fn;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use plainweave_http::{Error, Exchange};
use plainweave_serve::PerCpu;

/// Upper bounds of the latencies that Prometheus gets, in microseconds. Each is one of [`BOUNDS`].
pub(super) const BUCKETS: [u64; 14] = [
    10, 25, 50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 50_000, 250_000, 1_000_000, 10_000_000,
];

/// Upper bounds of the latencies that are distinguished, in nanoseconds: ten for each factor of
/// ten, from 1 us to 10 s.
const BOUNDS: [u64; 71] = bounds();

const fn bounds() -> [u64; 71] {
    let steps = [10, 12, 15, 20, 25, 30, 40, 50, 60, 75];
    let mut bounds = [0; 71];
    let mut n = 0;
    let mut unit = 100;

    while n < bounds.len() {
        bounds[n] = steps[n % steps.len()] * unit;
        n += 1;
        if n % steps.len() == 0 {
            unit *= 10;
        }
    }

    bounds
}

/// One exchange in this many is a sample, on each CPU and for each class of status.
const SAMPLED: u64 = 64;

/// How a status is counted: the labels of a Prometheus sample.
pub(super) const CLASSES: [&str; 6] = [
    "status=\"1xx\"",
    "status=\"2xx\"",
    "status=\"3xx\"",
    "status=\"4xx\"",
    "status=\"5xx\"",
    "status=\"none\"",
];

/// How an error is counted.
pub(super) const ERRORS: [&str; 6] = [
    "kind=\"malformed\"",
    "kind=\"too_large\"",
    "kind=\"timeout\"",
    "kind=\"closed\"",
    "kind=\"panic\"",
    "kind=\"other\"",
];

/// Counters of all workers.
#[derive(Debug)]
pub(super) struct Counters {
    lines: PerCpu<Line>,
}

#[derive(Debug)]
struct Line {
    classes: [AtomicU64; CLASSES.len()],
    errors: [AtomicU64; ERRORS.len()],
    body_bytes: AtomicU64,
    /// The last one counts what is slower than every bound.
    latency: [AtomicU64; BOUNDS.len() + 1],
    nanoseconds: AtomicU64,
}

/// The counters added up.
#[derive(Debug)]
pub(super) struct Sums {
    pub(super) classes: [u64; CLASSES.len()],
    pub(super) errors: [u64; ERRORS.len()],
    pub(super) body_bytes: u64,
    latency: [u64; BOUNDS.len() + 1],
    pub(super) time: Duration,
}

impl Counters {
    pub(super) fn new() -> Self {
        let zeros = || AtomicU64::new(0);
        let line = || Line {
            classes: from_fn(|_| zeros()),
            errors: from_fn(|_| zeros()),
            body_bytes: zeros(),
            latency: from_fn(|_| zeros()),
            nanoseconds: zeros(),
        };

        Self {
            lines: PerCpu::new(line),
        }
    }

    /// Counts an exchange. Returns whether it is one of the samples.
    pub(super) fn count(&self, exchange: &Exchange<'_>) -> bool {
        let line = self.line();
        let class = exchange.status.map_or(CLASSES.len() - 1, |status| {
            usize::from(status.as_u16() / 100).clamp(1, 5) - 1
        });
        let before = line.classes[class].fetch_add(1, Relaxed);
        line.body_bytes.fetch_add(exchange.body_bytes, Relaxed);

        if exchange.head.is_some() {
            let nanoseconds = u64::try_from(exchange.duration.as_nanos()).unwrap_or(u64::MAX);
            line.latency[bucket(nanoseconds)].fetch_add(1, Relaxed);
            line.nanoseconds.fetch_add(nanoseconds, Relaxed);
        }

        before.is_multiple_of(SAMPLED)
    }

    /// A connection has ended badly. That need not be in an exchange: answers that were gathered
    /// are sent after theirs.
    pub(super) fn count_error(&self, error: &Error) {
        self.line().errors[kind(error)].fetch_add(1, Relaxed);
    }

    fn line(&self) -> &Line {
        self.lines.own()
    }

    pub(super) fn sums(&self) -> Sums {
        let add =
            |count: &dyn Fn(&Line) -> u64| self.lines.iter().map(|line| count(line)).sum::<u64>();
        Sums {
            classes: from_fn(|class| add(&|line| line.classes[class].load(Relaxed))),
            errors: from_fn(|error| add(&|line| line.errors[error].load(Relaxed))),
            body_bytes: add(&|line| line.body_bytes.load(Relaxed)),
            latency: from_fn(|bucket| add(&|line| line.latency[bucket].load(Relaxed))),
            time: Duration::from_nanos(add(&|line| line.nanoseconds.load(Relaxed))),
        }
    }
}

impl Sums {
    /// Returns how many exchanges were timed.
    pub(super) fn timed(&self) -> u64 {
        self.latency.iter().sum()
    }

    /// Returns for each of [`BUCKETS`] how many exchanges took at most that long.
    pub(super) fn cumulative(&self) -> [u64; BUCKETS.len()] {
        BUCKETS.map(|micros| self.latency[..=bucket(micros * 1000)].iter().sum())
    }

    /// Returns how many exchanges took up to a time, in seconds, and longer than the time before
    /// it; those that took any did so.
    pub(super) fn latencies(&self) -> impl Iterator<Item = (f64, u64)> + '_ {
        let longest = BOUNDS[BOUNDS.len() - 1];
        let bounds = BOUNDS
            .into_iter()
            .chain([longest * 2])
            .map(|bound| bound as f64 / 1e9);
        bounds.zip(self.latency).filter(|(_, count)| *count > 0)
    }
}

/// Returns the place of a latency: that of the least bound that is not below it.
fn bucket(nanoseconds: u64) -> usize {
    BOUNDS.partition_point(|bound| *bound < nanoseconds)
}

fn kind(error: &Error) -> usize {
    match error {
        error if error.is_parse() => 0,
        error if error.is_too_large() => 1,
        error if error.is_timeout() => 2,
        error if error.is_closed() => 3,
        error if error.is_panic() => 4,
        _ => 5,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_are_fine_and_hold_those_of_prometheus() {
        assert_eq!((BOUNDS[0], BOUNDS[70]), (1_000, 10_000_000_000));
        assert!(
            BOUNDS
                .windows(2)
                .all(|pair| pair[0] < pair[1] && pair[1] * 3 <= pair[0] * 4),
            "{BOUNDS:?}"
        );
        assert!(
            BUCKETS
                .iter()
                .all(|micros| BOUNDS.contains(&(micros * 1000)))
        );
        assert_eq!(
            [0, 1_000, 1_001, 1_200, 10_000_000_001].map(bucket),
            [0, 0, 1, 1, 71]
        );
    }

    #[test]
    fn latencies_add_up() {
        let counters = Counters::new();
        for nanoseconds in [5_000, 10_000, 10_001, 70_000, 20_000_000_000] {
            counters.line().latency[bucket(nanoseconds)].fetch_add(1, Relaxed);
        }
        let sums = counters.sums();
        assert_eq!(
            (sums.timed(), sums.cumulative()[..4].to_vec()),
            (5, vec![2, 3, 3, 4])
        );
        assert_eq!(sums.latencies().map(|(_, count)| count).sum::<u64>(), 5);
        assert!(sums.latencies().all(|(upper, _)| upper >= 5e-6));
    }
}
