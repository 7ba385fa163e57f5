//! The thieves' half of a [deque](super): looks and steals.

use std::fmt;

use super::{Deque, Owner, Word};
use crate::queue::batch::{self, Slots as _};
use crate::shim::Arc;
use crate::shim::atomic::Ordering::Acquire;

/// The thieves' half. Any thread; as many as there are workers.
pub struct Stealer<T> {
    deque: Arc<Deque<T>>,
}

impl<T> Clone for Stealer<T> {
    fn clone(&self) -> Self {
        Self { deque: Arc::clone(&self.deque) }
    }
}

impl<T: Send> Stealer<T> {
    /// A handle to somebody's deque.
    pub(super) fn new(deque: Arc<Deque<T>>) -> Self {
        Self { deque }
    }

    /// Any thread. Tasks queued, as a hint. Never 0 while a task is queued whose push happened before this look;
    /// tasks already claimed by a thief are that thief's and do not count.
    #[inline]
    pub fn len(&self) -> usize {
        // The word first: `pushed` can then only be newer, and the answer only too large.
        let word = Word(self.deque.ends.word.load(Acquire));
        word.len(self.deque.ends.pushed.load(Acquire)) as usize
    }

    /// Any thread. See [`len`](Self::len).
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Any thread. Moves `wanted(len)` of the victim's oldest tasks (fewer if the thief lacks room; 0 declines; asked
    /// only when `len > 0`, and again if the owner interferes) to the end of the thief's deque, oldest first, except
    /// the oldest: that is returned, to be run at once. `None`: empty, declined, busy with another thief, or one's own.
    pub fn steal_into(&self, thief: &mut Owner<T>, wanted: impl Fn(usize) -> usize) -> Option<T> {
        if Arc::ptr_eq(&self.deque, &thief.deque) {
            return None;
        }
        let room = thief.free() + 1;
        let (first, n) = self.deque.claim(|len| wanted(len).min(room))?;
        let slots = self.deque.slots();
        // SAFETY: claimed by this thief, taken once. Its own slots are free: `n - 1 <= thief.free()`, which only grows
        // while the owner is borrowed; they are published below.
        let oldest = unsafe { batch::steal(slots, first, n, thief.deque.slots(), thief.end()) };
        self.deque.release();
        if n > 1 {
            thief.publish(n - 1);
        }
        Some(oldest)
    }

    /// Any thread. Steals the oldest task. `None`: empty, or busy with another thief.
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
