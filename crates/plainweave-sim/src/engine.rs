//! One run: actors on coroutines, resumed in the order of simulated time.
//!
//! Actors are the workers, and after them one thread outside the pools, which brings what arrives.
//! The engine takes the earliest event, resumes its actor until that gives way, and looks whether
//! everything is done. It knows no policy and no costs.

use std::cell::RefCell;
use std::mem;
use std::rc::Rc;

use corosensei::stack::DefaultStack;
use corosensei::{Coroutine, CoroutineResult};

use crate::check::Promises;
use crate::costs::{NANO, Picos};
use crate::figures::Outcome;
use crate::machine::Machine;
use crate::meter::{self, Installed, Traffic};
use crate::policy::{Choice, Policy, Visitor};
use crate::pools::Pools;
use crate::task::Ticket;
use crate::timeline::Timeline;
use crate::worker;
use crate::workload::Load;
use crate::world::World;

/// Bytes of an actor's stack; only what is used is committed.
const STACK: usize = 256 << 10;

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
    /// The longest that it may take, in simulated nanoseconds; what takes longer is given up, with
    /// a message.
    pub limit: Option<u64>,
}

/// Carries out one run.
///
/// # Errors
/// The policy's text is wrong, or a checker has found something: a message. A run that is repeated
/// with the same setup ends the same way.
pub fn simulate(setup: &Setup) -> Result<Outcome, String> {
    struct Run<'a>(&'a Setup, Promises);
    impl Visitor<Ticket> for Run<'_> {
        type Output = Result<Outcome, String>;
        fn visit<P: Policy<Ticket>>(self, params: P::Params) -> Self::Output {
            run::<P>(self.0, self.1, params)
        }
    }
    let choice = Choice::parse(&setup.policy)?;
    // Parameters may take back what the preset promises about waiting.
    let bounded = choice.preset().bounded && !setup.policy.contains(':');
    let promises = Promises {
        conservation: choice.conservation(),
        bounded,
    };
    choice.visit(Run(setup, promises))
}

/// A worker, or the thread outside. One that has begun and not ended is leaked rather than dropped,
/// and so are the pools, which it shares: a coroutine's `Drop` would unwind it out of the policy
/// (`meter` says why that is not sound).
pub(crate) struct Actor(Option<Coroutine<(), (), Result<(), String>>>);

impl Actor {
    fn new(body: impl FnOnce() + 'static) -> Result<Self, String> {
        let stack = DefaultStack::new(STACK)
            .map_err(|error| format!("cannot allocate a stack for a simulated worker: {error}"))?;
        Ok(Self(Some(Coroutine::with_stack(
            stack,
            move |yielder, ()| meter::enter(yielder, body),
        ))))
    }

    fn has_ended(&self) -> bool {
        self.0.as_ref().is_none_or(Coroutine::done)
    }

    /// Lets it go on until it gives way. Returns the message of a panic that has ended it.
    fn resume(&mut self) -> Option<String> {
        let coroutine = self.0.as_mut().filter(|coroutine| !coroutine.done())?;
        match coroutine.resume(()) {
            CoroutineResult::Return(Err(message)) => Some(message),
            _ => None,
        }
    }
}

impl Drop for Actor {
    fn drop(&mut self) {
        if let Some(coroutine) = self
            .0
            .take_if(|coroutine| coroutine.started() && !coroutine.done())
        {
            // One that has not begun has no frames, and is dropped like anything else.
            mem::forget(coroutine);
        }
    }
}

/// Carries out a run with a policy of any type.
pub(crate) fn run<P: Policy<Ticket>>(
    setup: &Setup,
    promises: Promises,
    params: P::Params,
) -> Result<Outcome, String> {
    let workers = setup.machine.workers();
    let sizes = setup.load.pools(workers)?;
    let mut world = World::new(
        setup.load.build(&setup.machine, setup.seed, sizes.len()),
        promises,
        &sizes,
    );
    world.checker.limit = setup
        .limit
        .map_or(Picos::MAX, |nanos| nanos.saturating_mul(NANO));
    world.timeline = setup.record.then(Timeline::default);
    let pools = Rc::new(Pools::<P>::new(
        &setup.machine,
        setup.seed,
        &params,
        &sizes,
        RefCell::new(world),
    ));
    let mut actors = Vec::with_capacity(workers + 1);
    for worker in 0..workers {
        let pools = pools.clone();
        actors.push(Actor::new(move || worker::work(&pools, worker))?);
    }
    let outside = pools.clone();
    actors.push(Actor::new(move || worker::arrive(&outside))?);
    let meter = Installed::new(&setup.machine, actors.len(), setup.seed);
    let traffic = drive(&pools, &meter, &mut actors);
    let mut world = pools.world.borrow_mut();
    if let Some(violation) = world.checker.violation() {
        // An actor that the policy's panic has ended is not leaked, but its policy may be in any
        // state.
        mem::forget(pools.clone());
        return Err(violation.to_owned());
    }
    Ok(Outcome {
        nanos: world.ended / NANO,
        operations: world.workload.operations(),
        runs: world.runs,
        latency: world.latency.clone(),
        counts: pools.counts.get(),
        own: world.workload.figures(),
        traffic,
        sleeps: world.sleeps,
        beside_sleeper: world.checker.longest_beside_sleeper() / NANO,
        overtaken: world.checker.most_overtaken(),
        digest: world.digest,
        timeline: world.timeline.take(),
    })
}

/// Resumes actors until everything is done, then until each has stopped. Returns the traffic until
/// everything was done. Once a checker objects, no actor goes on.
fn drive<P: Policy<Ticket>>(pools: &Pools<P>, meter: &Installed, actors: &mut [Actor]) -> Traffic {
    advance(pools, meter, actors, World::is_done);
    let mut world = pools.world.borrow_mut();
    let live = world.fibers.live();
    // Nothing can happen any more: fibers that are left were lost, or wait for one another.
    if world.checker.violation().is_none() {
        world.checker.stuck(live);
    }
    let ended = world.ended;

    drop(world);
    let traffic = meter.end(
        (0..actors.len()).filter(|actor| !actors[*actor].has_ended()),
        ended,
    );

    if pools.world.borrow().checker.violation().is_none() {
        // All that sleep have been woken for the end: each comes to its next look at `is_ending`.
        advance(pools, meter, actors, |_| false);
        if !actors.iter().all(Actor::has_ended) {
            pools.world.borrow_mut().checker.endless();
        }
    }

    traffic
}

/// Resumes actors in the order of time until `is_done`, until a checker objects, or until nothing
/// can happen any more.
fn advance<P: Policy<Ticket>>(
    pools: &Pools<P>,
    meter: &Installed,
    actors: &mut [Actor],
    is_done: impl Fn(&World) -> bool,
) {
    while let Some((actor, now)) = meter.next() {
        let panic = actors[actor].resume();
        // Checks and workloads use atomics of the same shim, which must not cost the actor
        // anything.
        meter.pause();
        let world = &mut *pools.world.borrow_mut();
        if let Some(message) = panic {
            world.checker.panicked(&message);
        }
        if !world.checker.event(now) || is_done(world) {
            break;
        }
    }
}
