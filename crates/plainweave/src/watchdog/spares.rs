//! When the watchdog adds spare workers (`sched/spare`), and when it lets them go.
//!
//! It adds some if they would find fibers that are ready, no worker is asleep (that one has been
//! woken for them), and
//! * a worker is held up **in the kernel**, so that fewer than the regular number of workers have
//!   use for a processor: at the first scan that finds it, or
//! * **every** worker is held up, and those that compute have been for `stall_after`: one that
//!   computes has its processor, and a spare worker takes time from it.
//!
//! It also adds those that the program asks for (`Runtime::add_workers`), and counts them with the
//! regular ones.
//!
//! One at first, and twice as many each time that these are soon held up in the kernel too, up to
//! [`BURST`] or a part of those that are: scans are a millisecond apart while stalls are likely,
//! and further where many workers are held up.
//!
//! # When there are many, or no more
//! From [`MANY`] workers in the kernel on, or half of all that there may be, fresh fibers are held
//! back (`sched/held_back`), and as many start at each scan as there are workers for them: those
//! added, and those asleep but one. So a fiber that has started, and may hold what the others wait
//! for, does not queue behind a thousand that will only wait for it; and there is a worker left for
//! it (`room_for_fresh`).
//!
//! That may leave nothing for fresh fibers for a long time: the workers that are not held up are
//! never asleep, or many fibers have started that only sleep, and count as such that may come back.
//! Then one starts all the same, and twice as many every [`TRICKLE`] as long as no more workers
//! block, for half of the workers that are asleep; after that one now and then. They are delayed,
//! not refused.
//!
//! There can be no more when the limit of `RuntimeBuilder::max_workers` is reached, or what the
//! system leaves (`limits`). Then a last worker starts, which is not counted in these limits, and
//! one line on standard error says which limit it was. So **whoever holds the lock gets a worker**,
//! unless more fibers that have started wait for it than there can be threads.
//!
//! Whether a worker is blocked is known a scan late, and on a machine that is busy with other
//! things a scan itself may be. So one fiber more may start than there are workers, because those
//! that would have spoken against it were not seen to be blocked yet. When the last worker is held
//! up too and something is ready, another one starts, up to four in all (`sched/workers`); each of
//! them is then kept for fibers that have started. If even these are held up, the report of a stall
//! says so ([`NoSpare`]).
//!
//! Spare workers are let go when more workers than the regular number are free and none was added
//! for [`KEPT`].

use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering;
use std::sync::mpsc::Receiver;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, eventfd};

use super::limits::Room;
use super::report::NoSpare;
use crate::abort::{Kind, warn_once};
use crate::fiber::Movement;
use crate::policy::WorkerId;
use crate::sched::pool::PoolShared;
use crate::sched::spare::Role;

/// How long spare workers stay after one was added: code that blocks once mostly blocks again.
const KEPT: Duration = Duration::from_millis(100);
/// How long the watchdog waits after a thread could not start.
const RETRY: Duration = Duration::from_secs(1);
/// Workers added at a scan, at most, and what part of those in the kernel if that is more: some 50
/// us each.
const BURST: usize = 16;
/// Descriptors that a worker with a driver opens: the driver, its eventfd, a duplicate for the
/// watchdog, and one more while io_uring is set up.
const DESCRIPTORS: usize = 4;
/// Workers in the kernel from which on fresh fibers are held back.
const MANY: usize = 1024;
/// How long it takes to see whether fresh fibers that were let start have blocked their workers.
const TRICKLE: Duration = Duration::from_millis(5);

/// Starts the thread of the spare worker with this number, which says whether it could open its
/// driver.
pub(crate) type Start = Box<dyn Fn(WorkerId) -> io::Result<Starting> + Send>;

/// A thread that is about to run a worker.
pub(crate) struct Starting {
    pub(crate) thread: JoinHandle<usize>,
    pub(crate) opened: Receiver<io::Result<()>>,
}

/// The threads of spare workers.
pub(crate) type Threads = Vec<(WorkerId, JoinHandle<usize>)>;

/// A worker that is held up, as a scan finds it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stalled {
    pub(super) id: WorkerId,
    /// For `stall_after` or longer.
    pub(super) long: bool,
    /// It waits in the kernel.
    pub(super) in_kernel: bool,
}

/// What the workers that take part do, in numbers.
#[derive(Clone, Copy, Debug, Default)]
struct Census {
    take_part: usize,
    /// Not held up.
    free: usize,
    asleep: usize,
    computing: usize,
    in_kernel: usize,
    /// Held up, but in neither way that calls for a spare worker: it computes, and not for long.
    briefly: usize,
    /// Held up for `stall_after` or longer.
    long: usize,
    /// Whether a thread is about to take part.
    starting: bool,
}

impl Census {
    /// `stalled`: in the order of their numbers.
    fn of(pool: &PoolShared, stalled: &[Stalled]) -> Self {
        let mut census = Self::default();
        let mut stalled = stalled.iter().peekable();
        for (id, worker) in pool.workers.iter().enumerate() {
            let held_up = stalled.next_if(|stalled| stalled.id == id);
            census.starting |= worker.role.get() == Role::Starting;
            if !worker.role.takes_part() {
                continue;
            }
            census.take_part += 1;

            match held_up {
                Some(stalled) => {
                    census.in_kernel += usize::from(stalled.in_kernel);
                    census.computing += usize::from(!stalled.in_kernel);
                    census.long += usize::from(stalled.long);
                    census.briefly += usize::from(!stalled.in_kernel && !stalled.long);
                }
                None => {
                    census.free += 1;
                    census.asleep += usize::from(pool.is_asleep(id));
                }
            }
        }

        census
    }
}

/// When fresh fibers that are held back last got a chance, how many, and how many workers were in
/// the kernel then.
#[derive(Clone, Copy, Debug)]
struct Granted {
    at: Instant,
    count: usize,
    in_kernel: usize,
}

/// The watchdog's view of the spare workers.
pub(crate) struct Spares {
    start: Start,
    /// Threads that it has started, and has not joined.
    threads: Threads,
    last_added: Instant,
    /// When many workers were in the kernel.
    crowded: Instant,
    granted: Granted,
    /// How many were to be added last; 0 if that was a while ago.
    burst: usize,
    retry_at: Instant,
    /// Why the last one could not start.
    refused: io::ErrorKind,
    /// The most ordinary spare workers that the system allows, and why; asked while none is without
    /// a driver.
    room: Option<Room>,
    /// Descriptors for one worker, so that it starts though the program has used up all others: the
    /// one by which those without a driver wait, if there is one. Whoever closes some then finds a
    /// worker.
    reserve: Vec<OwnedFd>,
    /// Whether it may say on standard error that there can be no more.
    prints: bool,
}

impl Spares {
    pub(crate) fn new(start: Start, prints: bool) -> Self {
        let now = Instant::now();
        Self {
            start,
            threads: Vec::new(),
            last_added: now,
            crowded: now,
            granted: Granted {
                at: now,
                count: 0,
                in_kernel: 0,
            },
            burst: 0,
            retry_at: now,
            refused: io::ErrorKind::Other,
            room: None,
            reserve: Vec::new(),
            prints,
        }
    }

    /// Keeps descriptors for one worker from now on.
    pub(crate) fn with_reserve(mut self) -> Self {
        self.fill_reserve();
        self
    }

    /// Opens the descriptors that are kept in reserve, as far as there are any.
    fn fill_reserve(&mut self) {
        while self.reserve.len() < DESCRIPTORS
            && let Ok(one) = eventfd(0, EventfdFlags::CLOEXEC)
        {
            self.reserve.push(one);
        }
    }

    pub(super) fn into_threads(self) -> Threads {
        self.threads
    }

    /// Adds spare workers or lets some go, if there is cause; `stalled` are the workers that are
    /// held up, in the order of their numbers. If all have been for long and something is ready,
    /// but there is no spare worker for it, returns why.
    pub(super) fn adjust(&mut self, pool: &PoolShared, stalled: &[Stalled]) -> Option<NoSpare> {
        if pool.numbers.spares == 0 {
            let all_held_up =
                stalled.len() == pool.regular() && stalled.iter().all(|worker| worker.long);
            let would_help = pool.movement == Movement::Anytime
                && all_held_up
                && pool.outside.maybe_ready_spare();
            return would_help.then_some(NoSpare::AtTheLimit {
                workers: pool.regular(),
            });
        }

        self.reap(pool);
        let census = Census::of(pool, stalled);
        let wanted = wanted(pool);
        self.hold_back(pool, &census);
        let is_ready = || pool.outside.maybe_ready_spare() || pool.held_back.has_some();

        // Some are kept for fibers that have started.
        let kept = if pool.held_back.is_on() {
            kept_back(pool).count().max(1)
        } else {
            0
        };

        let free = census.free.saturating_sub(kept);
        let asleep = census.asleep.saturating_sub(kept);
        let too_few = free + census.computing < wanted || (free == 0 && census.briefly == 0);
        let is_missed = too_few && asleep == 0 && is_ready();
        if census.computing > 0 || self.last_added.elapsed() > KEPT {
            self.burst = 0;
        }
        let mut added = 0;
        let mut why_not = None;

        if census.starting {
            // They will be seen to take part at the next scan.
        } else if census.take_part < wanted || is_missed {
            let many = (2 * self.burst).clamp(1, BURST.max(census.in_kernel / BURST));
            (added, why_not) = self.add(pool, many.max(wanted.saturating_sub(census.take_part)));
            if let Some(why) = why_not.filter(|_| is_missed) {
                self.begin_to_save(pool, &census, why);
            }
            self.burst = if added > 0 { many } else { 0 };
        } else if !too_few && self.last_added.elapsed() > KEPT {
            if pool
                .numbers
                .waits_for_others()
                .is_none_or(|id| pool.workers[id].role.get() == Role::Absent)
            {
                self.fill_reserve();
            }
            self.let_go(pool, stalled, free.saturating_sub(wanted));
        }

        if pool.held_back.is_on() {
            self.let_start(pool, free, asleep + added, census.in_kernel);
        }
        why_not.filter(|_| free == 0 && census.long == census.take_part - census.free && is_missed)
    }

    /// Lets some of the fresh fibers start that are held back. `free` and `asleep` are without the
    /// one that is kept.
    fn let_start(&mut self, pool: &PoolShared, free: usize, asleep: usize, in_kernel: usize) {
        let room = self.room_for_fresh(pool, in_kernel);
        let mut count = asleep.min(room);
        let Granted {
            at,
            count: before,
            in_kernel: then,
        } = self.granted;

        if count == 0 && at.elapsed() >= TRICKLE {
            let most = if room > 0 {
                // Those that are not asleep may be blocked by now.
                free.min(self.safe(pool).max(1))
            } else {
                asleep.div_ceil(2).max(free.min(1))
            };

            if in_kernel <= then {
                count = most.min(2 * before.max(1));
            } else if room > 0 || at.elapsed() >= TRICKLE * 10 {
                count = free.min(1);
            }
        }

        if count > 0 {
            self.granted = Granted {
                at: Instant::now(),
                count,
                in_kernel,
            };
        }

        pool.let_start(count);
    }

    /// Returns how many fresh fibers may start while others are held back. As many fibers as there
    /// are workers may block all of these without harm: no other has started. Of more, any may come
    /// back to what the others wait for, so half of the workers stay for those that do.
    fn room_for_fresh(&self, pool: &PoolShared, in_kernel: usize) -> usize {
        self.safe(pool)
            .max((self.most(pool) / 2).saturating_sub(in_kernel))
    }

    /// Returns how many fresh fibers may start so that there are as many workers as fibers that
    /// have started.
    fn safe(&self, pool: &PoolShared) -> usize {
        self.most(pool).saturating_sub(pool.started())
    }

    /// Returns how many workers there may be.
    fn most(&self, pool: &PoolShared) -> usize {
        pool.regular() + self.ordinary(pool)
    }

    /// Returns how many ordinary spare workers there may be, by what was last asked of the system.
    fn ordinary(&self, pool: &PoolShared) -> usize {
        let spares = pool.numbers.spares;
        self.room.map_or(spares, |room| spares.min(room.threads))
    }

    /// Begins or ends to hold fresh fibers back.
    fn hold_back(&mut self, pool: &PoolShared, census: &Census) {
        let many = MANY.min(self.most(pool) / 2).max(1);
        if census.in_kernel > many / 2 {
            self.crowded = Instant::now();
        }
        if pool.is_closing() || self.crowded.elapsed() > KEPT {
            if pool.held_back.is_on() {
                pool.hold_none_back();
            }
            // For whoever is ready by then there is a worker, or will be.
            for id in kept_back(pool) {
                if pool.workers[id].role.change(Role::Active, Role::Released) {
                    pool.workers[id].signal();
                }
            }
        } else if census.in_kernel >= many && !pool.held_back.is_on() {
            pool.held_back.begin();
        }
    }

    /// Returns whether as many workers take part as are wanted when none is held up.
    pub(super) fn are_settled(pool: &PoolShared) -> bool {
        pool.taking_part() == wanted(pool) && !pool.held_back.is_on()
    }

    /// Joins the threads that have ended: their numbers may be used again.
    fn reap(&mut self, pool: &PoolShared) {
        if self.threads.iter().all(|(_, thread)| !thread.is_finished()) {
            return;
        }
        for at in (0..self.threads.len()).rev() {
            if self.threads[at].1.is_finished() {
                let (id, thread) = self.threads.swap_remove(at);
                // Without a driver it leaves nothing in flight; its panic would have ended the
                // process.
                let _ = thread.join();
                pool.workers[id].role.change(Role::Ended, Role::Absent);
            }
        }

        let last = self.threads.iter().map(|(id, _)| *id).max();
        pool.sleepers.retreat(last.unwrap_or(0).max(pool.regular()));
        self.note_solitude(pool);
    }

    /// Lets a sole regular worker know that no other has a thread, if that is so.
    fn note_solitude(&self, pool: &PoolShared) {
        if self.threads.is_empty() && pool.regular() == 1 {
            pool.company.is_gone();
        }
    }

    /// Lets go of this many workers that are not held up, those with the highest numbers.
    fn let_go(&mut self, pool: &PoolShared, stalled: &[Stalled], surplus: usize) {
        let made = pool.workers.made();
        let held_up = |id: &WorkerId| stalled.binary_search_by_key(id, |worker| worker.id).is_ok();

        let some = pool
            .numbers
            .ordinary_spares()
            .rev()
            .filter(|id| *id < made && !held_up(id));
        let active = some.filter(|id| pool.workers[*id].role.get() == Role::Active);
        // One a scan to begin with: those that are needed again after all do not have to start.
        for id in active.take(surplus.div_ceil(8)) {
            if pool.workers[id].role.change(Role::Active, Role::Released) {
                pool.workers[id].signal();
            }
        }
    }

    /// Adds up to `many` workers: those that were let go and have not left, those that rest, and
    /// new ones. Returns how many, and why there are no more.
    fn add(&mut self, pool: &PoolShared, many: usize) -> (usize, Option<NoSpare>) {
        self.last_added = Instant::now();
        let made = pool.workers.made();
        let mut added = 0;

        for (from, signals) in [(Role::Released, false), (Role::Resting, true)] {
            for id in pool.numbers.ordinary_spares().filter(|id| *id < made) {
                if added < many && pool.workers[id].role.change(from, Role::Active) {
                    added += 1;
                    if signals {
                        pool.workers[id].signal();
                    }
                }
            }
        }

        let allowed = self.allowed(pool);
        let new: Vec<_> = pool
            .numbers
            .ordinary_spares()
            .take(allowed)
            .filter(|id| is_absent(pool, *id))
            .take(many - added)
            .collect();

        let mut refused = self.last_added < self.retry_at;
        if !refused && !new.is_empty() {
            let started = self.start_all(pool, &new);
            refused = started < new.len();
            added += started;
        }

        if added > 0 {
            return (added, None);
        }
        let workers = pool.taking_part();
        let why_not = match self.room {
            _ if refused => NoSpare::Refused {
                workers,
                error: self.refused,
            },
            Some(Room { threads, limit }) if threads < pool.numbers.spares => {
                NoSpare::SystemLimit { workers, limit }
            }
            _ => NoSpare::AtTheLimit {
                workers: pool.numbers.most(),
            },
        };

        (0, Some(why_not))
    }

    /// Starts a last worker, for fibers that have started, and holds the others back; another one
    /// if those that have started are held up too.
    fn begin_to_save(&mut self, pool: &PoolShared, census: &Census, why: NoSpare) {
        let is_refused = matches!(why, NoSpare::Refused { .. });
        let is_first = kept_back(pool).next().is_none();
        // A fresh fiber is no reason for another one; those in front of it are held back in time.
        let another_helps = census.free == 0 && pool.outside.maybe_ready_spare();
        let there = |id: &WorkerId| *id < pool.workers.made();
        let Some(last) = (pool.numbers.kept_back())
            .find(|id| !there(id) || pool.workers[*id].role.get() != Role::Active)
        else {
            return;
        };

        if is_refused || !(is_first || another_helps) {
            return;
        }
        pool.workers.make(last);
        let role = &pool.workers[last].role;
        if role.get() == Role::Ended {
            return;
        }
        let was_on = pool.held_back.is_on();

        // First this: the worker must not begin with a fresh fiber.
        pool.held_back.begin();
        self.crowded = Instant::now();
        if role.change(Role::Resting, Role::Active) {
            pool.workers[last].signal();
        } else if !role.change(Role::Released, Role::Active)
            && self.start_all(pool, &[last]) == 0
            && !was_on
        {
            return pool.hold_none_back();
        }

        if self.prints {
            warn_once(Kind::NoMoreWorkers, format_args!("{}", why.sentence()));
        }
    }

    /// Returns how many ordinary spare workers there may be.
    fn allowed(&mut self, pool: &PoolShared) -> usize {
        if pool.numbers.waits_for_others().is_none() {
            return pool.numbers.spares;
        }
        let made = pool.workers.made();
        let without_driver = |id: &WorkerId| *id < made && !pool.numbers.has_driver(*id);
        let mut there = pool.numbers.ordinary_spares().filter(without_driver);
        if there.all(|id| pool.workers[id].role.get() == Role::Absent) {
            self.room = Some(Room::now());
        }

        self.ordinary(pool)
    }

    /// Starts the threads of these workers, which are absent. If those that have a driver lack the
    /// descriptors, one without starts. Returns how many have started.
    fn start_all(&mut self, pool: &PoolShared, ids: &[WorkerId]) -> usize {
        let (with_driver, mut without): (Vec<_>, Vec<_>) =
            ids.iter().partition(|id| pool.numbers.has_driver(**id));
        let others_may_wait = pool.numbers.waits_for_others().is_some();
        let mut started = match with_driver.first() {
            None => 0,
            Some(_) if others_may_wait => self.try_to_start(pool, &with_driver),
            Some(first) => self.start_with_reserve(pool, *first, &with_driver),
        };

        if others_may_wait && started < with_driver.len() && without.is_empty() {
            let mut some = pool
                .numbers
                .ordinary_spares()
                .filter(|id| !pool.numbers.has_driver(*id));
            without.extend(some.find(|id| is_absent(pool, *id)));
        }

        if !without.is_empty() && self.others_can_wait(pool) {
            let some = self.try_to_start(pool, &without);
            if some == without.len() {
                self.retry_at = self.last_added;
            }
            started += some;
        }

        started
    }

    /// Returns whether the worker has started by which those without a driver wait, after it has
    /// tried to start it.
    fn others_can_wait(&mut self, pool: &PoolShared) -> bool {
        let Some(waits) = pool.numbers.waits_for_others() else {
            return true;
        };
        pool.workers[waits].role.get() != Role::Absent
            || self.start_with_reserve(pool, waits, &[waits]) > 0
    }

    /// Starts some; if none could be, the first with the descriptors that are kept in reserve.
    fn start_with_reserve(
        &mut self,
        pool: &PoolShared,
        first: WorkerId,
        ids: &[WorkerId],
    ) -> usize {
        let before = self.reserve.len();
        let retry_at = self.retry_at;
        let started = self.try_to_start(pool, ids);
        if started > 0 || before == 0 {
            return started;
        }
        self.reserve.clear();
        self.retry_at = retry_at;
        self.try_to_start(pool, &[first])
    }

    fn try_to_start(&mut self, pool: &PoolShared, ids: &[WorkerId]) -> usize {
        let mut starting = Vec::new();
        for id in ids.iter().copied() {
            pool.workers.make(id);
            pool.sleepers.reach(id);
            pool.workers[id].role.change(Role::Absent, Role::Starting);

            let start = if pool.company.arrives() {
                (self.start)(id)
            } else {
                Err(io::Error::other("the kernel refuses membarrier"))
            };
            match start {
                Ok(thread) => starting.push((id, thread)),
                Err(error) => {
                    self.could_not_start(pool, id, &error);
                    break;
                }
            }
        }

        let mut started = 0;
        for (id, Starting { thread, opened }) in starting {
            // A thread that says nothing has panicked.
            match opened
                .recv()
                .map_err(io::Error::other)
                .and_then(|opened| opened)
            {
                Ok(()) => {
                    started += 1;
                    self.threads.push((id, thread));
                }
                Err(error) => {
                    let _ = thread.join();
                    self.could_not_start(pool, id, &error);
                }
            }
        }

        self.note_solitude(pool);
        started
    }

    fn could_not_start(&mut self, pool: &PoolShared, id: WorkerId, error: &io::Error) {
        pool.workers[id].role.change(Role::Starting, Role::Absent);
        self.retry_at = self.last_added + RETRY;
        self.refused = error.kind();
    }
}

/// Returns the workers that take part and are kept for fibers that have started.
fn kept_back(pool: &PoolShared) -> impl Iterator<Item = WorkerId> {
    let made = pool.workers.made();
    let is_active = move |id: &WorkerId| *id < made && pool.workers[*id].role.get() == Role::Active;
    pool.numbers.kept_back().filter(is_active)
}

/// Returns whether a worker has no thread; it may not even be made.
fn is_absent(pool: &PoolShared, id: WorkerId) -> bool {
    id >= pool.workers.made() || pool.workers[id].role.get() == Role::Absent
}

/// Returns how many workers are to take part when none is held up.
fn wanted(pool: &PoolShared) -> usize {
    pool.regular() + pool.added.load(Ordering::Relaxed)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, AtomicUsize};
    use std::sync::mpsc;

    use super::*;
    use crate::fiber_local::Storage;
    use crate::policy::{Policy, Topology, WorkStealing, WorkStealingParams};
    use crate::sched::pool::PoolConfig;
    use crate::stack::StackConfig;

    /// A pool without threads, whose workers do what a test says.
    struct Rig {
        pool: Arc<PoolShared>,
        spares: Spares,
        /// Spare workers may start.
        may_start: Arc<AtomicBool>,
        started: Arc<AtomicUsize>,
    }

    impl Rig {
        fn new(regular: usize, spares: usize) -> Self {
            let config = PoolConfig {
                workers: regular,
                spares,
                movement: Movement::Anytime,
                storage: Storage::Shared,
                stack: StackConfig::default(),
                blocking_threads: 1,
                seed: 0,
                virtual_time: false,
                recorder: None,
            };

            let topology = Topology {
                spares: true,
                ..Topology::flat(regular)
            };

            let policy = WorkStealing::new(
                WorkStealingParams {
                    capacity: 2,
                    poll: 61,
                },
                &topology,
            );
            let pool = PoolShared::new(&config, Arc::new(policy)).expect("a pool");
            let may_start = Arc::new(AtomicBool::new(true));
            let started = Arc::<AtomicUsize>::default();
            let start = {
                let pool = pool.clone();
                let may_start = may_start.clone();
                let started = started.clone();
                move |id: WorkerId| {
                    if !may_start.load(Ordering::SeqCst) {
                        return Err(io::ErrorKind::WouldBlock.into());
                    }
                    started.fetch_add(1, Ordering::SeqCst);
                    let rests = pool.numbers.waits_for_others() == Some(id);
                    pool.workers[id].role.change(
                        Role::Starting,
                        if rests { Role::Resting } else { Role::Active },
                    );
                    let (report, opened) = mpsc::channel();

                    report.send(Ok(())).expect("open");
                    Ok(Starting {
                        thread: std::thread::spawn(|| 0),
                        opened,
                    })
                }
            };

            Self {
                pool,
                spares: Spares::new(Box::new(start), false),
                may_start,
                started,
            }
        }

        /// Asks for a spare worker as if something were ready; all that take part block.
        fn all_block(&mut self) -> Option<NoSpare> {
            let takes_part = |id: &WorkerId| self.pool.workers[*id].role.takes_part();
            let ids = (0..self.pool.workers.made()).filter(takes_part);
            let stalled: Vec<_> = ids
                .map(|id| Stalled {
                    id,
                    long: true,
                    in_kernel: true,
                })
                .collect();
            self.pool
                .added
                .store(stalled.len() + 1 - self.pool.regular(), Ordering::Relaxed);
            let why = self.spares.adjust(&self.pool, &stalled);

            self.pool.added.store(0, Ordering::Relaxed);

            why
        }

        fn take_part(&self) -> usize {
            self.pool.taking_part()
        }

        fn role(&self, id: WorkerId) -> Role {
            self.pool.workers[id].role.get()
        }
    }

    #[test]
    fn each_time_twice_as_many_are_added() {
        let mut rig = Rig::new(2, 500);
        let mut before = rig.take_part();
        for expected in [1, 2, 4, 8, 16, 16] {
            rig.all_block();
            assert_eq!(rig.take_part() - before, expected);
            before = rig.take_part();
        }

        let waits = rig
            .pool
            .numbers
            .waits_for_others()
            .expect("some have no driver");
        assert_eq!(rig.role(waits), Role::Resting);
        // The lowest numbers, and the one that is kept is not among them.
        let kept = rig.pool.numbers.kept_back();
        assert!(
            !kept.is_empty()
                && kept.clone().all(|id| rig.role(id) == Role::Absent)
                && rig.pool.workers.made() == before + 1 + kept.len()
        );

        // After a while it starts over.
        rig.spares.last_added -= KEPT * 2;
        rig.all_block();
        assert_eq!(rig.take_part() - before, 1);
    }

    #[test]
    fn those_that_are_held_up_are_not_let_go() {
        let mut rig = Rig::new(1, 10);
        for _ in 0..4 {
            rig.all_block();
        }
        let last = rig.pool.workers.made() - 1;
        assert!(rig.role(last) == Role::Active && rig.take_part() > 6);
        let stalled = [Stalled {
            id: last,
            long: true,
            in_kernel: true,
        }];

        for _ in 0..50 {
            rig.spares.last_added -= KEPT * 2;
            assert_eq!(rig.spares.adjust(&rig.pool, &stalled), None);
        }

        let active = (1..=last).filter(|id| rig.role(*id) == Role::Active);
        assert_eq!(active.collect::<Vec<_>>(), [last]);
    }

    #[test]
    fn numbers_of_ended_threads_are_used_again() {
        let mut rig = Rig::new(1, 10);
        for _ in 0..3 {
            rig.all_block();
        }
        let started = rig.started.load(Ordering::SeqCst);
        let last = rig.pool.workers.made() - 1;
        assert!(!rig.pool.numbers.has_driver(last));

        // As the worker would.
        let role = &rig.pool.workers[last].role;
        assert!(
            role.change(Role::Active, Role::Released) && role.change(Role::Released, Role::Ended)
        );
        while rig
            .spares
            .threads
            .iter()
            .any(|(_, thread)| !thread.is_finished())
        {
            std::thread::yield_now();
        }
        rig.spares.reap(&rig.pool);
        assert_eq!(
            (rig.role(last), rig.spares.threads.len()),
            (Role::Absent, 0)
        );
        rig.spares.last_added -= KEPT * 2;
        rig.all_block();

        assert_eq!(
            (rig.role(last), rig.started.load(Ordering::SeqCst)),
            (Role::Active, started + 1)
        );
    }

    #[test]
    fn many_in_the_kernel_hold_fresh_fibers_back_for_a_while() {
        let mut rig = Rig::new(2, 500);
        let many = MANY.min(rig.spares.most(&rig.pool) / 2);
        while rig.take_part() < many {
            rig.all_block();
            assert!(!rig.pool.held_back.is_on());
        }

        rig.all_block();
        assert!(rig.pool.held_back.is_on());
        // A scan that finds nobody proves nothing, however long this machine has taken by now.
        rig.spares.crowded = Instant::now() + 1000 * KEPT;
        rig.spares.adjust(&rig.pool, &[]);
        assert!(rig.pool.held_back.is_on() && !Spares::are_settled(&rig.pool));
        rig.spares.crowded = Instant::now() - KEPT * 2;
        rig.spares.adjust(&rig.pool, &[]);
        assert!(!rig.pool.held_back.is_on());
    }

    #[test]
    fn a_thread_that_is_refused_is_asked_for_again_later() {
        let mut rig = Rig::new(1, 10);
        rig.may_start.store(false, Ordering::SeqCst);
        rig.all_block();
        rig.may_start.store(true, Ordering::SeqCst);
        rig.all_block();
        assert_eq!((rig.take_part(), rig.role(1)), (1, Role::Absent));
        rig.spares.retry_at -= RETRY * 2;
        rig.all_block();
        assert_eq!((rig.take_part(), rig.role(1)), (2, Role::Active));
    }
}
