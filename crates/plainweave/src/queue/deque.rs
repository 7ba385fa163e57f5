//! A deque that can grow: one owner pushes, and pops the newest or the oldest; any thread steals a batch of the oldest.
//!
//! **Why it is hard.** The owner and the thieves work at different ends until there are few tasks; then both may want
//! the same one. With an index at each end (Chase and Lev) neither sees both at once: a pop of the newest must write
//! its index, fence, read the other and settle the last task by a CAS, and a thief may take only one task at a time,
//! since the owner could have taken any but the first meanwhile. And a deque that grows moves its slots while thieves
//! read them.
//!
//! **The word.** Positions count modulo 2^21; position `p` lives in slot `p mod capacity`. All that changes hands is in
//! one atomic word, so every claim is one compare-and-swap against the whole truth:
//!
//! ```text
//!   word: AtomicU64 = next << 42 | len << 21 | held
//!
//!        next-held          next                    next+len
//!   ---------+---------------+-------------------------+-----------  positions
//!    free    | held: a thief | queued: oldest to newest| free
//!            | moves these   |                         |
//! ```
//!
//! Invariant: `held + len <= capacity`. A slot outside `[next - held, next + len)` belongs to the owner. Only the owner
//! moves `next + len`, the new end.
//!
//! **The protocol.**
//! 1. *Push* (owner): load the word (Acquire); if `held + len` is the capacity it is full; write slot `next + len`;
//!    `fetch_add` one to `len` (Release).
//! 2. *Pop the newest* (owner): CAS `len - 1`; read slot `next + len - 1`.
//! 3. *Pop the oldest* (owner): CAS `next + 1`, `len - 1`, and if a thief holds slots also `held + 1`, so that
//!    `next - held`, the thief's begin, stays where it is; read slot `next`.
//! 4. *Claim* (thief): if `held != 0` another thief is at work: leave. CAS (Acquire) `next + n`, `len - n`, `held = n`.
//! 5. *Move* (thief): load `slots` (Acquire), move the claimed tasks out. No code that could panic runs here.
//! 6. *Release* (thief): `word &= !HELD` (Release).
//! 7. *Grow* (owner): make slots twice as many; copy the bits of `[next - held, next + len)`; store `slots` (Release).
//!    The old ones stay as they are, linked from the new ones, until the deque is dropped.
//!
//! **Why it is safe.**
//! * *Two want one task:* both CAS the same word, one fails and looks again. There is no pair of indices to be seen
//!   half old, so there is no fence. And no ABA: a CAS that succeeds has seen the word as it is, whatever happened
//!   since it was loaded, and nothing but the word went into the claim.
//! * *A thief's reads come after the owner's writes:* each change of the word is a read-modify-write, so each push's
//!   Release heads a release sequence that the thief's Acquire in step 4 reads from.
//! * *A push over slots that are being moved:* they are in `[next - held, next)`, which step 1 counts as full. When it
//!   sees them free, its Acquire read the Release of step 6, or a later change in that release sequence.
//! * *Growth against a thief:* the thief reads its claim from the old slots or from the new ones. Both hold the same
//!   bits: nobody writes to old slots, and the copy includes what is held. If the thief's claim covers a task that was
//!   pushed after the growth, step 4 happened after the growth, and step 5 sees the new slots. Bits that nobody claims
//!   there are not dropped: a task belongs to who moved the word over it.
//! * *Reclamation:* no old slots are freed while a thief could read them. Together they are fewer than the new ones, so
//!   the price is at most half of the memory. Positions go on counting: restarting them at 0 with the new slots is the
//!   known way to hand one task to two.
//!
//! **Cost.** A push is a locked add and a pop a locked CAS on a line that is the owner's until a thief comes. Chase and
//! Lev push with a plain store and pop with a fence, which costs as much as a CAS.
//!
//! **Limits.** One thief at a time, as in the [ring](super::ring). [`MAX_CAPACITY`] tasks.
//!
//! **Sources.** D. Chase and Y. Lev, Dynamic circular work-stealing deque, 2005 (growth, old slots still readable); D.
//! Hendler and N. Shavit, Non-blocking steal-half work queues, 2002 (a batch claimed by a packed word); M. Michael, M.
//! Vechev and V. Saraswat, Idempotent work stealing, 2009 (both ends in one word). One word with `held` in it, so that
//! tasks of any type move without a racy read, is ours, as it is in the ring.
//!
//! **Rejected.** *Chase and Lev's deque as it is:* a thief copies before it claims, which is a data race for tasks that
//! are more than a word; and it takes one task. *A lock around a `VecDeque`:* what this replaces. It costs two
//! read-modify-writes a call instead of one, and a thief that the kernel stops while it holds the lock stops the owner.

#[cfg(all(test, loom))]
mod models;
mod owner;
mod stealer;

use std::mem::MaybeUninit;
use std::ptr;

use crossbeam_utils::CachePadded;

use crate::shim::atomic::Ordering::{Acquire, Relaxed, Release};
use crate::shim::atomic::{AtomicPtr, AtomicU64};
use crate::shim::{Arc, UnsafeCell};

pub use owner::{Batch, Owner};
pub use stealer::Stealer;

/// The most that a deque holds, however often it grows.
pub const MAX_CAPACITY: usize = 1 << 20;

/// Width of each of the word's three fields: they count up to [`MAX_CAPACITY`], and positions to twice that.
const BITS: u32 = 21;
/// One field's worth of ones: the field `held`, and what positions are counted modulo.
const FIELD: u64 = (1 << BITS) - 1;
/// One queued task in the word.
const ONE: u64 = 1 << BITS;

/// One reading of the word.
#[derive(Clone, Copy)]
struct Word(u64);

impl Word {
    /// A deque that is empty at position `next`.
    fn empty_at(next: u64) -> Self {
        Self((next & FIELD) << (2 * BITS))
    }

    /// Position of the oldest queued task.
    fn next(self) -> u64 {
        (self.0 >> (2 * BITS)) & FIELD
    }

    /// Queued tasks.
    fn len(self) -> u64 {
        (self.0 >> BITS) & FIELD
    }

    /// Slots below `next` that a thief is still reading.
    fn held(self) -> u64 {
        self.0 & FIELD
    }

    /// Slots that are not free.
    fn used(self) -> u64 {
        self.held() + self.len()
    }

    /// Where the next push goes.
    fn end(self) -> u64 {
        self.next() + self.len()
    }

    /// After `n` of the oldest were taken, and `held` more slots are a thief's.
    fn without_oldest(self, n: u64, held: u64) -> Self {
        debug_assert!(n <= self.len());
        let next = (self.next() + n) & FIELD;
        Self(next << (2 * BITS) | (self.len() - n) << BITS | (self.held() + held))
    }
}

/// The slots of a time; older ones hang on newer ones.
struct Slots<T> {
    cells: Box<[UnsafeCell<MaybeUninit<T>>]>,
    older: *mut Slots<T>,
}

impl<T> Slots<T> {
    fn new(capacity: usize, older: *mut Self) -> *mut Self {
        let cells = (0..capacity).map(|_| UnsafeCell::new(MaybeUninit::uninit())).collect();
        Box::into_raw(Box::new(Self { cells, older }))
    }

    fn cell(&self, position: u64) -> &UnsafeCell<MaybeUninit<T>> {
        &self.cells[position as usize & (self.cells.len() - 1)]
    }

    /// Moves the task at `position` out.
    ///
    /// # Safety
    /// The caller owns the position by a claim on the word, and takes it once.
    unsafe fn take(&self, position: u64) -> T {
        // SAFETY: a claimed slot is initialised, and not written until it is released.
        self.cell(position).with(|slot| unsafe { (*slot).assume_init_read() })
    }

    /// Moves `task` into `position`; visible to others once the word covers it.
    ///
    /// # Safety
    /// The caller is the owner, these are the newest slots, and the position is free.
    unsafe fn put(&self, position: u64, task: T) {
        // SAFETY: a free slot is the owner's, and it holds nothing that would need dropping.
        self.cell(position).with_mut(|slot| unsafe { (*slot).write(task) });
    }
}

/// What owner and thieves share.
struct Deque<T> {
    word: CachePadded<AtomicU64>,
    slots: AtomicPtr<Slots<T>>,
}

// SAFETY: slots are reached through the protocol above only, which gives each queued task to exactly one thread, with a
// happens-before edge from writer to reader; so tasks cross threads (Send) and are never shared.
unsafe impl<T: Send> Sync for Deque<T> {}
// SAFETY: as above; the slots belong to this value.
unsafe impl<T: Send> Send for Deque<T> {}

impl<T> Deque<T> {
    /// The newest slots, or for a thief perhaps the ones before.
    fn slots(&self) -> &Slots<T> {
        // SAFETY: never null, and freed with the deque only.
        unsafe { &*self.slots.load(Acquire) }
    }

    /// Protocol step 4: the first claimed position and how many. `wanted` maps the victim's length to a number.
    fn claim(&self, wanted: impl Fn(usize) -> usize) -> Option<(u64, u64)> {
        let mut word = Word(self.word.load(Relaxed));
        loop {
            if word.held() != 0 || word.len() == 0 {
                return None;
            }
            let n = (wanted(word.len() as usize) as u64).min(word.len());
            if n == 0 {
                return None;
            }
            match self.word.compare_exchange_weak(word.0, word.without_oldest(n, n).0, Acquire, Relaxed) {
                Ok(_) => return Some((word.next(), n)),
                Err(seen) => word = Word(seen),
            }
        }
    }

    /// Protocol step 6.
    fn release(&self) {
        self.word.fetch_and(!FIELD, Release);
    }
}

impl<T> Drop for Deque<T> {
    fn drop(&mut self) {
        let word = Word(self.word.load(Relaxed));
        for i in 0..word.len() {
            // SAFETY: `&mut self`: nobody else is at work, and each queued position is taken once.
            drop(unsafe { self.slots().take(word.next() + i) });
        }
        let mut slots = self.slots.load(Relaxed);
        while !slots.is_null() {
            // SAFETY: made by `Box::into_raw`, on the list once, read by nobody any more. Cells drop no tasks.
            let boxed = unsafe { Box::from_raw(slots) };
            slots = boxed.older;
        }
    }
}

/// A deque for `capacity` tasks, a power of two up to [`MAX_CAPACITY`], as its owner's half.
///
/// # Panics
/// If it is another number.
#[must_use]
pub fn deque<T: Send>(capacity: usize) -> Owner<T> {
    deque_at(capacity, 0)
}

/// [`deque`] with a first position, so that tests cross the wrap.
pub(super) fn deque_at<T: Send>(capacity: usize, first: u64) -> Owner<T> {
    let legal = capacity.is_power_of_two() && capacity <= MAX_CAPACITY;
    assert!(legal, "deque capacity {capacity}: not a power of two up to {MAX_CAPACITY}");
    let slots = AtomicPtr::new(Slots::new(capacity, ptr::null_mut()));
    let word = CachePadded::new(AtomicU64::new(Word::empty_at(first).0));
    Owner::new(Arc::new(Deque { word, slots }))
}
