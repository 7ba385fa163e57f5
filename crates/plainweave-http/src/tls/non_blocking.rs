//! TLS without waiting, for HTTP/2: the same engine, with calls to the stream below that do not
//! wait either.

use std::io::{self, IoSlice};

use super::engine::Engine;
use super::stream::{TlsStream, broken, decrypted};
use crate::transport::non_blocking::{NonBlocking, Wait};
use crate::transport::stream::Layer;
use crate::transport::stream::Transport;

impl<S: Transport> NonBlocking for TlsStream<S> {
    fn try_read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        if buf.is_empty() {
            return Ok(0);
        }
        let (stream, engine, truncated) = self.opened()?;
        loop {
            if let Some(len) = decrypted(stream, engine, *truncated, buf)? {
                return Ok(len);
            }
            match below(stream)?.try_read(engine.space()) {
                Ok(0) => *truncated = true,
                Ok(len) => engine.extend(len),
                Err(error) => {
                    engine.rest();
                    return Err(error);
                }
            }
        }
    }

    fn try_write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.try_write_vectored(&[IoSlice::new(buf)])
    }

    fn try_write_vectored(&mut self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
        let (stream, engine, _) = self.opened()?;
        if engine.has_ended() {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        // What an earlier call has taken, or an answer to a key update.
        send_now(stream, engine)?;
        if bufs.iter().all(|buf| buf.is_empty()) {
            return Ok(0);
        }
        let taken = engine.encrypt(bufs).map_err(|error| broken(&error))?;

        // The records cannot be taken back: an error is for the next call, which meets it again.
        let _ = send_now(stream, engine);
        Ok(taken)
    }

    fn push(&mut self) -> io::Result<()> {
        let (stream, engine, _) = self.opened()?;
        send_now(stream, engine)
    }

    fn wait(&mut self, wait: &Wait<'_>) -> io::Result<()> {
        if wait.reads && self.holds_input() {
            return Ok(());
        }
        let (stream, engine, _) = self.opened()?;
        let mut wait = *wait;
        match send_now(stream, engine) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => wait.writes = true,
            sent => sent?,
        }

        below(stream)?.wait(&wait)
    }
}

fn below<S: Transport>(stream: &mut S) -> io::Result<&mut dyn NonBlocking> {
    stream
        .non_blocking()
        .ok_or_else(|| io::ErrorKind::Unsupported.into())
}

/// Sends what the engine has made, as far as there is room.
fn send_now<S: Transport>(stream: &mut S, engine: &mut Engine) -> io::Result<()> {
    while !engine.out().is_empty() {
        match below(stream)?.try_write(engine.out())? {
            0 => return Err(io::ErrorKind::WriteZero.into()),
            len => engine.sent(len),
        }
    }
    Ok(())
}
