//! What runs the connections: fibers. All of the glue between the server and the runtime is in this
//! file.
//!
//! A connection is a few bytes at the driver while it is idle (`net::each_readable`); each request
//! it sends starts a fresh fiber. `--architecture` chooses other ways; `architecture` says what
//! they are.

use std::fmt;
use std::io;
use std::ops::ControlFlow;
use std::sync::{Arc, Weak};
use std::time::Duration;

use plainweave::net;
use plainweave::trace::Tracer;
use plainweave_http::accept::ConnectionPermit;
use plainweave_http::files::{Blocking, StaticFiles};
use plainweave_http::{
    ConnState, Handler, Listener, Next, Request, Response, Server, StatusCode, Transport,
};

use super::accept::{Acceptor, Admission, SharedAcceptor};
use super::faults::Faults;
use super::flags::RuntimeFlags;
use super::https::Https;
use super::in_progress::InProgress;
use super::listen::Served;
use super::tls::{Stream, Tls, connection, shake_hands, shakes_hands, socket};
use plainweave_daemon::architecture::{Architecture, Handling, Loops, Runtimes, in_turn};
use plainweave_daemon::bench_block::BenchBlock;
use plainweave_daemon::engine::Setup;
use plainweave_daemon::signals::Stop;
use plainweave_daemon::stalls::Stalls;

type WebServer = Server<Site>;

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

/// The files, and where requests for them are handled.
#[derive(Debug)]
pub(super) struct Site {
    files: StaticFiles<Pool>,
    https: Https,
    handling: Handling,
}

impl Handler for Site {
    fn handle(&self, request: &mut Request<'_>) -> Response {
        if let Some(response) = self.https.redirected(request) {
            return response;
        }
        let head = request.head();
        let response = self.handling.call(|| self.files.respond(head));
        let response =
            response.unwrap_or_else(|_| Response::plain(StatusCode::SERVICE_UNAVAILABLE));
        self.https.marked(request, response)
    }
}

/// The chosen runtimes, described by `Display` in the start-up line.
#[derive(Debug)]
pub(super) struct Engine(Arc<Runtimes>);

impl fmt::Display for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Engine {
    pub(super) fn choose(
        flags: &RuntimeFlags,
        stalls: Option<&Arc<Stalls>>,
        traced: bool,
    ) -> anyhow::Result<Self> {
        let workers = flags.workers;
        let policy = flags.policy.as_deref();
        let setup = Setup {
            name: "web",
            workers,
            io: flags.io,
            policy,
            mode: flags.mode(),
            waits: flags.bench.waits.as_deref(),
            stalls,
            traced,
        };

        Ok(Self(Arc::new(Runtimes::start(
            setup,
            flags.architecture.architecture,
            flags.pools.as_ref(),
        )?)))
    }

    /// For the admin address, which does not keep them alive.
    pub(super) fn runtimes(&self) -> Weak<Runtimes> {
        Arc::downgrade(&self.0)
    }

    /// Returns what the runtimes record.
    pub(super) fn tracers(&self) -> Vec<Tracer> {
        self.0.tracers()
    }

    /// Makes the handler of these files.
    pub(super) fn site(
        &self,
        files: StaticFiles<Pool>,
        block: Option<BenchBlock>,
        https: Https,
    ) -> Site {
        Site {
            files,
            https,
            handling: self.0.handling(block),
        }
    }

    /// Returns the number of workers that serve connections.
    pub(super) fn workers(&self) -> usize {
        self.0.workers()
    }

    /// After `run`.
    pub(super) fn end(self) {
        // Nobody else has them for longer than it takes to read their figures.
        if let Some(runtimes) = Arc::into_inner(self.0) {
            runtimes.shutdown(CANCELLED);
        }
    }

    /// Serves until `stop`, then gives requests in progress the time of `grace`. False: it was not
    /// enough.
    pub(super) fn run(
        &self,
        server: &Arc<WebServer>,
        admission: &Admission,
        listeners: Vec<Served>,
        stop: Stop,
        grace: Duration,
    ) -> io::Result<bool> {
        for (listener, tls) in &listeners {
            let acceptor = Acceptor::new(listener.try_clone()?, admission);
            let Admission {
                in_progress,
                handshakes,
                faults,
                ..
            } = admission.clone();
            let service = Arc::new(Service {
                server: server.clone(),
                tls: tls.clone(),
                in_progress,
                handshakes,
                faults,
            });

            self.accept(acceptor, service);
        }

        stop.wait()?;
        server.stop();
        listeners.iter().for_each(|(listener, _)| listener.close());
        self.0.close_idle_connections();

        Ok(self.0.wait_idle(grace))
    }

    /// Starts what accepts a listener's connections.
    fn accept(&self, acceptor: Acceptor, service: Arc<Service>) {
        let runtime = &self.0.main;
        let loops = self.0.loops.clone();
        match self.0.architecture {
            Architecture::Acceptors(number) => {
                let acceptor = Arc::new(SharedAcceptor::new(acceptor));
                for _ in 0..number.get() {
                    let acceptor = acceptor.clone();
                    let service = service.clone();
                    in_turn(runtime, move || accept_and_serve(&acceptor, &service));
                }
            }
            architecture => {
                runtime
                    .spawn(move || accept(acceptor, service, architecture.has_fiber_each(), loops));
            }
        }
    }
}

/// Has connections accepted until the server stops. `fiber_each`: a fiber per connection.
///
/// Context: a fiber, which has nothing more to do then.
fn accept(acceptor: Acceptor, service: Arc<Service>, fiber_each: bool, loops: Arc<Loops>) {
    let server = service.server.clone();
    let stopping = move || server.is_stopping();
    acceptor.each(stopping, move |stream, permit| {
        let stream = connection(stream, service.tls.as_ref());
        if fiber_each {
            let server = service.server.clone();
            loops.deal(move || {
                let _permit = permit;
                server.serve_stream(stream);
            });
        } else {
            let service = service.clone();
            let connection = Admitted {
                stream,
                _permit: permit,
            };
            loops.deal(move || service.begin(connection));
        }
    });
}

/// Accepts a connection, serves it to its end, and accepts the next one, until the server stops.
fn accept_and_serve(acceptor: &SharedAcceptor, service: &Service) {
    while let Some((stream, permit)) = acceptor.next(|| service.server.is_stopping()) {
        let _permit = permit;
        service
            .server
            .serve_stream(connection(stream, service.tls.as_ref()));
    }
}

/// A connection without a fiber of its own.
struct Admitted {
    stream: Stream,
    _permit: ConnectionPermit,
}

/// One that waits for its next request; without it once it waits elsewhere.
struct Waiting(Option<(Admitted, ConnState)>);

impl net::HasSocket for Waiting {
    fn socket(&self) -> net::SocketRef<'_> {
        let (connection, _) = self
            .0
            .as_ref()
            .unwrap_or_else(|| unreachable!("asked where it begins to wait"));
        socket(&connection.stream).socket()
    }
}

/// What a connection without a fiber needs when it gets one.
struct Service {
    server: Arc<WebServer>,
    tls: Option<Tls>,
    in_progress: Arc<InProgress>,
    handshakes: Arc<InProgress>,
    faults: Arc<Faults>,
}

impl Service {
    /// Opens a connection, on a fiber of its own, and waits for its first byte without one. If it
    /// is there already, as it is when connections have queued, it is answered at once: what is
    /// accepted and not answered would be a second queue, without the first one's bound.
    fn begin(self: Arc<Self>, mut connection: Admitted) {
        let Ok(mut state) = self.server.open(&mut connection.stream) else {
            return;
        };
        if socket(&connection.stream).is_readable() {
            if let Next::Idle(limit) = self.turn(&mut connection.stream, &mut state) {
                self.leave_idle(connection, state, limit);
            }
        } else {
            let limits = self.server.limits();
            let shakes_hands = shakes_hands(&connection.stream);
            let limit = if shakes_hands {
                limits.handshake_timeout
            } else {
                limits.header_timeout
            };

            self.leave_idle(connection, state, limit);
        }
    }

    /// A fresh fiber serves what has come, and then the connection waits again, in the same memory
    /// unless the time for which it may be idle has changed. A time that is over, or the server's
    /// stop, drops the connection.
    fn leave_idle(self: Arc<Self>, connection: Admitted, state: ConnState, limit: Duration) {
        net::each_readable(
            Waiting(Some((connection, state))),
            Some(limit),
            move |waiting, outcome| {
                let Some((connection, state)) = &mut waiting.0 else {
                    return ControlFlow::Break(());
                };
                if outcome.is_err() {
                    self.server.end(&mut connection.stream, state);
                    return ControlFlow::Break(());
                }

                let Next::Idle(next) = self.turn(&mut connection.stream, state) else {
                    return ControlFlow::Break(());
                };
                if next == limit {
                    return ControlFlow::Continue(());
                }
                if let Some((connection, state)) = waiting.0.take() {
                    self.clone().leave_idle(connection, state, next);
                }
                ControlFlow::Break(())
            },
        );
    }

    /// Serves what has come, or refuses it if as many requests are in progress as there is memory
    /// for. A handshake takes none of their permits: it has its own.
    fn turn(&self, stream: &mut Stream, state: &mut ConnState) -> Next {
        if shakes_hands(stream) {
            let Some(_permit) = self.handshakes.begin() else {
                // An answer would take a handshake first.
                self.handshakes.count_shed();
                self.faults.shed_handshake(self.handshakes.max());
                return Next::Close;
            };

            if let Some(waits) = shake_hands(stream, self.server.limits()) {
                return waits;
            }
        }

        // Over HTTP/2 each request has a permit of its own.
        if state.is_http2() {
            return self.server.serve_ready(stream, state);
        }
        if let Some(permit) = self.in_progress.begin() {
            return self.server.serve_ready_with(stream, state, permit);
        }
        if stream
            .tls()
            .is_some_and(|tls| tls.alpn.as_deref() == Some(b"h2"))
        {
            // It would take a refusal over HTTP/1 for a fault.
            self.server.end(stream, state);
            self.in_progress.count_shed();
            self.faults.shed(self.in_progress.max());
        } else if self.server.refuse(stream, state) {
            self.in_progress.count_shed();
            self.faults.shed(self.in_progress.max());
        }

        Next::Close
    }
}
