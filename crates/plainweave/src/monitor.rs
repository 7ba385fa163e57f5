//! The monitor: a thread that notices a worker held up in a fiber, and does for the others what that worker cannot
//! (DESIGN D10, D13).
//!
//! A fiber that computes for 50 ms holds up more than its own queue, which others can steal from. Only its worker hears
//! from the kernel that a connection has become readable, so whoever waits there waits on, however idle the other
//! workers are. The monitor listens in its place.
//!
//! # How a stall is seen
//! Every worker counts switches (at its regular looks at the driver, some 0.2 ms apart at most) and sleeps. A worker
//! that is awake and whose counts are those of the last look, one [`RuntimeBuilder::stall_after`] ago, is stalled; on
//! the hot path this costs nothing. Such things come in swarms: for [`ALERT`] after a stall the monitor looks every
//! [`CLOSE`]. While all workers sleep so does the monitor, without a time-out; the first to wake calls it
//! ([`Bell::notice`]).
//!
//! # What is done about it
//! With the worker's claim (`worker/claim`), which it has to itself while the worker is in user code:
//! * *epoll*: the driver is polled, and its timers expire, as the worker would do it (`worker/reach`). Until the worker
//!   is back the monitor waits on the epoll instance itself, so a request is late by a wake-up, not by a period.
//! * *io_uring*: nobody but the worker can fetch its completions. Parked connections wait by readiness, which poll(2)
//!   tells as well: those that are readable are taken away (`io/parked`). Operations of fibers stay.
//! * *The inbox*: fibers that may move go to others.
//!
//! What comes of it is pushed as from outside the pool, so any free worker runs it. A **started** fiber that is
//! anchored (`BeforeStart`) can only wait: that is the price of its anchor.
//!
//! # Rejected
//! * *Idle workers look after others*: each would need a period, and there is none for a worker that went to sleep
//!   before the stall began.
//! * *A shared epoll instance*: a lock or a thundering herd on the way of every request, for the sake of one in a
//!   thousand.
//! * *A poll as soon as the look differs*: a period of 1 ms at all times would be half a percent of a core.
//!
//! [`RuntimeBuilder::stall_after`]: crate::RuntimeBuilder::stall_after

use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::Thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::fiber::Movement;
use crate::io::parked;
use crate::io::source::Source;
use crate::policy::{Ready, WorkerId};
use crate::pool::{self, Door, PoolShared};
use crate::worker::reach::At;

/// Between two looks while stalls are to be expected.
const CLOSE: Duration = Duration::from_millis(1);
/// How long they are to be expected after one.
const ALERT: Duration = Duration::from_secs(1);
/// Looks at which all workers sleep before the monitor sleeps too.
const QUIET: u32 = 3;
/// Connections that one look asks poll(2) about; more take their turns.
const MOST: usize = 2048;

/// How workers call the monitor.
#[derive(Debug, Default)]
pub(crate) struct Bell {
    asleep: AtomicBool,
    monitor: OnceLock<Thread>,
}

impl Bell {
    /// A worker that has slept, or has been about to: its bit in `park` is clear again.
    #[inline]
    pub(crate) fn notice(&self) {
        if self.asleep.load(Ordering::SeqCst) {
            self.ring();
        }
    }

    /// Any thread.
    #[cold]
    pub(crate) fn ring(&self) {
        if self.asleep.swap(false, Ordering::SeqCst)
            && let Some(thread) = self.monitor.get()
        {
            thread.unpark();
        }
    }
}

/// What the monitor last saw of a worker.
#[derive(Clone, Copy, Debug)]
struct Seen {
    beat: (u64, u64),
    since: Instant,
    counted: bool,
}

/// What is waited for while a worker is stalled.
enum Watched {
    Driver(OwnedFd),
    Connections(Vec<(usize, Arc<Source>)>),
}

/// The monitor's thread.
pub(crate) struct Monitor {
    pool: Arc<PoolShared>,
    stall_after: Duration,
    seen: Vec<Seen>,
    /// Where the next look at a worker's parked connections begins.
    cursors: Vec<usize>,
    alert_until: Instant,
}

impl Monitor {
    pub(crate) fn new(pool: Arc<PoolShared>, stall_after: Duration) -> Self {
        let now = Instant::now();
        let seen = vec![Seen { beat: (0, 0), since: now, counted: false }; pool.workers.len()];
        let cursors = vec![0; pool.workers.len()];
        Self { pool, stall_after, seen, cursors, alert_until: now }
    }

    /// On its own thread, until the pool stops.
    pub(crate) fn run(mut self) {
        let _ = self.pool.monitor.monitor.set(std::thread::current());
        let mut quiet = 0;
        while !self.pool.is_stopping() {
            let stalled = self.look();
            if !stalled.is_empty() {
                let watched: Vec<_> = stalled.into_iter().filter_map(|id| self.stand_in(id)).collect();
                self.wait(&watched);
                continue;
            }
            quiet = if self.all_asleep() { quiet + 1 } else { 0 };
            if quiet >= QUIET {
                self.sleep();
                quiet = 0;
            }
            std::thread::park_timeout(self.period());
        }
    }

    fn period(&self) -> Duration {
        if Instant::now() < self.alert_until { CLOSE.min(self.stall_after) } else { self.stall_after }
    }

    fn all_asleep(&self) -> bool {
        self.pool.idle.sleepers() == self.pool.workers.len()
    }

    /// Until a worker wakes.
    fn sleep(&self) {
        let bell = &self.pool.monitor;
        bell.asleep.store(true, Ordering::SeqCst);
        // Whoever woke before the store is seen here; who wakes after it sees the store.
        while self.all_asleep() && bell.asleep.load(Ordering::SeqCst) && !self.pool.is_stopping() {
            std::thread::park();
        }
        bell.asleep.store(false, Ordering::SeqCst);
    }

    /// The workers that are held up.
    fn look(&mut self) -> Vec<WorkerId> {
        let now = Instant::now();
        let mut stalled = Vec::new();
        for (id, (worker, seen)) in self.pool.workers.iter().zip(&mut self.seen).enumerate() {
            let beat = (worker.switches.load(Ordering::Relaxed), worker.sleeps.load(Ordering::Relaxed));
            if beat != seen.beat || self.pool.idle.is_asleep(id) {
                *seen = Seen { beat, since: now, counted: false };
                continue;
            }
            stalled.push(id);
            if now - seen.since >= self.stall_after {
                self.alert_until = now + ALERT;
                if !std::mem::replace(&mut seen.counted, true) {
                    self.pool.counts.stalls.fetch_add(1, Ordering::Relaxed);
                }
            }
        }
        stalled
    }

    /// Does what a worker would do at its driver. What to wait for until the next time.
    fn stand_in(&mut self, id: WorkerId) -> Option<Watched> {
        let pool = self.pool.clone();
        let door = pool.workers[id].door();
        let door = door.as_ref()?;
        if let Some(driver) = door.watched() {
            if let Some(io) = door.reach().try_claim() {
                let at = At { io: &io, pool: &pool, id, here: None };
                at.look(pool.nanos(Instant::now()));
                empty_inbox(at);
            }
            // No descriptors left: it will be looked at as often as the clock says.
            return driver.try_clone().ok().map(Watched::Driver);
        }
        Some(Watched::Connections(self.look_at_connections(door, id)))
    }

    /// Takes the connections that are readable; gives some that are not.
    fn look_at_connections(&mut self, door: &Door, id: WorkerId) -> Vec<(usize, Arc<Source>)> {
        let Some(some) = door.reach().try_claim().map(|io| {
            empty_inbox(At { io: &io, pool: &self.pool, id, here: None });
            io.parked.borrow().sources(self.cursors[id], MOST)
        }) else {
            return Vec::new();
        };
        // The last of them was the last of all, or there are more.
        self.cursors[id] = if some.len() < MOST { 0 } else { some.last().map_or(0, |(key, _)| key + 1) };
        let ready = readable(some.iter().map(|(_, source)| &**source), Duration::ZERO);
        if ready.contains(&true)
            && let Some(io) = door.reach().try_claim()
        {
            let at = At { io: &io, pool: &self.pool, id, here: None };
            let taken = some.iter().zip(&ready).filter(|(_, ready)| **ready);
            taken.for_each(|((key, source), _)| parked::take(at, *key, source));
        }
        some.into_iter().zip(ready).filter(|(_, ready)| !ready).map(|(waiting, _)| waiting).collect()
    }

    /// Until there is something to do for a stalled worker, at most for one period.
    fn wait(&self, watched: &[Watched]) {
        let descriptors = watched.iter().flat_map(|watched| match watched {
            Watched::Driver(fd) => vec![fd.as_fd()],
            Watched::Connections(some) => some.iter().map(|(_, source)| source.as_fd()).collect(),
        });
        let _ = readable(descriptors, CLOSE);
    }
}

/// Fibers that may move and have been woken by others go to another worker; messages about those that stay are put
/// back.
fn empty_inbox(at: At) {
    let inbox = at.pool.workers[at.id].inbox();
    if at.pool.movement != Movement::Anytime || inbox.is_empty() {
        return;
    }
    for task in inbox.take_all() {
        at.release(task.header());
        pool::make_ready(task, Ready::Woken, None);
    }
}

/// Which of them are readable, or become so within `limit`.
fn readable<F: AsFd>(descriptors: impl Iterator<Item = F>, limit: Duration) -> Vec<bool> {
    let descriptors: Vec<F> = descriptors.collect();
    let mut entries: Vec<_> = descriptors.iter().map(|fd| PollFd::new(fd, PollFlags::IN)).collect();
    let limit = Timespec { tv_sec: 0, tv_nsec: limit.subsec_nanos().into() };
    // A failure (a signal, no memory) is a look in vain.
    let _ = poll(&mut entries, Some(&limit));
    entries.iter().map(|entry| !entry.revents().is_empty()).collect()
}
