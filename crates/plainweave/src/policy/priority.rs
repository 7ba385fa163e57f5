//! Priority with ageing: the most urgent task first, where waiting makes urgent. A level of
//! priority is worth a number of microseconds of waiting, so a task's key is the time at which it
//! became ready, less what its priority is worth (delay-dependent priority: Kleinrock 1964, with
//! one slope for all).
//!
//! For it: urgent work overtakes, and nothing starves: a task of priority `p` is overtaken by those
//! of priority `q` only if they become ready within `(q - p)` levels' worth of time after it.
//! Against it: as of every ranked policy.

use super::ranked::{Rank, Ranked};
use super::settings::{Key, Settings, key, number};
use super::{Nanos, Task};

/// The most urgent first. A level of priority is worth [`PriorityParams::level_us`] of waiting, so
/// nothing starves.
pub type Priority<T> = Ranked<T, Ageing>;

/// How fast tasks age.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PriorityParams {
    /// What a level is worth in waiting, at least 1 us.
    pub level_us: u64,
}

impl Default for PriorityParams {
    fn default() -> Self {
        Self { level_us: 1000 }
    }
}

impl Settings for PriorityParams {
    const KEYS: &'static [Key] = &[key(
        "level",
        "1..1000000",
        "microseconds of waiting that a level is worth",
    )];

    fn set(&mut self, _: &str, value: &str) -> Option<()> {
        self.level_us = number(value, 1..=1_000_000)?;
        Some(())
    }
}

/// The rank by priority and time.
pub struct Ageing {
    level_ns: Nanos,
}

impl<T: Task> Rank<T> for Ageing {
    type Params = PriorityParams;

    fn new(params: PriorityParams) -> Self {
        Self {
            level_ns: params.level_us * 1000,
        }
    }

    fn key(&self, now: Nanos, task: &T) -> Nanos {
        now + u64::from(u8::MAX - task.priority()) * self.level_ns
    }
}
