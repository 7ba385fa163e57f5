//! A bounded queue from one thread to one other: one pushes, one pops, first in, first out; both wait-free.
//!
//! **Why it is hard.** It is not; but it is easily slow. Each side must know how far the other has come, and if it
//! looks each time, two cache lines travel to and fro with each task. So each side keeps a copy of the other's
//! position and looks again only when, by the copy, the queue is full or empty. A push and a pop then touch no line of
//! the other's but the slot, as long as the two are some tasks apart.
//!
//! **The protocol.** Positions count modulo 2^64; position `p` lives in slot `p mod capacity`.
//! 1. *Push* (producer): if `tail - head` by the copy of `head` is the capacity, load `head` (Acquire) into the copy;
//!    if it still is, it is full. Write slot `tail`; store `tail + 1` (Release).
//! 2. *Pop* (consumer): if `head` is the copy of `tail`, load `tail` (Acquire) into the copy; if it still is, it is
//!    empty. Read slot `head`; store `head + 1` (Release).
//!
//! **Why it is safe.** A position is only ever behind the truth in the other's copy: the producer sees fewer free slots
//! than there are, the consumer fewer tasks. Step 1's Release and step 2's Acquire order a slot's write before its
//! read, step 2's Release and step 1's Acquire its read before the next write.
//!
//! **Sources.** L. Lamport, Specifying concurrent program modules, 1983; the copies: P. Lee, T. Bu and G.
//! Chandranmenon, A lock-free, cache-efficient shared ring buffer for multi-core architectures, 2009.
//!
//! **Used for** what joins two threads that do not change. No policy has such a pair: fibers come to a worker from
//! anywhere. It is here for programs and experiments, and to show what the other queues pay for being shared.

#[cfg(all(test, loom))]
mod models;

use std::fmt;
use std::mem::MaybeUninit;

use crossbeam_utils::CachePadded;

use crate::shim::atomic::AtomicU64;
use crate::shim::atomic::Ordering::{Acquire, Relaxed, Release};
use crate::shim::{Arc, UnsafeCell};

struct Channel<T> {
    head: CachePadded<AtomicU64>,
    tail: CachePadded<AtomicU64>,
    slots: Box<[UnsafeCell<MaybeUninit<T>>]>,
}

// SAFETY: a slot within `[head, tail)` is the consumer's, any other the producer's, and the two positions are stored
// and loaded with Release and Acquire; so tasks cross threads (Send) and are never shared.
unsafe impl<T: Send> Sync for Channel<T> {}
// SAFETY: as above.
unsafe impl<T: Send> Send for Channel<T> {}

impl<T> Channel<T> {
    fn slot(&self, position: u64) -> &UnsafeCell<MaybeUninit<T>> {
        &self.slots[position as usize & (self.slots.len() - 1)]
    }
}

impl<T> Drop for Channel<T> {
    fn drop(&mut self) {
        let (head, tail) = (self.head.load(Relaxed), self.tail.load(Relaxed));
        for i in 0..tail.wrapping_sub(head) {
            // SAFETY: `&mut self`: both halves are gone; each queued position is taken once.
            drop(self.slot(head.wrapping_add(i)).with(|slot| unsafe { (*slot).assume_init_read() }));
        }
    }
}

/// The half that pushes.
pub struct Producer<T> {
    channel: Arc<Channel<T>>,
    tail: u64,
    /// Copy of the consumer's position.
    head: u64,
}

/// The half that pops.
pub struct Consumer<T> {
    channel: Arc<Channel<T>>,
    head: u64,
    /// Copy of the producer's position.
    tail: u64,
}

/// Both halves of a queue for `capacity` tasks.
///
/// # Panics
/// If `capacity` is not a power of two.
#[must_use]
pub fn spsc<T: Send>(capacity: usize) -> (Producer<T>, Consumer<T>) {
    spsc_at(capacity, 0)
}

/// [`spsc`] with a first position, so that tests cross the wrap.
pub(super) fn spsc_at<T: Send>(capacity: usize, first: u64) -> (Producer<T>, Consumer<T>) {
    assert!(capacity.is_power_of_two(), "queue capacity {capacity}: not a power of two");
    let position = || CachePadded::new(AtomicU64::new(first));
    let slots = (0..capacity).map(|_| UnsafeCell::new(MaybeUninit::uninit())).collect();
    let channel = Arc::new(Channel { head: position(), tail: position(), slots });
    (Producer { channel: channel.clone(), tail: first, head: first }, Consumer { channel, head: first, tail: first })
}

impl<T: Send> Producer<T> {
    /// The producer. Queues `task`, or hands it back when every slot is full.
    ///
    /// # Errors
    /// The task, if there is no room.
    #[inline]
    pub fn push(&mut self, task: T) -> Result<(), T> {
        let capacity = self.channel.slots.len() as u64;
        if self.tail.wrapping_sub(self.head) == capacity {
            self.head = self.channel.head.load(Acquire);
            if self.tail.wrapping_sub(self.head) == capacity {
                return Err(task);
            }
        }
        // SAFETY: the slot at `tail` is outside `[head, tail)`, so the producer's; it holds nothing that needs
        // dropping.
        self.channel.slot(self.tail).with_mut(|slot| unsafe { (*slot).write(task) });
        self.tail = self.tail.wrapping_add(1);
        self.channel.tail.store(self.tail, Release);
        Ok(())
    }
}

impl<T: Send> Consumer<T> {
    /// The consumer. Takes the oldest task.
    #[inline]
    pub fn pop(&mut self) -> Option<T> {
        if self.head == self.tail {
            self.tail = self.channel.tail.load(Acquire);
            if self.head == self.tail {
                return None;
            }
        }
        // SAFETY: the slot at `head` is within `[head, tail)`, so the consumer's, and filled; it is taken once.
        let task = self.channel.slot(self.head).with(|slot| unsafe { (*slot).assume_init_read() });
        self.head = self.head.wrapping_add(1);
        self.channel.head.store(self.head, Release);
        Some(task)
    }

    /// The consumer. Whether nothing is queued; never true while something is whose push happened before this look.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.head == self.tail && self.channel.tail.load(Acquire) == self.head
    }
}

impl<T> fmt::Debug for Producer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Producer").field("capacity", &self.channel.slots.len()).finish_non_exhaustive()
    }
}

impl<T> fmt::Debug for Consumer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Consumer").field("capacity", &self.channel.slots.len()).finish_non_exhaustive()
    }
}
