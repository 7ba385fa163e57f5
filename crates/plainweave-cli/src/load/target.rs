//! The server under load: its addresses, whether it is there, and descriptors enough to reach it.

use std::io::ErrorKind;
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::time::Duration;

use anyhow::{Context, bail};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Descriptors beside the connections: standard streams, result files, and a few for each worker's driver.
const SPARE: u64 = 16;
const PER_WORKER: u64 = 8;

/// A server by name.
#[derive(Clone, Debug)]
pub(super) struct Target {
    /// For people: `http://host:port`, `host:port`.
    pub(super) name: String,
    pub(super) host: String,
    pub(super) port: u16,
}

impl Target {
    /// Returns the first of its addresses that takes a connection.
    pub(super) fn probe(&self, timeout: Duration) -> anyhow::Result<SocketAddr> {
        let found = (self.host.as_str(), self.port).to_socket_addrs();
        let addresses = found.with_context(|| format!("cannot resolve {}", self.host))?;
        let mut last = None;
        for address in addresses {
            match TcpStream::connect_timeout(&address, timeout) {
                Ok(_) => return Ok(address),
                Err(error) => last = Some(error),
            }
        }
        let Some(error) = last else { bail!("{} has no address", self.host) };
        let remedy = match error.kind() {
            ErrorKind::ConnectionRefused => "; is the server running, and is it this port?",
            ErrorKind::TimedOut => "; does a firewall drop the packets?",
            _ => "",
        };
        Err(anyhow::Error::new(error).context(format!("cannot reach {}{remedy}", self.name)))
    }
}

/// Raises the limit of open descriptors as far as these connections need.
pub(super) fn allow_descriptors(connections: usize, workers: usize) -> anyhow::Result<()> {
    let needed = connections as u64 + workers as u64 * PER_WORKER + SPARE;
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current.is_none_or(|limit| limit >= needed) {
        return Ok(());
    }
    if let Some(most) = maximum
        && most < needed
    {
        bail!("{connections} connections need {needed} descriptors and {most} are allowed; raise it with ulimit -n");
    }
    setrlimit(Resource::Nofile, Rlimit { current: Some(needed), maximum })
        .with_context(|| format!("cannot allow {needed} descriptors; raise the limit with ulimit -n"))
}
