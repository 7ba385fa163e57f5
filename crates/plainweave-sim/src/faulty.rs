//! A policy with a planted fault, to see that the checkers of a run find it.
//!
//! Without a fault it is one queue for all workers, which promises everything that can be promised:
//! work is conserved always, and waiting is bounded.

use std::collections::VecDeque;

use crate::check::Promises;
use crate::engine::{Setup, run};
use crate::figures::Outcome;
use crate::policy::{Conservation, Cx, Effort, Policy, Ready, Topology, Wake, WorkerId};
use crate::shim::{Mutex, MutexGuard, spin_loop};
use crate::task::Ticket;

/// The push that a fault concerns, if it concerns one.
const NTH: u64 = 100;

/// What is wrong with the policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It forgets a task.
    Loses,
    /// It hands a task out a second time.
    Repeats,
    /// It runs one task only when there is no other.
    Starves,
    /// It wakes no worker, and tells those about to sleep that there is nothing.
    LetsSleep,
    /// A pop never returns.
    Spins,
    /// A pop panics.
    Panics,
}

/// Carries out a run with that policy in place of the one that `setup` names; `None`: without a
/// fault.
///
/// # Errors
/// A checker has found the fault: its message.
pub fn simulate_fault(setup: &Setup, fault: Option<Fault>) -> Result<Outcome, String> {
    run::<Faulty>(
        setup,
        Promises {
            conservation: Conservation::Always,
            bounded: true,
        },
        fault,
    )
}

struct Faulty {
    fault: Option<Fault>,
    queue: Mutex<Queue>,
}

#[derive(Default)]
struct Queue {
    pushes: u64,
    tasks: VecDeque<Ticket>,
    /// The task that starves.
    aside: Option<Ticket>,
}

impl Faulty {
    fn has(&self, fault: Fault) -> bool {
        self.fault == Some(fault)
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(|e| e.into_inner())
    }
}

impl Policy<Ticket> for Faulty {
    type Params = Option<Fault>;
    type Local = ();

    fn new(fault: Option<Fault>, _: &Topology) -> Self {
        Self {
            fault,
            queue: Mutex::default(),
        }
    }

    fn attach(&self, _: WorkerId) {}

    fn push(&self, _: &mut Cx, _: Option<&mut ()>, task: Ticket, _: Ready) -> Wake {
        let mut queue = self.queue();
        queue.pushes += 1;
        match self.fault.filter(|_| queue.pushes == NTH) {
            Some(Fault::Loses) => {}
            Some(Fault::Starves) => queue.aside = Some(task),
            Some(Fault::Repeats) => {
                let second = Ticket::new(task.id());
                queue.tasks.extend([task, second]);
            }
            _ => queue.tasks.push_back(task),
        }

        if self.has(Fault::LetsSleep) {
            Wake::None
        } else {
            Wake::Any
        }
    }

    fn pop(&self, _: &mut Cx, (): &mut (), _: Effort) -> Option<Ticket> {
        let mut queue = self.queue();
        if queue.pushes >= NTH {
            assert!(!self.has(Fault::Panics), "this policy panics on purpose");
            while self.has(Fault::Spins) {
                spin_loop();
            }
        }

        let next = queue.tasks.pop_front();
        next.or_else(|| queue.aside.take())
    }

    fn maybe_ready(&self, _: WorkerId) -> bool {
        let queue = self.queue();
        !self.has(Fault::LetsSleep) && (queue.aside.is_some() || !queue.tasks.is_empty())
    }

    fn drain(&self, (): (), sink: &mut dyn FnMut(Ticket)) {
        self.queue().tasks.drain(..).for_each(sink);
    }
}
