//! A conversation in memory that is cut at each of its bytes, in both directions.

use std::io::{self, ErrorKind, Read, Write};
use std::time::Duration;

use plainweave::Runtime;
use plainweave_http::{Limits, NonBlocking, Transport, Wait};

use super::raw::{
    CONTINUATION, DATA, END_HEADERS, END_STREAM, HEADERS, PREFACE, SETTINGS, frame, get, post,
};
use crate::support::server;

/// What becomes of the client after as many bytes as a test says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Then {
    /// There is a pause, in which the server has to wait.
    Pause,
    /// Nothing more can be sent to it.
    Deaf,
    /// It takes nothing more, and says nothing.
    Full,
}

/// A client that sends two requests and leaves when it has both answers.
struct Peer {
    input: Vec<u8>,
    read: usize,
    out: Vec<u8>,
    /// Bytes of either direction.
    split: usize,
    then: Then,
    /// Pauses that are over when the server has waited: of reads and of writes.
    paused: [bool; 2],
    waits: usize,
}

impl Peer {
    /// Where there is nothing left to be cut, on either way.
    fn end(&self) -> usize {
        self.out.len().max(self.read)
    }

    fn new(split: usize, then: Then) -> Self {
        let fields = post("/echo");
        let input = [
            PREFACE.to_vec(),
            frame(SETTINGS, 0, 0, &[]),
            frame(HEADERS, END_STREAM | END_HEADERS, 1, &get("/a")),
            frame(HEADERS, 0, 3, &fields[..4]),
            frame(CONTINUATION, END_HEADERS, 3, &fields[4..]),
            frame(DATA, 0, 3, b"body"),
            frame(DATA, END_STREAM, 3, b", end"),
        ];
        Self {
            input: input.concat(),
            read: 0,
            out: Vec::new(),
            split,
            then,
            paused: [false; 2],
            waits: 0,
        }
    }

    /// Returns the data on a stream, and whether all of it has come.
    fn data(&self, stream: u8) -> (Vec<u8>, bool) {
        let mut rest = &self.out[..];
        let mut data = Vec::new();
        let mut ended = false;
        while let [high, middle, low, kind, flags, _, _, _, id, payload @ ..] = rest {
            let len = u32::from_be_bytes([0, *high, *middle, *low]) as usize;
            let Some((payload, after)) = payload.split_at_checked(len) else {
                break;
            };
            if (*kind, *id) == (DATA, stream) {
                data.extend_from_slice(payload);
                ended |= flags & END_STREAM != 0;
            }

            rest = after;
        }
        (data, ended)
    }

    fn is_answered(&self) -> bool {
        self.data(1).1 && self.data(3).1
    }

    /// How much of `len` bytes may pass behind the first `passed`.
    fn part(&self, passed: usize, len: usize) -> usize {
        len.min(
            self.split
                .checked_sub(passed)
                .filter(|left| *left > 0)
                .unwrap_or(len),
        )
    }

    /// Returns whether there is a pause now, which begins with the first call.
    fn pauses(&mut self, direction: usize, passed: usize) -> bool {
        let first = passed == self.split && !self.paused[direction];
        self.paused[direction] |= first;
        first
    }
}

impl Read for Peer {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let len = self.part(self.read, buf.len().min(self.input.len() - self.read));
        buf[..len].copy_from_slice(&self.input[self.read..self.read + len]);
        self.read += len;
        Ok(len)
    }
}

impl Write for Peer {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        match self.then {
            Then::Deaf if self.out.len() >= self.split => {
                return Err(ErrorKind::ConnectionReset.into());
            }
            Then::Full if self.out.len() >= self.split => return Err(ErrorKind::WouldBlock.into()),
            _ => {}
        }

        let len = self.part(self.out.len(), buf.len());
        self.out.extend_from_slice(&buf[..len]);
        Ok(len)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl NonBlocking for Peer {
    fn try_read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        if self.then == Then::Pause && self.pauses(0, self.read) {
            return Err(ErrorKind::WouldBlock.into());
        }
        match self.read(buf)? {
            0 if !self.is_answered() => Err(ErrorKind::WouldBlock.into()),
            len => Ok(len),
        }
    }

    fn try_write(&mut self, buf: &[u8]) -> io::Result<usize> {
        if self.then == Then::Pause && self.pauses(1, self.out.len()) {
            return Err(ErrorKind::WouldBlock.into());
        }
        self.write(buf)
    }

    /// Returns at once if there is something to read, or room again.
    fn wait(&mut self, wait: &Wait<'_>) -> io::Result<()> {
        self.waits += 1;
        assert!(self.waits < 1000, "it goes on and on");
        let reads = wait.reads && (self.read < self.input.len() || self.is_answered());

        let writes = wait.writes && self.then != Then::Full;
        if reads || writes {
            Ok(())
        } else {
            wait.wakeups.wait(wait.limit)
        }
    }
}

impl Transport for &mut Peer {
    fn set_read_timeout(&mut self, _timeout: Duration) -> io::Result<()> {
        Ok(())
    }

    fn set_write_timeout(&mut self, _timeout: Duration) -> io::Result<()> {
        Ok(())
    }

    fn shutdown_write(&mut self) -> io::Result<()> {
        Ok(())
    }

    fn non_blocking(&mut self) -> Option<&mut dyn NonBlocking> {
        Some(&mut **self)
    }
}

/// Plays the conversation for each split, until there is nothing left to be cut.
fn play(then: Then, limits: &Limits, check: impl Fn(&Peer)) {
    let runtime = Runtime::builder()
        .workers(1)
        .max_workers(1)
        .report_stalls(false)
        .build()
        .expect("a runtime");
    let server = server().with_limits(limits.clone());
    let played = |split: usize| {
        let mut peer = Peer::new(split, then);
        runtime.run(|| server.serve_stream(&mut peer));
        peer
    };

    let end = played(usize::MAX).end();
    assert!(end > 100, "{end}");
    (1..end).for_each(|split| check(&played(split)));
}

#[test]
fn every_split() {
    play(Then::Pause, &Limits::default(), |peer| {
        assert_eq!(peer.data(1), (b"/a".to_vec(), true), "{}", peer.split);
        assert_eq!(
            peer.data(3),
            (b"body, end".to_vec(), true),
            "{}",
            peer.split
        );
        // The length of an answer is not always the same: beyond its end there is nothing to cut.
        assert!(
            peer.split >= peer.end() || peer.paused != [false; 2],
            "{}",
            peer.split
        );
    });
}

#[test]
fn a_client_that_takes_no_more_after_any_byte() {
    let quick = Limits {
        write_timeout: Duration::from_millis(2),
        ..Limits::default()
    };

    let quick = Limits {
        linger_timeout: Duration::from_millis(2),
        ..quick
    };

    for then in [Then::Deaf, Then::Full] {
        play(then, &quick, |peer| {
            assert!(peer.out.len() <= peer.split, "{then:?}")
        });
    }
}
