//! A scheduling policy of your own: the most recently woken fiber runs first, wherever a worker is
//! free. This is the least that a policy consists of; `tiers` composes existing ones, and
//! `plainweave::policy` lists those.
//!
//! One stack behind a lock is shared by all workers. Tasks that may not move wait in a queue of
//! their worker, which `Pinned` keeps and takes from alternately with the stack.

use std::collections::VecDeque;
use std::io::{self, Write};
use std::iter;
use std::sync::{Mutex, MutexGuard, PoisonError};

use plainweave::policy::{Cx, Effort, Pinned, Policy, Ready, Task, Topology, Wake, WorkerId};
use plainweave::{FiberTask, Runtime};

/// All ready tasks that may run anywhere, the newest last. Old ones may wait for ever: that is the
/// price of LIFO.
pub(crate) struct Newest<T> {
    stack: Mutex<Vec<T>>,
}

impl<T> Newest<T> {
    // A lock of `std`: it is never held while a fiber waits.
    fn stack(&self) -> MutexGuard<'_, Vec<T>> {
        self.stack.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T: Task + 'static> Policy<T> for Newest<T> {
    type Params = ();
    type Local = Pinned<VecDeque<T>>;

    fn new((): (), _: &Topology) -> Self {
        Self {
            stack: Mutex::new(Vec::new()),
        }
    }

    fn attach(&self, _: WorkerId) -> Self::Local {
        Pinned::fifo(false)
    }

    /// Says whom to wake: nobody for a pinned task, which comes from its own worker; else any
    /// worker that sleeps.
    fn push(&self, _: &mut Cx, local: Option<&mut Self::Local>, task: T, _: Ready) -> Wake {
        let task = match local {
            Some(local) => match local.push(task) {
                Ok(()) => return Wake::None,
                Err(task) => task,
            },
            None => task,
        };

        self.stack().push(task);
        Wake::Any
    }

    fn pop(&self, _: &mut Cx, local: &mut Self::Local, _: Effort) -> Option<T> {
        local.alternate(|| self.stack().pop())
    }

    /// The last look of a worker that is about to sleep: it must not miss a task that was pushed
    /// before.
    fn maybe_ready(&self, _: WorkerId) -> bool {
        !self.stack().is_empty()
    }

    fn drain(&self, mut local: Self::Local, sink: &mut dyn FnMut(T)) {
        let shared = iter::from_fn(|| self.stack().pop());
        iter::from_fn(|| local.pop()).chain(shared).for_each(sink);
    }
}

/// Returns in which order one worker runs fibers that became ready in the order 0, 1, 2, 3.
pub(crate) fn order() -> io::Result<Vec<u32>> {
    let runtime = Runtime::builder()
        .workers(1)
        .build_with::<Newest<FiberTask>>(())?;
    let order = Mutex::new(Vec::new());
    runtime.run(|| {
        plainweave::scope(|scope| {
            for n in 0..4 {
                let order = &order;
                scope.spawn(move || order.lock().unwrap_or_else(PoisonError::into_inner).push(n));
            }
        });
    });
    Ok(order.into_inner().unwrap_or_else(PoisonError::into_inner))
}

fn main() -> io::Result<()> {
    writeln!(io::stdout(), "{:?}", order()?)
}
