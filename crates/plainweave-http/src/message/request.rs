//! What a handler gets.

use std::fmt;
use std::io::{self, Read};
use std::net::SocketAddr;
use std::ops::Deref;

use http::HeaderMap;

use super::error::Error;
use super::head::RequestHead;
use super::response::Response;
use crate::limits::RequestLimits;
use crate::transport::session::TlsSession;

/// One request: its head by [`Deref`], its body by [`Read`].
///
/// Reading the body may suspend the fiber, within the body's timeouts. What is not read is dropped
/// by the connection.
///
/// ```
/// use std::io;
/// use plainweave_http::{Request, Response, StatusCode};
///
/// /// Answers with the length of the body.
/// fn measure(request: &mut Request<'_>) -> Response {
///     match io::copy(request, &mut io::sink()) {
///         Ok(len) => Response::ok(format!("{len} bytes\n")),
///         Err(_) => Response::plain(StatusCode::BAD_REQUEST),
///     }
/// }
/// # let server = plainweave_http::Server::new(measure);
/// # let sent = "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\nabc";
/// # assert!(plainweave_http::testing::in_memory(&server, sent).ends_with(b"3 bytes\n"));
/// ```
pub struct Request<'a> {
    head: &'a RequestHead<'a>,
    body: &'a mut dyn RequestBody,
    client: Option<SocketAddr>,
    tls: Option<&'a TlsSession>,
}

/// A body, and what else a handler may ask of its connection, whatever the stream's type.
pub(crate) trait RequestBody: Read {
    /// Returns the fields of the trailer section that may stand there.
    fn trailers(&self) -> Result<HeaderMap, Error>;
    fn peer(&self) -> Option<SocketAddr>;
    fn limits(&self) -> RequestLimits;
    fn set_limits(&mut self, limits: RequestLimits);
    fn pause(&mut self);
    fn resume(&mut self);
}

impl<'a> Request<'a> {
    pub(crate) fn new(head: &'a RequestHead<'a>, body: &'a mut dyn RequestBody) -> Self {
        Self {
            head,
            body,
            client: None,
            tls: None,
        }
    }

    /// Notes who has asked, if that is not the peer.
    pub(crate) fn with_client(self, client: Option<SocketAddr>) -> Self {
        Self { client, ..self }
    }

    /// Notes what TLS knows of the connection.
    pub(crate) fn with_tls(self, tls: Option<&'a TlsSession>) -> Self {
        Self { tls, ..self }
    }

    /// Returns what TLS knows of the connection, the client's certificate above all; `None` for a
    /// plain connection.
    pub fn tls(&self) -> Option<&'a TlsSession> {
        self.tls
    }

    /// Returns the head, which stays valid as long as the request, even while the body is read.
    pub fn head(&self) -> &'a RequestHead<'a> {
        self.head
    }

    /// Returns the whole body; fails if it is longer than `limit` bytes.
    pub fn read_body(&mut self, limit: usize) -> io::Result<Vec<u8>> {
        let mut body = Vec::new();
        self.take(limit as u64 + 1).read_to_end(&mut body)?;
        if body.len() > limit {
            return Err(io::Error::new(
                io::ErrorKind::FileTooLarge,
                "the body is longer than the handler takes",
            ));
        }

        Ok(body)
    }
}

impl Request<'_> {
    /// Returns the fields that came behind a chunked body, or one of HTTP/2. They are there once
    /// the body has been read to its end; before that, and for most requests, there are none.
    /// Fields that belong to the head are left out (RFC 9110, 6.5.1).
    ///
    /// # Errors
    /// There are more than [`MAX_HEADERS`](crate::parse::MAX_HEADERS), or one is malformed.
    pub fn trailers(&self) -> Result<HeaderMap, Error> {
        self.body.trailers()
    }

    /// Returns the peer's address: the one that a trusted proxy says
    /// ([`Server::with_forwarded`](crate::Server::with_forwarded)), or the PROXY protocol, or the
    /// stream's. Unix sockets have none.
    pub fn peer(&self) -> Option<SocketAddr> {
        self.client.or_else(|| self.body.peer())
    }

    /// Returns the limits of this request.
    pub fn limits(&self) -> RequestLimits {
        self.body.limits()
    }

    /// Replaces the limits of this request: of what is still to be read of its body, and of its
    /// answer. If the body is known to exceed them, the next read fails and the answer is 413.
    ///
    /// A body that is longer than the limit by its own `Content-Length` never reaches a handler:
    /// use [`Server::with_request_limits`](crate::Server::with_request_limits) to allow a route
    /// more.
    pub fn set_limits(&mut self, limits: RequestLimits) {
        self.body.set_limits(limits);
    }

    /// Stops the clock of the body's timeouts: for a handler that does something else between two
    /// reads, for which the peer is not to blame. Reads wait without bound meanwhile. When the
    /// handler returns it goes on in any case.
    pub fn pause_timeouts(&mut self) {
        self.body.pause();
    }

    /// Lets the clock go on where [`Self::pause_timeouts`] stopped it.
    pub fn resume_timeouts(&mut self) {
        self.body.resume();
    }
}

impl<'a> Deref for Request<'a> {
    type Target = RequestHead<'a>;

    fn deref(&self) -> &RequestHead<'a> {
        self.head
    }
}

impl Read for Request<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.body.read(buf)
    }
}

impl fmt::Debug for Request<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Request")
            .field("head", self.head)
            .finish_non_exhaustive()
    }
}

/// Answers requests, in plain blocking code. Any `Fn(&mut Request<'_>) -> Response` is one;
/// middleware is a handler that calls another.
///
/// ```
/// use plainweave_http::{Handler, Method, Request, Response, StatusCode};
///
/// /// Answers GET with a text.
/// struct Fixed(&'static str);
///
/// impl Handler for Fixed {
///     fn handle(&self, request: &mut Request<'_>) -> Response {
///         match *request.method() {
///             Method::GET => Response::ok(self.0),
///             _ => Response::plain(StatusCode::METHOD_NOT_ALLOWED),
///         }
///     }
/// }
/// ```
pub trait Handler: Send + Sync + 'static {
    /// Answers one request. A panic is answered 500, goes to
    /// [`Server::on_error`](crate::Server::on_error), and costs no more than this request.
    fn handle(&self, request: &mut Request<'_>) -> Response;
}

impl<F> Handler for F
where
    F: Fn(&mut Request<'_>) -> Response + Send + Sync + 'static,
{
    fn handle(&self, request: &mut Request<'_>) -> Response {
        self(request)
    }
}
