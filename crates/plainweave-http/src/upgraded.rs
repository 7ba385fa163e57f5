//! A connection that a handler has taken over.

use std::fmt;
use std::io::{self, IoSlice, Read, Write};
use std::time::Duration;

use crate::Transport;

/// A connection in the hands of a handler, which speaks another protocol on it: see
/// [`Response::upgrade`](crate::Response::upgrade).
///
/// It reads what the peer has sent behind its request, then from the stream. A read or write that outlasts its timeout
/// fails with [`io::ErrorKind::TimedOut`] and may be repeated. At first a read may wait for
/// [`Limits::idle_timeout`](crate::Limits::idle_timeout), and a write as long as one of an answer.
///
/// ```
/// use std::io::{Read, Write};
/// use plainweave_http::{HeaderValue, Response, Upgraded};
///
/// /// Sends back each byte, until the client ends its direction.
/// fn echo(stream: &mut Upgraded<'_>) {
///     let mut buf = [0; 1024];
///     while let Ok(len @ 1..) = stream.read(&mut buf) {
///         if stream.write_all(&buf[..len]).is_err() {
///             break;
///         }
///     }
/// }
///
/// let response = Response::upgrade(HeaderValue::from_static("echo"), echo);
/// assert_eq!(response.status().as_u16(), 101);
/// ```
pub struct Upgraded<'a> {
    stream: &'a mut dyn Raw,
    early: &'a [u8],
}

impl<'a> Upgraded<'a> {
    pub(crate) fn new(stream: &'a mut dyn Raw, early: &'a [u8]) -> Self {
        Self { stream, early }
    }

    /// Bounds every following read.
    ///
    /// # Errors
    /// The transport's.
    pub fn set_read_timeout(&mut self, timeout: Duration) -> io::Result<()> {
        self.stream.set_read_timeout(timeout)
    }

    /// Bounds every following write.
    ///
    /// # Errors
    /// The transport's.
    pub fn set_write_timeout(&mut self, timeout: Duration) -> io::Result<()> {
        self.stream.set_write_timeout(timeout)
    }

    /// Ends our direction; the peer reads what was sent, then the end of the stream.
    ///
    /// # Errors
    /// The transport's.
    pub fn shutdown_write(&mut self) -> io::Result<()> {
        self.stream.shutdown_write()
    }
}

impl Read for Upgraded<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        if !self.early.is_empty() {
            return self.early.read(buf);
        }
        self.stream.read(buf).map_err(timed_out)
    }
}

impl Write for Upgraded<'_> {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.stream.write(buf).map_err(timed_out)
    }

    fn write_vectored(&mut self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
        self.stream.write_vectored(bufs).map_err(timed_out)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush().map_err(timed_out)
    }
}

impl fmt::Debug for Upgraded<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Upgraded").field("early", &self.early.len()).finish_non_exhaustive()
    }
}

/// Names a timeout as fibers' sockets do, where `std`'s say that the call would block.
fn timed_out(error: io::Error) -> io::Error {
    if error.kind() == io::ErrorKind::WouldBlock { io::ErrorKind::TimedOut.into() } else { error }
}

/// A transport whose type nobody needs to know.
pub(crate) trait Raw: Read + Write {
    fn set_read_timeout(&mut self, timeout: Duration) -> io::Result<()>;
    fn set_write_timeout(&mut self, timeout: Duration) -> io::Result<()>;
    fn shutdown_write(&mut self) -> io::Result<()>;
}

impl<S: Transport> Raw for S {
    fn set_read_timeout(&mut self, timeout: Duration) -> io::Result<()> {
        Transport::set_read_timeout(self, timeout)
    }

    fn set_write_timeout(&mut self, timeout: Duration) -> io::Result<()> {
        Transport::set_write_timeout(self, timeout)
    }

    fn shutdown_write(&mut self) -> io::Result<()> {
        Transport::shutdown_write(self)
    }
}
