//! Policies that run the task with the smallest key first: priority, earliest deadline, shares. A
//! [`Rank`] gives the key when a task becomes ready; all else is here.
//!
//! Tasks that may move wait in one heap for all workers, behind a lock, so the order among them is
//! strict: a heap for each worker would be faster, and would run what is urgent here after what is
//! not urgent there. Pinned tasks wait in a heap of their worker, which takes the smaller of both
//! heads. Equal keys run in the order of their arrival.
//!
//! For it: the order is exactly what was asked for. Against it: one lock, and logarithmic pushes
//! and pops.
//!
//! Waits are bounded when keys grow with time (each rank says how): whatever becomes ready late
//! enough has a larger key than what waits.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::PoisonError;

use crossbeam_utils::CachePadded;

use super::pinned::Pinned;
use super::{Cx, DirectSwitch, Effort, Load, Nanos, Policy, Ready, Task, Topology, Wake, WorkerId};
use crate::shim::atomic::AtomicU64;
use crate::shim::atomic::Ordering::{Acquire, Release};
use crate::shim::{Mutex, MutexGuard};

/// The head of an empty heap.
const EMPTY: u64 = u64::MAX;

/// Gives keys to tasks.
pub trait Rank<T: Task>: Send + Sync + 'static {
    /// What distinguishes presets.
    type Params: Clone + Send;

    /// With these parameters.
    fn new(params: Self::Params) -> Self;

    /// The key of a task that has just become ready; below `u64::MAX`.
    fn key(&self, now: Nanos, task: &T) -> u64;

    /// A task with this key is about to run.
    fn runs(&self, _: u64, _: &T) {}
}

struct Entry<T> {
    /// The key, then the order of arrival.
    place: (u64, u64),
    task: T,
}

impl<T> PartialEq for Entry<T> {
    fn eq(&self, other: &Self) -> bool {
        self.place == other.place
    }
}

impl<T> Eq for Entry<T> {}

impl<T> PartialOrd for Entry<T> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl<T> Ord for Entry<T> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.place.cmp(&other.place)
    }
}

struct Heap<T> {
    entries: BinaryHeap<Reverse<Entry<T>>>,
    arrivals: u64,
}

impl<T> Heap<T> {
    fn new() -> Self {
        Self {
            entries: BinaryHeap::new(),
            arrivals: 0,
        }
    }

    fn push(&mut self, key: u64, task: T) {
        self.arrivals += 1;
        self.entries.push(Reverse(Entry {
            place: (key.min(EMPTY - 1), self.arrivals),
            task,
        }));
    }

    fn head(&self) -> u64 {
        self.entries
            .peek()
            .map_or(EMPTY, |Reverse(entry)| entry.place.0)
    }

    fn pop(&mut self) -> Option<(u64, T)> {
        self.entries
            .pop()
            .map(|Reverse(entry)| (entry.place.0, entry.task))
    }
}

/// Runs the task with the smallest key first; `R` gives a task its key when it becomes ready. Tasks
/// that may move wait in one heap that all workers share, behind a lock.
pub struct Ranked<T, R> {
    rank: R,
    /// There is one worker.
    sole: bool,
    /// Copy of the shared heap's head, stored before its lock is released.
    head: CachePadded<AtomicU64>,
    heap: Mutex<Heap<T>>,
}

/// A worker's half of [`Ranked`].
pub struct RankedLocal<T> {
    pinned: Pinned<Heap<T>>,
}

impl<T: Task, R: Rank<T>> Ranked<T, R> {
    fn lock(&self) -> MutexGuard<'_, Heap<T>> {
        self.heap.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn pop_shared(&self) -> Option<(u64, T)> {
        if self.head.load(Acquire) == EMPTY {
            return None;
        }
        let mut heap = self.lock();
        let found = heap.pop();
        self.head.store(heap.head(), Release);
        found
    }
}

impl<T: Task + 'static, R: Rank<T>> Policy<T> for Ranked<T, R> {
    type Params = R::Params;
    type Local = RankedLocal<T>;

    const SPARES: bool = true;
    const DIRECT: DirectSwitch = DirectSwitch::Waits;

    fn new(params: R::Params, topology: &Topology) -> Self {
        let head = CachePadded::new(AtomicU64::new(EMPTY));
        Self {
            rank: R::new(params),
            sole: topology.is_sole(),
            head,
            heap: Mutex::new(Heap::new()),
        }
    }

    fn attach(&self, _: WorkerId) -> RankedLocal<T> {
        RankedLocal {
            pinned: Pinned::new(Heap::new(), self.sole),
        }
    }

    fn push(&self, cx: &mut Cx, local: Option<&mut RankedLocal<T>>, task: T, why: Ready) -> Wake {
        let key = self.rank.key(cx.now(), &task);
        let mut wake = Wake::Any;
        if let Some(local) = local {
            if local.pinned.keeps(&task) {
                local.pinned.tasks.push(key, task);
                return Wake::None;
            }

            wake =
                why.wake(|| local.pinned.tasks.head() == EMPTY && self.head.load(Acquire) == EMPTY);
        }

        let mut heap = self.lock();
        heap.push(key, task);
        self.head.store(heap.head(), Release);
        wake
    }

    fn pop(&self, _: &mut Cx, local: &mut RankedLocal<T>, _: Effort) -> Option<T> {
        let pinned_first = local.pinned.go_first();
        let pinned = local.pinned.tasks.head();
        let shared = self.head.load(Acquire);
        let first = if shared < pinned || (shared == pinned && !pinned_first) {
            self.pop_shared()
        } else {
            None
        };

        let (key, task) = first
            .or_else(|| local.pinned.tasks.pop())
            .or_else(|| self.pop_shared())?;
        self.rank.runs(key, &task);
        Some(task)
    }

    /// Where it was popped: a pop counts.
    fn place(&self, _: &mut Cx, _: &impl Task, _: &impl Load) -> Option<WorkerId> {
        None
    }

    fn maybe_ready(&self, _: WorkerId) -> bool {
        self.head.load(Acquire) != EMPTY
    }

    fn pop_spare(&self, _: &mut Cx) -> Option<T> {
        let (key, task) = self.pop_shared()?;
        self.rank.runs(key, &task);
        Some(task)
    }

    fn maybe_ready_spare(&self) -> bool {
        self.head.load(Acquire) != EMPTY
    }

    fn drain(&self, mut local: RankedLocal<T>, sink: &mut dyn FnMut(T)) {
        std::iter::from_fn(|| local.pinned.tasks.pop()).for_each(|(_, task)| sink(task));
        std::iter::from_fn(|| self.pop_shared()).for_each(|(_, task)| sink(task));
    }
}
