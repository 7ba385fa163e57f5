//! Latency when CPU is short: each server may use a quarter of a core, and gets 30, 60 and 90 % of
//! the load that nginx can bear there. Open loop: what queues while the quota is used up counts
//! with its waiting time.

use std::time::Duration;

use super::bench::Bench;
use crate::harness::cgroup::{Group, NO_QUOTA};
use crate::serving::client::{Figures, load, run_load};
use crate::serving::site;
use crate::serving::tails::{self, SHARE};
use crate::serving::web::{Kind, Server};

const CASE: &str = "quota-p99";
const CONNECTIONS: &str = "64";
const WARM_UP: &str = "500ms";

pub(super) fn run(bench: &mut Bench) -> anyhow::Result<()> {
    if let Some(why) = Kind::Nginx.absence().or(Kind::Epoll.absence()) {
        bench.findings.missing(CASE, why);
        return Ok(());
    }

    let mut servers = Vec::new();
    for kind in Kind::ALL {
        if let Some(why) = kind.absence() {
            bench.findings.missing(kind.name(), why);
            continue;
        }

        let Some(group) = Group::under_quota("quota", kind.name(), |group| group.limit(SHARE))
        else {
            bench.findings.missing(CASE, NO_QUOTA);
            return Ok(());
        };

        servers.push(Server::start(kind, &bench.site, group.into())?);
    }

    let mut peak = 0.0;
    for server in &servers {
        // All warm up; the first is nginx.
        let rate = turn(bench, server, &[])?.get("rate_per_second")?;
        peak = if peak == 0.0 { rate } else { peak };
    }

    let mut found = Vec::new();
    tails::measure(
        ("web", CASE),
        &servers,
        (peak, bench.runs),
        ["p99_to_nginx", "p999_to_nginx"],
        |server, rate| turn(bench, server, &["--rate", rate, "--arrivals", "poisson"]),
        |case, server, values| found.push((case.to_owned(), server.kind, values)),
    )?;
    for (case, kind, (metric, unit, values)) in found {
        bench.findings.row(&case, kind.name(), metric, unit, values);
    }
    let fact =
        format!("{SHARE} of a CPU in periods of 100 ms; nginx bears {peak:.0}/s there; Poisson");
    bench.findings.facts.push(("quota", fact));

    Ok(())
}

/// Loads a server, by default with all that it can bear.
fn turn(bench: &Bench, server: &Server, more: &[&str]) -> anyhow::Result<Figures> {
    let list = bench.site.dir().join("urls.txt");
    let json = bench.site.dir().join("load.json");
    let urls = (0..site::FILES).map(|n| format!("http://{}{}\n", server.address, site::path(n)));
    std::fs::write(&list, urls.collect::<String>())?;
    let list = list.to_string_lossy();
    let url = format!("http://{}{}", server.address, site::path(0));
    let always = [
        "--urls",
        &list,
        "--connections",
        CONNECTIONS,
        "--warm-up",
        WARM_UP,
    ];
    let length = bench.turn.max(Duration::from_secs(1));
    let mut command = load("epoll", &url, length, &json, &[&always[..], more].concat())?;
    let figures = run_load(&mut command, &json)?;

    figures.check(server.kind.name())?;
    Ok(figures)
}
