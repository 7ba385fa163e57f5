//! The owner's half of a [deque](super): push, pop at either end, growth.

#![expect(unsafe_code, reason = "puts and takes them, copies them when it grows")]

use std::fmt;

use super::{Deque, MAX_CAPACITY, MOVING, Slots, Stealer, Word};
use crate::queue::batch::{Batch, Slots as _};
use crate::shim::Arc;
use crate::shim::atomic::Ordering::{Acquire, Relaxed, Release};

/// The owner's half: its methods that change the deque take `&mut self`, so there is one owner at a
/// time.
pub struct Owner<T> {
    pub(super) deque: Arc<Deque<T>>,
}

impl<T: Send> Owner<T> {
    /// Creates the only owner of a new deque.
    pub(super) fn new(deque: Arc<Deque<T>>) -> Self {
        Self { deque }
    }

    /// Appends `task` as the newest, or returns it when every slot is queued or still held by a
    /// thief.
    ///
    /// # Errors
    /// Returns the task if there is no room; see [`grow`](Self::grow).
    #[inline]
    pub fn push(&mut self, task: T) -> Result<(), T> {
        let word = Word(self.deque.ends.word.load(Acquire));
        let pushed = self.pushed();
        let slots = self.deque.slots();
        if word.held() + word.len(pushed) == slots.cells.len() as u64 {
            return Err(task);
        }
        // SAFETY: the owner saw a free slot at the end, and nobody else makes slots occupied.
        unsafe { slots.put(word.end(pushed), task) };
        self.publish(1);
        Ok(())
    }

    /// Takes the newest task.
    #[inline]
    pub fn pop_newest(&mut self) -> Option<T> {
        let mut word = Word(self.deque.ends.word.load(Relaxed));
        let pushed = self.pushed();
        loop {
            if word.len(pushed) == 0 {
                return None;
            }
            let taken = word.without_newest().disturbed();
            match self
                .deque
                .ends
                .word
                .compare_exchange_weak(word.0, taken.0, Release, Relaxed)
            {
                // SAFETY: claimed by this owner, taken once; it also wrote that slot.
                Ok(_) => return Some(unsafe { self.deque.slots().take(taken.end(pushed)) }),
                Err(seen) => word = Word(seen),
            }
        }
    }

    /// Takes the oldest task.
    #[inline]
    pub fn pop_oldest(&mut self) -> Option<T> {
        let (position, _) = self.claim_oldest(|len| len.min(1))?;
        // SAFETY: claimed by this owner, taken once.
        Some(unsafe { self.deque.slots().take(position) })
    }

    /// Takes the older half (rounded up) at once, oldest first. While a thief is at work, the room
    /// appears only when it is done. Tasks left in the iterator are dropped with it.
    pub fn take_half(&mut self) -> impl ExactSizeIterator<Item = T> {
        let (next, left) = self.claim_oldest(|len| len.div_ceil(2)).unwrap_or((0, 0));
        // SAFETY: just claimed; the batch borrows this owner, so the slots are and stay its newest.
        unsafe { Batch::new(self.deque.slots(), next, left) }
    }

    /// Doubles the capacity; returns false and does nothing at [`MAX_CAPACITY`]. Costs a copy of
    /// all queued tasks, bit by bit.
    #[cold]
    pub fn grow(&mut self) -> bool {
        let old = self.deque.slots();
        if old.cells.len() == MAX_CAPACITY {
            return false;
        }
        let newer = Slots::new(old.cells.len() * 2, self.deque.slots.load(Relaxed));

        // SAFETY: just made, not published yet.
        let new = unsafe { &*newer };
        // Tasks that a thief takes or releases after this load are copied needlessly, which is
        // harmless.
        let word = Word(self.deque.ends.word.load(Acquire));
        for i in 0..word.held() + word.len(self.pushed()) {
            // Modulo 2^21, which both capacities divide.
            let position = word.next().wrapping_sub(word.held()).wrapping_add(i);
            old.cell(position).with(|from| {
                // SAFETY: the slot was written by this owner and is not written any more; the new
                // one is this owner's alone.
                new.cell(position)
                    .with_mut(|to| unsafe { to.copy_from_nonoverlapping(from, 1) });
            });
        }

        self.deque.slots.store(newer, Release);
        true
    }

    /// Returns the number of queued tasks: exact except for thieves, which only make it smaller.
    #[inline]
    pub fn len(&self) -> usize {
        Word(self.deque.ends.word.load(Relaxed)).len(self.pushed()) as usize
    }

    /// Returns whether [`len`](Self::len) is 0.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the number of pushes that are sure to succeed; slots that a thief is still reading
    /// do not count.
    #[inline]
    pub fn free(&self) -> usize {
        let word = Word(self.deque.ends.word.load(Acquire));
        self.capacity() - (word.held() + word.len(self.pushed())) as usize
    }

    /// Returns the current number of slots.
    #[inline]
    pub fn capacity(&self) -> usize {
        self.deque.slots().cells.len()
    }

    /// Returns a handle for thieves.
    pub fn stealer(&self) -> Stealer<T> {
        Stealer::new(Arc::clone(&self.deque))
    }

    /// Returns how often this owner has pushed.
    fn pushed(&self) -> u64 {
        self.deque.ends.pushed.load(Relaxed)
    }

    /// Publishes `n` tasks written from the end on.
    pub(super) fn publish(&mut self, n: u64) {
        self.deque
            .ends
            .pushed
            .store(self.pushed().wrapping_add(n), Release);
    }

    /// Returns where the next push goes.
    pub(super) fn end(&self) -> u64 {
        Word(self.deque.ends.word.load(Relaxed)).end(self.pushed())
    }

    /// Performs protocol step 3 for `wanted(len)` tasks at once: returns the first position and how
    /// many.
    #[inline]
    fn claim_oldest(&mut self, wanted: impl Fn(u64) -> u64) -> Option<(u64, u64)> {
        let mut word = Word(self.deque.ends.word.load(Relaxed));
        let pushed = self.pushed();
        loop {
            let n = wanted(word.len(pushed));
            if n == 0 {
                return None;
            }
            let left = word.without_oldest(n).disturbed();
            let taken = if word.held() == 0 {
                left
            } else {
                left.with_gate(MOVING | (word.held() + n))
            };

            match self
                .deque
                .ends
                .word
                .compare_exchange_weak(word.0, taken.0, Release, Relaxed)
            {
                Ok(_) => return Some((word.next(), n)),
                Err(seen) => word = Word(seen),
            }
        }
    }
}

impl<T: Send> fmt::Debug for Owner<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Owner")
            .field("len", &self.len())
            .field("capacity", &self.capacity())
            .finish()
    }
}
