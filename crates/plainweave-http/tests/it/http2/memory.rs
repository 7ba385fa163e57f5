//! Over a stream in memory, which sees each write.

use std::io::{self, ErrorKind, Read, Write};
use std::sync::mpsc;
use std::time::Duration;

use plainweave::Runtime;
use plainweave_http::{NonBlocking, Transport, Wait};

use super::raw::{DATA, END_HEADERS, END_STREAM, HEADERS, PREFACE, SETTINGS, frame, get};
use crate::support::server;

/// A client that has sent everything, and leaves when it has this many answers.
struct Peer {
    input: Vec<u8>,
    answers: usize,
    answered: usize,
    writes: mpsc::Sender<Vec<u8>>,
}

impl Peer {
    /// The ends of answers in a write.
    fn ends(write: &[u8]) -> usize {
        let mut rest = write;
        let mut ends = 0;
        while let [high, middle, low, kind, flags, _, _, _, _, payload @ ..] = rest {
            let len = u32::from_be_bytes([0, *high, *middle, *low]) as usize;
            ends += usize::from(*kind == DATA && flags & END_STREAM != 0);
            rest = &payload[len..];
        }

        ends
    }

    fn is_answered(&self) -> bool {
        self.answered >= self.answers
    }
}

impl Read for Peer {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let len = buf.len().min(self.input.len());
        buf[..len].copy_from_slice(&self.input[..len]);
        self.input.drain(..len);
        Ok(len)
    }
}

impl Write for Peer {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.answered += Self::ends(buf);
        self.writes.send(buf.to_vec()).expect("the test listens");
        Ok(buf.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl NonBlocking for Peer {
    fn try_read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        match self.read(buf)? {
            0 if !self.is_answered() => Err(ErrorKind::WouldBlock.into()),
            len => Ok(len),
        }
    }

    fn try_write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.write(buf)
    }

    fn wait(&mut self, wait: &Wait<'_>) -> io::Result<()> {
        if self.is_answered() {
            Ok(())
        } else {
            wait.wakeups.wait(wait.limit)
        }
    }
}

impl Transport for Peer {
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
        Some(self)
    }
}

/// Short answers to requests that have come together leave together.
#[test]
fn answers_that_are_ready_leave_in_one_write() {
    const MANY: usize = 32;
    let requests =
        (0..MANY as u32).map(|n| frame(HEADERS, END_STREAM | END_HEADERS, 1 + 2 * n, &get("/a")));
    let input = [PREFACE.to_vec(), frame(SETTINGS, 0, 0, &[])]
        .into_iter()
        .chain(requests)
        .collect::<Vec<_>>()
        .concat();
    let runtime = Runtime::builder()
        .workers(1)
        .max_workers(1)
        .report_stalls(false)
        .build()
        .expect("a runtime");
    let server = server();
    let (writes, seen) = mpsc::channel();
    let peer = Peer {
        input,
        answers: MANY,
        answered: 0,
        writes,
    };

    runtime.run(|| server.serve_stream(peer));
    let answers: Vec<_> = seen
        .into_iter()
        .map(|write: Vec<u8>| Peer::ends(&write))
        .filter(|ends| *ends > 0)
        .collect();
    assert_eq!(answers, [MANY]);
}
