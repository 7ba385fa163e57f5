//! A turn of `plainweave load`, and what the server spent meanwhile.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, ensure};

use super::server::{Kind, Server};
use crate::web::server::plainweave_program;
use crate::web::site::{self, Site};

/// Keys of a cache.
const KEYS: &str = "1000";

/// What is sent.
pub(super) struct Load {
    pub(super) kind: Kind,
    pub(super) connections: usize,
    /// A connection for each request.
    pub(super) connect: bool,
    /// Requests a second; `None`: the next one when the last is answered.
    pub(super) rate: Option<usize>,
    pub(super) time: Duration,
}

/// What came of it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Figures {
    /// CPU time of the server, a request.
    pub(super) cpu_us: f64,
    pub(super) rate: f64,
    pub(super) p50: f64,
    pub(super) p99: f64,
    pub(super) p999: f64,
    /// In the middle of the load.
    pub(super) memory_mb: f64,
    pub(super) errors: f64,
}

impl Load {
    /// Loads a server that has just started.
    pub(super) fn run(&self, server: &Server, site: &Site) -> anyhow::Result<Figures> {
        if self.kind == Kind::Cache {
            // Stores the keys, which is no part of the turn.
            let stored = self.command(server)?.args(["-c", "1", "-n", "1"]).output()?;
            ensure!(stored.status.success(), "the keys were not stored: {}", String::from_utf8_lossy(&stored.stderr));
        }
        let csv = site.dir().join("load.csv");
        let mut command = self.command(server)?;
        command.arg("-c").arg(self.connections.to_string()).arg("-d").arg(format!("{}ms", self.time.as_millis()));
        if let Some(rate) = self.rate {
            command.arg("--rate").arg(rate.to_string());
        }
        if self.connect {
            command.arg("--no-keep-alive");
        }
        if self.kind == Kind::Cache {
            command.arg("--no-load");
        }
        let before = server.cpu_ns()?;
        let load = command.arg("--csv").arg(&csv).stdout(Stdio::null()).stderr(Stdio::piped()).spawn()?;
        std::thread::sleep(self.time / 2);
        let memory = server.memory();
        let load = load.wait_with_output()?;
        let spent = server.cpu_ns()? - before;
        ensure!(load.status.success(), "plainweave load: {}", String::from_utf8_lossy(&load.stderr).trim());
        figures(&csv, spent as f64 / 1e3, memory? / 1e6)
    }

    fn command(&self, server: &Server) -> anyhow::Result<Command> {
        let program = plainweave_program().context("the program plainweave is not beside plainweave-bench")?;
        let mut command = Command::new(program);
        command.env_remove("PLAINWEAVE_IO").arg("load");
        command.arg(if self.kind == Kind::Web { "http" } else { "cache" });
        // Errors are a figure here.
        command.args(["--workers", "1", "--io", "epoll", "--max-errors", "1"]);
        let address = server.address();
        match self.kind {
            Kind::Web => command.arg(format!("http://{address}{}", site::path(0))),
            Kind::Cache => command.arg(address.to_string()).args(["--keys", KEYS]),
        };
        Ok(command)
    }
}

/// Reads what `plainweave load` wrote.
fn figures(csv: &Path, spent_us: f64, memory_mb: f64) -> anyhow::Result<Figures> {
    let text = std::fs::read_to_string(csv).with_context(|| format!("cannot read {}", csv.display()))?;
    let find = |name: &str| {
        let found = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(',')?.split(',').nth(1));
        found.and_then(|value| value.parse::<f64>().ok()).with_context(|| format!("no {name} in {text}"))
    };
    let ok = find("ok")?;
    ensure!(ok > 0.0, "no request was answered");
    Ok(Figures {
        cpu_us: spent_us / (ok + find("errors")?),
        rate: find("rate")?,
        p50: find("latency_p50")?,
        p99: find("latency_p99")?,
        p999: find("latency_p99.9")?,
        memory_mb,
        errors: find("errors")?,
    })
}
