//! Is `plainweave load` to be believed? What it costs a server and itself, beside other load
//! generators, and what it says of latencies that are known.
//!
//! `generators`: the generators take turns, in another order each round, with the same connections
//! and depth on one server, closed loop. A server spends on a request what it spends, whoever asks:
//! if its CPU per request is another under one generator, that generator asks in another way. wrk
//! takes part twice; what lies between its two turns of a round is the noise (A/A).
//!
//! `oracle`: an open loop on a server that sleeps, and notes for how long each request was with it.
//! Its own percentiles are what a generator has to find, but for the way there and back: ours, and
//! published ones where they are installed.

mod generators; // CPU per request, of the server and of the generator.
mod oracle; // Latencies that are known.
mod witness; // Published generators, whose word stands beside ours.

use std::num::NonZeroUsize;
use std::time::Duration;

use anyhow::ensure;
use clap::Args;

use crate::harness::experiment::{Cases, Common};
use crate::serving::bench::{Bench, Case, chosen, list};
use crate::serving::web as server;
use crate::serving::wrk;
use crate::serving::{nginx, seconds};

/// The load generators: what they cost, and whether they are right.
#[derive(Args, Debug)]
pub(crate) struct Flags {
    #[command(flatten)]
    common: Common,

    #[command(flatten)]
    cases: Cases,

    /// Connections
    #[arg(long, value_name = "N", default_value = "64")]
    connections: NonZeroUsize,

    /// Rounds; in each, every generator gets its turn
    #[arg(long, value_name = "N", default_value = "15")]
    runs: NonZeroUsize,

    /// Length of a turn
    #[arg(long, value_name = "SECONDS", default_value = "3", value_parser = seconds)]
    seconds: Duration,
}

/// Their only size is the connections of a closed loop.
const CASES: [Case<usize>; 2] = [
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
    if flags.common.list {
        list(CASES.iter());
        return Ok(());
    }

    let cases = chosen(&CASES, &flags.cases)?;
    ensure!(
        server::plainweave_program().is_some(),
        "the program plainweave is not beside plainweave-bench"
    );
    let parameters = vec![
        (
            "rounds",
            format!(
                "{}, the generators in turn, {} s for each",
                flags.runs,
                flags.seconds.as_secs_f64()
            ),
        ),
        (
            "placement",
            "servers on CPU 0, generators on CPU 1, a thread each".to_owned(),
        ),
        ("nginx", nginx::version()),
        ("wrk", wrk::version()),
    ];

    Bench::new(
        "load",
        flags.runs.get(),
        flags.seconds,
        flags.connections.get(),
    )?
    .publish(cases, parameters, &flags.common)
}
