//! Moving tasks that are already claimed: the common part of [ring](super::ring) and
//! [deque](super::deque).
//!
//! Both claim a run of positions by one change of a word, and move the tasks out afterwards. Their
//! essays say how they claim, and why nobody writes to a claimed slot; the moves are here. A
//! position is any number that is right modulo the capacity, so counting past a wrap needs no care.

#![expect(unsafe_code, reason = "moves tasks out of slots that are claimed")]

/// Slots for tasks, by position.
pub(super) trait Slots {
    type Task;

    /// Moves the task at `position` out.
    ///
    /// # Safety
    /// The caller owns the position by a claim, and takes it once.
    unsafe fn take(&self, position: u64) -> Self::Task;

    /// Moves `task` into `position`; visible to others once the owner has published it.
    ///
    /// # Safety
    /// The caller is the owner, these are its newest slots, and the position is free.
    unsafe fn put(&self, position: u64, task: Self::Task);
}

/// Moves `n` tasks, at least one, from `first` on: returns the first, puts the others into `own`
/// from `end` on.
///
/// # Safety
/// The caller has claimed `n` positions of `victim` from `first` on, and takes them once. It owns
/// `own`, whose newest slots these are, and `n - 1` positions there from `end` on are free.
#[inline]
pub(super) unsafe fn steal<S: Slots>(victim: &S, first: u64, n: u64, own: &S, end: u64) -> S::Task {
    // SAFETY: claimed, by the caller's promise, and taken once.
    let oldest = unsafe { victim.take(first) };
    for i in 1..n {
        // SAFETY: as above; a free position of the caller's own queue.
        unsafe { own.put(end.wrapping_add(i - 1), victim.take(first.wrapping_add(i))) };
    }
    oldest
}

/// Tasks that an owner has claimed, the oldest first. Dropping it drops the remaining ones. It
/// borrows the owner, so that the slots are not refilled before.
pub(super) struct Batch<'a, S: Slots> {
    slots: &'a S,
    next: u64,
    left: u64,
}

impl<'a, S: Slots> Batch<'a, S> {
    /// # Safety
    /// The caller has claimed `left` positions from `next` on, and `'a` borrows the owner of
    /// `slots` exclusively.
    pub(super) unsafe fn new(slots: &'a S, next: u64, left: u64) -> Self {
        Self { slots, next, left }
    }
}

impl<S: Slots> Iterator for Batch<'_, S> {
    type Item = S::Task;

    fn next(&mut self) -> Option<S::Task> {
        self.left = self.left.checked_sub(1)?;
        let position = self.next;
        self.next = position.wrapping_add(1);
        // SAFETY: claimed, and not refilled, by the promise to `new`; each position is taken once.
        Some(unsafe { self.slots.take(position) })
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left as usize, Some(self.left as usize))
    }
}

impl<S: Slots> ExactSizeIterator for Batch<'_, S> {}

impl<S: Slots> Drop for Batch<'_, S> {
    fn drop(&mut self) {
        self.for_each(drop);
    }
}
