//! Every bound of a server and its connections, in one place, all on by default.

use std::time::Duration;

/// What a handler left of a body is read and dropped up to this length; a longer rest costs the
/// connection.
pub(crate) const MAX_DRAINED: u64 = 64 << 10;
/// Most header fields that a request can have, whatever [`Limits::headers`] says.
pub const MAX_HEADERS: usize = 100;

/// Bounds on what one peer may send, hold and delay.
///
/// ```
/// # use std::time::Duration;
/// use plainweave_http::{Limits, Request, Response, Server};
///
/// let limits = Limits { body_bytes: 1 << 20, idle_timeout: Duration::from_secs(15), ..Limits::default() };
/// let server = Server::new(|_: &mut Request<'_>| Response::ok("hello\n")).with_limits(limits);
/// assert_eq!(server.limits().body_bytes, 1 << 20);
/// ```
#[derive(Clone, Debug)]
pub struct Limits {
    /// Bytes of a request head, request line included; more is answered 431.
    pub head_bytes: usize,
    /// Bytes of a request line; more is answered 414.
    pub line_bytes: usize,
    /// Header fields of a request, at most [`MAX_HEADERS`]; more is answered 431.
    pub headers: usize,
    /// Bytes of a request body; more is answered 413.
    pub body_bytes: u64,
    /// Requests on one connection before it is closed; 0 for no bound.
    pub requests: u32,
    /// From the opening of a connection over TLS to the end of its handshake; then the connection
    /// is closed.
    pub handshake_timeout: Duration,
    /// From a connection's opening to the first byte, and from a request's first byte to the end of
    /// its head; 408.
    pub header_timeout: Duration,
    /// Silence allowed between two requests; then the connection is closed.
    pub idle_timeout: Duration,
    /// Start of the allowance for a request body, which `min_rate` extends as bytes arrive; 408.
    pub body_timeout: Duration,
    /// Longest wait for the peer to take any byte of an answer; with `min_rate`, the start of its
    /// allowance.
    pub write_timeout: Duration,
    /// Bytes a second below which a body's receiver or sender is cut, once its timeout has passed;
    /// 0 switches the allowance off: then only silence is bounded.
    pub min_rate: u32,
    /// Silence allowed to a peer whose connection ends while it may still be sending, as when its
    /// upload was refused: what it sends is read and dropped, so that it can read the answer; for
    /// `body_timeout` in all.
    pub linger_timeout: Duration,
    /// Bytes that are dropped so, at most. Beyond them the connection is reset, and the peer may
    /// lose the answer.
    pub linger_bytes: usize,
    /// Connections that [`Server::serve`](crate::Server::serve) keeps open at a time, over all
    /// listeners; more wait in the kernel. 0, the default: as many as there may be descriptors for,
    /// less a few that other things need. A connection over a socket of `std` takes two
    /// ([`Transport::DESCRIPTORS`](crate::Transport::DESCRIPTORS)); a server that listens on one of
    /// these counts two for every connection.
    pub connections: usize,
    /// Of these, from one address; more are closed at once. Also the requests of HTTP/2 that one
    /// address may have in progress, over all its connections; more are answered 503, and a
    /// connection's client is asked not to send more. 0, the default: any number, for many clients
    /// can share an address.
    pub connections_per_address: usize,
    /// What bounds connections of HTTP/2 beside this; `None`: it is not spoken.
    #[cfg(feature = "http2")]
    pub http2: Option<Http2Limits>,
}

/// Those of the [`Limits`] that can be different for one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestLimits {
    /// See [`Limits::body_bytes`].
    pub body_bytes: u64,
    /// See [`Limits::body_timeout`].
    pub body_timeout: Duration,
    /// See [`Limits::write_timeout`].
    pub write_timeout: Duration,
    /// See [`Limits::min_rate`].
    pub min_rate: u32,
}

impl Limits {
    /// Returns what holds for a request of which nothing else is said.
    pub fn of_request(&self) -> RequestLimits {
        let Self {
            body_bytes,
            body_timeout,
            write_timeout,
            min_rate,
            ..
        } = *self;
        RequestLimits {
            body_bytes,
            body_timeout,
            write_timeout,
            min_rate,
        }
    }

    /// Returns how many requests one connection of HTTP/2 may have in progress.
    #[cfg(feature = "http2")]
    pub(crate) fn streams(&self) -> u32 {
        let of_address = match self.connections_per_address {
            0 => u32::MAX,
            most => u32::try_from(most).unwrap_or(u32::MAX),
        };

        self.http2
            .as_ref()
            .map_or(0, |own| own.streams.min(of_address))
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            head_bytes: 16 << 10,
            line_bytes: 8 << 10,
            headers: MAX_HEADERS,
            body_bytes: 16 << 20,
            requests: 0,
            handshake_timeout: Duration::from_secs(10),
            header_timeout: Duration::from_secs(10),
            idle_timeout: Duration::from_secs(60),
            body_timeout: Duration::from_secs(30),
            write_timeout: Duration::from_secs(30),
            min_rate: 512,
            linger_timeout: Duration::from_secs(2),
            linger_bytes: 1 << 30,
            connections: 0,
            connections_per_address: 0,
            #[cfg(feature = "http2")]
            http2: Some(Http2Limits::default()),
        }
    }
}

/// Bounds on what one HTTP/2 connection may hold and cost; [`Limits`] holds for it
/// too, its timeouts and its bounds on a request for each stream.
#[cfg(feature = "http2")]
#[derive(Clone, Debug)]
pub struct Http2Limits {
    /// Requests in progress on one connection, of which the client is informed; more are refused
    /// (`REFUSED_STREAM`, after which clients try again). A request whose handler goes on after the
    /// client has reset it still counts.
    /// [`Limits::connections_per_address`] may allow fewer.
    pub streams: u32,
    /// Bytes of one request's body that a client may send ahead of the handler, at most 2^31 - 1.
    pub stream_window: u32,
    /// The same for all requests of a connection together, at least 65,535: that much of memory a
    /// client can fill.
    pub connection_window: u32,
    /// Bytes of one answer that are taken from its handler ahead of the client.
    pub send_buffer: usize,
    /// Requests that a client may cancel at once; a tenth of them comes back each second. Then the
    /// connection is ended (`ENHANCE_YOUR_CALM`), as for what follows.
    pub resets: u32,
    /// Frames that carry neither a request nor data (PING, SETTINGS, WINDOW_UPDATE, CONTINUATION
    /// and so on) that a client may send at once; a tenth of them comes back each second, and one
    /// for each KiB of data in either direction. Two window updates for each frame of data that a
    /// client is sent are free, unless its windows are below 1 KiB.
    pub control_frames: u32,
    /// Connections of HTTP/2 that a server keeps while they have no request: each holds some 40
    /// KiB. Others are ended after their last answer; 0: none is.
    pub idle: usize,
}

#[cfg(feature = "http2")]
impl Default for Http2Limits {
    fn default() -> Self {
        Self {
            streams: 100,
            stream_window: 256 << 10,
            connection_window: 1 << 20,
            send_buffer: 64 << 10,
            resets: 200,
            control_frames: 1000,
            idle: 0,
        }
    }
}
