//! The queues that policies are built from, beside crossbeam's and st3's.
//!
//! Items are the numbers from 1 on, a word each as a task is. A repetition runs in a process of its
//! own and checks that each item came out once (their number and two sums); the systems of a case
//! take turns, repetition by repetition. With two threads one is bound to each of the first two
//! CPUs, and a repetition counts if these were near ([`c2c`]).

mod repetition; // A repetition: its job, what came out, and two threads that begin together.
mod shared; // Queues for everybody.
mod stealing; // Run queues that can be stolen from.

use std::num::NonZeroUsize;
use std::process::Command;

use anyhow::{Context, ensure};
use clap::Args;

use crate::harness::c2c;
use crate::harness::course::Course;
use crate::harness::experiment::{Cases, Common};
use crate::harness::machine;
use crate::harness::report::{self, Failures, Report};
use crate::harness::sample::{Origin, Row};
use repetition::Job;

/// Our queues beside other libraries': run queues with and without a thief, and shared queues.
#[derive(Args, Debug)]
pub(crate) struct Flags {
    #[command(flatten)]
    common: Common,

    #[command(flatten)]
    cases: Cases,

    /// Items of a repetition
    #[arg(long, value_name = "N", default_value = "1000000")]
    items: NonZeroUsize,

    /// Threads of the thesis' queue, an even number [default: 2; 120 with --full]
    #[arg(long, value_name = "N,M", value_delimiter = ',', value_parser = even)]
    threads: Vec<usize>,

    /// Repetitions of each measurement [default: 5; 10 with --full]
    #[arg(long, value_name = "N")]
    runs: Option<NonZeroUsize>,

    /// The thesis' queue in its published size
    #[arg(long)]
    full: bool,

    /// Take what 2 threads do however far apart the CPUs are
    #[arg(long)]
    far: bool,
}

fn even(text: &str) -> Result<usize, String> {
    let number = text
        .parse()
        .ok()
        .filter(|n: &usize| (2..=1000).contains(n) && n.is_multiple_of(2));
    number.ok_or_else(|| "an even number from 2 to 1000".to_owned())
}

impl Flags {
    fn runs(&self) -> usize {
        self.runs
            .map_or(if self.full { 10 } else { 5 }, NonZeroUsize::get)
    }

    /// Returns the numbers of threads of a case.
    fn threads(&self, case: &Case) -> Vec<usize> {
        match (case.threads, &self.threads[..]) {
            ([], []) => vec![if self.full { 120 } else { 2 }],
            ([], given) => given.to_vec(),
            (fixed, _) => fixed.to_vec(),
        }
    }
}

/// One repetition.
#[derive(Args, Debug)]
pub(crate) struct ChildFlags {
    case: String,
    system: String,
    #[arg(long)]
    threads: usize,
    #[arg(long)]
    items: u64,
}

/// A workload.
struct Case {
    name: &'static str,
    summary: &'static str,
    systems: &'static [&'static str],
    /// Numbers of threads; none: as `--threads` says.
    threads: &'static [usize],
    run: fn(&Job) -> anyhow::Result<f64>,
}

const CASES: [Case; 9] = [
    Case {
        name: "own-fifo",
        summary: "a run queue of 256 with 100 items in it: push, pop the oldest; no thief",
        systems: &stealing::FIFO,
        threads: &[1],
        run: stealing::own,
    },
    Case {
        name: "own-lifo",
        summary: "the same, pop the newest",
        systems: &stealing::LIFO,
        threads: &[1],
        run: stealing::own,
    },
    Case {
        name: "grow",
        summary: "a run queue that begins with room for 64 takes all items, then gives the newest first",
        systems: &stealing::GROWING,
        threads: &[1],
        run: stealing::grow,
    },
    Case {
        name: "steal-fifo",
        summary: "the owner pushes two and pops the oldest; a thief steals half whenever it can (1 thread: every 64)",
        systems: &stealing::FIFO,
        threads: &[1, 2],
        run: stealing::steal,
    },
    Case {
        name: "steal-lifo",
        summary: "the same, the owner pops the newest",
        systems: &stealing::LIFO,
        threads: &[1, 2],
        run: stealing::steal,
    },
    Case {
        name: "queue",
        summary: "half of the threads enqueue, half dequeue (1 thread: 64 and 64 alternately)",
        systems: &shared::SYSTEMS,
        threads: &[1, 2],
        run: shared::queue,
    },
    Case {
        name: "thesis",
        summary: "the thesis' queue: every second one of many threads enqueues, the others dequeue",
        systems: &shared::THESIS,
        threads: &[],
        run: shared::halves,
    },
    Case {
        name: "pairs",
        summary: "a shared queue with 100 items in it: every thread pushes and pops alternately",
        systems: &shared::SYSTEMS,
        threads: &[1, 2],
        run: shared::pairs,
    },
    Case {
        name: "batch",
        summary: "a shared queue: 128 items at once in (a full run queue spills), up to 32 at once out",
        systems: &shared::SYSTEMS,
        threads: &[1, 2],
        run: shared::batches,
    },
];

pub(crate) fn run_child(flags: &ChildFlags) -> anyhow::Result<()> {
    let case = CASES
        .iter()
        .find(|case| case.name == flags.case)
        .context("no such case")?;
    machine::pin_to(0);
    let ns = (case.run)(&Job {
        system: flags.system.clone(),
        threads: flags.threads,
        items: flags.items,
    })?;
    report::say(&ns.to_string());

    Ok(())
}

fn repetition(case: &Case, system: &str, threads: usize, flags: &Flags) -> anyhow::Result<f64> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args([
        "queues-child",
        case.name,
        system,
        &format!("--threads={threads}"),
    ]);
    let output = command
        .arg(format!("--items={}", flags.items))
        .output()
        .context("cannot start a child")?;
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(
        output.status.success(),
        "{} {system}: {}",
        case.name,
        errors.trim()
    );

    Ok(String::from_utf8(output.stdout)?.trim().parse()?)
}

pub(crate) fn run(flags: &Flags) -> anyhow::Result<()> {
    if flags.common.list {
        CASES
            .iter()
            .for_each(|case| report::say(&format!("{:<12} {}", case.name, case.summary)));
        return Ok(());
    }

    flags.cases.check(CASES.iter().map(|case| case.name))?;
    let mut rows = Vec::new();
    let mut failures = Failures::begin()?;
    let is_chosen = |case: &&Case| flags.cases.has(case.name);
    let chosen: Vec<_> = CASES.iter().filter(is_chosen).collect();
    let with_threads = chosen
        .iter()
        .flat_map(|case| flags.threads(case).into_iter().map(move |n| (case, n)));
    let with_threads: Vec<_> = with_threads.collect();
    // Of cases, not of repetitions: a case's systems take about as long together as another's.
    let mut course = Course::new(with_threads.len() * flags.runs());

    for (case, threads) in with_threads {
        measure(case, threads, flags, &mut course, &mut rows, &mut failures);
    }
    let parameters = vec![
        (
            "items",
            format!(
                "{} a repetition, 8 bytes each; a repetition is a process, systems alternately",
                flags.items
            ),
        ),
        (
            "time",
            "from the first push until all items are out, divided by the items".to_owned(),
        ),
        (
            "near",
            format!(
                "with 2 threads: core to core at most {} ns before and after",
                c2c::NEAR_NS
            ),
        ),
    ];
    let report = Report {
        experiment: "queues",
        parameters,
        rows,
        absent: Vec::new(),
    };

    failures.publish(report, flags.common.out(), None)
}

/// Adds the rows of a case: of a run that is interrupted, what was measured until then.
fn measure(
    case: &Case,
    threads: usize,
    flags: &Flags,
    course: &mut Course,
    all: &mut Vec<Row>,
    failures: &mut Failures,
) {
    let queues = Origin::new("queues").with_workers(threads);

    let mut rows: Vec<Row> = case
        .systems
        .iter()
        .map(|system| queues.row(case.name, *system, "ns_per_item", "ns", Vec::new()))
        .collect();
    let mut far = 0;
    for run in 0..flags.runs() {
        course.step(&format!(
            "queues: {}, {threads} threads: {run} of {}",
            case.name,
            flags.runs()
        ));
        // Systems alternate within a run: what the machine does meanwhile meets all of them.
        for (system, row) in case.systems.iter().zip(&mut rows) {
            let what = format!("{} {system}, {threads} threads", case.name);
            let measured = failures.catch(&what, || {
                c2c::near(threads, !flags.far, || {
                    repetition(case, system, threads, flags)
                })
            });

            if let Some((ns, was_far)) = measured {
                row.values.push(ns);
                far += usize::from(was_far);
            }
        }
    }

    if threads > 1 {
        rows.push(queues.row(
            case.name,
            "all",
            "far_repetitions",
            "count",
            vec![far as f64],
        ));
    }

    // What failed each time has no figure, and stands among the failures.
    rows.retain(|row| !row.values.is_empty());
    all.extend(rows);
}
