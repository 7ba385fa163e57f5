//! Connections that have a fiber only while they are served.
//!
//! Most connections are idle most of the time, and a stack for each would cost several pages. So a
//! connection waits for its next request at the driver of a worker ([`net::each_readable`]),
//! and what arrives is served by a fresh fiber. A request costs about as much: a fresh fiber is
//! made, but on a stack that is in the cache, where each of many suspended fibers has its own. And
//! a fiber that has not started may be stolen by an idle worker whatever the movement, so requests
//! spread again each time.
//!
//! Streams that cannot wait like that ([`Transport::idle_socket`]), and servers on threads, use
//! [`Server::serve_stream`].

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use plainweave::net::{self, HasSocket, SocketRef};

use crate::accept::ConnectionPermit;
use crate::http1::conn::ConnState;
use crate::message::request::Handler;
use crate::server::idle::Added;
use crate::server::link::Next;
use crate::server::shared::Server;
use crate::transport::stream::Transport;

/// Serves an accepted connection: to its end, or until it can wait without the caller.
///
/// Context: the fiber or thread that was started for it.
pub(crate) fn serve<S, H>(server: Arc<Server<H>>, mut stream: S, permit: ConnectionPermit)
where
    S: Transport + Send + 'static,
    H: Handler,
{
    let Some(socket) = stream.idle_socket().filter(|_| plainweave::on_fiber()) else {
        let _permit = permit;
        return server.serve_stream(stream);
    };
    // A request that is there is served at once, before more connections are let in: what is
    // accepted and not answered would be a second queue, without the first one's bound.
    let readable = socket.is_readable();
    let Some(state) = server.try_open(&mut stream) else {
        return;
    };
    let added = server.idle().add(&stream);
    let timeout = server.limits().header_timeout;
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
    added: Added,
    _permit: ConnectionPermit,
}

impl<S: Transport, H: Handler> Connection<S, H> {
    /// Serves what has come.
    fn turn(&mut self) -> Next {
        self.server.serve_ready(&mut self.stream, &mut self.state)
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
