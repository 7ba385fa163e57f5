//! The workers of a pool, by number, and which of them have what.
//!
//! | numbers | kind | driver | made |
//! |---|---|---|---|
//! | the first | regular | its own | with the pool |
//! | some | spare | its own | with the pool |
//! | one, if there may be workers without a driver | waits for others (`sched/lent`) | its own | with the pool |
//! | [`KEPT_BACK`], with spare ones | spare, kept back (`watchdog/spares`) | only if all have one | with those |
//! | the others | spare | none | when it first starts |
//!
//! Most of the spare workers that there may be never start. So one without a driver is made when it
//! does, always the lowest number first, and whoever looks at all workers looks at those that were
//! made.

use std::iter;
use std::ops::{Index, Range};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use crossbeam_utils::CachePadded;

use super::spare::Role;
use super::worker_shared::WorkerShared;
use crate::policy::WorkerId;

/// Spare workers that have a driver of their own, at most.
const WITH_DRIVER: usize = 4;
/// Spare workers beyond the most that there may be, for fibers that have started.
const KEPT_BACK: usize = 4;

/// Which numbers the workers of a pool have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Numbers {
    /// How many workers are regular.
    pub(crate) regular: usize,
    /// The most spare workers, without those that are kept back.
    pub(crate) spares: usize,
}

impl Numbers {
    /// Returns the most workers, without those that are kept back.
    pub(crate) fn most(self) -> usize {
        self.regular + self.spares
    }

    /// Returns the worker at whose driver the fibers of workers without one wait; `None` if all
    /// have one.
    pub(crate) fn waits_for_others(self) -> Option<WorkerId> {
        (self.spares > WITH_DRIVER).then_some(self.regular + WITH_DRIVER)
    }

    /// Returns the spare workers that are kept for fibers that have started, in the order in which
    /// they start; none if there may be no spare ones.
    pub(crate) fn kept_back(self) -> Range<WorkerId> {
        let waits = usize::from(self.waits_for_others().is_some());
        let first = self.regular + self.spares.min(WITH_DRIVER) + waits;
        first..first + if self.spares > 0 { KEPT_BACK } else { 0 }
    }

    /// Returns the spare workers that may run fibers at any time, in the order in which they start.
    pub(crate) fn ordinary_spares(self) -> impl DoubleEndedIterator<Item = WorkerId> + Clone {
        let waits = self.waits_for_others();
        let kept_back = self.kept_back();
        (self.regular..self.all()).filter(move |id| waits != Some(*id) && !kept_back.contains(id))
    }

    pub(crate) fn has_driver(self, id: WorkerId) -> bool {
        id < self.with_driver()
    }

    /// Returns the first number of a worker that has no driver.
    fn with_driver(self) -> usize {
        self.waits_for_others().map_or(self.all(), |id| id + 1)
    }

    /// Returns how many numbers there are.
    pub(crate) fn all(self) -> usize {
        self.most() + self.kept_back().len() + usize::from(self.spares > WITH_DRIVER)
    }
}

/// The shared parts of a pool's workers.
pub(crate) struct Workers {
    /// Those that have a driver.
    first: Box<[CachePadded<WorkerShared>]>,
    more: Box<[OnceLock<Box<CachePadded<WorkerShared>>>]>,
    /// How many of `more` were made.
    made: AtomicUsize,
}

impl Workers {
    pub(crate) fn new(numbers: Numbers) -> Self {
        let role = |id| {
            if id < numbers.regular {
                Role::Active
            } else {
                Role::Absent
            }
        };

        Self {
            first: (0..numbers.with_driver())
                .map(|id| CachePadded::new(WorkerShared::new(role(id))))
                .collect(),
            more: iter::repeat_with(OnceLock::new)
                .take(numbers.all() - numbers.with_driver())
                .collect(),
            made: AtomicUsize::new(0),
        }
    }

    /// Returns how many there may be: numbers are below that.
    pub(crate) fn most(&self) -> usize {
        self.first.len() + self.more.len()
    }

    /// Returns those that have a driver.
    pub(crate) fn first(&self) -> &[CachePadded<WorkerShared>] {
        &self.first
    }

    /// Returns those that were made, in order of their numbers.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &CachePadded<WorkerShared>> {
        let made = &self.more[..self.made.load(Ordering::Acquire)];
        self.first.iter().chain(
            made.iter()
                .filter_map(|worker| worker.get().map(|worker| &**worker)),
        )
    }

    /// Returns the number of those that were made.
    pub(crate) fn made(&self) -> usize {
        self.first.len() + self.made.load(Ordering::Acquire)
    }

    /// Makes the workers up to this number, if they were not yet.
    ///
    /// Context: the watchdog.
    pub(crate) fn make(&self, id: WorkerId) {
        for at in self.made.load(Ordering::Relaxed)..(id + 1).saturating_sub(self.first.len()) {
            self.more[at]
                .get_or_init(|| Box::new(CachePadded::new(WorkerShared::new(Role::Absent))));
            self.made.store(at + 1, Ordering::Release);
        }
    }
}

impl Index<WorkerId> for Workers {
    type Output = CachePadded<WorkerShared>;

    #[inline]
    fn index(&self, id: WorkerId) -> &CachePadded<WorkerShared> {
        match self.first.get(id) {
            Some(worker) => worker,
            None => self.more[id - self.first.len()]
                .get()
                .expect("it has started"),
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn every_number_is_of_one_kind() {
        for (regular, spares) in [
            (1, 0),
            (2, 1),
            (3, WITH_DRIVER),
            (2, WITH_DRIVER + 1),
            (4, 500),
        ] {
            let numbers = Numbers { regular, spares };
            let ordinary: Vec<_> = numbers.ordinary_spares().collect();
            assert_eq!(ordinary.len(), spares);
            let others = numbers
                .waits_for_others()
                .into_iter()
                .chain(numbers.kept_back());
            let mut all: Vec<_> = (0..regular).chain(ordinary).chain(others).collect();

            all.sort_unstable();
            assert_eq!(all, (0..numbers.all()).collect::<Vec<_>>());
            let without = all.iter().filter(|id| !numbers.has_driver(**id)).count();

            assert_eq!(
                without,
                if spares > WITH_DRIVER {
                    spares - WITH_DRIVER + KEPT_BACK
                } else {
                    0
                }
            );
            assert!(
                numbers
                    .waits_for_others()
                    .is_none_or(|id| numbers.has_driver(id))
            );
        }
    }

    #[test]
    fn workers_without_a_driver_are_made_when_they_start() {
        let numbers = Numbers {
            regular: 2,
            spares: 100,
        };

        let workers = Workers::new(numbers);
        assert_eq!(
            (workers.most(), workers.made(), workers.iter().count()),
            (103 + KEPT_BACK, 7, 7)
        );
        for (id, made) in [(3, 7), (7, 8), (20, 21), (9, 21), (103, 104)] {
            workers.make(id);
            assert_eq!((workers.made(), workers.iter().count()), (made, made));
            assert!(std::ptr::eq(
                &workers[id],
                workers.iter().nth(id).expect("made")
            ));
        }
    }
}
