//! Files, read in pieces on a pool for blocking work.

use std::fs::File;
use std::io::{self, BufRead, Read};
use std::os::unix::fs::FileExt;

/// Files up to this size are read at once; longer ones in pieces of this size.
pub(super) const PIECE: usize = 64 << 10;

/// Where file operations run, for they block: a runtime's pool for blocking work, or [`Inline`].
pub trait Blocking: Clone + Send + Sync + 'static {
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

/// The content of an open file from its beginning, a piece in memory at a time. File and piece travel to the pool
/// and back, so that a caller who is cancelled leaves nothing borrowed behind.
#[derive(Debug)]
pub(super) struct Pieces<B> {
    blocking: B,
    /// `None` only after a cancelled call.
    file: Option<File>,
    piece: Vec<u8>,
    /// Bytes of the piece that are consumed.
    used: usize,
    /// Where in the file the piece ends.
    offset: u64,
}

impl<B: Blocking> Pieces<B> {
    /// `piece` is what was already read of the file.
    pub(super) fn new(blocking: B, file: File, piece: Vec<u8>) -> Self {
        let offset = piece.len() as u64;
        Self { blocking, file: Some(file), piece, used: 0, offset }
    }

    fn next(&mut self) -> io::Result<()> {
        let (mut piece, offset) = (std::mem::take(&mut self.piece), self.offset);
        let file = self.file.take().ok_or_else(|| io::Error::other("the file was given up by a cancelled read"))?;
        let read = move || {
            piece.resize(PIECE, 0);
            let len = file.read_at(&mut piece, offset);
            (file, piece, len)
        };
        let (file, mut piece, len) = self.blocking.run(read)?;
        piece.truncate(*len.as_ref().unwrap_or(&0));
        self.offset += piece.len() as u64;
        (self.file, self.piece, self.used) = (Some(file), piece, 0);
        len.map(|_| ())
    }
}

impl<B: Blocking> BufRead for Pieces<B> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        if self.used == self.piece.len() {
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
