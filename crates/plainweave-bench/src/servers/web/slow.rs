//! Slow clients beside fast ones: half of them send a request byte by byte, a byte a second, each
//! at its own time; the others ask for a file of 1 MiB and do not read it. What does it do to the
//! p99 of other clients, and what does a byte cost the server?
//!
//! There are two answers. Right after the clients that do not read have connected, the kernel sends
//! each of them a probe of its zero window, and again after twice the time; while there are many,
//! the bursts delay everything on the CPU. Some seconds later there are few. So the fast clients
//! run at both times, `newcomers` and `beside`.
//!
//! The kernel's part is separated by a witness: a second server of the same kind on the same CPU,
//! which has no slow clients. Both are asked at the same time.
//!
//! The crowd shares a CPU with the fast clients' load generator. It has the lowest priority there,
//! so that it does not hold that one up; how late its requests were is reported beside their
//! latency, which counts from when they were due.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context;

use super::bench::Bench;
use crate::harness::descriptors;
use crate::harness::report;
use crate::serving::catalog::Catalog;
use crate::serving::client::{Figures, load, run_load};
use crate::serving::rounds::SetOnDrop;
use crate::serving::site;
use crate::serving::site::{FIELDS, request};
use crate::serving::web::{Kind, Server};
use plainweave_report::statistics::ratios;

const CASE: &str = "slow-10000";
/// Of a server's fast clients, in all.
const RATE: &str = "1000";
const FAST: &str = "32";
/// A byte of each.
const DRIP: Duration = Duration::from_secs(1);
/// From the newcomers to the others: five doublings of the first probe's fifth of a second.
const SETTLE: Duration = Duration::from_secs(8);
/// For what a byte costs; less where a turn is short.
const PRICED: Duration = Duration::from_secs(2);

pub(super) fn run(bench: &mut Bench) -> anyhow::Result<()> {
    if let Some(why) = Kind::Epoll.absence() {
        bench.findings.missing(CASE, why);
        return Ok(());
    }

    if !descriptors::at_least(bench.sizes.idle) {
        bench.findings.missing(CASE, descriptors::TOO_FEW);
        return Ok(());
    }

    let large = Catalog::of(&bench.site, 4, 1 << 20)?;
    // nginx's: no client times out while the others are served.
    let patient = ["--header-timeout", "60s", "--write-timeout", "60s"];

    let servers = bench.servers(&Kind::ALL, &patient)?;
    let witnesses = bench.servers(&Kind::ALL, &patient)?;
    for (server, witness) in servers.iter().zip(&witnesses) {
        let mut alone = Vec::new();
        let mut newcomers = Pairs::default();
        let mut beside = Pairs::default();
        let mut memory = Vec::new();
        let mut cpu = Vec::new();
        for round in 1..=bench.runs.min(3) {
            report::progress(&format!(
                "web: {CASE}, round {round}, {}",
                server.kind.name()
            ));
            let pair = [server, witness];
            ask_both(bench, pair)?; // Warms up.
            let [before_them, _] = ask_both(bench, pair)?;
            alone.push(before_them);
            let before = server.memory()?;
            let ended = AtomicBool::new(false);
            let dripped = AtomicU64::new(0);
            let ended = &ended;
            let dripped = &dripped;
            let result = std::thread::scope(|scope| {
                let path = &large.items[0].path;
                let address = server.address;
                let count = bench.sizes.idle;
                let crowd = scope.spawn(move || crowd(address, path, count, ended, dripped));
                let measure = || -> anyhow::Result<_> {
                    while dripped.load(Ordering::Relaxed) < count as u64 / 2 && !crowd.is_finished()
                    {
                        std::thread::sleep(Duration::from_millis(10));
                    }
                    let newcomers = ask_both(bench, pair)?;

                    // A test's turn is short, and so is its patience.
                    std::thread::sleep(SETTLE.min(8 * bench.turn));
                    let asked = ask_both(bench, pair)?;
                    Ok((
                        newcomers,
                        asked,
                        price(server, dripped, PRICED.min(4 * bench.turn))?,
                        server.memory()?,
                    ))
                };

                let result = {
                    let _end = SetOnDrop(ended);
                    measure()
                };

                crowd
                    .join()
                    .unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
                result
            });

            let (came, asked, price, after) = result?;
            cpu.push(price);
            newcomers.push(came);
            beside.push(asked);
            memory.push((after - before) / bench.sizes.idle as f64);
        }

        let name = server.kind.name();
        for (metric, unit, values) in latencies(&alone, &newcomers, &beside) {
            bench.findings.row(CASE, name, metric, unit, values);
        }
        bench
            .findings
            .row(CASE, name, "cpu_us_per_dripped_byte", "us", cpu);
        bench
            .findings
            .row(CASE, name, "bytes_per_slow_client", "B", memory);
    }

    let fact = format!(
        "{} of them; fast ones of each server {RATE}/s on {FAST} connections, Poisson",
        bench.sizes.idle
    );
    bench.findings.facts.push(("slow clients", fact));
    Ok(())
}

/// Metric, unit, and a value of each round.
type Column = (&'static str, &'static str, Vec<f64>);

/// Returns the rows of latencies. One without a value in some round is left out.
fn latencies(alone: &[Asked], newcomers: &Pairs, beside: &Pairs) -> Vec<Column> {
    let mut rows = Vec::new();
    for Figure { metrics, of } in FIGURES {
        let all = |asked: &[Asked]| asked.iter().map(of).collect::<Option<Vec<f64>>>();
        let alone = all(alone);
        rows.extend(alone.clone().map(|alone| (metrics[0], "us", alone)));
        for ([metric, ratio], asked) in [([1, 2], newcomers), ([3, 4], beside)] {
            let Some(asked) = all(&asked.own) else {
                continue;
            };
            rows.extend(
                alone
                    .as_ref()
                    .map(|alone| (metrics[ratio], "1", ratios(&asked, alone))),
            );
            rows.push((metrics[metric], "us", asked));
        }
    }

    for (asked, ratio) in [
        (newcomers, "p99_newcomers_to_witness"),
        (beside, "p99_beside_to_witness"),
    ] {
        let [own, witness] = [&asked.own, &asked.witness]
            .map(|asked| asked.iter().map(|asked| asked.p99).collect::<Vec<_>>());
        rows.push((ratio, "1", ratios(&own, &witness)));
    }

    rows
}

/// What a run of the fast ones came to, in microseconds.
struct Asked {
    p50: f64,
    p99: f64,
    /// p99 of how late the client itself was. `None` if it was behind all the time: it notes this
    /// of requests that it has waited for.
    lateness: Option<f64>,
}

impl Asked {
    fn of(figures: &Figures) -> anyhow::Result<Self> {
        Ok(Self {
            p50: figures.get("latency_p50_us")?,
            p99: figures.get("latency_p99_us")?,
            lateness: figures.get("lateness_p99_us").ok(),
        })
    }
}

struct Figure {
    /// Alone; beside newcomers, and that to alone; beside all of them when they have been there for
    /// a while, to alone.
    metrics: [&'static str; 5],
    of: fn(&Asked) -> Option<f64>,
}

const FIGURES: [Figure; 3] = [
    Figure {
        metrics: [
            "p50_us_alone",
            "p50_us_newcomers",
            "p50_newcomers_to_alone",
            "p50_us_beside",
            "p50_beside_to_alone",
        ],
        of: |asked| Some(asked.p50),
    },
    Figure {
        metrics: [
            "p99_us_alone",
            "p99_us_newcomers",
            "p99_newcomers_to_alone",
            "p99_us_beside",
            "p99_beside_to_alone",
        ],
        of: |asked| Some(asked.p99),
    },
    Figure {
        metrics: [
            "lateness_p99_us_alone",
            "lateness_p99_us_newcomers",
            "lateness_p99_newcomers_to_alone",
            "lateness_p99_us_beside",
            "lateness_p99_beside_to_alone",
        ],
        of: |asked| asked.lateness,
    },
];

/// What the rounds came to for the server with the slow clients, and for its witness.
#[derive(Default)]
struct Pairs {
    own: Vec<Asked>,
    witness: Vec<Asked>,
}

impl Pairs {
    fn push(&mut self, [own, witness]: [Asked; 2]) {
        self.own.push(own);
        self.witness.push(witness);
    }
}

/// CPU of the server for a byte of the slow ones, in microseconds.
fn price(server: &Server, dripped: &AtomicU64, length: Duration) -> anyhow::Result<f64> {
    let before = (server.cpu_ns()?, dripped.load(Ordering::Relaxed));
    std::thread::sleep(length);
    let bytes = dripped.load(Ordering::Relaxed) - before.1;
    Ok((server.cpu_ns()? - before.0) as f64 / 1e3 / bytes.max(1) as f64)
}

/// Runs the fast clients, of two servers at the same time.
fn ask_both(bench: &Bench, pair: [&Server; 2]) -> anyhow::Result<[Asked; 2]> {
    std::thread::scope(|scope| {
        let second = scope.spawn(|| ask(bench, pair[1], "witness.json"));
        let first = ask(bench, pair[0], "load.json");
        let second = second
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        Ok([first?, second?])
    })
}

fn ask(bench: &Bench, server: &Server, json: &str) -> anyhow::Result<Asked> {
    let json = bench.site.dir().join(json);
    let url = format!("http://{}{}", server.address, site::path(0));
    let more = [
        "--connections",
        FAST,
        "--rate",
        RATE,
        "--arrivals",
        "poisson",
        "--warm-up",
        "300ms",
    ];
    let figures = run_load(&mut load("epoll", &url, bench.turn, &json, &more)?, &json)?;
    figures.check(server.kind.name())?;

    let asked = Asked::of(&figures)?;
    if asked.lateness.is_none() {
        let name = server.kind.name();
        report::note(&format!(
            "warning: {CASE}, {name}: the fast clients were behind all the time; no lateness of theirs"
        ));
    }

    Ok(asked)
}

/// Runs the slow clients on this thread until `ended`. `sent` counts their bytes.
fn crowd(
    address: SocketAddr,
    path: &str,
    count: usize,
    ended: &AtomicBool,
    sent: &AtomicU64,
) -> anyhow::Result<()> {
    // On Linux, of this thread. Not allowed: then it is in the way a little.
    let _ = rustix::process::nice(19);
    let drip = request(&site::path(1), FIELDS[1]);
    let whole = request(path, FIELDS[0]);
    let connect = || -> anyhow::Result<TcpStream> {
        let stream = TcpStream::connect(address).context("a slow client")?;
        stream.set_nonblocking(true)?;
        Ok(stream)
    };

    let mut drippers = Vec::new();
    let mut deaf = Vec::new();
    for _ in 0..count / 2 {
        drippers.push((connect()?, 0));
        let mut stream = connect()?;
        // A server that sheds load may have closed it already.
        let _ = stream.write_all(whole.as_bytes());
        deaf.push(stream);
    }

    let start = Instant::now();
    let mut dripped = 0;
    while !ended.load(Ordering::Relaxed) {
        // Evenly over the second: slow clients know nothing of each other.
        let due = start.elapsed().as_secs_f64() / DRIP.as_secs_f64() * drippers.len() as f64;
        while dripped < due as usize && !ended.load(Ordering::Relaxed) {
            let turn = dripped % drippers.len();
            let (stream, at) = &mut drippers[turn];
            let byte = &drip.as_bytes()[*at % drip.len()..][..1];

            // A server that has had enough answers 408 and closes: another one comes.
            let open = stream
                .read(&mut [0; 512])
                .is_err_and(|error| error.kind() == ErrorKind::WouldBlock);
            if open && stream.write(byte).is_ok() {
                *at += 1;
            } else {
                (*stream, *at) = (connect()?, 0);
            }

            dripped += 1;
            sent.store(dripped as u64, Ordering::Relaxed);
        }
        std::thread::sleep(Duration::from_millis(1));
    }

    drop(deaf);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_that_is_always_behind_has_latencies_and_no_lateness() {
        let asked = |lateness: &[(&str, f64)]| {
            let latencies = [("latency_p50_us", 10.0), ("latency_p99_us", 30.0)];
            let figures = Figures::of(&[&latencies, lateness].concat());
            Asked::of(&figures).expect("latencies are enough")
        };

        let on_time = &[("lateness_p99_us", 5.0)];
        let pairs = |own: &[(&str, f64)]| Pairs {
            own: vec![asked(own)],
            witness: vec![asked(on_time)],
        };

        let rows = latencies(&[asked(on_time)], &pairs(&[]), &pairs(on_time));
        let of = |metric: &str| rows.iter().find(|row| row.0 == metric).map(|row| row.2[0]);
        assert_eq!(of("p99_us_newcomers"), Some(30.0));
        assert_eq!(of("p99_newcomers_to_witness"), Some(1.0));
        assert_eq!(of("lateness_p99_us_alone"), Some(5.0));
        assert_eq!(
            (
                of("lateness_p99_us_newcomers"),
                of("lateness_p99_newcomers_to_alone")
            ),
            (None, None)
        );
        assert_eq!(of("lateness_p99_beside_to_alone"), Some(1.0));
    }
}
