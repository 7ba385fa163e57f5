//! A server under a quota, and all rates one after the other.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, ensure};
use plainweave_load::{Results, Series};
use serde::de::DeserializeOwned;

use crate::harness::cgroup::{Group, NO_QUOTA};
use crate::serving::Driver;
use crate::serving::cache;
use crate::serving::client::{Figures, to_json};
use crate::serving::process::Conditions;
use crate::serving::web::plainweave_program;
use plainweave_report::Role;

/// Memory of a cache: enough for all keys.
const MEGABYTES: usize = 256;

/// A server.
#[derive(Clone, Debug)]
pub(super) struct System {
    pub(super) name: String,
    pub(super) role: Role,
    kind: cache::System,
    /// In place of the system's own.
    program: Option<PathBuf>,
    arguments: Vec<String>,
}

impl System {
    pub(super) fn memcached() -> Self {
        Self::binary(&Binary {
            name: "memcached".to_owned(),
            path: "memcached".into(),
        })
    }

    pub(super) fn binary(binary: &Binary) -> Self {
        let name = binary.name.clone();
        let program = Some(binary.path.clone());
        Self {
            name,
            role: Role::Peer,
            kind: cache::System::Memcached,
            program,
            arguments: Vec::new(),
        }
    }

    pub(super) fn ours(mode: &str, driver: Driver) -> Self {
        let kind = if driver == Driver::Uring {
            cache::System::Uring
        } else {
            cache::System::IdleConn
        };

        let name = format!("plainweave {} {mode}", driver.name());
        let arguments = vec!["--mode".to_owned(), mode.to_owned()];
        Self {
            name,
            role: Role::Ours,
            kind,
            program: None,
            arguments,
        }
    }
}

/// A program that takes memcached's flags, and its name here.
#[derive(Clone, Debug)]
pub(super) struct Binary {
    name: String,
    path: PathBuf,
}

impl Binary {
    /// Reads `NAME=PATH`.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let (name, path) = text
            .split_once('=')
            .ok_or("write NAME=PATH, as in libfibre=/opt/libfibre/memcached")?;
        if name.is_empty() || name.contains([',', ';']) {
            return Err("NAME: at least one character, neither a comma nor a semicolon".to_owned());
        }
        if !Path::new(path).is_file() {
            return Err(format!("{path} is no file"));
        }
        Ok(Self {
            name: name.to_owned(),
            path: path.into(),
        })
    }
}

/// What came of a rate.
#[derive(Clone, Copy, Debug)]
pub(super) struct Point {
    pub(super) target: f64,
    /// Answers a second.
    pub(super) rate: f64,
    /// In microseconds; `None`: nothing was answered.
    pub(super) p99: Option<f64>,
    pub(super) errors: f64,
    /// Whether the client was on time.
    pub(super) counts: bool,
}

/// Values of a point.
pub(super) const VALUES: usize = 5;

impl Point {
    /// Returns it as values by their names.
    pub(super) fn values(&self) -> [(String, f64); VALUES] {
        let counts = if self.counts { 1.0 } else { 0.0 };
        let p99 = self.p99.unwrap_or(f64::NAN);
        [
            ("target", self.target),
            ("rate", self.rate),
            ("p99", p99),
            ("errors", self.errors),
            ("counts", counts),
        ]
        .map(|(name, value)| (name.to_owned(), value))
    }

    /// Returns the point that has these values.
    pub(super) fn of(values: &[(String, f64)]) -> anyhow::Result<Self> {
        let values: Vec<f64> = values.iter().map(|(_, value)| *value).collect();
        let [target, rate, p99, errors, counts] = values[..] else {
            anyhow::bail!("half a point was kept")
        };
        Ok(Self {
            target,
            rate,
            p99: Some(p99).filter(|p99| !p99.is_nan()),
            errors,
            counts: counts == 1.0,
        })
    }
}

/// What all servers get.
pub(super) struct Offered {
    pub(super) connections: usize,
    pub(super) keys: usize,
    pub(super) share: f64,
    pub(super) length: Duration,
    pub(super) warm_up: Duration,
}

impl Offered {
    /// Returns the requests a second that a server answers in a closed loop.
    pub(super) fn peak(&self, system: &System, workers: usize, updates: u8) -> anyhow::Result<f64> {
        let server = self.start(system, workers)?;
        let mut command = self.load(&server, updates)?;
        command.args(["--duration", &milliseconds(self.length * 2)]);
        let rate = run::<Figures>(&mut command)?.get("rate_per_second")?;

        ensure!(rate > 0.0, "no request was answered");
        Ok(rate)
    }

    /// Starts a server and offers it all rates.
    pub(super) fn sweep(
        &self,
        system: &System,
        workers: usize,
        updates: u8,
        rates: &[f64],
    ) -> anyhow::Result<Vec<Point>> {
        let server = self.start(system, workers)?;
        let list: Vec<_> = rates.iter().map(|rate| format!("{rate:.1}")).collect();
        let mut command = self.load(&server, updates)?;
        command.args(["--rates", &list.join(","), "--arrivals", "fb_ia"]);
        command.args(["--pause", "200ms", "--duration", &milliseconds(self.length)]);
        let series: Series = run(&mut command)?;
        let points = series
            .steps
            .iter()
            .map(point)
            .collect::<anyhow::Result<Vec<_>>>()?;

        ensure!(
            points.len() == rates.len(),
            "{} of {} rates were measured",
            points.len(),
            rates.len()
        );
        Ok(points)
    }

    /// Starts a server under its quota, and stores the keys.
    fn start(&self, system: &System, workers: usize) -> anyhow::Result<cache::Server> {
        let group = Group::new("cache-sweep", &["cpu", "cpuacct"]);
        let group = group.and_then(|group| {
            group
                .limit_finely(self.share * workers as f64)
                .map(|()| group)
        });

        let group = group.context(NO_QUOTA)?;
        let arguments: Vec<_> = system.arguments.iter().map(String::as_str).collect();
        let program = system.program.as_deref();
        let under = Conditions {
            workers,
            group: Some(group),
            arguments: &arguments,
            added: None,
        };

        let server = cache::Server::start_program(system.kind, program, MEGABYTES, under)?;
        let mut command = self.command(&server)?;
        let stored = command
            .args(["-c", "1", "-n", "1", "--timeout", "60s"])
            .output()?;

        ensure!(
            stored.status.success(),
            "the keys were not stored: {}",
            String::from_utf8_lossy(&stored.stderr)
        );
        Ok(server)
    }

    fn load(&self, server: &cache::Server, updates: u8) -> anyhow::Result<Command> {
        let mut command = self.command(server)?;
        let updates = (f64::from(updates) / 100.0).to_string();
        command.args([
            "--no-load",
            "--set-ratio",
            &updates,
            "-c",
            &self.connections.to_string(),
        ]);
        command.args(["--warm-up", &milliseconds(self.warm_up)]);

        Ok(command)
    }

    fn command(&self, server: &cache::Server) -> anyhow::Result<Command> {
        let program = plainweave_program()
            .context("the program plainweave is not beside plainweave-bench")?;
        let mut command = Command::new(program);
        command
            .env_remove("PLAINWEAVE_IO")
            .args(["load", "cache", &server.address.to_string()]);
        command.args([
            "--keys",
            &self.keys.to_string(),
            "--key-size",
            "fb_key",
            "--value-size",
            "fb_value",
        ]);

        // More than a server can bear is what is offered.
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
        Ok(command)
    }
}

/// Writes a time as the load generator reads it.
fn milliseconds(time: Duration) -> String {
    format!("{}ms", time.as_millis())
}

fn results_file() -> PathBuf {
    std::env::temp_dir().join(format!(
        "plainweave-bench-sweep-{}.json",
        std::process::id()
    ))
}

/// Runs a load, whose exit code also says that a point does not count, and returns what it wrote.
fn run<R: DeserializeOwned>(command: &mut Command) -> anyhow::Result<R> {
    let file = results_file();
    let _ = std::fs::remove_file(&file);
    let output = command.arg(to_json(&file)).output();
    let output = output.context("cannot run plainweave load")?;
    let text = std::fs::read_to_string(&file);
    let _ = std::fs::remove_file(&file);

    let said = String::from_utf8_lossy(&output.stderr);
    let text = text.with_context(|| format!("plainweave load: {}", said.trim()))?;
    serde_json::from_str(&text).context("not the results of a load")
}

/// Returns what a run at one of several rates has shown.
fn point(step: &Results) -> anyhow::Result<Point> {
    let get = |name| {
        let found = step.figures.get(name);
        found.with_context(|| format!("no {name} among {:?}", step.figures))
    };

    Ok(Point {
        target: get("intended_rate_per_second")?,
        rate: get("rate_per_second")?,
        // There is none where nothing was answered.
        p99: step.figures.get("latency_p99_us"),
        errors: get("errors")?,
        counts: step.valid,
    })
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_point_is_kept_as_values() {
        for p99 in [None, Some(2.5)] {
            let point = super::Point {
                target: 5.0,
                rate: 4.0,
                p99,
                errors: 1.0,
                counts: p99.is_some(),
            };

            let again = super::Point::of(&point.values()).unwrap();
            assert_eq!(format!("{point:?}"), format!("{again:?}"));
        }
        assert!(super::Point::of(&[]).is_err());
    }

    #[test]
    fn a_program_has_a_name() {
        let here = std::env::current_exe().unwrap();
        let binary = super::Binary::parse(&format!("mine={}", here.display())).unwrap();
        assert!(binary.name == "mine" && binary.path == here);

        for (text, said) in [
            ("memcached", "NAME=PATH"),
            ("a=/none", "/none is no file"),
            ("=/bin/sh", "one character"),
        ] {
            let error = super::Binary::parse(text).unwrap_err();
            assert!(error.contains(said), "{error}");
        }
    }
}
