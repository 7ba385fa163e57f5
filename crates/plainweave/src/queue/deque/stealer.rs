//! The thieves' half of a [deque](super): looks and steals.

#![expect(unsafe_code, reason = "the same, for a thief")]

use std::fmt;

use super::{Deque, Owner, Word};
use crate::queue::batch::{self, Slots as _};
use crate::shim::Arc;
use crate::shim::atomic::Ordering::Acquire;

/// The thieves' half; each worker may have one.
pub struct Stealer<T> {
    deque: Arc<Deque<T>>,
}

impl<T> Clone for Stealer<T> {
    fn clone(&self) -> Self {
        Self {
            deque: Arc::clone(&self.deque),
        }
    }
}

impl<T: Send> Stealer<T> {
    /// Creates a handle to another worker's deque.
    pub(super) fn new(deque: Arc<Deque<T>>) -> Self {
        Self { deque }
    }

    /// Returns the number of queued tasks, as a hint. Never 0 while a task is queued whose push
    /// happened before this look; tasks already claimed by a thief belong to that thief and do not
    /// count.
    #[inline]
    pub fn len(&self) -> usize {
        // The word first: `pushed` can then only be newer, and the result only too large.
        let word = Word(self.deque.ends.word.load(Acquire));
        word.len(self.deque.ends.pushed.load(Acquire)) as usize
    }

    /// Returns whether [`len`](Self::len) is 0.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Moves `wanted(len)` of the victim's oldest tasks (fewer if the thief lacks room; 0 declines;
    /// called only when `len > 0`, and again if the owner interferes) to the end of the thief's
    /// deque, oldest first, except the oldest, which is returned, to be run at once. `None`: empty,
    /// declined, busy with another thief, or the thief's own deque.
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
        if Arc::ptr_eq(&self.deque, &thief.deque) {
            return None;
        }
        let room = thief.free() + 1;
        let (first, n) = self.deque.claim(|len| wanted(len).min(room))?;
        let slots = self.deque.slots();

        // SAFETY: claimed by this thief, taken once. Its own slots are free: `n - 1 <=
        // thief.free()`, which only grows while the owner is borrowed; they are published below.
        let oldest = unsafe { batch::steal(slots, first, n, thief.deque.slots(), thief.end()) };
        self.deque.release();
        if n > 1 {
            thief.publish(n - 1);
        }
        Some((oldest, n as usize))
    }

    /// Steals the oldest task. `None`: empty, or busy with another thief.
    pub fn steal_one(&self) -> Option<T> {
        let (position, _) = self.deque.claim(|_| 1)?;
        // SAFETY: claimed by this thief, taken once.
        let task = unsafe { self.deque.slots().take(position) };
        self.deque.release();
        Some(task)
    }
}

impl<T: Send> fmt::Debug for Stealer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stealer").field("len", &self.len()).finish()
    }
}
