//! A bounded queue for all threads: any thread pushes, any thread pops, first in, first out.
//!
//! **Why it is hard.** If pushes claim their place by a compare-and-swap, of many at the same time
//! all but one fail and retry, each time on the same cache line. A fetch-and-add never fails; but
//! it claims a place before it is known whether there is one: a pop may hold a place that no push
//! will fill, a push one that no pop will empty.
//!
//! **The words.** `tail` and `head` hand out tickets, counted modulo 2^64, to pushes and to pops.
//! Ticket `t` belongs to slot `t mod capacity`. Each slot has a `turn`:
//!
//! ```text
//!   2t      the slot is free for the push with ticket t
//!   2t + 1  it holds the task of ticket t
//!   2(t + capacity)  free again: the first state of the next lap
//! ```
//!
//! **The protocol.**
//! 1. *Look* (pop): if the turn of slot `head` shows that it is filled, go on. Else load `tail`
//!    (Acquire), then `head`; if no ticket of a push is left, the queue is empty: nothing was
//!    written. *Look* (push): the same for free and full. So while pushes and pops are some slots
//!    apart, neither touches the other's tickets.
//! 2. *Ticket*: `fetch_add` (AcqRel) on `tail` or `head`.
//! 3. *Wait for the turn* (Acquire): usually it has come already. A push writes the slot and sets
//!    `2t + 1` (Release), a pop moves the task out and sets `2(t + capacity)` (Release).
//! 4. *Roll back* instead, while the turn has not come and the look of step 1 now finds empty (or
//!    full): CAS `head` (or `tail`) from `t + 1` to `t`. That succeeds only for the holder of the
//!    newest ticket; the others wait for their turn or for their ticket to become the newest.
//! 5. *Look again* (a pop that has rolled back): a `fetch_add` of 0 on `tail` (AcqRel). If a push
//!    has taken ticket `t` meanwhile, begin again.
//!
//! **Why it is safe.**
//! * *One slot, two threads:* tickets are unique. A ticket that was rolled back belongs to nobody,
//!   because its holder had the newest; its next holder gets the same turn. So the turn names one
//!   push or one pop, and only that one moves the turn on. No ABA: a roll-back compares with "my
//!   ticket is the newest", which is just what it needs.
//! * *Write before read, read before the next write:* the two Releases of step 3, with its
//!   Acquires.
//! * *No thread waits for ever:* of those that wait on an empty queue the newest ticket rolls back,
//!   then the next. A pop whose ticket a push also has waits for that push only.
//! * *No task is overlooked.* A look that sees `head` past a task's ticket is right: a pop holds
//!   that ticket. Should that pop roll back, it did not know of the push. Either step 5 finds the
//!   push's ticket; or step 5 comes first in the order of `tail`, so it (and the roll-back)
//!   happened before the push, and a look that sees the push, by the Acquire of step 1, sees the
//!   roll-back too. So `is_empty` never returns true while the queue holds a task that was pushed
//!   before the look and that no pop is about to return.
//!
//! **Limits.** Not lock-free in the strict sense: a push that the kernel preempts between its
//! ticket and its turn delays the one pop with the same ticket (and, one lap later, a push).
//! Waiting threads yield their processor after some turns. The alternative that never waits (LCRQ)
//! needs a double-width CAS and memory reclamation.
//!
//! **Sources.** Indices by fetch-and-add and the roll-back on empty: the MPMC queue of the OCaml
//! schedulers' thesis (and of its library), where a CAS on the slot decides which push fills it, in
//! any order. Turns: D. Vyukov's bounded MPMC queue, where a CAS claims the place. In the
//! combination each place has one owner, order is exact and a store completes a slot.
//!
//! **Rejected.** *Positions of 32 bits in one word:* no benefit, since head and tail belong on
//! separate cache lines. *A batch by one fetch-and-add:* its roll-back would have to give back part
//! of a range; batches go to the [injector](super::shared::Injector).

#![expect(unsafe_code, reason = "slots that one ticket at a time owns")]

#[cfg(all(test, loom))]
mod models;

use std::fmt;
use std::mem::MaybeUninit;

use crossbeam_utils::CachePadded;

use crate::shim::atomic::AtomicU64;
use crate::shim::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use crate::shim::{UnsafeCell, relax};

struct Slot<T> {
    turn: AtomicU64,
    task: UnsafeCell<MaybeUninit<T>>,
}

/// A bounded MPMC FIFO queue: any thread pushes and pops through `&Mpmc`.
///
/// ```
/// let queue = plainweave::queue::mpmc::Mpmc::new(2);
/// assert!(queue.push(1).is_ok() && queue.push(2).is_ok());
/// assert_eq!((queue.push(3), queue.pop()), (Err(3), Some(1)));
/// ```
pub struct Mpmc<T> {
    head: CachePadded<AtomicU64>,
    tail: CachePadded<AtomicU64>,
    slots: Box<[Slot<T>]>,
}

// SAFETY: a slot is reached by the one holder of the ticket whose turn it is, with a happens-before
// edge from one to the next; so tasks cross threads (Send) and are never shared.
unsafe impl<T: Send> Sync for Mpmc<T> {}
// SAFETY: as above.
unsafe impl<T: Send> Send for Mpmc<T> {}

/// Returns how far `to` is ahead of `from`; tickets in use are never half the circle apart.
fn ahead(to: u64, from: u64) -> i64 {
    to.wrapping_sub(from).cast_signed()
}

impl<T: Send> Mpmc<T> {
    /// Creates an empty queue for `capacity` tasks.
    ///
    /// # Panics
    /// If `capacity` is not a power of two.
    #[must_use]
    pub fn new(capacity: usize) -> Self {
        Self::starting_at(capacity, 0)
    }

    /// Creates a queue like [`new`](Self::new) with a first ticket, a multiple of the capacity, so
    /// that tests cross the wrap.
    pub(super) fn starting_at(capacity: usize, first: u64) -> Self {
        assert!(
            capacity.is_power_of_two(),
            "queue capacity {capacity}: not a power of two"
        );
        let turns = (0..capacity as u64).map(|i| first.wrapping_add(i).wrapping_mul(2));
        let slot = |turn| Slot {
            turn: AtomicU64::new(turn),
            task: UnsafeCell::new(MaybeUninit::uninit()),
        };

        Self {
            head: CachePadded::new(AtomicU64::new(first)),
            tail: CachePadded::new(AtomicU64::new(first)),
            slots: turns.map(slot).collect(),
        }
    }

    /// Appends `task` as the newest, or returns it when every slot is full or being emptied.
    ///
    /// # Errors
    /// Returns the task if there is no room.
    #[inline]
    pub fn push(&self, task: T) -> Result<(), T> {
        let next = self.tail.load(Relaxed);
        if self.slot(next).turn.load(Relaxed) != next.wrapping_mul(2) && self.is_full_at(next) {
            return Err(task);
        }
        let ticket = self.tail.fetch_add(1, AcqRel);
        let slot = self.slot(ticket);
        let free = ticket.wrapping_mul(2);
        let mut spins = 0;
        while slot.turn.load(Acquire) != free {
            if self.is_full_at(ticket) && roll_back(&self.tail, ticket) {
                return Err(task);
            }
            relax(spins);
            spins += 1;
        }
        // SAFETY: it is this ticket's turn, and this push has the ticket; the slot holds nothing
        // that needs dropping.
        slot.task.with_mut(|place| unsafe { (*place).write(task) });
        slot.turn.store(free.wrapping_add(1), Release);
        Ok(())
    }

    /// Takes the oldest task. `None`: at some time during the call every task in the queue was
    /// about to be returned by another pop.
    #[inline]
    pub fn pop(&self) -> Option<T> {
        loop {
            let next = self.head.load(Relaxed);
            if self.slot(next).turn.load(Relaxed) != next.wrapping_mul(2).wrapping_add(1)
                && self.is_empty()
            {
                return None;
            }

            let ticket = self.head.fetch_add(1, AcqRel);
            match self.pop_at(ticket) {
                Some(task) => return Some(task),
                // Step 5.
                None if ahead(self.tail.fetch_add(0, AcqRel), ticket) <= 0 => return None,
                None => {}
            }
        }
    }

    /// Returns the task of `ticket`, or `None` once the ticket is rolled back.
    #[inline]
    fn pop_at(&self, ticket: u64) -> Option<T> {
        let slot = self.slot(ticket);
        let filled = ticket.wrapping_mul(2).wrapping_add(1);
        let mut spins = 0;

        while slot.turn.load(Acquire) != filled {
            if ahead(self.tail.load(Acquire), ticket) <= 0 && roll_back(&self.head, ticket) {
                return None;
            }
            relax(spins);
            spins += 1;
        }

        // SAFETY: it is this ticket's turn, and this pop has the ticket; the push of this ticket
        // has filled the slot.
        let task = slot
            .task
            .with(|place| unsafe { (*place).assume_init_read() });
        slot.turn.store(
            ticket.wrapping_add(self.slots.len() as u64).wrapping_mul(2),
            Release,
        );
        Some(task)
    }

    /// Returns the number of queued tasks, as a hint. Never 0 while a task is queued whose push
    /// happened before this look, unless a pop is about to return it.
    #[inline]
    pub fn len(&self) -> usize {
        // Tail first: see the essay.
        let tail = self.tail.load(Acquire);
        ahead(tail, self.head.load(Acquire)).clamp(0, self.slots.len() as i64) as usize
    }

    /// Returns whether [`len`](Self::len) is 0.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the number of tasks that fit.
    pub fn capacity(&self) -> usize {
        self.slots.len()
    }

    fn is_full_at(&self, ticket: u64) -> bool {
        ahead(ticket, self.head.load(Acquire)) >= self.slots.len() as i64
    }

    fn slot(&self, ticket: u64) -> &Slot<T> {
        &self.slots[ticket as usize & (self.slots.len() - 1)]
    }
}

/// Performs protocol step 4.
#[cold]
fn roll_back(tickets: &AtomicU64, ticket: u64) -> bool {
    tickets
        .compare_exchange(ticket.wrapping_add(1), ticket, AcqRel, Relaxed)
        .is_ok()
}

impl<T> Drop for Mpmc<T> {
    fn drop(&mut self) {
        let head = self.head.load(Relaxed);
        let tail = self.tail.load(Relaxed);
        for i in 0..tail.wrapping_sub(head) {
            let slot = &self.slots[head.wrapping_add(i) as usize & (self.slots.len() - 1)];
            // SAFETY: `&mut self`: no call is under way, so each ticket between the two has filled
            // its slot.
            drop(
                slot.task
                    .with(|place| unsafe { (*place).assume_init_read() }),
            );
        }
    }
}

impl<T: Send> fmt::Debug for Mpmc<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mpmc")
            .field("len", &self.len())
            .field("capacity", &self.capacity())
            .finish()
    }
}
