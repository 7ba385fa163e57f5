//! How a wait for several things ends once: the word that the waiter, its notifiers and the peers
//! that claim it share.
//!
//! 1. The waiter opens the word, then enters its sources' lists.
//! 2. A notifier ("something has changed: look at operation `n` first") or a peer ("I have done
//!    operation `n`") exchanges `OPEN` for its own value. Whoever fails leaves the waiter alone:
//!    its wait is over already.
//! 3. The waiter closes the word before it touches any source again, and learns who was first. If
//!    that was a peer, it has done the operation: the waiter takes that outcome and no other.
//!
//! All sides make one read-modify-write on one word and only `OPEN` can be changed by others, so
//! one of them ends the wait (`loom_one_party_ends_a_wait`). Between closing and opening nobody can
//! claim the waiter, which is free to try its operations itself.

use crate::shim::atomic::{AtomicUsize, Ordering};

/// The waiter may be notified or claimed.
const OPEN: usize = 0;
/// The waiter is at work itself.
const CLOSED: usize = 1;
/// Something has changed at operation 0. From here on, even values stand for such notices of the
/// next operations, and the odd value after each for a claim of the same operation.
const ENDED: usize = 2;

/// Who ended a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    /// Something has changed at this operation.
    Notified(usize),
    /// A peer has done this operation.
    Claimed(usize),
}

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

    /// Performs step 2 for a notifier of a change at operation `n`. Returns whether it is the one
    /// to wake the waiter.
    pub(crate) fn notify(&self, n: usize) -> bool {
        self.end(ENDED + 2 * n)
    }

    /// Performs step 2 for a peer that can do operation `n`. Returns whether it must do so, and
    /// wake the waiter.
    pub(crate) fn claim(&self, n: usize) -> bool {
        self.end(ENDED + 2 * n + 1)
    }

    fn end(&self, value: usize) -> bool {
        self.0
            .compare_exchange(OPEN, value, Ordering::AcqRel, Ordering::Relaxed)
            .is_ok()
    }

    /// Performs step 3. Returns who was first, if anybody was.
    pub(crate) fn close(&self) -> Option<Ended> {
        let ended = self.0.swap(CLOSED, Ordering::AcqRel).checked_sub(ENDED)?;
        Some(if ended % 2 == 1 {
            Ended::Claimed(ended / 2)
        } else {
            Ended::Notified(ended / 2)
        })
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
            let peer = claim.clone();
            let notifier = claim.clone();
            let peer = loom::thread::spawn(move || peer.claim(4));
            let notifier = loom::thread::spawn(move || notifier.notify(3));
            let early = claim.close();
            let claimed = peer.join().unwrap();
            let notified = notifier.join().unwrap();

            assert!(!(claimed && notified), "both ended the wait");
            let ended = claimed
                .then_some(Ended::Claimed(4))
                .or(notified.then_some(Ended::Notified(3)));
            assert_eq!(early, ended, "who came is seen, and who did not is not");
            assert!(!claim.is_open());
        });
    }
}
