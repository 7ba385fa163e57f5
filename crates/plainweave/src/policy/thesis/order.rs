//! In which order a worker takes its own tasks: the trait of local structures, and the rules for
//! which end comes next.
//!
//! A stealing policy is [`Stealing`](super::Stealing) over an [`Order`]: the order is a type,
//! because its `push` and `pop` are the hot path; all else (whom to steal from, how much, what to
//! do when full) is data for the cold paths.
//!
//! An order keeps two lanes: one that thieves reach, and one for pinned tasks, which is plain
//! memory of the owner. Both follow the same rule, and alternate while both have tasks.

use std::collections::VecDeque;

use super::overflow::SharedQueue;
use super::params::StealingParams;
use crate::policy::{Cx, Ready, Task, Wake};

/// A worker's own tasks. Methods that take `&mut self` are the owner's; a
/// [`Stealer`](Order::Stealer) is for thieves.
pub trait Order<T: Task>: Send + Sized + 'static {
    /// What thieves hold of it.
    type Stealer: Send + Sync;

    /// `sole`: there is one worker, so no thieves.
    fn new(params: &StealingParams, sole: bool) -> Self;

    /// The thieves' half.
    fn stealer(&self) -> Self::Stealer;

    /// Whether tasks that yield are to be kept elsewhere, because this order would run them again
    /// at once.
    #[inline(always)]
    fn yields_apart(&self) -> bool {
        false
    }

    /// Owner. Such a task: out of the order, first in, first out, where thieves find it. `Err`:
    /// there is no place for it; the caller keeps it for this worker.
    ///
    /// # Errors
    /// There is no such place, or it is full.
    #[inline(always)]
    fn push_apart(&mut self, task: T) -> Result<Wake, T> {
        Err(task)
    }

    /// Owner. The oldest of these.
    #[inline(always)]
    fn pop_apart(&mut self) -> Option<T> {
        None
    }

    /// Owner. Queues a task; tells whether others could take it. `Err`: the structure is full, and
    /// this is the task that found no room, perhaps one displaced by the task that came. With
    /// `Ready::Yielded` it is to be the last of those now here, by the order.
    ///
    /// # Errors
    /// The structure is full.
    fn push(&mut self, task: T, why: Ready) -> Result<Wake, T>;

    /// Owner. Queues a task that yields in the place of a random other one, which comes next. An
    /// order without swaps queues it as the last; [`Yields::Swap`](super::Yields::Swap) selects one
    /// that has them.
    ///
    /// # Errors
    /// The structure is full.
    fn swap(&mut self, _: &mut Cx, task: T) -> Result<Wake, T> {
        self.push(task, Ready::Yielded)
    }

    /// Owner. The next by this order.
    fn pop(&mut self, cx: &mut Cx) -> Option<T>;

    /// Owner. Whether it holds nothing; thieves may make it so at any time.
    fn is_empty(&self) -> bool;

    /// Owner. Moves the older half of what thieves could take to the shared queue, and `with` after
    /// it.
    fn spill(&mut self, shared: &SharedQueue<T>, with: T, cx: &mut Cx);

    /// Owner. Takes up to `most` tasks from the shared queue: returns one to run, queues the
    /// others.
    fn refill(&mut self, shared: &SharedQueue<T>, cx: &mut Cx, most: usize) -> Option<T>;

    /// A thief that owns `self`. Takes `wanted(len)` tasks, the oldest first: one to run, which it
    /// returns with the number of all, the others queued.
    fn steal(
        &mut self,
        victim: &Self::Stealer,
        wanted: impl Fn(usize) -> usize,
    ) -> Option<(T, usize)>;

    /// Returns whether there may be tasks. Never false while there is one that was pushed before
    /// this call.
    ///
    /// Context: any thread.
    fn has_tasks(victim: &Self::Stealer) -> bool;

    /// Owner. Gives up everything.
    fn drain(self, sink: &mut dyn FnMut(T));
}

/// Which end of its lanes a worker takes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ends {
    /// Always the oldest.
    Fifo,
    /// Always the newest.
    Lifo,
    /// With a probability of `percent` the oldest, else the newest. (OCaml schedulers' thesis: 50
    /// in its code, 20 in its text.)
    Stochastic {
        /// 0 to 100.
        percent: u8,
    },
    /// Every `n`-th time the oldest, else the newest. (The thesis: 2.)
    Alternate {
        /// At least 1.
        n: u32,
    },
    /// The newest, but after every `n` the lanes are turned round, so that the oldest come next and
    /// the newest wait. (The thesis: 128 in its code, 256 in its text.)
    Reverse {
        /// At least 1.
        n: u32,
    },
}

/// A lane with two ends that can be turned round in no time.
#[derive(Debug)]
pub(super) struct Lane<T> {
    tasks: VecDeque<T>,
    /// The top, where tasks are pushed, is the deque's front.
    turned: bool,
}

impl<T> Default for Lane<T> {
    fn default() -> Self {
        Self {
            tasks: VecDeque::new(),
            turned: false,
        }
    }
}

impl<T> Lane<T> {
    pub(super) fn len(&self) -> usize {
        self.tasks.len()
    }

    /// As the newest.
    pub(super) fn push(&mut self, task: T) {
        if self.turned {
            self.tasks.push_front(task)
        } else {
            self.tasks.push_back(task)
        }
    }

    pub(super) fn newest(&mut self) -> Option<T> {
        if self.turned {
            self.tasks.pop_front()
        } else {
            self.tasks.pop_back()
        }
    }

    pub(super) fn oldest(&mut self) -> Option<T> {
        if self.turned {
            self.tasks.pop_back()
        } else {
            self.tasks.pop_front()
        }
    }

    /// Puts `task` in the place of a random other one, which becomes the oldest.
    pub(super) fn swap(&mut self, cx: &mut Cx, task: T) {
        if self.tasks.is_empty() {
            return self.push(task);
        }
        let place = cx.below(self.tasks.len());
        let other = std::mem::replace(&mut self.tasks[place], task);

        if self.turned {
            self.tasks.push_back(other)
        } else {
            self.tasks.push_front(other)
        }
    }

    fn turn(&mut self) {
        self.turned = !self.turned;
    }

    pub(super) fn take(&mut self, next: Next) -> Option<T> {
        match next {
            Next::Oldest => self.oldest(),
            Next::Newest => self.newest(),
            Next::TurnRound => {
                self.turn();
                self.newest()
            }
        }
    }
}

/// What the next pop is to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    Oldest,
    Newest,
    /// Turn the lanes round, then the newest.
    TurnRound,
}

/// A worker's place in its order: one a worker. (In the published code all workers share it, by
/// mistake.)
#[derive(Debug)]
pub(super) struct Course {
    ends: Ends,
    count: u32,
}

impl Course {
    pub(super) fn new(ends: Ends) -> Self {
        Self { ends, count: 0 }
    }

    pub(super) fn ends(&self) -> Ends {
        self.ends
    }

    pub(super) fn next(&mut self, cx: &mut Cx) -> Next {
        self.count = self.count.wrapping_add(1);
        let every = |n: u32| self.count.is_multiple_of(n);
        match self.ends {
            Ends::Fifo => Next::Oldest,
            Ends::Lifo => Next::Newest,
            Ends::Stochastic { percent } if cx.below(100) < usize::from(percent) => Next::Oldest,
            Ends::Alternate { n } if every(n) => Next::Oldest,
            Ends::Reverse { n } if every(n) => Next::TurnRound,
            Ends::Stochastic { .. } | Ends::Alternate { .. } | Ends::Reverse { .. } => Next::Newest,
        }
    }
}
