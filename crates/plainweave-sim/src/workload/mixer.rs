//! Audio mixer (OCaml schedulers' thesis): conferences whose legs make a frame every 20 ms, which
//! their mixer adds up and sends back to each. `plainweave bench thesis mixer` has the same on real
//! workers.
//!
//! Nobody blocks: a leg yields until its frame is due and its slot is free, a mixer until each slot
//! is full. So all workers are always busy, and what is measured is how soon a policy returns to
//! those that yield. A send's latency is from the time of its frame; later than `late-ms` it is a
//! breach. By lateness there are also classes: excellent below 150 ms, good up to 300, then poor.
//!
//! **A policy may starve a fiber that yields**, and others would yield for it for ever. So all give
//! up that long after the last frame was due, and the sends that were not made are breaches, and
//! poor.

use super::spawners::{SPAWNER, Spawners};
use super::{Action, Step, Workload};
use crate::costs::{MILLI, NANO, Picos};
use crate::task::{Fibers, TaskId};

const LEG: usize = 1;
const MIXER: usize = 2;
const SEND: usize = 3;

/// Below this a send is excellent, and good up to twice as much.
const EXCELLENT: Picos = 150 * MILLI;
/// Frames after the last that was due, until fibers that wait give up.
const GIVE_UP: u64 = 20;

/// A byte's share of its frame's MD5. Measured on the developer's machine: 716 MB/s (`openssl speed
/// -bytes 1600 md5`).
const DIGEST: Picos = 1_400;
/// A random byte, and a sample that is added. Assumed.
const DRAW: Picos = NANO;
const ADD: Picos = NANO;
/// A reading of the clock. Measured on the same machine (`clock_ns` of `bench mixer`).
const CLOCK: Picos = 24 * NANO;

/// The first line of the slots, beyond those of fibers.
const SLOTS: u64 = 1 << 40;

/// What a run does, and how often.
pub(super) struct Parameters {
    /// Conferences.
    pub(super) mixers: u64,
    /// Legs of each.
    pub(super) legs: u64,
    /// Frames of each leg.
    pub(super) rounds: u64,
    /// From frame to frame.
    pub(super) frame: Picos,
    /// Of a frame, two a sample.
    pub(super) bytes: u64,
    /// From this lateness on, a send is a breach.
    pub(super) late: Picos,
    pub(super) pools: Pools,
}

/// Which pool a fiber runs in.
#[derive(Clone, Copy)]
pub(super) enum Pools {
    /// Legs, mixers and sends have one each, in this order. The spawner is in that of the legs.
    Kinds,
    /// This many take turns with whole conferences.
    Conferences(usize),
}

impl Pools {
    /// Returns the pool of a fiber.
    fn of(self, kind: usize, conference: u64) -> usize {
        match self {
            Self::Kinds => kind - LEG,
            Self::Conferences(pools) => conference as usize % pools,
        }
    }
}

/// What a fiber that yields does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// A leg makes and encodes a frame.
    Makes,
    /// A leg reads the clock.
    Reads,
    /// A leg looks whether its frame is due.
    Compares,
    /// It locks a slot.
    Locks,
    /// A leg fills its slot, a mixer empties one.
    Holds,
    /// A mixer adds the samples.
    Adds,
    /// A mixer spawns its sends.
    Spawns,
}

/// A leg or a mixer.
#[derive(Clone, Copy, Debug)]
struct State {
    phase: Phase,
    round: u64,
    /// Which slot a mixer is at, then how many sends it has spawned.
    at: u64,
}

/// Sends by their lateness.
#[derive(Clone, Copy, Debug, Default)]
struct Sent {
    all: u64,
    breaches: u64,
    good: u64,
    poor: u64,
}

pub(super) struct Mixer {
    parameters: Parameters,
    spawners: Spawners,
    /// Whether the slot of each leg is full.
    full: Vec<bool>,
    legs: Vec<State>,
    mixers: Vec<State>,
    sent: Sent,
}

impl Mixer {
    /// `create` is what creating a fiber takes.
    pub(super) fn new(parameters: Parameters, create: Picos) -> Self {
        let Parameters { mixers, legs, .. } = parameters;
        let state = |phase, count| {
            vec![
                State {
                    phase,
                    round: 0,
                    at: 0
                };
                count as usize
            ]
        };

        Self {
            spawners: Spawners::new(1, mixers * (legs + 1), create),
            full: vec![false; (mixers * legs) as usize],
            legs: state(Phase::Makes, mixers * legs),
            mixers: state(Phase::Locks, mixers),
            sent: Sent::default(),
            parameters,
        }
    }

    /// Creates the fiber of a number: of each conference its legs, then its mixer.
    fn create(&self, number: u64, fibers: &mut Fibers) -> TaskId {
        let legs = self.parameters.legs;
        let conference = number / (legs + 1);
        let place = number % (legs + 1);
        let (kind, index) = if place < legs {
            (LEG, conference * legs + place)
        } else {
            (MIXER, conference)
        };

        let fiber = fibers.create(kind, 0);
        let this = fibers.get(fiber);
        this.other = index as usize;
        this.pool = self.parameters.pools.of(kind, conference);

        fiber
    }

    fn due(&self, round: u64) -> Picos {
        self.parameters.frame * round
    }

    fn gives_up(&self, now: Picos) -> bool {
        now > self.due(self.parameters.rounds - 1 + GIVE_UP)
    }

    fn digest(&self) -> Picos {
        self.parameters.bytes * DIGEST
    }

    /// Returns what a leg does, or nothing if a step took no time.
    fn leg(&mut self, index: usize, now: Picos) -> Option<Action> {
        let State { phase, round, .. } = self.legs[index];
        let (action, next) = match phase {
            Phase::Makes if round == self.parameters.rounds => return Some(Action::End),
            Phase::Makes => (
                Some(Action::Compute(
                    self.parameters.bytes * DRAW + self.digest(),
                )),
                Phase::Reads,
            ),
            Phase::Reads => (Some(Action::Compute(CLOCK)), Phase::Compares),
            Phase::Compares if self.gives_up(now) => return Some(Action::End),
            Phase::Compares if now < self.due(round) => (Some(Action::Yield), Phase::Reads),
            Phase::Compares | Phase::Locks => {
                (Some(Action::Touch(SLOTS + index as u64)), Phase::Holds)
            }
            _ if self.full[index] => (Some(Action::Yield), Phase::Reads),
            _ => {
                self.full[index] = true;
                self.legs[index].round += 1;
                (None, Phase::Makes)
            }
        };

        self.legs[index].phase = next;
        action
    }

    /// Returns what a mixer does, or nothing if a step took no time.
    fn mix(&mut self, index: usize, step: &mut Step<'_>) -> Option<Action> {
        let State { phase, round, at } = self.mixers[index];
        let legs = self.parameters.legs;
        let slot = index as u64 * legs + at;
        let (action, phase, round, at) = match phase {
            Phase::Locks if round == self.parameters.rounds || self.gives_up(step.now) => {
                return Some(Action::End);
            }
            Phase::Locks => (Some(Action::Touch(SLOTS + slot)), Phase::Holds, round, at),
            Phase::Holds if !std::mem::take(&mut self.full[slot as usize]) => {
                (Some(Action::Yield), Phase::Locks, round, at)
            }
            Phase::Holds if at + 1 < legs => (None, Phase::Locks, round, at + 1),
            Phase::Holds => (None, Phase::Adds, round, 0),
            Phase::Adds => {
                let samples = legs * (self.parameters.bytes / 2);
                (
                    Some(Action::Compute(samples * ADD)),
                    Phase::Spawns,
                    round,
                    0,
                )
            }
            _ if at == legs => (None, Phase::Locks, round + 1, 0),
            _ => {
                let send = step.fibers.create(SEND, self.due(round));
                step.fibers.get(send).pool = self.parameters.pools.of(SEND, index as u64);
                (Some(Action::Spawn(send)), Phase::Spawns, round, at + 1)
            }
        };

        self.mixers[index] = State { phase, round, at };
        action
    }

    /// Notes a send by its lateness.
    fn note(&mut self, lateness: Picos) {
        let sent = &mut self.sent;
        sent.all += 1;
        sent.breaches += u64::from(lateness >= self.parameters.late);
        sent.good += u64::from((EXCELLENT..2 * EXCELLENT).contains(&lateness));
        sent.poor += u64::from(lateness >= 2 * EXCELLENT);
    }
}

impl Workload for Mixer {
    fn arrival(&mut self, fibers: &mut Fibers) -> Option<(Picos, TaskId)> {
        self.spawners.arrival(fibers)
    }

    fn next(&mut self, fiber: TaskId, step: &mut Step<'_>) -> Action {
        let this = step.fibers.get(fiber);
        let kind = this.kind;
        let index = this.other;
        loop {
            let action = match kind {
                SPAWNER => {
                    return self
                        .spawners
                        .next(fiber, step, |step, number| self.create(number, step.fibers));
                }
                LEG => self.leg(index, step.now),
                MIXER => self.mix(index, step),
                _ if is_first(step, fiber) => Some(Action::Compute(self.digest())),
                _ => {
                    let lateness = step.now.saturating_sub(step.fibers.get(fiber).born);
                    self.note(lateness);
                    (step.latency)(lateness);
                    Some(Action::End)
                }
            };

            if let Some(action) = action {
                return action;
            }
        }
    }

    fn operations(&self) -> u64 {
        self.sent.all
    }

    fn figures(&self) -> Vec<(&'static str, &'static str, f64)> {
        let Parameters {
            mixers,
            legs,
            rounds,
            ..
        } = self.parameters;
        let all = mixers * legs * rounds;
        let sent = self.sent;
        let unsent = all - sent.all;
        let share = |count: u64| count as f64 / all as f64;

        vec![
            ("breach_rate", "1", share(sent.breaches + unsent)),
            (
                "excellent_share",
                "1",
                share(sent.all - sent.good - sent.poor),
            ),
            ("good_share", "1", share(sent.good)),
            ("poor_share", "1", share(sent.poor + unsent)),
            ("unsent", "count", unsent as f64),
        ]
    }
}

/// Returns whether it is a fiber's first step, and counts it.
fn is_first(step: &mut Step<'_>, fiber: TaskId) -> bool {
    let this = step.fibers.get(fiber);
    this.step += 1;
    this.step == 1
}
