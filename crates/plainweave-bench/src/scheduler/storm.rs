//! A storm of deadlines: many fibers whose deadlines fall into one tick, beside others that go on
//! working.
//!
//! One worker has both. The fibers of the storm wait in a scope under one deadline; half of the
//! others yield all the time, half pass messages on. Each repetition is a process of its own
//! (`workload`), which checks that each fiber of the storm ended, because of its deadline and not
//! before it. The goals are rows of their own.

// The workload: a worker with fibers that wait under one deadline, and others beside them.
mod workload;

use std::num::NonZeroUsize;
use std::process::Command;
use std::time::Duration;

use clap::{Args, ValueEnum};
use plainweave::policy::Choice;

use crate::harness::child;
use crate::harness::descriptors;
use crate::harness::experiment::Common;
use crate::harness::interrupt;
use crate::harness::mode::Mode;
use crate::harness::report::{self, Failures, Report};
use crate::harness::sample::{Origin, Row};
use workload::{Case, Size};
pub(crate) use workload::{ChildFlags, run_child};

/// Fibers whose deadlines fall into one tick, beside others: throughput, CPU time, memory.
#[derive(Args, Debug)]
pub(crate) struct Flags {
    #[command(flatten)]
    common: Common,

    /// What the fibers wait for
    #[arg(
        long,
        value_name = "A,B",
        value_delimiter = ',',
        default_value = "sleep,channel,read-epoll,read-uring"
    )]
    cases: Vec<Case>,

    #[command(flatten)]
    size: Size,

    /// Scheduling policies
    #[arg(long, value_name = "A,B", value_delimiter = ',', default_value = "fifo", value_parser = policy)]
    policy: Vec<String>,

    /// Modes: never, before-start or anytime, a slash, and shared or own (thread-local storage)
    #[arg(
        long,
        value_name = "A,B",
        value_delimiter = ',',
        default_value = "before-start/shared,anytime/own"
    )]
    modes: Vec<String>,

    /// Repetitions of each measurement
    #[arg(long, value_name = "N", default_value = "5")]
    runs: NonZeroUsize,
}

fn policy(text: &str) -> Result<String, String> {
    Choice::parse(text).map(|_| text.to_owned())
}

/// A metric's name, its unit, and its goal if it has one.
const METRICS: [(&str, &str, Option<f64>); 10] = [
    ("others_before", "1/cpu-s", None),
    ("others_during", "1/cpu-s", None),
    ("others_after", "1/cpu-s", None),
    ("during_to_before", "1", Some(0.5)),
    ("worker_cpu_ms", "ms", Some(1000.0)),
    ("all_ended_ms", "ms", None),
    ("memory_before_mb", "MB", None),
    ("memory_waiting_mb", "MB", None),
    ("memory_after_mb", "MB", None),
    ("memory_returned", "1", Some(1.0)),
];

pub(crate) fn run(flags: &Flags) -> anyhow::Result<()> {
    if flags.common.list {
        Case::value_variants()
            .iter()
            .for_each(|case| report::say(case.name()));
        return Ok(());
    }

    let mut rows = Vec::new();
    let mut absent = Vec::new();
    let mut failures = Failures::begin()?;
    for mode in &flags.modes {
        Mode::parse(mode)?;
    }
    for &case in &flags.cases {
        // Both ends of a connection are this process's.
        if case.reads() && !descriptors::at_least(2 * flags.size.connections as usize) {
            absent.push((case.name().to_owned(), descriptors::TOO_FEW.to_owned()));
            continue;
        }

        for (policy, mode) in flags
            .policy
            .iter()
            .flat_map(|policy| flags.modes.iter().map(move |mode| (policy, mode)))
        {
            let what = format!("{} {policy} {mode}", case.name());
            let measured = failures.catch(&what, || match measure(case, policy, mode, flags) {
                // Where io_uring is forbidden.
                Err(error) if case == Case::ReadUring && interrupt::came().is_none() => {
                    absent.push((what.clone(), format!("{error:#}")));
                    Ok(Vec::new())
                }
                measured => measured,
            });
            rows.extend(measured.unwrap_or_default());
        }
        let goals = METRICS
            .iter()
            .filter_map(|&(metric, unit, goal)| Some(row(case, "goal", metric, unit, vec![goal?])));
        rows.extend(goals);
    }

    let Size {
        fibers,
        connections,
        others,
        settle,
        window,
    } = &flags.size;
    let parameters = vec![
        (
            "command",
            std::env::args().skip(1).collect::<Vec<_>>().join(" "),
        ),
        (
            "storm",
            format!(
                "{fibers} fibers that sleep or receive, {connections} that read, under one deadline"
            ),
        ),
        (
            "others",
            format!(
                "{others} fibers on the same worker: yields and messages, for {window} ms before and after"
            ),
        ),
        (
            "goals",
            "during_to_before at least, worker_cpu_ms at most, memory_returned about".to_owned(),
        ),
        (
            "repetitions",
            format!(
                "{}, each a process of its own; {settle} ms to start all fibers",
                flags.runs
            ),
        ),
    ];
    failures.publish(
        Report {
            experiment: "storm",
            parameters,
            rows,
            absent,
        },
        flags.common.out(),
        None,
    )
}

fn row(
    case: Case,
    system: &str,
    metric: &'static str,
    unit: &'static str,
    values: Vec<f64>,
) -> Row {
    let system = system.replace(',', ";");
    Origin::new("storm").row(case.name(), system, metric, unit, values)
}

/// Runs all repetitions of a case and returns their rows.
fn measure(case: Case, policy: &str, mode: &str, flags: &Flags) -> anyhow::Result<Vec<Row>> {
    let system = format!("{policy} {mode}");
    let mut rows: Vec<Row> = METRICS
        .iter()
        .map(|&(metric, unit, _)| row(case, &system, metric, unit, Vec::new()))
        .collect();
    let Size {
        fibers,
        connections,
        others,
        settle,
        window,
    } = &flags.size;
    let patience = Duration::from_secs(60) + Duration::from_millis(settle + 4 * window);

    for run in 1..=flags.runs.get() {
        report::progress(&format!(
            "storm: {}, {system}: {run} of {}",
            case.name(),
            flags.runs
        ));
        let mut command = Command::new(std::env::current_exe()?);
        command
            .args(["storm-child", case.name()])
            .arg(format!("--policy={policy}"))
            .arg(format!("--mode={mode}"));
        command
            .arg(format!("--fibers={fibers}"))
            .arg(format!("--connections={connections}"));
        command
            .arg(format!("--others={others}"))
            .arg(format!("--settle={settle}"))
            .arg(format!("--window={window}"));

        let text = child::output(command, patience)?;
        for (metric, value) in child::values(&text)? {
            if let Some(row) = rows.iter_mut().find(|row| row.metric == metric) {
                row.values.push(value);
            }
        }
    }

    Ok(rows)
}
