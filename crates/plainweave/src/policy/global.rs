//! One queue for all, first in, first out. The simplest scheduler on several processors (Linux
//! before 2.6, Go before 1.1), and the fairest: whoever waits longest runs next, wherever a worker
//! is free.
//!
//! Against it: every push and pop moves the same cache lines (and, beyond a thousand waiting tasks,
//! takes a lock), so it stops scaling after a few workers, and a task's data is seldom where it
//! runs. Pinned tasks cannot be in it: they wait in a lane of their worker, which alternates with
//! the queue.

use std::collections::VecDeque;

use super::pinned::Pinned;
use super::{Cx, DirectSwitch, Effort, Policy, Ready, Task, Topology, Wake, WorkerId};
use crate::queue::shared::Sharded;

/// One queue for all workers, first in, first out: the fairest policy, but each push and pop moves
/// the same cache lines.
pub struct GlobalFifo<T> {
    /// There is one worker.
    sole: bool,
    queue: Sharded<T>,
}

/// A worker's half of [`GlobalFifo`].
pub struct GlobalLocal<T> {
    pinned: Pinned<VecDeque<T>>,
}

impl<T: Task + 'static> Policy<T> for GlobalFifo<T> {
    type Params = ();
    type Local = GlobalLocal<T>;

    const SPARES: bool = true;
    const DIRECT: DirectSwitch = DirectSwitch::Always;

    fn new((): (), topology: &Topology) -> Self {
        Self {
            sole: topology.is_sole(),
            queue: Sharded::lock_free(1),
        }
    }

    fn attach(&self, _: WorkerId) -> GlobalLocal<T> {
        GlobalLocal {
            pinned: Pinned::fifo(self.sole),
        }
    }

    fn push(
        &self,
        _: &mut Cx,
        local: Option<&mut GlobalLocal<T>>,
        mut task: T,
        why: Ready,
    ) -> Wake {
        let mut wake = Wake::Any;
        if let Some(local) = local {
            task = match local.pinned.push(task) {
                Ok(()) => return Wake::None,
                Err(task) => task,
            };
            wake = why.wake(|| local.pinned.is_empty() && self.queue.is_empty());
        }

        self.queue.push(0, task);
        wake
    }

    fn pop(&self, _: &mut Cx, local: &mut GlobalLocal<T>, _: Effort) -> Option<T> {
        local.pinned.alternate(|| self.queue.pop(0))
    }

    fn maybe_ready(&self, _: WorkerId) -> bool {
        !self.queue.is_empty()
    }

    fn pop_spare(&self, _: &mut Cx) -> Option<T> {
        self.queue.pop(0)
    }

    fn maybe_ready_spare(&self) -> bool {
        !self.queue.is_empty()
    }

    fn drain(&self, mut local: GlobalLocal<T>, sink: &mut dyn FnMut(T)) {
        local.pinned.tasks.drain(..).for_each(&mut *sink);
        std::iter::from_fn(|| self.queue.pop(0)).for_each(sink);
    }
}
