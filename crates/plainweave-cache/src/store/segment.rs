//! Memory that is written once, read by many without a lock, and reused when it has no readers.
//!
//! A [`Segment`] is the writer's half: a shard owns it, under its lock. It appends, and what it has
//! appended does not change. A [`Pin`] is a reader's half: some bytes that were appended, readable
//! without any lock, for as long as the pin lives. Both count the same memory, so a pin outlives
//! the segment, too.
//!
//! Why it is hard: writer and readers touch one allocation at the same time, which Rust's
//! references forbid for a `Box<[u8]>`. The bytes are therefore cells, and this protocol keeps
//! every shared reference apart from every write:
//!
//! 1. `filled` divides the memory. [`Segment::append`] writes at and behind `filled` and moves it
//!    on. It takes `&mut self`, and so does not run while a pin is being made.
//! 2. [`Segment::pin`] and [`Segment::bytes`] refer to bytes before `filled` only.
//! 3. Bytes before `filled` are written, and `filled` goes back to 0, only after [`Arc::get_mut`]
//!    has proved that no pin exists. It synchronises with the release of the last one, so that
//!    reader's loads are done. New pins come from `&self` of the same segment, whose `&mut` the
//!    writer holds.
//!
//! No step can be broken from outside this file: every function is safe for any arguments, and
//! panics for a range that was not appended. Nothing else in the store is `unsafe`.
//!
//! **Where memory comes from.** Segments and the index's pages ([`Table`]) are mappings of their
//! own: what is dropped is the kernel's again at once. From `malloc` they would be cut out of one
//! heap, whose holes stay resident: after sizes of 20 B and 900 KB in turn, 64 MB of them took 94
//! MB.
//!
//! Rejected: a counted allocation for each value costs 16 bytes and a malloc header each, and
//! fragments. `bytes::Bytes` costs 32 bytes an item. Atomic words make it safe, but are copied word
//! by word and cannot be lent to `writev`.

#![expect(
    unsafe_code,
    reason = "memory that one appends to while others read what precedes"
)]

use std::alloc::{Layout, handle_alloc_error};
use std::cell::UnsafeCell;
use std::ops::{Deref, DerefMut, Range};
use std::ptr::NonNull;
use std::sync::Arc;

use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};

/// Zeroed memory from the kernel; unmapped when dropped. Of no bytes, it is dangling.
struct Mapping {
    at: NonNull<u8>,
    len: usize,
}

// SAFETY: it owns plain memory.
unsafe impl Send for Mapping {}
// SAFETY: as above; it gives no access by itself.
unsafe impl Sync for Mapping {}

impl Mapping {
    fn new(len: usize) -> Self {
        if len == 0 || cfg!(miri) {
            return Self::from_heap(len);
        }
        // SAFETY: a new mapping, at a place of the kernel's choice.
        let at = unsafe {
            mmap_anonymous(
                std::ptr::null_mut(),
                len,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE,
            )
        };

        match at.ok().and_then(|at| NonNull::new(at.cast::<u8>())) {
            Some(at) => Self { at, len },
            None => handle_alloc_error(Self::layout(len)),
        }
    }

    /// Miri knows no mappings.
    fn from_heap(len: usize) -> Self {
        if len == 0 {
            return Self {
                at: NonNull::<Line>::dangling().cast(),
                len,
            };
        }

        // SAFETY: the layout has a size.
        let at = unsafe { std::alloc::alloc_zeroed(Self::layout(len)) };
        Self {
            at: NonNull::new(at).unwrap_or_else(|| handle_alloc_error(Self::layout(len))),
            len,
        }
    }

    fn layout(len: usize) -> Layout {
        Layout::from_size_align(len, align_of::<Line>()).expect("less than 4 GiB")
    }
}

/// Nothing that lies in a mapping is aligned more strictly.
#[repr(align(64))]
struct Line;

impl Drop for Mapping {
    fn drop(&mut self) {
        if self.len == 0 {
            return;
        }
        if cfg!(miri) {
            // SAFETY: from `from_heap`, with this layout.
            return unsafe { std::alloc::dealloc(self.at.as_ptr(), Self::layout(self.len)) };
        }
        // SAFETY: our own mapping, and it has no users any more. It cannot fail but for a limit on
        // mappings, when it stays.
        let _ = unsafe { munmap(self.at.as_ptr().cast(), self.len) };
    }
}

/// A slice in a mapping of its own.
pub(crate) struct Table<T: Copy> {
    memory: Mapping,
    len: usize,
    _holds: std::marker::PhantomData<T>,
}

impl<T: Copy> Table<T> {
    /// `len` times `value`.
    pub(super) fn filled(len: usize, value: T) -> Self {
        const {
            assert!(
                align_of::<T>() <= align_of::<Line>(),
                "mappings begin with a page"
            )
        };
        let memory = Mapping::new(len * size_of::<T>());
        for place in 0..len {
            // SAFETY: within the mapping, aligned as asserted.
            unsafe { memory.at.cast::<T>().add(place).write(value) };
        }

        Self {
            memory,
            len,
            _holds: std::marker::PhantomData,
        }
    }
}

impl Table<u8> {
    /// Makes one of `len` zeros; what is not written to takes no memory.
    pub(crate) fn zeroed(len: usize) -> Self {
        Self {
            memory: Mapping::new(len),
            len,
            _holds: std::marker::PhantomData,
        }
    }
}

impl<T: Copy> std::fmt::Debug for Table<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Table {{ {} places }}", self.len)
    }
}

impl<T: Copy> Deref for Table<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        // SAFETY: `len` values were written there, or are the zeros that a mapping begins with; the
        // borrow of `self` excludes writers.
        unsafe { std::slice::from_raw_parts(self.memory.at.cast::<T>().as_ptr(), self.len) }
    }
}

impl<T: Copy> DerefMut for Table<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as above; the borrow of `self` excludes everybody else.
        unsafe { std::slice::from_raw_parts_mut(self.memory.at.cast::<T>().as_ptr(), self.len) }
    }
}

/// Asks the processor to fetch what is referred to, and does not wait for it.
#[inline]
pub(super) fn prefetch<T>(value: &T) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: a hint; it reads nothing, and the address is a valid one besides.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(value).cast());
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = value;
}

/// The bytes, shared by a segment and its pins.
struct Memory(Mapping);

impl Memory {
    fn cells(&self) -> &[UnsafeCell<u8>] {
        // SAFETY: zeroed bytes of our own mapping; cells are laid out like bytes, and all access
        // goes through them.
        unsafe { std::slice::from_raw_parts(self.0.at.cast().as_ptr(), self.0.len) }
    }

    /// # Safety
    ///
    /// No byte of `range` is written while the returned reference lives.
    unsafe fn read(&self, range: Range<usize>) -> &[u8] {
        let cells = &self.cells()[range];
        // SAFETY: `UnsafeCell<u8>` is laid out like `u8`; the caller excludes writers.
        unsafe { std::slice::from_raw_parts(UnsafeCell::raw_get(cells.as_ptr()), cells.len()) }
    }
}

/// The writer's half.
pub(super) struct Segment {
    memory: Arc<Memory>,
    /// Bytes before this one do not change while a pin exists.
    filled: usize,
}

impl Segment {
    /// Makes an empty segment of `len` bytes. The kernel gives the memory as it is filled.
    pub(super) fn new(len: usize) -> Self {
        assert!(len < 1 << 32, "a segment of {len} bytes");
        Self {
            memory: Arc::new(Memory(Mapping::new(len))),
            filled: 0,
        }
    }

    /// Returns the number of bytes that were appended.
    pub(super) const fn filled(&self) -> usize {
        self.filled
    }

    /// Returns the number of bytes that can yet be appended.
    pub(super) fn room(&self) -> usize {
        self.memory.0.len - self.filled
    }

    /// Appends `len` bytes for the caller to fill in, and says where they begin; `None` if there is
    /// no room.
    pub(super) fn append(&mut self, len: usize) -> Option<(usize, &mut [u8])> {
        if len > self.room() {
            return None;
        }
        let start = self.filled;
        let cells = &self.memory.cells()[start..start + len];
        self.filled += len;

        // SAFETY: Bytes behind the old `filled` have no reader (2). The returned borrow holds
        // `self`, so that none can come before it ends (1).
        let bytes =
            unsafe { std::slice::from_raw_parts_mut(UnsafeCell::raw_get(cells.as_ptr()), len) };
        Some((start, bytes))
    }

    /// Appended bytes, for the holder of the shard's lock.
    pub(super) fn bytes(&self, range: Range<usize>) -> &[u8] {
        assert!(range.end <= self.filled, "bytes that were not appended");
        // SAFETY: Writing these needs `&mut self` (3), which the borrow of `self` excludes.
        unsafe { self.memory.read(range) }
    }

    /// Appended bytes, for readers without the lock.
    pub(super) fn pin(&self, range: Range<usize>) -> Pin {
        assert!(
            range.start <= range.end && range.end <= self.filled,
            "bytes that were not appended"
        );
        let start = range.start as u32;
        let len = (range.end - range.start) as u32;
        Pin {
            memory: Arc::clone(&self.memory),
            start,
            len,
        }
    }

    /// Appended bytes to be written over; `None` while the segment is being read.
    pub(super) fn rewrite(&mut self, range: Range<usize>) -> Option<&mut [u8]> {
        assert!(range.end <= self.filled, "bytes that were not appended");
        let cells = &Arc::get_mut(&mut self.memory)?.cells()[range];
        // SAFETY: No pin exists (3), and the borrow of `self` excludes everybody else.
        Some(unsafe {
            std::slice::from_raw_parts_mut(UnsafeCell::raw_get(cells.as_ptr()), cells.len())
        })
    }

    /// Makes the segment empty. Returns `false` while it is being read.
    pub(super) fn clear(&mut self) -> bool {
        let unread = Arc::get_mut(&mut self.memory).is_some();
        if unread {
            self.filled = 0;
        }
        unread
    }
}

/// A reader's half: bytes that do not change while it lives.
#[derive(Clone)]
pub(super) struct Pin {
    memory: Arc<Memory>,
    /// A segment has less than 4 GiB; [`Segment::new`] sees to it.
    start: u32,
    len: u32,
}

impl Pin {
    /// Returns the number of bytes that it has.
    pub(super) const fn len(&self) -> usize {
        self.len as usize
    }

    /// Returns a number that no other segment has while this pin lives.
    pub(super) fn segment(&self) -> usize {
        Arc::as_ptr(&self.memory).addr()
    }

    /// Returns the bytes.
    #[inline]
    pub(super) fn bytes(&self) -> &[u8] {
        // SAFETY: They were appended (2), and this pin keeps `Arc::get_mut` from succeeding (3).
        unsafe {
            self.memory
                .read(self.start as usize..self.start as usize + self.len as usize)
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::Segment;

    #[test]
    fn bytes_come_back_where_they_were_put() {
        let mut segment = Segment::new(16);
        let (at, bytes) = segment.append(3).unwrap();
        bytes.copy_from_slice(b"abc");
        let pin = segment.pin(at..at + 3);
        let (more, bytes) = segment.append(13).unwrap();
        bytes.fill(b'x');
        assert_eq!((more, segment.room(), segment.filled()), (3, 0, 16));
        assert!(segment.append(1).is_none());
        assert_eq!(pin.bytes(), b"abc");
        assert_eq!(segment.bytes(1..4), b"bcx");
    }

    #[test]
    fn a_pin_keeps_its_bytes_from_being_written() {
        let mut segment = Segment::new(8);
        segment.append(4).unwrap().1.copy_from_slice(b"old!");
        let pin = segment.pin(0..4);
        let clone = pin.clone();
        assert!(segment.rewrite(0..2).is_none() && !segment.clear());
        drop(pin);
        assert!(!segment.clear());
        drop(clone);
        segment.rewrite(0..2).unwrap().copy_from_slice(b"nu");
        assert_eq!(segment.bytes(0..4), b"nud!");
        assert!(segment.clear());
        assert_eq!(segment.filled(), 0);
    }

    #[test]
    #[should_panic(expected = "not appended")]
    fn what_was_not_appended_cannot_be_read() {
        let mut segment = Segment::new(8);
        segment.append(4).unwrap();
        let _ = segment.pin(2..5);
    }

    #[test]
    fn a_table_holds_what_it_was_filled_with() {
        let mut table = super::Table::filled(5000, [7_u64; 8]);
        table[4999][7] = 8;
        assert_eq!((table.len(), table[0], table[4999][7]), (5000, [7; 8], 8));
        assert!(super::Table::filled(0, 1_u8).is_empty());
    }

    #[test]
    fn readers_and_the_writer_share_a_segment() {
        let rounds = if cfg!(miri) { 20 } else { 20_000 };
        let (sender, pins) = mpsc::sync_channel(4);
        let reader = std::thread::spawn(move || {
            for (pin, byte) in pins {
                let pin: super::Pin = pin;
                assert!(pin.bytes().iter().all(|&found| found == byte));
            }
        });

        let mut segment = Segment::new(64);
        for round in 0..rounds {
            let byte = u8::try_from(round % 251).unwrap();
            if segment.room() < 8 && !segment.clear() {
                segment = Segment::new(64);
            }
            let (at, bytes) = segment.append(8).unwrap();
            bytes.fill(byte);
            sender.send((segment.pin(at..at + 8), byte)).unwrap();
        }

        drop(sender);
        reader.join().unwrap();
    }
}
