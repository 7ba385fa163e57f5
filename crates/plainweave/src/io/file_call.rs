//! Calls on files and paths that a ring makes: as data, and as the entry for each.
//!
//! No readiness says when such a call would not wait, so a driver without a ring has nothing to
//! offer for them (`ENOSYS`): the caller takes the blocking pool then (`fs`).

use std::ffi::c_char;
use std::os::fd::RawFd;

use io_uring::squeue::Entry;
use io_uring::types::{Fd, FsyncFlags};
use io_uring::{Probe, opcode};

/// A call on a file, or on a path. Pointers stay valid until the completion (the submitter's
/// promise); paths end with a zero byte, and relative ones start at the working directory.
#[derive(Clone, Copy, Debug)]
pub(crate) enum FileCall {
    /// `pread(2)`; result: bytes, 0 at the end of the file.
    Read { buf: *mut u8, len: u32, offset: u64 },
    /// `preadv(2)`.
    ReadVectored {
        slices: *const libc::iovec,
        count: u32,
        offset: u64,
    },
    /// `pwrite(2)`; result: bytes.
    Write {
        buf: *const u8,
        len: u32,
        offset: u64,
    },
    /// `pwritev(2)`.
    WriteVectored {
        slices: *const libc::iovec,
        count: u32,
        offset: u64,
    },
    /// `fsync(2)` or `fdatasync(2)`.
    Sync { data_only: bool },
    /// `ftruncate(2)`.
    Truncate { len: u64 },
    /// `open(2)`; result: the descriptor.
    Open {
        path: *const c_char,
        flags: i32,
        mode: u32,
    },
    /// `rename(2)`.
    Rename {
        from: *const c_char,
        to: *const c_char,
    },
    /// `unlinkat(2)`.
    Remove { path: *const c_char, flags: i32 },
    /// `mkdir(2)`.
    CreateDir { path: *const c_char, mode: u32 },
    /// `symlink(2)`.
    Symlink {
        target: *const c_char,
        link: *const c_char,
    },
    /// `link(2)`.
    Link {
        from: *const c_char,
        to: *const c_char,
    },
}

impl FileCall {
    /// Returns the number of the ring's operation.
    fn code(&self) -> u8 {
        match self {
            Self::Read { .. } => opcode::Read::CODE,
            Self::ReadVectored { .. } => opcode::Readv::CODE,
            Self::Write { .. } => opcode::Write::CODE,
            Self::WriteVectored { .. } => opcode::Writev::CODE,
            Self::Sync { .. } => opcode::Fsync::CODE,
            Self::Truncate { .. } => opcode::Ftruncate::CODE,
            Self::Open { .. } => opcode::OpenAt::CODE,
            Self::Rename { .. } => opcode::RenameAt::CODE,
            Self::Remove { .. } => opcode::UnlinkAt::CODE,
            Self::CreateDir { .. } => opcode::MkDirAt::CODE,
            Self::Symlink { .. } => opcode::SymlinkAt::CODE,
            Self::Link { .. } => opcode::LinkAt::CODE,
        }
    }

    /// Returns whether one that a signal has cut short may be made again: by `std`, too, not what
    /// would find its own work done.
    pub(super) fn may_be_repeated(&self) -> bool {
        matches!(
            self,
            Self::Read { .. }
                | Self::ReadVectored { .. }
                | Self::Write { .. }
                | Self::WriteVectored { .. }
                | Self::Sync { .. }
                | Self::Truncate { .. }
                | Self::Open { .. }
        )
    }

    /// Builds the entry that makes the kernel perform the call on `fd`, or on paths.
    pub(super) fn entry(&self, fd: RawFd) -> Entry {
        let fd = Fd(fd);
        let here = Fd(libc::AT_FDCWD);
        match *self {
            Self::Read { buf, len, offset } => {
                opcode::Read::new(fd, buf, len).offset(offset).build()
            }
            Self::ReadVectored {
                slices,
                count,
                offset,
            } => opcode::Readv::new(fd, slices, count).offset(offset).build(),
            Self::Write { buf, len, offset } => {
                opcode::Write::new(fd, buf, len).offset(offset).build()
            }
            Self::WriteVectored {
                slices,
                count,
                offset,
            } => opcode::Writev::new(fd, slices, count)
                .offset(offset)
                .build(),
            Self::Sync { data_only } => {
                let mut flags = FsyncFlags::empty();
                flags.set(FsyncFlags::DATASYNC, data_only);
                opcode::Fsync::new(fd).flags(flags).build()
            }
            Self::Truncate { len } => opcode::Ftruncate::new(fd, len).build(),
            Self::Open { path, flags, mode } => opcode::OpenAt::new(here, path)
                .flags(flags)
                .mode(mode)
                .build(),
            Self::Rename { from, to } => opcode::RenameAt::new(here, from, here, to).build(),
            Self::Remove { path, flags } => opcode::UnlinkAt::new(here, path).flags(flags).build(),
            Self::CreateDir { path, mode } => opcode::MkDirAt::new(here, path).mode(mode).build(),
            Self::Symlink { target, link } => opcode::SymlinkAt::new(here, target, link).build(),
            Self::Link { from, to } => opcode::LinkAt::new(here, from, here, to).build(),
        }
    }
}

/// Which of these calls a ring's kernel has: Linux 5.11 has reading, writing, `Sync`, `Open`,
/// `Rename` and `Remove`, 5.15 the rest but `Truncate`, which came with 6.9.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FileCalls(u128);

impl FileCalls {
    pub(super) fn of(probe: &Probe) -> Self {
        let bits = (0..128).filter(|&code| probe.is_supported(code));
        Self(bits.fold(0, |all, code| all | 1 << code))
    }

    pub(super) fn has(self, call: &FileCall) -> bool {
        self.0 & (1 << call.code()) != 0
    }
}
