//! The refusal of a request that a server has no means to serve: cheap, and without a wait for the
//! peer.

use std::time::Duration;

use http::StatusCode;

use crate::http1::conn::{ConnState, last_terms, tell};
use crate::message::request::Handler;
use crate::message::response::Response;
use crate::server::buffer::Buffers;
use crate::server::link::Link;
use crate::server::shared::Server;
use crate::transport::stream::Transport;

/// For a peer that has not read its last answers to take this one.
const REFUSAL_WAIT: Duration = Duration::from_millis(10);

impl<H: Handler> Server<H> {
    /// Refuses what has arrived: answers 503 with `Retry-After: 1`, whatever was asked, and ends
    /// our direction. Drop the stream afterwards. To be called in place of [`Server::serve_ready`]
    /// by a server that is short of memory or of time; blocks for a few milliseconds at most.
    ///
    /// One buffer of what has arrived is read, since closing a socket over unread bytes could
    /// destroy the answer. A peer that sent more than that may see a reset instead.
    ///
    /// Returns `false` if there was nothing to refuse, for the peer has left.
    pub fn refuse<S: Transport>(&self, stream: &mut S, state: &mut ConnState) -> bool {
        self.pool().with(|Buffers { input, encoder }| {
            let mut link = Link::new(stream, encoder, &mut state.link, self.limits());
            (link.allowed.write_timeout, link.allowed.min_rate) = (REFUSAL_WAIT, 0);
            let request = input.discard();
            let Ok(len @ 1..) = link.read(request, REFUSAL_WAIT) else {
                return false;
            };
            let terms = last_terms(self, &request[..len]);
            let response = Response::plain(StatusCode::SERVICE_UNAVAILABLE).with_retry();
            let sent = link
                .send(response, terms)
                .and_then(|_| link.flush())
                .is_ok();

            if sent {
                let _ = link.stream.shutdown_write();
            }
            if self.has_exchange_hook() {
                tell(self, &link, None, None, Duration::ZERO);
            }
            true
        })
    }
}
