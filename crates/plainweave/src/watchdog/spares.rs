//! When the watchdog adds a spare worker (`sched/spare`), and when it lets one rest.
//!
//! It adds one if a spare worker would find a fiber that is ready, no worker is asleep (that one has been woken for
//! it), and
//! * a worker is held up **in the kernel**, so that fewer than the regular number of workers have use for a processor:
//!   at the first scan that finds it, or
//! * **every** worker is held up, and those that compute have been for `stall_after`: one that computes has its
//!   processor, and a spare worker takes time from it.
//!
//! It also adds those that the program asks for (`Runtime::add_workers`), and counts them with the regular ones.
//!
//! One a scan, which is one a millisecond while stalls are likely. At the limit (`RuntimeBuilder::max_workers`), or
//! without memory for a thread, fibers wait as they would without spare workers, and the watchdog goes on trying. If
//! all workers are held up then, the report of a stall says so ([`NoSpare`]).
//!
//! A spare worker is let go when more workers than the regular number are free and none was added for [`KEPT`].

use std::io;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::report::NoSpare;
use crate::fiber::Movement;
use crate::policy::WorkerId;
use crate::sched::pool::PoolShared;
use crate::sched::spare::Role;

/// How long spare workers stay after one was added: code that blocks once mostly blocks again.
const KEPT: Duration = Duration::from_millis(100);
/// How long the watchdog waits after a thread could not start.
const RETRY: Duration = Duration::from_secs(1);

/// Starts the thread of the spare worker with this number.
pub(crate) type Start = Box<dyn Fn(WorkerId) -> io::Result<JoinHandle<usize>> + Send>;

/// A worker that is held up, as a scan finds it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stalled {
    pub(super) id: WorkerId,
    /// For `stall_after` or longer.
    pub(super) long: bool,
    /// It waits in the kernel.
    pub(super) in_kernel: bool,
}

/// The watchdog's view of the spare workers.
pub(super) struct Spares {
    start: Start,
    /// Threads that it has started.
    threads: Vec<JoinHandle<usize>>,
    last_added: Instant,
    retry_at: Instant,
    /// Why the last one could not start.
    refused: io::ErrorKind,
}

impl Spares {
    pub(super) fn new(start: Start) -> Self {
        let now = Instant::now();
        Self { start, threads: Vec::new(), last_added: now, retry_at: now, refused: io::ErrorKind::Other }
    }

    pub(super) fn into_threads(self) -> Vec<JoinHandle<usize>> {
        self.threads
    }

    /// Adds a spare worker or lets one go, if there is cause; `stalled` are the workers that are held up. If all have
    /// been for long and something is ready, but there is no spare worker for it, returns why.
    pub(super) fn adjust(&mut self, pool: &PoolShared, stalled: &[Stalled]) -> Option<NoSpare> {
        let spares = pool.regular()..pool.workers.len();
        if spares.is_empty() {
            let all_held_up = stalled.len() == pool.workers.len() && stalled.iter().all(|worker| worker.long);
            let would_help = pool.movement == Movement::Anytime && all_held_up && pool.outside.maybe_ready_spare();
            return would_help.then_some(NoSpare::AtTheLimit { workers: pool.workers.len() });
        }
        let wanted = wanted(pool);
        let takes_part = |id: &WorkerId| pool.workers[*id].role.takes_part();
        let workers = || (0..pool.workers.len()).filter(takes_part);
        let held_up = |id: WorkerId| stalled.iter().any(|worker| worker.id == id);
        let blocked: Vec<_> = stalled.iter().filter(|worker| takes_part(&worker.id)).collect();
        let free = workers().filter(|id| !held_up(*id)).count();
        let computing = blocked.iter().filter(|worker| !worker.in_kernel).count();
        let all_held_up = free == 0 && blocked.iter().all(|worker| worker.long || worker.in_kernel);
        let asleep = || workers().any(|id| pool.is_asleep(id));
        let is_missed = || !asleep() && pool.outside.maybe_ready_spare();
        let asked_for = workers().count() < wanted;
        let too_few = free + computing < wanted || all_held_up;
        if asked_for || (too_few && is_missed()) {
            let why_not = self.add(pool);
            return why_not.filter(|_| free == 0 && blocked.iter().all(|worker| worker.long) && is_missed());
        }
        if !too_few && free > wanted && self.last_added.elapsed() > KEPT {
            let active = |id: &WorkerId| pool.workers[*id].role.get() == Role::Active && !held_up(*id);
            if let Some(id) = spares.rev().find(active)
                && pool.workers[id].role.change(Role::Active, Role::Released)
            {
                pool.workers[id].signal();
            }
        }
        None
    }

    /// Returns whether as many workers take part as are wanted when none is held up.
    pub(super) fn are_settled(pool: &PoolShared) -> bool {
        pool.workers.iter().filter(|worker| worker.role.takes_part()).count() == wanted(pool)
    }

    /// Wakes a spare worker that rests, or else starts one. Returns why it can do neither.
    fn add(&mut self, pool: &PoolShared) -> Option<NoSpare> {
        let roles = || (pool.regular()..pool.workers.len()).map(|id| (id, &pool.workers[id].role));
        if roles().any(|(_, role)| role.get() == Role::Starting) {
            return None;
        }
        self.last_added = Instant::now();
        if let Some((_, role)) = roles().find(|(_, role)| role.get() == Role::Released)
            && role.change(Role::Released, Role::Active)
        {
            return None;
        }
        if let Some((id, role)) = roles().find(|(_, role)| role.get() == Role::Resting) {
            role.change(Role::Resting, Role::Active);
            pool.workers[id].signal();
            return None;
        }
        let Some((id, role)) = roles().find(|(_, role)| role.get() == Role::Absent) else {
            return Some(NoSpare::AtTheLimit { workers: pool.workers.len() });
        };
        if self.last_added >= self.retry_at {
            role.change(Role::Absent, Role::Starting);
            match (self.start)(id) {
                Ok(thread) => {
                    self.threads.push(thread);
                    return None;
                }
                Err(error) => {
                    role.change(Role::Starting, Role::Absent);
                    self.retry_at = self.last_added + RETRY;
                    self.refused = error.kind();
                }
            }
        }
        let workers = pool.workers.iter().filter(|worker| worker.role.takes_part()).count();
        Some(NoSpare::Refused { workers, error: self.refused })
    }
}

/// Returns how many workers are to take part when none is held up.
fn wanted(pool: &PoolShared) -> usize {
    pool.regular() + pool.added.load(Ordering::Relaxed)
}
