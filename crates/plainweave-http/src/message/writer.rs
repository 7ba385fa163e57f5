//! A response body that its producer writes, in place of one that is read.

use std::fmt;
use std::io::{self, Write};

use http::{HeaderMap, HeaderName, HeaderValue, header};

use super::error::Error;
use super::header_lines::is_ours;

/// Bytes that are gathered before they are sent unasked.
const GATHERED: usize = 16 << 10;

/// Where a handler writes a response body: see [`Body::writer`](crate::Body::writer).
///
/// What is written is gathered, up to 16 KiB, and sent by `flush`, so an event stream flushes after
/// each event. The first bytes that are sent take the head with them. Writes may suspend the fiber,
/// within the limits on the peer; between two writes the producer may take its time.
///
/// ```
/// use std::io::Write;
/// use plainweave_http::{Body, Request, Response, Server};
///
/// let server = Server::new(|_: &mut Request<'_>| {
///     Response::ok(Body::writer(|body| (1..=3).try_for_each(|n| writeln!(body, "line {n}"))))
/// });
/// let answer = plainweave_http::testing::in_memory(&server, "GET / HTTP/1.0\r\n\r\n");
/// assert!(answer.ends_with(b"line 1\nline 2\nline 3\n"));
/// ```
pub struct BodyWriter<'a> {
    sink: &'a mut dyn Sink,
    gathered: Vec<u8>,
    trailers: HeaderMap,
    failed: Option<Error>,
}

/// What a producer leaves behind.
pub(crate) struct Written {
    /// What is still to be sent.
    pub(crate) gathered: Vec<u8>,
    pub(crate) trailers: HeaderMap,
    /// Why sending failed, whatever became of it in the producer.
    pub(crate) failed: Option<Error>,
}

impl<'a> BodyWriter<'a> {
    pub(crate) fn new(sink: &'a mut dyn Sink) -> Self {
        Self {
            sink,
            gathered: Vec::new(),
            trailers: HeaderMap::new(),
            failed: None,
        }
    }

    pub(crate) fn end(self) -> Written {
        let Self {
            gathered,
            trailers,
            failed,
            ..
        } = self;
        Written {
            gathered,
            trailers,
            failed,
        }
    }

    /// Adds a field to those that follow the body. Only HTTP/1.1 can send them, and most clients
    /// drop them; one that wants them says `TE: trailers`. Fields that belong to the head are left
    /// out (RFC 9110, 6.5.1).
    pub fn add_trailer(&mut self, name: HeaderName, value: HeaderValue) {
        if may_trail(&name) {
            self.trailers.append(name, value);
        }
    }

    fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        let sent = match &self.failed {
            Some(error) => Err(error.clone()),
            None => self.sink.piece(bytes),
        };

        sent.map_err(|error| {
            self.failed = Some(error.clone());
            error.into()
        })
    }

    fn send_gathered(&mut self) -> io::Result<()> {
        let mut gathered = std::mem::take(&mut self.gathered);
        let sent = self.send(&gathered);
        gathered.clear();
        self.gathered = gathered;
        sent
    }
}

impl Write for BodyWriter<'_> {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        if self.gathered.len() + buf.len() > GATHERED && !self.gathered.is_empty() {
            self.send_gathered()?;
        }
        if buf.len() >= GATHERED {
            self.send(buf)?;
        } else {
            self.gathered.extend_from_slice(buf);
        }
        Ok(buf.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.send_gathered()
    }
}

impl fmt::Debug for BodyWriter<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BodyWriter")
            .field("gathered", &self.gathered.len())
            .finish_non_exhaustive()
    }
}

/// Takes the pieces of a body, whatever the stream's type.
pub(crate) trait Sink {
    /// Sends a piece, and whatever waits before it. An empty one sends just that.
    fn piece(&mut self, piece: &[u8]) -> Result<(), Error>;
}

/// Returns whether a field may stand behind a body: nothing that frames, routes or describes the
/// message (RFC 9110, 6.5.1).
pub(crate) fn may_trail(name: &HeaderName) -> bool {
    const HEAD_ONLY: [HeaderName; 12] = [
        header::HOST,
        header::UPGRADE,
        header::EXPECT,
        header::RANGE,
        header::AUTHORIZATION,
        header::COOKIE,
        header::SET_COOKIE,
        header::CACHE_CONTROL,
        header::CONTENT_ENCODING,
        header::CONTENT_TYPE,
        header::CONTENT_RANGE,
        header::MAX_FORWARDS,
    ];
    !is_ours(name) && !HEAD_ONLY.contains(name)
}
