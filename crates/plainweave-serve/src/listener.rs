//! What a server needs of a listening socket.

use std::fmt;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::AsFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{self as unix, UnixListener};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use plainweave::net::{self, HasSocket, SocketRef};
use plainweave::time::with_timeout;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::Shutdown;

/// Where a server listens.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Address {
    /// An address and port of TCP.
    Tcp(SocketAddr),
    /// The path of a Unix socket; for an abstract name, `@` and the name.
    Unix(PathBuf),
}

impl Address {
    /// Returns the address of TCP.
    pub fn tcp(&self) -> Option<SocketAddr> {
        if let Self::Tcp(address) = self {
            Some(*address)
        } else {
            None
        }
    }

    fn of_unix(address: &unix::SocketAddr) -> Self {
        let name = address.as_abstract_name().map(|name| [b"@", name].concat());
        let name = name.map(|name| PathBuf::from(std::ffi::OsStr::from_bytes(&name)));
        Self::Unix(
            name.unwrap_or_else(|| address.as_pathname().map(PathBuf::from).unwrap_or_default()),
        )
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => address.fmt(f),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

/// A listening socket, and what runs the connections that it accepts.
///
/// Those of `plainweave::net` give each connection a fiber (a thread, if the server is not on a
/// fiber itself), which a TCP connection has only while it is served; those of `std` give it a
/// thread.
pub trait Listener: Send + Sync + 'static {
    /// What it accepts.
    type Stream: Send + 'static;

    /// Waits for a connection, for at most `patience`: then it fails with
    /// [`io::ErrorKind::TimedOut`]. Gives the peer's address too, where there is one.
    fn accept(&self, patience: Option<Duration>) -> io::Result<(Self::Stream, Option<SocketAddr>)>;

    /// Returns the socket at which connections can be waited for without a fiber, so that a fresh
    /// one takes what has come, on any worker. `None`, the default: a fiber or thread waits in
    /// [`Listener::accept`].
    fn idle_socket(&self) -> Option<SocketRef<'_>> {
        None
    }

    /// Takes a connection that waits at [`Listener::idle_socket`]; fails with
    /// [`io::ErrorKind::WouldBlock`] if there is none.
    fn try_accept(&self) -> io::Result<(Self::Stream, Option<SocketAddr>)> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Ends listening: an accept in progress fails.
    fn close(&self);

    /// Returns whether others accept from this socket too, or will: [`Listener::close`] leaves it
    /// as it is then, and a stop waits for no accept in progress. The default: nobody else does.
    fn is_shared(&self) -> bool {
        false
    }

    /// Returns where it listens.
    fn address(&self) -> Option<Address>;

    /// Sets, before the first accept, what its streams are to have: TCP sends small answers at
    /// once.
    fn prepare(&self) -> io::Result<()> {
        Ok(())
    }

    /// Sets how many connections the kernel may hold until they are accepted.
    fn set_backlog(&self, connections: u32) -> io::Result<()>;

    /// Returns how many connections wait in the kernel. An error, the default: nobody knows, and
    /// there is no overload control but the connection limit.
    fn queued(&self) -> io::Result<u32> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Runs a connection, or an accept loop, beside the caller. Fails if there is no stack or no
    /// thread for it.
    fn spawn(&self, work: impl FnOnce() + Send + 'static) -> io::Result<()>;
}

/// A listener that someone else may close.
impl<L: Listener> Listener for Arc<L> {
    type Stream = L::Stream;

    fn accept(&self, patience: Option<Duration>) -> io::Result<(Self::Stream, Option<SocketAddr>)> {
        (**self).accept(patience)
    }

    fn idle_socket(&self) -> Option<SocketRef<'_>> {
        (**self).idle_socket()
    }

    fn try_accept(&self) -> io::Result<(Self::Stream, Option<SocketAddr>)> {
        (**self).try_accept()
    }

    fn close(&self) {
        (**self).close();
    }

    fn is_shared(&self) -> bool {
        (**self).is_shared()
    }

    fn address(&self) -> Option<Address> {
        (**self).address()
    }

    fn prepare(&self) -> io::Result<()> {
        (**self).prepare()
    }

    fn set_backlog(&self, connections: u32) -> io::Result<()> {
        (**self).set_backlog(connections)
    }

    fn queued(&self) -> io::Result<u32> {
        (**self).queued()
    }

    fn spawn(&self, work: impl FnOnce() + Send + 'static) -> io::Result<()> {
        (**self).spawn(work)
    }
}

impl Listener for net::TcpListener {
    type Stream = net::TcpStream;

    fn accept(&self, patience: Option<Duration>) -> io::Result<(Self::Stream, Option<SocketAddr>)> {
        within(patience, || self.accept()).map(|(stream, peer)| (stream, Some(peer)))
    }

    fn idle_socket(&self) -> Option<SocketRef<'_>> {
        Some(self.socket())
    }

    fn try_accept(&self) -> io::Result<(Self::Stream, Option<SocketAddr>)> {
        self.try_accept().map(|(stream, peer)| (stream, Some(peer)))
    }

    fn close(&self) {
        self.close();
    }

    fn address(&self) -> Option<Address> {
        self.local_addr().ok().map(Address::Tcp)
    }

    fn prepare(&self) -> io::Result<()> {
        // Accepted sockets inherit it.
        Ok(rustix::net::sockopt::set_tcp_nodelay(self, true)?)
    }

    fn set_backlog(&self, connections: u32) -> io::Result<()> {
        self.set_backlog(connections)
    }

    fn queued(&self) -> io::Result<u32> {
        self.queued()
    }

    fn spawn(&self, work: impl FnOnce() + Send + 'static) -> io::Result<()> {
        on_fiber_or_thread(work)
    }
}

impl Listener for net::UnixListener {
    type Stream = net::UnixStream;

    fn accept(&self, patience: Option<Duration>) -> io::Result<(Self::Stream, Option<SocketAddr>)> {
        within(patience, || self.accept()).map(|(stream, _)| (stream, None))
    }

    fn idle_socket(&self) -> Option<SocketRef<'_>> {
        Some(self.socket())
    }

    fn try_accept(&self) -> io::Result<(Self::Stream, Option<SocketAddr>)> {
        self.try_accept().map(|(stream, _)| (stream, None))
    }

    fn close(&self) {
        self.close();
    }

    fn address(&self) -> Option<Address> {
        self.local_addr().ok().as_ref().map(Address::of_unix)
    }

    fn set_backlog(&self, connections: u32) -> io::Result<()> {
        self.set_backlog(connections)
    }

    fn spawn(&self, work: impl FnOnce() + Send + 'static) -> io::Result<()> {
        on_fiber_or_thread(work)
    }
}

impl Listener for TcpListener {
    type Stream = std::net::TcpStream;

    fn accept(&self, patience: Option<Duration>) -> io::Result<(Self::Stream, Option<SocketAddr>)> {
        wait_on_thread(self, patience)?;
        self.accept().map(|(stream, peer)| (stream, Some(peer)))
    }

    fn close(&self) {
        end(self);
    }

    fn address(&self) -> Option<Address> {
        self.local_addr().ok().map(Address::Tcp)
    }

    fn prepare(&self) -> io::Result<()> {
        Ok(rustix::net::sockopt::set_tcp_nodelay(self, true)?)
    }

    fn set_backlog(&self, connections: u32) -> io::Result<()> {
        listen(self, connections)
    }

    fn spawn(&self, work: impl FnOnce() + Send + 'static) -> io::Result<()> {
        on_thread(work)
    }
}

impl Listener for UnixListener {
    type Stream = unix::UnixStream;

    fn accept(&self, patience: Option<Duration>) -> io::Result<(Self::Stream, Option<SocketAddr>)> {
        wait_on_thread(self, patience)?;
        self.accept().map(|(stream, _)| (stream, None))
    }

    fn close(&self) {
        end(self);
    }

    fn address(&self) -> Option<Address> {
        self.local_addr().ok().as_ref().map(Address::of_unix)
    }

    fn set_backlog(&self, connections: u32) -> io::Result<()> {
        listen(self, connections)
    }

    fn spawn(&self, work: impl FnOnce() + Send + 'static) -> io::Result<()> {
        on_thread(work)
    }
}

fn within<T>(patience: Option<Duration>, accept: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    match patience {
        Some(limit) => with_timeout(limit, accept),
        None => accept(),
    }
}

/// Waits until a blocking accept would not wait. Without a limit, that is left to the accept
/// itself.
fn wait_on_thread(listener: &impl AsFd, patience: Option<Duration>) -> io::Result<()> {
    let Some(limit) = patience else { return Ok(()) };
    let limit = Timespec::try_from(limit).map_err(|_| io::ErrorKind::InvalidInput)?;
    match poll(&mut [PollFd::new(listener, PollFlags::IN)], Some(&limit))? {
        0 => Err(io::ErrorKind::TimedOut.into()),
        _ => Ok(()),
    }
}

/// Shuts a listening socket down, which ends accepts that wait.
fn end(listener: &impl AsFd) {
    let _ = rustix::net::shutdown(listener, Shutdown::Both);
}

fn listen(listener: &impl AsFd, connections: u32) -> io::Result<()> {
    Ok(rustix::net::listen(
        listener,
        i32::try_from(connections).unwrap_or(i32::MAX),
    )?)
}

fn on_fiber_or_thread(work: impl FnOnce() + Send + 'static) -> io::Result<()> {
    match plainweave::on_fiber() {
        true => plainweave::Builder::new()
            .name("connection")
            .in_turn()
            .spawn(work)
            .map(drop),
        false => on_thread(work),
    }
}

fn on_thread(work: impl FnOnce() + Send + 'static) -> io::Result<()> {
    std::thread::Builder::new()
        .name("connection".to_owned())
        .spawn(work)
        .map(drop)
}
