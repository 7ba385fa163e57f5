//! Circles of fibers that wait for each other, found while other fibers run.
//!
//! The watchdog looks for deadlocks when nothing runs any more. Two fibers of a busy server that
//! take two locks in opposite orders would never be found that way. But both wait for long, so the
//! rounds over such fibers (`sched/long_waits`) come by them: each round leaves here which fiber
//! waits for which, for locks and joins without a time limit. A fiber waits for one other at most,
//! so to follow the edges from each finds a circle in linear time. That is a *suspicion*, since not
//! all was seen at one moment: the watchdog asks all fibers, as a dump does, and reports what it
//! finds (`watchdog/deadlock`).

#![deny(unsafe_code)]

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

/// The lower halves of the numbers of a fiber and of the one that it waits for.
pub(super) type Edge = (u32, u32);

/// The most edges of a round; of those beyond no circles are found.
pub(super) const MOST_EDGES: usize = 100_000;

/// Who waits for whom, as the last rounds saw it.
#[derive(Debug, Default)]
pub(crate) struct Circles {
    /// Somebody wants to know.
    wanted: AtomicBool,
    suspected: AtomicBool,
    /// By what the round was over: 0 for the fibers that may move, or a worker's number and one.
    rounds: Mutex<HashMap<usize, Vec<Edge>>>,
}

impl Circles {
    /// Has rounds look for circles from now on.
    pub(crate) fn want(&self) {
        self.wanted.store(true, Ordering::Relaxed);
    }

    pub(super) fn are_wanted(&self) -> bool {
        self.wanted.load(Ordering::Relaxed)
    }

    /// Replaces what the last round over the same fibers found. Returns whether there is a circle
    /// now.
    pub(super) fn publish(&self, round: usize, edges: Vec<Edge>) -> bool {
        let mut rounds = self.rounds.lock().unwrap_or_else(PoisonError::into_inner);
        if edges.is_empty() {
            rounds.remove(&round);
            return false;
        }

        rounds.insert(round, edges);
        let next = rounds.values().flatten().copied().collect();
        let found = has_circle(&next);
        if found {
            self.suspect();
        }

        found
    }

    /// Has the watchdog look.
    pub(crate) fn suspect(&self) {
        self.suspected.store(true, Ordering::Release);
    }

    /// Returns whether a circle is suspected.
    pub(crate) fn are_suspected(&self) -> bool {
        self.suspected.load(Ordering::Acquire)
    }

    /// Takes the suspicion back before it is looked into.
    pub(crate) fn take_suspicion(&self) -> bool {
        self.are_suspected() && self.suspected.swap(false, Ordering::AcqRel)
    }
}

/// Returns whether some path comes back to where it has been.
fn has_circle(next: &HashMap<u32, u32>) -> bool {
    // The walk that has come by, by its number.
    let mut walks: HashMap<u32, usize> = HashMap::new();
    next.keys().enumerate().any(|(walk, start)| {
        let mut at = *start;
        loop {
            match walks.get(&at) {
                Some(earlier) => return *earlier == walk,
                None => walks.insert(at, walk),
            };

            match next.get(&at) {
                Some(to) => at = *to,
                None => return false,
            }
        }
    })
}

#[cfg(all(test, not(loom)))]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn circles(edges: &[Edge]) -> bool {
        has_circle(&edges.iter().copied().collect())
    }

    #[test]
    fn a_circle_is_found_wherever_it_is() {
        assert!(!circles(&[]));
        assert!(!circles(&[(1, 2), (2, 3), (4, 3), (3, 9)]));
        assert!(circles(&[(1, 1)]));
        assert!(circles(&[(7, 1), (1, 2), (2, 3), (3, 1)]));
    }

    #[test]
    fn what_rounds_saw_is_put_together_and_replaced() {
        let circles = Circles::default();
        assert!(!circles.publish(0, vec![(1, 2)]));
        assert!(!circles.take_suspicion());
        assert!(circles.publish(3, vec![(2, 1)]), "over two rounds");
        assert!(circles.take_suspicion() && !circles.are_suspected());
        assert!(!circles.publish(3, Vec::new()));
        assert!(!circles.publish(4, vec![(8, 9)]));
    }

    proptest! {
        /// As by following each fiber for as many steps as there are fibers.
        #[test]
        fn as_by_long_walks(next in prop::collection::hash_map(0u32..12, 0u32..12, 0..12)) {
            let comes_back = |start: &u32| {
                let mut at = *start;
                (0..12).any(|_| match next.get(&at) {
                    Some(to) => {
                        at = *to;
                        at == *start
                    }
                    None => false,
                })
            };
            prop_assert_eq!(has_circle(&next), next.keys().any(comes_back));
        }
    }
}
