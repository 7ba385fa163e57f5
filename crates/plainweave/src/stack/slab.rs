//! Slabs: the mappings that stacks are carved from.
//!
//! One slab is one `mmap` of many slots and, beside it, an array with a [`SlotMeta`] per slot. The
//! first slab has 64 slots, each next one twice as many, up to 32,768: a small program maps 20 MiB
//! of address space, and a million stacks need some forty slabs. Mapping commits nothing:
//! `MAP_NORESERVE` exempts it from overcommit accounting, and `MADV_NOHUGEPAGE` keeps the kernel
//! from backing 2 MiB of mostly untouched stacks with one huge page.
//!
//! A slab is created in this order, each step for a reason:
//!
//! 1. `mmap(PROT_NONE)`: under `mlockall(MCL_FUTURE)` a writable mapping would be filled with pages
//!    at once.
//! 2. `munlock`: locked memory refuses guards and page reclaim (a no-op if the memory is not
//!    locked).
//! 3. `MADV_NOHUGEPAGE`.
//! 4. `mprotect(READ | WRITE)`: only now may it be accessed.
//! 5. Registration in the table that the overflow handler reads.
//!
//! When the kernel has no room for a slab (`RLIMIT_AS`, strict overcommit, `RLIMIT_MEMLOCK` under
//! `mlockall`) half the size is tried, down to one slot.

#![expect(unsafe_code, reason = "`mmap`, `madvise`, `mincore`")]

use std::io;
use std::ptr::{self, NonNull};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

use super::guard::Guards;
use super::{Stack, table};
use crate::sys::{self, check};

/// Bytes below each stack that fault. Rust probes every page of a large frame, so one page would do
/// for Rust; C code without probes can step over a guard, and 64 KiB catches all but very large
/// frames.
pub(crate) const GUARD_SIZE: usize = 64 << 10;
/// The number of colours: offsets from a slot's end at which its stack may begin; see `mod.rs`.
const COLOURS: usize = 4;
/// Bytes from one colour to the next: four cache lines, about what a suspended fiber touches when
/// it is resumed.
const COLOUR: usize = 256;
/// Slots of a pool's first slab.
pub(super) const FIRST_SLOTS: usize = 64;
/// Slots of a pool's largest slabs.
pub(super) const MAX_SLOTS: usize = 32_768;

/// Returns the kernel's page size in bytes.
pub(super) fn page_size() -> usize {
    static PAGE: OnceLock<usize> = OnceLock::new();
    *PAGE.get_or_init(|| {
        // SAFETY: `sysconf` has no preconditions.
        let bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
        usize::try_from(bytes).expect("the page size is known")
    })
}

/// A private anonymous mapping, unmapped on drop.
#[derive(Debug)]
pub(super) struct Mapping {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: the mapping belongs to this value alone and is not tied to a thread.
unsafe impl Send for Mapping {}

impl Mapping {
    /// Maps `len` bytes (a multiple of the page size) with the given protection.
    pub(super) fn new(len: usize, protection: libc::c_int) -> io::Result<Self> {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_STACK;
        // SAFETY: a fresh anonymous mapping at an address of the kernel's choice touches no
        // existing memory.
        let start = unsafe { libc::mmap(ptr::null_mut(), len, protection, flags, -1, 0) };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Self {
            start: NonNull::new(start.cast()).expect("mmap does not map null"),
            len,
        })
    }

    pub(super) fn start(&self) -> *mut u8 {
        self.start.as_ptr()
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Unlocks the whole mapping; see step 2. Has no effect on memory that is not locked.
    pub(super) fn unlock(&self) {
        // SAFETY: the range is this mapping; locking is about residency, not contents. A failure
        // shows at the guard.
        unsafe { libc::munlock(self.start.as_ptr().cast(), self.len) };
    }

    /// Makes the bytes from `offset` to the end readable and writable.
    pub(super) fn open(&self, offset: usize) -> io::Result<()> {
        let start = self.start().wrapping_add(offset);
        // SAFETY: the range lies in this mapping and becomes more permissive, so no reference into
        // it can be broken.
        check(unsafe {
            libc::mprotect(
                start.cast(),
                self.len - offset,
                libc::PROT_READ | libc::PROT_WRITE,
            )
        })
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the range is this value's; its owner made sure that nothing points into it any
        // more.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.len) };
    }
}

/// A slab takes at most this part of the address space that a limit leaves: one that just fits
/// would leave nothing for the stacks of threads and the allocator.
const SHARE_OF_ROOM: usize = 4;

/// What is known of one slot. An array of these accompanies each slab, zeroed until the slot is
/// carved.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct SlotMeta {
    /// The fiber on this stack, or null; see `Stack::set_owner`.
    pub(super) owner: AtomicPtr<()>,
    /// Usable bytes of the stack.
    pub(super) size: AtomicU32,
    /// The pool it came from, to catch (in debug builds) a stack put into another pool.
    pub(super) pool: AtomicU32,
}

/// The dimensions of a pool's slots, in bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Geometry {
    /// Usable bytes of a stack.
    pub(super) size: usize,
}

impl Geometry {
    /// Returns the distance from one slot to the next: the guard and the stack.
    pub(super) fn stride(self) -> usize {
        GUARD_SIZE + self.size
    }
}

/// Many slots in one mapping. Its first `carved` slots have guards and were handed out at least
/// once.
#[derive(Debug)]
pub(super) struct Slab {
    memory: Mapping,
    meta: Mapping,
    geometry: Geometry,
    slots: usize,
    carved: usize,
    registration: table::Registration,
}

impl Slab {
    /// Maps a slab of `slots` slots, or of fewer when the kernel has no room for that many.
    pub(super) fn map(geometry: Geometry, mut slots: usize) -> io::Result<Slab> {
        if let Some(room) = sys::address_space_left() {
            slots = slots.min(room / SHARE_OF_ROOM / geometry.stride()).max(1);
        }
        loop {
            match Self::try_map(geometry, slots) {
                Err(error)
                    if slots > 1
                        && matches!(error.raw_os_error(), Some(libc::ENOMEM | libc::EAGAIN)) =>
                {
                    slots /= 2;
                }
                result => return result,
            }
        }
    }

    fn try_map(geometry: Geometry, slots: usize) -> io::Result<Slab> {
        let memory = Mapping::new(slots * geometry.stride(), libc::PROT_NONE)?;
        memory.unlock();
        // SAFETY: advice about huge pages changes no contents. Refused by kernels built without
        // them: nothing to avoid.
        unsafe { libc::madvise(memory.start().cast(), memory.len(), libc::MADV_NOHUGEPAGE) };
        memory.open(0)?;
        let bytes = (slots * size_of::<SlotMeta>()).next_multiple_of(page_size());
        let meta = Mapping::new(bytes, libc::PROT_READ | libc::PROT_WRITE)?;
        let registration = table::register(&table::SlabRange {
            start: memory.start().addr(),
            slots,
            size: geometry.size,
            meta: meta.start().cast(),
        })?;

        Ok(Slab {
            memory,
            meta,
            geometry,
            slots,
            carved: 0,
            registration,
        })
    }

    /// Returns the number of slots.
    pub(super) fn slots(&self) -> usize {
        self.slots
    }

    /// Returns the next fresh slot, guarded; `None` when all are carved. On an error the slot stays
    /// fresh.
    pub(super) fn carve(&mut self, guards: &mut Guards, pool: u32) -> io::Result<Option<Stack>> {
        if self.carved == self.slots {
            return Ok(None);
        }
        let stride = self.geometry.stride();
        let slot = self.memory.start().wrapping_add(self.carved * stride);
        guards.install(&self.memory, slot)?;

        // SAFETY: `carved < slots`, and the metadata mapping holds `slots` elements of zeroes,
        // valid for `SlotMeta`.
        let meta = unsafe { &*self.meta.start().cast::<SlotMeta>().add(self.carved) };
        meta.size
            .store(self.geometry.size as u32, Ordering::Relaxed);
        meta.pool.store(pool, Ordering::Relaxed);
        let colour = self.carved % COLOURS * COLOUR;
        self.carved += 1;
        let base =
            NonNull::new(slot.wrapping_add(stride - colour)).expect("a slot does not end at null");

        Ok(Some(Stack {
            base,
            meta: NonNull::from(meta),
        }))
    }

    #[cfg(test)]
    /// Returns the metadata of the carved slots, valid as long as the slab is mapped.
    pub(super) fn carved(&self) -> NonNull<[SlotMeta]> {
        let first = NonNull::new(self.meta.start().cast::<SlotMeta>()).expect("mapped");
        NonNull::slice_from_raw_parts(first, self.carved)
    }

    /// Keeps the slab mapped and registered for good, for stacks that were leaked.
    pub(super) fn leak(self) {
        std::mem::forget(self);
    }
}

impl Drop for Slab {
    /// Unregisters before the fields' drops unmap.
    fn drop(&mut self) {
        table::unregister(&self.registration);
    }
}

/// Returns the bytes from the end of `[start, start + len)` down to its lowest page that is in
/// memory.
///
/// Calls `mincore`, lowest pages first. The range must not contain a guard: the result for those
/// differs by kernel.
pub(super) fn resident_depth(start: *mut u8, len: usize) -> usize {
    const CHUNK: usize = 256;
    let page = page_size();
    let mut resident = [0u8; CHUNK];

    for first in (0..len / page).step_by(CHUNK) {
        let pages = CHUNK.min(len / page - first);
        // SAFETY: the kernel writes one byte per page, `pages` at most `CHUNK` of them; it only
        // looks at the range.
        let code = unsafe {
            libc::mincore(
                start.wrapping_add(first * page).cast(),
                pages * page,
                resident.as_mut_ptr().cast(),
            )
        };

        if code != 0 {
            return 0;
        }
        if let Some(index) = resident[..pages].iter().position(|byte| byte & 1 != 0) {
            return len - (first + index) * page;
        }
    }

    0
}

/// Returns the pages of a range to the kernel; they read as zeroes when touched next. The range
/// must be unused.
pub(super) fn drop_pages(start: *mut u8, len: usize) {
    // SAFETY: the caller owns the range and needs nothing of its contents; no guard lies in it.
    let code = unsafe { libc::madvise(start.cast(), len, libc::MADV_DONTNEED) };
    if code != 0 {
        // Locked since the slab was made (`mlockall(MCL_CURRENT)`). Linux 5.18 has a call for that;
        // on older kernels the pages stay, as the user asked. SAFETY: as above.
        unsafe { libc::madvise(start.cast(), len, libc::MADV_DONTNEED_LOCKED) };
    }
}
