//! A response on its way out: framing chosen, head and body sent together, small answers gathered.

use std::io::BufRead;
use std::panic::{AssertUnwindSafe, catch_unwind};

use http::{StatusCode, Version, header};

use crate::message::body::{CHUNK_END, LAST_CHUNK, chunk_line};
use crate::message::encode::{Connection, Delimiter};
use crate::message::error::Error;
use crate::message::header_lines::append_field;
use crate::message::response::{Body, FilePart, Response, WriteBody, asks_to_close, fill};
use crate::message::writer::{BodyWriter, Sink, Written};
use crate::server::link::{Link, Pace, slow_reader};
use crate::transport::stream::Transport;

/// Bodies up to this size are copied behind their head; longer ones are sent from where they are.
const COPIED: usize = 8 << 10;
/// Answers are gathered up to this size.
const GATHERED: usize = 64 << 10;

/// What the answer must respect.
#[derive(Clone, Copy)]
pub(crate) struct Terms<'a> {
    pub(crate) version: Version,
    /// The request was HEAD.
    pub(crate) head_only: bool,
    pub(crate) keep_alive: bool,
    pub(crate) server: Option<&'a str>,
}

impl<S: Transport> Link<'_, S> {
    /// Sends a response, or gathers it to be sent with the next ones. Says whether the connection
    /// stays open.
    pub(crate) fn send(&mut self, mut response: Response, terms: Terms<'_>) -> Result<bool, Error> {
        match (&response.body, response.status) {
            (Body::Upgrade(_), _) if terms.version == Version::HTTP_10 => {
                response = Response::plain(StatusCode::HTTP_VERSION_NOT_SUPPORTED);
            }
            (Body::Upgrade(_), StatusCode::SWITCHING_PROTOCOLS) => {}
            (_, status) if status.is_informational() => {
                response = Response::plain(StatusCode::INTERNAL_SERVER_ERROR)
            }
            // RFC 9110, 15.3.6: it has no content.
            (_, StatusCode::RESET_CONTENT) => response.body = Body::Empty,
            _ => {}
        }
        let delimiter = delimiter(&response, terms);
        let keep = terms.keep_alive && delimiter != Delimiter::Close && !asks_to_close(&response);
        let connection = match (keep, terms.version) {
            _ if response.status == StatusCode::SWITCHING_PROTOCOLS => Connection::Upgrade,
            _ if matches!(response.body, Body::Upgrade(_)) => Connection::Default,
            (false, _) => Connection::Close,
            (true, Version::HTTP_10) => Connection::KeepAlive,
            // A 426: the field that names the protocol is for this hop (RFC 9110, 7.8).
            (true, _) if response.headers.contains_key(header::UPGRADE) => Connection::Upgrade,
            (true, _) => Connection::Default,
        };
        self.write_timeout()?;
        self.pace = Pace::new(self.allowed.write_timeout, self.allowed.min_rate);
        if self.encoder.out.len() >= GATHERED {
            self.flush()?;
        }
        let mark = self.encoder.out.len();
        let fields = ([&response.lines, &response.added], &response.headers);
        let server = response.named(terms.server);
        self.encoder
            .head(response.status, fields, delimiter, connection, server);
        (self.status, self.body_bytes) = (Some(response.status), 0);
        match response.body {
            Body::Upgrade(take_over) => self.take_over = Some(take_over),
            _ if terms.head_only || delimiter == Delimiter::None => {}
            Body::Empty | Body::Omitted(0) => {}
            Body::Omitted(_) => {
                return Err(self.take_back(mark, Error::body("a body was left out", None)));
            }
            Body::Bytes(bytes) => {
                self.body_bytes = bytes.len() as u64;
                if bytes.len() <= COPIED {
                    self.encoder.out.extend_from_slice(&bytes);
                } else {
                    self.write([&bytes, b""])?;
                }
            }
            Body::Stream(mut source, Some(len)) => self.stream(&mut *source, len, mark)?,
            Body::File(mut part, len) => self.file(&mut *part, len, mark)?,
            Body::Stream(mut source, None) => {
                self.stream_open_ended(&mut *source, delimiter == Delimiter::Chunked)?
            }
            Body::Writer(write) => self.write_body(write, delimiter == Delimiter::Chunked, mark)?,
        }
        Ok(keep)
    }

    /// Sends a body of a promised length; the head goes with its first piece.
    fn stream<R: BufRead + ?Sized>(
        &mut self,
        source: &mut R,
        len: u64,
        mark: usize,
    ) -> Result<(), Error> {
        let mut left = len;
        while left > 0 {
            left -= self.piece(source, left, mark)?;
            if left > 0 {
                yield_to_others();
            }
        }
        Ok(())
    }

    /// Sends one piece of it, of `left` bytes at most.
    fn piece<R: BufRead + ?Sized>(
        &mut self,
        source: &mut R,
        left: u64,
        mark: usize,
    ) -> Result<u64, Error> {
        let piece = match fill(source) {
            Ok([]) => {
                return Err(
                    self.take_back(mark, Error::body("the body ended before its length", None))
                );
            }
            Ok(piece) => piece,
            Err(error) => return Err(self.take_back(mark, error)),
        };
        let take = piece.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        self.pace.left().ok_or_else(slow_reader)?;
        self.write([&piece[..take], b""])?;
        self.body_bytes += take as u64;
        source.consume(take);
        Ok(take as u64)
    }

    /// Sends a part of a file: from the page cache what is there, otherwise, or if the transport
    /// cannot, by reading.
    fn file(&mut self, part: &mut dyn FilePart, len: u64, mark: usize) -> Result<(), Error> {
        if !self.stream.sends_files() {
            return self.stream(part, len, mark);
        }
        let mut left = len;
        while left > 0 {
            let Some(resident) = part.resident(left) else {
                left -= self.piece(part, left, mark)?;
                continue;
            };
            match self.send_file(resident)? {
                None => return self.stream(part, left, mark),
                // The head has left: that the file has become shorter can only be shown by closing.
                Some(0) => return Err(Error::body("the body ended before its length", None)),
                Some(sent) => {
                    part.sent(sent);
                    self.body_bytes += sent as u64;
                    left -= sent as u64;
                }
            }
            if left > 0 {
                yield_to_others();
            }
        }
        Ok(())
    }

    /// Sends a body of unknown length. It may be slow to come, so the head does not wait for it.
    fn stream_open_ended(&mut self, source: &mut dyn BufRead, chunked: bool) -> Result<(), Error> {
        self.flush()?;
        loop {
            let piece = fill(source)?;
            let len = piece.len();
            if len == 0 {
                break;
            }
            if chunked {
                chunk_line(&mut self.encoder.out, len);
            }
            // The producer may pause as long as it likes: only the peer is timed.
            self.pace = Pace::new(self.allowed.write_timeout, self.allowed.min_rate);
            self.write([piece, if chunked { CHUNK_END } else { b"" }])?;
            self.body_bytes += len as u64;
            source.consume(len);
        }
        if chunked {
            self.encoder.out.extend_from_slice(LAST_CHUNK);
        }
        Ok(())
    }

    /// Has a producer write the body of the response whose head begins at `mark`.
    fn write_body(&mut self, write: WriteBody, chunked: bool, mark: usize) -> Result<(), Error> {
        let mut sink = OpenEnded {
            link: &mut *self,
            chunked,
        };
        let mut writer = BodyWriter::new(&mut sink);
        let done = catch_unwind(AssertUnwindSafe(|| write(&mut writer)));
        let Written {
            gathered,
            trailers,
            failed,
        } = writer.end();
        let error = match (failed, done) {
            (Some(error), _) => Some(error),
            (None, Err(payload)) => Some(Error::panic(payload).with_status(None)),
            (None, Ok(Err(error))) => {
                Some(Error::body("the body could not be written", Some(error)))
            }
            (None, Ok(Ok(()))) => None,
        };
        if let Some(error) = error {
            return Err(self.take_back(mark, error));
        }
        self.body_bytes += gathered.len() as u64;
        let out = &mut self.encoder.out;
        if !chunked {
            out.extend_from_slice(&gathered);
            return Ok(());
        }
        if !gathered.is_empty() {
            chunk_line(out, gathered.len());
            out.extend_from_slice(&gathered);
            out.extend_from_slice(CHUNK_END);
        }
        out.extend_from_slice(b"0\r\n");
        trailers
            .iter()
            .for_each(|(name, value)| append_field(out, name, value.as_bytes()));
        out.extend_from_slice(b"\r\n");
        Ok(())
    }

    /// Handles a body that failed: as long as its head has not been sent, the peer gets 500. A peer
    /// that takes nothing more gets no other answer, whatever is left of this one.
    fn take_back(&mut self, mark: usize, error: Error) -> Error {
        if self.broken || self.encoder.out.len() <= mark {
            return error;
        }
        self.encoder.out.truncate(mark);
        self.status = None;
        error.with_status(Some(StatusCode::INTERNAL_SERVER_ERROR))
    }
}

/// A body whose length nobody knows, on its link.
struct OpenEnded<'a, 'l, S> {
    link: &'a mut Link<'l, S>,
    chunked: bool,
}

impl<S: Transport> Sink for OpenEnded<'_, '_, S> {
    fn piece(&mut self, piece: &[u8]) -> Result<(), Error> {
        // The producer may pause as long as it likes: only the peer is timed.
        self.link.pace = Pace::new(self.link.allowed.write_timeout, self.link.allowed.min_rate);
        if piece.is_empty() {
            return self.link.flush();
        }
        if self.chunked {
            chunk_line(&mut self.link.encoder.out, piece.len());
        }
        self.link
            .write([piece, if self.chunked { CHUNK_END } else { b"" }])?;
        self.link.body_bytes += piece.len() as u64;
        Ok(())
    }
}

/// A fast reader of a large file would otherwise keep the worker to itself.
fn yield_to_others() {
    plainweave::yield_now();
}

/// RFC 9112, 6.
fn delimiter(response: &Response, terms: Terms<'_>) -> Delimiter {
    match (response.status, response.body.len()) {
        (StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED, _) => Delimiter::None,
        _ if matches!(response.body, Body::Upgrade(_)) => Delimiter::None,
        (_, Some(len)) => Delimiter::Length(len),
        (_, None) if terms.head_only => Delimiter::None,
        (_, None) if terms.version == Version::HTTP_10 => Delimiter::Close,
        (_, None) => Delimiter::Chunked,
    }
}
