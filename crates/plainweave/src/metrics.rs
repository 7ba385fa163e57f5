//! Metrics of a running runtime.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::fiber_local;
use crate::sched::pool::{self, PoolShared, WorkerShared};

/// Metrics of a runtime, read while it runs: each is exact, but they are not a snapshot of one moment.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Metrics {
    /// Fibers spawned and not ended.
    pub live_fibers: u64,
    /// Idle connections that wait without a fiber. A connection that is being passed to a fiber is counted until that
    /// is done, which may be after the fiber's end on another worker.
    pub idle_connections: u64,
    /// Fibers that have ended.
    pub finished_fibers: u64,
    /// Switches to fibers, within 64 a worker: exact for workers that sleep.
    pub switches: u64,
    /// Times a worker went to sleep.
    pub sleeps: u64,
    /// Further attempts to insert fibers into a worker's full structure, by policies that make any; as of each worker's
    /// last look at its driver.
    pub insert_retries: u64,
    /// Inserts that were to spin until there was room (`full=spin`), and ended without; at the same time.
    pub insert_overflows: u64,
    /// Workers asleep now.
    pub sleeping_workers: usize,
    /// Stacks in use.
    pub stacks_in_use: usize,
    /// The deepest stack use seen, in bytes, rounded up to pages. A stack is measured when it goes back to the shared
    /// pool; each worker keeps the stacks of its last few dozen fibers, so this is 0 at first.
    pub stack_high_water: usize,
    /// Times a worker was found held up in a fiber for longer than `RuntimeBuilder::stall_after`.
    pub stalls: u64,
    /// Fibers and idle connections that waited on a stalled worker and were given to another.
    pub rescued: u64,
    /// Spare workers that run fibers now, because other workers are held up (`RuntimeBuilder::max_workers`).
    pub spare_workers: usize,
    /// Blocks of thread-local storage for fibers that have their own, in the whole process, including free ones.
    pub storage_blocks: usize,
}

impl Metrics {
    /// Reads the workers' counters.
    pub(crate) fn of(pool: &PoolShared) -> Metrics {
        let sum = |f: fn(&WorkerShared) -> &AtomicU64| -> u64 {
            pool.workers.iter().map(|w| f(w).load(Ordering::Relaxed)).sum()
        };
        let (stacks_in_use, stack_high_water) = pool.stack_figures();
        Metrics {
            live_fibers: pool.live(),
            idle_connections: sum(|w| &w.idle_conns),
            finished_fibers: sum(|w| &w.finished),
            switches: sum(|w| &w.switches),
            sleeps: sum(|w| &w.sleeps),
            insert_retries: sum(|w| &w.insert_retries),
            insert_overflows: sum(|w| &w.insert_overflows),
            sleeping_workers: pool.sleepers.count(),
            stacks_in_use,
            stack_high_water,
            stalls: pool.counts.stalls.load(Ordering::Relaxed),
            rescued: pool.counts.rescued.load(Ordering::Relaxed),
            spare_workers: pool.workers[pool.regular()..].iter().filter(|w| w.role.takes_part()).count(),
            storage_blocks: fiber_local::blocks(),
        }
    }
}

/// Returns the metrics of the runtime that the calling fiber runs on; `None` on a plain thread.
#[must_use]
pub fn metrics() -> Option<Metrics> {
    pool::try_current_pool().map(|pool| Metrics::of(&pool))
}
