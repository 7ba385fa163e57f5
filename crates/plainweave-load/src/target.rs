//! The server under load: its addresses, whether it is there, and descriptors enough to reach it.

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::net::{TcpStream, ToSocketAddrs};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use http::Uri;
use plainweave::time;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::clock::{Nanos, nanos};
use super::connect_to::ConnectTo;
use super::socket::{Place, Socket};
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
    /// It is asked over TLS.
    pub(super) secure: bool,
    pub(super) via: Via,
}

/// How a server is reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Via {
    /// By its own host and port.
    Itself,
    /// By others.
    Host(String, u16),
    /// By a Unix socket.
    Unix(PathBuf),
}

/// Returns the host that a URL names, without brackets, its port, and whether it is asked over TLS;
/// nothing where it names none.
pub(super) fn origin(uri: &Uri) -> Option<(&str, u16, bool)> {
    let secure = uri.scheme_str() == Some("https");
    let host = uri.host()?.trim_start_matches('[').trim_end_matches(']');
    let port = uri.port_u16().unwrap_or(if secure { 443 } else { 80 });
    Some((host, port, secure))
}

/// Returns what a URL asks for on its server.
pub(super) fn path_of(uri: &Uri) -> &str {
    uri.path_and_query().map_or("/", |path| path.as_str())
}

impl Target {
    /// Returns the server of this name, `HOST:PORT` or the path of a Unix socket; `usual` is the
    /// port where none is named.
    ///
    /// # Errors
    /// It is neither.
    pub(super) fn named(server: &str, usual: Option<u16>) -> anyhow::Result<Self> {
        if ["/", "./", "../"]
            .iter()
            .any(|start| server.starts_with(start))
        {
            return Ok(Self {
                name: server.to_owned(),
                host: String::new(),
                port: 0,
                secure: false,
                via: Via::Unix(server.into()),
            });
        }

        let (host, port) = match server.rsplit_once(':') {
            Some((host, port)) if !host.contains(':') || host.ends_with(']') => {
                (host, port.parse().ok())
            }
            _ => (server, usual),
        };
        let port = port.with_context(|| format!("{server}: write HOST:PORT"))?;
        let host = host.trim_start_matches('[').trim_end_matches(']');
        ensure!(
            !host.is_empty() && !host.contains('/'),
            "{server}: write HOST:PORT, or the path of a Unix socket"
        );

        Ok(Self {
            name: server.to_owned(),
            host: host.to_owned(),
            port,
            secure: false,
            via: Via::Itself,
        })
    }

    /// Returns the first of its addresses that takes a connection.
    pub(super) fn probe(&self, timeout: Duration) -> anyhow::Result<Place> {
        let (host, port) = match &self.via {
            Via::Itself => (self.host.as_str(), self.port),
            Via::Host(host, port) => (host.as_str(), *port),
            Via::Unix(path) => {
                UnixStream::connect(path).with_context(|| {
                    format!("cannot reach {} by way of {}", self.name, path.display())
                })?;
                return Ok(Place::Unix(path.clone()));
            }
        };

        let found = (host, port).to_socket_addrs();
        let addresses = found.with_context(|| format!("cannot resolve {host}"))?;
        let mut last = None;

        for address in addresses {
            match TcpStream::connect_timeout(&address, timeout) {
                Ok(_) => return Ok(Place::Ip(address)),
                Err(error) => last = Some(error),
            }
        }

        let Some(error) = last else {
            bail!("{host} has no address")
        };
        let remedy = match error.kind() {
            ErrorKind::ConnectionRefused => "; is the server running, and is it this port?",
            ErrorKind::TimedOut => "; does a firewall drop the packets?",
            _ => "",
        };

        let by = match self.via {
            Via::Host(..) => format!(" by way of {host}:{port}"),
            _ => String::new(),
        };

        Err(anyhow::Error::new(error).context(format!("cannot reach {}{by}{remedy}", self.name)))
    }
}

/// Has each server be reached as the first rule that fits says.
///
/// # Errors
/// A rule fits none.
pub(super) fn lead_elsewhere(rules: &[ConnectTo], targets: &mut [Target]) -> anyhow::Result<()> {
    let fits = |rule: &ConnectTo, target: &Target| rule.fits(&target.host, target.port);
    for rule in rules {
        ensure!(
            targets.iter().any(|target| fits(rule, target)),
            "--connect-to {rule} fits none of the URLs"
        );
    }

    for target in targets {
        if let Some(rule) = rules.iter().find(|rule| fits(rule, target)) {
            let (host, port) = rule.lead(&target.host, target.port);
            target.via = Via::Host(host, port);
        }
    }

    Ok(())
}

/// Connects, on a fiber. Returns how long that took, too, in nanoseconds.
pub(super) fn connect(place: &Place) -> Result<(Socket, u64), Failure> {
    let began = time::now();
    let socket = Socket::connect(place)?;
    Ok((socket, since(began)))
}

/// Returns how long ago that was.
pub(super) fn since(began: Instant) -> Nanos {
    nanos(time::now().saturating_duration_since(began))
}

/// Where the kernel says which local ports it hands out.
const PORT_RANGE: &str = "/proc/sys/net/ipv4/ip_local_port_range";

/// Checks that the local ports suffice for these connections: each address takes as many as there
/// are ports.
pub(super) fn enough_ports(connections: usize, places: &[Place]) -> anyhow::Result<()> {
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
    let by_port = places.iter().filter(|place| matches!(place, Place::Ip(_)));
    let different: BTreeSet<_> = by_port.collect();

    if different.is_empty() {
        return Ok(());
    }
    let each = connections.div_ceil(different.len());
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
    fn the_first_rule_that_fits_counts() {
        let target = |host: &str, port| Target {
            name: format!("http://{host}:{port}"),
            host: host.to_owned(),
            port,
            secure: false,
            via: Via::Itself,
        };

        let rules = ["a:80:127.0.0.1:8080", "::[::1]:", "b:::81"]
            .map(|text| ConnectTo::parse(text).unwrap());
        let mut targets = [target("A", 80), target("a", 81), target("b", 80)];
        lead_elsewhere(&rules, &mut targets).unwrap();
        let via = targets.map(|target| target.via);
        let expected = [("127.0.0.1", 8080), ("::1", 81), ("::1", 80)];

        assert_eq!(
            via,
            expected.map(|(host, port)| Via::Host(host.to_owned(), port))
        );

        let mut targets = [target("b", 80)];
        lead_elsewhere(&rules[2..], &mut targets).unwrap();
        assert_eq!(targets[0].via, Via::Host("b".to_owned(), 81));
        let error = lead_elsewhere(&rules[..1], &mut targets).unwrap_err();
        let error = error.to_string();
        assert!(error.contains("a:80:127.0.0.1:8080 fits none"), "{error}");
    }

    #[test]
    fn too_few_ports_are_said_with_the_remedy() {
        let place = |last| Place::Ip(([127, 0, 0, last], 80).into());
        let one = place(1);
        let two = place(2);
        let path = Place::Unix("/run/socket".into());
        assert!(enough_ports(2, std::slice::from_ref(&one)).is_ok());
        assert!(enough_ports(65_537, &[path]).is_ok());
        let error = enough_ports(65_537, &[one.clone(), one.clone()])
            .unwrap_err()
            .to_string();

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
