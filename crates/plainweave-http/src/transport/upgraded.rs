//! A connection that a handler has taken over.

mod halves; // The connection read by one fiber while another writes.
mod raw; // A transport whose type nobody needs to know, and what its errors are called.
mod readable; // A read that may find something, as a branch of a `select!`.

use std::fmt;
use std::io::{self, IoSlice, Read, Write};
use std::time::Duration;

use plainweave::sync::select::TimerBranch;

pub use self::halves::{ReadHalf, WriteHalf};
pub(crate) use self::raw::Raw;
use self::raw::{timed_out, unsupported};
pub(crate) use self::readable::Branch;
pub use self::readable::Readable;

/// A connection in the hands of a handler, which speaks another protocol on it: see
/// [`Response::upgrade`](crate::Response::upgrade).
///
/// It reads what the peer has sent behind its request, then from the stream. A read or write that
/// outlasts its timeout fails with [`io::ErrorKind::TimedOut`] and may be repeated. At first a read
/// may wait for [`Limits::idle_timeout`](crate::Limits::idle_timeout), and a write as long as one
/// of an answer.
///
/// A fiber that waits for its peer *and* for something else has the reads not wait
/// ([`Upgraded::set_nonblocking_reads`]) and names the stream in a `select!`:
///
/// ```
/// # use plainweave::sync::Receiver;
/// # use plainweave_http::Upgraded;
/// use std::io::{ErrorKind, Read, Write};
///
/// /// Passes news on to the peer until that, or the source of the news, has gone.
/// fn tell(stream: &mut Upgraded<'_>, news: &Receiver<String>) -> std::io::Result<()> {
///     stream.set_nonblocking_reads(true)?;
///     let mut buf = [0; 1024];
///     loop {
///         match stream.read(&mut buf) {
///             Ok(0) => return Ok(()),
///             Ok(len) => println!("the peer says {:?}", &buf[..len]),
///             Err(error) if error.kind() == ErrorKind::WouldBlock => {
///                 let next = plainweave::select! {
///                     readable(stream) => None,
///                     recv(news) -> line => Some(line),
///                 }?;
///                 match next {
///                     Some(Ok(line)) => stream.write_all(line.as_bytes())?,
///                     Some(Err(_)) => return Ok(()),
///                     None => {}
///                 }
///             }
///             Err(error) => return Err(error),
///         }
///     }
/// }
/// ```
///
/// Two fibers use the halves of [`Upgraded::split`]. An echo needs neither:
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
    /// Of reads and writes.
    timeouts: (Duration, Duration),
    reads_wait: bool,
}

impl<'a> Upgraded<'a> {
    /// `timeouts`: those that reads and writes have.
    pub(crate) fn new(
        stream: &'a mut dyn Raw,
        early: &'a [u8],
        timeouts: (Duration, Duration),
    ) -> Self {
        Self {
            stream,
            early,
            timeouts,
            reads_wait: true,
        }
    }

    /// Bounds every following read.
    ///
    /// # Errors
    /// The transport's.
    pub fn set_read_timeout(&mut self, timeout: Duration) -> io::Result<()> {
        self.timeouts.0 = timeout;
        self.stream.set_read_timeout(timeout)
    }

    /// Bounds every following write.
    ///
    /// # Errors
    /// The transport's.
    pub fn set_write_timeout(&mut self, timeout: Duration) -> io::Result<()> {
        self.timeouts.1 = timeout;
        self.stream.set_write_timeout(timeout)
    }

    /// Sets whether a read that finds nothing fails with [`io::ErrorKind::WouldBlock`] in place of
    /// waiting. Writes wait in any case.
    ///
    /// # Errors
    /// [`io::ErrorKind::Unsupported`]: the server runs on threads, or the transport knows only calls that wait
    /// ([`Transport::non_blocking`](crate::Transport::non_blocking)).
    pub fn set_nonblocking_reads(&mut self, on: bool) -> io::Result<()> {
        if on && self.stream.non_blocking().is_none() {
            return Err(unsupported());
        }
        self.reads_wait = !on;
        Ok(())
    }

    /// Returns what makes a read possible as a branch of a `select!`, where `readable(stream)`
    /// calls it. It is ready also at the end of the stream. Over TLS a read may still find nothing,
    /// as when part of a record has come. Where nothing says what is readable (a server on
    /// threads), it is always ready.
    pub fn readable_branch(&self) -> Readable<'_> {
        let comes = self.early.is_empty() && !self.stream.holds_input();
        let branch = comes.then(|| self.stream.readable_branch()).flatten();
        Readable(branch.unwrap_or_else(|| Branch::Now(TimerBranch::after(Duration::ZERO))))
    }

    /// Splits the connection, so that one fiber reads while another writes, over TLS too. The
    /// halves have the timeouts of this stream as it is now. While neither is there any more it may
    /// be used again.
    ///
    /// ```
    /// use std::io::{Read, Write};
    /// use plainweave_http::Upgraded;
    ///
    /// fn ticks_until_the_peer_leaves(stream: &mut Upgraded<'_>) -> std::io::Result<()> {
    ///     let (mut reader, mut writer) = stream.split()?;
    ///     plainweave::scope(|scope| {
    ///         let ticks = scope.spawn(move || {
    ///             while writer.write_all(b"tick\n").and_then(|()| writer.flush()).is_ok()
    ///                 && plainweave::time::sleep(std::time::Duration::from_secs(1)).is_ok()
    ///             {}
    ///         });
    ///         while let Ok(1..) = reader.read(&mut [0; 1024]) {}
    ///         ticks.cancel();
    ///     });
    ///     Ok(())
    /// }
    /// ```
    ///
    /// # Errors
    /// As for [`Upgraded::set_nonblocking_reads`].
    pub fn split(&mut self) -> io::Result<(ReadHalf<'_>, WriteHalf<'_>)> {
        let early = std::mem::take(&mut self.early);
        halves::split(self.stream, early, self.timeouts)
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
        if self.reads_wait {
            return self.stream.read(buf).map_err(timed_out);
        }
        self.stream
            .non_blocking()
            .ok_or_else(unsupported)?
            .try_read(buf)
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
        f.debug_struct("Upgraded")
            .field("early", &self.early.len())
            .finish_non_exhaustive()
    }
}
