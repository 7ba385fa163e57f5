//! The cache server beside memcached, in CPU time of the server per request.
//!
//! The servers run at once, each with one worker in a process of its own on CPU 0. A closed-loop client on CPU 1 drives
//! them in turn, some thousand requests a turn, so that all see the same machine in the same minute; one round warms
//! up. What counts is the ratio to memcached in the same round. Two more cases ask what a cache keeps: the hit ratio of
//! a skewed trace of mixed sizes, and the number of small items in 64 MB.

mod client;
mod server;
mod trace;

use std::num::NonZeroUsize;
use std::path::PathBuf;

use anyhow::bail;
use clap::Args;

use crate::report::{self, Report};
use crate::sample::Row;
use client::{Client, Mix};
use server::{Server, System};

/// The cache server beside memcached.
#[derive(Args, Debug)]
pub(crate) struct Flags {
    /// Print the cases and what they measure, and run nothing
    #[arg(long)]
    list: bool,

    /// Cases to run, with commas between [default: all]
    #[arg(long, value_name = "A,B", value_delimiter = ',')]
    cases: Vec<String>,

    /// Rounds; in each, every server gets its turn
    #[arg(long, value_name = "N", default_value = "15")]
    runs: NonZeroUsize,

    /// Requests of a turn
    #[arg(long, value_name = "N", default_value = "60000")]
    iterations: NonZeroUsize,

    /// Connections of the case "15360"
    #[arg(long, value_name = "N", default_value = "15360")]
    connections: NonZeroUsize,

    /// Where the CSV and the report go [default: results/<date>-<host>]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

/// One case of CPU per request.
struct Case {
    name: &'static str,
    what: &'static str,
    /// 0: as many as the flag says.
    connections: usize,
    mix: Mix,
}

const fn case(name: &'static str, what: &'static str, connections: usize, depth: usize, updates: u64) -> Case {
    Case { name, what, connections, mix: Mix { depth, updates } }
}

const CASES: [Case; 7] = [
    case("64", "64 connections, one request under way on each, 3 % updates", 64, 1, 3),
    case("512", "512 connections, one request under way on each, 3 % updates", 512, 1, 3),
    case("64x16", "64 connections, 16 requests under way on each, 3 % updates", 64, 16, 3),
    case("updates-5", "64 connections, one request under way on each, 5 % updates", 64, 1, 5),
    case("updates-10", "64 connections, one request under way on each, 10 % updates", 64, 1, 10),
    case("updates-50", "64 connections, one request under way on each, 50 % updates", 64, 1, 50),
    case("15360", "15,360 connections (or as --connections says), one request under way on each", 0, 1, 3),
];
const HIT_RATIO: (&str, &str) = ("hit-ratio", "hits of a Zipf(0.99) trace of 400,000 keys of 32 B to 4 KB in 64 MB");
const ITEMS: (&str, &str) = ("items", "items of 11 B keys and 32 B values that 64 MB hold");

pub(crate) fn run(flags: &Flags) -> anyhow::Result<()> {
    let all = || CASES.iter().map(|case| (case.name, case.what)).chain([HIT_RATIO, ITEMS]);
    if flags.list {
        all().for_each(|(name, what)| report::say(&format!("{name:<12} {what}")));
        return Ok(());
    }
    if let Some(wrong) = flags.cases.iter().find(|wanted| all().all(|(name, _)| name != **wanted)) {
        let names: Vec<_> = all().map(|(name, _)| name).collect();
        bail!("there is no case '{wrong}'; there are {}", names.join(", "));
    }
    let wanted = |name: &str| flags.cases.is_empty() || flags.cases.iter().any(|case| case == name);
    let (systems, absent) = available();
    let mut rows = Vec::new();
    for case in CASES.iter().filter(|case| wanted(case.name)) {
        rows.extend(cost(case, flags, &systems)?);
    }
    if wanted(HIT_RATIO.0) {
        rows.extend(kept(HIT_RATIO.0, "hit_ratio", "1", &systems, |server| {
            let zipf = trace::Zipf::new(400_000, 0.99);
            trace::hit_ratio(server.address, &zipf, flags.iterations.get() * 20)
        })?);
    }
    if wanted(ITEMS.0) {
        rows.extend(kept(ITEMS.0, "items", "1", &systems, |server| {
            trace::items(server.address, flags.iterations.get() * 20)
        })?);
    }
    let parameters = vec![
        ("rounds", format!("{}, the servers in turn, {} requests a turn", flags.runs, flags.iterations)),
        ("placement", "servers on CPU 0 with one worker each, client on CPU 1".to_owned()),
        ("keys and values", format!("{} keys, values of {} B", client::KEYS, client::VALUE)),
    ];
    Report { experiment: "cache", parameters, rows, absent }.publish(flags.out.as_deref())
}

/// The systems that can be started here, and why not the others.
fn available() -> (Vec<System>, Vec<(String, String)>) {
    let (mut systems, mut absent) = (Vec::new(), Vec::new());
    for system in System::ALL {
        match Server::start(system, 64) {
            Ok(_) => systems.push(system),
            Err(_) if system == System::Memcached => {
                absent.push((system.name().to_owned(), "memcached is not installed".to_owned()))
            }
            Err(_) => absent.push((system.name().to_owned(), "it does not start here".to_owned())),
        }
    }
    (systems, absent)
}

/// CPU time per request, and its ratio to memcached's.
fn cost(case: &Case, flags: &Flags, systems: &[System]) -> anyhow::Result<Vec<Row>> {
    let connections = if case.connections == 0 { flags.connections.get() } else { case.connections };
    let mut servers = Vec::new();
    for system in systems {
        let server = Server::start(*system, 64)?;
        Client::fill(server.address)?;
        servers.push((Client::connect(server.address, connections)?, server, Vec::new()));
    }
    for round in 0..=flags.runs.get() {
        report::progress(&format!("cache: {}, round {round} of {}", case.name, flags.runs));
        for (client, server, costs) in &mut servers {
            let before = server.cpu()?;
            let answered = client.drive(flags.iterations.get(), case.mix)?;
            if round > 0 {
                costs.push((server.cpu()? - before) as f64 / answered as f64 / 1000.0);
            }
        }
    }
    let mut rows = Vec::new();
    for (system, (_, server, costs)) in systems.iter().zip(&servers) {
        rows.push(row(case.name, *system, "cpu_us_per_request", "us", costs.clone()));
        if systems[0] == System::Memcached && *system != System::Memcached {
            let ratios = costs.iter().zip(&servers[0].2).map(|(own, theirs)| own / theirs).collect();
            rows.push(row(case.name, *system, "ratio_to_memcached", "1", ratios));
        }
        rows.push(row(case.name, *system, "resident_bytes", "B", vec![server.resident()]));
    }
    Ok(rows)
}

/// One figure of each kind of store. How connections are run makes no difference to it.
fn kept(
    case: &str,
    metric: &'static str,
    unit: &'static str,
    systems: &[System],
    measure: impl Fn(&Server) -> anyhow::Result<f64>,
) -> anyhow::Result<Vec<Row>> {
    let mut rows = Vec::new();
    for system in systems.iter().filter(|system| matches!(system, System::Memcached | System::Parked)) {
        report::progress(&format!("cache: {case}, {}", system.name()));
        let server = Server::start(*system, 64)?;
        rows.push(row(case, *system, metric, unit, vec![measure(&server)?]));
        rows.push(row(case, *system, "resident_bytes", "B", vec![server.resident()]));
    }
    Ok(rows)
}

fn row(case: &str, system: System, metric: &'static str, unit: &'static str, values: Vec<f64>) -> Row {
    let (case, system) = (case.to_owned(), system.name().to_owned());
    Row { experiment: "cache", case, system, workers: 1, metric, unit, values }
}
