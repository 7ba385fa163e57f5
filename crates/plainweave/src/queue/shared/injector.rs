//! A shared queue behind a lock: FIFO, any thread pushes, any thread pops. Full rings spill into
//! it.
//!
//! A `Mutex<VecDeque>` with an atomic copy of its length. A lock-free MPMC queue was not chosen:
//! tasks come here in batches (half a ring at a time) and leave in batches, so the lock is taken
//! once per batch; and checking for tasks, which idle workers do all the time, reads one word and
//! takes no lock.
//!
//! **Protocol.** Every change happens under the lock; unlocking first stores the new length
//! (Release), also when the caller's iterator panics. A look loads it (Acquire). So a length of 0
//! is never read after (happens-before) a push whose task is still queued; a look during a push may
//! miss it, and the pusher's wake-up, which comes after, does not.
//!
//! **Bound.** None here: it holds fibers, each at most once, and their number is the runtime's
//! bound. Its memory, one pointer per task, stays at its high-water mark. Polling shared queues on
//! a schedule, not only when idle, is the policy's job.

use std::collections::VecDeque;
use std::ops::{Deref, DerefMut};
use std::sync::PoisonError;

use crossbeam_utils::CachePadded;

use crate::queue::ring::Owner;
use crate::shim::atomic::AtomicUsize;
use crate::shim::atomic::Ordering::{Acquire, Release};
use crate::shim::{Mutex, MutexGuard};

/// An unbounded MPMC FIFO; `&Injector` is shared by all.
pub struct Injector<T> {
    /// A copy of the queue's length on its own cache line, so that looks do not disturb the lock.
    len: CachePadded<AtomicUsize>,
    queue: Mutex<VecDeque<T>>,
}

/// The locked queue; publishes its length when dropped.
struct Locked<'a, T> {
    len: &'a AtomicUsize,
    queue: MutexGuard<'a, VecDeque<T>>,
}

impl<T> Deref for Locked<'_, T> {
    type Target = VecDeque<T>;

    fn deref(&self) -> &VecDeque<T> {
        &self.queue
    }
}

impl<T> DerefMut for Locked<'_, T> {
    fn deref_mut(&mut self) -> &mut VecDeque<T> {
        &mut self.queue
    }
}

impl<T> Drop for Locked<'_, T> {
    fn drop(&mut self) {
        // Fields drop after this body: the lock is still held.
        self.len.store(self.queue.len(), Release);
    }
}

impl<T: Send> Default for Injector<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T: Send> Injector<T> {
    /// Creates an empty queue.
    #[must_use]
    pub fn new() -> Self {
        Self {
            len: CachePadded::new(AtomicUsize::new(0)),
            queue: Mutex::new(VecDeque::new()),
        }
    }

    /// Returns the number of queued tasks, as a hint. Never 0 while a task is queued whose push
    /// happened before this look.
    #[inline]
    pub fn len(&self) -> usize {
        self.len.load(Acquire)
    }

    /// Returns whether [`len`](Self::len) is 0; one load.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Appends `task` as the newest.
    pub fn push(&self, task: T) {
        self.lock().push_back(task);
    }

    /// Appends `tasks` in their order and next to each other, under one lock (so the iterator must
    /// not use this queue). If the iterator panics, the tasks it gave before are queued.
    pub fn push_all(&self, tasks: impl IntoIterator<Item = T>) {
        self.lock().extend(tasks);
    }

    /// Takes the oldest task; takes no lock when there is none.
    pub fn pop(&self) -> Option<T> {
        self.pop_after(|| None)
    }

    /// Takes the task that `first` gives, or else the oldest. `first` is called under the lock, and
    /// not at all when nothing is queued.
    pub(super) fn pop_after(&self, first: impl FnOnce() -> Option<T>) -> Option<T> {
        if self.is_empty() {
            return None;
        }
        let mut queue = self.lock();
        first().or_else(|| queue.pop_front())
    }

    /// Takes up to `max` of the oldest tasks, and at most as many as the caller's own ring has room
    /// for (plus one): the oldest is returned, to be run at once, the others are pushed to the ring
    /// in order. `max` of 0 takes nothing.
    pub fn pop_batch_into(&self, ring: &mut Owner<T>, max: usize) -> Option<T> {
        self.pop_batch_after(|| None, ring, max)
    }

    /// As [`pop_batch_into`](Self::pop_batch_into), but takes the task that `first` gives, if it
    /// gives one, and no other. `first` is called under the lock.
    pub(super) fn pop_batch_after(
        &self,
        first: impl FnOnce() -> Option<T>,
        ring: &mut Owner<T>,
        max: usize,
    ) -> Option<T> {
        if max == 0 || self.is_empty() {
            return None;
        }
        let mut queue = self.lock();
        if let Some(task) = first() {
            return Some(task);
        }
        let oldest = queue.pop_front()?;

        let n = (max - 1).min(ring.free()).min(queue.len());
        for task in queue.drain(..n) {
            // `free` counts pushes that are sure to succeed, and only this owner uses them up.
            let pushed = ring.push(task);
            assert!(
                pushed.is_ok(),
                "a ring's free slot was taken by somebody else"
            );
        }

        Some(oldest)
    }

    fn lock(&self) -> Locked<'_, T> {
        // A panic under the lock leaves a whole queue (see `push_all`), so poison means nothing.
        let queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        Locked {
            len: &self.len,
            queue,
        }
    }
}
