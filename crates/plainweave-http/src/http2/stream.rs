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
use crate::{Error, Exchange, Handler, Request, RequestHead, Response, Server};

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
    let fields = joined.fields(&parts);
    let mut exchange = Answer {
        server,
        shared,
        outgoing: Outgoing::new(respond, shared, server.name(), server.limits().of_request()),
        permit: None,
        started,
        head_only: parts.method == Method::HEAD,
    };
    let head = head(&parts, &fields, body.is_end_stream(), server.limits());
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
}

impl<'a, H: Handler> Answer<'a, H> {
    fn run(&mut self, head: &RequestHead<'_>, body: RecvStream) {
        let mut rest = None;
        let done = self.answer(head, body, &mut rest);
        self.end(Some(head), done);
        if let Some(mut rest) = rest {
            rest.drain();
        }
    }

    /// Refuses a request that was not admitted. An answer without a body waits for no window:
    /// without a permit this fiber must not be there for long.
    fn turn_away(&mut self, head: Option<&RequestHead<'_>>) {
        let response = Response::new(StatusCode::SERVICE_UNAVAILABLE).with_retry();
        let sent = self.outgoing.send(response, false);
        self.end(head, sent.map(|()| None));
    }

    /// Calls the handler and sends its answer. Returns its panic, or why the exchange failed.
    /// `rest` gets a body of which more may come.
    fn answer(
        &mut self,
        head: &RequestHead<'_>,
        body: RecvStream,
        rest: &mut Option<Incoming<'a>>,
    ) -> Result<Option<Error>, Error> {
        let limits = self.server.limits_of(head);
        let mut body = Incoming::new(body, self.shared, head, limits)?;
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
        let sent = self.outgoing.send(response, self.head_only).map(|()| panic);
        if sent.is_ok() && !body.is_withheld() {
            *rest = Some(body);
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
            let (status, body_bytes) = (self.outgoing.status, self.outgoing.body_bytes);
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
