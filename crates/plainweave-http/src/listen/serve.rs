//! A server that accepts: listeners, connections beside each other, and the end of it all.

use std::io;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use plainweave::Runtime;
use plainweave::net::{self, ToSocketAddrs};
use plainweave_serve::accept::{ConnectionPermit, affordable};
use plainweave_serve::{Accepting, Address, Listener};

use super::turns;
use crate::message::request::Handler;
use crate::server::shared::Server;
use crate::transport::stream::Transport;

/// What a server has done so far. See [`Server::counts`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ServerCounts {
    /// Connections now.
    pub open: usize,
    /// Connections accepted.
    pub accepted: u64,
    /// Of these, connections that were closed at once because their address had its share.
    pub refused: u64,
    /// Failed attempts to accept, each with a pause.
    pub failed: u64,
    /// Requests of HTTP/2 that were answered 503 because their address had its share in progress.
    pub refused_requests: u64,
    /// Requests answered, on connections that [`Server::serve`], [`Server::start`] or
    /// [`Server::serve_stream`] serve; a connection's count is brought up to date whenever it waits
    /// for its peer.
    pub requests: u64,
}

impl<H: Handler> Server<H> {
    /// Serves an address with the default limits, on fibers: those of the caller's runtime, or of a
    /// new one. Returns only with an error, or when the calling fiber is cancelled or runs into its
    /// deadline.
    ///
    /// ```no_run
    /// use plainweave_http::{Request, Response, Server};
    ///
    /// Server::run("127.0.0.1:8080", |_: &mut Request<'_>| Response::ok("hello\n"))?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    /// The address cannot be bound, or a runtime not be started.
    pub fn run(addr: impl ToSocketAddrs + Send, handler: H) -> io::Result<()> {
        let serve = || Arc::new(Self::new(handler)).serve(net::TcpListener::bind(addr)?);
        if plainweave::on_fiber() {
            serve()
        } else {
            Runtime::new()?.run(serve)
        }
    }

    /// Accepts and serves a listener's connections, each on a fiber or thread of its own: see
    /// [`Listener`]. Between two requests a TCP connection has no fiber, and so no stack: the next
    /// one gets a fresh fiber, perhaps on another worker. Goes on until the server stops, the
    /// listener is closed, or the caller is cancelled or runs into its deadline
    /// ([`with_timeout`](plainweave::time::with_timeout); an accept of a `std` listener does not
    /// notice it). At [`Limits::connections`](crate::Limits::connections) it accepts no more until
    /// one has ended; without descriptors or memory it tries again after a pause. Connections that
    /// are open when it returns are served on; [`Server::shutdown`] waits for them.
    ///
    /// A server can serve any number of listeners at the same time, of any kind.
    ///
    /// # Errors
    /// The socket cannot be configured. Errors of single connections go to [`Server::on_error`],
    /// and what keeps connections out to [`Server::on_fault`].
    pub fn serve<L>(self: &Arc<Self>, listener: L) -> io::Result<()>
    where
        L: Listener<Stream: Transport>,
    {
        let accepting = self.begin(listener)?;
        accepting.run(self.stopping(), self.serving());
        Ok(())
    }

    /// Does what [`Server::serve`] does, on a fiber or thread beside the caller's. Returns the
    /// address of the listener, with the port that the kernel has chosen for port 0.
    ///
    /// # Errors
    /// As for [`Server::serve`]; there is no stack or no thread for the accept loop.
    pub fn start<L>(self: &Arc<Self>, listener: L) -> io::Result<Address>
    where
        L: Listener<Stream: Transport>,
    {
        let address = listener.address().ok_or(io::ErrorKind::AddrNotAvailable)?;
        let accepting = self.begin(listener)?;
        accepting.start(self.stopping(), self.serving())?;
        Ok(address)
    }

    /// Does what [`Server::start`] does, by a number of fibers each of which accepts a connection,
    /// serves it to its end and accepts the next one: so that is the most connections, too.
    ///
    /// Context: a fiber.
    ///
    /// # Errors
    /// As for [`Server::start`].
    pub fn start_in_turn<L>(
        self: &Arc<Self>,
        listener: L,
        fibers: NonZeroUsize,
    ) -> io::Result<Address>
    where
        L: Listener<Stream: Transport>,
    {
        let address = listener.address().ok_or(io::ErrorKind::AddrNotAvailable)?;
        let accepting = self.begin(listener)?;
        let server = self.clone();
        let serve = move |stream, _permit: ConnectionPermit| server.serve_stream(stream);
        accepting.start_in_turn(fibers, self.stopping(), serve)?;
        Ok(address)
    }

    fn begin<L>(self: &Arc<Self>, listener: L) -> io::Result<Accepting<L>>
    where
        L: Listener<Stream: Transport>,
    {
        let limit = self.connection_limit();
        let accepting = Accepting::begin(listener, limit, self.listeners(), self.fault_hook())?;
        if self.limits().connections == 0 {
            limit.lower(affordable(L::Stream::DESCRIPTORS));
        }
        Ok(accepting)
    }

    fn stopping(self: &Arc<Self>) -> impl Fn() -> bool + Clone + Send + use<H> {
        let server = self.clone();
        move || server.is_stopping()
    }

    /// Returns what serves a connection, on the fiber or thread that was started for it.
    fn serving<S>(self: &Arc<Self>) -> impl Fn(S, ConnectionPermit) + Clone + Send + use<S, H>
    where
        S: Transport + Send + 'static,
    {
        let server = self.clone();
        move |stream, permit| turns::serve(server.clone(), stream, permit)
    }

    /// Stops as [`Server::stop`] does, and waits until the last connection has ended, for at most
    /// `grace`. Returns whether that was enough. Streams that are still open then are shut down
    /// under their handlers, which end when they next read or write; nothing waits for them.
    ///
    /// Counts the connections of [`Server::serve`] and [`Server::start`].
    ///
    /// Context: any thread or fiber; may suspend.
    pub fn shutdown(&self, grace: Duration) -> bool {
        self.stop();
        let ended = self.connection_limit().wait_ended(grace);
        if !ended {
            self.idle().cut();
        }
        ended
    }

    /// Does what [`Server::shutdown`] does, for a server whose successor has begun to accept: a
    /// connection without a request may send one for `patience` longer, its last, so that a client
    /// hardly ever meets a connection that ends as it sends. HTTP/2 tells its clients at once.
    /// `grace` begins after that.
    ///
    /// Context: any thread or fiber; may suspend.
    pub fn shutdown_gently(&self, patience: Duration, grace: Duration) -> bool {
        self.stop_accepting();
        self.connection_limit().wait_ended(patience) || self.shutdown(grace)
    }

    /// Returns the addresses of the listeners that are being served.
    pub fn addresses(&self) -> Vec<Address> {
        self.listeners().addresses()
    }

    /// Returns what has been done so far.
    pub fn counts(&self) -> ServerCounts {
        let of = self.connection_limit().counts();
        ServerCounts {
            open: of.open,
            accepted: of.accepted,
            refused: of.refused,
            failed: of.failed,
            refused_requests: of.refused_requests,
            requests: self.idle().requests(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::Limits;
    use crate::message::request::Request;
    use crate::message::response::Response;

    fn hello(_: &mut Request<'_>) -> Response {
        Response::ok("hello")
    }

    #[test]
    fn there_are_descriptors_for_all_connections() {
        let server = Arc::new(Server::new(hello));
        let fibers = || net::TcpListener::bind("127.0.0.1:0").unwrap();
        let threads = || std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let max = |server: &Server<_>| server.connection_limit().max();
        drop(server.begin(fibers()).unwrap());
        assert_eq!(max(&server), affordable(1));
        drop(server.begin(threads()).unwrap());
        assert_eq!(
            max(&server),
            affordable(2),
            "a connection of a thread has a second one"
        );
        drop(server.begin(fibers()).unwrap());
        assert_eq!(max(&server), affordable(2));
        assert!(affordable(1) > affordable(2));

        // Whoever asks for more gets it.
        let connections = affordable(2) + 1;
        let server = Arc::new(Server::new(hello).with_limits(Limits {
            connections,
            ..Limits::default()
        }));
        drop(server.begin(threads()).unwrap());
        assert_eq!(max(&server), connections);
    }
}
