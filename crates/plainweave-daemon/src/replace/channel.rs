//! Messages with descriptors between the two servers: a text, and perhaps a descriptor, each.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use rustix::process::geteuid;
use socket2::{Domain, SockAddr, SockRef, Socket, Type};

/// The longest text.
const LONGEST: usize = 512;
/// Connections that may wait for their turn.
const BACKLOG: i32 = 8;

/// A connection that keeps messages apart.
#[derive(Debug)]
pub(super) struct Channel(OwnedFd);

impl Channel {
    /// Connects. `patience`: for a server that does not accept, and has many that wait.
    pub(super) fn connect(path: &Path, patience: Duration) -> io::Result<Self> {
        let socket = Socket::new(Domain::UNIX, Type::SEQPACKET.cloexec(), None)?;
        socket.set_write_timeout(Some(patience))?;

        let connected = socket.connect(&SockAddr::unix(path)?);
        connected.map_err(|error| match error.kind() {
            io::ErrorKind::WouldBlock => io::Error::new(
                io::ErrorKind::TimedOut,
                "the server there does not answer: is it stopped?",
            ),
            // In the kernel's words "Protocol wrong type for socket".
            _ if error.raw_os_error() == Some(Errno::PROTOTYPE.raw_os_error()) => {
                io::Error::other("the socket there is another program's")
            }
            _ => error,
        })?;
        Ok(Self(socket.into()))
    }

    /// Opens a socket to be connected to, for this user alone.
    pub(super) fn listen(path: &Path) -> io::Result<OwnedFd> {
        let socket = Socket::new(Domain::UNIX, Type::SEQPACKET.cloexec(), None)?;
        // On the file that `bind` makes, so that it never is anybody else's.
        rustix::fs::fchmod(&socket, rustix::fs::Mode::from_raw_mode(0o600))?;
        socket.bind(&SockAddr::unix(path)?)?;
        let listener = socket.into();
        Self::own(&listener)?;
        Ok(listener)
    }

    /// Makes this process the one that those who connect see.
    pub(super) fn own(listener: &OwnedFd) -> io::Result<()> {
        SockRef::from(listener).listen(BACKLOG)
    }

    /// Takes a connection that waits.
    pub(super) fn accept(listener: &OwnedFd) -> io::Result<Self> {
        let (socket, _) = SockRef::from(listener).accept()?;
        Ok(Self(socket.into()))
    }

    /// Returns the process at the other end, if it may be trusted with sockets, or its sockets be
    /// used: it is root's or this user's. Root itself may use anybody's.
    pub(super) fn trusted_peer(&self, by_root: bool) -> io::Result<Option<i32>> {
        let peer = rustix::net::sockopt::socket_peercred(&self.0)?;
        let own = geteuid();
        let is_trusted = peer.uid.is_root() || peer.uid == own || (by_root && own.is_root());
        Ok(is_trusted.then_some(peer.pid.as_raw_nonzero().get()))
    }

    pub(super) fn send(&self, text: &str, fd: Option<BorrowedFd<'_>>) -> io::Result<()> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        let fds: Vec<_> = fd.into_iter().collect();
        if !fds.is_empty() {
            ancillary.push(SendAncillaryMessage::ScmRights(&fds));
        }

        let text = [IoSlice::new(text.as_bytes())];
        sendmsg(&self.0, &text, &mut ancillary, SendFlags::NOSIGNAL)?;
        Ok(())
    }

    /// Bounds how long [`Self::send`] may wait for the other end.
    pub(super) fn set_patience(&self, limit: Duration) -> io::Result<()> {
        SockRef::from(&self.0).set_write_timeout(Some(limit))
    }

    /// Waits for a message, for at most `limit` if there is one, and until `end` is readable or
    /// closed.
    ///
    /// # Errors
    /// `UnexpectedEof`: the other process has closed the connection, or ended. `EMFILE`: a
    /// descriptor came, and there was no room for it.
    pub(super) fn receive(
        &self,
        limit: Option<Duration>,
        end: Option<BorrowedFd<'_>>,
    ) -> io::Result<(String, Option<OwnedFd>)> {
        if !wait(self.0.as_fd(), end, limit)? {
            return Err(io::Error::other("this server ends"));
        }

        let mut text = [0; LONGEST];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let mut into = [IoSliceMut::new(&mut text)];
        let flags = RecvFlags::CMSG_CLOEXEC;
        let received = match recvmsg(&self.0, &mut into, &mut ancillary, flags) {
            // It has ended without reading all. What it said before comes next.
            Err(Errno::CONNRESET) => recvmsg(&self.0, &mut into, &mut ancillary, flags),
            received => received,
        }?;
        let fds = ancillary.drain().filter_map(|message| match message {
            RecvAncillaryMessage::ScmRights(fds) => Some(fds),
            _ => None,
        });

        // All are taken, so that none leaks.
        let fd = fds.flatten().last();
        if received.flags.contains(ReturnFlags::CTRUNC) {
            return Err(Errno::MFILE.into());
        }
        let cut = received.flags.contains(ReturnFlags::TRUNC);
        match (received.bytes, std::str::from_utf8(&text[..received.bytes])) {
            (0, _) => Err(io::Error::new(
                io::ErrorKind::UnexpectedEof,
                "the other process has closed the connection",
            )),
            (_, Ok(text)) if !cut => Ok((text.to_owned(), fd)),
            _ => Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "a message of another program",
            )),
        }
    }
}

/// Waits until something can be read, for at most `limit`. Returns false if `end` is readable or
/// closed.
pub(super) fn wait(
    fd: BorrowedFd<'_>,
    end: Option<BorrowedFd<'_>>,
    limit: Option<Duration>,
) -> io::Result<bool> {
    let deadline = limit.map(|limit| (Instant::now(), limit));
    loop {
        let left = deadline.map(|(start, limit)| limit.saturating_sub(start.elapsed()));
        let left = left.map(Timespec::try_from).transpose();
        let left = left.map_err(|_| io::ErrorKind::InvalidInput)?;
        let mut fds: Vec<_> = [Some(fd), end]
            .into_iter()
            .flatten()
            .map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN))
            .collect();

        match poll(&mut fds, left.as_ref()) {
            Ok(0) => return Err(io::ErrorKind::TimedOut.into()),
            Ok(_) => return Ok(fds.get(1).is_none_or(|end| end.revents().is_empty())),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}
