//! A bounded FIFO ring: one owner pushes and pops, any thread steals a batch from the old end.
//!
//! **Why it is hard.** A thief wants to copy several tasks while the owner goes on pushing and
//! popping. If it copies first and claims afterwards (Chase-Lev), it reads slots that the owner may
//! be overwriting: a data race even when the claim then fails. If it claims first, the owner must
//! not reuse the slots until the copy is done. So a claim has a beginning and an end, and both must
//! be visible in one atomic word.
//!
//! **The words.** Positions count up for ever (48 bits); position `p` lives in slot `p mod
//! capacity`.
//!
//! ```text
//!   head: AtomicU64 = next << 16 | held        tail: AtomicU64, written by the owner alone
//!
//!        next-held          next                      tail
//!   ---------+---------------+-------------------------+-----------  positions
//!    free    | held: a thief | queued: in FIFO order   | free
//!            | copies these  |                         |
//! ```
//!
//! Invariant: `held <= tail - (next - held) <= capacity`. A slot outside `[next - held, tail)`
//! belongs to the owner.
//!
//! **The protocol.**
//! 1. *Push* (owner): load `head` (Acquire), give up if `tail - (next - held)` is the capacity;
//!    write slot `tail`; store `tail + 1` (Release).
//! 2. *Pop* (owner): if `next == tail` it is empty. CAS `head` (Release) to `next + 1`; if a thief
//!    holds slots, then also `held + 1`, so that `next - held`, where the thief begins, does not
//!    change. Then read the slot.
//! 3. *Reserve* (thief): load `head` (Acquire); if `held != 0` another thief is at work: leave.
//!    Load `tail` (Acquire), choose `n <= tail - next`, CAS `head` (Acquire) to `next + n`, `held =
//!    n`.
//! 4. *Copy* (thief): move the reserved slots out. No code that could panic runs here.
//! 5. *Release* (thief): `head &= !HELD` (Release): wait-free, whatever the owner popped meanwhile.
//! 6. *Publish* (thief, as the owner of its own ring): store its own `tail` (Release), once for the
//!    batch.
//!
//! **Why it is safe.** Two threads may want one slot in three ways:
//! * *Pop against reserve* (or two reserves): both CAS the same word; one of them fails and looks
//!   again.
//! * *Push over a slot that is being copied:* the slot is in `[next - held, next)`, and step 1
//!   counts held slots as occupied. A stale `head` only shows fewer free slots. When the push does
//!   see the slot as free, its Acquire load read the thief's Release of step 5 or an owner's CAS
//!   after it in the same release sequence (every change of `head` is a read-modify-write), so the
//!   copy happened before the overwrite.
//! * *Reserve of a slot not yet written:* the thief bounds `n` by a `tail` that it read with
//!   Acquire, which pairs with the Release of step 1. `tail` never shrinks, so a stale one only
//!   yields fewer tasks. It cannot be older than `next` was: step 2's Release and step 3's Acquire
//!   order them.
//!
//! ABA: the CAS of step 3 could be fooled only if `next` wrapped by exactly 2^48 while the thief
//! stood between two instructions: a fortnight of pops at 4 ns. (Two 32-bit halves, the usual
//! packing, wrap in 20 seconds.)
//!
//! **Limits.** One thief at a time: a second one fails at once and tries another victim. A thief
//! that the kernel preempts within steps 3-5 keeps its slots from being reused and other thieves
//! out; the owner goes on popping, and pushing while there is room. Popping the newest is not
//! offered: it would need a fence per pop against step 3; a LIFO slot belongs to the policy.

#![expect(unsafe_code, reason = "slots that one side at a time owns")]

mod owner; // The owner's half.
mod stealer; // The thieves' half.

use std::mem::MaybeUninit;

use crossbeam_utils::CachePadded;

use super::batch::Slots;
use crate::shim::atomic::AtomicU64;
use crate::shim::atomic::Ordering::{Acquire, Relaxed, Release};
use crate::shim::{Arc, UnsafeCell};

pub use owner::Owner;
pub use stealer::Stealer;

/// The default number of slots of a ring; tiny in models, whose state space grows with it.
pub const DEFAULT_CAPACITY: usize = if cfg!(loom) { 4 } else { 256 };

/// The largest capacity: `held` must fit its 16 bits.
pub const MAX_CAPACITY: usize = 1 << 15;

/// Width of `held`, the low field of `head`.
const HELD_BITS: u32 = 16;
/// The low field of `head`: how many slots below `next` still belong to a thief.
const HELD: u64 = (1 << HELD_BITS) - 1;
/// Positions are counted modulo 2^48.
const POSITIONS: u64 = u64::MAX >> HELD_BITS;

/// One reading of the `head` word.
#[derive(Clone, Copy)]
struct Head(u64);

impl Head {
    /// Returns the position of the oldest queued task.
    fn next(self) -> u64 {
        self.0 >> HELD_BITS
    }

    /// Returns the number of slots below `next` that a thief is still copying from.
    fn held(self) -> u64 {
        self.0 & HELD
    }

    /// Returns the word after the owner took `n`: where a thief begins, if there is one, does not
    /// change.
    fn taken(self, n: u64) -> u64 {
        let held = if self.held() == 0 { 0 } else { n };
        self.0.wrapping_add(n << HELD_BITS).wrapping_add(held)
    }

    /// Returns the word after a thief reserved `n`; only without another thief.
    fn reserved(self, n: u64) -> u64 {
        debug_assert!(self.held() == 0 && n <= HELD);
        self.0.wrapping_add(n << HELD_BITS).wrapping_add(n)
    }
}

/// Returns the number of tasks from position `from` up to position `to`, across the wrap.
fn distance(from: u64, to: u64) -> u64 {
    to.wrapping_sub(from) & POSITIONS
}

/// Both ends on one cache line: the owner writes both, a thief that looks reads both, so one
/// transfer serves.
struct Ends {
    head: AtomicU64,
    tail: AtomicU64,
}

struct Ring<T> {
    ends: CachePadded<Ends>,
    slots: Box<[UnsafeCell<MaybeUninit<T>>]>,
}

// SAFETY: slots are reached through the protocol above only, which gives each queued task to
// exactly one thread at a time, with a happens-before edge from writer to reader; so tasks cross
// threads (Send) and are never shared.
unsafe impl<T: Send> Sync for Ring<T> {}

impl<T> Ring<T> {
    fn capacity(&self) -> u64 {
        self.slots.len() as u64
    }

    fn slot(&self, position: u64) -> &UnsafeCell<MaybeUninit<T>> {
        &self.slots[position as usize & (self.slots.len() - 1)]
    }

    /// Performs protocol step 3: returns the first reserved position and how many. `wanted` maps
    /// the victim's length to a number.
    fn reserve(&self, wanted: impl Fn(usize) -> usize) -> Option<(u64, u64)> {
        let mut head = Head(self.ends.head.load(Acquire));
        loop {
            if head.held() != 0 {
                return None;
            }
            // A stale head may lie more than a capacity behind; its CAS fails.
            let len = distance(head.next(), self.ends.tail.load(Acquire)).min(self.capacity());
            let n = if len == 0 {
                0
            } else {
                (wanted(len as usize) as u64).min(len)
            };

            if n == 0 {
                return None;
            }
            match self
                .ends
                .head
                .compare_exchange_weak(head.0, head.reserved(n), Acquire, Acquire)
            {
                Ok(_) => return Some((head.next(), n)),
                Err(seen) => head = Head(seen),
            }
        }
    }

    /// Performs protocol step 5: the copied slots may be reused.
    fn release(&self) {
        self.ends.head.fetch_and(!HELD, Release);
    }
}

impl<T> Slots for Ring<T> {
    type Task = T;

    unsafe fn take(&self, position: u64) -> T {
        // SAFETY: the caller owns an initialised slot that nobody writes until it is released.
        self.slot(position)
            .with(|slot| unsafe { (*slot).assume_init_read() })
    }

    unsafe fn put(&self, position: u64, task: T) {
        // SAFETY: a free slot is the owner's, and it holds nothing that would need dropping.
        self.slot(position)
            .with_mut(|slot| unsafe { (*slot).write(task) });
    }
}

impl<T> Drop for Ring<T> {
    fn drop(&mut self) {
        // The last handle is gone, so no thief is at work and the reads are exact.
        let head = Head(self.ends.head.load(Relaxed));
        for i in 0..distance(head.next(), self.ends.tail.load(Relaxed)) {
            // SAFETY: `&mut self`; each queued position is taken once.
            drop(unsafe { self.take(head.next().wrapping_add(i) & POSITIONS) });
        }
    }
}

/// Creates a ring for `capacity` tasks (a power of two, at most [`MAX_CAPACITY`]; anything else
/// panics) and returns its owner's half.
///
/// ```
/// use plainweave::queue::ring::ring;
///
/// let (mut owner, mut thief) = (ring(8), ring(8));
/// (1..=4).for_each(|n| owner.push(n).unwrap());
/// assert_eq!(owner.stealer().steal_into(&mut thief, |len| len / 2), Some(1), "one to run, the rest to keep");
/// assert_eq!((thief.pop(), owner.pop()), (Some(2), Some(3)));
/// ```
pub fn ring<T: Send>(capacity: usize) -> Owner<T> {
    ring_at(capacity, 0)
}

/// Creates a [`ring`] with a first position, so that tests cross the wrap.
pub(super) fn ring_at<T: Send>(capacity: usize, first: u64) -> Owner<T> {
    let legal = capacity.is_power_of_two() && capacity <= MAX_CAPACITY;
    assert!(
        legal,
        "ring capacity {capacity}: not a power of two up to {MAX_CAPACITY}"
    );
    let ends = Ends {
        head: AtomicU64::new(first << HELD_BITS),
        tail: AtomicU64::new(first & POSITIONS),
    };

    let slots = (0..capacity)
        .map(|_| UnsafeCell::new(MaybeUninit::uninit()))
        .collect();
    Owner::new(Arc::new(Ring {
        ends: CachePadded::new(ends),
        slots,
    }))
}
