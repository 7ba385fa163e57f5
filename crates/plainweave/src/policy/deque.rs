//! Orders that take from both ends: LIFO, stochastic, alternate, reverse (and FIFO that grows), as in the OCaml
//! schedulers' thesis.
//!
//! LIFO runs what was pushed last, while its data is warm: depth first, few tasks alive. Against it: what was pushed
//! first may wait for ever. The orders between bound that wait (alternate, reverse) or make it unlikely (stochastic).
//! Tasks that yield are kept apart, first in, first out, or LIFO would run them again before anything else.
//!
//! The lane that thieves reach is a deque under the worker's own lock, which is uncontended but for thieves; they look
//! at a copy of its length, without the lock. A task is moved under one lock at a time, so no two workers wait for
//! each other. A worker without thieves takes no lock.

use std::sync::PoisonError;

use super::order::{Course, Ends, Lane, Next, Order};
use super::overflow::{Shared, WhenFull};
use super::stealing::Stealing;
use super::stealing_params::StealingParams;
use super::{Cx, Ready, Task, Wake};
use crate::shim::atomic::AtomicUsize;
use crate::shim::atomic::Ordering::{Acquire, Release};
use crate::shim::{Arc, Mutex};

/// Stealing with an order of [`Ends`](super::Ends). See the module's page.
pub type Ordered<T> = Stealing<T, Deque<T>>;

/// Two lanes with two ends each.
pub struct Deque<T> {
    alone: bool,
    /// `None`: it grows.
    capacity: Option<usize>,
    /// For each lane its own: else a rule that counts could meet one lane only.
    courses: [Course; 2],
    anchored: Lane<T>,
    own: Arc<Locked<T>>,
    turn: bool,
    batch: Vec<T>,
}

/// What thieves hold of a [`Deque`].
pub struct DequeDoor<T>(Arc<Locked<T>>);

struct Locked<T> {
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

impl<T> Lane<T> {
    fn take(&mut self, next: Next) -> Option<T> {
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

impl<T: Task> Deque<T> {
    fn pop_anchored(&mut self, cx: &mut Cx) -> Option<T> {
        if self.anchored.len() == 0 { None } else { self.anchored.take(self.courses[0].next(cx)) }
    }

    fn pop_own(&mut self, cx: &mut Cx) -> Option<T> {
        if self.own.len() == 0 {
            return None;
        }
        let next = self.courses[1].next(cx);
        self.own.with(|lane| lane.take(next))
    }

    /// Queues what `batch` holds but for the first, which is returned.
    fn keep_batch(&mut self) -> Option<T> {
        let mut batch = std::mem::take(&mut self.batch);
        let mut tasks = batch.drain(..);
        let first = tasks.next();
        if tasks.len() > 0 {
            self.own.with(|lane| tasks.by_ref().for_each(|task| lane.push(task)));
        }
        drop(tasks);
        self.batch = batch;
        first
    }

    fn room(&self) -> usize {
        self.capacity.map_or(usize::MAX, |most| most.saturating_sub(self.own.len()))
    }
}

impl<T: Task + 'static> Order<T> for Deque<T> {
    type Door = DequeDoor<T>;

    fn new(params: &StealingParams, alone: bool) -> Self {
        Self {
            alone,
            capacity: (params.full != WhenFull::Grow).then_some(params.capacity),
            courses: [Course::new(params.ends), Course::new(params.ends)],
            anchored: Lane::default(),
            own: Arc::new(Locked { len: AtomicUsize::new(0), lane: Mutex::new(Lane::default()) }),
            turn: false,
            batch: Vec::new(),
        }
    }

    fn door(&self) -> DequeDoor<T> {
        DequeDoor(self.own.clone())
    }

    fn yields_apart(&self) -> bool {
        self.courses[0].ends() != Ends::Fifo
    }

    fn push(&mut self, task: T, why: Ready) -> Result<Wake, T> {
        if self.alone || task.anchor().is_some() {
            self.anchored.push(task);
            return Ok(Wake::None);
        }
        if self.room() == 0 {
            return Err(task);
        }
        let behind = why == Ready::Yielded && self.yields_apart();
        self.own.with(|lane| if behind { lane.push_behind(task) } else { lane.push(task) });
        Ok(Wake::Any)
    }

    fn pop(&mut self, cx: &mut Cx) -> Option<T> {
        self.turn = !self.turn;
        if self.turn {
            self.pop_anchored(cx).or_else(|| self.pop_own(cx))
        } else {
            self.pop_own(cx).or_else(|| self.pop_anchored(cx))
        }
    }

    fn is_empty(&self) -> bool {
        self.anchored.len() == 0 && self.own.len() == 0
    }

    fn shed(&mut self, shared: &Shared<T>, with: T, cx: &mut Cx) {
        let batch = &mut self.batch;
        self.own.with(|lane| batch.extend((0..lane.len().div_ceil(2)).map_while(|_| lane.oldest())));
        shared.push_all(cx, batch.drain(..).chain([with]));
    }

    fn absorb(&mut self, shared: &Shared<T>, cx: &mut Cx, most: usize) -> Option<T> {
        let most = most.min(self.room().saturating_add(1));
        while self.batch.len() < most
            && let Some(task) = shared.pop(cx)
        {
            self.batch.push(task);
        }
        self.keep_batch()
    }

    fn steal(&mut self, victim: &DequeDoor<T>, wanted: impl Fn(usize) -> usize) -> Option<T> {
        if victim.0.len() == 0 {
            return None;
        }
        let (room, batch) = (self.room().saturating_add(1), &mut self.batch);
        victim.0.with(|lane| {
            let most = wanted(lane.len()).min(room);
            batch.extend((0..most).map_while(|_| lane.oldest()));
        });
        self.keep_batch()
    }

    fn has_tasks(victim: &DequeDoor<T>) -> bool {
        victim.0.len() > 0
    }

    fn drain(mut self, sink: &mut dyn FnMut(T)) {
        std::iter::from_fn(|| self.anchored.oldest()).for_each(&mut *sink);
        std::iter::from_fn(|| self.own.with(Lane::oldest)).for_each(sink);
    }
}
