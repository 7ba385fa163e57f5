//! The published experiment on static web servers: sessions over the published mix of files, at
//! rates below and past what nginx can bear, and with ever less memory for files that come from a
//! slow disk.
//!
//! There are two parts. *rates*: all files are in memory, each server has a part of CPU 0 by quota,
//! so that one client core can offer more than it bears, and the rates are shares of nginx's peak,
//! which is found first in a closed loop over the same sessions. *memory*: at a rate that every
//! server bears in memory, each runs in a memory cgroup that holds its own memory and a part of the
//! files; its reads of the disk are throttled (blkio), for a virtual machine's disk can be another
//! machine's memory. The files are written and forgotten by this process, so that their pages are
//! charged to the server that reads them. A load of its own asks for the files of the first 80 % of
//! the requests, whose p99 says what a server that waits for the disk does to requests that need
//! none.

// Three ways to send a file that fail when memory is short, as servers.
pub(crate) mod control;
mod found; // What was measured, as rows and as pictures.
mod load; // Sessions as a load, and what came of a rate.
mod memory; // Less and less memory for the files, which then come from a slow disk.
mod system; // The servers that are measured, and in which part.

use std::num::NonZeroUsize;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, ensure};
use clap::{Args, ValueEnum};

use crate::harness::descriptors;
use crate::harness::experiment::Common;
use crate::harness::report::{self, Failures, Report};
use crate::harness::turns::Turns;
use crate::serving::catalog::Catalog;
use crate::serving::control::Method;
use crate::serving::site::Site;
use crate::serving::web::Kind;
use crate::serving::{Driver, evenly, nginx, seconds};
use found::Found;
use load::{Offered, Size, Step};
use system::{Part, System};

/// The static web server beside nginx: past its peak, and with less memory than files.
#[derive(Args, Debug)]
pub(crate) struct Flags {
    #[command(flatten)]
    common: Common,

    /// What is swept
    #[arg(
        long,
        value_name = "A,B",
        value_delimiter = ',',
        default_value = "rates,memory"
    )]
    parts: Vec<Part>,

    /// As published: all files, five minutes a step, answers within 10 s
    #[arg(long)]
    full: bool,

    /// The set has one in N of the published files [default: 10, --full: 1]
    #[arg(long, value_name = "N")]
    scale: Option<NonZeroUsize>,

    /// Rates from 0.25 to 1.5 of nginx's peak
    #[arg(long, value_name = "N", default_value = "8", value_parser = clap::value_parser!(u8).range(2..=100))]
    steps: u8,

    /// Sessions at a time, at most
    #[arg(long, value_name = "N", default_value = "10000")]
    sessions: NonZeroUsize,

    /// Part of a CPU that a server may use
    #[arg(long, value_name = "PART", default_value = "0.125", value_parser = crate::harness::cgroup::part)]
    share: f64,

    /// I/O drivers of ours
    #[arg(
        long,
        value_name = "A,B",
        value_delimiter = ',',
        default_value = "epoll,uring"
    )]
    drivers: Vec<Driver>,

    /// Architectures of ours, as `--architecture` of the server takes them
    #[arg(
        long,
        value_name = "A,B",
        value_delimiter = ',',
        default_value = "driver,acceptors:4096"
    )]
    architectures: Vec<String>,

    /// Measure three ways to send a file that fail when memory is short, too
    #[arg(long)]
    controls: bool,

    /// Length of a step [default: 4, --full: 300]
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    seconds: Option<Duration>,

    /// Rounds; in each, every system goes through all points
    #[arg(long, value_name = "N", default_value = "3")]
    runs: NonZeroUsize,

    /// Goes on with a run that was interrupted: what it has measured with the same flags is not
    /// measured again
    #[arg(long)]
    resume: bool,
}

/// Of nginx's peak, the least and the greatest rate.
const RATES: (f64, f64) = (0.25, 1.5);
/// Of nginx's peak, the rate at which memory is swept.
const MODEST: f64 = 0.5;
/// What of the files memory holds; 0.055 holds those of the first 95 % of the requests.
const MEMORY: [f64; 6] = [1.0, 0.5, 0.2, 0.1, 0.055, 0.03];

impl Flags {
    fn scale(&self) -> usize {
        self.scale
            .map_or(if self.full { 1 } else { 10 }, NonZeroUsize::get)
    }

    fn length(&self) -> Duration {
        self.seconds
            .unwrap_or(Duration::from_secs(if self.full { 300 } else { 4 }))
    }

    /// Returns nginx, which all are compared with, and those systems that a part has.
    fn systems(&self, part: Part) -> Vec<System> {
        let nginx = [
            Kind::Nginx,
            if part == Part::Memory {
                Kind::NginxThreads
            } else {
                Kind::NginxDefaults
            },
        ];
        let ours = self
            .architectures
            .iter()
            .flat_map(|name| self.drivers.iter().map(move |driver| (name, *driver)));
        let controls = Method::value_variants()
            .iter()
            .filter(|_| self.controls && part == Part::Memory);
        nginx
            .into_iter()
            .map(System::of)
            .chain(ours.map(|(architecture, driver)| System::ours(driver, architecture)))
            .chain(controls.map(|method| System::of(Kind::Control(*method))))
            .collect()
    }

    /// Returns the points of a part, as cases.
    fn cases(&self, part: Part) -> Vec<(String, f64)> {
        match part {
            Part::Rates => evenly(RATES, self.steps)
                .into_iter()
                .map(|share| (format!("rate {share:.2}"), share))
                .collect(),
            Part::Memory => MEMORY
                .map(|share| (format!("memory {} %", share * 100.0), share))
                .to_vec(),
        }
    }
}

pub(crate) fn run(flags: &Flags) -> anyhow::Result<()> {
    if flags.common.list {
        for part in &flags.parts {
            let name = part
                .to_possible_value()
                .map_or(String::new(), |value| value.get_name().to_owned());
            let systems: Vec<_> = flags
                .systems(*part)
                .into_iter()
                .map(|system| system.name)
                .collect();
            let cases: Vec<_> = flags
                .cases(*part)
                .into_iter()
                .map(|(case, _)| case)
                .collect();
            report::say(&format!(
                "{name}: {}\n  {}",
                systems.join(", "),
                cases.join(", ")
            ));
        }
        return Ok(());
    }

    ensure!(
        descriptors::at_least(flags.sessions.get()),
        "{}",
        descriptors::TOO_FEW
    );
    if let Some(why) = Kind::Nginx.absence() {
        anyhow::bail!("nginx, whose peak is the measure of all rates, is {why}");
    }
    let out = flags.common.folder();
    let mut failures = Failures::begin()?;
    let mut turns = begin(flags, &out)?;
    let site = Site::new()?;

    report::progress("web-sweep: writing the files");

    let catalog = Catalog::mix(&site, flags.scale())?;
    // A part of the files cannot have the sizes of all of them exactly.
    let deviation = catalog.deviation(flags.scale());
    if deviation > 0.05 {
        report::note(&format!(
            "warning: the files are {:.0} % from the published table",
            deviation * 100.0
        ));
    }

    let size = Size {
        full: flags.full,
        length: flags.length(),
        share: flags.share,
        sessions: flags.sessions.get(),
    };

    let bench = Offered::new(size, site, catalog)?;
    let nginx = System::of(Kind::Nginx);
    let peak = turns.take("nginx's peak", || {
        Ok(vec![("rate".to_owned(), bench.peak(&nginx)?)])
    });
    let peak = peak.context("the peak of nginx, which is the measure of all rates")?;
    let peak = peak.first().context("no peak")?.1;
    let found = sweep(flags, &bench, peak, &mut turns, &mut failures);
    let parameters = vec![
        (
            "files",
            format!(
                "{}; within {:.1} % of the published table",
                bench.catalog.describe(),
                deviation * 100.0
            ),
        ),
        ("load", bench.describe()),
        (
            "nginx's peak",
            format!("{peak:.0} requests/s, closed loop over the sessions"),
        ),
        ("nginx", nginx::version()),
        (
            "rounds",
            format!(
                "{}, {} s for each point",
                flags.runs,
                flags.length().as_secs_f64()
            ),
        ),
        (
            "placement",
            format!(
                "servers: {} of CPU 0 by quota; `plainweave load` on CPU 1",
                flags.share
            ),
        ),
        ("memory", memory::describe(&bench, peak * MODEST)),
        (
            "points that count",
            "the client was late by less than a tenth of the latency (p99)".to_owned(),
        ),
    ];
    let rows = found.rows();
    let picture = found.picture();
    let report = Report {
        experiment: "web-sweep",
        parameters,
        rows,
        absent: found.absent(),
    };

    failures.publish(report, Some(&out), Some(&picture))
}

/// Measures all systems at all points, in rounds.
fn sweep(
    flags: &Flags,
    bench: &Offered,
    peak: f64,
    turns: &mut Turns,
    failures: &mut Failures,
) -> Found {
    let mut found = Found::new(peak);
    for round in 1..=flags.runs.get() {
        for part in &flags.parts {
            for system in flags.systems(*part) {
                if let Some(why) = system.kind.absence() {
                    found.miss(&system, why);
                    continue;
                }

                let cases = flags.cases(*part);
                // The first case stands for the part, so that keys of both differ.
                let key = format!("round {round}; {}; {}", cases[0].0, system.name);
                let measure = || {
                    let steps = match part {
                        Part::Rates => bench.rates(&system, &cases, peak)?,
                        Part::Memory => memory::sweep(bench, &system, &cases, peak * MODEST)?,
                    };
                    Ok(steps.iter().flat_map(Step::values).collect())
                };

                // If one fails, the others are measured all the same.
                let steps = failures.catch(&key, || Step::all_of(&turns.take(&key, measure)?));
                // Rounds pair up all the same; a step without values is left out of each median.
                let steps = steps.unwrap_or_else(|| vec![Step::NONE; cases.len()]);
                found.add(*part, &system, &cases, steps);
            }
        }
    }
    found
}

/// Begins with the turns, or goes on with those that there are.
fn begin(flags: &Flags, out: &Path) -> anyhow::Result<Turns> {
    let Flags {
        sessions,
        share,
        steps,
        ..
    } = flags;
    let scale = flags.scale();
    let length = flags.length();
    let full = if flags.full { ", in full" } else { "" };
    let same =
        format!("{sessions} sessions, {share} of a CPU, {steps} steps, {scale}, {length:?}{full}");
    let points = |part: &Part| flags.systems(*part).len() * flags.cases(*part).len();
    let systems: usize = flags
        .parts
        .iter()
        .map(|part| flags.systems(*part).len())
        .sum();
    let turns = Turns::begin(
        "web-sweep",
        out,
        &same,
        flags.resume,
        1 + flags.runs.get() * systems,
    )?;
    let all: usize = flags.parts.iter().map(points).sum();

    turns.estimate((length + load::around(flags.full)) * (all / systems.max(1)) as u32);
    Ok(turns)
}
