//! What the methods share: the files, the streams that carry them, and the measure of the worker's
//! absence.

use std::fs::File;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context, ensure};
use hdrhistogram::Histogram;
use rand::RngExt;
use rand::rngs::SmallRng;

/// Bytes of a file.
pub(super) const SIZE: usize = 1 << 20;
/// What is sent at a time, at most.
pub(super) const PIECE: usize = 64 << 10;

/// Returns the path of file `number`.
pub(super) fn path(dir: &Path, number: usize) -> PathBuf {
    dir.join(format!("{number:05}"))
}

/// Returns the byte at this offset of any file.
pub(super) fn byte(offset: usize) -> u8 {
    (offset / 4096 * 7 + offset % 13) as u8
}

/// A stream from file to file.
pub(super) struct Sender {
    pub(super) socket: TcpStream,
    pub(super) file: File,
    /// Bytes of the file sent so far.
    pub(super) offset: u64,
}

/// What the methods share: the files, the end, and the measure of the worker's absence.
pub(super) struct Course {
    pub(super) dir: PathBuf,
    pub(super) files: usize,
    pub(super) random: SmallRng,
    pub(super) end: Instant,
    pub(super) looked: Instant,
    pub(super) away: Histogram<u64>,
    pub(super) threads: usize,
    pub(super) looks: u64,
}

impl Course {
    /// Opens a file chosen at random.
    pub(super) fn next_file(&mut self) -> anyhow::Result<File> {
        let path = path(&self.dir, self.random.random_range(0..self.files));
        File::open(&path).with_context(|| format!("cannot open {}", path.display()))
    }

    /// Counts bytes as sent; at the end of a file the next one follows.
    pub(super) fn sent(&mut self, sender: &mut Sender, len: usize) -> anyhow::Result<()> {
        ensure!(len > 0, "a file has become shorter");
        sender.offset += len as u64;
        if sender.offset == SIZE as u64 {
            (sender.file, sender.offset) = (self.next_file()?, 0);
        }
        Ok(())
    }

    /// The worker has events in hand.
    pub(super) fn looking(&mut self) {
        self.looked = Instant::now();
    }

    /// It has handled them and looks for others. False: the time is over.
    pub(super) fn looks_again(&mut self) -> bool {
        let now = Instant::now();
        let _ = self.away.record((now - self.looked).as_nanos() as u64);
        self.looks += 1;
        if self.looks.is_multiple_of(64) {
            self.threads = self.threads.max(threads());
        }
        now < self.end
    }
}

/// Threads of this process, those of the kernel among them.
pub(super) fn threads() -> usize {
    std::fs::read_dir("/proc/self/task").map_or(0, Iterator::count)
}
