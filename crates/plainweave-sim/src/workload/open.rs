//! Requests from outside the pool that come whether or not the workers keep up: at a steady rate,
//! as a burst, or beside a fiber that holds up its worker.
//!
//! Gaps are exponentially distributed (arrivals of many independent clients). Latency is from the
//! arrival that was due to the end, so a machine that falls behind shows it.

use super::{Action, Step, Workload};
use crate::costs::{MICRO, MILLI, Picos};
use crate::policy::Cx;
use crate::task::{Fibers, TaskId};

/// What a request computes.
const SERVICE: Picos = 10 * MICRO;
/// What the fiber computes that holds up its worker.
const STUCK: Picos = 5 * MILLI;

const REQUEST: usize = 0;
const HOLDS_UP: usize = 1;

pub(super) struct Open {
    random: Cx,
    requests: u64,
    started: u64,
    /// The mean gap between two requests.
    gap: f64,
    /// How many requests come before the first gap.
    burst: u64,
    due: Picos,
    /// A fiber that holds up a worker is still to come.
    sticks: bool,
}

impl Open {
    /// Makes requests come at `percent` of what `workers` workers can compute.
    pub(super) fn steady(requests: u64, percent: u64, workers: usize, seed: u64) -> Self {
        let gap = SERVICE as f64 * 100.0 / (percent as f64 * workers as f64);
        Self {
            random: Cx::new(seed),
            requests,
            started: 0,
            gap,
            burst: 0,
            due: 0,
            sticks: false,
        }
    }

    /// Makes all requests come at once.
    pub(super) fn burst(requests: u64, seed: u64) -> Self {
        Self {
            burst: requests,
            ..Self::steady(requests, 100, 1, seed)
        }
    }

    /// Makes a fiber hold up one worker from the start.
    pub(super) fn beside_stuck(self) -> Self {
        Self {
            sticks: true,
            ..self
        }
    }
}

impl Workload for Open {
    fn arrival(&mut self, fibers: &mut Fibers) -> Option<(Picos, TaskId)> {
        if std::mem::take(&mut self.sticks) {
            return Some((0, fibers.create(HOLDS_UP, 0)));
        }
        if self.started == self.requests {
            return None;
        }
        self.started += 1;

        if self.started > self.burst {
            // Between 0, excluded, and 1.
            let draw = (self.random.below(1 << 30) + 1) as f64 / f64::from(1 << 30);
            self.due += (-draw.ln() * self.gap) as Picos;
        }

        Some((self.due, fibers.create(REQUEST, self.due)))
    }

    fn next(&mut self, fiber: TaskId, step: &mut Step<'_>) -> Action {
        let this = step.fibers.get(fiber);
        this.step += 1;
        match (this.kind, this.step) {
            (HOLDS_UP, 1) => Action::Compute(STUCK),
            (_, 1) => Action::Compute(SERVICE),
            (HOLDS_UP, _) => Action::End,
            _ => {
                (step.latency)(step.now.saturating_sub(this.born));
                Action::End
            }
        }
    }

    fn operations(&self) -> u64 {
        self.requests
    }
}
