//! Reading directories: the blocking pool fetches entries, some at a time.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::fmt;
use std::fs::{FileType, Metadata};
use std::io;
use std::os::unix::fs::DirEntryExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::call::is_on_fiber;
use crate::blocking;

/// Entries fetched at a time: about what one `getdents64(2)` gives.
const BATCH: usize = 256;

/// Returns the entries of a directory, without `.` and `..`, in no particular order.
///
/// # Errors
/// As for [`File::open`](super::File::open).
///
/// ```
/// plainweave::run(|| {
///     let mut names = plainweave::fs::read_dir("/proc/self").unwrap();
///     assert!(names.any(|entry| entry.unwrap().file_name() == "status"));
/// });
/// ```
pub fn read_dir(path: impl AsRef<Path>) -> io::Result<ReadDir> {
    let path = path.as_ref().to_owned();
    let open = move || -> io::Result<ReadDir> {
        let mut reader = Reader {
            entries: std::fs::read_dir(path)?,
            fetched: VecDeque::new(),
            ended: false,
        };

        reader.fetch();
        Ok(ReadDir(Some(reader)))
    };
    blocking(open)?
}

/// The entries of a directory. It is closed when this is dropped, and the last [`DirEntry`] of it.
pub struct ReadDir(Option<Reader>);

struct Reader {
    entries: std::fs::ReadDir,
    fetched: VecDeque<io::Result<DirEntry>>,
    ended: bool,
}

impl Reader {
    fn fetch(&mut self) {
        while self.fetched.len() < BATCH {
            let Some(entry) = self.entries.next() else {
                self.ended = true;
                return;
            };

            self.fetched.push_back(entry.map(DirEntry::new));
        }
    }
}

impl Iterator for ReadDir {
    type Item = io::Result<DirEntry>;

    /// Returns the next entry. The caller's cancellation or deadline is an error too, and the last
    /// thing that comes.
    fn next(&mut self) -> Option<Self::Item> {
        let mut reader = self.0.take()?;
        if reader.fetched.is_empty() && !reader.ended {
            let fetch = move || {
                reader.fetch();
                reader
            };

            match blocking(fetch) {
                Ok(more) => reader = more,
                Err(error) => return Some(Err(error)),
            }
        }

        let next = reader.fetched.pop_front();
        self.0 = Some(reader);
        next
    }
}

impl fmt::Debug for ReadDir {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let entries = self.0.as_ref().map(|reader| &reader.entries);
        f.debug_tuple("ReadDir").field(&entries).finish()
    }
}

/// An entry of a directory.
pub struct DirEntry {
    entry: Arc<std::fs::DirEntry>,
    /// Most file systems say it with the name.
    kind: Option<FileType>,
}

impl DirEntry {
    /// Context: a thread that may block.
    fn new(entry: std::fs::DirEntry) -> Self {
        Self {
            kind: entry.file_type().ok(),
            entry: Arc::new(entry),
        }
    }

    /// Returns the directory's path with the entry's name.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        self.entry.path()
    }

    /// Returns the entry's name.
    #[must_use]
    pub fn file_name(&self) -> OsString {
        self.entry.file_name()
    }

    /// Returns the number of the file.
    #[must_use]
    pub fn ino(&self) -> u64 {
        self.entry.ino()
    }

    /// Returns what the entry is; follows no links. Does not wait, unless that failed when the
    /// entry was read.
    ///
    /// # Errors
    /// As for [`File::open`](super::File::open).
    pub fn file_type(&self) -> io::Result<FileType> {
        match self.kind {
            Some(kind) => Ok(kind),
            None => self.on_pool(std::fs::DirEntry::file_type),
        }
    }

    /// Returns size, times and kind; follows no links.
    ///
    /// # Errors
    /// As for [`File::open`](super::File::open).
    pub fn metadata(&self) -> io::Result<Metadata> {
        self.on_pool(std::fs::DirEntry::metadata)
    }

    fn on_pool<T: Send + 'static>(
        &self,
        call: fn(&std::fs::DirEntry) -> io::Result<T>,
    ) -> io::Result<T> {
        if !is_on_fiber() {
            return call(&self.entry);
        }

        let entry = Arc::clone(&self.entry);
        blocking(move || call(&entry))?
    }
}

impl fmt::Debug for DirEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.entry.fmt(f)
    }
}
