//! What the stealing policies share: a lane for anchored tasks and a stealable ring for each worker, and one shared
//! queue for pushes from outside and for what a full ring sheds.
//!
//! Fairness: lanes take turns, and every [`SHARED_EVERY`]-th pop looks at the shared queue first, so neither starves
//! under sustained local load.

use std::collections::VecDeque;
use std::sync::Mutex;

use super::{Cx, Task, Topology, Wake, WorkerId};
use crate::queue::injector::Injector;
use crate::queue::ring::{DEFAULT_CAPACITY, Owner, Stealer, ring};

/// Every so many pops the shared queue goes first (a prime, as in Go, so that no loop of the program keeps step).
const SHARED_EVERY: u32 = 61;

/// The half that all workers see.
pub(super) struct Shared<T> {
    injector: Injector<T>,
    stealers: Box<[Stealer<T>]>,
    /// The rings' owners until their workers attach.
    owners: Mutex<Vec<Option<Owner<T>>>>,
}

/// The owner's half.
pub(super) struct Lanes<T> {
    worker: WorkerId,
    anchored: VecDeque<T>,
    ring: Owner<T>,
    tick: u32,
}

impl<T: Task> Shared<T> {
    pub(super) fn new(topology: &Topology) -> Self {
        let owners: Vec<_> = (0..topology.workers).map(|_| ring(DEFAULT_CAPACITY)).collect();
        Self {
            injector: Injector::new(),
            stealers: owners.iter().map(Owner::stealer).collect(),
            owners: Mutex::new(owners.into_iter().map(Some).collect()),
        }
    }

    pub(super) fn attach(&self, worker: WorkerId) -> Lanes<T> {
        let mut owners = self.owners.lock().unwrap_or_else(|e| e.into_inner());
        let ring = owners[worker].take().expect("a worker attaches once");
        Lanes { worker, anchored: VecDeque::new(), ring, tick: 0 }
    }

    /// Queues a task as the newest; says whether there is something for others to take.
    #[inline(always)]
    pub(super) fn push(&self, local: Option<&mut Lanes<T>>, task: T) -> Wake {
        let Some(lanes) = local else {
            self.injector.push(task);
            return Wake::Any;
        };
        // Without thieves one plain lane serves all.
        if self.stealers.len() == 1 || task.anchor().is_some() {
            lanes.anchored.push_back(task);
            return Wake::None;
        }
        if let Err(task) = lanes.ring.push(task) {
            self.injector.push_all(lanes.ring.take_half().chain([task]));
        }
        Wake::Any
    }

    /// The oldest task of the owner's lanes and the shared queue.
    #[inline(always)]
    pub(super) fn pop(&self, lanes: &mut Lanes<T>) -> Option<T> {
        lanes.tick = lanes.tick.wrapping_add(1);
        if lanes.tick.is_multiple_of(SHARED_EVERY)
            && let Some(task) = self.injector.pop()
        {
            return Some(task);
        }
        let own = if lanes.ring.len() == 0 {
            lanes.anchored.pop_front()
        } else if lanes.tick.is_multiple_of(2) {
            lanes.anchored.pop_front().or_else(|| lanes.ring.pop())
        } else {
            lanes.ring.pop().or_else(|| lanes.anchored.pop_front())
        };
        match own {
            Some(task) => Some(task),
            None => self.take_shared(lanes),
        }
    }

    fn take_shared(&self, lanes: &mut Lanes<T>) -> Option<T> {
        if self.injector.is_empty() {
            return None;
        }
        let share = (self.injector.len() / self.stealers.len()).clamp(1, lanes.ring.capacity() / 2);
        self.injector.pop_batch_into(&mut lanes.ring, share)
    }

    /// Half of another worker's ring, the victims taken in turn from a random one on.
    pub(super) fn steal(&self, cx: &mut Cx, lanes: &mut Lanes<T>) -> Option<T> {
        let workers = self.stealers.len();
        if workers == 1 {
            return None;
        }
        let first = cx.below(workers);
        for victim in (first..workers).chain(0..first).filter(|&v| v != lanes.worker) {
            if self.stealers[victim].is_empty() {
                continue;
            }
            cx.steal_attempts += 1;
            if let Some(task) = self.stealers[victim].steal_half_into(&mut lanes.ring) {
                cx.steals += 1;
                return Some(task);
            }
        }
        None
    }

    pub(super) fn maybe_ready(&self, worker: WorkerId) -> bool {
        let others = self.stealers.iter().enumerate().filter(|(w, _)| *w != worker);
        !self.injector.is_empty() || others.into_iter().any(|(_, s)| !s.is_empty())
    }

    pub(super) fn drain(&self, mut lanes: Lanes<T>, sink: &mut dyn FnMut(T)) {
        lanes.anchored.drain(..).for_each(&mut *sink);
        while let Some(task) = lanes.ring.pop() {
            sink(task);
        }
        while let Some(task) = self.injector.pop() {
            sink(task);
        }
    }
}

impl<T: Task> Lanes<T> {
    /// Tasks the owner holds.
    pub(super) fn len(&self) -> usize {
        self.anchored.len() + self.ring.len()
    }
}
