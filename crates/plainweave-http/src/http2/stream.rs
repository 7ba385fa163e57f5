//! One request and its answer, on a fiber of its own.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use bytes::Bytes;
use h2::server::SendResponse;
use h2::{Reason, RecvStream};
use http::{Method, StatusCode};

use super::head::{Joined, head};
use super::incoming::Incoming;
use super::outgoing::Outgoing;
use super::shared::{Lent, Shared};
use super::tunnel::{Asked, Tunnel};
use crate::message::error::Error;
use crate::message::exchange::Exchange;
use crate::message::head::RequestHead;
use crate::message::request::{Handler, Request};
use crate::message::response::TakeOver;
use crate::message::response::{Body, Response};
use crate::server::shared::Server;
use crate::transport::upgraded::Raw;
use crate::transport::upgraded::Upgraded;

/// Serves a request.
pub(super) fn serve<H: Handler>(
    server: &Server<H>,
    shared: &Shared,
    request: http::Request<RecvStream>,
    respond: SendResponse<Bytes>,
) {
    let started = server.start_time();
    let (parts, body) = request.into_parts();
    let joined = Joined::of(&parts);
    let mut fields = joined.fields(&parts);
    let asked = Asked::of(&parts);
    if let Some(asked) = asked {
        asked.add_fields(&mut fields);
    }
    let mut exchange = Answer {
        server,
        shared,
        outgoing: Outgoing::new(respond, shared, server.name(), server.limits().of_request()),
        permit: None,
        started,
        head_only: parts.method == Method::HEAD,
        asked,
    };

    let ends = body.is_end_stream();
    let head = head(&parts, &fields, ends, asked, server.limits());
    // Before anything that may wait for the client. One address must not take all that there is.
    let counted = server.connection_limit().begin_request(shared.peer);
    if counted.is_some() {
        exchange.permit = shared.admit(|| server.admit());
    }

    match head {
        head if exchange.permit.is_none() => exchange.turn_away(head.as_ref().ok()),
        Ok(head) => exchange.run(&head, body),
        Err(error) => exchange.end(None, Err(error)),
    }
}

struct Answer<'a, H> {
    server: &'a Server<H>,
    shared: &'a Shared,
    outgoing: Outgoing<'a>,
    permit: Option<Lent<'a>>,
    started: Option<Instant>,
    /// The request is HEAD, even if the rest of its head is in error: no answer to it has a body.
    head_only: bool,
    asked: Option<Asked<'a>>,
}

/// What is left of a request that was answered.
enum Rest<'a> {
    /// A body of which more may come.
    Body(Incoming<'a>),
    /// A stream, and what goes on with it.
    Tunnel(TakeOver, Tunnel),
}

impl<'a, H: Handler> Answer<'a, H> {
    fn run(&mut self, head: &RequestHead<'_>, body: RecvStream) {
        let mut rest = None;
        let done = self.answer(head, body, &mut rest);
        self.end(Some(head), done);

        match rest {
            Some(Rest::Body(mut body)) => body.drain(),
            Some(Rest::Tunnel(take_over, tunnel)) => {
                if let Err(error) = self.take_over(take_over, tunnel) {
                    self.server.report(&error.of_request(head));
                }
            }
            None => {}
        }
    }

    /// Hands the stream to what goes on with it after HTTP, and ends it.
    fn take_over(&mut self, take_over: TakeOver, mut tunnel: Tunnel) -> Result<(), Error> {
        let timeouts = self.timeouts();
        let mut upgraded = Upgraded::new(&mut tunnel, &[], timeouts);
        let done = catch_unwind(AssertUnwindSafe(|| take_over(&mut upgraded)));
        match done {
            Ok(()) => {
                // The client has left, or hears of the end.
                let _ = tunnel.shutdown_write();
                Ok(())
            }
            Err(payload) => {
                self.outgoing.reset(Reason::INTERNAL_ERROR);
                Err(Error::panic(payload).with_status(None))
            }
        }
    }

    /// Returns those of reads and writes of what takes over.
    fn timeouts(&self) -> (Duration, Duration) {
        let limits = self.server.limits();
        let least = Duration::from_millis(1);
        (
            limits.idle_timeout.max(least),
            limits.write_timeout.max(least),
        )
    }

    /// Refuses a request that was not admitted. An answer without a body waits for no window:
    /// without a permit this fiber must not be there for long.
    fn turn_away(&mut self, head: Option<&RequestHead<'_>>) {
        let response = Response::new(StatusCode::SERVICE_UNAVAILABLE).with_retry();
        let sent = self.outgoing.send(response, false);
        self.end(head, sent.map(|()| None));
    }

    /// Calls the handler and sends its answer. Returns its panic, or why the exchange failed.
    /// `rest` gets what is left to be done then.
    fn answer(
        &mut self,
        head: &RequestHead<'_>,
        body: RecvStream,
        rest: &mut Option<Rest<'a>>,
    ) -> Result<Option<Error>, Error> {
        let limits = self.server.limits_of(head);
        let mut body = Incoming::new(body, self.shared, head, limits)?;
        if self.asked.is_some() {
            body.withhold();
        }
        let mut reading = body.reading(&mut self.outgoing);
        let client = self.server.client_of(head, self.shared.peer);
        let request = Request::new(head, &mut reading).with_tls(self.shared.tls.as_deref());
        let mut request = request.with_client(client);
        let answered = catch_unwind(AssertUnwindSafe(|| {
            self.server.handler().handle(&mut request)
        }));
        let (error, limits) = body.finish();
        self.outgoing.set_limits(limits);
        let (response, panic) = match answered {
            Ok(response) => (response, None),
            Err(payload) => {
                let panic = Error::panic(payload).of_request(head);
                self.server.report(&panic);
                (
                    Response::plain(StatusCode::INTERNAL_SERVER_ERROR),
                    Some(panic),
                )
            }
        };
        if let Some(error) = error {
            return Err(error);
        }
        self.shared.count();
        let mut response = match self.asked {
            Some(asked) => asked.answer(response),
            None => response,
        };
        if self.asked.is_some() && matches!(response.body, Body::Upgrade(_)) {
            let send = self.outgoing.open(&response)?;
            if let Body::Upgrade(take_over) = std::mem::take(&mut response.body) {
                let tunnel = Tunnel::new(body.into_stream(), send, self.timeouts());
                *rest = Some(Rest::Tunnel(take_over, tunnel));
            }
            return Ok(panic);
        }
        let sent = self.outgoing.send(response, self.head_only).map(|()| panic);
        if sent.is_ok() && !body.is_withheld() {
            *rest = Some(Rest::Body(body));
        }
        sent
    }

    /// Tells the client of an error where it can be told, and the hooks of the exchange.
    fn end(&mut self, head: Option<&RequestHead<'_>>, done: Result<Option<Error>, Error>) {
        let error = match done {
            Ok(panic) => panic,
            Err(error) => {
                let error = head.into_iter().fold(error, Error::of_request);
                self.server.report(&error);
                self.refuse(&error);
                Some(error)
            }
        };

        if self.server.has_exchange_hook() {
            let status = self.outgoing.status;
            let body_bytes = self.outgoing.body_bytes;
            let duration = self
                .started
                .filter(|_| head.is_some())
                .map_or(Duration::ZERO, |started| started.elapsed());
            let status = error.as_ref().and_then(Error::status).or(status);
            let error = error.as_ref();

            self.server.exchanged(&Exchange {
                peer: self.shared.peer,
                head,
                status,
                body_bytes,
                duration,
                error,
            });
        }
    }

    fn refuse(&mut self, error: &Error) {
        let sent = match error.status() {
            Some(status) => self.outgoing.send(Response::plain(status), self.head_only),
            None => Err(error.clone()),
        };

        match sent {
            Ok(()) => {}
            // The client is the one that is slow, or has left.
            Err(error) if error.is_timeout() || error.is_closed() => {
                self.outgoing.reset(Reason::CANCEL)
            }
            Err(_) => self.outgoing.reset(Reason::INTERNAL_ERROR),
        }
    }
}
