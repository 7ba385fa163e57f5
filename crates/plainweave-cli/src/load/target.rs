//! The server under load: its addresses, whether it is there, and descriptors enough to reach it.

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use plainweave::time;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::plan::nanos;
use super::tally::Failure;

/// Descriptors beside the connections: standard streams, result files, and a few for each worker's
/// driver.
const SPARE: u64 = 16;
const PER_WORKER: u64 = 8;

/// A server by name.
#[derive(Clone, Debug)]
pub(super) struct Target {
    /// For people: `http://host:port`, `host:port`.
    pub(super) name: String,
    pub(super) host: String,
    pub(super) port: u16,
    /// It is asked by TLS.
    pub(super) secure: bool,
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
        let Some(error) = last else {
            bail!("{} has no address", self.host)
        };
        let remedy = match error.kind() {
            ErrorKind::ConnectionRefused => "; is the server running, and is it this port?",
            ErrorKind::TimedOut => "; does a firewall drop the packets?",
            _ => "",
        };
        Err(anyhow::Error::new(error).context(format!("cannot reach {}{remedy}", self.name)))
    }
}

/// Connects, on a fiber. Returns how long that took, too, in nanoseconds.
pub(super) fn connect(address: SocketAddr) -> Result<(plainweave::net::TcpStream, u64), Failure> {
    let began = time::now();
    let stream = plainweave::net::TcpStream::connect(address)?;
    stream.set_nodelay(true)?;
    Ok((stream, since(began)))
}

/// Returns how long ago that was, in nanoseconds.
pub(super) fn since(began: Instant) -> u64 {
    nanos(time::now().saturating_duration_since(began))
}

/// Where the kernel says which local ports it hands out.
const PORT_RANGE: &str = "/proc/sys/net/ipv4/ip_local_port_range";

/// Checks that the local ports suffice for these connections: each address takes as many as there
/// are ports.
pub(super) fn enough_ports(connections: usize, addresses: &[SocketAddr]) -> anyhow::Result<()> {
    // Where it cannot be read, the connections themselves will tell.
    let Ok(range) = std::fs::read_to_string(PORT_RANGE) else {
        return Ok(());
    };
    let bounds: Vec<usize> = range
        .split_whitespace()
        .filter_map(|port| port.parse().ok())
        .collect();
    let &[first, last] = bounds.as_slice() else {
        return Ok(());
    };
    let ports = (last + 1).saturating_sub(first);
    let different: BTreeSet<_> = addresses.iter().collect();
    let each = connections.div_ceil(different.len().max(1));
    if each > ports {
        bail!(
            "{each} connections to one address need {each} local ports and the kernel hands out {ports}; widen \
             net.ipv4.ip_local_port_range ({first} {last} now), or name more addresses of the server"
        );
    }
    Ok(())
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
        bail!(
            "{connections} connections need {needed} descriptors and {most} are allowed; raise it with ulimit -n"
        );
    }
    setrlimit(
        Resource::Nofile,
        Rlimit {
            current: Some(needed),
            maximum,
        },
    )
    .with_context(|| format!("cannot allow {needed} descriptors; raise the limit with ulimit -n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn too_few_ports_are_said_with_the_remedy() {
        let one: SocketAddr = ([127, 0, 0, 1], 80).into();
        let two: SocketAddr = ([127, 0, 0, 2], 80).into();
        assert!(enough_ports(2, &[one]).is_ok());
        let error = enough_ports(65_537, &[one, one]).unwrap_err().to_string();
        assert!(
            error.contains("65537 connections") && error.contains("ip_local_port_range"),
            "{error}"
        );
        let error = enough_ports(131_074, &[one, two]).unwrap_err().to_string();
        assert!(
            error.contains("65537 connections to one address"),
            "{error}"
        );
    }
}
