//! Files that memory cannot hold: what requests for cached files wait while others are read from a
//! disk.
//!
//! Each server runs in a memory cgroup in which a tenth of the large files fits, and its group's
//! reads of the disk are throttled (blkio), for a virtual machine's disk can be another machine's
//! memory. In a turn all pages of the files are dropped; then the cached files are asked for at a
//! modest rate (open loop), first alone, then beside a closed loop over the large ones. What a
//! worker that waits for the disk does to the others is the second p99.

use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, ensure};

use super::bench::Bench;
use crate::harness::cgroup::Group;
use crate::harness::report;
use crate::serving::catalog::Catalog;
use crate::serving::client::{Figures, load, run_load};
use crate::serving::process::Conditions;
use crate::serving::site::{Checker, Site};
use crate::serving::web::{Kind, Server};

const CASE: &str = "disk";
/// Of each large file.
const LARGE: usize = 1 << 20;
/// Of each file of the page cache; the other cached files are of 1 KiB, in the servers' memory.
const MEDIUM: usize = 64 << 10;
const MEDIUM_FILES: usize = 20;
/// The group's memory beside a tenth of the large files: for the server itself and the cached
/// files.
const BESIDE: usize = 24 << 20;
/// Bytes a second of the disk.
const DISK: u64 = 40 << 20;
/// Requests a second for cached files.
const RATE: &str = "500";
/// Connections that ask for large files.
const READERS: &str = "8";
/// The first requests of a load are not counted.
const WARM_UP: Duration = Duration::from_millis(300);

/// A server and its figures, a value a round.
struct Turns {
    server: Server,
    alone: Vec<f64>,
    beside: Vec<f64>,
    slowest: Vec<f64>,
    megabytes: Vec<f64>,
}

pub(super) fn run(bench: &mut Bench) -> anyhow::Result<()> {
    if let Some(why) = Kind::Epoll.absence() {
        bench.findings.missing(CASE, why);
        return Ok(());
    }

    let large = Catalog::of(&bench.site, bench.sizes.large, LARGE)?;
    let medium = Catalog::of(&bench.site, MEDIUM_FILES, MEDIUM)?;
    let memory = BESIDE + bench.sizes.large * LARGE / 10;
    let mut all = Vec::new();

    for kind in [Kind::Nginx, Kind::NginxThreads, Kind::Epoll, Kind::Uring] {
        if let Some(why) = kind.absence() {
            bench.findings.missing(kind.name(), why);
            continue;
        }

        let name = format!("disk-{}", kind.name().replace(' ', "-"));
        let Some(group) = Group::confined(&name, bench.site.dir(), memory, DISK) else {
            bench.findings.missing(
                CASE,
                "no control groups for memory and blkio are available here",
            );
            return Ok(());
        };

        let server = Server::start(
            kind,
            &bench.site,
            Conditions {
                arguments: &["--cache", "4m"],
                ..group.into()
            },
        )?;
        let none = Vec::new;
        all.push(Turns {
            server,
            alone: none(),
            beside: none(),
            slowest: none(),
            megabytes: none(),
        });
    }

    for round in 1..=bench.runs {
        for turns in &mut all {
            report::progress(&format!(
                "web: {CASE}, round {round} of {}, {}",
                bench.runs,
                turns.server.kind.name()
            ));
            turn(&bench.site, bench.turn, turns, &large, &medium)?;
        }
    }

    bench.findings.facts.push((
        "disk",
        format!(
            "{} files of 1 MiB, {} MB of memory, {} MB/s; cached: 20 files of 64 KiB and 20 of 1 KiB, {RATE}/s",
            bench.sizes.large,
            memory >> 20,
            DISK >> 20
        ),
    ));
    for Turns {
        server,
        alone,
        beside,
        slowest,
        megabytes,
    } in all
    {
        let name = server.kind.name();
        let slower = beside
            .iter()
            .zip(&alone)
            .map(|(beside, alone)| beside / alone)
            .collect();
        bench
            .findings
            .row(CASE, name, "cached_p99_us_alone", "us", alone);
        bench
            .findings
            .row(CASE, name, "cached_p99_us_beside_disk", "us", beside);
        bench
            .findings
            .row(CASE, name, "cached_max_us_beside_disk", "us", slowest);
        bench
            .findings
            .row(CASE, name, "p99_beside_to_alone", "1", slower);
        bench
            .findings
            .row(CASE, name, "uncached_mb_per_s", "MB/s", megabytes);
    }
    Ok(())
}

/// Runs one server's turn: cached files alone, then beside large ones.
fn turn(
    site: &Site,
    length: Duration,
    turns: &mut Turns,
    large: &Catalog,
    medium: &Catalog,
) -> anyhow::Result<()> {
    // All servers run at a time, and are idle but for one.
    let server = &turns.server;
    let small = Catalog::small();
    let cached = || medium.items.iter().chain(&small.items[..MEDIUM_FILES]);
    // Every turn begins with the same pages in memory: none.
    for item in large.items.iter().chain(cached()) {
        site.forget(&item.path)?;
    }
    let mut checker = Checker::connect(server.address)?;

    // Twice: what is used again is kept longer.
    for item in cached().chain(cached()) {
        checker.check(&item.path, &item.content())?;
    }
    let write = |name: &str, paths: &mut dyn Iterator<Item = &str>| -> anyhow::Result<String> {
        let list = site.dir().join(name);
        let urls = paths
            .map(|path| format!("http://{}{path}\n", server.address))
            .collect::<String>();
        std::fs::write(&list, urls)?;
        Ok(list.to_string_lossy().into_owned())
    };

    let hot = write("hot.txt", &mut cached().map(|item| item.path.as_str()))?;
    let cold = write(
        "cold.txt",
        &mut large.items.iter().map(|item| item.path.as_str()),
    )?;
    let url = format!("http://{}{}", server.address, small.items[0].path);
    let json = site.dir().join("hot.json");
    let ask = || -> anyhow::Result<Figures> {
        let warm_up = format!("{}ms", WARM_UP.as_millis());
        let more = [
            "--urls",
            &hot,
            "--connections",
            "32",
            "--rate",
            RATE,
            "--arrivals",
            "poisson",
        ];
        let more = [&more[..], &["--warm-up", &warm_up]].concat();
        let figures = run_load(&mut load("epoll", &url, length, &json, &more)?, &json)?;
        figures.check(server.kind.name())?;
        Ok(figures)
    };

    turns.alone.push(ask()?.get("latency_p99_us")?);
    let other = site.dir().join("cold.json");
    let more = ["--urls", &cold, "--zipf", "0", "--connections", READERS];
    // It begins before the measured load, and ends after it.
    let reader = start(load("epoll", &url, length + 2 * WARM_UP, &other, &more)?)?;
    std::thread::sleep(WARM_UP);
    let figures = ask()?;

    turns.beside.push(figures.get("latency_p99_us")?);
    turns.slowest.push(figures.get("latency_max_us")?);
    let output = reader.wait_with_output()?;

    ensure!(
        output.status.success(),
        "plainweave load: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    let figures = Figures::read(&other)?;
    figures.check(server.kind.name())?;
    turns
        .megabytes
        .push(figures.get("rate_per_second")? * LARGE as f64 / 1e6);

    Ok(())
}

fn start(mut command: Command) -> anyhow::Result<Child> {
    command
        .stdout(Stdio::null())
        // What it says is shown if it fails.
        .stderr(Stdio::piped())
        .spawn()
        .context("cannot run plainweave load")
}
