//! What runs the connections of a cache: fibers.
//!
//! A connection is a few bytes at the driver while it is idle (`net::each_readable`); what it sends
//! starts a fresh fiber. `--architecture` chooses other ways; `architecture` says what they are.

use std::io::{self, Write};
use std::ops::ControlFlow;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use plainweave::net::{self, TcpStream};
use plainweave::time::{saturating_add, sleep_until};
use plainweave_serve::Accepting;
use plainweave_serve::accept::{ConnectionPermit, Fault};

use super::certificates::Security;
use super::clients::Place;
use super::conn::{Conn, Next};
use super::dump;
use super::shared::Cache;
use super::stream::{Layered, Stream};
use super::tls::Tls;
use plainweave_daemon::architecture::{Architecture, Loops};
use plainweave_daemon::door::Door;
use plainweave_daemon::listening::Listening;

/// How long a client may take to be told that there are too many.
const REFUSAL_WAIT: Duration = Duration::from_millis(50);
/// Between two looks for expired items: usually, and while many are found.
const MAINTENANCE: Duration = Duration::from_millis(100);
const MUCH_TO_RECLAIM: Duration = Duration::from_millis(5);
/// From one reading of the certificates that a client wishes to the next.
const REFRESH: Duration = Duration::from_secs(1);
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
    /// Has a listener's connections accepted and served, beside the caller.
    ///
    /// Context: a fiber of the runtime that accepts.
    pub(super) fn start(&self, listener: Listening, security: Security) -> io::Result<()> {
        let cache = self.cache.clone();
        // Any other would be 0 or less, which the kernel takes for few.
        let backlog = u32::try_from(cache.settings.backlog).unwrap_or(0);
        let door = Door::new(listener, self.loops.clone()).with_backlog(backlog);
        let reporting = cache.clone();
        let on_fault = move |fault: &Fault<'_>| reporting.report(fault);

        let accepting = Accepting::begin(
            door,
            &cache.connection_limit,
            &cache.listeners,
            Some(Arc::new(on_fault)),
        )?;

        let stopping = move || cache.is_stopping();
        let service = self.clone();
        let serve = move |stream, permit| service.serve(stream, permit, security);

        if let Architecture::Acceptors(number) = self.architecture {
            accepting.start_in_turn(number, stopping, serve)
        } else {
            accepting.start(stopping, serve)
        }
    }

    /// Serves a new connection: to its end, or until it can wait without the caller.
    fn serve(&self, stream: TcpStream, permit: ConnectionPermit, security: Security) {
        let Some(mut conn) = self.enter(stream, permit, security) else {
            return;
        };

        // The last message of a handshake may have come with the first command.
        if conn.stream.holds_input() && !self.turn(&mut conn) {
            return self.cache.closed(&mut conn);
        }

        // Either the end of the server finds it among its connections, or this finds the end.
        if self.cache.is_stopping() {
            self.bequeath(&mut conn);
        } else if self.architecture.has_fiber_each() {
            self.live(conn);
        } else {
            self.clone().leave_idle(conn);
        }
    }

    /// Goes on with a connection that another server has accepted.
    ///
    /// Context: a fiber.
    pub(super) fn adopt(&self, connection: OwnedFd) {
        let stream = TcpStream::from_std(std::net::TcpStream::from(connection));
        let Ok(stream) = stream else { return };
        let service = self.clone();
        // Or who could not come in by a port of this server would have come in by another's.
        if !self.cache.is_open_to(&stream) {
            if self.cache.tls.as_ref().is_some_and(Tls::closes_first) {
                let text =
                    "connections of the server before this one are closed where TLS is spoken now";
                self.cache.tell(text);
            }
            return;
        }

        let permit = self.cache.connection_limit.adopt();
        self.loops
            .deal(move || service.serve(stream, permit, Security::Plain));
    }

    /// Lets a new connection in, or tells it that there are too many.
    fn enter(
        &self,
        mut stream: TcpStream,
        permit: ConnectionPermit,
        security: Security,
    ) -> Option<Conn> {
        let cache = &self.cache;
        if cache.settings.maxconns_fast && cache.connections() > cache.settings.connections {
            cache.clients.rejected.fetch_add(1, Relaxed);
            if security == Security::Plain {
                let _ = stream
                    .set_write_timeout(Some(REFUSAL_WAIT))
                    .and_then(|()| stream.write_all(TOO_MANY));
            }

            return None;
        }

        let _ = stream.set_write_timeout(Some(cache.settings.write_timeout));
        let _ = stream.set_read_timeout(cache.settings.idle_timeout);
        let now = cache.clock.now().0;
        let place = cache.clients.enter(&stream, permit, now).ok()?;
        let stream = match security {
            Security::Plain => Stream::Plain(stream),
            _ => Stream::Layered(self.secure(stream, &place, security)?),
        };

        let conn = Conn::new(stream, place);
        cache.opened(&conn);

        Some(conn)
    }

    /// Has a new connection speak TLS; waits for the handshake.
    fn secure(
        &self,
        stream: TcpStream,
        place: &Place,
        security: Security,
    ) -> Option<Box<dyn Layered>> {
        let cache = &self.cache;
        let tls = cache.tls.as_ref()?;
        // Asked after it stands among the clients that a stop ends.
        if cache.is_stopping() {
            return None;
        }

        let accepted = tls.accept(stream, security).and_then(|mut stream| {
            let timeout = cache.settings.idle_timeout.unwrap_or(Duration::MAX);
            let set = stream.bound_writes(cache.settings.write_timeout);
            let set = set.and_then(|()| stream.bound_reads(timeout));
            set.map_err(|error| error.to_string())?;
            Ok(stream)
        });

        if let Err(error) = &accepted {
            let client = &place.client;
            let is_first = tls.fails_first();
            let more = match cache.verbosity() {
                0 | 1 if is_first => " (logged once, or each with -vv; see ssl_handshake_errors)",
                0 | 1 => return None,
                _ => "",
            };

            let peer = client.peer_address();
            let text = format!("connection {} from {peer}: {error}{more}", client.id);
            cache.tell(&text);
        }

        accepted.ok()
    }

    /// A fiber for life.
    fn live(&self, mut conn: Conn) {
        loop {
            match conn.stream.wait_readable(self.cache.settings.idle_timeout) {
                Ok(()) => {}
                Err(error) => return self.silent(&mut conn, &error),
            }

            if !self.turn(&mut conn) {
                return self.cache.closed(&mut conn);
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
                    Err(_) if self.cache.heir.get().is_some() => self.bequeath(conn),
                    Err(error) => self.silent(conn, &error),
                }

                ControlFlow::Break(())
            },
        );
    }

    /// Gives the connection to the server that goes on with it, once its command is answered that
    /// has not come in full. Without such a server it ends.
    fn bequeath(&self, conn: &mut Conn) {
        if let Some(heir) = self.cache.heir.get() {
            while !conn.is_between_commands() {
                let limit = self.cache.settings.idle_timeout;
                if conn.stream.wait_readable(limit).is_err() || !self.turn(conn) {
                    return self.cache.closed(conn);
                }
            }

            // If it is not taken, it ends, too; and so does a user, who would have to log in again,
            // and a session of TLS, whose keys are here.
            if let Some(stream) = conn.stream.plain().filter(|_| !conn.is_known()) {
                let _ = heir.give(stream.as_fd());
            }
        }

        self.cache.closed(conn);
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
        loop {
            let goes_on = self.turn_once(conn);
            if !goes_on || !conn.is_unanswered() {
                return goes_on;
            }
        }
    }

    fn turn_once(&self, conn: &mut Conn) -> bool {
        let cache = &self.cache;
        match cache.turn(conn) {
            // With another server to go on, it ends as its next wait does.
            Next::Idle => !cache.is_stopping() || cache.heir.get().is_some(),
            Next::Close => false,
            Next::List(listing) => {
                let sent = dump::send(cache, listing, &mut conn.stream);
                sent.is_ok() && !cache.is_stopping()
            }
            Next::Watch(kinds) => {
                // A watcher is silent, but not idle.
                if let Ok(reader) = conn.place.client.handle() {
                    cache.watchers.watch(kinds, &mut conn.stream, reader);
                }
                false
            }
            Next::RefreshCertificates => {
                let answer = self.refresh_certificates();
                let sent = conn.stream.write_all(answer);
                let sent = sent.and_then(|()| conn.stream.flush());
                sent.is_ok() && !cache.is_stopping()
            }
            Next::Stop => {
                cache.ask_to_stop();
                false
            }
        }
    }

    /// Reads the files of TLS again, once a second at most: who wishes for it before a reading
    /// begins has the answer of that one. Returns the answer.
    fn refresh_certificates(&self) -> &'static [u8] {
        const STOPS: &[u8] = b"SERVER_ERROR the server stops\r\n";
        let wished = Instant::now();
        let Ok(mut last) = self.cache.refreshing.lock() else {
            return STOPS;
        };
        if last.began > wished {
            return last.answer;
        }
        if sleep_until(saturating_add(last.began, REFRESH)).is_err() {
            return STOPS;
        }

        last.began = Instant::now();
        let cache = self.cache.clone();
        let now = cache.clock.now();
        let reload = move || cache.tls.as_ref().map(|tls| tls.reload(now));
        last.answer = match plainweave::blocking(reload).ok().flatten() {
            Some(Ok(())) => {
                last.said.clear();
                b"OK\r\n"
            }
            Some(Err(error)) => {
                let said = format!("{error:#}");
                if last.said != said {
                    self.cache.tell(&said);
                    last.said = said;
                }
                b"SERVER_ERROR the certificates stay as they were; the log says why\r\n"
            }
            None => b"SERVER_ERROR the certificates cannot be read at the moment\r\n",
        };
        last.answer
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
