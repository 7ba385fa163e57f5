//! The servers of both kinds, behind one type.

use std::net::SocketAddr;

use clap::ValueEnum;

use crate::cache::server as cache;
use crate::machine;
use crate::web::server as web;
use crate::web::site::Site;

/// Memory of a cache, in megabytes.
const MEGABYTES: usize = 64;

/// Stands for nginx and memcached.
pub(super) const PEER: &str = "peer";

/// An I/O driver of ours.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(super) enum Driver {
    Epoll,
    Uring,
}

/// What is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Web,
    Cache,
}

impl Kind {
    pub(super) fn name(self) -> &'static str {
        if self == Kind::Web { "web" } else { "cache" }
    }

    /// Returns the name of a system of this kind.
    pub(super) fn system(self, system: &str) -> String {
        let peer = if self == Kind::Web { "nginx" } else { "memcached" };
        if system == PEER { peer } else { system }.to_owned()
    }

    /// Returns why it cannot be measured here.
    pub(super) fn absence(self, system: &str) -> Option<&'static str> {
        let program = self.system(system);
        (system == PEER && !machine::installed(&program)).then_some("not installed")
    }
}

/// A running server; ends with this value.
pub(super) enum Server {
    Web(web::Server),
    Cache(cache::Server),
}

impl Server {
    /// Starts ours on this driver, or the peer, on CPU 0.
    pub(super) fn start(kind: Kind, ours: Option<Driver>, site: &Site, arguments: &[&str]) -> anyhow::Result<Self> {
        match kind {
            Kind::Web => {
                let kind = match ours {
                    None => web::Kind::Nginx,
                    Some(Driver::Epoll) => web::Kind::Epoll,
                    Some(Driver::Uring) => web::Kind::Uring,
                };
                web::Server::start_with(kind, site, None, arguments).map(Server::Web)
            }
            Kind::Cache => {
                let system = match ours {
                    None => cache::System::Memcached,
                    Some(Driver::Epoll) => cache::System::IdleConn,
                    Some(Driver::Uring) => cache::System::Uring,
                };
                cache::Server::start_with(system, MEGABYTES, None, arguments).map(Server::Cache)
            }
        }
    }

    pub(super) fn address(&self) -> SocketAddr {
        match self {
            Server::Web(server) => server.address,
            Server::Cache(server) => server.address,
        }
    }

    /// CPU time so far, in nanoseconds.
    pub(super) fn cpu_ns(&self) -> anyhow::Result<u64> {
        match self {
            Server::Web(server) => server.cpu_ns(),
            Server::Cache(server) => server.cpu(),
        }
    }

    /// Memory that it holds now, in bytes.
    pub(super) fn memory(&self) -> anyhow::Result<f64> {
        match self {
            Server::Web(server) => server.memory(),
            Server::Cache(server) => Ok(server.resident()),
        }
    }
}
