//! Metrics of a running runtime.

mod prometheus; // The figures in Prometheus' text format.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::fiber_local;
use crate::policy::Counts;
use crate::sched::pool::{self, PoolShared, WorkerShared};

/// Metrics of a runtime, read while it runs: each is exact, but they are not a snapshot of one
/// moment.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Metrics {
    /// Fibers spawned and not ended.
    pub live_fibers: u64,
    /// Idle connections that wait without a fiber. A connection that is being passed to a fiber is
    /// counted until that is done, which may be after the fiber's end on another worker.
    pub idle_connections: u64,
    /// Fibers that have ended.
    pub finished_fibers: u64,
    /// Switches to fibers, within 64 a worker: exact for workers that sleep.
    pub switches: u64,
    /// Times a worker went to sleep.
    pub sleeps: u64,
    /// Further attempts to insert fibers into a worker's full structure, by policies that make any;
    /// within 64 switches a worker.
    pub insert_retries: u64,
    /// Inserts that were to spin until there was room (`full=spin`), and ended without; within 64
    /// switches a worker.
    pub insert_overflows: u64,
    /// Workers asleep now; all that they have counted is in the other figures.
    pub sleeping_workers: usize,
    /// Stacks in use.
    pub stacks_in_use: usize,
    /// The deepest stack use seen, in bytes, rounded up to pages. A stack is measured when it goes
    /// back to the shared pool; each worker keeps the stacks of its last few dozen fibers, so it is
    /// `None` at first.
    pub stack_high_water: Option<usize>,
    /// Fibers that found no stack to start on. Their joins give the error; one that is detached
    /// leaves this.
    pub refused_fibers: u64,
    /// Threads that run [`blocking`](crate::blocking()) calls, or look names up.
    pub blocking_threads: usize,
    /// Calls that wait for one of these threads.
    pub blocking_queue: usize,
    /// Times a worker was found held up in a fiber for longer than `RuntimeBuilder::stall_after`.
    pub stalls: u64,
    /// Fibers and idle connections that waited on a stalled worker and were given to another.
    pub rescued: u64,
    /// Spare workers that run fibers now, because other workers are held up
    /// (`RuntimeBuilder::max_workers`).
    pub spare_workers: usize,
    /// Blocks of thread-local storage for fibers that have their own, in the whole process,
    /// including free ones.
    pub storage_blocks: usize,
    /// The same by worker: first the regular ones, in order, then the spare ones that have started.
    pub workers: Vec<WorkerMetrics>,
}

/// Metrics of a worker since it started. A worker counts in words of its own and publishes them
/// once in 64 switches and before it sleeps; a worker that a fiber holds up publishes nothing.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct WorkerMetrics {
    /// Its number: what [`worker_index`](crate::worker_index) returns there.
    pub worker: usize,
    /// Whether it is a spare worker.
    pub spare: bool,
    /// Times that it ran a fiber.
    pub switches: u64,
    /// Fibers spawned by fibers that it ran.
    pub spawned_fibers: u64,
    /// Fibers that have ended there.
    pub finished_fibers: u64,
    /// Times that it went to sleep.
    pub sleeps: u64,
    /// How long it has slept, the present sleep included. (On the simulated driver that is known
    /// only of workers that are awake, and `None` of others.)
    pub idle: Option<Duration>,
    /// Wake-ups and fibers that other threads sent it.
    pub inbox_messages: u64,
    /// What its policy has counted there: steals, spills, retries, the longest wait of a ready
    /// fiber.
    pub policy: Counts,
}

impl WorkerMetrics {
    /// Returns how many fibers a steal brought on average; `None` before the first steal.
    #[must_use]
    pub fn fibers_per_steal(&self) -> Option<f64> {
        (self.policy.steals > 0).then(|| self.policy.stolen as f64 / self.policy.steals as f64)
    }

    fn of(pool: &PoolShared, worker: usize) -> Self {
        let shared = &pool.workers[worker];
        let read = |word: &AtomicU64| word.load(Ordering::Relaxed);
        let now = (!pool.virtual_time).then(|| pool.nanos(Instant::now()));
        Self {
            worker,
            spare: worker >= pool.regular(),
            switches: read(&shared.switches),
            spawned_fibers: read(&shared.spawned),
            finished_fibers: read(&shared.finished),
            sleeps: read(&shared.sleeps),
            idle: shared.counts.idle.read(now),
            inbox_messages: shared.counts.messages(),
            policy: shared.counts.policy(),
        }
    }
}

impl Metrics {
    /// Reads the workers' counters.
    pub(crate) fn of(pool: &PoolShared) -> Metrics {
        let sum = |f: fn(&WorkerShared) -> &AtomicU64| -> u64 {
            pool.workers
                .iter()
                .map(|w| f(w).load(Ordering::Relaxed))
                .sum()
        };

        let stacks = pool.stack_use();
        let has_started =
            |worker: &usize| *worker < pool.regular() || pool.workers[*worker].has_started();
        let workers = (0..pool.workers.made())
            .filter(has_started)
            .map(|worker| WorkerMetrics::of(pool, worker));
        let workers: Vec<_> = workers.collect();
        let inserts = |f: fn(&Counts) -> u64| workers.iter().map(|worker| f(&worker.policy)).sum();

        Metrics {
            live_fibers: pool.live(),
            idle_connections: sum(|w| &w.idle_conns).saturating_sub(sum(|w| &w.idle_listeners)),
            finished_fibers: sum(|w| &w.finished),
            switches: sum(|w| &w.switches),
            sleeps: sum(|w| &w.sleeps),
            insert_retries: inserts(|counts| counts.insert_retries),
            insert_overflows: inserts(|counts| counts.insert_overflows),
            sleeping_workers: pool.sleepers.count(),
            stacks_in_use: stacks.in_use,
            stack_high_water: (stacks.high_water > 0).then_some(stacks.high_water),
            refused_fibers: pool.counts.refused.load(Ordering::Relaxed),
            blocking_threads: pool.blocking.threads(),
            blocking_queue: pool.blocking.waiting(),
            stalls: pool.counts.stalls.load(Ordering::Relaxed),
            rescued: pool.counts.rescued.load(Ordering::Relaxed),
            spare_workers: pool
                .workers
                .iter()
                .skip(pool.regular())
                .filter(|w| w.role.takes_part())
                .count(),
            storage_blocks: fiber_local::blocks(),
            workers,
        }
    }
}

/// Returns the metrics of the runtime that the calling fiber runs on; `None` on a plain thread.
///
/// ```
/// plainweave::run(|| {
///     let metrics = plainweave::metrics().expect("on a fiber");
///     assert!(!metrics.workers.is_empty());
/// });
/// assert!(plainweave::metrics().is_none());
/// ```
#[must_use]
pub fn metrics() -> Option<Metrics> {
    pool::try_current_pool().map(|pool| Metrics::of(&pool))
}
