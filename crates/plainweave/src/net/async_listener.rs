//! A listening socket for async code.

use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::task::{Context, Poll};

use rustix::net::{SocketFlags, acceptfrom_with};

use super::direction::Direction;
use super::{AsyncTcpStream, TcpListener, TcpStream};
use crate::io::op::Interest;
use crate::sched::io_call::Descriptor;

/// A [`TcpListener`] for async code on a fiber; see [`AsyncTcpStream`] for what waiting costs and
/// where it works.
#[derive(Debug)]
pub struct AsyncTcpListener {
    listener: TcpListener,
    accepting: Direction,
}

impl From<TcpListener> for AsyncTcpListener {
    fn from(listener: TcpListener) -> Self {
        Self {
            listener,
            accepting: Direction::new(Interest::Read),
        }
    }
}

impl AsyncTcpListener {
    /// Returns the listener, for its settings and address.
    #[must_use]
    pub fn get_ref(&self) -> &TcpListener {
        &self.listener
    }

    /// Converts it back.
    #[must_use]
    pub fn into_inner(self) -> TcpListener {
        self.listener
    }

    /// Waits for a connection. Dropping the future loses none: it accepts one only when it returns
    /// it.
    ///
    /// # Errors
    /// The system call fails (out of descriptors: `EMFILE`); the listener was closed; the runtime
    /// ends, or the caller is no fiber, and there is no connection.
    pub async fn accept(&mut self) -> io::Result<(AsyncTcpStream, SocketAddr)> {
        poll_fn(|cx| self.poll_accept(cx)).await
    }

    /// Waits like [`Self::accept`]; for streams of connections, made by `poll_fn` of the crate
    /// futures.
    ///
    /// # Errors
    /// As for [`Self::accept`].
    pub fn poll_accept(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<(AsyncTcpStream, SocketAddr)>> {
        let source = self.listener.source();
        let call = || acceptfrom_with(source, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC);
        self.accepting.poll(cx, source, call).map(|accepted| {
            let (fd, peer) = accepted?;
            let peer = peer
                .and_then(|peer| SocketAddr::try_from(peer).ok())
                .ok_or(io::ErrorKind::InvalidData)?;
            Ok((TcpStream::of(Descriptor::new(fd)).into(), peer))
        })
    }
}
