//! A stream that a handler has taken over: a WebSocket over HTTP/2 (RFC 8441), or what a plain
//! CONNECT asks for.
//!
//! The client asks by CONNECT, with the protocol in a field of its own. The handler sees the
//! request as HTTP/1 would have had it: GET, with `Connection: upgrade` and the protocol in
//! `Upgrade`. So one handler serves both, and what it answers by [`Response::upgrade`] is sent as
//! 200, which is what the client waits for; the fields that belong to HTTP/1 alone are made up or
//! left out. Any other answer of success would be taken for agreement, and is sent as 501.

use std::future::{Future, poll_fn};
use std::io::{self, Read, Write};
use std::pin::Pin;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use bytes::{Buf, Bytes};
use h2::ext::Protocol;
use h2::{RecvStream, SendStream};
use http::request::Parts;
use http::{Method, StatusCode, header};
use httparse::Header;
use plainweave::block_on;
use plainweave::sync::select::FutureBranch;
use plainweave::time::with_timeout;

use crate::message::response::{Body, Response};
use crate::transport::non_blocking::{NonBlocking, Wait};
use crate::transport::upgraded::{Branch, Raw};

/// The key of a WebSocket's request, which HTTP/2 does without and handlers ask for.
const KEY: Header<'_> = Header {
    name: "sec-websocket-key",
    value: b"AAAAAAAAAAAAAAAAAAAAAA==",
};

/// What a request asks for, if it asks for a stream of bytes.
#[derive(Clone, Copy)]
pub(super) enum Asked<'a> {
    /// A protocol by name.
    Protocol(&'a str),
    /// A connection to elsewhere.
    Connect,
}

impl<'a> Asked<'a> {
    pub(super) fn of(parts: &'a Parts) -> Option<Self> {
        match parts.extensions.get::<Protocol>() {
            _ if parts.method != Method::CONNECT => None,
            Some(protocol) => Some(Self::Protocol(protocol.as_str())),
            None => Some(Self::Connect),
        }
    }

    /// Adds the fields that the request would have in HTTP/1.
    pub(super) fn add_fields(self, fields: &mut Vec<Header<'a>>) {
        let Self::Protocol(protocol) = self else {
            return;
        };
        fields.push(Header {
            name: "connection",
            value: b"upgrade",
        });
        fields.push(Header {
            name: "upgrade",
            value: protocol.as_bytes(),
        });
        if protocol.eq_ignore_ascii_case("websocket")
            && !fields.iter().any(|field| field.name == KEY.name)
        {
            fields.push(KEY);
        }
    }

    /// Makes a handler's response what this request is to be answered.
    pub(super) fn answer(self, mut response: Response) -> Response {
        let agrees = match (self, &response.body) {
            (Self::Connect, Body::Upgrade(_)) => response.status == StatusCode::OK,
            (Self::Protocol(asked), Body::Upgrade(_)) => {
                let named = response.headers.get(header::UPGRADE);
                named.is_some_and(|named| named.as_bytes().eq_ignore_ascii_case(asked.as_bytes()))
            }
            _ if response.status.is_success() => false,
            _ => return response,
        };

        if !agrees {
            return Response::plain(StatusCode::NOT_IMPLEMENTED);
        }
        response.status = StatusCode::OK;
        response.headers.remove(header::SEC_WEBSOCKET_ACCEPT);
        response
    }
}

/// A stream of HTTP/2 as a stream of bytes.
pub(super) struct Tunnel {
    /// Never locked across a suspension.
    state: Mutex<State>,
    read_timeout: Duration,
    write_timeout: Duration,
}

struct State {
    recv: RecvStream,
    send: SendStream<Bytes>,
    /// What has come and was not read.
    data: Bytes,
    /// The client has ended its direction.
    ended: bool,
    /// So have we.
    shut: bool,
}

impl State {
    /// Waits until a read finds something, if it is the end.
    fn poll_input(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.data.is_empty() && !self.ended {
            match ready!(self.recv.poll_data(cx)) {
                Some(data) => self.data = data.map_err(broken)?,
                None => self.ended = true,
            }
        }
        Poll::Ready(Ok(()))
    }

    /// Reads what has come.
    fn take(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let len = self.data.len().min(buf.len());
        self.data.copy_to_slice(&mut buf[..len]);
        // The client may send as much again.
        let released = self.recv.flow_control().release_capacity(len);
        released.map(|()| len).map_err(broken)
    }

    /// Waits until there is room for some of `wanted` bytes.
    fn poll_room(&mut self, cx: &mut Context<'_>, wanted: usize) -> Poll<io::Result<usize>> {
        if self.shut {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        self.send.reserve_capacity(wanted);
        loop {
            match self.send.capacity() {
                0 => {}
                room => return Poll::Ready(Ok(room.min(wanted))),
            }

            match ready!(self.send.poll_capacity(cx)) {
                Some(more) => drop(more.map_err(broken)?),
                None => return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into())),
            }
        }
    }

    fn put(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let sent = self.send.send_data(Bytes::copy_from_slice(bytes), false);
        sent.map(|()| bytes.len()).map_err(broken)
    }
}

impl Tunnel {
    pub(super) fn new(
        recv: RecvStream,
        send: SendStream<Bytes>,
        (read_timeout, write_timeout): (Duration, Duration),
    ) -> Self {
        let state = State {
            recv,
            send,
            data: Bytes::new(),
            ended: false,
            shut: false,
        };

        Self {
            state: Mutex::new(state),
            read_timeout,
            write_timeout,
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Makes an error of the engine one of a stream of bytes.
fn broken(error: h2::Error) -> io::Error {
    if error.is_reset() || error.is_go_away() {
        return io::Error::new(io::ErrorKind::ConnectionReset, error);
    }
    match error.is_io() {
        true => error
            .into_io()
            .unwrap_or_else(|| io::ErrorKind::ConnectionReset.into()),
        false => io::Error::other(error),
    }
}

/// Waits for what `poll` says, for at most `limit`.
fn wait_for<T>(
    limit: Duration,
    mut poll: impl FnMut(&mut Context<'_>) -> Poll<io::Result<T>>,
) -> io::Result<T> {
    match poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(done) => done,
        Poll::Pending => with_timeout(limit, || block_on(poll_fn(poll)))?,
    }
}

/// Does what `poll` says if that takes no wait.
fn at_once<T>(poll: impl FnOnce(&mut Context<'_>) -> Poll<io::Result<T>>) -> io::Result<T> {
    match poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(done) => done,
        Poll::Pending => Err(io::ErrorKind::WouldBlock.into()),
    }
}

impl Read for Tunnel {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        wait_for(self.read_timeout, |cx| self.state().poll_input(cx))?;
        self.state().take(buf)
    }
}

impl Write for Tunnel {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        if buf.is_empty() {
            return Ok(0);
        }
        let limit = self.write_timeout;
        let room = wait_for(limit, |cx| self.state().poll_room(cx, buf.len()))?;
        self.state().put(&buf[..room])
    }

    /// The connection's fiber sends what the engine has.
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl NonBlocking for Tunnel {
    fn try_read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let mut state = self.state();
        at_once(|cx| state.poll_input(cx))?;
        state.take(buf)
    }

    fn try_write(&mut self, buf: &[u8]) -> io::Result<usize> {
        if buf.is_empty() {
            return Ok(0);
        }
        let mut state = self.state();
        let room = at_once(|cx| state.poll_room(cx, buf.len()))?;
        state.put(&buf[..room])
    }

    fn wait(&mut self, wait: &Wait<'_>) -> io::Result<()> {
        let something = poll_fn(|cx| {
            let mut state = self.state();
            // Both, so that either wakes.
            let input = wait.reads && state.poll_input(cx).is_ready();

            let room = wait.writes && state.poll_room(cx, 1).is_ready();
            if input || room {
                Poll::Ready(())
            } else {
                Poll::Pending
            }
        });
        wait.beside(something)
    }
}

impl Raw for Tunnel {
    fn set_read_timeout(&mut self, timeout: Duration) -> io::Result<()> {
        self.read_timeout = timeout;
        Ok(())
    }

    fn set_write_timeout(&mut self, timeout: Duration) -> io::Result<()> {
        self.write_timeout = timeout;
        Ok(())
    }

    fn shutdown_write(&mut self) -> io::Result<()> {
        let mut state = self.state();
        if std::mem::replace(&mut state.shut, true) {
            return Ok(());
        }
        state.send.send_data(Bytes::new(), true).map_err(broken)
    }

    fn non_blocking(&mut self) -> Option<&mut dyn NonBlocking> {
        Some(self)
    }

    fn readable_branch(&self) -> Option<Branch<'_>> {
        let input = poll_fn(|cx| self.state().poll_input(cx).map(drop));
        let input: Pin<Box<dyn Future<Output = ()> + '_>> = Box::pin(input);
        Some(Branch::Stream(FutureBranch::new(input)))
    }

    fn holds_input(&self) -> bool {
        !self.state().data.is_empty()
    }
}
