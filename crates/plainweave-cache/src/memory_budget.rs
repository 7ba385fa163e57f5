//! The budget for memory that connections take beyond their fixed buffers and outside the store.
//!
//! Four things are as long as a client likes: a value that is being received, the line of a get of
//! very many keys, a long answer of `stats` that the client does not read, and copies of values
//! that it does not read (`unread`). All of them reserve from one budget, so their sum is bounded
//! however many connections there are. When it is used up, a client gets memcached's out-of-memory
//! error. Short data (a value that came in one read, 2 KiB of a line, 64 KiB of replies) is not
//! counted, so the common path touches nothing shared.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// The smallest budget: a get of up to 2 MiB is answered whatever `-m` says.
const LEAST: usize = 4 << 20;

/// A bound on memory, and how much of it is in use.
#[derive(Debug)]
pub(crate) struct MemoryBudget {
    max: usize,
    used: AtomicUsize,
}

/// A part of the budget; returned on drop.
#[derive(Debug)]
pub(crate) struct Reservation {
    budget: Arc<MemoryBudget>,
    bytes: usize,
}

impl MemoryBudget {
    /// Makes a budget of `max` bytes, but at least of what a line takes.
    pub(crate) fn new(max: usize) -> Arc<Self> {
        Arc::new(Self {
            max: max.max(LEAST),
            used: AtomicUsize::new(0),
        })
    }

    /// Returns what it should be beside a store of `memory` bytes with items of up to `item_max`: a
    /// quarter of the memory, and at least two items.
    pub(crate) fn wanted(memory: usize, item_max: usize) -> usize {
        let items = item_max.saturating_mul(2).min(memory);
        (memory / 4).max(items).max(LEAST)
    }

    /// Returns the bytes that there are.
    pub(crate) fn max(&self) -> usize {
        self.max
    }

    /// Returns the bytes in use.
    pub(crate) fn used(&self) -> usize {
        self.used.load(Relaxed)
    }

    /// Returns whether so much is in use that what is given back must not stay with `malloc`.
    pub(crate) fn is_crowded(&self) -> bool {
        self.used() > self.max / 4
    }

    /// Returns a reservation of 0 bytes, to be grown.
    pub(crate) fn reserve(self: &Arc<Self>) -> Reservation {
        Reservation {
            budget: self.clone(),
            bytes: 0,
        }
    }
}

impl Reservation {
    /// Returns what it is a part of.
    pub(crate) fn budget(&self) -> &MemoryBudget {
        &self.budget
    }

    /// Grows the reservation to `bytes` in all; never shrinks it. Returns `false`, and changes
    /// nothing, if the budget does not allow it.
    pub(crate) fn grow_to(&mut self, bytes: usize) -> bool {
        self.grow_within(bytes, self.budget.max)
    }

    /// Does the same within the first half of the budget: the other half stays for what clients
    /// send.
    pub(crate) fn grow_within_half(&mut self, bytes: usize) -> bool {
        self.grow_within(bytes, self.budget.max / 2)
    }

    fn grow_within(&mut self, bytes: usize, max: usize) -> bool {
        let more = bytes.saturating_sub(self.bytes);
        let enough = |used: usize| used.checked_add(more).filter(|used| *used <= max);
        let grown = more == 0
            || self
                .budget
                .used
                .fetch_update(Relaxed, Relaxed, enough)
                .is_ok();
        if grown {
            self.bytes += more;
        }

        grown
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.budget.used.fetch_sub(self.bytes, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sum_has_a_bound_and_all_comes_back() {
        let budget = MemoryBudget::new(16 << 20);
        let mut one = budget.reserve();
        let mut two = budget.reserve();
        assert!(one.grow_to(10 << 20) && two.grow_to(6 << 20));
        assert!(!two.grow_to((6 << 20) + 1) && two.grow_to(6 << 20) && two.grow_to(1));
        drop(one);
        assert!(two.grow_to(16 << 20));
        drop(two);
        assert_eq!(budget.used(), 0);
    }

    #[test]
    fn one_item_of_the_largest_size_always_fits_unless_the_memory_is_smaller() {
        for (memory, item_max, max) in [
            (64, 1, 16),
            (1024, 1, 256),
            (8, 4, 8),
            (8, 1024, 8),
            (1, 1, 4),
        ] {
            assert_eq!(
                MemoryBudget::wanted(memory << 20, item_max << 20),
                max << 20,
                "{memory} MB, {item_max} MB"
            );
        }
    }
}
