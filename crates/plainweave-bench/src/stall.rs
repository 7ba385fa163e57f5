//! A server, one of whose requests in a hundred computes for 50 ms: what becomes of the others?
//!
//! Connections of which each sends a byte now and then, and waits for it to come back; some bytes tell the server to
//! compute first. The figures are the latencies of the *other* requests, with slow ones among them and without, and
//! above all their ratio. Two workers: while one computes, the other could serve everybody. At the default rate (128
//! requests a second, 6 % of a worker in slow ones) both compute at once for 0.2 % of the time, so a p99 can be kept.
//!
//! The systems take their turns in each round. Clients are threads of this process, on the same CPUs as the server;
//! an answer counts as come when the kernel has it for them.

mod client;
mod server;

use std::num::{NonZeroU32, NonZeroUsize};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context;
use clap::Args;

use crate::machine;
use crate::names;
use crate::report::{self, Report};
use crate::sample::Row;
use client::Turn;
use server::{SYSTEMS, Server, WORKERS};

/// Latency of requests beside one in a hundred that computes for 50 ms.
#[derive(Args, Debug)]
pub(crate) struct Flags {
    /// Print the systems, and run nothing
    #[arg(long)]
    list: bool,

    /// Run only these, as `--list` names them
    #[arg(long, value_name = "A,B", value_delimiter = ',')]
    systems: Vec<String>,

    /// Connections
    #[arg(long, value_name = "N", default_value = "32")]
    connections: NonZeroUsize,

    /// Requests of each in a turn
    #[arg(long, value_name = "N", default_value = "60")]
    requests: NonZeroUsize,

    /// Between two requests of a connection, in the mean; uniform from half to one and a half times this
    #[arg(long, value_name = "MS", default_value = "250")]
    think: u64,

    /// What a slow request computes
    #[arg(long, value_name = "MS", default_value = "50")]
    slow: u64,

    /// One request in N is slow
    #[arg(long, value_name = "N", default_value = "100")]
    one_in: NonZeroU32,

    /// Rounds; in each, every system gets two turns, without slow requests and with them
    #[arg(long, value_name = "N", default_value = "3")]
    runs: NonZeroUsize,

    /// Where the CSV and the report go [default: results/<date>-<host>]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

/// A turn is repeated if the host gave more than this share of it to others.
const STOLEN: f64 = 0.001;
/// Times that a turn is run at most; the one with the least share counts.
const TRIES: usize = 4;

/// What is kept of a turn.
const METRICS: [&str; 4] = ["p50_us", "p99_us", "max_us", "stolen_percent"];

/// A system's figures, a value a round, without slow requests and with them.
#[derive(Default)]
struct Values {
    unloaded: [Vec<f64>; METRICS.len()],
    beside: [Vec<f64>; METRICS.len()],
}

pub(crate) fn run(flags: &Flags) -> anyhow::Result<()> {
    if flags.list {
        SYSTEMS.iter().for_each(|system| report::say(system.name));
        return Ok(());
    }
    names::check("system", &flags.systems, SYSTEMS.iter().map(|system| system.name))?;
    let wanted = |name: &str| flags.systems.is_empty() || flags.systems.iter().any(|system| system == name);
    let slow = Duration::from_millis(flags.slow);
    let turn = |one_in: u32| Turn {
        connections: flags.connections.get(),
        requests: flags.requests.get(),
        think: Duration::from_millis(flags.think),
        one_in,
    };
    let mut absent: Vec<(String, String)> = Vec::new();
    let mut values: Vec<Values> = SYSTEMS.iter().map(|_| Values::default()).collect();
    for round in 1..=flags.runs.get() {
        for (system, values) in SYSTEMS.iter().zip(&mut values) {
            if !wanted(system.name) || absent.iter().any(|(name, _)| name == system.name) {
                continue;
            }
            report::progress(&format!("stall: round {round} of {}, {}", flags.runs, system.name));
            let server = match Server::start(system, slow) {
                Ok(server) => server,
                Err(error) => {
                    absent.push((system.name.to_owned(), format!("{error:#}")));
                    continue;
                }
            };
            for (one_in, kept) in [(0, &mut values.unloaded), (flags.one_in.get(), &mut values.beside)] {
                let figures = quietest(|| turn(one_in).run(server.address, round as u64))?;
                kept.iter_mut().zip(figures).for_each(|(kept, figure)| kept.push(figure));
            }
        }
    }
    let rows = SYSTEMS.iter().zip(values).flat_map(|(system, values)| rows(system.name, values)).collect();
    let parameters = vec![
        ("load", format!("{} connections, a request every {} ms each", flags.connections, flags.think)),
        ("slow requests", format!("one in {}, {} ms of computing", flags.one_in, flags.slow)),
        ("rounds", format!("{}, {} requests a connection in each turn", flags.runs, flags.requests)),
        ("again", format!("turns of which the host took over {STOLEN}, {TRIES} times at most; the quietest counts")),
        ("placement", "servers and clients on all CPUs".to_owned()),
        ("latency", "until the kernel of the client has the answer (SO_TIMESTAMPNS)".to_owned()),
    ];
    Report { experiment: "stall", parameters, rows, absent }.publish(flags.out.as_deref())
}

/// Runs a turn until the host leaves it alone, and adds what it took.
fn quietest(turn: impl Fn() -> anyhow::Result<[f64; 3]>) -> anyhow::Result<[f64; METRICS.len()]> {
    let mut best: Option<[f64; METRICS.len()]> = None;
    for _ in 0..TRIES {
        let before = machine::ticks();
        let [p50, p99, max] = turn()?;
        let [all, stolen] = machine::ticks();
        let share = stolen.saturating_sub(before[1]) as f64 / all.saturating_sub(before[0]).max(1) as f64;
        let percent = share * 100.0;
        if best.is_none_or(|best| percent < best[3]) {
            best = Some([p50, p99, max, percent]);
        }
        if share <= STOLEN {
            break;
        }
    }
    best.context("no turn")
}

fn rows(system: &str, values: Values) -> Vec<Row> {
    let Values { unloaded, beside } = values;
    if beside[1].is_empty() {
        return Vec::new();
    }
    let row = |case: &str, metric, unit, values| Row {
        experiment: "stall",
        case: case.to_owned(),
        system: system.to_owned(),
        workers: WORKERS,
        metric,
        unit,
        values,
    };
    let ratio = beside[1].iter().zip(&unloaded[1]).map(|(beside, unloaded)| beside / unloaded).collect();
    let mut rows = vec![row("beside", "p99_to_unloaded", "1", ratio)];
    for (case, values) in [("unloaded", unloaded), ("beside", beside)] {
        let unit = |metric: &str| if metric.ends_with("_us") { "us" } else { "%" };
        rows.extend(METRICS.into_iter().zip(values).map(|(metric, values)| row(case, metric, unit(metric), values)));
    }
    rows
}
