//! Each worker by itself, first in, first out, last in, first out or by draws; nobody steals. The
//! baseline of every stealing scheduler, and what a process (or an event loop) per core does.
//!
//! For it: no shared word is touched but to hand over what comes from elsewhere; data stays where
//! it is. Against it: a worker may have a thousand tasks while its neighbour sleeps. New tasks stay
//! with the worker that spawned them, or are dealt to the workers in turn ([`Place::Deal`]), which
//! evens out numbers but not work.
//!
//! A task from outside goes to the worker where it ran last, or is dealt. It waits in a queue of
//! that worker which is looked at every [`LocalParams::poll`] pops. LIFO starves what was pushed
//! first, by definition; tasks that yield are kept apart from it, first in, first out, and looked
//! at on the same schedule.

use std::collections::VecDeque;

use crossbeam_utils::CachePadded;

use super::pct::Priorities;
use super::placement::by_load;
use super::settings::{Key, Settings, key, number, word};
use super::{Cx, DirectSwitch, Effort, Load, Policy, Ready, Task, Topology, Wake, WorkerId};
use crate::queue::shared::Injector;
use crate::shim::atomic::AtomicUsize;
use crate::shim::atomic::Ordering::Relaxed;

/// Which task a worker takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TakeOrder {
    /// The first that came.
    Fifo,
    /// The last that came.
    Lifo,
    /// Any, each with the same chance: for tests, which find another schedule by each seed.
    Random,
    /// The one with the highest priority, which is drawn and changes seldom (`policy/pct.rs`): for
    /// tests, of which some faults need few steps in one order and many in between.
    Pct,
    /// One of the last two for all of a run: for tests.
    Drawn,
}

/// Where a new task goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// To the worker that spawned it.
    Own,
    /// To the workers in turn, unless it is pinned.
    Deal,
}

/// The order and the placement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LocalParams {
    /// Which task a worker takes.
    pub order: TakeOrder,
    /// Where new tasks go.
    pub place: Place,
    /// How many pops it takes until the other lanes come first, at least 1.
    pub poll: u32,
    /// With priorities that are drawn: how many orderings a fault may need, at least 1.
    pub depth: u32,
    /// With these: the pops that they decide, at least 1; then each is drawn.
    pub steps: u32,
}

impl Default for LocalParams {
    fn default() -> Self {
        Self {
            order: TakeOrder::Fifo,
            place: Place::Own,
            poll: 61,
            depth: 3,
            steps: 4096,
        }
    }
}

impl Settings for LocalParams {
    const KEYS: &'static [Key] = &[
        key(
            "order",
            "fifo|lifo|random|pct|drawn",
            "which task a worker takes; the last three are for tests",
        ),
        key(
            "place",
            "own|deal",
            "where new tasks go: to the worker that spawned them, or to all in turn",
        ),
        key(
            "poll",
            "1..65535",
            "pops until tasks from elsewhere come first",
        ),
        key("depth", "1..32", "pct: orderings that a fault may need"),
        key("steps", "1..1000000000", "pct: pops that priorities decide"),
    ];

    fn set(&mut self, key: &str, value: &str) -> Option<()> {
        match key {
            "order" => {
                let orders = [
                    ("fifo", TakeOrder::Fifo),
                    ("lifo", TakeOrder::Lifo),
                    ("random", TakeOrder::Random),
                    ("pct", TakeOrder::Pct),
                    ("drawn", TakeOrder::Drawn),
                ];
                self.order = word(value, &orders)?;
            }
            "place" => self.place = word(value, &[("own", Place::Own), ("deal", Place::Deal)])?,
            "depth" => self.depth = number(value, 1..=32)?,
            "steps" => self.steps = number(value, 1..=1_000_000_000)?,
            _ => self.poll = number(value, 1..=65_535)?,
        }
        Some(())
    }
}

/// Each worker runs its own tasks, first in, first out or last in, first out, and never steals: the
/// baseline of stealing schedulers.
pub struct Local<T> {
    params: LocalParams,
    /// What came to each worker from elsewhere.
    arrivals: Box<[CachePadded<Injector<T>>]>,
    deal: CachePadded<AtomicUsize>,
}

/// A worker's half of [`Local`].
pub struct LocalHalf<T> {
    worker: WorkerId,
    tasks: VecDeque<T>,
    yielded: VecDeque<T>,
    left: u32,
    turn: bool,
    /// As the parameter says, or as was drawn.
    order: TakeOrder,
    /// From the first pop on, if they decide.
    priorities: Option<Priorities>,
}

impl<T: Task> Local<T> {
    fn send(&self, task: T, to: Option<WorkerId>) -> Wake {
        let worker = to.unwrap_or_else(|| self.deal.fetch_add(1, Relaxed) % self.arrivals.len());
        self.arrivals[worker].push(task);
        Wake::Worker(worker)
    }

    fn pop_other(&self, local: &mut LocalHalf<T>) -> Option<T> {
        local.turn = !local.turn;
        let arrivals = &self.arrivals[local.worker];
        if local.turn {
            arrivals.pop().or_else(|| local.yielded.pop_front())
        } else {
            local.yielded.pop_front().or_else(|| arrivals.pop())
        }
    }

    /// Takes the task that the draws give. There is no draw for a look in vain: how many of those
    /// there are is a matter of real time, and a seed is to give one schedule.
    fn pop_drawn(&self, cx: &mut Cx, local: &mut LocalHalf<T>) -> Option<T> {
        let tasks = &mut local.tasks;
        if tasks.is_empty() {
            return None;
        }

        if local.order == TakeOrder::Drawn {
            local.order = [TakeOrder::Random, TakeOrder::Pct][cx.below(2)];
        }
        if local.order == TakeOrder::Pct {
            let LocalParams { depth, steps, .. } = self.params;
            let draw = |cx: &mut Cx| Priorities::draw(cx, depth, steps);
            let priorities = local.priorities.get_or_insert_with(|| draw(cx));
            if let Some(chosen) = priorities.choose(cx, tasks) {
                return tasks.swap_remove_back(chosen);
            }
        }
        let chosen = match tasks.len() {
            1 => 0,
            several => cx.below(several),
        };
        tasks.swap_remove_back(chosen)
    }
}

impl<T: Task + 'static> Policy<T> for Local<T> {
    type Params = LocalParams;
    type Local = LocalHalf<T>;

    const DIRECT: DirectSwitch = DirectSwitch::Waits;

    fn new(params: LocalParams, topology: &Topology) -> Self {
        let arrivals = (0..topology.workers)
            .map(|_| CachePadded::new(Injector::new()))
            .collect();
        Self {
            params,
            arrivals,
            deal: CachePadded::new(AtomicUsize::new(0)),
        }
    }

    fn attach(&self, worker: WorkerId) -> LocalHalf<T> {
        let tasks = VecDeque::new();
        let yielded = VecDeque::new();
        LocalHalf {
            worker,
            tasks,
            yielded,
            left: self.params.poll,
            turn: false,
            order: self.params.order,
            priorities: None,
        }
    }

    fn push(&self, _: &mut Cx, local: Option<&mut LocalHalf<T>>, task: T, why: Ready) -> Wake {
        let Some(local) = local else {
            let last = task.last_worker();
            return self.send(task, last);
        };

        if why == Ready::Spawned && self.params.place == Place::Deal && task.pinned().is_none() {
            return self.send(task, None);
        }
        // A soft yield is a point where a test may go on with others: no reason to give way.
        if let Some(priorities) = &mut local.priorities
            && why.is_yield()
            && why != Ready::YieldedLocal
        {
            priorities.give_way(&task);
        }
        let lane = if self.params.order == TakeOrder::Lifo && why.is_yield() {
            &mut local.yielded
        } else {
            &mut local.tasks
        };

        lane.push_back(task);
        Wake::None
    }

    fn pop(&self, cx: &mut Cx, local: &mut LocalHalf<T>, _: Effort) -> Option<T> {
        if !matches!(local.order, TakeOrder::Fifo | TakeOrder::Lifo) {
            // What comes from elsewhere has its chance, too.
            local
                .tasks
                .extend(std::iter::from_fn(|| self.arrivals[local.worker].pop()));
            return self.pop_drawn(cx, local);
        }

        local.left -= 1;
        if local.left == 0 {
            local.left = self.params.poll;
            if let Some(task) = self.pop_other(local) {
                return Some(task);
            }
        }

        let own = match self.params.order {
            TakeOrder::Lifo => local.tasks.pop_back(),
            _ => local.tasks.pop_front(),
        };

        own.or_else(|| self.pop_other(local))
    }

    /// By load only if tasks are dealt.
    fn place(&self, cx: &mut Cx, _: &impl Task, load: &impl Load) -> Option<WorkerId> {
        if self.params.place == Place::Deal {
            by_load(cx, load)
        } else {
            None
        }
    }

    fn maybe_ready(&self, worker: WorkerId) -> bool {
        !self.arrivals[worker].is_empty()
    }

    fn drain(&self, mut local: LocalHalf<T>, sink: &mut dyn FnMut(T)) {
        local
            .tasks
            .drain(..)
            .chain(local.yielded.drain(..))
            .for_each(&mut *sink);
        std::iter::from_fn(|| self.arrivals[local.worker].pop()).for_each(sink);
    }
}
