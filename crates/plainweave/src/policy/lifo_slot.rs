//! FIFO with a one-task slot for what was woken last, as in Go's `runnext` and Tokio's LIFO slot: a message and its
//! receiver meet while the message is still in the cache.
//!
//! The published slots can starve: two tasks that wake each other keep it to themselves, and nobody may steal from it.
//! Here the slot wins at most [`IN_A_ROW`] times in a row while others wait. It is not stealable (a task in it runs
//! within so many switches, unless its worker is stuck in one fiber); only tasks that were *woken* use it, so a burst
//! of spawned tasks stays in order and can be stolen.

use super::stealing::{Lanes, Shared};
use super::{Cx, Effort, Policy, Ready, Task, Topology, Wake, WorkerId};

/// So many times in a row the slot may win.
const IN_A_ROW: u32 = 3;

/// See the module's page.
pub struct LifoSlot<T>(Shared<T>);

/// A worker's half of [`LifoSlot`].
pub struct LifoSlotLocal<T> {
    lanes: Lanes<T>,
    slot: Option<T>,
    in_a_row: u32,
}

impl<T: Task + 'static> Policy<T> for LifoSlot<T> {
    type Params = ();
    type Local = LifoSlotLocal<T>;

    fn new((): (), topology: &Topology) -> Self {
        Self(Shared::new(topology))
    }

    fn attach(&self, worker: WorkerId) -> LifoSlotLocal<T> {
        LifoSlotLocal { lanes: self.0.attach(worker), slot: None, in_a_row: 0 }
    }

    #[inline(always)]
    fn push(&self, _: &mut Cx, local: Option<&mut LifoSlotLocal<T>>, task: T, why: Ready) -> Wake {
        let Some(local) = local else { return self.0.push(None, task) };
        if why != Ready::Woken {
            let alone = why == Ready::Yielded && local.lanes.len() == 0;
            let wake = self.0.push(Some(&mut local.lanes), task);
            return if alone { Wake::None } else { wake };
        }
        // The one that is displaced is older: it queues.
        local.slot.replace(task).map_or(Wake::None, |older| self.0.push(Some(&mut local.lanes), older))
    }

    #[inline(always)]
    fn pop(&self, cx: &mut Cx, local: &mut LifoSlotLocal<T>, effort: Effort) -> Option<T> {
        if local.in_a_row < IN_A_ROW
            && let Some(task) = local.slot.take()
        {
            local.in_a_row += 1;
            return Some(task);
        }
        local.in_a_row = 0;
        let next = self.0.pop(&mut local.lanes).or_else(|| local.slot.take());
        if next.is_none() && effort == Effort::Search { self.0.steal(cx, &mut local.lanes) } else { next }
    }

    fn maybe_ready(&self, worker: WorkerId) -> bool {
        self.0.maybe_ready(worker)
    }

    fn drain(&self, mut local: LifoSlotLocal<T>, sink: &mut dyn FnMut(T)) {
        if let Some(task) = local.slot.take() {
            sink(task);
        }
        self.0.drain(local.lanes, sink);
    }
}
