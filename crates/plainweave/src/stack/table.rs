//! Maps an address to its slot, in a signal handler.
//!
//! A static array with an entry per slab of every pool in the process. Writers (a slab is mapped or
//! unmapped: rare) hold a lock; readers hold nothing, allocate nothing and use no thread-local, so
//! the overflow handler may read at any point of any thread's execution, even while the interrupted
//! thread is itself a writer.
//!
//! # Protocol: a sequence lock per entry
//!
//! An entry is reused when its slab is gone (a test process makes thousands of runtimes), so its
//! words may change under a reader. Writer:
//!
//! 1. `version` := odd (relaxed), then a release fence,
//! 2. the words (relaxed),
//! 3. `version` := even (release).
//!
//! Reader: load `version` (acquire), skip the entry if it is odd; load the words; acquire fence;
//! load `version` again and skip the entry if it moved. If a reader saw a word of step 2, its fence
//! pairs with the writer's fence of step 1, so the second load sees the odd version or a later one:
//! the reader skips. If it saw none, it read the old entry. Either way it never acts on a mixture.
//!
//! Skipping is right, not only safe: the entry that holds a fault address in a live stack is not
//! changing, because a pool with stacks in use does not unregister.
//!
//! The atomics are `std`'s, not the shim's: loom's have no constant constructor, and a static table
//! is the point.

#![expect(unsafe_code, reason = "leads from a fault's address to a record")]

use std::io;
use std::mem::offset_of;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering, fence};
use std::sync::{Mutex, PoisonError};

use super::slab::{GUARD_SIZE, SlotMeta};

/// The most slabs in a process: a pool of a million stacks takes 45, and a pool has at least one.
pub(super) const CAPACITY: usize = 4096;

static ENTRIES: [SlabEntry; CAPACITY] = [const { SlabEntry::new() }; CAPACITY];
/// The entries before this one have been in use at some time.
static USED: AtomicUsize = AtomicUsize::new(0);
static WRITERS: Mutex<()> = Mutex::new(());

/// Where debuggers find the entries, and what is in them.
#[repr(C)]
pub(crate) struct SlabLayout {
    entries: *const (),
    used: *const (),
    entry_size: u32,
    start: u32,
    slots: u32,
    size: u32,
    meta: u32,
    meta_size: u32,
    owner: u32,
    guard: u32,
}

// SAFETY: nobody in the process follows the pointers.
unsafe impl Sync for SlabLayout {}

/// For `fiber/layout`.
pub(crate) const SLABS: SlabLayout = SlabLayout {
    entries: (&raw const ENTRIES).cast(),
    used: (&raw const USED).cast(),
    entry_size: size_of::<SlabEntry>() as u32,
    start: offset_of!(SlabEntry, start) as u32,
    slots: offset_of!(SlabEntry, slots) as u32,
    size: offset_of!(SlabEntry, size) as u32,
    meta: offset_of!(SlabEntry, meta) as u32,
    meta_size: size_of::<SlotMeta>() as u32,
    owner: offset_of!(SlotMeta, owner) as u32,
    guard: GUARD_SIZE as u32,
};

/// An entry; free while `start` is 0.
struct SlabEntry {
    version: AtomicUsize,
    start: AtomicUsize,
    slots: AtomicUsize,
    size: AtomicUsize,
    meta: AtomicPtr<SlotMeta>,
}

/// The content of an entry.
#[derive(Debug)]
pub(super) struct SlabRange {
    /// Address of the first slot.
    pub(super) start: usize,
    /// The number of slots.
    pub(super) slots: usize,
    /// Usable bytes of each; the guard comes on top.
    pub(super) size: usize,
    /// Metadata of the first slot.
    pub(super) meta: *mut SlotMeta,
}

/// The entry that a slab holds until it unregisters.
#[derive(Debug)]
pub(super) struct Registration(usize);

/// A slot, found by an address in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SlotHit {
    /// Lowest address of the slot; its guard starts here.
    pub(crate) slot_base: usize,
    /// Usable bytes above the guard.
    pub(crate) size: usize,
    /// Whether the address lies in the guard.
    pub(crate) is_guard: bool,
    /// The owner set last, or null.
    pub(crate) owner: *const (),
}

impl SlabEntry {
    const fn new() -> Self {
        Self {
            version: AtomicUsize::new(0),
            start: AtomicUsize::new(0),
            slots: AtomicUsize::new(0),
            size: AtomicUsize::new(0),
            meta: AtomicPtr::new(std::ptr::null_mut()),
        }
    }

    /// Performs the writer's three steps. The caller holds `WRITERS`.
    fn write(&self, range: &SlabRange) {
        let version = self.version.load(Ordering::Relaxed);
        self.version
            .store(version.wrapping_add(1), Ordering::Relaxed);
        fence(Ordering::Release);
        self.start.store(range.start, Ordering::Relaxed);
        self.slots.store(range.slots, Ordering::Relaxed);
        self.size.store(range.size, Ordering::Relaxed);
        self.meta.store(range.meta, Ordering::Relaxed);

        self.version
            .store(version.wrapping_add(2), Ordering::Release);
    }

    /// Performs the reader's side; `None` for a free entry and for one that is changing.
    fn read(&self) -> Option<SlabRange> {
        let version = self.version.load(Ordering::Acquire);
        let range = SlabRange {
            start: self.start.load(Ordering::Relaxed),
            slots: self.slots.load(Ordering::Relaxed),
            size: self.size.load(Ordering::Relaxed),
            meta: self.meta.load(Ordering::Relaxed),
        };

        fence(Ordering::Acquire);
        let steady = version.is_multiple_of(2) && self.version.load(Ordering::Relaxed) == version;
        (steady && range.start != 0).then_some(range)
    }
}

/// Registers a slab, so that `lookup` finds it.
///
/// Context: not in a signal handler.
pub(super) fn register(range: &SlabRange) -> io::Result<Registration> {
    let _writer = WRITERS.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(index) = ENTRIES
        .iter()
        .position(|entry| entry.start.load(Ordering::Relaxed) == 0)
    else {
        let message = format!(
            "this process has {CAPACITY} slabs of fiber stacks; use fewer runtimes, or larger ones"
        );
        return Err(io::Error::new(io::ErrorKind::QuotaExceeded, message));
    };

    ENTRIES[index].write(range);
    USED.fetch_max(index + 1, Ordering::Release);
    Ok(Registration(index))
}

/// Removes a slab; it is unmapped only afterwards.
///
/// Context: not in a signal handler.
pub(super) fn unregister(registration: &Registration) {
    let _writer = WRITERS.lock().unwrap_or_else(PoisonError::into_inner);
    ENTRIES[registration.0].write(&SlabRange {
        start: 0,
        slots: 0,
        size: 0,
        meta: std::ptr::null_mut(),
    });
}

/// Returns the slot that holds an address.
///
/// # Safety
///
/// No pool that holds `address` is dropped meanwhile. That is so whenever the address lies in a
/// stack in use.
///
/// Context: any thread, also in a signal handler.
pub(crate) unsafe fn lookup(address: usize) -> Option<SlotHit> {
    let used = USED.load(Ordering::Acquire);
    let holds = |range: &SlabRange| {
        (address.wrapping_sub(range.start)) / (GUARD_SIZE + range.size) < range.slots
    };
    let range = ENTRIES[..used]
        .iter()
        .filter_map(SlabEntry::read)
        .find(holds)?;
    let stride = GUARD_SIZE + range.size;
    let offset = address - range.start;
    let index = offset / stride;

    // SAFETY: `index < slots`, the length of the array at `meta`; the caller ensures that the slab
    // stays mapped.
    let meta = unsafe { &*range.meta.add(index) };
    Some(SlotHit {
        slot_base: range.start + index * stride,
        size: range.size,
        is_guard: offset % stride < GUARD_SIZE,
        owner: meta.owner.load(Ordering::Acquire),
    })
}
