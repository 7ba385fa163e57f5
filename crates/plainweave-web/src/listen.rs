//! Listening sockets, with a remedy in each error.

use std::io::{self, ErrorKind};
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixListener;
use std::path::Path;

use anyhow::bail;
use plainweave::net;
use plainweave_serve::accept::MOST;

use super::flags::Addresses;
use super::tls::Tls;
use plainweave_daemon::listening::{self, Listening};
use plainweave_daemon::replace::Inherited;
use plainweave_daemon::sharing::Sharing;
use plainweave_daemon::socket_file::SocketFile;

/// A listener, and what its connections need for TLS.
pub(super) type Served = (Listening, Option<Tls>);

/// A server's listeners, without TLS and with it.
pub(super) struct Listeners {
    plain: Vec<TcpListener>,
    tls: Vec<TcpListener>,
    unix: Option<(UnixListener, SocketFile)>,
    sharing: Sharing,
}

impl Listeners {
    /// Opens those that are not `inherited`. `mask`: the access mask of a Unix socket.
    pub(super) fn bind(
        addresses: &Addresses,
        mask: u32,
        inherited: &mut Inherited,
    ) -> anyhow::Result<Self> {
        let mut all = addresses.plain.iter().chain(&addresses.tls);
        while let Some(address) = all.next() {
            // The second bind would fail, and its error ask for another server.
            if address.port() != 0 && all.clone().any(|other| other == address) {
                bail!(
                    "cannot listen on {address} twice: give it to one of --listen and --tls-listen, once"
                );
            }
        }

        let mut each = |addresses: &[SocketAddr]| -> anyhow::Result<Vec<_>> {
            let addresses = addresses.iter();
            addresses.map(|address| bind(*address, inherited)).collect()
        };
        let plain = each(&addresses.plain)?;
        let tls = each(&addresses.tls)?;
        let unix = addresses.unix.as_deref();
        let unix = unix.map(|path| listening::open_unix(path, mask, "--unix-socket", inherited));
        Ok(Self {
            plain,
            tls,
            unix: unix.transpose()?,
            sharing: inherited.sharing().clone(),
        })
    }

    /// Returns a further descriptor of each.
    pub(super) fn descriptors(&self) -> io::Result<Vec<OwnedFd>> {
        let unix = self.unix.iter().map(|(listener, _)| listener.as_fd());
        let all = self.tcp().map(AsFd::as_fd).chain(unix);
        all.map(|fd| fd.try_clone_to_owned()).collect()
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
        let sharing = self.sharing;
        let tcp = |listener| {
            let listener = net::TcpListener::from_std(listener)?;
            Ok::<_, io::Error>(Listening::tcp(listener, &sharing))
        };
        let plain = self
            .plain
            .into_iter()
            .map(|listener| Ok((tcp(listener)?, None)));
        let encrypted = self
            .tls
            .into_iter()
            .map(|listener| Ok((tcp(listener)?, tls.cloned())));
        let mut all: Vec<_> = plain.chain(encrypted).collect::<io::Result<_>>()?;
        let Some((unix, file)) = self.unix else {
            return Ok((all, None));
        };
        let unix = net::UnixListener::from_std(unix)?;
        all.push((Listening::unix(unix, &sharing), None));

        Ok((all, Some(file)))
    }
}

/// Binds a listener to an address, or takes an inherited one.
pub(super) fn bind(address: SocketAddr, inherited: &mut Inherited) -> anyhow::Result<TcpListener> {
    listening::open(address, MOST.cast_signed(), address.is_ipv6(), inherited).map_err(|error| {
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
