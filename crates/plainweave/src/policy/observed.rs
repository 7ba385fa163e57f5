//! Any policy, and how fair it is: how long ready tasks wait, and how many others that came later
//! go before them.
//!
//! [`Observed`] wraps another policy. It numbers each task when it is pushed, and notes when; when
//! the task is popped, it counts those with a lower number that still wait. That count is the
//! task's *rank error*: 0 in the order of arrival, and the usual measure of how far a relaxed queue
//! is from it (Alistarh et al., "The Power of Choice in Priority Scheduling", 2017). What is
//! observed, an [`Observer`] tells, from any thread and while the policy works.
//!
//! All workers share one lock for it, twice a task, so a policy that is observed is slower and
//! scales less: take its order from such a run, and its speed from another.

use std::collections::VecDeque;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use super::{Cx, Effort, Load, Nanos, Policy, Ready, Task, Topology, Wake, WorkerId};
use crate::shim::{Mutex, MutexGuard};

/// A policy that is observed; behaves as `P`, which is a policy for [`Numbered`] tasks.
pub struct Observed<P> {
    policy: P,
    observer: Observer,
}

/// The policy's parameters, and who observes it.
#[derive(Clone, Debug)]
pub struct ObservedParams<P> {
    /// The policy's own parameters.
    pub policy: P,
    /// What observes it.
    pub observer: Observer,
}

/// A task with its place in the order of arrival.
#[derive(Debug)]
pub struct Numbered<T> {
    task: T,
    number: u64,
    /// When it was pushed, by the observer's clock.
    since: Nanos,
}

/// Tells what a policy did. Clones observe together, and so does one that is given to several
/// policies.
#[derive(Clone, Debug)]
pub struct Observer(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    /// What the clock counts from; `None`: the loop's clock, see [`Cx::now`].
    epoch: Option<Instant>,
    ledger: Mutex<Ledger>,
}

/// How ready tasks waited, over a number of pops.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Waits {
    /// Number of tasks popped.
    pub pops: u64,
    /// Sum of the times from push to pop.
    pub total: Duration,
    /// The greatest of these times.
    pub greatest: Duration,
    /// Sum of their rank errors: for each task, the number of those that came before it and still
    /// waited.
    pub rank_errors: u64,
    /// The greatest rank error.
    pub greatest_rank_error: u64,
}

/// Who waits, in the order of arrival.
#[derive(Debug, Default)]
struct Ledger {
    /// The number of the next task.
    next: u64,
    /// The number that the first bit stands for.
    first: u64,
    /// A bit for each number from `first` on: set while that task waits.
    waiting: VecDeque<u64>,
    waits: Waits,
}

impl Observer {
    /// Creates one that reads the clock at each push and each pop.
    #[must_use]
    #[allow(clippy::new_without_default)]
    pub fn new() -> Self {
        Self::with(Some(Instant::now()))
    }

    /// Creates one that goes by [`Cx::now`]: in a simulator, where time is virtual, or where some
    /// microseconds do not matter.
    #[must_use]
    pub fn by_loop_clock() -> Self {
        Self::with(None)
    }

    fn with(epoch: Option<Instant>) -> Self {
        Self(Arc::new(Shared {
            epoch,
            ledger: Mutex::new(Ledger::default()),
        }))
    }

    /// Returns what has been observed since the last call.
    ///
    /// Context: any thread.
    pub fn take(&self) -> Waits {
        std::mem::take(&mut self.ledger().waits)
    }

    fn ledger(&self) -> MutexGuard<'_, Ledger> {
        self.0.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self, cx: &Cx) -> Nanos {
        self.0
            .epoch
            .map_or(cx.now(), |epoch| epoch.elapsed().as_nanos() as u64)
    }

    fn number<T>(&self, cx: &Cx, task: T) -> Numbered<T> {
        let since = self.now(cx);
        Numbered {
            task,
            number: self.ledger().arrive(),
            since,
        }
    }

    fn tell<T>(&self, cx: &mut Cx, popped: Numbered<T>) -> T {
        let wait = Duration::from_nanos(self.now(cx).saturating_sub(popped.since));
        cx.counts.longest_wait = cx.counts.longest_wait.max(Some(wait));
        self.ledger().leave(popped.number, wait);
        popped.task
    }
}

impl Ledger {
    fn arrive(&mut self) -> u64 {
        let number = self.next;
        self.next += 1;
        let bit = number - self.first;
        if bit / 64 == self.waiting.len() as u64 {
            self.waiting.push_back(0);
        }
        self.waiting[(bit / 64) as usize] |= 1 << (bit % 64);
        number
    }

    /// Takes out a task, and returns its rank error.
    fn remove(&mut self, number: u64) -> u64 {
        let bit = number - self.first;
        let word = (bit / 64) as usize;
        let bit = 1 << (bit % 64);
        let before: u32 = self
            .waiting
            .iter()
            .take(word)
            .map(|word| word.count_ones())
            .sum();
        let rank_error = u64::from(before + (self.waiting[word] & (bit - 1)).count_ones());

        self.waiting[word] &= !bit;

        // The last word may have bits yet to be given out.
        while self.waiting.len() > 1 && self.waiting[0] == 0 {
            self.waiting.pop_front();
            self.first += 64;
        }

        rank_error
    }

    fn leave(&mut self, number: u64, wait: Duration) {
        let rank_error = self.remove(number);
        let waits = &mut self.waits;
        waits.pops += 1;
        waits.total += wait;
        waits.greatest = waits.greatest.max(wait);
        waits.rank_errors += rank_error;
        waits.greatest_rank_error = waits.greatest_rank_error.max(rank_error);
    }
}

impl<T: Task> Task for Numbered<T> {
    fn pinned(&self) -> Option<WorkerId> {
        self.task.pinned()
    }
    fn last_worker(&self) -> Option<WorkerId> {
        self.task.last_worker()
    }
    fn stamp(&self) -> Nanos {
        self.task.stamp()
    }
    fn set_stamp(&self, now: Nanos) {
        self.task.set_stamp(now);
    }
    fn priority(&self) -> u8 {
        self.task.priority()
    }
    fn deadline(&self) -> Option<Nanos> {
        self.task.deadline()
    }
    fn weight(&self) -> u32 {
        self.task.weight()
    }
}

impl<T: Task, P: Policy<Numbered<T>>> Policy<T> for Observed<P> {
    type Params = ObservedParams<P::Params>;
    type Local = P::Local;

    const SPARES: bool = P::SPARES;

    fn new(params: Self::Params, topology: &Topology) -> Self {
        Self {
            policy: P::new(params.policy, topology),
            observer: params.observer,
        }
    }

    fn attach(&self, worker: WorkerId) -> P::Local {
        self.policy.attach(worker)
    }

    fn push(&self, cx: &mut Cx, local: Option<&mut P::Local>, task: T, why: Ready) -> Wake {
        let task = self.observer.number(cx, task);
        self.policy.push(cx, local, task, why)
    }

    fn pop(&self, cx: &mut Cx, local: &mut P::Local, effort: Effort) -> Option<T> {
        self.policy
            .pop(cx, local, effort)
            .map(|task| self.observer.tell(cx, task))
    }

    fn maybe_ready(&self, worker: WorkerId) -> bool {
        self.policy.maybe_ready(worker)
    }

    fn pop_spare(&self, cx: &mut Cx) -> Option<T> {
        self.policy
            .pop_spare(cx)
            .map(|task| self.observer.tell(cx, task))
    }

    fn maybe_ready_spare(&self) -> bool {
        self.policy.maybe_ready_spare()
    }

    fn place(&self, cx: &mut Cx, task: &impl Task, load: &impl Load) -> Option<WorkerId> {
        self.policy.place(cx, task, load)
    }

    fn drain(&self, local: P::Local, sink: &mut dyn FnMut(T)) {
        self.policy.drain(local, &mut |numbered| {
            self.observer.ledger().remove(numbered.number);
            sink(numbered.task);
        });
    }
}
