//! One request and its answer.

use std::io::{self, Read, Write};

use plainweave_http::{Body, Bytes, Framing, Method, Request, Response, StatusCode};

use super::answer::{self, AnswerHead, End};
use super::body::AnswerBody;
use super::connection::{UpstreamConnection, coarse_now};
use super::failure::{Failed, UpstreamFailure};
use super::request::{self, Wish, is_idempotent, wish};
use super::server::{ServerPlace, UpstreamServer};
use super::tunnel::tunnel;
use super::{Relaxed, Upstream};

/// Bytes of a request's body that are sent at once.
const PIECE: usize = 32 << 10;
/// A body of at most as many bytes is read before the answer begins: it is sent with its head, and
/// what goes wrong with it can still be said.
const WHOLE: u64 = 32 << 10;
/// Interim answers before one that counts.
const MOST_INTERIM: usize = 16;

/// A request on its way.
struct Passing<'r, 'a> {
    request: &'r mut Request<'a>,
    /// The path and query that it is for.
    place: &'r str,
    wish: Wish<'a>,
    /// The first bytes of the body, encoded as they are sent. A server sees nothing of a request
    /// whose client pauses before them.
    first: Vec<u8>,
    /// Nothing of the body is to come.
    is_whole: bool,
    /// Bytes of a body with a length that are to come.
    left: u64,
}

/// The head of an answer.
struct Received {
    head: AnswerHead,
    /// All of the request was sent.
    all_sent: bool,
}

/// Who is to blame for a request that could not be sent.
enum SendError {
    Client(io::Error),
    Upstream(io::Error),
}

impl Upstream {
    /// Passes a request on to one server after the other, until one takes it.
    pub(super) fn exchange(
        &self,
        request: &mut Request<'_>,
        place: &str,
    ) -> Result<Response, Failed> {
        let client = request.peer().map(|peer| peer.ip().to_canonical());
        let wish = wish(request.head());
        let mut passing = Passing {
            request,
            place,
            wish,
            first: Vec::new(),
            is_whole: true,
            left: 0,
        };
        passing.read_first()?;

        let mut last = None;
        for server in self.candidates(client) {
            let Some(entered) = server.enter() else {
                continue;
            };
            if last.is_some() {
                self.counts.retried.fetch_add(1, Relaxed);
            }
            match self.at(server, entered, &mut passing) {
                Ok(response) => {
                    server.succeeded();
                    return Ok(response);
                }
                Err(failed) => {
                    let was_sent = failed.failure != UpstreamFailure::Connect;
                    if failed.failure.is_the_servers() {
                        server.failed();
                    }
                    if was_sent {
                        return Err(failed);
                    }
                    last = Some(failed);
                }
            }
        }

        let none = || Failed::new(UpstreamFailure::Unavailable, "no server is up and has room");
        Err(last.unwrap_or_else(none))
    }

    /// Passes a request on to a server, by a connection that was kept or by a new one.
    fn at(
        &self,
        server: &UpstreamServer,
        place: ServerPlace,
        passing: &mut Passing<'_, '_>,
    ) -> Result<Response, Failed> {
        let may_repeat = is_idempotent(passing.request.method())
            && passing.request.framing() == Framing::Length(0);
        // One that may not be sent twice goes over a kept connection all the same: it was looked at
        // just now.
        if let Some(mut connection) = server.kept_connection() {
            match passing.run(&mut connection, server) {
                Err(failed) if failed.failure == UpstreamFailure::Closed && may_repeat => {
                    self.counts.retried.fetch_add(1, Relaxed);
                }
                // It says nothing of a server that it closes what is idle.
                Err(failed) if failed.failure == UpstreamFailure::Closed => {
                    return Err(Failed {
                        failure: UpstreamFailure::ClosedIdle,
                        ..failed
                    });
                }
                Err(failed) => return Err(failed),
                Ok(received) => return passing.answer(server, connection, place, received),
            }
        }

        let mut connection = server.new_connection()?;
        let received = passing.run(&mut connection, server)?;
        passing.answer(server, connection, place, received)
    }
}

impl Passing<'_, '_> {
    /// Sends the request, and reads the answer's head.
    fn run(
        &mut self,
        connection: &mut UpstreamConnection,
        server: &UpstreamServer,
    ) -> Result<Received, Failed> {
        let all_sent = match self.send(connection) {
            Ok(all_sent) => all_sent,
            // Perhaps it has said why before it closed.
            Err(SendError::Upstream(_))
                if !connection.input().is_empty() || connection.stream.is_readable() =>
            {
                false
            }
            Err(SendError::Upstream(error)) => {
                return Err(server.lost(&error));
            }
            Err(SendError::Client(error)) => {
                return Err(Failed::new(UpstreamFailure::Client, error.to_string()));
            }
        };

        let head = self.head(connection, server)?;
        Ok(Received { head, all_sent })
    }

    /// Sends head and body. False: an answer has come before all was sent.
    fn send(&mut self, connection: &mut UpstreamConnection) -> Result<bool, SendError> {
        let mut out = std::mem::take(&mut connection.output);
        out.clear();
        request::write_head(&mut out, self.request, self.place, self.wish);
        out.extend_from_slice(&self.first);
        let sent = connection.stream.write_all(&out);
        sent.map_err(SendError::Upstream)?;
        let all_sent = match self.is_whole {
            true => true,
            false => self.send_rest(connection, &mut out)?,
        };
        connection.output = out;
        Ok(all_sent)
    }

    /// Reads the first bytes of the body, if there is one.
    fn read_first(&mut self) -> Result<(), Failed> {
        match self.request.framing() {
            Framing::Length(0) => return Ok(()),
            Framing::Length(length) => self.left = length,
            Framing::Chunked => {}
        }
        let mut first = Vec::new();
        let mut piece = vec![0; PIECE];
        let read = self.read_piece(&mut piece, &mut first);
        self.is_whole =
            read.map_err(|error| Failed::new(UpstreamFailure::Client, error.to_string()))?;
        self.first = first;
        Ok(())
    }

    /// Appends the next bytes of the body, encoded. Returns whether they are the last.
    fn read_piece(&mut self, piece: &mut [u8], out: &mut Vec<u8>) -> io::Result<bool> {
        let len = self.request.read(piece)?;
        match (self.request.framing(), len) {
            (Framing::Chunked, 0) => out.extend_from_slice(b"0\r\n\r\n"),
            (Framing::Chunked, len) => {
                out.extend_from_slice(format!("{len:x}\r\n").as_bytes());
                out.extend_from_slice(&piece[..len]);
                out.extend_from_slice(b"\r\n");
            }
            (Framing::Length(_), 0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            (Framing::Length(_), len) => {
                out.extend_from_slice(&piece[..len]);
                self.left -= len as u64;
                return Ok(self.left == 0);
            }
        }
        Ok(len == 0)
    }

    /// Sends what of the body is to come.
    fn send_rest(
        &mut self,
        connection: &mut UpstreamConnection,
        out: &mut Vec<u8>,
    ) -> Result<bool, SendError> {
        let mut piece = vec![0; PIECE];
        let mut has_begun = false;
        loop {
            // It answers before it has seen all: a refusal, mostly.
            if !has_begun && connection.stream.is_readable() {
                match early(connection) {
                    Early::Nothing => {}
                    Early::Begun => has_begun = true,
                    Early::Final => return Ok(false),
                }
            }
            out.clear();
            let read = self.read_piece(&mut piece, out);
            let is_last = read.map_err(SendError::Client)?;
            let sent = connection.stream.write_all(out);
            sent.map_err(SendError::Upstream)?;
            if is_last {
                return Ok(true);
            }
        }
    }

    /// Reads the head of the answer that counts.
    fn head(
        &self,
        connection: &mut UpstreamConnection,
        server: &UpstreamServer,
    ) -> Result<AnswerHead, Failed> {
        let start = coarse_now();
        let failed =
            |failure, why: &str| Failed::new(failure, format!("{}: {why}", server.address()));
        for _ in 0..MOST_INTERIM {
            let head = loop {
                let parsed = answer::parse(connection.input());
                if let Some(head) =
                    parsed.map_err(|why| failed(UpstreamFailure::Malformed, &why))?
                {
                    break head;
                }
                // The stream bounds silence, but not a byte now and then.
                if coarse_now().saturating_sub(start) > server.limits.answer_timeout {
                    return Err(failed(
                        UpstreamFailure::Timeout,
                        "its answer takes too long",
                    ));
                }
                match connection.fill() {
                    Ok(0) if connection.input().is_empty() => {
                        return Err(failed(
                            UpstreamFailure::Closed,
                            "it has closed without an answer",
                        ));
                    }
                    Ok(0) => return Err(failed(UpstreamFailure::Malformed, "half a head")),
                    Ok(_) => {}
                    Err(error) => {
                        return Err(server.lost(&error));
                    }
                }
            };

            connection.consume(head.len);
            let is_upgrade = head.status == StatusCode::SWITCHING_PROTOCOLS;
            if head.status.is_informational() && !is_upgrade {
                continue;
            }
            let was_asked_for = self.wish != Wish::None && head.protocol.is_some();
            if is_upgrade && !was_asked_for {
                return Err(failed(
                    UpstreamFailure::Malformed,
                    "an upgrade that nobody asked for",
                ));
            }
            return Ok(head);
        }

        Err(failed(
            UpstreamFailure::Malformed,
            "interim answers without end",
        ))
    }

    /// Makes the response of an answer.
    fn answer(
        &self,
        server: &UpstreamServer,
        mut connection: UpstreamConnection,
        place: ServerPlace,
        Received { head, all_sent }: Received,
    ) -> Result<Response, Failed> {
        if let Some(protocol) = head.protocol
            && head.status == StatusCode::SWITCHING_PROTOCOLS
        {
            let limit = server.limits.tunnel_timeout;
            let response = Response::upgrade(protocol, move |client| {
                tunnel(client, connection, limit);
                drop(place);
            });
            return Ok(response.with_lines(head.lines));
        }

        let response = Response::new(head.status).with_lines(head.lines);
        // What is left of a request would be taken for another one.
        let keeps = head.keeps && all_sent;
        let is_head = *self.request.method() == Method::HEAD;
        let is_empty = matches!(
            head.status,
            StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED
        );
        if is_head || is_empty {
            if keeps {
                server.keep(connection);
            }
            let body = match head.end {
                _ if is_empty => Body::Empty,
                End::Length(length) => Body::Omitted(length),
                End::Chunked | End::Closed => Body::Stream(Box::new(io::empty()), None),
            };
            return Ok(response.with_body(body));
        }

        let keeps = keeps && head.end != End::Closed;
        let length = match head.end {
            End::Length(length) if length <= WHOLE => {
                let body = whole(&mut connection, length as usize);
                let body = body.map_err(|error| server.lost(&error))?;
                if keeps {
                    server.keep(connection);
                }
                return Ok(response.with_body(body));
            }
            End::Length(length) => {
                // What breaks off at once is no answer.
                if connection.input().is_empty() {
                    let filled = connection.fill();
                    let len = filled.map_err(|error| server.lost(&error))?;
                    if len == 0 {
                        let why = format!("{}: it has closed after a head", server.address());
                        return Err(Failed::new(UpstreamFailure::Closed, why));
                    }
                }
                Some(length)
            }
            End::Chunked | End::Closed => None,
        };
        let body = AnswerBody::new(connection, place, head.end, keeps);
        Ok(response.with_body(Body::Stream(Box::new(body), length)))
    }
}

/// What an application says before it has seen all of a request.
enum Early {
    Nothing,
    /// A good answer, which may be about what it has still to see.
    Begun,
    /// A refusal, or the end: it wants no more.
    Final,
}

fn early(connection: &mut UpstreamConnection) -> Early {
    loop {
        match answer::parse(connection.input()) {
            Ok(None) => {}
            Ok(Some(head)) if head.status.is_informational() && head.protocol.is_none() => {
                connection.consume(head.len);
                continue;
            }
            Ok(Some(head)) if head.status.is_success() => return Early::Begun,
            _ => return Early::Final,
        }
        match connection.try_fill() {
            Ok(1..) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Early::Nothing,
            _ => return Early::Final,
        }
    }
}

/// Reads a body of this many bytes.
fn whole(connection: &mut UpstreamConnection, length: usize) -> io::Result<Bytes> {
    while connection.input().len() < length {
        if connection.fill()? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }

    let body = Bytes::copy_from_slice(&connection.input()[..length]);
    connection.consume(length);
    Ok(body)
}
