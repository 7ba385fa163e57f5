//! An audio mixer: conferences whose legs send a frame every 20 ms, which their mixer adds up and
//! sends back to each.
//!
//! Nobody blocks: a leg yields until its frame is due and its slot is free, a mixer until each slot
//! is full. (That is the thesis's way; it measures how a scheduler treats those that yield.) A send
//! that ends later than `late-ms` after the frame's time is a breach. By lateness there are also
//! classes: excellent below 150 ms, good up to 300, then poor.
//!
//! `pools=staged` has legs, mixers and sends in pools of their own, `pools=silos` whole conferences
//! in independent ones. Which of the three the thesis gave 20, 30 and 50 percent of its domains is
//! not published: here it is that order.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::ensure;
use md5::{Digest, Md5};
use plainweave_sim::thesis::{Parameter, mixer};

use super::experiment::{Experiment, NO_POOLS};
use super::ledger::{Ledger, Outcome};
use super::metrics::Figure;
use super::parameters::{Plan, Table, within};
use super::room::Spread;
use crate::harness::random::Random;
use crate::scheduler::shim::Shim;

/// The options of `mixer`.
#[derive(Debug)]
pub(crate) struct Mixer;

impl Table for Mixer {
    const NAME: &'static str = "mixer";
    const PARAMETERS: &'static [Parameter] = &[
        mixer::MIXERS,
        mixer::LEGS,
        mixer::ROUNDS,
        mixer::FRAME_MS,
        mixer::BYTES,
        mixer::LATE_MS,
        mixer::POOLS,
        mixer::LEGS_SHARE,
        mixer::MIX_SHARE,
        mixer::SILOS,
    ];
}

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: Mixer::NAME,
    parameters: Mixer::PARAMETERS,
    cases: mixer::CASES,
    policies: &["fifo", "ot-fifo", "ot-lifo"],
    iterations: [4, 16],
    dropped: [1, 3],
    check: |plan| {
        let legs = plan.count("legs-share");
        within(
            "mix-share",
            plan.count("mix-share"),
            (1, 99 - legs),
            "so that legs, mixers and sends have a share",
        )
    },
    pools,
    least_workers: |plan| match plan.word("pools") {
        "staged" => 3,
        "silos" => 2,
        _ => 1,
    },
    lacks: |plan, system| match plan.word("pools") {
        "single" => (system == "may")
            .then_some("its coroutines that yield may keep others from running for ever"),
        _ => Some(NO_POOLS),
    },
};

fn pools(plan: &Plan, workers: usize) -> Vec<usize> {
    match plan.word("pools") {
        "staged" => mixer::staged(workers, plan.count("legs-share"), plan.count("mix-share")),
        "silos" => mixer::silos(workers, plan.count("silos") as usize),
        _ => Vec::new(),
    }
}

/// The kinds of tasks, in the order of the staged pools.
#[derive(Clone, Copy)]
enum Kind {
    Leg,
    Mixer,
    Send,
}

/// What all conferences share.
struct Shared<S: Shim> {
    rounds: u64,
    frame: Duration,
    bytes: usize,
    staged: bool,
    spread: Spread<S>,
    ledger: Ledger,
    began: Instant,
    /// Legs and mixers that have not ended.
    left: AtomicU64,
    /// The sum of the samples that the legs have made, less those that were mixed.
    sum: AtomicI64,
    /// Readings of the clock by those that wait for their time.
    readings: AtomicU64,
}

/// Waits until a slot is free or full; the frame that is in it then.
type Slot = Mutex<Option<Vec<u8>>>;

/// A conference.
struct Conference<S: Shim> {
    shared: Arc<Shared<S>>,
    number: usize,
    slots: Vec<Slot>,
}

fn with<T>(slot: &Slot, f: impl FnOnce(&mut Option<Vec<u8>>) -> T) -> T {
    f(&mut slot.lock().unwrap_or_else(PoisonError::into_inner))
}

fn samples(frame: &[u8]) -> impl Iterator<Item = i16> {
    frame
        .chunks_exact(2)
        .map(|two| i16::from_le_bytes([two[0], two[1]]))
}

fn sum(frame: &[u8]) -> i64 {
    samples(frame).map(i64::from).sum()
}

impl<S: Shim> Conference<S> {
    /// Returns in which pool a task of this conference runs.
    fn pool(&self, kind: Kind) -> usize {
        if self.shared.staged {
            kind as usize
        } else {
            self.number
        }
    }

    fn due(&self, round: u64) -> Instant {
        self.shared.began + self.shared.frame * round as u32
    }

    /// A leg's fiber.
    async fn leg(self: Arc<Self>, leg: usize) {
        let shared = &self.shared;
        let slot = &self.slots[leg];
        let mut random = Random::new(self.number * self.slots.len() + leg);
        let mut made = 0;
        let mut readings = 0;

        for round in 0..shared.rounds {
            let frame: Vec<u8> = (0..shared.bytes).map(|_| random.below(256) as u8).collect();
            made += sum(&frame);
            // What encoding a frame costs, for which the thesis hashes it.
            std::hint::black_box(Md5::digest(&frame));

            loop {
                readings += 1;
                // The mixer may be behind: its slot still has the last frame then.
                if Instant::now() >= self.due(round) && with(slot, |slot| slot.is_none()) {
                    break;
                }
                S::yield_now().await;
            }

            with(slot, |slot| *slot = Some(frame));
        }

        shared.sum.fetch_add(made, Relaxed);
        // Counted by itself and added at the end, or the count would be what is measured.
        shared.readings.fetch_add(readings, Relaxed);
        shared.left.fetch_sub(1, Relaxed);
    }

    /// The mixer's fiber.
    async fn mix(self: Arc<Self>) {
        let shared = &self.shared;
        let mut mixed = 0;
        for round in 0..shared.rounds {
            let mut added = vec![0_i32; shared.bytes / 2];
            for slot in &self.slots {
                let frame = loop {
                    if let Some(frame) = with(slot, Option::take) {
                        break frame;
                    }
                    S::yield_now().await;
                };

                added
                    .iter_mut()
                    .zip(samples(&frame))
                    .for_each(|(sum, sample)| *sum += i32::from(sample));
            }

            mixed += added.iter().map(|sample| i64::from(*sample)).sum::<i64>();
            let frame: Arc<Vec<u8>> = Arc::new(
                added
                    .iter()
                    .flat_map(|sample| sample.to_le_bytes())
                    .collect(),
            );
            for _ in 0..self.slots.len() {
                shared.spread.spawn(
                    self.pool(Kind::Send),
                    self.clone().send(round, frame.clone()),
                );
            }
        }

        // What legs have added and mixers have taken is equal, if no frame was lost.
        shared.sum.fetch_sub(mixed, Relaxed);
        shared.left.fetch_sub(1, Relaxed);
    }

    /// A send's fiber.
    async fn send(self: Arc<Self>, round: u64, frame: Arc<Vec<u8>>) {
        std::hint::black_box(Md5::digest(&*frame));
        self.shared.ledger.record(
            self.shared.spread.worker(self.pool(Kind::Send)),
            self.due(round),
            true,
        );
    }
}

/// Below this a send is excellent, and good up to twice as much.
const EXCELLENT: Duration = Duration::from_millis(150);

pub(super) async fn iterate<S: Shim>(
    plan: &Plan,
    workers: usize,
    spread: Spread<S>,
) -> anyhow::Result<(Outcome, Vec<Figure>)> {
    let mixers = plan.count("mixers");
    let legs = plan.count("legs");
    let rounds = plan.count("rounds");
    let shared = Arc::new(Shared {
        rounds,
        frame: Duration::from_millis(plan.count("frame-ms")),
        bytes: plan.count("bytes") as usize,
        staged: plan.word("pools") == "staged",
        spread: spread.clone(),
        ledger: Ledger::new(workers),
        began: Instant::now(),
        left: AtomicU64::new(mixers * (legs + 1)),
        sum: AtomicI64::new(0),
        readings: AtomicU64::new(0),
    });

    for number in 0..mixers as usize {
        let slots = (0..legs).map(|_| Slot::default()).collect();
        let conference = Arc::new(Conference {
            shared: shared.clone(),
            number,
            slots,
        });

        for leg in 0..legs as usize {
            spread.spawn(conference.pool(Kind::Leg), conference.clone().leg(leg));
        }
        spread.spawn(conference.pool(Kind::Mixer), conference.mix());
    }

    let sends = mixers * legs * rounds;
    shared.ledger.complete::<S>(sends).await;
    while shared.left.load(Relaxed) > 0 {
        S::sleep(Duration::from_micros(100)).await;
    }
    let sum = shared.sum.load(Relaxed);
    ensure!(
        sum == 0,
        "the mixed samples differ from those of the legs: their sum by {sum}"
    );
    let mut outcome = shared.ledger.outcome(shared.began, sends, "sends")?;

    outcome.readings = sends + shared.readings.load(Relaxed);
    let above = |least: Duration| {
        let least = least.as_nanos() as u64;
        outcome.latencies.count_between(least, u64::MAX) as f64 / sends as f64
    };

    let fair = above(EXCELLENT);
    let poor = above(2 * EXCELLENT);
    let breaches = above(Duration::from_millis(plan.count("late-ms")));
    let classes = [
        ("excellent_share", 1.0 - fair),
        ("good_share", fair - poor),
        ("poor_share", poor),
    ];
    Ok((
        outcome,
        [&[("breach_rate", breaches)], &classes[..]].concat(),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pools_have_all_workers_and_each_has_one() {
        let plan = |pools: &str| {
            let others = "mixers=1 legs=2 rounds=1 frame-ms=20 bytes=2 late-ms=10 legs-share=20 mix-share=30 silos=10";
            let texts: Vec<_> = others
                .split(' ')
                .map(str::to_owned)
                .chain([format!("pools={pools}")])
                .collect();
            Plan::parse(Mixer::PARAMETERS, &texts).unwrap()
        };

        assert_eq!(pools(&plan("single"), 4), Vec::<usize>::new());
        assert_eq!(pools(&plan("staged"), 3), [1, 1, 1]);
        assert_eq!(pools(&plan("staged"), 10), [2, 3, 5]);
        assert_eq!(pools(&plan("staged"), 110), [22, 33, 55]);
        assert_eq!(pools(&plan("silos"), 2), [1, 1]);
        assert_eq!(pools(&plan("silos"), 25), [3, 3, 3, 3, 3, 2, 2, 2, 2, 2]);
    }
}
