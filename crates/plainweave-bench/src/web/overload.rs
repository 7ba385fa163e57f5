//! More than a server can bear: it may use a quarter of a core, and is offered one and a half times and twice the rate
//! that it reaches there, a connection for each request, by clients that give up after a second.
//!
//! Each server's own peak is found by a closed loop. Then clients come by the clock, whether or not others were
//! answered (open loop). Counted are the answers in time, the share of clients that got none, and, twice a second, the
//! server's descriptors and its connections in CLOSE-WAIT: clients that have gone and that it has not noticed, or not
//! accepted yet. A second after the load they are counted again.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::client::{load, run_load, run_overload};
use super::server::{Kind, Server};
use super::{Bench, descriptors, site};
use crate::cgroup::Group;
use crate::report;

const CASE: &str = "overload";
/// Of one CPU.
const SHARE: f64 = 0.25;
/// Offered, as multiples of the server's peak.
const OFFERED: [f64; 2] = [1.5, 2.0];
/// What a client waits for its answer.
const PATIENCE: &str = "1s";
/// Between two looks at the server.
const LOOKS: Duration = Duration::from_millis(500);
/// For what is left to be closed.
const SETTLE: Duration = Duration::from_secs(1);

/// What a turn came to.
#[derive(Default)]
struct Turn {
    goodput: f64,
    failed: f64,
    descriptors: f64,
    memory: f64,
    close_wait: f64,
    left: f64,
}

pub(super) fn run(bench: &mut Bench) -> anyhow::Result<()> {
    if let Some(why) = Kind::Epoll.absence() {
        bench.missing(CASE, why);
        return Ok(());
    }
    if !descriptors::at_least(bench.idle) {
        bench.missing(CASE, descriptors::TOO_FEW);
        return Ok(());
    }
    let mut servers = Vec::new();
    for kind in Kind::ALL {
        if let Some(why) = kind.absence() {
            bench.missing(kind.name(), why);
            continue;
        }
        let group = Group::new(&format!("over-{}", kind.name().replace(' ', "-")), &["cpu", "cpuacct"]);
        let Some(group) = group.ok().filter(|group| group.limit(SHARE).is_ok()) else {
            bench.missing(CASE, "no cgroup of version 1 with a CPU quota is to be had here");
            return Ok(());
        };
        servers.push(Server::start(kind, &bench.site, Some(group))?);
    }
    let mut turns: Vec<Vec<[Turn; 2]>> = servers.iter().map(|_| Vec::new()).collect();
    let mut peaks = vec![Vec::new(); servers.len()];
    for round in 0..=bench.runs {
        for (n, server) in servers.iter().enumerate() {
            report::progress(&format!("web: {CASE}, round {round} of {}, {}", bench.runs, server.kind.name()));
            let peak = peak(bench, server)?;
            // The first round warms up.
            if round > 0 {
                let offered = OFFERED.map(|factor| turn(bench, server, peak * factor));
                let [half_more, twice] = offered;
                turns[n].push([half_more?, twice?]);
                peaks[n].push(peak);
            }
        }
    }
    let fact = format!("{SHARE} of a CPU; a connection a request, {} at a time, {PATIENCE} of patience", bench.idle);
    bench.facts.push((CASE, fact));
    for ((server, turns), peaks) in servers.iter().zip(&turns).zip(&peaks) {
        let name = server.kind.name();
        bench.row(CASE, name, "peak_per_second", "1/s", peaks.clone());
        for (step, factor) in OFFERED.iter().enumerate() {
            let case = format!("{CASE}-{factor}x");
            let of = |what: &dyn Fn(&Turn) -> f64| turns.iter().map(|turn| what(&turn[step])).collect::<Vec<_>>();
            let kept = of(&|turn| turn.goodput).iter().zip(peaks).map(|(good, peak)| good / peak).collect();
            bench.row(&case, name, "goodput_to_peak", "1", kept);
            bench.row(&case, name, "failed_share", "1", of(&|turn| turn.failed));
            bench.row(&case, name, "descriptors_max", "1", of(&|turn| turn.descriptors));
            bench.row(&case, name, "memory_max", "B", of(&|turn| turn.memory));
            bench.row(&case, name, "close_wait_max", "1", of(&|turn| turn.close_wait));
            bench.row(&case, name, "close_wait_after", "1", of(&|turn| turn.left));
        }
    }
    Ok(())
}

/// Requests a second in a closed loop.
fn peak(bench: &Bench, server: &Server) -> anyhow::Result<f64> {
    let csv = bench.site.dir().join("load.csv");
    let url = format!("http://{}{}", server.address, site::path(0));
    let more = ["--no-keep-alive", "--connections", "64", "--warm-up", "500ms"];
    let figures = run_load(&mut load("epoll", &url, bench.turn, &csv, &more)?, &csv)?;
    figures.check(server.kind.name())?;
    figures.get("rate")
}

/// More than that, by the clock.
fn turn(bench: &Bench, server: &Server, rate: f64) -> anyhow::Result<Turn> {
    let csv = bench.site.dir().join("load.csv");
    let url = format!("http://{}{}", server.address, site::path(0));
    let (rate, connections) = (rate.to_string(), bench.idle.to_string());
    let more = ["--no-keep-alive", "--connections", &connections, "--rate", &rate, "--arrivals", "poisson"];
    let more = [&more[..], &["--timeout", PATIENCE, "--warm-up", "1s"]].concat();
    let mut command = load("epoll", &url, bench.turn, &csv, &more)?;
    let (ended, mut turn) = (AtomicBool::new(false), Turn::default());
    let figures = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !ended.load(Ordering::Relaxed) {
                turn.descriptors = turn.descriptors.max(server.descriptors() as f64);
                turn.memory = turn.memory.max(server.memory().unwrap_or(0.0));
                turn.close_wait = turn.close_wait.max(close_wait(server.address) as f64);
                std::thread::sleep(LOOKS);
            }
        });
        let figures = run_overload(&mut command, &csv);
        ended.store(true, Ordering::Relaxed);
        figures
    })?;
    turn.goodput = figures.get("rate")?;
    turn.failed = figures.get("errors")? / figures.get("requests")?.max(1.0);
    std::thread::sleep(SETTLE);
    turn.left = close_wait(server.address) as f64;
    Ok(turn)
}

/// Connections to this address whose client has closed and whose server has not.
fn close_wait(address: SocketAddr) -> usize {
    let text = std::fs::read_to_string("/proc/net/tcp").unwrap_or_default();
    let port = format!(":{:04X}", address.port());
    let of = |line: &&str| {
        let mut words = line.split_whitespace().skip(1);
        words.next().is_some_and(|local| local.ends_with(&port)) && words.nth(1) == Some("08")
    };
    text.lines().filter(of).count()
}
