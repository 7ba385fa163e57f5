//! What runs the connections of a cache: fibers.
//!
//! A connection is a few bytes at the driver while it is idle (`net::each_readable`); what it sends
//! starts a fresh fiber. `--architecture` chooses other ways; `architecture` says what they are.

use std::io::{self, Write};
use std::net::SocketAddr;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use plainweave::net::{self, TcpStream};
use plainweave_serve::Listener;

use super::conn::{Conn, Next};
use super::dump;
use super::shared::Cache;
use plainweave_daemon::architecture::{Architecture, Loops};
use plainweave_daemon::listening::Listening;

/// Pause after an accept that failed for lack of descriptors or memory.
const BACK_OFF: Duration = Duration::from_millis(50);
/// Between two looks for expired items: usually, and while many are found.
const MAINTENANCE: Duration = Duration::from_millis(100);
const MUCH_TO_RECLAIM: Duration = Duration::from_millis(5);
/// How many are looked at.
const LOOKS: usize = 20_000;
const TOO_MANY: &[u8] = b"ERROR Too many open connections\r\n";

/// A cache, and how its connections are run.
#[derive(Clone)]
pub(super) struct Service {
    pub(super) cache: Arc<Cache>,
    pub(super) architecture: Architecture,
    pub(super) loops: Arc<Loops>,
}

impl Service {
    /// Starts what accepts a listener's connections; `spawn` runs it on a fiber.
    pub(super) fn start(
        &self,
        listener: Listening,
        spawn: impl Fn(Box<dyn FnOnce() + Send>) -> io::Result<()>,
    ) -> io::Result<()> {
        let service = self.clone();
        let Architecture::Acceptors(number) = self.architecture else {
            return spawn(Box::new(move || service.accept_each(listener)));
        };

        let listener = Arc::new(listener);
        (0..number.get()).try_for_each(|_| {
            let service = service.clone();
            let listener = listener.clone();
            spawn(Box::new(move || service.accept(&listener)))
        })
    }

    /// Stops accepting, and ends the connections that wait for a command.
    pub(super) fn begin_to_stop(&self, listeners: &[Listening]) {
        self.cache.begin_to_stop();
        listeners.iter().for_each(Listener::close);
        self.cache.clients.end();
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
            let service = self.clone();
            self.loops.deal(move || service.begin(conn));
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

/// Reclaims what has expired, a little at a time; without pauses between, if a client has asked for
/// all of it.
pub(super) fn maintain(cache: &Cache) {
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
