//! A worker's short messages: any thread pushes a pointer, the worker takes them in order. Bounded.
//!
//! [`inbox`](super::inbox) links its tasks to each other, so a push writes to the task, and that
//! memory has to move from the core that wrote there last. Here only the pointer travels, eight of
//! them in a cache line.
//!
//! **Why it is hard.** Pushers compete for a place and the reader has to know when a place is
//! filled, but each word that both sides touch moves back and forth between their cores. And a
//! reader that is about to sleep must not miss the push that sees it awake, though a fence for each
//! push would cost as much as the push.
//!
//! **The words.** Positions count up from 0, modulo 2^62. Position `t` belongs to slot `t mod
//! capacity`, one word:
//!
//! ```text
//!   4t + 1           free for position t
//!   4t + 3           free for position t, and the reader sleeps or is about to
//!   anything even    the pointer that was pushed
//! ```
//!
//! `tail` is the next position to fill; only pushers touch it. `head` is the reader's own.
//!
//! **The protocol.**
//! 1. *Push:* load `tail`; CAS (Release) its slot from *free for just this position* to the
//!    pointer; store the next position to `tail`. (Both Relaxed: `tail` says where to try; the slot
//!    decides.) If the CAS finds something else: when `tail` has moved meanwhile, retry; otherwise
//!    the queue is full, or seems so while another push is between its CAS and its store, and the
//!    caller uses another path.
//! 2. *Pop:* load the slot at `head` (Acquire). A pointer: store *free for the position a lap
//!    further* (Relaxed: it publishes nothing but the word itself).
//! 3. *Doze:* CAS (Relaxed) the slot at `head` from *free* to *free, and the reader sleeps*. If
//!    that fails, there is a message. *Rouse:* the same CAS in reverse; it may fail, because a push
//!    came first.
//! 4. A push whose CAS found *the reader sleeps* reports it: its caller wakes the reader. If that
//!    thread is preempted before it does, later messages wait with its own.
//!
//! **Why it is safe.**
//! * *One place, one push:* the word names the position, so a late push (its `tail` is long past)
//!   finds another word and changes nothing. No ABA: within a position the word goes from *free* to
//!   *asleep* and back, which are equally free; another position with the same word comes after
//!   2^62 (on 32 bits, after 2^30).
//! * *No holes:* a thread that reads `t + 1` from `tail` reads it from the push that has filled
//!   slot `t`. So positions are filled in order, and a reader that finds `head` free has missed
//!   nothing behind it.
//! * *No lost wake-up:* of doze and the push to that same slot one comes first. If it is doze, the
//!   push finds the mark, and every later push came after that one. If it is the push, doze fails
//!   (`loom_doze_against_push`). A caller that uses another path because the queue seems full wakes
//!   the reader by the rules of that path (`loom_full_goes_by_the_inbox`).
//! * Memory written before a push is visible after its pop: Release and Acquire on the slot. (The
//!   models read what their pushers wrote; without either of the two they fail.)
//!
//! **Rejected.** [`mpmc`](super::mpmc): two more read-modify-writes for each message, a slot of two
//! words, and a look at an empty queue reads the pushers' word, which costs as much as this queue
//! saves.

#[cfg(all(test, loom))]
mod models;

use std::cell::Cell;
use std::ptr::{self, NonNull};

use crossbeam_utils::CachePadded;

use crate::prefetch::prefetch_write;
use crate::shim::Arc;
use crate::shim::atomic::Ordering::{Acquire, Relaxed, Release};
use crate::shim::atomic::{AtomicPtr, AtomicUsize};

/// Slots in a cache line.
const LINE: usize = 8;

#[repr(align(64))]
struct Line<N>([AtomicPtr<N>; LINE]);

/// A bounded queue of pointers, shared by the pushers. The pointers are even, and are never
/// followed.
pub(crate) struct Mpsc<N> {
    tail: CachePadded<AtomicUsize>,
    lines: Box<[Line<N>]>,
    /// Slots, a power of two.
    capacity: usize,
}

/// The reader's end, for one thread at a time.
pub(crate) struct Reader<N> {
    queue: Arc<Mpsc<N>>,
    head: Cell<usize>,
}

/// The outcome of a push.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Push {
    /// Pushed; the reader will see it.
    Done,
    /// Pushed; the caller must wake the reader.
    Wake,
    /// Not pushed.
    Full,
}

/// Creates an empty queue for `capacity` pointers, a power of two.
pub(crate) fn mpsc<N>(capacity: usize) -> (Arc<Mpsc<N>>, Reader<N>) {
    mpsc_at(capacity, 0)
}

/// Creates the same with a first position, a multiple of the capacity, so that tests cross the
/// wrap.
fn mpsc_at<N>(capacity: usize, first: usize) -> (Arc<Mpsc<N>>, Reader<N>) {
    assert!(
        capacity.is_power_of_two(),
        "queue capacity {capacity}: not a power of two"
    );
    let slot =
        |line: usize| move |i: usize| AtomicPtr::new(free(first.wrapping_add(line * LINE + i)));
    let lines = (0..capacity.div_ceil(LINE))
        .map(|line| Line(std::array::from_fn(slot(line))))
        .collect();
    let queue = Arc::new(Mpsc {
        tail: CachePadded::new(AtomicUsize::new(first)),
        lines,
        capacity,
    });

    (
        queue.clone(),
        Reader {
            queue,
            head: Cell::new(first),
        },
    )
}

fn free<N>(position: usize) -> *mut N {
    ptr::without_provenance_mut((position << 2) | 1)
}

fn free_and_asleep<N>(position: usize) -> *mut N {
    ptr::without_provenance_mut((position << 2) | 3)
}

fn is_pointer<N>(word: *mut N) -> bool {
    word.addr() & 1 == 0
}

impl<N> Mpsc<N> {
    /// Pushes a message. Lock-free; allocates nothing.
    #[inline]
    pub(crate) fn push(&self, node: NonNull<N>) -> Push {
        debug_assert!(is_pointer(node.as_ptr()), "aligned to two at least");
        let mut position = self.tail.load(Relaxed);
        let mut expected = free(position);

        loop {
            match self
                .slot(position)
                .compare_exchange(expected, node.as_ptr(), Release, Relaxed)
            {
                Ok(found) => {
                    self.tail.store(position.wrapping_add(1), Relaxed);
                    // The reader has not touched that line since it emptied it, most of a lap ago.
                    prefetch_write(self.slot(position.wrapping_add(LINE)));
                    return if found == free_and_asleep(position) {
                        Push::Wake
                    } else {
                        Push::Done
                    };
                }
                Err(found) if found == free_and_asleep(position) && found != expected => {
                    expected = found
                }
                // Another push took it, or the reader has roused itself in between, or the queue is
                // full.
                Err(found) => {
                    let tail = self.tail.load(Relaxed);
                    if tail == position && found != free(position) {
                        return Push::Full;
                    }
                    position = tail;
                    expected = free(position);
                }
            }
        }
    }

    #[inline]
    fn slot(&self, position: usize) -> &AtomicPtr<N> {
        let index = position & (self.capacity - 1);
        &self.lines[index / LINE].0[index % LINE]
    }
}

impl<N> Reader<N> {
    /// Takes the oldest message.
    #[inline]
    pub(crate) fn pop(&self) -> Option<NonNull<N>> {
        let head = self.head.get();
        let slot = self.queue.slot(head);
        let word = slot.load(Acquire);
        if !is_pointer(word) {
            return None;
        }
        slot.store(free(head.wrapping_add(self.queue.capacity)), Relaxed);
        self.head.set(head.wrapping_add(1));
        NonNull::new(word)
    }

    /// Returns whether the queue is empty. Never true while it holds a pointer whose push happened
    /// before this look.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        !is_pointer(self.queue.slot(self.head.get()).load(Relaxed))
    }

    /// Marks the reader as asleep: from now on a push reports that it must be woken. Returns false
    /// if there is a message.
    #[must_use]
    pub(crate) fn doze(&self) -> bool {
        let head = self.head.get();
        self.queue
            .slot(head)
            .compare_exchange(free(head), free_and_asleep(head), Relaxed, Relaxed)
            .is_ok()
    }

    /// Marks the reader as awake.
    pub(crate) fn rouse(&self) {
        let head = self.head.get();
        let _ = self.queue.slot(head).compare_exchange(
            free_and_asleep(head),
            free(head),
            Relaxed,
            Relaxed,
        );
    }
}
