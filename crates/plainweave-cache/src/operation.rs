//! The program's cache: on its runtimes, with what an operator has of it.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Weak, mpsc};
use std::time::{Duration, Instant};

use plainweave::net;
use plainweave::time::saturating_add;

use super::admin::Shown;
use super::certificates::Security;
use super::listen::Listeners;
use super::service::{Service, maintain};
use super::shared::Cache;
use plainweave_daemon::admin::Admin;
use plainweave_daemon::architecture::Runtimes;
use plainweave_daemon::fibers::{self, FiberPages};
use plainweave_daemon::listening::Listening;
use plainweave_daemon::replace::{Adopt, Offer};
use plainweave_daemon::service_manager;
use plainweave_daemon::signals::{self, Stop, Wish};
use plainweave_daemon::stalls::Stalls;
use plainweave_daemon::trace_file::TraceFile;

/// How long a stop waits for a client that takes none of its replies.
pub(super) const UNREAD: Duration = Duration::from_millis(500);
/// Between two looks at whether connections come.
const LOOK: Duration = Duration::from_millis(2);
/// After the grace time: for cancelled commands to end.
const CANCELLED: Duration = Duration::from_millis(500);

/// A cache on its runtime.
pub(super) struct Operation {
    runtimes: Arc<Runtimes>,
    service: Service,
    stalls: Option<Arc<Stalls>>,
}

impl Operation {
    pub(super) fn new(runtimes: Runtimes, cache: Cache, stalls: Option<Arc<Stalls>>) -> Self {
        let architecture = runtimes.architecture;
        let loops = runtimes.loops.clone();
        let runtimes = Arc::new(runtimes);
        let cache = Arc::new(cache);

        Self {
            runtimes,
            service: Service {
                cache,
                architecture,
                loops,
            },
            stalls,
        }
    }

    /// Returns what signals reach.
    pub(super) fn operated(&self, trace: Option<Arc<TraceFile>>) -> Operated {
        Operated {
            cache: self.service.cache.clone(),
            runtimes: Arc::downgrade(&self.runtimes),
            trace,
        }
    }

    /// Serves until `stop` or a client asks to end, then gives commands in progress the time of
    /// `grace`. False: it was not enough. `begin` is called when nothing can fail any more but
    /// accepting itself.
    pub(super) fn run(
        self,
        listeners: Listeners,
        stop: Stop,
        asked: mpsc::Receiver<()>,
        grace: Duration,
        begin: impl FnOnce(Adopt) -> anyhow::Result<Option<Offer>>,
    ) -> anyhow::Result<bool> {
        let Self {
            runtimes,
            service,
            stalls,
        } = self;
        // Before a client can ask for another verbosity.
        if service.cache.verbosity() >= 1 {
            service.cache.tell(&format!(
                "started with {}",
                service.cache.settings.summary(service.cache.store.config())
            ));
        }

        let mut open = Vec::new();
        let mut handles = Vec::new();
        for (listener, security) in listeners.tcp {
            let listener = net::TcpListener::from_std(listener)?;
            handles.push(listener.try_clone()?);
            open.push((Listening::tcp(listener, &listeners.sharing), security));
        }

        let (unix, file) = listeners.unix.unzip();
        if let Some(unix) = unix {
            let unix = net::UnixListener::from_std(unix)?;
            let unix = Listening::unix(unix, &listeners.sharing);
            open.push((unix, Security::Plain));
        }
        let mut offer = begin(adopting(&service, &runtimes))?;
        let start = || {
            let mut open = open.into_iter();
            open.try_for_each(|(listener, security)| service.start(listener, security))
        };
        runtimes.main.run(start)?;
        let cache = service.cache.clone();
        let watched = Arc::downgrade(&runtimes);
        let shown = Shown {
            cache,
            runtimes: watched.clone(),
            listeners: handles,
            stalls,
            start: Instant::now(),
        };

        let start = |listener| {
            Admin::start(
                (listener, &listeners.sharing),
                FiberPages::new(watched),
                listeners.details,
                move |asked| shown.page(asked),
            )
        };

        let admin = listeners.admin.map(start).transpose()?;
        let cache = service.cache.clone();
        runtimes.main.spawn(move || maintain(&cache));
        service_manager::ready();
        let alive = service_manager::watch(&runtimes)?;
        let wish = wait(stop, asked);
        let is_replaced = wish == Some(Wish::Successor);
        // Elsewhere a fiber waits for each command, and would take what comes for another server.
        let is_idle_elsewhere = !service.architecture.has_fiber_each();
        let heir = offer.as_ref().map(|offer| offer.heir().clone());
        let heir = heir.filter(|_| is_replaced && is_idle_elsewhere);
        if is_replaced {
            admin.iter().for_each(Admin::leave);
        } else {
            service_manager::stopping();
        }
        // The one runs fibers now and then, and the other would offer sockets that are closed.
        drop(alive);
        offer.iter_mut().for_each(Offer::close);
        // What the server before this one still gives goes to the next one, too.
        let adopting = offer.filter(|_| heir.is_some());
        let more = || adopting.as_ref().is_some_and(Offer::is_adopting);

        if service.cache.verbosity() >= 1 {
            let open = service.cache.connections();
            let asker = asker(wish);
            service
                .cache
                .tell(&format!("{asker} has asked to stop; connections: {open}"));
        }

        service.cache.begin_to_stop(heir);
        runtimes.close_idle_connections();
        drop(file);
        let finished = wait_idle(&runtimes, &service.cache, grace, more);

        // A page in progress holds the runtimes.
        drop(admin);
        if let Some(runtimes) = Arc::into_inner(runtimes) {
            runtimes.shutdown(CANCELLED);
        }
        if service.cache.verbosity() >= 1 {
            service.cache.tell("stopped");
        }
        Ok(finished)
    }
}

/// Returns what goes on with the connections of the server before this one.
fn adopting(service: &Service, runtimes: &Arc<Runtimes>) -> Adopt {
    let service = service.clone();
    let runtimes = Arc::downgrade(runtimes);
    Box::new(move |connection| {
        let service = service.clone();
        if let Some(runtimes) = runtimes.upgrade() {
            runtimes.main.spawn(move || service.adopt(connection));
        }
    })
}

/// Waits for commands in progress, for at most `grace`. Who takes none of its replies for a part of
/// that would not take them in the rest of it either, and is cut. `more`: whether connections may
/// come. False: it was not enough.
fn wait_idle(runtimes: &Runtimes, cache: &Cache, grace: Duration, more: impl Fn() -> bool) -> bool {
    let end = saturating_add(Instant::now(), grace);
    loop {
        let unread = cache.clients.unread();
        let left = end.saturating_duration_since(Instant::now());
        // First, for what comes last has its fiber then.
        let more = more();
        let is_idle = runtimes.wait_idle(left.min(UNREAD));
        match (more, is_idle) {
            _ if left.is_zero() => return is_idle,
            (false, true) => return true,
            (true, true) => std::thread::sleep(LOOK),
            (_, false) => cache.clients.cut_those_that_still_are(&unread),
        }
    }
}

/// What signals reach.
pub(super) struct Operated {
    cache: Arc<Cache>,
    runtimes: Weak<Runtimes>,
    trace: Option<Arc<TraceFile>>,
}

impl signals::Operated for Operated {
    const NAME: &'static str = "plainweave cache";

    fn reopen_logs(&self) -> bool {
        false // Messages go to standard error, logs to clients that watch.
    }

    fn reload(&self) -> Option<String> {
        let users = self.cache.users.as_ref().map(|users| match users.reload() {
            Ok(1) => "one user may log in from now on".to_owned(),
            Ok(count) => format!("{count} users may log in from now on"),
            Err(error) => format!("{error:#}; the users stay as they were"),
        });
        let now = self.cache.clock.now();
        let tls = self.cache.tls.as_ref().map(|tls| match tls.reload(now) {
            Ok(()) => "the certificates are loaded again".to_owned(),
            Err(error) => format!("{error:#}"),
        });

        let said: Vec<_> = users.into_iter().chain(tls).collect();
        (!said.is_empty()).then(|| said.join("; "))
    }

    fn trace(&self) -> Option<&TraceFile> {
        self.trace.as_deref()
    }

    fn counts(&self) -> String {
        let clients = &self.cache.clients;
        let stored = self.cache.store.stats();
        let now = self.cache.connections();
        let accepted = clients.total.load(Relaxed);
        format!(
            "{now} connections, {accepted} accepted, {} items of {} bytes",
            stored.items, stored.bytes
        )
    }

    fn fibers(&self) -> String {
        fibers::text(&self.runtimes, false, |dump| dump)
    }
}

/// Until a signal comes, or a client or a successor says so. Which it was; `None`: a client.
fn wait(stop: Stop, asked: mpsc::Receiver<()>) -> Option<Wish> {
    let (wish, any) = mpsc::channel();
    let other = wish.clone();
    std::thread::spawn(move || {
        let _ = wish.send(Some(stop.wait().unwrap_or(Wish::Signal)));
    });
    std::thread::spawn(move || {
        if asked.recv().is_ok() {
            let _ = other.send(None);
        }
    });

    any.recv().unwrap_or_default()
}

/// Returns who that is, in words.
const fn asker(wish: Option<Wish>) -> &'static str {
    match wish {
        Some(Wish::Signal) => "a signal",
        Some(Wish::Successor) => "a successor",
        None => "a client",
    }
}
