//! A lane with two ends that thieves reach: what an order of [`Ends`](super::Ends) keeps its movable tasks in.
//!
//! For all orders but one it is `queue/deque`: a push is a store, a pop one exchange, no lock. The order that turns its
//! tasks round (reverse) would have to push at the end that thieves take from; it has a deque under a lock, which is
//! uncontended but for thieves. These look at a copy of its length, without the lock; a task is moved under one lock at
//! a time, so no two workers wait for each other.

use std::sync::PoisonError;

use super::order::{Ends, Lane, Next};
use crate::queue::deque::{Owner, Stealer, deque};
use crate::shim::atomic::AtomicUsize;
use crate::shim::atomic::Ordering::{Acquire, Release};
use crate::shim::{Arc, Mutex};

/// The owner's half.
pub(super) enum Movable<T> {
    Free { own: Owner<T>, grows: bool },
    Turning { own: Arc<Locked<T>>, most: usize, grows: bool, batch: Vec<T> },
}

/// The thieves' half.
pub(super) enum MovableStealer<T> {
    Free(Stealer<T>),
    Turning(Arc<Locked<T>>),
}

pub(super) struct Locked<T> {
    /// Copy of the lane's length, stored before the lock is released.
    len: AtomicUsize,
    lane: Mutex<Lane<T>>,
}

impl<T> Locked<T> {
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
    /// For `most` tasks, a power of two, unless it `grows`.
    pub(super) fn new(ends: Ends, most: usize, grows: bool) -> Self {
        if matches!(ends, Ends::Reverse { .. }) {
            let own = Arc::new(Locked { len: AtomicUsize::new(0), lane: Mutex::new(Lane::default()) });
            return Self::Turning { own, most, grows, batch: Vec::new() };
        }
        Self::Free { own: deque(most), grows }
    }

    pub(super) fn stealer(&self) -> MovableStealer<T> {
        match self {
            Self::Free { own, .. } => MovableStealer::Free(own.stealer()),
            Self::Turning { own, .. } => MovableStealer::Turning(own.clone()),
        }
    }

    /// Exact but for thieves, which only make it smaller.
    #[inline]
    pub(super) fn len(&self) -> usize {
        match self {
            Self::Free { own, .. } => own.len(),
            Self::Turning { own, .. } => own.len(),
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
            Self::Turning { own, most, grows, .. } if *grows || own.len() < *most => {
                own.with(|lane| lane.push(task));
                Ok(())
            }
            Self::Turning { .. } => Err(task),
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
            Self::Turning { own, .. } => own.with(|lane| lane.take(next)),
        }
    }

    /// Pushes that are sure to succeed.
    pub(super) fn room(&self) -> usize {
        match self {
            Self::Free { grows: true, .. } | Self::Turning { grows: true, .. } => usize::MAX,
            Self::Free { own, .. } => own.free(),
            Self::Turning { own, most, .. } => most.saturating_sub(own.len()),
        }
    }

    /// Gives up the older half, rounded up.
    pub(super) fn take_half(&mut self, sink: impl FnMut(T)) {
        match self {
            Self::Free { own, .. } => own.take_half().for_each(sink),
            Self::Turning { own, batch, .. } => {
                own.with(|lane| batch.extend((0..lane.len().div_ceil(2)).map_while(|_| lane.oldest())));
                batch.drain(..).for_each(sink);
            }
        }
    }

    /// A thief. Takes `wanted(len)` of the oldest: one to run, the others queued.
    pub(super) fn steal(&mut self, victim: &MovableStealer<T>, wanted: impl Fn(usize) -> usize) -> Option<T> {
        let room = self.room().saturating_add(1);
        match (self, victim) {
            (Self::Free { own, .. }, MovableStealer::Free(victim)) => victim.steal_into(own, wanted),
            (Self::Turning { own, batch, .. }, MovableStealer::Turning(victim)) if victim.len() > 0 => {
                victim.with(|lane| {
                    let most = wanted(lane.len()).min(room);
                    batch.extend((0..most).map_while(|_| lane.oldest()));
                });
                let mut tasks = batch.drain(..);
                let first = tasks.next();
                if tasks.len() > 0 {
                    own.with(|lane| tasks.for_each(|task| lane.push(task)));
                }
                first
            }
            _ => None,
        }
    }
}

impl<T: Send> MovableStealer<T> {
    /// Returns whether it looks empty. Never true while it has a task that was pushed before this call.
    pub(super) fn is_empty(&self) -> bool {
        match self {
            Self::Free(victim) => victim.is_empty(),
            Self::Turning(victim) => victim.len() == 0,
        }
    }
}
