//! One run: actors on coroutines, resumed in the order of simulated time.
//!
//! Actors are the workers, and after them one thread outside the pool, which brings what arrives. The engine takes the
//! earliest event, resumes its actor until that gives way, and looks whether everything is done. It knows no policy and
//! no costs.

use std::cell::RefCell;
use std::rc::Rc;

use corosensei::stack::DefaultStack;
use corosensei::{Coroutine, CoroutineResult};
use hdrhistogram::Histogram;

use crate::check::{Checker, Promises};
use crate::costs::{NANO, Picos};
use crate::figures::Outcome;
use crate::machine::Machine;
use crate::meter::{self, Installed};
use crate::policy::{Choice, Policy, Visitor};
use crate::task::{Fibers, TaskId, Ticket};
use crate::timeline::Timeline;
use crate::worker::{self, Pool};
use crate::workload::{Action, Load, Step, Workload};

/// Bytes of an actor's stack; only what is used is committed.
const STACK: usize = 256 << 10;

/// The longest latency that is told apart, in nanoseconds: an hour.
const LONGEST: u64 = 3_600_000_000_000;

/// Everything that a run depends on.
#[derive(Clone, Debug)]
pub struct Setup {
    /// The policy, as text: `NAME` or `NAME:param=value,...`.
    pub policy: String,
    /// The machine.
    pub machine: Machine,
    /// What its fibers do.
    pub load: Load,
    /// What decides all draws.
    pub seed: u64,
    /// Whether the outcome has a timeline.
    pub record: bool,
}

/// What the actors of a run share beside the pool.
pub(crate) struct World {
    pub(crate) fibers: Fibers,
    pub(crate) checker: Checker,
    pub(crate) runs: u64,
    pub(crate) sleeps: u64,
    /// What each worker does when, if that is recorded.
    pub(crate) timeline: Option<Timeline>,
    /// Nothing more comes from outside.
    pub(crate) all_arrived: bool,
    workload: Box<dyn Workload>,
    latency: Histogram<u64>,
    digest: u64,
    /// When the last fiber ended.
    ended: Picos,
}

impl World {
    fn new(workload: Box<dyn Workload>, promises: Promises, workers: usize) -> Self {
        Self {
            fibers: Fibers::default(),
            checker: Checker::new(promises, workers),
            runs: 0,
            sleeps: 0,
            timeline: None,
            all_arrived: false,
            workload,
            latency: Histogram::new_with_bounds(1, LONGEST, 3).expect("the bounds are in order"),
            digest: 0,
            ended: 0,
        }
    }

    /// Returns what a fiber does next.
    pub(crate) fn next(&mut self, fiber: TaskId, now: Picos) -> Action {
        let latency = &mut self.latency;
        let mut record = |time: Picos| latency.saturating_record(time / NANO);
        self.workload.next(fiber, &mut Step { now, fibers: &mut self.fibers, latency: &mut record })
    }

    /// Returns the next fiber that comes from outside, and when.
    pub(crate) fn arrival(&mut self) -> Option<(Picos, TaskId)> {
        let next = self.workload.arrival(&mut self.fibers);
        self.all_arrived = next.is_none();
        next
    }

    /// Notes that a worker has taken a fiber from the policy.
    pub(crate) fn starts(&mut self, fiber: TaskId, worker: usize, now: Picos) {
        self.checker.popped(fiber, now);
        self.runs += 1;
        // FNV-1a's step over what happened, where and when.
        for word in [fiber as u64, worker as u64, now] {
            self.digest = (self.digest ^ word).wrapping_mul(0x0100_0000_01B3);
        }
    }

    /// Notes that a fiber has ended.
    pub(crate) fn ends(&mut self, fiber: TaskId, now: Picos) {
        self.fibers.end(fiber);
        self.ended = self.ended.max(now);
    }

    fn is_done(&self) -> bool {
        self.all_arrived && self.fibers.live() == 0
    }
}

/// Carries out one run.
///
/// # Errors
/// The policy's text is wrong, or a checker has found something: a message. A run that is repeated with the same setup
/// ends the same way.
pub fn simulate(setup: &Setup) -> Result<Outcome, String> {
    struct Run<'a>(&'a Setup, Promises);
    impl Visitor<Ticket> for Run<'_> {
        type Output = Result<Outcome, String>;
        fn visit<P: Policy<Ticket>>(self, params: P::Params) -> Self::Output {
            run::<P>(self.0, self.1, params)
        }
    }
    let choice = Choice::parse(&setup.policy)?;
    let promises = Promises { conservation: choice.conservation(), bounded: choice.preset().bounded };
    choice.visit(Run(setup, promises))
}

type Actor = Coroutine<(), (), Result<(), String>>;

/// Carries out a run with a policy of any type.
pub(crate) fn run<P: Policy<Ticket>>(setup: &Setup, promises: Promises, params: P::Params) -> Result<Outcome, String> {
    let workers = setup.machine.workers();
    let mut world = World::new(setup.load.build(workers, setup.seed), promises, workers);
    world.timeline = setup.record.then(Timeline::default);
    let pool = Rc::new(Pool::<P>::new(setup, params, RefCell::new(world)));
    let mut actors = Vec::with_capacity(workers + 1);
    for id in 0..workers {
        let pool = pool.clone();
        actors.push(actor(move || worker::work(&pool, id))?);
    }
    let outside = pool.clone();
    actors.push(actor(move || worker::arrive(&outside))?);
    let meter = Installed::new(&setup.machine, actors.len(), setup.seed);
    drive(&pool, &meter, &mut actors);
    let traffic = meter.traffic();
    let mut world = pool.world.borrow_mut();
    if let Some(violation) = world.checker.violation() {
        return Err(violation.to_owned());
    }
    Ok(Outcome {
        nanos: world.ended / NANO,
        operations: world.workload.operations(),
        runs: world.runs,
        latency: world.latency.clone(),
        counts: pool.counts.get(),
        traffic,
        sleeps: world.sleeps,
        beside_sleeper: world.checker.longest_beside_sleeper / NANO,
        overtaken: world.checker.most_overtaken,
        digest: world.digest,
        timeline: world.timeline.take(),
    })
}

fn actor(body: impl FnOnce() + 'static) -> Result<Actor, String> {
    let stack = DefaultStack::new(STACK).map_err(|error| format!("no stack for a simulated worker: {error}"))?;
    Ok(Coroutine::with_stack(stack, move |yielder, ()| meter::enter(yielder, body)))
}

/// Resumes actors until everything is done or a checker objects; then ends all of them.
fn drive<P: Policy<Ticket>>(pool: &Pool<P>, meter: &Installed, actors: &mut [Actor]) {
    while let Some((actor, now)) = meter.next() {
        let done = actors[actor].resume(());
        meter.pause();
        let mut world = pool.world.borrow_mut();
        if let CoroutineResult::Return(Err(message)) = done {
            world.checker.panicked(&message);
        }
        if !world.checker.event(now) || world.is_done() {
            break;
        }
    }
    let mut world = pool.world.borrow_mut();
    let live = world.fibers.live();
    if world.checker.violation().is_none() {
        world.checker.stuck(live);
    }
    drop(world);
    meter.end();
    for actor in actors.iter_mut().filter(|actor| !actor.done()) {
        // At the end nothing waits: one resume carries a worker out of its loop.
        let done = actor.resume(());
        if let CoroutineResult::Return(Err(message)) = done {
            pool.world.borrow_mut().checker.panicked(&message);
        }
    }
}
