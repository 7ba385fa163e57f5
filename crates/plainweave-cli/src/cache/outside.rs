//! Memory outside of the store: what connections hold beyond their fixed buffers.
//!
//! Three things are as long as a client likes: a value that is being received, the line of a get of very many keys, and
//! a long answer of `stats` that is not taken. They draw on one account, so that their sum has a bound however many
//! connections there are. Who finds it empty is refused in memcached's words. What is short (a value that came in one
//! read, 2 KiB of a line, 64 KiB of replies) is not accounted, so that the common path touches nothing shared.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// The bound is at least this, for a line of a get is up to 1 MiB whatever `-m` says.
const LEAST: usize = 4 << 20;

/// The account.
#[derive(Debug)]
pub(crate) struct Outside {
    most: usize,
    held: AtomicUsize,
}

/// A part of it; its drop gives it back.
#[derive(Debug)]
pub(crate) struct Held {
    of: Arc<Outside>,
    bytes: usize,
}

impl Outside {
    /// For a store of `memory` bytes with items of up to `item_max`: a quarter of the memory, and at least two items.
    pub(crate) fn new(memory: usize, item_max: usize) -> Arc<Self> {
        let items = item_max.saturating_mul(2).min(memory);
        Arc::new(Self { most: (memory / 4).max(items).max(LEAST), held: AtomicUsize::new(0) })
    }

    /// Bytes that are held now.
    pub(crate) fn held(&self) -> usize {
        self.held.load(Relaxed)
    }

    /// Nothing of it yet.
    pub(crate) fn nothing(self: &Arc<Self>) -> Held {
        Held { of: self.clone(), bytes: 0 }
    }
}

impl Held {
    /// Makes it `bytes` in all, if there is so much. Never less than before.
    pub(crate) fn grow_to(&mut self, bytes: usize) -> bool {
        let more = bytes.saturating_sub(self.bytes);
        let enough = |held: usize| held.checked_add(more).filter(|held| *held <= self.of.most);
        let grown = more == 0 || self.of.held.fetch_update(Relaxed, Relaxed, enough).is_ok();
        if grown {
            self.bytes += more;
        }
        grown
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.of.held.fetch_sub(self.bytes, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sum_has_a_bound_and_all_comes_back() {
        let outside = Outside::new(64 << 20, 1 << 20);
        let (mut one, mut two) = (outside.nothing(), outside.nothing());
        assert!(one.grow_to(10 << 20) && two.grow_to(6 << 20));
        assert!(!two.grow_to((6 << 20) + 1) && two.grow_to(6 << 20) && two.grow_to(1));
        drop(one);
        assert!(two.grow_to(16 << 20));
        drop(two);
        assert_eq!(outside.held(), 0);
    }

    #[test]
    fn one_item_of_the_largest_size_always_fits_unless_the_memory_is_smaller() {
        for (memory, item_max, most) in [(64, 1, 16), (1024, 1, 256), (8, 4, 8), (8, 1024, 8), (1, 1, 4)] {
            assert_eq!(Outside::new(memory << 20, item_max << 20).most, most << 20, "{memory} MB, {item_max} MB");
        }
    }
}
