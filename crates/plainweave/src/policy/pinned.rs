//! What policies have in common about tasks that may not move, and about tasks that yield.
//!
//! **Pinned tasks** ([`Task::pinned`]) may run on one worker only, so a policy keeps them in that
//! worker's own half, in plain memory, where no thief looks: in a [`Pinned`]. A policy that also
//! has tasks that may move takes from both alternately while both have some, so that neither kind
//! starves the other.
//!
//! **A sole worker** has no thieves. Its policy may keep every task as if it were pinned, and touch
//! nothing atomic.
//!
//! **The yield rule** ([`Ready::wake`]). If a task yields and nothing else waits, its worker pops
//! it again at once. Waking another worker for it would only have it stolen.
//!
//! **Where it yields to** ([`Ready::YieldedLocal`], [`Ready::YieldedShared`]). A policy whose
//! workers have queues of their own beside a shared one does as it is asked. A pinned task cannot
//! wait where others look, so it stays with its worker either way, as do all tasks of a sole
//! worker. In the policies with one queue (`global-fifo`, the ranked ones), without a shared queue
//! (`local-*`), or with lanes that anybody takes from (`multi-queue`, `helping`), all yields are
//! alike.

use std::collections::VecDeque;

use super::{Ready, Task, Wake};

/// A worker's pinned tasks, and whether they go before the others at the next pop. Its owner only.
///
/// `L` is what they wait in: a `VecDeque` for first in, first out, or whatever gives the policy's
/// order.
#[derive(Debug)]
pub struct Pinned<L> {
    /// The tasks.
    pub tasks: L,
    sole: bool,
    first: bool,
}

impl<L> Pinned<L> {
    /// Keeps tasks in `tasks`; with `sole`, those that may move as well.
    pub fn new(tasks: L, sole: bool) -> Self {
        Self {
            tasks,
            sole,
            first: false,
        }
    }

    /// Returns whether `task` belongs here.
    #[inline(always)]
    pub fn keeps(&self, task: &impl Task) -> bool {
        self.sole || task.pinned().is_some()
    }

    /// Returns whether pinned tasks go first this time: every other time.
    #[inline(always)]
    pub fn go_first(&mut self) -> bool {
        self.first = !self.first;
        self.first
    }
}

impl<T: Task> Pinned<VecDeque<T>> {
    /// Keeps tasks first in, first out; with `sole`, those that may move as well.
    pub fn fifo(sole: bool) -> Self {
        Self::new(VecDeque::new(), sole)
    }

    /// Queues `task` if it belongs here.
    ///
    /// # Errors
    /// The task, if others may run it.
    #[inline(always)]
    pub fn push(&mut self, task: T) -> Result<(), T> {
        if !self.keeps(&task) {
            return Err(task);
        }
        self.tasks.push_back(task);
        Ok(())
    }

    /// Takes the oldest.
    #[inline(always)]
    pub fn pop(&mut self) -> Option<T> {
        self.tasks.pop_front()
    }

    /// Takes the oldest pinned task or one of the `others`, alternately while there are both.
    #[inline(always)]
    pub fn alternate(&mut self, others: impl FnOnce() -> Option<T>) -> Option<T> {
        if self.go_first() {
            self.pop().or_else(others)
        } else {
            others().or_else(|| self.pop())
        }
    }

    /// Returns whether there are none.
    #[inline(always)]
    pub fn is_empty(&self) -> bool {
        self.tasks.is_empty()
    }
}

impl Ready {
    /// Returns which workers to wake for a task that any of them may take. `alone` is called before
    /// the task is queued, and only for one that yields: whether nothing else waits where its
    /// worker will look next.
    #[inline(always)]
    pub fn wake(self, alone: impl FnOnce() -> bool) -> Wake {
        if self.is_yield() && alone() {
            Wake::None
        } else {
            Wake::Any
        }
    }
}
