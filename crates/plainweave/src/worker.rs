//! A worker: one OS thread that runs fibers, one at a time.
//!
//! One turn of the loop: 1. when it is due (`mail`), what others put into the inbox goes through the policy. 2. When it
//! is due, a look at driver and timers: every [`STRIDE`] switches, or more often when fibers run long (the stride
//! halves its way down to 1), so busy fibers never starve the network. 3. The policy's next task runs until it switches
//! back. With nothing to run the worker searches (`Effort::Search`), then sleeps in its driver as `park` prescribes.
//!
//! Fibers reach their worker through [`WorkerCtx`], which knows neither policy nor task type; the loop itself is
//! monomorphised over the policy. Nothing of the loop is borrowed while a fiber runs: each `RefCell` is borrowed for
//! the length of one call that runs no user code.

mod claim;
mod half;
mod load;
mod mail;
mod means;
pub(crate) mod reach;

use std::cell::{Cell, RefCell};
use std::io;
use std::os::fd::OwnedFd;
use std::ptr::NonNull;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use slab::Slab;

use crate::fiber::blocks::Blocks;
use crate::fiber::state::{Brings, anchored::Call};
use crate::fiber::{self, FiberTask, Header, Movement, Switch};
use crate::io::driver::{Driver, Wait, Watch};
use crate::io::parked::{self, Parked};
use crate::park::Slept;
use crate::policy::{Cx, Effort, Policy, Ready, Wake, WorkerId};
use crate::pool::{self, PoolShared, WorkerShared, bump};
use crate::stack;
use crate::tls;
use claim::Inside;
pub(crate) use claim::can_interrupt;
use half::{Half, PushLocal};
use mail::Mail;
use means::Means;
use reach::{At, Guard, Io, Reach};

/// Switches between two looks at driver and timers, at most.
const STRIDE: u32 = 64;
/// A stride that took longer than this is halved.
const STRIDE_NS: u64 = 200_000;

/// What an expired timer wakes.
#[derive(Clone, Copy, Debug)]
pub(crate) enum TimerTarget {
    /// A fiber that waits in `block::suspend`, where the timer is removed before it goes on.
    Fiber(NonNull<Header>),
    /// A parked connection, which removes its timer before it is freed.
    Parked(NonNull<Parked>),
}

/// What fibers, timers and completions see of their worker. Its thread only.
pub(crate) struct WorkerCtx {
    pub(crate) id: WorkerId,
    pool: Arc<PoolShared>,
    /// Marks sources that this worker's driver keeps state for; unique in the process.
    pub(crate) driver_tag: usize,
    /// Driver, timers and parked connections: by [`Self::io`] alone.
    reach: Reach,
    /// Stacks and storage for its fibers.
    means: Means,
    /// As the pool knows it.
    dry: Cell<bool>,
    /// Memory of ended fibers.
    pub(crate) blocks: Blocks,
    /// The base of this thread's own thread-local storage, which is put back after each fiber.
    pub(crate) home: usize,
    /// Started fibers that are anchored here, so that shutdown finds them. (Those that may move are in the pool's
    /// list.)
    anchored: RefCell<Slab<NonNull<Header>>>,
    half: Rc<dyn PushLocal>,
    /// The clock, as of the last look at driver and timers.
    clock: Cell<u64>,
}

impl WorkerCtx {
    #[inline]
    pub(crate) fn pool(&self) -> &PoolShared {
        &self.pool
    }

    pub(crate) fn pool_arc(&self) -> &Arc<PoolShared> {
        &self.pool
    }

    #[inline]
    pub(crate) fn shared(&self) -> &WorkerShared {
        &self.pool.workers[self.id]
    }

    /// Its driver, timers and parked connections, for the length of one call that runs no user code and does not
    /// suspend.
    #[inline]
    pub(crate) fn io(&self) -> Guard<'_, Inside<'_>> {
        self.reach.enter()
    }

    /// What happens at `io`, which is this worker's.
    #[inline]
    pub(crate) fn at<'a>(&'a self, io: &'a Io) -> At<'a> {
        At { io, pool: &self.pool, id: self.id, here: Some(self) }
    }

    /// Nanoseconds since the pool's epoch, read now.
    #[inline]
    pub(crate) fn now(&self) -> u64 {
        self.io().driver.borrow().now()
    }

    /// The same as of the worker's last look at driver and timers.
    #[inline]
    pub(crate) fn last_reading(&self) -> u64 {
        self.clock.get()
    }

    pub(crate) fn push_local(&self, task: FiberTask, why: Ready) -> Wake {
        self.half.push(task, why)
    }

    /// Queues a fiber that stays with this worker and has just been woken.
    #[inline]
    pub(crate) fn queue(&self, task: FiberTask) {
        let wake = self.half.push(task, Ready::Woken);
        self.pool.act_on(wake);
    }

    /// Looks at driver and timers; sleeps in the driver as `wait` says, then calls `awake`. Whatever has happened
    /// becomes ready after that, so that those who are woken for it are others.
    fn turn(&self, wait: Wait, awake: impl FnOnce()) {
        let io = self.io();
        let wait = if wait != Wait::No && io.was_woken() { Wait::No } else { wait };
        parked::end_taken(self.at(&io));
        let (rests, wants_poll) = {
            let driver = io.driver.borrow();
            (driver.rests(), driver.wants_poll())
        };
        if wait != Wait::No && rests {
            self.shared().doze(match wait {
                Wait::Until(time) => Some(Duration::from_nanos(time.saturating_sub(self.now()))),
                _ => None,
            });
            awake();
        } else if wait != Wait::No || wants_poll {
            self.at(&io).poll(wait, awake);
        } else {
            awake();
        }
        self.shared().released.drain(|source| io.driver.borrow_mut().forget(source));
        let now = self.now();
        self.half.set_now(now);
        self.clock.set(now);
        self.at(&io).expire(now);
    }
}

/// The loop of one worker.
pub(crate) struct Worker<P: Policy<FiberTask>> {
    ctx: WorkerCtx,
    half: Rc<Half<P>>,
    /// Switches until the next look at driver and timers.
    budget: Cell<u32>,
    stride: Cell<u32>,
    last_turn: Cell<u64>,
    searching: Cell<bool>,
    mail: Mail,
    parking_ended: Cell<bool>,
    fibers_told: Cell<bool>,
    /// What the monitor is to watch while this worker is held up; for [`Self::run`].
    watched: Option<Watch<OwnedFd>>,
}

impl<P: Policy<FiberTask>> Worker<P> {
    /// On the worker's own thread. Fails if there is no descriptor to be had.
    pub(crate) fn new(
        id: WorkerId,
        pool: Arc<PoolShared>,
        policy: Arc<P>,
        driver: Box<dyn Driver>,
        driver_tag: usize,
        seed: u64,
    ) -> io::Result<Self> {
        let inner = RefCell::new((policy.attach(id), Cx::new(seed.wrapping_add(id as u64))));
        let half = Rc::new(Half { policy, inner });
        let shared = &pool.workers[id];
        let grants = shared.take_reader().expect("a worker starts once");
        shared.set_wakeup(driver.wakeup());
        shared.set_thread();
        let _ = shared.driver_name.set(driver.name());
        crate::io::release::register(driver_tag, &shared.released);
        let ctx = WorkerCtx {
            id,
            driver_tag,
            reach: Reach::new(driver),
            means: Means::new(&pool),
            dry: Cell::new(true),
            blocks: Blocks::default(),
            home: if pool.storage == tls::Storage::Own { tls::base() } else { 0 },
            anchored: RefCell::default(),
            half: half.clone(),
            clock: Cell::new(0),
            pool,
        };
        Ok(Self {
            watched: ctx.reach.watched().transpose()?,
            ctx,
            half,
            budget: Cell::new(STRIDE),
            stride: Cell::new(STRIDE),
            last_turn: Cell::new(0),
            searching: Cell::new(false),
            mail: Mail::new(grants),
            parking_ended: Cell::new(false),
            fibers_told: Cell::new(false),
        })
    }

    /// Runs until the pool stops. Returns the operations still in flight.
    pub(crate) fn run(mut self) -> usize {
        let pool = self.ctx.pool.clone();
        let watched = self.watched.take();
        let door = self.ctx.shared().open_door(&self.ctx.reach, watched);
        while !pool.is_stopping() {
            self.look_if_due();
            match self.half.pop(Effort::Quick) {
                Some(task) if self.searching.take() => self.found(task),
                Some(task) => self.resume(task),
                None => self.idle(),
            }
        }
        // The monitor looks in no longer: everything is about to go.
        drop(door);
        let in_flight = self.ctx.io().driver.borrow().in_flight();
        let Self { ctx, half, .. } = self;
        drop(ctx);
        if let Ok(half) = Rc::try_unwrap(half).map_err(|_| ()) {
            // What is left never ran, or never will again: leaked, as D14 says.
            half.policy.drain(half.inner.into_inner().0, &mut std::mem::forget);
        }
        in_flight
    }

    /// Whether others have woken fibers of this worker.
    #[inline]
    fn has_mail(&self) -> bool {
        !self.mail.is_empty(self.ctx.shared().inbox())
    }

    /// Queues those that have been granted what they waited for.
    fn read_grants(&self) {
        while let Some(header) = self.mail.grants.pop() {
            // SAFETY: sent to this worker (`send_grant`), with which the fiber stays, and it waits for this.
            fiber::wake_here(unsafe { header.as_ref() }, Brings::Grant, &self.ctx);
        }
    }

    /// Queues them all.
    #[inline(never)]
    fn read_mail(&self) {
        self.read_grants();
        self.mail.all(self.ctx.shared().inbox()).for_each(|task| self.deliver(task));
    }

    /// Queues those that came before the last look.
    #[inline(never)]
    fn turn_mail(&self) {
        self.read_grants();
        self.mail.turn(self.ctx.shared().inbox()).for_each(|task| self.deliver(task));
    }

    /// A task from the inbox: a message about a fiber that is here, or a fiber that is to come.
    fn deliver(&self, task: FiberTask) {
        let header = task.header();
        if header.own.local.is_settled() {
            return self.read(task);
        }
        self.ctx.at(&self.ctx.io()).release(header);
        self.ctx.queue(task);
    }

    /// A message about a fiber that stays here: somebody else has woken it.
    fn read(&self, task: FiberTask) {
        let header = task.header();
        match header.state.read(&header.own.local, |brings| header.bring(brings)) {
            Call::Queue => self.ctx.queue(task),
            Call::Nothing => {}
            Call::Retire => self.retire(task),
        }
    }

    #[inline]
    fn look_if_due(&self) {
        let left = self.budget.get() - 1;
        self.budget.set(left);
        if !self.mail.is_due(left) {
            return self.mail.walk();
        }
        if self.has_mail() {
            if left != 0 && self.mail.may_wait(STRIDE) && self.ctx.pool.movement != Movement::Anytime {
                self.turn_mail();
            } else {
                self.read_mail();
            }
        }
        if left == 0 {
            self.look();
        }
    }

    /// The regular look at driver and timers; adapts the stride to how long fibers run.
    fn look(&self) {
        let shared = self.ctx.shared();
        let stride = u64::from(self.stride.get());
        shared.switches.store(shared.switches.load(Ordering::Relaxed) + stride, Ordering::Relaxed);
        let now = self.ctx.now();
        let long = now.saturating_sub(self.last_turn.get()) > STRIDE_NS;
        self.stride.set(if long { (self.stride.get() / 2).max(1) } else { (self.stride.get() * 2).min(STRIDE) });
        self.budget.set(self.stride.get());
        self.mail.begin_stride(self.stride.get());
        self.ctx.turn(Wait::No, || ());
        self.last_turn.set(now);
        self.end_if_told();
    }

    /// Once each, when the pool says so: parked connections end; fibers wake to find the pool closing. Whether it was
    /// so.
    fn end_if_told(&self) -> bool {
        let told = self.ctx.pool.no_parking() && !self.parking_ended.replace(true);
        if told {
            parked::cancel_all(self.ctx.at(&self.ctx.io()));
        }
        let closing = self.ctx.pool.is_closing() && !self.fibers_told.replace(true);
        if closing {
            let anchored: Vec<_> = self.ctx.anchored.borrow().iter().map(|(_, header)| *header).collect();
            // SAFETY: on the list, so not retired; waking retires nothing.
            anchored.into_iter().for_each(|header| fiber::wake(unsafe { header.as_ref() }, Some(&self.ctx)));
        }
        told || closing
    }

    fn idle(&self) {
        let (ctx, pool) = (&self.ctx, &self.ctx.pool);
        self.mail.ran_dry();
        ctx.set_dry(true);
        if self.has_mail() {
            return self.read_mail();
        }
        let mut searching = self.searching.take();
        if pool.workers.len() > 1 {
            searching = searching || pool.idle.begin_search();
            if searching && let Some(task) = self.half.pop(Effort::Search) {
                return self.found(task);
            }
        }
        pool.idle.begin_sleep(ctx.id, searching);
        let work = !self.mail.grants.doze() || self.has_mail() || self.half.policy.maybe_ready(ctx.id);
        if work || pool.is_stopping() || self.end_if_told() {
            pool.idle.cancel_sleep(ctx.id);
            self.mail.grants.rouse();
            pool.monitor.notice();
            self.searching.set(true);
            // What the look saw may be in another thief's hands: let it finish.
            std::hint::spin_loop();
            self.settle();
            return;
        }
        let next = earlier(ctx.io().timers.borrow().next_wake(), ctx.means.tidy(&ctx.pool, || ctx.last_reading()));
        bump(&ctx.shared().sleeps);
        ctx.turn(next.map_or(Wait::Forever, Wait::Until), || {
            self.searching.set(pool.idle.end_sleep(ctx.id) == Slept::Woken);
            self.mail.grants.rouse();
            pool.monitor.notice();
        });
        self.last_turn.set(ctx.last_reading());
        self.budget.set(self.stride.get());
        self.settle();
    }

    /// After a look or a sleep: if the worker's own queues have something, it is no longer searching.
    fn settle(&self) {
        if !self.searching.get() {
            return;
        }
        if self.has_mail() {
            self.read_mail();
        }
        if let Some(task) = self.half.pop(Effort::Quick) {
            self.searching.set(false);
            self.found(task);
        }
    }

    /// A searching worker runs what it found; the last searcher sees to it that others search on.
    fn found(&self, task: FiberTask) {
        let pool = &self.ctx.pool;
        // Its own queue counts as well, as another worker sees it: what came while it searched has woken nobody.
        let more = |worker| self.half.policy.maybe_ready(worker);
        if pool.idle.end_search() && (more(self.ctx.id) || more((self.ctx.id + 1) % pool.workers.len())) {
            pool.act_on(Wake::Any);
        }
        self.resume(task);
    }

    #[inline]
    fn resume(&self, task: FiberTask) {
        let ctx = &self.ctx;
        ctx.set_dry(false);
        if !task.has_started() {
            if let Some(other) = self.half.place(&task, ctx) {
                return pool::post(&ctx.pool, other, task);
            }
            if !self.start(&task) {
                return;
            }
        }
        match task.resume(ctx) {
            Some(Switch::Yield) => {
                let wake = self.half.push(task, Ready::Yielded);
                ctx.pool.act_on(wake);
            }
            // If it is parked, another worker may run the fiber from here on, and free it.
            Some(Switch::Park) if task.header().park() => {}
            Some(Switch::Park) => ctx.queue(task),
            None if task.finish() => self.retire(task),
            // It stays on record until the message that is on its way to it has come.
            None => {}
        }
    }

    /// Gives a new fiber its stack, its anchor and its place on record. False: there is no stack, it has been refused.
    fn start(&self, task: &FiberTask) -> bool {
        let (ctx, header) = (&self.ctx, task.header());
        let (stack, block) = match ctx.means.take(&ctx.pool, header.own.stack_size as usize) {
            Ok(both) => both,
            Err(error) => {
                // SAFETY: the caller gives the task up when this returns false.
                unsafe { FiberTask::new(NonNull::from(header)) }.refuse(error, &ctx.blocks);
                self.count_end();
                return false;
            }
        };
        task.start(stack, block);
        if header.movement() == Movement::BeforeStart {
            header.set_anchor(Some(ctx.id));
        }
        // On record before it first looks whether the pool is closing: it sees that, or is found and woken.
        let key = match header.movement() {
            Movement::Anytime => ctx.pool.register(ctx.id, header),
            _ => ctx.put_on_record(header),
        };
        header.own.registered.set(u32::try_from(key).expect("a pool has less than 2^32 fibers"));
        true
    }

    fn retire(&self, task: FiberTask) {
        let ctx = &self.ctx;
        let key = task.header().own.registered.get() as usize;
        match task.header().movement() {
            Movement::Anytime => ctx.pool.unregister(key),
            _ => ctx.strike_off(key),
        }
        let size = task.header().own.stack_size as usize;
        let (stack, block) = task.retire(&ctx.blocks);
        ctx.means.put(&ctx.pool, stack, block, size);
        self.count_end();
    }

    fn count_end(&self) {
        bump(&self.ctx.shared().finished);
        if self.ctx.pool.is_closing() {
            self.ctx.pool.fiber_ended_late();
        }
    }
}

fn earlier(a: Option<u64>, b: Option<u64>) -> Option<u64> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}

/// Readies a worker's thread for fibers: the overflow handler, and a stack for it to run on.
pub(crate) fn prepare_thread() -> io::Result<stack::AltStack> {
    stack::install();
    stack::ensure_alt_stack()
}
