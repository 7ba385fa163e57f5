//! The servers of both kinds, behind one type.

use std::net::SocketAddr;

use anyhow::Context;

use super::cache;
use super::driver::Driver;
use super::process::Conditions;
use super::site::Site;
use super::web;
use crate::harness::cgroup::{Group, NO_QUOTA};
use crate::harness::machine;

/// Memory of a cache, in megabytes.
const MEGABYTES: usize = 64;

/// Stands for nginx and memcached.
pub(crate) const PEER: &str = "peer";

/// Whose server it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Whose {
    /// Ours, on this driver.
    Ours(Driver),
    Peer,
    /// Nobody's: the raw loop that sends a fixed answer, with one worker.
    Limit,
}

/// What is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Web,
    Cache,
}

impl Kind {
    pub(crate) fn name(self) -> &'static str {
        if self == Kind::Web { "web" } else { "cache" }
    }

    /// Returns the name of a system of this kind.
    pub(crate) fn system(self, system: &str) -> String {
        let peer = if self == Kind::Web {
            "nginx"
        } else {
            "memcached"
        };
        if system == PEER { peer } else { system }.to_owned()
    }

    /// Returns why it cannot be measured here.
    pub(crate) fn absence(self, system: &str) -> Option<&'static str> {
        let program = self.system(system);
        (system == PEER && !machine::installed(&program)).then_some("not installed")
    }
}

/// Returns a control group that may use the time of one CPU.
pub(crate) fn one_cpu(name: &str) -> anyhow::Result<Group> {
    let group = Group::new(name, &["cpu", "cpuacct"]);
    let limited = group.and_then(|group| group.limit(1.0).map(|()| group));
    limited.context(NO_QUOTA)
}

/// A running server; ends with this value.
pub(crate) struct Server {
    whose: Whose,
    program: Program,
    workers: usize,
}

enum Program {
    Web(web::Server),
    Cache(cache::Server),
}

impl Server {
    /// Starts it, ours as the server of this program with the flags `added`, and with more
    /// arguments of its own. One worker is bound to CPU 0; more of them share the CPUs with the
    /// load, and have the time of one by quota.
    pub(crate) fn start(
        kind: Kind,
        whose: Whose,
        site: &Site,
        workers: usize,
        added: &[&str],
        arguments: &[&str],
    ) -> anyhow::Result<Self> {
        // Counts threads that have ended too.
        let counting = || Group::new("server", &["cpuacct"]).ok();
        let group = if workers > 1 {
            Some(one_cpu("server")?)
        } else {
            counting()
        };

        let under = Conditions {
            workers,
            group,
            arguments,
            added: Some(added),
        };

        let program = match kind {
            Kind::Web => {
                let kind = match whose {
                    Whose::Peer => web::Kind::Nginx,
                    Whose::Limit => web::Kind::Limit(Driver::Epoll),
                    Whose::Ours(Driver::Epoll) => web::Kind::Epoll,
                    Whose::Ours(Driver::Uring) => web::Kind::Uring,
                };

                Program::Web(web::Server::start(kind, site, under)?)
            }
            Kind::Cache => {
                let system = match whose {
                    Whose::Peer => cache::System::Memcached,
                    Whose::Limit => cache::System::Limit(Driver::Epoll),
                    Whose::Ours(Driver::Epoll) => cache::System::IdleConn,
                    Whose::Ours(Driver::Uring) => cache::System::Uring,
                };

                Program::Cache(cache::Server::start(system, MEGABYTES, under)?)
            }
        };

        Ok(Self {
            whose,
            program,
            workers,
        })
    }

    pub(crate) fn workers(&self) -> usize {
        self.workers
    }

    /// Returns whether it is the raw loop.
    pub(crate) fn is_limit(&self) -> bool {
        self.whose == Whose::Limit
    }

    pub(crate) fn address(&self) -> SocketAddr {
        match &self.program {
            Program::Web(server) => server.address,
            Program::Cache(server) => server.address,
        }
    }

    /// CPU time so far, in nanoseconds.
    pub(crate) fn cpu_ns(&self) -> anyhow::Result<u64> {
        match &self.program {
            Program::Web(server) => server.cpu_ns(),
            Program::Cache(server) => server.cpu_ns(),
        }
    }

    /// Memory that it holds now, in bytes.
    pub(crate) fn memory(&self) -> anyhow::Result<f64> {
        match &self.program {
            Program::Web(server) => server.memory(),
            Program::Cache(server) => Ok(server.resident()),
        }
    }
}
