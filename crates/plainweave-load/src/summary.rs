//! The figures of a run, by name, and what they say of the client itself.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::clock::nanos;
use super::objective::{Bound, Condition, Metric};
use super::plan::Plan;
use super::series::Point;
use super::tally::Tally;

/// Percentiles shown, by name.
pub(super) const PERCENTILES: [(&str, f64); 7] = [
    ("p50", 50.0),
    ("p75", 75.0),
    ("p90", 90.0),
    ("p99", 99.0),
    ("p99.9", 99.9),
    ("p99.99", 99.99),
    ("max", 100.0),
];

/// Share of the time from which on workers count as busy throughout.
const SATURATED: f64 = 0.9;

/// What a run came to.
#[derive(Debug)]
pub(super) struct Outcome {
    pub(super) tally: Tally,
    pub(super) seconds: Vec<Point>,
    /// When the first requests could be sent: all connections were there.
    pub(super) began: SystemTime,
    /// What rates are counted over.
    pub(super) elapsed: Duration,
    /// From the beginning to the last answer.
    pub(super) wall: Duration,
    /// CPU time of the workers under load.
    pub(super) cpu: Duration,
    pub(super) driver: String,
    /// A signal ended it.
    pub(super) interrupted: bool,
}

/// One figure.
pub(super) struct Figure {
    pub(super) metric: String,
    pub(super) unit: &'static str,
    pub(super) value: f64,
}

/// A run, and what it was to be.
#[derive(Clone, Copy, Debug)]
pub(super) struct Summary<'a> {
    pub(super) plan: &'a Plan,
    pub(super) outcome: &'a Outcome,
}

impl<'a> Summary<'a> {
    pub(super) fn new(plan: &'a Plan, outcome: &'a Outcome) -> Self {
        Self { plan, outcome }
    }

    /// Returns the requests that were due and have come to an end.
    pub(super) fn requests(&self) -> u64 {
        self.outcome.tally.ok + self.outcome.tally.failures.total()
    }

    /// Returns the share of requests that failed; 0 without any.
    pub(super) fn error_share(&self) -> f64 {
        let requests = self.requests();
        if requests == 0 {
            0.0
        } else {
            self.outcome.tally.failures.total() as f64 / requests as f64
        }
    }

    /// Returns successful answers a second.
    pub(super) fn rate(&self) -> f64 {
        let seconds = self.outcome.elapsed.as_secs_f64();
        if seconds > 0.0 {
            self.outcome.tally.ok_in_time as f64 / seconds
        } else {
            0.0
        }
    }

    /// Returns a percentile of the latency in microseconds; `None` if nothing was answered.
    pub(super) fn latency(&self, percentile: f64) -> Option<f64> {
        let latency = &self.outcome.tally.latency;
        (!latency.is_empty()).then(|| latency.value_at_percentile(percentile) as f64 / 1e3)
    }

    /// Returns how late this program itself sent, 99th percentile in microseconds; `None` in the
    /// closed loop.
    pub(super) fn lateness(&self) -> Option<f64> {
        let lateness = &self.outcome.tally.lateness;
        (!lateness.is_empty()).then(|| lateness.value_at_percentile(99.0) as f64 / 1e3)
    }

    /// Returns how large this program's own lateness is beside the latency, p99 of both.
    pub(super) fn lateness_share(&self) -> Option<f64> {
        self.lateness()
            .zip(self.latency(99.0))
            .map(|(late, latency)| late / latency.max(f64::MIN_POSITIVE))
    }

    /// Returns the share of time in which the workers computed.
    pub(super) fn busy(&self) -> f64 {
        let all = self.outcome.wall.as_secs_f64() * self.plan.workers as f64;
        if all > 0.0 {
            self.outcome.cpu.as_secs_f64() / all
        } else {
            0.0
        }
    }

    /// Returns whether this program had no time left, so that a rate may be its own limit rather
    /// than the server's.
    pub(super) fn is_saturated(&self) -> bool {
        self.busy() >= SATURATED
    }

    /// Open loop: the share of the requests due that was answered by the end, whatever the answers
    /// said. Those under way at that time, as many as answers that come steadily leave, count as
    /// answered. `None` if there is nothing to tell: in the closed loop, of a run that was
    /// interrupted, or if chance may account for what is missing.
    pub(super) fn kept(&self) -> Option<f64> {
        self.plan.rate?;
        let requests = self.requests() as f64;
        let due = self.plan.due_end().saturating_sub(nanos(self.plan.warm_up)) as f64 / 1e9;
        if self.outcome.interrupted || requests == 0.0 || due <= 0.0 {
            return None;
        }
        // Little's law, with a latency that is usual even where most are late.
        let under_way = requests / due * self.latency(10.0).unwrap_or(0.0) / 1e6;
        let under_way = under_way.min(self.plan.most_under_way() as f64);
        let missing = requests - self.outcome.tally.answers_in_time as f64 - under_way;

        // Random arrivals vary by the root of their number; twice that is rarely chance.
        (missing > 2.0 * requests.sqrt()).then(|| 1.0 - missing / requests)
    }

    /// Returns the figure that a condition is about, in the unit of its bound; `None` if the run
    /// does not have it.
    pub(super) fn figure(&self, condition: &Condition) -> Option<f64> {
        match (condition.metric, condition.bound) {
            (Metric::Percentile(percentile), _) => self.latency(percentile),
            (Metric::Max, _) => self.latency(100.0),
            (Metric::Mean, _) => self
                .latency(50.0)
                .map(|_| self.outcome.tally.latency.mean() / 1e3),
            (Metric::Errors | Metric::Statuses(..) | Metric::Misses, bound) => {
                let count = self.count(condition.metric) as f64;
                match bound {
                    Bound::Absolute(_) => Some(count),
                    Bound::Share(_) => {
                        let requests = self.requests();
                        (requests > 0).then(|| count / requests as f64)
                    }
                }
            }
            (Metric::Rate, Bound::Share(_)) => self.plan.rate.map(|rate| self.rate() / rate),
            (Metric::Rate, Bound::Absolute(_)) => Some(self.rate()),
            (Metric::Lateness, _) => self.lateness(),
        }
    }

    /// Returns the number of requests that a metric counts; 0 of one that counts none.
    fn count(&self, metric: Metric) -> u64 {
        let tally = &self.outcome.tally;
        match metric {
            Metric::Errors => tally.failures.total(),
            Metric::Misses => tally.misses,
            Metric::Statuses(first, last) => tally
                .statuses
                .by_status()
                .filter(|(status, _)| (first..=last).contains(status))
                .map(|(_, count)| count)
                .sum(),
            _ => 0,
        }
    }

    /// Returns everything that is a number, in the order of the table.
    pub(super) fn figures(&self) -> Vec<Figure> {
        let Outcome {
            tally,
            began,
            elapsed,
            cpu,
            ..
        } = self.outcome;
        let figure = |metric: &str, unit, value| Figure {
            metric: metric.to_owned(),
            unit,
            value,
        };

        let mut figures = vec![
            // Since 1970.
            figure(
                "began",
                "s",
                began
                    .duration_since(UNIX_EPOCH)
                    .unwrap_or_default()
                    .as_secs_f64(),
            ),
            figure("elapsed", "s", elapsed.as_secs_f64()),
            figure("requests", "1", self.requests() as f64),
            figure("ok", "1", tally.ok as f64),
            figure("errors", "1", tally.failures.total() as f64),
            figure("unanswered", "1", tally.unanswered as f64),
            figure("misses", "1", tally.misses as f64),
            figure("reconnects", "1", tally.reconnects as f64),
            figure("failed_connects", "1", tally.failed_connects as f64),
            figure("rate", "1/s", self.rate()),
            figure("received", "B", tally.bytes as f64),
            figure("client_cpu", "s", cpu.as_secs_f64()),
            figure("client_busy", "share", self.busy()),
        ];
        if !tally.handshake.is_empty() {
            figures.push(figure("handshakes", "1", tally.handshake.len() as f64));
            figures.push(figure("resumed_handshakes", "1", tally.resumed as f64));
        }

        if let Some(rate) = self.plan.rate {
            figures.push(figure("intended_rate", "1/s", rate));
        }
        if let Some(kept) = self.plan.rate.map(|_| self.kept().unwrap_or(1.0)) {
            figures.push(figure("kept", "share", kept));
        }
        if !tally.latency.is_empty() {
            figures.push(figure("latency_mean", "us", tally.latency.mean() / 1e3));
        }
        let Tally {
            latency,
            lateness,
            connect,
            handshake,
            ..
        } = tally;

        for (prefix, histogram) in [
            ("latency", latency),
            ("lateness", lateness),
            ("connect", connect),
            ("handshake", handshake),
        ] {
            for (name, percentile) in PERCENTILES.iter().filter(|_| !histogram.is_empty()) {
                let value = histogram.value_at_percentile(*percentile) as f64 / 1e3;
                figures.push(figure(&format!("{prefix}_{name}"), "us", value));
            }
        }

        figures
    }
}
