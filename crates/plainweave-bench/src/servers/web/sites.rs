//! What sites and rules cost: ten sites, then twenty rules, five header fields and a log as well,
//! beside the same server without them and nginx configured alike; and the tail of a steady load
//! while the configuration is taken up again and again.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use anyhow::Context;

use super::bench::Bench;
use super::requests;
use crate::harness::machine;
use crate::serving::catalog::Catalog;
use crate::serving::client::{Figures, load, run_load};
use crate::serving::closed::Load;
use crate::serving::nginx;
use crate::serving::process::Conditions;
use crate::serving::rounds::{Costs, SetOnDrop};
use crate::serving::site::{self, Site};
use crate::serving::web::{Kind, Server};

pub(super) const CASE: &str = "sites";
pub(super) const RELOADS: &str = "reloads";

const SITES: usize = 10;
/// The load's own, and others that no request is for.
const RULES: usize = 20;
/// Rules of these set a field of each answer.
const FIELDS: usize = 5;
const CONNECTIONS: usize = 64;

/// Between two reloads.
const PAUSE: Duration = Duration::from_millis(50);
/// Requests a second meanwhile: some of a server's time is left for reloading.
const RATE: &str = "4000";
const WARM_UP: &str = "500ms";

/// How much is configured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Extent {
    Sites,
    SitesAndRules,
}

/// Writes ours of a configuration, and returns the file's path.
fn configuration(site: &Site, extent: Extent) -> anyhow::Result<PathBuf> {
    let root = site.root();
    let root = root.display();
    let mut text = String::new();
    if extent == Extent::SitesAndRules {
        let log = site.dir().join(format!("ours-{extent:?}.log"));
        writeln!(text, "access-log = {:?}", log.display().to_string())?;
    }

    for n in 0..SITES {
        // The load generator of the reloads asks by address.
        let all = if n == 0 { ", \"*\"" } else { "" };
        let name = name(n);
        writeln!(text, "[[site]]\nnames = [{name:?}{all}]\nroot = \"{root}\"")?;
    }

    if extent == Extent::SitesAndRules {
        for n in 0..RULES {
            text.push_str("[[rule]]\n");
            match n < FIELDS {
                true => writeln!(text, "set-headers = {{ X-Field-{n} = \"value {n}\" }}")?,
                false => writeln!(
                    text,
                    "path = \"/unused-{n}/**\"\ncache-control = \"no-cache\""
                )?,
            }
        }
    }

    let file = site.dir().join(format!("{extent:?}.toml"));
    std::fs::write(&file, text).with_context(|| file.display().to_string())?;
    Ok(file)
}

/// Returns the name of a site; the load asks for the first.
fn name(n: usize) -> String {
    match n {
        0 => "www.example.com".to_owned(),
        n => format!("site-{n}.example.com"),
    }
}

/// Starts nginx with all of it.
fn nginx(site: &Site) -> anyhow::Result<Server> {
    let root = site.root();
    let root = root.display();
    let log = site.dir().join("nginx.log");
    let log = log.display();
    let mut own = format!("server_name {}; root {root};", name(0));
    write!(own, "access_log {log} combined buffer=64k flush=1s;")?;
    for n in 0..RULES {
        match n < FIELDS {
            true => write!(own, "add_header X-Field-{n} \"value {n}\" always;")?,
            false => write!(
                own,
                "location /unused-{n}/ {{ add_header Cache-Control no-cache; }}"
            )?,
        }
    }

    let settings = nginx::Settings {
        workers: 1,
        server: &own,
        ..Default::default()
    };
    // The others listen where the first does, which is known by then.
    let (command, address) = nginx::command_with(site.dir(), &settings, |address| {
        let other = |n| {
            format!(
                "server {{ listen {address}; server_name {}; root {root}; }}\n",
                name(n)
            )
        };
        (1..SITES).map(other).collect()
    })?;
    Server::start_by(Kind::Nginx, &command, Some(address), Conditions::default())
}

pub(super) fn run(bench: &mut Bench) -> anyhow::Result<()> {
    if !machine::installed("wrk") {
        bench.findings.missing(CASE, "wrk is not installed");
        return Ok(());
    }

    let sites = configuration(&bench.site, Extent::Sites)?;
    let rules = configuration(&bench.site, Extent::SitesAndRules)?;
    let mut servers = Vec::new();
    for kind in [Kind::Uring, Kind::Epoll] {
        if let Some(why) = kind.absence() {
            bench.findings.missing(kind.name(), why);
            continue;
        }

        for (what, file) in [
            ("", None),
            (" once more", None),
            (" sites", Some(&sites)),
            (" sites and rules", Some(&rules)),
        ] {
            let config = file.map(|file| file.display().to_string());
            let config = config.as_ref().map(|file| ["--config", file]);
            let under = Conditions {
                arguments: config.as_ref().map_or(&[], |config| &config[..]),
                ..Conditions::default()
            };
            let server = Server::start(kind, &bench.site, under)?;
            servers.push((format!("{}{what}", kind.name()), server));
        }
    }

    match Kind::Nginx.absence() {
        Some(why) => bench.findings.missing("nginx", why),
        None => servers.push(("nginx sites and rules".to_owned(), nginx(&bench.site)?)),
    }

    let named: Vec<_> = servers
        .iter()
        .map(|(name, server)| (name.clone(), server))
        .collect();
    let load = Load::kept(CONNECTIONS, Catalog::small());
    let costs = requests::measure(bench, CASE, &named, &load)?;
    let all = servers.iter().zip(&costs);
    let plain = |kind: Kind| {
        let found = all.clone().find(|((name, _), _)| name == kind.name());
        found.map(|(_, costs)| &costs.cpu)
    };
    let nginx = all
        .clone()
        .find(|((_, server), _)| server.kind == Kind::Nginx);
    let nginx = nginx.map(|(_, costs)| costs.cpu.clone());

    for ((name, server), Costs { cpu, rate }) in all.clone() {
        let findings = &mut bench.findings;
        findings.row(CASE, name, "cpu_us_per_request", "us", cpu.clone());
        findings.row(CASE, name, "requests_per_second", "1/s", rate.clone());
        if name != server.kind.name() {
            findings.ratio(CASE, name, ("ratio_to_plain", plain(server.kind)), cpu);
        }
        if server.kind != Kind::Nginx {
            findings.ratio(
                CASE,
                name,
                ("ratio_to_nginx_configured", nginx.as_ref()),
                cpu,
            );
        }
    }

    Ok(())
}

/// Loads each server twice in a round: alone, and while it is made to reload.
pub(super) fn reloads(bench: &mut Bench) -> anyhow::Result<()> {
    let rules = configuration(&bench.site, Extent::SitesAndRules)?;
    let config = rules.display().to_string();
    let mut servers = Vec::new();
    for kind in [Kind::Uring, Kind::Epoll] {
        match kind.absence() {
            Some(why) => bench.findings.missing(kind.name(), why),
            None => {
                let under = Conditions {
                    arguments: &["--config", &config],
                    ..Conditions::default()
                };
                servers.push(Server::start(kind, &bench.site, under)?);
            }
        }
    }

    match Kind::Nginx.absence() {
        Some(why) => bench.findings.missing("nginx", why),
        None => servers.push(nginx(&bench.site)?),
    }
    if servers.is_empty() {
        return Ok(());
    }

    let mut found: Vec<_> = servers.iter().map(|_| [Vec::new(), Vec::new()]).collect();
    let count = AtomicU32::new(0);
    for round in 1..=bench.runs {
        for (server, found) in servers.iter().zip(&mut found) {
            let name = server.kind.name();
            crate::harness::report::progress(&format!(
                "web: {RELOADS}, round {round} of {}, {name}",
                bench.runs
            ));
            found[0].push(turn(bench, server)?);
            let beside = while_reloading(server, &count, || turn(bench, server))?;
            found[1].push(beside);
        }
    }

    for (server, [alone, beside]) in servers.iter().zip(found) {
        let name = server.kind.name();
        for (figure, metrics) in [
            (
                "latency_p99_us",
                ["p99_us", "p99_us_reloading", "p99_ratio"],
            ),
            (
                "latency_p99_9_us",
                ["p999_us", "p999_us_reloading", "p999_ratio"],
            ),
        ] {
            let of = |figures: &[Figures]| -> anyhow::Result<Vec<f64>> {
                figures.iter().map(|figures| figures.get(figure)).collect()
            };
            let alone = of(&alone)?;
            let beside = of(&beside)?;
            let findings = &mut bench.findings;
            findings.row(RELOADS, name, metrics[0], "us", alone.clone());
            findings.row(RELOADS, name, metrics[1], "us", beside.clone());
            findings.ratio(RELOADS, name, (metrics[2], Some(&alone)), &beside);
        }

        let lost: anyhow::Result<Vec<f64>> = beside.iter().map(|of| of.get("errors")).collect();
        bench.findings.row(RELOADS, name, "errors", "count", lost?);
    }

    let reloads = count.load(Ordering::Relaxed);
    let fact = format!(
        "{reloads} in all, one each {PAUSE:?}; {RATE} requests/s, {CONNECTIONS} connections"
    );
    bench.findings.facts.push((RELOADS, fact));
    Ok(())
}

/// Does something while a server is made to reload.
fn while_reloading<T>(
    server: &Server,
    count: &AtomicU32,
    work: impl FnOnce() -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    let ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !ended.load(Ordering::Relaxed) {
                server.hang_up();
                count.fetch_add(1, Ordering::Relaxed);
                std::thread::sleep(PAUSE);
            }
        });
        let _end = SetOnDrop(&ended);
        work()
    })
}

fn turn(bench: &Bench, server: &Server) -> anyhow::Result<Figures> {
    let json = bench.site.dir().join("reloads.json");
    let url = format!("http://{}{}", server.address, site::path(0));
    let connections = CONNECTIONS.to_string();
    let more = [
        "--rate",
        RATE,
        "--connections",
        &connections,
        "--warm-up",
        WARM_UP,
    ];
    let length = bench.turn.max(Duration::from_secs(1));
    let mut command = load("epoll", &url, length, &json, &more)?;
    let figures = run_load(&mut command, &json)?;
    figures.check(server.kind.name())?;
    Ok(figures)
}
