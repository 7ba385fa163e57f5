//! Throughput and latency against workers: a panel for each figure, in each a line for each policy
//! with a band from the least to the greatest of its runs, and the published values beside it where
//! there are some.

use plainweave_report::Role;
use plainweave_report::lines::{self, Panel, plain, sheet};
use plainweave_report::statistics::Spread;

/// Microseconds that a latency is drawn as at least: a log axis has no zero.
const LEAST_US: f64 = 0.01;

/// What was found with one number of workers: operations a second, and microseconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Point {
    pub(crate) workers: f64,
    pub(crate) throughput: Spread,
    pub(crate) p50: Spread,
    pub(crate) p99: Spread,
}

/// One policy.
#[derive(Clone, Debug)]
pub(crate) struct Line {
    pub(crate) name: String,
    pub(crate) points: Vec<Point>,
    /// Workers and throughput as somebody else has published them.
    pub(crate) published: &'static [(f64, f64)],
}

impl Line {
    fn drawn(&self, of: impl Fn(&Point) -> Spread) -> lines::Line {
        let band = |spread: Spread| Spread {
            q1: spread.min,
            q3: spread.max,
            ..spread
        };

        lines::Line {
            name: format!("{}, simulated", self.name),
            role: Role::Ours,
            points: self
                .points
                .iter()
                .map(|point| (point.workers, band(of(point))))
                .collect(),
        }
    }

    fn published(&self) -> Option<lines::Line> {
        let points = |(workers, value): &(f64, f64)| (*workers, Spread::of(&[*value]));
        (!self.published.is_empty()).then(|| lines::Line {
            name: format!("{}, published (measured)", self.name),
            role: Role::Peer,
            points: self.published.iter().map(points).collect(),
        })
    }
}

/// Draws the picture; `title` says what was run.
pub(crate) fn draw(title: &str, policies: &[Line]) -> String {
    let panel = |title: &str, upwards: &str, unit: &str, lines| Panel {
        title: title.to_owned(),
        across: "workers".to_owned(),
        place: plain,
        upwards: upwards.to_owned(),
        unit: unit.to_owned(),
        log_across: false,
        log: unit == "us",
        extremes: false,
        lines,
    };

    let latency = |title, of: fn(&Point) -> Spread| {
        let least = |point: &Point| of(point).map(|us| us.max(LEAST_US));
        let lines = policies.iter().map(|line| line.drawn(least)).collect();
        panel(title, "less is better, log scale", "us", lines)
    };

    let throughput = policies
        .iter()
        .map(|line| line.drawn(|point| point.throughput))
        .chain(policies.iter().filter_map(Line::published))
        .collect();
    sheet(
        &format!("Simulated: {title}"),
        &[
            panel("simulated throughput", "more is better", "1/s", throughput),
            latency("simulated latency, median", |point| point.p50),
            latency("simulated latency, p99", |point| point.p99),
        ],
    )
}
