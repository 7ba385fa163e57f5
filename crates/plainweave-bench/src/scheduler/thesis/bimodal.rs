//! Bimodal: packets that pass through a chain of tasks, few of which sleep for long.
//!
//! The thesis's sleeps hold up their thread, and with it whatever waits at that worker: that is
//! what its hybrid orders, and a pool of their own for heavy packets (`staged`), are compared by.
//! `wait=suspend` is the control with a runtime that can do other work meanwhile.

use std::sync::Arc;
use std::time::{Duration, Instant};

use plainweave_sim::thesis::{Parameter, bimodal};

use super::experiment::{Experiment, NO_POOLS, PLAIN};
use super::ledger::{Ledger, Outcome};
use super::packets::Template;
use super::parameters::{Plan, Table, in_flight, within};
use super::room::{Room, Spread, all};
use crate::harness::random::Random;
use crate::scheduler::shim::Shim;

/// The options of `bimodal`.
#[derive(Debug)]
pub(crate) struct Bimodal;

impl Table for Bimodal {
    const NAME: &'static str = "bimodal";
    const PARAMETERS: &'static [Parameter] = &[
        bimodal::PACKETS,
        bimodal::SPAWNED_BY,
        bimodal::CHAIN,
        bimodal::HEAVY,
        bimodal::SLEEPS,
        bimodal::SLEEP_MS,
        bimodal::WAIT,
        bimodal::POOLS,
        bimodal::SIDE,
        in_flight("Packets under way at most; 0: no bound, but 128 on threads, 10,000 on may"),
    ];
}

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: Bimodal::NAME,
    parameters: Bimodal::PARAMETERS,
    cases: bimodal::CASES,
    policies: &[
        "fifo",
        "ot-fifo",
        "ot-lifo",
        "ot-slot",
        "ot-stochastic",
        "ot-reverse",
        "ot-alternate",
    ],
    check: |plan| {
        within(
            "sleeps",
            plan.count("sleeps"),
            (0, plan.count("chain")),
            "the tasks of --chain",
        )
    },
    pools: |plan, workers| match is_staged(plan) {
        true => bimodal::staged(workers, plan.count("side") as usize),
        false => Vec::new(),
    },
    least_workers: |plan| {
        if is_staged(plan) {
            plan.count("side") as usize + 1
        } else {
            1
        }
    },
    lacks: |plan, _| is_staged(plan).then_some(NO_POOLS),
    ..PLAIN
};

fn is_staged(plan: &Plan) -> bool {
    plan.word("pools") == "staged"
}

/// What the chains of an iteration share.
struct Shared<S: Shim> {
    templates: Vec<Template>,
    packets: u64,
    spawners: u64,
    /// In percent.
    heavy: f64,
    chain: u64,
    sleeps: u64,
    sleep: Duration,
    blocks: bool,
    spread: Spread<S>,
    room: Room<S>,
    ledger: Ledger,
}

/// A packet on its way from task to task.
struct Packet<S: Shim> {
    shared: Arc<Shared<S>>,
    bytes: Vec<u8>,
    template: usize,
    heavy: bool,
    left: u64,
    right: bool,
    spawned: Instant,
}

/// A task of the chain: searches for line ends or sleeps, and schedules the next one.
// It spawns itself, so it must declare that it is `Send`.
#[allow(clippy::manual_async_fn)]
fn task<S: Shim>(mut packet: Box<Packet<S>>) -> impl Future<Output = ()> + Send + 'static {
    async move {
        let shared = packet.shared.clone();
        if !packet.heavy || packet.left > shared.sleeps {
            packet.right &= shared.templates[packet.template].is_right(&packet.bytes);
        } else if shared.blocks {
            std::thread::sleep(shared.sleep);
        } else {
            S::sleep(shared.sleep).await;
        }

        packet.left -= 1;
        if packet.left > 0 {
            drop(S::spawn(task::<S>(packet)));
            return;
        }

        let worker = shared.spread.worker(usize::from(packet.heavy));
        shared.ledger.record(worker, packet.spawned, packet.right);
        shared.room.leave();
    }
}

/// A spawner's fiber.
async fn spawn<S: Shim>(shared: Arc<Shared<S>>, first: u64) {
    for number in (first..shared.packets).step_by(shared.spawners as usize) {
        shared.room.enter().await;
        // The same packets are heavy on all systems.
        let mut random = Random::new(number as usize);
        let heavy = (random.below(1_000_000) as f64) < shared.heavy * 1e4;
        let template = random.below(shared.templates.len());
        let spawned = Instant::now();
        let bytes = shared.templates[template].bytes.clone();
        let left = shared.chain;
        let packet = Packet {
            shared: shared.clone(),
            bytes,
            template,
            heavy,
            left,
            right: true,
            spawned,
        };

        shared
            .spread
            .spawn(usize::from(heavy), task::<S>(Box::new(packet)));
    }
}

pub(super) async fn iterate<S: Shim>(
    plan: &Plan,
    workers: usize,
    spread: Spread<S>,
) -> anyhow::Result<Outcome> {
    let packets = plan.count("packets");
    let spawners = plan.count("spawners");
    let shared = Arc::new(Shared::<S> {
        templates: Template::all(),
        packets,
        spawners,
        heavy: plan.decimal("heavy"),
        chain: plan.count("chain"),
        sleeps: plan.count("sleeps"),
        sleep: Duration::from_millis(plan.count("sleep-ms")),
        blocks: plan.word("wait") == "block",
        spread,
        room: Room::new(plan.count("in-flight")),
        ledger: Ledger::new(workers),
    });

    let began = Instant::now();
    all::<S, _>(spawners, |first| spawn(shared.clone(), first)).await;
    shared.ledger.complete::<S>(packets).await;
    shared.ledger.outcome(began, packets, "packets")
}
