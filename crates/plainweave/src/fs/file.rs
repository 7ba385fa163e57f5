//! An open file.
//!
//! A read or a write is first tried on the worker, for as much as needs no wait (`RWF_NOWAIT`): of
//! pages in the cache, that is all there is to it. Where that is not enough, the worker's ring does
//! it, straight from and to the caller's buffer; without one a thread of the blocking pool does, on
//! a buffer of its own, so that a cancelled caller may leave.

#![expect(unsafe_code, reason = "buffers go to the ring by their addresses")]

use std::fmt;
use std::fs::{Metadata, Permissions};
use std::io::{self, IoSlice, IoSliceMut, Read, Seek, SeekFrom, Write};
use std::ops::Deref;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, SystemTime};

use rustix::fs::{FlockOperation, OFlags, fcntl_getfl, flock};
use rustix::io::{Errno, ReadWriteFlags, preadv2, pwritev2};

use super::call::{check_interrupted, is_on_fiber};
use super::open_options::OpenOptions;
use crate::blocking;
use crate::io::file_call::FileCall;
use crate::sched::io_call::perform_on_file;
use crate::sync::{Mutex, MutexGuard};
use crate::time;

/// The most bytes that one read or write moves, so that a worker is not held up for long.
pub(super) const PIECE: usize = 1 << 20;
/// The same where the blocking pool does it: bounds the buffer that goes there.
const PIECE_ON_POOL: usize = 256 << 10;
/// The most buffers of one vectored call.
const MOST_SLICES: usize = 1024;
/// In place of a position: the file's own, which `O_APPEND` sets.
const OWN_POSITION: u64 = u64::MAX;
/// How often a lock that another process has is tried.
const LOCK_TRIES: std::ops::RangeInclusive<Duration> =
    Duration::from_millis(1)..=Duration::from_millis(16);

/// An open file, as `std`'s type of that name. Clones share its position.
///
/// A call moves at most 1 MiB, and a read may end where the next page is not cached. A fiber that
/// is cancelled, or late, while the ring does its call has the kernel asked to end that, and waits
/// for it: a disk may take its time.
///
/// What has no position (a pipe, a terminal) is an error to read: see
/// [`PipeReader`](crate::pipe::PipeReader).
///
/// ```
/// use plainweave::fs::File;
///
/// # let path = std::env::temp_dir().join(format!("plainweave-doc-file-{}", std::process::id()));
/// plainweave::run(|| {
///     let file = File::create(&path).unwrap();
///     file.write_all_at(b"hello", 0).unwrap();
///     file.sync_all().unwrap();
///     let mut buf = [0; 8];
///     let len = File::open(&path).unwrap().read_at(&mut buf, 1).unwrap();
///     assert_eq!(&buf[..len], b"ello");
/// });
/// # std::fs::remove_file(path).unwrap();
/// ```
pub struct File(Arc<SharedFile>);

/// What the clones of a file share.
struct SharedFile {
    file: std::fs::File,
    /// Held for the length of a call that moves it, as the kernel does.
    position: Mutex<u64>,
    has_position: bool,
    appends: bool,
    /// Whether a read, or a write, may be had without a wait: not with `O_DIRECT`, and not by every
    /// file system.
    reads_now: AtomicBool,
    writes_now: AtomicBool,
}

/// Memory for a call on the blocking pool.
struct Owned {
    memory: Vec<u8>,
    start: usize,
}

impl Owned {
    /// The largest alignment that `O_DIRECT` asks for on usual disks.
    const PAGE: usize = 4096;

    /// As large as the caller's buffers, within limits. It lies as far into a page as the first
    /// that is not empty, so that a file with `O_DIRECT` takes the one if it takes the other.
    fn like<B: Deref<Target = [u8]>>(bufs: &[B]) -> Self {
        let len: usize = bufs.iter().map(|buf| buf.len()).sum();
        let len = len.min(PIECE_ON_POOL);
        let first = bufs.iter().find(|buf| !buf.is_empty());
        let place = first.map_or(0, |buf| buf.as_ptr().addr());

        let mut memory = vec![0; len + Self::PAGE];
        let start = place.wrapping_sub(memory.as_ptr().addr()) % Self::PAGE;
        memory.truncate(start + len);
        Self { memory, start }
    }

    fn bytes(&mut self) -> &mut [u8] {
        &mut self.memory[self.start..]
    }
}

/// Why a lock was not had at once, as `std`'s type of that name.
#[derive(Debug)]
pub enum TryLockError {
    /// The system call failed.
    Error(io::Error),
    /// Another open file has it.
    WouldBlock,
}

impl fmt::Display for TryLockError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Error(error) => error.fmt(f),
            Self::WouldBlock => f.write_str("the file is locked by another open file"),
        }
    }
}

impl std::error::Error for TryLockError {}

impl File {
    /// Opens a file for reading.
    ///
    /// # Errors
    /// As for `std`'s; the caller was cancelled or ran into its deadline. So for all methods.
    pub fn open(path: impl AsRef<Path>) -> io::Result<Self> {
        OpenOptions::new().read(true).open(path)
    }

    /// Creates or truncates a file, for writing.
    ///
    /// # Errors
    /// As for [`Self::open`].
    pub fn create(path: impl AsRef<Path>) -> io::Result<Self> {
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(true).open(path)
    }

    /// Creates a file that must not be there, for reading and writing.
    ///
    /// # Errors
    /// As for [`Self::open`]; [`io::ErrorKind::AlreadyExists`].
    pub fn create_new(path: impl AsRef<Path>) -> io::Result<Self> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create_new(true).open(path)
    }

    /// Begins to say how a file is to be opened.
    #[must_use]
    pub fn options() -> OpenOptions {
        OpenOptions::new()
    }

    /// Takes over a `std` file, at its position.
    #[must_use]
    pub fn from_std(file: std::fs::File) -> Self {
        let position = rustix::fs::tell(&file);
        let flags = fcntl_getfl(&file).unwrap_or(OFlags::empty());
        let is_cached = !flags.contains(OFlags::DIRECT);
        Self(Arc::new(SharedFile {
            file,
            has_position: position.is_ok(),
            position: Mutex::new(position.unwrap_or(0)),
            appends: flags.contains(OFlags::APPEND),
            reads_now: AtomicBool::new(is_cached),
            writes_now: AtomicBool::new(is_cached),
        }))
    }

    /// Gives a `std` file at this one's position; another descriptor if this one has clones.
    ///
    /// # Errors
    /// As for [`Self::open`]; out of descriptors.
    pub fn into_std(self) -> io::Result<std::fs::File> {
        let position = *self.0.position.lock_always();
        let file = match Arc::try_unwrap(self.0) {
            Ok(shared) => shared.file,
            Err(shared) => shared.file.try_clone()?,
        };

        match rustix::fs::seek(&file, rustix::fs::SeekFrom::Start(position)) {
            Ok(_) | Err(Errno::SPIPE) => Ok(file),
            Err(error) => Err(error.into()),
        }
    }

    /// Gives another handle for the same file and position.
    ///
    /// # Errors
    /// None: as `std`'s.
    pub fn try_clone(&self) -> io::Result<Self> {
        Ok(Self(Arc::clone(&self.0)))
    }

    /// Returns size, times and kind.
    ///
    /// # Errors
    /// As for [`Self::open`].
    pub fn metadata(&self) -> io::Result<Metadata> {
        self.on_pool(std::fs::File::metadata)
    }

    /// Sets permissions.
    ///
    /// # Errors
    /// As for [`Self::open`].
    pub fn set_permissions(&self, permissions: Permissions) -> io::Result<()> {
        self.on_pool(move |file| file.set_permissions(permissions))
    }

    /// Sets the times of the last access and of the last modification.
    ///
    /// # Errors
    /// As for [`Self::open`].
    pub fn set_times(&self, times: std::fs::FileTimes) -> io::Result<()> {
        self.on_pool(move |file| file.set_times(times))
    }

    /// Sets the time of the last modification.
    ///
    /// # Errors
    /// As for [`Self::open`].
    pub fn set_modified(&self, time: SystemTime) -> io::Result<()> {
        self.set_times(std::fs::FileTimes::new().set_modified(time))
    }

    /// Cuts the file off at `len` bytes, or extends it to that with zeros. The position stays.
    ///
    /// # Errors
    /// As for [`Self::open`].
    pub fn set_len(&self, len: u64) -> io::Result<()> {
        // SAFETY: no pointers.
        match unsafe { self.by_ring(&FileCall::Truncate { len }) } {
            Some(result) => result.map(drop),
            None => self.on_pool(move |file| file.set_len(len)),
        }
    }

    /// Waits until everything written is on the disk.
    ///
    /// # Errors
    /// As for [`Self::open`].
    pub fn sync_all(&self) -> io::Result<()> {
        self.sync(false)
    }

    /// Waits until everything written is on the disk, without what is only about the file.
    ///
    /// # Errors
    /// As for [`Self::open`].
    pub fn sync_data(&self) -> io::Result<()> {
        self.sync(true)
    }

    fn sync(&self, data_only: bool) -> io::Result<()> {
        // SAFETY: no pointers.
        match unsafe { self.by_ring(&FileCall::Sync { data_only }) } {
            Some(result) => result.map(drop),
            None => self.on_pool(move |file| match data_only {
                true => file.sync_data(),
                false => file.sync_all(),
            }),
        }
    }

    /// Waits until nobody else has the file locked, and locks it (`flock(2)`). On a fiber it is
    /// tried every 1 to 16 ms: no thread waits, and who is cancelled does not get it later.
    ///
    /// # Errors
    /// As for [`Self::open`].
    pub fn lock(&self) -> io::Result<()> {
        self.lock_as(FlockOperation::NonBlockingLockExclusive)
    }

    /// As [`Self::lock`], beside others who have it so.
    ///
    /// # Errors
    /// As for [`Self::open`].
    pub fn lock_shared(&self) -> io::Result<()> {
        self.lock_as(FlockOperation::NonBlockingLockShared)
    }

    /// Locks the file if nobody else has.
    ///
    /// # Errors
    /// [`TryLockError`].
    pub fn try_lock(&self) -> Result<(), TryLockError> {
        self.try_lock_as(FlockOperation::NonBlockingLockExclusive)
    }

    /// As [`Self::try_lock`], beside others who have it so.
    ///
    /// # Errors
    /// [`TryLockError`].
    pub fn try_lock_shared(&self) -> Result<(), TryLockError> {
        self.try_lock_as(FlockOperation::NonBlockingLockShared)
    }

    /// Gives the lock back. The end of the last clone does so too.
    ///
    /// # Errors
    /// The system call fails.
    pub fn unlock(&self) -> io::Result<()> {
        Ok(flock(&self.0.file, FlockOperation::NonBlockingUnlock)?)
    }

    fn try_lock_as(&self, operation: FlockOperation) -> Result<(), TryLockError> {
        match rustix::io::retry_on_intr(|| flock(&self.0.file, operation)) {
            Ok(()) => Ok(()),
            Err(Errno::AGAIN) => Err(TryLockError::WouldBlock),
            Err(error) => Err(TryLockError::Error(error.into())),
        }
    }

    fn lock_as(&self, operation: FlockOperation) -> io::Result<()> {
        check_interrupted()?;
        let mut pause = *LOCK_TRIES.start();
        loop {
            match self.try_lock_as(operation) {
                Ok(()) => return Ok(()),
                Err(TryLockError::Error(error)) => return Err(error),
                Err(TryLockError::WouldBlock) => time::sleep(pause)?,
            }

            pause = (pause * 2).min(*LOCK_TRIES.end());
        }
    }

    /// Reads at a position, at most 1 MiB; returns 0 at the end of the file.
    ///
    /// # Errors
    /// As for [`Self::open`].
    pub fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        check_offset(offset)?;
        let len = buf.len().min(PIECE);
        let buf = &mut buf[..len];
        if !is_on_fiber() {
            self.check()?;
            return self.0.file.read_at(buf, offset);
        }

        let mut slice = [IoSliceMut::new(buf)];
        let call = FileCall::Read {
            buf: slice[0].as_mut_ptr(),
            len: len as u32,
            offset,
        };

        // SAFETY: the call is for that buffer.
        unsafe { self.read_slices(&mut slice, &call, offset) }
    }

    /// Reads at a position until `buf` is full.
    ///
    /// # Errors
    /// As for [`Self::open`]; [`io::ErrorKind::UnexpectedEof`]: how much was read then is not
    /// known.
    pub fn read_exact_at(&self, mut buf: &mut [u8], mut offset: u64) -> io::Result<()> {
        while !buf.is_empty() {
            match self.read_at(buf, offset) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(n) => {
                    buf = &mut buf[n..];
                    offset += n as u64;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Reads at a position into several buffers, one after the other.
    ///
    /// # Errors
    /// As for [`Self::open`].
    pub fn read_vectored_at(&self, bufs: &mut [IoSliceMut<'_>], offset: u64) -> io::Result<usize> {
        check_offset(offset)?;
        let count = bufs.len().min(MOST_SLICES);
        let bufs = &mut bufs[..count];
        if bufs.iter().map(|buf| buf.len()).sum::<usize>() > PIECE {
            // The first of them that has room: fewer bytes than asked for are no error.
            let first = bufs.iter_mut().find(|buf| !buf.is_empty());
            return self.read_at(first.expect("not all are empty"), offset);
        }

        if !is_on_fiber() {
            self.check()?;
            return Ok(preadv2(
                &self.0.file,
                bufs,
                offset,
                ReadWriteFlags::empty(),
            )?);
        }

        let call = FileCall::ReadVectored {
            // `IoSliceMut` is laid out as `iovec`, which `std` promises.
            slices: bufs.as_ptr().cast(),
            count: count as u32,
            offset,
        };

        // SAFETY: the call is for these buffers.
        unsafe { self.read_slices(bufs, &call, offset) }
    }

    /// Reads without a wait, by the ring, or on the blocking pool.
    ///
    /// # Safety
    /// `call` is for `bufs`.
    unsafe fn read_slices(
        &self,
        bufs: &mut [IoSliceMut<'_>],
        call: &FileCall,
        offset: u64,
    ) -> io::Result<usize> {
        self.check()?;
        let now = || preadv2(&self.0.file, bufs, offset, ReadWriteFlags::NOWAIT);
        match at_once(&self.0.reads_now, now) {
            Some(0) if *ENDS_ARE_GUESSED => {}
            Some(n) => return Ok(n),
            None => {}
        }

        // SAFETY: the buffers live across the call, and nobody else has them.
        if let Some(result) = unsafe { self.by_ring(call) } {
            return result.map(|n| n as usize);
        }

        let mut owned = Owned::like(bufs);
        let (mut owned, n) = self.on_pool(move |file| {
            let n = file.read_at(owned.bytes(), offset)?;
            Ok((owned, n))
        })?;

        let mut rest = &owned.bytes()[..n];
        for buf in bufs {
            let n = rest.len().min(buf.len());
            buf[..n].copy_from_slice(&rest[..n]);
            rest = &rest[n..];
        }
        Ok(n)
    }

    /// Writes at a position, at most 1 MiB; at the end of a file that was opened with `append`. A
    /// write that is cancelled may still take place.
    ///
    /// # Errors
    /// As for [`Self::open`].
    pub fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<usize> {
        check_offset(offset)?;
        self.write_some(buf, offset)
    }

    /// As [`Self::write_at`], or at the file's own position.
    fn write_some(&self, buf: &[u8], offset: u64) -> io::Result<usize> {
        let buf = &buf[..buf.len().min(PIECE)];
        if !is_on_fiber() && offset != OWN_POSITION {
            self.check()?;
            return self.0.file.write_at(buf, offset);
        }

        let call = FileCall::Write {
            buf: buf.as_ptr(),
            len: buf.len() as u32,
            offset,
        };

        // SAFETY: the call is for that buffer.
        unsafe { self.write_slices(&[IoSlice::new(buf)], &call, offset) }
    }

    /// Writes all of `buf` at a position.
    ///
    /// # Errors
    /// As for [`Self::open`]: how much was written then is not known.
    pub fn write_all_at(&self, mut buf: &[u8], mut offset: u64) -> io::Result<()> {
        while !buf.is_empty() {
            match self.write_at(buf, offset) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(n) => {
                    buf = &buf[n..];
                    offset += n as u64;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Writes several buffers, one after the other, at a position.
    ///
    /// # Errors
    /// As for [`Self::write_at`].
    pub fn write_vectored_at(&self, bufs: &[IoSlice<'_>], offset: u64) -> io::Result<usize> {
        check_offset(offset)?;
        self.write_some_vectored(bufs, offset)
    }

    fn write_some_vectored(&self, bufs: &[IoSlice<'_>], offset: u64) -> io::Result<usize> {
        let bufs = &bufs[..bufs.len().min(MOST_SLICES)];
        if bufs.iter().map(|buf| buf.len()).sum::<usize>() > PIECE {
            let first = bufs.iter().find(|buf| !buf.is_empty());
            return self.write_some(first.expect("not all are empty"), offset);
        }

        if !is_on_fiber() {
            self.check()?;
            let written = pwritev2(&self.0.file, bufs, offset, ReadWriteFlags::empty());
            return Ok(written?);
        }

        let call = FileCall::WriteVectored {
            // As in `read_vectored_at`.
            slices: bufs.as_ptr().cast(),
            count: bufs.len() as u32,
            offset,
        };

        // SAFETY: the call is for these buffers.
        unsafe { self.write_slices(bufs, &call, offset) }
    }

    /// As `read_slices`.
    ///
    /// # Safety
    /// `call` is for `bufs`.
    unsafe fn write_slices(
        &self,
        bufs: &[IoSlice<'_>],
        call: &FileCall,
        offset: u64,
    ) -> io::Result<usize> {
        self.check()?;
        let now = || pwritev2(&self.0.file, bufs, offset, ReadWriteFlags::NOWAIT);
        if let Some(n) = at_once(&self.0.writes_now, now) {
            return Ok(n);
        }

        // SAFETY: the buffers live across the call.
        if let Some(result) = unsafe { self.by_ring(call) } {
            return result.map(|n| n as usize);
        }

        let mut owned = Owned::like(bufs);
        let mut rest = owned.bytes();
        for buf in bufs {
            let (part, behind) = rest.split_at_mut(buf.len().min(rest.len()));
            part.copy_from_slice(&buf[..part.len()]);
            rest = behind;
        }

        self.on_pool(move |mut file| match offset {
            OWN_POSITION => file.write(owned.bytes()),
            offset => file.write_at(owned.bytes(), offset),
        })
    }

    /// Writes at the file's position, or at its end, and moves the position.
    fn write_on(&self, write: impl FnOnce(&Self, u64) -> io::Result<usize>) -> io::Result<usize> {
        let mut position = self.position()?;
        if self.0.appends {
            let n = write(self, OWN_POSITION)?;
            if n > 0 {
                *position = rustix::fs::tell(&self.0.file).unwrap_or(*position);
            }
            return Ok(n);
        }

        let n = write(self, *position)?;
        *position += n as u64;
        Ok(n)
    }

    /// Returns where it ends: also of a device, whose status does not say so. That is asked on the
    /// spot: a job left behind must not move the kernel's position.
    fn end(&self) -> io::Result<u64> {
        let metadata = self.metadata()?;
        match metadata.is_file() {
            true => Ok(metadata.len()),
            false => Ok(rustix::fs::seek(
                &self.0.file,
                rustix::fs::SeekFrom::End(0),
            )?),
        }
    }

    /// Returns whether it can be read and written at a position.
    pub(super) fn has_position(&self) -> bool {
        self.0.has_position
    }

    fn position(&self) -> io::Result<MutexGuard<'_, u64>> {
        self.0.position.lock()
    }

    /// Looks whether a read or a write may begin. A ring would read a pipe, whatever the position
    /// that it is given.
    fn check(&self) -> io::Result<()> {
        check_interrupted()?;
        if self.0.has_position {
            return Ok(());
        }

        let text = "this file has no position (a pipe, a terminal, a socket): open it as \
                    plainweave::pipe::PipeReader or PipeWriter, or wait with net::Readiness";
        Err(io::Error::new(io::ErrorKind::NotSeekable, text))
    }

    /// Has the ring make a call, if there is one that can.
    ///
    /// # Safety
    /// The pointers in `call` are valid until this returns.
    unsafe fn by_ring(&self, call: &FileCall) -> Option<io::Result<u32>> {
        // SAFETY: the caller's promise.
        unsafe { perform_on_file(call, self.as_raw_fd()) }
    }

    /// Makes a call on the blocking pool. A cancelled caller leaves it behind.
    pub(super) fn on_pool<T: Send + 'static>(
        &self,
        call: impl FnOnce(&std::fs::File) -> io::Result<T> + Send + 'static,
    ) -> io::Result<T> {
        if !is_on_fiber() {
            return call(&self.0.file);
        }

        let shared = Arc::clone(&self.0);
        blocking(move || call(&shared.file))?
    }
}

/// Whether the kernel may say that a file has ended where only the cache has: Linux 5.9 and 5.10
/// (preadv2(2), BUGS).
static ENDS_ARE_GUESSED: LazyLock<bool> = LazyLock::new(|| {
    let name = rustix::system::uname();
    let release = name.release().to_string_lossy();
    release.starts_with("5.9.") || release.starts_with("5.10.")
});

/// # Errors
/// No file is that long: what the kernel says of it.
fn check_offset(offset: u64) -> io::Result<()> {
    match i64::try_from(offset) {
        Ok(_) => Ok(()),
        Err(_) => Err(io::Error::from_raw_os_error(libc::EINVAL)),
    }
}

/// Makes a call if it can be had without a wait, which `may_be` remembers. Any error is for the
/// call that may wait to report.
#[inline]
fn at_once(may_be: &AtomicBool, call: impl FnOnce() -> rustix::io::Result<usize>) -> Option<usize> {
    if !may_be.load(Ordering::Relaxed) {
        return None;
    }
    let result = call();
    if let Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::PERM) = result {
        may_be.store(false, Ordering::Relaxed);
    }
    result.ok()
}

impl fmt::Debug for File {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("File").field(&self.0.file).finish()
    }
}

impl AsFd for File {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.file.as_fd()
    }
}

impl AsRawFd for File {
    fn as_raw_fd(&self) -> RawFd {
        self.0.file.as_raw_fd()
    }
}

impl From<std::fs::File> for File {
    fn from(file: std::fs::File) -> Self {
        Self::from_std(file)
    }
}

impl From<OwnedFd> for File {
    fn from(fd: OwnedFd) -> Self {
        Self::from_std(fd.into())
    }
}

impl Read for &File {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let mut position = self.position()?;
        let n = self.read_at(buf, *position)?;
        *position += n as u64;
        Ok(n)
    }

    fn read_vectored(&mut self, bufs: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        let mut position = self.position()?;
        let n = self.read_vectored_at(bufs, *position)?;
        *position += n as u64;
        Ok(n)
    }
}

impl Write for &File {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.write_on(|file, offset| file.write_some(buf, offset))
    }

    fn write_vectored(&mut self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
        self.write_on(|file, offset| file.write_some_vectored(bufs, offset))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Seek for &File {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.check()?;
        let mut position = self.position()?;
        let (base, delta) = match to {
            SeekFrom::Start(n) => (n, 0),
            SeekFrom::Current(delta) => (*position, delta),
            SeekFrom::End(delta) => (self.end()?, delta),
        };

        let target = base
            .checked_add_signed(delta)
            .filter(|&target| target <= i64::MAX as u64);
        *position = target.ok_or_else(|| {
            let text = format!("a seek to {base} {delta:+}, which no file has");
            io::Error::new(io::ErrorKind::InvalidInput, text)
        })?;
        Ok(*position)
    }
}

impl Read for File {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        (&*self).read(buf)
    }

    fn read_vectored(&mut self, bufs: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        (&*self).read_vectored(bufs)
    }
}

impl Write for File {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        (&*self).write(buf)
    }

    fn write_vectored(&mut self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
        (&*self).write_vectored(bufs)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Seek for File {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        (&*self).seek(to)
    }
}
