//! The life of a connection: read a request, call the handler, write the response.
//!
//! Blocking code, in two styles. [`Server::serve_stream`] is a fiber (or a thread) per connection.
//! [`Server::serve_ready`] is one turn of it: it is called when the stream is readable, answers all
//! that is there and returns. Between turns a connection is its stream and a [`ConnState`] of a few
//! bytes: no stack, no buffer.
//!
//! Answers are gathered and leave together, at the latest before the connection next waits for its
//! peer.

use std::io;
use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use http::{Method, StatusCode, header};
use plainweave::time::saturating_add;
use plainweave_serve::Idle;

use super::incoming::{Incoming, Rest};
use super::outgoing::Terms;
use crate::http2::{self, Http2};
use crate::message::body::{Decoder, Step};
use crate::message::error::Error;
use crate::message::error::request_named;
use crate::message::exchange::Exchange;
use crate::message::head::RequestHead;
use crate::message::parse::{HeadScanner, Scan, header_slots, list, parse_head};
use crate::message::proxy::{self, Proxied};
use crate::message::request::{Handler, Request};
use crate::message::response::TakeOver;
use crate::message::response::{Body, Response};
use crate::server::buffer::{Buffers, Input, Room};
use crate::server::link::{Link, LinkState, Next, Pace, millis};
use crate::server::shared::Server;
use crate::transport::stream::{Layered, Transport};
use crate::transport::upgraded::Upgraded;

/// What a connection is while it has no request in progress, beside its stream. Made by
/// [`Server::open`](crate::Server::open).
#[derive(Debug)]
pub struct ConnState {
    pub(crate) link: LinkState,
    /// The connection speaks HTTP/2.
    http2: Option<Box<Http2>>,
}

impl ConnState {
    /// Returns whether the connection was found to speak HTTP/2.
    pub fn is_http2(&self) -> bool {
        self.http2.is_some()
    }
}

impl<H: Handler> Server<H> {
    /// Takes a fresh stream in charge. Nothing is read: go on as after [`Next::Idle`] with
    /// [`Limits::header_timeout`](crate::Limits::header_timeout).
    ///
    /// # Errors
    /// The write timeout cannot be set; [`Server::on_open`] refuses the peer
    /// ([`Error::is_refused`]).
    pub fn open<S: Transport>(&self, stream: &mut S) -> Result<ConnState, Error> {
        let set = stream.set_write_timeout(self.limits().write_timeout);
        set.map_err(|error| Error::io(error, "the write timeout could not be set"))?;
        if let Some(layer) = stream.layer_mut() {
            layer.set_handshake_timeout(self.limits().handshake_timeout);
        }
        let peer = if self.knows_peers() {
            stream.peer().map(canonical)
        } else {
            None
        };
        if !self.admits(peer) {
            return Err(Error::refused());
        }
        // Where there is a layer the header comes before what that has to say.
        let awaits_proxy = match stream.layer_mut() {
            Some(layer) if self.is_behind_proxy() => {
                layer.expect_proxy_header();
                false
            }
            _ => self.is_behind_proxy(),
        };
        let write_timeout_ms = millis(self.limits().write_timeout);
        let link = LinkState {
            served: 0,
            read_timeout_ms: 0,
            write_timeout_ms,
            awaits_proxy,
            peer,
        };

        Ok(ConnState { link, http2: None })
    }

    /// Does what [`Server::open`] does, and reports an error that is no refusal.
    pub(crate) fn try_open<S: Transport>(&self, stream: &mut S) -> Option<ConnState> {
        match self.open(stream) {
            Ok(state) => return Some(state),
            Err(error) if error.is_refused() => {}
            Err(error) => self.report(&error),
        }
        None
    }

    /// Serves a connection to its end, waiting for one request after the other.
    pub fn serve_stream<S: Transport>(&self, mut stream: S) {
        let Some(mut state) = self.try_open(&mut stream) else {
            return;
        };
        // From here on a stop of the server can close it while it waits.
        let added = self.idle().add(stream.closer());
        // Also if a hook panics.
        let mut ending = Ending {
            server: self,
            state: &mut state,
            added,
        };

        let mut timeout = self.limits().header_timeout;
        while let Ok(true) = ending.wait(&mut stream, timeout) {
            ending.state.link.read_timeout_ms = 0; // The wait may have changed it.
            match self.serve_ready(&mut stream, ending.state) {
                Next::Idle(idle) => timeout = idle,
                Next::Close => return,
            }
        }

        self.end(&mut stream, ending.state);
    }

    /// Ends a connection that is idle, before it is dropped: over HTTP/2 and TLS its peer is
    /// notified, without waiting for long.
    pub fn end<S: Transport>(&self, stream: &mut S, state: &mut ConnState) {
        http2::end(stream, &mut state.http2);
        stream.end();
    }

    /// Serves the requests that have arrived. To be called when the stream is readable; blocks
    /// (within the limits) only in the middle of a request or of an answer. A connection of HTTP/2
    /// is served until no request is in progress.
    pub fn serve_ready<S: Transport>(&self, stream: &mut S, state: &mut ConnState) -> Next {
        self.serve_ready_with(stream, state, ())
    }

    /// Does what [`Server::serve_ready`] does, and drops `permit` afterwards, or as soon as the
    /// connection is found to speak HTTP/2: for a server that counts requests, whose
    /// [`Server::with_requests_in_progress`] counts them from then on.
    pub fn serve_ready_with<S: Transport, P>(
        &self,
        stream: &mut S,
        state: &mut ConnState,
        permit: P,
    ) -> Next {
        if state.http2.is_some() {
            return http2::turn(self, stream, &mut state.link, &mut state.http2);
        }
        let served = self.pool().with(|Buffers { input, encoder }| {
            let link = Link::new(stream, encoder, &mut state.link, self.limits());
            let next = Conn {
                server: self,
                link,
                input,
                readable: true,
                reported: false,
            }
            .run();
            next.ok_or_else(|| input.filled().to_vec())
        });
        // The turn is over, or the connection has begun to speak HTTP/2, which counts its requests
        // itself.
        drop(permit);
        served.unwrap_or_else(|received| {
            let ConnState { link, http2 } = state;
            http2::begin(self, stream, link, http2, &received)
        })
    }
}

/// A connection in [`Server::serve_stream`]: what follows when it ends.
struct Ending<'a, H: Handler> {
    server: &'a Server<H>,
    state: &'a mut ConnState,
    added: Idle,
}

impl<H: Handler> Ending<'_, H> {
    /// Waits until the stream is readable. False: too long.
    fn wait<S: Transport>(&mut self, stream: &mut S, timeout: Duration) -> io::Result<bool> {
        let served = self.state.link.served;
        let readable = stream.wait_readable(self.added.begin_wait(timeout, served));
        self.added.end_wait(served);
        readable
    }
}

impl<H: Handler> Drop for Ending<'_, H> {
    fn drop(&mut self) {
        let LinkState { served, peer, .. } = self.state.link;
        self.added.end_wait(served);
        self.server.closed(peer, served);
    }
}

/// A connection with a request in progress, or about to have one.
struct Conn<'a, S, H> {
    server: &'a Server<H>,
    link: Link<'a, S>,
    input: &'a mut Input,
    /// There is something to read: true once, at the beginning of a turn.
    readable: bool,
    /// The hook was called for the exchange that failed.
    reported: bool,
}

/// What becomes of a connection after a request.
enum Turn {
    Again,
    Idle,
    /// The peer speaks HTTP/2: what has come is not touched.
    Http2,
    /// The last answer is ready; `linger` when the peer may still be sending.
    Last {
        linger: bool,
    },
}

enum Head {
    /// In the buffer, with this length.
    Complete(usize),
    /// Nothing of it has come.
    Idle,
    /// Nothing of it will come.
    End,
    Http2,
}

impl<S: Transport, H: Handler> Conn<'_, S, H> {
    /// Has a turn; `None`: it goes on over HTTP/2.
    fn run(&mut self) -> Option<Next> {
        loop {
            let turn = match self.exchange() {
                // The next request may have come with this one. Answers to a pipeline leave
                // together, by the flush below.
                Ok(Turn::Again) => continue,
                Ok(Turn::Http2) => return None,
                Ok(last) => self.link.flush().map(|()| last),
                Err(error) => Err(error),
            };

            match turn {
                Ok(Turn::Last { linger: true }) => self.link.linger(self.input.discard()),
                Ok(Turn::Last { linger: false }) => self.link.stream.end(),
                // It is between two requests, so nothing of the peer's is lost.
                Ok(_) if self.server.is_ending() => self.link.stream.end(),
                Ok(_) => return Some(Next::Idle(self.server.limits().idle_timeout)),
                Err(error) => self.fail(&error),
            }

            return Some(Next::Close);
        }
    }

    /// Serves one request.
    fn exchange(&mut self) -> Result<Turn, Error> {
        let len = match self.read_head()? {
            Head::Complete(len) => len,
            Head::Idle => return Ok(Turn::Idle),
            Head::End => return Ok(Turn::Last { linger: false }),
            Head::Http2 => return Ok(Turn::Http2),
        };
        // The head stays where it is, and borrowed, until its answer is made: what the body needs
        // comes behind it.
        self.input.make_room(len);
        let (bytes, room) = self.input.split(len);
        let mut slots = header_slots();
        let head = parse_head(bytes, &mut slots)?;

        let started = self.server.start_time();
        let done = respond(self.server, &mut self.link, room, &head)
            .map_err(|error| error.of_request(&head));
        if self.server.has_exchange_hook() {
            self.reported = true;
            let duration = started.map_or(Duration::ZERO, |started| started.elapsed());
            let panic = self.link.panic.take();
            tell(
                self.server,
                &self.link,
                Some(&head),
                done.as_ref().err().or(panic.as_ref()),
                duration,
            );
        }
        let (rest, keep) = done?;
        self.reported = false;

        let take_over = self
            .link
            .take_over
            .take()
            .map(|take_over| (take_over, request_named(&head)));
        // Head and body give way to what has come behind them.
        self.input.finish(len, rest.range);
        if let Some((take_over, request)) = take_over {
            // What was said last must not be lost to a reset, and nobody knows what the peer still
            // sends.
            let done = self.take_over(take_over).map_err(|error| error.at(request));
            return done.map(|()| Turn::Last { linger: true });
        }
        if !keep {
            let unread = rest.hopeless || !rest.decoder.is_done() || !self.input.is_empty();
            // Over TLS a peer that has sent its last request says so, in bytes that nobody reads
            // otherwise.
            return Ok(Turn::Last {
                linger: unread || self.link.stream.tls().is_some(),
            });
        }
        // The answer is there already; the next request begins where this body ends.
        self.drain(rest.decoder)
            .map_err(|error| error.with_status(None))?;
        Ok(Turn::Again)
    }

    /// Hands the connection to what goes on with it after HTTP.
    fn take_over(&mut self, take_over: TakeOver) -> Result<(), Error> {
        self.link.flush()?;
        let timeout = self
            .server
            .limits()
            .idle_timeout
            .max(Duration::from_millis(1));
        let set = self.link.stream.set_read_timeout(timeout);
        set.map_err(|error| Error::io(error, "the read timeout could not be set"))?;
        let timeouts = (
            timeout,
            Duration::from_millis(self.link.state.write_timeout_ms.into()),
        );
        let mut upgraded = Upgraded::new(self.link.stream, self.input.filled(), timeouts);
        let done = catch_unwind(AssertUnwindSafe(|| take_over(&mut upgraded)));
        self.link.state.read_timeout_ms = 0; // It may have been changed.
        done.map_err(|payload| Error::panic(payload).with_status(None))
    }

    /// Takes the header of the PROXY protocol from what has come. Returns false if more of it is to
    /// come.
    fn take_proxy_header(&mut self) -> Result<bool, Error> {
        // Whatever this is, it need not speak HTTP.
        match proxy::parse(self.input.filled()).map_err(|error| error.with_status(None))? {
            Proxied::More => Ok(false),
            Proxied::Header { len, client } => {
                self.input.consume(len);
                let state = &mut *self.link.state;
                (state.awaits_proxy, state.peer) = (false, client.map(canonical).or(state.peer));
                Ok(true)
            }
        }
    }

    /// Reads until a head is complete. Waits only for the rest of one that has begun.
    fn read_head(&mut self) -> Result<Head, Error> {
        let limits = self.server.limits();
        let mut scanner = HeadScanner::default();
        let mut deadline = None;
        loop {
            if self.link.state.awaits_proxy && !self.input.is_empty() {
                if self.take_proxy_header()? {
                    continue;
                }
            } else if !self.input.is_empty() {
                if http2::begins(
                    self.server,
                    self.link.stream,
                    self.link.state,
                    self.input.filled(),
                ) {
                    return Ok(Head::Http2);
                }

                match scanner.scan(self.input.filled(), limits)? {
                    Scan::Head(len) => return Ok(Head::Complete(len)),
                    Scan::Blank(len) => {
                        self.input.consume(len);
                        scanner = HeadScanner::default();
                        continue;
                    }
                    Scan::More => {}
                }
            }
            // Nothing of a head: an end, or a silence, is then no fault of anybody's.
            let fresh = self.input.is_empty();
            // To read would be to wait, and whoever holds the connection waits better: without a
            // buffer.
            if fresh && !std::mem::take(&mut self.readable) && !self.link.stream.holds_input() {
                return Ok(Head::Idle);
            }
            let timeout =
                match fresh {
                    true => limits.header_timeout,
                    false => time_left(deadline.get_or_insert_with(|| {
                        saturating_add(Instant::now(), limits.header_timeout)
                    }))?,
                };
            let announced = fresh && self.waits_at_a_socket();
            let read = match announced && self.link.stream.layer().is_none() {
                true => self.link.try_read(self.input.space()),
                false => self.link.read(self.input.space(), timeout),
            };
            match read {
                // What was announced had been read with the request before.
                Err(error) if announced && error.is_timeout() => return Ok(Head::Idle),
                Ok(0) | Err(_) if fresh => return Ok(Head::End),
                Ok(0) => {
                    return Err(Error::closed(
                        "the peer left in the middle of a request head",
                    ));
                }
                Ok(len) => self.input.extend(len),
                Err(error) if error.is_timeout() => return Err(slow_head()),
                Err(error) => return Err(error),
            }
            self.readable = false;
            let layer = self.link.stream.layer();
            if let Some(client) = layer.and_then(|layer| layer.proxied()) {
                self.link.state.peer = Some(canonical(client));
            }
        }
    }

    /// Returns whether a socket has announced that there is something to read, which may be wrong,
    /// rarely. (Before the first request, who sends parts of a record of TLS has no more time.)
    fn waits_at_a_socket(&self) -> bool {
        let stream = &self.link.stream;
        stream.idle_socket().is_some() && (stream.layer().is_none() || self.link.state.served > 0)
    }

    /// Reads and drops what a handler left of a body that is short enough.
    fn drain(&mut self, mut decoder: Decoder) -> Result<(), Error> {
        let mut pace = Pace::new(self.link.allowed.body_timeout, self.link.allowed.min_rate);
        loop {
            match decoder.step(self.input.filled(), usize::MAX)? {
                Step::Data(len) | Step::Framing(len) | Step::Trailer(len) => {
                    self.input.consume(len)
                }
                Step::Done => return Ok(()),
                Step::More => {
                    let timeout = pace
                        .left()
                        .ok_or_else(|| Error::timeout(None, "an unread body came too slowly"))?;
                    let len = self.link.read(self.input.space(), timeout)?;
                    if len == 0 {
                        return Err(Error::closed(
                            "the peer left in the middle of an unread body",
                        ));
                    }

                    pace.progress(len);
                    self.input.extend(len);
                }
            }
        }
    }

    /// Tells the peer, where it can be told, and ends the connection.
    fn fail(&mut self, error: &Error) {
        self.server.report(error);
        // A peer that is merely silent between requests has begun no exchange.
        if !self.reported && error.status().is_some() {
            tell(self.server, &self.link, None, Some(error), Duration::ZERO);
        }
        // An answer in the middle of another one would be taken for a part of it.
        let Some(status) = error.status().filter(|_| !self.link.broken) else {
            return;
        };
        let terms = last_terms(self.server, self.input.filled());
        let sent = self
            .link
            .send(Response::plain(status), terms)
            .and_then(|_| self.link.flush());

        if sent.is_ok() {
            self.link.linger(self.input.discard());
        }
    }
}

/// Sends or gathers the handler's response. Returns what is left of the request's body, and
/// whether the connection stays open.
fn respond<S: Transport, H: Handler>(
    server: &Server<H>,
    link: &mut Link<'_, S>,
    room: Room<'_>,
    head: &RequestHead<'_>,
) -> Result<(Rest, bool), Error> {
    (link.status, link.body_bytes, link.panic) = (None, 0, None);
    link.allowed = server.limits_of(head);
    let tls = link.stream.tls().cloned();
    let client = server.client_of(head, link.state.peer);
    let mut body = Incoming::new(link, room, head)?;
    let request = Request::new(head, &mut body).with_tls(tls.as_deref());
    let (answered, panic) = answer(server, &mut request.with_client(client));
    let rest = body.finish()?;
    link.panic = panic;
    let mut response =
        answered.unwrap_or_else(|| Response::plain(StatusCode::INTERNAL_SERVER_ERROR));
    // The bytes of the new protocol would be read as the rest of this body.
    if matches!(response.body(), Body::Upgrade(_)) && (rest.hopeless || !rest.decoder.is_done()) {
        response = Response::plain(StatusCode::BAD_REQUEST);
    }
    if response.status() == StatusCode::SWITCHING_PROTOCOLS
        && head.version() != http::Version::HTTP_10
    {
        response = only_if_asked(response, head);
    }

    // Before the answer leaves, so that it already says whether it is the last.
    link.state.served = link.state.served.saturating_add(1);
    let keep_alive = head.keep_alive() && !rest.hopeless && !is_last(server, link.state);
    let version = head.version();
    let head_only = *head.method() == Method::HEAD;
    let keep = link.send(
        response,
        Terms {
            version,
            head_only,
            keep_alive,
            server: server.name(),
        },
    )?;
    Ok((rest, keep))
}

/// Returns a response that switches to another protocol, or a 426 that names it if the client has
/// not asked for it (RFC 9110, 7.8 and 15.5.22): its next bytes would be another request.
fn only_if_asked(response: Response, head: &RequestHead<'_>) -> Response {
    let Some(protocol) = response.headers().get(header::UPGRADE).cloned() else {
        return response;
    };
    let names = |field: &'static str, what: &[u8]| {
        head.header_all(field)
            .flat_map(list)
            .any(|element| element.eq_ignore_ascii_case(what))
    };

    if names("connection", b"upgrade") && names("upgrade", protocol.as_bytes()) {
        return response;
    }
    Response::plain(StatusCode::UPGRADE_REQUIRED).with_header(header::UPGRADE, protocol)
}

/// Returns how a refusal is sent after what has come of a request, which need not be a whole head:
/// an answer to HEAD has no body, whatever else is wrong with it (RFC 9110, 9.3.2).
pub(crate) fn last_terms<'s, H: Handler>(server: &'s Server<H>, request: &[u8]) -> Terms<'s> {
    let head_only = request.starts_with(b"HEAD ");
    Terms {
        version: http::Version::HTTP_11,
        head_only,
        keep_alive: false,
        server: server.name(),
    }
}

/// Returns an address as people know it: that of an IPv4 client of a socket for both families is no
/// IPv6 address.
fn canonical(address: SocketAddr) -> SocketAddr {
    match address {
        SocketAddr::V6(v6) => v6
            .ip()
            .to_ipv4_mapped()
            .map_or(address, |ip| (ip, v6.port()).into()),
        SocketAddr::V4(_) => address,
    }
}

/// Tells the hook of an exchange.
pub(crate) fn tell<S, H: Handler>(
    server: &Server<H>,
    link: &Link<'_, S>,
    head: Option<&RequestHead<'_>>,
    error: Option<&Error>,
    duration: Duration,
) {
    let status = error.and_then(Error::status).or(link.status);
    server.exchanged(&Exchange {
        peer: link.state.peer,
        head,
        status,
        body_bytes: link.body_bytes,
        duration,
        error,
    });
}

/// Returns whether a connection that has served `state.served` requests may serve no more.
fn is_last<H: Handler>(server: &Server<H>, state: &LinkState) -> bool {
    let bound = server.limits().requests;
    server.is_stopping() || (bound > 0 && state.served >= bound)
}

fn time_left(deadline: &Instant) -> Result<Duration, Error> {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() {
        Err(slow_head())
    } else {
        Ok(left)
    }
}

fn slow_head() -> Error {
    Error::timeout(
        Some(StatusCode::REQUEST_TIMEOUT),
        "the request head arrives too slowly",
    )
}

/// Calls the handler. Returns its response, or its panic, which is caught and reported here, so
/// that it costs one request.
fn answer<H: Handler>(
    server: &Server<H>,
    request: &mut Request<'_>,
) -> (Option<Response>, Option<Error>) {
    // Written where it is wanted: a response is large, and the result of the closure would be
    // copied twice.
    let mut response = None;
    let head = request.head();
    let done = catch_unwind(AssertUnwindSafe(|| {
        response = Some(server.handler().handle(request))
    }));
    let panic = done
        .err()
        .map(|payload| Error::panic(payload).of_request(head));
    panic.iter().for_each(|panic| server.report(panic));

    (response, panic)
}
