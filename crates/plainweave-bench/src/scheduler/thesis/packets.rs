//! Packets: a fiber for each, which searches a copy of a template for line ends.
//!
//! The thesis's spawner schedules the handlers without a pause; only a full structure holds it up,
//! in its base case. (`in-flight` bounds how many are under way instead, for systems that cannot
//! have 50,000.) Text and code of the thesis disagree about the copy: `copy=spawner` gives each
//! handler a copy of a random template, `copy=handler` lets each copy the first. [`burst`] is also
//! what `compose` runs, with a hook that brings its side task.

use std::sync::Arc;
use std::time::{Duration, Instant};

use plainweave_sim::thesis::{Parameter, packets};

use super::experiment::{Experiment, PLAIN};
use super::ledger::{Ledger, Outcome};
use super::parameters::{Plan, Table, in_flight};
use super::room::{Room, all};
use crate::harness::random::Random;
use crate::scheduler::shim::Shim;

/// The options of `packets`.
#[derive(Debug)]
pub(crate) struct Packets;

impl Table for Packets {
    const NAME: &'static str = "packets";
    const PARAMETERS: &'static [Parameter] = &[
        packets::PACKETS,
        packets::SPAWNED_BY,
        Parameter::word(
            "copy",
            &["spawner", "handler"],
            "Who copies: the spawner a random template, or each handler the first",
        ),
        packets::DELAY,
        packets::DELAY_NS,
        in_flight("Packets under way at most; 0: no bound, but 128 on threads, 10,000 on may"),
    ];
}

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: Packets::NAME,
    parameters: Packets::PARAMETERS,
    cases: packets::CASES,
    iterations: [6, 11],
    ..PLAIN
};

const TEMPLATES: usize = 10;

/// A packet, and where its line ends are.
pub(crate) struct Template {
    pub(crate) bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl Template {
    /// Returns the ten of the thesis.
    pub(crate) fn all() -> Vec<Self> {
        let template = |i: usize| {
            let ends: Vec<_> = (1..300).filter(|k| k % (20 + i) == 0).collect();
            let mut bytes = vec![b'-'; 2000 + 30 * i];
            ends.iter().for_each(|end| bytes[*end] = b'\n');
            Self { bytes, ends }
        };
        (0..TEMPLATES).map(template).collect()
    }

    /// Searches a copy, and returns whether its line ends are where they belong.
    pub(crate) fn is_right(&self, copy: &[u8]) -> bool {
        let found = copy
            .iter()
            .enumerate()
            .filter(|(_, byte)| **byte == b'\n')
            .map(|(place, _)| place);
        found.eq(self.ends.iter().copied())
    }
}

/// What each handler does besides.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Delay {
    None,
    Spin(Duration),
    /// The thread sleeps, as the thesis's does.
    Sleep(Duration),
    /// The fiber sleeps, and its worker runs others.
    Suspend(Duration),
}

impl Delay {
    async fn pass<S: Shim>(self) {
        match self {
            Delay::None => {}
            Delay::Spin(length) => {
                let began = Instant::now();
                while began.elapsed() < length {
                    std::hint::spin_loop();
                }
            }
            Delay::Sleep(length) => std::thread::sleep(length),
            Delay::Suspend(length) => S::sleep(length).await,
        }
    }
}

/// How many packets, and how they come.
#[derive(Clone, Debug)]
pub(crate) struct Load {
    pub(crate) packets: u64,
    pub(crate) spawners: u64,
    /// Each handler copies the first template itself.
    pub(crate) handlers_copy: bool,
    pub(crate) delay: Delay,
    /// 0: no bound.
    pub(crate) in_flight: u64,
}

/// What the fibers of an iteration share. `after` is called for each packet when it has been
/// searched, with its number.
struct Burst<S: Shim, A> {
    load: Load,
    templates: Vec<Template>,
    room: Room<S>,
    ledger: Ledger,
    after: A,
}

impl<S: Shim, A: Fn(u64) + Send + Sync + 'static> Burst<S, A> {
    /// A spawner's fiber: spawns each packet whose number is `first` or a multiple of the spawners
    /// above it.
    async fn spawn(self: Arc<Self>, first: u64) {
        // The same templates on all systems.
        let mut random = Random::new(first as usize);
        for number in (first..self.load.packets).step_by(self.load.spawners as usize) {
            self.room.enter().await;
            let template = if self.load.handlers_copy {
                0
            } else {
                random.below(TEMPLATES)
            };

            let spawned = Instant::now();
            let copy = (!self.load.handlers_copy).then(|| self.templates[template].bytes.clone());
            drop(S::spawn(
                self.clone().handle(number, template, copy, spawned),
            ));
        }
    }

    /// A packet's fiber.
    async fn handle(
        self: Arc<Self>,
        number: u64,
        template: usize,
        copy: Option<Vec<u8>>,
        spawned: Instant,
    ) {
        let template = &self.templates[template];
        let copy = copy.unwrap_or_else(|| template.bytes.clone());
        let right = template.is_right(&copy);
        self.load.delay.pass::<S>().await;
        (self.after)(number);
        self.ledger.record(S::worker(), spawned, right);
        self.room.leave();
    }
}

/// Runs one iteration: spawns all packets and waits until they have ended.
///
/// # Errors
/// One is lost, or its line ends are not where they belong.
pub(crate) async fn burst<S: Shim>(
    load: Load,
    workers: usize,
    after: impl Fn(u64) + Send + Sync + 'static,
) -> anyhow::Result<Outcome> {
    let packets = load.packets;
    let spawners = load.spawners;
    let room = Room::<S>::new(load.in_flight);
    let ledger = Ledger::new(workers);
    let burst = Arc::new(Burst {
        load,
        templates: Template::all(),
        room,
        ledger,
        after,
    });

    let began = Instant::now();
    all::<S, _>(spawners, |first| burst.clone().spawn(first)).await;
    burst.ledger.complete::<S>(packets).await;
    burst.ledger.outcome(began, packets, "packets")
}

pub(super) async fn iterate<S: Shim>(plan: &Plan, workers: usize) -> anyhow::Result<Outcome> {
    let length = Duration::from_nanos(plan.count("delay-ns"));
    let delay = match plan.word("delay") {
        "spin" => Delay::Spin(length),
        "sleep" => Delay::Sleep(length),
        "suspend" => Delay::Suspend(length),
        _ => Delay::None,
    };

    let load = Load {
        packets: plan.count("packets"),
        spawners: plan.count("spawners"),
        handlers_copy: plan.word("copy") == "handler",
        delay,
        in_flight: plan.count("in-flight"),
    };

    burst::<S>(load, workers, |_| ()).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn templates_are_the_published_ones() {
        let templates = Template::all();
        let lengths: Vec<_> = templates
            .iter()
            .map(|template| template.bytes.len())
            .collect();
        assert_eq!(
            lengths,
            [2000, 2030, 2060, 2090, 2120, 2150, 2180, 2210, 2240, 2270]
        );
        assert_eq!(templates[0].ends[..3], [20, 40, 60]);
        assert_eq!((templates[9].ends[0], templates[9].ends.len()), (29, 10));

        assert!(
            templates[3].is_right(&templates[3].bytes)
                && !templates[3].is_right(&templates[4].bytes)
        );
    }
}
