//! CPU per request with two workers beside that with one: what the workers share, and what it
//! costs. Servers and client share two CPUs, so each server may use the time of one.

use anyhow::Context;

use crate::harness::cgroup::{Group, NO_QUOTA};
use crate::harness::machine;
use crate::harness::report;
use crate::harness::sample::Row;
use crate::serving::cache::{Server, System};
use crate::serving::cache_client::{Client, Mix};
use crate::serving::process::Conditions;
use plainweave_report::statistics::ratios;

pub(super) const CASE: (&str, &str) = (
    "1024-2",
    "1,024 connections, with one worker and with two, each server with the time of one CPU",
);
const CONNECTIONS: usize = 1024;
const MIX: Mix = Mix {
    depth: 1,
    updates: 3,
};

/// A server under load, and what each round cost it.
struct Loaded {
    system: System,
    workers: usize,
    server: Server,
    client: Client,
    costs: Vec<f64>,
}

/// Returns why it cannot be measured here, if it cannot.
pub(super) fn run(
    runs: usize,
    iterations: usize,
    systems: &[System],
) -> anyhow::Result<Result<Vec<Row>, &'static str>> {
    if machine::cpus() < 2 {
        return Ok(Err("it takes two CPUs"));
    }
    let mut servers = Vec::new();
    for &system in systems
        .iter()
        .filter(|system| !matches!(system, System::FiberPerConnection | System::Limit(_)))
    {
        for workers in [1, 2] {
            let purpose = format!("{workers}-workers");
            let Some(group) =
                Group::under_quota(&purpose, system.name(), |group| group.limit_finely(1.0))
            else {
                return Ok(Err(NO_QUOTA));
            };

            let server = Server::start(
                system,
                64,
                Conditions {
                    workers,
                    ..group.into()
                },
            )?;
            Client::fill(server.address).with_context(|| system.name())?;
            let client =
                Client::connect(server.address, CONNECTIONS).with_context(|| system.name())?;
            servers.push(Loaded {
                system,
                workers,
                server,
                client,
                costs: Vec::new(),
            });
        }
    }
    for round in 0..=runs {
        report::progress(&format!("cache: {}, round {round} of {runs}", CASE.0));
        for Loaded {
            system,
            server,
            client,
            costs,
            ..
        } in &mut servers
        {
            let cost = server
                .cost(client, iterations, MIX)
                .with_context(|| system.name())?;
            // The first round warms up.
            costs.extend((round > 0).then_some(cost));
        }
    }
    let mut rows = Vec::new();
    for Loaded {
        system,
        workers,
        costs,
        ..
    } in &servers
    {
        let mut row = |metric, unit, values| {
            rows.push(Row {
                workers: *workers,
                ..system.row(CASE.0, metric, unit, values)
            });
        };
        row("cpu_us_per_request", "us", costs.clone());
        let of = |wanted: System, workers: usize| {
            servers
                .iter()
                .find(|other| other.system == wanted && other.workers == workers)
        };
        if let (2, Some(one)) = (*workers, of(*system, 1)) {
            row("ratio_to_1_worker", "1", ratios(costs, &one.costs));
        }
        if let (true, Some(memcached)) = (
            *system != System::Memcached,
            of(System::Memcached, *workers),
        ) {
            row("ratio_to_memcached", "1", ratios(costs, &memcached.costs));
        }
    }
    Ok(Ok(rows))
}
