//! The thieves' half of a [ring](super): looks and steals.

#![expect(unsafe_code, reason = "the same, for a thief")]

use super::{Head, Owner, Ring, distance};
use crate::queue::batch;
#[cfg(test)]
use crate::queue::batch::Slots;
use crate::shim::Arc;
use crate::shim::atomic::Ordering::Acquire;

/// The thieves' half; each worker may have one.
pub struct Stealer<T> {
    ring: Arc<Ring<T>>,
}

impl<T> Clone for Stealer<T> {
    fn clone(&self) -> Self {
        Self {
            ring: Arc::clone(&self.ring),
        }
    }
}

impl<T: Send> Stealer<T> {
    /// Creates a handle to another worker's ring.
    pub(super) fn new(ring: Arc<Ring<T>>) -> Self {
        Self { ring }
    }

    /// Returns the number of queued tasks, as a hint. Never 0 while a task is queued whose push
    /// happened before this look; tasks already reserved by a thief belong to that thief and do not
    /// count.
    pub fn len(&self) -> usize {
        // Head first: tail can then only be newer, and the result only too large.
        let head = Head(self.ring.ends.head.load(Acquire));
        distance(head.next(), self.ring.ends.tail.load(Acquire)).min(self.ring.capacity()) as usize
    }

    /// Returns whether [`len`](Self::len) is 0.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the position of the only queued task, as a hint, if there is one only. Positions are
    /// not used again.
    pub fn sole(&self) -> Option<u64> {
        let head = Head(self.ring.ends.head.load(Acquire));
        let only = distance(head.next(), self.ring.ends.tail.load(Acquire)) == 1;
        only.then(|| head.next())
    }

    /// Steals the older half, rounded up; see [`steal_into`](Self::steal_into).
    #[cfg(test)]
    pub fn steal_half_into(&self, thief: &mut Owner<T>) -> Option<T> {
        self.steal_into(thief, |len| len.div_ceil(2))
    }

    /// Moves `wanted(len)` of the victim's tasks (fewer if the thief lacks room; 0 declines; called
    /// only when `len > 0`, and again if the owner interferes) to the end of the thief's ring,
    /// oldest first, except the oldest, which is returned, to be run at once. `None`: empty,
    /// declined, busy with another thief, or the thief's own ring.
    pub fn steal_into(&self, thief: &mut Owner<T>, wanted: impl Fn(usize) -> usize) -> Option<T> {
        self.steal_batch_into(thief, wanted)
            .map(|(oldest, _)| oldest)
    }

    /// Does the same, and returns how many tasks it has moved, the oldest included.
    pub fn steal_batch_into(
        &self,
        thief: &mut Owner<T>,
        wanted: impl Fn(usize) -> usize,
    ) -> Option<(T, usize)> {
        if Arc::ptr_eq(&self.ring, &thief.ring) {
            return None;
        }
        let room = thief.free() + 1;
        let (first, n) = self.ring.reserve(|len| wanted(len).min(room))?;
        let tail = thief.tail();

        // SAFETY: reserved by this thief, taken once. Its own slots are free: `n - 1 <=
        // thief.free()`, which only grows while the owner is borrowed; they are published below.
        let oldest = unsafe { batch::steal(&*self.ring, first, n, &*thief.ring, tail) };
        self.ring.release();
        if n > 1 {
            thief.publish(tail, n - 1);
        }
        Some((oldest, n as usize))
    }

    #[cfg(test)]
    /// Steals the oldest task. `None`: empty, or busy with another thief.
    pub fn steal_one(&self) -> Option<T> {
        let (position, _) = self.ring.reserve(|_| 1)?;
        // SAFETY: reserved by this thief, taken once.
        let task = unsafe { self.ring.take(position) };
        self.ring.release();
        Some(task)
    }
}
