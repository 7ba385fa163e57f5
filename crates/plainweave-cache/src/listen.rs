//! The sockets that are listened on.

use std::fmt;
use std::io::{self, ErrorKind};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, ToSocketAddrs};
use std::num::NonZeroUsize;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixListener;

use anyhow::{Context, anyhow, bail, ensure};
use rustix::process::geteuid;
use socket2::SockRef;

use super::certificates::{Certificates, Security};
use super::flags::Listen;
use super::tls::Tls;
use plainweave_daemon::console::say;
use plainweave_daemon::listening;
use plainweave_daemon::replace::Inherited;
use plainweave_daemon::sharing::Sharing;
use plainweave_daemon::socket_file::SocketFile;

/// All that was asked for, open.
#[derive(Debug)]
pub(super) struct Listeners {
    pub(super) tcp: Vec<(TcpListener, Security)>,
    /// Whether there is to be TLS.
    secure: bool,
    pub(super) unix: Option<(UnixListener, SocketFile)>,
    pub(super) admin: Option<TcpListener>,
    /// Whether the admin address shows details to other machines, too.
    pub(super) details: bool,
    pub(super) sharing: Sharing,
}

impl Listeners {
    /// Returns a further descriptor of each.
    pub(super) fn descriptors(&self) -> io::Result<Vec<OwnedFd>> {
        let unix = self.unix.iter().map(|(listener, _)| listener.as_fd());
        let tcp = self.tcp.iter().map(|(listener, _)| listener);
        let tcp = tcp.chain(&self.admin).map(AsFd::as_fd);
        tcp.chain(unix).map(|fd| fd.try_clone_to_owned()).collect()
    }

    /// Returns where it listens, and what is spoken there.
    pub(super) fn addresses(&self) -> Vec<(SocketAddr, Security)> {
        let tcp = self.tcp.iter();
        let addresses =
            tcp.filter_map(|(listener, security)| Some((listener.local_addr().ok()?, *security)));
        addresses.collect()
    }

    /// Reads what TLS is made from, if a listener is to speak it.
    pub(super) fn tls(
        &self,
        certificates: &Certificates,
        workers: NonZeroUsize,
    ) -> anyhow::Result<Option<Tls>> {
        let asked: Vec<_> = self.tcp.iter().map(|(_, security)| *security).collect();
        let tls = self
            .secure
            .then(|| Tls::load(certificates, &asked, workers));
        tls.transpose()
    }

    /// Bounds what the kernel holds for each TCP connection, which inherits it: this much each way,
    /// doubled.
    pub(super) fn bound_buffers(&self, bytes: usize) -> std::io::Result<()> {
        self.tcp.iter().try_for_each(|(listener, _)| {
            let socket = SockRef::from(listener);
            socket.set_send_buffer_size(bytes)?;
            socket.set_recv_buffer_size(bytes)
        })
    }
}

impl fmt::Display for Listeners {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("listening on")?;
        for (listener, security) in &self.tcp {
            let address = listener.local_addr().map_err(|_| fmt::Error)?;
            match security {
                Security::Plain => write!(f, " {address}")?,
                _ => write!(f, " tls:{address}")?,
            }
        }

        if let Some((_, file)) = &self.unix {
            write!(f, " {}", file.path().display())?;
        }

        match self
            .admin
            .as_ref()
            .and_then(|listener| listener.local_addr().ok())
        {
            Some(address) => write!(f, ", admin http://{address}/"),
            None => Ok(()),
        }
    }
}

/// Opens them, or takes those that are inherited; also what a service manager has opened beside
/// them.
pub(super) fn all(flags: &Listen, inherited: &mut Inherited) -> anyhow::Result<Listeners> {
    let path = flags.unix_socket.clone();
    let port = u16::try_from(flags.port()).unwrap_or(0);
    let usual = match flags.enable_ssl {
        true => Security::Usual,
        false => Security::Plain,
    };
    let mut asked = Vec::new();
    if path.is_none() && flags.port() != 0 {
        for text in &flags.listen {
            let (security, text) = Security::split(text);
            ensure!(
                security.is_none() || flags.enable_ssl,
                "-l {text}: a listener says how much TLS it has, but there is none (give -Z, too)"
            );

            let security = security.unwrap_or(usual);
            let found = addresses(text, port)?.into_iter();
            asked.extend(found.map(|address| (address, security)));
        }
    }

    let with_admin = asked.iter().map(|(address, _)| *address).chain(flags.admin);
    let with_admin: Vec<_> = with_admin.collect();
    let managed = inherited.unasked(&with_admin, path.as_deref())?;
    ensure!(
        managed.tls.is_empty() || flags.enable_ssl,
        "the service manager has a socket for TLS, which there is none on: give -Z, or rename it"
    );
    // A port alone is all addresses, of which the service manager may have chosen some.
    let is_managed = |address: &SocketAddr| flags.port.is_none() || address.port() == port;
    let is_default = asked.is_empty()
        && path.is_none()
        && managed.unix.is_none()
        && flags.port() != 0
        && !managed.plain.iter().chain(&managed.tls).any(is_managed);

    let path = path.as_ref().or(managed.unix.as_ref());
    let unix = path.map(|path| listening::open_unix(path, flags.unix_mask, "-s", inherited));
    let unix = unix.transpose()?;
    let mut open = |address: SocketAddr, only_v6: bool| {
        bind(address, flags.listen_backlog, only_v6, inherited)
    };
    let mut tcp = Vec::new();
    let managed_tcp = managed.plain.iter().chain(&managed.tls);
    asked.extend(managed_tcp.map(|address| (*address, usual)));
    for (address, security) in asked {
        tcp.push((open(address, address.is_ipv6())?, security));
    }
    if is_default {
        let open = everywhere(port, &mut open)?;
        tcp.extend(open.into_iter().map(|listener| (listener, usual)));
    }
    if tcp.is_empty() && unix.is_none() {
        bail!("there is nothing to listen on: give a port with -p or a Unix socket with -s");
    }

    let admin = managed.admin_or(flags.admin)?;
    let admin = admin.map(|address| open(address, false)).transpose()?;
    Ok(Listeners {
        tcp,
        secure: flags.enable_ssl,
        unix,
        admin,
        details: flags.admin_details,
        sharing: inherited.sharing().clone(),
    })
}

/// Opens a socket; true: not for IPv4 clients.
type Open<'a> = dyn FnMut(SocketAddr, bool) -> anyhow::Result<TcpListener> + 'a;

/// Listens on all addresses.
fn everywhere(port: u16, open: &mut Open<'_>) -> anyhow::Result<Vec<TcpListener>> {
    let v4 = open((Ipv4Addr::UNSPECIFIED, port).into(), false)?;
    // The same port, also when any was asked for. A machine without IPv6 is served without it.
    let v6: SocketAddr = (Ipv6Addr::UNSPECIFIED, v4.local_addr()?.port()).into();
    let v6 = open(v6, true).ok();
    Ok([Some(v4), v6].into_iter().flatten().collect())
}

/// Resolves an address, a name, or either with a port.
fn addresses(text: &str, port: u16) -> anyhow::Result<Vec<SocketAddr>> {
    let remedy = || {
        format!(
            "cannot listen on {text} (write ADDRESS or ADDRESS:PORT, as in 127.0.0.1 or [::1]:11211)"
        )
    };

    if let Ok(address) = text.trim_matches(['[', ']']).parse::<IpAddr>() {
        return Ok(vec![(address, port).into()]);
    }
    let found = if text.contains(':') {
        text.to_socket_addrs()
    } else {
        (text, port).to_socket_addrs()
    };

    Ok(found.with_context(remedy)?.collect())
}

fn bind(
    address: SocketAddr,
    backlog: i32,
    only_v6: bool,
    inherited: &mut Inherited,
) -> anyhow::Result<TcpListener> {
    listening::open(address, backlog, only_v6, inherited).map_err(|error| {
        let remedy = match error.kind() {
            ErrorKind::AddrInUse => "is another server on it? choose another with -p or -l",
            ErrorKind::AddrNotAvailable => {
                "this machine has no such address; choose another with -l"
            }
            ErrorKind::PermissionDenied => {
                "ports below 1024 need root or CAP_NET_BIND_SERVICE; choose another with -p"
            }
            _ => "choose another with -p or -l",
        };

        anyhow!(error).context(format!("cannot listen on {address} ({remedy})"))
    })
}

/// Warns if the server runs as root and any client that reaches the machine may use it.
pub(super) fn warn_of_root(listeners: &Listeners, asks_who: bool) {
    let everywhere = listeners.tcp.iter().any(|(listener, _)| {
        listener
            .local_addr()
            .is_ok_and(|address| address.ip().is_unspecified())
    });

    if everywhere && !asks_who && geteuid().is_root() {
        let text = "it runs as root, listens on all addresses and has no authentication";
        let remedy = "give -u USER, -Y FILE, or -l 127.0.0.1 if only this machine needs it";
        say(
            io::stderr(),
            &format!("plainweave cache: warning: {text}: {remedy}"),
        );
    }
}
