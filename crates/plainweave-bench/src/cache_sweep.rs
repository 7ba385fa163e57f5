//! The cache server beside memcached as the load grows past what it can bear: answers and p99 against the rate that is
//! asked for, with 3 to 50 % updates.
//!
//! The published experiment (15,360 connections, open loop, several machines) on two CPUs: each server has a part of
//! CPU 0 by quota, so that one client on CPU 1 can offer more than the server can answer. Rates are shares of the peak
//! that memcached reaches in a closed loop under the same quota, from 0.1 to 1.4 of it. A point counts as long as the
//! client itself sent its requests late by less than a tenth of the latency that it reports (p99); the others have no
//! p99 and are counted.

mod sweep;

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, ensure};
use clap::Args;

use crate::names;
use crate::plot::Role;
use crate::plot::lines::{Line, Panel};
use crate::report::{self, Report};
use crate::sample::Row;
use crate::serving::{Driver, seconds};
use crate::web::descriptors;
use sweep::{Bench, Point, System};

/// The cache server beside memcached, from a tenth of its peak to beyond.
#[derive(Args, Debug)]
pub(crate) struct Flags {
    /// Print the systems and the rates, and run nothing
    #[arg(long)]
    list: bool,

    /// Connections, which stay for all of a step
    #[arg(long, value_name = "N", default_value = "15360")]
    connections: NonZeroUsize,

    /// Sets among a hundred requests
    #[arg(long, value_name = "N,M", value_delimiter = ',', default_value = "3,5,10,50")]
    #[arg(value_parser = clap::value_parser!(u8).range(0..=100))]
    updates: Vec<u8>,

    /// Rates from 0.1 to 1.4 of memcached's peak
    #[arg(long, value_name = "N", default_value = "12", value_parser = clap::value_parser!(u8).range(2..=100))]
    steps: u8,

    /// Keys that are stored, with keys and values of the sizes that Facebook found
    #[arg(long, value_name = "N", default_value = "100000")]
    keys: NonZeroUsize,

    /// Part of a CPU that a server may use for each of its workers
    #[arg(long, value_name = "PART", default_value = "0.25", value_parser = part)]
    share: f64,

    /// Workers of each server
    #[arg(long, value_name = "N", default_value = "1", value_parser = clap::value_parser!(u8).range(1..=2))]
    workers: u8,

    /// Modes of ours, as `--mode` of the server takes them
    #[arg(long, value_name = "A,B", value_delimiter = ',', default_value = "before-start/shared,anytime/own")]
    modes: Vec<String>,

    /// I/O drivers of ours
    #[arg(long, value_name = "A,B", value_delimiter = ',', default_value = "epoll")]
    drivers: Vec<Driver>,

    /// Length of a step
    #[arg(long, value_name = "SECONDS", default_value = "2", value_parser = seconds)]
    seconds: Duration,

    /// Rounds; in each, every system goes through all rates
    #[arg(long, value_name = "N", default_value = "3")]
    runs: NonZeroUsize,

    /// Where the CSV and the report go [default: results/<date>-<host>]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

/// Of memcached's peak, the least and the greatest rate.
const RATES: (f64, f64) = (0.1, 1.4);
/// A rate is kept if this part of it is answered.
const KEPT: f64 = 0.98;
/// Of memcached's peak, where its p99 is compared with ours.
const COMPARED: f64 = 0.6;
const MODES: [&str; 4] = ["never/shared", "before-start/shared", "before-start/own", "anytime/own"];

/// Reads a part of a CPU.
fn part(text: &str) -> Result<f64, String> {
    let part = text.parse().ok().filter(|part| (0.01..=1.0).contains(part));
    part.ok_or("0.01 to 1".to_owned())
}

impl Flags {
    /// Returns the rates as shares of the peak.
    fn shares(&self) -> Vec<f64> {
        let step = (RATES.1 - RATES.0) / f64::from(self.steps - 1);
        (0..self.steps).map(|n| RATES.0 + step * f64::from(n)).collect()
    }

    fn systems(&self) -> anyhow::Result<Vec<System>> {
        names::check("mode", &self.modes, MODES.into_iter())?;
        let ours = self.modes.iter().flat_map(|mode| self.drivers.iter().map(|driver| System::ours(mode, *driver)));
        Ok(std::iter::once(System::memcached()).chain(ours).collect())
    }
}

/// All points of a system: by updates, then by rounds, then by rates.
type Curves = Vec<Vec<Vec<Point>>>;

pub(crate) fn run(flags: &Flags) -> anyhow::Result<()> {
    let (systems, shares) = (flags.systems()?, flags.shares());
    if flags.list {
        systems.iter().for_each(|system| report::say(&system.name));
        let shares: Vec<_> = shares.iter().map(|share| format!("{share:.2}")).collect();
        report::say(&format!("rates, of memcached's peak: {}", shares.join(", ")));
        return Ok(());
    }
    ensure!(descriptors::at_least(flags.connections.get()), "{}", descriptors::TOO_FEW);
    let bench = Bench {
        connections: flags.connections.get(),
        keys: flags.keys.get(),
        share: flags.share,
        workers: flags.workers.into(),
        length: flags.seconds,
    };
    let first = *flags.updates.first().context("no share of updates is given")?;
    report::progress("cache-sweep: memcached's peak");
    let peak = bench.peak(&systems[0], first).context("the peak of memcached, which is the measure of all rates")?;
    let rates: Vec<_> = shares.iter().map(|share| (share * peak).max(1.0)).collect();
    let mut curves: Vec<Curves> = vec![vec![Vec::new(); flags.updates.len()]; systems.len()];
    for round in 1..=flags.runs.get() {
        for (u, updates) in flags.updates.iter().enumerate() {
            for (system, curves) in systems.iter().zip(&mut curves) {
                report::progress(&format!(
                    "cache-sweep: round {round} of {}, {updates} % updates, {}",
                    flags.runs, system.name
                ));
                curves[u].push(bench.sweep(system, *updates, &rates).with_context(|| system.name.clone())?);
            }
        }
    }
    let found = Found { flags, systems: &systems, shares: &shares, rates: &rates, curves: &curves };
    let parameters = vec![
        ("load", format!("{} connections, open loop, arrivals as Facebook's (Pareto)", flags.connections)),
        ("keys", format!("{} keys; keys and values of the sizes that Facebook found", flags.keys)),
        ("memcached's peak", format!("{peak:.0} requests/s with {first} % updates, closed loop")),
        ("rounds", format!("{}, {} s for each rate", flags.runs, flags.seconds.as_secs_f64())),
        (
            "placement",
            format!(
                "workers: {}, each with {} of a CPU by quota; `plainweave load` on CPU 1",
                flags.workers, flags.share
            ),
        ),
        ("points that count", "the client was late by less than a tenth of the latency (p99)".to_owned()),
    ];
    let report = Report { experiment: "cache-sweep", parameters, rows: found.rows(), absent: Vec::new() };
    report.publish_with(flags.out.as_deref(), &found.picture())
}

/// What was measured.
struct Found<'a> {
    flags: &'a Flags,
    systems: &'a [System],
    shares: &'a [f64],
    rates: &'a [f64],
    curves: &'a [Curves],
}

/// A figure's name, its unit, and where it is; without a value where the point does not count.
type Metric = (&'static str, &'static str, fn(&Point) -> Option<f64>);

const METRICS: [Metric; 5] = [
    ("answers_per_s", "1/s", |point| Some(point.rate)),
    ("answers_to_target", "1", |point| Some(point.rate / point.target)),
    ("p99_us", "us", |point| point.p99.filter(|_| point.counts)),
    ("errors", "1", |point| Some(point.errors)),
    ("points_that_count", "1", |point| Some(f64::from(u8::from(point.counts)))),
];

impl Found<'_> {
    fn row(&self, case: String, system: usize, metric: &'static str, unit: &'static str, values: Vec<f64>) -> Row {
        let (system, workers) = (self.systems[system].name.clone(), self.flags.workers.into());
        Row { experiment: "cache-sweep", case, system, workers, metric, unit, values }
    }

    /// Returns the values of a metric at a rate, a round each.
    fn values(&self, system: usize, updates: usize, rate: usize, of: fn(&Point) -> Option<f64>) -> Vec<f64> {
        self.curves[system][updates].iter().filter_map(|points| of(&points[rate])).collect()
    }

    fn rows(&self) -> Vec<Row> {
        let mut rows = Vec::new();
        for (u, updates) in self.flags.updates.iter().enumerate() {
            for system in 0..self.systems.len() {
                let knees = self.curves[system][u].iter().map(|points| self.knee(points)).collect();
                rows.push(self.row(format!("{updates} %"), system, "knee_per_s", "1/s", knees));
            }
            let compared = |rate: &usize| ((self.shares[*rate] - COMPARED).abs() * 1e6) as u64;
            let middle = (0..self.rates.len()).min_by_key(compared).unwrap_or_default();
            for (r, share) in self.shares.iter().enumerate() {
                let case = format!("{updates} % at {share:.2}");
                for system in 0..self.systems.len() {
                    for (metric, unit, of) in METRICS {
                        let values = self.values(system, u, r, of);
                        if !values.is_empty() {
                            rows.push(self.row(case.clone(), system, metric, unit, values));
                        }
                    }
                    let theirs = self.curves[0][u].iter().filter(|_| system > 0 && r == middle);
                    let both = self.curves[system][u].iter().zip(theirs).filter_map(|(own, theirs)| {
                        let [own, theirs] = [own, theirs].map(|points| (METRICS[2].2)(&points[r]));
                        Some(own? / theirs?)
                    });
                    let ratios: Vec<f64> = both.collect();
                    if !ratios.is_empty() {
                        rows.push(self.row(case.clone(), system, "p99_to_memcached", "1", ratios));
                    }
                }
            }
        }
        rows
    }

    /// Returns the highest rate up to which all rates were kept, zero if none was.
    fn knee(&self, points: &[Point]) -> f64 {
        let kept = points.iter().take_while(|point| point.rate >= KEPT * point.target);
        kept.last().map_or(0.0, |point| point.target)
    }

    /// Draws answers and p99 against the rate that is asked for: a row of panels a system, a line a share of updates.
    fn picture(&self) -> String {
        let mut panels = String::new();
        for (s, system) in self.systems.iter().enumerate() {
            for (what, upwards, log, metric) in
                [("answers", "answers, more is better", false, 0), ("p99", "p99, less is better", true, 2)]
            {
                let lines = self.flags.updates.iter().enumerate().map(|(u, updates)| {
                    let point = |(r, rate): (usize, &f64)| {
                        let values = self.values(s, u, r, METRICS[metric].2);
                        (*rate, self.row(String::new(), s, METRICS[metric].0, "", values).spread())
                    };
                    Line {
                        name: format!("{updates} % updates"),
                        role: Role::Ours,
                        points: self.rates.iter().enumerate().map(point).collect(),
                    }
                });
                let title = format!("{}: {what}", system.name);
                let panel = Panel {
                    title,
                    across: "requests/s asked for".to_owned(),
                    upwards: upwards.to_owned(),
                    unit: METRICS[metric].1.to_owned(),
                    log_across: false,
                    log,
                    lines: lines.collect(),
                };
                panels.push_str(&panel.svg());
            }
        }
        format!("<div class='panels'>{panels}</div>")
    }
}
