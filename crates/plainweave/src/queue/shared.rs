//! An unbounded queue for all threads, in `k` parts: each push goes to one part, each pop takes
//! from the first part that has a task, starting at a random one. So concurrent pushes and pops
//! seldom meet, and order is relaxed: each part is first in, first out, and each producer's tasks
//! leave a part in their order.
//!
//! A part is a bounded [ring](super::mpmc) with a [locked queue](Injector) behind it, or that
//! locked queue alone. The ring takes tasks that come one by one; those that find it full go
//! behind.
//!
//! **Protocol of a part with a ring.**
//! 1. *Push:* if nothing is behind (one load), try the ring; if that fails, or there is something
//!    behind, push behind.
//! 2. *Pop:* the ring's oldest; if there is none, lock what is behind, look into the ring once
//!    more, and only if it is still empty take the oldest from behind.
//!
//! **Why it is safe.** Both queues are; a task is in one of them. *Order:* while a producer's task
//! is behind, the same producer sees that and pushes behind too: so its tasks in the ring are older
//! than those behind. A consumer that finds the ring empty under the lock has missed none of them.
//! (Without the second look it could: the ring may have filled and spilled since the first.)
//! *Waiting is bounded:* while a task is behind, the only tasks to enter the ring are those whose
//! push had looked before; so the ring runs dry, and the rest comes. *No task is out of sight:* a
//! batch is counted before it leaves the ring and until it is in the worker's. So a look at the
//! queue and then at the workers' rings finds one of its tasks, and a worker that looks before it
//! sleeps does not leave it to one that runs for long (`loom_a_batch_is_never_out_of_sight`).
//!
//! **Source.** The OCaml schedulers' thesis: overflow to one shared queue, locked or not, or to
//! five of them. There the parts are bounded; here a push cannot fail, because a ready fiber must
//! be in some queue. The bound is that of the [injector](Injector): the live fibers.
//!
//! **Rejected.** *A list of rings* (LCRQ): a push into a full ring would allocate a new one, and
//! the queue would have to detect when the last reader has left the old one. A full part is the
//! exception, and batches go behind anyway: one lock per batch. `docs/queues.md` has the figures.

mod injector; // The lock behind a shared queue, and the queue under it.
#[cfg(all(test, loom))]
mod models;

use std::fmt;

use crossbeam_utils::CachePadded;

use super::mpmc::Mpmc;
use super::ring::Owner;
use crate::shim::atomic::AtomicUsize;
use crate::shim::atomic::Ordering::{Acquire, Relaxed, Release};

pub use injector::Injector;

/// Slots of a part's ring.
pub const SHARD_CAPACITY: usize = if cfg!(loom) { 2 } else { 1024 };

/// An unbounded MPMC queue in parts, shared by `&Sharded`. Order is first in, first out within a
/// part only.
pub struct Sharded<T> {
    shards: Box<[CachePadded<Shard<T>>]>,
}

struct Shard<T> {
    ring: Option<Mpmc<T>>,
    behind: Injector<T>,
    /// Batches on their way from the ring to a worker's own.
    moving: AtomicUsize,
}

impl<T: Send> Shard<T> {
    fn len(&self) -> usize {
        // The ring after the locked queue: a task never moves from one to the other.
        self.behind.len() + self.ring.as_ref().map_or(0, Mpmc::len)
    }

    fn is_empty(&self) -> bool {
        self.len() == 0 && self.moving.load(Acquire) == 0
    }

    fn push(&self, mut task: T) {
        if let Some(ring) = &self.ring
            && self.behind.is_empty()
        {
            task = match ring.push(task) {
                Ok(()) => return,
                Err(task) => task,
            };
        }
        self.behind.push(task);
    }

    fn pop(&self) -> Option<T> {
        let ring = || self.ring.as_ref().and_then(Mpmc::pop);
        ring().or_else(|| self.behind.pop_after(ring))
    }

    fn pop_batch_into(&self, owner: &mut Owner<T>, max: usize) -> Option<T> {
        let Some((ring, oldest)) = self
            .ring
            .as_ref()
            .filter(|_| max > 0)
            .and_then(|ring| Some((ring, ring.pop()?)))
        else {
            return self.behind.pop_batch_after(
                || self.ring.as_ref().and_then(Mpmc::pop),
                owner,
                max,
            );
        };

        let more = (max - 1).min(owner.free());
        if more > 0 && !ring.is_empty() {
            // A pop releases this store to whoever sees that it has taken a task.
            self.moving.fetch_add(1, Relaxed);
            for _ in 0..more {
                let Some(task) = ring.pop() else { break };
                // `free` counts pushes that are sure to succeed, and only this owner uses them up.
                assert!(
                    owner.push(task).is_ok(),
                    "a ring's free slot was taken by somebody else"
                );
            }
            self.moving.fetch_sub(1, Release);
        }

        Some(oldest)
    }
}

impl<T: Send> Sharded<T> {
    /// Creates a queue of `shards` parts, at least one, each with a ring of [`SHARD_CAPACITY`]
    /// slots before its lock.
    #[must_use]
    pub fn lock_free(shards: usize) -> Self {
        Self::of(shards, || Some(Mpmc::new(SHARD_CAPACITY)))
    }

    /// Creates a queue of `shards` parts, at least one, each behind a lock.
    #[must_use]
    pub fn locked(shards: usize) -> Self {
        Self::of(shards, || None)
    }

    fn of(shards: usize, ring: impl Fn() -> Option<Mpmc<T>>) -> Self {
        let shard = |_| {
            CachePadded::new(Shard {
                ring: ring(),
                behind: Injector::new(),
                moving: AtomicUsize::new(0),
            })
        };

        Self {
            shards: (0..shards.max(1)).map(shard).collect(),
        }
    }

    /// Returns the number of parts.
    #[inline]
    pub fn shards(&self) -> usize {
        self.shards.len()
    }

    /// Returns the number of queued tasks, as a hint.
    pub fn len(&self) -> usize {
        self.shards.iter().map(|shard| shard.len()).sum()
    }

    /// Returns whether no task is queued. Never true while one is whose push happened before this
    /// look, unless a pop is about to return it: a batch on its way to a worker's ring counts until
    /// it is there.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.shards.iter().all(|shard| shard.is_empty())
    }

    /// Appends `task` as the newest of part `shard`.
    ///
    /// # Panics
    /// If there is no such part, as all methods that name a part do.
    #[inline]
    pub fn push(&self, shard: usize, task: T) {
        self.shards[shard].push(task);
    }

    /// Appends `tasks` in their order, next to each other, to part `shard`, under one lock (so the
    /// iterator must not use this queue).
    pub fn push_all(&self, shard: usize, tasks: impl IntoIterator<Item = T>) {
        self.shards[shard].behind.push_all(tasks);
    }

    /// Takes the oldest task of the first part that has one, from `shard` on.
    #[inline]
    pub fn pop(&self, shard: usize) -> Option<T> {
        self.from(shard).find_map(Shard::pop)
    }

    /// Takes up to `max` of the oldest tasks of one part, the first that has some, and at most as
    /// many as the caller's own ring has room for (plus one): one is returned, to be run at once,
    /// the others are pushed to the ring.
    pub fn pop_batch_into(&self, shard: usize, ring: &mut Owner<T>, max: usize) -> Option<T> {
        self.from(shard)
            .find_map(|shard| shard.pop_batch_into(ring, max))
    }

    fn from(&self, shard: usize) -> impl Iterator<Item = &Shard<T>> {
        self.shards[shard..]
            .iter()
            .chain(&self.shards[..shard])
            .map(|shard| &**shard)
    }
}

impl<T: Send> fmt::Debug for Sharded<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sharded")
            .field("shards", &self.shards.len())
            .field("len", &self.len())
            .finish()
    }
}
