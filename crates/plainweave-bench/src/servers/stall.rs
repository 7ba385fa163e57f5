//! A server, one of whose requests in a hundred holds up its thread for 50 ms: what becomes of the
//! others?
//!
//! Connections of which each sends a request now and then, and waits for its answer; some requests
//! tell the server to compute first, or to block its thread in the kernel (`slow`). A request is a
//! byte, which comes back, or one over HTTP (`case`). The figures are the latencies of the *other*
//! requests, with slow ones among them and without, and above all their ratio. With two workers,
//! the default, while one is held up the other could serve everybody. At the default rate (128
//! requests a second, 6 % of a worker in slow ones) both are held up at once for 0.2 % of the time,
//! so a p99 can be kept. With one worker, nobody is served unless the system adds a thread.
//!
//! The systems take their turns in each round. Clients are threads of this process, on the same
//! CPUs as the server; an answer counts as come when the kernel has it for them.

mod case; // The cases: what a client sends, and what answers it.
mod client; // The clients: a thread a connection, a request at a time.
mod echo; // Servers of bytes: fibers in several modes, threads, Tokio's tasks.
mod server; // The systems, and their servers while they run.
mod slow; // What a slow request does.
mod web; // The servers of the case `web`, but Go's: one of plainweave-http, and one on Tokio.

use std::num::{NonZeroU32, NonZeroUsize};
use std::time::Duration;

use anyhow::{Context, ensure};
use clap::Args;

use crate::harness::experiment::Common;
use crate::harness::machine;
use crate::harness::names;
use crate::harness::report::{self, Failures, Report};
use crate::harness::sample::{Origin, Row};
use case::Case;
use client::{Figures, Turn};
use server::{SYSTEMS, Server, System};
use slow::{Slow, SlowBy};

/// Latency of requests beside one in a hundred that computes or blocks its thread for 50 ms.
#[derive(Args, Debug)]
pub(crate) struct Flags {
    #[command(flatten)]
    common: Common,

    /// Run only these cases
    #[arg(long, value_name = "A,B", value_delimiter = ',')]
    cases: Vec<Case>,

    /// Run only these systems, as `--list` names them
    #[arg(long, value_name = "A,B", value_delimiter = ',')]
    systems: Vec<String>,

    /// Connections
    #[arg(long, value_name = "N", default_value = "32")]
    connections: NonZeroUsize,

    /// Requests of each in a turn
    #[arg(long, value_name = "N", default_value = "60")]
    requests: NonZeroUsize,

    /// Workers of each server that has them: of a runtime of fibers, of Tokio's, and Go's
    /// GOMAXPROCS
    #[arg(long, value_name = "N", default_value = "2", value_parser = clap::value_parser!(u16).range(1..=64))]
    workers: u16,

    /// Requests a second over all connections, if each is answered at once. A connection waits for
    /// its answer, then for a time uniform from half to one and a half times the mean
    #[arg(long, value_name = "N", default_value = "128", value_parser = rate)]
    rate: f64,

    /// How long a slow request takes
    #[arg(long, value_name = "MS", default_value = "50")]
    slow: u64,

    /// What a slow request does meanwhile
    #[arg(long, value_name = "HOW", default_value = "compute")]
    slow_by: SlowBy,

    /// One request in N is slow
    #[arg(long, value_name = "N", default_value = "100")]
    one_in: NonZeroU32,

    /// Rounds; in each, every system gets two turns, without slow requests and with them
    #[arg(long, value_name = "N", default_value = "3")]
    runs: NonZeroUsize,
}

impl Flags {
    /// Returns the systems to run.
    fn systems(&self) -> anyhow::Result<Vec<&'static System>> {
        names::check(
            "system",
            &self.systems,
            SYSTEMS.iter().map(|system| system.name),
        )?;
        let of_case = |system: &System| self.cases.is_empty() || self.cases.contains(&system.case);
        let named = |system: &System| {
            self.systems.is_empty() || self.systems.iter().any(|name| name == system.name)
        };
        let wanted: Vec<_> = SYSTEMS
            .iter()
            .filter(|system| of_case(system) && named(system))
            .collect();
        ensure!(
            !wanted.is_empty(),
            "none of these systems is in these cases; --list prints them"
        );

        Ok(wanted)
    }
}

/// A turn is repeated if the host gave more than this share of it to others.
const STOLEN: f64 = 0.001;
/// Times that a turn is run at most; the one with the least share counts.
const TRIES: usize = 4;

/// A turn, and how much of the machine its host gave to others meanwhile.
#[derive(Clone, Copy)]
struct Measured {
    figures: Figures,
    stolen_percent: f64,
}

/// A figure's name, its unit, and where it is.
type Metric = (&'static str, &'static str, fn(&Measured) -> Option<f64>);

const METRICS: [Metric; 6] = [
    ("p50_us", "us", |turn| Some(turn.figures.p50)),
    ("p99_us", "us", |turn| Some(turn.figures.p99)),
    ("max_us", "us", |turn| Some(turn.figures.max)),
    ("slow_p50_us", "us", |turn| turn.figures.slow_p50),
    ("requests_per_s", "1/s", |turn| Some(turn.figures.rate)),
    ("stolen_percent", "%", |turn| Some(turn.stolen_percent)),
];

/// A system's turns, one a round, without slow requests and with them.
#[derive(Default)]
struct Turns {
    unloaded: Vec<Measured>,
    beside: Vec<Measured>,
}

/// Reads requests a second.
fn rate(text: &str) -> Result<f64, String> {
    let rate = text.parse().ok().filter(|rate| (0.1..=1e6).contains(rate));
    rate.ok_or("0.1 to 1000000".to_owned())
}

pub(crate) fn run(flags: &Flags) -> anyhow::Result<()> {
    if flags.common.list {
        SYSTEMS
            .iter()
            .for_each(|system| report::say(&format!("{:<4} {}", system.case.name(), system.name)));
        return Ok(());
    }

    let wanted = flags.systems()?;
    let workers = usize::from(flags.workers);
    let slow = Slow {
        by: flags.slow_by,
        time: Duration::from_millis(flags.slow),
    };

    let turn = |case: Case, one_in: u32| Turn {
        case,
        connections: flags.connections.get(),
        requests: flags.requests.get(),
        // Connections share the rate.
        think: Duration::from_secs_f64(flags.connections.get() as f64 / flags.rate),
        one_in,
    };

    let mut absent: Vec<(String, String)> = Vec::new();
    let mut failures = Failures::begin()?;
    let mut turns: Vec<Turns> = wanted.iter().map(|_| Turns::default()).collect();

    for round in 1..=flags.runs.get() {
        for (system, turns) in wanted.iter().zip(&mut turns) {
            // What did not start once is not tried in each round: building it may take minutes.
            if absent.iter().any(|(name, _)| name == system.name) {
                continue;
            }
            report::progress(&format!(
                "stall: round {round} of {}, {}",
                flags.runs, system.name
            ));
            let server = match Server::start(system, workers, slow) {
                Ok(server) => server,
                Err(error) => {
                    absent.push((system.name.to_owned(), format!("{error:#}")));
                    continue;
                }
            };

            // Without slow requests and with them on the same server, one right after the other.
            for (one_in, kept) in [
                (0, &mut turns.unloaded),
                (flags.one_in.get(), &mut turns.beside),
            ] {
                let run =
                    || quietest(|| turn(system.case, one_in).run(server.address, round as u64));
                kept.extend(failures.catch(system.name, run));
            }
        }
    }

    let rows = wanted
        .iter()
        .zip(&turns)
        .flat_map(|(system, turns)| rows(system, workers, turns))
        .collect();
    let report = Report {
        experiment: "stall",
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
                "{} connections, {} requests a second",
                flags.connections, flags.rate
            ),
        ),
        (
            "slow requests",
            format!(
                "one in {}, {} ms by {}",
                flags.one_in,
                flags.slow,
                flags.slow_by.name()
            ),
        ),
        (
            "rounds",
            format!(
                "{}, {} requests a connection in each turn",
                flags.runs, flags.requests
            ),
        ),
        (
            "again",
            format!(
                "turns of which the host took over {STOLEN}, {TRIES} times at most; the quietest counts"
            ),
        ),
        ("placement", "servers and clients on all CPUs".to_owned()),
        (
            "latency",
            "until the kernel of the client has the answer (SO_TIMESTAMPNS)".to_owned(),
        ),
    ]
}

/// Runs a turn until the host leaves it alone, and adds what it took.
fn quietest(turn: impl Fn() -> anyhow::Result<Figures>) -> anyhow::Result<Measured> {
    let mut best: Option<Measured> = None;
    for _ in 0..TRIES {
        let before = machine::ticks();
        let figures = turn()?;
        let [all, stolen] = machine::ticks();

        let share =
            stolen.saturating_sub(before[1]) as f64 / all.saturating_sub(before[0]).max(1) as f64;
        let stolen_percent = share * 100.0;
        if best.is_none_or(|best| stolen_percent < best.stolen_percent) {
            best = Some(Measured {
                figures,
                stolen_percent,
            });
        }

        if share <= STOLEN {
            break;
        }
    }
    best.context("no turn")
}

fn rows(system: &System, workers: usize, turns: &Turns) -> Vec<Row> {
    let Turns { unloaded, beside } = turns;
    if beside.is_empty() {
        return Vec::new();
    }
    let stall = Origin::new("stall").with_workers(workers);
    let row = |case: &str, metric, unit, values| {
        let case = format!("{} {case}", system.case.name());
        stall.row(case, system.name, metric, unit, values)
    };

    let ratio =
        |(beside, unloaded): (&Measured, &Measured)| beside.figures.p99 / unloaded.figures.p99;
    let mut rows = vec![row(
        "beside",
        "p99_to_unloaded",
        "1",
        beside.iter().zip(unloaded).map(ratio).collect(),
    )];
    for (case, turns) in [("unloaded", unloaded), ("beside", beside)] {
        let rows_of_case = METRICS.map(|(metric, unit, of)| {
            row(case, metric, unit, turns.iter().filter_map(of).collect())
        });
        rows.extend(
            rows_of_case
                .into_iter()
                .filter(|row| !row.values.is_empty()),
        );
    }

    rows
}
