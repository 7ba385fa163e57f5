//! The servers, each a process of its own on CPU 0.

use std::io::{BufRead, BufReader};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};

use super::cache_client::{Client, Mix};
use super::process::free_address;
use crate::cgroup::Group;
use crate::sample::{Origin, Row};
use crate::{limit, machine};

/// A server to measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum System {
    Memcached,
    IdleConn,
    FiberPerConnection,
    Uring,
    /// No server: the raw loop that sends fixed replies.
    Limit,
}

impl System {
    pub(crate) const ALL: [System; 5] = [
        System::Memcached,
        System::IdleConn,
        System::FiberPerConnection,
        System::Uring,
        System::Limit,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            System::Memcached => "memcached",
            System::IdleConn => "plainweave epoll",
            System::FiberPerConnection => "plainweave epoll fibers",
            System::Uring => "plainweave uring",
            System::Limit => limit::NAME,
        }
    }

    fn command(self) -> anyhow::Result<Command> {
        let io = match self {
            System::Memcached => return Ok(memcached(Path::new("memcached"))),
            System::Limit => return limit::command("cache", &[]),
            System::Uring => "uring",
            System::IdleConn | System::FiberPerConnection => "epoll",
        };

        let mut command = Command::new(plainweave()?);
        command
            .arg("cache")
            .env_remove("PLAINWEAVE_IO")
            .args(["--io", io]);
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

/// A server in its process; ends with this value.
pub(crate) struct Server {
    child: Child,
    pub(crate) address: SocketAddr,
    /// Dropped after the process has ended.
    group: Option<Group>,
}

impl Server {
    /// Starts one with this much memory, on CPU 0, and waits until it answers.
    pub(crate) fn start(system: System, megabytes: usize) -> anyhow::Result<Self> {
        Self::start_in(system, megabytes, None)
    }

    /// Starts one in a control group.
    pub(crate) fn start_in(
        system: System,
        megabytes: usize,
        group: Option<Group>,
    ) -> anyhow::Result<Self> {
        Self::start_workers(system, megabytes, 1, group, &[])
    }

    /// With that many workers, on as many CPUs, and with more arguments.
    pub(crate) fn start_workers(
        system: System,
        megabytes: usize,
        workers: usize,
        group: Option<Group>,
        extra: &[&str],
    ) -> anyhow::Result<Self> {
        Self::start_program(system, None, megabytes, workers, group, extra)
    }

    /// With a program in place of the system's own, which takes memcached's flags.
    pub(crate) fn start_program(
        system: System,
        program: Option<&Path>,
        megabytes: usize,
        workers: usize,
        group: Option<Group>,
        extra: &[&str],
    ) -> anyhow::Result<Self> {
        let address = free_address()?;
        let mut command = match program {
            Some(program) => memcached(program),
            None => system.command()?,
        };

        if system != System::Limit {
            let port = address.port().to_string();
            command.args([
                "-t",
                &workers.to_string(),
                "-l",
                "127.0.0.1",
                "-c",
                "20000",
                "-p",
                &port,
            ]);
            command.args(["-m", &megabytes.to_string()]);
        }

        command.args(extra);
        if let Some(group) = &group {
            command = group.around(&command);
        }
        // The child inherits the affinity of the thread that starts it.
        machine::pin_to_first(workers);
        let said = if system == System::Limit {
            Stdio::piped()
        } else {
            Stdio::null()
        };

        let child = command.stdout(said).stderr(Stdio::null()).spawn();
        machine::pin_to(1);
        let child = child.with_context(|| format!("cannot start {}", system.name()))?;
        let mut server = Self {
            child,
            address,
            group,
        };

        if let Some(said) = server.child.stdout.take() {
            let mut line = String::new();
            BufReader::new(said).read_line(&mut line)?;
            server.address = line.trim().parse().context("the raw loop did not start")?;
        }

        let end = Instant::now() + Duration::from_secs(10);
        while TcpStream::connect(server.address).is_err() {
            if server.child.try_wait()?.is_some() || Instant::now() > end {
                bail!("{} does not serve on {}", system.name(), server.address);
            }
            std::thread::sleep(Duration::from_millis(20));
        }

        Ok(server)
    }

    /// CPU time so far, in nanoseconds: the group's, else that of the threads there are.
    pub(crate) fn cpu(&self) -> anyhow::Result<u64> {
        match &self.group {
            Some(group) => Ok(group.cpu_ns()?),
            None => machine::cpu_ns(self.child.id()),
        }
    }

    /// Has a client of this server send requests, and returns what one of them cost, in
    /// microseconds of CPU.
    pub(crate) fn cost(
        &self,
        client: &mut Client,
        requests: usize,
        mix: Mix,
    ) -> anyhow::Result<f64> {
        let before = self.cpu()?;
        let answered = client.drive(requests, mix)?;
        Ok((self.cpu()? - before) as f64 / answered as f64 / 1000.0)
    }

    /// Resident memory in bytes.
    pub(crate) fn resident(&self) -> f64 {
        machine::resident_bytes(self.child.id())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
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
