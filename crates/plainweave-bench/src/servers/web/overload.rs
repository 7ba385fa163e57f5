//! More than a server can bear: it may use an eighth of a core, and is offered one and a half times
//! and twice the rate that it reaches there, a connection for each request, by clients that give up
//! after a second. (An eighth, for the client has one core, and makes some 13,000 connections a
//! second on it.)
//!
//! Each server's own peak is found by a closed loop. Then clients come by the clock, whether or not
//! others were answered (open loop): at multiples of the server's own peak, which shows what
//! overload does to it, and at the same rates for all, multiples of nginx's peak, for otherwise a
//! faster server is offered more. Counted are the answers in time, the share of clients that got
//! none, and, twice a second, the server's descriptors and its connections in CLOSE-WAIT: clients
//! that have gone and that it has not noticed, or not accepted yet. A second after the load they
//! are counted again. The next turn begins when the server has no connection left.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Context;

use super::bench::Bench;
use crate::harness::cgroup::{Group, NO_QUOTA};
use crate::harness::descriptors;
use crate::harness::report;
use crate::serving::client::{load, run_load, run_overload};
use crate::serving::connections::{CLOSE_WAIT, drain, standing};
use crate::serving::rounds::SetOnDrop;
use crate::serving::site;
use crate::serving::web::{Kind, Server};

const CASE: &str = "overload";
/// Of one CPU.
const SHARE: f64 = 0.125;
/// Offered, as multiples of a peak.
const OFFERED: [f64; 2] = [1.5, 2.0];
/// What a client waits for its answer.
const CLIENT_TIMEOUT: &str = "1s";
/// Between two looks at the server.
const LOOKS: Duration = Duration::from_millis(500);
/// Before the answers count, and after the load for what is left to be closed; less where a turn is
/// shorter.
const SETTLE: Duration = Duration::from_secs(1);

/// What a turn came to.
#[derive(Default)]
struct Turn {
    goodput: f64,
    /// The p99 of the requests that were answered, if any were.
    p99: Option<f64>,
    /// How late the client's requests started, p99.
    lateness: Option<f64>,
    failed: f64,
    descriptors: f64,
    memory: f64,
    close_wait: f64,
    left: f64,
}

pub(super) fn run(bench: &mut Bench) -> anyhow::Result<()> {
    if let Some(why) = Kind::Epoll.absence() {
        bench.findings.missing(CASE, why);
        return Ok(());
    }

    if !descriptors::at_least(bench.sizes.idle) {
        bench.findings.missing(CASE, descriptors::TOO_FEW);
        return Ok(());
    }

    let mut servers = Vec::new();
    for kind in Kind::ALL {
        if let Some(why) = kind.absence() {
            bench.findings.missing(kind.name(), why);
            continue;
        }

        let Some(group) = Group::under_quota("over", kind.name(), |group| group.limit(SHARE))
        else {
            bench.findings.missing(CASE, NO_QUOTA);
            return Ok(());
        };

        // All of them run at the same time, idle but for one: a round is then not spent on starts.
        servers.push(Server::start(kind, &bench.site, group.into())?);
    }

    let mut turns: Vec<Vec<Round>> = servers.iter().map(|_| Vec::new()).collect();
    for round in 0..=bench.runs {
        let mut nginx = None;
        for (n, server) in servers.iter().enumerate() {
            report::progress(&format!(
                "web: {CASE}, round {round} of {}, {}",
                bench.runs,
                server.kind.name()
            ));
            let peak = peak(bench, server)
                .with_context(|| format!("the peak of {}", server.kind.name()))?;
            // nginx is the first.
            if server.kind == Kind::Nginx {
                nginx = Some(peak);
            }

            // The first round warms up.
            if round > 0 {
                turns[n].push(Round::run(bench, server, peak, nginx)?);
            }
        }
    }

    let fact = format!(
        "{SHARE} of a CPU; a connection a request, {} at a time, {CLIENT_TIMEOUT} of patience",
        bench.sizes.idle
    );
    bench.findings.facts.push((CASE, fact));
    for (server, rounds) in servers.iter().zip(&turns) {
        tell(bench, server.kind.name(), rounds);
    }
    Ok(())
}

/// A server's round.
struct Round {
    peak: f64,
    /// At the multiples of its own peak.
    own: Vec<Turn>,
    /// At those of nginx's, if it is there.
    same: Vec<Turn>,
}

impl Round {
    fn run(bench: &Bench, server: &Server, peak: f64, nginx: Option<f64>) -> anyhow::Result<Self> {
        let turns = |peak: f64| {
            OFFERED
                .iter()
                .map(|factor| turn(bench, server, peak * factor))
                .collect()
        };

        // Its own peak is nginx's, so that would be the same load once more.
        let same = nginx
            .filter(|_| server.kind != Kind::Nginx)
            .map_or(Ok(Vec::new()), turns)?;
        Ok(Self {
            peak,
            own: turns(peak)?,
            same,
        })
    }
}

/// A server's rows. What nginx does at multiples of its own peak is what it does at nginx's.
fn tell(bench: &mut Bench, name: &str, rounds: &[Round]) {
    bench.findings.row(
        CASE,
        name,
        "peak_per_second",
        "1/s",
        rounds.iter().map(|round| round.peak).collect(),
    );
    for (step, factor) in OFFERED.iter().enumerate() {
        let case = format!("{CASE}-{factor}x");
        let kept = rounds
            .iter()
            .map(|round| round.own[step].goodput / round.peak)
            .collect();
        bench
            .findings
            .row(&case, name, "goodput_to_peak", "1", kept);
        rows(
            bench,
            &case,
            name,
            &rounds
                .iter()
                .map(|round| &round.own[step])
                .collect::<Vec<_>>(),
        );
        let same: Vec<_> = rounds
            .iter()
            .filter_map(|round| round.same.get(step))
            .collect();

        if !same.is_empty() {
            rows(bench, &format!("{CASE}-{factor}x-of-nginx"), name, &same);
        }
    }
}

/// The rows of one load.
fn rows(bench: &mut Bench, case: &str, name: &str, turns: &[&Turn]) {
    let of = |what: &dyn Fn(&Turn) -> f64| turns.iter().map(|turn| what(turn)).collect::<Vec<_>>();
    bench.findings.row(
        case,
        name,
        "goodput_per_second",
        "1/s",
        of(&|turn| turn.goodput),
    );
    bench
        .findings
        .row(case, name, "failed_share", "1", of(&|turn| turn.failed));
    bench.findings.row(
        case,
        name,
        "descriptors_max",
        "1",
        of(&|turn| turn.descriptors),
    );
    bench
        .findings
        .row(case, name, "memory_max", "B", of(&|turn| turn.memory));
    bench.findings.row(
        case,
        name,
        "close_wait_max",
        "1",
        of(&|turn| turn.close_wait),
    );
    bench
        .findings
        .row(case, name, "close_wait_after", "1", of(&|turn| turn.left));
    let timed = [
        (
            "answered_p99_us",
            (|turn| turn.p99) as fn(&Turn) -> Option<f64>,
        ),
        ("client_lateness_p99_us", |turn| turn.lateness),
    ];

    for (metric, of) in timed {
        let values: Vec<f64> = turns.iter().filter_map(|turn| of(turn)).collect();
        if !values.is_empty() {
            bench.findings.row(case, name, metric, "us", values);
        }
    }
}

/// Requests a second in a closed loop.
fn peak(bench: &Bench, server: &Server) -> anyhow::Result<f64> {
    let json = bench.site.dir().join("load.json");
    let url = format!("http://{}{}", server.address, site::path(0));
    let more = [
        "--no-keep-alive",
        "--connections",
        "64",
        "--warm-up",
        "500ms",
    ];
    let figures = run_load(&mut load("epoll", &url, bench.turn, &json, &more)?, &json)?;
    figures.check(server.kind.name())?;

    figures.get("rate_per_second")
}

/// More than that, by the clock.
fn turn(bench: &Bench, server: &Server, rate: f64) -> anyhow::Result<Turn> {
    let json = bench.site.dir().join("load.json");
    let url = format!("http://{}{}", server.address, site::path(0));
    let rate = rate.to_string();
    let connections = bench.sizes.idle.to_string();
    let more = [
        "--no-keep-alive",
        "--connections",
        &connections,
        "--rate",
        &rate,
        "--arrivals",
        "poisson",
    ];

    // The queue fills first: its beginning would make the overload look milder than it is.
    let settle = SETTLE.min(bench.turn);
    let warm_up = format!("{}ms", settle.as_millis());
    let more = [
        &more[..],
        &["--timeout", CLIENT_TIMEOUT, "--warm-up", &warm_up],
    ]
    .concat();
    let mut command = load("epoll", &url, bench.turn, &json, &more)?;
    let ended = AtomicBool::new(false);
    let mut turn = Turn::default();
    let figures = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !ended.load(Ordering::Relaxed) {
                turn.descriptors = turn.descriptors.max(server.descriptors() as f64);
                turn.memory = turn.memory.max(server.memory().unwrap_or(0.0));
                // What a server has not closed although its client is gone.
                turn.close_wait = turn
                    .close_wait
                    .max(standing(server.address, &[CLOSE_WAIT]) as f64);
                std::thread::sleep(LOOKS);
            }
        });
        let _end = SetOnDrop(&ended);
        run_overload(&mut command, &json)
    })?;

    turn.goodput = figures.get("rate_per_second")?;
    turn.failed = figures.failed_share()?;
    turn.p99 = figures.get("latency_p99_us").ok();
    turn.lateness = figures.get("lateness_p99_us").ok();

    // As long as clients are patient, so that what still stands afterwards was forgotten.
    std::thread::sleep(settle);
    turn.left = standing(server.address, &[CLOSE_WAIT]) as f64;
    drain(server.address);

    Ok(turn)
}
