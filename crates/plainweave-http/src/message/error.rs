//! The library's one error type: opaque, asked by `is_*()`.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::{fmt, io};

use http::StatusCode;

use super::head::RequestHead;

/// What went wrong on a connection or with a value given to this library.
///
/// An error that was found before the answer began carries the status that is sent to the peer
/// ([`Error::status`]); any other ends the connection without a word.
///
/// ```
/// use plainweave_http::parse::{header_slots, parse_head};
///
/// let mut slots = header_slots();
/// let error = parse_head(b"GET\r\n\r\n", &mut slots).unwrap_err();
/// assert!(error.is_parse() && error.status().is_some_and(|status| status.as_u16() == 400));
/// ```
#[derive(Clone, Debug)]
pub struct Error {
    kind: Kind,
    status: Option<StatusCode>,
    what: &'static str,
    source: Option<Arc<io::Error>>,
    panic: Option<Arc<Panic>>,
}

/// What is known of a panic.
#[derive(Debug)]
struct Panic {
    text: Box<str>,
    /// The method and the path, where it is known which request was answered.
    request: Option<Box<str>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Parse,
    TooLarge,
    Timeout,
    Closed,
    Io,
    Header,
    Panic,
    Body,
    Refused,
}

impl Error {
    fn new(kind: Kind, status: Option<StatusCode>, what: &'static str) -> Self {
        Self {
            kind,
            status,
            what,
            source: None,
            panic: None,
        }
    }

    pub(crate) fn parse(status: StatusCode, what: &'static str) -> Self {
        Self::new(Kind::Parse, Some(status), what)
    }

    pub(crate) fn bad(what: &'static str) -> Self {
        Self::parse(StatusCode::BAD_REQUEST, what)
    }

    pub(crate) fn too_large(status: StatusCode, what: &'static str) -> Self {
        Self::new(Kind::TooLarge, Some(status), what)
    }

    pub(crate) fn timeout(status: Option<StatusCode>, what: &'static str) -> Self {
        Self::new(Kind::Timeout, status, what)
    }

    pub(crate) fn closed(what: &'static str) -> Self {
        Self::new(Kind::Closed, None, what)
    }

    pub(crate) fn header(what: &'static str) -> Self {
        Self::new(Kind::Header, None, what)
    }

    pub(crate) fn refused() -> Self {
        Self::new(
            Kind::Refused,
            None,
            "the peer was refused when it connected",
        )
    }

    /// Reports a panic of the handler, or of what writes a body for it. The payload is dropped.
    pub(crate) fn panic(payload: Box<dyn Any + Send>) -> Self {
        let text = payload.downcast_ref::<&'static str>().copied();
        let text = text
            .or_else(|| payload.downcast_ref::<String>().map(String::as_str))
            .unwrap_or("")
            .into();
        // A payload may panic when it is dropped. Nobody catches that one.
        if let Err(second) = catch_unwind(AssertUnwindSafe(|| drop(payload))) {
            std::mem::forget(second);
        }
        let panic = Some(Arc::new(Panic {
            text,
            request: None,
        }));

        Self {
            panic,
            ..Self::new(
                Kind::Panic,
                Some(StatusCode::INTERNAL_SERVER_ERROR),
                "the handler panicked",
            )
        }
    }

    /// Returns the same error; a panic with the request that it was the answer to.
    pub(crate) fn of_request(self, head: &RequestHead<'_>) -> Self {
        if self.is_panic() {
            self.at(request_named(head))
        } else {
            self
        }
    }

    /// Does what [`Self::of_request`] does, where only the name is left of the request.
    pub(crate) fn at(self, request: Box<str>) -> Self {
        let Some(panic) = self.panic.as_ref().filter(|panic| panic.request.is_none()) else {
            return self;
        };
        let panic = Panic {
            text: panic.text.clone(),
            request: Some(request),
        };

        Self {
            panic: Some(Arc::new(panic)),
            ..self
        }
    }

    /// Reports a response body that could not be produced as promised.
    pub(crate) fn body(what: &'static str, source: Option<io::Error>) -> Self {
        Self {
            source: source.map(Arc::new),
            ..Self::new(Kind::Body, None, what)
        }
    }

    /// Reports a peer that breaks the rules of the protocol so that no request is left to be
    /// answered.
    #[cfg(feature = "http2")]
    pub(crate) fn peer(source: io::Error, what: &'static str) -> Self {
        Self {
            source: Some(Arc::new(source)),
            ..Self::new(Kind::Parse, None, what)
        }
    }

    /// Classifies a transport's error: timeouts, vanished peers, the rest.
    pub(crate) fn io(source: io::Error, what: &'static str) -> Self {
        use io::ErrorKind as E;
        let kind = match source.kind() {
            // std's sockets say WouldBlock when SO_RCVTIMEO or SO_SNDTIMEO has passed.
            E::TimedOut | E::WouldBlock => Kind::Timeout,
            E::ConnectionReset
            | E::ConnectionAborted
            | E::BrokenPipe
            | E::NotConnected
            | E::UnexpectedEof => Kind::Closed,
            _ => Kind::Io,
        };

        Self {
            source: Some(Arc::new(source)),
            ..Self::new(kind, None, what)
        }
    }

    /// Returns the same error with the answer it deserves; `None` when it is too late to answer.
    pub(crate) fn with_status(self, status: Option<StatusCode>) -> Self {
        Self { status, ..self }
    }

    /// Returns the status that is sent to the peer, if anything can still be sent.
    pub fn status(&self) -> Option<StatusCode> {
        self.status
    }

    /// Returns whether the peer's bytes are not HTTP as RFC 9110, RFC 9112 and RFC 9113 define it,
    /// or a part of it that is not supported.
    pub fn is_parse(&self) -> bool {
        self.kind == Kind::Parse
    }

    /// Returns whether a limit on the size of a head or a body was exceeded.
    pub fn is_too_large(&self) -> bool {
        self.kind == Kind::TooLarge
    }

    /// Returns whether the peer was slower than a timeout or the minimum rate allows.
    pub fn is_timeout(&self) -> bool {
        self.kind == Kind::Timeout
    }

    /// Returns whether the peer went away in the middle of a request or a response.
    pub fn is_closed(&self) -> bool {
        self.kind == Kind::Closed
    }

    /// Returns whether the transport failed in another way; cancellation by the runtime is found
    /// through `source()`.
    pub fn is_io(&self) -> bool {
        self.kind == Kind::Io
    }

    /// Returns whether it is a header name or value that must not be sent (with CR, LF or NUL, for
    /// instance).
    pub fn is_invalid_header(&self) -> bool {
        self.kind == Kind::Header
    }

    /// Returns whether the handler panicked; the peer got 500. The error's text has the method, the
    /// path and the panic's message.
    pub fn is_panic(&self) -> bool {
        self.kind == Kind::Panic
    }

    /// Returns the panic's message, if it is a panic that has one.
    pub fn panic_text(&self) -> Option<&str> {
        self.panic
            .as_ref()
            .map(|panic| &*panic.text)
            .filter(|text| !text.is_empty())
    }

    /// Returns whether [`Server::on_open`](crate::Server::on_open) refused the peer.
    pub fn is_refused(&self) -> bool {
        self.kind == Kind::Refused
    }

    /// Returns whether the response body ended early or its reader failed; the connection was
    /// closed to show it.
    pub fn is_response_body(&self) -> bool {
        self.kind == Kind::Body
    }
}

/// Returns how a panic's message names a request: the path escaped, so that it stays on its line in
/// a log, and without the query, which may hold secrets.
pub(crate) fn request_named(head: &RequestHead<'_>) -> Box<str> {
    format!("{} {}", head.method(), head.path().escape_debug()).into()
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.what)?;
        let Some(panic) = &self.panic else {
            return Ok(());
        };
        if let Some(request) = &panic.request {
            write!(f, " at {request}")?;
        }
        self.panic_text()
            .map_or(Ok(()), |text| write!(f, ": {text}"))
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.source.as_deref().map(|source| source as _)
    }
}

/// For handlers that read a body with `?`.
impl From<Error> for io::Error {
    fn from(error: Error) -> Self {
        let kind = match error.kind {
            Kind::Timeout => io::ErrorKind::TimedOut,
            Kind::Closed => io::ErrorKind::UnexpectedEof,
            Kind::Io | Kind::Panic | Kind::Body => io::ErrorKind::Other,
            Kind::Refused => io::ErrorKind::PermissionDenied,
            Kind::Parse | Kind::TooLarge | Kind::Header => io::ErrorKind::InvalidData,
        };
        Self::new(kind, error)
    }
}
