//! How the servers open listening sockets, and accept.

use std::io::{self, ErrorKind};
use std::net::{SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, anyhow};
use plainweave::net::{self, HasSocket, SocketRef, TcpStream};
use plainweave_serve::{Address, Listener};
use rustix::net::{SocketFlags, accept_with};
use socket2::{Domain, Protocol, Socket, Type};

/// Opens one. `backlog`: how many connections the kernel may hold until they are accepted.
/// `only_v6`: an IPv6 address is not for IPv4 clients, so `0.0.0.0` can be listened on beside
/// `[::]`.
pub fn open(address: SocketAddr, backlog: i32, only_v6: bool) -> io::Result<TcpListener> {
    let socket = Socket::new(
        Domain::for_address(address),
        Type::STREAM.cloexec(),
        Some(Protocol::TCP),
    )?;
    socket.set_reuse_address(true)?;
    if only_v6 {
        socket.set_only_v6(true)?;
    }
    socket.bind(&address.into())?;
    socket.listen(backlog)?;

    Ok(TcpListener::from(socket))
}

/// Opens a Unix socket with that access mask. `flag` chooses another file.
pub fn open_unix(path: &Path, mask: u32, flag: &str) -> anyhow::Result<(UnixListener, SocketFile)> {
    let remedy = || {
        format!(
            "cannot listen on {} (choose another file with {flag})",
            path.display()
        )
    };

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
    let file = SocketFile::own(path).with_context(remedy)?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mask)).with_context(remedy)?;

    Ok((listener, file))
}

/// Has a runtime accept from an open Unix socket.
pub fn take_over(
    (listener, file): (UnixListener, SocketFile),
) -> io::Result<(Listening, SocketFile)> {
    let listener = net::UnixListener::from_std(listener)?;
    Ok((Listening::Unix(listener), file))
}

/// The file of a Unix socket of ours. Its drop removes it, unless there is another one in its
/// place.
#[derive(Debug)]
pub struct SocketFile {
    path: PathBuf,
    /// Device and inode.
    id: (u64, u64),
}

impl SocketFile {
    /// Takes what stands at `path` now as ours.
    fn own(path: &Path) -> io::Result<Self> {
        Ok(Self {
            path: path.to_owned(),
            id: id(path)?,
        })
    }

    /// Returns where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if id(&self.path).is_ok_and(|id| id == self.id) {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

fn id(path: &Path) -> io::Result<(u64, u64)> {
    std::fs::symlink_metadata(path).map(|file| (file.dev(), file.ino()))
}

/// A listener of either family. Its connections have TCP's type: reading, writing and waiting are
/// the same, an option of TCP fails, and there is no peer's address.
#[derive(Debug)]
pub enum Listening {
    /// Of IPv4 or IPv6.
    Tcp(net::TcpListener),
    /// By a path.
    Unix(net::UnixListener),
}

impl Listening {
    /// Returns another handle.
    pub fn try_clone(&self) -> io::Result<Self> {
        Ok(match self {
            Self::Tcp(listener) => Self::Tcp(listener.try_clone()?),
            Self::Unix(listener) => Self::Unix(listener.try_clone()?),
        })
    }

    /// For a server whose log has errors of accepting.
    pub fn report_no_exhaustion(&self) {
        match self {
            Self::Tcp(listener) => listener.report_exhaustion(false),
            Self::Unix(listener) => listener.report_exhaustion(false),
        }
    }
}

impl HasSocket for Listening {
    fn socket(&self) -> SocketRef<'_> {
        match self {
            Self::Tcp(listener) => listener.socket(),
            Self::Unix(listener) => listener.socket(),
        }
    }
}

impl Listener for Listening {
    type Stream = TcpStream;

    fn accept(&self, patience: Option<Duration>) -> io::Result<(TcpStream, Option<SocketAddr>)> {
        match self {
            Self::Tcp(listener) => Listener::accept(listener, patience),
            Self::Unix(listener) => {
                let (stream, _) = Listener::accept(listener, patience)?;
                as_tcp(stream.into_std()?.into())
            }
        }
    }

    fn idle_socket(&self) -> Option<SocketRef<'_>> {
        Some(self.socket())
    }

    fn try_accept(&self) -> io::Result<(TcpStream, Option<SocketAddr>)> {
        match self {
            Self::Tcp(listener) => Listener::try_accept(listener),
            // Not by way of `UnixStream`, which keeps its descriptor.
            Self::Unix(listener) => as_tcp(accept_with(listener, SocketFlags::CLOEXEC)?),
        }
    }

    fn close(&self) {
        match self {
            Self::Tcp(listener) => listener.close(),
            Self::Unix(listener) => listener.close(),
        }
    }

    fn address(&self) -> Option<Address> {
        match self {
            Self::Tcp(listener) => listener.address(),
            Self::Unix(listener) => listener.address(),
        }
    }

    fn prepare(&self) -> io::Result<()> {
        match self {
            Self::Tcp(listener) => listener.prepare(),
            Self::Unix(listener) => listener.prepare(),
        }
    }

    fn set_backlog(&self, connections: u32) -> io::Result<()> {
        match self {
            Self::Tcp(listener) => listener.set_backlog(connections),
            Self::Unix(listener) => listener.set_backlog(connections),
        }
    }

    fn queued(&self) -> io::Result<u32> {
        match self {
            Self::Tcp(listener) => listener.queued(),
            Self::Unix(listener) => Listener::queued(listener),
        }
    }

    fn spawn(&self, work: impl FnOnce() + Send + 'static) -> io::Result<()> {
        match self {
            Self::Tcp(listener) => listener.spawn(work),
            Self::Unix(listener) => listener.spawn(work),
        }
    }
}

fn as_tcp(stream: OwnedFd) -> io::Result<(TcpStream, Option<SocketAddr>)> {
    Ok((
        TcpStream::from_std(std::net::TcpStream::from(stream))?,
        None,
    ))
}
