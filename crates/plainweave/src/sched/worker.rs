//! A worker: one OS thread that runs fibers, one at a time.
//!
//! # The loop
//! [`Worker::run`] repeats [`Worker::step`] until the pool stops. One step:
//! 1. *Mailbox:* when a check is due (`sched/mailbox`), what others have sent goes to the policy.
//! 2. *Turn:* at the end of a stride the worker polls driver and timers ([`WorkerCtx::turn`]),
//!    which makes fibers ready. It also publishes its counts, and checks whether the pool is
//!    closing.
//! 3. *Run:* the policy's next task runs ([`Worker::resume`]), and perhaps others after it that go
//!    on with one another (`sched/direct`), until one leaves its stack for the worker's. What must
//!    be done for that one is done ([`Worker::settle`]).
//! 4. *Idle:* without a task the worker searches (`Effort::Search`), then sleeps in its driver as
//!    `sched/sleep` prescribes.
//!
//! # Why it is hard
//! * *It must not forget the network while it is busy, nor spend its time on asking.* A poll of the
//!   driver may be a system call, which takes as long as dozens of switches. So a stride is
//!   [`STRIDE`] switches, and is halved, down to one, as long as it takes more than [`STRIDE_NS`]:
//!   where fibers run for long, the worker polls between any two of them. It doubles again when
//!   they are short.
//! * *A fiber may do anything while it runs:* spawn, wake or cancel other fibers, or hold the
//!   worker up for a second. So nothing of the loop is borrowed while a fiber runs. Each `RefCell`
//!   is borrowed for the length of one call that runs no user code, and the I/O lock is held for as
//!   long (`atomics/biased_lock`); in between the watchdog can take it.
//! * *A fiber that suspends is not suspended yet.* It has registered with the waking side, which
//!   may wake it from another thread at once, while its registers are still being saved. Only on
//!   another stack is it published that the fiber may run elsewhere (`Header::suspended`). If a
//!   wake-up came first, the worker still owns the fiber and queues it again. If none came, the
//!   fiber is no longer the worker's: another may run and free it before the next line, so from
//!   there on its task is leaked, not touched.
//! * *The worker may end before its fibers.* One without a driver does (`sched/spare`). What a
//!   fiber keeps of its worker (where its context lies, the allocator's cache that it was lent)
//!   holds until the fiber leaves it, and is forgotten there: another worker's context may come to
//!   lie at the same address.
//! * *Shutdown must find every fiber.* A fiber goes on record before it first checks whether the
//!   pool is closing, and off it before it is freed; shutdown sets `closing`, then wakes all on
//!   record. So each fiber either sees `closing` or is woken (`sched/pool`).
//!
//! # Timers in a storm
//! Thousands of deadlines may fall into one tick. If all their timers fired at once, all those
//! fibers would be queued before any other fiber's next turn. So a worker with ready fibers fires a
//! few timers a turn, and one more for each [`TIMER_NS`] of processor time that it has had
//! (`docs/timers.md` has the measurements). Processor time, not passed time: on a crowded machine
//! the others would otherwise pay for time that the worker never had.
//!
//! # Who may touch what
//! Fibers, timers and completions use [`WorkerCtx`], which knows neither the policy's type nor the
//! task's. The loop is monomorphised over the policy, and makes no call through a table; a direct
//! switch makes two. What other threads may touch of a worker is in [`WorkerShared`]; they never
//! see a `WorkerCtx`. A fiber finds its worker through its header ([`Header::worker`]), which is
//! set before each resume. It must not keep that reference across a suspension.
//!
//! # What the hot path leaves out
//! For a switch no clock is read, no system call made and no lock taken: counts are published once
//! a stride, and the mailbox is checked four times in one. `resume` and `step` are inlined into the
//! loop of every policy, since otherwise LLVM would decide that by the policy's size; what is rare
//! in them is a cold function of its own. A recorder costs a test while there is none.
//!
//! # On which stack
//! All of this file runs on the thread's own stack, with one exception: while fibers go on with one
//! another, `sched/direct` calls `start`, `retire`, `requeue` and `send_away` on a fiber's stack
//! and with its thread-local storage. So these four use no thread-local, run no code of the user's
//! but the policy's, and neither suspend nor wait. A fiber that would take more than that, because
//! it has to be placed, held back or refused, is left to [`Worker::step`], by [`Worker::handed`].
//!
//! # The end
//! When the pool stops, the worker shuts the watchdog out of its I/O and gives up the tasks that
//! are left (`sched/end`): those that have not started are refused, so their joins return; the
//! others are leaked, because their frames may hold borrows that nothing can end.
//!
//! # Rejected
//! * *A thread that polls for all workers:* each completion would cross cores, to a worker that may
//!   be asleep.
//! * *Polling before every switch:* a yield would cost as much as a system call.
//! * *A stride in time instead of switches:* the clock would be read at each switch, and on a
//!   virtual machine a reading takes more than half as long as a whole yield (`docs/trace.md`).

#![expect(
    unsafe_code,
    reason = "pointers to new fibers, and to fibers that are to see the runtime's end"
)]

use std::cell::{Cell, RefCell};
use std::io;
use std::mem::offset_of;
use std::os::fd::OwnedFd;
use std::ptr::{self, NonNull};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use slab::Slab;

use super::direct::Beside;
use super::local_policy::{LocalPolicy, PushLocal};
use super::long_waits::{Activity, Rounds};
use super::mailbox::Mailbox;
use super::recorder::Lane;
use super::recycle::Recycler;
use super::wake;
use super::worker_io::{IoCx, IoGuard, IoState, WorkerIo};
use crate::atomics::biased_lock::OwnerGuard;
pub(crate) use crate::atomics::biased_lock::can_interrupt;
use crate::context::Context;
use crate::fiber::blocks::Blocks;
use crate::fiber::{self, FiberTask, Header, Host, Left, Movement};
use crate::fiber_local;
use crate::io::driver::{Driver, PollFd, Wait};
use crate::io::release::Tag;
use crate::policy::{Cx, Effort, Policy, Ready, WorkerId};
use crate::sched::idle_conn::{self, IdleConn};
use crate::sched::pool::{PoolShared, WorkerShared};
use crate::stack;
use crate::timer::Nanos;

/// Limit on switches between two polls of driver and timers.
const STRIDE: u32 = 64;
/// A stride that took longer than this is halved.
const STRIDE_NS: Nanos = 200_000;

/// A worker that has fibers ready and more than a few timers due fires one for each such time of a
/// processor that it has had. What timers wake is queued behind and among the fibers that are ready
/// already: if all timers of a tick fired at once, 100,000 fibers with one deadline would come
/// before any other's next turn. As it is, those that end do not keep the others from running; and
/// where fibers run for long, many timers fire in a turn.
const TIMER_NS: Nanos = 9_400;
/// As many fire in a turn in any case, if the turn before has left none.
const TIMERS: usize = 16;
/// As many fire in a turn of a worker that has no fiber ready.
const TIMERS_IDLE: usize = 64;

/// What an expired timer wakes.
#[derive(Clone, Copy, Debug)]
pub(crate) enum TimerTarget {
    /// A fiber that waits in `wait::suspend`, which removes the timer before it returns.
    Fiber(NonNull<Header>),
    /// An idle connection, which removes its timer before it is freed.
    IdleConn(NonNull<IdleConn>),
}

/// More timers are due than fit into a turn.
#[derive(Clone, Copy)]
struct Storm {
    /// The processor time up to which timers were fired for it (see [`TIMER_NS`]).
    fired_until: u64,
    /// When it was read last: that is a system call, so not at each turn.
    read: Nanos,
}

/// The part of a worker that fibers, timers and completions use.
///
/// It stays at one address while the worker runs: headers of fibers, and `Host` pointers in them,
/// refer to it.
///
/// Context: its thread only.
pub(crate) struct WorkerCtx {
    /// What fibers know of it. Their headers point here; see [`Self::host_ptr`].
    pub(super) host: Host,
    pool: Arc<PoolShared>,
    /// Marks sources that this worker's driver keeps state for; `None` if it has no driver.
    pub(crate) driver_tag: Option<Tag>,
    /// Driver, timers and idle connections; use [`Self::io`].
    worker_io: WorkerIo,
    /// Stacks and storage for its fibers.
    pub(super) recycler: Recycler,
    /// Looks at the fibers that are pinned here and wait for long.
    pub(super) long_waits: Rounds,
    pub(super) activity: Activity,
    /// A copy of `WorkerShared::dry`.
    pub(super) dry: Cell<bool>,
    /// Started fibers that are pinned here, so that shutdown finds them. (Those that may move are
    /// in the pool's list.)
    pub(super) pinned: RefCell<Slab<NonNull<Header>>>,
    /// The worker's half of the policy, for pushes by fibers. Calls by table are the price of not
    /// knowing the type.
    pub(super) policy: Rc<dyn PushLocal>,
    /// The clock at the last turn, for those to whom microseconds do not matter.
    clock: Cell<Nanos>,
    /// Set while its turns leave timers that are due.
    storm: Cell<Option<Storm>>,
    /// Where it records what it does, if the pool has a recorder.
    pub(super) lane: Option<Box<Lane>>,
    /// Whether running a fiber takes more than a switch: it is recorded, or forgets the place.
    pub(super) resumes_with_care: bool,
}

impl WorkerCtx {
    /// Returns its number within the pool.
    #[inline]
    pub(crate) fn id(&self) -> WorkerId {
        self.host.id
    }

    /// Returns the memory blocks of ended fibers.
    #[inline]
    pub(crate) fn blocks(&self) -> &Blocks {
        &self.host.blocks
    }

    /// Returns the part that its fibers know; the pointer may be used to find the whole context
    /// again. (It is derived from a reference to the whole, so it may be used for all of it.)
    #[inline]
    pub(super) fn host_ptr(&self) -> *const Host {
        ptr::from_ref(self)
            .wrapping_byte_add(offset_of!(WorkerCtx, host))
            .cast()
    }

    #[inline]
    pub(crate) fn pool(&self) -> &PoolShared {
        &self.pool
    }

    /// Returns its pool as headers know it.
    #[inline]
    pub(super) fn pool_ptr(&self) -> NonNull<()> {
        NonNull::from(self.pool()).cast()
    }

    pub(crate) fn pool_arc(&self) -> &Arc<PoolShared> {
        &self.pool
    }

    #[inline]
    pub(crate) fn shared(&self) -> &WorkerShared {
        &self.pool.workers[self.host.id]
    }

    /// Locks its driver, timers and idle connections, for the length of one call that runs no user
    /// code and does not suspend.
    #[inline]
    pub(crate) fn io(&self) -> IoGuard<'_, OwnerGuard<'_>> {
        self.worker_io.lock()
    }

    /// Returns the context for handling events at `io`, which is this worker's.
    #[inline]
    pub(crate) fn io_cx<'a>(&'a self, io: &'a IoState) -> IoCx<'a> {
        IoCx {
            io,
            pool: &self.pool,
            id: self.host.id,
            here: Some(self),
        }
    }

    /// Returns the time in nanoseconds since the pool's epoch, read now.
    #[inline]
    pub(crate) fn now(&self) -> Nanos {
        self.io().driver.borrow().now()
    }

    /// Returns the time of the worker's last turn.
    #[inline]
    pub(crate) fn last_reading(&self) -> Nanos {
        self.clock.get()
    }

    /// Notes for the recorder, if there is one, that the worker does something else than switching
    /// from fiber to fiber.
    pub(super) fn leave_fibers(&self) {
        if let Some(lane) = &self.lane {
            lane.leave();
        }
    }

    /// Polls driver and timers; sleeps in the driver as `wait` says, then calls `awake`. Fibers
    /// become ready only after that, so that the wake-ups for them go to other workers: until
    /// `awake` this one counts as asleep, and might be chosen itself.
    ///
    /// The order: connections that the watchdog took away, the driver, sources that were closed
    /// elsewhere (`released`), the clock, timers, and memory to give back.
    pub(super) fn turn(&self, wait: Wait, awake: impl FnOnce()) {
        let io = self.io();
        let wait = io.owed.settle(wait);
        idle_conn::end_taken(self.io_cx(&io));
        let (driver_is_idle, wants_poll) = {
            let driver = io.driver.borrow();
            (driver.is_idle(), driver.wants_poll())
        };

        // A driver with nothing pending need not be entered: the worker sleeps on its wake-up
        // alone.
        if wait != Wait::No && driver_is_idle {
            self.shared().doze(match wait {
                Wait::Until(time) => Some(Duration::from_nanos(time.saturating_sub(self.now()))),
                _ => None,
            });
            awake();
        } else if wait != Wait::No || wants_poll {
            self.io_cx(&io).poll(wait, awake);
        } else {
            awake();
        }

        self.shared()
            .released
            .drain(|source| io.driver.borrow_mut().forget(source));
        // Read after the driver, which may have slept: timers that came due meanwhile fire in this
        // turn.
        let now = self.now();
        if self.pool.virtual_time {
            self.pool.virtual_now.fetch_max(now, Ordering::Relaxed);
        }
        self.policy.set_now(now);
        self.clock.set(now);
        self.fire_timers(&io, now, wait);

        // Not in a storm, in which other fibers are short of time already.
        let busy = wait == Wait::No && !io.timers.borrow().is_behind();
        drop(io);
        if busy {
            self.tidy(now);
        }
    }
}

/// Timers in a storm, and what is given back after one.
impl WorkerCtx {
    /// Fires timers that are due, and leaves some for the next turn if they are many: see
    /// [`TIMER_NS`].
    fn fire_timers(&self, io: &IoState, now: Nanos, wait: Wait) {
        // The watchdog may have left some too: then the worker begins here.
        let behind = io.timers.borrow().is_behind() && self.storm.get().is_some();
        let least = match wait {
            Wait::No if behind => 0,
            Wait::No => TIMERS,
            _ => TIMERS_IDLE,
        };

        let earned = if behind { self.earn_timers(io, now) } else { 0 };
        self.io_cx(io).expire(now, earned.max(least));
        if !io.timers.borrow().is_behind() {
            self.storm.set(None);
        } else if !behind {
            self.storm.set(Some(Storm {
                fired_until: io.driver.borrow().processor_time(),
                read: now,
            }));
        }
    }

    /// Returns how many timers the processor time has earned since some were last fired for it.
    #[cold]
    fn earn_timers(&self, io: &IoState, now: Nanos) -> usize {
        // The processor's time is a system call away, so it is asked for only when some timers can
        // have been earned.
        let Some(storm) = self
            .storm
            .get()
            .filter(|storm| now.saturating_sub(storm.read) >= 4 * TIMER_NS)
        else {
            return 0;
        };

        let earned = io
            .driver
            .borrow()
            .processor_time()
            .saturating_sub(storm.fired_until)
            / TIMER_NS;
        self.storm.set(Some(Storm {
            fired_until: storm.fired_until + earned * TIMER_NS,
            read: now,
        }));
        earned as usize
    }

    /// Gives back a little of what ended fibers have left, and waiting ones do not use, if it is
    /// time to; returns when to come again. Not on virtual time, which a sleep until then would
    /// drive on.
    pub(super) fn tidy(&self, now: Nanos) -> Option<Nanos> {
        if self.pool.virtual_time {
            return None;
        }
        let [movable, pinned] = self.look_at_long_waits(now);
        [movable, pinned, self.recycler.tidy(&self.pool, now)]
            .into_iter()
            .flatten()
            .min()
    }
}

impl Header {
    /// Returns the worker that runs the fiber now; valid until the fiber's next suspension.
    ///
    /// Context: the fiber itself.
    #[inline]
    pub(crate) fn worker(&self) -> &WorkerCtx {
        // SAFETY: set before each resume to `WorkerCtx::host_ptr` of the context of the worker that
        // resumes it, which outlives the resume.
        unsafe {
            &*self
                .own
                .host
                .get()
                .wrapping_byte_sub(offset_of!(WorkerCtx, host))
                .cast()
        }
    }
}

/// Returns the worker that runs on this thread, if one of its fibers calls. Code of the loop
/// itself, the watchdog and plain threads get `None`.
#[inline]
pub(crate) fn current_worker<'a>() -> Option<&'a WorkerCtx> {
    fiber::current().map(Header::worker)
}

/// The loop of one worker, for one type of policy.
///
/// Its cells are its own thread's; `Cell` instead of `&mut` because a fiber, which runs inside
/// `step`, reaches `ctx`.
pub(crate) struct Worker<P: Policy<FiberTask>> {
    /// What its fibers may use.
    pub(super) ctx: WorkerCtx,
    /// The same policy as `ctx.policy`, with its type.
    pub(super) policy: Rc<LocalPolicy<P>>,
    /// Switches until the next poll of driver and timers.
    pub(super) budget: Cell<u32>,
    /// The length of the present stride: a power of two, [`STRIDE`] at most.
    pub(super) stride: Cell<u32>,
    /// When the present stride began.
    pub(super) last_turn: Cell<Nanos>,
    /// Whether it counts as searching in `atomics/sleepers`; whoever clears it must leave the
    /// search.
    pub(super) searching: Cell<bool>,
    /// By how much the steps since it last wrote `WorkerShared::switches`, which `budget` shows,
    /// differ from the fibers that it has run in them.
    pub(super) extra: Cell<i64>,
    /// Entries of its mailbox that it has read.
    messages: Cell<u64>,
    pub(super) mailbox: Mailbox,
    /// What a fiber has popped in the loop's place and left to it (`sched/direct`).
    pub(super) handed: Cell<Option<FiberTask>>,
    /// Whether it has ended its idle connections because the pool keeps none any more.
    pub(super) idle_closed: Cell<bool>,
    /// Whether it has woken its pinned fibers because the pool is closing.
    pub(super) closing_announced: Cell<bool>,
    /// What the watchdog is to wait for while this worker is held up; taken by [`Self::run`].
    pub(super) watched: Option<PollFd<OwnedFd>>,
}

impl<P: Policy<FiberTask>> Worker<P> {
    /// Creates a worker. Fails if no descriptor is available; then it can be tried again.
    ///
    /// Context: the worker's own thread.
    pub(crate) fn new(
        id: WorkerId,
        pool: Arc<PoolShared>,
        policy: Arc<P>,
        driver: Box<dyn Driver>,
        driver_tag: Option<Tag>,
        seed: u64,
    ) -> io::Result<Self> {
        let wakeup = driver.wakeup();
        let driver_name = driver.name();
        let woken_to_forget = driver.keeps_open().then(|| Arc::downgrade(&wakeup));
        let worker_io = WorkerIo::new(driver);

        // The last that may fail: what follows can be done once, and a worker that could not start
        // can be tried again.
        let watched = worker_io.watched().transpose()?;
        let shared = &pool.workers[id];
        let grants = shared
            .take_reader()
            .ok_or_else(|| io::Error::other("this worker has started before"))?;
        let inner = RefCell::new((policy.attach(id), Cx::new(seed.wrapping_add(id as u64))));
        let policy = Rc::new(LocalPolicy {
            shared: policy,
            inner,
        });

        shared.set_wakeup(wakeup);
        shared.set_thread();
        let _ = shared.driver_name.set(driver_name);
        if let Some(tag) = &driver_tag {
            crate::io::release::register(tag.number(), &shared.released, woken_to_forget);
        }
        let home = if pool.storage == fiber_local::Storage::Own {
            fiber_local::base_of_worker()
        } else {
            0
        };

        let borrows = driver_tag.is_none();
        let ctx = WorkerCtx {
            host: Host {
                context: Context::new(),
                direct: Cell::new(None),
                id,
                spare: id >= pool.regular(),
                borrows,
                home,
                blocks: Blocks::default(),
            },
            driver_tag,
            worker_io,
            recycler: Recycler::new(&pool),
            long_waits: Rounds::default(),
            activity: Activity::default(),
            dry: Cell::new(true),
            pinned: RefCell::default(),
            policy: policy.clone(),
            clock: Cell::new(0),
            storm: Cell::new(None),
            lane: pool
                .recorder
                .as_ref()
                .map(|recorder| Box::new(recorder.lane(id))),
            resumes_with_care: borrows || pool.recorder.is_some(),
            pool,
        };

        Ok(Self {
            watched,
            ctx,
            policy,
            budget: Cell::new(STRIDE),
            stride: Cell::new(STRIDE),
            last_turn: Cell::new(0),
            searching: Cell::new(false),
            extra: Cell::new(0),
            messages: Cell::new(0),
            mailbox: Mailbox::new(grants),
            handed: Cell::new(None),
            idle_closed: Cell::new(false),
            closing_announced: Cell::new(false),
        })
    }

    /// Runs until the pool stops. Returns the operations still in flight.
    pub(crate) fn run(self) -> usize {
        self.run_by(|worker| {
            worker.step();
            true
        })
    }

    /// Does the same by this step of the loop, until it returns false: a spare worker's differs
    /// (`sched/spare`).
    #[inline(always)]
    pub(super) fn run_by(mut self, step: impl Fn(&Self) -> bool) -> usize {
        let pool = self.ctx.pool.clone();
        let watched = self.watched.take();
        let remote_io = self
            .ctx
            .shared()
            .open_remote_io(&self.ctx.worker_io, watched);
        self.ctx.host.context.adopt_thread();
        // From here on `self` stays where it is: its fibers find it by its address.
        self.open_direct();
        while !pool.is_stopping() && step(&self) {}

        // Shut the watchdog out: everything is about to be dropped. This waits if it is at work
        // here.
        drop(remote_io);
        // Operations of fibers that were left behind: the driver keeps their buffers (`io/uring`).
        let in_flight = self.ctx.io().driver.borrow().in_flight();
        self.give_up();
        in_flight
    }

    /// Runs the next fiber until it switches back, or sleeps if there is none. After a search the
    /// first task counts as found, which may wake another worker to search on (`sched/sleep`).
    #[inline(always)]
    pub(super) fn step(&self) {
        self.look_if_due();
        // A fiber may have popped one in this loop's place that it could not go on with: it comes
        // first, as it would have.
        let handed = self.handed.take();
        match handed.or_else(|| self.policy.pop(Effort::Quick)) {
            Some(task) if self.searching.take() => self.found(task),
            Some(task) => self.resume(task),
            None => self.idle(),
        }
    }

    /// Returns whether its mailbox has entries.
    #[inline]
    pub(super) fn has_mail(&self) -> bool {
        !self.mailbox.is_empty(self.ctx.shared().inbox())
    }

    /// Queues the fibers that were granted what they waited for.
    ///
    /// A grant comes as a bare header: whoever granted something has shown that the fiber waits for
    /// it, so it is alive and will not run before this.
    fn read_grants(&self) {
        self.ctx.leave_fibers();
        while let Some(header) = self.mailbox.grants.pop() {
            self.messages.set(self.messages.get() + 1);
            // SAFETY: from the queue that `wake::grant` fills.
            unsafe { self.ctx.deliver_grant(header) };
        }
    }

    /// Queues everything in the mailbox, waiting for each header in turn: for a worker that has
    /// nothing else to do.
    #[inline(never)]
    pub(super) fn read_mail(&self) {
        self.read_grants();
        self.mailbox
            .all(self.ctx.shared().inbox())
            .for_each(|task| self.deliver(task));
    }

    /// Queues what the last check took, and takes what has arrived since. By then the headers of
    /// the former have been prefetched (`sched/mailbox`).
    ///
    /// Context: not where the watchdog hands the inbox to others: it would not find what this has
    /// taken.
    #[inline(never)]
    fn exchange_mail(&self) {
        debug_assert!(
            self.ctx.pool.movement != Movement::Anytime,
            "the watchdog would not find what is taken"
        );
        self.read_grants();
        self.mailbox
            .exchange(self.ctx.shared().inbox())
            .for_each(|task| self.deliver(task));
    }

    /// Queues one entry of the inbox: a fiber, or a message for one (`FiberTask` says which there
    /// are).
    fn deliver(&self, task: FiberTask) {
        self.messages.set(self.messages.get() + 1);
        if let Some(ended) = self.ctx.deliver(task) {
            self.retire(ended);
        }
    }

    /// Counts a step down, and looks at the mailbox, or at driver and timers too, if that is due.
    /// Most steps do no more than the subtraction and a test against the mailbox's mask.
    #[inline]
    fn look_if_due(&self) {
        let left = self.budget.get() - 1;
        self.budget.set(left);
        if !self.mailbox.is_due(left) {
            return self.mailbox.reverse_next();
        }

        if self.has_mail() {
            // Where the watchdog may hand the inbox to others, nothing is taken that is not queued
            // at once.
            if left != 0
                && self.mailbox.may_wait(STRIDE)
                && self.ctx.pool.movement != Movement::Anytime
            {
                self.exchange_mail();
            } else {
                self.read_mail();
            }
        }

        if left == 0 {
            self.look();
        }
    }

    /// Adds to the switches that others see, and publishes the other counts: once a stride and
    /// before each sleep. From them the watchdog can tell a worker that stands still from one that
    /// runs.
    pub(super) fn publish_counts(&self, count: u32) {
        self.ctx
            .shared()
            .counts
            .publish(&self.ctx.policy.counts(), self.messages.get());
        let switches = &self.ctx.shared().switches;
        let count = i64::from(count) + self.extra.take();
        switches.store(
            switches.load(Ordering::Relaxed).wrapping_add_signed(count),
            Ordering::Relaxed,
        );
    }

    /// Polls driver and timers at the end of a stride, and adapts the stride to how long fibers
    /// run: half as long after a slow one, twice as long after a quick one.
    fn look(&self) {
        self.ctx.leave_fibers();
        // Without the present step, which is counted with the next ones: it may find nothing to
        // run.
        self.publish_counts(self.stride.get() - 1);
        self.extra.set(1);
        let now = self.ctx.now();
        let long = now.saturating_sub(self.last_turn.get()) > STRIDE_NS;

        self.stride.set(if long {
            (self.stride.get() / 2).max(1)
        } else {
            (self.stride.get() * 2).min(STRIDE)
        });
        self.budget.set(self.stride.get());
        self.mailbox.begin_stride(self.stride.get());
        self.ctx.turn(Wait::No, || ());
        self.last_turn.set(now);
        self.close_if_requested();
    }

    /// Ends idle connections, and wakes fibers to find the pool closing: once each, when the pool
    /// says so. Describes some of its fibers if a dump has asked. Returns whether it did any of
    /// these.
    pub(super) fn close_if_requested(&self) -> bool {
        let closed = self.ctx.pool.refuses_idle() && !self.idle_closed.replace(true);
        if closed {
            idle_conn::cancel_all(self.ctx.io_cx(&self.ctx.io()));
        }

        let closing = self.ctx.pool.is_closing() && !self.closing_announced.replace(true);
        if closing {
            let pinned: Vec<_> = self
                .ctx
                .pinned
                .borrow()
                .iter()
                .map(|(_, header)| *header)
                .collect();
            // SAFETY: on the list, so not retired; waking retires nothing.
            pinned
                .into_iter()
                .for_each(|header| wake::wake(unsafe { header.as_ref() }, Some(&self.ctx)));
        }

        self.answer_if_asked() || closed || closing
    }

    /// Runs a task until a fiber leaves its stack for the worker's, and does what must be done for
    /// that one. A task that has not started is placed first, perhaps on another worker; while many
    /// workers are held up it may have to wait before that.
    // Inlined into the loop of every policy: without the attribute LLVM's choice depends on the
    // policy's size.
    #[inline(always)]
    pub(super) fn resume(&self, task: FiberTask) {
        let ctx = &self.ctx;
        ctx.set_dry(false);
        let pool = ctx.pool_ptr();
        let task = if task.has_started() {
            task
        } else {
            // While many workers are held up, those that have started come first.
            let Some(task) = ctx.pool().held_back.admit(task) else {
                return;
            };
            // A policy that hands a worker another's fiber is at fault, and found here.
            task.check_place(ctx.id(), pool);
            if let Some(other) = self.policy.place(&task, ctx) {
                return wake::send_to(&ctx.pool, other, task);
            }

            // No stack left: the fiber ends without having run, and its join gives the error.
            if let Err(error) = self.start(&task) {
                task.refuse(error, Some(ctx.blocks()));
                return ctx.count_refused();
            }
            task
        };

        // Comes back when a fiber has left its stack for this one: not necessarily that fiber.
        let left = if ctx.resumes_with_care {
            self.resume_with_care(task, pool)
        } else {
            // SAFETY: this worker's own context.
            unsafe { task.resume(ctx.host_ptr(), pool) }
        };
        self.settle(left, Beside::Loop);
    }

    /// Does what [`FiberTask::resume`] does, and records it if the pool has a recorder; without a
    /// driver of its own, whose thread may end before the fiber, it forgets the place.
    #[cold]
    #[inline(never)]
    fn resume_with_care(&self, task: FiberTask, pool: NonNull<()>) -> Left {
        let lane = self.ctx.lane.as_ref();
        lane.iter()
            .for_each(|lane| lane.runs(task.header(), self.policy.steals()));
        // SAFETY: this worker's own context.
        let left = unsafe { task.resume(self.ctx.host_ptr(), pool) };
        lane.iter()
            .for_each(|lane| lane.stops(left.task.header(), left.how));
        if !self.ctx.has_driver() {
            left.task.forget_place();
        }

        left
    }

    /// Sends a fiber to the other worker to which it has pinned itself. (There is nothing to ask of
    /// the policy: nobody else may run it.)
    #[cold]
    pub(super) fn send_away(&self, task: FiberTask) {
        match task.header().pinned_to() {
            Some(there) => wake::send_to(&self.ctx.pool, there, task),
            None => self.requeue(task, Ready::Yielded),
        }
    }

    /// Pushes a fiber that has yielded and said where it wants to wait.
    #[cold]
    pub(super) fn requeue(&self, task: FiberTask, why: Ready) {
        let wake = self.policy.push(task, why);
        self.ctx.pool.act_on_own(wake);
    }

    /// Gives a new fiber its stack and its place on record, and pins it if it moves only before its
    /// start. It runs here from now on.
    ///
    /// # Errors
    /// There is no stack.
    pub(super) fn start(&self, task: &FiberTask) -> io::Result<()> {
        let ctx = &self.ctx;
        let header = task.header();
        // Only now: a fiber that waits for its first turn costs its heap block, not a stack.
        let (stack, storage) = ctx
            .recycler
            .take(&ctx.pool, header.own.stack_size as usize)?;
        task.start(stack, storage);
        if header.movement() == Movement::BeforeStart {
            // From here on wake-ups by this worker are plain stores (`atomics/pinned_state`).
            header.pin_to(Some(ctx.id()));
        }

        header.own.born.set(ctx.last_reading());
        // Record it before it first checks whether the pool is closing: it sees that, or is found
        // and woken.
        let key = match header.movement() {
            Movement::Anytime => ctx.pool.register(ctx.id(), header),
            _ => ctx.put_on_record(header),
        };

        header
            .own
            .registered
            .set(u32::try_from(key).expect("a pool has less than 2^32 fibers"));
        // SAFETY: this worker's own context, of which `host_ptr` is a part.
        unsafe { task.arrive(ctx.host_ptr(), ctx.id()) };
        Ok(())
    }

    /// Takes a fiber that has ended off the record, and keeps its stack and blocks for the next
    /// one.
    pub(super) fn retire(&self, task: FiberTask) {
        let ctx = &self.ctx;
        let key = task.header().own.registered.get() as usize;
        // Off the record first: shutdown may follow a recorded fiber's pointer until then.
        match task.header().movement() {
            Movement::Anytime => ctx.pool.unregister(key),
            _ => ctx.strike_off(key),
        }

        let size = task.header().own.stack_size as usize;
        let (stack, storage) = task.retire(Some(ctx.blocks()));
        ctx.recycler.put(&ctx.pool, stack, storage, size);
        ctx.count_end();
    }
}

/// Prepares a worker's thread for fibers: the handler that names a fiber whose stack overflows, and
/// the alternate stack that it runs on, since the fiber's own has no room left.
///
/// Context: the worker's own thread, before its loop.
pub(crate) fn prepare_thread() -> io::Result<stack::AltStack> {
    stack::install(fiber::current_overflow_info);
    stack::ensure_alt_stack()
}
