//! Unix sockets in the shape of `std::os::unix::net`: streams within one machine, by path or by
//! abstract name.

use std::ffi::OsStr;
use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::net::Shutdown;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::{self as std_net, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags,
};
use socket2::{Domain, SockAddr, SockRef, Socket, Type};

use super::connection::{Connection, datagrams, descriptor, shared, stream};
use super::datagram;
use super::listener::{BACKLOG, accept, listener, try_accept};
use super::udp::Datagram;
use crate::io::op::Interest;
use crate::sched::io_call::Descriptor;
use crate::sched::wait;
use crate::sync::select::ReadinessBranch;
use crate::time::sleep;

/// Pauses between two attempts to connect to a listener whose queue is full: the first, and the
/// longest.
const PAUSE: (Duration, Duration) = (Duration::from_millis(1), Duration::from_millis(50));

/// A Unix socket that accepts connections; any number of fibers, on any worker, may wait in
/// `accept`.
///
/// As with `std`'s, the file of a path stays when the listener is dropped: whoever bound it removes
/// it.
///
/// ```
/// # use std::io::{Read, Write};
/// use plainweave::net::{UnixListener, UnixStream};
///
/// # let path = std::env::temp_dir().join(format!("plainweave-doc-{}.sock", std::process::id()));
/// plainweave::run(|| {
///     let listener = UnixListener::bind(&path).unwrap();
///     plainweave::spawn(move || listener.accept().unwrap().0.write_all(b"hello"));
///     let mut text = String::new();
///     UnixStream::connect(&path).unwrap().read_to_string(&mut text).unwrap();
///     assert_eq!(text, "hello");
/// });
/// # std::fs::remove_file(path).unwrap();
/// ```
#[derive(Debug)]
pub struct UnixListener {
    source: Arc<Descriptor>,
}

impl UnixListener {
    /// Listens on a path, which becomes a socket file.
    ///
    /// # Errors
    /// [`io::ErrorKind::AddrInUse`] if there is a file of that name, even one that a process has
    /// left behind (see [`Self::bind_over_stale`]); the path is longer than 107 bytes; the system
    /// call fails.
    pub fn bind(path: impl AsRef<Path>) -> io::Result<Self> {
        Self::bind_to(&SockAddr::unix(path)?)
    }

    /// Listens on an address, which may be an abstract name (`SocketAddr::from_abstract_name`):
    /// that has no file and ends with its listener.
    ///
    /// # Errors
    /// As for [`Self::bind`]; the address is unnamed.
    pub fn bind_addr(addr: &SocketAddr) -> io::Result<Self> {
        Self::bind_to(&native(addr)?)
    }

    /// Listens on a path like [`Self::bind`], and first removes a socket file there on which nobody
    /// listens any more. Two processes that do so at the same time may remove each other's file.
    ///
    /// # Errors
    /// As for [`Self::bind`]: [`io::ErrorKind::AddrInUse`] if somebody listens there, or the file
    /// is no socket.
    pub fn bind_over_stale(path: impl AsRef<Path>) -> io::Result<Self> {
        let path = path.as_ref();
        match Self::bind(path) {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse && is_stale(path) => {
                std::fs::remove_file(path)?;
                Self::bind(path)
            }
            bound => bound,
        }
    }

    fn bind_to(addr: &SockAddr) -> io::Result<Self> {
        let socket = socket()?;
        socket.bind(addr)?;
        socket.listen(BACKLOG)?;
        Ok(Self {
            source: Arc::new(Descriptor::new(socket.into())),
        })
    }

    /// Takes over a `std` socket and makes it non-blocking.
    ///
    /// # Errors
    /// The system call fails.
    pub fn from_std(listener: std_net::UnixListener) -> io::Result<Self> {
        listener.set_nonblocking(true)?;
        Ok(Self {
            source: Arc::new(Descriptor::new(listener.into())),
        })
    }

    /// Converts the socket to a `std` one, in blocking mode.
    ///
    /// # Errors
    /// The system call fails, or no descriptor is left.
    pub fn into_std(self) -> io::Result<std_net::UnixListener> {
        let listener = std_net::UnixListener::from(self.as_fd().try_clone_to_owned()?);
        listener.set_nonblocking(false)?;
        Ok(listener)
    }

    /// Waits for a connection. The peer's address is unnamed, unless it has bound one; also if that
    /// is a path of 108 bytes, for which `std` has no address.
    ///
    /// # Errors
    /// As for [`TcpListener::accept`](super::TcpListener::accept).
    ///
    /// Context: any thread or fiber; may suspend.
    pub fn accept(&self) -> io::Result<(UnixStream, SocketAddr)> {
        let (accepted, peer) = accept(&self.source)?;
        // No name of a peer's keeps it out.
        let peer = of_native(&peer).or_else(|_| unnamed())?;
        Ok((UnixStream::of(accepted), peer))
    }

    /// Accepts a connection that waits in the kernel; never waits itself.
    ///
    /// # Errors
    /// As for [`TcpListener::try_accept`](super::TcpListener::try_accept).
    pub fn try_accept(&self) -> io::Result<(UnixStream, SocketAddr)> {
        let (accepted, peer) = try_accept(&self.source)?;
        let peer = of_native(&peer).or_else(|_| unnamed())?;
        Ok((UnixStream::of(accepted), peer))
    }

    /// Returns an iterator that calls `accept` for ever.
    pub fn incoming(&self) -> UnixIncoming<'_> {
        UnixIncoming { listener: self }
    }

    /// Returns the address.
    ///
    /// # Errors
    /// The system call fails.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        of_native(&SockRef::from(self).local_addr()?)
    }
}

listener!(UnixListener);

/// An endless iterator over accepted connections; see [`UnixListener::incoming`].
#[derive(Debug)]
pub struct UnixIncoming<'a> {
    listener: &'a UnixListener,
}

impl Iterator for UnixIncoming<'_> {
    type Item = io::Result<UnixStream>;

    fn next(&mut self) -> Option<Self::Item> {
        Some(self.listener.accept().map(|(stream, _)| stream))
    }
}

/// A connection over a Unix socket. Clones made by [`UnixStream::try_clone`] share the descriptor,
/// which is closed when the last is dropped.
///
/// ```
/// # use std::io::{Read, Write};
/// use plainweave::net::UnixStream;
///
/// plainweave::run(|| {
///     let (mut here, mut there) = UnixStream::pair().unwrap();
///     plainweave::spawn(move || there.write_all(b"hello"));
///     let mut text = String::new();
///     here.read_to_string(&mut text).unwrap();
///     assert_eq!(text, "hello");
/// });
/// ```
#[derive(Debug)]
pub struct UnixStream {
    shared: Arc<Connection>,
}

impl UnixStream {
    /// Connects to the listener of a path. While that one's queue is full, it waits.
    ///
    /// # Errors
    /// [`io::ErrorKind::ConnectionRefused`] if nobody listens there; the system call fails; the
    /// caller was cancelled or ran into its deadline.
    ///
    /// Context: any thread or fiber; may suspend.
    pub fn connect(path: impl AsRef<Path>) -> io::Result<Self> {
        Self::connect_to(&SockAddr::unix(path)?)
    }

    /// Connects to an address as [`Self::connect`] does to a path.
    ///
    /// # Errors
    /// As for [`Self::connect`]; the address is unnamed.
    ///
    /// Context: any thread or fiber; may suspend.
    pub fn connect_addr(addr: &SocketAddr) -> io::Result<Self> {
        Self::connect_to(&native(addr)?)
    }

    fn connect_to(addr: &SockAddr) -> io::Result<Self> {
        if let Some(interrupt) = wait::interrupted() {
            return Err(wait::failed_at_once(interrupt.into()));
        }
        let socket = socket().map_err(wait::failed_at_once)?;
        let (mut pause, longest) = PAUSE;

        // Such a connection exists at once or not at all, so no driver waits for it. When there is
        // room in a queue that was full no event says so: ask again.
        while let Err(error) = socket.connect(addr) {
            match error.kind() {
                io::ErrorKind::WouldBlock => sleep(pause)?,
                io::ErrorKind::Interrupted => {}
                _ => return Err(wait::failed_at_once(error)),
            }
            pause = longest.min(pause * 2);
        }

        Ok(Self::of(Descriptor::new(socket.into())))
    }

    /// Returns two streams that are connected to each other.
    ///
    /// # Errors
    /// The system call fails (out of descriptors: `EMFILE`).
    pub fn pair() -> io::Result<(Self, Self)> {
        let (one, other) = Socket::pair(Domain::UNIX, Type::STREAM.nonblocking().cloexec(), None)?;
        Ok((
            Self::of(Descriptor::new(one.into())),
            Self::of(Descriptor::new(other.into())),
        ))
    }

    /// Takes over a `std` connection and makes it non-blocking.
    ///
    /// # Errors
    /// The system call fails.
    pub fn from_std(stream: std_net::UnixStream) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        Ok(Self::of(Descriptor::new(stream.into())))
    }

    /// Converts the connection to a `std` one, in blocking mode. Other clones keep their
    /// descriptor, which shares that mode: do not use them any more.
    ///
    /// # Errors
    /// The system call fails, or no descriptor is left.
    pub fn into_std(self) -> io::Result<std_net::UnixStream> {
        let stream = std_net::UnixStream::from(self.as_fd().try_clone_to_owned()?);
        stream.set_nonblocking(false)?;
        Ok(stream)
    }

    /// Returns who the peer is: the process that connected, listened or made the pair, as it was
    /// then (SO_PEERCRED).
    ///
    /// # Errors
    /// The system call fails.
    pub fn peer_credentials(&self) -> io::Result<Credentials> {
        let peer = rustix::net::sockopt::socket_peercred(self)?;
        Ok(Credentials {
            pid: u32::try_from(peer.pid.as_raw_pid()).unwrap_or(0),
            uid: peer.uid.as_raw(),
            gid: peer.gid.as_raw(),
        })
    }

    /// Writes `buf`, one byte at least, and passes duplicates of descriptors with its first byte:
    /// 253 at most. Returns how many bytes were written; the descriptors were passed if any were.
    ///
    /// # Errors
    /// As for a write; there are no bytes, or too many descriptors
    /// ([`io::ErrorKind::InvalidInput`]).
    pub fn send_with_descriptors(
        &self,
        buf: &[u8],
        descriptors: &[BorrowedFd<'_>],
    ) -> io::Result<usize> {
        if buf.is_empty() || descriptors.len() > MOST_DESCRIPTORS {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("descriptors go with a byte or more, {MOST_DESCRIPTORS} at most at a time"),
            ));
        }
        let mut space = vec![MaybeUninit::uninit(); control_space(descriptors.len())];
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        self.shared.transfer(Interest::Write, || {
            let mut control = SendAncillaryBuffer::new(&mut space);
            if !descriptors.is_empty() {
                control.push(SendAncillaryMessage::ScmRights(descriptors));
            }
            rustix::net::sendmsg(self, &[IoSlice::new(buf)], &mut control, flags)
        })
    }

    /// Reads into `buf`, and takes the descriptors, `most` at most, that come with what it reads.
    /// Those beyond are closed by the kernel. They are closed on exec.
    ///
    /// # Errors
    /// As for a read.
    pub fn recv_with_descriptors(
        &self,
        buf: &mut [u8],
        most: usize,
    ) -> io::Result<(usize, Vec<OwnedFd>)> {
        let mut space = vec![MaybeUninit::uninit(); control_space(most.min(MOST_DESCRIPTORS))];
        let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
        self.shared.transfer(Interest::Read, || {
            let mut control = RecvAncillaryBuffer::new(&mut space);
            let mut slices = [IoSliceMut::new(&mut *buf)];
            let len = rustix::net::recvmsg(self, &mut slices, &mut control, flags)?.bytes;
            let mut descriptors = Vec::new();
            for message in control.drain() {
                if let RecvAncillaryMessage::ScmRights(some) = message {
                    descriptors.extend(some);
                }
            }
            Ok((len, descriptors))
        })
    }

    /// Reads without taking: the next read finds the same bytes.
    ///
    /// # Errors
    /// As for a read.
    pub fn peek(&self, buf: &mut [u8]) -> io::Result<usize> {
        super::connection::peek(&self.shared, buf)
    }

    /// Returns the peer's address, which is unnamed for a client that has bound none.
    ///
    /// # Errors
    /// The system call fails.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        of_native(&SockRef::from(self).peer_addr()?)
    }

    /// Returns the local address.
    ///
    /// # Errors
    /// The system call fails.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        of_native(&SockRef::from(self).local_addr()?)
    }
}

stream!(UnixStream);

/// The most descriptors that the kernel passes at a time (SCM_MAX_FD).
const MOST_DESCRIPTORS: usize = 253;

/// Returns the bytes of control data for that number of descriptors.
fn control_space(descriptors: usize) -> usize {
    // A header, and what aligns it.
    64 + descriptors * size_of::<RawFd>()
}

/// Who is at the other end of a Unix socket; see [`UnixStream::peer_credentials`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Credentials {
    /// Its process; 0 if that is not visible from here (another PID namespace).
    pub pid: u32,
    /// Its effective user.
    pub uid: u32,
    /// Its effective group.
    pub gid: u32,
}

/// A Unix socket for datagrams: by path, by abstract name, or without a name. None is lost: a send
/// waits while the receiver's queue is full.
///
/// ```
/// use plainweave::net::UnixDatagram;
///
/// plainweave::run(|| {
///     let (one, other) = UnixDatagram::pair().unwrap();
///     one.send(b"hello").unwrap();
///     let mut buf = [0; 10];
///     assert_eq!(other.recv(&mut buf).unwrap(), 5);
/// });
/// ```
#[derive(Debug)]
pub struct UnixDatagram {
    shared: Arc<Connection>,
}

impl UnixDatagram {
    /// Binds to a path, which becomes a socket file.
    ///
    /// # Errors
    /// As for [`UnixListener::bind`].
    pub fn bind(path: impl AsRef<Path>) -> io::Result<Self> {
        let socket = Self::unbound()?;
        SockRef::from(&socket).bind(&SockAddr::unix(path)?)?;
        Ok(socket)
    }

    /// Binds to an address, which may be an abstract name.
    ///
    /// # Errors
    /// As for [`Self::bind`]; the address is unnamed.
    pub fn bind_addr(addr: &SocketAddr) -> io::Result<Self> {
        let socket = Self::unbound()?;
        SockRef::from(&socket).bind(&native(addr)?)?;
        Ok(socket)
    }

    /// Makes a socket without a name, which can send and, once it is connected, be answered by
    /// none.
    ///
    /// # Errors
    /// The system call fails.
    pub fn unbound() -> io::Result<Self> {
        let kind = Type::DGRAM.nonblocking().cloexec();
        let socket = Socket::new(Domain::UNIX, kind, None)?;
        Ok(Self::of(Descriptor::new(socket.into())))
    }

    /// Returns two sockets that are connected to each other.
    ///
    /// # Errors
    /// The system call fails.
    pub fn pair() -> io::Result<(Self, Self)> {
        let (one, other) = Socket::pair(Domain::UNIX, Type::DGRAM.nonblocking().cloexec(), None)?;
        Ok((
            Self::of(Descriptor::new(one.into())),
            Self::of(Descriptor::new(other.into())),
        ))
    }

    /// Takes over a `std` socket and makes it non-blocking.
    ///
    /// # Errors
    /// The system call fails.
    pub fn from_std(socket: std_net::UnixDatagram) -> io::Result<Self> {
        socket.set_nonblocking(true)?;
        Ok(Self::of(Descriptor::new(socket.into())))
    }

    /// Connects to a path.
    ///
    /// # Errors
    /// [`io::ErrorKind::ConnectionRefused`] if nobody is bound there; the system call fails.
    pub fn connect(&self, path: impl AsRef<Path>) -> io::Result<()> {
        SockRef::from(self).connect(&SockAddr::unix(path)?)
    }

    /// Connects to an address.
    ///
    /// # Errors
    /// As for [`Self::connect`]; the address is unnamed.
    pub fn connect_addr(&self, addr: &SocketAddr) -> io::Result<()> {
        SockRef::from(self).connect(&native(addr)?)
    }

    /// Sends a datagram to a path.
    ///
    /// # Errors
    /// As for [`Self::send`] and [`Self::connect`].
    pub fn send_to(&self, buf: &[u8], path: impl AsRef<Path>) -> io::Result<usize> {
        datagram::send_to(&self.shared, buf, &SockAddr::unix(path)?)
    }

    /// Sends a datagram to an address.
    ///
    /// # Errors
    /// As for [`Self::send_to`]; the address is unnamed.
    pub fn send_to_addr(&self, buf: &[u8], addr: &SocketAddr) -> io::Result<usize> {
        datagram::send_to(&self.shared, buf, &native(addr)?)
    }

    /// Receives a datagram. Returns how much of it is in `buf`, and who has sent it.
    ///
    /// # Errors
    /// As for [`Self::recv`].
    pub fn recv_from(&self, buf: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        self.receive(buf)
            .map(|datagram| (datagram.len, datagram.from))
    }

    /// Receives a datagram, and says whether `buf` was too short for it.
    ///
    /// # Errors
    /// As for [`Self::recv`].
    pub fn receive(&self, buf: &mut [u8]) -> io::Result<Datagram<SocketAddr>> {
        let received = datagram::receive(&self.shared, buf)?;
        Ok(Datagram {
            len: received.len,
            from: of_native(&received.from).or_else(|_| unnamed())?,
            is_truncated: received.is_truncated,
        })
    }

    /// Returns the local address.
    ///
    /// # Errors
    /// The system call fails.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        of_native(&SockRef::from(self).local_addr()?)
    }
}

datagrams!(UnixDatagram);

fn socket() -> io::Result<Socket> {
    Socket::new(Domain::UNIX, Type::STREAM.nonblocking().cloexec(), None)
}

/// Returns whether a socket file was left behind by a process that no longer listens.
fn is_stale(path: &Path) -> bool {
    let is_socket = std::fs::symlink_metadata(path).is_ok_and(|file| file.file_type().is_socket());
    let attempt = || socket()?.connect(&SockAddr::unix(path)?);
    is_socket && attempt().is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused)
}

/// Converts an address for the kernel, where an abstract name is a path that begins with a zero.
fn native(addr: &SocketAddr) -> io::Result<SockAddr> {
    match (addr.as_pathname(), addr.as_abstract_name()) {
        (Some(path), _) => SockAddr::unix(path),
        (_, Some(name)) => {
            let name = [b"\0", name].concat();
            SockAddr::unix(PathBuf::from(OsStr::from_bytes(&name)))
        }
        _ => Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "an unnamed address; give a path or an abstract name",
        )),
    }
}

fn of_native(addr: &SockAddr) -> io::Result<SocketAddr> {
    match (addr.as_pathname(), addr.as_abstract_namespace()) {
        (Some(path), _) => SocketAddr::from_pathname(path),
        (_, Some(name)) => SocketAddr::from_abstract_name(name),
        _ => unnamed(),
    }
}

/// This is how `std` makes it.
fn unnamed() -> io::Result<SocketAddr> {
    SocketAddr::from_pathname("")
}
