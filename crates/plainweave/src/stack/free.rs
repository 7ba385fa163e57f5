//! The pool's free stacks, in three lists, which say which stack is used next and which have been out of use.
//!
//! No system calls here: the pool holds its lock around these methods, and counts and drops pages after releasing it.
//!
//! *Why cooling goes by time.* Counting a stack's pages costs 0.85 us (256 KiB), a hundred times the cost of a recycled
//! fiber. A program that starts and ends a thousand fibers in rounds needs all of them again next round; when stacks
//! cooled by their place in the list, each of its fibers paid (measured, rounds of 512: 559 ns a stack, against 8.5
//! now). So stacks used in the last 100 ms are left alone: each list records how short it has been, and only that many
//! stacks, at its old end, have been unused since.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use super::Stack;

/// Free stacks that stay hot however long they are unused: a small runtime never pays for counting pages.
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
    pub(super) hot: Aging,
    /// Stacks with pages in the top `WARM_BYTES` at most.
    pub(super) warm: Aging,
    /// Stacks without pages.
    pub(super) cold: Vec<Stack>,
}

/// Stacks that are used from the list's end and age at its front.
#[derive(Debug)]
pub(super) struct Aging {
    stacks: VecDeque<Stack>,
    /// The shortest that the list has been since `looked`: that many stacks at its front were not used since.
    shortest: usize,
    looked: Instant,
    /// As many at the front have been found to be unused for a period.
    aged: usize,
    period: Duration,
    /// As many stay however old they are.
    kept: usize,
}

impl Aging {
    fn new(period: Duration, kept: usize) -> Self {
        Self { stacks: VecDeque::new(), shortest: 0, looked: Instant::now(), aged: 0, period, kept }
    }

    pub(super) fn len(&self) -> usize {
        self.stacks.len()
    }

    /// Returns the stacks, newest first.
    pub(super) fn newest(&self) -> impl Iterator<Item = &Stack> {
        self.stacks.iter().rev()
    }

    pub(super) fn extend(&mut self, stacks: impl IntoIterator<Item = Stack>) {
        self.stacks.extend(stacks);
    }

    fn pop(&mut self) -> Option<Stack> {
        let stack = self.stacks.pop_back()?;
        self.shortest = self.shortest.min(self.stacks.len());
        self.aged = self.aged.min(self.stacks.len());
        Some(stack)
    }

    /// Removes the oldest ones.
    fn take_oldest(&mut self, count: usize) -> Vec<Stack> {
        self.shortest = self.shortest.saturating_sub(count);
        self.aged = self.aged.saturating_sub(count);
        self.stacks.drain(..count).collect()
    }

    /// Removes up to `limit` stacks that have been unused for a period or longer.
    pub(super) fn take_aged(&mut self, now: Instant, limit: usize) -> Vec<Stack> {
        if now.saturating_duration_since(self.looked) >= self.period {
            self.aged = self.shortest;
            self.shortest = self.stacks.len();
            self.looked = now;
        }
        self.take_oldest(self.due().min(limit))
    }

    /// Returns how many are to be taken for their age.
    fn due(&self) -> usize {
        self.aged.min(self.stacks.len().saturating_sub(self.kept))
    }
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
        Self { hot: Aging::new(HOT_FOR, ALWAYS_HOT), warm: Aging::new(WARM_FOR, 0), cold: Vec::new() }
    }

    /// Takes the stack most likely to be in the processor's cache, or at least in memory.
    pub(super) fn pop(&mut self) -> Option<Stack> {
        self.hot.pop().or_else(|| self.warm.pop()).or_else(|| self.cold.pop())
    }

    /// Removes the stacks above the limit, those out of use longest: first (already cooled) warm ones, then hot ones.
    pub(super) fn surplus(&mut self, max_free: usize) -> (Vec<Stack>, Vec<Stack>) {
        let surplus = (self.hot.len() + self.warm.len()).saturating_sub(max_free);
        let warm = surplus.min(self.warm.len());
        (self.warm.take_oldest(warm), self.hot.take_oldest(surplus - warm))
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
