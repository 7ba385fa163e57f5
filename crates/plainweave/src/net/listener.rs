//! A TCP socket that accepts connections.

#![expect(unsafe_code, reason = "addresses for the kernel; new descriptors")]

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::time::Duration;

use socket2::{Domain, Protocol, SockAddr, SockAddrStorage, SockRef, Socket, Type};

use super::TcpStream;
use super::addr::{self, ToSocketAddrs};
use super::connection::descriptor;
use crate::abort::{Kind, warn_once};
use crate::io::op::{Interest, Op};
use crate::sched::io_call::{Descriptor, perform};
use crate::sync::select::ReadinessBranch;
use crate::time::sleep;

/// The most connections that the kernel may hold until they are accepted (it caps this at
/// `net.core.somaxconn`).
pub(super) const BACKLOG: i32 = 4096;

/// The pause after an accept that fails for lack of descriptors or memory, and how often it
/// doubles, up to 64 ms, while all fail.
const SHORTEST_PAUSE: Duration = Duration::from_millis(1);
const DOUBLINGS: u8 = 6;

/// Gives a public listener, which has a `source`, what listeners of all families have.
macro_rules! listener {
    ($listener:ident) => {
        impl $listener {
            pub(super) fn source(&self) -> &Arc<Descriptor> {
                &self.source
            }

            /// Returns another handle to the same socket.
            ///
            /// # Errors
            /// None today; the signature is `std`'s.
            pub fn try_clone(&self) -> io::Result<Self> {
                Ok(Self {
                    source: self.source.clone(),
                })
            }

            /// Returns what makes an accept possible as a branch of a select.
            #[doc(hidden)]
            pub fn readable_branch(&self) -> ReadinessBranch<'_> {
                ReadinessBranch::new(&self.source, Interest::Read)
            }

            /// Sets how many connections the kernel may hold until they are accepted (`listen(2)`;
            /// it caps this at `net.core.somaxconn`). At the limit a client of TCP is ignored until
            /// it retries, a second later; one of a Unix socket waits. Connections that the kernel
            /// already holds are kept.
            ///
            /// # Errors
            /// The system call fails; the listener was closed.
            pub fn set_backlog(&self, connections: u32) -> io::Result<()> {
                self.source.check_open()?;
                rustix::net::listen(self, i32::try_from(connections).unwrap_or(i32::MAX))?;
                // A close in between was undone by that.
                self.source
                    .check_open()
                    .inspect_err(|_| self.source.close())
            }

            /// Sets, for every handle, whether an accept that fails for lack of descriptors or
            /// memory writes a line to standard error, once in the process. On by default; a server
            /// that logs such errors turns it off.
            pub fn report_exhaustion(&self, on: bool) {
                self.source.report_exhaustion(on);
            }

            /// Ends listening for every handle: calls blocked in `accept` return an error.
            pub fn close(&self) {
                self.source.close();
            }
        }

        descriptor!($listener);
    };
}
pub(super) use listener;

/// A TCP socket that accepts connections; any number of fibers, on any worker, may wait in
/// `accept`.
///
/// ```
/// # use std::io::{Read, Write};
/// use plainweave::net::{TcpListener, TcpStream};
///
/// plainweave::run(|| {
///     let listener = TcpListener::bind("127.0.0.1:0").unwrap();
///     let address = listener.local_addr().unwrap();
///     plainweave::spawn(move || listener.accept().unwrap().0.write_all(b"hello"));
///     let mut text = String::new();
///     TcpStream::connect(address).unwrap().read_to_string(&mut text).unwrap();
///     assert_eq!(text, "hello");
/// });
/// ```
#[derive(Debug)]
pub struct TcpListener {
    source: Arc<Descriptor>,
}

impl TcpListener {
    /// Listens on the first address that can be bound. The address can be bound again as soon as
    /// the process has ended.
    ///
    /// # Errors
    /// The last address's error; the caller was cancelled or ran into its deadline during a lookup.
    pub fn bind(addr: impl ToSocketAddrs) -> io::Result<Self> {
        addr::each(&addr, |addr| {
            let kind = Type::STREAM.nonblocking().cloexec();
            let socket = Socket::new(Domain::for_address(addr), kind, Some(Protocol::TCP))?;
            socket.set_reuse_address(true)?;
            socket.bind(&addr.into())?;
            socket.listen(BACKLOG)?;
            Ok(Self {
                source: Arc::new(Descriptor::new(socket.into())),
            })
        })
    }

    /// Takes over a `std` socket and makes it non-blocking.
    ///
    /// # Errors
    /// The system call fails.
    pub fn from_std(listener: std::net::TcpListener) -> io::Result<Self> {
        listener.set_nonblocking(true)?;
        Ok(Self {
            source: Arc::new(Descriptor::new(listener.into())),
        })
    }

    /// Converts the socket to a `std` one, in blocking mode.
    ///
    /// # Errors
    /// The system call fails, or no descriptor is left.
    pub fn into_std(self) -> io::Result<std::net::TcpListener> {
        let fd = self.as_fd().try_clone_to_owned()?;
        let listener = std::net::TcpListener::from(fd);
        listener.set_nonblocking(false)?;
        Ok(listener)
    }

    /// Waits for a connection.
    ///
    /// # Errors
    /// The system call fails; the caller was cancelled or ran into its deadline; the listener was
    /// closed. A connection that was accepted before a cancellation took effect is delivered. After
    /// an error for lack of descriptors or memory (`EMFILE`, `ENFILE`, `ENOBUFS`, `ENOMEM`), which
    /// the next accept would meet again, the caller has been suspended for 1 ms, and up to 64 ms
    /// while all fail: it may simply go on, and others can give back what is missing.
    ///
    /// Context: any thread or fiber; may suspend.
    pub fn accept(&self) -> io::Result<(TcpStream, SocketAddr)> {
        let (accepted, peer) = accept(&self.source)?;
        Ok((
            TcpStream::of(accepted),
            peer.as_socket().ok_or(io::ErrorKind::InvalidData)?,
        ))
    }

    /// Accepts a connection that waits in the kernel; never waits itself.
    ///
    /// # Errors
    /// [`io::ErrorKind::WouldBlock`]: none waits. The others of [`Self::accept`], without its
    /// pauses.
    pub fn try_accept(&self) -> io::Result<(TcpStream, SocketAddr)> {
        let (accepted, peer) = try_accept(&self.source)?;
        Ok((
            TcpStream::of(accepted),
            peer.as_socket().ok_or(io::ErrorKind::InvalidData)?,
        ))
    }

    /// Returns how many connections wait in the kernel to be accepted.
    ///
    /// # Errors
    /// The system call fails.
    pub fn queued(&self) -> io::Result<u32> {
        // SAFETY: all zeroes are a value of this struct of integers.
        let mut info: libc::tcp_info = unsafe { std::mem::zeroed() };
        let mut len = size_of::<libc::tcp_info>() as libc::socklen_t;
        let at = (&raw mut info).cast();

        // SAFETY: the kernel writes at most `len` bytes.
        let got = unsafe {
            libc::getsockopt(
                self.as_raw_fd(),
                libc::IPPROTO_TCP,
                libc::TCP_INFO,
                at,
                &mut len,
            )
        };

        // The kernel reports it in a field that is otherwise unused for listening sockets.
        if got < 0 {
            Err(io::Error::last_os_error())
        } else {
            Ok(info.tcpi_unacked)
        }
    }

    /// Returns an iterator that calls `accept` for ever.
    pub fn incoming(&self) -> Incoming<'_> {
        Incoming { listener: self }
    }

    /// Returns the local address.
    ///
    /// # Errors
    /// The system call fails.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        SockRef::from(self)
            .local_addr()?
            .as_socket()
            .ok_or_else(|| io::ErrorKind::InvalidData.into())
    }
}

listener!(TcpListener);

/// Waits for a connection on a socket of any family.
pub(super) fn accept(source: &Descriptor) -> io::Result<(Descriptor, SockAddr)> {
    let mut storage = SockAddrStorage::zeroed();
    let mut len = storage.size_of();
    // SAFETY: a sockaddr_storage by another name.
    let addr = unsafe { storage.view_as::<libc::sockaddr_storage>() } as *mut _;

    // SAFETY: `perform` does not return while the kernel may write the address.
    let accepted = unsafe {
        perform(
            source,
            Op::Accept {
                addr,
                len: &raw mut len,
            },
            None,
        )
    };

    let fd = accepted.inspect_err(|error| pause_if_exhausted(source, error))?;
    source.note_accepted();
    // SAFETY: a new descriptor, and ours.
    let fd = unsafe { OwnedFd::from_raw_fd(fd as RawFd) };

    // SAFETY: written by the kernel, with that length.
    Ok((Descriptor::new(fd), unsafe { SockAddr::new(storage, len) }))
}

/// Takes a connection, if one waits, from a socket of any family.
pub(super) fn try_accept(source: &Descriptor) -> io::Result<(Descriptor, SockAddr)> {
    source.check_open()?;
    let mut storage = SockAddrStorage::zeroed();
    let mut len = storage.size_of();
    let fd = loop {
        // SAFETY: the kernel writes at most `len` bytes of the address. The listener does not
        // block.
        let fd = unsafe {
            libc::accept4(
                source.as_fd().as_raw_fd(),
                storage.view_as::<libc::sockaddr_storage>() as *mut libc::sockaddr_storage
                    as *mut _,
                &raw mut len,
                libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC,
            )
        };

        match fd {
            0.. => break fd,
            _ => {
                let error = io::Error::last_os_error();
                if error.kind() != io::ErrorKind::Interrupted {
                    source.check_open()?;
                    return Err(error);
                }
            }
        }
    };

    source.note_accepted();
    // SAFETY: a new descriptor, and ours.
    let fd = unsafe { OwnedFd::from_raw_fd(fd) };
    // SAFETY: written by the kernel, with that length.
    Ok((Descriptor::new(fd), unsafe { SockAddr::new(storage, len) }))
}

/// Pauses after an accept that has failed for lack of descriptors or memory. The connection stays
/// in the kernel's queue, so the next accept fails at once, and a loop that goes on after errors
/// would keep its worker from the very fibers that could give descriptors back.
#[cold]
fn pause_if_exhausted(source: &Descriptor, error: &io::Error) {
    let exhausted = [libc::EMFILE, libc::ENFILE, libc::ENOBUFS, libc::ENOMEM];
    if error
        .raw_os_error()
        .is_some_and(|code| exhausted.contains(&code))
    {
        if source.reports_exhaustion() {
            warn_once(
                Kind::AcceptFails,
                format_args!(
                    "a listening socket cannot accept ({error}); it tries again after a pause each time. Remedies: \
                     raise the limit on open files (ulimit -n), or have fewer connections open at once. This is said \
                     once"
                ),
            );
        }

        let pause = SHORTEST_PAUSE * (1 << source.note_exhausted().min(DOUBLINGS));
        // An interrupt is for the next call to report.
        let _ = sleep(pause);
    }
}

/// An endless iterator over accepted connections; see [`TcpListener::incoming`].
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
