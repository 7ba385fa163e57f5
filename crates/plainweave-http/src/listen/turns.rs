//! Connections that have a fiber only while they are served.
//!
//! Most connections are idle most of the time, and a stack for each would cost several pages. So a
//! connection waits for its next request at the driver of a worker ([`net::each_readable`]),
//! and what arrives is served by a fresh fiber. A request costs about as much: a fresh fiber is
//! made, but on a stack that is in the cache, where each of many suspended fibers has its own. And
//! a fiber that has not started may be stolen by an idle worker whatever the movement, so requests
//! spread again each time.
//!
//! A TLS connection is the same: it has no fiber in the pauses of its handshake either.
//!
//! Streams that cannot wait like that ([`Transport::idle_socket`]), servers on threads, and those
//! that keep their fibers use [`Server::serve_stream`].

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use plainweave::net::{self, HasSocket, SocketRef};
use plainweave_serve::Idle;
use plainweave_serve::accept::ConnectionPermit;

use crate::http1::conn::ConnState;
use crate::message::request::Handler;
use crate::server::link::Next;
use crate::server::shared::Server;
use crate::transport::stream::{Handshake, Layered, Transport};

/// Serves an accepted connection: to its end, or until it can wait without the caller.
///
/// Context: the fiber or thread that was started for it.
pub(crate) fn serve<S, H>(server: Arc<Server<H>>, mut stream: S, permit: ConnectionPermit)
where
    S: Transport + Send + 'static,
    H: Handler,
{
    let waits_without_it = plainweave::on_fiber() && !server.keeps_fibers();
    let Some(socket) = stream.idle_socket().filter(|_| waits_without_it) else {
        let _permit = permit;
        return server.serve_stream(stream);
    };
    // A request that is there is served at once, before more connections are let in: what is
    // accepted and not answered would be a second queue, without the first one's bound.
    let readable = socket.is_readable();
    let Some(state) = server.try_open(&mut stream) else {
        return;
    };
    let added = server.idle().add(stream.closer());
    let timeout = if stream.is_handshaking() {
        server.limits().handshake_timeout
    } else {
        server.limits().header_timeout
    };
    let mut connection = Connection {
        stream,
        state,
        added,
        server,
        _permit: permit,
    };
    match if readable {
        connection.turn()
    } else {
        Next::Idle(timeout)
    } {
        Next::Idle(timeout) => wait(connection, timeout),
        Next::Close => {}
    }
}

/// Waits for the next request without a fiber, for at most `timeout`.
fn wait<S: Transport + Send + 'static, H: Handler>(
    connection: Connection<S, H>,
    timeout: Duration,
) {
    let timeout = connection.begin_wait(timeout);
    net::each_readable(
        Waiting(Some(connection)),
        Some(timeout),
        move |waiting, outcome| {
            let Some(connection) = &mut waiting.0 else {
                return ControlFlow::Break(());
            };
            connection.end_wait();
            if outcome.is_err() {
                connection
                    .server
                    .end(&mut connection.stream, &mut connection.state);
                return ControlFlow::Break(());
            }
            let Next::Idle(next) = connection.turn() else {
                return ControlFlow::Break(());
            };
            let next = connection.begin_wait(next);
            if next == timeout {
                return ControlFlow::Continue(());
            }
            if let Some(connection) = waiting.0.take() {
                wait(connection, next);
            }
            ControlFlow::Break(())
        },
    );
}

/// A connection, without a fiber or with the one that serves it.
struct Connection<S: Transport, H: Handler> {
    stream: S,
    state: ConnState,
    server: Arc<Server<H>>,
    added: Idle,
    _permit: ConnectionPermit,
}

impl<S: Transport, H: Handler> Connection<S, H> {
    /// Serves what has come, or refuses it if as many requests are in progress as may be. A
    /// handshake takes none of their permits: it has its own.
    fn turn(&mut self) -> Next {
        if self.stream.is_handshaking()
            && let Some(next) = self.shake_hands()
        {
            return next;
        }

        let Self {
            stream,
            state,
            server,
            ..
        } = self;
        // Over HTTP/2 each request has a permit of its own.
        let Some(requests) = server.requests().filter(|_| !state.is_http2()) else {
            return server.serve_ready(stream, state);
        };
        if let Some(permit) = requests.begin() {
            return server.serve_ready_with(stream, state, permit);
        }

        if stream.agreed_on_http2() {
            // It would take a refusal over HTTP/1 for a fault.
            server.end(stream, state);
            server.shed(requests);
        } else if server.refuse(stream, state) {
            server.shed(requests);
        }
        Next::Close
    }

    /// Goes on with a handshake by what has arrived. `None`: it is over, and there may be a
    /// request.
    fn shake_hands(&mut self) -> Option<Next> {
        let handshakes = self.server.handshakes();
        let permit = handshakes.map(|handshakes| handshakes.begin().ok_or(handshakes));
        let _permit = match permit.transpose() {
            Ok(permit) => permit,
            Err(handshakes) => {
                // An answer would take a handshake first.
                self.server.shed_handshake(handshakes);
                return Some(Next::Close);
            }
        };

        match self.stream.layer_mut()?.step() {
            Ok(Handshake::Waits(left)) => Some(Next::Idle(left)),
            Ok(Handshake::Done) if self.stream.holds_input() => None,
            Ok(Handshake::Done) => Some(Next::Idle(self.server.limits().header_timeout)),
            Err(_) => Some(Next::Close),
        }
    }

    /// Notes that it begins to wait. Returns for how long it may.
    fn begin_wait(&self, timeout: Duration) -> Duration {
        self.added.begin_wait(timeout, self.state.link.served)
    }

    fn end_wait(&self) {
        self.added.end_wait(self.state.link.served);
    }
}

impl<S: Transport, H: Handler> Drop for Connection<S, H> {
    /// However it has ended, a panic of a hook included.
    fn drop(&mut self) {
        self.end_wait();
        self.server
            .closed(self.state.link.peer, self.state.link.served);
    }
}

/// A connection at a driver; taken out when it is to wait for a time other than that with which it
/// was registered.
struct Waiting<S: Transport, H: Handler>(Option<Connection<S, H>>);

impl<S: Transport, H: Handler> HasSocket for Waiting<S, H> {
    fn socket(&self) -> SocketRef<'_> {
        let socket = self
            .0
            .as_ref()
            .and_then(|connection| connection.stream.idle_socket());
        socket.expect("a connection that waits here has a socket")
    }
}
