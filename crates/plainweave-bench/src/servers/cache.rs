//! The cache server beside memcached, in CPU time of the server per request.
//!
//! The servers run at once, each with one worker in a process of its own on CPU 0. A closed-loop
//! client on CPU 1 drives them in turn, some thousand requests a turn, so that all see the same
//! machine in the same minute; one round warms up. What counts is the ratio to memcached in the
//! same round, and to the limits: raw loops on epoll and io_uring that send fixed replies. Two more cases ask what
//! a cache keeps: the hit ratio of a skewed trace of mixed sizes, and the number of small items in
//! 64 MB. The last one measures latency where CPU is short.

mod quota; // Latency when CPU is short.
mod tls; // CPU per request over TLS.
mod trace; // What a cache keeps: the hit ratio of a skewed trace, and how many small items fit.
mod two_workers; // CPU per request with two workers beside that with one.

use std::num::NonZeroUsize;

use anyhow::Context;
use clap::Args;

use crate::harness::experiment::{Cases, Common};
use crate::harness::report::{self, Failures, Report};
use crate::harness::sample::Row;
use crate::serving::cache::{Server, System};
use crate::serving::cache_client::{self as client, Client, Mix};
use crate::serving::driver::Driver;
use crate::serving::process::Conditions;
use plainweave_report::statistics::ratios;

/// The cache server beside memcached.
#[derive(Args, Debug)]
pub(crate) struct Flags {
    #[command(flatten)]
    common: Common,

    #[command(flatten)]
    cases: Cases,

    /// Rounds; in each, every server gets its turn
    #[arg(long, value_name = "N", default_value = "15")]
    runs: NonZeroUsize,

    /// Requests of a turn
    #[arg(long, value_name = "N", default_value = "60000")]
    iterations: NonZeroUsize,

    /// Connections of the case "15360"
    #[arg(long, value_name = "N", default_value = "15360")]
    connections: NonZeroUsize,
}

/// One case of CPU per request.
struct Case {
    name: &'static str,
    what: &'static str,
    /// 0: as many as the flag says.
    connections: usize,
    mix: Mix,
}

const fn case(
    name: &'static str,
    what: &'static str,
    connections: usize,
    depth: usize,
    updates: u64,
) -> Case {
    Case {
        name,
        what,
        connections,
        mix: Mix { depth, updates },
    }
}

const CASES: [Case; 4] = [
    case(
        "64",
        "64 connections, one request under way on each, 3 % updates",
        64,
        1,
        3,
    ),
    case(
        "512",
        "512 connections, one request under way on each, 3 % updates",
        512,
        1,
        3,
    ),
    case(
        "64x16",
        "64 connections, 16 requests under way on each, 3 % updates",
        64,
        16,
        3,
    ),
    case(
        "15360",
        "15,360 connections (or as --connections says), one request under way on each",
        0,
        1,
        3,
    ),
];
/// The limit on the driver that the updates are measured on.
const LIMIT: System = System::Limit(Driver::Epoll);
/// Sets among a hundred requests; what they cost is compared with the first.
const UPDATES: [u64; 4] = [3, 5, 10, 50];
const UPDATE: (&str, &str) = (
    "updates",
    "64 connections, 3, 5, 10 and 50 % updates in turn, each beside 3 %",
);
const HIT_RATIO: (&str, &str) = (
    "hit-ratio",
    "hits of a Zipf(0.99) trace of 400,000 keys of 32 B to 4 KB in 64 MB",
);
const ITEMS: (&str, &str) = (
    "items",
    "items of 11 B keys and 32 B values that 64 MB hold",
);

pub(crate) fn run(flags: &Flags) -> anyhow::Result<()> {
    let all = || {
        CASES.iter().map(|case| (case.name, case.what)).chain([
            UPDATE,
            HIT_RATIO,
            ITEMS,
            quota::CASE,
            two_workers::CASE,
            tls::CASE,
        ])
    };

    if flags.common.list {
        all().for_each(|(name, what)| report::say(&format!("{name:<12} {what}")));
        return Ok(());
    }

    flags.cases.check(all().map(|(name, _)| name))?;
    let wanted = |name: &str| flags.cases.has(name);
    let (systems, mut absent) = available();
    let mut rows = Vec::new();
    let mut failures = Failures::begin()?;

    for case in CASES.iter().filter(|case| wanted(case.name)) {
        // With this many connections, descriptors suffice for one server at a time only: no ratios
        // then.
        let together = if case.connections == 0 {
            1
        } else {
            systems.len().max(1)
        };

        for some in systems.chunks(together) {
            rows.extend(
                failures
                    .catch(case.name, || cost(case, flags, some))
                    .unwrap_or_default(),
            );
        }
    }

    if wanted(UPDATE.0) {
        rows.extend(
            failures
                .catch(UPDATE.0, || updates(flags, &systems))
                .unwrap_or_default(),
        );
    }

    if wanted(HIT_RATIO.0) {
        let ratio = |server: &Server| {
            let zipf = trace::Zipf::new(400_000, 0.99);
            trace::hit_ratio(server.address, &zipf, flags.iterations.get() * 20)
        };

        let found = failures.catch(HIT_RATIO.0, || {
            kept(HIT_RATIO.0, "hit_ratio", "1", &systems, ratio)
        });
        rows.extend(found.unwrap_or_default());
    }

    if wanted(ITEMS.0) {
        let items = |server: &Server| trace::items(server.address, flags.iterations.get() * 20);
        let found = failures.catch(ITEMS.0, || kept(ITEMS.0, "items", "1", &systems, items));
        rows.extend(found.unwrap_or_default());
    }

    if wanted(tls::CASE.0) {
        let found = || tls::run(flags.runs.get(), flags.iterations.get(), &systems);
        rows.extend(failures.catch(tls::CASE.0, found).unwrap_or_default());
    }

    let mut under_quota =
        |case: &str, run: &dyn Fn() -> anyhow::Result<Result<Vec<Row>, &'static str>>| {
            match failures.catch(case, run) {
                Some(Ok(found)) => rows.extend(found),
                Some(Err(why)) => absent.push((case.to_owned(), why.to_owned())),
                None => {}
            }
        };

    if wanted(quota::CASE.0) {
        // Replies that are the same whatever was asked are errors to `plainweave load`.
        let servers: Vec<_> = systems
            .iter()
            .copied()
            .filter(|system| !matches!(system, System::Limit(_)))
            .collect();
        under_quota(quota::CASE.0, &|| {
            quota::run(flags.runs.get(), flags.iterations.get(), &servers)
        });
    }

    if wanted(two_workers::CASE.0) {
        under_quota(two_workers::CASE.0, &|| {
            two_workers::run(flags.runs.get(), flags.iterations.get(), &systems)
        });
    }

    failures.publish(
        Report {
            experiment: "cache",
            parameters: parameters(flags),
            rows,
            absent,
        },
        flags.common.out(),
        None,
    )
}

/// Returns how it is measured, for the report.
fn parameters(flags: &Flags) -> Vec<(&'static str, String)> {
    vec![
        (
            "rounds",
            format!(
                "{}, the servers in turn, {} requests a turn",
                flags.runs, flags.iterations
            ),
        ),
        (
            "placement",
            "servers on CPU 0 with one worker each, but for 1024-2, client on CPU 1".to_owned(),
        ),
        (
            "keys and values",
            format!("{} keys, values of {} B", client::KEYS, client::VALUE),
        ),
    ]
}

/// Returns the systems that can be started here, and why not the others.
fn available() -> (Vec<System>, Vec<(String, String)>) {
    let mut systems = Vec::new();
    let mut absent = Vec::new();
    for system in System::ALL {
        match Server::start(system, 64, Conditions::default()) {
            Ok(_) => systems.push(system),
            Err(_) if system == System::Memcached => absent.push((
                system.name().to_owned(),
                "memcached is not installed".to_owned(),
            )),
            Err(_) => absent.push((
                system.name().to_owned(),
                "it does not start here".to_owned(),
            )),
        }
    }

    (systems, absent)
}

/// CPU time per request, and its ratio to memcached's.
fn cost(case: &Case, flags: &Flags, systems: &[System]) -> anyhow::Result<Vec<Row>> {
    let connections = if case.connections == 0 {
        flags.connections.get()
    } else {
        case.connections
    };

    let mut servers = Vec::new();
    for system in systems {
        let server = Server::start(*system, 64, Conditions::default())?;
        // The same keys and values on all of them.
        Client::fill(server.address).with_context(|| system.name())?;
        let client = Client::connect(server.address, connections).with_context(|| system.name())?;
        servers.push((client, server, Vec::new()));
    }

    for round in 0..=flags.runs.get() {
        report::progress(&format!(
            "cache: {}, round {round} of {}",
            case.name, flags.runs
        ));
        // From another one each round.
        for n in 0..servers.len() {
            let n = (n + round) % servers.len();
            let (client, server, costs) = &mut servers[n];
            let cost = server
                .cost(client, flags.iterations.get(), case.mix)
                .with_context(|| systems[n].name())?;
            // Round 0 warms up.
            costs.extend((round > 0).then_some(cost));
        }
    }

    let mut rows = Vec::new();
    for (system, (_, server, costs)) in systems.iter().zip(&servers) {
        rows.push(system.row(case.name, "cpu_us_per_request", "us", costs.clone()));
        let others = [
            (System::Memcached, "ratio_to_memcached"),
            (System::Limit(Driver::Epoll), "ratio_to_limit"),
            (System::Limit(Driver::Uring), "ratio_to_limit_uring"),
        ];
        for (other, metric) in others.into_iter().filter(|(other, _)| other != system) {
            let Some(at) = systems.iter().position(|system| *system == other) else {
                continue;
            };
            rows.push(system.row(case.name, metric, "1", ratios(costs, &servers[at].2)));
        }

        rows.push(system.row(case.name, "resident_bytes", "B", vec![server.resident()]));
    }

    Ok(rows)
}

/// CPU time per request by the share of sets, and its ratios to that of the first share and to the
/// limit's in the same round.
fn updates(flags: &Flags, systems: &[System]) -> anyhow::Result<Vec<Row>> {
    let mut servers = Vec::new();
    let compared = |system: &&System| [System::Memcached, System::IdleConn, LIMIT].contains(system);
    for system in systems.iter().filter(compared) {
        let server = Server::start(*system, 64, Conditions::default())?;
        Client::fill(server.address)?;
        let client = Client::connect(server.address, 64)?;
        let costs: [Vec<f64>; UPDATES.len()] = Default::default();
        servers.push((*system, client, server, costs));
    }

    for round in 0..=flags.runs.get() {
        report::progress(&format!(
            "cache: {}, round {round} of {}",
            UPDATE.0, flags.runs
        ));
        for (n, updates) in UPDATES.into_iter().enumerate() {
            for (system, client, server, costs) in &mut servers {
                let cost = server.cost(client, flags.iterations.get(), Mix { depth: 1, updates });
                costs[n].extend((round > 0).then_some(cost.with_context(|| system.name())?));
            }
        }
    }

    let limit = servers
        .iter()
        .find(|(system, ..)| *system == LIMIT)
        .map(|(.., costs)| costs);
    let mut rows = Vec::new();
    for (system, _, _, costs) in &servers {
        for (n, updates) in UPDATES.iter().enumerate() {
            let name = format!("{}-{updates}", UPDATE.0);
            rows.push(system.row(&name, "cpu_us_per_request", "us", costs[n].clone()));
            rows.push(system.row(
                &name,
                "ratio_to_3_percent",
                "1",
                ratios(&costs[n], &costs[0]),
            ));
            if let Some(limit) = limit.filter(|_| *system != LIMIT) {
                rows.push(system.row(&name, "ratio_to_limit", "1", ratios(&costs[n], &limit[n])));
            }
        }
    }

    Ok(rows)
}

/// Measures one figure of each kind of store. How connections are run makes no difference to it.
fn kept(
    case: &str,
    metric: &'static str,
    unit: &'static str,
    systems: &[System],
    measure: impl Fn(&Server) -> anyhow::Result<f64>,
) -> anyhow::Result<Vec<Row>> {
    let mut rows = Vec::new();
    for system in systems
        .iter()
        .filter(|system| matches!(system, System::Memcached | System::IdleConn))
    {
        report::progress(&format!("cache: {case}, {}", system.name()));
        let server = Server::start(*system, 64, Conditions::default())?;
        rows.push(system.row(case, metric, unit, vec![measure(&server)?]));
        rows.push(system.row(case, "resident_bytes", "B", vec![server.resident()]));
    }
    Ok(rows)
}
