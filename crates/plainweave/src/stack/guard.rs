//! Guards: 64 KiB below each stack that fault on access.
//!
//! There are two kinds, chosen once per pool and reported in its statistics.
//!
//! | | `Madvise` | `Mprotect` |
//! |---|---|---|
//! | call | `MADV_GUARD_INSTALL`, Linux 6.13 | `mprotect(PROT_NONE)` |
//! | marks | page-table entries | a mapping of its own: two VMAs per slot |
//! | stacks per process | as many as fit | about half of `vm.max_map_count`: 32,000 by default |
//! | measured, each | 0.65 us | 17 us on average up to the limit, counting included |
//!
//! A guard is installed when its slot is first handed out, and stays: dropping a stack's pages does
//! not touch it, and `fork` copies it. So its price (0.65 us) is paid once per slot, not once per
//! fiber.
//!
//! # Why the kernel may refuse a guard, and what the pool does
//!
//! 1. `EINVAL` from an old kernel (or gVisor): the pool falls back to `Mprotect` for the rest of
//!    its life.
//! 2. `EINVAL` because the slab is locked: the process called `mlockall(MCL_CURRENT)` after it was
//!    mapped. The error does not distinguish this from 1, so the slab is unlocked and the call
//!    repeated before falling back.
//! 3. `ENOMEM`: no memory for page tables. That is an error, not a reason to fall back.
//! 4. `Mprotect` near `vm.max_map_count`: refused *before* the limit, because at the limit every
//!    `mmap` of the process fails, including the allocator's, and the cause would be hard to find.
//!    The error names the sysctl.
//!
//! # Counting mappings
//!
//! Reading `/proc/self/maps` for every stack would be quadratic. So mappings are *leased*: the file
//! is read once, room for up to 512 guards is granted if the limit leaves it, and the file is read
//! again when the lease is used up. 1/32 of the limit is left for the rest of the process: thread
//! stacks, libraries, other pools' leases.

#![expect(unsafe_code, reason = "`madvise` and `mprotect` of guards")]

use std::fs::File;
use std::io::{self, Read};

use super::slab::{GUARD_SIZE, Mapping};
use crate::sys::check;

const MADV_GUARD_INSTALL: libc::c_int = 102;
/// VMAs that one `Mprotect` guard costs: its own, and one more because it splits the slab.
const VMAS_PER_GUARD: usize = 2;
/// Guards granted per reading of `/proc/self/maps`.
const LEASE: usize = 512;

/// The requested kind of guard.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) enum GuardMode {
    /// `Madvise` where the kernel has it, else `Mprotect`.
    #[default]
    Auto,
    /// Guard markers inside the slab's mapping; an error where the kernel lacks them.
    Madvise,
    /// An inaccessible mapping below each stack; works on any kernel.
    Mprotect,
}

/// The kind of guard in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GuardKind {
    /// See [`GuardMode::Madvise`].
    Madvise,
    /// See [`GuardMode::Mprotect`].
    Mprotect,
}

/// Installs the guards of one pool. Protected by the pool's growth lock.
#[derive(Debug)]
pub(super) struct Guards {
    mode: GuardMode,
    kind: GuardKind,
    maps: MapBudget,
    /// Installs a guard marker; a test substitutes a kernel that refuses.
    light: fn(*mut u8) -> io::Result<()>,
}

impl Guards {
    pub(super) fn new(mode: GuardMode) -> Self {
        let kind = if mode == GuardMode::Mprotect {
            GuardKind::Mprotect
        } else {
            GuardKind::Madvise
        };

        Self {
            mode,
            kind,
            maps: MapBudget {
                limit: None,
                granted: 0,
            },
            light: madvise_guard,
        }
    }

    /// Substitutes `vm.max_map_count`, for tests.
    #[cfg(test)]
    pub(super) fn with_map_limit(mut self, limit: usize) -> Self {
        self.maps.limit = Some(limit);
        self
    }

    /// Substitutes the kernel's call, for tests.
    #[cfg(test)]
    pub(super) fn with_light(mut self, light: fn(*mut u8) -> io::Result<()>) -> Self {
        self.light = light;
        self
    }

    pub(super) fn kind(&self) -> GuardKind {
        self.kind
    }

    /// Makes the first `GUARD_SIZE` bytes of the slot at `slot` fault. The slot is unused and lies
    /// in `slab`.
    pub(super) fn install(&mut self, slab: &Mapping, slot: *mut u8) -> io::Result<()> {
        debug_assert!(slot.addr() - slab.start().addr() + GUARD_SIZE <= slab.len());
        if self.kind == GuardKind::Madvise {
            let refused = match self.install_light(slab, slot) {
                Ok(()) => return Ok(()),
                Err(error) if error.raw_os_error() == Some(libc::ENOMEM) => return Err(error),
                Err(error) => error,
            };

            if self.mode == GuardMode::Madvise {
                let message = format!(
                    "this kernel refuses MADV_GUARD_INSTALL (Linux 6.13 has it): {refused}"
                );
                return Err(io::Error::new(io::ErrorKind::Unsupported, message));
            }

            self.kind = GuardKind::Mprotect;
        }

        self.maps.spend()?;
        mprotect_guard(slot).map_err(|error| match error.raw_os_error() {
            Some(libc::ENOMEM) => self.maps.exhausted(None),
            _ => error,
        })
    }

    /// Installs a guard marker; retries once on an unlocked slab: case 2 above.
    fn install_light(&self, slab: &Mapping, slot: *mut u8) -> io::Result<()> {
        match (self.light)(slot) {
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
                slab.unlock();
                (self.light)(slot)
            }
            result => result,
        }
    }
}

fn madvise_guard(slot: *mut u8) -> io::Result<()> {
    // SAFETY: the caller owns the slot and nothing uses it yet; the call makes its first
    // `GUARD_SIZE` bytes fault.
    check(unsafe { libc::madvise(slot.cast(), GUARD_SIZE, MADV_GUARD_INSTALL) })
}

fn mprotect_guard(slot: *mut u8) -> io::Result<()> {
    // SAFETY: as in `madvise_guard`.
    check(unsafe { libc::mprotect(slot.cast(), GUARD_SIZE, libc::PROT_NONE) })
}

/// Room for mappings under `vm.max_map_count`.
#[derive(Debug)]
struct MapBudget {
    /// Replaces the kernel's limit, in tests.
    limit: Option<usize>,
    /// Guards that may be installed before the next reading.
    granted: usize,
}

impl MapBudget {
    /// Takes room for one guard; fails when the process is near the limit.
    fn spend(&mut self) -> io::Result<()> {
        if self.granted == 0 {
            let limit = self.limit();
            let used = mappings();
            let room = limit.saturating_sub(limit / 32 + used) / VMAS_PER_GUARD;
            if room == 0 {
                return Err(self.exhausted(Some(used)));
            }
            self.granted = room.min(LEASE);
        }

        self.granted -= 1;
        Ok(())
    }

    fn limit(&self) -> usize {
        self.limit.unwrap_or_else(|| {
            let text = std::fs::read_to_string("/proc/sys/vm/max_map_count").unwrap_or_default();
            text.trim().parse().unwrap_or(65_530)
        })
    }

    fn exhausted(&self, used: Option<usize>) -> io::Error {
        let limit = self.limit();
        let used = used.unwrap_or_else(mappings);
        let message = format!(
            "no room for another fiber stack: without MADV_GUARD_INSTALL (Linux 6.13) a stack takes \
             {VMAS_PER_GUARD} memory mappings, this process has {used}, and vm.max_map_count allows {limit}; \
             raise it with `sysctl -w vm.max_map_count={}`, or run fewer fibers",
            limit.saturating_mul(8).max(262_144)
        );
        io::Error::new(io::ErrorKind::QuotaExceeded, message)
    }
}

/// Returns the number of mappings of this process; 0 where `/proc` is not mounted (then only the
/// kernel's own refusal is left). Allocates nothing: at the limit the allocator may find no mapping
/// either.
pub(super) fn mappings() -> usize {
    let count = || -> io::Result<usize> {
        let mut maps = File::open("/proc/self/maps")?;
        let mut buffer = [0u8; 4096];
        let mut lines = 0;

        loop {
            match maps.read(&mut buffer)? {
                0 => return Ok(lines),
                len => lines += buffer[..len].iter().filter(|&&byte| byte == b'\n').count(),
            }
        }
    };
    count().unwrap_or(0)
}
