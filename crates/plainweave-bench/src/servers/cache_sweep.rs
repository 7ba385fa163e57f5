//! The cache server beside memcached as the load grows past what it can bear: answers and p99
//! against the rate that is asked for, with 3 to 50 % updates.
//!
//! The published experiment (15,360 connections, open loop, several machines) on two CPUs: each
//! server has a part of a CPU for each of its workers by quota, so that one client on CPU 1 can
//! offer more than the server can answer. Rates are shares of the peak that memcached reaches in a
//! closed loop with as many workers under the same quota, from 0.1 to 1.4 of it. A point counts as
//! long as the client itself sent its requests late by less than a tenth of the latency that it
//! reports (p99); the others have no p99 and are counted.

mod sweep; // A server under a quota, and all rates one after the other.

use std::num::NonZeroUsize;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, ensure};
use clap::Args;

use crate::harness::descriptors;
use crate::harness::experiment::Common;
use crate::harness::names;
use crate::harness::report::{self, Failures, Report};
use crate::harness::sample::{Origin, Row};
use crate::harness::turns::Turns;
use crate::serving::{Driver, evenly, seconds};
use plainweave_report::lines::{Line, Panel, plain};
use plainweave_report::statistics::Spread;
use sweep::{Binary, Offered, Point, System};

/// The cache server beside memcached, from a tenth of its peak to beyond.
#[derive(Args, Debug)]
pub(crate) struct Flags {
    #[command(flatten)]
    common: Common,

    /// Connections, which stay for all of a step
    #[arg(long, value_name = "N", default_value = "15360")]
    connections: NonZeroUsize,

    /// Sets among a hundred requests
    #[arg(
        long,
        value_name = "N,M",
        value_delimiter = ',',
        default_value = "3,5,10,50"
    )]
    #[arg(value_parser = clap::value_parser!(u8).range(0..=100))]
    updates: Vec<u8>,

    /// Rates from 0.1 to 1.4 of memcached's peak
    #[arg(long, value_name = "N", default_value = "12", value_parser = clap::value_parser!(u8).range(2..=100))]
    steps: u8,

    /// Keys that are stored, with keys and values of the sizes that Facebook found
    #[arg(long, value_name = "N", default_value = "100000")]
    keys: NonZeroUsize,

    /// Part of a CPU that a server may use for each of its workers
    #[arg(long, value_name = "PART", default_value = "0.25", value_parser = crate::harness::cgroup::part)]
    share: f64,

    /// Numbers of workers, 1 and 2
    #[arg(long, value_name = "N,M", value_delimiter = ',', default_value = "1,2")]
    #[arg(value_parser = clap::value_parser!(u8).range(1..=2))]
    workers: Vec<u8>,

    /// Another program that takes memcached's flags, such as a build of it on a library of fibers;
    /// may be repeated
    #[arg(long = "cache-binary", value_name = "NAME=PATH", value_parser = Binary::parse)]
    binaries: Vec<Binary>,

    /// Modes of ours, as `--mode` of the server takes them
    #[arg(
        long,
        value_name = "A,B",
        value_delimiter = ',',
        default_value = "before-start/shared,anytime/own"
    )]
    modes: Vec<String>,

    /// I/O drivers of ours
    #[arg(
        long,
        value_name = "A,B",
        value_delimiter = ',',
        default_value = "epoll"
    )]
    drivers: Vec<Driver>,

    /// Length of a step
    #[arg(long, value_name = "SECONDS", default_value = "2", value_parser = seconds)]
    seconds: Duration,

    /// Load before each step that does not count: a server under its quota takes a second and more
    /// to accept its connections, and what it has not answered by then has to be answered first
    #[arg(long, value_name = "SECONDS", default_value = "4", value_parser = seconds)]
    warm_up: Duration,

    /// Rounds that count; in each, every system goes through all rates, and another one begins. One
    /// more comes before them, which does not count: the machine is warm after it
    #[arg(long, value_name = "N", default_value = "3")]
    runs: NonZeroUsize,

    /// Goes on with a run that was interrupted: what it has measured with the same flags is not
    /// measured again
    #[arg(long)]
    resume: bool,
}

/// Of memcached's peak, the least and the greatest rate.
const RATES: (f64, f64) = (0.1, 1.4);
/// From one rate to the next: a pause, and connections.
const BETWEEN: Duration = Duration::from_secs(1);
/// A rate is kept if this part of it is answered.
const KEPT: f64 = 0.98;
/// Of memcached's peak, where its p99 is compared with ours.
const COMPARED: f64 = 0.6;
const MODES: [&str; 4] = [
    "never/shared",
    "before-start/shared",
    "before-start/own",
    "anytime/own",
];

impl Flags {
    fn systems(&self) -> anyhow::Result<Vec<System>> {
        names::check("mode", &self.modes, MODES.into_iter())?;
        let ours = self.modes.iter().flat_map(|mode| {
            self.drivers
                .iter()
                .map(|driver| System::ours(mode, *driver))
        });

        let binaries = self.binaries.iter().map(System::binary);
        Ok(std::iter::once(System::memcached())
            .chain(binaries)
            .chain(ours)
            .collect())
    }
}

/// All points of a system: by updates, then by rounds, with their numbers, then by rates; none if a
/// round failed.
type Curves = Vec<Vec<(usize, Option<Vec<Point>>)>>;

/// What was measured with a number of workers: the rates, and the curves of each system.
struct Measured {
    workers: usize,
    peak: f64,
    rates: Vec<f64>,
    curves: Vec<Curves>,
}

pub(crate) fn run(flags: &Flags) -> anyhow::Result<()> {
    let systems = flags.systems()?;
    let shares = evenly(RATES, flags.steps);
    if flags.common.list {
        systems.iter().for_each(|system| report::say(&system.name));
        let shares: Vec<_> = shares.iter().map(|share| format!("{share:.2}")).collect();
        report::say(&format!(
            "rates, of memcached's peak: {}",
            shares.join(", ")
        ));
        return Ok(());
    }

    ensure!(
        descriptors::at_least(flags.connections.get()),
        "{}",
        descriptors::TOO_FEW
    );
    let bench = Offered {
        connections: flags.connections.get(),
        keys: flags.keys.get(),
        share: flags.share,
        length: flags.seconds,
        warm_up: flags.warm_up,
    };

    let first = *flags
        .updates
        .first()
        .context("no share of updates is given")?;
    let out = flags.common.folder();
    let mut failures = Failures::begin()?;
    let mut turns = begin(flags, &out, first, systems.len())?;
    let mut all = Vec::new();

    for workers in flags.workers.iter().map(|workers| usize::from(*workers)) {
        let key = format!("memcached's peak; {workers} workers");
        let peak = turns.take(&key, || {
            Ok(vec![(
                "rate".to_owned(),
                bench.peak(&systems[0], workers, first)?,
            )])
        });

        let peak = peak.context("the peak of memcached, which is the measure of all rates")?;
        let peak = peak.first().context("no peak")?.1;
        // A load of no requests a second would not end.
        let rates = shares.iter().map(|share| (share * peak).max(1.0)).collect();
        let curves = vec![vec![Vec::new(); flags.updates.len()]; systems.len()];
        all.push(Measured {
            workers,
            peak,
            rates,
            curves,
        });
    }

    sweep(flags, &bench, &systems, &mut all, &mut turns, &mut failures);
    let found = Found {
        flags,
        systems: &systems,
        shares: &shares,
        all: &all,
    };

    let peaks = all.iter().map(|Measured { workers, peak, .. }| {
        format!("{peak:.0} requests/s with {workers} workers")
    });
    let peaks = peaks.collect::<Vec<_>>().join(", ");
    let parameters = vec![
        (
            "load",
            format!(
                "{} connections, open loop, arrivals as Facebook's (Pareto)",
                flags.connections
            ),
        ),
        (
            "keys",
            format!(
                "{} keys; keys and values of the sizes that Facebook found",
                flags.keys
            ),
        ),
        (
            "memcached's peak",
            format!("{peaks}; {first} % updates, closed loop"),
        ),
        (
            "rounds",
            format!(
                "{} after one that does not count, in rotated order, {}",
                found.rounds(),
                step(flags)
            ),
        ),
        (
            "placement",
            format!(
                "{} of a CPU for each worker by quota; `plainweave load` on CPU 1",
                flags.share
            ),
        ),
        (
            "points that count",
            "the client was late by less than a tenth of the latency (p99)".to_owned(),
        ),
    ];
    let report = Report {
        experiment: "cache-sweep",
        parameters,
        rows: found.rows(),
        absent: Vec::new(),
    };

    failures.publish(report, Some(&out), Some(&found.picture()))
}

/// Says how long a step is.
fn step(
    Flags {
        seconds, warm_up, ..
    }: &Flags,
) -> String {
    format!(
        "{} s for each rate after {} s that do not count",
        seconds.as_secs_f64(),
        warm_up.as_secs_f64()
    )
}

/// Measures all systems at all rates, in rounds.
fn sweep(
    flags: &Flags,
    bench: &Offered,
    systems: &[System],
    all: &mut [Measured],
    turns: &mut Turns,
    failures: &mut Failures,
) {
    // Round 0 is for warming up.
    for round in 0..=flags.runs.get() {
        for Measured {
            workers,
            rates,
            curves,
            ..
        } in &mut *all
        {
            // Systems are innermost: those that are compared run within minutes of each other.
            for (u, updates) in flags.updates.iter().enumerate() {
                for nth in 0..systems.len() {
                    // Each round begins with another system, so that none always comes after the
                    // same neighbour.
                    let turn = (nth + round) % systems.len();
                    let system = &systems[turn];
                    let curves = &mut curves[turn];
                    let key = format!(
                        "round {round}; {updates} % updates; {}; {workers} workers",
                        system.name
                    );
                    let measure = || {
                        let points = bench.sweep(system, *workers, *updates, rates)?;
                        Ok(points.iter().flat_map(Point::values).collect())
                    };

                    // If one fails, the others are measured all the same.
                    let points = failures.catch(&key, || {
                        turns
                            .take(&key, measure)?
                            .chunks(sweep::VALUES)
                            .map(Point::of)
                            .collect()
                    });

                    if round > 0 {
                        curves[u].push((round, points));
                    }
                }
            }
        }
    }
    all.iter_mut().for_each(Measured::keep_whole_rounds);
}

/// Begins with the turns, or goes on with those that there are.
fn begin(flags: &Flags, out: &Path, first: u8, systems: usize) -> anyhow::Result<Turns> {
    let Flags {
        connections,
        keys,
        share,
        workers,
        steps,
        ..
    } = flags;
    let same = format!(
        "{connections} connections, {keys} keys, {share} of a CPU, {steps} steps, {}, peak with {first} % updates",
        step(flags)
    );
    let all = workers.len() * (1 + (1 + flags.runs.get()) * flags.updates.len() * systems);
    let turns = Turns::begin("cache-sweep", out, &same, flags.resume, all)?;
    turns.estimate((flags.warm_up + flags.seconds + BETWEEN) * (*steps).into());

    Ok(turns)
}

/// What was measured.
struct Found<'a> {
    flags: &'a Flags,
    systems: &'a [System],
    shares: &'a [f64],
    all: &'a [Measured],
}

/// A figure's name, its unit, and where it is; without a value where the point does not count.
type Metric = (&'static str, &'static str, fn(&Point) -> Option<f64>);

const METRICS: [Metric; 5] = [
    ("answers_per_s", "1/s", |point| Some(point.rate)),
    ("answers_to_target", "1", |point| {
        Some(point.rate / point.target)
    }),
    ("p99_us", "us", |point| point.p99.filter(|_| point.counts)),
    ("errors", "1", |point| Some(point.errors)),
    ("points_that_count", "1", |point| {
        Some(f64::from(u8::from(point.counts)))
    }),
];
/// The panels of a system: what is drawn, which way is better, whether the axis is logarithmic, and
/// the metric.
const PANELS: [(&str, &str, bool, Metric); 2] = [
    ("answers", "answers, more is better", false, METRICS[0]),
    ("p99", "p99, less is better", true, METRICS[2]),
];

impl Found<'_> {
    /// Returns how many rounds count, by numbers of workers.
    fn rounds(&self) -> String {
        let of = |measured: &Measured| measured.rounds(0, 0).count().to_string();
        self.all.iter().map(of).collect::<Vec<_>>().join(" and ")
    }

    fn rows(&self) -> Vec<Row> {
        let each = self.all.iter().flat_map(|measured| {
            (0..self.systems.len()).flat_map(move |system| self.rows_of(measured, system))
        });
        each.collect()
    }

    /// Returns the rows of a system: by rates, of the knees, and of how far the curves are apart.
    fn rows_of(&self, measured: &Measured, system: usize) -> Vec<Row> {
        let row = |case: &str, metric, unit, values| {
            let sweep = Origin::new("cache-sweep").with_workers(measured.workers);
            sweep.row(case, &self.systems[system].name, metric, unit, values)
        };

        let mut rows = Vec::new();
        let middle = |rate: &usize| ((self.shares[*rate] - COMPARED).abs() * 1e6) as u64;
        let middle = (0..self.shares.len())
            .min_by_key(middle)
            .unwrap_or_default();

        for (u, updates) in self.flags.updates.iter().enumerate() {
            let knees = measured
                .rounds(system, u)
                .map(|points| knee(points))
                .collect();
            rows.push(row(&format!("{updates} %"), "knee_per_s", "1/s", knees));
            for (r, share) in self.shares.iter().enumerate() {
                let case = format!("{updates} % at {share:.2}");
                rows.extend(METRICS.map(|(metric, unit, of)| {
                    row(&case, metric, unit, measured.values(system, u, r, of))
                }));
                // Memcached itself is the first.
                if system > 0 && r == middle {
                    rows.push(row(
                        &case,
                        "p99_to_memcached",
                        "1",
                        measured.p99_to_memcached(system, u, r),
                    ));
                }
            }
        }

        // With one share of updates there is nothing to compare.
        for (metric, of) in [("answers_apart", METRICS[0].2), ("p99_apart", METRICS[2].2)] {
            if self.flags.updates.len() > 1 {
                rows.push(row("all updates", metric, "1", measured.apart(system, of)));
            }
        }

        // A figure that no point had, because none counted, is not a row.
        rows.retain(|row| !row.values.is_empty());
        rows
    }

    /// Draws answers and p99 against the rate that is asked for: a pair of panels for each system
    /// and number of workers, a line a share of updates.
    fn picture(&self) -> String {
        let mut panels = String::new();
        for measured in self.all {
            let workers = if measured.workers == 1 {
                "1 worker"
            } else {
                &format!("{} workers", measured.workers)
            };

            for (s, system) in self.systems.iter().enumerate() {
                for (what, upwards, log, (_, unit, of)) in PANELS {
                    let lines = self
                        .flags
                        .updates
                        .iter()
                        .enumerate()
                        .map(|(u, updates)| Line {
                            name: format!("{updates} % updates"),
                            role: system.role,
                            points: measured.line(s, u, of),
                        });

                    let panel = Panel {
                        title: format!("{}, {workers}: {what}", system.name),
                        across: "requests/s asked for".to_owned(),
                        place: plain,
                        upwards: format!(
                            "{upwards}; dashed: the most, dotted: the least of all rounds"
                        ),
                        unit: unit.to_owned(),
                        log_across: false,
                        log,
                        extremes: true,
                        lines: lines.collect(),
                    };

                    panels.push_str(&panel.figure());
                }
            }
        }
        format!("<div class='panels'>{panels}</div>")
    }
}

/// Returns the highest rate up to which all rates were kept, zero if none was.
fn knee(points: &[Point]) -> f64 {
    let kept = points
        .iter()
        .take_while(|point| point.rate >= KEPT * point.target);
    kept.last().map_or(0.0, |point| point.target)
}

impl Measured {
    /// Leaves out the rounds that not all systems have with all shares of updates: medians of
    /// unequal rounds compare unequal seconds.
    fn keep_whole_rounds(&mut self) {
        let all = || self.curves.iter().flatten();
        let is_whole = |round: usize| {
            all().all(|rounds| {
                rounds
                    .iter()
                    .any(|(of, points)| *of == round && points.is_some())
            })
        };

        let last = all().flatten().map(|(round, _)| *round).max().unwrap_or(0);
        let whole: Vec<bool> = (0..=last).map(is_whole).collect();
        self.curves
            .iter_mut()
            .flatten()
            .for_each(|rounds| rounds.retain(|(round, _)| whole[*round]));
    }

    /// Returns the points of a system's rounds.
    fn rounds(&self, system: usize, updates: usize) -> impl Iterator<Item = &Vec<Point>> {
        self.curves[system][updates]
            .iter()
            .filter_map(|(_, points)| points.as_ref())
    }

    /// Returns the values of a metric at a rate, a round each.
    fn values(
        &self,
        system: usize,
        updates: usize,
        rate: usize,
        of: fn(&Point) -> Option<f64>,
    ) -> Vec<f64> {
        self.rounds(system, updates)
            .filter_map(|points| of(&points[rate]))
            .collect()
    }

    /// Returns a metric's spread at each rate.
    fn line(
        &self,
        system: usize,
        updates: usize,
        of: fn(&Point) -> Option<f64>,
    ) -> Vec<(f64, Spread)> {
        let spread = |rate| Spread::of(&self.values(system, updates, rate, of));
        self.rates
            .iter()
            .enumerate()
            .map(|(rate, target)| (*target, spread(rate)))
            .collect()
    }

    fn p99_to_memcached(&self, system: usize, updates: usize, rate: usize) -> Vec<f64> {
        let both = self.rounds(system, updates).zip(self.rounds(0, updates));
        let ratio = |(own, theirs): (&Vec<Point>, &Vec<Point>)| {
            let [own, theirs] = [own, theirs].map(|points| (METRICS[2].2)(&points[rate]));
            Some(own? / theirs?)
        };
        both.filter_map(ratio).collect()
    }

    /// Returns by how much the curves of a system differ between shares of updates: for each rate
    /// that all have a median at, the greatest median over the least, less one.
    fn apart(&self, system: usize, of: fn(&Point) -> Option<f64>) -> Vec<f64> {
        let at = |rate: usize| {
            let updates = 0..self.curves[system].len();
            let medians: Vec<_> = updates
                .map(|u| Spread::of(&self.values(system, u, rate, of)).median)
                .collect();
            // Without one of the values there is no comparison.
            if medians.iter().any(|median| median.is_nan()) {
                return f64::NAN;
            }
            let least = medians.iter().copied().fold(f64::INFINITY, f64::min);
            let most = medians.iter().copied().fold(0.0, f64::max);

            most / least - 1.0
        };

        (0..self.rates.len())
            .map(at)
            .filter(|apart| apart.is_finite())
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::{METRICS, Measured, Point, knee};

    fn point(target: f64, rate: f64, p99: f64) -> Point {
        Point {
            target,
            rate,
            p99: Some(p99),
            errors: 0.0,
            counts: p99 > 0.0,
        }
    }

    #[test]
    fn a_knee_is_the_last_rate_of_those_that_were_kept() {
        let points = [
            point(100.0, 99.0, 1.0),
            point(200.0, 150.0, 1.0),
            point(300.0, 300.0, 1.0),
        ];
        assert!(knee(&points) == 100.0 && knee(&points[1..]) == 0.0);
    }

    #[test]
    fn curves_are_as_far_apart_as_their_medians() {
        let few = vec![(
            1,
            Some(vec![point(100.0, 100.0, 10.0), point(200.0, 200.0, 0.0)]),
        )];
        let many = vec![(
            1,
            Some(vec![point(100.0, 80.0, 15.0), point(200.0, 200.0, 20.0)]),
        )];
        let measured = Measured {
            workers: 1,
            peak: 1.0,
            rates: vec![100.0, 200.0],
            curves: vec![vec![few, many]],
        };

        assert_eq!(measured.apart(0, METRICS[0].2), [0.25, 0.0]);
        // At the second rate one of them does not count.
        assert_eq!(measured.apart(0, METRICS[2].2), [0.5]);
        assert_eq!(measured.p99_to_memcached(0, 1, 0), [1.0]);
    }

    #[test]
    fn only_rounds_that_all_systems_have_count() {
        let points = |rate| Some(vec![point(100.0, rate, 10.0)]);
        let memcached = vec![
            (1, points(10.0)),
            (2, None),
            (3, points(30.0)),
            (4, points(40.0)),
        ];
        let ours = vec![(1, points(11.0)), (2, points(21.0)), (3, points(31.0))];
        let mut measured = Measured {
            workers: 1,
            peak: 1.0,
            rates: vec![100.0],
            curves: vec![vec![memcached], vec![ours]],
        };

        measured.keep_whole_rounds();
        assert_eq!(measured.values(0, 0, 0, METRICS[0].2), [10.0, 30.0]);
        assert_eq!(measured.values(1, 0, 0, METRICS[0].2), [11.0, 31.0]);
    }
}
