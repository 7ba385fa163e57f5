//! Which worker a fiber that will not move again starts on.
//!
//! Under [`Movement::BeforeStart`] a fiber stays where it first runs, for good. That is whoever pops it first: mostly
//! the worker that it was spawned on, for another one that sleeps takes ten to fifty microseconds to wake up and steal,
//! and hundreds of fibers have begun by then. If they live on (an acceptor's connections, a team that works through a
//! lock), one worker has them all and the rest idle; worse, with a few of them elsewhere, each wake-up of these pays
//! for an idle worker that sleeps again at once.
//!
//! So a worker that is about to start a fiber looks at how many live fibers it has, and at another, the others in turn.
//! If that one is out of work, and it has itself more than twice as many, and [`FEW`] on top, the fiber goes into the
//! other's inbox instead. Fibers that end soon never come to that; with many that stay, the turns deal them out evenly,
//! though the other's figure may be late: it changes when the other starts them.
//!
//! The other looks into its inbox before it sleeps; from then on the fiber is in a queue like any that was spawned
//! there, and whoever has nothing to do may steal it. So none waits unstarted behind one that computes while another
//! worker idles, unless the other has found something that computes in that very moment.
//!
//! A policy is asked first (`Policy::may_spread`): what was popped here is pushed again there, so one that ranks tasks
//! or counts what they had would do so twice.

use std::cell::Cell;
use std::ptr::NonNull;
use std::sync::atomic::Ordering;

use crate::fiber::{Header, Movement};
use crate::policy::WorkerId;
use crate::sched::worker::WorkerCtx;

/// So many live fibers a worker may have whatever the others have.
const FEW: usize = 32;
/// Fibers that start one after the other, and have to do with each other more often than not, go the same way.
const RUN: usize = 16;

/// A worker's way to choose. Its thread only.
#[derive(Default)]
pub(crate) struct Spread {
    /// Fibers for which it was asked.
    turn: Cell<usize>,
}

/// What the others know of it.
impl WorkerCtx {
    /// Whether the worker is out of fibers.
    #[inline]
    pub(crate) fn set_dry(&self, dry: bool) {
        if self.dry.replace(dry) != dry {
            self.shared().dry.store(dry, Ordering::Relaxed);
        }
    }

    /// A fiber that starts and is anchored here. Its key.
    #[inline]
    pub(crate) fn put_on_record(&self, header: &Header) -> usize {
        let mut anchored = self.anchored.borrow_mut();
        let key = anchored.insert(NonNull::from(header));
        self.shared().live.store(anchored.len(), Ordering::Relaxed);
        key
    }

    /// It has ended.
    #[inline]
    pub(crate) fn strike_off(&self, key: usize) {
        let mut anchored = self.anchored.borrow_mut();
        let _ = anchored.try_remove(key);
        self.shared().live.store(anchored.len(), Ordering::Relaxed);
    }
}

impl Spread {
    /// Before a fiber starts on this worker: the worker to start it on instead.
    #[inline]
    pub(crate) fn elsewhere(&self, here: &WorkerCtx, fiber: &Header) -> Option<WorkerId> {
        let live = here.anchored.borrow().len();
        if live <= FEW { None } else { self.choose(here, live, fiber) }
    }

    #[inline(never)]
    fn choose(&self, here: &WorkerCtx, live: usize, fiber: &Header) -> Option<WorkerId> {
        if fiber.movement() != Movement::BeforeStart || fiber.anchor().is_some() {
            return None;
        }
        let turn = self.turn.get();
        self.turn.set(turn.wrapping_add(1));
        let other = turn / RUN % here.pool().workers.len();
        let theirs = here.pool().workers[other].live.load(Ordering::Relaxed);
        let idle = here.pool().workers[other].dry.load(Ordering::Relaxed);
        (other != here.id() && idle && live > 2 * theirs + FEW).then_some(other)
    }
}
