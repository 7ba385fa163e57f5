//! What a worker decides that has nothing to run: whether it searches, when it sleeps, which worker
//! it wakes. Steps without threads, clocks or I/O, so that the runtime and the simulator
//! (`plainweave-sim`) carry out the very same ones; a simulated latency would otherwise be another
//! runtime's.
//!
//! The words and the proof are in `atomics/sleepers`, which the numbers below refer to.
//!
//! ```text
//!              mail, or a task found
//!   running <--------------------------- searching <----------------+
//!      |                                  ^     |                   | chosen by a pusher (9)
//!      | nothing to run,                  |     | nothing found     |
//!      | and few search already           |     v                   |
//!      +----------------------------------+   announced (4-6) ---> asleep (8)
//!      |                                        ^    |  last look (7) finds nothing
//!      +----------------------------------------+    |
//!        nothing to run, and enough search           +--> searching: the last look found something
//! ```
//!
//! **Which workers search.** About half of the regular ones, rounded up: two that ask at once may
//! both begin. One that a pusher has woken counts as searching, as does one whose last look found
//! something, whatever the limit: pushers rely on it.
//!
//! **Which worker is woken.** The one with the lowest number that sleeps, and none while another
//! searches.
//!
//! **When a wake-up cascades.** A searcher that finds a task stops searching; the last of them
//! looks for more work, and wakes the next worker if there is some.

use std::cell::Cell;

use crate::atomics::sleepers::{Sleepers, Slept};
use crate::policy::{Effort, Wake, WorkerId};
use crate::shim::spin_loop;

/// What these decisions ask of a worker, and what they have it do.
pub(crate) trait Idler {
    /// What the policy hands out.
    type Task;

    /// Returns its number.
    fn id(&self) -> WorkerId;

    /// Returns the number of the pool's workers, without spare ones.
    fn regular(&self) -> usize;

    /// Returns the words that the pool's workers meet at.
    fn sleepers(&self) -> &Sleepers;

    /// Returns whether it counts as searching.
    fn searching(&self) -> &Cell<bool>;

    /// Returns whether something was sent to this worker alone.
    fn has_mail(&self) -> bool;

    /// Queues what was sent to it.
    fn read_mail(&self);

    /// Asks the policy for a task.
    fn pop(&self, effort: Effort) -> Option<Self::Task>;

    /// Asks the policy whether `worker` could find something.
    fn maybe_ready(&self, worker: WorkerId) -> bool;

    /// Asks the policy whether a spare worker could find something.
    fn maybe_ready_spare(&self) -> bool;

    /// Publishes what it has counted: whoever sees it asleep sees all of its counts.
    fn publish(&self);

    /// Marks it as asleep for those who send something to it alone and look at no other word
    /// (`queue/mpsc`). Returns false if they have sent something.
    fn doze(&self) -> bool;

    /// Returns whether anything else keeps it from sleeping: the pool's end, say.
    fn is_called(&self) -> bool;

    /// Undoes what `doze` has marked.
    fn rouse(&self);

    /// Sleeps (step 8) until a timer, an event or a signal, and calls `awake` as the first thing
    /// afterwards.
    fn fall_asleep(&self, awake: impl FnOnce());

    /// Wakes another worker, if one is needed.
    fn wake_another(&self);

    /// Runs a task that it has found out of turn.
    fn run_found(&self, task: Self::Task);
}

/// Returns which worker to signal after a push that asked for `wake`; `workers` counts spare ones
/// as well.
pub(crate) fn chosen(sleepers: &Sleepers, workers: usize, wake: Wake) -> Option<WorkerId> {
    match wake {
        Wake::None => None,
        Wake::Worker(worker) if worker < workers => sleepers.wake_worker(worker).then_some(worker),
        // A number beyond: there is no such worker, so the policy is wrong.
        Wake::Any | Wake::Worker(_) => sleepers.wake_any(),
    }
}

/// Searches for work elsewhere, and sleeps if there is none.
pub(crate) fn idle<W: Idler>(worker: &W) {
    if worker.has_mail() {
        return worker.read_mail();
    }
    let mut searching = worker.searching().take();
    if worker.regular() > 1 {
        searching = searching || worker.sleepers().begin_search();
        if searching && let Some(task) = worker.pop(Effort::Search) {
            return found(worker, task);
        }
    }

    worker.publish();
    worker.sleepers().begin_sleep(worker.id(), searching);
    if last_look(worker) {
        worker.sleepers().cancel_sleep(worker.id());
        worker.rouse();
        worker.searching().set(true);
        // The task may be in another thief's hands: let it finish.
        spin_loop();
    } else {
        worker.fall_asleep(|| {
            worker
                .searching()
                .set(worker.sleepers().end_sleep(worker.id()) == Slept::Woken);
            worker.rouse();
        });
    }

    settle(worker);
}

/// Looks at everything that could be the worker's to do (step 7). Returns whether there is
/// something.
fn last_look<W: Idler>(worker: &W) -> bool {
    !worker.doze() || worker.has_mail() || worker.maybe_ready(worker.id()) || worker.is_called()
}

/// Ends the search after a last look or a sleep if the worker's own queues have something.
fn settle<W: Idler>(worker: &W) {
    if !worker.searching().get() {
        return;
    }
    if worker.has_mail() {
        worker.read_mail();
    }
    if let Some(task) = worker.pop(Effort::Quick) {
        worker.searching().set(false);
        found(worker, task);
    }
}

/// Runs the task that a searching worker found; the last searcher wakes another if there is more
/// work.
pub(crate) fn found<W: Idler>(worker: &W, task: W::Task) {
    if worker.sleepers().end_search()
        && (worker.maybe_ready(worker.id()) || others_see_work(worker))
    {
        worker.wake_another();
    }
    worker.run_found(task);
}

/// Ends the search of a worker that leaves, if it counts as searching: a pusher may have woken it
/// and nobody else, so another is woken in its place.
pub(crate) fn leave<W: Idler>(worker: &W) {
    if worker.searching().take() {
        let _ = worker.sleepers().end_search();
        worker.wake_another();
    }
}

/// Returns whether others would find a task, in this worker's own queue too: pushes during its
/// search woke nobody.
fn others_see_work<W: Idler>(worker: &W) -> bool {
    match worker.regular() {
        // The only others are spare ones.
        1 => worker.maybe_ready_spare(),
        regular => worker.maybe_ready((worker.id() + 1) % regular),
    }
}
