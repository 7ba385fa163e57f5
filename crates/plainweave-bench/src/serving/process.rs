//! A server in processes of its own: where it listens, and what it costs.

use std::io::{BufRead, BufReader};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use rustix::process::{Pid, Signal, kill_process};

use crate::harness::cgroup::Group;
use crate::harness::machine;

/// For a server to answer its first connection.
const START: Duration = Duration::from_secs(20);
/// For a server to end when it is asked to.
const END: Duration = Duration::from_secs(3);

/// What a server runs under.
#[derive(Debug)]
pub(crate) struct Conditions<'a> {
    /// As many CPUs, from the first on.
    pub(crate) workers: usize,
    /// Confines it; without, it gets one that only counts, where possible.
    pub(crate) group: Option<Group>,
    /// Beside those of its kind.
    pub(crate) arguments: &'a [&'a str],
    /// Ours is the server of this program, with these flags of [`hooked`](super::hooked).
    pub(crate) added: Option<&'a [&'a str]>,
}

impl Default for Conditions<'_> {
    fn default() -> Self {
        Self {
            workers: 1,
            group: None,
            arguments: &[],
            added: None,
        }
    }
}

impl From<Group> for Conditions<'_> {
    fn from(group: Group) -> Self {
        Self {
            group: Some(group),
            ..Self::default()
        }
    }
}

/// A running server; ends with this value.
#[derive(Debug)]
pub(crate) struct Process {
    pub(crate) address: SocketAddr,
    child: Child,
    /// After the child: processes first, then their group.
    group: Option<Group>,
}

impl Process {
    /// Starts a server on as many CPUs as it has workers, from the first on, and waits until it
    /// accepts. `address`: where it has been made to listen; `None`: it says so in its first line.
    ///
    /// `group` confines it; without, it gets one that only counts, where possible. With 0 workers
    /// it is on the client's CPU.
    pub(crate) fn start(
        name: &str,
        command: &Command,
        address: Option<SocketAddr>,
        workers: usize,
        group: Option<Group>,
    ) -> anyhow::Result<Self> {
        let group = group.or_else(|| Group::new(&name.replace([' ', '/'], "-"), &["cpuacct"]).ok());
        let mut command = match &group {
            Some(group) => group.around(command),
            None => copy(command),
        };

        // Where it may not be pinned it runs all the same.
        let _ = match workers {
            0 => machine::pin_to(1),
            _ => machine::pin_to_first(workers),
        };
        let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        machine::pin_to(1);
        let child = child.with_context(|| format!("cannot start {name}"))?;
        let mut process = Self {
            address: (Ipv4Addr::LOCALHOST, 0).into(),
            child,
            group,
        };

        process.address = match address {
            Some(address) => address,
            None => process.said(name)?,
        };
        let start = Instant::now();
        while TcpStream::connect(process.address).is_err() {
            if start.elapsed() > START || process.child.try_wait()?.is_some() {
                bail!("{name} does not answer on {}", process.address);
            }
            std::thread::sleep(Duration::from_millis(20));
        }

        Ok(process)
    }

    /// Returns the address in its first line, which is alone or that of a URL.
    fn said(&mut self, name: &str) -> anyhow::Result<SocketAddr> {
        let mut line = String::new();
        BufReader::new(self.child.stdout.as_mut().context("no pipe")?).read_line(&mut line)?;
        let address = line
            .split([' ', '/', ',', '\n'])
            .find_map(|word| word.parse().ok());
        address.with_context(|| format!("{name} did not start: {line}"))
    }

    /// CPU time so far, in nanoseconds: the group's, else that of the processes' threads.
    pub(crate) fn cpu_ns(&self) -> anyhow::Result<u64> {
        match &self.group {
            Some(group) => Ok(group.cpu_ns()?),
            None => self
                .processes()
                .iter()
                .map(|pid| machine::cpu_ns(*pid))
                .sum(),
        }
    }

    /// Memory that only this server holds, and its part of what it shares (PSS), in bytes.
    pub(crate) fn memory(&self) -> anyhow::Result<f64> {
        let mut total = 0.0;
        for pid in self.processes() {
            let text = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup"))
                .context("the server is gone")?;
            let line = text
                .lines()
                .find_map(|line| line.strip_prefix("Pss:"))
                .context("no Pss")?;
            total += line.trim().trim_end_matches("kB").trim().parse::<f64>()? * 1024.0;
        }
        Ok(total)
    }

    /// Resident memory of the process that was started, in bytes.
    pub(crate) fn resident(&self) -> f64 {
        machine::resident_bytes(self.child.id())
    }

    /// Open descriptors of all its processes.
    pub(crate) fn descriptors(&self) -> usize {
        let count =
            |pid: &u32| std::fs::read_dir(format!("/proc/{pid}/fd")).map_or(0, Iterator::count);
        self.processes().iter().map(count).sum()
    }

    /// Has it take up its configuration again.
    pub(crate) fn hang_up(&self) {
        self.signal(Signal::HUP);
    }

    fn signal(&self, signal: Signal) {
        // It may have ended by itself just now.
        let _ = kill_process(Pid::from_child(&self.child), signal);
    }

    /// Returns the group that confines it, or only counts.
    pub(crate) fn group(&self) -> Option<&Group> {
        self.group.as_ref()
    }

    /// Returns whether kernel threads are counted too.
    pub(crate) fn counts_kernel_threads(&self) -> bool {
        self.group.is_some()
    }

    /// Returns the child and its children.
    fn processes(&self) -> Vec<u32> {
        let pid = self.child.id();
        let text =
            std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
        std::iter::once(pid)
            .chain(text.split_whitespace().filter_map(|pid| pid.parse().ok()))
            .collect()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // nginx's master ends its worker only if it is asked to.
        self.signal(Signal::TERM);
        let start = Instant::now();
        while start.elapsed() < END && matches!(self.child.try_wait(), Ok(None)) {
            std::thread::sleep(Duration::from_millis(10));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns the same program with the same arguments and changes of the environment.
fn copy(command: &Command) -> Command {
    let mut copy = Command::new(command.get_program());
    copy.args(command.get_args());
    for (key, value) in command.get_envs() {
        match value {
            Some(value) => copy.env(key, value),
            None => copy.env_remove(key),
        };
    }

    copy
}

/// Returns a free port below those that the kernel hands to connections, so that none takes it
/// before it is bound.
pub(crate) fn free_address() -> anyhow::Result<SocketAddr> {
    // Processes that start together begin far apart: between this look and the bind of the server a
    // port is free.
    let first = 10_000 + (std::process::id().wrapping_mul(211) % 19_000) as u16;
    let mut addresses = (first..30_000).map(|port| SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
    addresses
        .find(|address| TcpListener::bind(address).is_ok())
        .context("no free port")
}
