//! What a policy counts of its own work, for whoever looks at a runtime.
//!
//! The counts of a worker are plain words in its [`Cx`]: the policy adds to them where it has found
//! or moved something, never in an ordinary push or pop. The worker's loop publishes them now and
//! then.

use std::time::Duration;

use super::{Cx, WorkerId};

/// What a worker's policy has done since the worker started. A policy counts what it has: one that
/// never steals leaves those words at 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counts {
    /// Attempts to take tasks from another worker's queue in which there seemed to be some.
    pub steal_attempts: u64,
    /// Attempts that got tasks.
    pub steals: u64,
    /// Tasks that these got.
    pub stolen: u64,
    /// Steals from a worker that had asked for help, or that the policy chose to help because it
    /// had fallen behind.
    pub helped: u64,
    /// Times that tasks went to the shared queue because the worker's own structure was full.
    pub spills: u64,
    /// Further attempts to insert tasks into a full structure.
    pub insert_retries: u64,
    /// Inserts that were to spin until there was room, and ended without.
    pub insert_overflows: u64,
    /// The longest that a task has waited from its push to its pop on this worker; known to
    /// [`Observed`](super::Observed) policies alone.
    pub longest_wait: Option<Duration>,
}

impl Cx {
    /// Returns the worker that [`Self::stole`] named last; 0 before the first steal.
    #[must_use]
    pub fn victim(&self) -> WorkerId {
        self.victim
    }

    /// Counts a steal of `tasks` tasks from `victim`.
    pub fn stole(&mut self, victim: WorkerId, tasks: usize) {
        self.victim = victim;
        self.counts.steals += 1;
        self.counts.stolen += tasks as u64;
    }
}
