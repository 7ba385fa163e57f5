//! CPU per request with two workers beside that with one: what the workers share, and what it
//! costs. Servers and client share two CPUs, so each server may use the time of one.

use std::time::Duration;

use super::bench::Bench;
use crate::harness::cgroup::{Group, NO_QUOTA};
use crate::harness::machine;
use crate::harness::report;
use crate::serving::catalog::Catalog;
use crate::serving::closed::Load;
use crate::serving::process::Conditions;
use crate::serving::rounds::Costs;
use crate::serving::site::Checker;
use crate::serving::web::{Kind, Server};
use crate::serving::wrk;
use plainweave_report::statistics::ratios;

pub(super) const CASE: &str = "1k-1024-2";
const CONNECTIONS: usize = 1024;

pub(super) fn run(bench: &mut Bench) -> anyhow::Result<()> {
    if !machine::installed("wrk") {
        bench.findings.missing(CASE, "wrk is not installed");
        return Ok(());
    }

    if machine::cpus() < 2 {
        bench.findings.missing(CASE, "it takes two CPUs");
        return Ok(());
    }

    let mut servers = Vec::new();
    for kind in Kind::ALL {
        if let Some(why) = kind.absence() {
            bench.findings.missing(kind.name(), why);
            continue;
        }

        for workers in [1, 2] {
            let purpose = format!("{workers}-workers");
            let Some(group) =
                Group::under_quota(&purpose, kind.name(), |group| group.limit_finely(1.0))
            else {
                bench.findings.missing(CASE, NO_QUOTA);
                return Ok(());
            };

            let server = Server::start(
                kind,
                &bench.site,
                Conditions {
                    workers,
                    group: Some(group),
                    arguments: &["--open-files", "4000"],
                    added: None,
                },
            )?;
            servers.push((workers, server));
        }
    }

    let load = Load::kept(CONNECTIONS, Catalog::small());
    let script = wrk::script(&bench.site, CASE, &load)?;
    for (_, server) in &servers {
        let mut checker = Checker::connect(server.address)?;
        load.catalog
            .items
            .iter()
            .try_for_each(|item| checker.check(&item.path, &item.content()).map(drop))?;
    }

    // Not in slices: in those each server finds both CPUs' caches as the others have left them.
    let turn = Duration::from_secs_f64(bench.turn.as_secs_f64().ceil());
    let mut costs = vec![Costs::default(); servers.len()];
    for round in 0..=bench.runs {
        for ((workers, server), costs) in servers.iter().zip(&mut costs) {
            let name = server.kind.name();
            report::progress(&format!(
                "web: {CASE}, round {round} of {}, {name}, {workers} workers",
                bench.runs
            ));
            let mut command =
                wrk::command(&format!("http://{}/", server.address), CONNECTIONS, turn);
            let before = server.cpu_ns()?;
            let answered = wrk::run(command.arg("-s").arg(&script))?;

            anyhow::ensure!(answered > 0.0, "{name} answered nothing within {turn:?}");

            // The first round warms up.
            if round > 0 {
                costs
                    .cpu
                    .push((server.cpu_ns()? - before) as f64 / 1000.0 / answered);
                costs.rate.push(answered / turn.as_secs_f64());
            }
        }
    }

    for (n, (workers, server)) in servers.iter().enumerate() {
        let mut row = |metric, unit, values| {
            let web = bench.findings.origin().with_workers(*workers);
            let row = web.row(CASE, server.kind.name(), metric, unit, values);
            bench.findings.rows.push(row);
        };

        row("cpu_us_per_request", "us", costs[n].cpu.clone());
        row("requests_per_second", "1/s", costs[n].rate.clone());
        let of = |kind: Kind, wanted: usize| {
            servers
                .iter()
                .position(|(w, s)| *w == wanted && s.kind == kind)
        };

        if let (2, Some(one)) = (*workers, of(server.kind, 1)) {
            row(
                "ratio_to_1_worker",
                "1",
                ratios(&costs[n].cpu, &costs[one].cpu),
            );
        }

        if let (true, Some(nginx)) = (server.kind != Kind::Nginx, of(Kind::Nginx, *workers)) {
            row(
                "ratio_to_nginx",
                "1",
                ratios(&costs[n].cpu, &costs[nginx].cpu),
            );
        }
    }

    Ok(())
}
