//! A TCP connection.

use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::net::{Shutdown, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::SendFlags;
use socket2::{Domain, Protocol, SockAddr, SockRef, Socket, Type};

use super::addr::{self, ToSocketAddrs};
use crate::io::op::{Interest, Op, readable_or_writable};
use crate::sched::io_call::{Descriptor, perform, wait_ready};
use crate::sched::wait;
use crate::sync::select::ReadinessBranch;

/// No timeout.
const NONE: u64 = u64::MAX;
/// The most buffers that one vectored call passes to the kernel (equal to its own limit, IOV_MAX).
pub(super) const MAX_IOV: usize = 1024;

/// A TCP connection. Clones made by [`TcpStream::try_clone`] share the descriptor, which is closed when the last is
/// dropped.
#[derive(Debug)]
pub struct TcpStream {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    source: Arc<Descriptor>,
    read_timeout: AtomicU64,
    write_timeout: AtomicU64,
}

impl TcpStream {
    /// Connects to the first address that answers.
    ///
    /// # Errors
    /// The last address's error; the caller was cancelled or ran into its deadline.
    ///
    /// Context: any thread or fiber; may suspend.
    pub fn connect(addr: impl ToSocketAddrs) -> io::Result<Self> {
        addr::each(&addr, |addr| Self::connect_to(addr, None))
    }

    /// Connects to one address, waiting for at most `limit`.
    ///
    /// # Errors
    /// As for [`TcpStream::connect`]; [`io::ErrorKind::TimedOut`] after `limit`.
    pub fn connect_timeout(addr: &SocketAddr, limit: Duration) -> io::Result<Self> {
        Self::connect_to(*addr, Some(limit))
    }

    fn connect_to(addr: SocketAddr, limit: Option<Duration>) -> io::Result<Self> {
        let socket = Socket::new(Domain::for_address(addr), Type::STREAM.nonblocking().cloexec(), Some(Protocol::TCP))?;
        let source = Descriptor::new(socket.into());
        let addr = SockAddr::from(addr);
        let op = Op::Connect { addr: addr.as_ptr().cast(), len: addr.len() };
        // SAFETY: `addr` outlives the call.
        unsafe { perform(&source, op, limit) }?;
        Ok(Self::of(source))
    }

    /// Takes over a descriptor that is in non-blocking mode.
    pub(super) fn of(source: Descriptor) -> Self {
        let shared = Shared {
            source: Arc::new(source),
            read_timeout: AtomicU64::new(NONE),
            write_timeout: AtomicU64::new(NONE),
        };
        Self { shared: Arc::new(shared) }
    }

    /// Takes over a `std` connection and makes it non-blocking.
    ///
    /// # Errors
    /// The system call fails.
    pub fn from_std(stream: std::net::TcpStream) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        Ok(Self::of(Descriptor::new(stream.into())))
    }

    /// Converts the connection to a `std` one, in blocking mode. Other clones keep their descriptor, which shares that
    /// mode: do not use them any more.
    ///
    /// # Errors
    /// The system call fails, or no descriptor is left.
    pub fn into_std(self) -> io::Result<std::net::TcpStream> {
        let fd = self.as_fd().try_clone_to_owned()?;
        let stream = std::net::TcpStream::from(fd);
        stream.set_nonblocking(false)?;
        Ok(stream)
    }

    pub(super) fn source(&self) -> &Arc<Descriptor> {
        &self.shared.source
    }

    /// Returns another handle to the same connection, timeouts included. (Unlike `std`'s, it shares the descriptor
    /// too.)
    ///
    /// # Errors
    /// None today; the signature is `std`'s.
    pub fn try_clone(&self) -> io::Result<Self> {
        Ok(Self { shared: self.shared.clone() })
    }

    /// Ends the connection for every handle: blocked calls return an error, later calls fail with
    /// [`io::ErrorKind::NotConnected`]. The descriptor is freed when the last handle is dropped.
    pub fn close(&self) {
        self.source().close();
    }

    /// Shuts down reading, writing or both, as `std`'s `shutdown` does.
    ///
    /// # Errors
    /// The system call fails.
    pub fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        self.sock().shutdown(how)
    }

    /// Returns the peer's address.
    ///
    /// # Errors
    /// The system call fails.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.sock().peer_addr()?.as_socket().ok_or_else(|| io::ErrorKind::InvalidData.into())
    }

    /// Returns the local address.
    ///
    /// # Errors
    /// The system call fails.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.sock().local_addr()?.as_socket().ok_or_else(|| io::ErrorKind::InvalidData.into())
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

    /// Sets the longest that a read may wait; `None` for no limit. Unlike `std`'s, a read that exceeds it fails with
    /// [`io::ErrorKind::TimedOut`].
    ///
    /// # Errors
    /// A limit of zero.
    pub fn set_read_timeout(&self, limit: Option<Duration>) -> io::Result<()> {
        set_limit(&self.shared.read_timeout, limit)
    }

    /// Sets the longest that a write may wait; `None` for no limit.
    ///
    /// # Errors
    /// A limit of zero.
    pub fn set_write_timeout(&self, limit: Option<Duration>) -> io::Result<()> {
        set_limit(&self.shared.write_timeout, limit)
    }

    /// Returns the limit set by [`TcpStream::set_read_timeout`].
    #[must_use]
    pub fn read_timeout(&self) -> Option<Duration> {
        limit(&self.shared.read_timeout)
    }

    /// Returns the limit set by [`TcpStream::set_write_timeout`].
    #[must_use]
    pub fn write_timeout(&self) -> Option<Duration> {
        limit(&self.shared.write_timeout)
    }

    /// Waits, without a buffer, until a read would find something.
    ///
    /// # Errors
    /// As for a read.
    pub fn wait_readable(&self) -> io::Result<()> {
        wait_ready(self.source(), Interest::Read, self.read_timeout())
    }

    /// Returns whether a read would return at once, with data, the end of the stream or an error. Useful for a
    /// connection that was just accepted: if its first request has already arrived, waiting for it at the driver only
    /// costs time.
    #[must_use]
    pub fn is_readable(&self) -> bool {
        let found = readable_or_writable(self.as_fd(), Interest::Read);
        if found {
            self.source().note_readable();
        }
        found
    }

    /// Waits until a write would accept data.
    ///
    /// # Errors
    /// As for a write.
    pub fn wait_writable(&self) -> io::Result<()> {
        wait_ready(self.source(), Interest::Write, self.write_timeout())
    }

    /// Writes data whose last bytes the kernel may hold back until the next write, which should follow soon
    /// (`MSG_MORE`).
    ///
    /// # Errors
    /// As for a write.
    pub fn write_more(&self, buf: &[u8]) -> io::Result<usize> {
        let flags = SendFlags::MORE | SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        self.transfer(|| rustix::net::send(self, buf, flags))
    }

    /// Sends up to `len` bytes of a file from `offset` on, without copying them through this process (`sendfile(2)`).
    /// Returns the number of bytes sent, 0 at the end of the file. A part of the file that is not in memory blocks the
    /// worker until it is read from the disk: call [`crate::fs::is_resident`] first.
    ///
    /// # Errors
    /// As for a write; [`io::ErrorKind::InvalidInput`] if `file` does not support `sendfile(2)`.
    pub fn send_file(&self, file: impl AsFd, offset: u64, len: usize) -> io::Result<usize> {
        self.transfer(|| {
            let mut offset = offset;
            rustix::fs::sendfile(self, &file, Some(&mut offset), len)
        })
    }

    /// Retries a system call until it does not return EAGAIN.
    fn transfer(&self, mut call: impl FnMut() -> rustix::io::Result<usize>) -> io::Result<usize> {
        if let Some(interrupt) = wait::interrupted() {
            return Err(interrupt.into());
        }
        loop {
            self.source().check_open()?;
            match call() {
                Ok(len) => return Ok(len),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => self.wait_writable()?,
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Returns what makes a read possible as a branch of a select.
    #[doc(hidden)]
    pub fn readable_branch(&self) -> ReadinessBranch<'_> {
        ReadinessBranch::new(self.source(), Interest::Read)
    }

    /// Returns what makes a write possible as a branch of a select.
    #[doc(hidden)]
    pub fn writable_branch(&self) -> ReadinessBranch<'_> {
        ReadinessBranch::new(self.source(), Interest::Write)
    }

    fn recv(&self, buf: &mut [u8]) -> io::Result<usize> {
        if buf.is_empty() {
            return Ok(0);
        }
        let op = Op::Recv { buf: buf.as_mut_ptr(), len: buf.len() };
        // SAFETY: `perform` does not return while the kernel may write to the buffer.
        unsafe { perform(self.source(), op, self.read_timeout()) }.map(|n| n as usize)
    }

    fn send(&self, buf: &[u8]) -> io::Result<usize> {
        if buf.is_empty() {
            return Ok(0);
        }
        let op = Op::Send { buf: buf.as_ptr(), len: buf.len() };
        // SAFETY: `perform` does not return while the kernel may read the buffer.
        unsafe { perform(self.source(), op, self.write_timeout()) }.map(|n| n as usize)
    }

    fn recv_vectored(&self, bufs: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        if bufs.iter().all(|b| b.is_empty()) {
            return Ok(0);
        }
        let mut msg = message(bufs.as_mut_ptr().cast(), bufs.len());
        // SAFETY: message and buffers outlive the call, which does not return while the kernel may use them.
        unsafe { perform(self.source(), Op::RecvVectored { msg: &raw mut msg }, self.read_timeout()) }
            .map(|n| n as usize)
    }

    fn send_vectored(&self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
        if bufs.iter().all(|b| b.is_empty()) {
            return Ok(0);
        }
        let msg = message(bufs.as_ptr().cast_mut().cast(), bufs.len());
        // SAFETY: message and buffers outlive the call, which does not return while the kernel may use them.
        unsafe { perform(self.source(), Op::SendVectored { msg: &raw const msg }, self.write_timeout()) }
            .map(|n| n as usize)
    }
}

/// Builds a message header over `std` buffers, which have the layout of `iovec`.
fn message(iov: *mut libc::iovec, count: usize) -> libc::msghdr {
    // SAFETY: all zeroes is a valid header: no name, no control data.
    let mut msg: libc::msghdr = unsafe { std::mem::zeroed() };
    msg.msg_iov = iov;
    msg.msg_iovlen = count.min(MAX_IOV);
    msg
}

fn set_limit(word: &AtomicU64, limit: Option<Duration>) -> io::Result<()> {
    if limit == Some(Duration::ZERO) {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "a timeout of zero; None means no timeout"));
    }
    word.store(limit.map_or(NONE, wait::nanos), Ordering::Relaxed);
    Ok(())
}

fn limit(word: &AtomicU64) -> Option<Duration> {
    let ns = word.load(Ordering::Relaxed);
    (ns != NONE).then(|| Duration::from_nanos(ns))
}

impl Read for &TcpStream {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.recv(buf)
    }

    fn read_vectored(&mut self, bufs: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        self.recv_vectored(bufs)
    }
}

impl Write for &TcpStream {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.send(buf)
    }

    fn write_vectored(&mut self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
        self.send_vectored(bufs)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Read for TcpStream {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.recv(buf)
    }

    fn read_vectored(&mut self, bufs: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        self.recv_vectored(bufs)
    }
}

impl Write for TcpStream {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.send(buf)
    }

    fn write_vectored(&mut self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
        self.send_vectored(bufs)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl AsFd for TcpStream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.source().as_fd()
    }
}

impl AsRawFd for TcpStream {
    fn as_raw_fd(&self) -> RawFd {
        self.source().raw()
    }
}
