//! Server CPU per request, closed loop; bodies are sampled while the load runs.

use anyhow::Context;

use super::bench::Bench;
use crate::harness::machine;
use crate::serving::closed::Load;
use crate::serving::driver::Driver;
use crate::serving::process::Conditions;
use crate::serving::process::Process;
use crate::serving::rounds::{Costs, Rounds};
use crate::serving::site::Checker;
use crate::serving::web::{Kind, Server};
use crate::serving::wrk;

/// Bytes of a body up to which sending it from memory costs less than sending it from a file.
/// `sendfile` does not copy, so beyond that the raw loop would be no limit.
const COPIED: usize = 128 << 10;

/// nginx and ours under the same load, and the limits of this machine where all bodies have one
/// length, not a large one.
pub(super) fn run(bench: &mut Bench, case: &'static str, load: &Load) -> anyhow::Result<()> {
    if !machine::installed("wrk") {
        bench.findings.missing(case, "wrk is not installed");
        return Ok(());
    }

    // Small files are kept open too while they are served; all of a mix fits.
    let kinds = [&Kind::ALL[..], &[Kind::UringAgain]].concat();
    let mut servers = bench.servers(&kinds, &["--open-files", "4000"])?;
    if let Some(length) = load.catalog.length().filter(|length| *length <= COPIED) {
        let length = length.to_string();
        let arguments = [
            &["--bytes", &length][..],
            if load.close { &["--close"] } else { &[] },
        ]
        .concat();
        for io in [Driver::Epoll, Driver::Uring] {
            let kind = Kind::Limit(io);
            if let Some(why) = kind.absence() {
                bench.findings.missing(kind.name(), why);
                continue;
            }
            let under = Conditions {
                arguments: &arguments,
                ..Conditions::default()
            };
            servers.push(Server::start(kind, &bench.site, under)?);
        }
    }

    let named: Vec<_> = servers
        .iter()
        .map(|server| (server.kind.name().to_owned(), server))
        .collect();
    let costs = measure(bench, case, &named, load)?;
    let of = |kind| {
        servers
            .iter()
            .position(|server| server.kind == kind)
            .map(|n| costs[n].cpu.clone())
    };

    let nginx = of(Kind::Nginx);
    let limits = [
        ("ratio_to_limit", Kind::Limit(Driver::Epoll)),
        ("ratio_to_limit_uring", Kind::Limit(Driver::Uring)),
    ]
    .map(|(metric, kind)| (metric, kind, of(kind)));
    for (server, Costs { cpu, rate }) in servers.iter().zip(costs) {
        let name = server.kind.name();
        bench
            .findings
            .row(case, name, "cpu_us_per_request", "us", cpu.clone());
        bench
            .findings
            .row(case, name, "requests_per_second", "1/s", rate);

        if server.kind != Kind::Nginx {
            bench
                .findings
                .ratio(case, name, ("ratio_to_nginx", nginx.as_ref()), &cpu);
        }

        for (metric, _, limit) in limits.iter().filter(|(_, kind, _)| *kind != server.kind) {
            bench
                .findings
                .ratio(case, name, (metric, limit.as_ref()), &cpu);
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
    let script = wrk::script(&bench.site, case, load)?;
    let mut checkers = Vec::new();
    // The limits send bytes of the right number.
    for (name, server) in servers
        .iter()
        .filter(|(_, server)| !matches!(server.kind, Kind::Limit(_)))
    {
        // All files once: checked, and known to the server.
        let mut checker = Checker::connect(server.address)?;
        let mut head = String::new();
        for item in &load.catalog.items {
            head = checker.check(&item.path, &item.content())?;
        }
        let fields: Vec<_> = head
            .lines()
            .skip(1)
            .filter_map(|l| Some(l.split_once(':')?.0))
            .collect();
        let fact = format!("head of {} bytes: {}", head.len(), fields.join(", "));

        if server.kind.name() == name
            && !bench
                .findings
                .facts
                .iter()
                .any(|(known, _)| *known == server.kind.name())
        {
            bench.findings.facts.push((server.kind.name(), fact));
        }
        checkers.push((name, checker));
    }
    let mut sampled = 0;
    let sample = |count: usize| {
        let item = &load.catalog.items[count * 37 % load.catalog.items.len()];
        let among = checkers.len();
        let Some((name, checker)) = checkers.get_mut(count % among.max(1)) else {
            return Ok(());
        };
        sampled += 1;
        checker
            .check(&item.path, &item.content())
            .map(|_| ())
            .with_context(|| (*name).clone())
    };

    let rounds = Rounds {
        name: &format!("web: {case}"),
        runs: bench.runs,
        turn: bench.turn,
    };

    let processes: Vec<&Process> = servers.iter().map(|(_, server)| &***server).collect();
    let command = |server: &Process, length| {
        let mut command = wrk::command(
            &format!("http://{}/", server.address),
            load.connections,
            length,
        );
        command.arg("-s").arg(&script);
        command
    };

    let costs = rounds.run(&processes, command, wrk::requests, sample)?;
    let counted = servers
        .iter()
        .all(|(_, server)| server.counts_kernel_threads());
    let how = if counted {
        "cpuacct cgroup, kernel threads included"
    } else {
        "threads of the processes"
    };

    bench
        .findings
        .facts
        .push(("CPU counted by", format!("{how} ({case})")));
    let connections = match (load.connections, load.close) {
        (n, true) => format!("{n} at a time, one for each request"),
        (n, false) => format!("{n}, kept alive"),
    };

    bench.findings.facts.push((
        "load",
        format!(
            "{case}: {}; connections: {connections}",
            load.catalog.describe()
        ),
    ));
    bench.findings.facts.push((
        "bodies checked",
        format!("{sampled} while the load ran, all files before ({case})"),
    ));
    Ok(costs)
}
