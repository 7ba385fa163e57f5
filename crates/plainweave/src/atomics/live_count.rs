//! How many of a scope's children are alive, and which of them wakes the scope's owner.
//!
//! 1. The owner, or a child, counts a new child before it can end (Relaxed: whoever starts it
//!    publishes it).
//! 2. A child that ends subtracts itself (Release). The last one wakes the owner.
//! 3. The owner waits until it reads 0 (Acquire). It reads the last subtraction, and the others are
//!    earlier in the release sequence of the word, so it sees all that the children did
//!    (`loom_the_owner_sees_what_children_did`).
//!
//! Once the last child has subtracted itself, the owner may end the scope: all that the child still
//! touches is the owner's waker, in memory that the two share.

#[cfg(all(test, loom))]
mod models;

use crate::shim::atomic::{AtomicUsize, Ordering};

/// The count.
#[derive(Debug)]
pub(crate) struct LiveCount(AtomicUsize);

impl LiveCount {
    pub(crate) fn new() -> Self {
        Self(AtomicUsize::new(0))
    }

    /// Counts a new child.
    pub(crate) fn begin(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a child as ended. Returns true if it was the last; the caller must then wake the
    /// owner.
    #[must_use]
    pub(crate) fn end(&self) -> bool {
        self.0.fetch_sub(1, Ordering::Release) == 1
    }

    /// Returns the number of children that have not ended.
    pub(crate) fn get(&self) -> usize {
        self.0.load(Ordering::Acquire)
    }
}
