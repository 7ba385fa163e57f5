//! A server under a quota, and all rates one after the other.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, ensure};
use serde::Deserialize;

use crate::harness::cgroup::{Group, NO_QUOTA};
use crate::serving::Driver;
use crate::serving::cache;
use crate::serving::client::Figures;
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
        let csv = csv();
        let mut command = self.load(&server, updates)?;
        command
            .args(["--duration", &milliseconds(self.length * 2)])
            .arg("--csv")
            .arg(&csv);
        let rate = Figures(run(&mut command, &csv)?).get("rate")?;

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
        let csv = csv();
        let list: Vec<_> = rates.iter().map(|rate| format!("{rate:.1}")).collect();
        let mut command = self.load(&server, updates)?;
        command.args(["--rates", &list.join(","), "--arrivals", "fb_ia"]);
        command.args(["--pause", "200ms", "--duration", &milliseconds(self.length)]);
        command.arg("--csv").arg(&csv);
        let points = points(&run(&mut command, &csv)?)?;

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

fn csv() -> PathBuf {
    std::env::temp_dir().join(format!("plainweave-bench-sweep-{}.csv", std::process::id()))
}

/// Runs a load, whose exit code also says that a point does not count, and returns what it wrote.
fn run(command: &mut Command, csv: &PathBuf) -> anyhow::Result<String> {
    let _ = std::fs::remove_file(csv);
    let output = command.output().context("cannot run plainweave load")?;
    let text = std::fs::read_to_string(csv);
    let _ = std::fs::remove_file(csv);

    text.with_context(|| {
        format!(
            "plainweave load: {}",
            String::from_utf8_lossy(&output.stderr).trim()
        )
    })
}

/// Reads the table of a load at several rates.
fn points(text: &str) -> anyhow::Result<Vec<Point>> {
    /// The columns that count here.
    #[derive(Deserialize)]
    struct Step {
        intended_rate_per_second: f64,
        rate_per_second: f64,
        /// There is none where nothing was answered.
        #[serde(deserialize_with = "csv::invalid_option")]
        latency_p99_us: Option<f64>,
        errors: f64,
        valid: u8,
    }

    csv::Reader::from_reader(text.as_bytes())
        .deserialize()
        .map(|step| {
            let step: Step = step.with_context(|| format!("not the figures of a load: {text}"))?;
            Ok(Point {
                target: step.intended_rate_per_second,
                rate: step.rate_per_second,
                p99: step.latency_p99_us,
                errors: step.errors,
                counts: step.valid == 1,
            })
        })
        .collect()
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

    #[test]
    fn a_table_is_read_by_its_names() {
        let text = "step,intended_rate_per_second,rate_per_second,errors,latency_p99_us,valid\n\
                    1,100,99.5,0,250,1\n2,200,0,3,,0\n";
        let points = super::points(text).unwrap();
        assert!(
            points.len() == 2
                && points[0].counts
                && points[0].p99 == Some(250.0)
                && points[0].target == 100.0
        );
        assert!(!points[1].counts && points[1].p99.is_none() && points[1].errors == 3.0);
        assert!(super::points("step,rate\n1,5\n").is_err());
    }
}
