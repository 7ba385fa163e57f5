//! A listener whose connections speak TLS.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use plainweave::net::SocketRef;
use plainweave_serve::{Address, Listener};

use super::acceptor::Acceptor;
use super::stream::TlsStream;
use crate::transport::stream::Transport;

/// A listener, and what makes TLS connections of those that it accepts; see [`Acceptor::listen`].
#[derive(Debug)]
pub struct TlsListener<L> {
    listener: L,
    acceptor: Acceptor,
}

impl Acceptor {
    /// Makes a listener whose connections speak TLS. Behind a proxy
    /// ([`Server::with_proxy_protocol`](crate::Server::with_proxy_protocol)) its header comes
    /// before the handshake.
    pub fn listen<L: Listener<Stream: Transport>>(&self, listener: L) -> TlsListener<L> {
        TlsListener {
            listener,
            acceptor: self.clone(),
        }
    }
}

impl<L: Listener<Stream: Transport>> Listener for TlsListener<L> {
    type Stream = TlsStream<L::Stream>;

    fn accept(&self, patience: Option<Duration>) -> io::Result<(Self::Stream, Option<SocketAddr>)> {
        let (stream, peer) = self.listener.accept(patience)?;
        Ok((self.acceptor.accept(stream), peer))
    }

    fn idle_socket(&self) -> Option<SocketRef<'_>> {
        self.listener.idle_socket()
    }

    fn try_accept(&self) -> io::Result<(Self::Stream, Option<SocketAddr>)> {
        let (stream, peer) = self.listener.try_accept()?;
        Ok((self.acceptor.accept(stream), peer))
    }

    fn close(&self) {
        self.listener.close();
    }

    fn is_shared(&self) -> bool {
        self.listener.is_shared()
    }

    fn address(&self) -> Option<Address> {
        self.listener.address()
    }

    fn prepare(&self) -> io::Result<()> {
        self.listener.prepare()
    }

    fn set_backlog(&self, connections: u32) -> io::Result<()> {
        self.listener.set_backlog(connections)
    }

    fn queued(&self) -> io::Result<u32> {
        self.listener.queued()
    }

    fn spawn(&self, work: impl FnOnce() + Send + 'static) -> io::Result<()> {
        self.listener.spawn(work)
    }
}
