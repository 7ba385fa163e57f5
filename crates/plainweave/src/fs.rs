//! Files. Each call runs on the blocking pool, not on a worker, and owns its buffer meanwhile, so a
//! cancelled caller may leave. On a plain thread the calls are `std`'s.

#![expect(unsafe_code, reason = "`cachestat(2)`")]

use std::fs::Metadata;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use crate::blocking;

/// The most bytes that one read or write moves: bounds the buffer that goes to the blocking pool.
const PIECE: usize = 256 * 1024;

/// An open file. Reads and writes use a cursor that belongs to this handle.
///
/// ```
/// use plainweave::fs::File;
///
/// # let path = std::env::temp_dir().join(format!("plainweave-doc-file-{}", std::process::id()));
/// plainweave::run(|| {
///     let file = File::create(&path).unwrap();
///     file.write_at(b"hello", 0).unwrap();
///     file.sync_all().unwrap();
///     let mut buf = [0; 8];
///     let len = File::open(&path).unwrap().read_at(&mut buf, 1).unwrap();
///     assert_eq!(&buf[..len], b"ello");
/// });
/// # std::fs::remove_file(path).unwrap();
/// ```
#[derive(Debug)]
pub struct File {
    file: Arc<std::fs::File>,
    cursor: u64,
}

impl File {
    /// Opens a file for reading.
    ///
    /// # Errors
    /// As for `std`'s; the caller was cancelled or ran into its deadline.
    pub fn open(path: impl AsRef<Path>) -> io::Result<Self> {
        let path = path.as_ref().to_owned();
        blocking(move || std::fs::File::open(path))?.map(Self::from_std)
    }

    /// Creates or truncates a file, for writing.
    ///
    /// # Errors
    /// As for `open`.
    pub fn create(path: impl AsRef<Path>) -> io::Result<Self> {
        let path = path.as_ref().to_owned();
        blocking(move || std::fs::File::create(path))?.map(Self::from_std)
    }

    /// Takes over a `std` file; the cursor starts at 0.
    #[must_use]
    pub fn from_std(file: std::fs::File) -> Self {
        Self {
            file: Arc::new(file),
            cursor: 0,
        }
    }

    /// Returns size, times and kind.
    ///
    /// # Errors
    /// As for `open`.
    pub fn metadata(&self) -> io::Result<Metadata> {
        let file = self.file.clone();
        blocking(move || file.metadata())?
    }

    /// Reads at a position, at most 256 KiB; returns 0 at the end of the file.
    ///
    /// # Errors
    /// As for `open`.
    pub fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        let file = self.file.clone();
        let mut owned = vec![0; buf.len().min(PIECE)];
        let read = blocking(move || file.read_at(&mut owned, offset).map(|n| (owned, n)))?;
        let (owned, n) = read?;
        buf[..n].copy_from_slice(&owned[..n]);
        Ok(n)
    }

    /// Writes at a position, at most 256 KiB. A cancelled write may still take place.
    ///
    /// # Errors
    /// As for `open`.
    pub fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<usize> {
        let file = self.file.clone();
        let owned = buf[..buf.len().min(PIECE)].to_vec();
        blocking(move || file.write_at(&owned, offset))?
    }

    /// Waits until everything written is on the disk.
    ///
    /// # Errors
    /// As for `open`.
    pub fn sync_all(&self) -> io::Result<()> {
        let file = self.file.clone();
        blocking(move || file.sync_all())?
    }
}

impl Read for File {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let n = self.read_at(buf, self.cursor)?;
        self.cursor += n as u64;
        Ok(n)
    }
}

impl Write for File {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        let n = self.write_at(buf, self.cursor)?;
        self.cursor += n as u64;
        Ok(n)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Seek for File {
    fn seek(&mut self, pos: SeekFrom) -> io::Result<u64> {
        let (base, delta) = match pos {
            SeekFrom::Start(n) => (n, 0),
            SeekFrom::Current(d) => (self.cursor, d),
            SeekFrom::End(d) => (self.metadata()?.len(), d),
        };

        let target = base.checked_add_signed(delta);
        let target = target.ok_or_else(|| {
            io::Error::new(io::ErrorKind::InvalidInput, "a seek before the start")
        })?;
        self.cursor = target;
        Ok(target)
    }
}

/// Reads a whole file.
///
/// # Errors
/// As for [`File::open`].
///
/// ```
/// plainweave::run(|| {
///     let name = plainweave::fs::read("/proc/sys/kernel/ostype").unwrap();
///     assert_eq!(name, b"Linux\n");
/// });
/// ```
pub fn read(path: impl AsRef<Path>) -> io::Result<Vec<u8>> {
    let path = path.as_ref().to_owned();
    blocking(move || std::fs::read(path))?
}

/// Writes a whole file.
///
/// # Errors
/// As for [`File::open`].
///
/// ```
/// # let path = std::env::temp_dir().join(format!("plainweave-doc-write-{}", std::process::id()));
/// plainweave::run(|| {
///     plainweave::fs::write(&path, "hello").unwrap();
///     assert_eq!(plainweave::fs::read(&path).unwrap(), b"hello");
/// });
/// # std::fs::remove_file(path).unwrap();
/// ```
pub fn write(path: impl AsRef<Path>, contents: impl AsRef<[u8]>) -> io::Result<()> {
    let path = path.as_ref().to_owned();
    let contents = contents.as_ref().to_vec();
    blocking(move || std::fs::write(path, contents))?
}

/// Returns size, times and kind; follows links.
///
/// # Errors
/// As for [`File::open`].
///
/// ```
/// plainweave::run(|| assert!(plainweave::fs::metadata("/proc").unwrap().is_dir()));
/// ```
pub fn metadata(path: impl AsRef<Path>) -> io::Result<Metadata> {
    let path = path.as_ref().to_owned();
    blocking(move || std::fs::metadata(path))?
}

/// Returns whether the page cache has all of `range` of a file, so that a read or `sendfile(2)` of
/// it would not wait for a disk. Does not wait. The kernel may drop pages at any time: true is a
/// likelihood, not a promise.
///
/// # Errors
/// [`io::ErrorKind::Unsupported`] where the kernel (before Linux 6.5) or a filter has no
/// `cachestat(2)`.
pub fn is_resident(file: impl AsFd, range: Range<u64>) -> io::Result<bool> {
    /// The same number on all machines; `libc` does not name it.
    const CACHESTAT: libc::c_long = 451;
    /// The kernel's `struct cachestat_range` and `struct cachestat`.
    type Asked = [u64; 2];
    type CacheStat = [u64; 5];
    let len = range.end.saturating_sub(range.start);
    if len == 0 {
        return Ok(true);
    }
    let asked: Asked = [range.start, len];
    let mut counts: CacheStat = [0; 5];
    let fd = file.as_fd().as_raw_fd();

    // SAFETY: both structures are as long as the kernel's, and it keeps neither address.
    let result = unsafe { libc::syscall(CACHESTAT, fd, asked.as_ptr(), counts.as_mut_ptr(), 0) };
    if result < 0 {
        let error = io::Error::last_os_error();
        return Err(match error.raw_os_error() {
            Some(libc::ENOSYS | libc::EPERM | libc::EOPNOTSUPP) => {
                io::ErrorKind::Unsupported.into()
            }
            _ => error,
        });
    }

    let page = rustix::param::page_size() as u64;
    let pages = (range.end - 1) / page - range.start / page + 1;
    let cached = counts[0];
    Ok(cached >= pages)
}
