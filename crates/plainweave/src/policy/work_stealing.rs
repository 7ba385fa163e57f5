//! Work stealing, first in, first out: the default policy.
//!
//! Each worker has a run queue of its own, a bounded [ring](crate::queue::ring), and runs its tasks
//! in the order in which they became ready. A worker that has run out of tasks steals half of
//! another's. What does not fit a ring, and what comes from outside the pool, waits in one queue
//! that all workers share. Go and Tokio schedule like this, but for the slot that each puts before
//! its run queues.
//!
//! **Push.**
//! 1. Without a worker's half (a thread outside the pool): to the shared queue.
//! 2. A pinned task: to its worker's lane of these, which thieves do not see ([`Pinned`]).
//! 3. Any other task: to the end of its worker's ring.
//! 4. If the ring is full, it *spills*: the older half of it and the task go to the shared queue
//!    under one lock. So the next pushes have room, and other workers find the tasks that have
//!    waited longest.
//!
//! A task that yields is pushed like any other. If it asks for the shared queue
//! ([`Ready::YieldedShared`]), it goes there in place of steps 3 and 4.
//!
//! **Pop.**
//! 1. Every [`poll`](WorkStealingParams::poll) pops, the shared queue comes first: otherwise
//!    workers that are busy with tasks of their own would starve it.
//! 2. The worker's own: the oldest of its ring or of its pinned tasks, alternately while there are
//!    both.
//! 3. The shared queue: this worker's share of it, at most half a ring, so that the others find
//!    some too.
//! 4. With [`Effort::Search`], another worker's ring: all of them in turn, from a random one on,
//!    until one has tasks. The thief takes half of these, rounded up, the oldest first: it runs one
//!    and queues the others. A victim's only task is left to the victim for a moment
//!    ([`SOLE_TASK_SPINS`]): most likely a running fiber has woken it and is about to wait for it.
//!    Two fibers that answer each other would otherwise meet on two cores, though one runs at a
//!    time.
//!
//! **Bounded waiting.** A task in a ring waits for the tasks before it there, for as many pinned
//! ones at most, and for one task of the shared queue in `poll` pops. A task in the shared queue
//! waits for `poll` pops of one worker for each task before it there, at most.
//!
//! **Waking.** A push of a task that others could take says [`Wake::Any`]; `maybe_ready` looks at
//! the shared queue and at the others' rings, which is all that step 4 can find. The rings' and the
//! shared queue's looks never miss a task whose push happened before, so the last look of a worker
//! that is about to sleep does not either.
//!
//! **For it:** workers share nothing while all of them are busy; waiting is fair, and latency at
//! the tail good. **Against it:** a task that was just woken runs after all that were ready before
//! it, and finds its data cold. A thief disturbs others to learn that they have nothing, and the
//! data of what it steals is in another cache.
//!
//! **Rejected.** A slot for the task that was woken last, other orders, victims and amounts: see
//! [`super::thesis`], which has them as parameters.
//!
//! **Sources.** R. Blumofe and C. Leiserson, Scheduling multithreaded computations by work
//! stealing, 1999. Half a run queue at a time, the spill and the poll: Go's `runtime/proc.go` and
//! Tokio's `scheduler/multi_thread`. The moment for an only task: Go, for its slot.

use std::collections::VecDeque;
use std::sync::PoisonError;

use super::{Cx, DirectSwitch, Effort, Pinned, Policy, Ready, Task, Topology, Wake, WorkerId};
use crate::queue::ring::{self, DEFAULT_CAPACITY, Owner, Stealer};
use crate::queue::shared::Sharded;
use crate::shim::{Mutex, look_at_victim, spin_loop};

/// The parameters of [`WorkStealing`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkStealingParams {
    /// Tasks that a worker's ring holds, at most 32,768; rounded up to a power of two.
    pub capacity: usize,
    /// How many pops of a worker it takes until the shared queue comes first, at least 1.
    pub poll: u32,
}

impl Default for WorkStealingParams {
    fn default() -> Self {
        // A prime, as in Go, so that no loop of the program keeps step with it.
        Self {
            capacity: DEFAULT_CAPACITY,
            poll: 61,
        }
    }
}

/// Work stealing, first in, first out: the default policy, `fifo` by name.
///
/// Each worker runs its own tasks in the order in which they became ready, from a bounded ring. One
/// that has none steals half of another's. Tasks beyond a ring's capacity, and those from outside
/// the pool, wait in a shared queue that each worker polls.
pub struct WorkStealing<T> {
    /// There is one worker, and never another.
    sole: bool,
    poll: u32,
    shared: Sharded<T>,
    /// For each worker, what thieves hold of its ring.
    stealers: Box<[Stealer<T>]>,
    /// The rings themselves, until their workers attach.
    rings: Mutex<Vec<Option<Owner<T>>>>,
    /// What spare workers steal into, one task at a time, so that it is always empty.
    spare: Mutex<Owner<T>>,
}

/// A worker's half of [`WorkStealing`].
pub struct WorkStealingLocal<T> {
    worker: WorkerId,
    ring: Owner<T>,
    /// Its pinned tasks; all of its tasks, if it is the only worker.
    pinned: Pinned<VecDeque<T>>,
    /// Pops until the shared queue comes first.
    left: u32,
}

/// Turns of a loop for which a thief leaves a victim's only task to the victim: one to three
/// microseconds.
const SOLE_TASK_SPINS: u32 = 64;

/// The shared queue has one part.
const PART: usize = 0;

impl<T: Task> WorkStealing<T> {
    fn workers(&self) -> usize {
        self.stealers.len()
    }

    /// Step 4 of a push.
    #[cold]
    fn spill(&self, cx: &mut Cx, local: &mut WorkStealingLocal<T>, task: T) {
        cx.counts.spills += 1;
        self.shared
            .push_all(PART, local.ring.take_half().chain([task]));
    }

    /// A push of a task that yields and asks for the shared queue.
    #[cold]
    fn push_shared(&self, local: &WorkStealingLocal<T>, task: T, why: Ready) -> Wake {
        let wake =
            why.wake(|| local.pinned.is_empty() && local.ring.is_empty() && self.shared.is_empty());
        self.shared.push(PART, task);
        wake
    }

    /// Step 1 of a pop.
    #[cold]
    fn pop_due(&self, local: &mut WorkStealingLocal<T>) -> Option<T> {
        local.left = self.poll;
        self.shared.pop(PART)
    }

    /// Steps 3 and 4 of a pop.
    #[inline(never)]
    fn pop_elsewhere(
        &self,
        cx: &mut Cx,
        local: &mut WorkStealingLocal<T>,
        effort: Effort,
    ) -> Option<T> {
        let found = self.take_share(local);
        if found.is_none() && effort == Effort::Search {
            self.search(cx, local)
        } else {
            found
        }
    }

    fn take_share(&self, local: &mut WorkStealingLocal<T>) -> Option<T> {
        if self.shared.is_empty() {
            return None;
        }
        let share = (self.shared.len() / self.workers()).max(1);
        let most = share.min(local.ring.capacity().div_ceil(2));
        self.shared.pop_batch_into(PART, &mut local.ring, most)
    }

    fn search(&self, cx: &mut Cx, local: &mut WorkStealingLocal<T>) -> Option<T> {
        if self.workers() == 1 {
            return None;
        }
        let first = cx.below(self.workers());
        let mut victims = (first..self.workers())
            .chain(0..first)
            .filter(|victim| *victim != local.worker);
        victims.find_map(|victim| self.steal_from(cx, &mut local.ring, victim))
    }

    fn steal_from(&self, cx: &mut Cx, ring: &mut Owner<T>, victim: WorkerId) -> Option<T> {
        look_at_victim();
        let stealer = &self.stealers[victim];
        if stealer.is_empty() {
            return None;
        }

        if let Some(sole) = stealer.sole() {
            (0..SOLE_TASK_SPINS).for_each(|_| spin_loop());
            if stealer.sole() != Some(sole) {
                return None;
            }
        }

        cx.counts.steal_attempts += 1;
        let (task, tasks) = stealer.steal_batch_into(ring, |len| len.div_ceil(2))?;
        cx.stole(victim, tasks);
        Some(task)
    }
}

impl<T: Task + 'static> Policy<T> for WorkStealing<T> {
    type Params = WorkStealingParams;
    type Local = WorkStealingLocal<T>;

    const SPARES: bool = true;
    const DIRECT: DirectSwitch = DirectSwitch::Always;

    fn new(params: WorkStealingParams, topology: &Topology) -> Self {
        // The ring of a sole worker stays empty: there are no thieves.
        let capacity = if topology.is_sole() {
            1
        } else {
            params.capacity.next_power_of_two()
        };

        let rings: Vec<_> = (0..topology.workers)
            .map(|_| ring::ring(capacity))
            .collect();
        Self {
            sole: topology.is_sole(),
            poll: params.poll,
            shared: Sharded::lock_free(PART + 1),
            stealers: rings.iter().map(Owner::stealer).collect(),
            rings: Mutex::new(rings.into_iter().map(Some).collect()),
            spare: Mutex::new(ring::ring(1)),
        }
    }

    fn attach(&self, worker: WorkerId) -> WorkStealingLocal<T> {
        let mut rings = self.rings.lock().unwrap_or_else(PoisonError::into_inner);
        let ring = rings[worker].take().expect("a worker attaches once");
        WorkStealingLocal {
            worker,
            ring,
            pinned: Pinned::fifo(self.sole),
            left: self.poll,
        }
    }

    #[inline(always)]
    fn push(
        &self,
        cx: &mut Cx,
        local: Option<&mut WorkStealingLocal<T>>,
        task: T,
        why: Ready,
    ) -> Wake {
        let Some(local) = local else {
            self.shared.push(PART, task);
            return Wake::Any;
        };

        let task = match local.pinned.push(task) {
            Ok(()) => return Wake::None,
            Err(task) => task,
        };

        if why == Ready::YieldedShared {
            return self.push_shared(local, task, why);
        }
        let wake = why.wake(|| local.pinned.is_empty() && local.ring.is_empty());
        if let Err(task) = local.ring.push(task) {
            self.spill(cx, local, task);
        }
        wake
    }

    #[inline(always)]
    fn pop(&self, cx: &mut Cx, local: &mut WorkStealingLocal<T>, effort: Effort) -> Option<T> {
        local.left -= 1;
        if local.left == 0
            && let Some(task) = self.pop_due(local)
        {
            return Some(task);
        }
        let WorkStealingLocal { ring, pinned, .. } = local;
        let own = if ring.is_empty() {
            pinned.pop()
        } else {
            pinned.alternate(|| ring.pop())
        };

        own.or_else(|| self.pop_elsewhere(cx, local, effort))
    }

    fn maybe_ready(&self, worker: WorkerId) -> bool {
        let mut others = self
            .stealers
            .iter()
            .enumerate()
            .filter(|(other, _)| *other != worker);
        !self.shared.is_empty() || others.any(|(_, ring)| !ring.is_empty())
    }

    fn pop_spare(&self, cx: &mut Cx) -> Option<T> {
        self.shared.pop(PART).or_else(|| {
            let mut spare = self.spare.lock().unwrap_or_else(PoisonError::into_inner);
            let first = cx.below(self.workers());
            let all = self.workers();
            let mut victims = (first..all)
                .chain(0..first)
                .filter(|victim| !self.stealers[*victim].is_empty());
            victims.find_map(|victim| {
                cx.counts.steal_attempts += 1;
                let task = self.stealers[victim].steal_into(&mut spare, |_| 1)?;
                cx.stole(victim, 1);
                Some(task)
            })
        })
    }

    fn maybe_ready_spare(&self) -> bool {
        !self.shared.is_empty() || self.stealers.iter().any(|ring| !ring.is_empty())
    }

    fn drain(&self, mut local: WorkStealingLocal<T>, sink: &mut dyn FnMut(T)) {
        local.pinned.tasks.drain(..).for_each(&mut *sink);
        std::iter::from_fn(|| local.ring.pop()).for_each(&mut *sink);
        std::iter::from_fn(|| self.shared.pop(PART)).for_each(sink);
    }
}
