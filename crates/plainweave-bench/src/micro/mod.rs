//! The micro-benchmarks of a scheduler. Each case is written once, over a [`shim::System`].

mod cases;
mod shim;

use std::num::NonZeroUsize;
use std::path::PathBuf;

use anyhow::Context;
use clap::Args;

use crate::machine;
use crate::mode::Mode;
use crate::report::{self, Report};
use crate::sample::Row;
use cases::{CASES, Case, Size};
use shim::{Plainweave, System, Threads};

/// Costs of fibers: switch, spawn, memory.
#[derive(Args, Debug)]
pub(crate) struct Flags {
    /// Print the cases and what they measure, and run nothing
    #[arg(long)]
    list: bool,

    /// Run only these
    #[arg(long, value_name = "A,B", value_delimiter = ',')]
    cases: Vec<String>,

    /// Systems to measure: plainweave, plainweave-own (thread-local storage of each fiber's own),
    /// plainweave-own-anytime (and they move at any time), plainweave-shared-anytime, threads
    #[arg(long, value_name = "A,B", value_delimiter = ',', default_value = "plainweave,threads")]
    systems: Vec<String>,

    /// Numbers of workers
    #[arg(long, value_name = "N,M", value_delimiter = ',', default_value = "1")]
    workers: Vec<NonZeroUsize>,

    /// Repetitions of each measurement
    #[arg(long, value_name = "N", default_value = "5")]
    runs: NonZeroUsize,

    /// Operations in one repetition [default: what takes about a tenth of a second]
    #[arg(long, value_name = "N")]
    iterations: Option<NonZeroUsize>,

    /// Fibers of parked-fibers [default: 100,000; 1,000,000 with --full]
    #[arg(long, value_name = "N")]
    fibers: Option<NonZeroUsize>,

    /// The published sizes
    #[arg(long)]
    full: bool,

    /// Plainweave's scheduling policy
    #[arg(long, value_name = "NAME", default_value = "fifo")]
    policy: String,

    /// Where the CSV and the report go [default: results/<date>-<host>]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

/// Peers that the cases will run on when their shims are there.
const ABSENT: [(&str, &str); 4] = [
    ("Go", "no shim yet"),
    ("Tokio", "no shim yet"),
    ("may", "no shim yet"),
    ("libfibre", "no shim yet; published figures stand in PEERS"),
];

pub(crate) fn run(flags: &Flags) -> anyhow::Result<()> {
    if flags.list {
        CASES.iter().for_each(|case| report::say(&format!("{:<16} {}", case.name, case.summary)));
        return Ok(());
    }
    let chosen = choose(&flags.cases)?;
    let mut rows = Vec::new();
    let baseline = machine::status_bytes("VmRSS");
    for case in chosen {
        for workers in &flags.workers {
            for system in &flags.systems {
                let measured = match system.as_str() {
                    "threads" => measure(&Threads, case, flags, baseline),
                    other => {
                        let mode = Mode::of_system(other).with_context(|| no_system(other))?;
                        measure(&Plainweave::new(mode, workers.get(), &flags.policy)?, case, flags, baseline)
                    }
                };
                for mut row in measured? {
                    row.workers = workers.get();
                    rows.push(row);
                }
            }
        }
    }
    let parameters = vec![
        ("policy", flags.policy.clone()),
        ("plainweave", Mode::Shared.describe().to_owned()),
        ("plainweave-own", Mode::Own.describe().to_owned()),
        ("plainweave-own-anytime", Mode::OwnAnytime.describe().to_owned()),
        ("repetitions", format!("{} of each, median, least and greatest; one dropped before", flags.runs)),
    ];
    Report { experiment: "micro", parameters, rows, absent: ABSENT.to_vec() }.publish(flags.out.as_deref())
}

fn no_system(name: &str) -> String {
    let known = Mode::ALL.map(Mode::system).join(", ");
    format!("no system is called '{name}'; there are: threads, {known}")
}

fn choose(names: &[String]) -> anyhow::Result<Vec<&'static Case>> {
    if names.is_empty() {
        return Ok(CASES.iter().collect());
    }
    let find = |name: &String| CASES.iter().find(|case| case.name == name);
    let known = || CASES.iter().map(|case| case.name).collect::<Vec<_>>().join(", ");
    let found = names
        .iter()
        .map(|name| find(name).ok_or_else(|| anyhow::anyhow!("no case is called '{name}'; there are: {}", known())));
    found.collect()
}

fn measure<S: System>(system: &S, case: &'static Case, flags: &Flags, baseline: f64) -> anyhow::Result<Vec<Row>> {
    let size = Size {
        iterations: flags.iterations.map(NonZeroUsize::get),
        fibers: flags.fibers.map_or(if flags.full { 1_000_000 } else { 100_000 }, NonZeroUsize::get),
        baseline,
    };
    let mut rows: Vec<Row> = Vec::new();
    for run in 0..=flags.runs.get() {
        report::progress(&format!("{} on {}: {run} of {}", case.name, system.name(), flags.runs));
        let figures = (case.run)(&size, &system.erased())?;
        // The first run warms up.
        if run == 0 {
            rows = figures.iter().map(|f| f.row(case.name, system.name())).collect();
            continue;
        }
        for (row, figure) in rows.iter_mut().zip(figures) {
            row.values.push(figure.value);
        }
    }
    Ok(rows)
}
