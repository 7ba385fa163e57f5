//! Queues for everybody.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use crossbeam_deque::{Injector as TheirInjector, Steal, Worker};
use crossbeam_queue::{ArrayQueue, SegQueue};
use plainweave::queue::mpmc::Mpmc;
use plainweave::queue::ring::{Owner, ring};
use plainweave::queue::shared::{Injector, Sharded};

use super::repetition::{Job, Tally, crowd, two, wait};

pub(super) const SYSTEMS: [&str; 8] = [
    "plainweave injector",
    "plainweave mpmc",
    "plainweave sharded-1",
    "plainweave sharded-4",
    "plainweave locked-4",
    "crossbeam ArrayQueue",
    "crossbeam SegQueue",
    "crossbeam Injector",
];

/// Those of the thesis: locked, lock-free, and lock-free with a shard for every second thread.
pub(super) const THESIS: [&str; 4] = [
    "plainweave injector",
    "plainweave mpmc",
    "plainweave sharded-half",
    "crossbeam ArrayQueue",
];

/// Slots where there is a bound, and items that a run queue takes at once.
const CAPACITY: usize = 1024;
const BATCH: usize = 32;
const SPILLED: u64 = 128;

/// A queue shared by all threads. `turn` is the caller's count of calls, for queues that spread
/// their callers.
trait Shared: Sync {
    /// What a worker takes a batch into.
    type Own: Send;
    fn own() -> Self::Own;
    fn push(&self, turn: u64, item: u64) -> Result<(), u64>;
    fn pop(&self, turn: u64) -> Option<u64>;

    /// Pushes all of them, if there is room; returns how many.
    fn push_all(&self, turn: u64, items: std::ops::RangeInclusive<u64>) -> u64 {
        let first = *items.start();
        items
            .take_while(|&item| self.push(turn, item).is_ok())
            .last()
            .map_or(0, |last| last + 1 - first)
    }

    /// Up to [`BATCH`] of them.
    fn take(&self, _: &mut Self::Own, turn: u64, tally: &mut Tally) {
        (0..BATCH)
            .map_while(|_| self.pop(turn))
            .for_each(|item| tally.add(item));
    }
}

fn drain(first: Option<u64>, own: &mut Owner<u64>, tally: &mut Tally) {
    first
        .into_iter()
        .chain(std::iter::from_fn(|| own.pop()))
        .for_each(|item| tally.add(item));
}

impl Shared for Injector<u64> {
    type Own = Owner<u64>;

    fn own() -> Owner<u64> {
        ring(256)
    }

    #[inline]
    fn push(&self, _: u64, item: u64) -> Result<(), u64> {
        Injector::push(self, item);
        Ok(())
    }

    #[inline]
    fn pop(&self, _: u64) -> Option<u64> {
        Injector::pop(self)
    }

    fn push_all(&self, _: u64, items: std::ops::RangeInclusive<u64>) -> u64 {
        let count = items.end() + 1 - items.start();
        Injector::push_all(self, items);
        count
    }

    fn take(&self, own: &mut Owner<u64>, _: u64, tally: &mut Tally) {
        drain(self.pop_batch_into(own, BATCH), own, tally);
    }
}

/// Returns the shard of a turn. Most have a power of two of them, and a division would show.
#[inline]
fn shard(queue: &Sharded<u64>, turn: u64) -> usize {
    let turn = turn as usize;
    let shards = queue.shards();
    if shards.is_power_of_two() {
        turn & (shards - 1)
    } else {
        turn % shards
    }
}

impl Shared for Sharded<u64> {
    type Own = Owner<u64>;

    fn own() -> Owner<u64> {
        ring(256)
    }

    #[inline]
    fn push(&self, turn: u64, item: u64) -> Result<(), u64> {
        Sharded::push(self, shard(self, turn), item);
        Ok(())
    }

    #[inline]
    fn pop(&self, turn: u64) -> Option<u64> {
        Sharded::pop(self, shard(self, turn))
    }

    fn push_all(&self, turn: u64, items: std::ops::RangeInclusive<u64>) -> u64 {
        let count = items.end() + 1 - items.start();
        Sharded::push_all(self, shard(self, turn), items);
        count
    }

    fn take(&self, own: &mut Owner<u64>, turn: u64, tally: &mut Tally) {
        drain(
            self.pop_batch_into(shard(self, turn), own, BATCH),
            own,
            tally,
        );
    }
}

impl Shared for TheirInjector<u64> {
    type Own = Worker<u64>;

    fn own() -> Worker<u64> {
        Worker::new_fifo()
    }

    #[inline]
    fn push(&self, _: u64, item: u64) -> Result<(), u64> {
        TheirInjector::push(self, item);
        Ok(())
    }

    #[inline]
    fn pop(&self, _: u64) -> Option<u64> {
        loop {
            match self.steal() {
                Steal::Success(item) => return Some(item),
                Steal::Empty => return None,
                Steal::Retry => {}
            }
        }
    }

    fn take(&self, own: &mut Worker<u64>, _: u64, tally: &mut Tally) {
        if let Steal::Success(first) = self.steal_batch_with_limit_and_pop(own, BATCH) {
            [first]
                .into_iter()
                .chain(std::iter::from_fn(|| own.pop()))
                .for_each(|item| tally.add(item));
        }
    }
}

/// Queues that know no batches.
macro_rules! shared {
    ($type:ty, $push:expr) => {
        impl Shared for $type {
            type Own = ();

            fn own() {}

            #[inline]
            fn push(&self, _: u64, item: u64) -> Result<(), u64> {
                $push(self, item)
            }

            #[inline]
            fn pop(&self, _: u64) -> Option<u64> {
                <$type>::pop(self)
            }
        }
    };
}

shared!(Mpmc<u64>, Mpmc::push);
shared!(ArrayQueue<u64>, ArrayQueue::push);
shared!(SegQueue<u64>, |queue: &SegQueue<u64>, item| {
    queue.push(item);
    Ok(())
});

/// What to do with the queue that the job names.
trait Workload {
    fn run<Q: Shared>(self, queue: Q) -> anyhow::Result<f64>;
}

fn with(job: &Job, workload: impl Workload) -> anyhow::Result<f64> {
    match job.system.as_str() {
        "plainweave injector" => workload.run(Injector::new()),
        "plainweave mpmc" => workload.run(Mpmc::new(CAPACITY)),
        "plainweave sharded-1" => workload.run(Sharded::lock_free(1)),
        "plainweave sharded-4" => workload.run(Sharded::lock_free(4)),
        "plainweave sharded-half" => workload.run(Sharded::lock_free((job.threads / 2).max(1))),
        "plainweave locked-4" => workload.run(Sharded::locked(4)),
        "crossbeam ArrayQueue" => workload.run(ArrayQueue::new(CAPACITY)),
        "crossbeam SegQueue" => workload.run(SegQueue::new()),
        "crossbeam Injector" => workload.run(TheirInjector::new()),
        _ => job.unknown(),
    }
}

pub(super) fn queue(job: &Job) -> anyhow::Result<f64> {
    struct Queue<'a>(&'a Job);
    impl Workload for Queue<'_> {
        fn run<Q: Shared>(self, queue: Q) -> anyhow::Result<f64> {
            let items = self.0.items;
            let push = |item| {
                let mut turns = 0;
                while queue.push(item, item).is_err() {
                    wait(&mut turns);
                }
            };

            let (ns, tally) = if self.0.threads == 1 {
                let mut tally = Tally::default();
                let start = Instant::now();
                // Batches that fit into every queue, so that none of them grows for being alone.
                for first in (1..=items).step_by(64) {
                    (first..=items.min(first + 63)).for_each(push);
                    std::iter::from_fn(|| queue.pop(first)).for_each(|item| tally.add(item));
                }

                (start.elapsed().as_nanos() as f64, tally)
            } else {
                let take = || {
                    let mut tally = Tally::default();
                    let mut turns = 0;
                    while tally.count < items {
                        match queue.pop(tally.count) {
                            Some(item) => {
                                tally.add(item);
                                turns = 0;
                            }
                            None => wait(&mut turns),
                        }
                    }

                    tally
                };

                let (ns, (), tally) = two(|| (1..=items).for_each(push), take)?;
                (ns, tally)
            };

            tally.check(items)?;
            Ok(ns / items as f64)
        }
    }
    with(job, Queue(job))
}

/// The thesis' queue: as many threads as are asked for, the even ones enqueue.
pub(super) fn halves(job: &Job) -> anyhow::Result<f64> {
    struct Halves<'a>(&'a Job);
    impl Workload for Halves<'_> {
        fn run<Q: Shared>(self, queue: Q) -> anyhow::Result<f64> {
            let Job { items, threads, .. } = *self.0;
            let half = threads / 2;
            let done = AtomicUsize::new(0);
            let push = |first: u64| {
                // Each pushes its residue class, so that the tally can tell a lost item from one
                // pushed twice.
                for item in (first + 1..=items).step_by(half) {
                    let mut turns = 0;
                    while queue.push(first, item).is_err() {
                        wait(&mut turns);
                    }
                }

                done.fetch_add(1, Ordering::Release);
                Tally::default()
            };

            let take = |turn: u64| {
                let mut tally = Tally::default();
                let mut turns = 0;
                loop {
                    // Read before the queue: if it is empty after all pushers had ended, it stays
                    // so.
                    let last = done.load(Ordering::Acquire) == half;
                    match queue.pop(turn) {
                        Some(item) => {
                            tally.add(item);
                            turns = 0;
                        }
                        None if last => return tally,
                        None => wait(&mut turns),
                    }
                }
            };

            let body = |number: usize| match (number % 2, number as u64 / 2) {
                (0, number) => push(number),
                (_, number) => take(number),
            };

            let (ns, tally) = crowd(threads, body)?;
            tally.check(items)?;
            Ok(ns / items as f64)
        }
    }
    with(job, Halves(job))
}

pub(super) fn pairs(job: &Job) -> anyhow::Result<f64> {
    struct Pairs<'a>(&'a Job);
    impl Workload for Pairs<'_> {
        fn run<Q: Shared>(self, queue: Q) -> anyhow::Result<f64> {
            let items = self.0.items.max(200);
            let waiting = 100;
            (1..=waiting).for_each(|item| {
                assert!(queue.push(item, item).is_ok(), "there is room for these")
            });
            let body = |first: u64, step: usize| {
                let mut tally = Tally::default();
                for item in (first..=items).step_by(step) {
                    let mut turns = 0;
                    while queue.push(item, item).is_err() {
                        wait(&mut turns);
                    }
                    queue.pop(item).into_iter().for_each(|item| tally.add(item));
                }
                tally
            };

            let (ns, tally) = if self.0.threads == 1 {
                let start = Instant::now();
                let tally = body(waiting + 1, 1);
                (start.elapsed().as_nanos() as f64, tally)
            } else {
                let (ns, a, b) = two(|| body(waiting + 1, 2), || body(waiting + 2, 2))?;
                (ns, a.and(b))
            };

            let rest = (0..).map_while(|turn| queue.pop(turn));
            tally.and(Tally::of(rest)).check(items)?;
            Ok(ns / (items - waiting) as f64)
        }
    }
    with(job, Pairs(job))
}

pub(super) fn batches(job: &Job) -> anyhow::Result<f64> {
    struct Batches<'a>(&'a Job);
    impl Workload for Batches<'_> {
        fn run<Q: Shared>(self, queue: Q) -> anyhow::Result<f64> {
            let items = self.0.items.next_multiple_of(SPILLED);
            let spill = |first: u64| {
                let mut next = first;
                let mut turns = 0;
                while next < first + SPILLED {
                    next += queue.push_all(first / SPILLED, next..=first + SPILLED - 1);
                    if next < first + SPILLED {
                        wait(&mut turns);
                    }
                }
            };

            let (ns, tally) = if self.0.threads == 1 {
                let mut tally = Tally::default();
                let mut own = Q::own();
                let start = Instant::now();

                for first in (1..=items).step_by(SPILLED as usize) {
                    spill(first);
                    let there = first + SPILLED - 1;
                    while tally.count < there {
                        queue.take(&mut own, first / SPILLED, &mut tally);
                    }
                }

                (start.elapsed().as_nanos() as f64, tally)
            } else {
                let take = || {
                    let mut tally = Tally::default();
                    let mut own = Q::own();
                    let mut turns = 0;

                    while tally.count < items {
                        let before = tally.count;
                        queue.take(&mut own, before / SPILLED, &mut tally);
                        if tally.count == before {
                            wait(&mut turns);
                        } else {
                            turns = 0;
                        }
                    }

                    tally
                };

                let (ns, (), tally) = two(
                    || (1..=items).step_by(SPILLED as usize).for_each(spill),
                    take,
                )?;
                (ns, tally)
            };

            tally.check(items)?;
            Ok(ns / items as f64)
        }
    }
    with(job, Batches(job))
}
