//! What the access log costs: each server beside itself without a log.

use super::bench::Bench;
use super::requests;
use crate::harness::machine;
use crate::serving::catalog::Catalog;
use crate::serving::closed::Load;
use crate::serving::process::Conditions;
use crate::serving::rounds::Costs;
use crate::serving::web::{Kind, Server};
use plainweave_report::statistics::ratios;

const CASE: &str = "access-log";
const CONNECTIONS: usize = 64;

pub(super) fn run(bench: &mut Bench) -> anyhow::Result<()> {
    if !machine::installed("wrk") {
        bench.findings.missing(CASE, "wrk is not installed");
        return Ok(());
    }

    let mut servers = Vec::new();
    for kind in [Kind::Epoll, Kind::Uring] {
        if let Some(why) = kind.absence() {
            bench.findings.missing(kind.name(), why);
            continue;
        }

        let name = kind.name();
        servers.push((
            name.to_owned(),
            Server::start(kind, &bench.site, Conditions::default())?,
        ));
        for format in ["combined", "json"] {
            let log = bench
                .site
                .dir()
                .join(format!("{}-{format}.log", name.replace(' ', "-")));
            let log = log.to_string_lossy();
            let server = Server::start(
                kind,
                &bench.site,
                Conditions {
                    arguments: &["--access-log", &log, "--log-format", format],
                    ..Conditions::default()
                },
            )?;
            servers.push((format!("{name} {format} log"), server));
        }
    }

    let named: Vec<_> = servers
        .iter()
        .map(|(name, server)| (name.clone(), server))
        .collect();
    let load = Load::kept(CONNECTIONS, Catalog::small());
    let costs = requests::measure(bench, CASE, &named, &load)?;
    for (n, ((name, _), Costs { cpu, rate })) in servers.iter().zip(&costs).enumerate() {
        bench
            .findings
            .row(CASE, name, "cpu_us_per_request", "us", cpu.clone());
        bench
            .findings
            .row(CASE, name, "requests_per_second", "1/s", rate.clone());
        // Each silent server is followed by its two that log.
        let silent = &costs[n - n % 3].cpu;

        if n % 3 > 0 {
            let ratios = ratios(cpu, silent);
            bench
                .findings
                .row(CASE, name, "ratio_to_silent", "1", ratios);
        }
    }

    Ok(())
}
