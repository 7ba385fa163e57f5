//! What all connections of a server share.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use http::HeaderValue;
#[cfg(feature = "http2")]
use plainweave_serve::accept::Permit;
use plainweave_serve::accept::{ConnectionLimit, Fault, FaultHook, InProgress, affordable};
use plainweave_serve::{IdleConnections, Listeners};

use super::buffer::Pool;
#[cfg(feature = "http2")]
use super::http2_connections::Connections;
use crate::limits::{Limits, RequestLimits};
use crate::message::error::Error;
use crate::message::exchange::Exchange;
use crate::message::forwarded::TrustedProxies;
use crate::message::head::RequestHead;
use crate::message::request::Handler;

type OpenHook = Box<dyn Fn(Option<SocketAddr>) -> bool + Send + Sync>;
type CloseHook = Box<dyn Fn(&Closed) + Send + Sync>;
type ErrorHook = Box<dyn Fn(&Error) + Send + Sync>;
type RequestLimitsHook = Box<dyn Fn(&RequestHead<'_>, &mut RequestLimits) + Send + Sync>;
type ExchangeHook = Box<dyn Fn(&Exchange<'_>) + Send + Sync>;

/// A handler, its limits, the buffers its connections borrow, and what it listens on.
/// [`Server::run`] is the shortest way; [`Server::serve`] and [`Server::start`] take listeners,
/// [`Server::serve_stream`] one connection of any kind.
pub struct Server<H> {
    handler: H,
    limits: Limits,
    name: Option<String>,
    hooks: Hooks,
    request_limits: Option<RequestLimitsHook>,
    requests: Option<Arc<InProgress>>,
    handshakes: Option<Arc<InProgress>>,
    keeps_fibers: bool,
    behind_proxy: bool,
    forwarded: Option<TrustedProxies>,
    timed: bool,
    pool: Pool,
    stopping: AtomicBool,
    /// Connections that have no request are closed.
    ending: AtomicBool,
    idle: Arc<IdleConnections>,
    #[cfg(feature = "http2")]
    http2: Connections,
    connection_limit: Arc<ConnectionLimit>,
    listeners: Arc<Listeners>,
}

/// What a program wants to know.
#[derive(Default)]
struct Hooks {
    open: Option<OpenHook>,
    close: Option<CloseHook>,
    error: Option<ErrorHook>,
    exchange: Option<ExchangeHook>,
    fault: Option<FaultHook>,
}

/// A connection that has ended. See [`Server::on_close`].
#[derive(Debug)]
#[non_exhaustive]
pub struct Closed {
    /// The client's address, if the transport knows it.
    pub peer: Option<SocketAddr>,
    /// Requests answered.
    pub requests: u32,
}

impl<H: Handler> Server<H> {
    /// Makes a server with the default limits.
    pub fn new(handler: H) -> Self {
        let limits = Limits::default();
        let pool = Pool::new(limits.head_bytes);
        let connection_limit = connection_limit(&limits);
        Self {
            handler,
            limits,
            name: None,
            hooks: Hooks::default(),
            request_limits: None,
            requests: None,
            handshakes: None,
            keeps_fibers: false,
            behind_proxy: false,
            forwarded: None,
            timed: true,
            pool,
            stopping: AtomicBool::new(false),
            ending: AtomicBool::new(false),
            idle: Arc::default(),
            #[cfg(feature = "http2")]
            http2: Connections::default(),
            connection_limit,
            listeners: Arc::default(),
        }
    }

    /// Replaces the limits.
    pub fn with_limits(self, limits: Limits) -> Self {
        let connection_limit = connection_limit(&limits);
        Self {
            pool: Pool::new(limits.head_bytes),
            limits,
            connection_limit,
            ..self
        }
    }

    /// Has `choose` replace the limits of single requests, by their heads, before their bodies are
    /// read: more bytes for uploads, more time for one route.
    ///
    /// ```
    /// # use plainweave_http::{Request, Response, Server};
    /// let server = Server::new(|_: &mut Request<'_>| Response::ok("taken"));
    /// server.with_request_limits(|head, limits| {
    ///     if head.path().starts_with("/upload/") {
    ///         limits.body_bytes = 10 << 30;
    ///     }
    /// });
    /// ```
    pub fn with_request_limits(
        self,
        choose: impl Fn(&RequestHead<'_>, &mut RequestLimits) + Send + Sync + 'static,
    ) -> Self {
        Self {
            request_limits: Some(Box::new(choose)),
            ..self
        }
    }

    /// Bounds the requests in progress: for a server with less memory than all of its connections
    /// could take at once. One beyond them is answered 503 with `Retry-After: 1`, and a connection
    /// of HTTP/1 is closed then; [`Server::on_fault`] hears of it. Connections that keep a fiber
    /// are not asked, for they hold their memory anyway ([`Server::with_fibers_kept`]).
    ///
    /// Over HTTP/2 a connection takes a permit, too, before it waits for its client while no
    /// request is handled, in the middle of a frame for example; it ends if there is none. The next
    /// request uses what such a connection has.
    pub fn with_requests_in_progress(self, requests: Arc<InProgress>) -> Self {
        Self {
            requests: Some(requests),
            ..self
        }
    }

    /// Bounds the steps of TLS handshakes in progress, of connections that have no fiber while they
    /// wait: a crowd of them then keeps no request from being served. A connection whose next step
    /// finds none left is closed.
    pub fn with_handshakes_in_progress(self, handshakes: Arc<InProgress>) -> Self {
        Self {
            handshakes: Some(handshakes),
            ..self
        }
    }

    /// Has each connection keep its fiber while it is idle: code that stays with its connection, at
    /// the price of a stack for each.
    pub fn with_fibers_kept(self) -> Self {
        Self {
            keeps_fibers: true,
            ..self
        }
    }

    /// Expects each connection to begin with a header of the PROXY protocol, version 1 or 2 (see
    /// [`crate::proxy`]), and takes the client's address from it; one without is closed. With TLS
    /// it comes before the handshake. Only for a server that clients reach through a proxy alone:
    /// any other could claim to be anybody. [`Server::on_open`] still sees the proxy.
    pub fn with_proxy_protocol(self) -> Self {
        Self {
            behind_proxy: true,
            ..self
        }
    }

    /// Takes the client's address from what trusted proxies say in each request, for
    /// [`Request::peer`](crate::Request::peer) and [`Exchange::peer`]. What counts by connection
    /// ([`Limits::connections_per_address`], [`Server::on_open`]) still sees the proxy.
    pub fn with_forwarded(self, proxies: TrustedProxies) -> Self {
        Self {
            forwarded: Some(proxies),
            ..self
        }
    }

    /// Sends a `Server` field.
    pub fn with_name(self, name: &str) -> Result<Self, Error> {
        HeaderValue::from_str(name)
            .map_err(|_| Error::header("the server's name is not a header value"))?;
        Ok(Self {
            name: Some(name.to_owned()),
            ..self
        })
    }

    /// Calls `hook` with the peer's address when a connection begins, on its fiber or thread; one
    /// for which it returns `false` is closed without a word. Peers of Unix sockets have no
    /// address.
    pub fn on_open(
        mut self,
        hook: impl Fn(Option<SocketAddr>) -> bool + Send + Sync + 'static,
    ) -> Self {
        self.hooks.open = Some(Box::new(hook));
        self
    }

    /// Calls `hook` when a connection that [`Server::serve`], [`Server::start`] or
    /// [`Server::serve_stream`] serves has ended, however it did, unless [`Server::on_open`]
    /// refused it.
    pub fn on_close(mut self, hook: impl Fn(&Closed) + Send + Sync + 'static) -> Self {
        self.hooks.close = Some(Box::new(hook));
        self
    }

    /// Calls `hook` whenever [`Server::serve`] or [`Server::start`] cannot let connections in, or
    /// refuse a request; for a lasting fault again and again.
    pub fn on_fault(mut self, hook: impl Fn(&Fault<'_>) + Send + Sync + 'static) -> Self {
        self.hooks.fault = Some(Arc::new(hook));
        self
    }

    /// Calls `hook` for each connection, and each request of HTTP/2, that ended in an error, before
    /// the peer is notified, and for each handler that panicked, with the path and the panic's
    /// message in the error's text.
    pub fn on_error(mut self, hook: impl Fn(&Error) + Send + Sync + 'static) -> Self {
        self.hooks.error = Some(Box::new(hook));
        self
    }

    /// Calls `hook` after each exchange, on the fiber or thread that serves the connection or, by
    /// HTTP/2, the request: it must not block. Without a hook no time is taken.
    pub fn on_exchange(mut self, hook: impl Fn(&Exchange<'_>) + Send + Sync + 'static) -> Self {
        self.hooks.exchange = Some(Box::new(hook));
        self
    }

    /// Reports exchanges without their duration, which saves two readings of the clock.
    pub fn without_times(self) -> Self {
        Self {
            timed: false,
            ..self
        }
    }

    /// Makes every answer its connection's last from now on, closes the listeners, and ends the
    /// waits of connections that this server serves and that have no request in progress. Does not
    /// wait; [`Server::shutdown`] does. Those for which the caller waits after
    /// [`Next::Idle`](crate::Next::Idle) are the caller's to close; the crate's page shows how.
    pub fn stop(&self) {
        self.ending.store(true, Ordering::Relaxed);
        self.stop_accepting();
        self.idle.end();
    }

    /// Does the same, but connections without a request go on waiting for one, their last.
    pub(crate) fn stop_accepting(&self) {
        // First, for those that the rest wakes look at it. Sequentially consistent, as accepting
        // asks for.
        self.stopping.store(true, Ordering::SeqCst);
        self.listeners.close();
        self.connection_limit.wake();
        #[cfg(feature = "http2")]
        self.http2.wake();
    }

    /// Returns whether [`Server::stop`] was called.
    pub fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::SeqCst)
    }

    /// Returns whether connections that have no request are to be closed. After a stop that is
    /// gentle they first have another one, whose answer says that it is the last.
    pub(crate) fn is_ending(&self) -> bool {
        self.ending.load(Ordering::Relaxed)
    }

    /// Returns the limits in force.
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Returns the handler.
    pub fn handler(&self) -> &H {
        &self.handler
    }

    pub(crate) fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    pub(crate) fn idle(&self) -> &Arc<IdleConnections> {
        &self.idle
    }

    #[cfg(feature = "http2")]
    pub(crate) fn http2(&self) -> &Connections {
        &self.http2
    }

    /// Returns what counts and limits its connections, for a program that accepts them itself (by
    /// [`Acceptor`](crate::accept::Acceptor)).
    pub fn connection_limit(&self) -> &Arc<ConnectionLimit> {
        &self.connection_limit
    }

    pub(crate) fn listeners(&self) -> &Arc<Listeners> {
        &self.listeners
    }

    pub(crate) fn fault_hook(&self) -> Option<FaultHook> {
        self.hooks.fault.clone()
    }

    /// Returns whether a hook wants to know the peer.
    pub(crate) fn knows_peers(&self) -> bool {
        self.hooks.exchange.is_some() || self.hooks.open.is_some() || self.hooks.close.is_some()
    }

    /// Returns whether a connection may begin.
    pub(crate) fn admits(&self, peer: Option<SocketAddr>) -> bool {
        self.hooks.open.as_ref().is_none_or(|hook| hook(peer))
    }

    pub(crate) fn closed(&self, peer: Option<SocketAddr>, requests: u32) {
        if let Some(hook) = &self.hooks.close {
            hook(&Closed { peer, requests });
        }
    }

    pub(crate) fn is_behind_proxy(&self) -> bool {
        self.behind_proxy
    }

    /// Returns the limits of a request.
    pub(crate) fn limits_of(&self, head: &RequestHead<'_>) -> RequestLimits {
        let mut limits = self.limits.of_request();
        if let Some(choose) = &self.request_limits {
            choose(head, &mut limits);
        }
        limits
    }

    /// Returns a permit for a request of HTTP/2, perhaps an empty one; `None`: it is refused.
    #[cfg(feature = "http2")]
    pub(crate) fn admit(&self) -> Option<Option<Permit<Arc<InProgress>>>> {
        let Some(requests) = &self.requests else {
            return Some(None);
        };
        let permit = requests.begin_owned();
        if permit.is_none() {
            self.shed(requests);
        }
        permit.map(Some)
    }

    pub(crate) fn requests(&self) -> Option<&InProgress> {
        self.requests.as_deref()
    }

    pub(crate) fn handshakes(&self) -> Option<&InProgress> {
        self.handshakes.as_deref()
    }

    /// Notes that a request was refused.
    pub(crate) fn shed(&self, requests: &InProgress) {
        requests.count_shed();
        let max = requests.max();
        self.report_fault(&Fault::TooManyRequests { max });
    }

    /// Notes that a handshake was given up.
    pub(crate) fn shed_handshake(&self, handshakes: &InProgress) {
        handshakes.count_shed();
        let max = handshakes.max();
        self.report_fault(&Fault::TooManyHandshakes { max });
    }

    fn report_fault(&self, fault: &Fault<'_>) {
        if let Some(hook) = &self.hooks.fault {
            hook(fault);
        }
    }

    pub(crate) fn keeps_fibers(&self) -> bool {
        self.keeps_fibers
    }

    pub(crate) fn pool(&self) -> &Pool {
        &self.pool
    }

    pub(crate) fn has_exchange_hook(&self) -> bool {
        self.hooks.exchange.is_some()
    }

    /// Returns the current time, if exchanges are timed.
    pub(crate) fn start_time(&self) -> Option<Instant> {
        (self.timed && self.hooks.exchange.is_some()).then(Instant::now)
    }

    /// Returns who has asked, of a connection from `peer`.
    pub(crate) fn client_of(
        &self,
        head: &RequestHead<'_>,
        peer: Option<SocketAddr>,
    ) -> Option<SocketAddr> {
        let Some(proxies) = &self.forwarded else {
            return peer;
        };
        proxies.client(head, peer)
    }

    pub(crate) fn exchanged(&self, exchange: &Exchange<'_>) {
        let Some(hook) = &self.hooks.exchange else {
            return;
        };
        match exchange.head {
            // As handlers see the client; the exchange has the connection's peer.
            Some(head) if self.forwarded.is_some() => hook(&Exchange {
                peer: self.client_of(head, exchange.peer),
                ..*exchange
            }),
            _ => hook(exchange),
        }
    }

    pub(crate) fn report(&self, error: &Error) {
        if let Some(hook) = &self.hooks.error {
            hook(error);
        }
    }
}

/// Returns what counts the connections of a server with these limits.
fn connection_limit(limits: &Limits) -> Arc<ConnectionLimit> {
    let max = match limits.connections {
        0 => affordable(1),
        most => most,
    };
    ConnectionLimit::new(max, limits.connections_per_address)
}

impl<H> fmt::Debug for Server<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server")
            .field("limits", &self.limits)
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}
