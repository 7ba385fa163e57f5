//! First in, first out: each worker runs its tasks in the order in which they became ready and steals half of another's
//! oldest when it has none. The base case of the OCaml schedulers' thesis, and of most runtimes.
//!
//! For it: bounded waiting (a task waits for at most all that were ready before it), good latency at the tail.
//! Against it: a task that was just woken finds its data cold.

use super::stealing::{Lanes, Shared};
use super::{Cx, Effort, Policy, Ready, Task, Topology, Wake, WorkerId};

/// See the module's page.
pub struct Fifo<T>(Shared<T>);

/// A worker's half of [`Fifo`].
pub struct FifoLocal<T>(Lanes<T>);

impl<T: Task + 'static> Policy<T> for Fifo<T> {
    type Params = ();
    type Local = FifoLocal<T>;

    fn new((): (), topology: &Topology) -> Self {
        Self(Shared::new(topology))
    }

    fn attach(&self, worker: WorkerId) -> FifoLocal<T> {
        FifoLocal(self.0.attach(worker))
    }

    #[inline(always)]
    fn push(&self, _: &mut Cx, mut local: Option<&mut FifoLocal<T>>, task: T, why: Ready) -> Wake {
        let alone = why == Ready::Yielded && local.as_deref_mut().is_some_and(|l| l.0.len() == 0);
        let wake = self.0.push(local.map(|l| &mut l.0), task);
        // A task that yields to nobody is taken up again at once.
        if alone { Wake::None } else { wake }
    }

    #[inline(always)]
    fn pop(&self, cx: &mut Cx, local: &mut FifoLocal<T>, effort: Effort) -> Option<T> {
        let own = self.0.pop(&mut local.0);
        if own.is_none() && effort == Effort::Search { self.0.steal(cx, &mut local.0) } else { own }
    }

    fn maybe_ready(&self, worker: WorkerId) -> bool {
        self.0.maybe_ready(worker)
    }

    fn drain(&self, local: FifoLocal<T>, sink: &mut dyn FnMut(T)) {
        self.0.drain(local.0, sink);
    }
}
