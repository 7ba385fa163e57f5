//! A bound on the requests in progress: each holds a stack and buffers until its client has taken
//! the answer, and nothing else says how many there are. A connection between two requests holds
//! neither, and is not counted here.
//!
//! Steps of TLS handshakes have a bound of their own: they wait for each other, so a crowd of them
//! would keep requests of connections that are established from being served.

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

use crate::PerCpu;
use crossbeam_utils::CachePadded;

/// A processor keeps this many free permits at most, and takes and gives back half of them at a
/// time.
const KEPT: usize = 32;

/// Requests, or steps of handshakes, in progress: counted and limited.
///
/// Each processor keeps some of the free permits, so that processors seldom write to the same
/// memory. What they keep is there for all before a permit is refused.
#[derive(Debug)]
pub struct InProgress {
    /// Free permits that no processor keeps.
    free: CachePadded<AtomicUsize>,
    kept: PerCpu<AtomicUsize>,
    /// How many a processor takes at a time.
    batch: usize,
    max: usize,
    shed: AtomicU64,
}

/// The right of one of them to be in progress; returned on drop to the processor that it came from.
/// It borrows the count, or owns a share of it.
#[derive(Debug)]
pub struct Permit<P: Deref<Target = InProgress>>(P, usize);

impl InProgress {
    /// Allows `max` of them.
    pub fn new(max: usize) -> Self {
        let kept: PerCpu<AtomicUsize> = PerCpu::new(AtomicUsize::default);
        let batch = (max / kept.len() / 4).clamp(1, KEPT / 2);
        Self {
            free: CachePadded::new(AtomicUsize::new(max)),
            kept,
            batch,
            max,
            shed: AtomicU64::new(0),
        }
    }

    /// Returns a permit, or `None` at the limit.
    pub fn begin(&self) -> Option<Permit<&Self>> {
        Some(Permit(self, self.take()?))
    }

    /// Does what [`Self::begin`] does, for a request that has nothing to borrow from.
    pub fn begin_owned(self: &Arc<Self>) -> Option<Permit<Arc<Self>>> {
        Some(Permit(self.clone(), self.take()?))
    }

    /// Returns the number of the calling processor.
    fn take(&self) -> Option<usize> {
        let processor = self.kept.here();
        let own = &self.kept[processor];
        if take_up_to(own, 1) == 0 {
            let taken = take_up_to(&self.free, self.batch);
            if taken > 0 {
                own.fetch_add(taken - 1, Relaxed);
            } else if self.kept.iter().all(|kept| take_up_to(kept, 1) == 0) {
                return None;
            }
        }

        Some(processor)
    }

    fn give_back(&self, processor: usize) {
        let kept = &self.kept[processor];
        if kept.fetch_add(1, Relaxed) + 1 >= self.batch * 2 {
            self.free.fetch_add(take_up_to(kept, self.batch), Relaxed);
        }
    }

    /// Counts one that was refused for lack of a permit.
    pub fn count_shed(&self) {
        self.shed.fetch_add(1, Relaxed);
    }

    /// Returns how many are in progress now; it may be wrong by those that begin or end meanwhile.
    pub fn now(&self) -> usize {
        let free = self
            .kept
            .iter()
            .map(|kept| kept.load(Relaxed))
            .sum::<usize>()
            + self.free.load(Relaxed);
        // Permits that are on their way are seen in two places, or in none.
        self.max.saturating_sub(free)
    }

    /// Returns how many there may be.
    pub fn max(&self) -> usize {
        self.max
    }

    /// Returns how many were refused for lack of a permit.
    pub fn shed(&self) -> u64 {
        self.shed.load(Relaxed)
    }
}

impl<P: Deref<Target = InProgress>> Drop for Permit<P> {
    fn drop(&mut self) {
        self.0.give_back(self.1);
    }
}

/// Takes as many permits as there are, up to `most`, and returns how many.
fn take_up_to(permits: &AtomicUsize, most: usize) -> usize {
    let taken = |there: usize| there.min(most);
    let update = permits.fetch_update(Relaxed, Relaxed, |there| {
        (there > 0).then(|| there - taken(there))
    });
    update.map_or(0, taken)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
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
        let one = requests.begin();
        let two = requests.begin();
        assert!(
            one.is_some()
                && two.is_some()
                && requests.begin().is_none()
                && requests.begin().is_none()
        );
        assert_eq!(requests.now(), 2);
        drop(one);
        let three = requests.begin();

        assert!(three.is_some() && requests.begin().is_none());
        drop((two, three));
        assert_eq!(requests.now(), 0);
    }

    #[test]
    fn processors_share_what_is_free() {
        for max in [1, 3, 8, 100, 1000] {
            let requests = InProgress::new(max);
            let begun = AtomicUsize::new(0);
            let over = AtomicUsize::new(0);
            std::thread::scope(|scope| {
                for _ in 0..4 {
                    scope.spawn(|| {
                        for _ in 0..20_000 {
                            let Some(permit) = requests.begin() else {
                                continue;
                            };
                            over.fetch_add(
                                usize::from(begun.fetch_add(1, Relaxed) >= max),
                                Relaxed,
                            );
                            begun.fetch_sub(1, Relaxed);
                            drop(permit);
                        }
                    });
                }
            });

            assert_eq!((over.into_inner(), requests.now()), (0, 0), "{max}");
            // All of them can be had by one.
            let permits: Vec<_> = (0..max).map_while(|_| requests.begin()).collect();
            assert!(permits.len() == max && requests.now() == max && requests.begin().is_none());
        }
    }
}
