//! Listening sockets, with a remedy in each error.

use std::io::{self, ErrorKind};
use std::net::{SocketAddr, TcpListener};

use anyhow::bail;
use plainweave_http::accept::MOST;

use super::flags::Addresses;
use super::tls::Tls;
use crate::listening;

/// A server's listeners, without TLS and with it.
pub(super) struct Listeners {
    plain: Vec<TcpListener>,
    tls: Vec<TcpListener>,
}

impl Listeners {
    pub(super) fn bind(addresses: &Addresses) -> anyhow::Result<Self> {
        let mut all = addresses.plain.iter().chain(&addresses.tls);
        while let Some(address) = all.next() {
            if address.port() != 0 && all.clone().any(|other| other == address) {
                bail!(
                    "cannot listen on {address} twice: give it to one of --listen and --tls-listen, once"
                );
            }
        }
        let each =
            |addresses: &[SocketAddr]| addresses.iter().map(|address| bind(*address)).collect();
        let (plain, tls): (anyhow::Result<_>, _) = (each(&addresses.plain), each(&addresses.tls));
        Ok(Self {
            plain: plain?,
            tls: tls?,
        })
    }

    pub(super) fn all(&self) -> impl Iterator<Item = &TcpListener> {
        self.plain.iter().chain(&self.tls)
    }

    /// Returns the port of the first one with TLS.
    pub(super) fn tls_port(&self) -> Option<u16> {
        Some(self.tls.first()?.local_addr().ok()?.port())
    }

    /// Returns where each can be reached.
    pub(super) fn urls(&self) -> io::Result<Vec<String>> {
        let url = |scheme: &'static str| {
            move |of: &TcpListener| Ok(format!("{scheme}://{}", of.local_addr()?))
        };
        self.plain
            .iter()
            .map(url("http"))
            .chain(self.tls.iter().map(url("https")))
            .collect()
    }

    /// Returns them, each with what its connections need.
    pub(super) fn with(self, tls: Option<&Tls>) -> Vec<(TcpListener, Option<Tls>)> {
        let plain = self.plain.into_iter().map(|listener| (listener, None));
        plain
            .chain(
                self.tls
                    .into_iter()
                    .map(|listener| (listener, tls.cloned())),
            )
            .collect()
    }
}

/// Binds a listener to an address.
pub(super) fn bind(address: SocketAddr) -> anyhow::Result<TcpListener> {
    listening::open(address, MOST.cast_signed(), address.is_ipv6()).map_err(|error| {
        let remedy = match error.kind() {
            ErrorKind::AddrInUse => "is another server on it? choose another with --listen",
            ErrorKind::AddrNotAvailable => {
                "this machine has no such address; choose another with --listen"
            }
            ErrorKind::PermissionDenied => {
                "ports below 1024 need root or CAP_NET_BIND_SERVICE; choose another with --listen"
            }
            _ => "choose another address with --listen",
        };
        anyhow::Error::new(error).context(format!("cannot listen on {address} ({remedy})"))
    })
}
