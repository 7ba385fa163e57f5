//! Where a task starts that will then be pinned: what [`Policy::place`](super::Policy::place) does
//! unless a policy overrides it.
//!
//! Under `Movement::BeforeStart` a task is pinned to the worker that first runs it. Any worker may
//! pop it before; mostly that is the one it was spawned on, because another one that sleeps takes
//! ten to fifty microseconds to wake up and steal, and hundreds of tasks have started by then. If
//! they live on (an acceptor's connections, a team that works through a lock), one worker has them
//! all and the rest idle. It is worse with a few of them elsewhere: each wake-up of one of these
//! then pays for an idle worker that goes back to sleep at once.
//!
//! **The rule.** A worker that is about to start a task looks at one other worker. If that one is
//! out of work, and this one has more than twice as many live tasks and [`FEW`] on top, the task
//! goes there instead. The worker to look at changes every [`RUN`] tasks. So tasks that end soon
//! are never moved; of many that live on, each worker gets about as many, although the figure read
//! of another worker may be late: it changes when that worker starts them.
//!
//! **Nothing waits behind a busy worker for it.** The other worker finds the task before it sleeps.
//! From then on the task is in a queue as if it had been spawned there, and a worker that has
//! nothing to do may steal it. So it waits beside an idle worker only if the other one has found
//! long work in that very moment.
//!
//! **Rejected.** *Asking for all workers' figures* at each start: a cache line of each. *The least
//! loaded of two random ones:* tasks that start one after the other have to do with each other more
//! often than not, and would part.

use super::{Cx, WorkerId};

/// As many live tasks as this a worker starts whatever the others have.
const FEW: usize = 32;
/// As many tasks in a row look at the same worker.
const RUN: usize = 16;

/// What a policy sees of the workers when it places a task.
///
/// *Live* tasks are those that have started, have not ended, and are pinned to their worker.
pub trait Load {
    /// Returns the worker that has popped the task.
    fn me(&self) -> WorkerId;

    /// Returns the number of workers.
    fn workers(&self) -> usize;

    /// Returns how many live tasks this worker has.
    fn mine(&self) -> usize;

    /// Returns how many live tasks `worker` has, or had a moment ago.
    ///
    /// # Panics
    /// If there is no such worker.
    fn live(&self, worker: WorkerId) -> usize;

    /// Returns whether `worker` is out of work, or was a moment ago: it searches for some or
    /// sleeps.
    ///
    /// # Panics
    /// If there is no such worker.
    fn is_idle(&self, worker: WorkerId) -> bool;
}

/// Returns the worker that has so much less to do than this one that the task should start there.
/// Costs a comparison as long as this worker has few live tasks.
#[inline(always)]
pub(super) fn by_load(cx: &mut Cx, load: &impl Load) -> Option<WorkerId> {
    if load.mine() <= FEW {
        None
    } else {
        look_at_another(cx, load)
    }
}

#[inline(never)]
fn look_at_another(cx: &mut Cx, load: &impl Load) -> Option<WorkerId> {
    let turn = cx.placements;
    cx.placements = turn.wrapping_add(1);
    let other = turn / RUN % load.workers();
    let idle = other != load.me() && load.is_idle(other);
    (idle && load.mine() > 2 * load.live(other) + FEW).then_some(other)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Worker 0 of these, with live tasks each; those without are idle.
    struct Pool(Vec<usize>);

    impl Load for Pool {
        fn me(&self) -> WorkerId {
            0
        }
        fn workers(&self) -> usize {
            self.0.len()
        }
        fn mine(&self) -> usize {
            self.0[0]
        }
        fn live(&self, worker: WorkerId) -> usize {
            self.0[worker]
        }
        fn is_idle(&self, worker: WorkerId) -> bool {
            self.0[worker].is_multiple_of(2)
        }
    }

    #[test]
    fn few_tasks_stay() {
        let mut cx = Cx::new(1);
        assert!((0..1000).all(|_| by_load(&mut cx, &Pool(vec![FEW, 0, 0])).is_none()));
    }

    #[test]
    fn runs_of_tasks_go_to_each_idle_worker_that_has_less_than_half() {
        let mut cx = Cx::new(1);
        let mut sent = [0; 5];
        // Worker 2 is busy; worker 3 has too many; workers 1 and 4 take a run each of every five.
        let pool = Pool(vec![100, 0, 1, 34, 32]);
        let places: Vec<_> = (0..5 * RUN * 10).map(|_| by_load(&mut cx, &pool)).collect();
        places.iter().flatten().for_each(|place| sent[*place] += 1);
        assert_eq!(sent, [0, 10 * RUN, 0, 0, 10 * RUN]);
        assert_eq!(places[RUN..2 * RUN], [Some(1); RUN]);
    }
}
