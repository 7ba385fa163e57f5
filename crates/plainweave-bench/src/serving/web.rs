//! A server in its own processes: nginx, or `plainweave web` on a driver.

use std::net::SocketAddr;
use std::ops::Deref;
use std::path::PathBuf;
use std::process::Command;

use anyhow::Context;

use super::control::Method;
use super::driver::Driver;
use super::hooked;
use super::nginx;
use super::process::{Conditions, Process};
use super::site::Site;
use crate::serving::limit;

/// The servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Tuned.
    Nginx,
    /// With its defaults.
    NginxDefaults,
    /// Tuned, with `aio threads`: a pool of threads waits for the disk.
    NginxThreads,
    Epoll,
    Uring,
    /// The same once more: what lies between the two is noise.
    UringAgain,
    /// With `--architecture fibers`.
    EpollFibers,
    UringFibers,
    /// No server: the raw loop that sends a fixed answer.
    Limit(Driver),
    /// One that is known to fail when memory is short.
    Control(Method),
}

impl Kind {
    pub(crate) const ALL: [Kind; 4] = [Kind::Nginx, Kind::NginxDefaults, Kind::Epoll, Kind::Uring];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Kind::Nginx => "nginx",
            Kind::NginxDefaults => "nginx defaults",
            Kind::NginxThreads => "nginx aio threads",
            Kind::Epoll => "plainweave epoll",
            Kind::Uring => "plainweave uring",
            Kind::UringAgain => "plainweave uring again",
            Kind::EpollFibers => "fibers epoll",
            Kind::UringFibers => "fibers uring",
            Kind::Limit(io) => limit::name(io),
            Kind::Control(method) => method.system(),
        }
    }

    fn driver(self) -> &'static str {
        match self {
            Kind::Uring | Kind::UringAgain | Kind::UringFibers => "uring",
            _ => "epoll",
        }
    }

    /// Returns why it cannot be measured here.
    pub(crate) fn absence(self) -> Option<&'static str> {
        match self {
            Kind::Nginx | Kind::NginxDefaults | Kind::NginxThreads => nginx::absence(),
            Kind::Limit(io) => io.absence(),
            Kind::Control(Method::Blocking | Method::Spinning) => None,
            _ if plainweave_program().is_none() => {
                Some("the program plainweave is not beside plainweave-bench")
            }
            Kind::Uring
            | Kind::UringAgain
            | Kind::UringFibers
            | Kind::Control(Method::Splicing) => Driver::Uring.absence(),
            _ => None,
        }
    }

    fn command(
        self,
        site: &Site,
        under: &Conditions<'_>,
    ) -> anyhow::Result<(Command, Option<SocketAddr>)> {
        if matches!(self, Kind::Nginx | Kind::NginxDefaults | Kind::NginxThreads) {
            let defaults = self == Kind::NginxDefaults;
            let http = if self == Kind::NginxThreads {
                "aio threads;"
            } else {
                ""
            };

            let root = format!("root {};", site.root().display());
            let settings = nginx::Settings {
                workers: under.workers,
                http,
                server: &root,
                defaults,
                ..Default::default()
            };

            let (command, address) = nginx::command(site.dir(), &settings)?;
            return Ok((command, Some(address)));
        }

        if let Kind::Limit(io) = self {
            return Ok((limit::command(io, "http", under.arguments)?, None));
        }
        if let Kind::Control(method) = self {
            return Ok((method.command(&site.root())?, None));
        }
        let mut command = match under.added {
            Some(added) => hooked::command("web", added)?,
            None => {
                let mut command = Command::new(plainweave_program().context("no plainweave")?);
                command.arg("web");
                command
            }
        };
        command
            .arg(site.root())
            .arg("--workers")
            .arg(under.workers.to_string());
        command
            .args(["--listen", "127.0.0.1:0"])
            .args(under.arguments);
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

/// A running server; ends with this value.
#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) kind: Kind,
    process: Process,
}

impl Server {
    /// Starts it.
    pub(crate) fn start(kind: Kind, site: &Site, under: Conditions<'_>) -> anyhow::Result<Self> {
        let (command, address) = kind.command(site, &under)?;
        Self::start_by(kind, &command, address, under)
    }

    /// Starts a back end, on the client's CPU.
    pub(crate) fn start_beside(kind: Kind, site: &Site) -> anyhow::Result<Self> {
        let (command, address) = kind.command(site, &Conditions::default())?;
        let process = Process::start(kind.name(), &command, address, 0, None)?;
        Ok(Self { kind, process })
    }

    /// Makes one of a process that runs already.
    pub(crate) fn of(kind: Kind, process: Process) -> Self {
        Self { kind, process }
    }

    /// Starts one of this kind by another command; `address` is as for [`Process::start`].
    pub(crate) fn start_by(
        kind: Kind,
        command: &Command,
        address: Option<SocketAddr>,
        under: Conditions<'_>,
    ) -> anyhow::Result<Self> {
        let process = Process::start(kind.name(), command, address, under.workers, under.group)?;
        Ok(Self { kind, process })
    }

    /// Returns the process alone.
    pub(crate) fn into_process(self) -> Process {
        self.process
    }
}

impl Deref for Server {
    type Target = Process;

    fn deref(&self) -> &Process {
        &self.process
    }
}
