//! Idle keep-alive connections: memory of each, and CPU while nothing happens.
//!
//! Every connection has had two requests, the second for a file not requested before. So that the
//! caches' memory is not counted as the connections', they are bounded (ours by `--cache 4m`,
//! nginx's by its open-file cache) and full before the first measurement.

use std::net::TcpStream;
use std::time::Duration;

use super::bench::Bench;
use crate::harness::descriptors;
use crate::harness::report;
use crate::serving::process::Conditions;
use crate::serving::site::{self, Checker, FILES, SIZE, Site};
use crate::serving::web::{Kind, Server};

const CASE: &str = "idle-10000";
/// Settings of ours: a bounded cache, patience.
const SETTINGS: [&str; 6] = [
    "--cache",
    "4m",
    "--idle-timeout",
    "10m",
    "--header-timeout",
    "10m",
];
/// For stacks to be trimmed and the like.
const SETTLE: Duration = Duration::from_secs(2);
/// Both are shorter where a turn is.
const IDLENESS: Duration = Duration::from_secs(5);
/// Each starts its own servers, which takes a while.
const MOST_RUNS: usize = 3;

pub(super) fn run(bench: &mut Bench) -> anyhow::Result<()> {
    if !descriptors::at_least(bench.sizes.idle) {
        bench.findings.missing(CASE, descriptors::TOO_FEW);
        return Ok(());
    }

    for number in 0..2 * bench.sizes.idle {
        bench.site.add(&cold(number), number, SIZE)?;
    }
    for kind in [
        Kind::Nginx,
        Kind::Epoll,
        Kind::Uring,
        Kind::EpollFibers,
        Kind::UringFibers,
    ] {
        if let Some(why) = kind.absence() {
            bench.findings.missing(kind.name(), why);
            continue;
        }

        let mut memory = Vec::new();
        let mut cpu = Vec::new();
        for run in 1..=bench.runs.min(MOST_RUNS) {
            report::progress(&format!("web: {CASE}, run {run}, {}", kind.name()));
            let (bytes, share) = measure(kind, &bench.site, bench.sizes.idle, bench.turn)?;
            memory.push(bytes);
            cpu.push(share);
        }

        bench
            .findings
            .row(CASE, kind.name(), "bytes_per_connection", "B", memory);
        bench
            .findings
            .row(CASE, kind.name(), "idle_cpu", "ms/s", cpu);
    }

    bench.findings.facts.push((
        "idle connections",
        format!(
            "{}, memory as PSS of all processes of a server",
            bench.sizes.idle
        ),
    ));
    Ok(())
}

/// Returns the bytes a connection takes, and milliseconds of CPU in a second of idleness.
fn measure(
    kind: Kind,
    site: &Site,
    connections: usize,
    turn: Duration,
) -> anyhow::Result<(f64, f64)> {
    let settle = SETTLE.min(turn);
    let idleness = IDLENESS.min(turn * 2);
    let server = Server::start(
        kind,
        site,
        Conditions {
            arguments: &SETTINGS,
            ..Conditions::default()
        },
    )?;
    let mut checker = Checker::connect(server.address)?;
    for number in 0..FILES {
        checker.check(&site::path(number), &site::content(number, SIZE))?;
    }
    for number in connections..2 * connections {
        checker.check(&cold(number), &site::content(number, SIZE))?;
    }
    std::thread::sleep(settle);
    let before = server.memory()?;
    let mut open: Vec<TcpStream> = Vec::with_capacity(connections);

    for number in 0..connections {
        let mut checker = Checker::connect(server.address)?;
        checker.check(
            &site::path(number % FILES),
            &site::content(number % FILES, SIZE),
        )?;
        checker.check(&cold(number), &site::content(number, SIZE))?;
        open.push(checker.into_stream());
    }

    std::thread::sleep(settle);
    let bytes = (server.memory()? - before) / connections as f64;
    let cpu = server.cpu_ns()?;
    std::thread::sleep(idleness);
    let cpu = (server.cpu_ns()? - cpu) as f64 / 1e6 / idleness.as_secs_f64();

    // They are alive, not given up.
    for stream in open.iter().step_by((connections / 100).max(1)) {
        stream.set_nonblocking(true)?;
        let error = stream.peek(&mut [0]).err().map(|error| error.kind());
        anyhow::ensure!(
            error == Some(std::io::ErrorKind::WouldBlock),
            "{} ended idle connections",
            kind.name()
        );
    }

    Ok((bytes, cpu))
}

/// Returns a path that no other part of the load asks for.
fn cold(number: usize) -> String {
    format!("/cold{:03}/{number:06}.txt", number % 200)
}
