//! A connected socket of any family: what [`TcpStream`](super::TcpStream) and
//! [`UnixStream`](super::UnixStream) are made of.

#![expect(unsafe_code, reason = "buffers for the kernel")]

use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::RecvFlags;

use super::likely::Likely;
use crate::io::op::{Interest, Op, readable_or_writable};
use crate::sched::io_call::{Descriptor, perform, perform_now, wait_ready};
use crate::sched::wait;
use crate::time::now;

/// No timeout.
const NONE: u64 = u64::MAX;
/// The most buffers that one vectored call passes to the kernel (equal to its own limit, IOV_MAX).
pub(super) const MAX_IOV: usize = 1024;

/// What all handles of a stream share.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) source: Arc<Descriptor>,
    read_timeout: AtomicU64,
    write_timeout: AtomicU64,
    /// Of a socket of datagrams.
    pub(super) likely: Likely,
}

impl Connection {
    /// Takes over a descriptor that is in non-blocking mode.
    pub(crate) fn new(source: Descriptor) -> Arc<Self> {
        let read_timeout = AtomicU64::new(NONE);
        let write_timeout = AtomicU64::new(NONE);
        Arc::new(Self {
            source: Arc::new(source),
            read_timeout,
            write_timeout,
            likely: Likely::default(),
        })
    }

    /// Returns the longest that a read may wait.
    pub(super) fn read_timeout(&self) -> Option<Duration> {
        limit(&self.read_timeout)
    }

    /// Returns the longest that a write may wait.
    pub(super) fn write_timeout(&self) -> Option<Duration> {
        limit(&self.write_timeout)
    }

    /// Sets the longest that a read may wait. Fails if it is zero.
    pub(super) fn set_read_timeout(&self, limit: Option<Duration>) -> io::Result<()> {
        set_limit(&self.read_timeout, limit)
    }

    /// Sets the longest that a write may wait. Fails if it is zero.
    pub(super) fn set_write_timeout(&self, limit: Option<Duration>) -> io::Result<()> {
        set_limit(&self.write_timeout, limit)
    }

    /// Waits until a read or a write would do something, for as long as the stream's timeout
    /// allows.
    pub(super) fn wait(&self, interest: Interest) -> io::Result<()> {
        wait_ready(&self.source, interest, self.timeout(interest))
    }

    fn timeout(&self, interest: Interest) -> Option<Duration> {
        match interest {
            Interest::Write => self.write_timeout(),
            Interest::Read | Interest::Priority => self.read_timeout(),
        }
    }

    /// Returns whether a read would return at once.
    pub(super) fn is_readable(&self) -> bool {
        let found = readable_or_writable(self.source.as_fd(), Interest::Read);
        if found {
            self.source.note_readable();
        }
        found
    }

    /// Sends a part of a file by `sendfile(2)`.
    pub(super) fn send_file(&self, file: impl AsFd, offset: u64, len: usize) -> io::Result<usize> {
        self.transfer(Interest::Write, || {
            let mut offset = offset;
            rustix::fs::sendfile(&*self.source, &file, Some(&mut offset), len)
        })
    }

    /// Retries a system call until it does not return EAGAIN. The stream's timeout bounds all waits
    /// together, however many there are: it counts from the last byte that moved.
    pub(crate) fn transfer<R>(
        &self,
        interest: Interest,
        mut call: impl FnMut() -> rustix::io::Result<R>,
    ) -> io::Result<R> {
        if let Some(interrupt) = wait::interrupted() {
            return Err(wait::failed_at_once(interrupt.into()));
        }
        let mut silent_since = None;
        loop {
            self.source.check_open().map_err(wait::failed_at_once)?;
            match call() {
                Ok(done) => return Ok(done),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => {
                    let now = now();
                    let silence = now - *silent_since.get_or_insert(now);
                    let limit = self
                        .timeout(interest)
                        .map(|limit| limit.saturating_sub(silence));
                    wait_ready(&self.source, interest, limit)?;
                }
                Err(error) => return Err(wait::failed_at_once(error.into())),
            }
        }
    }

    /// As `read` of a stream.
    pub(super) fn recv(&self, buf: &mut [u8]) -> io::Result<usize> {
        if buf.is_empty() {
            return Ok(0);
        }
        let op = receive_into(buf);
        // SAFETY: `perform` does not return while the kernel may write to the buffer.
        unsafe { perform(&self.source, op, self.read_timeout()) }.map(|n| n as usize)
    }

    /// As `try_read` of a stream.
    pub(super) fn try_recv(&self, buf: &mut [u8]) -> io::Result<usize> {
        let op = receive_into(buf);
        // SAFETY: the call is over when this returns.
        unsafe { perform_now(&self.source, op) }.map(|n| n as usize)
    }

    /// As `write` of a stream.
    pub(super) fn send(&self, buf: &[u8]) -> io::Result<usize> {
        if buf.is_empty() {
            return Ok(0);
        }
        let op = Op::Send {
            buf: buf.as_ptr(),
            len: buf.len(),
        };
        // SAFETY: `perform` does not return while the kernel may read the buffer.
        unsafe { perform(&self.source, op, self.write_timeout()) }.map(|n| n as usize)
    }

    /// As `read_vectored` of a stream.
    pub(super) fn recv_vectored(&self, bufs: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        if bufs.iter().all(|b| b.is_empty()) {
            return Ok(0);
        }
        let mut msg = message(bufs.as_mut_ptr().cast(), bufs.len());
        // SAFETY: message and buffers outlive the call, which does not return while the kernel may
        // use them.
        unsafe {
            perform(
                &self.source,
                Op::RecvVectored { msg: &raw mut msg },
                self.read_timeout(),
            )
        }
        .map(|n| n as usize)
    }

    /// As `write_vectored` of a stream.
    pub(super) fn send_vectored(&self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
        if bufs.iter().all(|b| b.is_empty()) {
            return Ok(0);
        }
        let msg = message(bufs.as_ptr().cast_mut().cast(), bufs.len());
        // SAFETY: message and buffers outlive the call, which does not return while the kernel may
        // use them.
        unsafe {
            perform(
                &self.source,
                Op::SendVectored {
                    msg: &raw const msg,
                },
                self.write_timeout(),
            )
        }
        .map(|n| n as usize)
    }
}

fn receive_into(buf: &mut [u8]) -> Op {
    Op::Recv {
        buf: buf.as_mut_ptr(),
        len: buf.len(),
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

/// Reads from any socket without taking.
pub(super) fn peek(connection: &Connection, buf: &mut [u8]) -> io::Result<usize> {
    let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
    connection.transfer(Interest::Read, || {
        rustix::net::recv(&*connection.source, &mut *buf, flags).map(|(len, _)| len)
    })
}

fn set_limit(word: &AtomicU64, limit: Option<Duration>) -> io::Result<()> {
    if limit == Some(Duration::ZERO) {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "a timeout of zero; None means no timeout",
        ));
    }

    word.store(limit.map_or(NONE, wait::nanos), Ordering::Relaxed);
    Ok(())
}

fn limit(word: &AtomicU64) -> Option<Duration> {
    let ns = word.load(Ordering::Relaxed);
    (ns != NONE).then(|| Duration::from_nanos(ns))
}

/// Gives a public socket, which is an `Arc<Connection>`, what all of them have.
macro_rules! shared {
    ($socket:ident) => {
        impl $socket {
            pub(super) fn source(&self) -> &Arc<Descriptor> {
                &self.shared.source
            }

            /// Sets the longest that a read may wait; `None` for no limit. Unlike `std`'s, a read
            /// that exceeds it fails with [`io::ErrorKind::TimedOut`].
            ///
            /// # Errors
            /// A limit of zero.
            pub fn set_read_timeout(&self, limit: Option<Duration>) -> io::Result<()> {
                self.shared.set_read_timeout(limit)
            }

            /// Sets the longest that a write may wait; `None` for no limit.
            ///
            /// # Errors
            /// A limit of zero.
            pub fn set_write_timeout(&self, limit: Option<Duration>) -> io::Result<()> {
                self.shared.set_write_timeout(limit)
            }

            /// Returns the limit set by [`Self::set_read_timeout`].
            #[must_use]
            pub fn read_timeout(&self) -> Option<Duration> {
                self.shared.read_timeout()
            }

            /// Returns the limit set by [`Self::set_write_timeout`].
            #[must_use]
            pub fn write_timeout(&self) -> Option<Duration> {
                self.shared.write_timeout()
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
        }

        descriptor!($socket);
    };
}

/// Gives a public stream, which is an `Arc<Connection>`, what streams of all families have.
macro_rules! stream {
    ($stream:ident) => {
        impl $stream {
            /// Takes over a descriptor that is in non-blocking mode.
            pub(super) fn of(source: Descriptor) -> Self {
                Self { shared: Connection::new(source) }
            }

            /// Returns another handle to the same connection, timeouts included. (Unlike `std`'s,
            /// it shares the descriptor too.)
            ///
            /// # Errors
            /// None today; the signature is `std`'s.
            pub fn try_clone(&self) -> io::Result<Self> {
                Ok(Self { shared: self.shared.clone() })
            }

            /// Ends the connection for every handle: blocked calls return an error, later calls
            /// fail with [`io::ErrorKind::NotConnected`]. The descriptor is freed when the last
            /// handle is dropped.
            pub fn close(&self) {
                self.source().close();
            }

            /// Shuts down reading, writing or both, as `std`'s `shutdown` does.
            ///
            /// # Errors
            /// The system call fails.
            pub fn shutdown(&self, how: Shutdown) -> io::Result<()> {
                SockRef::from(self).shutdown(how)
            }

            /// Reads what is there, without waiting for more; 0 is the end of the stream.
            ///
            /// # Errors
            /// [`io::ErrorKind::WouldBlock`]: there is nothing. The stream was closed; the system
            /// call fails; the caller was cancelled.
            pub fn try_read(&self, buf: &mut [u8]) -> io::Result<usize> {
                self.shared.try_recv(buf)
            }

            /// Waits, without a buffer, until a read would find something.
            ///
            /// # Errors
            /// As for a read.
            pub fn wait_readable(&self) -> io::Result<()> {
                self.shared.wait(Interest::Read)
            }

            /// Returns whether a read would return at once, with data, the end of the stream or an
            /// error. Useful for a connection that was just accepted: if its first request has
            /// already arrived, waiting for it at the driver only costs time.
            #[must_use]
            pub fn is_readable(&self) -> bool {
                self.shared.is_readable()
            }

            /// Waits until a write would accept data.
            ///
            /// # Errors
            /// As for a write.
            pub fn wait_writable(&self) -> io::Result<()> {
                self.shared.wait(Interest::Write)
            }

            /// Sends up to `len` bytes of a file from `offset` on, without copying them through
            /// this process (`sendfile(2)`). Returns the number of bytes sent, 0 at the end of the
            /// file. A part of the file that is not in memory blocks the worker until it is read
            /// from the disk: call [`crate::fs::is_resident`] first.
            ///
            /// # Errors
            /// As for a write; [`io::ErrorKind::InvalidInput`] if `file` does not support
            /// `sendfile(2)`.
            pub fn send_file(&self, file: impl AsFd, offset: u64, len: usize) -> io::Result<usize> {
                self.shared.send_file(file, offset, len)
            }

        }

        stream!(@transfer &$stream);
        stream!(@transfer $stream);
        shared!($stream);
    };
    (@transfer $stream:ty) => {
        impl Read for $stream {
            fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
                self.shared.recv(buf)
            }

            fn read_vectored(&mut self, bufs: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
                self.shared.recv_vectored(bufs)
            }
        }

        impl Write for $stream {
            fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
                self.shared.send(buf)
            }

            fn write_vectored(&mut self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
                self.shared.send_vectored(bufs)
            }

            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
    };
}

/// Borrows the descriptor of a public socket that has a `source()`.
macro_rules! descriptor {
    ($socket:ident) => {
        impl AsFd for $socket {
            fn as_fd(&self) -> BorrowedFd<'_> {
                self.source().as_fd()
            }
        }

        impl AsRawFd for $socket {
            fn as_raw_fd(&self) -> RawFd {
                self.source().raw()
            }
        }
    };
}

/// Gives a public socket for datagrams, which is an `Arc<Connection>`, what all families have.
macro_rules! datagrams {
    ($socket:ident) => {
        impl $socket {
            /// Takes over a descriptor that is in non-blocking mode.
            pub(super) fn of(source: Descriptor) -> Self {
                Self {
                    shared: Connection::new(source),
                }
            }

            /// Returns another handle to the same socket, timeouts included. (Unlike `std`'s, it
            /// shares the descriptor too.)
            ///
            /// # Errors
            /// None today; the signature is `std`'s.
            pub fn try_clone(&self) -> io::Result<Self> {
                Ok(Self {
                    shared: self.shared.clone(),
                })
            }

            /// Ends the socket for every handle: later calls fail with
            /// [`io::ErrorKind::NotConnected`]. Calls that wait end too, if the socket is
            /// connected.
            pub fn close(&self) {
                self.source().close();
            }

            /// Sends a datagram to the address that the socket is connected to. Returns its length.
            ///
            /// # Errors
            /// Nobody is connected; the datagram is too long; an earlier one has found nobody
            /// ([`io::ErrorKind::ConnectionRefused`]); the system call fails; the caller was
            /// cancelled or ran into its deadline or the write timeout.
            pub fn send(&self, buf: &[u8]) -> io::Result<usize> {
                datagram::send(&self.shared, buf)
            }

            /// Receives a datagram, and returns how much of it is in `buf`; the rest of a longer
            /// one is lost ([`Self::receive`] says so).
            ///
            /// # Errors
            /// An earlier datagram has found nobody; the system call fails; the caller was
            /// cancelled or ran into its deadline or the read timeout.
            pub fn recv(&self, buf: &mut [u8]) -> io::Result<usize> {
                datagram::receive(&self.shared, buf).map(|received| received.len)
            }

            /// Reads the next datagram without taking it.
            ///
            /// # Errors
            /// As for [`Self::recv`].
            pub fn peek(&self, buf: &mut [u8]) -> io::Result<usize> {
                super::connection::peek(&self.shared, buf)
            }

            /// Takes the error that the kernel has noted for the socket (SO_ERROR).
            ///
            /// # Errors
            /// The system call fails.
            pub fn take_error(&self) -> io::Result<Option<io::Error>> {
                SockRef::from(self).take_error()
            }

            /// Waits until a datagram is there.
            ///
            /// # Errors
            /// As for [`Self::recv`].
            pub fn wait_readable(&self) -> io::Result<()> {
                self.shared.wait(Interest::Read)
            }

            /// Returns whether a datagram or an error is there.
            #[must_use]
            pub fn is_readable(&self) -> bool {
                self.shared.is_readable()
            }
        }

        shared!($socket);
    };
}
pub(super) use {datagrams, descriptor, shared, stream};
