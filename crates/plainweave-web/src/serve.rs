//! The handler of all requests, and the runtimes on which the library's server serves it.
//! `--architecture` chooses what runs a connection; `architecture` says which ways there are.

use std::fmt;
use std::io;
use std::sync::{Arc, Weak};
use std::time::Duration;

use plainweave::trace::Tracer;
use plainweave_http::{Handler, Listener, Request, Response, Server, StatusCode, Transport};

use super::accept::{Admission, door};
use super::flags::EngineFlags;
use super::https::Https;
use super::listen::Served;
use super::sites::{Chosen, Live};
use plainweave_daemon::architecture::{Architecture, Handling, Runtimes};
use plainweave_daemon::engine::Setup;
use plainweave_daemon::hooks::Hooks;
use plainweave_daemon::service_manager;
use plainweave_daemon::stalls::Stalls;
use plainweave_daemon::ticking::Ticking;

type WebServer = Server<Web>;
/// After the grace time: for cancelled requests to end.
const CANCELLED: Duration = Duration::from_millis(500);

/// The sites, and where requests for their files are handled.
#[derive(Debug)]
pub(super) struct Web {
    sites: Live,
    https: Https,
    handling: Handling,
}

impl Handler for Web {
    fn handle(&self, request: &mut Request<'_>) -> Response {
        if let Some(response) = self.https.redirected(request) {
            return response;
        }
        let sites = self.sites.now();
        match sites.for_request(request) {
            Chosen::Site(site) => site.answer(request, &self.handling, &self.https),
            Chosen::Nothing => Response::plain(StatusCode::NOT_FOUND),
            Chosen::Misdirected => Response::plain(StatusCode::MISDIRECTED_REQUEST),
        }
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
        flags: &EngineFlags,
        hooks: &Hooks,
        stalls: Option<&Arc<Stalls>>,
        traced: bool,
    ) -> anyhow::Result<Self> {
        let workers = flags.runtime.workers;
        let policy = flags.runtime.policy.as_deref();
        let setup = Setup {
            name: "web",
            workers,
            io: flags.runtime.io,
            policy,
            mode: flags.mode(),
            hooks,
            stalls,
            traced,
        };

        Ok(Self(Arc::new(Runtimes::start(
            setup,
            flags.serving.architecture.architecture,
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

    /// Makes the handler of these sites.
    pub(super) fn web(&self, sites: Live, hooks: &Hooks, https: Https) -> Web {
        Web {
            sites,
            https,
            handling: self.0.handling(hooks),
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

    /// Accepts and serves, beside the caller.
    pub(super) fn start(
        &self,
        server: &Arc<WebServer>,
        admission: &Admission,
        listeners: Vec<Served>,
    ) -> io::Result<()> {
        for (listener, tls) in listeners {
            let door = door(listener, admission, self.0.loops.clone());
            match tls {
                None => self.serve(server, door)?,
                Some(tls) => self.serve(server, tls.listen(door))?,
            }
        }
        Ok(())
    }

    /// Has the service manager know that the server is alive, if it asks for that.
    pub(super) fn watch(&self) -> io::Result<Option<Ticking>> {
        service_manager::watch(&self.0)
    }

    /// Has a listener's connections served.
    fn serve<L>(&self, server: &Arc<WebServer>, listener: L) -> io::Result<()>
    where
        L: Listener<Stream: Transport>,
    {
        let start = || match self.0.architecture {
            Architecture::Acceptors(number) => server.start_in_turn(listener, number),
            _ => server.start(listener),
        };
        self.0.main.run(start).map(drop)
    }
}
