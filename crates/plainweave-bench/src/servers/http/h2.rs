//! Files of 1 KiB over HTTP/2 without TLS (prior knowledge), 32 streams of a connection:
//! `plainweave web` beside nginx.

use std::io::{Read, Write};
use std::net::SocketAddr;
use std::process::{Command, Output};
use std::time::Duration;

use anyhow::{Context, ensure};

use super::bench::Bench;
use super::kind::NO_PROGRAM;
use super::tls::{OTHERS, open, web};
use crate::harness::machine;
use crate::serving::nginx;
use crate::serving::process::Process;
use crate::serving::rounds::Rounds;
use crate::serving::site::{self, SIZE};

const CASE: &str = "h2";
/// What a client of HTTP/2 says first: its preface and empty settings (RFC 9113, section 3.4).
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
/// The type of a frame of settings.
const SETTINGS: u8 = 4;
const HEADER: usize = 9;

pub(super) fn run(bench: &mut Bench) -> anyhow::Result<()> {
    if !machine::installed("h2load") {
        bench.findings.missing(
            CASE,
            "h2load is not installed; Debian's package is nghttp2-client",
        );
        return Ok(());
    }

    let servers = start(bench)?;
    if servers.is_empty() {
        return Ok(());
    }
    let load = |server: &Process, length: Duration| {
        let mut command = Command::new("h2load");
        command.args([
            "-c",
            "1",
            "-m",
            "32",
            "-t",
            "1",
            "-D",
            &length.as_secs().max(1).to_string(),
        ]);
        command.arg(format!("http://{}{}", server.address, site::path(0)));
        command
    };

    let rounds = Rounds {
        name: &format!("{}: {CASE}", bench.findings.origin().name()),
        runs: bench.runs,
        turn: bench.turn,
    };

    let processes: Vec<_> = servers.iter().map(|(_, server)| server).collect();
    let costs = rounds.run(&processes, load, requests, |_| Ok(()))?;
    let named: Vec<_> = servers.iter().map(|(name, _)| *name).zip(costs).collect();
    bench.compare(
        CASE,
        ["cpu_us_per_request", "requests_per_second"],
        &named,
        OTHERS,
    );

    Ok(())
}

/// Starts those that speak HTTP/2.
fn start(bench: &mut Bench) -> anyhow::Result<Vec<(&'static str, Process)>> {
    let mut servers = Vec::new();
    for (name, driver) in [("plainweave epoll", "epoll"), ("plainweave uring", "uring")] {
        let Some(command) = web(&bench.site, driver, &["--listen", "127.0.0.1:0"]) else {
            bench.findings.missing(CASE, NO_PROGRAM);
            break;
        };

        match Process::start(name, &command, None, 1, None) {
            Ok(server) if speaks(server.address)? => servers.push((name, server)),
            Ok(_) => bench
                .findings
                .missing(format!("{CASE}, {name}"), "it does not speak HTTP/2"),
            Err(error) if driver == "uring" => bench.findings.missing(name, format!("{error:#}")),
            Err(error) => return Err(error),
        }
    }

    match nginx::absence() {
        Some(why) => bench.findings.missing("nginx", why),
        None => {
            // A connection is used for as long as the load goes on.
            let server = format!(
                "root {}; http2_max_concurrent_streams 128;",
                bench.site.root().display()
            );
            let settings = nginx::Settings {
                workers: 1,
                listen: "http2",
                server: &server,
                ..Default::default()
            };

            let (command, address) = nginx::command(bench.site.dir(), &settings)?;
            let server = Process::start("nginx", &command, Some(address), 1, None)?;
            ensure!(speaks(server.address)?, "nginx does not speak HTTP/2");
            servers.push(("nginx", server));
        }
    }

    Ok(servers)
}

/// Returns whether a server answers the preface with settings.
fn speaks(address: SocketAddr) -> anyhow::Result<bool> {
    let mut stream = open(address)?;
    stream.write_all(PREFACE)?;
    let mut header = [0; HEADER];

    // One that knows nothing of it may close the connection, or answer in HTTP/1.1.
    Ok(stream.read_exact(&mut header).is_ok()
        && header[3] == SETTINGS
        && !header.starts_with(b"HTTP"))
}

/// Returns how many requests were answered. Failures and other answers than those that were asked
/// for are errors.
fn requests(output: &Output) -> anyhow::Result<f64> {
    let text = String::from_utf8_lossy(&output.stdout);
    ensure!(
        output.status.success(),
        "h2load: {}{text}",
        String::from_utf8_lossy(&output.stderr)
    );
    let count = |line: &str, word: &str| -> Option<f64> {
        let line = text.lines().find(|found| found.starts_with(line))?;
        line.split([':', ','])
            .find_map(|part| part.trim().strip_suffix(word)?.trim().parse().ok())
    };

    // h2load has no other output that a program could read.
    let answered = count("requests:", "succeeded")
        .with_context(|| format!("h2load said nothing of requests: {text}"))?;
    ensure!(
        count("requests:", "failed") == Some(0.0),
        "h2load saw failures: {text}"
    );
    let bytes = text
        .lines()
        .find(|line| line.starts_with("traffic:"))
        .and_then(|line| {
            let (_, data) = line.rsplit_once(", ")?;
            data.split(['(', ')']).nth(1)?.parse::<f64>().ok()
        });

    // What comes within the last moment may count as bytes and not as an answer.
    ensure!(
        bytes.is_some_and(|bytes| bytes >= answered * SIZE as f64),
        "h2load got too few bytes: {text}"
    );
    Ok(answered)
}
