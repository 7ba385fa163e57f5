//! What a handler gives back.

use std::fmt;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};

use bytes::Bytes;
use http::header::{
    CONNECTION, CONTENT_TYPE, HeaderName, HeaderValue, RETRY_AFTER, SERVER, UPGRADE,
};
use http::{HeaderMap, StatusCode};

use super::error::Error;
use super::header_lines::HeaderLines;
use super::parse::list;
use super::writer::BodyWriter;
use crate::transport::upgraded::Upgraded;

/// Writes a body.
pub(crate) type WriteBody = Box<dyn FnOnce(&mut BodyWriter<'_>) -> io::Result<()> + Send>;
/// Goes on with a connection after HTTP.
pub(crate) type TakeOver = Box<dyn FnOnce(&mut Upgraded<'_>) + Send>;

/// Bytes that a streamed body is read in.
const PIECE: usize = 64 << 10;

/// A response: status, fields, body. The connection adds `Date`, `Server`, `Connection` and the
/// body's framing.
///
/// ```
/// use plainweave_http::{HeaderValue, Response, StatusCode, header};
///
/// let moved = Response::plain(StatusCode::PERMANENT_REDIRECT)
///     .with_header(header::LOCATION, HeaderValue::from_static("/elsewhere"));
/// assert_eq!((moved.status().as_u16(), moved.headers().len()), (308, 2));
/// ```
#[derive(Debug)]
pub struct Response {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) lines: HeaderLines,
    /// What is sent beside them, of somebody else's making.
    pub(crate) added: HeaderLines,
    pub(crate) is_anonymous: bool,
    pub(crate) body: Body,
    #[expect(
        dead_code,
        reason = "it is dropped with the response, and nothing else"
    )]
    kept: Option<KeptValue>,
}

/// What lives as long as a response.
struct KeptValue(#[expect(dead_code, reason = "as above")] Box<dyn Send>);

impl fmt::Debug for KeptValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeptValue").finish_non_exhaustive()
    }
}

impl Response {
    /// Makes a response without a body.
    pub fn new(status: StatusCode) -> Self {
        Self {
            status,
            headers: HeaderMap::new(),
            lines: HeaderLines::default(),
            added: HeaderLines::default(),
            is_anonymous: false,
            body: Body::Empty,
            kept: None,
        }
    }

    /// Makes a 200 with this body.
    pub fn ok(body: impl Into<Body>) -> Self {
        Self::new(StatusCode::OK).with_body(body)
    }

    /// Makes a response of a short plain text.
    pub fn text(status: StatusCode, text: impl Into<String>) -> Self {
        let response = Self::new(status).with_body(text.into());
        response.with_header(
            CONTENT_TYPE,
            HeaderValue::from_static("text/plain; charset=utf-8"),
        )
    }

    /// Makes a response that states its status in words, as plain text.
    pub fn plain(status: StatusCode) -> Self {
        Self::text(
            status,
            format!(
                "{} {}\n",
                status.as_str(),
                status.canonical_reason().unwrap_or_default()
            ),
        )
    }

    /// Makes a 101 that switches to `protocol`, as its `Upgrade` field names it: once it has been
    /// sent, `take_over` has the connection, on the same fiber or thread; when it returns, the
    /// connection is closed. A request with a body that the handler has not read is answered 400
    /// instead, one of HTTP/1.0 505, and one that does not ask for this protocol 426.
    ///
    /// Over HTTP/2 the client asks by CONNECT (RFC 8441). The handler sees GET with the same fields
    /// as here, and the same response gives `take_over` the request's stream, without
    /// `Sec-WebSocket-Accept`. One that was not asked for is answered 505.
    ///
    /// A server that stops does not end what took over:
    /// [`Server::shutdown`](crate::Server::shutdown) cuts it when the time of grace has passed.
    pub fn upgrade(
        protocol: HeaderValue,
        take_over: impl FnOnce(&mut Upgraded<'_>) + Send + 'static,
    ) -> Self {
        Self::new(StatusCode::SWITCHING_PROTOCOLS)
            .with_header(UPGRADE, protocol)
            .with_body(Body::Upgrade(Box::new(take_over)))
    }

    /// Makes the 200 that a request CONNECT asks for, after which `take_over` has the connection,
    /// as in [`Self::upgrade`].
    pub fn tunnel(take_over: impl FnOnce(&mut Upgraded<'_>) + Send + 'static) -> Self {
        Self::ok(Body::Upgrade(Box::new(take_over)))
    }

    /// Replaces the body.
    pub fn with_body(self, body: impl Into<Body>) -> Self {
        Self {
            body: body.into(),
            ..self
        }
    }

    /// Sets a field.
    pub fn with_header(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.headers.insert(name, value);
        self
    }

    /// Tells the client to try again in a second: what the server lacks now it may have then.
    pub(crate) fn with_retry(self) -> Self {
        self.with_header(RETRY_AFTER, HeaderValue::from_static("1"))
    }

    /// Sets the fields that are sent as they are, beside the map.
    pub fn with_lines(self, lines: HeaderLines) -> Self {
        Self { lines, ..self }
    }

    /// Adds fields that are sent as they are, beside those of the map and of [`Self::with_lines`];
    /// they replace what an earlier call has added. For what a program says with many answers,
    /// whoever made these: made once, a set that is [shared](HeaderLines::shared) costs a copy.
    pub fn with_added_lines(self, added: HeaderLines) -> Self {
        Self { added, ..self }
    }

    /// Returns the fields that were added by [`Self::with_added_lines`].
    pub fn added_lines(&self) -> &HeaderLines {
        &self.added
    }

    /// Keeps a value until the answer has been sent, to the transport or to a buffer that leaves
    /// next, or has been given up: a permit, for instance. It replaces what an earlier call keeps.
    pub fn keeping(self, value: impl Send + 'static) -> Self {
        Self {
            kept: Some(KeptValue(Box::new(value))),
            ..self
        }
    }

    /// Removes a field, whoever has set it: from the map and from the lines, but not from the added
    /// ones. Without `Server` the connection adds none, either. What the connection itself needs
    /// (`Date`, the body's framing) stays.
    pub fn remove_field(&mut self, name: &HeaderName) {
        self.headers.remove(name);
        self.lines.remove(name);
        self.is_anonymous |= name == SERVER;
    }

    /// Returns the server's name, unless the response is sent without one.
    pub(crate) fn named<'s>(&self, server: Option<&'s str>) -> Option<&'s str> {
        server.filter(|_| !self.is_anonymous && !self.headers.contains_key(SERVER))
    }

    /// Returns the status.
    pub fn status(&self) -> StatusCode {
        self.status
    }

    /// Returns the fields that were set one by one.
    pub fn headers(&self) -> &HeaderMap {
        &self.headers
    }

    /// Returns the fields for changing. `Connection: close` is honoured; the body's framing is up
    /// to the connection.
    pub fn headers_mut(&mut self) -> &mut HeaderMap {
        &mut self.headers
    }

    /// Returns the body.
    pub fn body(&self) -> &Body {
        &self.body
    }
}

impl<B: Into<Body>> From<http::Response<B>> for Response {
    fn from(response: http::Response<B>) -> Self {
        let (parts, body) = response.into_parts();
        let new = Self {
            headers: parts.headers,
            ..Self::new(parts.status)
        };
        new.with_body(body)
    }
}

/// A part of a file. As a reader it gives its bytes; but those that are in memory can be sent from
/// where they are.
pub trait FilePart: BufRead + Send {
    /// Returns where the next bytes are, if they can be sent from the file without waiting for a
    /// disk: the file, the offset, and how many, `max` at most. `None`: read them instead.
    fn resident(&mut self, max: u64) -> Option<(&File, u64, usize)>;

    /// Notes that `len` of them were sent.
    fn sent(&mut self, len: usize);
}

/// A response body.
#[derive(Default)]
#[non_exhaustive]
pub enum Body {
    /// No bytes: `Content-Length: 0`, where the status allows a body.
    #[default]
    Empty,
    /// In memory: owned, shared or static. Head and body are sent together.
    Bytes(Bytes),
    /// Read piece by piece as the peer takes it; chunked (HTTP/1.1) or ended by closing (1.0) when
    /// the length is not known. One that ends before its length closes the connection; what exceeds
    /// it is not sent.
    Stream(Box<dyn BufRead + Send>, Option<u64>),
    /// This many bytes of a file: sent from the page cache without a copy where possible, otherwise
    /// read.
    File(Box<dyn FilePart>, u64),
    /// For responses to HEAD: the length that the body would have.
    Omitted(u64),
    /// Written by a function: see [`Body::writer`].
    Writer(WriteBody),
    /// No body: another protocol follows. See [`Response::upgrade`].
    Upgrade(TakeOver),
}

impl Body {
    /// Streams a reader; `len` is its length in bytes where it is known.
    pub fn reader(reader: impl Read + Send + 'static, len: Option<u64>) -> Self {
        Self::Stream(Box::new(BufReader::with_capacity(PIECE, reader)), len)
    }

    /// Has a function write the body, after the handler has returned, as fast as the peer takes it:
    /// chunked (HTTP/1.1) or ended by closing (1.0). Each flush sends what was written. If it fails
    /// before anything was sent, the peer gets 500; later the connection is closed, so that the
    /// peer does not take what it has for the whole.
    ///
    /// ```
    /// use std::io::Write;
    /// use plainweave_http::{Body, Response};
    ///
    /// Response::ok(Body::writer(|out| {
    ///     for n in 0..1000 {
    ///         writeln!(out, "line {n}")?;
    ///     }
    ///     Ok(())
    /// }));
    /// ```
    pub fn writer(
        write: impl FnOnce(&mut BodyWriter<'_>) -> io::Result<()> + Send + 'static,
    ) -> Self {
        Self::Writer(Box::new(write))
    }

    /// Returns the length in bytes, where it is known.
    pub fn len(&self) -> Option<u64> {
        match self {
            Self::Empty => Some(0),
            Self::Bytes(bytes) => Some(bytes.len() as u64),
            Self::Stream(_, len) => *len,
            Self::Writer(_) | Self::Upgrade(_) => None,
            Self::File(_, len) | Self::Omitted(len) => Some(*len),
        }
    }

    /// Returns whether it is known to have no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == Some(0)
    }
}

impl fmt::Debug for Body {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Body")
            .field("len", &self.len())
            .finish_non_exhaustive()
    }
}

impl From<()> for Body {
    fn from((): ()) -> Self {
        Self::Empty
    }
}

impl From<Bytes> for Body {
    fn from(bytes: Bytes) -> Self {
        Self::Bytes(bytes)
    }
}

impl From<Vec<u8>> for Body {
    fn from(bytes: Vec<u8>) -> Self {
        Self::Bytes(bytes.into())
    }
}

impl From<String> for Body {
    fn from(text: String) -> Self {
        Self::Bytes(text.into())
    }
}

impl From<&'static str> for Body {
    fn from(text: &'static str) -> Self {
        Self::Bytes(Bytes::from_static(text.as_bytes()))
    }
}

impl From<&'static [u8]> for Body {
    fn from(bytes: &'static [u8]) -> Self {
        Self::Bytes(Bytes::from_static(bytes))
    }
}

/// Returns whether a response asks for its connection to be closed behind it.
pub(crate) fn asks_to_close(response: &Response) -> bool {
    let values = response.headers.get_all(CONNECTION).into_iter();
    values
        .flat_map(|value| list(value.as_bytes()))
        .any(|option| option.eq_ignore_ascii_case(b"close"))
}

/// Returns what a body has next, read into its buffer; nothing at its end.
pub(crate) fn fill<R: BufRead + ?Sized>(source: &mut R) -> Result<&[u8], Error> {
    // Twice `fill_buf`: the borrow of a piece returned from the loop would outlive its iteration.
    loop {
        match source.fill_buf() {
            Ok(_) => break,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(Error::body("the body could not be read", Some(error))),
        }
    }
    source
        .fill_buf()
        .map_err(|error| Error::body("the body could not be read", Some(error)))
}
