//! What happens when a worker's own structure is full, and the shared queues.
//!
//! Published variants, and what the OCaml schedulers' thesis found: spin and try again; let the
//! structure grow, or give the worker a second one; put the task into a shared queue, behind a lock
//! (worse), without one, or sharded (a little better), and with a chance also before the structure
//! is full; ask a random worker to steal from me, once or until another worker asks it (much
//! worse); announce my number on a queue of overloaded workers where thieves look first (a little
//! better). Go and Tokio spill half of the structure into a shared queue: our default.
//!
//! One difference from the sources, but for [`WhenFull::Spin`]: whatever is asked or announced, the
//! task that found no room goes to the shared queue at once, since fibers must not wait on each
//! other inside the scheduler.
//!
//! The shared queues also take what comes from outside the pool, and tasks that yield where the
//! policy says so. They are looked at on a schedule, see `stealing`.

use crossbeam_utils::CachePadded;

use super::params::{Shards, StealingParams};
use crate::policy::{Cx, Topology, WorkerId};
use crate::queue::mpmc::Mpmc;
use crate::queue::ring::Owner;
use crate::queue::shared::Sharded;
use crate::shim::atomic::AtomicUsize;
use crate::shim::atomic::Ordering::{Acquire, Relaxed, Release};

/// What a worker does with a task for which its own structure has no room. (First it may spin for a
/// while, see `StealingParams::spin`.)
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WhenFull {
    /// The older half and the task go to the shared queue (Go, Tokio).
    Spill,
    /// The task waits for room, and its spawner with it, without end (`thesis/insert` has the
    /// exceptions). For experiments: nothing else runs there meanwhile.
    Spin,
    /// The structure grows.
    Grow,
    /// The worker gets a second structure of the same size, so that thieves meet less often; when
    /// that has no room either, the task goes to the shared queue.
    Horizontal,
    /// The task goes to the shared queue.
    Overflow {
        /// With a chance of this many percent also while there is room, 0 to 100.
        early: u8,
    },
    /// The same, and a random worker is asked to steal from this one.
    Request {
        /// It goes on doing so until another worker asks it; else it does so once.
        sticky: bool,
    },
    /// The same, and this worker's number is announced where thieves look first.
    Announce,
}

/// The shared queues: one, or several of which a random one is taken.
pub struct SharedQueue<T> {
    queues: Sharded<T>,
}

impl<T: Send> SharedQueue<T> {
    pub(super) fn new(params: &StealingParams) -> Self {
        let queues = match params.shared {
            Shards::Locked => Sharded::locked(params.shards),
            Shards::Mpmc => Sharded::lock_free(params.shards),
        };
        Self { queues }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.queues.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.queues.len()
    }

    fn any(&self, cx: &mut Cx) -> usize {
        if self.queues.shards() == 1 {
            0
        } else {
            cx.below(self.queues.shards())
        }
    }

    pub(super) fn push(&self, cx: &mut Cx, task: T) {
        self.queues.push(self.any(cx), task);
    }

    pub(super) fn push_all(&self, cx: &mut Cx, tasks: impl IntoIterator<Item = T>) {
        self.queues.push_all(self.any(cx), tasks);
    }

    pub(super) fn pop(&self, cx: &mut Cx) -> Option<T> {
        self.queues.pop(self.any(cx))
    }

    pub(super) fn pop_batch_into(
        &self,
        cx: &mut Cx,
        ring: &mut Owner<T>,
        most: usize,
    ) -> Option<T> {
        self.queues.pop_batch_into(self.any(cx), ring, most)
    }

    pub(super) fn drain(&self, sink: &mut dyn FnMut(T)) {
        std::iter::from_fn(|| self.queues.pop(0)).for_each(sink);
    }
}

/// Workers without room that have asked for help: one worker each, or all of them.
pub(super) struct HelpRequests {
    /// For each worker, the number of the one that asks it, plus one; 0: none does.
    asked: Box<[CachePadded<AtomicUsize>]>,
    announced: Mpmc<WorkerId>,
}

impl HelpRequests {
    pub(super) fn new(topology: &Topology) -> Self {
        let asked = (0..topology.workers)
            .map(|_| CachePadded::new(AtomicUsize::new(0)))
            .collect();
        Self {
            asked,
            announced: Mpmc::new(topology.workers.next_power_of_two()),
        }
    }

    /// Asks a random other worker to steal from `me`, unless it has been asked already. A `sticky`
    /// request takes the place of the one before it: nothing else would end that one.
    pub(super) fn ask(&self, cx: &mut Cx, me: WorkerId, sticky: bool) {
        if self.asked.len() == 1 {
            return;
        }
        let draw = cx.below(self.asked.len() - 1);
        let other = if draw >= me { draw + 1 } else { draw };

        if sticky {
            self.asked[other].store(me + 1, Release);
        } else {
            let _ = self.asked[other].compare_exchange(0, me + 1, Release, Relaxed);
        }
    }

    /// Returns the worker that has asked `worker`.
    pub(super) fn asking(&self, worker: WorkerId) -> Option<WorkerId> {
        self.asked[worker].load(Acquire).checked_sub(1)
    }

    /// Notes that `worker` has done so.
    pub(super) fn answered(&self, worker: WorkerId) {
        self.asked[worker].store(0, Relaxed);
    }

    /// Asks all workers, if there is room: for about as many requests as workers.
    pub(super) fn announce(&self, me: WorkerId) {
        let _ = self.announced.push(me);
    }

    /// Takes the oldest of these requests.
    pub(super) fn announced(&self) -> Option<WorkerId> {
        self.announced.pop()
    }
}
