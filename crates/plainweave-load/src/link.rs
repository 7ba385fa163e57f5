//! A connection over HTTP/2: the crate h2, and the two fibers that carry its bytes.
//!
//! h2 reads and writes a *pipe* in memory. The *reader* gives it what arrives, which wakes the
//! streams that wait for it. The *writer* sends what h2 has written, all that has gathered since
//! its last turn at once; h2 wakes it when a stream has something to send. A stream's fiber never
//! writes: its deadline could end it within a frame, and the connection with it.
//!
//! Everything is on one worker, and no cell stays borrowed across a suspension.

use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::io::{self, Read, Write};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};

use bytes::Bytes;
use h2::client::{self, Connection, SendRequest};
use h2::{Error, RecvStream};
use plainweave::sync::Notify;
use plainweave::{Fiber, block_on, spawn_local};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::engine::Broken;
use super::socket::Socket;
use super::stream::Stream;
use super::tally::Failure;
use super::tls::Records;

/// Bytes of a read.
const READ: usize = 64 << 10;
/// h2 is asked to wait once this much is to be sent.
const GATHERED: usize = 256 << 10;
/// The windows: larger than bodies are, so that they never hold a server up.
const WINDOW: u32 = (1 << 30) - 1;

/// A connection; gone with the value.
pub(super) struct Link {
    core: Rc<Core>,
    fibers: [Fiber; 2],
}

struct Core {
    socket: Socket,
    /// Over TLS.
    records: Option<RefCell<Records>>,
    pipe: Pipe,
    /// The engine, until it has ended.
    engine: RefCell<Option<Connection<Pipe, Bytes>>>,
    requests: RefCell<SendRequest<Bytes>>,
    /// Something is to be sent.
    to_send: Arc<Sending>,
    /// Something was sent.
    sent: Notify,
    /// Something has come, or the connection has ended.
    heard: Notify,
    /// Bytes that have come.
    received: Cell<u64>,
    /// Why it has ended.
    lost: Cell<Option<Failure>>,
    /// It takes no more streams.
    spent: Cell<bool>,
}

/// Wakes the writer.
struct Sending(Notify);

impl Wake for Sending {
    fn wake(self: Arc<Self>) {
        self.0.notify_one();
    }
}

impl Link {
    /// Greets the server, and returns when it has greeted too.
    pub(super) fn open(stream: Stream) -> Result<Self, Failure> {
        let (records, socket) = match stream {
            Stream::Plain(socket) => (None, socket),
            Stream::Tls(session) => session.into_parts(),
        };
        let pipe = Pipe::default();
        let mut builder = client::Builder::new();
        builder
            .initial_window_size(WINDOW)
            .initial_connection_window_size(WINDOW)
            .enable_push(false);
        let greeting = builder.handshake(pipe.clone());
        // The pipe takes the greeting at once.
        let Poll::Ready(Ok((requests, engine))) =
            pin!(greeting).poll(&mut Context::from_waker(Waker::noop()))
        else {
            return Err(Failure::Other);
        };
        let core = Rc::new(Core {
            socket,
            records: records.map(RefCell::new),
            pipe,
            engine: RefCell::new(Some(engine)),
            requests: RefCell::new(requests),
            to_send: Arc::new(Sending(Notify::new())),
            sent: Notify::new(),
            heard: Notify::new(),
            received: Cell::new(0),
            lost: Cell::new(None),
            spent: Cell::new(false),
        });
        let reader = core.clone();
        let writer = core.clone();
        let reader = spawn_local(move || reader.read());
        let writer = spawn_local(move || writer.write());
        let link = Self {
            core,
            fibers: [reader.fiber(), writer.fiber()],
        };
        // A server that does not speak HTTP/2 is then a failed connection, not a failed request.
        while link.core.received.get() == 0 && link.core.lost.get().is_none() {
            link.core.heard.wait()?;
        }
        link.core.lost.get().map_or(Ok(link), Err)
    }

    /// Returns whether it has room for another stream, sooner or later.
    pub(super) fn takes_streams(&self) -> bool {
        !self.core.spent.get() && self.core.lost.get().is_none()
    }

    /// Takes no more streams.
    fn retire(&self) {
        self.core.spent.set(true);
    }

    /// Ends the connection, whoever has a hold on it.
    pub(super) fn close(&self) {
        self.retire();
        self.core.socket.close();
    }

    /// Makes a request on a stream of its own. Returns the answer's status and the bytes of its
    /// body.
    pub(super) fn ask(&self, head: &http::Request<()>, body: &Bytes) -> Result<(u16, u64), Broken> {
        let before = self.core.received.get();
        block_on(self.core.ask(head.clone(), body.clone())).unwrap_or_else(|error| {
            // Where nothing came at all meanwhile, the connection may be dead: others make a new
            // one.
            if self.core.received.get() == before {
                self.retire();
            }
            Err(Broken::silent(error.into()))
        })
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.fibers.iter().for_each(Fiber::cancel);
    }
}

impl Core {
    async fn ask(&self, head: http::Request<()>, body: Bytes) -> Result<(u16, u64), Broken> {
        let before = |error: Error| {
            let failure = self.failure(&error);
            if matches!(failure, Failure::GoneAway(_)) {
                self.spent.set(true);
            }
            Broken::silent(failure)
        };
        // h2 keeps a request that the server has no room for yet, and a body, which is a share of
        // the same memory.
        let mut requests = self.requests.borrow().clone();
        let (response, mut sender) =
            requests
                .send_request(head, body.is_empty())
                .map_err(|error| {
                    // It has ended, is about to, or has no number left for another stream.
                    self.spent.set(true);
                    before(error)
                })?;
        if !body.is_empty() {
            sender.send_data(body, true).map_err(before)?;
        }
        let response = response.await.map_err(before)?;
        let status = response.status().as_u16();
        let len = self
            .body(response.into_body())
            .await
            .map_err(|error| Broken::within(self.failure(&error)))?;
        Ok((status, len))
    }

    async fn body(&self, mut body: RecvStream) -> Result<u64, Error> {
        let mut len = 0;
        while let Some(bytes) = poll_fn(|cx| body.poll_data(cx)).await {
            let bytes = bytes?;
            len += bytes.len() as u64;
            // Nobody reads it later, so the server need not wait for room.
            body.flow_control().release_capacity(bytes.len())?;
        }
        // An error may come with these, behind a whole body.
        poll_fn(|cx| body.poll_trailers(cx)).await?;
        Ok(len)
    }

    /// Names an error of h2's.
    fn failure(&self, error: &Error) -> Failure {
        let code = |error: &Error| error.reason().map_or(u32::MAX, u32::from);
        match (error.is_io(), error.is_remote(), error.is_go_away()) {
            // The reader knows what became of the socket; h2 only that it is gone.
            (true, ..) => self.lost.get().unwrap_or(Failure::Closed),
            (_, true, true) => Failure::gone_away(code(error)),
            (_, true, false) => Failure::stream_reset(code(error)),
            _ => Failure::Http2Broken,
        }
    }

    /// Has h2 take what has come and write what is to be sent.
    fn turn(&self) {
        let mut engine = self.engine.borrow_mut();
        let Some(connection) = engine.as_mut() else {
            return;
        };

        let waker = Waker::from(self.to_send.clone());
        if let Poll::Ready(end) = Pin::new(connection).poll(&mut Context::from_waker(&waker)) {
            let failure = end.map_or_else(
                |error| self.failure(&error),
                |()| self.lost.get().unwrap_or(Failure::Closed),
            );
            self.lost.set(Some(failure));
            *engine = None;
        }
    }

    /// The life of the reader.
    fn read(&self) {
        let mut buffer = vec![0; READ];
        // What came with the handshake.
        let mut received = self.receive(&[]);
        while received.is_ok() && self.engine.borrow().is_some() {
            received = match (&self.socket).read(&mut buffer) {
                Ok(0) => Err(Failure::Closed),
                Ok(len) => self.receive(&buffer[..len]),
                Err(error) => Err(error.into()),
            };
        }

        if let Err(failure) = received {
            self.lost.set(self.lost.get().or(Some(failure)));
            self.pipe.0.borrow_mut().ended = true;
            self.turn();
        }

        *self.engine.borrow_mut() = None;
        self.heard.notify_one();
        // The last words.
        self.to_send.0.notify_one();
    }

    fn receive(&self, bytes: &[u8]) -> Result<(), Failure> {
        let mut opened = Ok(());
        let mut answers = false;
        {
            let input = &mut self.pipe.0.borrow_mut().input;
            match &self.records {
                None => input.extend_from_slice(bytes),
                Some(records) => {
                    let mut records = records.borrow_mut();
                    opened = records.open(bytes, input);
                    answers = records.wants_write();
                }
            }
        }
        self.turn();
        if !bytes.is_empty() {
            self.received.set(self.received.get() + bytes.len() as u64);
            self.heard.notify_one();
        }
        if answers || !self.pipe.0.borrow().out.is_empty() {
            self.to_send.0.notify_one();
        }
        // h2 takes no more while its own answers have no room.
        while opened.is_ok() && !self.pipe.is_drained() && self.engine.borrow().is_some() {
            self.sent.wait()?;
            self.turn();
        }
        opened
    }

    /// The life of the writer.
    fn write(&self) {
        let mut plain = Vec::new();
        let mut sealed = Vec::new();
        loop {
            self.turn();
            let full = self.pipe.take(&mut plain);
            let wire = match &self.records {
                None => &plain,
                Some(records) => {
                    sealed.clear();
                    records.borrow_mut().seal(&plain, &mut sealed);
                    &sealed
                }
            };

            if !wire.is_empty() {
                // If that fails, the reader finds out why.
                if (&self.socket).write_all(wire).is_err() {
                    return;
                }
                // The reader may wait for room for h2's own answers.
                self.sent.notify_one();
            }

            if !full && (self.engine.borrow().is_none() || self.to_send.0.wait().is_err()) {
                return;
            }
        }
    }
}

/// What lies between h2 and the socket.
#[derive(Clone, Default)]
struct Pipe(Rc<RefCell<Held>>);

#[derive(Default)]
struct Held {
    /// What has come: `input[start..]`.
    input: Vec<u8>,
    start: usize,
    /// Nothing more comes.
    ended: bool,
    out: Vec<u8>,
    /// h2 waits for room.
    full: bool,
}

impl Pipe {
    fn is_drained(&self) -> bool {
        let state = self.0.borrow();
        state.start == state.input.len()
    }

    /// Takes what is to be sent. Returns whether h2 has more.
    fn take(&self, into: &mut Vec<u8>) -> bool {
        let mut state = self.0.borrow_mut();
        into.clear();
        std::mem::swap(&mut state.out, into);
        std::mem::take(&mut state.full)
    }
}

impl AsyncRead for Pipe {
    /// Whoever gives more polls h2, so no waker is kept.
    fn poll_read(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let state = &mut *self.0.borrow_mut();
        let there = &state.input[state.start..];
        if there.is_empty() && !state.ended {
            return Poll::Pending;
        }
        let len = there.len().min(buf.remaining());
        buf.put_slice(&there[..len]);
        state.start += len;
        if state.start == state.input.len() {
            state.input.clear();
            state.start = 0;
        }

        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Pipe {
    fn poll_write(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let mut state = self.0.borrow_mut();
        let len = buf.len().min(GATHERED.saturating_sub(state.out.len()));
        state.out.extend_from_slice(&buf[..len]);
        if len == 0 && !buf.is_empty() {
            state.full = true;
            return Poll::Pending;
        }

        Poll::Ready(Ok(len))
    }

    /// The writer sends.
    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
