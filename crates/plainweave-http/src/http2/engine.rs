//! A connection as it is between two turns: the engine, and the pipe that it reads and writes.

use std::fmt;
use std::future::Future;
use std::io;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use bytes::Bytes;
use h2::Reason;
use h2::server::{self, Connection, Handshake, SendResponse};
use plainweave::time::saturating_add;

use super::pipe::Pipe;
use super::shared::Shared;
use crate::limits::Http2Limits;
use crate::limits::Limits;
use crate::server::http2_connections::Idle;
use crate::transport::non_blocking::{NonBlocking, Wait};
use crate::transport::stream::Transport;

/// The largest window (RFC 9113, 6.9.1).
const MAX_WINDOW: u32 = (1 << 31) - 1;
/// For the last frames to leave, to a client that does not read.
pub(super) const FAREWELL: Duration = Duration::from_millis(10);

/// A connection between two turns.
pub(crate) struct Http2 {
    pub(super) engine: Engine,
    pub(super) pipe: Pipe,
    pub(super) shared: Shared,
    /// Since when there has been no request.
    pub(super) idle: Instant,
    /// The engine was asked to take no more requests.
    pub(super) drains: Option<Instant>,
    /// It has no turn.
    pub(super) idle_place: Option<Idle>,
}

pub(super) enum Engine {
    /// The client's preface is to come.
    Handshake(Handshake<Pipe, Bytes>),
    Open(Connection<Pipe, Bytes>),
    /// It is of no use any more.
    Over,
}

/// What the engine gives of a request.
pub(super) type Request = (http::Request<h2::RecvStream>, SendResponse<Bytes>);

impl Http2 {
    pub(super) fn new(limits: &Limits, own: &Http2Limits, shared: Shared) -> Self {
        let pipe = Pipe::new(own);
        let engine = server::Builder::new()
            .max_concurrent_streams(limits.streams())
            .max_header_list_size(u32::try_from(limits.head_bytes).unwrap_or(u32::MAX))
            .initial_window_size(own.stream_window.min(MAX_WINDOW))
            .initial_connection_window_size(own.connection_window.min(MAX_WINDOW))
            .max_send_buffer_size(own.send_buffer)
            .max_local_error_reset_streams(Some(own.resets as usize))
            .enable_connect_protocol()
            .handshake(pipe.clone());
        Self {
            engine: Engine::Handshake(engine),
            pipe,
            shared,
            idle: Instant::now(),
            drains: None,
            idle_place: None,
        }
    }

    /// Says that the connection ends, if the client takes that at once.
    pub(super) fn farewell<S: Transport>(&mut self, stream: &mut S) {
        self.engine.abort(Reason::NO_ERROR);
        self.engine.poll(Waker::noop());
        if let Some(stream) = stream.non_blocking() {
            send_last(stream, &self.pipe, &self.shared, FAREWELL);
        }
    }
}

impl fmt::Debug for Http2 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Http2")
            .field("served", &self.shared.served())
            .finish_non_exhaustive()
    }
}

/// What the engine has come to.
pub(super) enum Step {
    /// It has taken and given all that it can.
    Waits,
    Request(Box<Request>),
    Over,
    Failed(h2::Error),
}

impl Engine {
    pub(super) fn poll(&mut self, waker: &Waker) -> Step {
        let cx = &mut Context::from_waker(waker);
        let step = loop {
            match self {
                Self::Handshake(handshake) => match Pin::new(handshake).poll(cx) {
                    Poll::Pending => return Step::Waits,
                    Poll::Ready(Ok(connection)) => *self = Self::Open(connection),
                    Poll::Ready(Err(error)) => break Step::Failed(error),
                },
                Self::Open(connection) => match pin!(connection.accept()).poll(cx) {
                    Poll::Pending => return Step::Waits,
                    Poll::Ready(Some(Ok(request))) => return Step::Request(Box::new(request)),
                    Poll::Ready(Some(Err(error))) => break Step::Failed(error),
                    Poll::Ready(None) => break Step::Over,
                },
                Self::Over => return Step::Over,
            }
        };

        // Whatever a request waits for fails.
        *self = Self::Over;
        step
    }

    /// Takes no more requests, and ends after the last one in progress.
    pub(super) fn drain(&mut self) {
        if let Self::Open(connection) = self {
            connection.graceful_shutdown();
        }
    }

    /// Ends at the next poll, whatever is in progress.
    pub(super) fn abort(&mut self, reason: Reason) {
        if let Self::Open(connection) = self {
            connection.abrupt_shutdown(reason);
        }
    }

    pub(super) fn has_streams(&self) -> bool {
        matches!(self, Self::Open(connection) if connection.has_streams())
    }
}

/// Sends some of `out` and returns how much; if that is empty, what the stream itself still holds:
/// `None` once nothing is left.
///
/// # Errors
/// [`io::ErrorKind::WouldBlock`]: there is no room. Any other is the stream's.
pub(super) fn send_some(stream: &mut dyn NonBlocking, out: &[u8]) -> io::Result<Option<usize>> {
    if out.is_empty() {
        stream.push().map(|()| None)
    } else {
        stream.try_write(out).map(Some)
    }
}

/// Sends what is left, if the client takes it within `limit`.
pub(super) fn send_last(
    stream: &mut dyn NonBlocking,
    pipe: &Pipe,
    shared: &Shared,
    limit: Duration,
) {
    let deadline = saturating_add(Instant::now(), limit);
    loop {
        let mut pipe = pipe.lock();
        match send_some(stream, pipe.out()) {
            Ok(None) => return,
            Ok(Some(len)) => drop(pipe.sent(len)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                drop(pipe);
                let left = deadline.saturating_duration_since(Instant::now());
                let mut wait = Wait::new(&shared.wakeups, left);
                wait.writes = true;
                if left.is_zero() || stream.wait(&wait).is_err() {
                    return;
                }
            }
            Err(_) => return,
        }
    }
}
