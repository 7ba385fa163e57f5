//! An order with a one-task slot before it for what became ready last, as Go's `runnext` and
//! Tokio's LIFO slot: a message and its receiver meet while the message is still in the cache.
//!
//! The published slots can starve: two tasks that wake each other keep it to themselves (Go bounds
//! that by its time slice, Tokio since 2023 by three in a row, the OCaml thesis not at all), and
//! nobody may steal from Tokio's or the thesis'. Here the slot wins at most
//! [`SlotParams::in_a_row`] times while others wait, and it is stealable unless configured
//! otherwise: a task in it does not wait behind a busy worker. Stealing has a price: a searching
//! worker may take the receiver away from its message, so thieves look at the slot last.
//!
//! The slot for tasks that may move is a ring of one place; pinned tasks have a plain one. At most
//! one of them is full.

use super::fifo::{Ring, RingStealer};
use super::order::Order;
use super::overflow::SharedQueue;
use super::params::StealingParams;
use super::stealing::Stealing;
use crate::policy::{Cx, Ready, Task, Wake};
use crate::queue::ring::{Owner, Stealer, ring};

/// FIFO work stealing with a slot for the task that became ready last, which runs next, at most
/// [`SlotParams::in_a_row`] times while others wait.
pub type LifoSlot<T> = Stealing<T, Slot<T>>;

/// Which tasks take the slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SlotFor {
    /// Those that were woken: a burst of spawns stays in order and can be stolen.
    Woken,
    /// New ones as well (Go, Tokio).
    All,
}

/// The slot's parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlotParams {
    /// How many times in a row the slot may win; 0: there is no slot.
    pub in_a_row: u32,
    /// What goes there.
    pub takes: SlotFor,
    /// Whether thieves may empty it.
    pub stealable: bool,
}

/// A slot before a [`Ring`].
pub struct Slot<T> {
    params: SlotParams,
    pinned: Option<T>,
    movable: Owner<T>,
    rest: Ring<T>,
    in_a_row: u32,
}

/// What thieves hold of a [`Slot`].
pub struct SlotStealer<T> {
    rest: RingStealer<T>,
    slot: Option<Stealer<T>>,
}

impl<T: Task + 'static> Slot<T> {
    /// Owner. Empties the slot.
    #[inline]
    fn take(&mut self) -> Option<T> {
        self.pinned.take().or_else(|| self.movable.pop())
    }

    /// Owner. Fills the empty slot, or hands the task back: a thief that the kernel has stopped
    /// holds the place.
    #[inline]
    fn fill(&mut self, task: T) -> Result<Wake, T> {
        if self.rest.pinned.keeps(&task) {
            self.pinned = Some(task);
            return Ok(Wake::None);
        }
        self.movable.push(task).map(|()| {
            if self.params.stealable {
                Wake::Any
            } else {
                Wake::None
            }
        })
    }
}

impl<T: Task + 'static> Order<T> for Slot<T> {
    type Stealer = SlotStealer<T>;

    fn new(params: &StealingParams, sole: bool) -> Self {
        let rest = Ring::new(params, sole);
        Self {
            params: params.slot,
            pinned: None,
            movable: ring(1),
            rest,
            in_a_row: 0,
        }
    }

    fn stealer(&self) -> SlotStealer<T> {
        SlotStealer {
            rest: self.rest.stealer(),
            slot: self.params.stealable.then(|| self.movable.stealer()),
        }
    }

    #[inline(always)]
    fn push(&mut self, task: T, why: Ready) -> Result<Wake, T> {
        let slot =
            why == Ready::Woken || (why == Ready::Spawned && self.params.takes == SlotFor::All);
        if !slot {
            return self.rest.push(task, why);
        }
        // The one that is displaced is older: it queues.
        let older = self.take();
        let wake = match self.fill(task) {
            Ok(wake) => wake,
            Err(task) => self.rest.push(task, why)?,
        };
        match older {
            None => Ok(wake),
            Some(older) => self
                .rest
                .push(older, why)
                .map(|other| if wake == Wake::None { other } else { wake }),
        }
    }

    #[inline(always)]
    fn pop(&mut self, cx: &mut Cx) -> Option<T> {
        if self.in_a_row < self.params.in_a_row
            && let Some(task) = self.take()
        {
            self.in_a_row += 1;
            return Some(task);
        }
        self.in_a_row = 0;
        self.rest.pop(cx).or_else(|| self.take())
    }

    fn is_empty(&self) -> bool {
        self.pinned.is_none() && self.movable.is_empty() && self.rest.is_empty()
    }

    fn spill(&mut self, shared: &SharedQueue<T>, with: T, cx: &mut Cx) {
        self.rest.spill(shared, with, cx);
    }

    fn refill(&mut self, shared: &SharedQueue<T>, cx: &mut Cx, most: usize) -> Option<T> {
        self.rest.refill(shared, cx, most)
    }

    fn steal(
        &mut self,
        victim: &SlotStealer<T>,
        wanted: impl Fn(usize) -> usize,
    ) -> Option<(T, usize)> {
        let found = self.rest.steal(&victim.rest, &wanted);
        found.or_else(|| {
            victim
                .slot
                .as_ref()?
                .steal_batch_into(&mut self.movable, |len| wanted(len).min(1))
        })
    }

    fn has_tasks(victim: &SlotStealer<T>) -> bool {
        Ring::has_tasks(&victim.rest) || victim.slot.as_ref().is_some_and(|slot| !slot.is_empty())
    }

    fn drain(mut self, sink: &mut dyn FnMut(T)) {
        self.take().into_iter().for_each(&mut *sink);
        self.rest.drain(sink);
    }
}
