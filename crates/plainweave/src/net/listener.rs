//! A TCP socket that accepts connections.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::sync::Arc;

use socket2::{Domain, Protocol, SockAddr, SockAddrStorage, SockRef, Socket, Type};

use super::TcpStream;
use super::addr::{self, ToSocketAddrs};
use crate::io::op::Op;
use crate::sched::io_call::{Descriptor, perform};

/// Connections that the kernel may hold for us (it cuts this to `net.core.somaxconn`).
const BACKLOG: i32 = 4096;

/// A TCP socket that accepts connections; any number of fibers, on any worker, may wait in `accept`.
#[derive(Debug)]
pub struct TcpListener {
    source: Arc<Descriptor>,
}

impl TcpListener {
    /// Listens on the first address that can be bound; the address can be bound again at once after the process has
    /// ended.
    ///
    /// # Errors
    /// The last address' error; the caller was cancelled or ran into its deadline during a look-up.
    pub fn bind(addr: impl ToSocketAddrs) -> io::Result<Self> {
        addr::each(&addr, |addr| {
            let kind = Type::STREAM.nonblocking().cloexec();
            let socket = Socket::new(Domain::for_address(addr), kind, Some(Protocol::TCP))?;
            socket.set_reuse_address(true)?;
            socket.bind(&addr.into())?;
            socket.listen(BACKLOG)?;
            Ok(Self { source: Arc::new(Descriptor::new(socket.into())) })
        })
    }

    /// Takes over a socket of `std`'s; it becomes non-blocking.
    ///
    /// # Errors
    /// The system call's.
    pub fn from_std(listener: std::net::TcpListener) -> io::Result<Self> {
        listener.set_nonblocking(true)?;
        Ok(Self { source: Arc::new(Descriptor::new(listener.into())) })
    }

    /// Hands the socket to `std`, in blocking mode.
    ///
    /// # Errors
    /// The system call's, or that no descriptor is left.
    pub fn into_std(self) -> io::Result<std::net::TcpListener> {
        let fd = self.as_fd().try_clone_to_owned()?;
        let listener = std::net::TcpListener::from(fd);
        listener.set_nonblocking(false)?;
        Ok(listener)
    }

    /// Another handle to the same socket.
    ///
    /// # Errors
    /// None today; `std`'s signature.
    pub fn try_clone(&self) -> io::Result<Self> {
        Ok(Self { source: self.source.clone() })
    }

    /// Any thread or fiber. Waits for a connection.
    ///
    /// # Errors
    /// The system call's (out of descriptors: `EMFILE`); the caller was cancelled or ran into its deadline; the
    /// listener was closed. A connection that was accepted before a cancellation took effect is delivered.
    pub fn accept(&self) -> io::Result<(TcpStream, SocketAddr)> {
        let mut storage = SockAddrStorage::zeroed();
        let mut len = storage.size_of();
        // SAFETY: a sockaddr_storage by another name.
        let addr = unsafe { storage.view_as::<libc::sockaddr_storage>() } as *mut _;
        // SAFETY: `perform` does not return while the kernel may write the address.
        let fd = unsafe { perform(&self.source, Op::Accept { addr, len: &raw mut len }, None) }?;
        // SAFETY: a new descriptor, and ours.
        let fd = unsafe { OwnedFd::from_raw_fd(fd as RawFd) };
        // SAFETY: written by the kernel, with that length.
        let peer = unsafe { SockAddr::new(storage, len) };
        let peer = peer.as_socket().ok_or(io::ErrorKind::InvalidData)?;
        Ok((TcpStream::of(Descriptor::new(fd)), peer))
    }

    /// How many connections the kernel may hold until they are accepted (`listen(2)`; it cuts this to
    /// `net.core.somaxconn`). When it holds so many it ignores who comes, until the client tries again, a second later.
    /// What it holds already stays.
    ///
    /// # Errors
    /// The system call's.
    pub fn set_backlog(&self, connections: u32) -> io::Result<()> {
        rustix::net::listen(self, i32::try_from(connections).unwrap_or(i32::MAX)).map_err(io::Error::from)
    }

    /// How many connections wait in the kernel to be accepted, now.
    ///
    /// # Errors
    /// The system call's.
    pub fn queued(&self) -> io::Result<u32> {
        // SAFETY: all zeroes are a value of this struct of integers.
        let mut info: libc::tcp_info = unsafe { std::mem::zeroed() };
        let mut len = size_of::<libc::tcp_info>() as libc::socklen_t;
        let at = (&raw mut info).cast();
        // SAFETY: the kernel writes at most `len` bytes.
        let got = unsafe { libc::getsockopt(self.as_raw_fd(), libc::IPPROTO_TCP, libc::TCP_INFO, at, &mut len) };
        // The kernel shows it in a field that listening sockets have no other use for.
        if got < 0 { Err(io::Error::last_os_error()) } else { Ok(info.tcpi_unacked) }
    }

    /// `accept`, again and again.
    pub fn incoming(&self) -> Incoming<'_> {
        Incoming { listener: self }
    }

    /// Any thread or fiber. Ends listening for every user of it: whoever is blocked in `accept` wakes with an error.
    pub fn close(&self) {
        self.source.close();
    }

    /// The local address.
    ///
    /// # Errors
    /// The system call's.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        SockRef::from(self).local_addr()?.as_socket().ok_or_else(|| io::ErrorKind::InvalidData.into())
    }
}

impl AsFd for TcpListener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.source.as_fd()
    }
}

impl AsRawFd for TcpListener {
    fn as_raw_fd(&self) -> RawFd {
        self.source.raw()
    }
}

/// Accepts for ever; see [`TcpListener::incoming`].
#[derive(Debug)]
pub struct Incoming<'a> {
    listener: &'a TcpListener,
}

impl Iterator for Incoming<'_> {
    type Item = io::Result<TcpStream>;

    fn next(&mut self) -> Option<Self::Item> {
        Some(self.listener.accept().map(|(stream, _)| stream))
    }
}
