//! The program's cache: on its runtimes, with what an operator has of it.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Weak, mpsc};
use std::time::{Duration, Instant};

use plainweave::net;
use plainweave::time::saturating_add;

use super::admin::Shown;
use super::listen::Listeners;
use super::service::{Service, maintain};
use super::shared::Cache;
use plainweave_daemon::admin::Admin;
use plainweave_daemon::architecture::Runtimes;
use plainweave_daemon::fibers::{self, FiberPages};
use plainweave_daemon::listening::{Listening, take_over};
use plainweave_daemon::signals::{self, Stop};
use plainweave_daemon::stalls::Stalls;
use plainweave_daemon::trace_file::TraceFile;

/// How long a stop waits for a client that takes none of its replies.
pub(super) const UNREAD: Duration = Duration::from_millis(500);
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
    /// `grace`. False: it was not enough.
    pub(super) fn run(
        self,
        listeners: Listeners,
        stop: Stop,
        asked: mpsc::Receiver<()>,
        grace: Duration,
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
        for listener in listeners.tcp {
            let listener = net::TcpListener::from_std(listener)?;
            handles.push(listener.try_clone()?);
            open.push(Listening::Tcp(listener));
        }

        let (unix, file) = listeners.unix.map(take_over).transpose()?.unzip();
        open.extend(unix);
        let start = || open.into_iter().try_for_each(|one| service.start(one));
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
                listener,
                FiberPages::new(watched),
                listeners.details,
                move |asked| shown.page(asked),
            )
        };

        let admin = listeners.admin.map(start).transpose()?;
        let cache = service.cache.clone();
        runtimes.main.spawn(move || maintain(&cache));
        let asker = wait(stop, asked);

        if service.cache.verbosity() >= 1 {
            let open = service.cache.connections();
            service
                .cache
                .tell(&format!("{asker} has asked to stop; connections: {open}"));
        }

        service.cache.begin_to_stop();
        runtimes.close_idle_connections();
        drop(file);
        let finished = wait_idle(&runtimes, &service.cache, grace);

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

/// Waits for commands in progress, for at most `grace`. Who takes none of its replies for a part of
/// that would not take them in the rest of it either, and is cut. False: it was not enough.
fn wait_idle(runtimes: &Runtimes, cache: &Cache, grace: Duration) -> bool {
    let end = saturating_add(Instant::now(), grace);
    loop {
        let unread = cache.clients.unread();
        let left = end.saturating_duration_since(Instant::now());
        let is_idle = runtimes.wait_idle(left.min(UNREAD));
        if is_idle || left.is_zero() {
            return is_idle;
        }
        cache.clients.cut_those_that_still_are(&unread);
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

/// Until a signal comes or a client says so. Which it was.
fn wait(stop: Stop, asked: mpsc::Receiver<()>) -> &'static str {
    let (wish, any) = mpsc::channel();
    let other = wish.clone();
    std::thread::spawn(move || {
        let _ = stop.wait();
        let _ = wish.send("a signal");
    });
    std::thread::spawn(move || {
        if asked.recv().is_ok() {
            let _ = other.send("a client");
        }
    });

    any.recv().unwrap_or("nobody")
}
