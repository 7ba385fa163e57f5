//! Server CPU per request, closed loop; bodies are sampled while the load runs.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::server::Kind;
use super::site::{self, Checker, FILES};
use super::{Bench, wrk};
use crate::{machine, report};

/// Between two samples: a few a second, next to nothing beside the load.
const SAMPLES: Duration = Duration::from_millis(100);

pub(super) fn run(bench: &mut Bench, case: &'static str, connections: usize) -> anyhow::Result<()> {
    if !machine::installed("wrk") {
        bench.missing("1k-64, 1k-1024", "wrk is not installed");
        return Ok(());
    }
    let servers = bench.servers(&Kind::ALL)?;
    let script = wrk::script(&bench.site)?;
    let mut costs = vec![Vec::new(); servers.len()];
    let mut rates = vec![Vec::new(); servers.len()];
    let mut sampled = 0;
    for server in &servers {
        // All files once: checked, and known to the server.
        let mut checker = Checker::connect(server.address)?;
        let heads: Vec<_> =
            (0..FILES).map(|n| checker.check(&site::path(n), &site::content(n))).collect::<anyhow::Result<_>>()?;
        let names: Vec<_> = heads[0].lines().skip(1).filter_map(|l| Some(l.split_once(':')?.0)).collect();
        let fact = format!("head of {} bytes: {}", heads[0].len(), names.join(", "));
        if !bench.facts.iter().any(|(name, _)| *name == server.kind.name()) {
            bench.facts.push((server.kind.name(), fact));
        }
    }
    for round in 0..=bench.runs {
        for (n, server) in servers.iter().enumerate() {
            report::progress(&format!("web: {case}, round {round} of {}, {}", bench.runs, server.kind.name()));
            let mut command = wrk::command(server.address, "/", connections, bench.turn);
            let before = server.cpu_ns()?;
            let (turn, samples) = sampling(server.address, || wrk::run(command.arg("-s").arg(&script)))?;
            let cost = (server.cpu_ns()? - before) as f64 / 1000.0 / turn.requests;
            sampled += samples;
            // The first round warms up.
            if round > 0 {
                costs[n].push(cost);
                rates[n].push(turn.per_second);
            }
        }
    }
    let counted = servers.iter().all(|server| server.counts_kernel_threads());
    let how = if counted { "cpuacct cgroup, kernel threads included" } else { "threads of the processes" };
    bench.facts.push(("CPU counted by", format!("{how} ({case})")));
    bench.facts.push(("bodies checked", format!("{sampled} while the load ran, all files before ({case})")));
    let nginx = servers.iter().position(|server| server.kind == Kind::Nginx).map(|n| costs[n].clone());
    for (n, server) in servers.iter().enumerate() {
        let name = server.kind.name();
        bench.row(case, name, "cpu_us_per_request", "us", costs[n].clone());
        bench.row(case, name, "requests_per_second", "1/s", rates[n].clone());
        if server.kind != Kind::Nginx {
            bench.ratio(case, name, &costs[n], nginx.as_ref());
        }
    }
    Ok(())
}

/// Runs the load and compares a body now and then meanwhile.
fn sampling<T>(address: SocketAddr, load: impl FnOnce() -> anyhow::Result<T>) -> anyhow::Result<(T, usize)> {
    let ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let sampler = scope.spawn(|| -> anyhow::Result<usize> {
            let mut checker = Checker::connect(address)?;
            let mut count = 0;
            while !ended.load(Ordering::Relaxed) {
                let number = count * 37 % FILES;
                checker.check(&site::path(number), &site::content(number))?;
                count += 1;
                std::thread::sleep(SAMPLES);
            }
            Ok(count)
        });
        let result = load();
        ended.store(true, Ordering::Relaxed);
        let samples = sampler.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        Ok((result?, samples))
    })
}
