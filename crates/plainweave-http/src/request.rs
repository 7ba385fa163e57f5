//! What a handler gets.

use std::fmt;
use std::io::{self, Read};
use std::ops::Deref;

use crate::TlsSession;
use crate::head::RequestHead;

/// One request: its head by [`Deref`], its body by [`Read`].
///
/// Reading the body may suspend the fiber, within the body's timeouts. What is not read is dropped by the
/// connection.
pub struct Request<'a> {
    head: &'a RequestHead<'a>,
    body: &'a mut dyn Read,
    tls: Option<&'a TlsSession>,
}

impl<'a> Request<'a> {
    pub(crate) fn new(head: &'a RequestHead<'a>, body: &'a mut dyn Read) -> Self {
        Self { head, body, tls: None }
    }

    /// Notes what TLS knows of the connection.
    pub(crate) fn with_tls(self, tls: Option<&'a TlsSession>) -> Self {
        Self { tls, ..self }
    }

    /// Returns what TLS knows of the connection, the client's certificate above all; `None` for a plain connection.
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
            return Err(io::Error::new(io::ErrorKind::FileTooLarge, "the body is longer than the handler takes"));
        }
        Ok(body)
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
        f.debug_struct("Request").field("head", self.head).finish_non_exhaustive()
    }
}

/// Answers requests, in plain blocking code. Any `Fn(&mut Request<'_>) -> Response` is one; middleware is a handler
/// that calls another.
pub trait Handler: Send + Sync + 'static {
    /// Answers one request. A panic is answered 500 and costs no more than the connection.
    fn handle(&self, request: &mut Request<'_>) -> crate::Response;
}

impl<F> Handler for F
where
    F: Fn(&mut Request<'_>) -> crate::Response + Send + Sync + 'static,
{
    fn handle(&self, request: &mut Request<'_>) -> crate::Response {
        self(request)
    }
}
