//! The figures so far, for Prometheus, while the load runs: what `--admin` serves.
//!
//! They are those of all runs of a program together, so that counters never go back; they grow once
//! a second, when all workers have handed over what they counted.

use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use anyhow::Context;
use plainweave_http::StatusCode;

use super::clock::Nanos;
use super::collect::Second;
use super::tally::Tally;
use plainweave_daemon::admin::{Admin, Figures};
use plainweave_daemon::fibers::FiberPages;
use plainweave_daemon::sharing::Sharing;

/// Upper bounds of the latencies' classes, in nanoseconds: 1, 2 and 5 of each power of ten.
const BOUNDS: [u64; 16] = [
    50_000,
    100_000,
    200_000,
    500_000,
    1_000_000,
    2_000_000,
    5_000_000,
    10_000_000,
    20_000_000,
    50_000_000,
    100_000_000,
    200_000_000,
    500_000_000,
    1_000_000_000,
    2_000_000_000,
    5_000_000_000,
];

/// What has been counted.
struct Totals {
    tally: Tally,
    /// How long the load has lasted.
    length: Nanos,
    /// What the run of now offers; `None` in a closed loop.
    rate: Option<f64>,
}

/// The figures, and the server that shows them until this is dropped.
pub(super) struct LiveMetrics {
    totals: Arc<Mutex<Totals>>,
    _admin: Admin,
}

impl LiveMetrics {
    /// Serves the figures at an address.
    ///
    /// # Errors
    /// It cannot be listened on.
    pub(super) fn serve(address: SocketAddr) -> anyhow::Result<Self> {
        let listener = TcpListener::bind(address)
            .with_context(|| format!("cannot listen on {address} (--admin)"))?;
        let totals = Arc::new(Mutex::new(Totals {
            tally: Tally::new(),
            length: 0,
            rate: None,
        }));
        let shown = totals.clone();

        // The workers' fibers are nobody's concern: what they do is what is measured.
        let fibers = FiberPages::new(Weak::new());
        let admin = Admin::start(
            (listener, &Sharing::default()),
            fibers,
            false,
            move |asked| match asked.path {
                "/metrics" => Ok((Figures::KIND, text(&lock(&shown)))),
                _ => Err(StatusCode::NOT_FOUND.into()),
            },
        )?;
        Ok(Self {
            totals,
            _admin: admin,
        })
    }

    /// Notes that a run begins, which offers that many requests a second.
    pub(super) fn begin(&self, rate: Option<f64>) {
        lock(&self.totals).rate = rate;
    }

    /// Counts a second of the load.
    pub(super) fn add(&self, second: &Second<'_>) {
        let mut totals = lock(&self.totals);
        totals.tally.add(second.tally);
        totals.length += second.length;
    }
}

fn lock(totals: &Mutex<Totals>) -> MutexGuard<'_, Totals> {
    totals.lock().unwrap_or_else(PoisonError::into_inner)
}

fn text(totals: &Totals) -> String {
    let Totals {
        tally,
        length,
        rate,
    } = totals;
    let mut figures = Figures::default();
    let name = |name: &str| format!("plainweave_load_{name}");
    figures.one(
        &name("seconds_total"),
        "counter",
        "Time under load.",
        *length as f64 / 1e9,
    );
    if let Some(rate) = rate {
        let help = "Requests a second that the run of now offers.";
        figures.one(&name("offered_rate"), "gauge", help, rate);
    }

    let outcomes = [
        ("outcome=\"ok\"", tally.ok),
        ("outcome=\"failed\"", tally.failures.total()),
        ("outcome=\"warm_up\"", tally.warming),
    ];
    figures.metric(
        &name("requests_total"),
        "counter",
        "Requests that have ended.",
        outcomes,
    );
    let kinds: Vec<_> = tally
        .failures
        .by_kind()
        .map(|(failure, count)| (format!("kind=\"{}\"", failure.name()), count))
        .collect();
    figures.metric(
        &name("failures_total"),
        "counter",
        "Requests that failed, by kind.",
        kinds.iter().map(|(label, count)| (label.as_str(), count)),
    );
    let statuses: Vec<_> = tally
        .statuses
        .by_status()
        .map(|(status, count)| (format!("status=\"{status}\""), count))
        .collect();

    figures.metric(
        &name("answers_total"),
        "counter",
        "Answers by HTTP, by status.",
        statuses
            .iter()
            .map(|(label, count)| (label.as_str(), count)),
    );

    for (figure, help, count) in [
        (
            "misses_total",
            "Gets of a cache that found nothing.",
            tally.misses,
        ),
        (
            "received_bytes_total",
            "Bytes of successful answers.",
            tally.bytes,
        ),
        (
            "reconnects_total",
            "Connections made after the first ones.",
            tally.reconnects,
        ),
    ] {
        figures.one(&name(figure), "counter", help, count);
    }

    let latency = &tally.latency;
    let classes: Vec<_> = BOUNDS
        .iter()
        .map(|bound| {
            let label = format!("le=\"{}\"", *bound as f64 / 1e9);
            (label, latency.count_between(0, *bound))
        })
        .chain([("le=\"+Inf\"".to_owned(), latency.len())])
        .collect();
    let of = name("latency_seconds");
    figures.metric(
        &of,
        "histogram",
        "Latency of successful answers.",
        std::iter::empty::<(&str, u64)>(),
    );
    for (label, count) in &classes {
        figures.sample(&format!("{of}_bucket"), label, count);
    }
    let sum = latency.mean() * latency.len() as f64 / 1e9;

    figures.sample(&format!("{of}_sum"), "", sum);
    figures.sample(&format!("{of}_count"), "", latency.len());
    figures.into_text()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tally::Failure;

    #[test]
    fn classes_hold_all_that_is_below_them() {
        let mut tally = Tally::new();
        for latency in [40_000, 150_000, 3_000_000, 9_000_000_000] {
            tally.answered(latency);
        }
        tally.failures.add(Failure::Status(503), 2);
        tally.statuses.add(503, 2);
        tally.statuses.add(200, 4);
        let text = text(&Totals {
            tally,
            length: 2_000_000_000,
            rate: Some(500.0),
        });

        for line in [
            "plainweave_load_seconds_total 2",
            "plainweave_load_offered_rate 500",
            "plainweave_load_requests_total{outcome=\"ok\"} 4",
            "plainweave_load_failures_total{kind=\"status 503\"} 2",
            "plainweave_load_answers_total{status=\"200\"} 4",
            "plainweave_load_latency_seconds_bucket{le=\"0.00005\"} 1",
            "plainweave_load_latency_seconds_bucket{le=\"0.0002\"} 2",
            "plainweave_load_latency_seconds_bucket{le=\"5\"} 3",
            "plainweave_load_latency_seconds_bucket{le=\"+Inf\"} 4",
            "plainweave_load_latency_seconds_count 4",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} in {text}");
        }
    }
}
