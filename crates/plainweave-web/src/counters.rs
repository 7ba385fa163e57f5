//! What the server has done, in numbers, for the admin address.
//!
//! A count is a relaxed addition to a line that belongs to the CPU it happens on, so workers do not
//! meet there; a reader adds the lines up. Sums read while the server works are each right, not all
//! of one moment.

use std::array::from_fn;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use plainweave_http::{Error, Exchange};
use plainweave_serve::{Latencies, LatencyHistogram, PerCpu};

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
    latency: LatencyHistogram,
}

/// The counters added up.
#[derive(Debug)]
pub(super) struct Sums {
    pub(super) classes: [u64; CLASSES.len()],
    pub(super) errors: [u64; ERRORS.len()],
    pub(super) body_bytes: u64,
    pub(super) latency: Latencies,
}

impl Counters {
    pub(super) fn new() -> Self {
        let zeros = || AtomicU64::new(0);
        let line = || Line {
            classes: from_fn(|_| zeros()),
            errors: from_fn(|_| zeros()),
            body_bytes: zeros(),
            latency: LatencyHistogram::default(),
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
            line.latency.record(exchange.duration);
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
        let mut latency = Latencies::default();
        for line in self.lines.iter() {
            line.latency.add_to(&mut latency);
        }
        let add =
            |count: &dyn Fn(&Line) -> u64| self.lines.iter().map(|line| count(line)).sum::<u64>();
        Sums {
            classes: from_fn(|class| add(&|line| line.classes[class].load(Relaxed))),
            errors: from_fn(|error| add(&|line| line.errors[error].load(Relaxed))),
            body_bytes: add(&|line| line.body_bytes.load(Relaxed)),
            latency,
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
