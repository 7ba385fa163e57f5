//! Latencies that are known: a server that sleeps for each request, and notes how long it had it.
//!
//! Published generators have to find them too: httperf on the web server, mutilate on the cache, at
//! the same rate (`witness`). Where ours and theirs find the same, neither alone has to be
//! believed.

use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context;
use hdrhistogram::Histogram;

use super::witness::{self, Witness};
use crate::harness::machine;
use crate::harness::report;
use crate::serving::bench::Bench;
use crate::serving::client;
use crate::serving::web::{Kind, plainweave_program};
use plainweave_report::statistics::ratios;

/// What a request takes, and one in [`EVERY`]: p50 is the first, p99 the second.
const USUAL: Duration = Duration::from_millis(10);
const LONG: Duration = Duration::from_millis(100);
const EVERY: u64 = 50;
/// Requests a second: few of them are there at a time, so that none waits for a connection or a
/// processor.
const RATE: u32 = 100;
const HTTP: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";

/// What it speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Protocol {
    Http,
    /// A cache that has nothing.
    Cache,
}

impl Protocol {
    fn case(self) -> &'static str {
        if self == Protocol::Http {
            "oracle-http"
        } else {
            "oracle-cache"
        }
    }

    /// Returns the load at a rate on such a server.
    fn load(self, address: SocketAddr, driver: &str) -> anyhow::Result<Command> {
        let mut command = Command::new(plainweave_program().context("no plainweave")?);
        command.arg("load");
        match self {
            Protocol::Http => command.args(["http", &format!("http://{address}/")]),
            Protocol::Cache => {
                command.args(["cache", &address.to_string(), "--no-load", "--keys", "100"])
            }
        };

        command.args([
            "--workers",
            "1",
            "--io",
            driver,
            "--rate",
            &RATE.to_string(),
            "--arrivals",
            "poisson",
        ]);
        command.args(["--max-errors", "0", "--min-rate", "0", "--quiet"]);
        Ok(command)
    }
}

/// The server; its threads end with the connections, and the first with the process.
struct Sleeper {
    address: SocketAddr,
    /// In nanoseconds, since they were taken last.
    had: Arc<Mutex<Histogram<u64>>>,
}

impl Sleeper {
    fn start(protocol: Protocol) -> anyhow::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("cannot listen")?;
        let address = listener.local_addr()?;
        let had = Arc::new(Mutex::new(Histogram::new(3)?));
        let noted = had.clone();
        let count = Arc::new(AtomicU64::new(0));
        thread::Builder::new().spawn(move || {
            machine::pin_to(0);
            for stream in listener.incoming().map_while(Result::ok) {
                let noted = noted.clone();
                let count = count.clone();
                thread::spawn(move || serve(stream, protocol, &noted, &count));
            }
        })?;

        Ok(Self { address, had })
    }

    /// Returns the percentiles of what it noted, in microseconds, and starts over.
    fn take(&self) -> [f64; 2] {
        let mut had = self.had.lock().unwrap_or_else(PoisonError::into_inner);
        let found = [50.0, 99.0].map(|percentile| had.value_at_percentile(percentile) as f64 / 1e3);
        had.reset();
        found
    }
}

/// Answers the requests of a connection, until that ends.
fn serve(stream: TcpStream, protocol: Protocol, noted: &Mutex<Histogram<u64>>, count: &AtomicU64) {
    let _ = stream.set_nodelay(true);
    let mut stream = BufReader::new(stream);
    let mut line = String::new();
    while stream.read_line(&mut line).is_ok_and(|read| read > 0) {
        let whole = protocol == Protocol::Cache || line == "\r\n";
        line.clear();
        if !whole {
            continue;
        }
        let came = Instant::now();

        // Each connection begins with usual ones: all share the count.
        let long = count.fetch_add(1, Ordering::Relaxed) % EVERY == EVERY - 1;
        thread::sleep(if long { LONG } else { USUAL });
        let had = u64::try_from(came.elapsed().as_nanos()).unwrap_or(u64::MAX);
        let _ = noted
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .record(had);
        let answer = if protocol == Protocol::Http {
            HTTP
        } else {
            b"END\r\n"
        };

        if stream.get_mut().write_all(answer).is_err() {
            return;
        }
    }
}

/// Who makes the load.
#[derive(Clone, Copy, Debug)]
enum Client {
    /// Ours, on a driver.
    Ours(&'static str),
    Other(Witness),
}

impl Client {
    fn name(self) -> String {
        match self {
            Client::Ours(driver) => format!("plainweave load {driver}"),
            Client::Other(witness) => witness.program().to_owned(),
        }
    }

    /// Makes a turn's load; returns p50 and p99 in microseconds, where it says them.
    fn turn(
        self,
        bench: &Bench<usize>,
        protocol: Protocol,
        address: SocketAddr,
    ) -> anyhow::Result<[Option<f64>; 2]> {
        let driver = match self {
            Client::Ours(driver) => driver,
            Client::Other(witness) => {
                let found = witness.run(address, RATE, witness::whole_seconds(bench.turn))?;
                return Ok(found);
            }
        };

        let json = bench.site.dir().join("oracle.json");
        let mut command = protocol.load(address, driver)?;
        command
            .args(["--duration", &format!("{}ms", bench.turn.as_millis())])
            .arg(client::to_json(&json));
        let figures = client::run_load(&mut command, &json)?;
        let [p50, p99] = ["latency_p50_us", "latency_p99_us"].map(|name| figures.get(name));
        Ok([Some(p50?), Some(p99?)])
    }
}

pub(super) fn run(bench: &mut Bench<usize>) -> anyhow::Result<()> {
    let mut drivers = vec!["epoll", "uring"];
    if let Some(why) = Kind::Uring.absence() {
        bench.findings.missing("plainweave load uring", why);
        drivers.pop();
    }

    for (protocol, witness) in [
        (Protocol::Http, Witness::Httperf),
        (Protocol::Cache, Witness::Mutilate),
    ] {
        let mut clients: Vec<_> = drivers.iter().map(|driver| Client::Ours(driver)).collect();
        if machine::installed(witness.program()) {
            clients.push(Client::Other(witness));
        } else {
            bench.findings.missing(witness.program(), "not installed");
        }

        measure(bench, protocol, &clients)?;
    }

    let what = format!(
        "{RATE} requests/s, Poisson, from httperf at even gaps; it sleeps {USUAL:?}, and \
         {LONG:?} for one in {EVERY}; compared with what it noted"
    );
    bench.findings.facts.push(("oracle", what));
    Ok(())
}

/// What a client found, and what the server had noted, p50 and p99, a value a round.
type Pairs = [(Vec<f64>, Vec<f64>); 2];

/// Has the clients take turns on one server.
fn measure(bench: &mut Bench<usize>, protocol: Protocol, clients: &[Client]) -> anyhow::Result<()> {
    let sleeper = Sleeper::start(protocol)?;
    machine::pin_to(1);
    // Nothing of one that has failed.
    let mut all = vec![Some(Pairs::default()); clients.len()];
    let case = protocol.case();

    for round in 0..=bench.runs {
        for (client, pairs) in clients.iter().zip(&mut all) {
            let Some(values) = pairs else { continue };
            let name = client.name();
            report::progress(&format!(
                "load: {case}, round {round} of {}, {name}",
                bench.runs
            ));
            sleeper.take();
            let found = match client.turn(bench, protocol, sleeper.address) {
                Ok(found) => found,
                // Theirs may fail, and ours goes on.
                Err(error) if matches!(client, Client::Other(_)) => {
                    bench.findings.missing(name, format!("{error:#}"));
                    *pairs = None;
                    continue;
                }
                Err(error) => return Err(error.context(name)),
            };
            let noted = sleeper.take();

            // The first round warms up.
            let counted = found.into_iter().zip(noted).filter(|_| round > 0);
            for ((found, noted), (ours, known)) in counted.zip(values) {
                if let Some(found) = found {
                    ours.push(found);
                    known.push(noted);
                }
            }
        }
    }

    let metrics = [
        ["p50_us", "noted_p50_us", "p50_to_noted"],
        ["p99_us", "noted_p99_us", "p99_to_noted"],
    ];
    for (client, pairs) in clients.iter().zip(all) {
        let system = client.name();
        let pairs = metrics.into_iter().zip(pairs.into_iter().flatten());
        for ([metric, noted, ratio], (found, known)) in pairs {
            // What a client does not say.
            if found.is_empty() {
                continue;
            }
            let ratios = ratios(&found, &known);
            bench.findings.row(case, &system, metric, "us", found);
            bench.findings.row(case, &system, noted, "us", known);
            bench.findings.row(case, &system, ratio, "1", ratios);
        }
    }

    Ok(())
}
