//! What runs the connections: fibers. All of the glue between the server and the runtime is in this file.
//!
//! A connection is a few bytes at the driver while it is idle (`net::on_readable`); each request it sends starts a
//! fresh fiber. With `--fiber-per-connection` it keeps one fiber for life instead.

use std::fmt;
use std::io;
use std::net::TcpListener;
use std::sync::{Arc, Weak};
use std::time::Duration;

use plainweave::Runtime;
use plainweave::net::{self, TcpStream};
use plainweave_http::files::{Blocking, StaticFiles};
use plainweave_http::{ConnState, Next, Server};

use super::accept::Acceptor;
use super::connection_limit::{ConnectionLimit, ConnectionPermit};
use super::faults::Faults;
use super::flags::RuntimeFlags;
use crate::engine::{self, Described};
use crate::signals::Stop;

type WebServer = Server<StaticFiles<Pool>>;

/// After the grace time: for cancelled requests to end.
const CANCELLED: Duration = Duration::from_millis(500);

/// Where file operations run: the runtime's blocking pool.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pool;

impl Blocking for Pool {
    fn run<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> io::Result<T> {
        plainweave::blocking(work)
    }
}

/// The chosen runtime, described by `Display` in the start-up line.
#[derive(Debug)]
pub(super) struct Engine {
    runtime: Arc<Runtime>,
    fiber_per_connection: bool,
}

impl fmt::Display for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Described(&self.runtime).fmt(f)
    }
}

impl Engine {
    pub(super) fn choose(flags: &RuntimeFlags) -> anyhow::Result<Self> {
        let start = if flags.report_stalls { engine::start_that_reports } else { engine::start };
        let runtime = start("web", flags.workers, flags.io, flags.policy.as_deref())?;
        Ok(Self { runtime: Arc::new(runtime), fiber_per_connection: flags.fiber_per_connection })
    }

    /// For the admin address, which does not keep it alive.
    pub(super) fn runtime(&self) -> Weak<Runtime> {
        Arc::downgrade(&self.runtime)
    }

    /// After `run`.
    pub(super) fn end(self) {
        // Nobody else has it for longer than it takes to read its figures.
        if let Some(runtime) = Arc::into_inner(self.runtime) {
            runtime.shutdown(CANCELLED);
        }
    }

    /// Serves until `stop`, then gives requests in progress the time of `grace`. False: it was not enough.
    pub(super) fn run(
        &self,
        server: &Arc<WebServer>,
        (connection_limit, faults): (&Arc<ConnectionLimit>, &Arc<Faults>),
        listeners: Vec<TcpListener>,
        stop: Stop,
        grace: Duration,
    ) -> io::Result<bool> {
        let listeners = listeners.into_iter().map(net::TcpListener::from_std).collect::<io::Result<Vec<_>>>()?;
        for listener in &listeners {
            let (listener, server) = (listener.try_clone()?, server.clone());
            let (connection_limit, faults) = (connection_limit.clone(), faults.clone());
            let fiber_each = self.fiber_per_connection;
            self.runtime.spawn(move || accept(Acceptor::new(listener, connection_limit, faults), &server, fiber_each));
        }
        stop.wait()?;
        server.stop();
        listeners.iter().for_each(net::TcpListener::close);
        self.runtime.close_idle_connections();
        Ok(self.runtime.wait_idle(grace))
    }
}

/// Accepts until the server stops. `fiber_each`: a fiber per connection.
fn accept(mut acceptor: Acceptor, server: &Arc<WebServer>, fiber_each: bool) {
    while let Some((stream, permit)) = acceptor.next(|| server.is_stopping()) {
        let server = server.clone();
        if fiber_each {
            plainweave::spawn(move || {
                let _permit = permit;
                server.serve(stream);
            });
        } else {
            first_step(server, Admitted { stream, _permit: permit });
        }
        // Those that are connected come before those that are not; see `backlog`.
        plainweave::yield_now();
    }
}

/// A connection without a fiber of its own.
struct Admitted {
    stream: TcpStream,
    _permit: ConnectionPermit,
}

impl net::HasStream for Admitted {
    fn stream(&self) -> &TcpStream {
        &self.stream
    }
}

/// Opens a connection and waits for its first byte without a fiber. If it is there already, as it is when connections
/// have queued, it is answered before the next one is accepted: what is accepted and not answered would be a second
/// queue, without the first one's bound.
fn first_step(server: Arc<WebServer>, mut connection: Admitted) {
    let Ok(mut state) = server.open(&mut connection.stream) else { return };
    if connection.stream.is_readable() {
        plainweave::spawn(move || {
            if let Next::Park(limit) = server.serve_ready(&mut connection.stream, &mut state) {
                park(server, connection, state, limit);
            }
        });
    } else {
        let limit = server.limits().header_timeout;
        park(server, connection, state, limit);
    }
}

/// A fresh fiber serves what has come, then parks the connection again. An idle time that is over, or the server's
/// stop, drops the connection.
fn park(server: Arc<WebServer>, connection: Admitted, mut state: ConnState, limit: Duration) {
    net::on_readable(connection, Some(limit), move |mut connection, outcome| {
        if outcome.is_ok()
            && let Next::Park(limit) = server.serve_ready(&mut connection.stream, &mut state)
        {
            park(server, connection, state, limit);
        }
    });
}
