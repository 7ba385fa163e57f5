//! Server CPU per request, closed loop; bodies are sampled while the load runs.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, ensure};

use super::bench::{Bench, SetOnDrop};
use super::catalog::Catalog;
use super::server::{Kind, Server};
use super::site::Checker;
use super::{slices, wrk};
use crate::{machine, report};

/// Between two samples of a server: a few a second, next to nothing beside the load.
const SAMPLES: Duration = Duration::from_millis(100);
/// A case has failed that sees no answer in as long as this.
const IN_VAIN: Duration = Duration::from_secs(20);

/// What is asked for, over how many connections.
pub(super) struct Load {
    pub(super) catalog: Catalog,
    pub(super) connections: usize,
    /// A connection for each request.
    pub(super) close: bool,
}

/// What a server cost, a value a round.
#[derive(Clone, Debug, Default)]
pub(super) struct Costs {
    pub(super) cpu: Vec<f64>,
    pub(super) rate: Vec<f64>,
}

/// nginx and ours under the same load.
pub(super) fn run(bench: &mut Bench, case: &'static str, load: &Load) -> anyhow::Result<()> {
    if !machine::installed("wrk") {
        bench.missing(case, "wrk is not installed");
        return Ok(());
    }
    // Small files are kept open too while they are served; all of a mix fits.
    let servers = bench.servers(&Kind::ALL, &["--open-files", "4000"])?;
    let named: Vec<_> = servers.iter().map(|server| (server.kind.name().to_owned(), server)).collect();
    let costs = measure(bench, case, &named, load)?;
    let nginx = servers.iter().position(|server| server.kind == Kind::Nginx).map(|n| costs[n].cpu.clone());
    for (server, Costs { cpu, rate }) in servers.iter().zip(costs) {
        let name = server.kind.name();
        bench.row(case, name, "cpu_us_per_request", "us", cpu.clone());
        bench.row(case, name, "requests_per_second", "1/s", rate);
        if server.kind != Kind::Nginx {
            bench.ratio(case, name, &cpu, nginx.as_ref());
        }
    }
    Ok(())
}

/// Checks all files on all servers, then puts the load on each in slices, round after round.
pub(super) fn measure(
    bench: &mut Bench,
    case: &str,
    servers: &[(String, &Server)],
    load: &Load,
) -> anyhow::Result<Vec<Costs>> {
    let script = wrk::script(&bench.site, case, &load.catalog, load.close)?;
    let mut costs = vec![Costs::default(); servers.len()];
    let mut sampled = 0;
    for (name, server) in servers {
        // All files once: checked, and known to the server.
        let mut checker = Checker::connect(server.address)?;
        let mut head = String::new();
        for item in &load.catalog.items {
            head = checker.check(&item.path, &item.content())?;
        }
        let fields: Vec<_> = head.lines().skip(1).filter_map(|l| Some(l.split_once(':')?.0)).collect();
        let fact = format!("head of {} bytes: {}", head.len(), fields.join(", "));
        if server.kind.name() == name && !bench.facts.iter().any(|(known, _)| *known == server.kind.name()) {
            bench.facts.push((server.kind.name(), fact));
        }
    }
    // wrk takes whole seconds: they are what the servers share.
    let count = servers.len() as u32;
    let seconds = |turn: Duration| Duration::from_secs_f64((turn * count).as_secs_f64().ceil());
    let (mut round, mut turn) = (0, bench.turn);
    while round <= bench.runs {
        let all = seconds(turn);
        report::progress(&format!("web: {case}, round {round} of {}, {count} systems", bench.runs));
        let before = servers.iter().map(|(_, server)| server.cpu_ns()).collect::<Result<Vec<_>, _>>()?;
        let wrk = |(_, server): &(String, &Server)| {
            let mut command = wrk::command(server.address, "/", load.connections, all);
            command.arg("-s").arg(&script);
            command
        };
        let mut commands: Vec<_> = servers.iter().map(wrk).collect();
        let (outputs, samples) = sampling(servers, load, || slices::run(&mut commands, all))?;
        sampled += samples;
        let requests = outputs.iter().map(wrk::requests).collect::<Result<Vec<_>, _>>()?;
        // On a machine that has other work a short slice may see no answer, which tells nothing of the server.
        if requests.contains(&0.0) {
            ensure!(turn < IN_VAIN, "{case}: no answer within {turn:?}");
            turn *= 2;
            continue;
        }
        for (n, (_, server)) in servers.iter().enumerate() {
            let requests = requests[n];
            let cost = (server.cpu_ns()? - before[n]) as f64 / 1000.0 / requests;
            // The first round warms up.
            if round > 0 {
                costs[n].cpu.push(cost);
                costs[n].rate.push(requests * f64::from(count) / all.as_secs_f64());
            }
        }
        round += 1;
    }
    let counted = servers.iter().all(|(_, server)| server.counts_kernel_threads());
    let how = if counted { "cpuacct cgroup, kernel threads included" } else { "threads of the processes" };
    bench.facts.push(("CPU counted by", format!("{how} ({case})")));
    let connections = match (load.connections, load.close) {
        (n, true) => format!("{n} at a time, one for each request"),
        (n, false) => format!("{n}, kept alive"),
    };
    bench.facts.push(("load", format!("{case}: {}; connections: {connections}", load.catalog.describe())));
    bench.facts.push(("bodies checked", format!("{sampled} while the load ran, all files before ({case})")));
    Ok(costs)
}

/// Runs the load and compares a body now and then meanwhile, of one server after the other.
fn sampling<T>(
    servers: &[(String, &Server)],
    load: &Load,
    run: impl FnOnce() -> anyhow::Result<T>,
) -> anyhow::Result<(T, usize)> {
    let ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let sampler = scope.spawn(|| -> anyhow::Result<usize> {
            let checkers = servers.iter().map(|(_, server)| Checker::connect(server.address));
            let mut checkers = checkers.collect::<Result<Vec<_>, _>>()?;
            let mut count = 0;
            while !ended.load(Ordering::Relaxed) {
                let item = &load.catalog.items[count * 37 % load.catalog.items.len()];
                let among = checkers.len();
                let checked = checkers[count % among].check(&item.path, &item.content());
                checked.with_context(|| servers[count % among].0.clone())?;
                count += 1;
                std::thread::sleep(SAMPLES / among as u32);
            }
            Ok(count)
        });
        let result = {
            let _end = SetOnDrop(&ended);
            run()
        };
        let samples = sampler.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        Ok((result?, samples))
    })
}
