//! Files, read in pieces: from the page cache where they are, on a pool for blocking work otherwise.

use std::fs::File;
use std::io::{self, BufRead, IoSliceMut, Read};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::io::{Errno, ReadWriteFlags, preadv2};
use rustix::time::{ClockId, clock_gettime};

use super::clock::coarse_millis;
use crate::FilePart;

/// Bytes that a streamed file is read in.
pub(super) const PIECE: usize = 64 << 10;

/// Bytes that are looked for in the page cache, and sent from there, at once.
const WINDOW: u64 = 2 << 20;
/// Milliseconds for which a page is assumed to stay: the kernel drops recently used pages last.
const BELIEVED: u64 = 500;
/// The same for what another response from this file has found.
const BELIEVED_OF_OTHERS: u64 = 100;
/// One page in this many bytes is asked whether its content has arrived. Read-ahead fetches at least as many at once.
const PROBED: u64 = 64 << 10;

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

/// `Read` for what is a `BufRead`: from the piece in memory.
pub(super) fn read_piece(source: &mut impl BufRead, buf: &mut [u8]) -> io::Result<usize> {
    let len = source.fill_buf()?.read(buf)?;
    source.consume(len);
    Ok(len)
}

/// A file that is kept open, and what was last seen of it in the page cache: asking costs a tenth of sending 1 MiB, and
/// a file that is asked for often has many answers under way.
#[derive(Debug)]
pub(super) struct Opened {
    file: File,
    seen: Mutex<Seen>,
}

/// This range was there, at this time in milliseconds.
#[derive(Debug, Default)]
struct Seen {
    range: Range<u64>,
    when: u64,
}

impl Opened {
    pub(super) fn new(file: File) -> Self {
        Self { file, seen: Mutex::default() }
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns whether all of `range` is in the page cache, as far as is known without touching it.
    fn has(&self, range: Range<u64>, now: u64) -> bool {
        let seen = self.seen();
        let covered = seen.range.start <= range.start && range.end <= seen.range.end;
        if covered && now.saturating_sub(seen.when) < BELIEVED_OF_OTHERS {
            return true;
        }
        drop(seen);
        // Without cachestat(2), which says no here, the read that follows is exact.
        if !plainweave::fs::is_resident(&self.file, range.clone()).unwrap_or(false) || !self.has_arrived(range.clone())
        {
            return false;
        }
        *self.seen() = Seen { range, when: now };
        true
    }

    /// Returns whether the content of cached pages has arrived: a page that a read-ahead has begun to fetch counts as
    /// cached already, and only a read that must not wait can tell. It samples other pages each time, since a sampled
    /// page is kept longer than its neighbours and would be there when these are not.
    fn has_arrived(&self, range: Range<u64>) -> bool {
        let arrived = |at: u64| read_resident(&self.file, &mut [0], at) == Some(1);
        let shift = (clock_gettime(ClockId::Monotonic).tv_nsec as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        let probes = (range.start..range.end).step_by(PROBED as usize);
        let mut probes = probes.map(|at| at + (shift % PROBED).min(range.end - 1 - at));
        probes.all(arrived)
    }

    /// Reading took the disk.
    fn forget(&self) {
        *self.seen() = Seen::default();
    }
}

impl std::ops::Deref for Opened {
    type Target = File;

    fn deref(&self) -> &File {
        &self.file
    }
}

/// A range of an open file, a piece in memory at a time. A piece travels to the pool and back, so that a caller
/// a cancelled caller leaves nothing borrowed behind.
#[derive(Debug)]
pub(super) struct Pieces<B> {
    blocking: B,
    file: Arc<Opened>,
    piece: Vec<u8>,
    /// Bytes of the piece that are consumed.
    used: usize,
    /// What of the file is not in the piece yet.
    left: Range<u64>,
    /// Up to where the page cache had it all, and when.
    checked: (u64, u64),
    /// Up to here a read-ahead may be under way, for the disk was needed: read, and wait on the pool.
    cold: u64,
}

impl<B: Blocking> Pieces<B> {
    /// Ends where `range` does, or before it with the file.
    pub(super) fn new(blocking: B, file: Arc<Opened>, range: Range<u64>) -> Self {
        Self { blocking, file, piece: Vec::new(), used: 0, left: range, checked: (0, 0), cold: 0 }
    }

    /// Returns whether all of the range was read.
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
                self.cold = offset + WINDOW;
                self.file.forget();
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
        read_piece(self, buf)
    }
}

impl<B: Blocking> FilePart for Pieces<B> {
    fn resident(&mut self, max: u64) -> Option<(&File, u64, usize)> {
        if !B::TRY_FIRST || self.used < self.piece.len() || self.is_complete() {
            return None;
        }
        let start = self.left.start;
        let (mut end, when) = self.checked;
        let now = coarse_millis();
        if start < self.cold {
            return None;
        }
        if end <= start || now.saturating_sub(when) >= BELIEVED {
            end = self.left.end.min(start + max.min(WINDOW));
            if !self.file.has(start..end, now) {
                return None;
            }
            self.checked = (end, now);
        }
        Some((&self.file, start, (end - start) as usize))
    }

    fn sent(&mut self, len: usize) {
        self.left.start += len as u64;
    }
}
