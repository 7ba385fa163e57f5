//! The owner's half of a [ring](super): push, pop, and making room when it is full.

#![expect(unsafe_code, reason = "puts and takes them")]

use std::collections::VecDeque;

use super::{Head, POSITIONS, Ring, Stealer, distance};
use crate::queue::batch::{Batch, Slots};
use crate::shim::Arc;
use crate::shim::atomic::Ordering::{Acquire, Relaxed, Release};

/// The owner's half: its methods that change the ring take `&mut self`, so there is one owner at a
/// time.
pub struct Owner<T> {
    pub(super) ring: Arc<Ring<T>>,
}

impl<T: Send> Owner<T> {
    /// Creates the only owner of a new ring.
    pub(super) fn new(ring: Arc<Ring<T>>) -> Self {
        Self { ring }
    }

    /// Appends `task` as the newest, or returns it when every slot is queued or still held by a
    /// thief.
    #[inline]
    pub fn push(&mut self, task: T) -> Result<(), T> {
        if self.free() == 0 {
            return Err(task);
        }
        let tail = self.tail();
        // SAFETY: the owner saw a free slot at `tail`, and nobody else makes slots occupied.
        unsafe { self.ring.put(tail, task) };
        self.publish(tail, 1);
        Ok(())
    }

    /// Appends the first of `tasks` as the newest, as many as there are free slots. They become
    /// visible to thieves together.
    pub fn push_all(&mut self, tasks: &mut VecDeque<T>) {
        let tail = self.tail();
        let n = self.free().min(tasks.len());
        if n == 0 {
            return;
        }

        for (i, task) in tasks.drain(..n).enumerate() {
            // SAFETY: the owner saw `n` free slots from `tail` on, and nobody else makes slots
            // occupied.
            unsafe { self.ring.put(tail.wrapping_add(i as u64) & POSITIONS, task) };
        }

        self.publish(tail, n as u64);
    }

    /// Takes the oldest task: one uncontended CAS.
    #[inline]
    pub fn pop(&mut self) -> Option<T> {
        let (position, _) = self.claim(|len| len.min(1))?;
        // SAFETY: claimed by this owner, taken once.
        Some(unsafe { self.ring.take(position) })
    }

    /// Takes the older half (rounded up) at once, oldest first: room after a [`push`](Self::push)
    /// that failed. While a thief copies, the room appears only when it is done: send the failed
    /// task along with the batch. Tasks left in the iterator are dropped with it.
    pub fn take_half(&mut self) -> impl ExactSizeIterator<Item = T> {
        let (next, left) = self.claim(|len| len.div_ceil(2)).unwrap_or((0, 0));
        // SAFETY: just claimed; the batch borrows this owner.
        unsafe { Batch::new(&*self.ring, next, left) }
    }

    /// Returns the number of queued tasks: exact except for thieves, which only make it smaller.
    #[inline]
    pub fn len(&self) -> usize {
        distance(Head(self.ring.ends.head.load(Relaxed)).next(), self.tail()) as usize
    }

    /// Returns whether [`len`](Self::len) is 0.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the number of pushes that are sure to succeed; slots that a thief still copies from
    /// do not count.
    #[inline]
    pub fn free(&self) -> usize {
        let head = Head(self.ring.ends.head.load(Acquire));
        (self.ring.capacity() - distance(head.next(), self.tail()) - head.held()) as usize
    }

    /// Returns the number of slots.
    pub fn capacity(&self) -> usize {
        self.ring.slots.len()
    }

    /// Returns a handle for thieves.
    pub fn stealer(&self) -> Stealer<T> {
        Stealer::new(Arc::clone(&self.ring))
    }

    /// Returns where the next push goes.
    pub(super) fn tail(&self) -> u64 {
        self.ring.ends.tail.load(Relaxed)
    }

    /// Publishes `n` tasks written from `tail` on (steps 1 and 6).
    pub(super) fn publish(&mut self, tail: u64, n: u64) {
        self.ring
            .ends
            .tail
            .store(tail.wrapping_add(n) & POSITIONS, Release);
    }

    /// Performs protocol step 2 for `wanted(len)` tasks at once: returns the first position and how
    /// many.
    #[inline]
    fn claim(&mut self, wanted: impl Fn(u64) -> u64) -> Option<(u64, u64)> {
        let tail = self.tail();
        let mut head = Head(self.ring.ends.head.load(Relaxed));
        loop {
            let n = wanted(distance(head.next(), tail));
            if n == 0 {
                return None;
            }
            match self
                .ring
                .ends
                .head
                .compare_exchange_weak(head.0, head.taken(n), Release, Relaxed)
            {
                Ok(_) => return Some((head.next(), n)),
                Err(seen) => head = Head(seen),
            }
        }
    }
}
