//! The pool's free stacks, in three lists, which say which stack is used next and which have been out of use.
//!
//! No system calls here: the pool holds its lock around these methods, and counts and drops pages after releasing it.
//!
//! *Why cooling goes by time.* Counting a stack's pages costs 0.85 us (256 KiB), a hundred times the cost of a recycled
//! fiber. A program that starts and ends a thousand fibers in rounds needs all of them again next round; when stacks
//! cooled by their place in the list, each of its fibers paid (measured, rounds of 512: 559 ns a stack, against 8.5
//! now). So stacks used in the last 100 ms are left alone: `idle` records how short the hot list has been, and only
//! that many stacks, at its old end, have been unused since.
//! stacks, at its old end, have had no use since.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use super::Stack;

/// Free stacks that stay hot however long they are unused: a small runtime never pays for counting pages.
pub(super) const ALWAYS_HOT: usize = 128;
/// The part of a warm stack whose pages are kept, in bytes from the top.
pub(super) const WARM_BYTES: usize = 16 << 10;
/// A hot stack cools when it was unused for one to two of these periods.
pub(super) const IDLE: Duration = Duration::from_millis(100);

/// Free stacks by how much memory they may hold. Each list is used from its end.
#[derive(Debug)]
pub(super) struct FreeLists {
    /// Stacks as their fibers left them, newest last.
    pub(super) hot: VecDeque<Stack>,
    /// Stacks with pages in the top `WARM_BYTES` at most.
    pub(super) warm: VecDeque<Stack>,
    /// Stacks without pages.
    pub(super) cold: Vec<Stack>,
    /// The shortest that `hot` has been since `tidied`: that many stacks at its front were not used since.
    idle: usize,
    tidied: Instant,
}

impl FreeLists {
    /// Creates empty lists.
    pub(super) fn new() -> Self {
        let (hot, warm, cold) = (VecDeque::new(), VecDeque::new(), Vec::new());
        Self { hot, warm, cold, idle: 0, tidied: Instant::now() }
    }

    /// Takes the stack most likely to be in the processor's cache, or at least in memory.
    pub(super) fn pop(&mut self) -> Option<Stack> {
        if let Some(stack) = self.hot.pop_back() {
            self.idle = self.idle.min(self.hot.len());
            return Some(stack);
        }
        self.warm.pop_back().or_else(|| self.cold.pop())
    }

    /// Removes the stacks above the limit, those out of use longest: first (already cooled) warm ones, then hot ones.
    pub(super) fn surplus(&mut self, max_free: usize) -> (Vec<Stack>, Vec<Stack>) {
        let surplus = (self.hot.len() + self.warm.len()).saturating_sub(max_free);
        let warm = surplus.min(self.warm.len());
        let hot = surplus - warm;
        self.idle = self.idle.saturating_sub(hot);
        (self.warm.drain(..warm).collect(), self.hot.drain(..hot).collect())
    }

    /// Removes up to `limit` hot stacks that were not used since the last call, if that was at least `age` ago.
    pub(super) fn idle(&mut self, now: Instant, age: Duration, limit: usize) -> Vec<Stack> {
        if now.saturating_duration_since(self.tidied) < age {
            return Vec::new();
        }
        let spare = self.hot.len().saturating_sub(ALWAYS_HOT);
        let idle = self.idle.min(spare).min(limit);
        let stacks = self.hot.drain(..idle).collect();
        self.idle = self.hot.len();
        self.tidied = now;
        stacks
    }

    /// Returns the number of stacks in all three lists.
    pub(super) fn len(&self) -> usize {
        self.hot.len() + self.warm.len() + self.cold.len()
    }
}
