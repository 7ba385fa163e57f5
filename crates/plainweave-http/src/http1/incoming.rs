//! A request body as the handler reads it.

use std::io::{self, Read};
use std::net::SocketAddr;

use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};

use crate::limits::RequestLimits;
use crate::limits::{MAX_DRAINED, MAX_HEADERS};
use crate::message::body::{Decoder, Step};
use crate::message::error::Error;
use crate::message::head::{Framing, RequestHead};
use crate::message::request::RequestBody;
use crate::message::writer::may_trail;
use crate::server::buffer::Room;
use crate::server::link::{Link, Pace};
use crate::transport::stream::Transport;

/// Reads at least this long go past the connection's buffer, straight into the handler's.
const DIRECT: usize = 4 << 10;

/// The body of the request at hand. It holds the link, for reading may first have to send.
pub(crate) struct Incoming<'a, 'l, S> {
    source: Source<'a, 'l, S>,
    room: Room<'a>,
    decoder: Decoder,
    /// The trailer section, as far as it has come.
    trailers: Vec<u8>,
    /// What the handler leaves is read before the answer, if that is not known to be too long.
    awaited: bool,
    failed: Option<Error>,
}

struct Source<'a, 'l, S> {
    link: &'a mut Link<'l, S>,
    /// The peer waits for `100 Continue`.
    expects: bool,
    pace: Pace,
}

/// What is left of a body after its handler.
pub(crate) struct Rest {
    /// The unused part of the room.
    pub(crate) range: (usize, usize),
    pub(crate) decoder: Decoder,
    /// Too much is left, or what is left cannot be told: the connection cannot be used again.
    pub(crate) hopeless: bool,
}

impl<'a, 'l, S: Transport> Incoming<'a, 'l, S> {
    pub(crate) fn new(
        link: &'a mut Link<'l, S>,
        room: Room<'a>,
        head: &RequestHead<'_>,
    ) -> Result<Self, Error> {
        let decoder = Decoder::new(head.framing(), link.allowed.body_bytes)?;
        let pace = Pace::new(link.allowed.body_timeout, link.allowed.min_rate);
        let source = Source {
            link,
            expects: head.expects_continue(),
            pace,
        };
        // The body of such a request means nothing, so no client waits for an answer in the middle
        // of it; and if it is malformed, this is no request to be answered.
        let awaited = head.framing() == Framing::Chunked
            && matches!(*head.method(), Method::GET | Method::HEAD);
        Ok(Self {
            source,
            room,
            decoder,
            trailers: Vec::new(),
            awaited,
            failed: None,
        })
    }

    fn next(&mut self, buf: &mut [u8]) -> Result<usize, Error> {
        loop {
            let filled = &self.room.bytes[self.room.start..self.room.end];
            match self.decoder.step(filled, buf.len())? {
                Step::Data(len) => {
                    buf[..len].copy_from_slice(&filled[..len]);
                    self.room.start += len;
                    return Ok(len);
                }
                Step::Framing(len) => self.room.start += len,
                Step::Trailer(len) => {
                    // An empty section is one line end.
                    if !self.trailers.is_empty() || !matches!(filled[0], b'\r' | b'\n') {
                        self.trailers.extend_from_slice(&filled[..len]);
                    }
                    self.room.start += len;
                }
                Step::Done => return Ok(0),
                Step::More if self.decoder.run() > 0 && buf.len() >= DIRECT => {
                    let max = usize::try_from(self.decoder.run())
                        .unwrap_or(usize::MAX)
                        .min(buf.len());
                    let len = self.source.receive(&mut buf[..max])?;
                    self.decoder.took(len);
                    return Ok(len);
                }
                Step::More => self.fill()?,
            }
        }
    }

    /// Receives more, where the room has been used up.
    fn fill(&mut self) -> Result<(), Error> {
        self.room.start = 0;
        self.room.end = 0;
        self.room.end = self.source.receive(self.room.bytes)?;
        Ok(())
    }

    /// Ends the body after its handler. Returns what the handler left unread, less what could be
    /// dropped at once, or the error that it met.
    pub(crate) fn finish(mut self) -> Result<Rest, Error> {
        // A pause is the handler's: nobody else waits without bound.
        self.source.pace.resume();
        if let Some(error) = self.failed {
            return Err(error);
        }
        let mut dropped = 0;
        let hopeless = loop {
            let filled = &self.room.bytes[self.room.start..self.room.end];
            match self.decoder.step(filled, usize::MAX)? {
                Step::Data(len) | Step::Framing(len) | Step::Trailer(len) => {
                    self.room.start += len;
                    dropped += len as u64;
                }
                Step::Done => break false,
                // A peer that was not sent 100 may or may not send the body.
                Step::More if self.source.expects => break true,
                Step::More if self.awaited && dropped < MAX_DRAINED => self.fill()?,
                Step::More => {
                    break self
                        .decoder
                        .remaining()
                        .is_none_or(|left| left > MAX_DRAINED);
                }
            }
        };
        Ok(Rest {
            range: (self.room.start, self.room.end),
            decoder: self.decoder,
            hopeless,
        })
    }
}

impl<S: Transport> Source<'_, '_, S> {
    fn receive(&mut self, buf: &mut [u8]) -> Result<usize, Error> {
        let slow = || {
            Error::timeout(
                Some(StatusCode::REQUEST_TIMEOUT),
                "the request body arrives too slowly",
            )
        };
        if std::mem::take(&mut self.expects) {
            self.link.encoder.go_on();
        }
        let timeout = self.pace.left().ok_or_else(slow)?;
        match self.link.read(buf, timeout) {
            Ok(0) => {
                let error = Error::closed("the request body is cut short");
                Err(error.with_status(Some(StatusCode::BAD_REQUEST)))
            }
            Ok(len) => {
                self.pace.progress(len);
                Ok(len)
            }
            Err(error) if error.is_timeout() => Err(slow()),
            Err(error) => Err(error),
        }
    }
}

/// Reads a trailer section as it came, its empty line included, or nothing.
fn parse_trailers(section: &[u8]) -> Result<HeaderMap, Error> {
    let mut map = HeaderMap::new();
    if section.is_empty() {
        return Ok(map);
    }
    let malformed = || Error::bad("a malformed trailer section");
    let mut slots = [httparse::EMPTY_HEADER; MAX_HEADERS];
    let Ok(httparse::Status::Complete((_, fields))) = httparse::parse_headers(section, &mut slots)
    else {
        return Err(malformed());
    };
    for field in fields {
        let name = HeaderName::from_bytes(field.name.as_bytes()).map_err(|_| malformed())?;
        let value = HeaderValue::from_bytes(field.value).map_err(|_| malformed())?;
        if may_trail(&name) {
            map.append(name, value);
        }
    }
    Ok(map)
}

impl<S: Transport> RequestBody for Incoming<'_, '_, S> {
    fn trailers(&self) -> Result<HeaderMap, Error> {
        if self.decoder.is_done() {
            parse_trailers(&self.trailers)
        } else {
            Ok(HeaderMap::new())
        }
    }

    fn peer(&self) -> Option<SocketAddr> {
        self.source
            .link
            .state
            .peer
            .or_else(|| self.source.link.stream.peer())
    }

    fn limits(&self) -> RequestLimits {
        self.source.link.allowed
    }

    fn set_limits(&mut self, limits: RequestLimits) {
        self.source.link.allowed = limits;
        self.source
            .pace
            .change(limits.body_timeout, limits.min_rate);
        if let Err(error) = self.decoder.set_limit(limits.body_bytes) {
            self.failed.get_or_insert(error);
        }
    }

    fn pause(&mut self) {
        self.source.pace.pause();
    }

    fn resume(&mut self) {
        self.source.pace.resume();
    }
}

impl<S: Transport> Read for Incoming<'_, '_, S> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        if buf.is_empty() {
            return Ok(0);
        }
        if let Some(error) = &self.failed {
            return Err(error.clone().into());
        }
        self.next(buf).map_err(|error| {
            self.failed = Some(error.clone());
            error.into()
        })
    }
}
