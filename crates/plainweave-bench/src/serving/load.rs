//! A turn of `plainweave load`, and what the server spent meanwhile.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, ensure};

use super::catalog::Catalog;
use super::client;
use super::server::{Server, one_cpu};
use super::site::{self, Site};
use super::web::plainweave_program;
use crate::harness::machine;

/// The steady part of a load.
const STEADY: (f64, f64) = (0.1, 0.9);
/// Between two readings of the server's CPU time.
const READING: Duration = Duration::from_millis(20);

/// What is asked for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum What<'a> {
    /// One file of 1 KiB, of a web server.
    File,
    /// Files of a mix, in its order.
    Mix(&'a Catalog),
    /// A thousand keys, of a cache.
    Keys,
    /// Keys and values of the sizes that Facebook found, 3 % updates.
    Updates,
}

impl What<'_> {
    fn is_web(self) -> bool {
        matches!(self, What::File | What::Mix(_))
    }

    /// Returns how long an answer's body or value is on average. That is what the raw loop sends
    /// each time.
    pub(crate) fn mean(self) -> usize {
        match self {
            What::File => site::SIZE,
            What::Mix(catalog) => {
                let asked = catalog.order.iter().map(|&n| catalog.items[n].len);
                asked.sum::<usize>() / catalog.order.len().max(1)
            }
            What::Keys => 200,
            // Of `fb_value`.
            What::Updates => 194,
        }
    }
}

/// Which part of the server's CPU time counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Counted {
    /// All, with that for making the connections.
    Whole,
    /// That of the steady part, between connecting and closing.
    Steady,
}

/// What is sent.
pub(crate) struct Load<'a> {
    pub(crate) what: What<'a>,
    pub(crate) connections: usize,
    /// A connection for each request.
    pub(crate) connect: bool,
    /// Requests a second; `None`: the next one when the last is answered.
    pub(crate) rate: Option<usize>,
    pub(crate) time: Duration,
    pub(crate) counted: Counted,
}

/// What came of it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Figures {
    /// CPU time of the server, a request.
    pub(crate) cpu_us: f64,
    pub(crate) rate: f64,
    pub(crate) p50: f64,
    pub(crate) p99: f64,
    pub(crate) p999: f64,
    /// In the middle of the load.
    pub(crate) memory_mb: f64,
    pub(crate) errors: f64,
    /// From when to when the load was steady, after 1970.
    pub(crate) steady: (Duration, Duration),
}

/// The server's CPU time, in nanoseconds, at some moment after 1970.
type Reading = (Duration, u64);

impl Load<'_> {
    /// Loads a server that has just started.
    pub(crate) fn run(&self, server: &Server, site: &Site) -> anyhow::Result<Figures> {
        if !self.what.is_web() {
            // Stores the keys, which is no part of the turn.
            let stored = self
                .command(server, site)?
                .args(["-c", "1", "-n", "1"])
                .output()?;
            ensure!(
                stored.status.success(),
                "the keys were not stored: {}",
                String::from_utf8_lossy(&stored.stderr)
            );
        }

        let json = site.dir().join("load.json");
        let mut command = self.command(server, site)?;
        command
            .arg("-c")
            .arg(self.connections.to_string())
            .arg("-d")
            .arg(format!("{}ms", self.time.as_millis()));
        if let Some(rate) = self.rate {
            command.arg("--rate").arg(rate.to_string());
        }
        if self.connect {
            command.arg("--no-keep-alive");
        }
        if !self.what.is_web() {
            command.arg("--no-load");
        }
        command.arg(client::to_json(&json));

        // A server of several workers takes turns with the load on all CPUs: each gets the time of
        // one.
        let group = if server.workers() > 1 {
            Some(one_cpu("load")?)
        } else {
            None
        };

        if let Some(group) = &group {
            command = group.around(&command);
            machine::pin_to_first(server.workers());
        }

        let load = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn();
        machine::pin_to(1);
        let (readings, memory) = self.watch(server, load)?;
        figures(&json)?.with(self, &readings, memory)
    }

    /// Waits for the end of the load.
    fn watch(
        &self,
        server: &Server,
        load: std::io::Result<Child>,
    ) -> anyhow::Result<(Vec<Reading>, f64)> {
        let mut load = load.context("cannot run plainweave load")?;
        let mut readings = vec![(now(), server.cpu_ns()?)];
        let mut memory = None;

        while load.try_wait()?.is_none() {
            std::thread::sleep(READING);
            if self.counted == Counted::Steady {
                readings.push((now(), server.cpu_ns()?));
            }
            if memory.is_none() && now() >= readings[0].0 + self.time / 2 {
                memory = Some(server.memory()?);
            }
        }

        let output = load.wait_with_output()?;
        ensure!(
            output.status.success(),
            "plainweave load: {}",
            String::from_utf8_lossy(&output.stderr).trim()
        );
        readings.push((now(), server.cpu_ns()?));
        Ok((readings, memory.unwrap_or(f64::NAN)))
    }

    fn command(&self, server: &Server, site: &Site) -> anyhow::Result<Command> {
        let program = plainweave_program()
            .context("the program plainweave is not beside plainweave-bench")?;
        let mut command = Command::new(program);
        command
            .env_remove("PLAINWEAVE_IO")
            .arg("load")
            .arg(if self.what.is_web() { "http" } else { "cache" });

        // Errors are a figure here.
        command.args([
            "--workers",
            "1",
            "--io",
            "epoll",
            "--max-errors",
            "1",
            "--min-rate",
            "0",
        ]);
        let address = server.address();
        match self.what {
            What::File => command.arg(format!("http://{address}{}", site::path(0))),
            What::Mix(catalog) => {
                command
                    .arg("--urls")
                    .arg(urls(catalog, &address.to_string(), site)?)
            }
            What::Keys => command.arg(address.to_string()).args(["--keys", "1000"]),
            What::Updates => {
                // The raw loop has one answer.
                let mean = self.what.mean().to_string();
                let size = if server.is_limit() {
                    mean.as_str()
                } else {
                    "fb_value"
                };

                command
                    .arg(address.to_string())
                    .args(["--keys", "10000", "--key-size", "fb_key"]);
                command.args(["--value-size", size, "--set-ratio", "0.03"])
            }
        };

        Ok(command)
    }
}

/// Writes a list of a mix's URLs.
fn urls(catalog: &Catalog, address: &str, site: &Site) -> anyhow::Result<PathBuf> {
    let file = site.dir().join("urls.txt");
    let mut list = String::new();
    for &n in &catalog.order {
        let _ = writeln!(list, "http://{address}{}", catalog.items[n].path);
    }
    std::fs::write(&file, list).with_context(|| format!("cannot write {}", file.display()))?;
    Ok(file)
}

/// What `plainweave load` found.
struct Found {
    requests: f64,
    /// When all connections were there, after 1970.
    began: Duration,
    figures: Figures,
}

impl Found {
    /// Adds what the server spent, and when.
    fn with(self, load: &Load<'_>, readings: &[Reading], memory: f64) -> anyhow::Result<Figures> {
        let first = readings[0];
        let last = *readings.last().context("no reading")?;
        let at = |part: f64| {
            let moment = self.began + load.time.mul_f64(part);
            readings
                .iter()
                .find(|reading| reading.0 >= moment)
                .copied()
                .unwrap_or(last)
        };

        let from = at(STEADY.0);
        let to = at(STEADY.1);
        let (spent, requests) = match load.counted {
            Counted::Whole => (last.1 - first.1, self.requests),
            Counted::Steady => (
                to.1 - from.1,
                self.figures.rate * to.0.saturating_sub(from.0).as_secs_f64(),
            ),
        };

        ensure!(requests > 0.0, "too few readings of the server's CPU time");
        let cpu_us = spent as f64 / 1e3 / requests;
        Ok(Figures {
            cpu_us,
            memory_mb: memory / 1e6,
            steady: (from.0, to.0),
            ..self.figures
        })
    }
}

/// Returns the time since 1970.
fn now() -> Duration {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default()
}

/// Reads what `plainweave load` wrote.
fn figures(json: &Path) -> anyhow::Result<Found> {
    let written = client::Figures::read(json)?;
    let find = |name: &str| written.get(name);
    let ok = find("ok")?;
    ensure!(ok > 0.0, "no request was answered");
    let figures = Figures {
        cpu_us: f64::NAN,
        rate: find("rate_per_second")?,
        p50: find("latency_p50_us")?,
        p99: find("latency_p99_us")?,
        p999: find("latency_p99_9_us")?,
        memory_mb: f64::NAN,
        errors: find("errors")?,
        steady: (Duration::ZERO, Duration::ZERO),
    };

    let began = Duration::from_secs_f64(find("began_seconds")?);
    Ok(Found {
        requests: ok + find("errors")?,
        began,
        figures,
    })
}
