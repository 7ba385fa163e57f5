//! A TCP connection for async code.

use std::io::{self, IoSlice};
use std::task::{Context, Poll};

use rustix::net::{RecvFlags, SendAncillaryBuffer, SendFlags, recv, send, sendmsg};

use super::TcpStream;
use super::addr::ToSocketAddrs;
use super::connection::MAX_IOV;
use super::direction::Direction;
use crate::future::Joining;
use crate::io::op::Interest;
use crate::thread::{self, JoinError};

/// A [`TcpStream`] for async code on a fiber, that is within [`crate::block_on`] or another
/// executor that runs there.
///
/// With the cargo feature `futures-io` it has the traits `AsyncRead` and `AsyncWrite` of the crate
/// of that name, and with the feature `tokio-io` those of tokio. (None of tokio's own runtime is
/// needed.)
///
/// A call that has to wait leaves a fiber behind that waits in its place: each direction of a
/// connection then costs a fiber and two switches, beside the task's own. Code that needs no async
/// crate is faster with [`TcpStream`]. Dropping the stream cancels these fibers and, unless other
/// handles are left, closes the connection.
///
/// One task may read while another writes. If two tasks poll one direction, only the last one is
/// woken. The stream's own timeouts ([`TcpStream::set_read_timeout`]) do not apply;
/// [`crate::time::with_timeout`] around `block_on` does. On a plain thread, a call that has to wait
/// fails with [`io::ErrorKind::Unsupported`].
#[derive(Debug)]
pub struct AsyncTcpStream {
    stream: TcpStream,
    reading: Direction,
    writing: Direction,
}

impl From<TcpStream> for AsyncTcpStream {
    fn from(stream: TcpStream) -> Self {
        Self {
            stream,
            reading: Direction::new(Interest::Read),
            writing: Direction::new(Interest::Write),
        }
    }
}

impl AsyncTcpStream {
    /// Connects as [`TcpStream::connect`] does, on a fiber of its own. Dropping the future cancels
    /// the attempt.
    ///
    /// # Errors
    /// As for [`TcpStream::connect`].
    ///
    /// # Panics
    /// If polled outside a runtime.
    pub async fn connect(addr: impl ToSocketAddrs + Send + 'static) -> io::Result<Self> {
        let attempt = thread::spawn(move || TcpStream::connect(addr));
        let mut attempt = Attempt(attempt.into_future());
        let stream = (&mut attempt.0).await.map_err(JoinError::into_io)??;
        Ok(stream.into())
    }

    /// Returns the connection, for its settings and addresses.
    #[must_use]
    pub fn get_ref(&self) -> &TcpStream {
        &self.stream
    }

    /// Converts it back.
    #[must_use]
    pub fn into_inner(self) -> TcpStream {
        self.stream
    }

    /// Reads what is there, at least one byte, or 0 at the end of the stream.
    ///
    /// # Errors
    /// The system call fails; the stream was closed; the runtime ends, or the caller is no fiber,
    /// and there is nothing to read.
    pub fn poll_read(&mut self, cx: &mut Context<'_>, buf: &mut [u8]) -> Poll<io::Result<usize>> {
        if buf.is_empty() {
            return Poll::Ready(Ok(0));
        }
        let source = self.stream.source();
        let read = self.reading.poll(cx, source, || {
            recv(source, &mut *buf, RecvFlags::DONTWAIT).map(|(_, n)| n)
        });
        match read {
            // A stream that is closed meanwhile ends like this: return the error that says so.
            Poll::Ready(Ok(0)) => Poll::Ready(source.check_open().map(|()| 0)),
            other => other,
        }
    }

    /// Writes as much as there is room for, at least one byte.
    ///
    /// # Errors
    /// As for [`Self::poll_read`], where there is no room.
    pub fn poll_write(&mut self, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(cx, &[IoSlice::new(buf)])
    }

    /// Writes from several buffers, as [`Self::poll_write`] does.
    ///
    /// # Errors
    /// As for [`Self::poll_write`].
    pub fn poll_write_vectored(
        &mut self,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        const FLAGS: SendFlags = SendFlags::DONTWAIT.union(SendFlags::NOSIGNAL);
        if bufs.iter().all(|b| b.is_empty()) {
            return Poll::Ready(Ok(0));
        }
        let source = self.stream.source();
        self.writing.poll(cx, source, || match bufs {
            [buf] => send(source, buf, FLAGS),
            _ => sendmsg(
                source,
                &bufs[..bufs.len().min(MAX_IOV)],
                &mut SendAncillaryBuffer::default(),
                FLAGS,
            ),
        })
    }
}

/// A fiber that connects, cancelled on drop.
struct Attempt(Joining<io::Result<TcpStream>>);

impl Drop for Attempt {
    fn drop(&mut self) {
        // Harmless if it has ended.
        self.0.fiber().cancel();
    }
}
