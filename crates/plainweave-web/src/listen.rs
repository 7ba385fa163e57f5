//! Listening sockets, with a remedy in each error.

use std::io::{self, ErrorKind};
use std::net::{SocketAddr, TcpListener};
use std::os::unix::net::UnixListener;
use std::path::Path;

use anyhow::bail;
use plainweave::net;
use plainweave_serve::accept::MOST;

use super::flags::Addresses;
use super::tls::Tls;
use plainweave_daemon::listening::{self, Listening, SocketFile};

/// A listener, and what its connections need for TLS.
pub(super) type Served = (Listening, Option<Tls>);

/// A server's listeners, without TLS and with it.
pub(super) struct Listeners {
    plain: Vec<TcpListener>,
    tls: Vec<TcpListener>,
    unix: Option<(UnixListener, SocketFile)>,
}

impl Listeners {
    /// `unix`: the file and its access mask.
    pub(super) fn bind(addresses: &Addresses, unix: Option<(&Path, u32)>) -> anyhow::Result<Self> {
        let mut all = addresses.plain.iter().chain(&addresses.tls);
        while let Some(address) = all.next() {
            // The second bind would fail, and its error ask for another server.
            if address.port() != 0 && all.clone().any(|other| other == address) {
                bail!(
                    "cannot listen on {address} twice: give it to one of --listen and --tls-listen, once"
                );
            }
        }

        let each =
            |addresses: &[SocketAddr]| addresses.iter().map(|address| bind(*address)).collect();
        let (plain, tls): (anyhow::Result<_>, _) = (each(&addresses.plain), each(&addresses.tls));
        let unix = unix.map(|(path, mask)| listening::open_unix(path, mask, "--unix-socket"));
        Ok(Self {
            plain: plain?,
            tls: tls?,
            unix: unix.transpose()?,
        })
    }

    /// Returns further handles of the TCP sockets.
    pub(super) fn handles(&self) -> io::Result<Vec<net::TcpListener>> {
        let handles = self.tcp().map(|listener| listener.try_clone());
        handles
            .map(|handle| net::TcpListener::from_std(handle?))
            .collect()
    }

    pub(super) fn tcp(&self) -> impl Iterator<Item = &TcpListener> {
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
            .chain(
                self.unix
                    .iter()
                    .map(|(_, file)| Ok(format!("unix:{}", file.path().display()))),
            )
            .collect()
    }

    /// Returns the files that listeners have made.
    pub(super) fn files(&self) -> Vec<&Path> {
        self.unix.iter().map(|(_, file)| file.path()).collect()
    }

    /// Returns them, each with what its connections need, and the file that goes with them.
    pub(super) fn with(self, tls: Option<&Tls>) -> io::Result<(Vec<Served>, Option<SocketFile>)> {
        let tcp = |listener| net::TcpListener::from_std(listener).map(Listening::Tcp);
        let plain = self
            .plain
            .into_iter()
            .map(|listener| Ok((tcp(listener)?, None)));
        let encrypted = self
            .tls
            .into_iter()
            .map(|listener| Ok((tcp(listener)?, tls.cloned())));
        let mut all: Vec<_> = plain.chain(encrypted).collect::<io::Result<_>>()?;
        let (unix, file) = self.unix.map(listening::take_over).transpose()?.unzip();

        all.extend(unix.map(|listener| (listener, None)));

        Ok((all, file))
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
