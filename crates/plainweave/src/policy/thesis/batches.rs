//! First in, first out, as [`Ring`], but a worker shows its tasks to thieves in batches: what a
//! fiber pushes waits in plain memory first.
//!
//! A thief that looks at a worker, or steals from it, takes the cache line that this worker's next
//! push writes. Where one fiber spawns for a hundred workers, most of a push is waiting for that
//! line. So here pushes do not touch it, but for one in [`StealingParams::publish`], which shows
//! all tasks that have come since.
//!
//! **When.** Since the worker last took a task, the first push shows its task at once, and so does
//! the second; then the 4th, the 8th, the 16th and so on show what has come since, and so does each
//! that makes a full batch. So of `n` tasks that a fiber has pushed, fewer than half are hidden,
//! and fewer than a batch, unless the ring is full. Nobody is woken for a task that is hidden.
//!
//! **Pop.** The oldest that thieves may take as well. Once these are gone, what was hidden is
//! shown: if thieves have taken them, there are thieves that want more. If there is no room,
//! because a thief still copies, the owner takes the oldest hidden task itself: nobody else would,
//! so a worker must not sleep while it hides one. (The simulator found the version that did, with
//! 256 workers.)
//!
//! For it: pushes in a row cost one transfer of the line and one wake-up a batch, however many
//! workers look for tasks. Against it: what is hidden waits for this one worker. If its fiber
//! computes on, or is held up by the kernel, other workers sleep beside up to a batch of tasks, and
//! spare workers cannot help.
//!
//! **Sources.** J. Dinan et al., Scalable work stealing, SC 2009: queues with a private and a
//! public part, between which the owner moves tasks. U. Acar, A. Charguéraud and M. Rainey,
//! Scheduling parallel programs by work stealing with private deques, PPoPP 2013: all is private,
//! and idle workers ask for it. Here they need not ask, because a batch is bounded.

use std::collections::VecDeque;

use super::fifo::{Ring, RingStealer};
use super::order::Order;
use super::overflow::SharedQueue;
use super::params::StealingParams;
use super::stealing::Stealing;
use crate::policy::{Cx, Ready, Task, Wake};

/// FIFO work stealing whose workers show their tasks to thieves in batches.
pub type InBatches<T> = Stealing<T, Batches<T>>;

/// A [`Ring`], and what thieves do not see yet, which is newer.
pub struct Batches<T> {
    shown: Ring<T>,
    hidden: VecDeque<T>,
    /// The most that may be hidden.
    batch: usize,
    /// Pushes since the last pop.
    pushes: usize,
}

impl<T: Task + 'static> Batches<T> {
    /// Shows what is hidden, as far as there is room.
    fn show(&mut self) {
        self.shown.ring.push_all(&mut self.hidden);
    }
}

impl<T: Task + 'static> Order<T> for Batches<T> {
    type Stealer = RingStealer<T>;

    fn new(params: &StealingParams, sole: bool) -> Self {
        Self {
            shown: Ring::new(params, sole),
            hidden: VecDeque::new(),
            batch: params.publish,
            pushes: 0,
        }
    }

    fn stealer(&self) -> RingStealer<T> {
        self.shown.stealer()
    }

    #[inline(always)]
    fn push(&mut self, task: T, why: Ready) -> Result<Wake, T> {
        if self.shown.pinned.keeps(&task) {
            return self.shown.push(task, why);
        }
        if self.hidden.len() == self.batch {
            self.show();
            if self.hidden.len() == self.batch {
                return Err(task);
            }
        }
        self.hidden.push_back(task);
        self.pushes += 1;
        if !self.pushes.is_power_of_two() && self.hidden.len() < self.batch {
            return Ok(Wake::None);
        }
        self.show();
        Ok(Wake::Any)
    }

    #[inline(always)]
    fn pop(&mut self, cx: &mut Cx) -> Option<T> {
        self.pushes = 0;
        if !self.hidden.is_empty() && self.shown.ring.is_empty() {
            self.show();
        }
        // A thief may have emptied the ring by now, or hold all places of it. What is hidden has no
        // other worker.
        self.shown.pop(cx).or_else(|| self.hidden.pop_front())
    }

    fn is_empty(&self) -> bool {
        self.hidden.is_empty() && self.shown.is_empty()
    }

    fn spill(&mut self, shared: &SharedQueue<T>, with: T, cx: &mut Cx) {
        self.shown.spill(shared, with, cx);
    }

    fn refill(&mut self, shared: &SharedQueue<T>, cx: &mut Cx, most: usize) -> Option<T> {
        self.shown.refill(shared, cx, most)
    }

    fn steal(
        &mut self,
        victim: &RingStealer<T>,
        wanted: impl Fn(usize) -> usize,
    ) -> Option<(T, usize)> {
        self.shown.steal(victim, wanted)
    }

    fn has_tasks(victim: &RingStealer<T>) -> bool {
        Ring::has_tasks(victim)
    }

    fn drain(mut self, sink: &mut dyn FnMut(T)) {
        self.hidden.drain(..).for_each(&mut *sink);
        self.shown.drain(sink);
    }
}
