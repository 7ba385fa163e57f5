//! What connections over TLS notice of a thousand handshakes at once, all of them full (ECDSA
//! P-256).
//!
//! A handshake costs a server more than a hundred requests, and one that serves a thousand of them
//! in a row serves nobody else for a fifth of a second. So requests are sent by the clock on
//! connections that are kept alive, each every 10 ms, before the burst and while it goes on, and
//! their latency counts from when they were due: what waits behind a stalled request is late too.
//!
//! The crowd shares the client's CPU. Its first messages are made before the burst; and it has the
//! lowest priority there, so that it does not hold up those whose latency counts.

use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use rustls::ClientConnection;

use super::bench::Bench;
use super::tls::{self, Certificate, OTHERS};
use crate::harness::descriptors;
use crate::harness::report;
use crate::serving::process::Process;
use crate::serving::site::{self, SIZE};

const CASE: &str = "handshakes";
/// Between two requests of a connection.
const PERIOD: Duration = Duration::from_millis(10);
/// Of requests alone, before the burst.
const ALONE: Duration = Duration::from_millis(500);
/// From the first connection to the first request that counts.
const SETTLE: Duration = Duration::from_millis(200);
/// Lowest priority (setpriority(2)).
const NICEST: i32 = 19;

/// What a turn found.
struct Turn {
    /// Latencies in microseconds, sorted.
    alone: Vec<f64>,
    beside: Vec<f64>,
    /// For all handshakes.
    length: Duration,
    cpu_ns: u64,
    failed: usize,
}

pub(super) fn run(bench: &mut Bench) -> anyhow::Result<()> {
    if !descriptors::at_least(bench.sizes.crowd + bench.sizes.connections) {
        bench.findings.missing(CASE, descriptors::TOO_FEW);
        return Ok(());
    }

    let certificate = Certificate::new(&bench.site)?;
    let servers = tls::start(bench, CASE, &certificate)?;
    let mut turns: Vec<Vec<Turn>> = servers.iter().map(|_| Vec::new()).collect();

    for round in 0..=bench.runs {
        for ((name, server), turns) in servers.iter().zip(&mut turns) {
            report::progress(&format!(
                "{}: {CASE}, round {round} of {}, {name}",
                bench.findings.origin().name(),
                bench.runs
            ));
            let turn = turn(bench, server, &certificate).context(*name)?;
            // The first round warms up.
            if round > 0 {
                turns.push(turn);
            }
        }
    }

    let nginx = servers.iter().position(|(name, _)| *name == OTHERS[0].0);
    for ((name, _), of) in servers.iter().zip(&turns) {
        for (metric, unit, figure) in METRICS {
            bench.findings.row(
                CASE,
                name,
                metric,
                unit,
                of.iter()
                    .map(|turn| figure(turn, bench.sizes.crowd))
                    .collect(),
            );
        }

        if let Some(nginx) = nginx.filter(|n| servers[*n].0 != *name) {
            let ratio =
                |(own, nginx): (&Turn, &Turn)| at(&own.beside, 0.99) / at(&nginx.beside, 0.99);
            bench.findings.row(
                CASE,
                name,
                "p99_to_nginx",
                "1",
                of.iter().zip(&turns[nginx]).map(ratio).collect(),
            );
        }
    }

    let load = format!(
        "{CASE}: {} at once beside {} connections, each of them",
        bench.sizes.crowd, bench.sizes.connections
    );
    bench.findings.facts.push((
        "load",
        format!("{load} with a request every {} ms", PERIOD.as_millis()),
    ));
    Ok(())
}

/// A figure's name, its unit, and where it is, given the number of handshakes.
type Metric = (&'static str, &'static str, fn(&Turn, usize) -> f64);

const METRICS: [Metric; 7] = [
    ("p99_us_alone", "us", |turn, _| at(&turn.alone, 0.99)),
    ("p50_us_beside", "us", |turn, _| at(&turn.beside, 0.5)),
    ("p99_us_beside", "us", |turn, _| at(&turn.beside, 0.99)),
    ("max_us_beside", "us", |turn, _| at(&turn.beside, 1.0)),
    ("burst_ms", "ms", |turn, _| turn.length.as_secs_f64() * 1e3),
    ("cpu_us_per_handshake", "us", |turn, crowd| {
        turn.cpu_ns as f64 / 1e3 / crowd as f64
    }),
    ("failures", "1", |turn, _| turn.failed as f64),
];

/// Returns the value that this share of the sorted ones does not exceed.
fn at(sorted: &[f64], share: f64) -> f64 {
    let place = (sorted.len() as f64 * share).ceil() as usize;
    sorted.get(place.max(1) - 1).copied().unwrap_or(f64::NAN)
}

/// A request: when it was due, and how long it then took.
type Request = (Instant, Duration);

/// Sends requests by the clock, and after a while the burst.
fn turn(bench: &Bench, server: &Process, certificate: &Certificate) -> anyhow::Result<Turn> {
    let address = server.address;
    let end = OnceLock::new();
    // Connections and first messages are made before the clock starts: the server's handshakes are
    // what is measured.
    let crowd = (0..bench.sizes.crowd)
        .map(|_| Newcomer::connect(address, certificate))
        .collect::<Result<Vec<_>, _>>()?;
    std::thread::scope(|scope| {
        let connections: Vec<_> = (0..bench.sizes.connections)
            .map(|n| {
                scope.spawn({
                    let end = &end;
                    move || {
                        by_the_clock(
                            address,
                            certificate,
                            // Apart, or all requests would be due at the same moment.
                            PERIOD.mul_f64(n as f64 / bench.sizes.connections as f64),
                            end,
                        )
                    }
                })
            })
            .collect();
        let burst = {
            // Also after a panic: the other threads would ask for ever, and the scope wait for
            // them.
            let _end = EndOnDrop(&end);
            // What is compared with: the same connections without the crowd.
            std::thread::sleep(SETTLE + ALONE);
            let burst = scope.spawn(|| burst(crowd, server)).join();
            burst.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        };

        let mut requests = Vec::new();
        for connection in connections {
            requests.extend(
                connection
                    .join()
                    .unwrap_or_else(|panic| std::panic::resume_unwind(panic))?,
            );
        }

        let Burst {
            start,
            length,
            cpu_ns,
            failed,
        } = burst?;
        let within = |from: Instant, until: Instant| {
            let within = requests
                .iter()
                .filter(|(due, _)| (from..until).contains(due));
            let mut latencies: Vec<_> = within
                .map(|(_, latency)| latency.as_secs_f64() * 1e6)
                .collect();
            latencies.sort_by(f64::total_cmp);
            latencies
        };

        let alone = within(start - ALONE, start);
        let beside = within(start, start + length);
        ensure!(
            !alone.is_empty() && !beside.is_empty(),
            "no request was due beside the handshakes"
        );
        Ok(Turn {
            alone,
            beside,
            length,
            cpu_ns,
            failed,
        })
    })
}

/// Says when the requests end, also if something panics.
struct EndOnDrop<'a>(&'a OnceLock<Instant>);

impl Drop for EndOnDrop<'_> {
    fn drop(&mut self) {
        let _ = self.0.set(Instant::now());
    }
}

/// Sends a request each period on a connection of its own, and the next ones late if an answer is,
/// until all that were due before the end have been sent.
fn by_the_clock(
    address: SocketAddr,
    certificate: &Certificate,
    offset: Duration,
    end: &OnceLock<Instant>,
) -> anyhow::Result<Vec<Request>> {
    let path = site::path(0);
    let body = site::content(0, SIZE);
    let mut checker = certificate.connect(address)?;
    checker.check(&path, &body)?;
    let mut requests = Vec::new();
    let mut due = Instant::now() + offset;

    while end.get().is_none_or(|end| due < *end) {
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
        checker.check(&path, &body)?;
        requests.push((due, due.elapsed()));
        // By the clock, whatever the last one took: what waits behind it is late too.
        due += PERIOD;
    }

    Ok(requests)
}

/// A client that is connected, and its first message.
struct Newcomer {
    stream: TcpStream,
    session: ClientConnection,
    hello: Vec<u8>,
}

impl Newcomer {
    fn connect(address: SocketAddr, certificate: &Certificate) -> anyhow::Result<Self> {
        let mut session = certificate.client()?;
        let mut hello = Vec::new();
        session.write_tls(&mut hello)?;
        Ok(Self {
            stream: tls::open(address)?,
            session,
            hello,
        })
    }

    fn complete(&mut self) -> anyhow::Result<()> {
        while self.session.is_handshaking() {
            self.session.complete_io(&mut self.stream)?;
        }
        Ok(())
    }
}

/// From the first message of the first newcomer to the end of the last handshake.
struct Burst {
    start: Instant,
    length: Duration,
    cpu_ns: u64,
    failed: usize,
}

/// Context: a thread of its own, which it makes the least important one.
fn burst(mut crowd: Vec<Newcomer>, server: &Process) -> anyhow::Result<Burst> {
    // Of this thread alone. Without it the figures have more of the client in them.
    let _ = rustix::process::setpriority_process(None, NICEST);
    let before = server.cpu_ns()?;
    let start = Instant::now();
    let mut failed = 0;
    // All messages first, so that they are there at once.
    crowd.retain_mut(|newcomer| {
        let sent = newcomer.stream.write_all(&newcomer.hello).is_ok();
        failed += usize::from(!sent);
        sent
    });
    for newcomer in &mut crowd {
        failed += usize::from(newcomer.complete().is_err());
    }

    Ok(Burst {
        start,
        length: start.elapsed(),
        cpu_ns: server.cpu_ns()? - before,
        failed,
    })
}
