//! A growable deque: one owner pushes, and pops the newest or the oldest; any thread steals a batch
//! of the oldest.
//!
//! **Why it is hard.** The owner and the thieves work at different ends until there are few tasks;
//! then both may want the same one. In Chase and Lev's deque a pop of the newest writes one end,
//! fences, reads the other and settles the last task by a compare-and-swap; a thief may take only
//! one task at a time, since the owner could have taken any but the first meanwhile; and it reads
//! the task before it knows that the task is its own. And a deque that grows moves its slots while
//! thieves read them.
//!
//! **The words.** Positions count modulo 2^21; position `p` lives in slot `p mod capacity`. Every
//! operation that takes a task out changes one word by a CAS; the number of pushes is a word of its
//! own, so that a push is a plain store.
//!
//! ```text
//!   word: AtomicU64 = next << 43 | popped << 22 | moving << 21 | held        pushed: AtomicU64, the owner's
//!
//!        next-held          next                    end = pushed - popped
//!   ---------+---------------+-------------------------+-----------  positions
//!    free    | held: a thief | queued: oldest to newest| free
//!            | moves these   |                         |
//! ```
//!
//! `popped` counts pops of the newest. Without `moving` the low field is the thieves' gate: 0 open,
//! 1 *announced*: a thief is about to claim, 2 *disturbed*: the owner has taken something since.
//!
//! Invariant: `held + (end - next) <= capacity`. A slot outside `[next - held, end)` belongs to the
//! owner.
//!
//! **The protocol.**
//! 1. *Push* (owner): load the word (Acquire); without a free slot the deque is full. Write slot
//!    `end`; store `pushed + 1` (Release).
//! 2. *Pop the newest* (owner): CAS (Release) `popped + 1`, and *announced* becomes *disturbed*;
//!    read slot `end - 1`.
//! 3. *Pop the oldest* (owner): CAS (Release) `next + 1`, and *announced* becomes *disturbed*; if a
//!    thief is moving tasks also `held + 1`, so that `next - held`, where the thief begins, does
//!    not change; read slot `next`.
//! 4. *Announce* (thief): if the gate is not open another thief is at work: leave. CAS (Acquire) to
//!    *announced*.
//! 5. *Claim* (thief): load `pushed` (Acquire); CAS (AcqRel) from the word of step 4 to `next + n`,
//!    *moving*, `held = n`. If that fails, the owner has disturbed: CAS back to *announced* and
//!    retry. If the deque is empty, or `wanted` declines, open the gate and leave.
//! 6. *Move* (thief): load `slots` (Acquire), move the claimed tasks out. No code that could panic
//!    runs here.
//! 7. *Release* (thief): clear `moving` and `held` (Release).
//! 8. *Grow* (owner): allocate twice as many slots; copy the bits of `[next - held, end)`; store
//!    `slots` (Release). The old slots stay as they are, linked from the new ones, until the deque
//!    is dropped.
//!
//! **Why it is safe.**
//! * *Two want one task:* both CAS the same word; one fails and looks again.
//! * *The claim knows what it claims.* The `pushed` that a thief read belongs to the word it read
//!   before: step 4's Acquire has seen the last pop's Release, so all pushes before it. Between
//!   announcing and claiming nothing was taken out: each pop leaves *disturbed*, and only the one
//!   thief that has announced leaves that state. So a CAS that succeeds has seen the word unchanged
//!   since step 4, not just the same value again; and pushes since then only add tasks. That rules
//!   out ABA, although the fields wrap quickly.
//! * *A thief's reads come after the owner's writes:* `pushed` is stored with Release and loaded
//!   with Acquire. A later thief reads at least that, by the AcqRel of step 5.
//! * *A push over slots that are being moved:* they are in `[next - held, next)`, which step 1
//!   counts as full. When it sees them free, its Acquire read the Release of step 7, or a later
//!   change in that release sequence.
//! * *Growth against a thief:* the thief reads its claim from the old slots or from the new ones.
//!   Both hold the same bits: nobody writes to old slots, and the copy includes what is held. If
//!   the claim covers a task that was pushed after the growth, the load of `pushed` made the new
//!   slots visible. Bits that nobody claims there are not dropped: a task belongs to the thread
//!   that moved the word over it.
//! * *Reclamation:* no old slots are freed while a thief could read them. Together they are fewer
//!   than the new ones, so they take at most half of the memory. Positions go on counting:
//!   restarting them at 0 with the new slots is the known way to give one task to two threads.
//! * *A look* (`len`, `is_empty`) loads the word (Acquire), then `pushed`: it may miss pops, but no
//!   push that happened before it.
//!
//! **Cost.** A push is two loads and two stores, a pop one CAS, a steal three read-modify-writes
//! for the batch.
//!
//! **Limits.** One thief at a time, as in the [ring](super::ring): a thief that the kernel preempts
//! keeps others out, and keeps the slots it moves from being reused; the owner goes on.
//! [`MAX_CAPACITY`] tasks. A look that is preempted between its two loads while the owner pushes
//! exactly 2^21 times, or a multiple, sees nothing.
//!
//! **Sources.** D. Chase and Y. Lev, Dynamic circular work-stealing deque, 2005 (growth, old slots
//! still readable); D. Hendler and N. Shavit, Non-blocking steal-half work queues, 2002 (a batch
//! claimed by a packed word); S. Barral's St3, 2022 (pushes and pops counted apart, so that a push
//! is a store). There both counts have 32 bits, and a thief relies on their not wrapping; the gate
//! and `held` are new here.
//!
//! **Rejected.** *Chase and Lev's deque as it is:* a thief copies before it claims, which is a data
//! race for tasks larger than a word; and it takes one task. *Everything in one word, including the
//! length:* simpler, no gate; but then a push is a read-modify-write: 27 ns instead of 17 for a
//! push and a pop (see `docs/queues.md`). *A lock around a `VecDeque`:* 38 ns, and a thief that the
//! kernel preempts while it holds the lock stops the owner.

#![expect(unsafe_code, reason = "slots that one side at a time owns")]

#[cfg(all(test, loom))]
mod models;
mod owner; // The owner's half.
mod stealer; // The thieves' half.

use std::mem::MaybeUninit;
use std::ptr;

use crossbeam_utils::CachePadded;

use super::batch::{self, Slots as _};
use crate::shim::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use crate::shim::atomic::{AtomicPtr, AtomicU64};
use crate::shim::{Arc, UnsafeCell};

pub use owner::Owner;
pub use stealer::Stealer;

/// The most that a deque holds, however often it grows.
pub const MAX_CAPACITY: usize = 1 << 20;

/// Width of the fields: they count up to [`MAX_CAPACITY`], and positions to twice that.
const BITS: u32 = 21;
/// One field's worth of ones: the low field, and the modulus of positions.
const FIELD: u64 = (1 << BITS) - 1;
/// Set while the low field says how many slots below `next` a thief still reads.
const MOVING: u64 = 1 << BITS;
/// Without [`MOVING`]: a thief is about to claim.
const ANNOUNCED: u64 = 1;
/// Without [`MOVING`]: a thief was about to claim, and the owner has taken something since.
const DISTURBED: u64 = 2;
/// The lowest bit of `popped`; `next` follows it.
const POPPED: u32 = BITS + 1;
const NEXT: u32 = 2 * BITS + 1;

/// One reading of the word.
#[derive(Clone, Copy)]
struct Word(u64);

impl Word {
    /// Returns the position of the oldest queued task.
    fn next(self) -> u64 {
        self.0 >> NEXT
    }

    /// Returns where the next push goes, after `pushed` pushes.
    fn end(self, pushed: u64) -> u64 {
        pushed.wrapping_sub(self.0 >> POPPED) & FIELD
    }

    /// Returns the number of queued tasks, after `pushed` pushes.
    fn len(self, pushed: u64) -> u64 {
        self.end(pushed).wrapping_sub(self.next()) & FIELD
    }

    /// Returns the number of slots below `next` that a thief is still reading.
    fn held(self) -> u64 {
        if self.0 & MOVING == 0 {
            0
        } else {
            self.0 & FIELD
        }
    }

    /// Returns the thieves' field: gate, or [`MOVING`] with `held`.
    fn gate(self) -> u64 {
        self.0 & (MOVING | FIELD)
    }

    fn with_gate(self, gate: u64) -> Self {
        Self((self.0 - self.gate()) | gate)
    }

    /// Returns the word after the owner has taken something: a thief that has announced must look
    /// again.
    fn disturbed(self) -> Self {
        if self.gate() == ANNOUNCED {
            self.with_gate(DISTURBED)
        } else {
            self
        }
    }

    /// Returns the word after `n` of the oldest were taken.
    fn without_oldest(self, n: u64) -> Self {
        let next = (self.next() + n) & FIELD;
        Self((self.0 & ((1 << NEXT) - 1)) | (next << NEXT))
    }

    /// Returns the word after the newest was taken.
    fn without_newest(self) -> Self {
        let popped = ((self.0 >> POPPED) + 1) & FIELD;
        Self((self.0 & !(FIELD << POPPED)) | (popped << POPPED))
    }
}

/// One generation of slots, linked to the older ones.
struct Slots<T> {
    cells: Box<[UnsafeCell<MaybeUninit<T>>]>,
    older: *mut Slots<T>,
}

impl<T> Slots<T> {
    fn new(capacity: usize, older: *mut Self) -> *mut Self {
        let cells = (0..capacity)
            .map(|_| UnsafeCell::new(MaybeUninit::uninit()))
            .collect();
        Box::into_raw(Box::new(Self { cells, older }))
    }

    fn cell(&self, position: u64) -> &UnsafeCell<MaybeUninit<T>> {
        &self.cells[position as usize & (self.cells.len() - 1)]
    }
}

impl<T> batch::Slots for Slots<T> {
    type Task = T;

    unsafe fn take(&self, position: u64) -> T {
        // SAFETY: a claimed slot is initialised, and not written until it is released.
        self.cell(position)
            .with(|slot| unsafe { (*slot).assume_init_read() })
    }

    unsafe fn put(&self, position: u64, task: T) {
        // SAFETY: a free slot is the owner's, and it holds nothing that would need dropping.
        self.cell(position)
            .with_mut(|slot| unsafe { (*slot).write(task) });
    }
}

/// The part shared by owner and thieves.
struct Deque<T> {
    ends: CachePadded<Ends>,
    slots: AtomicPtr<Slots<T>>,
}

/// Both words on one cache line: the owner writes both, and a thief that looks reads both.
struct Ends {
    word: AtomicU64,
    pushed: AtomicU64,
}

// SAFETY: slots are reached through the protocol above only, which gives each queued task to
// exactly one thread, with a happens-before edge from writer to reader; so tasks cross threads
// (Send) and are never shared.
unsafe impl<T: Send> Sync for Deque<T> {}
// SAFETY: as above; the slots belong to this value.
unsafe impl<T: Send> Send for Deque<T> {}

impl<T> Deque<T> {
    /// Returns the newest slots, or for a thief perhaps the ones before.
    fn slots(&self) -> &Slots<T> {
        // SAFETY: never null, and freed with the deque only.
        unsafe { &*self.slots.load(Acquire) }
    }

    /// Performs protocol steps 4 and 5: returns the first claimed position and how many. `wanted`
    /// maps the victim's length to a number.
    fn claim(&self, wanted: impl Fn(usize) -> usize) -> Option<(u64, u64)> {
        let Ends {
            word: shared,
            pushed,
        } = &*self.ends;
        let mut word = Word(shared.load(Acquire));
        // Only the announcing thread leaves the announced state: once `ours` is set, a gate that is
        // not open is ours.
        let mut ours = false;

        loop {
            if !ours && (word.gate() != 0 || word.len(pushed.load(Acquire)) == 0) {
                return None;
            }
            let announced = word.with_gate(ANNOUNCED);
            match shared.compare_exchange_weak(word.0, announced.0, Acquire, Acquire) {
                Ok(_) => ours = true,
                Err(seen) => {
                    word = Word(seen);
                    continue;
                }
            }

            // `wanted` may panic.
            let retract = Retract(shared);
            let len = announced.len(pushed.load(Acquire));
            let n = if len == 0 {
                0
            } else {
                (wanted(len as usize) as u64).min(len)
            };

            if n == 0 {
                return None;
            }
            std::mem::forget(retract);
            let claimed = announced.without_oldest(n).with_gate(MOVING | n);
            match shared.compare_exchange(announced.0, claimed.0, AcqRel, Acquire) {
                Ok(_) => return Some((word.next(), n)),
                Err(seen) => word = Word(seen),
            }
        }
    }

    /// Performs protocol step 7.
    fn release(&self) {
        self.ends.word.fetch_and(!(MOVING | FIELD), Release);
    }
}

/// Takes an announcement back when it is dropped.
struct Retract<'a>(&'a AtomicU64);

impl Drop for Retract<'_> {
    #[inline]
    fn drop(&mut self) {
        self.0.fetch_and(!FIELD, Relaxed);
    }
}

impl<T> Drop for Deque<T> {
    fn drop(&mut self) {
        let word = Word(self.ends.word.load(Relaxed));
        for i in 0..word.len(self.ends.pushed.load(Relaxed)) {
            // SAFETY: `&mut self`: no other thread is at work, and each queued position is taken
            // once.
            drop(unsafe { self.slots().take(word.next() + i) });
        }

        let mut slots = self.slots.load(Relaxed);
        while !slots.is_null() {
            // SAFETY: made by `Box::into_raw`, on the list once, no longer read by anyone. Cells
            // drop no tasks.
            let boxed = unsafe { Box::from_raw(slots) };
            slots = boxed.older;
        }
    }
}

/// Creates a deque for `capacity` tasks, a power of two up to [`MAX_CAPACITY`], and returns its
/// owner's half.
///
/// # Panics
/// If `capacity` is any other number.
///
/// ```
/// use plainweave::queue::deque::deque;
///
/// let mut owner = deque(8);
/// (1..=3).for_each(|n| owner.push(n).unwrap());
/// assert_eq!((owner.pop_newest(), owner.pop_oldest()), (Some(3), Some(1)));
/// assert_eq!(owner.stealer().steal_one(), Some(2));
/// ```
#[must_use]
pub fn deque<T: Send>(capacity: usize) -> Owner<T> {
    deque_at(capacity, 0)
}

/// Creates a [`deque`] with a first position, so that tests cross the wrap.
pub(super) fn deque_at<T: Send>(capacity: usize, first: u64) -> Owner<T> {
    let legal = capacity.is_power_of_two() && capacity <= MAX_CAPACITY;
    assert!(
        legal,
        "deque capacity {capacity}: not a power of two up to {MAX_CAPACITY}"
    );
    let slots = AtomicPtr::new(Slots::new(capacity, ptr::null_mut()));
    let ends = Ends {
        word: AtomicU64::new((first & FIELD) << NEXT),
        pushed: AtomicU64::new(first),
    };

    Owner::new(Arc::new(Deque {
        ends: CachePadded::new(ends),
        slots,
    }))
}
