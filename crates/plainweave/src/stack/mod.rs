//! Fiber stacks: where a million of them live, what separates them, and what reports an overflow.
//!
//! *Stack*: a run of pages a fiber runs on, growing down; committed by the kernel page by page, on
//! first touch. *Guard*: 64 KiB below it that fault on any access. *Slot*: one guard with the stack
//! above it. *Slab*: one mapping that holds many slots.
//!
//! ```text
//!      slab = one mmap, one VMA                                      top = Stack::base()
//!     |<----------- slot 0 ----------->|<----------- slot 1 ----------->|
//!     | guard | <--- stack grows down  | guard | <--- stack grows down  | ...
//!     ^ limit()
//! ```
//!
//! # Why it is hard
//!
//! 1. *A guard must not cost a mapping.* The classical guard is `mprotect(PROT_NONE)`; it splits
//!    the mapping, two VMAs per stack, and Linux allows 65,530 per process: at most 32,000 fibers.
//!    `MADV_GUARD_INSTALL` (Linux 6.13) marks page-table entries instead, so a slab stays one VMA
//!    (`guard.rs` has it and the fallback, which names the limit to raise before it is hit).
//! 2. *Recycling must cost less than a cache miss, and memory must still come back.* A stack just
//!    used is worth keeping as it is; a thousand stacks that once ran deep are a leak. So a stack
//!    cools in steps (below).
//! 3. *The overflow message needs the fiber, in a signal handler.* No thread-local (it may be the
//!    fiber's), no lock, no allocation: the fault address alone leads to the slot through a table
//!    of atomics (`table.rs`, `overflow.rs`).
//!
//! # The steps a free stack goes through
//!
//! 1. *Cached*: in the [`StackCache`] of one worker, a plain `Vec`. Take and put are a few ns. When
//!    it is full the older half goes to the pool; when it is empty half a cache comes back.
//! 2. *Hot*: in the [`StackPool`], newest last, untouched. Workers that spawn for others exchange
//!    stacks here, and make no system call for it.
//! 3. *Warm*: not used for 100-200 ms. Its pages were counted (`mincore`) and all but the top
//!    `WARM_BYTES` dropped. At most `max_free` stacks are hot or warm.
//! 4. *Cold*: above that limit, or warm and not used for one to two seconds; every page was
//!    dropped. Only the slot and its guard remain, so a cold stack costs address space and page
//!    tables, not memory.
//!
//! A fiber that waits for long gives up the pages below what it holds while it waits
//! (`sched/long_waits`).
//!
//! Slabs stay mapped until the pool is dropped; slots are reused for ever.
//!
//! Measured (2-core virtual machine, Linux 6.18, release): take and put from a cache 3.6 ns; 512
//! taken, then 512 put, 8.5 ns each; one worker takes and another puts, 7 ns. A million fresh
//! stacks 1.2 us each, guard included, in 39 slabs and 48 mappings; a page touched in each, 4.03 GB
//! of resident memory and 0.63 GB of page tables; put back, 0.07 GB.
//!
//! # Colours
//!
//! Slots are a multiple of the page apart, so the frames of all suspended fibers would lie at the
//! same few offsets in a page and compete for the same few sets of the first-level cache. Stack *n*
//! therefore begins `n % 4 * 256` bytes below its slot's end. Measured (test `switches`): a resume
//! and suspend, N coroutines per round, median of three:
//!
//! | N | no colours | 4 | 8 |
//! |---|---|---|---|
//! | 8 | 10.9 ns | 10.9 ns | 10.9 ns |
//! | 256 | 19.7 ns | 14.2 ns | 14.0 ns |
//! | 1,024 | 33.5 ns | 28.3 ns | 19.9 ns |
//! | 8,192 | 140 ns | 91 ns | 87 ns |
//!
//! Four, because eight take up to 1.8 KiB of the top page, and suspended fibers that fit in one
//! page would need two.
//!
//! # Rejected
//!
//! - *One mapping per stack*: a VMA each, see 1; `mmap` + `munmap` take the address-space lock for
//!   writing, 3-4 us a pair.
//! - *Copying or growing stacks* (Go): needs the compiler's stack maps.
//! - *`MADV_FREE` for cooling*: lazily freed pages stay in RSS until the machine is short of
//!   memory, so no operator could see that they are free; and each page is cleared again anyway.
//! - *Owner word on the stack itself*: one cache line less, but a dump would touch a page of every
//!   slot, and a fiber that overwrites its stack would mislead the signal handler.
//! - *Locking stacks in memory* for a process that called `mlockall`: every stack would be
//!   committed in full, and locked memory refuses both guards and page reclaim. Slabs are unlocked;
//!   `mlock` the buffers that need it.

#![expect(unsafe_code, reason = "a stack is memory that its handle alone names")]

mod cache; // A worker's own stacks.
mod free; // Free stacks, hot, warm and cold.
mod guard; // Guards of both kinds.
mod overflow; // The message of an overflow.
mod pool; // The shared pool.
mod slab; // The mappings.
mod table; // From an address to its slot, in a signal handler.
#[cfg(test)]
mod tests;

use std::io;
use std::ptr::NonNull;
use std::sync::atomic::Ordering;

pub(crate) use cache::StackCache;
pub(crate) use free::Left;
#[cfg(test)]
pub(crate) use guard::GuardKind;
pub(crate) use guard::GuardMode;
pub(crate) use overflow::{AltStack, OverflowInfo, ensure_alt_stack, install};
pub(crate) use pool::StackPool;
pub(crate) use slab::{GUARD_SIZE, SlotMeta};
pub(crate) use table::{SLABS, SlabLayout, SlotHit, lookup};

/// The default size of a stack in usable bytes. Unoptimised frames are several times as large.
pub(crate) const DEFAULT_SIZE: usize = if cfg!(debug_assertions) {
    1 << 20
} else {
    256 << 10
};
/// The smallest stack accepted. A panic with `RUST_BACKTRACE` takes more than 20 and less than 24
/// KiB of it (x86-64, Rust 1.95), and the fiber's own frames come before.
pub(crate) const MIN_SIZE: usize = 32 << 10;
/// The largest stack accepted; sizes are kept in 32 bits.
pub(crate) const MAX_SIZE: usize = 1 << 30;

/// What a pool hands out and how much it keeps.
#[derive(Clone, Debug)]
pub(crate) struct StackConfig {
    /// Usable bytes of each stack, [`MIN_SIZE`] to [`MAX_SIZE`]; rounded up to whole pages. The
    /// guard comes on top.
    pub(crate) size: usize,
    /// How stacks are separated.
    pub(crate) guard: GuardMode,
    /// Free stacks that the pool keeps with (some of) their pages. Stacks above it are emptied when
    /// they come back. Stacks in the workers' caches come on top.
    pub(crate) max_free: usize,
    /// Slots that the pool may carve: in use, leaked, cached and free together. At the limit, and
    /// with nothing free, `take` fails with [`io::ErrorKind::QuotaExceeded`]. A worker's cache may
    /// hold 128 that no other worker sees.
    pub(crate) max_stacks: usize,
}

impl Default for StackConfig {
    fn default() -> Self {
        Self {
            size: DEFAULT_SIZE,
            guard: GuardMode::Auto,
            max_free: 8192,
            max_stacks: 1 << 20,
        }
    }
}

/// A stack, taken from a pool and owned by the holder of this handle.
///
/// Dropping it has no effect: the slot stays taken, as it must when a fiber is leaked with frames
/// still on it. Give it back with `put`, to the pool it came from.
#[derive(Debug)]
pub(crate) struct Stack {
    /// One past the highest byte that a fiber uses; lies below the slot's end by the stack's
    /// colour.
    base: NonNull<u8>,
    /// The slot's word in the slab's metadata; lives as long as the slab.
    meta: NonNull<SlotMeta>,
}

// SAFETY: a handle names memory that nobody else owns, and everything reached through `meta` is
// atomic.
unsafe impl Send for Stack {}
// SAFETY: `&self` methods only load or store atomics and ask the kernel about pages.
unsafe impl Sync for Stack {}

impl Stack {
    #[inline]
    fn meta(&self) -> &SlotMeta {
        // SAFETY: the slab outlives its stacks: a pool with a stack in use never unmaps (see
        // `StackPool::drop`).
        unsafe { self.meta.as_ref() }
    }

    /// Returns the end of the slot, page-aligned; a colour is less than the smallest page.
    fn top(&self) -> NonNull<u8> {
        let past = self.base.addr().get().wrapping_neg() % 4096;
        // SAFETY: the slot reaches at least to the end of the page that `base` lies in or ends.
        unsafe { self.base.add(past) }
    }

    /// Returns one past the highest byte that a fiber uses: a multiple of 16. From there down to
    /// [`Self::bottom_address`] the stack is readable and writable, at least [`MIN_SIZE`] less a
    /// colour; the [`GUARD_SIZE`] bytes below fault.
    #[inline]
    pub(crate) fn base(&self) -> usize {
        self.base.as_ptr().expose_provenance()
    }

    /// Returns the address of the lowest usable byte.
    #[inline]
    pub(crate) fn bottom_address(&self) -> usize {
        self.bottom().addr()
    }

    /// Returns the lowest usable byte; the guard ends here.
    fn bottom(&self) -> *mut u8 {
        self.top().as_ptr().wrapping_sub(self.size())
    }

    /// Returns a second handle to the same slot, for queries. Never given out.
    fn alias(&self) -> Stack {
        Stack {
            base: self.base,
            meta: self.meta,
        }
    }

    /// Returns the usable bytes, without the guard and the colour of up to 768 bytes.
    #[inline]
    pub(crate) fn size(&self) -> usize {
        self.meta().size.load(Ordering::Relaxed) as usize
    }

    /// Sets the stack's owner; `put` clears it.
    ///
    /// A pointer that is not null must point to an [`OverflowInfo`] (or to a `repr(C)` struct that
    /// begins with one) which stays valid until it is replaced or the stack is put back: the
    /// overflow handler reads it.
    ///
    /// Context: the stack's owner only.
    #[inline]
    pub(crate) fn set_owner(&self, owner: *const ()) {
        self.meta().owner.store(owner.cast_mut(), Ordering::Release);
    }

    #[cfg(test)]
    /// Returns the owner set last, or null.
    #[inline]
    pub(crate) fn owner(&self) -> *const () {
        self.meta().owner.load(Ordering::Acquire)
    }

    /// Returns the bytes from the top down to the deepest page in memory. Makes a system call, 0.85
    /// us for 256 KiB.
    ///
    /// A page once touched counts until it is dropped, so this is the high-water mark since the
    /// stack was last warm or cold, rounded up to pages. Pages swapped out do not count.
    pub(crate) fn high_water(&self) -> usize {
        slab::resident_depth(self.bottom(), self.size())
    }

    /// Drops all pages but the top `keep` bytes. The stack must not be in use. If the kernel
    /// refuses, the pages stay.
    fn shrink(&self, keep: usize) {
        let size = self.size();
        if keep < size {
            slab::drop_pages(self.bottom(), size - keep);
        }
    }
}

/// Returns the pages of a stack in use that lie wholly below `pointer` to the kernel. Returns how
/// deep the stack had been: its bytes from the top down to the deepest page in memory. `None` if
/// `pointer` lies on no stack.
///
/// # Safety
/// The stack's user stands still, and needs nothing of what is below `pointer`.
pub(crate) unsafe fn trim_below(pointer: usize) -> Option<usize> {
    // SAFETY: the stack is in use, so its pool is not dropped.
    let slot = unsafe { lookup(pointer) }.filter(|slot| !slot.is_guard)?;
    let bottom = slot.slot_base + GUARD_SIZE;
    let start = std::ptr::with_exposed_provenance_mut::<u8>(bottom);
    let unused = pointer - pointer % slab::page_size() - bottom;
    let depth = slab::resident_depth(start, slot.size);

    if depth > slot.size - unused {
        slab::drop_pages(start, unused);
    }

    Some(depth)
}

/// Checks a requested stack size and rounds it up to whole pages.
fn checked_size(size: usize) -> io::Result<usize> {
    if !(MIN_SIZE..=MAX_SIZE).contains(&size) {
        let message = format!("a fiber stack has {MIN_SIZE} to {MAX_SIZE} bytes, not {size}");
        return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
    }
    Ok(size.next_multiple_of(slab::page_size()))
}
