//! A bound on the requests in progress: each holds a stack and buffers until its client has taken the answer, and
//! nothing else says how many there are. A connection between two requests holds neither, and is not counted here.
//!
//! Steps of TLS handshakes have a bound of their own: they wait for each other, so a crowd of them would keep requests
//! of connections that are established from being served.

use std::ops::Deref;
#[cfg(feature = "http2")]
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

use crossbeam_utils::CachePadded;

/// Requests, or steps of handshakes, in progress: counted and limited.
#[derive(Debug)]
pub(super) struct InProgress {
    now: CachePadded<AtomicUsize>,
    max: usize,
    shed: AtomicU64,
}

/// The right of one of them to be in progress; returned on drop. It borrows the count, or owns a share of it.
#[derive(Debug)]
pub(super) struct Permit<P: Deref<Target = InProgress>>(P);

impl InProgress {
    pub(super) fn new(max: usize) -> Self {
        Self { now: CachePadded::default(), max, shed: AtomicU64::new(0) }
    }

    /// Returns a permit, or `None` at the limit.
    pub(super) fn begin(&self) -> Option<Permit<&Self>> {
        self.take().then(|| Permit(self))
    }

    /// Does what [`Self::begin`] does, for a request that has nothing to borrow from.
    #[cfg(feature = "http2")]
    pub(super) fn begin_owned(self: &Arc<Self>) -> Option<Permit<Arc<Self>>> {
        self.take().then(|| Permit(self.clone()))
    }

    fn take(&self) -> bool {
        let one_more = |now| (now < self.max).then_some(now + 1);
        self.now.fetch_update(Relaxed, Relaxed, one_more).is_ok()
    }

    /// Counts one that was refused for lack of a permit.
    pub(super) fn count_shed(&self) {
        self.shed.fetch_add(1, Relaxed);
    }

    pub(super) fn now(&self) -> usize {
        self.now.load(Relaxed)
    }

    pub(super) fn max(&self) -> usize {
        self.max
    }

    pub(super) fn shed(&self) -> u64 {
        self.shed.load(Relaxed)
    }
}

impl<P: Deref<Target = InProgress>> Drop for Permit<P> {
    fn drop(&mut self) {
        self.0.now.fetch_sub(1, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(feature = "http2")]
    fn permits_without_a_borrow_are_the_same() {
        let requests = Arc::new(InProgress::new(1));
        let one = requests.begin_owned();
        assert!(one.is_some() && requests.begin_owned().is_none() && requests.begin().is_none());
        drop(one);
        assert!(requests.begin().is_some());
    }

    #[test]
    fn permits_are_as_many_as_allowed_and_come_back() {
        let requests = InProgress::new(2);
        let (one, two) = (requests.begin(), requests.begin());
        assert!(one.is_some() && two.is_some() && requests.begin().is_none() && requests.begin().is_none());
        assert_eq!(requests.now(), 2);
        drop(one);
        let three = requests.begin();
        assert!(three.is_some() && requests.begin().is_none());
        drop((two, three));
        assert_eq!(requests.now(), 0);
    }
}
