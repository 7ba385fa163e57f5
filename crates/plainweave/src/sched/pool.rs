//! A pool: workers, the fibers that run on them, and the parts of both that other threads may
//! touch.
//!
//! How a fiber of a pool becomes ready is in `sched/wake`; what a worker shares with others, in
//! `sched/worker_shared`.
//!
//! # Why it is hard
//! A pool has no lock around it. Its workers spawn and end fibers millions of times a second, other
//! pools and plain threads add fibers of their own, and a watchdog acts in a worker's place. At any
//! moment somebody may want all of it to end by a deadline, whatever its fibers are doing. Then
//! three questions need an answer: *is any fiber left?*, *which ones must be woken to see that the
//! pool closes?*, and *when may its memory be freed?*
//!
//! # Whose fields are whose
//! * *Constant:* what `new` takes from its configuration. Everyone reads it, so nothing that
//!   changes often lies beside it.
//! * *Changed by the watchdog alone:* which spare workers exist (`workers` never moves one that was
//!   made), and whether fresh fibers are held back (`sched/held_back`).
//! * *Changed rarely, by anyone:* the flags of the end, `added`, `callers`, `reporters`, stacks of
//!   unusual sizes.
//! * *Changed often:* each worker's own words, which are in [`WorkerShared`] on cache lines of
//!   their own, and `sleepers`, which a push that might wake somebody has to read. `entry` is
//!   padded: other pools' spawns write it.
//!
//! # How a pool ends
//! 1. *Close* ([`PoolShared::cancel_all`]): `closing` is set, the gate is shut, and every fiber on
//!    record is woken. From now on each blocking call fails with a cancellation. Fibers that start
//!    later are cancelled from the start. What other pools and threads spawn comes through the gate
//!    (`atomics/gate`): it is either counted by now, or refused.
//! 2. *Drain* ([`PoolShared::wait_until_empty`]): the closer waits, at most until its deadline,
//!    until as many fibers have ended as were spawned and no idle connection is left.
//! 3. *Stop* ([`PoolShared::stop`]): the workers leave their loops and are joined. A worker that is
//!    stuck in a fiber is left behind with the whole pool: stacks, ring and all. The pool is also
//!    leaked if fibers are left that wait for ever: their frames may hold borrows, and what they
//!    borrow must not move.
//!
//! # Why no fiber misses the end
//! Fibers on record are found by whoever can reach the record. One that may move is in a list of
//! the worker where it started, under a lock, so the closer wakes it. One that is pinned is in a
//! list that only its worker sees, which notices `closing` at its next turn and wakes it
//! (`Worker::close_if_requested`); a worker that sleeps is signalled. A fiber goes on record
//! *before* it first checks `closing`, and the closer sets `closing` *before* it reads the record,
//! so at least one of the two sees the other. A fiber leaves the record before it gives up its
//! reference on itself, under the same lock where there is one; so the closer never follows a
//! pointer to a fiber that was freed.
//!
//! # Counting without a shared counter
//! Each worker counts what it spawned and what ended on it, in words that only it writes: two plain
//! stores a fiber, on cache lines that are its own. The closer adds them up while they change. It
//! reads all "ended" first and all "spawned" after, so a fiber that it counts as ended it counts as
//! spawned too: the difference is never less than the number of fibers alive at some moment in
//! between. Zero therefore means that nobody was left, and after the gate is shut only living
//! fibers spawn, so nobody will be. Idle connections have a counter of their own; one that becomes
//! a fiber, or comes of one, is counted in its new role before it leaves the old one.
//!
//! # Threads that wait outside
//! A plain thread in `run` or `scope` is a *caller*. The watchdog reports a deadlock only while
//! there is one, and only if what it waits for has not ended ([`PoolShared::is_awaited`]). A thread
//! that was woken may get no processor for as long as the machine likes, and meanwhile the fibers
//! that are left may wait for the very thing that it does next. So each caller leaves a reference
//! to its fiber or its scope, under a lock that only plain threads and the watchdog take.
//!
//! # Rejected
//! * *One atomic counter of live fibers:* a cache line that all workers write for each spawn and
//!   each end, the most expensive thing in either.
//! * *One list of all fibers:* the same, with a lock.
//! * *Ending stuck fibers by force:* nothing may free a stack whose frames others have borrowed
//!   from.

#![expect(
    unsafe_code,
    reason = "fibers on record by pointer; the pool found from a fiber; a worker of it found by its address"
)]

use std::collections::HashMap;
use std::io;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use crossbeam_utils::CachePadded;
use slab::Slab;

use super::blocking_pool::BlockingPools;
use super::children::ScopeData;
use super::circles::Circles;
use super::held_back::HeldBack;
use super::inspect::Inspections;
use super::long_waits::Rounds;
use super::outside::{Outside, PushOutside};
use super::recorder::Recorder;
use super::worker::current_worker;
use super::worker_shared::Registered;
pub(crate) use super::worker_shared::{Beat, RemoteIo, WorkerShared};
pub(crate) use super::workers::Numbers;
use super::workers::Workers;
use crate::atomics::bell::Bell;
use crate::atomics::company::Company;
use crate::atomics::gate::Gate;
use crate::atomics::sleepers::Sleepers;
use crate::fiber::cancel::Node;
use crate::fiber::{self, FiberHandle, FiberSpec, FiberTask, Header, Movement, NEVER, Urgency};
use crate::fiber_local::Storage;
use crate::policy::{Cx, Policy, WorkerId};
use crate::stack::{Stack, StackConfig, StackPool};
use crate::timer::Nanos;

/// Fibers that a message names.
const SHOWN: usize = 5;

/// How a pool's stacks are used.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct StackUse {
    /// Stacks in use.
    pub(crate) in_use: usize,
    /// The deepest use seen so far, in bytes; 0 before any was measured.
    pub(crate) high_water: usize,
}

/// The part of a pool that all threads may touch.
pub(crate) struct PoolShared {
    /// The zero of its clock.
    pub(crate) epoch: Instant,
    /// When its fibers may change their worker.
    pub(crate) movement: Movement,
    /// Whether its fibers have fiber-local storage or share the worker's.
    pub(crate) storage: Storage,
    /// The regular workers, then the spare ones.
    pub(crate) workers: Workers,
    /// Which number is whose.
    pub(crate) numbers: Numbers,
    /// Fresh fibers that wait until workers are back.
    pub(crate) held_back: HeldBack,
    /// Spare workers that the program wants to take part.
    pub(crate) added: AtomicUsize,
    /// Who sleeps and who searches.
    pub(crate) sleepers: Sleepers,
    /// Whether a worker's push may have to wake another.
    pub(crate) company: Company,
    /// Stacks of the usual size; workers keep a few each (`sched/recycle`).
    pub(crate) stacks: Arc<StackPool>,
    /// Stack pools of other sizes, created on demand; sizes are powers of two.
    sized: Mutex<HashMap<usize, Arc<StackPool>>>,
    /// The policy, for threads that are none of its workers.
    pub(crate) outside: Box<dyn PushOutside>,
    /// Fibers that such threads have spawned. An atomic counter: their spawns are rare.
    pub(super) spawned_outside: AtomicU64,
    /// Spreads those of them that never move over the workers.
    next_home: AtomicUsize,
    /// Selects so far, from the runtime's seed on: what each draws its order from.
    pub(crate) selects: AtomicU64,
    /// Step 1 has begun: blocking calls of its fibers fail.
    closing: AtomicBool,
    /// Closed with `closing`: what other pools and threads spawn through it is either counted by
    /// then, or refused.
    pub(super) entry: CachePadded<Gate>,
    /// Whether its clock is virtual, and comparable with no other.
    pub(crate) virtual_time: bool,
    /// The latest time that a worker has had, if time is virtual.
    pub(super) virtual_now: AtomicU64,
    /// Idle connections are no longer kept; set with `closing`, or before it by a server that stops
    /// gracefully.
    refuses_idle: AtomicBool,
    /// Step 3 has begun: workers leave their loops.
    stopping: AtomicBool,
    /// Notified when a fiber ends while the pool is closing, and at no other time: ending a fiber
    /// takes no lock.
    ended: (Mutex<()>, Condvar),
    /// Threads for calls that would block a worker.
    pub(crate) blocking: BlockingPools,
    /// Wakes the watchdog when a worker wakes after all have slept.
    pub(crate) watchdog_bell: Bell,
    pub(crate) counts: Counts,
    /// Where its workers record what they do, if the program wants a trace.
    pub(crate) recorder: Option<Arc<Recorder>>,
    /// Dumps that wait for workers to describe their fibers.
    /// They are answered at a turn (`sched/inspect`).
    pub(super) inspections: Inspections,
    /// Looks at the fibers that may move and wait for long.
    pub(super) long_waits: Rounds,
    pub(crate) circles: Circles,
    /// Plain threads that wait for its fibers in `run` or `scope`: their number, and what each
    /// waits for.
    pub(crate) callers: AtomicUsize,
    /// One entry each; the number beside it is for those who ask often.
    awaited: Mutex<Slab<Awaited>>,
    /// Threads that report stalls: one or none.
    pub(crate) reporters: AtomicUsize,
}

/// A plain thread that waits for fibers of the pool, until dropped. By these the watchdog tells a
/// runtime that is stuck from one that is merely idle: nobody waits for the latter.
pub(crate) struct CallerWaits<'a> {
    pool: &'a PoolShared,
    /// Its entry in `awaited`.
    key: usize,
}

impl Drop for CallerWaits<'_> {
    fn drop(&mut self) {
        self.pool.callers.fetch_sub(1, Ordering::Relaxed);
        // Dropped without the lock: it may be the last reference to a fiber.
        let awaited = self.pool.awaited().remove(self.key);
        drop(awaited);
    }
}

/// What a plain thread waits for.
pub(crate) enum Awaited {
    /// In `run`: the fiber that runs its closure.
    Fiber(FiberHandle),
    /// In `scope`: the children, after the scope's own closure has returned.
    Scope(Arc<ScopeData>),
}

impl Awaited {
    /// Returns whether the wait is over, although its thread may not have had a processor since.
    fn has_ended(&self) -> bool {
        match self {
            Awaited::Fiber(fiber) => !fiber.header().is_live(),
            Awaited::Scope(data) => data.has_ended(),
        }
    }
}

/// What the pool counts for `Metrics` that happens seldom, mostly the watchdog's work.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    /// Stalls of workers.
    pub(crate) stalls: AtomicU64,
    /// Fibers and connections of stalled workers that were handed to other workers.
    pub(crate) rescued: AtomicU64,
    /// Fibers that found no stack.
    pub(crate) refused: AtomicU64,
}

/// Adds one to a word that no other thread writes meanwhile: a load and a store in place of a
/// locked instruction. Released, so that whoever reads the new count (see `live`) also sees what
/// came before it.
#[inline]
pub(crate) fn bump(word: &AtomicU64) {
    word.store(
        word.load(Ordering::Relaxed).wrapping_add(1),
        Ordering::Release,
    );
}

/// Subtracts one from a word that no other thread writes meanwhile.
#[inline]
pub(crate) fn lower(word: &AtomicU64) {
    word.store(
        word.load(Ordering::Relaxed).wrapping_sub(1),
        Ordering::Release,
    );
}

/// The configuration of a pool, as `builder` has checked it.
pub(crate) struct PoolConfig {
    /// Regular workers.
    pub(crate) workers: usize,
    /// The most spare workers.
    pub(crate) spares: usize,
    pub(crate) movement: Movement,
    pub(crate) storage: Storage,
    pub(crate) stack: StackConfig,
    pub(crate) blocking_threads: usize,
    /// Of whatever is drawn: the policies' choices, the order of selects. One seed and virtual time
    /// repeat a run.
    pub(crate) seed: u64,
    pub(crate) virtual_time: bool,
    pub(crate) recorder: Option<Arc<Recorder>>,
}

/// Returns how many bits tell `count` things apart.
#[inline]
fn number_bits(count: usize) -> u32 {
    count.next_power_of_two().trailing_zeros()
}

impl PoolShared {
    /// Creates a pool whose workers have no threads yet. Fails if there is no memory for stacks.
    pub(crate) fn new<P: Policy<FiberTask>>(
        config: &PoolConfig,
        policy: Arc<P>,
    ) -> io::Result<Arc<Self>> {
        let epoch = Instant::now();
        let cx = Mutex::new(Cx::new(config.seed ^ u64::MAX));
        let numbers = Numbers {
            regular: config.workers,
            spares: config.spares,
        };

        let workers = Workers::new(numbers);
        let outside = Box::new(Outside {
            policy,
            cx,
            epoch: (!config.virtual_time).then_some(epoch),
        });

        Ok(Arc::new(Self {
            epoch,
            movement: config.movement,
            storage: config.storage,
            company: Company::new(config.workers),
            sleepers: Sleepers::new(config.workers, workers.most() - config.workers),
            workers,
            numbers,
            held_back: HeldBack::default(),
            added: AtomicUsize::new(0),
            stacks: Arc::new(StackPool::new(config.stack.clone())?),
            sized: Mutex::new(HashMap::new()),
            outside,
            spawned_outside: AtomicU64::new(0),
            next_home: AtomicUsize::new(0),
            selects: AtomicU64::new(config.seed),
            closing: AtomicBool::new(false),
            entry: CachePadded::new(Gate::new()),
            virtual_time: config.virtual_time,
            virtual_now: AtomicU64::new(0),
            refuses_idle: AtomicBool::new(false),
            stopping: AtomicBool::new(false),
            ended: (Mutex::new(()), Condvar::new()),
            blocking: BlockingPools::new(config.blocking_threads),
            watchdog_bell: Bell::new(),
            counts: Counts::default(),
            recorder: config.recorder.clone(),
            inspections: Inspections::default(),
            long_waits: Rounds::default(),
            circles: Circles::default(),
            callers: AtomicUsize::new(0),
            awaited: Mutex::default(),
            reporters: AtomicUsize::new(0),
        }))
    }

    /// Returns the spec of a fiber of this pool, without its scope. `home` is where it stays if it
    /// never moves: the spawner's worker, if that belongs to this pool, or another one; `None`:
    /// each worker in turn.
    pub(crate) fn spec(
        &self,
        home: Option<WorkerId>,
        node: Option<Arc<Node>>,
        deadline: Nanos,
    ) -> FiberSpec {
        let pinned_to =
            (self.movement == Movement::Never).then(|| home.unwrap_or_else(|| self.next_home()));
        let pool = NonNull::from(self).cast();
        let movement = self.movement;
        let urgency = Urgency::default();

        FiberSpec {
            pool,
            name: None,
            stack_size: 0,
            movement,
            pinned_to,
            node,
            deadline,
            urgency,
        }
    }

    /// Returns each regular worker in turn.
    pub(crate) fn next_home(&self) -> WorkerId {
        self.next_home.fetch_add(1, Ordering::Relaxed) % self.regular()
    }

    /// Returns the time by its clock, in nanoseconds since its epoch; on virtual time the latest
    /// that a worker has had.
    pub(crate) fn clock(&self) -> Nanos {
        if self.virtual_time {
            self.virtual_now.load(Ordering::Relaxed)
        } else {
            self.nanos(Instant::now())
        }
    }

    /// Converts a point in time to the policies' clock: what lies before the epoch becomes zero,
    /// and what is too late for the clock, for ever.
    pub(crate) fn nanos(&self, at: Instant) -> Nanos {
        u64::try_from(at.saturating_duration_since(self.epoch).as_nanos()).unwrap_or(NEVER)
    }

    /// Returns the number of fibers spawned and not ended; exact when nothing runs.
    pub(crate) fn live(&self) -> u64 {
        self.live_and_idle().0
    }

    /// Returns the numbers of live fibers and of idle connections. A connection that becomes a
    /// fiber, or a fiber that becomes an idle connection, may be counted as both but never as
    /// neither: each is counted in its new role before it leaves the old one, hence the order of
    /// these loads.
    fn live_and_idle(&self) -> (u64, u64) {
        let sum = |word: fn(&WorkerShared) -> &AtomicU64| -> u64 {
            self.workers
                .iter()
                .map(|worker| word(worker).load(Ordering::Acquire))
                .sum()
        };

        let ended = sum(|worker| &worker.finished);
        let idle = sum(|worker| &worker.idle_conns);
        let spawned = sum(|worker| &worker.spawned) + self.spawned_outside.load(Ordering::Acquire);
        (spawned.saturating_sub(ended), idle)
    }

    /// Returns the number of idle connections.
    pub(crate) fn idle_connections(&self) -> u64 {
        self.live_and_idle().1
    }

    /// Notes what the calling thread waits for, if it is a plain one: a deadlock is reported only
    /// then. Wakes the watchdog, because these fibers may have been stuck before.
    pub(crate) fn caller_waits(
        &self,
        awaited: impl FnOnce() -> Awaited,
    ) -> Option<CallerWaits<'_>> {
        if fiber::current().is_some() {
            return None;
        }
        let key = self.awaited().insert(awaited());
        self.callers.fetch_add(1, Ordering::Relaxed);
        self.watchdog_bell.notice();
        Some(CallerWaits { pool: self, key })
    }

    fn awaited(&self) -> MutexGuard<'_, Slab<Awaited>> {
        self.awaited.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// Returns whether a plain thread waits for something that has not ended. One whose wait is
    /// over is still counted among the callers until it gets a processor.
    pub(crate) fn is_awaited(&self) -> bool {
        self.awaited()
            .iter()
            .any(|(_, awaited)| !awaited.has_ended())
    }

    /// Returns whether its fibers are to end. A relaxed load at each blocking call: a fiber that
    /// just misses it is on record already, and will be woken.
    #[inline]
    pub(crate) fn is_closing(&self) -> bool {
        self.closing.load(Ordering::Relaxed)
    }

    /// Returns whether its workers are to leave their loops.
    #[inline]
    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }

    /// Notifies the closer that a fiber has ended while the pool is closing.
    pub(crate) fn fiber_ended_late(&self) {
        drop(self.ended.0.lock());
        self.ended.1.notify_all();
    }

    /// Ends all idle connections, now and from now on. Each worker does it for its own, at its next
    /// turn; workers that sleep are signalled.
    pub(crate) fn close_idle_connections(&self) {
        self.refuses_idle.store(true, Ordering::SeqCst);
        self.workers.iter().for_each(|w| w.signal());
    }

    /// Returns whether connections that become idle are closed instead.
    #[inline]
    pub(crate) fn refuses_idle(&self) -> bool {
        self.refuses_idle.load(Ordering::Relaxed)
    }

    /// Records a fiber that may move, for shutdown: in the list of the worker where it starts,
    /// wherever it goes later, or in another one's if that worker has no driver (few of those
    /// start, and they end). Returns its key.
    pub(crate) fn register(&self, worker: WorkerId, header: &Header) -> usize {
        let lists = self.workers.first();
        // A division takes as long as a lock.
        let list = if worker < lists.len() {
            worker
        } else {
            worker % lists.len()
        };
        let key = lists[list]
            .movable()
            .insert(Registered(NonNull::from(header)));
        // The list's number is part of the key, so the list is found again without a search.
        key << number_bits(lists.len()) | list
    }

    /// Removes a fiber from the record, before it gives up its reference on itself.
    pub(crate) fn unregister(&self, key: usize) {
        let lists = self.workers.first();
        let bits = number_bits(lists.len());
        let list = key & ((1 << bits) - 1);
        lists[list].movable().remove(key >> bits);
    }

    /// Cancels every fiber, now and from now on: each blocking call checks `closing`. A blocked
    /// fiber is woken by this call if it may move, otherwise by its worker.
    pub(crate) fn cancel_all(&self) {
        // First this, then the record: see "Why no fiber misses the end".
        self.closing.store(true, Ordering::SeqCst);
        self.entry.close();
        let handles = |worker: &CachePadded<WorkerShared>| -> Vec<FiberHandle> {
            // SAFETY: a fiber leaves the list, under this lock, before it gives up its own
            // reference.
            worker
                .movable()
                .iter()
                .map(|(_, f)| FiberHandle::from_ref(unsafe { f.0.as_ref() }))
                .collect()
        };

        // Woken without the locks: a wake-up may push to a policy, and a fiber that ends takes one
        // of them.
        let fibers: Vec<FiberHandle> = self.workers.first().iter().flat_map(handles).collect();
        fibers.iter().for_each(FiberHandle::wake);
        self.close_idle_connections();
    }

    /// Describes fibers that have not ended, for a warning: a few that may move. (Pinned ones are
    /// known to their workers only.)
    pub(crate) fn some_alive(&self) -> Vec<String> {
        let handles = |worker: &CachePadded<WorkerShared>| -> Vec<String> {
            // SAFETY: a fiber leaves the list, under this lock, before it gives up its own
            // reference.
            let named = |fiber: &Registered| format!("{:?}", unsafe { fiber.0.as_ref() });
            let movable = worker.movable();
            movable.iter().take(SHOWN).map(|(_, f)| named(f)).collect()
        };

        self.workers
            .first()
            .iter()
            .flat_map(handles)
            .take(SHOWN)
            .collect()
    }

    /// Waits until no fiber and no idle connection is left, at most until `deadline`. Returns how
    /// many are left: fibers that spawn others, or that ignore their cancellation, can keep it from
    /// ever becoming zero.
    ///
    /// Context: a plain thread, or a fiber of another pool, whose worker it blocks.
    pub(crate) fn wait_until_empty(&self, deadline: Instant) -> u64 {
        let mut guard = self.ended.0.lock().unwrap_or_else(|e| e.into_inner());
        loop {
            let (live, idle) = self.live_and_idle();
            let left = live + idle;
            let now = Instant::now();
            if left == 0 || now >= deadline {
                return left;
            }

            // Workers look at `closing` to know whether to notify, and may just have missed it:
            // hence the bound.
            let wait = (deadline - now).min(Duration::from_millis(5));
            guard = self
                .ended
                .1
                .wait_timeout(guard, wait)
                .unwrap_or_else(|e| e.into_inner())
                .0;
        }
    }

    /// Tells the workers to leave their loops. Those that sleep are signalled; the others see it
    /// after their fiber.
    pub(crate) fn stop(&self) {
        self.stopping.store(true, Ordering::SeqCst);
        self.workers.iter().for_each(|w| w.signal());
    }

    /// Returns a stack of an unusual size. Such fibers are few, so each takes a lock, and little is
    /// kept for the next.
    pub(crate) fn take_sized(&self, size: usize) -> io::Result<Stack> {
        let size = size.next_power_of_two();
        // The lock is for the table; a stack is taken without it, because that may map memory.
        let pool = {
            let mut sized = self.sized.lock().unwrap_or_else(|e| e.into_inner());
            match sized.get(&size) {
                Some(pool) => pool.clone(),
                None => {
                    let config = StackConfig {
                        size,
                        max_free: 16,
                        ..self.stacks.config().clone()
                    };

                    let pool = Arc::new(StackPool::new(config)?);
                    sized.insert(size, pool.clone());
                    pool
                }
            }
        };
        pool.take()
    }

    /// Returns how stacks of all sizes are used.
    pub(crate) fn stack_use(&self) -> StackUse {
        let sized: Vec<_> = self
            .sized
            .lock()
            .unwrap_or_else(|e| e.into_inner())
            .values()
            .cloned()
            .collect();
        let stats = sized.iter().chain([&self.stacks]).map(|pool| pool.stats());
        stats.fold(StackUse::default(), |sum, stats| StackUse {
            in_use: sum.in_use + stats.in_use,
            high_water: sum.high_water.max(stats.high_water),
        })
    }

    /// Takes back a stack of an unusual size.
    pub(crate) fn put_sized(&self, stack: Stack) {
        let pool = self
            .sized
            .lock()
            .unwrap_or_else(|e| e.into_inner())
            .get(&stack.size())
            .cloned();
        match pool {
            Some(pool) => pool.put(stack),
            None => debug_assert!(false, "a stack of no pool"),
        }
    }
}

/// Returns the pool of the calling fiber; `None` on a plain thread.
pub(crate) fn try_current_pool() -> Option<Arc<PoolShared>> {
    current_worker().map(|ctx| ctx.pool_arc().clone())
}

/// Does the same for a call that makes no sense on a plain thread: `what`, which the panic's
/// message names.
#[track_caller]
pub(crate) fn current_pool(what: &str) -> Arc<PoolShared> {
    match try_current_pool() {
        Some(pool) => pool,
        None => no_runtime(what),
    }
}

#[cold]
#[track_caller]
pub(crate) fn no_runtime(what: &str) -> ! {
    panic!(
        "plainweave::{what} was called from outside a runtime: call it on a fiber (within plainweave::run or \
         Runtime::run), or use Runtime::{what}"
    )
}

impl Header {
    /// Returns the fiber's pool. The caller knows that the fiber has not ended.
    #[inline]
    pub(super) fn pool(&self) -> NonNull<PoolShared> {
        self.pool_ptr().cast()
    }
}

impl std::fmt::Debug for PoolShared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "a pool of {} workers", self.regular())
    }
}
