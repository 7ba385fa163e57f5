//! Bounds that HTTP/2 needs beside those of every connection.

/// Bounds on what one HTTP/2 connection may hold and cost; [`Limits`](crate::Limits) holds for it
/// too, its timeouts and its bounds on a request for each stream.
#[derive(Clone, Debug)]
pub struct Http2Limits {
    /// Requests in progress on one connection, of which the client is informed; more are refused
    /// (`REFUSED_STREAM`, after which clients try again). A request whose handler goes on after the
    /// client has reset it still counts.
    /// [`Limits::connections_per_address`](crate::Limits::connections_per_address) may allow fewer.
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
