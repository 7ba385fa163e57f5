//! The five architectures of `plainweave web` and `plainweave cache` side by side, under the same
//! traffic.
//!
//! What serves a connection: a fresh fiber for each request, a fiber for life, a fiber of a fixed
//! number that accepts again afterwards, an event loop that a listener has dealt it to, or the two
//! stages of a pipeline (`--architecture`). The code that serves a request is the same, and so are
//! driver, policy and mode.
//!
//! In each round every architecture, the peer (nginx or memcached) and the raw loop `limit` get a
//! turn at every case: the server starts on CPU 0 with one worker, `plainweave load` runs on CPU 1,
//! and memory is read in the middle of the load. In the closed loop, whose throughput the client's
//! CPU may decide, the figure to look at is the server's CPU per request. In the case `block` one
//! request in a hundred blocks its thread for 50 ms, and requests come at a fixed rate: here it is
//! the latency of the others that tells the architectures apart. A pipeline has threads to block
//! beside its worker.

use std::collections::HashMap;
use std::num::NonZeroUsize;
use std::time::Duration;

use anyhow::ensure;
use clap::Args;

use crate::harness::descriptors;
use crate::harness::experiment::{Cases, Common};
use crate::harness::names;
use crate::harness::report::{self, Failures, Report};
use crate::harness::sample::{Origin, Row};
use crate::serving::limit;
use crate::serving::site::Site;
use crate::serving::{Counted, Driver, Figures, Kind, Load, PEER, Server, What, Whose, seconds};

/// The architectures of web and cache server, side by side.
#[derive(Args, Debug)]
pub(crate) struct Flags {
    #[command(flatten)]
    common: Common,

    #[command(flatten)]
    cases: Cases,

    /// Run only these systems
    #[arg(long, value_name = "A,B", value_delimiter = ',')]
    systems: Vec<String>,

    /// Connections of the cases that keep them
    #[arg(
        long,
        value_name = "N,M",
        value_delimiter = ',',
        default_value = "64,1024,10000"
    )]
    connections: Vec<NonZeroUsize>,

    /// I/O driver of ours
    #[arg(long, value_name = "DRIVER", default_value = "epoll")]
    io: Driver,

    /// Mode of ours, as `--mode` of the servers takes it
    #[arg(long, value_name = "MODE", default_value = "anytime/own")]
    mode: String,

    /// Requests a second in the case block
    #[arg(long, value_name = "N", default_value = "500")]
    rate: NonZeroUsize,

    /// Length of a turn
    #[arg(long, value_name = "SECONDS", default_value = "3", value_parser = seconds)]
    seconds: Duration,

    /// Rounds; in each, every system gets a turn at every case
    #[arg(long, value_name = "N", default_value = "5")]
    runs: NonZeroUsize,
}

/// Architectures by their names.
const ARCHITECTURES: [&str; 5] = ["driver", "fibers", "acceptors", "event-loops", "pipeline"];
/// Connections of the cases that name none.
const FEW: usize = 64;
/// How requests block.
const BLOCK: &str = "50ms/100";

/// What is asked of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Case {
    /// Connections that stay.
    Keep(usize),
    /// A connection for each request.
    Connect,
    /// One request in a hundred blocks.
    Block,
}

impl Case {
    fn name(self) -> String {
        match self {
            Case::Keep(connections) => connections.to_string(),
            Case::Connect => "connect".to_owned(),
            Case::Block => "block".to_owned(),
        }
    }

    fn connections(self) -> usize {
        if let Case::Keep(connections) = self {
            connections
        } else {
            FEW
        }
    }

    /// Returns why there is no such turn.
    fn absence(self, kind: Kind, system: &str) -> Option<&'static str> {
        match self {
            Case::Connect if kind == Kind::Cache => {
                Some("`plainweave load cache` keeps its connections")
            }
            Case::Block if !ARCHITECTURES.contains(&system) => {
                Some("it has no handler that blocks")
            }
            Case::Keep(connections) if !descriptors::at_least(connections) => {
                Some(descriptors::TOO_FEW)
            }
            _ => None,
        }
    }
}

pub(crate) fn run(flags: &Flags) -> anyhow::Result<()> {
    let cases: Vec<_> = flags
        .connections
        .iter()
        .map(|n| Case::Keep(n.get()))
        .chain([Case::Connect, Case::Block])
        .collect();
    let case_names: Vec<_> = cases.iter().map(|case| case.name()).collect();
    let systems = || [limit::EPOLL, PEER].into_iter().chain(ARCHITECTURES);

    if flags.common.list {
        report::say(&format!(
            "cases, for web and cache: {}",
            case_names.join(", ")
        ));
        report::say(&format!(
            "systems: {}",
            systems().collect::<Vec<_>>().join(", ")
        ));
        return Ok(());
    }

    flags.cases.check(case_names.iter().map(String::as_str))?;
    names::check("system", &flags.systems, systems())?;
    let wanted =
        |given: &[String], name: &str| given.is_empty() || given.iter().any(|given| given == name);
    let site = Site::new()?;
    let (mut turns, mut absent): (Turns, Vec<(String, String)>) = Default::default();
    let mut failures = Failures::begin()?;

    for round in 1..=flags.runs.get() {
        for kind in [Kind::Web, Kind::Cache] {
            // The systems are innermost: those that are compared run within the same minute.
            for case in cases.iter().filter(|case| flags.cases.has(&case.name())) {
                for system in systems().filter(|system| wanted(&flags.systems, system)) {
                    let place = format!("{} {}", kind.name(), case.name());
                    let name = kind.system(system);
                    report::progress(&format!(
                        "shapes: round {round} of {}, {place}, {name}",
                        flags.runs
                    ));

                    let why = case.absence(kind, system).or_else(|| kind.absence(system));
                    match why {
                        None => {
                            let what = format!("{place}, {name}");
                            let figures =
                                failures.catch(&what, || turn(flags, &site, kind, *case, system));
                            turns.entry((place, name)).or_default().extend(figures);
                        }
                        // Once: it is as absent in every other round.
                        Some(why) if round == 1 => {
                            absent.push((format!("{place}, {name}"), why.to_owned()))
                        }
                        Some(_) => {}
                    }
                }
            }
        }
    }

    // What failed in every round has no row.
    turns.retain(|_, turns| !turns.is_empty());
    let rows = rows(&turns, &cases, systems);
    ensure!(!rows.is_empty(), "nothing could be measured");
    let report = Report {
        experiment: "shapes",
        parameters: parameters(flags),
        rows,
        absent,
    };

    failures.publish(report, flags.common.out(), None)
}

fn parameters(flags: &Flags) -> Vec<(&'static str, String)> {
    vec![
        (
            "load",
            format!(
                "closed loop, {FEW} connections where the case names none; block: {}/s",
                flags.rate
            ),
        ),
        (
            "blocking",
            format!(
                "{BLOCK}: how long, and one request in how many, by sleeping on the worker's thread"
            ),
        ),
        (
            "ours",
            format!("driver {:?}, mode {}, policy fifo", flags.io, flags.mode).to_lowercase(),
        ),
        (
            "acceptors, pipeline",
            "as many acceptors as connections; a pipeline's second stage has 16 threads".to_owned(),
        ),
        (
            limit::EPOLL,
            "a raw epoll loop that sends a fixed answer of the same size, nothing of ours in it"
                .to_owned(),
        ),
        (
            "rounds",
            format!("{}, turns of {:?}", flags.runs, flags.seconds),
        ),
        (
            "placement",
            "the server on CPU 0, with one worker; `plainweave load` on CPU 1".to_owned(),
        ),
    ]
}

/// All turns of a system at a case, by the names of both.
type Turns = HashMap<(String, String), Vec<Figures>>;

/// Starts a server, loads it, and ends it.
fn turn(
    flags: &Flags,
    site: &Site,
    kind: Kind,
    case: Case,
    system: &str,
) -> anyhow::Result<Figures> {
    let mut arguments = Vec::new();
    let what = if kind == Kind::Web {
        What::File
    } else {
        What::Keys
    };

    let whose = match system {
        PEER => Whose::Peer,
        limit::EPOLL => Whose::Limit,
        _ => Whose::Ours(flags.io),
    };

    if whose == Whose::Limit {
        // As many bytes as an answer has on average, since it sends the same each time.
        arguments.push(format!("--bytes={}", what.mean()));
        arguments.extend((case == Case::Connect).then(|| "--close".to_owned()));
    } else if whose != Whose::Peer {
        let architecture = match system {
            // With fewer, connections would wait for each other, which is not what is asked.
            "acceptors" => format!("acceptors:{}", case.connections()),
            other => other.to_owned(),
        };

        arguments
            .extend(["--architecture", &architecture, "--mode", &flags.mode].map(str::to_owned));
    }
    let added: &[&str] = if case == Case::Block && whose != Whose::Peer {
        &["--block", BLOCK]
    } else {
        &[]
    };

    let arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
    let server = Server::start(kind, whose, site, 1, added, &arguments)?;
    // Requests that block must not hold back those that follow: so this one is an open loop.
    let rate = (case == Case::Block).then_some(flags.rate.get());
    let load = Load {
        what,
        connections: case.connections(),
        connect: case == Case::Connect,
        rate,
        time: flags.seconds,
        counted: Counted::Whole,
    };

    load.run(&server, site)
}

/// A figure's name, its unit, and where it is.
type Metric = (&'static str, &'static str, fn(&Figures) -> f64);

const METRICS: [Metric; 7] = [
    ("cpu_per_request", "us", |turn| turn.cpu_us),
    ("requests_per_s", "1/s", |turn| turn.rate),
    ("p50_us", "us", |turn| turn.p50),
    ("p99_us", "us", |turn| turn.p99),
    ("p999_us", "us", |turn| turn.p999),
    ("memory_mb", "MB", |turn| turn.memory_mb),
    ("errors", "1", |turn| turn.errors),
];

fn rows<I: Iterator<Item = &'static str>>(
    turns: &Turns,
    cases: &[Case],
    systems: impl Fn() -> I,
) -> Vec<Row> {
    let mut rows = Vec::new();
    for kind in [Kind::Web, Kind::Cache] {
        for case in cases {
            let place = format!("{} {}", kind.name(), case.name());
            let of = |system: &str| turns.get(&(place.clone(), kind.system(system)));
            let row = |system, metric, unit, values| {
                Origin::new("shapes").row(&place, kind.system(system), metric, unit, values)
            };

            for (system, figures) in systems().filter_map(|system| Some((system, of(system)?))) {
                let all = METRICS.map(|(metric, unit, of)| {
                    row(system, metric, unit, figures.iter().map(of).collect())
                });
                rows.extend(all);
                for (metric, to) in [("cpu_to_peer", PEER), ("cpu_to_limit", limit::EPOLL)] {
                    // A ratio to itself is one, and the limit is compared with nothing.
                    if let Some(to) = of(to).filter(|_| system != to && system != limit::EPOLL) {
                        let ratios = figures
                            .iter()
                            .zip(to)
                            .map(|(own, to)| own.cpu_us / to.cpu_us)
                            .collect();
                        rows.push(row(system, metric, "1", ratios));
                    }
                }
            }
        }
    }
    rows
}
