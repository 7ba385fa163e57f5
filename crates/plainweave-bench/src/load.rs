//! Is `plainweave load` to be believed? What it costs a server and itself, beside other load
//! generators, and what it says of latencies that are known.
//!
//! `generators`: the generators take turns, in another order each round, with the same connections
//! and depth on one server, closed loop. A server spends on a request what it spends, whoever asks:
//! if its CPU per request is another under one generator, that generator asks in another way. wrk
//! takes part twice; what lies between its two turns of a round is the noise (A/A).
//!
//! `oracle`: an open loop on a server that sleeps, and notes for how long each request was with it.
//! Its own percentiles are what a generator has to find, but for the way there and back.

mod bench; // What the cases share: how much they measure, and what they have found.
mod generators; // CPU per request, of the server and of the generator.
mod oracle; // Latencies that are known.

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::ensure;
use clap::Args;

use crate::findings::Findings;
use crate::machine;
use crate::names;
use crate::report::{self, Failures};
use crate::sample::Origin;
use crate::servers::site::Site;
use crate::servers::web as server;
use crate::servers::wrk;
use crate::servers::{nginx, seconds};
use bench::Bench;

/// The load generators: what they cost, and whether they are right.
#[derive(Args, Debug)]
pub(crate) struct Flags {
    /// Print the cases and what they measure, and run nothing
    #[arg(long)]
    list: bool,

    /// Run only these
    #[arg(long, value_name = "A,B", value_delimiter = ',')]
    cases: Vec<String>,

    /// Connections
    #[arg(long, value_name = "N", default_value = "64")]
    connections: NonZeroUsize,

    /// Rounds; in each, every generator gets its turn
    #[arg(long, value_name = "N", default_value = "15")]
    runs: NonZeroUsize,

    /// Length of a turn
    #[arg(long, value_name = "SECONDS", default_value = "3", value_parser = seconds)]
    seconds: Duration,

    /// Where the CSV and the report go [default: results/<date>-<host>; below target if
    /// this program was built with changes]
    #[arg(long, value_name = "DIR", value_parser = crate::machine::out)]
    out: Option<PathBuf>,
}

/// A case: its name, what it measures, how.
struct Case {
    name: &'static str,
    summary: &'static str,
    run: fn(&mut Bench) -> anyhow::Result<()>,
}

const CASES: [Case; 2] = [
    Case {
        name: "generators",
        summary: "CPU per request of a server and of its load generator, closed loop",
        run: generators::run,
    },
    Case {
        name: "oracle",
        summary: "p50 and p99 of an open loop, beside those of a server that sleeps",
        run: oracle::run,
    },
];

pub(crate) fn run(flags: &Flags) -> anyhow::Result<()> {
    if flags.list {
        CASES
            .iter()
            .for_each(|case| report::say(&format!("{:<16} {}", case.name, case.summary)));
        return Ok(());
    }

    names::check("case", &flags.cases, CASES.iter().map(|case| case.name))?;
    ensure!(
        server::plainweave_program().is_some(),
        "the program plainweave is not beside plainweave-bench"
    );
    let connections = flags.connections.get();
    let runs = flags.runs.get();
    let turn = flags.seconds;
    let site = Site::new()?;
    let mut bench = Bench {
        connections,
        runs,
        turn,
        site,
        findings: Findings::of(Origin::new("load")),
    };

    let chosen =
        |case: &&Case| flags.cases.is_empty() || flags.cases.iter().any(|name| name == case.name);
    let mut failures = Failures::begin()?;
    for case in CASES.iter().filter(chosen) {
        failures.catch(&format!("the case {}", case.name), || {
            (case.run)(&mut bench)
        });
    }

    let mut parameters = vec![
        (
            "rounds",
            format!(
                "{runs}, the generators in turn, {} s for each",
                turn.as_secs_f64()
            ),
        ),
        (
            "placement",
            "servers on CPU 0, generators on CPU 1, a thread each".to_owned(),
        ),
        ("nginx", nginx::version()),
        ("wrk", wrk::version()),
    ];
    if machine::cpus() < 2 {
        parameters.push((
            "warning",
            "one CPU: servers and generators share it".to_owned(),
        ));
    }

    failures.publish(
        bench.findings.report(parameters),
        flags.out.as_deref(),
        None,
    )
}
