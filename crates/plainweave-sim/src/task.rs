//! Simulated fibers: what a policy holds of one, and what the simulation knows of all.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::costs::Picos;
use crate::policy::{Nanos, Task, WorkerId};

/// A fiber's number. Numbers are used again.
pub(crate) type TaskId = usize;

/// What a policy holds of a fiber: as in the runtime, one pointer.
#[derive(Debug)]
pub(crate) struct Ticket(Box<Record>);

#[derive(Debug)]
struct Record {
    id: TaskId,
    stamp: AtomicU64,
    last: Option<WorkerId>,
}

impl Ticket {
    pub(crate) fn new(id: TaskId) -> Self {
        Self(Box::new(Record {
            id,
            stamp: AtomicU64::new(0),
            last: None,
        }))
    }

    pub(crate) fn id(&self) -> TaskId {
        self.0.id
    }

    pub(crate) fn runs_on(&mut self, worker: WorkerId) {
        self.0.last = Some(worker);
    }
}

impl Task for Ticket {
    fn pinned(&self) -> Option<WorkerId> {
        None
    }

    fn last_worker(&self) -> Option<WorkerId> {
        self.0.last
    }

    fn stamp(&self) -> Nanos {
        self.0.stamp.load(Ordering::Relaxed)
    }

    fn set_stamp(&self, now: Nanos) {
        self.0.stamp.store(now, Ordering::Relaxed);
    }
}

/// Where a fiber is.
#[derive(Debug)]
pub(crate) enum Place {
    /// There is none of this number.
    Free,
    /// Created, and not yet pushed.
    New(Ticket),
    /// The policy has it.
    Ready,
    /// A worker runs it.
    Running,
    /// It waits to be woken.
    Waiting(Ticket),
}

/// What the simulation knows of a fiber.
#[derive(Debug)]
pub(crate) struct Fiber {
    pub(crate) place: Place,
    /// It was woken before it waited, so its next wait returns at once.
    pub(crate) token: bool,
    pub(crate) born: Picos,
    /// The pool that it runs in.
    pub(crate) pool: usize,
    /// What the workload makes of these.
    pub(crate) kind: usize,
    pub(crate) step: u64,
    pub(crate) other: TaskId,
}

/// All fibers of a run.
#[derive(Debug, Default)]
pub(crate) struct Fibers {
    all: Vec<Fiber>,
    free: Vec<TaskId>,
}

impl Fibers {
    /// Creates a fiber of a kind that the workload knows, in the first pool.
    pub(crate) fn create(&mut self, kind: usize, born: Picos) -> TaskId {
        let id = self.free.pop().unwrap_or(self.all.len());
        let fiber = Fiber {
            place: Place::New(Ticket::new(id)),
            token: false,
            born,
            pool: 0,
            kind,
            step: 0,
            other: 0,
        };

        match self.all.get_mut(id) {
            Some(place) => *place = fiber,
            None => self.all.push(fiber),
        }

        id
    }

    pub(crate) fn get(&mut self, id: TaskId) -> &mut Fiber {
        &mut self.all[id]
    }

    /// Takes a fiber off the record that has ended.
    pub(crate) fn end(&mut self, id: TaskId) {
        self.all[id].place = Place::Free;
        self.free.push(id);
    }

    /// Returns the number of live fibers.
    pub(crate) fn live(&self) -> usize {
        self.all.len() - self.free.len()
    }
}
