//! An answer on its way into the engine: its head with its first bytes, its body as the client's
//! windows allow.

use std::io::BufRead;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::task::{Context, Waker};
use std::time::{Duration, Instant};

use bytes::Bytes;
use h2::server::SendResponse;
use h2::{Reason, SendStream};
use http::{HeaderName, HeaderValue, StatusCode, header};

use super::shared::Shared;
use super::wait::{failed, ready};
use crate::limits::RequestLimits;
use crate::message::error::Error;
use crate::message::response::{Body, Response};
use crate::message::response::{WriteBody, asks_to_close, fill};
use crate::message::writer::{BodyWriter, Sink, Written};
use crate::server::link::{Pace, slow_reader};

const UNSENT: &str = "the answer could not be sent";
/// For how long an answer waits for more room than there is. Most clients give their windows back
/// before they are used up; this is for those that do not.
const ROOM_WAIT: Duration = Duration::from_millis(50);

/// One answer.
pub(super) struct Outgoing<'a> {
    respond: SendResponse<Bytes>,
    /// Once the head is with the engine.
    stream: Option<SendStream<Bytes>>,
    /// Until then.
    head: Option<http::Response<()>>,
    shared: &'a Shared,
    server: Option<&'a str>,
    limits: RequestLimits,
    pace: Pace,
    pub(super) status: Option<StatusCode>,
    /// Bytes of the body that the engine has so far.
    pub(super) body_bytes: u64,
}

impl<'a> Outgoing<'a> {
    pub(super) fn new(
        respond: SendResponse<Bytes>,
        shared: &'a Shared,
        server: Option<&'a str>,
        limits: RequestLimits,
    ) -> Self {
        let pace = Pace::new(limits.write_timeout, limits.min_rate);
        let stream = None;
        let head = None;
        let status = None;

        Self {
            respond,
            stream,
            head,
            shared,
            server,
            limits,
            pace,
            status,
            body_bytes: 0,
        }
    }

    pub(super) fn set_limits(&mut self, limits: RequestLimits) {
        self.limits = limits;
        self.pace = Pace::new(limits.write_timeout, limits.min_rate);
    }

    /// Sends `100 Continue`; to be called before [`Self::send`].
    pub(super) fn ask_for_body(&mut self) -> Result<(), Error> {
        // The engine would send it for a stream that the client has reset, too.
        if self
            .respond
            .poll_reset(&mut Context::from_waker(Waker::noop()))
            .is_ready()
        {
            return Err(Error::closed(UNSENT));
        }
        let mut interim = http::Response::new(());
        *interim.status_mut() = StatusCode::CONTINUE;
        self.respond
            .send_informational(interim)
            .map_err(|error| failed(error, UNSENT))
    }

    /// Sends a response. An error with a status can still be answered: nothing was sent.
    pub(super) fn send(&mut self, mut response: Response, head_only: bool) -> Result<(), Error> {
        if matches!(response.body, Body::Upgrade(_)) {
            // RFC 9113, 8.6: a connection cannot be taken over.
            response = Response::plain(StatusCode::HTTP_VERSION_NOT_SUPPORTED);
        } else if response.status.is_informational() {
            response = Response::plain(StatusCode::INTERNAL_SERVER_ERROR);
        } else if response.status == StatusCode::RESET_CONTENT {
            // RFC 9110, 15.3.6: it has no content.
            response.body = Body::Empty;
        }
        if asks_to_close(&response) {
            self.shared.ask_for_end();
        }
        let bodiless = matches!(
            response.status,
            StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED
        );
        let length = response.body.len().filter(|_| !bodiless);
        self.status = Some(response.status);
        self.head = Some(self.encode(&response, length));
        match response.body {
            _ if head_only || bodiless || length == Some(0) => self.begin(true).map(drop),
            Body::Empty | Body::Upgrade(_) => self.begin(true).map(drop),
            Body::Omitted(_) => Err(Error::body("a body was left out", None)),
            Body::Bytes(bytes) => self.piece(bytes, true),
            Body::Stream(mut source, Some(len)) => self.stream(&mut *source, len),
            Body::File(mut part, len) => self.stream(&mut *part, len),
            Body::Stream(mut source, None) => self.stream_open_ended(&mut *source),
            Body::Writer(write) => self.write_body(write),
        }
        .map_err(|error| self.take_back(error))
    }

    /// Sends the head of an answer after which the stream is whoever's who took it over. An error
    /// with a status can still be answered.
    pub(super) fn open(&mut self, response: &Response) -> Result<SendStream<Bytes>, Error> {
        self.status = Some(response.status);
        self.head = Some(self.encode(response, None));
        match self.begin(false).map(drop) {
            Ok(()) => self.stream.take().ok_or_else(|| Error::closed(UNSENT)),
            Err(error) => Err(self.take_back(error)),
        }
    }

    /// Breaks the answer off, so that the client does not take what it has for the whole.
    pub(super) fn reset(&mut self, reason: Reason) {
        match &mut self.stream {
            Some(stream) => stream.send_reset(reason),
            None => self.respond.send_reset(reason),
        }
    }

    fn encode(&self, response: &Response, length: Option<u64>) -> http::Response<()> {
        let mut encoded = http::Response::new(());
        *encoded.status_mut() = response.status;
        let fields = encoded.headers_mut();
        if !response.headers.contains_key(header::DATE) {
            fields.insert(header::DATE, self.shared.date());
        }
        let server = response.named(self.server);
        if let Some(server) = server.and_then(|server| HeaderValue::from_str(server).ok()) {
            fields.insert(header::SERVER, server);
        }

        let lines = [&response.lines, &response.added].into_iter();
        for line in lines.flat_map(|lines| lines.as_bytes().split(|&byte| byte == b'\n')) {
            let Some(colon) = memchr::memchr(b':', line) else {
                continue;
            };
            let value = HeaderValue::from_bytes(line[colon + 1..].trim_ascii());
            if let (Ok(name), Ok(value)) = (HeaderName::from_bytes(&line[..colon]), value) {
                fields.append(name, value);
            }
        }

        for (name, value) in &response.headers {
            fields.append(name, value.clone());
        }
        OF_CONNECTIONS
            .iter()
            .for_each(|name| drop(fields.remove(name)));
        if let Some(length) = length {
            fields.insert(header::CONTENT_LENGTH, length.into());
        }
        encoded
    }

    /// Hands the head to the engine, unless that was done.
    fn begin(&mut self, end: bool) -> Result<&mut SendStream<Bytes>, Error> {
        if let Some(head) = self.head.take() {
            let sent = self.respond.send_response(head, end);
            self.stream = Some(sent.map_err(|error| failed(error, UNSENT))?);
        }
        self.stream.as_mut().ok_or_else(|| Error::closed(UNSENT))
    }

    /// Sends bytes as the client takes them.
    fn piece(&mut self, mut bytes: Bytes, end: bool) -> Result<(), Error> {
        self.begin(false)?;
        while !bytes.is_empty() {
            let take = self.room(bytes.len())?;
            let part = bytes.split_to(take);
            self.data(part, end && bytes.is_empty())?;
        }
        Ok(())
    }

    /// Waits until the engine takes some of `wanted` bytes, and returns how many it is to be given:
    /// all, or no small part of them that leaves no small part; see `meter`.
    fn room(&mut self, wanted: usize) -> Result<usize, Error> {
        let Self {
            stream: Some(stream),
            pace,
            shared,
            ..
        } = self
        else {
            return Err(Error::closed(UNSENT));
        };
        stream.reserve_capacity(wanted);
        let mut waited_since = None;
        loop {
            let least = shared.least_piece();
            let room = stream.capacity().min(wanted);
            if room == wanted {
                return Ok(room);
            }
            // Less than two pieces go together.
            if room >= least && wanted >= 2 * least {
                return Ok(room.min(wanted - least));
            }

            let patience = || {
                let left = pace.left()?;
                if room == 0 {
                    return Some(left);
                }
                let since = *waited_since.get_or_insert_with(Instant::now);
                Some(left.min(ROOM_WAIT.saturating_sub(since.elapsed())))
            };
            match ready(|cx| stream.poll_capacity(cx), patience, slow_reader) {
                Ok(Some(more)) => drop(more.map_err(|error| failed(error, UNSENT))?),
                Ok(None) => return Err(Error::closed(UNSENT)),
                Err(error) if room > 0 && error.is_timeout() && pace.left().is_some() => {
                    return Ok(room);
                }
                Err(error) => return Err(error),
            }
        }
    }

    fn data(&mut self, part: Bytes, end: bool) -> Result<(), Error> {
        let len = part.len();
        let sent = self.begin(false)?.send_data(part, end);
        sent.map_err(|error| failed(error, UNSENT))?;
        self.pace.progress(len);
        self.body_bytes += len as u64;
        Ok(())
    }

    /// Sends a body of a promised length; the head goes with its first piece.
    fn stream<R: BufRead + ?Sized>(&mut self, source: &mut R, len: u64) -> Result<(), Error> {
        let mut left = len;
        while left > 0 {
            let piece = match fill(source)? {
                [] => return Err(Error::body("the body ended before its length", None)),
                piece => piece,
            };
            let take = piece.len().min(usize::try_from(left).unwrap_or(usize::MAX));
            self.begin(false)?;
            // Only what there is room for is copied.
            let take = self.room(take)?;
            let part = Bytes::copy_from_slice(&piece[..take]);
            source.consume(take);
            left -= take as u64;
            self.data(part, left == 0)?;
        }
        Ok(())
    }

    /// Sends a body of unknown length. It may be slow to come, so the head does not wait for it.
    fn stream_open_ended(&mut self, source: &mut dyn BufRead) -> Result<(), Error> {
        self.begin(false)?;
        loop {
            let piece = Bytes::copy_from_slice(fill(source)?);
            if piece.is_empty() {
                return self.data(piece, true);
            }
            source.consume(piece.len());
            Sink::piece(self, &piece)?;
        }
    }

    /// Has a producer write the body.
    fn write_body(&mut self, write: WriteBody) -> Result<(), Error> {
        let mut writer = BodyWriter::new(self);
        let done = catch_unwind(AssertUnwindSafe(|| write(&mut writer)));
        let Written {
            gathered,
            trailers,
            failed: error,
        } = writer.end();
        match (error, done) {
            (Some(error), _) => return Err(error),
            (None, Err(payload)) => return Err(Error::panic(payload).with_status(None)),
            (None, Ok(Err(error))) => {
                return Err(Error::body("the body could not be written", Some(error)));
            }
            (None, Ok(Ok(()))) => {}
        }
        self.renew_pace();
        let gathered = Bytes::from(gathered);
        if !trailers.is_empty() {
            self.piece(gathered, false)?;
            let sent = self.begin(false)?.send_trailers(trailers);
            return sent.map_err(|error| failed(error, UNSENT));
        }
        match gathered.is_empty() {
            true => self.data(gathered, true),
            false => self.piece(gathered, true),
        }
    }

    /// The producer may pause as long as it likes: only the client is timed.
    fn renew_pace(&mut self) {
        self.pace = Pace::new(self.limits.write_timeout, self.limits.min_rate);
    }

    /// Handles an answer that failed: as long as its head has not been sent, the client gets 500.
    fn take_back(&mut self, error: Error) -> Error {
        if self.head.take().is_none() {
            return error.with_status(None);
        }
        self.status = None;
        error.with_status(Some(StatusCode::INTERNAL_SERVER_ERROR))
    }
}

impl Sink for Outgoing<'_> {
    fn piece(&mut self, piece: &[u8]) -> Result<(), Error> {
        self.renew_pace();
        Outgoing::piece(self, Bytes::copy_from_slice(piece), false)
    }
}

/// Fields that mean something between two ends of a connection of HTTP/1 (RFC 9113, 8.2.2), and
/// those that are ours.
const OF_CONNECTIONS: [HeaderName; 8] = [
    header::CONNECTION,
    header::CONTENT_LENGTH,
    header::TRANSFER_ENCODING,
    header::TE,
    header::TRAILER,
    header::UPGRADE,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
];
