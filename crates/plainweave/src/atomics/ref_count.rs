//! A count of references that finds the last one, without a read-modify-write if there is only one.
//!
//! 1. *Add*: add one (Relaxed). The caller has a reference, so the count is not 0.
//! 2. *Release*: load (Acquire); if it is 1 the caller's is the only reference, and no other thread
//!    can add one, since it would need one to begin with. Otherwise subtract one (Release and
//!    Acquire), and see whether that was the last.
//!
//! A fiber whose handle is dropped first ends with a single reference, so most fibers are freed by
//! the load alone. All that other holders have done to the object happens before its end: each of
//! them released, and the last acquires (`loom_the_last_one_frees`).

#[cfg(all(test, loom))]
mod models;

use crate::shim::atomic::{AtomicUsize, Ordering};

/// The count.
#[derive(Debug)]
pub(crate) struct RefCount(AtomicUsize);

impl RefCount {
    pub(crate) fn new(references: usize) -> Self {
        Self(AtomicUsize::new(references))
    }

    /// Counts another reference.
    ///
    /// Context: a holder of one.
    #[inline]
    pub(crate) fn add(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    /// Gives up a reference. Returns true if it was the last: the caller frees the object.
    #[inline]
    #[must_use]
    pub(crate) fn release(&self) -> bool {
        self.0.load(Ordering::Acquire) == 1 || self.0.fetch_sub(1, Ordering::AcqRel) == 1
    }
}
