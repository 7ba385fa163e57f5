//! CPU per request, of the server and of the generator: wrk, h2load and `plainweave load` in turn,
//! on one file.

use std::process::Command;
use std::time::Duration;

use anyhow::{Context, ensure};

use super::witness::whole_seconds;
use crate::harness::machine;
use crate::harness::report;
use crate::serving::bench::Bench;
use crate::serving::process::Conditions;
use crate::serving::web::{Kind, Server};
use crate::serving::{client, site, wrk};
use plainweave_report::statistics::ratios;

const CASE: &str = "generators";
/// After a turn, for the server to close what the generator has left.
const SETTLE: Duration = Duration::from_millis(50);

/// What makes the load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Generator {
    Wrk,
    /// The same: what lies between the two is noise.
    WrkAgain,
    H2load,
    Epoll,
    Uring,
}

impl Generator {
    const ALL: [Generator; 5] = [
        Generator::Wrk,
        Generator::WrkAgain,
        Generator::H2load,
        Generator::Epoll,
        Generator::Uring,
    ];

    fn name(self) -> &'static str {
        match self {
            Generator::Wrk => "wrk",
            Generator::WrkAgain => "wrk again",
            Generator::H2load => "h2load --h1",
            Generator::Epoll => "plainweave load epoll",
            Generator::Uring => "plainweave load uring",
        }
    }

    /// Returns why it cannot take part here.
    fn absence(self) -> Option<&'static str> {
        let program = match self {
            Generator::Wrk | Generator::WrkAgain => "wrk",
            Generator::H2load => "h2load",
            Generator::Epoll => return None,
            Generator::Uring => return Kind::Uring.absence(),
        };
        (!machine::installed(program)).then_some("not installed")
    }

    /// Returns how long its turn is: the others know whole seconds alone.
    fn length(self, turn: Duration) -> Duration {
        match self {
            Generator::Epoll | Generator::Uring => turn,
            _ => Duration::from_secs(whole_seconds(turn).into()),
        }
    }

    /// Makes a turn's load, and returns how many requests that were.
    fn turn(self, bench: &Bench<usize>, server: &Server) -> anyhow::Result<f64> {
        let path = site::path(0);
        let connections = bench.sizes;
        let url = format!("http://{}{path}", server.address);
        let driver = match self {
            Generator::Wrk | Generator::WrkAgain => {
                return wrk::run(&mut wrk::command(&url, connections, bench.turn));
            }
            Generator::H2load => return h2load(&url, connections, self.length(bench.turn)),
            Generator::Epoll => "epoll",
            Generator::Uring => "uring",
        };

        let json = bench.site.dir().join("load.json");
        let mut command = client::load(
            driver,
            &url,
            bench.turn,
            &json,
            &["--connections", &connections.to_string()],
        )?;
        let figures = client::run_load(&mut command, &json)?;
        figures.check(self.name())?;

        figures.get("requests")
    }
}

/// What a generator cost, a value a round.
#[derive(Debug, Default)]
struct Costs {
    server: Vec<f64>,
    client: Vec<f64>,
    rate: Vec<f64>,
}

pub(super) fn run(bench: &mut Bench<usize>) -> anyhow::Result<()> {
    let kind = if Kind::Nginx.absence().is_none() {
        Kind::Nginx
    } else {
        Kind::Epoll
    };

    let mut generators = Vec::new();
    for generator in Generator::ALL {
        match generator.absence() {
            Some(why) => bench.findings.missing(generator.name(), why),
            None => generators.push((generator, Costs::default())),
        }
    }

    let server = Server::start(kind, &bench.site, Conditions::default())?;
    let count = generators.len();
    for round in 0..=bench.runs {
        for place in 0..count {
            // Another order each round, to and fro: none always follows the same other.
            let place = (place + round) % count;
            let (generator, costs) = &mut generators[if round % 2 == 0 {
                place
            } else {
                count - 1 - place
            }];
            report::progress(&format!(
                "load: {CASE}, round {round} of {}, {}",
                bench.runs,
                generator.name()
            ));
            let server_before = server.cpu_ns()?;
            let client_before = client::children_cpu()?;
            let requests = generator
                .turn(bench, &server)
                .with_context(|| generator.name())?;

            std::thread::sleep(SETTLE);
            ensure!(
                requests > 0.0,
                "{}: no request was answered",
                generator.name()
            );

            // The first round warms up.
            if round > 0 {
                costs
                    .server
                    .push((server.cpu_ns()? - server_before) as f64 / 1e3 / requests);
                costs
                    .client
                    .push((client::children_cpu()? - client_before).as_secs_f64() * 1e6 / requests);
                costs
                    .rate
                    .push(requests / generator.length(bench.turn).as_secs_f64());
            }
        }
    }

    let wrk = generators
        .iter()
        .position(|(generator, _)| *generator == Generator::Wrk);
    for (n, (generator, costs)) in generators.iter().enumerate() {
        let name = generator.name();
        let mut row = |metric, unit, values| {
            bench.findings.row(CASE, name, metric, unit, values);
        };

        row("server_cpu_us_per_request", "us", costs.server.clone());
        row("client_cpu_us_per_request", "us", costs.client.clone());
        row("requests_per_second", "1/s", costs.rate.clone());

        if let Some(wrk) = wrk.filter(|wrk| *wrk != n).map(|wrk| &generators[wrk].1) {
            let server = ratios(&costs.server, &wrk.server);
            row("server_cpu_to_wrk", "1", server);
            let client = ratios(&costs.client, &wrk.client);
            row("client_cpu_to_wrk", "1", client);
        }
    }

    let served = format!(
        "{}, one file of 1 KiB, {} connections, depth 1",
        kind.name(),
        bench.sizes
    );
    bench.findings.facts.push(("served by", served));
    Ok(())
}

/// Runs h2load in HTTP/1.1, and returns its requests.
fn h2load(url: &str, connections: usize, length: Duration) -> anyhow::Result<f64> {
    let mut command = Command::new("h2load");
    command.args(["--h1", "-t1", "-m1", "-c", &connections.to_string()]);
    command.args(["-D", &length.as_secs().to_string(), url]);
    let output = command.output().context("cannot run h2load")?;
    let text = String::from_utf8_lossy(&output.stdout);
    ensure!(
        output.status.success(),
        "h2load: {}{text}",
        String::from_utf8_lossy(&output.stderr)
    );

    succeeded(&text)
}

/// Reads how many requests of h2load's succeeded; that others failed is reported.
fn succeeded(text: &str) -> anyhow::Result<f64> {
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("requests: "));
    let line = line.with_context(|| format!("h2load said nothing of its requests: {text}"))?;
    let count = |what: &str| {
        line.split(", ")
            .find_map(|part| part.strip_suffix(what)?.trim().parse::<f64>().ok())
    };

    for what in ["failed", "errored", "timeout"] {
        if count(what).is_some_and(|count| count > 0.0) {
            report::note(&format!("warning: h2load: {line}"));
        }
    }

    count("succeeded").with_context(|| format!("h2load said nothing of its successes: {line}"))
}

#[cfg(test)]
mod tests {
    use super::succeeded;

    #[test]
    fn what_h2load_says() {
        let text = "finished in 3.00s, 17.33 req/s, 9.10KB/s\n\
                    requests: 52 total, 54 started, 52 done, 51 succeeded, 1 failed, 0 errored, 0 timeout\n\
                    status codes: 51 2xx, 0 3xx, 1 4xx, 0 5xx\n";
        assert_eq!(succeeded(text).unwrap(), 51.0);
        assert!(succeeded("").is_err() && succeeded("requests: 5 total").is_err());
    }
}
