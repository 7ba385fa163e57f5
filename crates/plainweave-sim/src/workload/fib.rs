//! Fibonacci numbers (OCaml schedulers' thesis): each call spawns and joins both of its children.
//! Latency is one figure, from the first call to its result. `plainweave bench thesis fib` has the
//! same on real workers.
//!
//! A call that has ended writes to a line that its parent reads in its join, and wakes the parent
//! if it waits there. So a join of a child that another worker has run costs a transfer. The line
//! is free again then, and the worker's next call gets it, as from an allocator: one that no worker
//! has comes from memory.

use super::{Action, Step, Workload};
use crate::costs::{Costs, Picos};
use crate::policy::WorkerId;
use crate::task::{Fibers, TaskId};

/// The first line of the results, beyond those of fibers.
const RESULTS: u64 = 1 << 40;

/// What a call does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// It computes, and creates its children.
    Begins,
    /// It spawns a child.
    Spawns(usize),
    /// It looks at a child's result.
    Looks(usize),
    /// It waits unless that child has ended.
    Joins(usize),
    /// It writes its own result.
    Writes,
    /// It wakes its parent if that waits for it.
    Wakes,
    /// It ends.
    Ends,
}

/// A call whose fiber lives.
#[derive(Clone, Debug)]
struct Call {
    n: u64,
    phase: Phase,
    /// Its parent, and which of the parent's children it is.
    parent: Option<(TaskId, usize)>,
    /// Where its result is.
    result: u64,
    /// The lines of its children's results.
    children: [u64; 2],
    ended: [bool; 2],
    /// The child that it waits for, or has waited for.
    joining: Option<usize>,
}

pub(super) struct Fib {
    n: u64,
    /// By the numbers of their fibers.
    calls: Vec<Option<Call>>,
    made: u64,
    results: Results,
    costs: Costs,
}

/// The lines of results, but for the first call's.
#[derive(Debug, Default)]
struct Results {
    /// Those that are free, by the worker that has freed them.
    free: Vec<Vec<u64>>,
    made: u64,
}

impl Results {
    fn take(&mut self, worker: WorkerId) -> u64 {
        self.free
            .get_mut(worker)
            .and_then(Vec::pop)
            .unwrap_or_else(|| {
                self.made += 1;
                RESULTS + self.made
            })
    }

    fn free(&mut self, worker: WorkerId, line: u64) {
        self.free
            .resize_with(self.free.len().max(worker + 1), Vec::new);
        self.free[worker].push(line);
    }
}

impl Fib {
    pub(super) fn new(n: u64, costs: &Costs) -> Self {
        Self {
            n,
            calls: Vec::new(),
            made: 0,
            results: Results::default(),
            costs: costs.clone(),
        }
    }

    /// Creates a call. `result` is the line that its result will be on.
    fn create(
        &mut self,
        fibers: &mut Fibers,
        n: u64,
        result: u64,
        parent: Option<(TaskId, usize)>,
    ) -> TaskId {
        let fiber = fibers.create(0, 0);
        self.made += 1;
        let call = Call {
            n,
            phase: Phase::Begins,
            parent,
            result,
            children: [0; 2],
            ended: [false; 2],
            joining: None,
        };

        if self.calls.len() <= fiber {
            self.calls.resize(fiber + 1, None);
        }
        self.calls[fiber] = Some(call);
        fiber
    }

    fn call(&mut self, fiber: TaskId) -> &mut Call {
        self.calls[fiber]
            .as_mut()
            .expect("a fiber that lives has a call")
    }

    /// Returns what the fiber does, or nothing if a step took no time.
    fn advance(&mut self, fiber: TaskId, step: &mut Step<'_>) -> Option<Action> {
        let call = self.call(fiber);
        let phase = call.phase;
        let is_leaf = call.n < 2;
        call.phase = match phase {
            Phase::Begins if is_leaf => Phase::Writes,
            Phase::Begins => Phase::Spawns(0),
            Phase::Spawns(0) => Phase::Spawns(1),
            Phase::Spawns(_) => Phase::Looks(0),
            Phase::Looks(child) => Phase::Joins(child),
            Phase::Joins(child) if !call.ended[child] => phase,
            Phase::Joins(0) => Phase::Looks(1),
            Phase::Joins(_) => Phase::Writes,
            Phase::Writes => Phase::Wakes,
            Phase::Wakes | Phase::Ends => Phase::Ends,
        };

        match phase {
            Phase::Begins if is_leaf => Some(Action::Compute(self.costs.call)),
            Phase::Begins => Some(Action::Compute(self.costs.call + 2 * self.costs.task)),
            Phase::Spawns(child) => Some(self.spawn(fiber, child, step)),
            Phase::Looks(child) => Some(Action::Touch(call.children[child])),
            Phase::Joins(child) if !call.ended[child] => {
                call.joining = Some(child);
                Some(Action::Wait)
            }
            Phase::Joins(child) => {
                let result = call.children[child];
                self.results.free(step.worker, result);
                None
            }
            Phase::Writes => Some(Action::Touch(call.result)),
            Phase::Wakes => self.tell_parent(fiber),
            Phase::Ends => {
                self.end(fiber, step);
                Some(Action::End)
            }
        }
    }

    fn spawn(&mut self, fiber: TaskId, child: usize, step: &mut Step<'_>) -> Action {
        let result = self.results.take(step.worker);
        let call = self.call(fiber);
        call.children[child] = result;
        let n = call.n - 1 - child as u64;
        Action::Spawn(self.create(step.fibers, n, result, Some((fiber, child))))
    }

    /// Notes with the parent that the call has its result.
    fn tell_parent(&mut self, fiber: TaskId) -> Option<Action> {
        let (parent, child) = self.call(fiber).parent?;
        let call = self.call(parent);
        call.ended[child] = true;
        (call.joining == Some(child)).then_some(Action::Wake(parent))
    }

    fn end(&mut self, fiber: TaskId, step: &mut Step<'_>) {
        let call = self.calls[fiber].take();
        if call.is_some_and(|call| call.parent.is_none()) {
            (step.latency)(step.now);
        }
    }
}

impl Workload for Fib {
    fn arrival(&mut self, fibers: &mut Fibers) -> Option<(Picos, TaskId)> {
        let first = (self.made == 0).then(|| self.create(fibers, self.n, RESULTS, None));
        first.map(|first| (0, first))
    }

    fn next(&mut self, fiber: TaskId, step: &mut Step<'_>) -> Action {
        loop {
            if let Some(action) = self.advance(fiber, step) {
                return action;
            }
        }
    }

    fn operations(&self) -> u64 {
        self.made
    }
}
