//! Files, read in pieces: from the page cache where they are, on a pool for blocking work
//! otherwise.

use std::fs::File;
use std::io::{self, BufRead, IoSliceMut, Read};
use std::num::NonZeroU64;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::fs::{Advice, AtFlags, StatxFlags, fadvise, statx};
use rustix::io::{Errno, ReadWriteFlags, preadv2};
use rustix::time::{ClockId, clock_gettime};

use super::clock::{Millis, coarse_millis};
use super::disk_waits::DiskWaits;
use crate::message::response::FilePart;

/// Bytes that a streamed file is read in.
pub(super) const PIECE: usize = 64 << 10;

/// Bytes that are fetched from the disk at once where many wait: what most kernels read ahead.
const AHEAD: u64 = 128 << 10;
/// Bytes that a response reads by itself, and so may be under way, once it needed the disk.
const COLD: u64 = 2 << 20;

/// How what is in the page cache is looked for.
#[derive(Clone, Copy, Debug)]
struct Care {
    /// Bytes that are looked for, and sent from there, at once.
    window: u64,
    /// Milliseconds for which a page is assumed to stay.
    believed: u64,
    /// The same for what another response from this file has found.
    believed_of_others: u64,
    /// One page in this many bytes is asked whether its content has arrived.
    probed: u64,
}

impl Care {
    /// While everything is in memory: the kernel drops recently used pages last, and fetches at
    /// least 64 KiB at once.
    const LITTLE: Self = Self {
        window: 2 << 20,
        believed: 500,
        believed_of_others: 100,
        probed: 64 << 10,
    };
    /// While the disk is read: each page that comes drives out another one, and what comes back may
    /// be single pages that are missing among others. So every page is asked, just before it is
    /// sent.
    const MUCH: Self = Self {
        window: 256 << 10,
        believed: 0,
        believed_of_others: 0,
        probed: 4096,
    };

    fn at(now: Millis, waits: &DiskWaits) -> Self {
        if waits.were_there(now) {
            Self::MUCH
        } else {
            Self::LITTLE
        }
    }
}

/// Where file operations run that may wait for a disk: a runtime's pool for blocking work, or
/// [`Inline`].
pub trait Blocking: Clone + Send + Sync + 'static {
    /// Whether to try first, on the calling thread, without waiting, what may need no disk at all.
    const TRY_FIRST: bool = true;

    /// Runs `work` and waits for it. An error means that the caller was cancelled; the work may
    /// still go on.
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

/// How what is not in memory is read.
#[derive(Clone, Debug)]
pub(super) struct Disk<B> {
    pub(super) blocking: B,
    pub(super) waits: Arc<DiskWaits>,
}

impl<B: Blocking> Disk<B> {
    /// Returns whether a response may begin that needs these bytes of the file: not if that takes
    /// the disk, and too many wait for it.
    pub(super) fn admits(&self, file: &Opened, range: &Range<u64>) -> bool {
        let now = coarse_millis();
        if !self.waits.are_long(now) {
            return true;
        }
        let care = Care::at(now, &self.waits);
        let first = range.start..range.end.min(range.start + care.window);
        let admitted = B::TRY_FIRST && file.has(first, now, care);

        if !admitted {
            self.waits.refuse();
        }

        admitted
    }
}

/// Reads what the page cache has of a file at `offset`, without waiting. `None`: it takes the disk,
/// or the file system cannot tell.
pub(super) fn read_resident(file: &File, buf: &mut [u8], offset: u64) -> Option<usize> {
    loop {
        match preadv2(
            file,
            &mut [IoSliceMut::new(buf)],
            offset,
            ReadWriteFlags::NOWAIT,
        ) {
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

/// A file that is kept open, and what was last seen of it in the page cache: asking costs a tenth
/// of sending 1 MiB, and a file that is asked for often has many answers under way.
#[derive(Debug)]
pub(super) struct Opened {
    file: File,
    seen: Mutex<Seen>,
}

/// This range was there, at this time.
#[derive(Debug, Default)]
struct Seen {
    range: Range<u64>,
    when: Millis,
}

impl Opened {
    pub(super) fn new(file: File) -> Self {
        Self {
            file,
            seen: Mutex::default(),
        }
    }

    /// Returns the number of bytes that it has now, as far as that is known without waiting for a
    /// network.
    pub(super) fn size_now(&self) -> Option<u64> {
        let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
        let stat = statx(&self.file, c"", flags, StatxFlags::SIZE);
        stat.ok().map(|stat| stat.stx_size)
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns whether all of `range` is in the page cache, as far as is known without touching it.
    fn has(&self, range: Range<u64>, now: Millis, care: Care) -> bool {
        let seen = self.seen();
        let covered = seen.range.start <= range.start && range.end <= seen.range.end;
        if covered && now.saturating_sub(seen.when) < care.believed_of_others {
            return true;
        }
        drop(seen);

        // Without cachestat(2), which says no here, the read that follows is exact.
        let cached = plainweave::fs::is_resident(&self.file, range.clone()).unwrap_or(false);
        if !cached || !self.has_arrived(range.clone(), care.probed) {
            return false;
        }
        *self.seen() = Seen { range, when: now };
        true
    }

    /// Returns whether the content of cached pages has arrived: a page that a read-ahead has begun
    /// to fetch counts as cached already, and only a read that must not wait can tell. It samples
    /// other pages each time, since a sampled page is kept longer than its neighbours and would be
    /// there when these are not.
    fn has_arrived(&self, range: Range<u64>, probed: u64) -> bool {
        let arrived = |at: u64| read_resident(&self.file, &mut [0], at) == Some(1);
        let shift = (clock_gettime(ClockId::Monotonic).tv_nsec as u64)
            .wrapping_mul(0x9e37_79b9_7f4a_7c15)
            >> 32;
        let probes = (range.start / probed * probed..range.end).step_by(probed as usize);
        let mut probes = probes.map(|at| (at + shift % probed).clamp(range.start, range.end - 1));
        probes.all(arrived)
    }

    /// Before a read from the disk. By itself the kernel reads ahead as far as the disk's setting
    /// says, 8 MiB on some, which saves trips to the pool. But pages on their way cannot be given
    /// up: where many wait, they drive out what others are about to send.
    fn limit_read_ahead(&self, crowded: bool, offset: u64) {
        let advice = if crowded {
            Advice::Random
        } else {
            Advice::Normal
        };

        let _ = fadvise(&self.file, 0, None, advice);
        if crowded {
            let _ = fadvise(&self.file, offset, NonZeroU64::new(AHEAD), Advice::WillNeed);
        }
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

/// A range of an open file, a piece in memory at a time. A piece travels to the pool and back, so
/// that a cancelled caller leaves nothing borrowed behind.
#[derive(Debug)]
pub(super) struct Pieces<B> {
    disk: Disk<B>,
    file: Arc<Opened>,
    piece: Vec<u8>,
    /// Bytes of the piece that are consumed.
    used: usize,
    /// What of the file is not in the piece yet.
    left: Range<u64>,
    /// Up to where the page cache had it all, and when.
    checked: (u64, u64),
    /// Up to here a read-ahead may be under way, for the disk was needed: read, and wait on the
    /// pool.
    cold: u64,
}

impl<B: Blocking> Pieces<B> {
    /// Ends where `range` does, or before it with the file.
    pub(super) fn new(disk: Disk<B>, file: Arc<Opened>, range: Range<u64>) -> Self {
        Self {
            disk,
            file,
            piece: Vec::new(),
            used: 0,
            left: range,
            checked: (0, 0),
            cold: 0,
        }
    }

    /// Returns whether all of the range was read.
    pub(super) fn is_complete(&self) -> bool {
        self.left.is_empty()
    }

    fn next(&mut self) -> io::Result<()> {
        let mut piece = std::mem::take(&mut self.piece);
        let offset = self.left.start;
        let size = self.left.end.saturating_sub(offset).min(PIECE as u64) as usize;
        piece.resize(size, 0);
        let resident = if B::TRY_FIRST {
            read_resident(&self.file, &mut piece, offset)
        } else {
            None
        };

        let (mut piece, len) = match resident {
            Some(len) => (piece, Ok(len)),
            None => {
                // Many may wait at a time: memory is taken when it is their turn.
                drop(piece);
                self.cold = offset + COLD;
                self.file.forget();
                let file = Arc::clone(&self.file);
                let crowded = self.disk.waits.are_many();
                let read = move || {
                    file.limit_read_ahead(crowded, offset);
                    let mut piece = vec![0; size];
                    let len = file.read_at(&mut piece, offset);
                    (piece, len)
                };

                let _wait = self.disk.waits.begin(coarse_millis());
                self.disk.blocking.run(read)?
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

        let care = Care::at(now, &self.disk.waits);
        if end <= start || now.saturating_sub(when) >= care.believed {
            end = self.left.end.min(start + max.min(care.window));
            if !self.file.has(start..end, now, care) {
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
