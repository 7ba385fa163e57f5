//! A TLS connection over any stream: the I/O around the engine.

use std::fmt;
use std::io::{self, IoSlice, Read, Write};
use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use plainweave::time::now;

use super::engine::Engine;
use super::error::{Error, Kind};
use super::shared::Shared;
use crate::{Closer, Limits, NonBlocking, TlsSession, Transport};

/// For a peer that is slow to take our last word.
const FAREWELL: Duration = Duration::from_millis(10);
/// No timeout was set yet, so a long one holds.
const UNSET: Duration = Duration::from_secs(60);
/// The answer to a client that speaks HTTP without TLS, as a browser does with `http://host:443`.
const SPEAK_TLS: &[u8] = b"HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\nConnection: close\r\n\
    Content-Length: 50\r\n\r\nThis port speaks TLS: write https:// and try again";

/// The server's side of a TLS connection; made by [`Acceptor::accept`](super::Acceptor::accept).
///
/// Timeouts are those of the stream below, and bound each call as a whole. A write that fails may have made records of
/// its bytes already: whoever goes on must offer the same bytes again, which are then sent once.
///
/// Between two calls it holds no buffer, unless part of a record has arrived or is yet to be sent.
pub struct TlsStream<S: Transport> {
    stream: S,
    shared: Arc<Shared>,
    phase: Phase,
    read_timeout: Duration,
    write_timeout: Duration,
}

enum Phase {
    /// The certificates are chosen when the first bytes are there, so that a reload concerns whoever waits.
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

/// Where a handshake is. See [`TlsStream::step`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Handshake {
    /// It is over, and data can be read and written.
    Done,
    /// It needs more from the peer, which has this much time left.
    Waits(Duration),
}

impl<S: Transport> TlsStream<S> {
    pub(super) fn new(stream: S, shared: Arc<Shared>) -> Self {
        let phase = Phase::New { deadline: after(Limits::default().handshake_timeout) };
        Self { stream, shared, phase, read_timeout: UNSET, write_timeout: UNSET }
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
    /// The peer is slow, leaves, or has no means in common with us. The connection is of no use then.
    pub fn handshake(&mut self) -> Result<(), Error> {
        while self.is_handshaking() {
            self.wait_and_step(Duration::MAX)?;
        }
        self.left().map(drop)
    }

    /// Waits for the peer, for at most `limit`, and goes on with the handshake. False: nothing has come.
    fn wait_and_step(&mut self, limit: Duration) -> Result<bool, Error> {
        let Some(left) = self.left()? else { return Ok(true) };
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

    /// Goes on with the handshake by what has arrived. To be called when the stream below is readable, by a program
    /// that keeps connections without a fiber while they wait; a step waits for a turn to compute, but not for the
    /// peer.
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
        if left.is_zero() { Err(self.fail(slow())) } else { Ok(Some(left)) }
    }

    fn receive_and_answer(&mut self, left: Duration) -> Result<(), Error> {
        if let Phase::New { deadline } = self.phase {
            let name = Arc::new(OnceLock::new());
            let multiplexes = plainweave::on_fiber() && self.stream.non_blocking().is_some();
            let engine = Engine::new(self.shared.for_handshake(name.clone(), multiplexes));
            let engine = Box::new(engine.map_err(|error| refused(&error))?);
            self.phase = Phase::Handshake { engine, name, deadline };
        }
        let Self { stream, shared, phase, .. } = self;
        let Phase::Handshake { engine, name, deadline } = phase else { return Ok(()) };
        let lost = |error| Error::io(error, LOST);
        stream.set_read_timeout(left).map_err(lost)?;
        match retried(|| stream.read(engine.space())).map_err(lost)? {
            0 => return Err(Error::new(Kind::Closed, "the peer left in the middle of the TLS handshake")),
            len => engine.extend(len),
        }
        if !engine.has_record() {
            return Ok(());
        }
        stream.set_write_timeout(left).map_err(lost)?;
        if engine.received()[0].is_ascii_uppercase() {
            let _ = stream.write(SPEAK_TLS);
            return Err(Error::new(Kind::Handshake, "the peer speaks HTTP without TLS"));
        }
        let computed = shared.stage.run(*deadline, || engine.advance(&mut [])).map_err(lost)?;
        if computed.is_err() {
            engine.alert();
        }
        let sent = send_all(stream, engine, left);
        computed.map_err(|error| refused(&error))?;
        sent.map_err(lost)?;
        if !engine.is_handshaking() {
            let session = Arc::new(engine.session(name.get().cloned()));
            stream.set_read_timeout(self.read_timeout).map_err(lost)?;
            stream.set_write_timeout(self.write_timeout).map_err(lost)?;
            self.open(session);
        }
        Ok(())
    }

    fn open(&mut self, session: Arc<TlsSession>) {
        self.shared.completed(session.resumed);
        let before = std::mem::replace(&mut self.phase, Phase::Failed(slow()));
        if let Phase::Handshake { engine, .. } = before {
            self.phase = Phase::Open { engine, session, truncated: false };
        }
    }

    /// Ends the handshake by an error, which every later call returns again.
    fn fail(&mut self, error: Error) -> Error {
        self.shared.failed(&error, self.stream.peer());
        self.phase = Phase::Failed(error.clone());
        error
    }

    /// Returns what an open connection reads and writes by, after the handshake.
    pub(super) fn opened(&mut self) -> io::Result<(&mut S, &mut Engine, &mut bool)> {
        self.handshake()?;
        match &mut self.phase {
            Phase::Open { engine, truncated, .. } => Ok((&mut self.stream, engine, truncated)),
            _ => Err(io::ErrorKind::NotConnected.into()),
        }
    }

    /// Reads from the stream below until there is plaintext. The timeout bounds all of it: a peer that sends a record
    /// byte by byte has no more time than one that is silent.
    fn receive(&mut self, buf: &mut [u8], lowered: &mut bool) -> io::Result<usize> {
        let (limit, write_limit) = (self.read_timeout, self.write_timeout);
        let (stream, engine, truncated) = self.opened()?;
        let mut deadline = None;
        loop {
            if let Some(len) = decrypted(stream, engine, *truncated, buf)? {
                return Ok(len);
            }
            // An answer to a key update, for instance.
            send_all(stream, engine, write_limit)?;
            if let Some(left) = time_left(&mut deadline, limit)? {
                *lowered = true;
                stream.set_read_timeout(left)?;
            }
            match retried(|| stream.read(engine.space()))? {
                0 => *truncated = true,
                len => engine.extend(len),
            }
        }
    }

    fn send(&mut self, bufs: &[IoSlice<'_>], lowered: &mut bool) -> io::Result<usize> {
        let limit = self.write_timeout;
        let (stream, engine, _) = self.opened()?;
        let offered = bufs.iter().map(|buf| buf.len()).sum::<usize>();
        if engine.has_ended() {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        if !engine.owes() {
            send_all(stream, engine, limit)?;
            if offered == 0 {
                return Ok(0);
            }
            engine.encrypt(bufs).map_err(|error| broken(&error))?;
        }
        let mut deadline = None;
        loop {
            let len = engine.settle();
            if len > 0 {
                return Ok(len.min(offered));
            }
            if let Some(left) = time_left(&mut deadline, limit)? {
                *lowered = true;
                stream.set_write_timeout(left)?;
            }
            match retried(|| stream.write(engine.out()))? {
                0 => return Err(io::ErrorKind::WriteZero.into()),
                len => engine.sent(len),
            }
        }
    }

    /// Says that we send no more, if the connection is in a state to say so.
    fn say_end(&mut self, limit: Duration) -> io::Result<()> {
        let Phase::Open { engine, .. } = &mut self.phase else { return Ok(()) };
        engine.end().map_err(|error| broken(&error))?;
        self.stream.set_write_timeout(limit)?;
        send_all(&mut self.stream, engine, limit)
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
                engine.alert();
                let _ = stream.set_write_timeout(FAREWELL).and_then(|()| send_all(stream, engine, FAREWELL));
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
    Error::new(Kind::Handshake, format!("the TLS handshake has failed: {error}")).because(error.clone())
}

/// A connection that rustls has ended.
pub(super) fn broken(error: &rustls::Error) -> io::Error {
    Error::new(Kind::Protocol, format!("the TLS connection has failed: {error}")).because(error.clone()).into()
}

/// Sends what the engine has made, in this time.
fn send_all<S: Transport>(stream: &mut S, engine: &mut Engine, limit: Duration) -> io::Result<()> {
    let mut deadline = None;
    while !engine.out().is_empty() {
        time_left(&mut deadline, limit)?;
        match retried(|| stream.write(engine.out()))? {
            0 => return Err(io::ErrorKind::WriteZero.into()),
            len => engine.sent(len),
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

/// Returns when a time will have passed; one without end is a year.
fn after(limit: Duration) -> Instant {
    const YEAR: Duration = Duration::from_secs(365 * 86400);
    now() + limit.min(YEAR)
}

/// Returns how long the next wait of a call may be; nothing for the first one, to which the stream's own timeout
/// applies.
fn time_left(deadline: &mut Option<Instant>, limit: Duration) -> io::Result<Option<Duration>> {
    let Some(deadline) = deadline else {
        *deadline = Some(after(limit));
        return Ok(None);
    };
    let left = deadline.saturating_duration_since(now());
    if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(Some(left)) }
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
        let mut lowered = false;
        let done = self.send(bufs, &mut lowered);
        if lowered {
            self.stream.set_write_timeout(self.write_timeout)?;
        }
        done
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}

impl<S: Transport> Transport for TlsStream<S> {
    const DESCRIPTORS: usize = S::DESCRIPTORS;

    fn set_read_timeout(&mut self, timeout: Duration) -> io::Result<()> {
        self.read_timeout = timeout;
        // A handshake has a time of its own.
        if self.is_handshaking() { Ok(()) } else { self.stream.set_read_timeout(timeout) }
    }

    fn set_write_timeout(&mut self, timeout: Duration) -> io::Result<()> {
        self.write_timeout = timeout;
        if self.is_handshaking() { Ok(()) } else { self.stream.set_write_timeout(timeout) }
    }

    /// Says first that no more is sent (`close_notify`), so that the peer can tell an end from a break.
    fn shutdown_write(&mut self) -> io::Result<()> {
        let said = self.say_end(self.write_timeout);
        self.stream.shutdown_write().and(said)
    }

    fn peer(&self) -> Option<SocketAddr> {
        self.stream.peer()
    }

    fn non_blocking(&mut self) -> Option<&mut dyn NonBlocking> {
        if self.stream.non_blocking().is_some() { Some(self) } else { None }
    }

    fn closer(&self) -> Option<Closer> {
        self.stream.closer()
    }

    /// Does the handshake first, if that is not done, within its own time; a peer that is silent for `timeout` in it is
    /// waited for no longer.
    fn wait_readable(&mut self, timeout: Duration) -> io::Result<bool> {
        while self.is_handshaking() {
            if !self.wait_and_step(timeout)? {
                return Ok(false);
            }
        }
        self.left()?;
        if self.holds_input() { Ok(true) } else { self.stream.wait_readable(timeout) }
    }

    fn holds_input(&self) -> bool {
        match &self.phase {
            Phase::Open { engine, truncated, .. } => *truncated || engine.has_news(),
            _ => false,
        }
    }

    fn set_handshake_timeout(&mut self, timeout: Duration) {
        if let Phase::New { deadline } | Phase::Handshake { deadline, .. } = &mut self.phase {
            *deadline = after(timeout);
        }
    }

    fn end(&mut self) {
        // A handshake whose time has passed while nothing waited for it has failed, and is counted.
        let _ = self.left();
        let _ = self.say_end(FAREWELL);
    }

    fn tls(&self) -> Option<&Arc<TlsSession>> {
        self.session()
    }
}

impl plainweave::net::HasStream for TlsStream<plainweave::net::TcpStream> {
    fn stream(&self) -> &plainweave::net::TcpStream {
        &self.stream
    }
}

impl<S: Transport> fmt::Debug for TlsStream<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsStream").field("session", &self.session()).finish_non_exhaustive()
    }
}
