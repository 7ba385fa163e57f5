//! Opens files beneath a root directory, and nothing else, whatever links and renames happen
//! meanwhile.
//!
//! `openat2` with `RESOLVE_BENEATH` does it in one call: links are followed as long as they stay
//! beneath the root (absolute ones do not). Where a container or an old kernel forbids it, the path
//! is walked component by component with `O_NOFOLLOW`; links are then not followed at all.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, Stat, fstat, openat, openat2};
use rustix::io::Errno;

/// `O_NONBLOCK`: opening a FIFO must not wait for its writer.
const READ: OFlags = OFlags::RDONLY
    .union(OFlags::CLOEXEC)
    .union(OFlags::NONBLOCK)
    .union(OFlags::NOCTTY);
const WALK: OFlags = OFlags::PATH.union(OFlags::CLOEXEC).union(OFlags::DIRECTORY);
const BENEATH: ResolveFlags = ResolveFlags::BENEATH.union(ResolveFlags::NO_MAGICLINKS);
/// A rename during the lookup makes the kernel give up with EAGAIN.
const ATTEMPTS: usize = 8;

/// A directory from which files are opened.
#[derive(Debug)]
pub(super) struct Root {
    directory: OwnedFd,
    /// Device and inode.
    identity: (u64, u64),
    openat2: bool,
}

impl Root {
    /// Opens the directory itself; follows links, since the operator may use them for the root.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        let directory = openat(CWD, path, WALK, Mode::empty())?;
        let probe = openat2(&directory, c".", WALK, Mode::empty(), ResolveFlags::BENEATH);
        Ok(Self::new(
            directory,
            !matches!(probe, Err(Errno::NOSYS | Errno::PERM)),
        )?)
    }

    fn new(directory: OwnedFd, openat2: bool) -> Result<Self, Errno> {
        let stat = fstat(&directory)?;
        Ok(Self {
            directory,
            identity: (stat.st_dev, stat.st_ino),
            openat2,
        })
    }

    /// The same from what the kernel has in memory, without waiting. `None`: it may take the disk.
    pub(super) fn open_cached(path: &Path) -> Option<io::Result<Self>> {
        match openat2(CWD, path, WALK, Mode::empty(), ResolveFlags::CACHED) {
            Err(
                Errno::AGAIN
                | Errno::INTR
                | Errno::INVAL
                | Errno::OPNOTSUPP
                | Errno::NOSYS
                | Errno::PERM,
            ) => None,
            Err(error) => Some(Err(error.into())),
            Ok(directory) => Some(Self::new(directory, true).map_err(io::Error::from)),
        }
    }

    /// Returns whether both are one directory, as long as neither is gone.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        self.identity == other.identity
    }

    /// Goes the way that does without `openat2`.
    pub(super) fn walking(self) -> Self {
        Self {
            openat2: false,
            ..self
        }
    }

    /// Opens for reading. `name` has no empty, `.` or `..` segments; empty, it means the root. May
    /// wait for the disk.
    pub(super) fn read(&self, name: &[u8]) -> Result<File, Errno> {
        let opened = if self.openat2 {
            self.read_beneath(or_root(name))
        } else {
            self.read_walking(or_root(name))
        };
        opened.map(File::from)
    }

    /// The same from what the kernel has in memory, without waiting. `None`: it may take the disk.
    pub(super) fn read_cached(&self, name: &[u8]) -> Option<Result<File, Errno>> {
        if !self.openat2 {
            return None;
        }
        let resolve = BENEATH | ResolveFlags::CACHED;
        match openat2(&self.directory, or_root(name), READ, Mode::empty(), resolve) {
            // Before Linux 5.12 CACHED is not known; a network's file system has nothing to say
            // without asking.
            Err(Errno::AGAIN | Errno::INTR | Errno::INVAL | Errno::OPNOTSUPP) => None,
            done => Some(done.map(File::from)),
        }
    }

    /// Returns the metadata behind a name, links followed as for reading. May wait for the disk.
    pub(super) fn stat(&self, name: &[u8]) -> Result<Stat, Errno> {
        let path = OFlags::PATH | OFlags::CLOEXEC;
        let opened = match self.openat2 {
            true => openat2(&self.directory, or_root(name), path, Mode::empty(), BENEATH)?,
            false => self.read_walking(or_root(name))?,
        };
        fstat(opened)
    }

    /// Returns whether the directory itself, or its file system, is gone.
    pub(super) fn is_gone(&self) -> bool {
        fstat(&self.directory).map_or(true, |stat| stat.st_nlink == 0)
    }

    fn read_beneath(&self, name: &[u8]) -> Result<OwnedFd, Errno> {
        for _ in 1..ATTEMPTS {
            match openat2(&self.directory, name, READ, Mode::empty(), BENEATH) {
                Err(Errno::AGAIN | Errno::INTR) => {}
                done => return done,
            }
        }
        openat2(&self.directory, name, READ, Mode::empty(), BENEATH)
    }

    fn read_walking(&self, name: &[u8]) -> Result<OwnedFd, Errno> {
        let (parents, last) = match memchr::memrchr(b'/', name) {
            Some(slash) => (&name[..slash], &name[slash + 1..]),
            None => (&b""[..], name),
        };
        let mut here: Option<OwnedFd> = None;
        for segment in parents
            .split(|&byte| byte == b'/')
            .filter(|segment| !segment.is_empty())
        {
            here = Some(openat(
                self.at(here.as_ref()),
                segment,
                WALK | OFlags::NOFOLLOW,
                Mode::empty(),
            )?);
        }
        openat(
            self.at(here.as_ref()),
            last,
            READ | OFlags::NOFOLLOW,
            Mode::empty(),
        )
    }

    fn at<'a>(&'a self, here: Option<&'a OwnedFd>) -> BorrowedFd<'a> {
        here.map_or(self.directory.as_fd(), AsFd::as_fd)
    }
}

fn or_root(name: &[u8]) -> &[u8] {
    if name.is_empty() { b"." } else { name }
}
