//! Latency when CPU is short: each server may use a quarter of a core, and gets 70 % of the load that nginx can bear
//! there. Open loop: what queues while the quota is used up counts with its waiting time.

use std::time::Duration;

use super::bench::Bench;
use super::client::{load, run_load};
use super::server::{Kind, Server};
use super::site;
use crate::cgroup::{Group, NO_QUOTA};
use crate::report;

const CASE: &str = "quota-p99";
/// Of one CPU.
const SHARE: f64 = 0.25;
/// Of nginx's peak.
const LOAD: f64 = 0.7;
const CONNECTIONS: &str = "64";
const WARM_UP: &str = "500ms";

pub(super) fn run(bench: &mut Bench) -> anyhow::Result<()> {
    if let Some(why) = Kind::Nginx.absence().or(Kind::Epoll.absence()) {
        bench.missing(CASE, why);
        return Ok(());
    }
    let mut servers = Vec::new();
    for kind in Kind::ALL {
        if let Some(why) = kind.absence() {
            bench.missing(kind.name(), why);
            continue;
        }
        let Some(group) = Group::under_quota("quota", kind.name(), |group| group.limit(SHARE)) else {
            bench.missing(CASE, NO_QUOTA);
            return Ok(());
        };
        servers.push(Server::start(kind, &bench.site, Some(group))?);
    }
    let list = bench.site.dir().join("urls.txt");
    let csv = bench.site.dir().join("load.csv");
    let mut peak = 0.0;
    let mut p99 = vec![Vec::new(); servers.len()];
    let mut p50 = vec![Vec::new(); servers.len()];
    for round in 0..=bench.runs {
        for (n, server) in servers.iter().enumerate() {
            report::progress(&format!("web: {CASE}, round {round} of {}, {}", bench.runs, server.kind.name()));
            let urls = (0..site::FILES).map(|n| format!("http://{}{}\n", server.address, site::path(n)));
            std::fs::write(&list, urls.collect::<String>())?;
            let list = list.to_string_lossy();
            let url = format!("http://{}{}", server.address, site::path(0));
            let rate = (peak * LOAD).to_string();
            let mut more = vec!["--urls", &list, "--connections", CONNECTIONS, "--warm-up", WARM_UP];
            if round > 0 {
                more.extend(["--rate", &rate, "--arrivals", "poisson"]);
            }
            let mut command = load("epoll", &url, bench.turn.max(Duration::from_secs(1)), &csv, &more)?;
            let figures = run_load(&mut command, &csv)?;
            figures.check(server.kind.name())?;
            match (round, server.kind) {
                // The first round warms up, and finds what nginx can bear.
                (0, Kind::Nginx) => peak = figures.get("rate")?,
                (0, _) => {}
                _ => {
                    p99[n].push(figures.get("latency_p99")?);
                    p50[n].push(figures.get("latency_p50")?);
                }
            }
        }
    }
    bench.facts.push((
        "quota",
        format!(
            "{SHARE} of a CPU in periods of 100 ms; nginx bears {peak:.0}/s there; load {:.0}/s, Poisson",
            peak * LOAD
        ),
    ));
    for (n, server) in servers.iter().enumerate() {
        let name = server.kind.name();
        bench.row(CASE, name, "p99_us", "us", p99[n].clone());
        bench.row(CASE, name, "p50_us", "us", p50[n].clone());
        if server.kind != Kind::Nginx {
            bench.ratio(CASE, name, ("ratio_to_nginx", Some(&p99[0])), &p99[n]);
        }
    }
    Ok(())
}
