//! Which worker a fiber that will not move again starts on.
//!
//! Under [`Movement::BeforeStart`] a fiber stays where it first runs, for good. That is whoever pops it first: mostly
//! the worker that it was spawned on, for another one that sleeps takes ten to fifty microseconds to wake up and steal,
//! and hundreds of fibers have begun by then. If they live on (an acceptor's connections, a team that works through a
//! lock), one worker has them all and the rest idle; worse, with a few of them elsewhere, each wake-up of these pays
//! for an idle worker that sleeps again at once.
//!
//! So a worker that is about to start a fiber looks at how many live fibers it has, and how many another has, the
//! others in turn. With more than twice as many, and [`FEW`] on top, the fiber is anchored to the other instead and
//! goes into its inbox. Fibers that end soon never come to that; with many that stay, the turns deal them out evenly,
//! though the other's figure may be late: it changes when the other starts them.
//!
//! Nobody can take them back from there. So the other must be out of fibers, or have been seen to switch between them a
//! moment ago: one that a fiber holds up gets none.

use std::cell::{Cell, RefCell};
use std::ptr::NonNull;
use std::sync::atomic::Ordering;

use crate::fiber::{Header, Movement};
use crate::policy::WorkerId;
use crate::pool::Beat;
use crate::worker::WorkerCtx;

/// So many live fibers a worker may have whatever the others have.
const FEW: usize = 32;
/// Fibers that start one after the other, and have to do with each other more often than not, go the same way.
const RUN: usize = 16;
/// A moment, in nanoseconds of the workers' clock.
const MOMENT: u64 = 1_000_000;

/// A worker's way to choose. Its thread only.
#[derive(Default)]
pub(super) struct Spread {
    /// Fibers for which it was asked.
    turn: Cell<usize>,
    pulses: RefCell<Vec<Pulse>>,
}

/// What a worker has seen of another.
#[derive(Clone, Copy, Default)]
struct Pulse {
    beat: Beat,
    /// When it looked last.
    looked: Option<u64>,
    /// When it last saw the beat change from one moment to the next.
    alive: Option<u64>,
}

/// What the others know of it.
impl WorkerCtx {
    /// Whether the worker is out of fibers.
    #[inline]
    pub(super) fn set_dry(&self, dry: bool) {
        if self.dry.replace(dry) != dry {
            self.shared().dry.store(dry, Ordering::Relaxed);
        }
    }

    /// A fiber that starts and is anchored here. Its key.
    #[inline]
    pub(super) fn put_on_record(&self, header: &Header) -> usize {
        let mut anchored = self.anchored.borrow_mut();
        let key = anchored.insert(NonNull::from(header));
        self.shared().live.store(anchored.len(), Ordering::Relaxed);
        key
    }

    /// It has ended.
    #[inline]
    pub(super) fn strike_off(&self, key: usize) {
        let mut anchored = self.anchored.borrow_mut();
        let _ = anchored.try_remove(key);
        self.shared().live.store(anchored.len(), Ordering::Relaxed);
    }
}

impl Spread {
    /// Before a fiber starts on this worker: the worker to start it on instead.
    #[inline]
    pub(super) fn elsewhere(&self, here: &WorkerCtx, fiber: &Header) -> Option<WorkerId> {
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
        (other != here.id && live > 2 * theirs + FEW && self.responds(here, other)).then_some(other)
    }

    fn responds(&self, here: &WorkerCtx, other: WorkerId) -> bool {
        let mut pulses = self.pulses.borrow_mut();
        pulses.resize(here.pool().workers.len(), Pulse::default());
        let worker = &here.pool().workers[other];
        let switches = pulses[other].look(worker.beat(), here.last_reading());
        switches || worker.dry.load(Ordering::Relaxed)
    }
}

impl Pulse {
    /// Whether it switched between fibers within a moment.
    fn look(&mut self, beat: Beat, now: u64) -> bool {
        let recent = |at: u64| now.saturating_sub(at) <= MOMENT;
        if beat != self.beat && self.looked.is_some_and(recent) {
            self.alive = Some(now);
        }
        (self.beat, self.looked) = (beat, Some(now));
        self.alive.is_some_and(recent)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_worker_responds_while_its_beat_changes_from_one_moment_to_the_next() {
        let mut pulse = Pulse::default();
        let day = 86_400_000_000_000;
        assert!(!pulse.look((7, 1), day), "when it changed is not known");
        assert!(!pulse.look((7, 1), day + 1));
        assert!(pulse.look((8, 1), day + MOMENT));
        assert!(pulse.look((8, 1), day + 2 * MOMENT), "a moment ago");
        assert!(!pulse.look((8, 1), day + 2 * MOMENT + 1), "held up");
        assert!(!pulse.look((9, 1), 2 * day), "when it changed is not known");
        assert!(pulse.look((9, 2), 2 * day + 1), "sleeps count as well");
        assert!(!Pulse::default().look((1, 1), 1), "nor is it at the beginning");
    }
}
