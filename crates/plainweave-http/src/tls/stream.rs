//! A TLS connection over any stream: the I/O around the engine.

use std::fmt;
use std::io::{self, IoSlice, Read, Write};
use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use plainweave::net::{HasSocket, SocketRef};
use plainweave::sync::select::ReadinessBranch;
use plainweave::time::{now, saturating_add};
use plainweave_serve::Closer;

use super::engine::{Engine, RECORD};
use super::error::{Error, Kind};
use super::shared::Shared;
use crate::limits::Limits;
use crate::message::proxy::{self, Proxied};
use crate::transport::non_blocking::NonBlocking;
use crate::transport::session::TlsSession;
use crate::transport::stream::{Handshake, Layer, Transport};

/// For a peer that is slow to take our last word.
const FAREWELL: Duration = Duration::from_millis(10);
/// For a peer whose time is over already.
const LOOK: Duration = Duration::from_millis(1);
/// No timeout was set yet, so a long one holds.
const UNSET: Duration = Duration::from_secs(60);
/// The answer to a client that speaks HTTP without TLS, as a browser does with `http://host:443`.
const SPEAK_TLS: &[u8] =
    b"HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\nConnection: close\r\n\
    Content-Length: 50\r\n\r\nThis port speaks TLS: write https:// and try again";

/// The server's side of a TLS connection; made by [`Acceptor::accept`](super::Acceptor::accept).
///
/// Timeouts are those of the stream below. They bound each call as a whole; a write has the time
/// again for each record that has left. What a write has taken is sent, if only by the next call: a
/// write that gets stuck after it has made records returns how many bytes are in them, and the call
/// after it sends the rest of them or fails. So a last write is followed by a flush.
///
/// Between two calls it holds no buffer, unless part of a record has arrived or is yet to be sent.
pub struct TlsStream<S: Transport> {
    stream: S,
    shared: Arc<Shared>,
    phase: Phase,
    read_timeout: Duration,
    write_timeout: Duration,
    /// A write has returned before its records had left: their time is over.
    late: bool,
    proxy: ProxyHeader,
}

/// A header of the PROXY protocol, which stands before the handshake.
#[derive(Clone, Copy)]
enum ProxyHeader {
    None,
    Expected,
    /// It has come; the client's address, if it has one.
    Read(Option<SocketAddr>),
}

enum Phase {
    /// The certificates are chosen when the first bytes are there, so that a reload concerns
    /// whoever waits.
    New {
        deadline: Instant,
    },
    Handshake {
        engine: Box<Engine>,
        name: Arc<OnceLock<String>>,
        deadline: Instant,
    },
    Open {
        engine: Box<Engine>,
        session: Arc<TlsSession>,
        truncated: bool,
    },
    Failed(Error),
}

impl<S: Transport> TlsStream<S> {
    pub(super) fn new(stream: S, shared: Arc<Shared>) -> Self {
        let phase = Phase::New {
            deadline: saturating_add(now(), Limits::default().handshake_timeout),
        };
        let late = false;
        let proxy = ProxyHeader::None;
        Self {
            stream,
            shared,
            phase,
            read_timeout: UNSET,
            write_timeout: UNSET,
            late,
            proxy,
        }
    }

    /// Returns the stream below.
    pub fn get_ref(&self) -> &S {
        &self.stream
    }

    /// Returns whether the handshake is not over.
    pub fn is_handshaking(&self) -> bool {
        matches!(self.phase, Phase::New { .. } | Phase::Handshake { .. })
    }

    /// Returns what the handshake has found out; `None` before it is over.
    pub fn session(&self) -> Option<&Arc<TlsSession>> {
        match &self.phase {
            Phase::Open { session, .. } => Some(session),
            _ => None,
        }
    }

    /// Does the handshake, and waits until it is over. The first read or write does the same.
    ///
    /// # Errors
    /// The peer is slow, leaves, or has no means in common with us. The connection is of no use
    /// then.
    pub fn handshake(&mut self) -> Result<(), Error> {
        while self.is_handshaking() {
            self.wait_and_step(Duration::MAX)?;
        }
        self.left().map(drop)
    }

    /// Waits for the peer, for at most `limit`, and goes on with the handshake. False: nothing has
    /// come.
    fn wait_and_step(&mut self, limit: Duration) -> Result<bool, Error> {
        let Some(left) = self.left()? else {
            return Ok(true);
        };
        let waited = self.stream.wait_readable(left.min(limit));
        let came = waited.map_err(|error| self.fail(Error::io(error, LOST)))?;
        if came {
            self.step()?;
        } else {
            // Fails if the time is over.
            self.left()?;
        }
        Ok(came)
    }

    /// Goes on with the handshake by what has arrived. To be called when the stream below is
    /// readable, by a program that keeps connections without a fiber while they wait; a step waits
    /// for a turn to compute, but not for the peer.
    ///
    /// # Errors
    /// As for [`TlsStream::handshake`].
    pub fn step(&mut self) -> Result<Handshake, Error> {
        if let Some(left) = self.left()?
            && let Err(error) = self.receive_and_answer(left)
        {
            return Err(self.fail(error));
        }
        Ok(self.left()?.map_or(Handshake::Done, Handshake::Waits))
    }

    /// Returns the time that a handshake has left; `None` if it is over.
    fn left(&mut self) -> Result<Option<Duration>, Error> {
        let deadline = match &self.phase {
            Phase::New { deadline } | Phase::Handshake { deadline, .. } => *deadline,
            Phase::Open { .. } => return Ok(None),
            Phase::Failed(error) => return Err(error.clone()),
        };
        let left = deadline.saturating_duration_since(now());
        if left.is_zero() {
            Err(self.fail(slow()))
        } else {
            Ok(Some(left))
        }
    }

    fn receive_and_answer(&mut self, left: Duration) -> Result<(), Error> {
        if let Phase::New { deadline } = self.phase {
            let name = Arc::new(OnceLock::new());
            // HTTP/2 is offered only where it can be served.
            let multiplexes = plainweave::on_fiber() && self.stream.non_blocking().is_some();
            let engine = Engine::new(self.shared.for_handshake(name.clone(), multiplexes));
            let engine = Box::new(engine.map_err(|error| refused(&error))?);
            self.phase = Phase::Handshake {
                engine,
                name,
                deadline,
            };
        }
        let Self {
            stream,
            shared,
            phase,
            proxy,
            ..
        } = self;
        let Phase::Handshake {
            engine,
            name,
            deadline,
        } = phase
        else {
            return Ok(());
        };
        let lost = |error| Error::io(error, LOST);
        stream.set_read_timeout(left).map_err(lost)?;
        match retried(|| stream.read(engine.space())).map_err(lost)? {
            0 => {
                return Err(Error::new(
                    Kind::Closed,
                    "the peer left in the middle of the TLS handshake",
                ));
            }
            len => engine.extend(len),
        }
        if !proxy.has_passed(engine)? || !engine.has_record() {
            return Ok(());
        }
        stream.set_write_timeout(left).map_err(lost)?;
        // In words that the client shows: an alert of TLS would be binary rubbish to it.
        if engine.is_plain_http() {
            let _ = stream.write(SPEAK_TLS);
            return Err(Error::new(
                Kind::Handshake,
                "the peer speaks HTTP without TLS",
            ));
        }
        let computed = shared
            .stage
            .run(*deadline, || engine.advance(&mut []))
            .map_err(lost)?;
        // The peer learns why by what follows; the error goes to the caller all the same.
        if computed.is_err() {
            engine.alert();
        }
        // The last flight, or the alert, leaves in either case.
        let sent = send_all(stream, engine, left, &mut false);
        computed.map_err(|error| refused(&error))?;
        sent.map_err(lost)?;
        if !engine.is_handshaking() {
            let session = Arc::new(engine.session(name.get().cloned()));
            // The handshake had lowered them to what it had left.
            stream.set_read_timeout(self.read_timeout).map_err(lost)?;
            stream.set_write_timeout(self.write_timeout).map_err(lost)?;
            self.open(session);
        }
        Ok(())
    }

    fn open(&mut self, session: Arc<TlsSession>) {
        self.shared.completed(session.resumed);
        // A placeholder, since the engine moves from one phase into the next. Nobody sees it.
        let before = std::mem::replace(&mut self.phase, Phase::Failed(slow()));
        if let Phase::Handshake { engine, .. } = before {
            self.phase = Phase::Open {
                engine,
                session,
                truncated: false,
            };
        }
    }

    /// Ends the handshake by an error, which every later call returns again.
    fn fail(&mut self, error: Error) -> Error {
        self.shared
            .failed(&error, self.proxied().or_else(|| self.stream.peer()));
        self.phase = Phase::Failed(error.clone());
        error
    }

    /// Returns what an open connection reads and writes by, after the handshake.
    pub(super) fn opened(&mut self) -> io::Result<(&mut S, &mut Engine, &mut bool)> {
        self.handshake()?;
        match &mut self.phase {
            Phase::Open {
                engine, truncated, ..
            } => Ok((&mut self.stream, engine, truncated)),
            _ => Err(io::ErrorKind::NotConnected.into()),
        }
    }

    /// Reads from the stream below until there is plaintext. The timeout bounds all of it: a peer
    /// that sends a record byte by byte has no more time than one that is silent.
    fn receive(&mut self, buf: &mut [u8], lowered: &mut bool) -> io::Result<usize> {
        let limit = self.read_timeout;
        let mut deadline = None;
        loop {
            let (stream, engine, truncated) = self.opened()?;
            if let Some(len) = decrypted(stream, engine, *truncated, buf)? {
                return Ok(len);
            }
            // An answer to a key update, for instance.
            self.drain()?;
            let (stream, engine, truncated) = self.opened()?;
            if let Some(left) = time_left(&mut deadline, limit)? {
                *lowered = true;
                stream.set_read_timeout(left)?;
            }

            match retried(|| stream.read(engine.space()))? {
                // Perhaps the last record before it has said that this is the end; the next round
                // finds out.
                0 => *truncated = true,
                len => engine.extend(len),
            }
        }
    }

    fn send(&mut self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
        let (_, engine, _) = self.opened()?;
        if engine.has_ended() {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        self.drain()?;
        let (_, engine, _) = self.opened()?;
        let taken = engine.encrypt(bufs).map_err(|error| broken(&error))?;

        // The records cannot be taken back: an error is for the next call, which meets it again.
        self.late = self.drain().is_err();
        Ok(taken)
    }

    /// Sends the records that are made. After a write that was late it looks once whether the peer
    /// takes any.
    fn drain(&mut self) -> io::Result<()> {
        let mut lowered = std::mem::take(&mut self.late);
        let Phase::Open { engine, .. } = &mut self.phase else {
            return Ok(());
        };
        if engine.out().is_empty() {
            return Ok(());
        }
        if lowered {
            self.stream.set_write_timeout(LOOK)?;
        }
        let sent = send_all(&mut self.stream, engine, self.write_timeout, &mut lowered);

        if lowered {
            self.stream.set_write_timeout(self.write_timeout)?;
        }

        sent
    }

    /// Says that we send no more, if the connection is in a state to say so.
    fn say_end(&mut self, limit: Duration) -> io::Result<()> {
        let Phase::Open { engine, .. } = &mut self.phase else {
            return Ok(());
        };
        engine.end().map_err(|error| broken(&error))?;
        self.stream.set_write_timeout(limit)?;
        send_all(&mut self.stream, engine, limit, &mut false)
    }
}

impl ProxyHeader {
    /// Takes the header from what has come. False: more of it is to come.
    fn has_passed(&mut self, engine: &mut Engine) -> Result<bool, Error> {
        if matches!(self, Self::Expected) {
            let parsed = proxy::parse(engine.received());
            match parsed.map_err(|error| Error::new(Kind::Handshake, error.to_string()))? {
                Proxied::More => return Ok(false),
                Proxied::Header { len, client } => {
                    engine.discard(len);
                    *self = Self::Read(client);
                }
            }
        }
        Ok(true)
    }
}

/// Takes what can be read without receiving more; 0 is the peer's end.
pub(super) fn decrypted<S: Transport>(
    stream: &mut S,
    engine: &mut Engine,
    truncated: bool,
    buf: &mut [u8],
) -> io::Result<Option<usize>> {
    loop {
        let len = engine.take(buf);
        if len > 0 {
            return Ok(Some(len));
        }
        match engine.advance(buf) {
            Ok(0) if engine.has_plain() => {}
            Ok(0) if engine.peer_has_ended() => return Ok(Some(0)),
            Ok(0) if truncated => {
                let what = "the peer left without ending the TLS connection: what it has sent may be cut short";
                return Err(Error::new(Kind::Truncated, what).into());
            }
            Ok(0) => return Ok(None),
            Ok(len) => return Ok(Some(len)),
            Err(error) => {
                // The peer learns what was wrong with its record, if it still reads.
                engine.alert();
                let set = stream.set_write_timeout(FAREWELL);
                let _ = set.and_then(|()| send_all(stream, engine, FAREWELL, &mut false));
                return Err(broken(&error));
            }
        }
    }
}

const LOST: &str = "the TLS handshake could not be finished";

fn slow() -> Error {
    Error::new(Kind::Timeout, "the TLS handshake takes too long")
}

/// A handshake that rustls has ended.
fn refused(error: &rustls::Error) -> Error {
    Error::new(
        Kind::Handshake,
        format!("the TLS handshake has failed: {error}"),
    )
    .because(error.clone())
}

/// A connection that rustls has ended.
pub(super) fn broken(error: &rustls::Error) -> io::Error {
    Error::new(
        Kind::Protocol,
        format!("the TLS connection has failed: {error}"),
    )
    .because(error.clone())
    .into()
}

/// Sends what the engine has made, in this time; for each record that has left there is as much
/// again.
fn send_all<S: Transport>(
    stream: &mut S,
    engine: &mut Engine,
    limit: Duration,
    lowered: &mut bool,
) -> io::Result<()> {
    let mut deadline = None;
    let mut left_since = 0;
    while !engine.out().is_empty() {
        if let Some(left) = time_left(&mut deadline, limit)? {
            *lowered = true;
            stream.set_write_timeout(left)?;
        }

        let len = retried(|| stream.write(engine.out()))?;
        if len == 0 {
            return Err(io::ErrorKind::WriteZero.into());
        }
        engine.sent(len);
        left_since += len;
        // A peer that reads slowly, but reads, is not cut off in the middle of a large answer.
        if left_since >= RECORD {
            (deadline, left_since) = (Some(saturating_add(now(), limit)), 0);
        }
    }
    Ok(())
}

fn retried(mut call: impl FnMut() -> io::Result<usize>) -> io::Result<usize> {
    loop {
        match call() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            done => return done,
        }
    }
}

/// Returns how long the next wait of a call may be; nothing for the first one, to which the
/// stream's own timeout applies.
fn time_left(deadline: &mut Option<Instant>, limit: Duration) -> io::Result<Option<Duration>> {
    let Some(deadline) = deadline else {
        *deadline = Some(saturating_add(now(), limit));
        return Ok(None);
    };

    let left = deadline.saturating_duration_since(now());
    if left.is_zero() {
        Err(io::ErrorKind::TimedOut.into())
    } else {
        Ok(Some(left))
    }
}

impl<S: Transport> Read for TlsStream<S> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        if buf.is_empty() {
            return Ok(0);
        }
        let mut lowered = false;
        let done = self.receive(buf, &mut lowered);
        if lowered {
            self.stream.set_read_timeout(self.read_timeout)?;
        }
        done
    }
}

impl<S: Transport> Write for TlsStream<S> {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.write_vectored(&[IoSlice::new(buf)])
    }

    fn write_vectored(&mut self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
        self.send(bufs)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.drain()?;
        self.stream.flush()
    }
}

impl<S: Transport> Transport for TlsStream<S> {
    const DESCRIPTORS: usize = S::DESCRIPTORS;

    fn set_read_timeout(&mut self, timeout: Duration) -> io::Result<()> {
        self.read_timeout = timeout;
        // A handshake has a time of its own.
        if self.is_handshaking() {
            Ok(())
        } else {
            self.stream.set_read_timeout(timeout)
        }
    }

    fn set_write_timeout(&mut self, timeout: Duration) -> io::Result<()> {
        self.write_timeout = timeout;
        if self.is_handshaking() {
            Ok(())
        } else {
            self.stream.set_write_timeout(timeout)
        }
    }

    /// Says first that no more is sent (`close_notify`), so that the peer can tell an end from a
    /// break.
    fn shutdown_write(&mut self) -> io::Result<()> {
        let said = self.say_end(self.write_timeout);
        self.stream.shutdown_write().and(said)
    }

    fn peer(&self) -> Option<SocketAddr> {
        self.stream.peer()
    }

    fn non_blocking(&mut self) -> Option<&mut dyn NonBlocking> {
        if self.stream.non_blocking().is_some() {
            Some(self)
        } else {
            None
        }
    }

    fn closer(&self) -> Option<Closer> {
        self.stream.closer()
    }

    /// Does the handshake first, if that is not done, within its own time; a peer that is silent
    /// for `timeout` in it is waited for no longer.
    fn wait_readable(&mut self, timeout: Duration) -> io::Result<bool> {
        while self.is_handshaking() {
            if !self.wait_and_step(timeout)? {
                return Ok(false);
            }
        }

        self.left()?;
        self.drain()?;
        if self.holds_input() {
            Ok(true)
        } else {
            self.stream.wait_readable(timeout)
        }
    }

    fn readable_branch(&self) -> Option<ReadinessBranch<'_>> {
        self.stream.readable_branch()
    }

    fn idle_socket(&self) -> Option<SocketRef<'_>> {
        self.stream.idle_socket()
    }

    fn layer(&self) -> Option<&dyn Layer> {
        Some(self)
    }

    fn layer_mut(&mut self) -> Option<&mut dyn Layer> {
        Some(self)
    }
}

impl<S: Transport> Layer for TlsStream<S> {
    fn is_handshaking(&self) -> bool {
        self.is_handshaking()
    }

    fn step(&mut self) -> io::Result<Handshake> {
        self.step().map_err(io::Error::from)
    }

    fn set_handshake_timeout(&mut self, timeout: Duration) {
        if let Phase::New { deadline } | Phase::Handshake { deadline, .. } = &mut self.phase {
            *deadline = saturating_add(now(), timeout);
        }
    }

    fn expect_proxy_header(&mut self) {
        self.proxy = ProxyHeader::Expected;
    }

    fn proxied(&self) -> Option<SocketAddr> {
        match self.proxy {
            ProxyHeader::Read(client) => client,
            ProxyHeader::None | ProxyHeader::Expected => None,
        }
    }

    fn holds_input(&self) -> bool {
        match &self.phase {
            Phase::Open {
                engine, truncated, ..
            } => *truncated || engine.has_news(),
            _ => false,
        }
    }

    fn holds_part(&self) -> bool {
        match &self.phase {
            Phase::Open { engine, .. } => !engine.received().is_empty(),
            _ => false,
        }
    }

    fn end(&mut self) {
        // A handshake whose time has passed while nothing waited for it has failed, and is counted.
        let _ = self.left();
        let _ = self.say_end(FAREWELL);
    }

    fn session(&self) -> Option<&Arc<TlsSession>> {
        self.session()
    }
}

impl<S: Transport + HasSocket> HasSocket for TlsStream<S> {
    fn socket(&self) -> SocketRef<'_> {
        self.stream.socket()
    }
}

impl<S: Transport> fmt::Debug for TlsStream<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsStream")
            .field("session", &self.session())
            .finish_non_exhaustive()
    }
}
