//! A request's body as its handler reads it from the engine, which has taken it from the client within the windows.

use std::io::{self, Read};
use std::net::SocketAddr;

use bytes::{Buf, Bytes};
use h2::RecvStream;
use http::{HeaderMap, StatusCode};

use super::shared::Shared;
use super::wait::{failed, ready};
use crate::head::{Framing, RequestHead};
use crate::incoming::MAX_DRAINED;
use crate::link::Pace;
use crate::request::RequestBody;
use crate::writer::may_trail;
use crate::{Error, RequestLimits};

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
        let announced = if let Framing::Length(length) = head.framing() { length } else { 0 };
        if announced > limits.body_bytes {
            return Err(too_large());
        }
        let pace = Pace::new(limits.body_timeout, limits.min_rate);
        let (data, trailers, done) = (Bytes::new(), HeaderMap::new(), stream.is_end_stream());
        Ok(Self { stream, shared, data, received: 0, announced, limits, pace, trailers, done, error: None })
    }

    /// Ends the body for its handler. Returns the error that it met.
    pub(super) fn finish(&mut self) -> (Option<Error>, RequestLimits) {
        self.pace.resume();
        (self.error.take(), self.limits)
    }

    /// Returns whether any of it has come, or all of nothing.
    pub(super) fn has_begun(&self) -> bool {
        self.done || self.received > 0
    }

    /// Takes what the client still sends after its answer, if that is little: otherwise the stream is reset, and some
    /// clients take that for a failure.
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
                    let trailers = trailers.map_err(|error| failed(error, CUT))?.unwrap_or_default();
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

fn too_large() -> Error {
    Error::too_large(StatusCode::PAYLOAD_TOO_LARGE, "the request body is too large")
}

fn slow() -> Error {
    Error::timeout(Some(StatusCode::REQUEST_TIMEOUT), "the request body arrives too slowly")
}

impl RequestBody for Incoming<'_> {
    fn trailers(&self) -> Result<HeaderMap, Error> {
        Ok(if self.done { self.trailers.clone() } else { HeaderMap::new() })
    }

    fn peer(&self) -> Option<SocketAddr> {
        self.shared.peer
    }

    fn limits(&self) -> RequestLimits {
        self.limits
    }

    fn set_limits(&mut self, limits: RequestLimits) {
        self.limits = limits;
        self.pace.change(limits.body_timeout, limits.min_rate);
        if self.received.max(self.announced) > limits.body_bytes {
            self.error.get_or_insert_with(too_large);
        }
    }

    fn pause(&mut self) {
        self.pace.pause();
    }

    fn resume(&mut self) {
        self.pace.resume();
    }
}

impl Read for Incoming<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        if buf.is_empty() {
            return Ok(0);
        }
        if let Some(error) = &self.error {
            return Err(error.clone().into());
        }
        self.next(buf).map_err(|error| {
            self.error = Some(error.clone());
            error.into()
        })
    }
}
