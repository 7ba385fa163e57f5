//! The watchdog: a thread that notices when a fiber holds up its worker, and does that worker's I/O
//! for the other workers.
//!
//! A fiber that computes for 50 ms holds up more than its own queue, which others can steal from.
//! Only its worker hears from the kernel that a connection has become readable, so everything that
//! waits there goes on waiting, however idle the other workers are. The watchdog listens in its
//! place (`docs/stalls.md`).
//!
//! # How a stall is detected
//! Every worker counts switches (at its regular polls of the driver, some 0.2 ms apart while fibers
//! are short) and sleeps. A worker that has been awake and whose counts have not changed for one
//! [`RuntimeBuilder::stall_after`] is stalled; on the hot path this costs nothing. Stalls come in
//! bursts: for [`ALERT`] after a stall the watchdog scans every [`CLOSE`], and takes over a
//! worker's I/O after that time. It also does so, without counting a stall, for a worker that slept
//! at the previous scan and is awake at this one: making sure would take another period, in which
//! requests wait. While all workers sleep the watchdog sleeps too, without a timeout; the first
//! worker to wake wakes it (`atomics/bell`).
//!
//! A scan that comes late discards the wait before it (`punctuality`): a watchdog that had no
//! processor cannot tell whether its workers had one. Nor does a worker's wait for a processor
//! count (`thread`), for up to [`WITHOUT`]: after that its connections need somebody else.
//!
//! # What the watchdog does
//! It takes the worker's I/O lock (`atomics/biased_lock`), which is free while the worker runs user
//! code:
//! * *epoll*: it polls the driver and expires its timers, as the worker would (`sched/worker_io`).
//!   Until the worker is back the watchdog waits on the epoll instance itself, so a request is late
//!   by a wake-up, not by a period.
//! * *io_uring, where fibers may move*: the same, and it waits on the ring. But the kernel
//!   completes what the worker has submitted on the worker's thread, when that enters the ring. So
//!   the watchdog looks every [`INTERRUPTION`], less often in a long stall, and if there is
//!   something has the thread enter the ring, by a signal (`entry`). On a ring for any thread the
//!   kernel does its part when the thread is interrupted, which taking the lock does
//!   (`membarrier`). A worker that has no processor, or waits in the kernel for a disk, answers no
//!   signal; so idle connections are also polled as below.
//! * *io_uring, otherwise*: only the worker can fetch its completions, which is cheaper for it.
//!   Idle connections wait for readiness, which poll(2) reports as well: those that are readable,
//!   or whose idle time is over, are taken away (`sched/idle_conn`). Timers of fibers expire as
//!   with epoll; their operations stay with the driver, and so the fibers stay too.
//! * *The inbox*: fibers that may move go to others.
//! * *Its processor*: threads that wake on it run before the worker (`timeslice`).
//! * *Its place*: if nobody else can run what is ready, it adds a spare worker (`spares`).
//!
//! If the program has asked for reports (`RuntimeBuilder::on_stall`), the watchdog leaves a note
//! for the thread that samples the worker and reports (`watchdog/reporter`), and another each time
//! the stall has become ten times as long: the cause of the first few milliseconds need not be that
//! of the first second.
//!
//! Woken fibers are pushed as from outside the pool, so any free worker runs them. A **started**
//! fiber that is pinned (`BeforeStart`) can only wait: that is the price of pinning.
//!
//! * *All asleep*: it looks for a deadlock, once (`deadlock`).
//!
//! # Rejected
//! * *Idle workers watch the others*: each would need a period, and a worker that went to sleep
//!   before the stall began has none.
//! * *A shared epoll instance*: a lock or a thundering herd on the path of every request, for the
//!   sake of one in a thousand.
//! * *Polling in place of every worker that a scan finds unchanged*: that takes a period of 1 ms at
//!   all times, half a percent of a core.
//!
//! [`RuntimeBuilder::stall_after`]: crate::RuntimeBuilder::stall_after

pub(crate) mod deadlock; // Notices that nothing can run any more, and who waits for what.
mod delay; // How long workers waited for a processor.
mod entry; // A signal that has a worker enter its ring.
mod limits; // How many more threads the system allows.
mod print; // Stalls on standard error, each place once.
mod punctuality; // Whether a scan is late, and what came before it counts for no worker.
pub mod report; // What a report of a stall says.
mod reporter; // The thread that asks a stalled worker, resolves names and calls the program.
mod sample; // A signal that samples where a thread is.
// When to add spare workers, when to let them go, and what starts when there can be no more.
mod spares;
mod thread; // Whether a worker's thread computes, waits in the kernel, or lacks a processor.
// Time slices: a short one for the watchdog, a long one for a stalled worker that computes, which
// then gives way.
pub(crate) mod timeslice;
mod unwind; // Who called, found in a copy of its stack.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crate::io::driver::PollFd;
use crate::policy::WorkerId;
use crate::sched::idle_conn;
use crate::sched::io_call::Descriptor;
use crate::sched::pool::{Beat, PoolShared, RemoteIo};
use crate::sched::worker_io::{IoCx, TIMERS_AT_A_LOOK};
use crate::sys::{self, PollEntry, PollFlags};
use deadlock::Deadlocks;
pub(crate) use deadlock::{OnDeadlock, print_deadlocks};
pub(crate) use print::once_for_each_place;
use punctuality::Punctuality;
use report::NoSpare;
use reporter::{Note, Notes};
pub(crate) use reporter::{OnStall, Reporter, cut_nameless_end, frames};
pub(crate) use sample::{Sample, ask, can_signal, install};
use spares::Stalled;
pub(crate) use spares::{Spares, Start, Starting, Threads};
use thread::Doing;
pub(crate) use unwind::Tables;

/// Interval between two scans while stalls are likely.
const CLOSE: Duration = Duration::from_millis(1);
/// How long they are likely after a stall. A stall that comes later is found later, by 10 ms unless
/// the program says otherwise: half a percent of this time. A scan takes some 20 us of a processor,
/// which is a lot under a quota.
const ALERT: Duration = Duration::from_secs(2);
/// How much time without a processor is discarded before a worker counts as stalled after all: more
/// than a quota's usual period, 100 ms.
const WITHOUT: Duration = Duration::from_millis(150);
/// A stall is reported again when it has lasted this many times longer.
const AGAIN: u32 = 10;
/// Minimum interval between two interrupts of a stalled io_uring worker, which it needs to complete
/// its operations. The interval is 1/500 of the stall so far, between this and [`CLOSE`].
const INTERRUPTION: Duration = Duration::from_micros(100);
/// Scans that find all workers asleep before the watchdog sleeps too.
const QUIET: u32 = 3;
/// Longest interval between two scans where deadlocks are reported: while workers are awake, and
/// once all sleep.
const UNTIL_QUIET: Duration = Duration::from_millis(500);
const WHILE_QUIET: Duration = Duration::from_millis(50);
/// How much of the time to the next scan each worker that is held up takes, where that is more than
/// [`CLOSE`]: a scan takes a twentieth of it.
const EACH: Duration = Duration::from_micros(10);
/// The workers with numbers below are asked for at each scan whether they still wait in the kernel;
/// of the others one in this many.
const ASKED: usize = 32;
/// Memory for a scan and what follows it; without it there is none.
const SCAN: usize = 96 << 10;
/// Connections per call of poll(2); the others follow in later rounds.
const MOST: usize = 2048;

/// What the watchdog last saw of a worker.
#[derive(Clone, Copy, Debug)]
struct Seen {
    beat: Beat,
    asleep: bool,
    since: Instant,
    /// When it was last seen, and how much of a processor it had used by then; unknown if it slept.
    used: Option<(Instant, Duration)>,
    /// Whether it waited in the kernel at the last look.
    waits: bool,
    /// How much time was discarded because it lacked a processor.
    without: Duration,
    /// How long it had waited for a processor by then; known only if stalls are reported.
    delay: Duration,
    /// Length of the stall at the next report.
    tell_after: Duration,
    turn: timeslice::Turn,
}

impl Seen {
    /// Returns what is known of a worker that sleeps, or goes on.
    fn new(beat: Beat, since: Instant, tell_after: Duration) -> Self {
        let without = Duration::ZERO;
        let delay = Duration::ZERO;
        let turn = timeslice::Turn::default();
        Self {
            beat,
            asleep: true,
            since,
            used: None,
            waits: false,
            without,
            delay,
            tell_after,
            turn,
        }
    }

    /// Returns what the thread does of a worker whose counts stand still, and how much of a
    /// processor it has used. One that waited in the kernel, and has not run since, still does;
    /// unless that is `due` it is not even asked.
    fn ask(&mut self, thread: u32, due: bool) -> (Doing, Option<Duration>) {
        let waited = self.used.map(|(_, used)| used).filter(|_| self.waits);
        let (doing, used) = match waited {
            Some(used) if !due || thread::has_not_run(thread, used) => (Doing::Waits, waited),
            _ => thread::doing(thread),
        };

        self.waits = doing == Doing::Waits;
        (doing, used)
    }
}

/// Returns whether this scan asks what a worker's thread does that waited in the kernel, and has
/// not gone on since.
fn is_due(id: WorkerId, scans: usize) -> bool {
    id < ASKED || id % ASKED == scans % ASKED
}

/// Progress of the polls of a worker's idle connections, past its driver.
#[derive(Clone, Copy, Debug)]
struct Round {
    /// The key at which the next poll begins.
    cursor: usize,
    last: Instant,
}

/// Idle connections: their keys and descriptors.
type Connections = Vec<(usize, Arc<Descriptor>)>;

/// What the watchdog waits for while a worker is stalled.
enum Watched {
    /// A driver, and the interval at which to poll it in any case.
    Driver(Arc<PollFd<OwnedFd>>, Duration),
    Connections(Connections),
}

/// The watchdog's thread.
pub(crate) struct Watchdog {
    pool: Arc<PoolShared>,
    stall_after: Duration,
    seen: Vec<Seen>,
    rounds: Vec<Round>,
    alert_until: Instant,
    punctuality: Punctuality,
    /// How many there were.
    scans: usize,
    /// The queue of stalls to report, if the program wants reports.
    notes: Option<Notes>,
    /// Notes of the last scan, which lack what the spare workers' adjustment finds.
    drafts: Vec<Note>,
    spares: Spares,
    deadlocks: Deadlocks,
}

impl Watchdog {
    pub(crate) fn new(
        pool: Arc<PoolShared>,
        stall_after: Duration,
        notes: Option<Notes>,
        on_deadlock: Option<OnDeadlock>,
        spares: Spares,
    ) -> Self {
        let now = Instant::now();
        let rounds = vec![
            Round {
                cursor: 0,
                last: now
            };
            pool.workers.first().len()
        ];
        if on_deadlock.is_some() {
            pool.circles.want();
        }
        let seen = Vec::new();
        let drafts = Vec::new();
        let deadlocks = Deadlocks::new(on_deadlock);
        let punctuality = Punctuality::from(now);
        let alert_until = now;
        let scans = 0;

        Self {
            pool,
            stall_after,
            seen,
            rounds,
            alert_until,
            punctuality,
            scans,
            notes,
            drafts,
            spares,
            deadlocks,
        }
    }

    /// Runs on its own thread until the pool stops. Returns the threads of spare workers.
    pub(crate) fn run(mut self) -> Threads {
        timeslice::shorten();
        self.pool.watchdog_bell.attach();
        let mut quiet = 0;

        while !self.pool.is_stopping() {
            if !sys::has_memory(SCAN) {
                std::thread::park_timeout(CLOSE);
                continue;
            }

            if self.pool.circles.are_suspected() {
                self.deadlocks.look_for_circle(&self.pool);
            }
            let stalled = self.scan();
            if !stalled.is_empty() {
                let next = Instant::now() + EACH * u32::try_from(stalled.len()).unwrap_or(u32::MAX);
                let others = stalled.len() < self.pool.taking_part();
                let watched = self.take_over(&stalled, others);
                let no_spare = self.spares.adjust(&self.pool, &stalled);
                self.leave_notes(no_spare);
                self.wait(&watched);

                // Where many are held up, some without a driver, to scan them takes longer than to
                // serve the others.
                while stalled.len() > ASKED && Instant::now() < next && !self.pool.is_stopping() {
                    let watched = self.take_over(&stalled, others);
                    self.wait(&watched);
                }

                continue;
            }

            let _ = self.spares.adjust(&self.pool, &stalled);
            quiet = if self.is_quiet() { quiet + 1 } else { 0 };
            if quiet >= QUIET {
                let pool = self.pool.clone();
                let again = self.deadlocks.look_if_due(&pool);
                let sleeps =
                    || self.is_quiet() && !pool.is_stopping() && !pool.circles.are_suspected();

                match again {
                    Some(time) => pool.watchdog_bell.sleep_until(time, sleeps),
                    // A caller that begins to wait for fibers that are stuck already gives a reason
                    // to look.
                    None => pool
                        .watchdog_bell
                        .sleep(|| sleeps() && !self.deadlocks.has_reason(&pool)),
                }

                if again.is_some() && self.is_quiet() {
                    continue; // Its time has come.
                }
                quiet = 0;
                continue;
            }

            let pause = self.pause(quiet > 0);
            self.punctuality.expect(Instant::now() + pause);
            std::thread::park_timeout(pause);
        }

        self.spares.into_threads()
    }

    /// Returns how long to wait until the next scan.
    fn pause(&self, is_quiet: bool) -> Duration {
        let most = if is_quiet { WHILE_QUIET } else { UNTIL_QUIET };
        let period = if self.punctuality.was_late() {
            CLOSE
        } else {
            self.period(Instant::now())
        };

        if self.deadlocks.are_reported() {
            period.min(most)
        } else {
            period
        }
    }

    fn period(&self, now: Instant) -> Duration {
        let close = now < self.alert_until || !Spares::are_settled(&self.pool);
        if close {
            CLOSE.min(self.stall_after)
        } else {
            self.stall_after
        }
    }

    /// Returns whether all workers are asleep, and none is to be added or let go.
    fn is_quiet(&self) -> bool {
        (0..self.pool.workers.made()).all(|id| self.pool.is_asleep(id))
            && Spares::are_settled(&self.pool)
    }

    /// Scans the workers and returns those that are held up.
    fn scan(&mut self) -> Vec<Stalled> {
        let now = Instant::now();
        let period = self.period(now);
        let lost = self.punctuality.lost(now);
        let mut stalled = Vec::new();
        self.scans = self.scans.wrapping_add(1);
        let stall_after = self.stall_after;
        let new = self.seen.len()..self.pool.workers.made();
        self.seen
            .extend(new.map(|id| Seen::new(self.pool.workers[id].beat(), now, stall_after)));

        for (id, (worker, seen)) in self.pool.workers.iter().zip(&mut self.seen).enumerate() {
            seen.since += lost;
            let beat = worker.beat();
            let asleep = self.pool.is_asleep(id);
            let stands_still = !asleep && beat == seen.beat;

            let mut held = now - seen.since;
            if stands_still && held >= period {
                let (doing, used) = seen.ask(worker.thread(), is_due(id, self.scans));
                if doing == Doing::LacksProcessor && seen.without < WITHOUT {
                    let without = match seen.used.zip(used) {
                        Some(((then, before), used)) => {
                            (now - then).saturating_sub(used.saturating_sub(before))
                        }
                        // It slept at the last scan, since when all of this time has passed.
                        None => held,
                    };

                    seen.since += without.min(held);
                    seen.without += without;
                    held = now - seen.since;
                }

                seen.used = used.map(|used| (now, used));
                if held >= period {
                    // If it slept then, it may have been held up for most of the time since.
                    stalled.push(Stalled {
                        id,
                        long: held >= self.stall_after,
                        in_kernel: doing == Doing::Waits,
                    });
                    worker
                        .held_since
                        .store(self.pool.nanos(seen.since), Ordering::Relaxed);
                }
            }

            if !stands_still || seen.asleep {
                worker.held_since.store(0, Ordering::Relaxed);
                let notes = self.notes.as_ref().filter(|_| !asleep);
                let delay = notes.map_or(Duration::ZERO, |notes| notes.delay(id));

                // Its thread exists as long as its `RemoteIo` is there.
                if !stands_still
                    && let Some(usual) = seen.turn.end()
                    && let Some(_open) = worker.remote_io().as_ref()
                {
                    timeslice::restore(worker.thread(), usual);
                }
                let tell_after = self.stall_after;
                let turn = seen.turn;

                // A system call each: not for those that sleep, and most spare workers have no
                // thread at all.
                let used = if asleep {
                    None
                } else {
                    thread::processor_time(worker.thread())
                };

                let used = used.map(|used| (now, used));
                *seen = Seen {
                    asleep,
                    used,
                    delay,
                    turn,
                    ..Seen::new(beat, now, tell_after)
                };
                continue;
            }

            if held >= self.stall_after {
                self.alert_until = now + ALERT;
            }
            if held >= seen.tell_after {
                if seen.tell_after == self.stall_after {
                    self.pool.counts.stalls.fetch_add(1, Ordering::Relaxed);
                }
                if self.notes.is_some() {
                    let since = seen.since;
                    let delay = seen.delay;
                    self.drafts.push(Note {
                        worker: id,
                        beat,
                        since,
                        delay,
                        no_spare: None,
                    });
                }
                seen.tell_after = seen.tell_after.saturating_mul(AGAIN);
            }
        }

        stalled
    }

    /// Leaves the last scan's notes for the reporter.
    fn leave_notes(&mut self, no_spare: Option<NoSpare>) {
        let drafts = self
            .drafts
            .drain(..)
            .map(|draft| Note { no_spare, ..draft });
        if let Some(notes) = &self.notes {
            drafts.for_each(|note| notes.leave(note));
        }
    }

    /// Does the I/O of stalled workers. Returns what to wait for until the next time.
    fn take_over(&mut self, stalled: &[Stalled], others: bool) -> Vec<Watched> {
        let mut watched = Vec::new();
        stalled
            .iter()
            .for_each(|worker| self.take_over_io(worker, others, &mut watched));
        watched
    }

    /// Does a stalled worker's I/O, and adds what to wait for until the next time. `others`: some
    /// worker is free to run what becomes ready.
    fn take_over_io(&mut self, stalled: &Stalled, others: bool, watched: &mut Vec<Watched>) {
        let id = stalled.id;
        if self.pool.workers.most() == 1 {
            return;
        }
        if !self.pool.numbers.has_driver(id) {
            if !stalled.in_kernel {
                self.seen[id]
                    .turn
                    .stalled(self.pool.workers[id].thread(), Instant::now());
            }
            return;
        }

        let pool = self.pool.clone();
        let remote_io = pool.workers[id].remote_io();
        let Some(remote_io) = remote_io.as_ref() else {
            return;
        };
        self.seen[id]
            .turn
            .stalled(pool.workers[id].thread(), Instant::now());

        // If the lock is taken, events stay at the driver until the next time.
        let Some(io) = remote_io.worker_io().try_lock_remote() else {
            return;
        };
        let cx = IoCx {
            io: &io,
            pool: &pool,
            id,
            here: None,
        };

        let now = Instant::now();
        if let Some(driver) = remote_io.watched() {
            let mut answers = true;
            cx.look(pool.nanos(now), |ring| {
                answers = entry::enter(pool.workers[id].thread(), ring);
            });
            let often = (self.seen[id].since.elapsed() / 500).clamp(INTERRUPTION, CLOSE);
            let hidden = driver.interrupts && others && io.driver.borrow().in_flight() > 0;

            // A ring that has something for a worker that does not answer is readable all the time.
            if answers {
                watched.push(Watched::Driver(
                    driver.clone(),
                    if hidden { often } else { CLOSE },
                ));
            }
        } else {
            cx.expire(pool.nanos(now), TIMERS_AT_A_LOOK);
        }

        cx.empty_inbox();
        if remote_io
            .watched()
            .is_some_and(|driver| !driver.interrupts || now - self.rounds[id].last < CLOSE)
        {
            return;
        }
        let some = io.idle_conns.borrow().sources(self.rounds[id].cursor, MOST);
        drop(io);
        self.rounds[id].last = now;

        watched.push(Watched::Connections(
            self.look_at_connections(remote_io, id, some),
        ));
    }

    /// Takes away the readable ones of these connections and returns the others.
    fn look_at_connections(
        &mut self,
        remote_io: &RemoteIo,
        id: WorkerId,
        some: Connections,
    ) -> Connections {
        // Fewer than `MOST` means that these were the last; otherwise there may be more.
        self.rounds[id].cursor = if some.len() < MOST {
            0
        } else {
            some.last().map_or(0, |(key, _)| key + 1)
        };
        let ready = readable(some.iter().map(|(_, source)| &**source), Duration::ZERO);
        if ready.contains(&true)
            && let Some(io) = remote_io.worker_io().try_lock_remote()
        {
            let cx = IoCx {
                io: &io,
                pool: &self.pool,
                id,
                here: None,
            };

            let taken = some.iter().zip(&ready).filter(|(_, ready)| **ready);
            taken.for_each(|((key, source), _)| idle_conn::take(cx, *key, source));
        }

        some.into_iter()
            .zip(ready)
            .filter(|(_, ready)| !ready)
            .map(|(waiting, _)| waiting)
            .collect()
    }

    /// Waits until there is something to do for a stalled worker, at most for one period.
    fn wait(&mut self, watched: &[Watched]) {
        let limits = watched.iter().map(|watched| match watched {
            Watched::Driver(_, limit) => *limit,
            Watched::Connections(_) => CLOSE,
        });

        let limit = limits.min().unwrap_or(CLOSE);
        self.punctuality.expect(Instant::now() + limit);
        let descriptors = watched.iter().flat_map(|watched| match watched {
            Watched::Driver(watch, _) => vec![watch.fd.as_fd()],
            Watched::Connections(some) => some.iter().map(|(_, source)| source.as_fd()).collect(),
        });

        let _ = readable(descriptors, limit);
    }
}

/// Returns which descriptors are readable, or become so within `limit`.
fn readable<F: AsFd>(descriptors: impl Iterator<Item = F>, limit: Duration) -> Vec<bool> {
    let descriptors: Vec<F> = descriptors.collect();
    let mut entries: Vec<_> = descriptors
        .iter()
        .map(|fd| PollEntry::new(fd, PollFlags::IN))
        .collect();
    if sys::poll_all(&mut entries, Some(limit)).is_err() {
        // A signal, or no memory: nothing was polled, but the time still has to pass.
        std::thread::park_timeout(limit);
    }

    entries
        .iter()
        .map(|entry| !entry.revents().is_empty())
        .collect()
}
