//! Lanes that tell how long their oldest task has waited: what MultiQueue and `helping` are made
//! of.
//!
//! Each lane is a FIFO under a lock of its own; each task in it carries the time of its push.
//! Beside the lanes, on lines of their own, stands what others look at: the oldest task's time and
//! an average of past waits. So a look disturbs no lock, and may be out of date. A lane's time is
//! stored before its lock is released: whoever looks after a push has happened sees that the lane
//! is not empty.
//!
//! Times come from the pushing worker's last reading of the clock ([`Cx::now`]), which is up to 64
//! switches old: lanes compare by some microseconds, not by single tasks.

use std::collections::VecDeque;
use std::sync::PoisonError;

use crossbeam_utils::CachePadded;

use super::{Cx, Nanos};
use crate::shim::atomic::AtomicU64;
use crate::shim::atomic::Ordering::{Acquire, Relaxed, Release};
use crate::shim::{Mutex, MutexGuard};

/// The time of an empty lane.
const EMPTY: u64 = u64::MAX;

type Queue<T> = VecDeque<(Nanos, T)>;

/// What others look at.
struct Face {
    /// When the oldest task came, or [`EMPTY`].
    oldest: AtomicU64,
    /// The average of past waits, in whatever unit the policy wants it.
    average: AtomicU64,
}

/// Lanes that any worker may push to and pop from.
pub(super) struct Stamped<T> {
    lanes: Box<[CachePadded<Mutex<Queue<T>>>]>,
    faces: Box<[CachePadded<Face>]>,
}

impl<T: Send> Stamped<T> {
    pub(super) fn new(lanes: usize) -> Self {
        let face = || {
            CachePadded::new(Face {
                oldest: AtomicU64::new(EMPTY),
                average: AtomicU64::new(0),
            })
        };

        let lane = || CachePadded::new(Mutex::new(Queue::new()));
        Self {
            lanes: (0..lanes).map(|_| lane()).collect(),
            faces: (0..lanes).map(|_| face()).collect(),
        }
    }

    pub(super) fn count(&self) -> usize {
        self.lanes.len()
    }

    /// Returns when the lane's oldest task came, or `None` if the lane looks empty.
    #[inline]
    pub(super) fn oldest(&self, lane: usize) -> Option<Nanos> {
        let time = self.faces[lane].oldest.load(Acquire);
        (time != EMPTY).then_some(time)
    }

    /// Returns whether a lane has a task that was pushed before this call.
    pub(super) fn has_tasks(&self) -> bool {
        (0..self.count()).any(|lane| self.oldest(lane).is_some())
    }

    /// Returns the lane's average of past waits, as [`Self::set_average`] stored it.
    pub(super) fn average(&self, lane: usize) -> u64 {
        self.faces[lane].average.load(Relaxed)
    }

    /// Adds a task to a lane, as its newest.
    pub(super) fn push(&self, cx: &Cx, lane: usize, task: T) {
        let now = cx.now().min(EMPTY - 1);
        let mut queue = self.lanes[lane]
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if queue.is_empty() {
            self.faces[lane].oldest.store(now, Release);
        }
        queue.push_back((now, task));
    }

    /// Takes a lane's oldest task, and returns when it came; waits for the lock.
    pub(super) fn pop(&self, lane: usize) -> Option<(Nanos, T)> {
        self.oldest(lane)?;
        self.take(
            lane,
            self.lanes[lane]
                .lock()
                .unwrap_or_else(PoisonError::into_inner),
        )
    }

    /// Does the same as [`Self::pop`], or returns `None` if another thread has the lock.
    pub(super) fn try_pop(&self, lane: usize) -> Option<(Nanos, T)> {
        self.oldest(lane)?;
        self.take(lane, self.lanes[lane].try_lock().ok()?)
    }

    fn take(&self, lane: usize, mut queue: MutexGuard<'_, Queue<T>>) -> Option<(Nanos, T)> {
        let first = queue.pop_front();
        let next = queue.front().map_or(EMPTY, |(time, _)| *time);
        self.faces[lane].oldest.store(next, Release);
        first
    }

    /// Whoever has just popped from the lane: averages get lost when two do so at once, which does
    /// no harm.
    pub(super) fn set_average(&self, lane: usize, average: u64) {
        self.faces[lane].average.store(average, Relaxed);
    }

    pub(super) fn drain(&self, sink: &mut dyn FnMut(T)) {
        (0..self.count())
            .flat_map(|lane| std::iter::from_fn(move || self.pop(lane)))
            .for_each(|(_, task)| sink(task));
    }
}
