//! Earliest deadline first (Liu and Layland 1973): optimal on one processor as long as all
//! deadlines can be met.
//!
//! A task without a deadline counts as due some time after it became ready,
//! [`DeadlineParams::patience_ms`], so it is late at some point and runs. A task that is late
//! already counts as due when it became ready: tasks that are made late on purpose gain nothing. So
//! nothing starves. Against it: when there is more work than time, earliest deadline first makes
//! nearly everything late; and as of every ranked policy.

use super::ranked::{Rank, Ranked};
use super::settings::{Key, Settings, key, number};
use super::{Nanos, Task};

/// Earliest deadline first. A task without a deadline is due [`DeadlineParams::patience_ms`] after
/// it became ready, so it is not starved.
pub type Edf<T> = Ranked<T, Deadline>;

/// How tasks without a deadline are treated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeadlineParams {
    /// Milliseconds after which they are due, from when they become ready.
    pub patience_ms: u64,
}

impl Default for DeadlineParams {
    fn default() -> Self {
        Self { patience_ms: 100 }
    }
}

impl Settings for DeadlineParams {
    const KEYS: &'static [Key] = &[key(
        "patience",
        "0..60000",
        "milliseconds after which a task without a deadline is due",
    )];

    fn set(&mut self, _: &str, value: &str) -> Option<()> {
        self.patience_ms = number(value, 0..=60_000)?;
        Some(())
    }
}

/// The rank by deadline.
pub struct Deadline {
    patience_ns: Nanos,
}

impl<T: Task> Rank<T> for Deadline {
    type Params = DeadlineParams;

    fn new(params: DeadlineParams) -> Self {
        Self {
            patience_ns: params.patience_ms * 1_000_000,
        }
    }

    fn key(&self, now: Nanos, task: &T) -> Nanos {
        task.deadline().unwrap_or(now + self.patience_ns).max(now)
    }
}
