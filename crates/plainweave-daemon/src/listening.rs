//! How the servers open listening sockets, and accept.

use std::io::{self, ErrorKind};
use std::net::{SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, anyhow};
use plainweave::net::{self, HasSocket, SocketRef, TcpStream};
use plainweave_serve::{Address, Listener};
use rustix::net::{SocketFlags, accept_with};
use socket2::{Domain, Protocol, SockRef, Socket, Type};

use crate::replace::Inherited;
use crate::sharing::Sharing;
use crate::socket_file::SocketFile;

/// Opens one, or takes an inherited one. `backlog`: how many connections the kernel may hold until
/// they are accepted. `only_v6`: an IPv6 address is not for IPv4 clients, so `0.0.0.0` can be
/// listened on beside `[::]`.
pub fn open(
    address: SocketAddr,
    backlog: i32,
    only_v6: bool,
    inherited: &mut Inherited,
) -> io::Result<TcpListener> {
    if let Some(listener) = inherited.tcp(address) {
        SockRef::from(&listener).listen(backlog)?;
        return Ok(listener);
    }
    let socket = Socket::new(
        Domain::for_address(address),
        Type::STREAM.cloexec(),
        Some(Protocol::TCP),
    )?;
    socket.set_reuse_address(true)?;
    if only_v6 {
        socket.set_only_v6(true)?;
    }
    bind(&socket, address)?;
    socket.listen(backlog)?;

    Ok(TcpListener::from(socket))
}

/// Binds, also where a server has just been killed: the kernel ends its ring, and what that waits
/// for, some time after the process.
fn bind(socket: &Socket, address: SocketAddr) -> io::Result<()> {
    const TRIES: u32 = 20;
    const PAUSE: Duration = Duration::from_millis(50);

    let address = address.into();
    for _ in 1..TRIES {
        match socket.bind(&address) {
            Err(error) if error.kind() == ErrorKind::AddrInUse => std::thread::sleep(PAUSE),
            bound => return bound,
        }
    }
    socket.bind(&address)
}

/// Opens a Unix socket with that access mask, or takes an inherited one. `flag` chooses another
/// file.
pub fn open_unix(
    path: &Path,
    mask: u32,
    flag: &str,
    inherited: &mut Inherited,
) -> anyhow::Result<(UnixListener, SocketFile)> {
    let remedy = || {
        format!(
            "cannot listen on {} (choose another file with {flag})",
            path.display()
        )
    };

    let access = std::fs::Permissions::from_mode(mask);
    if let Some(listener) = inherited.unix(path) {
        let file = SocketFile::own(path, inherited.sharing()).with_context(remedy)?;
        // A service manager has its own setting for the mask of its sockets.
        if !inherited.sharing().is_managed(&file.address()) {
            std::fs::set_permissions(path, access).with_context(remedy)?;
        }
        return Ok((listener, file));
    }
    if std::fs::symlink_metadata(path).is_ok_and(|file| !file.file_type().is_socket()) {
        return Err(
            anyhow!("the file is there and is not a socket; it stays as it is").context(remedy()),
        );
    }

    // A socket that a server left behind when it was killed; one in use answers.
    if UnixStream::connect(path).is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused) {
        std::fs::remove_file(path).with_context(remedy)?;
    }
    let listener = UnixListener::bind(path).with_context(remedy)?;
    let file = SocketFile::own(path, inherited.sharing()).with_context(remedy)?;
    std::fs::set_permissions(path, access).with_context(remedy)?;

    Ok((listener, file))
}

/// A listener of either family. Its connections have TCP's type: reading, writing and waiting are
/// the same, an option of TCP fails, and there is no peer's address.
#[derive(Debug)]
pub struct Listening {
    socket: Family,
    is_managed: bool,
    sharing: Sharing,
}

#[derive(Debug)]
enum Family {
    /// IPv4 or IPv6.
    Tcp(net::TcpListener),
    /// By a path.
    Unix(net::UnixListener),
}

impl Listening {
    /// Makes one of TCP. `sharing`: who else may have its socket.
    pub fn tcp(listener: net::TcpListener, sharing: &Sharing) -> Self {
        Self::of(Family::Tcp(listener), sharing)
    }

    /// Makes one by a path.
    pub fn unix(listener: net::UnixListener, sharing: &Sharing) -> Self {
        Self::of(Family::Unix(listener), sharing)
    }

    fn of(socket: Family, sharing: &Sharing) -> Self {
        let address = match &socket {
            Family::Tcp(listener) => listener.address(),
            Family::Unix(listener) => listener.address(),
        };
        Self {
            socket,
            is_managed: address.is_some_and(|address| sharing.is_managed(&address)),
            sharing: sharing.clone(),
        }
    }

    /// For a server whose log has errors of accepting.
    pub fn report_no_exhaustion(&self) {
        match &self.socket {
            Family::Tcp(listener) => listener.report_exhaustion(false),
            Family::Unix(listener) => listener.report_exhaustion(false),
        }
    }
}

impl HasSocket for Listening {
    fn socket(&self) -> SocketRef<'_> {
        match &self.socket {
            Family::Tcp(listener) => listener.socket(),
            Family::Unix(listener) => listener.socket(),
        }
    }
}

impl Listener for Listening {
    type Stream = TcpStream;

    fn accept(&self, patience: Option<Duration>) -> io::Result<(TcpStream, Option<SocketAddr>)> {
        match &self.socket {
            Family::Tcp(listener) => Listener::accept(listener, patience),
            Family::Unix(listener) => {
                let (stream, _) = Listener::accept(listener, patience)?;
                as_tcp(stream.into_std()?.into())
            }
        }
    }

    fn idle_socket(&self) -> Option<SocketRef<'_>> {
        Some(self.socket())
    }

    fn try_accept(&self) -> io::Result<(TcpStream, Option<SocketAddr>)> {
        match &self.socket {
            Family::Tcp(listener) => Listener::try_accept(listener),
            // Not by way of `UnixStream`, which keeps its descriptor.
            Family::Unix(listener) => as_tcp(accept_with(listener, SocketFlags::CLOEXEC)?),
        }
    }

    fn close(&self) {
        if self.is_shared() {
            return;
        }
        match &self.socket {
            Family::Tcp(listener) => listener.close(),
            Family::Unix(listener) => listener.close(),
        }
    }

    fn is_shared(&self) -> bool {
        self.is_managed || self.sharing.is_handed_over()
    }

    fn address(&self) -> Option<Address> {
        match &self.socket {
            Family::Tcp(listener) => listener.address(),
            Family::Unix(listener) => listener.address(),
        }
    }

    fn prepare(&self) -> io::Result<()> {
        match &self.socket {
            Family::Tcp(listener) => listener.prepare(),
            Family::Unix(listener) => listener.prepare(),
        }
    }

    fn set_backlog(&self, connections: u32) -> io::Result<()> {
        match &self.socket {
            Family::Tcp(listener) => listener.set_backlog(connections),
            Family::Unix(listener) => listener.set_backlog(connections),
        }
    }

    fn queued(&self) -> io::Result<u32> {
        match &self.socket {
            Family::Tcp(listener) => listener.queued(),
            Family::Unix(listener) => Listener::queued(listener),
        }
    }

    fn spawn(&self, work: impl FnOnce() + Send + 'static) -> io::Result<()> {
        match &self.socket {
            Family::Tcp(listener) => listener.spawn(work),
            Family::Unix(listener) => listener.spawn(work),
        }
    }
}

fn as_tcp(stream: OwnedFd) -> io::Result<(TcpStream, Option<SocketAddr>)> {
    Ok((
        TcpStream::from_std(std::net::TcpStream::from(stream))?,
        None,
    ))
}
