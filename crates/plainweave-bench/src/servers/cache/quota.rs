//! Latency when CPU is short: each server may use a quarter of a core, and gets 30, 60 and 90 % of
//! the load that memcached can bear there. Open loop: what queues while the quota is used up counts
//! with its waiting time.

use std::process::Command;

use anyhow::ensure;

use crate::harness::cgroup::{Group, NO_QUOTA};
use crate::harness::sample::Row;
use crate::serving::cache::{Server, System, plainweave};
use crate::serving::client::{Figures, run_load, to_json};
use crate::serving::tails::{self, SHARE};

pub(super) const CASE: (&str, &str) = (
    "quota-p99",
    "64 connections, a quarter of a core each, at 30, 60 and 90 % of memcached's peak, Poisson",
);

/// Rows, or why there are none.
pub(super) fn run(
    runs: usize,
    iterations: usize,
    systems: &[System],
) -> anyhow::Result<Result<Vec<Row>, &'static str>> {
    if systems.first() != Some(&System::Memcached) {
        return Ok(Err("there is no memcached whose peak would be the measure"));
    }
    let mut servers = Vec::new();
    for system in systems {
        let Some(group) = Group::under_quota("cache", system.name(), |group| group.limit(SHARE))
        else {
            return Ok(Err(NO_QUOTA));
        };
        servers.push((*system, Server::start(*system, 64, group.into())?));
    }
    let json = std::env::temp_dir().join(format!(
        "plainweave-bench-cache-{}.json",
        std::process::id()
    ));
    // One run of the load generator; a turn of 60,000 requests lasts three seconds.
    let length = (iterations / 20).max(200);
    let warm_up = format!("{}ms", length.min(500));
    let length = format!("{length}ms");
    let load = |server: &Server, more: &[&str]| -> anyhow::Result<Figures> {
        let mut command = Command::new(plainweave()?);
        let address = server.address.to_string();
        command.args([
            "load",
            "cache",
            &address,
            "--set-ratio",
            "0.03",
            "--workers",
            "1",
        ]);
        command.args(["--max-errors", "1", "--min-rate", "0"]);
        command
            .args(["--warm-up", &warm_up, "--duration", &length])
            .arg(to_json(&json))
            .args(more);
        run_load(&mut command, &json)
    };
    let mut peak = 0.0;
    for (_, server) in &servers {
        // All warm up; the first is memcached.
        let figures = load(server, &[])?;
        ensure!(
            figures.get("errors")? == 0.0,
            "errors under load: {figures:?}"
        );
        let rate = figures.get("rate_per_second")?;
        peak = if peak == 0.0 { rate } else { peak };
    }
    let mut rows = Vec::new();
    tails::measure(
        ("cache", CASE.0),
        &servers,
        (peak, runs),
        ["p99_to_memcached", "p999_to_memcached"],
        |(_, server), rate| {
            load(
                server,
                &["--no-load", "--rate", rate, "--arrivals", "poisson"],
            )
        },
        |case, (system, _), (metric, unit, values)| {
            rows.push(system.row(case, metric, unit, values))
        },
    )?;
    let _ = std::fs::remove_file(json);
    rows.push(System::Memcached.row(CASE.0, "peak_per_s", "1/s", vec![peak]));
    Ok(Ok(rows))
}
