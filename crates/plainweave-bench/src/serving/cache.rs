//! The servers, each a process of its own on CPU 0.

use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::bail;

use super::cache_client::{Client, Mix};
use super::driver::Driver;
use super::hooked;
use super::process::{Conditions, Process, free_address};
use crate::harness::sample::{Origin, Row};
use crate::serving::limit;

/// A server to measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum System {
    Memcached,
    IdleConn,
    /// The same once more: what lies between the two is noise.
    IdleConnAgain,
    FiberPerConnection,
    Uring,
    /// No server: the raw loop that sends fixed replies.
    Limit(Driver),
}

impl System {
    pub(crate) const ALL: [System; 7] = [
        System::Memcached,
        System::IdleConn,
        System::IdleConnAgain,
        System::FiberPerConnection,
        System::Uring,
        System::Limit(Driver::Epoll),
        System::Limit(Driver::Uring),
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            System::Memcached => "memcached",
            System::IdleConn => "plainweave epoll",
            System::IdleConnAgain => "plainweave epoll again",
            System::FiberPerConnection => "plainweave epoll fibers",
            System::Uring => "plainweave uring",
            System::Limit(io) => limit::name(io),
        }
    }

    fn command(self, added: Option<&[&str]>) -> anyhow::Result<Command> {
        let io = match self {
            System::Memcached => return Ok(memcached(Path::new("memcached"))),
            System::Limit(io) => return limit::command(io, "cache", &[]),
            System::Uring => "uring",
            System::IdleConn | System::IdleConnAgain | System::FiberPerConnection => "epoll",
        };

        let mut command = match added {
            Some(added) => hooked::command("cache", added)?,
            None => {
                let mut command = Command::new(plainweave()?);
                command.arg("cache");
                command
            }
        };
        command.env_remove("PLAINWEAVE_IO").args(["--io", io]);
        if self == System::FiberPerConnection {
            command.args(["--architecture", "fibers"]);
        }
        Ok(command)
    }

    /// Returns a column of values of this system.
    pub(crate) fn row(
        self,
        case: &str,
        metric: &'static str,
        unit: &'static str,
        values: Vec<f64>,
    ) -> Row {
        Origin::new("cache").row(case, self.name(), metric, unit, values)
    }
}

/// Runs memcached, or what takes its flags.
fn memcached(program: &Path) -> Command {
    let mut command = Command::new(program);
    command.args(["-u", "root", "-U", "0"]);
    command
}

/// A running server; ends with this value.
#[derive(Debug)]
pub(crate) struct Server(Process);

impl Server {
    /// Starts one with this much memory.
    pub(crate) fn start(
        system: System,
        megabytes: usize,
        under: Conditions<'_>,
    ) -> anyhow::Result<Self> {
        Self::start_program(system, None, megabytes, under)
    }

    /// With a program in place of the system's own, which takes memcached's flags.
    pub(crate) fn start_program(
        system: System,
        program: Option<&Path>,
        megabytes: usize,
        under: Conditions<'_>,
    ) -> anyhow::Result<Self> {
        let mut command = match program {
            Some(program) => memcached(program),
            None => system.command(under.added)?,
        };

        // The raw loop says where it listens, and keeps nothing.
        let address = if matches!(system, System::Limit(_)) {
            None
        } else {
            let address = free_address()?;
            let port = address.port().to_string();
            let workers = under.workers.to_string();
            command.args([
                "-t",
                &workers,
                "-l",
                "127.0.0.1",
                "-c",
                "20000",
                "-p",
                &port,
            ]);
            command.args(["-m", &megabytes.to_string()]);
            Some(address)
        };

        command.args(under.arguments);
        Process::start(system.name(), &command, address, under.workers, under.group).map(Self)
    }

    /// Has a client of this server send requests, and returns what one of them cost, in
    /// microseconds of CPU.
    pub(crate) fn cost(
        &self,
        client: &mut Client,
        requests: usize,
        mix: Mix,
    ) -> anyhow::Result<f64> {
        let before = self.cpu_ns()?;
        let answered = client.drive(requests, mix)?;
        Ok((self.cpu_ns()? - before) as f64 / answered as f64 / 1000.0)
    }
}

impl Deref for Server {
    type Target = Process;

    fn deref(&self) -> &Process {
        &self.0
    }
}

/// Returns the program beside this one.
pub(crate) fn plainweave() -> anyhow::Result<PathBuf> {
    let path = std::env::current_exe()?.with_file_name("plainweave");
    if !path.exists() {
        bail!(
            "{} is missing: build it with cargo build --release -p plainweave-cli",
            path.display()
        );
    }
    Ok(path)
}
