//! A shared queue behind a lock: FIFO, any thread puts, any thread takes. What full rings spill lands here.
//!
//! A `Mutex<VecDeque>` with an atomic copy of its length. A lock-free MPMC queue was not chosen: tasks come here in
//! batches (half a ring at a time) and leave in batches, so the lock is taken once per batch; and what idle workers do
//! all the time, looking whether there is anything, reads one word and no lock.
//!
//! **Protocol.** Every change happens under the lock; unlocking first stores the new length (Release), also when the
//! caller's iterator panics. A look loads it (Acquire). So a length of 0 is never read after (happens-before) a push
//! whose task is still queued; a look during a push may miss it, and the pusher's wake-up, which comes after, does not.
//!
//! **Bound.** None here: it holds fibers, each at most once, and their number is the runtime's bound. Its memory, one
//! pointer a task, stays at its high-water mark. The rule that shared queues are polled on a schedule, not only when
//! idle, is the policy's.

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
    /// Copy of the queue's length, on a line of its own: looks do not disturb the lock.
    len: CachePadded<AtomicUsize>,
    queue: Mutex<VecDeque<T>>,
}

/// The locked queue; publishes its length when it goes.
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
    /// An empty queue.
    #[must_use]
    pub fn new() -> Self {
        Self { len: CachePadded::new(AtomicUsize::new(0)), queue: Mutex::new(VecDeque::new()) }
    }

    /// Any thread. Tasks queued, as a hint; see the essay for what 0 means.
    #[inline]
    pub fn len(&self) -> usize {
        self.len.load(Acquire)
    }

    /// Any thread: one load. See [`len`](Self::len).
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Any thread. Queues `task` as the newest.
    pub fn push(&self, task: T) {
        self.lock().push_back(task);
    }

    /// Any thread. Queues `tasks` in their order and next to each other, under one lock (so the iterator must not
    /// come back here). If the iterator panics, what it gave before is queued.
    pub fn push_all(&self, tasks: impl IntoIterator<Item = T>) {
        self.lock().extend(tasks);
    }

    /// Any thread. Takes the oldest task; when there is none, without the lock.
    pub fn pop(&self) -> Option<T> {
        if self.is_empty() { None } else { self.lock().pop_front() }
    }

    /// A worker, for its own ring. Takes up to `max` of the oldest tasks, as many as the ring has room for (plus one):
    /// the oldest is returned, to be run at once, the others are pushed in order. `max` of 0 takes nothing.
    pub fn pop_batch_into(&self, ring: &mut Owner<T>, max: usize) -> Option<T> {
        if max == 0 || self.is_empty() {
            return None;
        }
        let mut queue = self.lock();
        let oldest = queue.pop_front()?;
        let n = (max - 1).min(ring.free()).min(queue.len());
        for task in queue.drain(..n) {
            // `free` counts pushes that are sure to succeed, and only this owner uses them up.
            let pushed = ring.push(task);
            assert!(pushed.is_ok(), "a ring's free slot was taken by somebody else");
        }
        Some(oldest)
    }

    fn lock(&self) -> Locked<'_, T> {
        // A panic under the lock leaves a whole queue (see `push_all`), so poison means nothing.
        let queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        Locked { len: &self.len, queue }
    }
}
