//! What turns connections into TLS connections.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::SystemTime;

use super::config::Config;
use super::error::Error;
use super::shared::{Counts, Shared};
use super::stream::TlsStream;
use crate::transport::stream::Transport;

/// Certificates and settings, for any number of connections. Clones share everything.
#[derive(Clone)]
pub struct Acceptor(Arc<Shared>);

impl Acceptor {
    /// Reads the files that `config` names.
    ///
    /// # Errors
    /// A file cannot be read or used ([`Error::is_file`]), a certificate has expired
    /// ([`Error::is_expired`]) or is not that of its key ([`Error::is_mismatch`]).
    pub fn new(config: Config) -> Result<Self, Error> {
        Ok(Self(Arc::new(Shared::new(config)?)))
    }

    /// Reads the files again, for connections that come from now on; those that are there go on as
    /// they are. To be called where reading files may block.
    ///
    /// # Errors
    /// As for [`Acceptor::new`]; then what was read before stays in use.
    pub fn reload(&self) -> Result<(), Error> {
        Shared::reload(&[&self.0])
    }

    /// Does what [`Acceptor::reload`] does for several: those of one server that ask different
    /// things of clients, each given once and in an order that is always the same.
    ///
    /// # Errors
    /// As for [`Acceptor::new`]; then all stay as they were.
    pub fn reload_all<'a>(acceptors: impl IntoIterator<Item = &'a Self>) -> Result<(), Error> {
        let all: Vec<_> = acceptors.into_iter().map(|one| &*one.0).collect();
        Shared::reload(&all)
    }

    /// Makes a TLS connection of a stream. Nothing is sent or received: the handshake is done by
    /// the first call that needs it, or by [`TlsStream::handshake`].
    pub fn accept<S: Transport>(&self, stream: S) -> TlsStream<S> {
        TlsStream::new(stream, self.0.clone())
    }

    /// Calls `hook` for each handshake that has failed, with the peer's address, on the fiber or
    /// thread that serves the connection: it must not block. The first hook stays.
    pub fn on_failure(&self, hook: impl Fn(&Error, Option<SocketAddr>) + Send + Sync + 'static) {
        self.0.on_failure(Box::new(hook));
    }

    /// Returns when the first of the certificates in use expires.
    pub fn expires(&self) -> Option<SystemTime> {
        self.0.loaded().expires()
    }

    /// Returns how many handshakes there were.
    pub fn counts(&self) -> Counts {
        self.0.counts()
    }
}

impl fmt::Debug for Acceptor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Acceptor")
            .field("config", self.0.config())
            .field("counts", &self.counts())
            .finish()
    }
}
