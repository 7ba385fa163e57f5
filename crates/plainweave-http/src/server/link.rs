//! One connection's stream while it is busy: reads and writes within the limits, answers gathered
//! before they go.

use std::fs::File;
use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use http::StatusCode;
use plainweave::time::saturating_add;

use crate::limits::{Limits, RequestLimits};
use crate::message::encode::Encoder;
use crate::message::error::Error;
use crate::message::response::TakeOver;
use crate::transport::stream::Transport;

/// What a connection is between two uses of its [`Link`].
#[derive(Debug)]
pub(crate) struct LinkState {
    /// Requests answered.
    pub(crate) served: u32,
    /// What the stream was last told.
    pub(crate) read_timeout_ms: u32,
    pub(crate) write_timeout_ms: u32,
    /// A header of the PROXY protocol is to come.
    pub(crate) awaits_proxy: bool,
    /// Known only if a hook wants to know, or a proxy has said.
    pub(crate) peer: Option<SocketAddr>,
}

/// What becomes of a connection after a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Everything received is answered and sent. Call again when the stream is readable; drop it
    /// after this time.
    Idle(Duration),
    /// Drop the stream.
    Close,
}

/// The stream, what is to be sent on it, and the bounds on both.
pub(crate) struct Link<'a, S> {
    pub(crate) stream: &'a mut S,
    pub(crate) encoder: &'a mut Encoder,
    pub(crate) state: &'a mut LinkState,
    pub(crate) limits: &'a Limits,
    /// The limits of the request being served.
    pub(crate) allowed: RequestLimits,
    /// The time that the response being sent may still take.
    pub(crate) pace: Pace,
    /// A write has failed: what the peer has of our bytes is not known, nothing more can be said.
    pub(crate) broken: bool,
    /// The status of the response being sent, once its head is made.
    pub(crate) status: Option<StatusCode>,
    /// Bytes of its body that were handed over so far.
    pub(crate) body_bytes: u64,
    /// The panic of this request's handler.
    pub(crate) panic: Option<Error>,
    /// What takes the connection over once the response has been sent.
    pub(crate) take_over: Option<TakeOver>,
}

impl<'a, S: Transport> Link<'a, S> {
    pub(crate) fn new(
        stream: &'a mut S,
        encoder: &'a mut Encoder,
        state: &'a mut LinkState,
        limits: &'a Limits,
    ) -> Self {
        let allowed = limits.of_request();
        let pace = Pace::new(limits.write_timeout, limits.min_rate);
        let broken = false;
        let panic = None;
        let status = None;
        let body_bytes = 0;
        let take_over = None;

        Self {
            stream,
            encoder,
            state,
            limits,
            allowed,
            pace,
            broken,
            status,
            body_bytes,
            panic,
            take_over,
        }
    }

    /// Reads once, after sending everything gathered: a connection that waits for its peer owes it
    /// nothing.
    pub(crate) fn read(&mut self, buf: &mut [u8], timeout: Duration) -> Result<usize, Error> {
        self.flush()?;
        self.read_timeout(timeout)?;
        loop {
            match self.stream.read(buf) {
                Ok(len) => return Ok(len),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(Error::io(error, "the request could not be read")),
            }
        }
    }

    /// Reads what is there, if the stream can do so without waiting; a timeout: there is nothing.
    pub(crate) fn try_read(&mut self, buf: &mut [u8]) -> Result<usize, Error> {
        let Some(stream) = self.stream.non_blocking() else {
            return self.read(buf, self.limits.header_timeout);
        };
        let read = stream.try_read(buf);
        read.map_err(|error| Error::io(error, "the request could not be read"))
    }

    /// Tells the stream only what is new to it: this can be a system call.
    fn read_timeout(&mut self, timeout: Duration) -> Result<(), Error> {
        let millis = millis(timeout);
        if millis != self.state.read_timeout_ms {
            let timeout = Duration::from_millis(millis.into());
            self.stream
                .set_read_timeout(timeout)
                .map_err(|error| Error::io(error, "the read timeout could not be set"))?;
            self.state.read_timeout_ms = millis;
        }
        Ok(())
    }

    /// Tells the stream the request's own write timeout, if that is new to it.
    pub(crate) fn write_timeout(&mut self) -> Result<(), Error> {
        let millis = millis(self.allowed.write_timeout);
        if millis != self.state.write_timeout_ms {
            let set = self
                .stream
                .set_write_timeout(Duration::from_millis(millis.into()));
            set.map_err(|error| Error::io(error, "the write timeout could not be set"))?;
            self.state.write_timeout_ms = millis;
        }
        Ok(())
    }

    /// Sends what the encoder holds.
    pub(crate) fn flush(&mut self) -> Result<(), Error> {
        if self.encoder.out.is_empty() {
            return Ok(());
        }
        let sent = self.send_gathered(false).and_then(|()| self.flush_stream());
        self.broken |= sent.is_err();
        sent
    }

    /// Sends what the encoder holds and `tail` behind it, together.
    pub(crate) fn write(&mut self, tail: [&[u8]; 2]) -> Result<(), Error> {
        let sent = self.send_with(tail).and_then(|()| self.flush_stream());
        self.broken |= sent.is_err();
        sent
    }

    /// Sends what the encoder holds; `more`: to be followed at once.
    fn send_gathered(&mut self, more: bool) -> Result<(), Error> {
        let mut sent = 0;
        while let Some(rest @ [_, ..]) = self.encoder.out.get(sent..) {
            let written = if more {
                self.stream.write_more(rest)
            } else {
                self.stream.write(rest)
            };
            sent += self.pace.taken(written, rest.len())?;
        }
        self.encoder.out.clear();
        Ok(())
    }

    fn send_with(&mut self, tail: [&[u8]; 2]) -> Result<(), Error> {
        let mut slices = [&self.encoder.out, tail[0], tail[1]].map(IoSlice::new);
        let mut slices = slices.as_mut_slice();
        IoSlice::advance_slices(&mut slices, 0);
        while !slices.is_empty() {
            let len = slices.iter().map(|slice| slice.len()).sum();
            let written = match &*slices {
                // The plain call is cheaper.
                [one, ..] if one.len() == len => self.stream.write(one),
                many => self.stream.write_vectored(many),
            };
            IoSlice::advance_slices(&mut slices, self.pace.taken(written, len)?);
        }
        self.encoder.out.clear();
        Ok(())
    }

    /// Has the stream send what it has taken and not sent, as TLS may.
    fn flush_stream(&mut self) -> Result<(), Error> {
        self.stream
            .flush()
            .map_err(|error| Error::io(error, "the answer could not be sent"))
    }

    /// Sends bytes of a file behind what the encoder holds. `None`: that cannot be done here.
    pub(crate) fn send_file(
        &mut self,
        (file, offset, len): (&File, u64, usize),
    ) -> Result<Option<usize>, Error> {
        let sent = self.send_gathered(true).and_then(|()| {
            self.pace.left().ok_or_else(slow_reader)?;
            match self.stream.send_file(file, offset, len) {
                Ok(len) => Ok(Some(len)),
                Err(error) if error.kind() == io::ErrorKind::Unsupported => Ok(None),
                Err(error) => Err(Error::io(error, "the answer could not be sent")),
            }
        });
        self.broken |= sent.is_err();
        self.pace
            .progress(sent.as_ref().ok().copied().flatten().unwrap_or(0));
        sent
    }

    /// Ends our direction, then reads and drops what the peer still sends: a socket closed over
    /// unread bytes answers with RST, which can destroy the answer before the peer has read it (RFC
    /// 9112, 9.6). Many clients write all of a body before they read.
    pub(crate) fn linger(&mut self, scratch: &mut [u8]) {
        if self.stream.shutdown_write().is_err() {
            return;
        }
        let deadline = saturating_add(Instant::now(), self.limits.body_timeout);

        let mut dropped = 0;
        while dropped < self.limits.linger_bytes {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            match self.read(scratch, left.min(self.limits.linger_timeout)) {
                Ok(len) if len > 0 => dropped += len,
                _ => return,
            }
        }
    }
}

/// Returns a timeout as a connection notes it: at least a millisecond, at most 49 days.
pub(crate) fn millis(timeout: Duration) -> u32 {
    u32::try_from(timeout.as_millis())
        .unwrap_or(u32::MAX)
        .max(1)
}

pub(crate) fn slow_reader() -> Error {
    Error::timeout(None, "the peer reads the answer too slowly")
}

/// The time that a transfer may still take: `base` for any silence, and in all `base` plus what its
/// bytes earn at the minimum rate. A peer that drips one byte a second has no credit; one on a slow
/// but honest line does.
#[derive(Debug)]
pub(crate) struct Pace {
    base: Duration,
    rate: u32,
    started: Option<Instant>,
    /// The clock stands still.
    paused: Option<Instant>,
    bytes: u64,
}

impl Pace {
    pub(crate) fn new(base: Duration, rate: u32) -> Self {
        Self {
            base,
            rate,
            started: None,
            paused: None,
            bytes: 0,
        }
    }

    /// Goes on with other bounds, from the same start.
    pub(crate) fn change(&mut self, base: Duration, rate: u32) {
        (self.base, self.rate) = (base, rate);
    }

    /// Stops the clock: waits have no bound.
    pub(crate) fn pause(&mut self) {
        self.paused.get_or_insert_with(Instant::now);
    }

    /// Lets the clock go on where it was stopped.
    pub(crate) fn resume(&mut self) {
        if let (Some(paused), Some(started)) = (self.paused.take(), self.started.as_mut()) {
            // A clock that was started in the pause has not run at all.
            *started += paused.max(*started).elapsed();
        }
    }

    pub(crate) fn progress(&mut self, len: usize) {
        self.bytes += len as u64;
    }

    /// Judges a write of `len` bytes of an answer. Returns how many of them the peer has taken.
    fn taken(&mut self, written: io::Result<usize>, len: usize) -> Result<usize, Error> {
        match written {
            Ok(0) => Err(Error::closed("the peer takes nothing more")),
            Ok(taken) => {
                self.progress(taken);
                if taken < len {
                    self.left().ok_or_else(slow_reader)?;
                }
                Ok(taken)
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(0),
            Err(error) => Err(Error::io(error, "the answer could not be sent")),
        }
    }

    /// Returns how long the next wait may be; `None` if the transfer is too slow. The clock starts
    /// at the first call.
    pub(crate) fn left(&mut self) -> Option<Duration> {
        let started = *self.started.get_or_insert_with(Instant::now);
        if self.paused.is_some() {
            return Some(Duration::MAX);
        }
        if self.rate == 0 {
            return Some(self.base);
        }
        let earned = Duration::from_secs(self.bytes / u64::from(self.rate));
        let left = self
            .base
            .saturating_add(earned)
            .checked_sub(started.elapsed())?;

        Some(left.min(self.base)).filter(|left| !left.is_zero())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_starts_in_a_pause_begins_at_its_end() {
        let now = Instant::now();
        let ago = |seconds| now.checked_sub(Duration::from_secs(seconds));
        // Paused, started; what has run by now.
        for (paused, started, ran) in [(5, 5, 0), (5, 2, 0), (5, 0, 0), (2, 5, 3)] {
            let mut pace = Pace::new(Duration::from_secs(60), 1);
            (pace.paused, pace.started) = (ago(paused), ago(started));
            assert_eq!(pace.left(), Some(Duration::MAX));
            pace.resume();
            let started = pace.started.unwrap();
            let ran = Duration::from_secs(ran);

            assert!(
                started + ran >= now && started + ran <= Instant::now(),
                "{paused} {started:?}"
            );
            assert!(pace.left().unwrap() <= Duration::from_secs(60) - ran);
        }
    }
}
