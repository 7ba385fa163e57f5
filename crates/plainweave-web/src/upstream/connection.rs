//! A connection to a server, and what has come over it.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr};
use std::time::Duration;

use plainweave::net::{TcpStream, ToSocketAddrs, UnixStream};
use plainweave::time::with_timeout;
use rustix::time::{ClockId, clock_gettime};

use super::address::UpstreamAddress;
use super::plan::UpstreamLimits;

/// Bytes that are read at once.
const PIECE: usize = 64 << 10;
/// Bytes that a connection begins with: most answers fit.
const FIRST: usize = 4 << 10;

/// What carries a connection.
#[derive(Debug)]
pub(super) enum UpstreamStream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

/// A connection to a server.
#[derive(Debug)]
pub(super) struct UpstreamConnection {
    pub(super) stream: UpstreamStream,
    /// What has come; up to `start` it is used.
    input: Vec<u8>,
    start: usize,
    /// Bytes of `input` that have come.
    end: usize,
    /// For heads of requests, to be used again.
    pub(super) output: Vec<u8>,
    /// When it became idle, by [`coarse_now`].
    pub(super) idle_since: Duration,
}

/// Calls the same function of either stream.
macro_rules! either {
    ($stream:expr, $bound:ident => $call:expr) => {
        match $stream {
            UpstreamStream::Tcp($bound) => $call,
            UpstreamStream::Unix($bound) => $call,
        }
    };
}

impl UpstreamStream {
    /// Connects within this time.
    pub(super) fn connect(address: &UpstreamAddress, limit: Duration) -> io::Result<Self> {
        let tcp = |address: &SocketAddr, limit| {
            let stream = TcpStream::connect_timeout(address, limit)?;
            stream.set_nodelay(true)?;
            Ok(Self::Tcp(stream))
        };

        match address {
            UpstreamAddress::Tcp(address) => tcp(address, limit),
            UpstreamAddress::Unix(path) => {
                with_timeout(limit, || UnixStream::connect(path)).map(Self::Unix)
            }
            UpstreamAddress::Name(name) => {
                let found = with_timeout(limit, || name.resolve())?;
                let mut last = io::ErrorKind::NotFound.into();
                for address in found {
                    match tcp(&address, limit) {
                        Err(error) => last = error,
                        stream => return stream,
                    }
                }
                Err(last)
            }
        }
    }

    /// Returns whether something has come, the end of the stream included.
    pub(super) fn is_readable(&self) -> bool {
        either!(self, stream => stream.is_readable())
    }

    /// Reads what is there, without waiting.
    pub(super) fn try_read(&self, buf: &mut [u8]) -> io::Result<usize> {
        either!(self, stream => stream.try_read(buf))
    }

    /// Ends a direction, or both.
    pub(super) fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        either!(self, stream => stream.shutdown(how))
    }

    /// Returns another handle, for another fiber.
    pub(super) fn try_clone(&self) -> io::Result<Self> {
        match self {
            Self::Tcp(stream) => stream.try_clone().map(Self::Tcp),
            Self::Unix(stream) => stream.try_clone().map(Self::Unix),
        }
    }

    pub(super) fn set_read_timeout(&self, limit: Duration) -> io::Result<()> {
        either!(self, stream => stream.set_read_timeout(Some(limit)))
    }
}

impl Read for UpstreamStream {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        either!(self, stream => stream.read(buf))
    }
}

impl Write for UpstreamStream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        either!(self, stream => stream.write(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        either!(self, stream => stream.flush())
    }
}

impl UpstreamConnection {
    pub(super) fn new(stream: UpstreamStream, limits: &UpstreamLimits) -> io::Result<Self> {
        either!(&stream, stream => {
            stream.set_read_timeout(Some(limits.answer_timeout))?;
            stream.set_write_timeout(Some(limits.send_timeout))?;
        });
        Ok(Self {
            stream,
            input: vec![0; FIRST],
            start: 0,
            end: 0,
            output: Vec::new(),
            idle_since: coarse_now(),
        })
    }

    /// Returns what has come and is not used.
    pub(super) fn input(&self) -> &[u8] {
        &self.input[self.start..self.end]
    }

    /// Uses the first bytes of it.
    pub(super) fn consume(&mut self, len: usize) {
        self.start += len;
        if self.start == self.end {
            self.start = 0;
            self.end = 0;
        }
    }

    /// Reads more, behind what is not used. 0 is the end of the stream.
    pub(super) fn fill(&mut self) -> io::Result<usize> {
        self.make_room();
        let len = self.stream.read(&mut self.input[self.end..])?;
        self.end += len;
        Ok(len)
    }

    /// The same, of what is there.
    pub(super) fn try_fill(&mut self) -> io::Result<usize> {
        self.make_room();
        let len = self.stream.try_read(&mut self.input[self.end..])?;
        self.end += len;
        Ok(len)
    }

    fn make_room(&mut self) {
        if self.start > 0 {
            self.input.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
        }
        if self.end == self.input.len() {
            let more = self.input.len().clamp(FIRST, PIECE);
            self.input.resize(self.end + more, 0);
        }
    }

    /// Makes room for pieces of a long body.
    pub(super) fn expect_much(&mut self) {
        if self.input.len() < PIECE {
            self.input.resize(PIECE, 0);
        }
    }

    /// Returns whether it can have another request: nothing is left, and nothing has come, not
    /// even the end.
    pub(super) fn is_fresh(&self) -> bool {
        self.input().is_empty() && !self.stream.is_readable()
    }

    /// Gives memory back that a long body has needed.
    pub(super) fn rest(&mut self) {
        self.idle_since = coarse_now();
        if self.input.len() > FIRST {
            self.input = vec![0; FIRST];
        }
        self.output.shrink_to(FIRST);
    }
}

/// Returns the time of a clock that ticks every few milliseconds, and costs next to nothing.
pub(super) fn coarse_now() -> Duration {
    let time = clock_gettime(ClockId::MonotonicCoarse);
    let seconds = Duration::from_secs(time.tv_sec.unsigned_abs());
    seconds + Duration::from_nanos(time.tv_nsec.unsigned_abs())
}
