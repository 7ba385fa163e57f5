//! Latency when CPU is short: each server may use a quarter of a core, and gets 30, 60 and 90 % of the load that
//! memcached can bear there. Open loop: what queues while the quota is used up counts with its waiting time.

use std::process::Command;

use anyhow::{Context, ensure};

use super::server::{Server, System, plainweave};
use crate::cgroup::{Group, NO_QUOTA};
use crate::report;
use crate::sample::Row;
use crate::serving::tails::{LOADS, Peer, SHARE, Tails};

pub(super) const CASE: (&str, &str) =
    ("quota-p99", "64 connections, a quarter of a core each, at 30, 60 and 90 % of memcached's peak, Poisson");

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
        let Some(group) = Group::under_quota("cache", system.name(), |group| group.limit(SHARE)) else {
            return Ok(Err(NO_QUOTA));
        };
        servers.push(Server::start_in(*system, 64, Some(group))?);
    }
    let csv = std::env::temp_dir().join(format!("plainweave-bench-cache-{}.csv", std::process::id()));
    // One run of the load generator; a turn of 60,000 requests lasts three seconds.
    let length = (iterations / 20).max(200);
    let (warm_up, length) = (format!("{}ms", length.min(500)), format!("{length}ms"));
    let load = |server: &Server, more: &[&str]| -> anyhow::Result<String> {
        let mut command = Command::new(plainweave()?);
        let address = server.address.to_string();
        command.args(["load", "cache", &address, "--set-ratio", "0.03", "--workers", "1"]);
        command.args(["--max-errors", "1", "--min-rate", "0"]);
        command.args(["--warm-up", &warm_up, "--duration", &length]).arg("--csv").arg(&csv).args(more);
        let output = command.output().context("cannot run plainweave load")?;
        ensure!(output.status.success(), "plainweave load: {}", String::from_utf8_lossy(&output.stderr));
        Ok(std::fs::read_to_string(&csv)?)
    };
    let mut peak = 0.0;
    for server in &servers {
        // All warm up; the first is memcached.
        let figures = load(server, &[])?;
        ensure!(figure(&figures, "errors")? == 0.0, "errors under load: {figures}");
        let rate = figure(&figures, "rate")?;
        peak = if peak == 0.0 { rate } else { peak };
    }
    let mut all = Vec::new();
    for percent in LOADS {
        let rate = (peak * f64::from(percent) / 100.0).to_string();
        let more = ["--no-load", "--rate", &rate, "--arrivals", "poisson"];
        let mut found: Vec<_> = servers.iter().map(|_| Tails::default()).collect();
        for round in 1..=runs {
            report::progress(&format!("cache: {}, {percent} %, round {round} of {}", CASE.0, runs));
            for (server, found) in servers.iter().zip(&mut found) {
                let figures = load(server, &more)?;
                found.add(|name| figure(&figures, name))?;
            }
        }
        let name = format!("{}-{percent}", CASE.0);
        // The first is memcached.
        let peer = Peer { tails: &found[0], p99: "p99_to_memcached", p999: "p999_to_memcached" };
        for (system, found) in systems.iter().zip(&found) {
            let rows = found.rows((*system != System::Memcached).then_some(&peer));
            all.extend(rows.into_iter().map(|(metric, unit, values)| system.row(&name, metric, unit, values)));
        }
    }
    let _ = std::fs::remove_file(csv);
    all.push(System::Memcached.row(CASE.0, "peak_per_s", "1/s", vec![peak]));
    Ok(Ok(all))
}

/// Returns a figure of `plainweave load`, by name.
fn figure(csv: &str, metric: &str) -> anyhow::Result<f64> {
    let line = csv.lines().find_map(|line| line.strip_prefix(metric)?.strip_prefix(','));
    let value = line.and_then(|rest| rest.split_once(',')?.1.parse().ok());
    value.with_context(|| format!("no {metric} among {csv}"))
}
