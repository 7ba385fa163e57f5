//! A list of free things that is used from its end and ages at its front: what nothing has used for
//! a while can be told without a time on each, because the list records how short it has been.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Free things, the newest last.
#[derive(Debug)]
pub(crate) struct Aging<T> {
    items: VecDeque<T>,
    /// The shortest that the list has been since `looked`: that many items at its front were not
    /// used since.
    shortest: usize,
    looked: Instant,
    /// As many at the front have been found to be unused for a period.
    aged: usize,
    period: Duration,
    /// As many stay however old they are.
    kept: usize,
}

impl<T> Aging<T> {
    /// Creates an empty list. An item is old when it was unused for one to two periods; `kept`
    /// items never are.
    pub(crate) fn new(period: Duration, kept: usize) -> Self {
        Self {
            items: VecDeque::new(),
            shortest: 0,
            looked: Instant::now(),
            aged: 0,
            period,
            kept,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.items.len()
    }

    /// Returns the items, newest first.
    pub(crate) fn newest(&self) -> impl Iterator<Item = &T> {
        self.items.iter().rev()
    }

    /// Adds items, the newest last.
    pub(crate) fn extend(&mut self, items: impl IntoIterator<Item = T>) {
        self.items.extend(items);
    }

    pub(crate) fn pop(&mut self) -> Option<T> {
        let item = self.items.pop_back()?;
        self.used();
        Some(item)
    }

    /// Removes the newest ones, at most `count`, and returns them in their order.
    pub(crate) fn take_newest(&mut self, count: usize) -> VecDeque<T> {
        let items = self.items.split_off(self.items.len().saturating_sub(count));
        self.used();
        items
    }

    /// Records that the list has become shorter at its end.
    fn used(&mut self) {
        self.shortest = self.shortest.min(self.items.len());
        self.aged = self.aged.min(self.items.len());
    }

    /// Removes the oldest ones; there must be as many.
    pub(crate) fn take_oldest(&mut self, count: usize) -> Vec<T> {
        self.shortest = self.shortest.saturating_sub(count);
        self.aged = self.aged.saturating_sub(count);
        self.items.drain(..count).collect()
    }

    /// Notes what was unused for a period, if one has passed.
    pub(crate) fn look(&mut self, now: Instant) {
        if now.saturating_duration_since(self.looked) >= self.period {
            self.aged = self.shortest;
            self.shortest = self.items.len();
            self.looked = now;
        }
    }

    /// Removes up to `limit` items that have been unused for a period or longer, as the last look
    /// found them.
    pub(crate) fn take_aged(&mut self, limit: usize) -> Vec<T> {
        self.take_oldest(self.due().min(limit))
    }

    /// Returns how many are to be taken for their age.
    pub(crate) fn due(&self) -> usize {
        self.aged.min(self.items.len().saturating_sub(self.kept))
    }
}
