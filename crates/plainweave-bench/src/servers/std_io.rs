//! What `std` blocks for beside streams: reads of a file, datagrams, children. Beside threads,
//! Tokio, Go and raw loops.
//!
//! * `cached-N`, `uncached-N`, `direct-N`: N streams read blocks of 4 KiB of one file in random
//!   order, each block once, with the file in the page cache, without, or past it (`O_DIRECT`). The
//!   limit is `pread` by this thread, or a raw ring that has N reads in flight.
//! * `datagrams`: a server on CPU 0 sends back what 64 peers on CPU 1 send it, 64 bytes at a time.
//!   Measured is the server's CPU time; the limit is a raw loop on epoll.
//! * `children`: 16 at a time wait for children that end at once; the limit is `std` on 16 threads.
//!   The runtimes have as many workers as there are processors, one in the other cases.
//!
//! The systems take their turns in each round, all in this process; ratios are to the limit in the
//! same round. *Kernel workers* are the threads that io_uring has started for a turn by its end.

mod children; // Children that are waited for.
mod datagrams; // Datagrams that are sent back.
mod file; // A file whose blocks are read.
mod reads; // Reads of it, by some streams at once.
mod ring; // The same by a raw ring.
mod turn; // What one turn of a system is.

use std::num::NonZeroUsize;

use anyhow::ensure;
use clap::Args;

use crate::harness::experiment::{Cases, Common};
use crate::harness::report::{self, Failures, Report};
use crate::harness::sample::{Origin, Row};
use turn::{Systems, Turn};

/// Reads of a file, datagrams and children: beside threads, Tokio, Go and raw loops.
#[derive(Args, Debug)]
pub(crate) struct Flags {
    #[command(flatten)]
    common: Common,

    #[command(flatten)]
    cases: Cases,

    /// Rounds; in each, every system gets its turn
    #[arg(long, value_name = "N", default_value = "9")]
    runs: NonZeroUsize,

    /// Blocks of 4 KiB that the file has
    #[arg(long, value_name = "N", default_value = "16384")]
    blocks: NonZeroUsize,

    /// Datagrams in a turn
    #[arg(long, value_name = "N", default_value = "100000")]
    datagrams: NonZeroUsize,

    /// Children in a turn
    #[arg(long, value_name = "N", default_value = "1000")]
    children: NonZeroUsize,
}

/// Case and summary.
const CASES: [(&str, &str); 14] = [
    ("cached-1", "reads of 4 KiB from the page cache, one stream"),
    ("cached-16", "the same, 16 streams"),
    ("cached-256", "the same, 256 streams"),
    ("cached-4096", "the same, 4,096 streams"),
    ("uncached-1", "reads of 4 KiB from the disk, one stream"),
    ("uncached-16", "the same, 16 streams"),
    ("uncached-64", "the same, 64 streams"),
    ("uncached-256", "the same, 256 streams"),
    ("uncached-4096", "the same, 4,096 streams"),
    ("direct-1", "reads of 4 KiB past the page cache, one stream"),
    ("direct-64", "the same, 64 streams"),
    ("datagrams", "64 B sent back to 64 peers"),
    ("children", "children that end at once, 16 at a time"),
    ("look-alike", "the limit of `cached-1`, twice: the noise"),
];

pub(crate) fn run(flags: &Flags) -> anyhow::Result<()> {
    if flags.common.list {
        report::list(&CASES);
        return Ok(());
    }

    flags.cases.check(CASES.iter().map(|(name, _)| *name))?;
    let file = file::Blocks::new(flags.blocks.get())?;
    // In memory, a file has no other way.
    let direct = file.direct();
    let direct = direct.and_then(|direct| direct.prepare(false).map(|()| direct));
    let mut failures = Failures::begin()?;
    let mut rows = Vec::new();
    let mut absent = Vec::new();

    for (case, _) in CASES.iter().filter(|(name, _)| flags.cases.has(name)) {
        let systems = match *case {
            "datagrams" => datagrams::systems(flags.datagrams.get(), &mut absent),
            "children" => children::systems(flags.children.get()),
            case if case.starts_with("direct") => match &direct {
                Ok(direct) => reads::systems(case, direct),
                Err(error) => {
                    absent.push(((*case).to_owned(), format!("{error:#}")));
                    continue;
                }
            },
            case => reads::systems(case, &file),
        };

        let measured = failures.catch(case, || rounds(case, &systems, flags.runs.get()));
        rows.extend(measured.unwrap_or_default());
    }

    let parameters = vec![
        (
            "file",
            format!("{} blocks of 4 KiB, each read once a turn", flags.blocks),
        ),
        (
            "turns",
            format!(
                "{} rounds; {} datagrams, {} children a turn",
                flags.runs, flags.datagrams, flags.children
            ),
        ),
        (
            "placement",
            "datagrams: server on CPU 0, peers on CPU 1; all else where the kernel puts it"
                .to_owned(),
        ),
    ];
    let report = Report {
        experiment: "std-io",
        parameters,
        rows,
        absent,
    };

    failures.publish(report, flags.common.out(), None)
}

/// Runs a case's rounds, the order of the systems rotated from one to the next.
fn rounds(case: &str, systems: &Systems<'_>, runs: usize) -> anyhow::Result<Vec<Row>> {
    let mut turns: Vec<Vec<Turn>> = systems.iter().map(|_| Vec::new()).collect();
    for round in 0..runs {
        for at in (0..systems.len()).map(|at| (at + round) % systems.len()) {
            let (system, measure) = &systems[at];
            report::progress(&format!(
                "std-io: {case}, round {} of {runs}, {system}",
                round + 1
            ));
            let turn = measure()?;
            ensure!(!turn.is_empty(), "{system} has no figure");
            turns[at].push(turn);
        }
    }

    let origin = Origin::new("std-io");
    let mut rows = Vec::new();
    let limit = turns.last().expect("a case has systems").clone();
    for ((system, _), turns) in systems.iter().zip(&turns) {
        let ratios = turns
            .iter()
            .zip(&limit)
            .map(|(turn, limit)| turn[0].2 / limit[0].2);
        rows.push(origin.row(case, *system, "ratio_to_limit", "1", ratios.collect()));
        for (nth, (metric, unit, _)) in turns[0].iter().enumerate() {
            let values = turns.iter().map(|turn| turn[nth].2).collect();
            rows.push(origin.row(case, *system, metric, unit, values));
        }
    }
    Ok(rows)
}
