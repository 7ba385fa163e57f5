//! Creation: how fast one fiber creates others, and how long it takes until these have ended.
//!
//! What a policy does when a worker's structure is full decides: spin, grow, overflow to a shared
//! queue, ask others to steal, add a second structure. The thesis argues about it and does not
//! measure it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use plainweave_sim::thesis::{Case, Parameter};

use super::experiment::{Experiment, PLAIN};
use super::ledger::{Ledger, Outcome};
use super::metrics::Figure;
use super::parameters::{Plan, Table, in_flight};
use super::room::Room;
use crate::scheduler::shim::Shim;

/// The options of `creation`.
#[derive(Debug)]
pub(crate) struct Creation;

impl Table for Creation {
    const NAME: &'static str = "creation";
    const PARAMETERS: &'static [Parameter] = &[
        Parameter::count(
            "tasks",
            "50000",
            (1, 100_000_000),
            "Fibers that one creates",
        )
        .full("1000000"),
        Parameter::count(
            "work-ns",
            "0",
            (0, 1_000_000_000),
            "Nanoseconds that each computes",
        ),
        in_flight("Fibers under way at most; 0: no bound, but 128 on threads, 10,000 on may"),
    ];
}

const CASES: &[Case] = &[
    Case::new("base", "", "empty fibers"),
    Case::new("work", "work-ns=1000", "each computes for a microsecond"),
];

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: Creation::NAME,
    parameters: Creation::PARAMETERS,
    cases: CASES,
    policies: &[
        "fifo",
        "ot-fifo-base",
        "ot-fifo-grow",
        "ot-fifo",
        "ot-fifo-sharded-5",
        "ot-fifo-request",
        "ot-fifo-sticky",
        "ot-fifo-announce",
        "ot-fifo-horizontal",
    ],
    iterations: [6, 11],
    ..PLAIN
};

struct Shared<S: Shim> {
    work: Duration,
    room: Room<S>,
    ledger: Ledger,
}

/// A created fiber.
async fn created<S: Shim>(shared: Arc<Shared<S>>, since: Instant) {
    let began = Instant::now();
    while began.elapsed() < shared.work {
        std::hint::spin_loop();
    }
    shared.ledger.record(S::worker(), since, true);
    shared.room.leave();
}

pub(super) async fn iterate<S: Shim>(
    plan: &Plan,
    workers: usize,
) -> anyhow::Result<(Outcome, Vec<Figure>)> {
    let tasks = plan.count("tasks");
    let work = Duration::from_nanos(plan.count("work-ns"));
    let room = Room::new(plan.count("in-flight"));
    let ledger = Ledger::new(workers);
    let shared = Arc::new(Shared::<S> { work, room, ledger });
    let began = Instant::now();

    for _ in 0..tasks {
        shared.room.enter().await;
        drop(S::spawn(created(shared.clone(), Instant::now())));
    }

    let creating = began.elapsed();
    shared.ledger.complete::<S>(tasks).await;
    let outcome = shared.ledger.outcome(began, tasks, "fibers")?;
    let draining = outcome.time.saturating_sub(creating);
    let figures = vec![
        ("create_ns", creating.as_nanos() as f64 / tasks as f64),
        ("created_per_s", tasks as f64 / creating.as_secs_f64()),
        ("drain_ms", draining.as_secs_f64() * 1e3),
    ];

    Ok((outcome, figures))
}
