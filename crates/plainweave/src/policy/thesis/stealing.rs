//! Work stealing, put together from an order and parameters: each worker has tasks of its own in an
//! [`Order`], and one that has none steals from others.
//!
//! A pop looks, in this order: 1. when it is due (every [`StealingParams::poll`] pops), at the
//! worker that has asked for help, then at the shared queue and the lane of tasks that yielded,
//! alternately; 2. at the worker's own order; 3. at that lane and the shared queue; 4. if it
//! searches, at announced and other victims. So neither tasks from outside nor tasks that yield
//! starve under sustained local load. (In the OCaml schedulers' thesis they do: only idle workers
//! look at the shared queue.)
//!
//! For stealing: no shared state while all are busy, tasks stay where their data is. Against it:
//! idle workers disturb others to find out that there is nothing, and a stolen task's data is cold.

use std::collections::VecDeque;

use super::insert::{Inserts, Out};
use super::order::Order;
use super::overflow::{HelpRequests, SharedQueue, WhenFull};
use super::params::{StealingParams, Yields};
use crate::policy::{
    Cx, DirectSwitch, Effort, Pinned, Policy, Ready, Task, Topology, Wake, WorkerId,
};
use crate::shim::{Mutex, look_at_victim, spin_loop};

/// Work stealing, put together from an order and parameters: each worker has tasks of its own in an
/// [`Order`], and one that has none steals from others.
pub struct Stealing<T: Task + 'static, O: Order<T>> {
    params: StealingParams,
    topology: Topology,
    shared: SharedQueue<T>,
    requests: HelpRequests,
    inserts: Inserts,
    stealers: Box<[O::Stealer]>,
    /// Until their workers attach.
    orders: Mutex<Vec<Option<O>>>,
    /// What spare workers steal into, one task at a time, so that it is always empty.
    spare: Mutex<O>,
}

/// A worker's half of [`Stealing`].
pub struct StealingLocal<T, O> {
    worker: WorkerId,
    order: O,
    /// Tasks that yielded, if the order would run them at once and keeps no place for them.
    yielded: Pinned<VecDeque<T>>,
    /// Pops until the shared queue is due.
    left: u32,
    /// What goes first then.
    turn: bool,
    /// The last search found nothing.
    missed: bool,
    out: Out,
}

impl<T: Task + 'static, O: Order<T>> StealingLocal<T, O> {
    /// The next that yielded: alternately of those that may move and of those that may not.
    fn pop_yielded(&mut self) -> Option<T> {
        self.yielded.alternate(|| self.order.pop_apart())
    }
}

impl<T: Task + 'static, O: Order<T>> Stealing<T, O> {
    fn is_alone(&self) -> bool {
        self.topology.is_sole()
    }

    /// Where a task that yields is to wait: as it asks, or as the policy says.
    #[inline(always)]
    fn yields(&self, why: Ready) -> Yields {
        match why {
            Ready::YieldedLocal => Yields::Local,
            Ready::YieldedShared => Yields::Shared,
            _ => self.params.yields,
        }
    }

    fn push_yielded(
        &self,
        cx: &mut Cx,
        local: &mut StealingLocal<T, O>,
        task: T,
        why: Ready,
        to: Yields,
    ) -> Wake {
        if to == Yields::Swap {
            return local
                .order
                .swap(cx, task)
                .unwrap_or_else(|task| self.push_full(cx, local, task, why));
        }

        if to == Yields::Shared && !self.is_alone() && task.pinned().is_none() {
            self.shared.push(cx, task);
            return Wake::Any;
        }

        match local.order.push_apart(task) {
            Ok(wake) => wake,
            Err(task) => {
                local.yielded.tasks.push_back(task);
                Wake::None
            }
        }
    }

    /// Draws whether a task goes to the shared queue although there may be room.
    #[inline(always)]
    fn overflows_early(&self, cx: &mut Cx, task: &T) -> bool {
        let WhenFull::Overflow {
            early: percent @ 1..,
        } = self.params.full
        else {
            return false;
        };
        !self.is_alone() && task.pinned().is_none() && cx.below(100) < usize::from(percent)
    }

    #[cold]
    fn push_full(
        &self,
        cx: &mut Cx,
        local: &mut StealingLocal<T, O>,
        mut task: T,
        why: Ready,
    ) -> Wake {
        for _ in 0..self.params.spin {
            spin_loop();
            cx.counts.insert_retries += 1;
            task = match local.order.push(task, Ready::Yielded) {
                Ok(wake) => return wake,
                Err(task) => task,
            };
        }

        match self.params.full {
            WhenFull::Spill => {
                cx.counts.spills += 1;
                local.order.spill(&self.shared, task, cx);
            }
            WhenFull::Spin if !why.is_yield() && !cx.handles_event() => {
                let StealingLocal { order, out, .. } = local;
                match self
                    .inserts
                    .spin(cx, out, task, |task| order.push(task, Ready::Yielded))
                {
                    Ok(wake) => return wake,
                    Err(task) => self.overflow(cx, task),
                }
            }
            WhenFull::Spin => self.overflow(cx, task),
            full => {
                cx.counts.spills += 1;
                self.shared.push(cx, task);
                match full {
                    WhenFull::Request { sticky } => self.requests.ask(cx, local.worker, sticky),
                    WhenFull::Announce => self.requests.announce(local.worker),
                    WhenFull::Spill
                    | WhenFull::Spin
                    | WhenFull::Grow
                    | WhenFull::Horizontal
                    | WhenFull::Overflow { .. } => {}
                }
            }
        }

        Wake::Any
    }

    /// Ends an insert that was to spin.
    fn overflow(&self, cx: &mut Cx, task: T) {
        cx.counts.insert_overflows += 1;
        self.shared.push(cx, task);
    }

    /// What is looked at on schedule.
    #[cold]
    fn pop_due(&self, cx: &mut Cx, local: &mut StealingLocal<T, O>) -> Option<T> {
        local.left = self.params.poll;
        self.set_out(local, false);
        local.turn = !local.turn;
        let relieved = self.relieve(cx, local);

        if local.turn {
            relieved
                .or_else(|| self.shared.pop(cx))
                .or_else(|| local.pop_yielded())
        } else {
            relieved
                .or_else(|| local.pop_yielded())
                .or_else(|| self.shared.pop(cx))
        }
    }

    /// Notes for spawners that spin whether this worker is out of tasks.
    fn set_out(&self, local: &mut StealingLocal<T, O>, out: bool) {
        if self.params.full == WhenFull::Spin {
            self.inserts.set_out(&mut local.out, out);
        }
    }

    #[inline(never)]
    fn pop_elsewhere(
        &self,
        cx: &mut Cx,
        local: &mut StealingLocal<T, O>,
        effort: Effort,
    ) -> Option<T> {
        let found = self.look_elsewhere(cx, local, effort);
        // Written only when it changes: all workers write the same line, and thieves search often.
        if found.is_some() || effort != Effort::Quick {
            self.set_out(local, found.is_none());
        }
        found
    }

    fn look_elsewhere(
        &self,
        cx: &mut Cx,
        local: &mut StealingLocal<T, O>,
        effort: Effort,
    ) -> Option<T> {
        if let Some(task) = local.pop_yielded() {
            return Some(task);
        }
        if let Some(task) = self.relieve(cx, local) {
            return Some(task);
        }
        if !self.shared.is_empty() {
            let share = (self.shared.len() / self.stealers.len()).max(1);
            if let Some(task) = local.order.refill(&self.shared, cx, share) {
                return Some(task);
            }
        }

        if effort == Effort::Quick {
            return None;
        }
        if self.stealers.len() > 1 {
            self.search(cx, local)
        } else {
            None
        }
    }

    /// Steals from the worker that has asked this one to.
    fn relieve(&self, cx: &mut Cx, local: &mut StealingLocal<T, O>) -> Option<T> {
        let WhenFull::Request { sticky } = self.params.full else {
            return None;
        };
        let victim = self.requests.asking(local.worker)?;
        let found = self.steal_from(cx, local, victim, true);
        cx.counts.helped += u64::from(found.is_some());
        if !sticky {
            self.requests.answered(local.worker);
        }

        found
    }

    fn search(&self, cx: &mut Cx, local: &mut StealingLocal<T, O>) -> Option<T> {
        if self.params.full == WhenFull::Announce
            && let Some(victim) = self.requests.announced()
            && let Some(task) = self.steal_from(cx, local, victim, true)
        {
            cx.counts.helped += 1;
            return Some(task);
        }
        let everywhere = local.missed;
        let me = local.worker;
        let rule = self.params.victim;
        let found = rule.search(cx, me, &self.topology, everywhere, |cx, victim| {
            self.steal_from(cx, local, victim, everywhere)
        });

        local.missed = found.is_none() && !everywhere;

        found
    }

    /// Steals from `victim`; `insist`: even where [`Amount::PassOver`](super::Amount::PassOver)
    /// would pass it over.
    fn steal_from(
        &self,
        cx: &mut Cx,
        local: &mut StealingLocal<T, O>,
        victim: WorkerId,
        insist: bool,
    ) -> Option<T> {
        if victim == local.worker {
            return None;
        }
        look_at_victim();
        let stealer = &self.stealers[victim];
        if !O::has_tasks(stealer) {
            return None;
        }
        cx.counts.steal_attempts += 1;
        let amount = self.params.amount.attempt(cx, insist);
        let (task, tasks) = local.order.steal(stealer, |len| amount.of(len))?;

        cx.stole(victim, tasks);
        Some(task)
    }
}

impl<T: Task + 'static, O: Order<T>> Policy<T> for Stealing<T, O> {
    type Params = StealingParams;
    type Local = StealingLocal<T, O>;

    const SPARES: bool = true;
    const DIRECT: DirectSwitch = DirectSwitch::Waits;

    fn new(params: StealingParams, topology: &Topology) -> Self {
        let orders: Vec<_> = (0..topology.workers)
            .map(|_| O::new(&params, topology.is_sole()))
            .collect();
        Self {
            topology: topology.clone(),
            shared: SharedQueue::new(&params),
            requests: HelpRequests::new(topology),
            inserts: Inserts::new(topology.workers),
            stealers: orders.iter().map(O::stealer).collect(),
            orders: Mutex::new(orders.into_iter().map(Some).collect()),
            spare: Mutex::new(O::new(&params, false)),
            params,
        }
    }

    fn attach(&self, worker: WorkerId) -> Self::Local {
        let mut orders = self.orders.lock().unwrap_or_else(|e| e.into_inner());
        let order = orders[worker].take().expect("a worker attaches once");
        let yielded = Pinned::fifo(self.is_alone());
        let out = self.inserts.attach();

        StealingLocal {
            worker,
            order,
            yielded,
            left: self.params.poll,
            turn: false,
            missed: false,
            out,
        }
    }

    #[inline(always)]
    fn push(&self, cx: &mut Cx, local: Option<&mut Self::Local>, task: T, why: Ready) -> Wake {
        let Some(local) = local else {
            self.shared.push(cx, task);
            return Wake::Any;
        };

        if why.is_yield() {
            let to = self.yields(why);
            if to != Yields::Local || local.order.yields_apart() {
                return self.push_yielded(cx, local, task, why, to);
            }
        }

        if self.overflows_early(cx, &task) {
            self.shared.push(cx, task);
            return Wake::Any;
        }

        let most = why.wake(|| local.order.is_empty());
        let wake = match local.order.push(task, why) {
            Ok(wake) => wake,
            Err(task) => self.push_full(cx, local, task, why),
        };

        if most == Wake::None { Wake::None } else { wake }
    }

    #[inline(always)]
    fn pop(&self, cx: &mut Cx, local: &mut Self::Local, effort: Effort) -> Option<T> {
        local.left -= 1;
        if local.left == 0
            && let Some(task) = self.pop_due(cx, local)
        {
            return Some(task);
        }
        local
            .order
            .pop(cx)
            .or_else(|| self.pop_elsewhere(cx, local, effort))
    }

    fn maybe_ready(&self, worker: WorkerId) -> bool {
        let mut others = self
            .stealers
            .iter()
            .enumerate()
            .filter(|(w, _)| *w != worker);
        !self.shared.is_empty() || others.any(|(_, stealer)| O::has_tasks(stealer))
    }

    fn pop_spare(&self, cx: &mut Cx) -> Option<T> {
        self.shared.pop(cx).or_else(|| {
            let mut spare = self.spare.lock().unwrap_or_else(|e| e.into_inner());
            let first = cx.below(self.stealers.len());
            let all = self.stealers.len();
            let mut victims = (first..all)
                .chain(0..first)
                .filter(|victim| O::has_tasks(&self.stealers[*victim]));
            victims.find_map(|victim| {
                cx.counts.steal_attempts += 1;
                let (task, tasks) = spare.steal(&self.stealers[victim], |_| 1)?;
                cx.stole(victim, tasks);
                Some(task)
            })
        })
    }

    fn maybe_ready_spare(&self) -> bool {
        !self.shared.is_empty() || self.stealers.iter().any(|stealer| O::has_tasks(stealer))
    }

    fn drain(&self, mut local: Self::Local, sink: &mut dyn FnMut(T)) {
        self.set_out(&mut local, true);
        local.yielded.tasks.drain(..).for_each(&mut *sink);
        local.order.drain(sink);
        self.shared.drain(sink);
    }
}
