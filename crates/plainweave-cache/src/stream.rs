//! The stream of a connection: a socket, or a protocol such as TLS on one.
//!
//! Reads do not wait: whoever reads has been told that there is something. On a socket that is so;
//! of a record of TLS a part may have come, and a turn that waited for the rest would keep its
//! scratch from others for as long as the peer likes.

use std::fmt;
use std::io::{self, ErrorKind, IoSlice, Read, Write};
use std::time::Duration;

use plainweave::net::{HasSocket, SocketRef, TcpStream};
use plainweave_http::{Layer, NonBlocking, Transport};

/// What a connection needs of a protocol on its socket. Its handshake is over.
pub(crate) trait Layered: Read + Write + HasSocket + Send {
    /// Returns whether it holds what the socket does not have any more.
    fn holds_input(&self) -> bool;

    /// Returns whether a part of something has come, whose rest is to come.
    fn holds_part(&self) -> bool;

    /// Waits until there is something to read, for at most `limit`. False: there is not.
    fn wait_for_input(&mut self, limit: Duration) -> io::Result<bool>;

    /// Bounds every following read.
    fn bound_reads(&mut self, limit: Duration) -> io::Result<()>;

    /// Bounds every following write.
    fn bound_writes(&mut self, limit: Duration) -> io::Result<()>;

    /// Returns the means to use it without waiting.
    fn without_waiting(&mut self) -> io::Result<&mut dyn NonBlocking>;

    /// Says that we send no more. Does not wait for long.
    fn say_end(&mut self);
}

impl<T: Transport + HasSocket> Layered for T {
    fn holds_input(&self) -> bool {
        self.layer().is_some_and(Layer::holds_input)
    }

    fn holds_part(&self) -> bool {
        self.layer().is_some_and(Layer::holds_part)
    }

    fn wait_for_input(&mut self, limit: Duration) -> io::Result<bool> {
        self.wait_readable(limit)
    }

    fn bound_reads(&mut self, limit: Duration) -> io::Result<()> {
        self.set_read_timeout(limit)
    }

    fn bound_writes(&mut self, limit: Duration) -> io::Result<()> {
        self.set_write_timeout(limit)
    }

    fn without_waiting(&mut self) -> io::Result<&mut dyn NonBlocking> {
        let non_blocking = self.non_blocking();
        non_blocking.ok_or_else(|| ErrorKind::Unsupported.into())
    }

    fn say_end(&mut self) {
        if let Some(layer) = self.layer_mut() {
            layer.end();
        }
    }
}

/// Bytes in both directions. Writes wait for the peer, for at most the stream's timeout.
pub(crate) enum Stream {
    Plain(TcpStream),
    Layered(Box<dyn Layered>),
}

impl Stream {
    /// Returns whether more may be there to be read, right after a read.
    pub(crate) fn is_readable(&self) -> bool {
        match self {
            Self::Plain(stream) => stream.is_readable(),
            Self::Layered(_) => self.holds_input(),
        }
    }

    /// Returns whether it holds what the socket below does not have any more.
    pub(crate) fn holds_input(&self) -> bool {
        match self {
            Self::Plain(_) => false,
            Self::Layered(stream) => stream.holds_input(),
        }
    }

    /// Returns whether a part of something has come, whose rest is to come.
    pub(crate) fn holds_part(&self) -> bool {
        match self {
            Self::Plain(_) => false,
            Self::Layered(stream) => stream.holds_part(),
        }
    }

    /// Waits until there is something to read, for at most `limit` if there is one.
    pub(crate) fn wait_readable(&mut self, limit: Option<Duration>) -> io::Result<()> {
        match self {
            Self::Plain(stream) => TcpStream::wait_readable(stream),
            Self::Layered(stream) => {
                let came = stream.wait_for_input(limit.unwrap_or(Duration::MAX))?;
                came.then_some(()).ok_or_else(|| ErrorKind::TimedOut.into())
            }
        }
    }

    /// Bounds every following write.
    pub(crate) fn set_write_timeout(&mut self, timeout: Duration) -> io::Result<()> {
        match self {
            Self::Plain(stream) => TcpStream::set_write_timeout(stream, Some(timeout)),
            Self::Layered(stream) => stream.bound_writes(timeout),
        }
    }

    /// Returns the socket, if there is nothing on it.
    pub(crate) fn plain(&self) -> Option<&TcpStream> {
        match self {
            Self::Plain(stream) => Some(stream),
            Self::Layered(_) => None,
        }
    }

    /// Says that we send no more, where the peer can tell that from a break. Does not wait for
    /// long.
    pub(crate) fn end(&mut self) {
        if let Self::Layered(stream) = self {
            stream.say_end();
        }
    }
}

impl Read for Stream {
    /// [`ErrorKind::WouldBlock`]: what has come is not enough to say anything.
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Plain(stream) => stream.read(buf),
            Self::Layered(stream) => stream.without_waiting()?.try_read(buf),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        match self {
            Self::Plain(stream) => stream.write(buf),
            Self::Layered(stream) => stream.write(buf),
        }
    }

    fn write_vectored(&mut self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
        match self {
            Self::Plain(stream) => stream.write_vectored(bufs),
            Self::Layered(stream) => stream.write_vectored(bufs),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Plain(_) => Ok(()),
            Self::Layered(stream) => stream.flush(),
        }
    }
}

impl HasSocket for Stream {
    fn socket(&self) -> SocketRef<'_> {
        match self {
            Self::Plain(stream) => stream.socket(),
            Self::Layered(stream) => stream.socket(),
        }
    }
}

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self {
            Self::Plain(_) => "Plain",
            Self::Layered(_) => "Layered",
        };

        f.debug_struct(name).finish_non_exhaustive()
    }
}
