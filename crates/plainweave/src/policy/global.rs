//! One queue for all, first in, first out. The simplest scheduler on several processors (Linux before 2.6, Go before
//! 1.1), and the fairest: whoever waits longest runs next, wherever a worker is free.
//!
//! Against it: every push and pop moves the same cache lines (and, beyond a thousand waiting tasks, takes a lock), so
//! it stops scaling after a few workers, and a task's data is seldom where it runs. Anchored tasks cannot be in it:
//! they wait in a lane of their worker, by turns with the queue.

use std::collections::VecDeque;

use super::{Cx, Effort, Policy, Ready, Task, Topology, Wake, WorkerId};
use crate::queue::sharded::Sharded;

/// See the module's page.
pub struct GlobalFifo<T> {
    alone: bool,
    queue: Sharded<T>,
}

/// A worker's half of [`GlobalFifo`].
pub struct GlobalLocal<T> {
    /// Tasks that stay; with one worker, all that it pushes.
    anchored: VecDeque<T>,
    turn: bool,
}

impl<T: Task + 'static> Policy<T> for GlobalFifo<T> {
    type Params = ();
    type Local = GlobalLocal<T>;

    fn new((): (), topology: &Topology) -> Self {
        Self { alone: topology.workers == 1, queue: Sharded::lock_free(1) }
    }

    fn attach(&self, _: WorkerId) -> GlobalLocal<T> {
        GlobalLocal { anchored: VecDeque::new(), turn: false }
    }

    fn push(&self, _: &mut Cx, local: Option<&mut GlobalLocal<T>>, task: T, why: Ready) -> Wake {
        let mut alone = false;
        if let Some(local) = local {
            if self.alone || task.anchor().is_some() {
                local.anchored.push_back(task);
                return Wake::None;
            }
            alone = why == Ready::Yielded && local.anchored.is_empty() && self.queue.is_empty();
        }
        self.queue.push(0, task);
        // A task that yields to nobody is taken up again at once.
        if alone { Wake::None } else { Wake::Any }
    }

    fn pop(&self, _: &mut Cx, local: &mut GlobalLocal<T>, _: Effort) -> Option<T> {
        local.turn = !local.turn;
        if local.turn {
            local.anchored.pop_front().or_else(|| self.queue.pop(0))
        } else {
            self.queue.pop(0).or_else(|| local.anchored.pop_front())
        }
    }

    fn maybe_ready(&self, _: WorkerId) -> bool {
        !self.queue.is_empty()
    }

    fn drain(&self, mut local: GlobalLocal<T>, sink: &mut dyn FnMut(T)) {
        local.anchored.drain(..).for_each(&mut *sink);
        std::iter::from_fn(|| self.queue.pop(0)).for_each(sink);
    }
}
