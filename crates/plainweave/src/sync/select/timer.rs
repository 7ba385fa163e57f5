//! The clock as a branch of a select: a time, or the next one of an interval.

use std::time::{Duration, Instant};

use super::{Case, Selector, Source};
use crate::time::{self, Interval};

/// Waits for a time beside others.
#[derive(Debug)]
pub struct TimerBranch {
    at: Instant,
    chosen: bool,
}

impl TimerBranch {
    /// Creates one that is ready `limit` from now.
    pub fn after(limit: Duration) -> Self {
        Self {
            at: time::saturating_add(time::now(), limit),
            chosen: false,
        }
    }

    /// Creates one that is ready at `time`, on the caller's clock.
    pub fn at(time: Instant) -> Self {
        Self {
            at: time,
            chosen: false,
        }
    }

    /// Returns it as one of the select's cases.
    pub fn case(&mut self) -> Case<'_> {
        Case::new(self)
    }

    /// Returns something if it was chosen.
    pub fn output(self) -> Option<()> {
        self.chosen.then_some(())
    }
}

impl Source for TimerBranch {
    fn attempt(&mut self) -> bool {
        self.chosen = time::now() >= self.at;
        self.chosen
    }

    fn watch(&mut self, _: &Selector, _: usize) -> bool {
        false
    }

    fn unwatch(&mut self, _: &Selector, _: usize, _: bool) {}

    fn due(&self) -> Option<Instant> {
        Some(self.at)
    }
}

/// Waits for the next time of an interval beside others.
#[derive(Debug)]
pub struct TickBranch<'a> {
    interval: &'a mut Interval,
    come: Option<Instant>,
}

impl Interval {
    /// Returns the next time as a branch of a select.
    #[doc(hidden)]
    pub fn select_branch(&mut self) -> TickBranch<'_> {
        TickBranch {
            interval: self,
            come: None,
        }
    }
}

impl TickBranch<'_> {
    /// Returns it as one of the select's cases.
    pub fn case(&mut self) -> Case<'_> {
        Case::new(self)
    }

    /// Returns the time that has come, if it was chosen.
    pub fn output(self) -> Option<Instant> {
        self.come
    }
}

impl Source for TickBranch<'_> {
    fn attempt(&mut self) -> bool {
        self.come = (time::now() >= self.interval.next()).then(|| self.interval.pass());
        self.come.is_some()
    }

    fn watch(&mut self, _: &Selector, _: usize) -> bool {
        false
    }

    fn unwatch(&mut self, _: &Selector, _: usize, _: bool) {}

    fn due(&self) -> Option<Instant> {
        Some(self.interval.next())
    }
}
