//! What runs the connections: fibers. All of the glue between the cache and the runtime is in this
//! file.
//!
//! A connection is a few bytes at the driver while it is idle (`net::each_readable`); what it sends
//! starts a fresh fiber. `--architecture` chooses other ways; `architecture` says what they are.

use std::io::{self, Write};
use std::net::SocketAddr;
use std::ops::ControlFlow;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Weak, mpsc};
use std::time::{Duration, Instant};

use plainweave::Runtime;
use plainweave::net::{self, TcpStream};
use plainweave::time::saturating_add;
use plainweave_http::Listener;

use super::admin::Shown;
use super::conn::{Conn, Next};
use super::dump;
use super::listen::Listeners;
use super::shared::Cache;
use plainweave_daemon::admin::Admin;
use plainweave_daemon::architecture::{Architecture, Loops, Runtimes, in_turn};
use plainweave_daemon::fibers::{self, FiberPages};
use plainweave_daemon::listening::{Listening, take_over};
use plainweave_daemon::signals::{self, Stop};
use plainweave_daemon::stalls::Stalls;
use plainweave_daemon::trace_file::TraceFile;

/// Pause after an accept that failed for lack of descriptors or memory.
const BACK_OFF: Duration = Duration::from_millis(50);
/// How long a stop waits for a client that takes none of its replies.
const UNREAD: Duration = Duration::from_millis(500);
/// After the grace time: for cancelled commands to end.
const CANCELLED: Duration = Duration::from_millis(500);
/// Between two looks for expired items: usually, and while many are found.
const MAINTENANCE: Duration = Duration::from_millis(100);
const MUCH_TO_RECLAIM: Duration = Duration::from_millis(5);
/// How many are looked at.
const LOOKS: usize = 20_000;
const TOO_MANY: &[u8] = b"ERROR Too many open connections\r\n";

/// A cache on its runtime.
pub(super) struct Server {
    runtimes: Arc<Runtimes>,
    shared: Shared,
    stalls: Option<Arc<Stalls>>,
}

#[derive(Clone)]
struct Shared {
    cache: Arc<Cache>,
    architecture: Architecture,
    loops: Arc<Loops>,
}

impl Server {
    pub(super) fn new(runtimes: Runtimes, cache: Cache, stalls: Option<Arc<Stalls>>) -> Self {
        let architecture = runtimes.architecture;
        let loops = runtimes.loops.clone();
        let runtimes = Arc::new(runtimes);
        let cache = Arc::new(cache);

        Self {
            runtimes,
            shared: Shared {
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
            cache: self.shared.cache.clone(),
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
            shared,
            stalls,
        } = self;
        // Before a client can ask for another verbosity.
        if shared.cache.verbosity() >= 1 {
            shared.cache.tell(&format!(
                "started with {}",
                shared.cache.settings.summary(shared.cache.store.config())
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
        for listener in &open {
            shared.start(&runtimes.main, listener.try_clone()?);
        }
        let cache = shared.cache.clone();
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
        let cache = shared.cache.clone();
        runtimes.main.spawn(move || maintain(&cache));
        let asker = wait(stop, asked);

        if shared.cache.verbosity() >= 1 {
            let open = shared.cache.clients.open();
            shared
                .cache
                .tell(&format!("{asker} has asked to stop; connections: {open}"));
        }

        shared.cache.begin_to_stop();
        open.iter().for_each(Listener::close);
        runtimes.close_idle_connections();
        shared.cache.clients.end();
        drop(file);
        let finished = wait_idle(&runtimes, &shared.cache, grace);

        // A page in progress holds the runtimes.
        drop(admin);
        if let Some(runtimes) = Arc::into_inner(runtimes) {
            runtimes.shutdown(CANCELLED);
        }
        if shared.cache.verbosity() >= 1 {
            shared.cache.tell("stopped");
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
        let now = clients.open();
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

/// Reclaims what has expired, a little at a time; without pauses between, if a client has asked for
/// all of it.
fn maintain(cache: &Cache) {
    let mut pause = MAINTENANCE;
    while !cache.is_stopping() && plainweave::time::sleep(pause).is_ok() {
        let rounds = if cache.is_to_crawl() {
            cache.store.begin_round(LOOKS)
        } else {
            1
        };

        let reclaim = |_| {
            cache
                .store
                .maintain(LOOKS, cache.clock.now(), plainweave::yield_now)
        };

        let removed: usize = (0..rounds).map(reclaim).sum();
        pause = if removed > LOOKS / 10 {
            MUCH_TO_RECLAIM
        } else {
            MAINTENANCE
        };
    }
}

impl Shared {
    /// Starts what accepts a listener's connections.
    fn start(&self, runtime: &Runtime, listener: Listening) {
        let shared = self.clone();
        let Architecture::Acceptors(number) = self.architecture else {
            return in_turn(runtime, move || shared.accept_each(listener));
        };
        let listener = Arc::new(listener);

        for _ in 0..number.get() {
            let shared = shared.clone();
            let listener = listener.clone();
            in_turn(runtime, move || shared.accept(&listener));
        }
    }

    /// Has a fresh fiber accept each connection, until the listener is closed: one that waits in an
    /// accept would be held up with its worker.
    fn accept_each(self, listener: Listening) {
        net::each_readable(listener, None, move |listener, outcome| {
            let goes_on = outcome.is_ok() && self.accept_by(|| listener.try_accept());
            match goes_on {
                true => ControlFlow::Continue(()),
                false => ControlFlow::Break(()),
            }
        });
    }

    /// Accepts until the listener is closed.
    fn accept(&self, listener: &Listening) {
        while self.accept_by(|| listener.accept(None)) {}
    }

    /// Accepts a connection, once there is a place for it. Returns whether to go on.
    fn accept_by(
        &self,
        accept: impl FnOnce() -> io::Result<(TcpStream, Option<SocketAddr>)>,
    ) -> bool {
        let cache = &self.cache;
        if !cache.settings.maxconns_fast {
            cache.clients.wait_for_place(|| cache.is_stopping());
        }
        if cache.is_stopping() {
            return false;
        }

        match accept() {
            Ok((stream, _peer)) => {
                // A Unix socket has no such option.
                let _ = stream.set_nodelay(true);
                self.take(stream);
                true
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => true,
            Err(_) => plainweave::time::sleep(BACK_OFF).is_ok(),
        }
    }

    /// Has a new connection served, as the architecture has it. It counts before the next one is
    /// accepted.
    fn take(&self, stream: TcpStream) {
        let Some(conn) = self.enter(stream) else {
            return;
        };
        if matches!(self.architecture, Architecture::Acceptors(_)) {
            self.live(conn);
        } else {
            let shared = self.clone();
            self.loops.deal(move || shared.begin(conn));
        }
    }

    /// Begins to serve a connection, on a fiber of its own.
    fn begin(self, conn: Conn) {
        if self.architecture.has_fiber_each() {
            self.live(conn)
        } else {
            self.leave_idle(conn)
        }
    }

    /// Lets a new connection in, or tells it that there are too many.
    fn enter(&self, mut stream: TcpStream) -> Option<Conn> {
        let cache = &self.cache;
        if cache.settings.maxconns_fast && cache.clients.full() {
            cache.clients.rejected.fetch_add(1, Relaxed);
            let _ = stream
                .set_write_timeout(Some(BACK_OFF))
                .and_then(|()| stream.write_all(TOO_MANY));
            return None;
        }

        let _ = stream.set_write_timeout(Some(cache.settings.write_timeout));
        let _ = stream.set_read_timeout(cache.settings.idle_timeout);
        let place = cache.clients.enter(&stream, cache.clock.now().0).ok()?;
        let conn = Conn::new(stream, place);
        cache.opened(&conn);

        Some(conn)
    }

    /// A fiber for life.
    fn live(&self, mut conn: Conn) {
        loop {
            match conn.stream.wait_readable() {
                Ok(()) => {}
                Err(error) => return self.silent(&mut conn, &error),
            }

            if !self.turn(&mut conn) {
                return self.cache.closed(&conn);
            }
        }
    }

    /// Waits without a fiber; a fresh one serves what comes.
    fn leave_idle(self, conn: Conn) {
        net::each_readable(
            conn,
            self.cache.settings.idle_timeout,
            move |conn, outcome| {
                match outcome {
                    Ok(()) if self.turn(conn) => return ControlFlow::Continue(()),
                    Ok(()) => self.cache.closed(conn),
                    Err(error) => self.silent(conn, &error),
                }
                ControlFlow::Break(())
            },
        );
    }

    /// The wait for more is over.
    fn silent(&self, conn: &mut Conn, error: &io::Error) {
        if error.kind() == io::ErrorKind::TimedOut {
            self.cache.kick(conn);
        }
        self.cache.closed(conn);
    }

    /// Returns whether the connection goes on.
    fn turn(&self, conn: &mut Conn) -> bool {
        let cache = &self.cache;
        match cache.turn(conn) {
            Next::Idle => !cache.is_stopping(),
            Next::Close => false,
            Next::Dump => dump::send(cache, &mut conn.stream).is_ok() && !cache.is_stopping(),
            Next::Watch(kinds) => {
                if let Ok(stream) = conn.stream.try_clone() {
                    // A watcher is silent, but not idle.
                    let _ = stream.set_read_timeout(None);
                    cache.watchers.watch(kinds, stream);
                }
                false
            }
            Next::Stop => {
                cache.ask_to_stop();
                false
            }
        }
    }
}
