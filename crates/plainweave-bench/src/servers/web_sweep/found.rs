//! What was measured, as rows and as pictures.

use super::load::Step;
use super::system::{Part, System};
use crate::harness::sample::{Origin, Row};
use crate::serving::web::Kind;
use plainweave_report::Role;
use plainweave_report::lines::{Line, Panel, plain};
use plainweave_report::statistics::Spread;

/// A system's steps in a part: by rounds, then by cases.
struct Curve {
    part: Part,
    system: String,
    role: Role,
    cases: Vec<(String, f64)>,
    rounds: Vec<Vec<Step>>,
}

pub(super) struct Found {
    /// Requests a second that nginx answers.
    peak: f64,
    curves: Vec<Curve>,
    absent: Vec<(String, String)>,
}

/// A figure's name, its unit, and where it is; NaN where there is none.
type Metric = (&'static str, &'static str, fn(&Step) -> f64);

const ANSWERS: Metric = ("answers_per_s", "1/s", |step| step.rate);
const P99: Metric = ("p99_us", "us", |step| {
    if step.counts == 1.0 {
        step.p99
    } else {
        f64::NAN
    }
});
const FAILED: Metric = ("failed_share", "1", |step| step.failed);
const CLOSE_WAIT: Metric = ("close_wait_max", "1", |step| step.close_wait);
const HOT_P99: Metric = ("hot_p99_us", "us", |step| step.hot_p99);
const READ: Metric = ("disk_mb_per_s", "MB/s", |step| step.megabytes);

const METRICS: [Metric; 10] = [
    ANSWERS,
    ("answers_to_target", "1", |step| step.rate / step.target),
    P99,
    ("points_that_count", "1", |step| step.counts),
    FAILED,
    CLOSE_WAIT,
    HOT_P99,
    ("hot_failed_share", "1", |step| step.hot_failed),
    READ,
    ("memory_mb", "MB", |step| step.limit),
];

/// A picture's metric, what it is called, and whether its axis is logarithmic.
type Picture = (Metric, &'static str, bool);

const OF_RATES: [Picture; 4] = [
    (ANSWERS, "answers, more is better", false),
    (FAILED, "requests without an answer, less is better", false),
    (P99, "p99 of those answered, less is better", true),
    (
        CLOSE_WAIT,
        "connections in CLOSE-WAIT, at most; less is better",
        false,
    ),
];
const OF_MEMORY: [Picture; 5] = [
    (ANSWERS, "answers, more is better", false),
    (FAILED, "requests without an answer, less is better", false),
    (P99, "p99 of those answered, less is better", true),
    (
        HOT_P99,
        "p99 of files that memory should hold, less is better",
        true,
    ),
    (READ, "read from the disk", false),
];

impl Found {
    pub(super) fn new(peak: f64) -> Self {
        Self {
            peak,
            curves: Vec::new(),
            absent: Vec::new(),
        }
    }

    /// Adds a round of a system.
    pub(super) fn add(
        &mut self,
        part: Part,
        system: &System,
        cases: &[(String, f64)],
        steps: Vec<Step>,
    ) {
        let same = |curve: &&mut Curve| curve.part == part && curve.system == system.name;
        match self.curves.iter_mut().find(same) {
            Some(curve) => curve.rounds.push(steps),
            None => {
                let (system, role) = (system.name.clone(), system.role());
                self.curves.push(Curve {
                    part,
                    system,
                    role,
                    cases: cases.to_vec(),
                    rounds: vec![steps],
                });
            }
        }
    }

    /// Notes why a system is not measured.
    pub(super) fn miss(&mut self, system: &System, why: &str) {
        let lack = (system.name.clone(), why.to_owned());
        if !self.absent.contains(&lack) {
            self.absent.push(lack);
        }
    }

    pub(super) fn absent(&self) -> Vec<(String, String)> {
        self.absent.clone()
    }

    pub(super) fn rows(&self) -> Vec<Row> {
        let mut rows = Vec::new();
        for curve in &self.curves {
            match curve.part {
                Part::Rates => {
                    rows.push(curve.row("past the peak", "answers_to_own_peak", "1", curve.after()))
                }
                Part::Memory => {}
            }

            for (n, (case, _)) in curve.cases.iter().enumerate() {
                for (metric, unit, of) in METRICS {
                    let values = curve.values(n, of);
                    rows.push(curve.row(case, metric, unit, values));
                }

                for (metric, values) in self.ratios(curve, n) {
                    rows.push(curve.row(case, metric, "1", values));
                }
            }
        }

        rows.retain(|row| !row.values.is_empty());
        rows
    }

    /// Returns a case's figures as ratios to nginx's with `aio threads`, and to those with all
    /// memory.
    fn ratios(&self, curve: &Curve, case: usize) -> Vec<(&'static str, Vec<f64>)> {
        let threads = Kind::NginxThreads.name();
        let nginx = Kind::Nginx.name();
        let of = |other: &str, metric: fn(&Step) -> f64| {
            let other = self
                .curves
                .iter()
                .find(|there| there.part == curve.part && there.system == other);
            let both = other
                .into_iter()
                .flat_map(|other| curve.rounds.iter().zip(&other.rounds));
            both.map(move |(own, other)| metric(&own[case]) / metric(&other[case]))
                .filter(|ratio| ratio.is_finite())
        };

        match curve.part {
            Part::Rates => vec![("answers_to_nginx", of(nginx, ANSWERS.2).collect())],
            Part::Memory => {
                let first = curve
                    .rounds
                    .iter()
                    .map(|steps| steps[case].hot_p99 / steps[0].hot_p99);
                vec![
                    (
                        "answers_to_nginx_aio_threads",
                        of(threads, ANSWERS.2).collect(),
                    ),
                    (
                        "hot_p99_to_all_memory",
                        first.filter(|ratio| ratio.is_finite()).collect(),
                    ),
                ]
            }
        }
    }

    /// Draws each figure against what is swept, a line a system.
    pub(super) fn picture(&self) -> String {
        let rates = OF_RATES
            .iter()
            .map(|picture| self.panel(Part::Rates, picture));
        let memory = OF_MEMORY
            .iter()
            .map(|picture| self.panel(Part::Memory, picture));
        format!(
            "<div class='panels'>{}</div>",
            rates.chain(memory).flatten().collect::<String>()
        )
    }

    fn panel(&self, part: Part, ((_, unit, of), upwards, log): &Picture) -> Option<String> {
        let lines: Vec<_> = self
            .curves
            .iter()
            .filter(|curve| curve.part == part)
            .map(|curve| Line {
                name: curve.system.clone(),
                role: curve.role,
                points: curve
                    .cases
                    .iter()
                    .enumerate()
                    .map(|(n, (_, share))| {
                        let at = if part == Part::Rates {
                            share * self.peak
                        } else {
                            share * 100.0
                        };
                        (at, Spread::of(&curve.values(n, *of)))
                    })
                    .collect(),
            })
            .collect();
        if lines.is_empty() {
            return None;
        }
        let (title, across) = match part {
            Part::Rates => ("in memory", "requests/s asked for"),
            Part::Memory => ("from a slow disk", "percent of the files that memory holds"),
        };

        let title = format!("{title}: {}", upwards.split(',').next().unwrap_or_default());
        let across = across.to_owned();
        let upwards = (*upwards).to_owned();
        let unit = (*unit).to_owned();
        let log_across = part == Part::Memory;

        Some(
            Panel {
                title,
                across,
                place: plain,
                upwards,
                unit,
                log_across,
                log: *log,
                extremes: false,
                lines,
            }
            .figure(),
        )
    }
}

impl Curve {
    fn row(&self, case: &str, metric: &'static str, unit: &'static str, values: Vec<f64>) -> Row {
        Origin::new("web-sweep").row(case, &self.system, metric, unit, values)
    }

    /// Returns the values of a metric in a case, a round each.
    fn values(&self, case: usize, of: fn(&Step) -> f64) -> Vec<f64> {
        self.rounds
            .iter()
            .map(|steps| of(&steps[case]))
            .filter(|value| !value.is_nan())
            .collect()
    }

    /// Returns what is answered at the greatest rate, as a part of the most that was answered at
    /// any.
    fn after(&self) -> Vec<f64> {
        let of = |steps: &Vec<Step>| {
            let most = steps.iter().map(|step| step.rate).fold(0.0, f64::max);
            steps
                .last()
                .map(|last| last.rate / most)
                .filter(|share| share.is_finite())
        };
        self.rounds.iter().filter_map(of).collect()
    }
}
