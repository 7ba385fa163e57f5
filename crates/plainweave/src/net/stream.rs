//! A TCP connection.

#![expect(unsafe_code, reason = "an address for the kernel")]

use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::net::{Shutdown, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::sync::Arc;
use std::time::Duration;

use rustix::net::SendFlags;
use socket2::{Domain, Protocol, SockAddr, SockRef, Socket, Type};

use super::addr::{self, ToSocketAddrs};
use super::connect;
use super::connection::{Connection, descriptor, peek, shared, stream};
use crate::io::op::{Interest, Op};
use crate::sched::io_call::{Descriptor, perform};
use crate::sched::wait;
use crate::sync::select::ReadinessBranch;

/// A TCP connection. Clones made by [`TcpStream::try_clone`] share the descriptor, which is closed
/// when the last is dropped.
#[derive(Debug)]
pub struct TcpStream {
    shared: Arc<Connection>,
}

impl TcpStream {
    /// Connects to the first address that answers. Of several, a fiber tries the next while the one
    /// before has not answered for 250 ms, IPv6 and IPv4 in turn (RFC 8305, "happy eyeballs"); a
    /// plain thread tries one after the other.
    ///
    /// # Errors
    /// The last address's error; the caller was cancelled or ran into its deadline.
    ///
    /// Context: any thread or fiber; may suspend.
    pub fn connect(addr: impl ToSocketAddrs) -> io::Result<Self> {
        if wait::suspendable().is_none() {
            return addr::each(&addr, |addr| Self::connect_to(addr, None));
        }
        match &addr.resolve()?[..] {
            [addr] => Self::connect_to(*addr, None),
            several => connect::race(several).map(Self::of),
        }
    }

    /// Connects to one address, waiting for at most `limit`.
    ///
    /// # Errors
    /// As for [`TcpStream::connect`]; [`io::ErrorKind::TimedOut`] after `limit`.
    pub fn connect_timeout(addr: &SocketAddr, limit: Duration) -> io::Result<Self> {
        Self::connect_to(*addr, Some(limit))
    }

    fn connect_to(addr: SocketAddr, limit: Option<Duration>) -> io::Result<Self> {
        let kind = Type::STREAM.nonblocking().cloexec();
        let socket = Socket::new(Domain::for_address(addr), kind, Some(Protocol::TCP))
            .map_err(wait::failed_at_once)?;
        let source = Descriptor::new(socket.into());
        let addr = SockAddr::from(addr);
        let op = Op::Connect {
            addr: addr.as_ptr().cast(),
            len: addr.len(),
        };

        // SAFETY: `addr` outlives the call.
        unsafe { perform(&source, op, limit) }?;
        Ok(Self::of(source))
    }

    /// Takes over a `std` connection and makes it non-blocking.
    ///
    /// # Errors
    /// The system call fails.
    pub fn from_std(stream: std::net::TcpStream) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        Ok(Self::of(Descriptor::new(stream.into())))
    }

    /// Converts the connection to a `std` one, in blocking mode. Other clones keep their
    /// descriptor, which shares that mode: do not use them any more.
    ///
    /// # Errors
    /// The system call fails, or no descriptor is left.
    pub fn into_std(self) -> io::Result<std::net::TcpStream> {
        let fd = self.as_fd().try_clone_to_owned()?;
        let stream = std::net::TcpStream::from(fd);
        stream.set_nonblocking(false)?;
        Ok(stream)
    }

    /// Returns the peer's address.
    ///
    /// # Errors
    /// The system call fails.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.sock()
            .peer_addr()?
            .as_socket()
            .ok_or_else(|| io::ErrorKind::InvalidData.into())
    }

    /// Returns the local address.
    ///
    /// # Errors
    /// The system call fails.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.sock()
            .local_addr()?
            .as_socket()
            .ok_or_else(|| io::ErrorKind::InvalidData.into())
    }

    fn sock(&self) -> SockRef<'_> {
        SockRef::from(self)
    }

    /// Sets whether small writes are sent at once (TCP_NODELAY).
    ///
    /// # Errors
    /// The system call fails.
    pub fn set_nodelay(&self, on: bool) -> io::Result<()> {
        self.sock().set_tcp_nodelay(on)
    }

    /// Returns whether TCP_NODELAY is set.
    ///
    /// # Errors
    /// The system call fails.
    pub fn nodelay(&self) -> io::Result<bool> {
        self.sock().tcp_nodelay()
    }

    /// Writes data whose last bytes the kernel may hold back until the next write, which should
    /// follow soon (`MSG_MORE`).
    ///
    /// # Errors
    /// As for a write.
    pub fn write_more(&self, buf: &[u8]) -> io::Result<usize> {
        let flags = SendFlags::MORE | SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        self.shared
            .transfer(Interest::Write, || rustix::net::send(self, buf, flags))
    }

    /// Reads without taking: the next read finds the same bytes.
    ///
    /// # Errors
    /// As for a read.
    pub fn peek(&self, buf: &mut [u8]) -> io::Result<usize> {
        peek(&self.shared, buf)
    }

    /// Sets the hops that a packet may take (IP_TTL).
    ///
    /// # Errors
    /// The system call fails.
    pub fn set_ttl(&self, hops: u32) -> io::Result<()> {
        self.sock().set_ttl_v4(hops)
    }

    /// Returns what [`Self::set_ttl`] has set.
    ///
    /// # Errors
    /// The system call fails.
    pub fn ttl(&self) -> io::Result<u32> {
        self.sock().ttl_v4()
    }

    /// Sets how long the kernel goes on sending after the descriptor is closed (SO_LINGER); zero
    /// resets the connection.
    ///
    /// # Errors
    /// The system call fails.
    pub fn set_linger(&self, linger: Option<Duration>) -> io::Result<()> {
        self.sock().set_linger(linger)
    }

    /// Returns what [`Self::set_linger`] has set.
    ///
    /// # Errors
    /// The system call fails.
    pub fn linger(&self) -> io::Result<Option<Duration>> {
        self.sock().linger()
    }

    /// Takes the error that the kernel has noted for the socket (SO_ERROR).
    ///
    /// # Errors
    /// The system call fails.
    pub fn take_error(&self) -> io::Result<Option<io::Error>> {
        self.sock().take_error()
    }
}

stream!(TcpStream);
