//! What all connections of a server share.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use http::HeaderValue;

use crate::buffer::Pool;
use crate::idle::IdleConnections;
use crate::{Error, Exchange, Handler, Limits};

type ErrorHook = Box<dyn Fn(&Error) + Send + Sync>;
type ExchangeHook = Box<dyn Fn(&Exchange<'_>) + Send + Sync>;

/// A handler, its limits and the buffers its connections borrow. Accepts nothing itself: hand it streams.
pub struct Server<H> {
    handler: H,
    limits: Limits,
    name: Option<String>,
    on_error: Option<ErrorHook>,
    on_exchange: Option<ExchangeHook>,
    timed: bool,
    pool: Pool,
    stopping: AtomicBool,
    idle: IdleConnections,
}

impl<H: Handler> Server<H> {
    /// Makes a server with the default limits.
    pub fn new(handler: H) -> Self {
        let limits = Limits::default();
        let pool = Pool::new(limits.head_bytes);
        let (name, on_error, on_exchange, timed) = (None, None, None, true);
        let (stopping, idle) = (AtomicBool::new(false), IdleConnections::default());
        Self { handler, limits, name, on_error, on_exchange, timed, pool, stopping, idle }
    }

    /// Replaces the limits.
    pub fn with_limits(self, limits: Limits) -> Self {
        Self { pool: Pool::new(limits.head_bytes), limits, ..self }
    }

    /// Sends a `Server` field.
    pub fn with_name(self, name: &str) -> Result<Self, Error> {
        HeaderValue::from_str(name).map_err(|_| Error::header("the server's name is not a header value"))?;
        Ok(Self { name: Some(name.to_owned()), ..self })
    }

    /// Calls `hook` for each connection that ended in an error, before the peer is notified.
    pub fn on_error(self, hook: impl Fn(&Error) + Send + Sync + 'static) -> Self {
        Self { on_error: Some(Box::new(hook)), ..self }
    }

    /// Calls `hook` after each exchange, on the fiber or thread that serves the connection: it must not block. Without
    /// a hook no time is taken.
    pub fn on_exchange(self, hook: impl Fn(&Exchange<'_>) + Send + Sync + 'static) -> Self {
        Self { on_exchange: Some(Box::new(hook)), ..self }
    }

    /// Reports exchanges without their duration, which saves two readings of the clock.
    pub fn without_times(self) -> Self {
        Self { timed: false, ..self }
    }

    /// Makes every answer its connection's last from now on, and ends the waits of connections in [`Server::serve`]
    /// that have no request in hand. Those for which the caller waits after [`Next::Park`](crate::Next::Park) are the
    /// caller's to close; the crate's page shows how.
    pub fn stop(&self) {
        self.stopping.store(true, Ordering::Relaxed);
        self.idle.end();
    }

    /// Returns whether [`Server::stop`] was called.
    pub fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Relaxed)
    }

    /// Returns the limits in force.
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    pub(crate) fn handler(&self) -> &H {
        &self.handler
    }

    pub(crate) fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    pub(crate) fn idle(&self) -> &IdleConnections {
        &self.idle
    }

    pub(crate) fn pool(&self) -> &Pool {
        &self.pool
    }

    pub(crate) fn has_exchange_hook(&self) -> bool {
        self.on_exchange.is_some()
    }

    /// Returns the current time, if exchanges are timed.
    pub(crate) fn start(&self) -> Option<Instant> {
        (self.timed && self.on_exchange.is_some()).then(Instant::now)
    }

    pub(crate) fn exchanged(&self, exchange: &Exchange<'_>) {
        if let Some(hook) = &self.on_exchange {
            hook(exchange);
        }
    }

    pub(crate) fn report(&self, error: &Error) {
        if let Some(hook) = &self.on_error {
            hook(error);
        }
    }
}

impl<H> fmt::Debug for Server<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server").field("limits", &self.limits).field("name", &self.name).finish_non_exhaustive()
    }
}
