//! What lies between the engine and the stream: bytes that have arrived and bytes that are to be
//! sent. The engine reads and writes here and never waits for a stream; the connection's fiber
//! carries the bytes.
//!
//! So all answers that are ready leave in one write, and an idle connection is these buffers, not a
//! fiber.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::meter::Meter;
use crate::limits::Http2Limits;

/// The engine is asked to wait once this much is to be sent: four records of TLS.
const GATHERED: usize = 64 << 10;

/// One end each for the engine and the connection. Never locked across a suspension.
#[derive(Clone, Debug)]
pub(super) struct Pipe(Arc<Mutex<State>>);

#[derive(Debug)]
pub(super) struct State {
    /// What has arrived: `input[start..]`.
    input: Vec<u8>,
    start: usize,
    /// Nothing more arrives.
    pub(super) ended: bool,
    /// To be sent: `out[sent..]`.
    out: Vec<u8>,
    sent: usize,
    /// The engine waits for room.
    full: bool,
    pub(super) meter: Meter,
}

impl Pipe {
    pub(super) fn new(limits: &Http2Limits) -> Self {
        let input = Vec::new();
        let out = Vec::new();
        let meter = Meter::new(limits);
        Self(Arc::new(Mutex::new(State {
            input,
            start: 0,
            ended: false,
            out,
            sent: 0,
            full: false,
            meter,
        })))
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Gives the engine what has arrived.
    pub(super) fn received(&mut self, bytes: &[u8]) {
        self.meter.received(bytes);
        if self.start == self.input.len() {
            self.input.clear();
            self.start = 0;
        }
        self.input.extend_from_slice(bytes);
    }

    /// Returns whether the engine has taken all that has arrived.
    pub(super) fn is_drained(&self) -> bool {
        self.start == self.input.len()
    }

    /// Returns what is to be sent.
    pub(super) fn out(&self) -> &[u8] {
        &self.out[self.sent..]
    }

    /// Notes that `len` bytes of it were sent. Returns whether the engine has waited for that.
    pub(super) fn sent(&mut self, len: usize) -> bool {
        self.meter.sent(len);
        self.sent += len;
        if self.sent >= GATHERED || self.sent == self.out.len() {
            self.out.drain(..self.sent);
            self.sent = 0;
        }

        len > 0 && std::mem::take(&mut self.full)
    }

    /// Gives memory back; for a connection that is idle.
    pub(super) fn release(&mut self) {
        if self.is_drained() {
            (self.input, self.start) = (Vec::new(), 0);
        }
        if self.out().is_empty() {
            (self.out, self.sent) = (Vec::new(), 0);
        }
    }

    fn append(&mut self, bytes: &[u8]) -> usize {
        let len = bytes.len().min(GATHERED.saturating_sub(self.out().len()));
        self.meter.written(&bytes[..len]);
        self.out.extend_from_slice(&bytes[..len]);
        len
    }
}

impl AsyncRead for Pipe {
    /// Whoever gives more polls the engine, so no waker is kept.
    fn poll_read(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let mut state = self.lock();
        let there = &state.input[state.start..];
        if there.is_empty() && !state.ended {
            return Poll::Pending;
        }
        let len = there.len().min(buf.remaining());
        buf.put_slice(&there[..len]);
        state.start += len;
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Pipe {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(cx, &[IoSlice::new(buf)])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let mut state = self.lock();
        let len = bufs.iter().map(|buf| state.append(buf)).sum();
        if len == 0 && bufs.iter().any(|buf| !buf.is_empty()) {
            state.full = true;
            return Poll::Pending;
        }

        Poll::Ready(Ok(len))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    /// The connection sends when it has asked the engine for all.
    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
