//! The clock as a branch of a select.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::{Case, Selector, Source};
use crate::time;

/// Waits for a time beside others.
#[derive(Debug)]
pub struct TimerBranch {
    at: Instant,
    chosen: bool,
}

impl TimerBranch {
    /// Creates one that is ready `limit` from now.
    pub fn after(limit: Duration) -> Self {
        Self { at: time::saturating_add(time::now(), limit), chosen: false }
    }

    /// Creates one that is ready at `time`, on the caller's clock.
    pub fn at(time: Instant) -> Self {
        Self { at: time, chosen: false }
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

    fn watch(&mut self, _: &Arc<Selector>, _: usize) -> bool {
        false
    }

    fn unwatch(&mut self, _: &Arc<Selector>, _: usize, _: bool) {}

    fn due(&self) -> Option<Instant> {
        Some(self.at)
    }
}
