//! Files, read in pieces: from the page cache where they are, on a pool for blocking work otherwise.

use std::fs::File;
use std::io::{self, BufRead, IoSliceMut, Read};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use rustix::io::{Errno, ReadWriteFlags, preadv2};

/// Bytes that a streamed file is read in.
pub(super) const PIECE: usize = 64 << 10;

/// Where file operations run that may wait for a disk: a runtime's pool for blocking work, or [`Inline`].
pub trait Blocking: Clone + Send + Sync + 'static {
    /// Whether to try first, on the calling thread, without waiting, what may need no disk at all.
    const TRY_FIRST: bool = true;

    /// Runs `work` and waits for it. An error means that the caller was cancelled; the work may still go on.
    fn run<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> io::Result<T>;
}

/// On the calling thread: right for a thread per connection, and for tests.
#[derive(Clone, Copy, Debug, Default)]
pub struct Inline;

impl Blocking for Inline {
    fn run<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> io::Result<T> {
        Ok(work())
    }
}

/// Reads what the page cache has of a file at `offset`, without waiting. `None`: it takes the disk, or the file
/// system cannot tell.
pub(super) fn read_resident(file: &File, buf: &mut [u8], offset: u64) -> Option<usize> {
    loop {
        match preadv2(file, &mut [IoSliceMut::new(buf)], offset, ReadWriteFlags::NOWAIT) {
            Ok(len) => return Some(len),
            Err(Errno::INTR) => {}
            // Errors too: the read that may wait will meet them again, and report them.
            Err(_) => return None,
        }
    }
}

/// A range of an open file, a piece in memory at a time. A piece travels to the pool and back, so that a caller
/// who is cancelled leaves nothing borrowed behind.
#[derive(Debug)]
pub(super) struct Pieces<B> {
    blocking: B,
    file: Arc<File>,
    piece: Vec<u8>,
    /// Bytes of the piece that are consumed.
    used: usize,
    /// What of the file is not in the piece yet.
    left: Range<u64>,
}

impl<B: Blocking> Pieces<B> {
    /// Ends where `range` does, or before it with the file.
    pub(super) fn new(blocking: B, file: Arc<File>, range: Range<u64>) -> Self {
        Self { blocking, file, piece: Vec::new(), used: 0, left: range }
    }

    /// Whether all of the range was read.
    pub(super) fn is_complete(&self) -> bool {
        self.left.is_empty()
    }

    fn next(&mut self) -> io::Result<()> {
        let (mut piece, offset) = (std::mem::take(&mut self.piece), self.left.start);
        piece.resize(self.left.end.saturating_sub(offset).min(PIECE as u64) as usize, 0);
        let resident = if B::TRY_FIRST { read_resident(&self.file, &mut piece, offset) } else { None };
        let (mut piece, len) = match resident {
            Some(len) => (piece, Ok(len)),
            None => {
                let file = Arc::clone(&self.file);
                let read = move || {
                    let len = file.read_at(&mut piece, offset);
                    (piece, len)
                };
                self.blocking.run(read)?
            }
        };
        piece.truncate(*len.as_ref().unwrap_or(&0));
        self.left.start += piece.len() as u64;
        (self.piece, self.used) = (piece, 0);
        len.map(|_| ())
    }
}

impl<B: Blocking> BufRead for Pieces<B> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        if self.used == self.piece.len() && !self.is_complete() {
            self.next()?;
        }
        Ok(&self.piece[self.used..])
    }

    fn consume(&mut self, len: usize) {
        self.used += len;
    }
}

impl<B: Blocking> Read for Pieces<B> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let piece = self.fill_buf()?;
        let len = piece.len().min(buf.len());
        buf[..len].copy_from_slice(&piece[..len]);
        self.consume(len);
        Ok(len)
    }
}
