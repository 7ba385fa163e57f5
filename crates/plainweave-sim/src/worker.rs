//! A simulated worker: the runtime's loop, as far as it concerns scheduling.
//!
//! It takes tasks from the policy as the runtime's worker does, reads the clock every [`STRIDE`]
//! tasks, and decides as [`idle`] says what to do without work. It has no driver and no inbox,
//! since its fibers are never pinned. Timers are its own, as in the runtime: those of a worker that
//! a fiber holds up are late.

use std::cell::{Cell, RefCell, RefMut};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::atomics::sleepers::Sleepers;
use crate::check::PoolChecker;
use crate::costs::{NANO, Picos};
use crate::idle::{self, Idler};
use crate::lines::Access;
use crate::meter;
use crate::policy::{Counts, Cx, Effort, Policy, Ready, Wake, WorkerId};
use crate::pools::{Bed, Pool, Pools};
use crate::stacks::Found;
use crate::task::{Place, TaskId, Ticket};
use crate::workload::Action;
use crate::world::World;

/// Tasks between two readings of the clock, as in the runtime.
const STRIDE: u32 = 64;

/// One worker, on its coroutine.
struct Worker<'a, P: Policy<Ticket>> {
    /// Its number among the workers of all pools.
    number: WorkerId,
    /// Its number in its pool.
    id: WorkerId,
    pools: &'a Pools<P>,
    pool: &'a Pool<P>,
    policy: RefCell<(P::Local, Cx)>,
    searching: Cell<bool>,
    /// Fibers that sleep, and until when.
    timers: RefCell<BinaryHeap<Reverse<(Picos, TaskId)>>>,
    left: Cell<u32>,
}

/// Runs the worker of a number until the run ends.
pub(crate) fn work<P: Policy<Ticket>>(pools: &Pools<P>, number: WorkerId) {
    let pool = pools.of(number);
    let id = number - pool.first;
    // Seeds that follow one another must not share draws: with 256 workers, seed 1 and seed 2 would
    // overlap if the two were just added.
    let cx = Cx::new(pools.seed.wrapping_mul(1 << 20).wrapping_add(number as u64));
    let policy = RefCell::new((pool.policy.attach(id), cx));
    let timers = RefCell::default();
    let worker = Worker {
        number,
        id,
        pools,
        pool,
        policy,
        searching: Cell::new(false),
        timers,
        left: Cell::new(1),
    };

    while !meter::is_ending() {
        worker.step();
    }
    let (local, cx) = worker.policy.into_inner();
    pools.counts.set(sum(pools.counts.get(), cx.counts));
    pool.policy.drain(local, &mut drop);
}

/// Brings what comes from outside the pools.
pub(crate) fn arrive<P: Policy<Ticket>>(pools: &Pools<P>) {
    // Unlike any worker's.
    let mut cx = Cx::new(!pools.seed);
    loop {
        let next = pools.world.borrow_mut().arrival();
        let Some((time, fiber)) = next else { return };
        if time > meter::now() {
            meter::sleep(Some(time));
        }
        cx.set_now(meter::now() / NANO);
        pools.push(None, &mut cx, fiber, Ready::Spawned);
    }
}

fn sum(a: Counts, b: Counts) -> Counts {
    let mut sum = a;
    sum.steal_attempts += b.steal_attempts;
    sum.steals += b.steals;
    sum.stolen += b.stolen;
    sum.helped += b.helped;
    sum.spills += b.spills;
    sum.insert_retries += b.insert_retries;
    sum.insert_overflows += b.insert_overflows;
    sum
}

impl<P: Policy<Ticket>> Worker<'_, P> {
    fn step(&self) {
        // A look at the clock takes longer than a switch, so not for each task.
        self.left.set(self.left.get() - 1);
        if self.left.get() == 0 {
            self.left.set(STRIDE);
            self.read_clock();
            self.fire_timers();
        }

        match Idler::pop(self, Effort::Quick) {
            Some(ticket) if self.searching.take() => idle::found(self, ticket),
            Some(ticket) => self.run(ticket),
            // Nothing is ready: a timer that is due is looked at before its stride is over.
            None if self.fire_timers() => {}
            None if self.pools.machine.sleeps => idle::idle(self),
            None => match Idler::pop(self, Effort::Search) {
                Some(ticket) => self.run(ticket),
                None => meter::run_for(self.pools.machine.costs.search),
            },
        }
    }

    fn read_clock(&self) {
        self.policy.borrow_mut().1.set_now(meter::now() / NANO);
    }

    fn world(&self) -> RefMut<'_, World> {
        self.pools.world.borrow_mut()
    }

    /// Returns the checks of its pool.
    fn checker(&self) -> RefMut<'_, PoolChecker> {
        RefMut::map(self.world(), |world| world.checker.pool(self.pool.number))
    }

    /// Pushes a fiber that is new or waits.
    fn push(&self, fiber: TaskId, why: Ready) {
        meter::spend(self.pools.machine.costs.queue);
        let (local, cx) = &mut *self.policy.borrow_mut();
        self.pools
            .push(Some((self.pool.number, local)), cx, fiber, why);
    }

    /// Queues the fibers whose sleep is over. Returns whether there were any.
    fn fire_timers(&self) -> bool {
        let mut fired = false;
        while let Some(fiber) = self.take_due() {
            self.push(fiber, Ready::Woken);
            fired = true;
        }
        fired
    }

    fn take_due(&self) -> Option<TaskId> {
        let mut timers = self.timers.borrow_mut();
        timers
            .peek()
            .filter(|Reverse((until, _))| *until <= meter::now())?;
        timers.pop().map(|Reverse((_, fiber))| fiber)
    }

    /// Makes a fiber sleep. Nobody else may wake it.
    fn sleep(&self, fiber: TaskId, ticket: Ticket, time: Picos) {
        meter::spend(self.pools.machine.costs.queue);
        self.world().fibers.get(fiber).place = Place::Waiting(ticket);
        self.timers
            .borrow_mut()
            .push(Reverse((meter::now() + time, fiber)));
    }

    /// Makes a fiber wait, unless it was woken before; then it has its ticket back.
    fn wait(&self, fiber: TaskId, ticket: Ticket) -> Option<Ticket> {
        meter::touch_line(meter::own_line(fiber as u64), Access::Exchange);
        let world = &mut *self.world();
        let this = world.fibers.get(fiber);
        if std::mem::take(&mut this.token) {
            return Some(ticket);
        }
        this.place = Place::Waiting(ticket);
        meter::spend_about(self.pools.machine.costs.park);
        None
    }

    /// Wakes a fiber that waits; one that does not yet will not wait then.
    fn wake(&self, fiber: TaskId) {
        meter::touch_line(meter::own_line(fiber as u64), Access::Exchange);
        let waits = {
            let world = &mut *self.world();
            let other = world.fibers.get(fiber);
            // The token of a fiber that is awake: its next wait returns at once.
            other.token = matches!(other.place, Place::New(_) | Place::Ready | Place::Running);
            matches!(other.place, Place::Waiting(_))
        };

        if waits {
            self.push(fiber, Ready::Woken);
        }
    }

    /// Runs a fiber until it ends or gives way.
    fn run(&self, ticket: Ticket) {
        let fiber = ticket.id();
        let begin = meter::now();
        self.resume(ticket);
        let world = &mut *self.world();
        world.checker.pool(self.pool.number).left(self.id);
        if let Some(timeline) = &mut world.timeline {
            timeline.runs(self.number, fiber, begin, meter::now());
        }
    }

    fn resume(&self, mut ticket: Ticket) {
        let fiber = ticket.id();
        let machine = &self.pools.machine;
        ticket.runs_on(self.id);
        let found = {
            let world = &mut *self.world();
            world.starts(fiber, self.number, self.id, meter::now());
            world.fibers.get(fiber).place = Place::Running;
            world.stacks.runs(fiber, self.number)
        };

        meter::spend_about(machine.costs.switch);
        match found {
            Found::Here => {}
            Found::Away => meter::spend_about(machine.costs.away),
            Found::Fresh => meter::spend_about(machine.costs.fresh),
        }

        // Whoever has taken a fiber from a queue owns it, and needs no atomic instruction for it.
        meter::touch_line(meter::own_line(fiber as u64), Access::Update);
        loop {
            let action = self.world().next(fiber, self.number, meter::now());
            match action {
                Action::Compute(time) => meter::run_for(machine.computing(self.number, time)),
                Action::HoldUp(time) => meter::run_for(time),
                Action::Spawn(child) => {
                    // It is written before anybody else knows of it.
                    meter::touch_line(meter::own_line(child as u64), Access::Store);
                    self.push(child, Ready::Spawned);
                }
                Action::Touch(line) => meter::touch_line(meter::own_line(line), Access::Exchange),
                Action::Wake(other) => self.wake(other),
                Action::Wait => match self.wait(fiber, ticket) {
                    Some(woken) => ticket = woken,
                    None => return,
                },
                Action::Sleep(time) => return self.sleep(fiber, ticket, time),
                Action::Yield => {
                    // As the runtime does: it has left before anybody may pop it.
                    self.world().fibers.get(fiber).place = Place::Waiting(ticket);
                    return self.push(fiber, Ready::Yielded);
                }
                Action::End => return self.world().ends(fiber, self.number, meter::now()),
            }
        }
    }
}

impl<P: Policy<Ticket>> Idler for Worker<'_, P> {
    type Task = Ticket;

    fn id(&self) -> WorkerId {
        self.id
    }

    fn regular(&self) -> usize {
        self.pool.workers
    }

    fn sleepers(&self) -> &Sleepers {
        &self.pool.sleepers
    }

    fn searching(&self) -> &Cell<bool> {
        &self.searching
    }

    fn has_mail(&self) -> bool {
        false
    }

    fn read_mail(&self) {}

    fn pop(&self, effort: Effort) -> Option<Ticket> {
        meter::spend(self.pools.machine.costs.queue);
        let (local, cx) = &mut *self.policy.borrow_mut();
        let before = cx.counts;
        let searches = effort == Effort::Search || self.searching.get();
        // The checker's clock stands still meanwhile: a fiber that waits while somebody looks for
        // one is no fault of the policy.
        if searches {
            self.checker().search_begins(meter::now());
        }
        let ticket = self.pool.policy.pop(cx, local, effort);

        if searches {
            self.checker().search_ends(meter::now());
        }
        if cx.counts.steals > before.steals
            && let Some(timeline) = &mut self.world().timeline
        {
            timeline.steals(
                self.number,
                self.pool.first + cx.victim(),
                cx.counts.stolen - before.stolen,
                meter::now(),
            );
        }
        ticket
    }

    fn maybe_ready(&self, worker: WorkerId) -> bool {
        self.pool.policy.maybe_ready(worker)
    }

    fn maybe_ready_spare(&self) -> bool {
        self.pool.policy.maybe_ready_spare()
    }

    fn publish(&self) {}

    fn doze(&self) -> bool {
        true
    }

    fn is_called(&self) -> bool {
        meter::is_ending()
    }

    fn rouse(&self) {}

    fn fall_asleep(&self, awake: impl FnOnce()) {
        let bed = &self.pool.beds[self.id];
        // A signal may have come since this worker was entered among the sleepers.
        if bed.replace(Bed::Occupied) != Bed::Signalled {
            {
                // Given back before it sleeps, for others run meanwhile.
                let world = &mut *self.world();
                world.sleeps += 1;
                world
                    .checker
                    .pool(self.pool.number)
                    .sleeps(self.id, meter::now());
            }
            let begin = meter::now();
            let timer = self
                .timers
                .borrow()
                .peek()
                .map(|Reverse((until, _))| *until);
            meter::sleep(timer);
            if bed.get() == Bed::Occupied {
                // A timer, or the end of the run.
                self.checker().wakes(self.id);
            }

            if let Some(timeline) = &mut self.world().timeline {
                timeline.sleeps(self.number, begin, meter::now());
            }
        }

        bed.set(Bed::Empty);
        awake();
        self.read_clock();
        self.fire_timers();
    }

    fn wake_another(&self) {
        self.pools.act_on(self.pool, Wake::Any);
    }

    fn run_found(&self, ticket: Ticket) {
        self.checker().found(meter::now());
        self.run(ticket);
    }
}
