//! Files and directories, in the shape of `std::fs`, without holding up a worker.
//!
//! A call is made on the worker where it needs no wait (cached pages), by the worker's io_uring
//! where the kernel has the operation, and otherwise on the blocking pool. A plain thread makes
//! it, and waits. `docs/drivers.md` says which call goes where.
//!
//! A cancelled caller gets its error, and the call may still take place, as any system call that
//! was interrupted.

#![expect(unsafe_code, reason = "`cachestat(2)`")]

mod call; // By the ring, or on the pool.
mod copy; // Copying a file, in pieces.
mod dir; // Reading directories.
mod file; // An open file.
mod open_options; // How a file is opened.

use std::io::{self, Read as _, Write as _};
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd};
use std::path::{Path, PathBuf};

use call::{KernelPath, is_on_fiber, on_path, on_paths, on_pool};

pub use copy::copy;
pub use dir::{DirEntry, ReadDir, read_dir};
pub use file::{File, TryLockError};
pub use open_options::OpenOptions;
pub use std::fs::{FileTimes, FileType, Metadata, Permissions};

use crate::io::file_call::FileCall;

/// Reads a whole file. What has no position, a FIFO say, is read by a thread, which a caller that
/// is cancelled leaves behind: see [`PipeReader`](crate::pipe::PipeReader).
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
    if !is_on_fiber() {
        return std::fs::read(path);
    }
    let mut contents = Vec::new();
    let mut file = File::open(path)?;
    if file.has_position() {
        file.read_to_end(&mut contents)?;
        return Ok(contents);
    }

    // A pipe, say: a thread waits for it.
    file.on_pool(move |mut file| {
        file.read_to_end(&mut contents)?;
        Ok(contents)
    })
}

/// Reads a whole file of text.
///
/// # Errors
/// As for [`File::open`]; [`io::ErrorKind::InvalidData`] if it is not UTF-8.
pub fn read_to_string(path: impl AsRef<Path>) -> io::Result<String> {
    String::from_utf8(read(path)?)
        .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error.utf8_error()))
}

/// Writes a whole file. A caller that is cancelled meanwhile leaves part of it, and of a FIFO the
/// thread that writes it.
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
    let mut file = File::create(path)?;
    let contents = contents.as_ref();
    if file.has_position() {
        return file.write_all(contents);
    }
    let contents = contents.to_owned();
    file.on_pool(move |mut file| file.write_all(&contents))
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
    on_pool(path, std::fs::metadata)
}

/// As [`metadata`], of a link itself.
///
/// # Errors
/// As for [`File::open`].
pub fn symlink_metadata(path: impl AsRef<Path>) -> io::Result<Metadata> {
    on_pool(path, std::fs::symlink_metadata)
}

/// Returns whether there is something at the path; follows links.
///
/// # Errors
/// It cannot be told: a directory on the way cannot be searched, say.
pub fn exists(path: impl AsRef<Path>) -> io::Result<bool> {
    on_pool(path, std::fs::exists)
}

/// Returns the path without links, `.` and `..`, from the root.
///
/// # Errors
/// As for [`File::open`].
pub fn canonicalize(path: impl AsRef<Path>) -> io::Result<PathBuf> {
    on_pool(path, std::fs::canonicalize)
}

/// Returns where a symbolic link leads.
///
/// # Errors
/// As for [`File::open`].
pub fn read_link(path: impl AsRef<Path>) -> io::Result<PathBuf> {
    on_pool(path, std::fs::read_link)
}

/// Sets permissions; follows links.
///
/// # Errors
/// As for [`File::open`].
pub fn set_permissions(path: impl AsRef<Path>, permissions: Permissions) -> io::Result<()> {
    on_pool(path, move |path| {
        std::fs::set_permissions(path, permissions)
    })
}

/// Gives a file or directory another name, in place of what had it.
///
/// # Errors
/// As for [`File::open`]; the two are on different file systems.
pub fn rename(from: impl AsRef<Path>, to: impl AsRef<Path>) -> io::Result<()> {
    let call = |from: &KernelPath, to: &KernelPath| FileCall::Rename {
        from: from.as_ptr(),
        to: to.as_ptr(),
    };
    on_paths(from, to, call, std::fs::rename)
}

/// Gives a file a further name.
///
/// # Errors
/// As for [`rename`].
pub fn hard_link(original: impl AsRef<Path>, link: impl AsRef<Path>) -> io::Result<()> {
    let call = |from: &KernelPath, to: &KernelPath| FileCall::Link {
        from: from.as_ptr(),
        to: to.as_ptr(),
    };
    on_paths(original, link, call, std::fs::hard_link)
}

/// Creates a symbolic link.
///
/// # Errors
/// As for [`File::open`].
pub fn symlink(original: impl AsRef<Path>, link: impl AsRef<Path>) -> io::Result<()> {
    let call = |target: &KernelPath, link: &KernelPath| FileCall::Symlink {
        target: target.as_ptr(),
        link: link.as_ptr(),
    };
    on_paths(original, link, call, std::os::unix::fs::symlink)
}

/// Removes a file, or a link.
///
/// # Errors
/// As for [`File::open`].
pub fn remove_file(path: impl AsRef<Path>) -> io::Result<()> {
    remove(path, 0, std::fs::remove_file)
}

/// Removes an empty directory.
///
/// # Errors
/// As for [`File::open`]; [`io::ErrorKind::DirectoryNotEmpty`].
pub fn remove_dir(path: impl AsRef<Path>) -> io::Result<()> {
    remove(path, libc::AT_REMOVEDIR, std::fs::remove_dir)
}

fn remove(
    path: impl AsRef<Path>,
    flags: i32,
    otherwise: fn(PathBuf) -> io::Result<()>,
) -> io::Result<()> {
    let call = |path: &KernelPath| FileCall::Remove {
        path: path.as_ptr(),
        flags,
    };
    on_path(path, call, drop, otherwise)
}

/// Removes a directory with all that is in it; follows no links.
///
/// # Errors
/// As for [`File::open`]. A caller that is cancelled meanwhile does not stop it.
pub fn remove_dir_all(path: impl AsRef<Path>) -> io::Result<()> {
    on_pool(path, std::fs::remove_dir_all)
}

/// Creates a directory.
///
/// # Errors
/// As for [`File::open`]; [`io::ErrorKind::AlreadyExists`].
pub fn create_dir(path: impl AsRef<Path>) -> io::Result<()> {
    let call = |path: &KernelPath| FileCall::CreateDir {
        path: path.as_ptr(),
        mode: 0o777,
    };
    on_path(path, call, drop, std::fs::create_dir)
}

/// Creates a directory, and those on the way to it that are missing.
///
/// # Errors
/// As for [`File::open`].
pub fn create_dir_all(path: impl AsRef<Path>) -> io::Result<()> {
    on_pool(path, std::fs::create_dir_all)
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
