//! A connection's fiber: carries bytes, starts requests, and knows when to end.

use std::io;
use std::task::Waker;
use std::time::{Duration, Instant};

use foldhash::{HashMap, HashMapExt};
use h2::Reason;
use plainweave::{Fiber, Scope};

use super::engine::{Engine, FAREWELL, Http2, Request, Step, send_last, send_some};
use super::meter::PREFACE;
use super::pipe::Pipe;
use super::shared::{Alive, Shared};
use super::stream;
use super::wait::failed;
use crate::limits::Limits;
use crate::message::error::Error;
use crate::message::request::Handler;
use crate::server::buffer::Buffers;
use crate::server::link::{Link, LinkState, Next, Pace, slow_reader};
use crate::server::shared::Server;
use crate::transport::non_blocking::{NonBlocking, Wait};
use crate::transport::stream::{Layered, Transport};

/// Bytes of a read.
const READ: usize = 16 << 10;
/// The request line that the preface begins with, which no request of HTTP/1 has.
const OPENING: &[u8] = PREFACE.split_at(18).0;

/// Returns whether a connection of which `received` is the first to come speaks HTTP/2, and may.
pub(crate) fn begins<S: Transport, H: Handler>(
    server: &Server<H>,
    stream: &mut S,
    state: &LinkState,
    received: &[u8],
) -> bool {
    if state.served > 0 || server.limits().http2.is_none() {
        return false;
    }
    (received.starts_with(OPENING) || stream.agreed_on_http2())
        && plainweave::on_fiber()
        && stream.non_blocking().is_some()
}

/// Begins with what has come, and has the first turn. What the connection is until its next turn is
/// left in `kept`.
pub(crate) fn begin<S: Transport, H: Handler>(
    server: &Server<H>,
    stream: &mut S,
    state: &mut LinkState,
    kept: &mut Option<Box<Http2>>,
    received: &[u8],
) -> Next {
    let limits = server.limits().http2.clone().unwrap_or_default();
    let peer = state.peer.or_else(|| stream.peer());
    let http2 = Http2::new(
        server.limits(),
        &limits,
        Shared::new(peer, stream.tls().cloned()),
    );
    http2.pipe.lock().received(received);
    *kept = Some(Box::new(http2));
    turn(server, stream, state, kept)
}

/// Serves until nothing is in progress.
pub(crate) fn turn<S: Transport, H: Handler>(
    server: &Server<H>,
    stream: &mut S,
    state: &mut LinkState,
    kept: &mut Option<Box<Http2>>,
) -> Next {
    let Some(mut http2) = kept.take() else {
        return Next::Close;
    };
    // It is not idle any more, and others may be.
    http2.idle_place = None;
    let served = run(&mut http2, server, stream);
    state.served = http2.shared.served();
    match served {
        Ok(Some(idle)) => {
            drop(http2.shared.take_spare());
            let most = server
                .limits()
                .http2
                .as_ref()
                .map_or(0, |limits| limits.idle);
            http2.idle_place = server.http2().begin_idle(most);
            if http2.idle_place.is_some() {
                http2.pipe.lock().release();
                *kept = Some(http2);
                return Next::Idle(idle);
            }
            // More connections than there is room for are idle: this one ends, since it is the
            // newest of them, and says so.
            http2.farewell(stream);
        }
        Ok(None) => {}
        Err(error) => server.report(&error),
    }
    // Closed at once, a socket with unread bytes sends a reset, which can take the last answer from
    // the client.
    let lingers = !http2.pipe.lock().ended && http2.shared.may_wait(|| server.admit());
    let _permit = http2.shared.take_spare();
    drop(http2);
    stream.end();
    if lingers {
        server.pool().with(|Buffers { input, encoder }| {
            Link::new(stream, encoder, state, server.limits()).linger(input.discard());
        });
    }
    Next::Close
}

/// Ends a connection that is idle: says so, without waiting for long.
pub(crate) fn end<S: Transport>(stream: &mut S, kept: &mut Option<Box<Http2>>) {
    if let Some(mut http2) = kept.take() {
        http2.farewell(stream);
    }
}

/// Has a turn. Returns how long the connection may be idle; `None`: it is over.
fn run<S: Transport, H: Handler>(
    http2: &mut Http2,
    server: &Server<H>,
    stream: &mut S,
) -> Result<Option<Duration>, Error> {
    // Requests and answers cross on a connection, so a read must not hold up a write.
    let Some(stream) = stream.non_blocking() else {
        return Ok(None);
    };
    let _listed = server.http2().add(http2.shared.wakeups.clone());
    let Http2 {
        engine,
        pipe,
        shared,
        idle,
        drains,
        ..
    } = http2;
    let shared = &*shared;
    let pipe = &*pipe;
    plainweave::scope(|scope| {
        let mut turn = Turn {
            server,
            stream,
            engine,
            pipe,
            shared,
            idle,
            drains,
            scope,
            waker: Waker::from(shared.wakeups.clone()),
            buf: vec![0; READ],
            streams: HashMap::new(),
            sending: None,
            middle: None,
            reason: Reason::NO_ERROR,
        };
        let done = turn.run();
        if !matches!(done, Ok(Some(_))) {
            // Before the scope waits for the requests, which would otherwise go on without a
            // client.
            turn.end();
        }
        done
    })
}

/// A connection that has a fiber.
struct Turn<'a, 'scope, 'env, H: Handler> {
    server: &'env Server<H>,
    stream: &'a mut dyn NonBlocking,
    engine: &'a mut Engine,
    pipe: &'a Pipe,
    shared: &'env Shared,
    idle: &'a mut Instant,
    drains: &'a mut Option<Instant>,
    scope: &'scope Scope<'scope, 'env>,
    waker: Waker,
    buf: Vec<u8>,
    /// Requests that have a fiber.
    streams: HashMap<u32, Fiber>,
    /// While the client has not taken all that there is.
    sending: Option<Sending>,
    /// Since when the rest of something is awaited.
    middle: Option<Instant>,
    /// Why the connection ends, for the client.
    reason: Reason,
}

/// The time that the client has to take what there is.
struct Sending {
    pace: Pace,
    /// When it last took any of it.
    last: Instant,
    /// For how long it may take nothing.
    silence: Duration,
}

impl Sending {
    fn new(limits: &Limits) -> Self {
        let pace = Pace::new(limits.write_timeout, limits.min_rate);
        Self {
            pace,
            last: Instant::now(),
            silence: limits.write_timeout,
        }
    }

    fn progress(&mut self, len: usize) {
        self.pace.progress(len);
        self.last = Instant::now();
    }

    /// Returns how long the next wait may be.
    fn left(&mut self) -> Result<Duration, Error> {
        let silent = self
            .silence
            .checked_sub(self.last.elapsed())
            .filter(|left| !left.is_zero());
        self.pace
            .left()
            .zip(silent)
            .map(|(pace, silent)| pace.min(silent))
            .ok_or_else(slow_reader)
    }
}

impl<H: Handler> Turn<'_, '_, '_, H> {
    fn run(&mut self) -> Result<Option<Duration>, Error> {
        if self.ask_for_end() {
            // Before it is known whether the client has gone.
            self.advance()?;
        }
        loop {
            // Read first: a frame may concern what would be sent next (a reset, a larger window).
            let more = self.receive()?;
            let mut open = self.advance()?;
            // What has come with the preface was not read here.
            if self.pipe.lock().meter.is_flooded() {
                return Err(self.flooded());
            }
            if more || !self.streams.is_empty() {
                // Short answers are there afterwards, and leave together.
                plainweave::yield_now();
                if self.shared.wakeups.take() {
                    open = open && self.advance()?;
                }
            }
            // Before their answers leave: the client may begin another request for each.
            self.reap();
            let room = self.send()?;
            if !open {
                return Ok(None);
            }
            let asked = self.ask_for_end();
            if room || more || asked || self.shared.wakeups.take() {
                continue;
            }
            let idle = self
                .server
                .limits()
                .idle_timeout
                .saturating_sub(self.idle.elapsed());
            let over = self.streams.is_empty() && idle.is_zero();
            if over || self.is_drained() {
                return Ok(None);
            }
            if self.is_idle() {
                return Ok(Some(idle));
            }
            // Those that were refused wait for nobody.
            if self.streams.is_empty() && !self.shared.may_wait(|| self.server.admit()) {
                return Ok(None);
            }
            self.wait(idle)?;
        }
    }

    /// Reads what has arrived. Returns whether there may be more.
    fn receive(&mut self) -> Result<bool, Error> {
        let mut pipe = self.pipe.lock();
        // What has come and was not taken bounds what is read: the window of TCP closes behind it.
        if pipe.ended || !pipe.is_drained() {
            return Ok(false);
        }
        let more = match self.stream.try_read(&mut self.buf) {
            // The requests in progress report that the client has left.
            Ok(0) => {
                pipe.ended = true;
                false
            }
            Ok(len) => {
                pipe.received(&self.buf[..len]);
                // A read that was not filled has taken all that there was.
                len == self.buf.len()
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
            Err(_) => {
                pipe.ended = true;
                false
            }
        };
        if pipe.meter.is_flooded() {
            return Err(self.flooded());
        }
        Ok(more)
    }

    /// Returns the error for too many frames that ask for nothing, and notes the reason for GOAWAY.
    fn flooded(&mut self) -> Error {
        self.reason = Reason::ENHANCE_YOUR_CALM;
        Error::bad("the client floods the connection with frames that ask for nothing")
            .with_status(None)
    }

    /// Has the engine take what has arrived, and starts requests. Returns whether the connection is
    /// still open.
    fn advance(&mut self) -> Result<bool, Error> {
        loop {
            match self.engine.poll(&self.waker) {
                Step::Waits => break,
                Step::Request(request) => self.start(*request),
                Step::Over => return Ok(false),
                // The client has left, which nobody minds but the requests in progress.
                Step::Failed(error) if error.is_io() || error.is_remote() => return Ok(false),
                Step::Failed(error) => {
                    return Err(failed(error, "the client breaks the rules of HTTP/2"));
                }
            }
        }
        let mut pipe = self.pipe.lock();
        // The handlers of requests that the client has taken back need not go on.
        let reset = pipe.meter.take_reset();
        self.shared
            .set_least_piece(pipe.meter.least_piece(self.streams.len()));
        drop(pipe);
        for id in reset {
            if let Some(fiber) = self.streams.get(&id) {
                fiber.cancel();
            }
        }
        Ok(true)
    }

    fn start(&mut self, (request, mut respond): Request) {
        self.reap();
        let id = respond.stream_id().as_u32();
        if self.streams.len() >= self.server.limits().streams() as usize {
            // The client has reset others, whose handlers go on.
            return respond.send_reset(Reason::REFUSED_STREAM);
        }

        let server = self.server;
        let shared = self.shared;
        let alive = Alive { shared, id };
        let fiber = self.scope.spawn(move || {
            let _alive = alive;
            stream::serve(server, shared, request, respond);
        });

        // If it has ended already, on another worker, `reap` takes it out again.
        self.streams.insert(id, fiber.fiber());
    }

    /// Forgets requests that have ended.
    fn reap(&mut self) {
        for id in self.shared.take_ended() {
            self.streams.remove(&id);
            *self.idle = Instant::now();
        }
    }

    /// Sends what the engine has written. Returns whether it has waited for that.
    fn send(&mut self) -> Result<bool, Error> {
        let limits = self.server.limits();
        let mut room = false;
        loop {
            let mut pipe = self.pipe.lock();
            let sent = send_some(self.stream, pipe.out());
            if let Ok(None) = sent {
                self.sending = None;
                return Ok(room);
            }
            let sending = self.sending.get_or_insert_with(|| Sending::new(limits));
            match sent {
                Ok(len) => {
                    let len = len.unwrap_or(0);
                    // Requests wait for room in the pipe, and may go on.
                    room |= pipe.sent(len);
                    sending.progress(len);

                    // An answer leaves; answers to pings are silence.
                    if self.engine.has_streams() {
                        *self.idle = Instant::now();
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    return sending.left().map(|_| room);
                }
                Err(error) => return Err(Error::io(error, "the answers could not be sent")),
            }
        }
    }

    /// Announces the end of the connection once that is due. Returns whether it did so now.
    fn ask_for_end(&mut self) -> bool {
        let bound = self.server.limits().requests;
        let full = bound > 0 && self.shared.served() >= bound;
        let asked =
            self.drains.is_none() && (full || self.server.is_stopping() || self.shared.is_last());
        if asked {
            self.engine.drain();
            *self.drains = Some(Instant::now());
        }

        asked
    }

    /// Returns whether the end was announced long enough ago for the client to have answered.
    fn is_drained(&self) -> bool {
        let limit = self.server.limits().linger_timeout;
        self.drained_since()
            .is_some_and(|since| since.elapsed() >= limit)
    }

    /// Returns when the end was announced, if nothing else is left to do.
    fn drained_since(&self) -> Option<Instant> {
        self.drains.filter(|_| self.has_nothing())
    }

    fn has_nothing(&self) -> bool {
        // Not while something is sent that was taken already.
        let unsent = self.sending.is_some();
        self.streams.is_empty()
            && !unsent
            && !self.engine.has_streams()
            && self.pipe.lock().out().is_empty()
    }

    fn is_idle(&self) -> bool {
        self.has_nothing()
            && self.drains.is_none()
            && matches!(self.engine, Engine::Open(_))
            && !self.pipe.lock().meter.is_in_the_middle()
    }

    /// Waits for the client and the requests. `idle`: for how long, if there are none.
    fn wait(&mut self, idle: Duration) -> Result<(), Error> {
        let limits = self.server.limits();
        let drained_since = self.drained_since();
        let pipe = self.pipe.lock();
        let mut limit = if self.streams.is_empty() {
            idle
        } else {
            Duration::MAX
        };
        // Of what belongs to a request, the request's own limits know.
        let middle = match self.streams.is_empty() {
            true => pipe.meter.is_in_the_middle(),
            false => pipe.meter.is_in_a_block(),
        };
        self.middle = self.middle.filter(|_| middle);
        if middle {
            let left = limits
                .header_timeout
                .checked_sub(self.middle.get_or_insert_with(Instant::now).elapsed());
            let slow = || {
                Error::timeout(
                    None,
                    "the head of a request, or another frame, arrives too slowly",
                )
            };
            limit = limit.min(left.filter(|left| !left.is_zero()).ok_or_else(slow)?);
        }
        if let Some(since) = drained_since {
            limit = limit.min(limits.linger_timeout.saturating_sub(since.elapsed()));
        }
        let mut wait = Wait::new(&self.shared.wakeups, limit);
        // It would be readable at once, again and again.
        wait.reads = !pipe.ended && pipe.is_drained();
        wait.writes = !pipe.out().is_empty() || self.sending.is_some();
        drop(pipe);
        if let Some(sending) = self.sending.as_mut().filter(|_| wait.writes) {
            wait.limit = limit.min(sending.left()?);
        }
        self.stream
            .wait(&wait)
            .map_err(|error| Error::io(error, "the connection was ended"))
    }

    /// Ends the connection: says so, and cancels what is in progress.
    fn end(&mut self) {
        self.engine.abort(self.reason);
        // Once more, so that GOAWAY with its reason is among what is sent last.
        self.engine.poll(&self.waker);
        *self.engine = Engine::Over;
        self.scope.cancel();
        let patient = self.shared.may_wait(|| self.server.admit());
        let limit = if patient {
            self.server.limits().linger_timeout
        } else {
            FAREWELL
        };

        send_last(self.stream, self.pipe, self.shared, limit);
    }
}
