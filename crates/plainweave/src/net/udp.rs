//! UDP in the shape of `std::net::UdpSocket`, and many datagrams in one call.

use std::io::{self, IoSlice};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::sync::Arc;
use std::time::Duration;

use socket2::{Domain, Protocol, SockAddr, SockRef, Socket, Type};

use super::addr::{self, ToSocketAddrs};
use super::connection::{Connection, datagrams, descriptor, shared};
use super::datagram::{self, Headers, MOST};
use crate::io::op::Interest;
use crate::sched::io_call::Descriptor;
use crate::sched::wait;
use crate::sync::select::ReadinessBranch;

/// A UDP socket. Clones share the descriptor, which is closed when the last is dropped; fibers may
/// send and receive by `&` at the same time.
///
/// ```
/// use plainweave::net::UdpSocket;
///
/// plainweave::run(|| -> std::io::Result<()> {
///     let server = UdpSocket::bind("127.0.0.1:0")?;
///     let address = server.local_addr()?;
///     plainweave::spawn(move || {
///         let mut buf = [0; 1500];
///         while let Ok((len, peer)) = server.recv_from(&mut buf) {
///             server.send_to(&buf[..len], peer).unwrap();
///         }
///     });
///     let client = UdpSocket::bind("127.0.0.1:0")?;
///     client.connect(address)?;
///     client.send(b"echo")?;
///     let mut buf = [0; 10];
///     let len = client.recv(&mut buf)?;
///     assert_eq!(&buf[..len], b"echo");
///     Ok(())
/// })
/// # .unwrap();
/// ```
#[derive(Debug)]
pub struct UdpSocket {
    shared: Arc<Connection>,
}

/// A datagram that has been received; see [`UdpSocket::receive`] and
/// [`UnixDatagram::receive`](super::UnixDatagram::receive).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Datagram<Address = SocketAddr> {
    /// Bytes of it that are in the buffer.
    pub len: usize,
    /// Who has sent it.
    pub from: Address,
    /// It was longer than the buffer, and the rest is lost.
    pub is_truncated: bool,
}

impl Datagram {
    fn of(raw: datagram::Raw) -> io::Result<Self> {
        Ok(Self {
            len: raw.len,
            from: raw.from.as_socket().ok_or(io::ErrorKind::InvalidData)?,
            is_truncated: raw.is_truncated,
        })
    }
}

impl UdpSocket {
    /// Binds to the first address that can be bound.
    ///
    /// # Errors
    /// The last address's error.
    ///
    /// Context: any thread or fiber; may suspend.
    pub fn bind(addr: impl ToSocketAddrs) -> io::Result<Self> {
        addr::each(&addr, |addr| {
            let kind = Type::DGRAM.nonblocking().cloexec();
            let socket = Socket::new(Domain::for_address(addr), kind, Some(Protocol::UDP))
                .map_err(wait::failed_at_once)?;
            socket.bind(&addr.into()).map_err(wait::failed_at_once)?;
            Ok(Self::of(Descriptor::new(socket.into())))
        })
    }

    /// Takes over a `std` socket and makes it non-blocking.
    ///
    /// # Errors
    /// The system call fails.
    pub fn from_std(socket: std::net::UdpSocket) -> io::Result<Self> {
        socket.set_nonblocking(true)?;
        Ok(Self::of(Descriptor::new(socket.into())))
    }

    /// Converts the socket to a `std` one, in blocking mode.
    ///
    /// # Errors
    /// The system call fails, or no descriptor is left.
    pub fn into_std(self) -> io::Result<std::net::UdpSocket> {
        let socket = std::net::UdpSocket::from(self.as_fd().try_clone_to_owned()?);
        socket.set_nonblocking(false)?;
        Ok(socket)
    }

    /// Connects to the first address that can be connected: datagrams go there, and come from there
    /// alone; errors that the network reports are those of later calls.
    ///
    /// # Errors
    /// The last address's error.
    pub fn connect(&self, addr: impl ToSocketAddrs) -> io::Result<()> {
        addr::each(&addr, |addr| self.sock().connect(&addr.into()))
    }

    /// Sends a datagram to the first address, and returns its length.
    ///
    /// # Errors
    /// As for [`Self::send`]; there is no address.
    pub fn send_to(&self, buf: &[u8], addr: impl ToSocketAddrs) -> io::Result<usize> {
        let first = addr.resolve()?.into_iter().next();
        let first = first.ok_or_else(|| {
            io::Error::new(io::ErrorKind::InvalidInput, "no addresses to send data to")
        })?;
        datagram::send_to(&self.shared, buf, &first.into())
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
    pub fn receive(&self, buf: &mut [u8]) -> io::Result<Datagram> {
        Datagram::of(datagram::receive(&self.shared, buf)?)
    }

    /// Receives all datagrams that are there, up to as many as `batch` holds, in one system call;
    /// waits for the first. Returns how many.
    ///
    /// # Errors
    /// As for [`Self::recv`]; an error behind the first datagram is the next call's.
    pub fn recv_many(&self, batch: &mut Batch) -> io::Result<usize> {
        batch.count = 0;
        let Batch {
            headers,
            bytes,
            each,
            ..
        } = batch;
        batch.count = headers.receive(&self.shared, bytes, *each)?;
        Ok(batch.count)
    }

    /// Sends datagrams in one system call, each to its address, or where the socket is connected
    /// to. Returns how many were sent: at least one, and fewer than all if there was no more room,
    /// or the next one is in error, which the next call returns. At most 1,024.
    ///
    /// # Errors
    /// As for [`Self::send`], for the first.
    pub fn send_many(&self, datagrams: &[(&[u8], Option<SocketAddr>)]) -> io::Result<usize> {
        if datagrams.is_empty() {
            return Ok(0);
        }
        let native: Vec<_> = datagrams
            .iter()
            .take(MOST)
            .map(|(bytes, to)| (*bytes, to.map(SockAddr::from)))
            .collect();
        Headers::new().send(&self.shared, &native)
    }

    /// Sends `buf` as datagrams of `each` bytes, the last of which may be shorter, to `to` or where
    /// the socket is connected to. The kernel or the network card cuts it (UDP_SEGMENT, since Linux
    /// 4.18): one way through the kernel for up to 64 datagrams, or 64 KiB.
    ///
    /// # Errors
    /// As for [`Self::send`]; [`io::ErrorKind::InvalidInput`] if there are too many; the kernel or
    /// the path cannot do it.
    pub fn send_segments(
        &self,
        buf: &[u8],
        each: u16,
        to: Option<SocketAddr>,
    ) -> io::Result<usize> {
        let to = to.map(SockAddr::from);
        let mut control = segment_control(each);
        datagram::send_message(
            &self.shared,
            &[IoSlice::new(buf)],
            to.as_ref(),
            &mut control,
        )
    }

    /// Has the kernel put datagrams that come together from one sender into one buffer (UDP_GRO,
    /// since Linux 5.0), which [`Self::recv_segments`] takes apart. The other calls would give them
    /// as one.
    ///
    /// # Errors
    /// The kernel has no such thing.
    pub fn set_gro(&self, on: bool) -> io::Result<()> {
        datagram::set_gro(&self.shared, on)
    }

    /// Receives a datagram, or several of one sender that the kernel has put together: at most 64
    /// KiB, for which `buf` should have room.
    ///
    /// # Errors
    /// As for [`Self::recv`].
    ///
    /// ```
    /// use plainweave::net::UdpSocket;
    ///
    /// plainweave::run(|| {
    ///     let socket = UdpSocket::bind("127.0.0.1:0")?;
    ///     socket.set_gro(true)?;
    ///     let peer = UdpSocket::bind("127.0.0.1:0")?;
    ///     peer.send_segments(b"one two six", 4, Some(socket.local_addr()?))?;
    ///
    ///     let (mut buf, mut all) = ([0; 65536], Vec::new());
    ///     while all.len() < 3 {
    ///         let segments = socket.recv_segments(&mut buf)?;
    ///         all.extend(segments.iter(&buf).map(<[u8]>::to_vec));
    ///     }
    ///     assert_eq!(all, [b"one ".to_vec(), b"two ".to_vec(), b"six".to_vec()]);
    ///     Ok::<(), std::io::Error>(())
    /// })?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn recv_segments(&self, buf: &mut [u8]) -> io::Result<Segments> {
        let raw = datagram::receive_message(&self.shared, buf, &mut [0; 8])?;
        let each = raw.segment.unwrap_or(raw.len).max(1);
        let datagram = Datagram::of(raw)?;
        Ok(Segments { datagram, each })
    }

    /// Reads the next datagram without taking it. Returns its length and who has sent it.
    ///
    /// # Errors
    /// As for [`Self::recv`].
    pub fn peek_from(&self, buf: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        use rustix::net::RecvFlags;

        let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
        let (len, from) = self.shared.transfer(Interest::Read, || {
            rustix::net::recvfrom(self, &mut *buf, flags).map(|(len, _, from)| (len, from))
        })?;
        let from = from.and_then(|from| SocketAddr::try_from(from).ok());
        Ok((len, from.ok_or(io::ErrorKind::InvalidData)?))
    }

    /// Returns the local address.
    ///
    /// # Errors
    /// The system call fails.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        let addr = self.sock().local_addr()?;
        addr.as_socket().ok_or(io::ErrorKind::InvalidData.into())
    }

    /// Returns the address that the socket is connected to.
    ///
    /// # Errors
    /// It is not connected; the system call fails.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        let addr = self.sock().peer_addr()?;
        addr.as_socket().ok_or(io::ErrorKind::InvalidData.into())
    }

    fn sock(&self) -> SockRef<'_> {
        SockRef::from(self)
    }

    /// Sets whether datagrams may go to broadcast addresses.
    ///
    /// # Errors
    /// The system call fails, as do those below.
    pub fn set_broadcast(&self, on: bool) -> io::Result<()> {
        self.sock().set_broadcast(on)
    }

    /// Returns what [`Self::set_broadcast`] has set.
    pub fn broadcast(&self) -> io::Result<bool> {
        self.sock().broadcast()
    }

    /// Sets the hops that a datagram may take (IP_TTL).
    pub fn set_ttl(&self, hops: u32) -> io::Result<()> {
        self.sock().set_ttl_v4(hops)
    }

    /// Returns what [`Self::set_ttl`] has set.
    pub fn ttl(&self) -> io::Result<u32> {
        self.sock().ttl_v4()
    }

    /// Joins a group, on the interface with that address; unspecified: one that suits.
    pub fn join_multicast_v4(&self, group: &Ipv4Addr, interface: &Ipv4Addr) -> io::Result<()> {
        self.sock().join_multicast_v4(group, interface)
    }

    /// Leaves a group.
    pub fn leave_multicast_v4(&self, group: &Ipv4Addr, interface: &Ipv4Addr) -> io::Result<()> {
        self.sock().leave_multicast_v4(group, interface)
    }

    /// Joins a group, on the interface of that number; 0: any.
    pub fn join_multicast_v6(&self, group: &Ipv6Addr, interface: u32) -> io::Result<()> {
        self.sock().join_multicast_v6(group, interface)
    }

    /// Leaves a group.
    pub fn leave_multicast_v6(&self, group: &Ipv6Addr, interface: u32) -> io::Result<()> {
        self.sock().leave_multicast_v6(group, interface)
    }

    /// Sets whether this host gets what it sends to groups.
    pub fn set_multicast_loop_v4(&self, on: bool) -> io::Result<()> {
        self.sock().set_multicast_loop_v4(on)
    }

    /// Returns what [`Self::set_multicast_loop_v4`] has set.
    pub fn multicast_loop_v4(&self) -> io::Result<bool> {
        self.sock().multicast_loop_v4()
    }

    /// Sets the same for IPv6.
    pub fn set_multicast_loop_v6(&self, on: bool) -> io::Result<()> {
        self.sock().set_multicast_loop_v6(on)
    }

    /// Returns what [`Self::set_multicast_loop_v6`] has set.
    pub fn multicast_loop_v6(&self) -> io::Result<bool> {
        self.sock().multicast_loop_v6()
    }

    /// Sets the hops that a datagram to a group may take.
    pub fn set_multicast_ttl_v4(&self, hops: u32) -> io::Result<()> {
        self.sock().set_multicast_ttl_v4(hops)
    }

    /// Returns what [`Self::set_multicast_ttl_v4`] has set.
    pub fn multicast_ttl_v4(&self) -> io::Result<u32> {
        self.sock().multicast_ttl_v4()
    }
}

datagrams!(UdpSocket);

/// Control data that asks for segments of `each` bytes: a `cmsghdr`, and a number.
fn segment_control(each: u16) -> [u64; 3] {
    let len = (size_of::<libc::cmsghdr>() + size_of::<u16>()) as u64;
    let level = u64::from(libc::SOL_UDP as u32);
    let kind = u64::from(libc::UDP_SEGMENT as u32);
    if cfg!(target_endian = "little") {
        [len, kind << 32 | level, u64::from(each)]
    } else {
        [len, level << 32 | kind, u64::from(each) << 48]
    }
}

/// Datagrams of one sender that lie behind each other; see [`UdpSocket::recv_segments`].
#[derive(Clone, Copy, Debug)]
pub struct Segments {
    /// All of them: their length together, who has sent them, whether some are cut off.
    pub datagram: Datagram,
    /// The length of each; the last may be shorter.
    pub each: usize,
}

impl Segments {
    /// Returns each datagram in the buffer into which they were received. One that is empty is one.
    pub fn iter<'a>(&self, buf: &'a [u8]) -> impl Iterator<Item = &'a [u8]> {
        let bytes = &buf[..self.datagram.len.min(buf.len())];
        let empty = bytes.is_empty().then_some(bytes);
        empty.into_iter().chain(bytes.chunks(self.each))
    }
}

/// Room for many datagrams; see [`UdpSocket::recv_many`].
pub struct Batch {
    headers: Headers,
    bytes: Vec<u8>,
    each: usize,
    count: usize,
}

impl Batch {
    /// Makes room for `count` datagrams (1 to 1,024) of up to `each` bytes.
    ///
    /// # Panics
    /// A number is out of range.
    #[must_use]
    pub fn new(count: usize, each: usize) -> Self {
        assert!(
            (1..=MOST).contains(&count),
            "a batch has 1 to {MOST} datagrams"
        );
        assert!(each > 0, "a datagram needs room");
        Self {
            headers: Headers::new(),
            bytes: vec![0; count * each],
            each,
            count: 0,
        }
    }

    /// Returns the datagrams that the last call has received: their bytes, and what is known of
    /// them.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], Datagram)> {
        let parts = self.bytes.chunks_exact(self.each).take(self.count);
        parts.enumerate().filter_map(|(at, part)| {
            let datagram = Datagram::of(self.headers.received(at)).ok()?;
            Some((&part[..datagram.len.min(part.len())], datagram))
        })
    }
}

impl std::fmt::Debug for Batch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Batch")
            .field("count", &self.count)
            .field("each", &self.each)
            .finish_non_exhaustive()
    }
}
