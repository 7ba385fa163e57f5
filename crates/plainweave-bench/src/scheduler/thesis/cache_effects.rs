//! Cache effects: each packet is copied, and then read by a chain of tasks, one scheduling the
//! next.
//!
//! If the next task of a chain runs on the same worker and soon, the packet is still in its cache:
//! the thesis finds LIFO ahead for that reason. The control reads as many bytes one after the
//! other; there the prefetcher hides what a cold packet costs, and no difference is expected.

use std::sync::Arc;
use std::time::Instant;

use plainweave_sim::thesis::{Case, Parameter};

use super::experiment::{Experiment, PLAIN};
use super::ledger::{Ledger, Outcome};
use super::parameters::{Plan, Table, in_flight};
use super::room::{Room, all};
use crate::harness::random::Random;
use crate::scheduler::shim::Shim;

/// The options of `cache-effects`.
#[derive(Debug)]
pub(crate) struct CacheEffects;

impl Table for CacheEffects {
    const NAME: &'static str = "cache-effects";
    const PARAMETERS: &'static [Parameter] = &[
        Parameter::count(
            "packets",
            "20000",
            (1, 100_000_000),
            "Packets of an iteration",
        )
        .full("500000"),
        Parameter::count("spawners", "10", (1, 1000), "Fibers that spawn them"),
        Parameter::count(
            "chain",
            "10",
            (1, 10_000),
            "Tasks of a packet, one after the other",
        ),
        Parameter::count("reads", "21", (1, 100_000), "Reads of each task"),
        Parameter::word("access", &["random", "sequential"], "Where they read"),
        in_flight("Packets under way at most; 0: no bound, but 128 on threads, 10,000 on may"),
    ];
}

const CASES: &[Case] = &[
    Case::new(
        "base",
        "",
        "reads at random places, ten spawners as in the code",
    ),
    Case::new(
        "text",
        "spawners=5",
        "the same with five spawners, as the text has it",
    ),
    Case::new(
        "sequential",
        "access=sequential",
        "control: the same number of reads, one after the other",
    ),
];

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: CacheEffects::NAME,
    parameters: CacheEffects::PARAMETERS,
    cases: CASES,
    policies: &[
        "fifo",
        "lifo",
        "ot-fifo-base:capacity=1024",
        "ot-lifo-base:capacity=1024",
    ],
    ..PLAIN
};

const TEMPLATES: usize = 100;

/// The byte at a place of a template: what a read must find.
fn byte(template: usize, place: usize) -> u8 {
    (place * 31 + template * 7) as u8
}

/// What the chains of an iteration share.
struct Shared<S: Shim> {
    templates: Vec<Vec<u8>>,
    packets: u64,
    spawners: u64,
    chain: u64,
    reads: u64,
    sequential: bool,
    room: Room<S>,
    ledger: Ledger,
}

/// A packet on its way from task to task.
struct Packet<S: Shim> {
    shared: Arc<Shared<S>>,
    bytes: Vec<u8>,
    template: usize,
    random: Random,
    /// The place of the next sequential read.
    place: usize,
    left: u64,
    right: bool,
    spawned: Instant,
}

impl<S: Shim> Packet<S> {
    /// What each task does.
    fn read(&mut self) {
        let mut found = 0_u64;
        let mut wanted = 0_u64;
        for _ in 0..self.shared.reads {
            let place = if self.shared.sequential {
                self.place = (self.place + 1) % self.bytes.len();
                self.place
            } else {
                self.random.below(self.bytes.len())
            };

            found += u64::from(self.bytes[place]);
            wanted += u64::from(byte(self.template, place));
        }
        self.right &= found == wanted;
    }
}

/// A task of the chain: reads, and schedules the next one.
// It spawns itself, so it must declare that it is `Send`.
#[allow(clippy::manual_async_fn)]
fn task<S: Shim>(mut packet: Box<Packet<S>>) -> impl Future<Output = ()> + Send + 'static {
    async move {
        packet.read();
        packet.left -= 1;
        if packet.left > 0 {
            drop(S::spawn(task::<S>(packet)));
            return;
        }

        packet
            .shared
            .ledger
            .record(S::worker(), packet.spawned, packet.right);
        packet.shared.room.leave();
    }
}

/// A spawner's fiber.
async fn spawn<S: Shim>(shared: Arc<Shared<S>>, first: u64) {
    for number in (first..shared.packets).step_by(shared.spawners as usize) {
        shared.room.enter().await;
        // Each packet reads the same places on all systems.
        let mut random = Random::new(number as usize);
        let template = random.below(TEMPLATES);
        let spawned = Instant::now();
        let bytes = shared.templates[template].clone();
        let left = shared.chain;
        let packet = Packet {
            shared: shared.clone(),
            bytes,
            template,
            random,
            place: 0,
            left,
            right: true,
            spawned,
        };

        drop(S::spawn(task::<S>(Box::new(packet))));
    }
}

pub(super) async fn iterate<S: Shim>(plan: &Plan, workers: usize) -> anyhow::Result<Outcome> {
    let packets = plan.count("packets");
    let spawners = plan.count("spawners");
    let template = |i: usize| (0..1001 + i).map(|place| byte(i, place)).collect();
    let shared = Arc::new(Shared::<S> {
        templates: (0..TEMPLATES).map(template).collect(),
        packets,
        spawners,
        chain: plan.count("chain"),
        reads: plan.count("reads"),
        sequential: plan.word("access") == "sequential",
        room: Room::new(plan.count("in-flight")),
        ledger: Ledger::new(workers),
    });

    let began = Instant::now();
    all::<S, _>(spawners, |first| spawn(shared.clone(), first)).await;
    shared.ledger.complete::<S>(packets).await;
    shared.ledger.outcome(began, packets, "packets")
}
