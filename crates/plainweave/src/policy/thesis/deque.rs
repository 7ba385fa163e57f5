//! Orders that take from both ends: LIFO, stochastic, alternate, reverse (and FIFO that grows, to
//! either side, or whose yields swap), as in the OCaml schedulers' thesis.
//!
//! LIFO runs what was pushed last, while its data is warm: depth first, few tasks alive. Against
//! it: what was pushed first may wait for ever. The orders between bound that wait (alternate,
//! reverse) or make it unlikely (stochastic). Tasks that yield are kept apart, first in, first out,
//! or LIFO would run them again before anything else: those that may move in a ring that thieves
//! reach.
//!
//! A worker without thieves has plain lanes and touches nothing atomic.

use super::movable::{Movable, MovableStealer};
use super::order::{Course, Ends, Lane, Order};
use super::overflow::SharedQueue;
use super::params::StealingParams;
use super::stealing::Stealing;
use crate::policy::{Cx, Pinned, Ready, Task, Wake};
use crate::queue::ring::{DEFAULT_CAPACITY, Owner, Stealer, ring};

/// Work stealing where [`Ends`](super::Ends) says from which end of its queue a worker takes: LIFO,
/// stochastic, alternate, reverse, or FIFO that grows or whose yields swap.
pub type Ordered<T> = Stealing<T, Deque<T>>;

/// Two lanes with two ends each, and one for tasks that yielded.
pub struct Deque<T> {
    /// For each lane its own: else a rule that counts could meet one lane only.
    courses: [Course; 2],
    pinned: Pinned<Lane<T>>,
    own: Movable<T>,
    yielded: Owner<T>,
}

/// What thieves hold of a [`Deque`].
pub struct DequeStealer<T> {
    own: MovableStealer<T>,
    yielded: Stealer<T>,
}

impl<T: Task> Deque<T> {
    fn pop_pinned(&mut self, cx: &mut Cx) -> Option<T> {
        if self.pinned.tasks.len() == 0 {
            None
        } else {
            self.pinned.tasks.take(self.courses[0].next(cx))
        }
    }

    fn pop_own(&mut self, cx: &mut Cx) -> Option<T> {
        if self.own.len() == 0 {
            return None;
        }
        let next = self.courses[1].next(cx);
        self.own.pop(next)
    }
}

impl<T: Task + 'static> Order<T> for Deque<T> {
    type Stealer = DequeStealer<T>;

    fn new(params: &StealingParams, sole: bool) -> Self {
        let capacity = if sole {
            1
        } else {
            params.capacity.next_power_of_two()
        };

        Self {
            courses: [Course::new(params.ends), Course::new(params.ends)],
            pinned: Pinned::new(Lane::default(), sole),
            own: Movable::new(params, capacity),
            yielded: ring(if sole { 1 } else { DEFAULT_CAPACITY }),
        }
    }

    fn stealer(&self) -> DequeStealer<T> {
        DequeStealer {
            own: self.own.stealer(),
            yielded: self.yielded.stealer(),
        }
    }

    fn yields_apart(&self) -> bool {
        self.courses[0].ends() != Ends::Fifo
    }

    fn push_apart(&mut self, task: T) -> Result<Wake, T> {
        if self.pinned.keeps(&task) {
            return Err(task);
        }
        let wake = Ready::Yielded.wake(|| self.is_empty());
        self.yielded.push(task).map(|()| wake)
    }

    fn pop_apart(&mut self) -> Option<T> {
        if self.yielded.is_empty() {
            None
        } else {
            self.yielded.pop()
        }
    }

    fn push(&mut self, task: T, _: Ready) -> Result<Wake, T> {
        if self.pinned.keeps(&task) {
            self.pinned.tasks.push(task);
            return Ok(Wake::None);
        }
        self.own.push(task).map(|()| Wake::Any)
    }

    fn swap(&mut self, cx: &mut Cx, task: T) -> Result<Wake, T> {
        if self.pinned.keeps(&task) {
            self.pinned.tasks.swap(cx, task);
            return Ok(Wake::None);
        }
        let wake = Ready::Yielded.wake(|| self.is_empty());
        self.own.swap(cx, task).map(|()| wake)
    }

    fn pop(&mut self, cx: &mut Cx) -> Option<T> {
        if self.pinned.go_first() {
            self.pop_pinned(cx).or_else(|| self.pop_own(cx))
        } else {
            self.pop_own(cx).or_else(|| self.pop_pinned(cx))
        }
    }

    fn is_empty(&self) -> bool {
        self.pinned.tasks.len() == 0 && self.own.len() == 0 && self.yielded.is_empty()
    }

    fn spill(&mut self, shared: &SharedQueue<T>, with: T, cx: &mut Cx) {
        let mut batch = Vec::with_capacity(self.own.len().div_ceil(2) + 1);
        self.own.take_half(|task| batch.push(task));
        shared.push_all(cx, batch.into_iter().chain([with]));
    }

    fn refill(&mut self, shared: &SharedQueue<T>, cx: &mut Cx, most: usize) -> Option<T> {
        let first = shared.pop(cx)?;
        for _ in 1..most.min(self.own.room().saturating_add(1)) {
            let Some(task) = shared.pop(cx) else { break };
            if let Err(task) = self.own.push(task) {
                shared.push(cx, task);
                break;
            }
        }
        Some(first)
    }

    fn steal(
        &mut self,
        victim: &DequeStealer<T>,
        wanted: impl Fn(usize) -> usize,
    ) -> Option<(T, usize)> {
        let found = self.own.steal(&victim.own, &wanted);
        found.or_else(|| victim.yielded.steal_batch_into(&mut self.yielded, wanted))
    }

    fn has_tasks(victim: &DequeStealer<T>) -> bool {
        !victim.own.is_empty() || !victim.yielded.is_empty()
    }

    fn drain(mut self, sink: &mut dyn FnMut(T)) {
        std::iter::from_fn(|| self.pinned.tasks.oldest()).for_each(&mut *sink);
        std::iter::from_fn(|| self.yielded.pop()).for_each(&mut *sink);
        std::iter::from_fn(|| self.own.pop(super::order::Next::Oldest)).for_each(sink);
    }
}
