//! A worker's own stacks: the fast path of taking and returning them.
//!
//! A plain vector, used from its end, so that the stack taken next is the one whose top is still in
//! the processor's cache. Half of it is exchanged with the pool at a time: with less, a worker that
//! alternates around a boundary would visit the pool again and again; with more, it would starve
//! the others.

#![deny(unsafe_code)]

use std::cell::Cell;
use std::io;
use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::pool::CachedCount;
use super::{Stack, StackPool};

/// The most stacks that a worker keeps.
pub(super) const CAPACITY: usize = 128;
/// Stacks exchanged with the pool at once.
const BATCH: usize = CAPACITY / 2;

/// A worker's stacks. It can move to a worker's thread but is not shared.
#[derive(Debug)]
pub(crate) struct StackCache {
    /// Free stacks without an owner, the newest last.
    stacks: Vec<Stack>,
    /// `CAPACITY`, or less where the pool's limit is low: the kept stacks come on top of that
    /// limit.
    capacity: usize,
    /// `stacks.len()`, for `StackPool::stats`.
    count: CachedCount,
    pool: Arc<StackPool>,
    not_sync: PhantomData<Cell<()>>,
}

impl StackCache {
    /// Creates an empty cache.
    pub(crate) fn new(pool: Arc<StackPool>) -> StackCache {
        let count = pool.enroll();
        let capacity = CAPACITY.min(pool.config().max_stacks / 8).max(1);
        StackCache {
            stacks: Vec::with_capacity(capacity),
            capacity,
            count,
            pool,
            not_sync: PhantomData,
        }
    }

    /// Returns whether none is cached.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.stacks.is_empty()
    }

    /// Returns whether the next put moves some to the pool.
    #[inline]
    pub(crate) fn is_full(&self) -> bool {
        self.stacks.len() == self.capacity
    }

    /// Takes a stack with no owner; a few ns when one is cached.
    ///
    /// # Errors
    ///
    /// As for [`StackPool::take`].
    #[inline]
    pub(crate) fn take(&mut self) -> io::Result<Stack> {
        if self.stacks.is_empty() {
            self.refill()?;
        }
        let stack = self.stacks.pop().expect("a refill brings at least one");
        self.publish();
        Ok(stack)
    }

    /// Gives back a stack of this pool that is no longer in use or pointed into.
    #[inline]
    pub(crate) fn put(&mut self, stack: Stack) {
        self.pool.disown(&stack);
        if self.is_full() {
            self.flush();
        }
        self.stacks.push(stack);
        self.publish();
    }

    #[inline]
    fn publish(&self) {
        self.count.store(self.stacks.len(), Ordering::Relaxed);
    }

    #[cold]
    fn refill(&mut self) -> io::Result<()> {
        self.pool
            .take_batch(&mut self.stacks, BATCH.min(self.capacity))
    }

    /// Moves the older half to the pool.
    #[cold]
    fn flush(&mut self) {
        self.pool
            .put_batch(self.stacks.drain(..self.capacity.div_ceil(2)));
    }
}

impl Drop for StackCache {
    fn drop(&mut self) {
        self.count.store(0, Ordering::Relaxed);
        self.pool.put_batch(self.stacks.drain(..));
        self.pool.dismiss(&self.count);
    }
}
