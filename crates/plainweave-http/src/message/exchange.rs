//! The record of an exchange, passed to a hook for access logs and metrics.

use std::net::SocketAddr;
use std::time::Duration;

use http::StatusCode;

use super::error::Error;
use super::head::RequestHead;

/// A request and its answer, over and done. See
/// [`Server::on_exchange`](crate::Server::on_exchange).
#[derive(Debug)]
#[non_exhaustive]
pub struct Exchange<'a> {
    /// The client's address, if the transport knows it.
    pub peer: Option<SocketAddr>,
    /// The request; `None` if what came could not be read as one.
    pub head: Option<&'a RequestHead<'a>>,
    /// The answer's status; `None` if none was begun.
    pub status: Option<StatusCode>,
    /// Bytes of the answer's body that were handed to the transport, or to a buffer that leaves
    /// next.
    pub body_bytes: u64,
    /// From the complete head to the last byte of the answer handed over; nothing for a head that
    /// cannot be read, nor where no times are taken
    /// ([`Server::without_times`](crate::Server::without_times)).
    pub duration: Duration,
    /// Why the connection ended with this exchange, if it ended badly; or that the handler
    /// panicked.
    pub error: Option<&'a Error>,
}
