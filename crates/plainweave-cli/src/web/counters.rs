//! What the server has done, in numbers, for the admin address.
//!
//! A count is a relaxed addition to a line that belongs to the CPU it happens on, so workers do not meet there; a
//! reader adds the lines up. Sums read while the server works are each right, not all of one moment.

use std::array::from_fn;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use crossbeam_utils::CachePadded;
use plainweave_http::{Error, Exchange};

/// Upper bounds of the latency buckets, in microseconds.
pub(super) const BUCKETS: [u64; 14] =
    [10, 25, 50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 50_000, 250_000, 1_000_000, 10_000_000];

/// How a status is counted: the labels of a Prometheus sample.
pub(super) const CLASSES: [&str; 6] =
    ["status=\"1xx\"", "status=\"2xx\"", "status=\"3xx\"", "status=\"4xx\"", "status=\"5xx\"", "status=\"none\""];

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
    lines: Box<[CachePadded<Line>]>,
}

#[derive(Debug)]
struct Line {
    classes: [AtomicU64; CLASSES.len()],
    errors: [AtomicU64; ERRORS.len()],
    body_bytes: AtomicU64,
    /// The last one counts what is slower than every bound.
    latency: [AtomicU64; BUCKETS.len() + 1],
    nanoseconds: AtomicU64,
}

/// The counters added up.
#[derive(Debug)]
pub(super) struct Sums {
    pub(super) classes: [u64; CLASSES.len()],
    pub(super) errors: [u64; ERRORS.len()],
    pub(super) body_bytes: u64,
    /// Not cumulative.
    pub(super) latency: [u64; BUCKETS.len() + 1],
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
        let cpus = std::thread::available_parallelism().map_or(1, usize::from);
        Self { lines: (0..cpus).map(|_| CachePadded::new(line())).collect() }
    }

    pub(super) fn count(&self, exchange: &Exchange<'_>) {
        let line = self.line();
        let class =
            exchange.status.map_or(CLASSES.len() - 1, |status| usize::from(status.as_u16() / 100).clamp(1, 5) - 1);
        line.classes[class].fetch_add(1, Relaxed);
        line.body_bytes.fetch_add(exchange.body_bytes, Relaxed);
        if exchange.head.is_some() {
            let micros = exchange.duration.as_micros();
            let bucket = BUCKETS.iter().position(|&bound| micros <= u128::from(bound)).unwrap_or(BUCKETS.len());
            line.latency[bucket].fetch_add(1, Relaxed);
            line.nanoseconds.fetch_add(u64::try_from(exchange.duration.as_nanos()).unwrap_or(u64::MAX), Relaxed);
        }
    }

    /// A connection has ended badly. That need not be in an exchange: answers that were gathered are sent after theirs.
    pub(super) fn count_error(&self, error: &Error) {
        self.line().errors[kind(error)].fetch_add(1, Relaxed);
    }

    fn line(&self) -> &Line {
        &self.lines[rustix::thread::sched_getcpu() % self.lines.len()]
    }

    pub(super) fn sums(&self) -> Sums {
        let add = |count: &dyn Fn(&Line) -> u64| self.lines.iter().map(|line| count(line)).sum::<u64>();
        Sums {
            classes: from_fn(|class| add(&|line| line.classes[class].load(Relaxed))),
            errors: from_fn(|error| add(&|line| line.errors[error].load(Relaxed))),
            body_bytes: add(&|line| line.body_bytes.load(Relaxed)),
            latency: from_fn(|bucket| add(&|line| line.latency[bucket].load(Relaxed))),
            time: Duration::from_nanos(add(&|line| line.nanoseconds.load(Relaxed))),
        }
    }
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
