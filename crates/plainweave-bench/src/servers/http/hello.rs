//! A fixed answer over connections that are kept alive: what a library adds to the calls that it
//! makes. Its length is known, or it is sent in chunks.

use anyhow::Context;

use super::bench::Bench;
use super::kind::{BODY, Coding};
use super::system::{OTHERS, SYSTEMS, System};
use crate::harness::machine;
use crate::harness::report;
use crate::serving::process::Process;
use crate::serving::rounds::Rounds;
use crate::serving::site::{self, Checker};
use crate::serving::wrk;

pub(super) fn run(bench: &mut Bench) -> anyhow::Result<()> {
    measure(bench, "hello", Coding::Length)
}

pub(super) fn run_chunked(bench: &mut Bench) -> anyhow::Result<()> {
    measure(bench, "hello-chunked", Coding::Chunked)
}

fn measure(bench: &mut Bench, case: &'static str, coding: Coding) -> anyhow::Result<()> {
    if !machine::installed("wrk") {
        bench.findings.missing(case, "wrk is not installed");
        return Ok(());
    }

    let servers = start(bench, case, coding)?;
    let mut checkers = Vec::new();
    for (system, server) in &servers {
        let mut checker = Checker::connect(server.address)?;
        let head = checker.check("/", BODY.as_bytes()).context(system.name)?;
        let chunked = site::is_chunked(&head);
        anyhow::ensure!(
            chunked == (coding == Coding::Chunked),
            "{}: is not {coding:?}: {head}",
            system.name
        );
        bench.findings.facts.push((
            "head",
            format!("{case}, {}: {} bytes", system.name, head.len()),
        ));
        checkers.push((system.name, checker));
    }

    let sample = |count: usize| {
        let among = checkers.len();
        let (name, checker) = &mut checkers[count % among];
        checker
            .check("/", BODY.as_bytes())
            .map(|_| ())
            .context(*name)
    };

    let connections = bench.sizes.connections;
    let load = |server: &Process, length| {
        wrk::command(&format!("http://{}/", server.address), connections, length)
    };
    let rounds = Rounds {
        name: &format!("{}: {case}", bench.findings.origin().name()),
        runs: bench.runs,
        turn: bench.turn,
    };

    let processes: Vec<_> = servers.iter().map(|(_, server)| server).collect();
    let costs = rounds.run(&processes, load, wrk::requests, sample)?;
    let named: Vec<_> = servers
        .iter()
        .map(|(system, _)| system.name)
        .zip(costs)
        .collect();
    bench.compare(
        case,
        ["cpu_us_per_request", "requests_per_second"],
        &named,
        OTHERS,
    );

    Ok(())
}

/// Starts all systems that there are.
pub(super) fn start(
    bench: &mut Bench,
    case: &str,
    coding: Coding,
) -> anyhow::Result<Vec<(System, Process)>> {
    let mut servers = Vec::new();
    for system in SYSTEMS {
        if let Some(why) = system.lacks(coding) {
            bench
                .findings
                .missing(format!("{case}: {}", system.name), why);
            continue;
        }

        report::progress(&format!(
            "{}: {case}, starting {}",
            bench.findings.origin().name(),
            system.name
        ));
        match system.start(&bench.site, coding) {
            Ok(server) => servers.push((system, server)),
            Err(error) if system.is_optional() => {
                bench.findings.missing(system.name, format!("{error:#}"))
            }
            Err(error) => return Err(error),
        }
    }
    Ok(servers)
}
