//! Memory that is written once, read by many without a lock, and used again when nobody reads it.
//!
//! A [`Segment`] is the writer's half: a shard owns it, under its lock. It appends, and what it has appended does not
//! change. A [`Pin`] is a reader's half: some bytes that were appended, readable without any lock, for as long as the
//! pin lives. Both count the same memory, so a pin outlives the segment, too.
//!
//! Why it is hard: writer and readers touch one allocation at the same time, which Rust's references forbid for a
//! `Box<[u8]>`. The bytes are therefore cells, and this protocol keeps every shared reference apart from every write:
//!
//! 1. `filled` divides the memory. [`Segment::append`] writes at and behind `filled` and moves it on. It takes
//!    `&mut self`, and so does not run while a pin is being made.
//! 2. [`Segment::pin`] and [`Segment::bytes`] refer to bytes before `filled` only.
//! 3. Bytes before `filled` are written, and `filled` goes back to 0, only after [`Arc::get_mut`] has proved that no
//!    pin exists. It synchronises with the release of the last one, so that reader's loads are done. New pins come
//!    from `&self` of the same segment, whose `&mut` the writer holds.
//!
//! No step can be broken from outside this file: every function is safe for any arguments, and panics for a range that
//! was not appended. Nothing else in the store is `unsafe`.
//!
//! Rejected: a counted allocation for each value costs 16 bytes and a malloc header each, and fragments. `bytes::Bytes`
//! costs 32 bytes an item. Atomic words make it safe, but are copied word by word and cannot be lent to `writev`.

use std::cell::UnsafeCell;
use std::ops::Range;
use std::sync::Arc;

/// The bytes, shared by a segment and its pins.
struct Memory(Box<[UnsafeCell<u8>]>);

// SAFETY: Threads share the cells under the protocol above: no byte is written while a reference to it exists.
unsafe impl Sync for Memory {}

impl Memory {
    /// # Safety
    ///
    /// No byte of `range` is written while the returned reference lives.
    unsafe fn read(&self, range: Range<usize>) -> &[u8] {
        let cells = &self.0[range];
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
    /// An empty segment of `len` bytes. The kernel gives the memory as it is filled.
    pub(super) fn new(len: usize) -> Self {
        assert!(len < 1 << 32, "a segment of {len} bytes");
        let bytes = Box::into_raw(vec![0_u8; len].into_boxed_slice());
        // SAFETY: `UnsafeCell<u8>` is laid out like `u8`, and the pointer came from a box just now.
        let cells = unsafe { Box::from_raw(bytes as *mut [UnsafeCell<u8>]) };
        Self { memory: Arc::new(Memory(cells)), filled: 0 }
    }

    /// Bytes that were appended.
    pub(super) const fn filled(&self) -> usize {
        self.filled
    }

    /// Bytes that can yet be appended.
    pub(super) fn room(&self) -> usize {
        self.memory.0.len() - self.filled
    }

    /// Appends `len` bytes for the caller to fill in, and says where they begin; `None` if there is no room.
    pub(super) fn append(&mut self, len: usize) -> Option<(usize, &mut [u8])> {
        if len > self.room() {
            return None;
        }
        let start = self.filled;
        let cells = &self.memory.0[start..start + len];
        self.filled += len;
        // SAFETY: Bytes behind the old `filled` have no reader (2). The returned borrow holds `self`, so that none can
        // come before it ends (1).
        let bytes = unsafe { std::slice::from_raw_parts_mut(UnsafeCell::raw_get(cells.as_ptr()), len) };
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
        assert!(range.start <= range.end && range.end <= self.filled, "bytes that were not appended");
        let (start, len) = (range.start as u32, (range.end - range.start) as u32);
        Pin { memory: Arc::clone(&self.memory), start, len }
    }

    /// Appended bytes to be written over; `None` while somebody reads the segment.
    pub(super) fn rewrite(&mut self, range: Range<usize>) -> Option<&mut [u8]> {
        assert!(range.end <= self.filled, "bytes that were not appended");
        let cells = &mut Arc::get_mut(&mut self.memory)?.0[range];
        // SAFETY: The exclusive borrow of the cells gives exclusive access to what is in them.
        Some(unsafe { std::slice::from_raw_parts_mut(cells.as_mut_ptr().cast::<u8>(), cells.len()) })
    }

    /// Makes the segment empty, and says whether it could: not while somebody reads it.
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
    /// Bytes that it has.
    pub(super) const fn len(&self) -> usize {
        self.len as usize
    }

    /// The bytes.
    #[inline]
    pub(super) fn bytes(&self) -> &[u8] {
        // SAFETY: They were appended (2), and this pin keeps `Arc::get_mut` from succeeding (3).
        unsafe { self.memory.read(self.start as usize..self.start as usize + self.len as usize) }
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
