//! First in, first out: each worker runs its tasks in the order in which they became ready and
//! steals the oldest of another's when it has none. The base case of the OCaml schedulers' thesis,
//! and of most runtimes. (With the default parameters [`WorkStealing`](crate::policy::WorkStealing)
//! does the same in one file.)
//!
//! For it: bounded waiting (a task waits for at most all that were ready before it), good latency
//! at the tail. Against it: a task that was just woken finds its data cold.
//!
//! The lane that thieves reach is `queue/ring`: an owner's push writes no shared word but its own,
//! a pop is one uncontended exchange, a thief takes a batch.

use std::collections::VecDeque;

use super::order::Order;
use super::overflow::SharedQueue;
use super::params::StealingParams;
use super::stealing::Stealing;
use crate::policy::{Cx, Pinned, Ready, Task, Wake};
use crate::queue::ring::{Owner, Stealer, ring};

/// Work stealing, first in, first out: a worker runs its tasks in the order in which they became
/// ready, and steals the oldest of another's when it has none.
pub type Fifo<T> = Stealing<T, Ring<T>>;

/// A bounded ring and a plain lane, both first in, first out.
pub struct Ring<T> {
    pub(super) pinned: Pinned<VecDeque<T>>,
    pub(super) ring: Owner<T>,
}

/// What thieves hold of a [`Ring`].
pub struct RingStealer<T>(Stealer<T>);

impl<T: Task + 'static> Order<T> for Ring<T> {
    type Stealer = RingStealer<T>;

    fn new(params: &StealingParams, sole: bool) -> Self {
        let capacity = if sole {
            1
        } else {
            params.capacity.next_power_of_two()
        };

        Self {
            pinned: Pinned::fifo(sole),
            ring: ring(capacity),
        }
    }

    fn stealer(&self) -> RingStealer<T> {
        RingStealer(self.ring.stealer())
    }

    #[inline(always)]
    fn push(&mut self, task: T, _: Ready) -> Result<Wake, T> {
        match self.pinned.push(task) {
            Ok(()) => Ok(Wake::None),
            Err(task) => self.ring.push(task).map(|()| Wake::Any),
        }
    }

    #[inline(always)]
    fn pop(&mut self, _: &mut Cx) -> Option<T> {
        if self.ring.is_empty() {
            return self.pinned.pop();
        }
        self.pinned.alternate(|| self.ring.pop())
    }

    #[inline(always)]
    fn is_empty(&self) -> bool {
        self.pinned.is_empty() && self.ring.is_empty()
    }

    fn spill(&mut self, shared: &SharedQueue<T>, with: T, cx: &mut Cx) {
        shared.push_all(cx, self.ring.take_half().chain([with]));
    }

    fn refill(&mut self, shared: &SharedQueue<T>, cx: &mut Cx, most: usize) -> Option<T> {
        let most = most.min(self.ring.capacity().div_ceil(2));
        shared.pop_batch_into(cx, &mut self.ring, most)
    }

    fn steal(
        &mut self,
        victim: &RingStealer<T>,
        wanted: impl Fn(usize) -> usize,
    ) -> Option<(T, usize)> {
        victim.0.steal_batch_into(&mut self.ring, wanted)
    }

    fn has_tasks(victim: &RingStealer<T>) -> bool {
        !victim.0.is_empty()
    }

    fn drain(mut self, sink: &mut dyn FnMut(T)) {
        self.pinned.tasks.drain(..).for_each(&mut *sink);
        std::iter::from_fn(|| self.ring.pop()).for_each(sink);
    }
}
