//! The micro-benchmarks of the CFA thesis, as far as schedulers are concerned: `yield`, `cycle`,
//! `churn`, `locality` and `transfer`. `plainweave bench micro` has the same on real workers.
//!
//! Each runs until a number of operations is done. Then its fibers wake those that wait, and end.

use std::collections::VecDeque;

use super::{Action, Step, Workload};
use crate::costs::{MILLI, NANO, Picos};
use crate::policy::Cx;
use crate::task::{Fibers, TaskId};

/// Which of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Case {
    /// Each of 100 fibers a worker yields.
    Yield,
    /// Rings of five fibers, 20 a worker, with one token each: wait for it, pass it on.
    Cycle,
    /// 100 fibers a worker release a random one of as many semaphores and acquire it.
    Churn,
    /// The same with spots for one fiber: write to an array of one's own, take a random spot, wake
    /// its occupant.
    Locality,
    /// One fiber, the leader, waits without yielding until all others have run; then another one
    /// leads.
    Transfer,
}

/// Fibers of a ring.
const RING: usize = 5;
/// What an operation computes beside its scheduling.
const WORK: Picos = 5 * NANO;
/// How often the leader looks.
const LOOK: Picos = 100 * NANO;
/// After how long a leader gives up: some fiber starves.
const STARVED_AFTER: Picos = 2 * MILLI;
/// The first line of the shared data, beyond those of fibers.
const DATA: u64 = 1 << 40;

/// Fibers of a worker.
const FIBERS: usize = 100;
/// Operations of a fiber after which its start no longer shows in the rate.
const STEADY: u64 = 240;

/// Returns how many operations a run takes that is in its steady state for nearly all of its time.
pub(super) fn steady(workers: usize) -> u64 {
    (FIBERS * workers) as u64 * STEADY
}

/// What fibers wait for: a semaphore, or a place for one fiber.
#[derive(Clone, Debug, Default)]
struct Spot {
    permits: u32,
    waiting: VecDeque<TaskId>,
}

pub(super) struct Micro {
    case: Case,
    random: Cx,
    fibers: usize,
    arrived: usize,
    created: Vec<TaskId>,
    spots: Vec<Spot>,
    wanted: u64,
    done: u64,
    // Of `transfer`: which fiber leads, in which round, since when, and how many others have run in
    // it.
    leader: TaskId,
    round: u64,
    since: Picos,
    answers: usize,
}

impl Micro {
    pub(super) fn new(case: Case, operations: u64, workers: usize, seed: u64) -> Self {
        let fibers = FIBERS * workers;
        let spots = vec![Spot::default(); fibers / 2];
        Self {
            case,
            random: Cx::new(seed),
            fibers,
            arrived: 0,
            created: Vec::new(),
            spots,
            wanted: operations,
            done: 0,
            leader: 0,
            round: 1,
            since: 0,
            answers: 0,
        }
    }

    fn is_over(&self) -> bool {
        self.done >= self.wanted
    }

    /// Ends a fiber, after it has woken one that waits.
    fn end(&mut self) -> Action {
        self.spots
            .iter_mut()
            .find_map(|spot| spot.waiting.pop_front())
            .map_or(Action::End, Action::Wake)
    }

    fn yields(&mut self, turn: u64) -> Action {
        if turn.is_multiple_of(2) {
            return Action::Compute(WORK);
        }
        self.done += 1;
        if self.is_over() {
            Action::End
        } else {
            Action::Yield
        }
    }

    /// Waits for the token and passes it on. The first fiber of each ring has it to begin with; at
    /// the end each passes it on once more, so that none is left waiting.
    fn cycle(&mut self, fiber: TaskId, turn: u64, fibers: &mut Fibers) -> Action {
        let this = fibers.get(fiber);
        let next = fiber + 1;
        let next = if next.is_multiple_of(RING) {
            next - RING
        } else {
            next
        };

        if self.is_over() {
            let passed_on = std::mem::replace(&mut this.other, usize::MAX) == usize::MAX;
            return if passed_on {
                Action::End
            } else {
                Action::Wake(next)
            };
        }

        let begins_with_token = turn == 0 && fiber.is_multiple_of(RING);
        let was_given_token = std::mem::replace(&mut this.kind, 1) == 1;
        if !(begins_with_token || was_given_token) {
            return Action::Wait;
        }
        this.kind = 0;
        self.done += 1;

        Action::Wake(next)
    }

    /// Releases a random semaphore and acquires it. The first fibers only acquire one each at
    /// first: where somebody waits at each, every acquire blocks.
    fn churn(&mut self, fiber: TaskId, turn: u64, fibers: &mut Fibers) -> Action {
        let this = fibers.get(fiber);
        match turn % 3 {
            0 if self.is_over() => {
                this.step = turn;
                self.end()
            }
            // Not before somebody waits at each: where nobody does, no acquire blocks, and others
            // may never run.
            0 if turn == 0 && fiber >= self.spots.len() && self.done < self.spots.len() as u64 => {
                this.step = 0;
                Action::Yield
            }
            0 => {
                this.other = self.random.below(self.spots.len());
                if turn == 0 && fiber < self.spots.len() {
                    this.other = fiber;
                    this.step = 2;
                }
                Action::Touch(DATA + this.other as u64)
            }
            1 => {
                let spot = &mut self.spots[this.other];
                let waiter = spot.waiting.pop_front();
                spot.permits += u32::from(waiter.is_none());
                waiter.map_or(Action::Compute(WORK), Action::Wake)
            }
            _ => {
                self.done += 1;
                let over = self.is_over();
                let spot = &mut self.spots[this.other];
                if over || spot.permits > 0 {
                    spot.permits = spot.permits.saturating_sub(1);
                    return Action::Compute(WORK);
                }

                spot.waiting.push_back(fiber);
                Action::Wait
            }
        }
    }

    /// Writes to an array of its own, then takes a random spot and wakes the fiber that waits
    /// there.
    fn locality(&mut self, fiber: TaskId, turn: u64, fibers: &mut Fibers) -> Action {
        let this = fibers.get(fiber);
        match turn % 4 {
            0 if self.is_over() => {
                this.step = turn;
                self.end()
            }
            0 => Action::Touch(DATA + (1 << 20) + fiber as u64),
            1 => {
                this.other = self.random.below(self.spots.len());
                Action::Touch(DATA + this.other as u64)
            }
            2 => {
                self.done += 1;
                if self.is_over() {
                    return Action::Compute(WORK);
                }
                let spot = &mut self.spots[this.other];
                let before = spot.waiting.pop_front();
                spot.waiting.push_back(fiber);
                before.map_or(Action::Compute(WORK), Action::Wake)
            }
            // Others may be past the point where they would wake it.
            _ if self.is_over() => Action::Compute(WORK),
            _ => Action::Wait,
        }
    }

    /// The leader looks whether all have run in its round; the others say that they have, and
    /// yield.
    fn transfer(&mut self, fiber: TaskId, now: Picos, fibers: &mut Fibers) -> Action {
        if self.is_over() {
            return Action::End;
        }
        if fiber != self.leader {
            let this = fibers.get(fiber);
            if this.kind != self.round as usize {
                this.kind = self.round as usize;
                self.answers += 1;
                return Action::Touch(DATA);
            }
            return Action::Yield;
        }

        if self.answers + 1 >= self.created.len() {
            self.done += 1;
            self.round += 1;
            self.answers = 0;
            self.since = now;
            self.leader = self.created[self.random.below(self.created.len())];
            return Action::Touch(DATA);
        }

        if now.saturating_sub(self.since) > STARVED_AFTER {
            self.wanted = self.done;
            return Action::End;
        }

        Action::Compute(LOOK)
    }
}

impl Workload for Micro {
    fn arrival(&mut self, fibers: &mut Fibers) -> Option<(Picos, TaskId)> {
        if self.created.is_empty() {
            // All of them exist before the first runs, or it could wake one that does not.
            self.created = (0..self.fibers).map(|_| fibers.create(0, 0)).collect();
            self.leader = self.created[0];
        }

        let fiber = *self.created.get(self.arrived)?;
        self.arrived += 1;
        Some((0, fiber))
    }

    fn next(&mut self, fiber: TaskId, step: &mut Step<'_>) -> Action {
        let this = step.fibers.get(fiber);
        let turn = this.step;
        this.step += 1;

        match self.case {
            Case::Yield => self.yields(turn),
            Case::Cycle => self.cycle(fiber, turn, step.fibers),
            Case::Churn => self.churn(fiber, turn, step.fibers),
            Case::Locality => self.locality(fiber, turn, step.fibers),
            Case::Transfer => self.transfer(fiber, step.now, step.fibers),
        }
    }

    fn operations(&self) -> u64 {
        self.done
    }
}
