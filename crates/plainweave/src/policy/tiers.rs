//! Two policies, one before the other: tasks of a priority from [`TiersParams::from`] on belong to
//! the upper one, the others to the lower one, which gets every n-th pop whatever waits above it.
//! Composition by types: each may be any policy, another `Tiers` too.
//!
//! For it: each class of work has the scheduler that fits it. Against it: what is below a busy
//! upper tier gets one pop in [`TiersParams::every`], however long it has waited (`priority` ages
//! instead).

use super::{Cx, DirectSwitch, Effort, Load, Policy, Ready, Task, Topology, Wake, WorkerId};

/// Two policies, one before the other: tasks of a priority from [`TiersParams::from`] on belong to
/// the upper one. The lower one gets every [`TiersParams::every`]th pop, whatever waits above it.
pub struct Tiers<H, L> {
    high: H,
    low: L,
    from: u8,
    every: u32,
}

/// Parameters of both policies, and how they are joined.
#[derive(Clone, Debug)]
pub struct TiersParams<H, L> {
    /// Parameters of the upper policy.
    pub high: H,
    /// Parameters of the lower policy.
    pub low: L,
    /// The least priority that belongs to the upper one.
    pub from: u8,
    /// How many pops it takes until the lower one goes first, at least 1.
    pub every: u32,
}

/// A worker's halves of both policies.
pub struct TiersLocal<H, L> {
    high: H,
    low: L,
    left: u32,
}

impl<T: Task, H: Policy<T>, L: Policy<T>> Policy<T> for Tiers<H, L> {
    type Params = TiersParams<H::Params, L::Params>;
    type Local = TiersLocal<H::Local, L::Local>;

    const SPARES: bool = H::SPARES && L::SPARES;
    const DIRECT: DirectSwitch = H::DIRECT.before(L::DIRECT);

    fn new(params: Self::Params, topology: &Topology) -> Self {
        let high = H::new(params.high, topology);
        let low = L::new(params.low, topology);
        Self {
            high,
            low,
            from: params.from,
            every: params.every.max(1),
        }
    }

    fn attach(&self, worker: WorkerId) -> Self::Local {
        TiersLocal {
            high: self.high.attach(worker),
            low: self.low.attach(worker),
            left: self.every,
        }
    }

    fn push(&self, cx: &mut Cx, local: Option<&mut Self::Local>, task: T, why: Ready) -> Wake {
        if task.priority() >= self.from {
            self.high.push(cx, local.map(|l| &mut l.high), task, why)
        } else {
            self.low.push(cx, local.map(|l| &mut l.low), task, why)
        }
    }

    fn pop(&self, cx: &mut Cx, local: &mut Self::Local, effort: Effort) -> Option<T> {
        local.left -= 1;
        if local.left == 0 {
            local.left = self.every;
            if let Some(task) = self.low.pop(cx, &mut local.low, effort) {
                return Some(task);
            }
        }

        // What is at hand below goes before a search above.
        let quick = self.high.pop(cx, &mut local.high, Effort::Quick);
        let quick = quick.or_else(|| self.low.pop(cx, &mut local.low, Effort::Quick));
        if quick.is_some() || effort == Effort::Quick {
            return quick;
        }
        let found = self.high.pop(cx, &mut local.high, effort);

        found.or_else(|| self.low.pop(cx, &mut local.low, effort))
    }

    fn place(&self, cx: &mut Cx, task: &impl Task, load: &impl Load) -> Option<WorkerId> {
        if task.priority() >= self.from {
            self.high.place(cx, task, load)
        } else {
            self.low.place(cx, task, load)
        }
    }

    fn maybe_ready(&self, worker: WorkerId) -> bool {
        self.high.maybe_ready(worker) || self.low.maybe_ready(worker)
    }

    fn pop_spare(&self, cx: &mut Cx) -> Option<T> {
        self.high.pop_spare(cx).or_else(|| self.low.pop_spare(cx))
    }

    fn maybe_ready_spare(&self) -> bool {
        self.high.maybe_ready_spare() || self.low.maybe_ready_spare()
    }

    fn drain(&self, local: Self::Local, sink: &mut dyn FnMut(T)) {
        self.high.drain(local.high, sink);
        self.low.drain(local.low, sink);
    }
}
