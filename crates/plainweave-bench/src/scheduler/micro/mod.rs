//! The micro-benchmarks of a scheduler. Each case is written once, over a [`shim::Shim`]; each
//! repetition runs in a process of its own (`child`). The systems take turns; the first of ours
//! does so twice, and what lies between its two rows is the noise (A/A). With two workers or more,
//! a repetition counts if the CPUs were near each other before and after it ([`c2c`]); else it is
//! repeated, a few times, and then kept and counted as far.

mod cases; // The workloads, each written once over `Shim`.
mod cfa; // C∀'s own programs of these workloads.
mod child; // A repetition, in a process of its own.
mod parameters; // The parameters of the cases.
mod peer; // The workloads in other languages, each a program of its own with the same flags.
mod repetition; // A repetition: how a workload is run, and the figures that come of it.
mod series; // The systems take turns.
mod system; // A system to measure, and how its process is started.
// A team of threads that do the same until the time is over, and what is asked of their counts.
mod team;

use std::num::NonZeroUsize;
use std::path::PathBuf;

use clap::Args;

use crate::harness::c2c;
use crate::harness::course::Course;
use crate::harness::experiment::{Cases, Common};
use crate::harness::mode::Mode;
use crate::harness::names;
use crate::harness::report::{self, Failures, Report};
use cases::{CASES, Case};
use cfa::Cfa;
pub(crate) use child::{ChildFlags, run as run_child};
use parameters::{Options, Shape};
use peer::Peer;
use repetition::Size;
use series::Contest;
use system::System;

/// Costs of a scheduler, beside threads, Tokio, may, Go, libfibre and C∀.
#[derive(Args, Debug)]
pub(crate) struct Flags {
    #[command(flatten)]
    common: Common,

    #[command(flatten)]
    cases: Cases,

    /// Systems to measure: plainweave, threads, tokio, may, go
    #[arg(
        long,
        value_name = "A,B",
        value_delimiter = ',',
        default_value = "plainweave,threads,tokio,may,go"
    )]
    systems: Vec<String>,

    /// Measure libfibre too: the folder src of its checkout, where libfibre.a is built
    #[arg(long, value_name = "DIR")]
    libfibre: Option<PathBuf>,

    /// Measure C∀ too: a folder with the built programs yield, cycle, churn, locality and transfer
    /// of cforall/SchedulingBenchmarks_PhD22; the first line of a file VERSION there is quoted
    #[arg(long, value_name = "DIR")]
    cfa: Option<PathBuf>,

    /// Numbers of workers
    #[arg(long, value_name = "N,M", value_delimiter = ',', default_value = "1,2")]
    workers: Vec<NonZeroUsize>,

    /// Plainweave's scheduling policies, or `all`
    #[arg(
        long,
        value_name = "A,B",
        value_delimiter = ',',
        default_value = "fifo"
    )]
    policy: Vec<String>,

    /// Plainweave's modes: never, before-start or anytime, a slash, and shared or own (thread-local
    /// storage)
    #[arg(
        long,
        value_name = "A,B",
        value_delimiter = ',',
        default_value = "before-start/shared,anytime/shared,anytime/own"
    )]
    modes: Vec<String>,

    /// Repetitions of each measurement
    #[arg(long, value_name = "N", default_value = "5")]
    runs: NonZeroUsize,

    /// Take what 2 workers do however far apart the CPUs are
    #[arg(long)]
    far: bool,

    /// Report how long Plainweave's ready fibers wait, and their rank errors; this makes everything
    /// slower
    #[arg(long)]
    observe: bool,

    /// Have Plainweave's workers record events for a trace, to learn what that costs
    #[arg(long)]
    traced: bool,

    /// Seconds a repetition [default: 0.3; 5 with --full]
    #[arg(long, value_name = "S", value_parser = parameters::seconds)]
    seconds: Option<f64>,

    #[command(flatten)]
    options: Options,

    /// Fibers of parked-fibers [default: 100,000; 1,000,000 with --full]
    #[arg(long, value_name = "N")]
    fibers: Option<NonZeroUsize>,

    /// The published sizes
    #[arg(long)]
    full: bool,

    /// Measure the first of ours once, not twice
    #[arg(long)]
    once: bool,
}

/// As `--systems` names them.
const SYSTEMS: [&str; 5] = ["plainweave", "threads", "tokio", "may", "go"];

pub(crate) fn run(flags: &Flags) -> anyhow::Result<()> {
    if flags.common.list {
        CASES
            .iter()
            .for_each(|case| report::say(&format!("{:<16} {}", case.name, case.summary)));
        return Ok(());
    }

    flags.cases.check(CASES.iter().map(|case| case.name))?;
    let chosen: Vec<_> = CASES
        .iter()
        .filter(|case| flags.cases.has(case.name))
        .collect();
    // An option that no chosen case has would do nothing: it is refused.
    let names: Vec<_> = chosen.iter().map(|case| case.name).collect();
    flags.options.check(&names, &CASES.map(|case| case.name))?;
    // Before anything is measured: a wrong option should not end a run of hours.
    let shapes = shapes(&chosen, flags)?;
    let mut absent = Vec::new();
    let systems = systems(flags, &mut absent)?;
    let mut rows = Vec::new();
    let mut failures = Failures::begin()?;
    let mut repetitions = 0;

    for case in &chosen {
        for workers in flags.workers.iter().map(|n| n.get()) {
            // One more for each, which warms up.
            let there = systems.iter().filter(|system| system.has(case, workers));
            repetitions += there.count() * (flags.runs.get() + 1);
        }
    }

    let mut course = Course::new(repetitions);
    for case in chosen {
        for workers in flags.workers.iter().map(|n| n.get()) {
            let contest = Contest {
                case,
                title: flags.options.title(case.name),
                size: size(case, workers, flags)?,
                runs: flags.runs.get(),
                far: flags.far,
            };
            let there = systems.iter().filter(|system| system.has(case, workers));
            let found = contest.run(there, &mut course, &mut failures);

            rows.extend(found.rows);
            for why in found.absent {
                absent.extend((!absent.contains(&why)).then_some(why));
            }
        }
    }

    let mut parameters = parameters(flags);
    parameters.extend(systems.iter().filter_map(System::version));
    parameters.extend(shapes.into_iter().map(|shape| ("case", shape)));
    failures.publish(
        Report {
            experiment: "micro",
            parameters,
            rows,
            absent,
        },
        flags.common.out(),
        None,
    )
}

/// Returns what the head of the result says of the run.
fn parameters(flags: &Flags) -> Vec<(&'static str, String)> {
    let length = flags.options.iterations.map_or_else(
        || format!("{} s", seconds(flags)),
        |n| format!("{n} iterations"),
    );
    vec![
        (
            "repetitions",
            format!(
                "{} of {length}, one dropped before, the systems in turn, each a process of its own",
                flags.runs
            ),
        ),
        (
            "random numbers",
            "each thread's are seeded by its number".to_owned(),
        ),
        (
            "plainweave",
            "fifo before-start/shared; others say policy, movement and storage in their rows"
                .to_owned(),
        ),
        (
            "near",
            format!(
                "with 2 workers: core to core at most {} ns before and after",
                c2c::NEAR_NS
            ),
        ),
    ]
}

/// Returns what each case is measured with, before anything is.
fn shapes(chosen: &[&Case], flags: &Flags) -> anyhow::Result<Vec<String>> {
    let mut lines = Vec::new();
    for case in chosen {
        for workers in flags
            .workers
            .iter()
            .map(|n| n.get())
            .filter(|n| *n >= case.least_workers)
        {
            let shape = Shape::new(case.name, workers, &flags.options)?
                .flags()
                .join(" ");
            if !shape.is_empty() {
                lines.push(format!("{}, workers={workers}: {shape}", case.name));
            }
        }
    }
    Ok(lines)
}

fn seconds(flags: &Flags) -> f64 {
    flags.seconds.unwrap_or(if flags.full { 5.0 } else { 0.3 })
}

fn systems(flags: &Flags, absent: &mut Vec<(String, String)>) -> anyhow::Result<Vec<System>> {
    let presets = || {
        plainweave::policy::PRESETS
            .iter()
            .map(|preset| preset.name.to_owned())
    };

    let policies: Vec<String> = if flags.policy.iter().any(|name| name == "all") {
        presets().collect()
    } else {
        flags.policy.clone()
    };

    names::check("system", &flags.systems, SYSTEMS.into_iter())?;
    let mut systems = Vec::new();
    for name in &flags.systems {
        match name.as_str() {
            "plainweave" => {
                for (policy, mode) in policies
                    .iter()
                    .flat_map(|p| flags.modes.iter().map(move |m| (p, m)))
                {
                    // Tried before hours are spent: a C library may be too old for storage of one's
                    // own, for instance.
                    let built = Mode::parse(mode)?.builder().workers(1).build();
                    plainweave::policy::Choice::parse(policy).map_err(anyhow::Error::msg)?;
                    if let Err(error) = built {
                        absent.push((format!("plainweave {policy} {mode}"), error.to_string()));
                        continue;
                    }

                    // The plain name is what tables and scripts mean that say no more.
                    let title = match (policy.as_str(), mode.as_str()) {
                        ("fifo", "before-start/shared") => "plainweave".to_owned(),
                        _ => format!("plainweave {policy} {mode}"),
                    };

                    let mut arguments = vec!["plainweave", "--policy", policy, "--mode", mode];
                    arguments.extend(flags.observe.then_some("--observe"));
                    arguments.extend(flags.traced.then_some("--traced"));
                    systems.push(System::new(&title, &arguments));
                }
            }
            "threads" | "tokio" | "may" => systems.push(System::new(name, &[name])),
            "go" => match Peer::go() {
                // Both of Go's semaphores: the fast one is unfair, so either alone would mislead.
                Ok([go, barging]) => {
                    for (name, peer) in [("go", go), ("go barging", barging)] {
                        systems.push(System {
                            peer: Some(peer),
                            ..System::new(name, &[])
                        });
                    }
                }
                Err(error) => absent.push(("go".to_owned(), format!("{error:#}"))),
            },
            other => unreachable!("{other} is one of SYSTEMS"),
        }
    }

    let first = systems.iter().find(|system| system.is_ours());
    if let Some(first) = first.filter(|_| !flags.once) {
        systems.push(System {
            name: format!("{} again", first.name),
            arguments: first.arguments.clone(),
            peer: None,
        });
    }

    match &flags.libfibre {
        Some(folder) => {
            systems.push(System {
                peer: Some(Peer::libfibre(folder)?),
                ..System::new("libfibre", &[])
            });
        }
        None => absent.push(("libfibre".to_owned(), "see --libfibre".to_owned())),
    }

    match &flags.cfa {
        Some(folder) => {
            systems.push(System {
                peer: Some(Peer::Cfa(Cfa::new(folder)?)),
                ..System::new("cfa", &[])
            });
        }
        None => absent.push(("cfa".to_owned(), "see --cfa".to_owned())),
    }

    Ok(systems)
}

/// Returns how a case is run.
fn size(case: &Case, workers: usize, flags: &Flags) -> anyhow::Result<Size> {
    let usual = if flags.full { 1_000_000 } else { 100_000 };
    Ok(Size {
        workers,
        seconds: seconds(flags),
        shape: Shape::new(case.name, workers, &flags.options)?,
        fibers: flags.fibers.map_or(usual, NonZeroUsize::get),
        clocked: false,
        heavy: false,
        baseline: 0.0,
    })
}
