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

use super::accept::{Acceptor, Admission};
use super::connection_limit::ConnectionPermit;
use super::faults::Faults;
use super::flags::RuntimeFlags;
use super::in_progress::InProgress;
use crate::engine::{Described, Setup};
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
        let (workers, policy) = (flags.workers, flags.policy.as_deref());
        let setup = Setup { name: "web", workers, io: flags.io, policy, mode: flags.mode };
        let runtime = if flags.report_stalls { setup.start_that_reports() } else { setup.start() }?;
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
        admission: &Admission,
        listeners: Vec<TcpListener>,
        stop: Stop,
        grace: Duration,
    ) -> io::Result<bool> {
        let listeners = listeners.into_iter().map(net::TcpListener::from_std).collect::<io::Result<Vec<_>>>()?;
        for listener in &listeners {
            let acceptor = Acceptor::new(listener.try_clone()?, admission);
            let (in_progress, faults) = (admission.in_progress.clone(), admission.faults.clone());
            let service = Arc::new(Service { server: server.clone(), in_progress, faults });
            let fiber_each = self.fiber_per_connection;
            self.runtime.spawn(move || accept(acceptor, &service, fiber_each));
        }
        stop.wait()?;
        server.stop();
        listeners.iter().for_each(net::TcpListener::close);
        self.runtime.close_idle_connections();
        Ok(self.runtime.wait_idle(grace))
    }
}

/// Accepts until the server stops. `fiber_each`: a fiber per connection.
fn accept(mut acceptor: Acceptor, service: &Arc<Service>, fiber_each: bool) {
    while let Some((stream, permit)) = acceptor.next(|| service.server.is_stopping()) {
        if fiber_each {
            let server = service.server.clone();
            plainweave::spawn(move || {
                let _permit = permit;
                server.serve(stream);
            });
        } else {
            service.clone().begin(Admitted { stream, _permit: permit });
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

/// What a connection without a fiber needs when it gets one.
struct Service {
    server: Arc<WebServer>,
    in_progress: Arc<InProgress>,
    faults: Arc<Faults>,
}

impl Service {
    /// Opens a connection and waits for its first byte without a fiber. If it is there already, as it is when
    /// connections have queued, it is answered before the next one is accepted: what is accepted and not answered would
    /// be a second queue, without the first one's bound.
    fn begin(self: Arc<Self>, mut connection: Admitted) {
        let Ok(mut state) = self.server.open(&mut connection.stream) else { return };
        if connection.stream.is_readable() {
            plainweave::spawn(move || {
                if let Next::Park(limit) = self.turn(&mut connection.stream, &mut state) {
                    self.park(connection, state, limit);
                }
            });
        } else {
            let limit = self.server.limits().header_timeout;
            self.park(connection, state, limit);
        }
    }

    /// A fresh fiber serves what has come, then parks the connection again. An idle time that is over, or the server's
    /// stop, drops the connection.
    fn park(self: Arc<Self>, connection: Admitted, mut state: ConnState, limit: Duration) {
        net::on_readable(connection, Some(limit), move |mut connection, outcome| {
            if outcome.is_ok()
                && let Next::Park(limit) = self.turn(&mut connection.stream, &mut state)
            {
                self.park(connection, state, limit);
            }
        });
    }

    /// Serves what has come, or refuses it if as many requests are in progress as there is memory for.
    fn turn(&self, stream: &mut TcpStream, state: &mut ConnState) -> Next {
        if let Some(_permit) = self.in_progress.begin() {
            return self.server.serve_ready(stream, state);
        }
        if self.server.refuse(stream, state) {
            self.in_progress.count_shed();
            self.faults.shed(self.in_progress.max());
        }
        Next::Close
    }
}
