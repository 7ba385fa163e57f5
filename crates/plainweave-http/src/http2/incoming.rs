//! A request's body as its handler reads it from the engine, which has taken it from the client
//! within the windows.

use std::io::{self, Read};
use std::net::SocketAddr;

use bytes::{Buf, Bytes};
use h2::RecvStream;
use http::{HeaderMap, StatusCode};

use super::outgoing::Outgoing;
use super::shared::Shared;
use super::wait::{failed, ready};
use crate::limits::MAX_DRAINED;
use crate::limits::RequestLimits;
use crate::message::error::Error;
use crate::message::head::{Framing, RequestHead};
use crate::message::request::RequestBody;
use crate::message::writer::may_trail;
use crate::server::link::Pace;

const CUT: &str = "the request body is cut short";

pub(super) struct Incoming<'a> {
    stream: RecvStream,
    shared: &'a Shared,
    /// What has come and was not read.
    data: Bytes,
    /// Bytes that have come.
    received: u64,
    /// The length of the body that the head announced; 0 if it announced none.
    announced: u64,
    limits: RequestLimits,
    pace: Pace,
    trailers: HeaderMap,
    /// The client keeps it back until it is asked for it.
    withheld: bool,
    done: bool,
    error: Option<Error>,
}

impl<'a> Incoming<'a> {
    pub(super) fn new(
        stream: RecvStream,
        shared: &'a Shared,
        head: &RequestHead<'_>,
        limits: RequestLimits,
    ) -> Result<Self, Error> {
        let announced = if let Framing::Length(length) = head.framing() {
            length
        } else {
            0
        };
        if announced > limits.body_bytes {
            return Err(too_large());
        }
        let pace = Pace::new(limits.body_timeout, limits.min_rate);
        let data = Bytes::new();
        let trailers = HeaderMap::new();
        let done = stream.is_end_stream();
        let withheld = head.expects_continue();
        let error = None;
        Ok(Self {
            stream,
            shared,
            data,
            received: 0,
            announced,
            limits,
            pace,
            trailers,
            withheld,
            done,
            error,
        })
    }

    /// Has the handler find no body: what the client sends is not part of the request.
    pub(super) fn withhold(&mut self) {
        self.done = true;
    }

    /// Returns the stream, of which nothing was read.
    pub(super) fn into_stream(self) -> RecvStream {
        self.stream
    }

    /// Ends the body for its handler. Returns the error that it met.
    pub(super) fn finish(&mut self) -> (Option<Error>, RequestLimits) {
        self.pace.resume();
        (self.error.take(), self.limits)
    }

    /// Returns whether the client keeps it back, and was not asked for it.
    pub(super) fn is_withheld(&self) -> bool {
        self.withheld && !self.done && self.received == 0
    }

    /// Makes it what the handler reads; `outgoing`: by which the client can be asked for it.
    pub(super) fn reading<'b>(&'b mut self, outgoing: &'b mut Outgoing<'a>) -> Reading<'b, 'a> {
        Reading {
            body: self,
            outgoing,
        }
    }

    /// Takes what the client still sends after its answer, if that is little: otherwise the stream
    /// is reset, and some clients take that for a failure.
    pub(super) fn drain(&mut self) {
        let mut dropped = 0;
        while dropped < MAX_DRAINED && self.fill().is_ok_and(|more| more) {
            let len = self.data.len();
            self.data.clear();
            if self.stream.flow_control().release_capacity(len).is_err() {
                return;
            }
            dropped += len as u64;
        }
    }

    /// Waits for data. False: the body is complete.
    fn fill(&mut self) -> Result<bool, Error> {
        while !self.done && self.data.is_empty() {
            let Self { stream, pace, .. } = self;
            match ready(|cx| stream.poll_data(cx), || pace.left(), slow)? {
                Some(data) => {
                    self.data = data.map_err(|error| failed(error, CUT))?;
                    self.received += self.data.len() as u64;
                    self.pace.progress(self.data.len());
                    if self.received > self.limits.body_bytes {
                        return Err(too_large());
                    }
                }
                None => {
                    let trailers = ready(|cx| stream.poll_trailers(cx), || pace.left(), slow)?;
                    let trailers = trailers
                        .map_err(|error| failed(error, CUT))?
                        .unwrap_or_default();
                    for (name, value) in trailers.iter().filter(|(name, _)| may_trail(name)) {
                        self.trailers.append(name, value.clone());
                    }
                    self.done = true;
                }
            }
        }
        Ok(!self.data.is_empty())
    }

    fn next(&mut self, buf: &mut [u8]) -> Result<usize, Error> {
        if !self.fill()? {
            return Ok(0);
        }
        let len = self.data.len().min(buf.len());
        self.data.copy_to_slice(&mut buf[..len]);
        // The client may send as much again.
        let released = self.stream.flow_control().release_capacity(len);
        released.map_err(|error| failed(error, CUT))?;
        Ok(len)
    }
}

/// A body while its handler may read it: the first read asks for it, if the client waits for that
/// (RFC 9110, 10.1.1).
pub(super) struct Reading<'b, 'a> {
    body: &'b mut Incoming<'a>,
    outgoing: &'b mut Outgoing<'a>,
}

fn too_large() -> Error {
    Error::too_large(
        StatusCode::PAYLOAD_TOO_LARGE,
        "the request body is too large",
    )
}

fn slow() -> Error {
    Error::timeout(
        Some(StatusCode::REQUEST_TIMEOUT),
        "the request body arrives too slowly",
    )
}

impl RequestBody for Reading<'_, '_> {
    fn trailers(&self) -> Result<HeaderMap, Error> {
        Ok(if self.body.done {
            self.body.trailers.clone()
        } else {
            HeaderMap::new()
        })
    }

    fn peer(&self) -> Option<SocketAddr> {
        self.body.shared.peer
    }

    fn limits(&self) -> RequestLimits {
        self.body.limits
    }

    fn set_limits(&mut self, limits: RequestLimits) {
        let Incoming {
            received,
            announced,
            error,
            pace,
            ..
        } = &mut *self.body;
        pace.change(limits.body_timeout, limits.min_rate);
        if *received.max(announced) > limits.body_bytes {
            error.get_or_insert_with(too_large);
        }
        self.body.limits = limits;
    }

    fn pause(&mut self) {
        self.body.pace.pause();
    }

    fn resume(&mut self) {
        self.body.pace.resume();
    }
}

impl Read for Reading<'_, '_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let Self { body, outgoing } = self;
        if buf.is_empty() {
            return Ok(0);
        }
        if let Some(error) = &body.error {
            return Err(error.clone().into());
        }
        let asked = match body.is_withheld() {
            true => outgoing.ask_for_body(),
            false => Ok(()),
        };

        body.withheld = false;
        asked.and_then(|()| body.next(buf)).map_err(|error| {
            body.error = Some(error.clone());
            error.into()
        })
    }
}
