//! The pools of a run: workers that share a policy, and what wakes them.
//!
//! Most runs have one. With several, each has a policy of its own, whose workers count from 0; a
//! push into another pool is to that pool one from outside, as in the runtime.

use std::cell::{Cell, RefCell};

use crate::atomics::sleepers::Sleepers;
use crate::idle;
use crate::machine::Machine;
use crate::meter;
use crate::policy::{Counts, Cx, Policy, Ready, Topology, Wake, WorkerId};
use crate::task::{Place, TaskId, Ticket};
use crate::world::World;

/// All of them, and what they have in common.
pub(crate) struct Pools<P: Policy<Ticket>> {
    pub(crate) machine: Machine,
    pub(crate) world: RefCell<World>,
    /// What the policies of all workers have counted; complete once they have ended.
    pub(crate) counts: Cell<Counts>,
    pub(crate) seed: u64,
    pools: Vec<Pool<P>>,
}

/// One pool.
pub(crate) struct Pool<P: Policy<Ticket>> {
    /// Its place among all.
    pub(crate) number: usize,
    /// The number of its first worker among all workers.
    pub(crate) first: WorkerId,
    pub(crate) workers: usize,
    pub(crate) policy: Box<P>,
    pub(crate) sleepers: Box<Sleepers>,
    pub(crate) beds: Vec<Cell<Bed>>,
}

/// Where a worker sleeps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Bed {
    #[default]
    Empty,
    /// It sleeps.
    Occupied,
    /// A signal came before it slept, or is on its way: it does not sleep, or wakes soon.
    Signalled,
}

impl<P: Policy<Ticket>> Pool<P> {
    fn new(number: usize, first: WorkerId, params: P::Params, topology: &Topology) -> Self {
        let workers = topology.workers;
        Self {
            number,
            first,
            workers,
            policy: Box::new(P::new(params, topology)),
            sleepers: Box::new(Sleepers::new(workers, 0)),
            beds: vec![Cell::default(); workers],
        }
    }
}

impl<P: Policy<Ticket>> Pools<P> {
    /// `sizes`: how many workers each pool has.
    pub(crate) fn new(
        machine: &Machine,
        seed: u64,
        params: &P::Params,
        sizes: &[usize],
        world: RefCell<World>,
    ) -> Self {
        let mut first = 0;
        let pool = |(number, workers): (usize, &usize)| {
            let topology = Topology {
                workers: *workers,
                ..machine.topology
            };

            first += workers;
            Pool::new(number, first - workers, params.clone(), &topology)
        };

        Self {
            pools: sizes.iter().enumerate().map(pool).collect(),
            machine: machine.clone(),
            world,
            counts: Cell::default(),
            seed,
        }
    }

    /// Returns the pool that a worker belongs to.
    pub(crate) fn of(&self, worker: WorkerId) -> &Pool<P> {
        self.pools
            .iter()
            .rfind(|pool| pool.first <= worker)
            .expect("the first pool begins with worker 0")
    }

    /// Pushes a fiber that is new or waits into its pool. `own` is the pool that the caller works
    /// for, with its half of the policy.
    pub(crate) fn push(
        &self,
        own: Option<(usize, &mut P::Local)>,
        cx: &mut Cx,
        fiber: TaskId,
        why: Ready,
    ) {
        let (ticket, number) = self.ready(fiber);
        let pool = &self.pools[number];
        let local = own
            .filter(|(own, _)| *own == number)
            .map(|(_, local)| local);
        let wake = pool.policy.push(cx, local, ticket, why);
        self.act_on(pool, wake);
    }

    /// Takes the ticket of a fiber that is about to be pushed, and its pool.
    fn ready(&self, fiber: TaskId) -> (Ticket, usize) {
        let world = &mut *self.world.borrow_mut();
        let this = world.fibers.get(fiber);
        let pool = this.pool;
        let place = std::mem::replace(&mut this.place, Place::Ready);
        let (Place::New(ticket) | Place::Waiting(ticket)) = place else {
            unreachable!("only a fiber that is new or waits becomes ready");
        };

        world.checker.pool(pool).pushed(fiber, meter::now());
        (ticket, pool)
    }

    /// Wakes the worker that a policy's push asks for.
    pub(crate) fn act_on(&self, pool: &Pool<P>, wake: Wake) {
        if let Some(worker) = idle::chosen(&pool.sleepers, pool.workers, wake) {
            self.signal(pool, worker);
        }
    }

    fn signal(&self, pool: &Pool<P>, worker: WorkerId) {
        meter::signal();
        if pool.beds[worker].replace(Bed::Signalled) == Bed::Occupied {
            self.world
                .borrow_mut()
                .checker
                .pool(pool.number)
                .wakes(worker);
            meter::wake(pool.first + worker);
        }
        // It takes long: what the signaller does next must not be seen to happen before what others
        // do meanwhile.
        meter::run_for(0);
    }
}
