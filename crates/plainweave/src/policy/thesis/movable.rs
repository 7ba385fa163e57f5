//! A lane with two ends that thieves reach: what an order of [`Ends`](super::Ends) keeps its
//! movable tasks in.
//!
//! For all orders but one it is `queue/deque`: a push is a store, a pop one exchange, no lock; or
//! two of these, see `horizontal`. The order that turns its tasks round (reverse) would have to
//! push at the end that thieves take from, and a swap ([`Yields::Swap`]) reaches into the middle:
//! they have a deque under a lock, which is uncontended but for thieves. These look at a copy of
//! its length, without the lock; a task is moved under one lock at a time, so no two workers wait
//! for each other.

use std::sync::PoisonError;

use super::horizontal::{Wide, WideStealer};
use super::order::{Ends, Lane, Next};
use super::overflow::WhenFull;
use super::params::{StealingParams, Yields};
use crate::policy::Cx;
use crate::queue::deque::{Owner, Stealer, deque};
use crate::shim::atomic::AtomicUsize;
use crate::shim::atomic::Ordering::{Acquire, Release};
use crate::shim::{Arc, Mutex};

/// The owner's half.
pub(super) enum Movable<T> {
    Free {
        own: Owner<T>,
        grows: bool,
    },
    Wide(Wide<T>),
    Locked {
        own: Arc<LockedLane<T>>,
        most: usize,
        grows: bool,
        batch: Vec<T>,
    },
}

/// The thieves' half.
pub(super) enum MovableStealer<T> {
    Free(Stealer<T>),
    Wide(WideStealer<T>),
    Locked(Arc<LockedLane<T>>),
}

pub(super) struct LockedLane<T> {
    /// Copy of the lane's length, stored before the lock is released.
    len: AtomicUsize,
    lane: Mutex<Lane<T>>,
}

impl<T> LockedLane<T> {
    fn with<R>(&self, act: impl FnOnce(&mut Lane<T>) -> R) -> R {
        let mut lane = self.lane.lock().unwrap_or_else(PoisonError::into_inner);
        let result = act(&mut lane);
        self.len.store(lane.len(), Release);
        result
    }

    fn len(&self) -> usize {
        self.len.load(Acquire)
    }
}

impl<T: Send> Movable<T> {
    /// For `most` tasks, a power of two, unless it grows.
    pub(super) fn new(params: &StealingParams, most: usize) -> Self {
        let grows = params.full == WhenFull::Grow;
        if matches!(params.ends, Ends::Reverse { .. }) || params.yields == Yields::Swap {
            let own = Arc::new(LockedLane {
                len: AtomicUsize::new(0),
                lane: Mutex::new(Lane::default()),
            });

            return Self::Locked {
                own,
                most,
                grows,
                batch: Vec::new(),
            };
        }

        if params.full == WhenFull::Horizontal {
            return Self::Wide(Wide::new(most));
        }
        Self::Free {
            own: deque(most),
            grows,
        }
    }

    pub(super) fn stealer(&self) -> MovableStealer<T> {
        match self {
            Self::Free { own, .. } => MovableStealer::Free(own.stealer()),
            Self::Wide(own) => MovableStealer::Wide(own.stealer()),
            Self::Locked { own, .. } => MovableStealer::Locked(own.clone()),
        }
    }

    /// Exact but for thieves, which only make it smaller.
    #[inline]
    pub(super) fn len(&self) -> usize {
        match self {
            Self::Free { own, .. } => own.len(),
            Self::Wide(own) => own.len(),
            Self::Locked { own, .. } => own.len(),
        }
    }

    /// As the newest, or back if there is no room.
    #[inline]
    pub(super) fn push(&mut self, task: T) -> Result<(), T> {
        match self {
            Self::Free { own, grows } => match own.push(task) {
                Err(task) if *grows && own.grow() => own.push(task),
                done => done,
            },
            Self::Wide(own) => own.push(task),
            Self::Locked {
                own, most, grows, ..
            } if *grows || own.len() < *most => {
                own.with(|lane| lane.push(task));
                Ok(())
            }
            Self::Locked { .. } => Err(task),
        }
    }

    /// Takes the place of a random other task, which comes next, first in, first out. Back if there
    /// is no room.
    pub(super) fn swap(&mut self, cx: &mut Cx, task: T) -> Result<(), T> {
        match self {
            Self::Locked {
                own, most, grows, ..
            } if *grows || own.len() < *most => {
                own.with(|lane| lane.swap(cx, task));
                Ok(())
            }
            full_or_without_swaps => full_or_without_swaps.push(task),
        }
    }

    #[inline]
    pub(super) fn pop(&mut self, next: Next) -> Option<T> {
        match self {
            Self::Free { own, .. } => match next {
                Next::Newest => own.pop_newest(),
                // An order that turns round is not here.
                Next::Oldest | Next::TurnRound => own.pop_oldest(),
            },
            Self::Wide(own) => own.pop(next),
            Self::Locked { own, .. } => own.with(|lane| lane.take(next)),
        }
    }

    /// Pushes that are sure to succeed.
    pub(super) fn room(&self) -> usize {
        match self {
            Self::Free { grows: true, .. } | Self::Locked { grows: true, .. } => usize::MAX,
            Self::Free { own, .. } => own.free(),
            Self::Wide(own) => own.room(),
            Self::Locked { own, most, .. } => most.saturating_sub(own.len()),
        }
    }

    /// Gives up the older half, rounded up.
    pub(super) fn take_half(&mut self, sink: impl FnMut(T)) {
        match self {
            Self::Free { own, .. } => own.take_half().for_each(sink),
            Self::Wide(own) => own.take_half(sink),
            Self::Locked { own, batch, .. } => {
                own.with(|lane| {
                    batch.extend((0..lane.len().div_ceil(2)).map_while(|_| lane.oldest()))
                });
                batch.drain(..).for_each(sink);
            }
        }
    }

    /// A thief. Takes `wanted(len)` of the oldest: one to run, which it returns with the number of
    /// all, the others queued.
    pub(super) fn steal(
        &mut self,
        victim: &MovableStealer<T>,
        wanted: impl Fn(usize) -> usize,
    ) -> Option<(T, usize)> {
        let room = self.room().saturating_add(1);
        match (self, victim) {
            (Self::Free { own, .. }, MovableStealer::Free(victim)) => {
                victim.steal_batch_into(own, wanted)
            }
            (Self::Wide(own), MovableStealer::Wide(victim)) => own.steal(victim, wanted),
            (Self::Locked { own, batch, .. }, MovableStealer::Locked(victim))
                if victim.len() > 0 =>
            {
                victim.with(|lane| {
                    let most = wanted(lane.len()).min(room);
                    batch.extend((0..most).map_while(|_| lane.oldest()));
                });
                let count = batch.len();
                let mut tasks = batch.drain(..);
                let first = tasks.next()?;
                if tasks.len() > 0 {
                    own.with(|lane| tasks.for_each(|task| lane.push(task)));
                }
                Some((first, count))
            }
            _ => None,
        }
    }
}

impl<T: Send> MovableStealer<T> {
    /// Returns whether it looks empty. Never true while it has a task that was pushed before this
    /// call.
    pub(super) fn is_empty(&self) -> bool {
        match self {
            Self::Free(victim) => victim.is_empty(),
            Self::Wide(victim) => victim.is_empty(),
            Self::Locked(victim) => victim.len() == 0,
        }
    }
}
