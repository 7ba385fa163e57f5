//! The pool's free stacks, in three lists, which say which stack is used next and which have been
//! out of use.
//!
//! No system calls here: the pool holds its lock around these methods, and counts and drops pages
//! after releasing it.
//!
//! *Why cooling goes by time.* Counting a stack's pages costs 0.85 us (256 KiB), a hundred times
//! the cost of a recycled fiber. A program that starts and ends a thousand fibers in rounds needs
//! all of them again next round; when stacks cooled by their place in the list, each of its fibers
//! paid (measured, rounds of 512: 559 ns a stack, against 8.5 now). So stacks used in the last 100
//! ms are left alone: each list records how short it has been, and only that many stacks, at its
//! old end, have been unused since.

#![deny(unsafe_code)]

use std::time::{Duration, Instant};

use super::Stack;
use crate::aging::Aging;

/// Free stacks that stay hot however long they are unused: a small runtime never pays for counting
/// pages.
pub(super) const ALWAYS_HOT: usize = 128;
/// The part of a warm stack whose pages are kept, in bytes from the top.
pub(super) const WARM_BYTES: usize = 16 << 10;
/// A hot stack cools when it was unused for one to two of these periods.
pub(super) const HOT_FOR: Duration = Duration::from_millis(100);
/// A warm stack gives up its last pages when it was unused for one to two of these periods.
pub(super) const WARM_FOR: Duration = Duration::from_secs(1);

/// Free stacks by how much memory they may hold. Each list is used from its end.
#[derive(Debug)]
pub(super) struct FreeLists {
    /// Stacks as their fibers left them, newest last.
    pub(super) hot: Aging<Stack>,
    /// Stacks with pages in the top `WARM_BYTES` at most.
    pub(super) warm: Aging<Stack>,
    /// Stacks without pages.
    pub(super) cold: Vec<Stack>,
}

/// What an unused pool has left to give back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Left {
    Nothing,
    /// Something that is not old enough.
    Later,
    /// More than one call was allowed to.
    More,
}

impl FreeLists {
    /// Creates empty lists.
    pub(super) fn new() -> Self {
        Self {
            hot: Aging::new(HOT_FOR, ALWAYS_HOT),
            warm: Aging::new(WARM_FOR, 0),
            cold: Vec::new(),
        }
    }

    /// Takes the stack most likely to be in the processor's cache, or at least in memory.
    pub(super) fn pop(&mut self) -> Option<Stack> {
        self.hot
            .pop()
            .or_else(|| self.warm.pop())
            .or_else(|| self.cold.pop())
    }

    /// Notes what was not used for a while.
    pub(super) fn look(&mut self, now: Instant) {
        self.hot.look(now);
        self.warm.look(now);
    }

    /// Removes the stacks above the limit, those out of use longest: first (already cooled) warm
    /// ones, then hot ones.
    pub(super) fn surplus(&mut self, max_free: usize) -> (Vec<Stack>, Vec<Stack>) {
        let surplus = (self.hot.len() + self.warm.len()).saturating_sub(max_free);
        let warm = surplus.min(self.warm.len());
        (
            self.warm.take_oldest(warm),
            self.hot.take_oldest(surplus - warm),
        )
    }

    /// Returns what there will be to cool if nothing is used from now on.
    pub(super) fn left(&self) -> Left {
        if self.hot.due() + self.warm.due() > 0 {
            Left::More
        } else if self.hot.len() > ALWAYS_HOT || self.warm.len() > 0 {
            Left::Later
        } else {
            Left::Nothing
        }
    }

    /// Returns the number of stacks in all three lists.
    pub(super) fn len(&self) -> usize {
        self.hot.len() + self.warm.len() + self.cold.len()
    }
}
