//! A server in its own processes: nginx, or `plainweave web` on a driver.

use std::io::{BufRead, BufReader};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};

use super::site::Site;
use crate::cgroup::Group;
use crate::machine;

/// For a server to answer its first connection.
const START: Duration = Duration::from_secs(20);

/// The servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Nginx,
    /// With `aio threads`: a pool of threads waits for the disk.
    NginxThreads,
    Epoll,
    Uring,
    /// With `--architecture fibers`.
    EpollFibers,
    UringFibers,
}

impl Kind {
    pub(super) const ALL: [Kind; 3] = [Kind::Nginx, Kind::Epoll, Kind::Uring];

    pub(super) fn name(self) -> &'static str {
        match self {
            Kind::Nginx => "nginx",
            Kind::NginxThreads => "nginx aio threads",
            Kind::Epoll => "plainweave epoll",
            Kind::Uring => "plainweave uring",
            Kind::EpollFibers => "fibers epoll",
            Kind::UringFibers => "fibers uring",
        }
    }

    fn driver(self) -> &'static str {
        match self {
            Kind::Uring | Kind::UringFibers => "uring",
            _ => "epoll",
        }
    }

    /// Returns why it cannot be measured here.
    pub(super) fn absence(self) -> Option<&'static str> {
        match self {
            Kind::Nginx | Kind::NginxThreads => {
                machine::installed("nginx").then_some(()).map_or(Some("not installed"), |()| None)
            }
            _ if plainweave_program().is_none() => Some("the program plainweave is not beside plainweave-bench"),
            Kind::Uring | Kind::UringFibers => {
                let ring = plainweave::Runtime::builder().workers(1).io(plainweave::Io::Uring).build();
                ring.is_err().then_some("io_uring is not available here")
            }
            _ => None,
        }
    }

    fn command(self, site: &Site, workers: usize, extra: &[&str]) -> anyhow::Result<(Command, Option<SocketAddr>)> {
        if matches!(self, Kind::Nginx | Kind::NginxThreads) {
            let (command, address) = nginx(site, workers, self == Kind::NginxThreads)?;
            return Ok((command, Some(address)));
        }
        let mut command = Command::new(plainweave_program().context("no plainweave")?);
        command.arg("web").arg(site.root()).arg("--workers").arg(workers.to_string());
        command.args(["--listen", "127.0.0.1:0"]).args(extra);
        if matches!(self, Kind::EpollFibers | Kind::UringFibers) {
            command.args(["--architecture", "fibers"]);
        }
        command.env("PLAINWEAVE_IO", self.driver());
        Ok((command, None))
    }
}

/// Returns the program beside this one.
pub(crate) fn plainweave_program() -> Option<PathBuf> {
    let beside = std::env::current_exe().ok()?.with_file_name("plainweave");
    beside.exists().then_some(beside)
}

pub(super) fn nginx_version() -> String {
    let output = Command::new("nginx").arg("-v").output();
    output.map_or("not installed".to_owned(), |o| String::from_utf8_lossy(&o.stderr).trim().to_owned())
}

/// A running server; ends with this value.
#[derive(Debug)]
pub(crate) struct Server {
    pub(super) kind: Kind,
    pub(crate) address: SocketAddr,
    child: Child,
    /// After the child: processes first, then their group.
    group: Option<Group>,
}

impl Server {
    /// Starts it on CPU 0. `group` confines it; without, it gets one that only counts, where possible.
    pub(super) fn start(kind: Kind, site: &Site, group: Option<Group>) -> anyhow::Result<Self> {
        Self::start_with(kind, site, group, &[])
    }

    /// With more arguments for ours.
    pub(crate) fn start_with(kind: Kind, site: &Site, group: Option<Group>, extra: &[&str]) -> anyhow::Result<Self> {
        Self::start_workers(kind, site, 1, group, extra)
    }

    /// With more workers, on as many CPUs.
    pub(crate) fn start_workers(
        kind: Kind,
        site: &Site,
        workers: usize,
        group: Option<Group>,
        extra: &[&str],
    ) -> anyhow::Result<Self> {
        let (command, address) = kind.command(site, workers, extra)?;
        let group = group.or_else(|| Group::new(&kind.name().replace(' ', "-"), &["cpuacct"]).ok());
        let mut command = match &group {
            Some(group) => group.around(&command),
            None => command,
        };
        machine::pin_to_first(workers);
        let child = command.stdout(Stdio::piped()).spawn();
        machine::pin_to(1);
        let child = child.with_context(|| format!("cannot start {}", kind.name()))?;
        let mut server = Self { kind, address: (Ipv4Addr::LOCALHOST, 0).into(), child, group };
        server.address = match address {
            Some(address) => address,
            None => server.said()?,
        };
        let start = Instant::now();
        while TcpStream::connect(server.address).is_err() {
            if start.elapsed() > START || server.child.try_wait()?.is_some() {
                bail!("{} does not answer on {}", kind.name(), server.address);
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(server)
    }

    /// Returns the address that our server reports to listen on.
    fn said(&mut self) -> anyhow::Result<SocketAddr> {
        let mut line = String::new();
        BufReader::new(self.child.stdout.as_mut().context("no pipe")?).read_line(&mut line)?;
        let url = line.split_once("http://").map(|(_, rest)| rest.split(' ').next().unwrap_or_default().trim());
        let address = url.and_then(|address| address.parse().ok());
        address.with_context(|| format!("{} did not start: {line}", self.kind.name()))
    }

    /// CPU time so far, in nanoseconds: the group's, else that of the processes' threads.
    pub(crate) fn cpu_ns(&self) -> anyhow::Result<u64> {
        match &self.group {
            Some(group) => Ok(group.cpu_ns()?),
            None => self.processes().iter().map(|pid| machine::cpu_ns(*pid)).sum(),
        }
    }

    /// Memory that only this server holds, and its part of what it shares (PSS), in bytes.
    pub(crate) fn memory(&self) -> anyhow::Result<f64> {
        let mut total = 0.0;
        for pid in self.processes() {
            let text = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).context("the server is gone")?;
            let line = text.lines().find_map(|line| line.strip_prefix("Pss:")).context("no Pss")?;
            total += line.trim().trim_end_matches("kB").trim().parse::<f64>()? * 1024.0;
        }
        Ok(total)
    }

    /// Open descriptors of all its processes.
    pub(super) fn descriptors(&self) -> usize {
        let count = |pid: &u32| std::fs::read_dir(format!("/proc/{pid}/fd")).map_or(0, Iterator::count);
        self.processes().iter().map(count).sum()
    }

    /// Returns whether kernel threads are counted too.
    pub(super) fn counts_kernel_threads(&self) -> bool {
        self.group.is_some()
    }

    /// Returns the child and its children.
    fn processes(&self) -> Vec<u32> {
        let pid = self.child.id();
        let text = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
        std::iter::once(pid).chain(text.split_whitespace().filter_map(|pid| pid.parse().ok())).collect()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // nginx's master ends its worker only if it is asked to.
        let _ =
            rustix::process::kill_process(rustix::process::Pid::from_child(&self.child), rustix::process::Signal::TERM);
        let start = Instant::now();
        while start.elapsed() < Duration::from_secs(3) && matches!(self.child.try_wait(), Ok(None)) {
            std::thread::sleep(Duration::from_millis(10));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// nginx on a free port, everything of it below the site's directory.
fn nginx(site: &Site, workers: usize, threads: bool) -> anyhow::Result<(Command, SocketAddr)> {
    let address = free_address().context("no free port")?;
    let dir = site.dir().join(format!("nginx-{}", address.port()));
    std::fs::create_dir_all(&dir)?;
    let config = dir.join("nginx.conf");
    let aio = if threads { "aio threads;" } else { "" };
    std::fs::write(&config, nginx_config(&dir, &site.root(), address, workers, aio))?;
    let mut command = Command::new("nginx");
    command.arg("-p").arg(&dir).arg("-c").arg(&config).arg("-e").arg(dir.join("error.log"));
    Ok((command, address))
}

/// Returns a free port below those that the kernel hands to connections, so that none takes it before it is bound.
fn free_address() -> Option<SocketAddr> {
    // Processes that start together begin far apart: between this look and the bind of the server a port is free.
    let first = 10_000 + (std::process::id().wrapping_mul(211) % 19_000) as u16;
    let addresses = (first..30_000).map(|port| SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
    addresses.into_iter().find(|address| TcpListener::bind(address).is_ok())
}

fn nginx_config(dir: &Path, root: &Path, address: SocketAddr, workers: usize, aio: &str) -> String {
    let (dir, root) = (dir.display(), root.display());
    let user = if rustix::process::getuid().is_root() { "user root;" } else { "" };
    let own = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"].map(|of| format!("{of}_temp_path {dir}/{of};"));
    format!(
        "{user} worker_processes {workers}; worker_rlimit_nofile 20000;
daemon off; pid {dir}/pid; error_log {dir}/error.log;
events {{ use epoll; worker_connections 16000; }}
http {{
  access_log off; server_tokens off; sendfile on; {aio} tcp_nodelay on;
  keepalive_timeout 600s; keepalive_requests 1000000000;
  open_file_cache max=4000 inactive=600s; open_file_cache_valid 60s; open_file_cache_min_uses 1;
  types {{ text/plain txt; }} default_type application/octet-stream; charset utf-8;
  {}
  server {{ listen {address} backlog=4096; root {root}; }}
}}
",
        own.join(" ")
    )
}
