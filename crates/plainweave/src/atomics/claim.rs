//! How a wait for several things ends once: the word that the waiter, its notifiers and the peers that claim it share.
//!
//! 1. The waiter opens the word, then enters its sources' lists.
//! 2. A notifier ("something has changed: look again") or a peer ("I have done your operation number `n`") exchanges
//!    `OPEN` for its own value. Whoever fails leaves the waiter alone: its wait is over already.
//! 3. The waiter closes the word before it touches any source again, and learns whether a peer was first. A peer that
//!    was first has done the operation: the waiter takes that outcome and no other.
//!
//! All sides make one read-modify-write on one word and only `OPEN` can be changed by others, so one of them ends the
//! wait (`loom_one_party_ends_a_wait`). Between closing and opening nobody can claim the waiter, which is free to try
//! its operations itself.

use crate::shim::atomic::{AtomicUsize, Ordering};

/// The waiter may be notified or claimed.
const OPEN: usize = 0;
/// The waiter is at work itself.
const CLOSED: usize = 1;
/// Something has changed.
const NOTIFIED: usize = 2;
/// A peer has done operation 0; the next values stand for the next operations.
const CLAIMED: usize = 3;

/// The word; closed at first.
#[derive(Debug)]
pub(crate) struct Claim(AtomicUsize);

impl Claim {
    pub(crate) fn new() -> Self {
        Self(AtomicUsize::new(CLOSED))
    }

    /// Performs step 1.
    ///
    /// Context: the waiter, which is in no list.
    pub(crate) fn open(&self) {
        self.0.store(OPEN, Ordering::Release);
    }

    /// Returns whether the waiter can be notified or claimed.
    pub(crate) fn is_open(&self) -> bool {
        self.0.load(Ordering::Acquire) == OPEN
    }

    /// Performs step 2 for a notifier. Returns whether it is the one to wake the waiter.
    pub(crate) fn notify(&self) -> bool {
        self.end(NOTIFIED)
    }

    /// Performs step 2 for a peer that can do operation `n`. Returns whether it must do so, and wake the waiter.
    pub(crate) fn claim(&self, n: usize) -> bool {
        self.end(CLAIMED + n)
    }

    fn end(&self, value: usize) -> bool {
        self.0.compare_exchange(OPEN, value, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// Performs step 3. Returns the operation that a peer has done, if one was first.
    pub(crate) fn close(&self) -> Option<usize> {
        self.0.swap(CLOSED, Ordering::AcqRel).checked_sub(CLAIMED)
    }
}

#[cfg(all(test, loom))]
mod loom_models {
    use super::*;
    use loom::sync::Arc;

    #[test]
    fn loom_one_party_ends_a_wait() {
        loom::model(|| {
            let claim = Arc::new(Claim::new());
            claim.open();
            let (peer, notifier) = (claim.clone(), claim.clone());
            let peer = loom::thread::spawn(move || peer.claim(4));
            let notifier = loom::thread::spawn(move || notifier.notify());
            let early = claim.close();
            let (claimed, notified) = (peer.join().unwrap(), notifier.join().unwrap());
            assert!(!(claimed && notified), "both ended the wait");
            assert_eq!(early, claimed.then_some(4), "a claim that came is seen, and one that did not is not");
            assert!(!claim.is_open());
        });
    }
}
