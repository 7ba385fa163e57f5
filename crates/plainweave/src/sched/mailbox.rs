//! When a worker reads its inbox.
//!
//! Checking the inbox is cheap, but reading it is not: another core has just changed its word, and
//! the header of each fiber in it. A worker that checked before each switch would have that word
//! move to its core for every single wake-up, and back for the next.
//!
//! 1. A worker that has had fibers of its own for a while checks four times a stride
//!    (`sched/worker`): every 50 us at most, once the stride has adapted to how long they run.
//!    (Until then, in the worst case, 31 long-running fibers come before a wake-up is seen; driver
//!    and timers wait for 64.) A worker that runs out of fibers checks at once, and from then on
//!    before each switch, until its next regular poll of the driver.
//! 2. What it takes is a chain, newest first, whose links are in those headers. At full stride the
//!    worker does not wait for them one after the other: it prefetches the first and goes on. After
//!    each switch the next link is there; the worker reverses it and prefetches the one behind it.
//!    The next check queues them all.
//!
//! Grants to fibers that are pinned here (`queue/mpsc`) are read at the same checks. All that
//! changes of such a fiber is in this core's cache already. Grants may overtake earlier entries of
//! the inbox: the fiber that was granted something first has it first, but may run second.
//!
//! Under [`Movement::Anytime`](crate::fiber::Movement) step 2 is left out: the watchdog hands the
//! inbox of a stalled worker to others, so whatever has not been queued must still be there.

use std::cell::{Cell, RefCell};

use crate::fiber::{FiberTask, Header};
use crate::queue::inbox::{Batch, Inbox, Taken};
use crate::queue::mpsc::Reader;

/// Checks of the inbox per stride.
const LOOKS: u32 = 4;

/// A worker's mailbox: grants, and what it has taken from its inbox.
///
/// Context: its thread only.
pub(crate) struct Mailbox {
    /// Grants to fibers that are pinned here.
    pub(crate) grants: Reader<Header>,
    /// Taken at the last check, not queued yet.
    taken: RefCell<Taken<FiberTask>>,
    /// Whether some of `taken` is still to be reversed.
    reversing: Cell<bool>,
    /// One less than the number of switches between two checks, which is a power of two.
    mask: Cell<u32>,
}

impl Mailbox {
    pub(crate) fn new(grants: Reader<Header>) -> Self {
        Self {
            grants,
            taken: RefCell::new(Taken::nothing()),
            reversing: Cell::new(false),
            mask: Cell::new(0),
        }
    }

    /// Begins a stride of this length, a power of two, after a stride in which the worker had
    /// fibers.
    pub(crate) fn begin_stride(&self, stride: u32) {
        self.mask.set((stride / LOOKS).max(1) - 1);
    }

    /// Checks before each switch from now on: the worker has run out of fibers.
    pub(crate) fn ran_dry(&self) {
        self.mask.set(0);
    }

    /// Returns whether a check is due with `left` switches left of the stride.
    #[inline]
    pub(crate) fn is_due(&self, left: u32) -> bool {
        left & self.mask.get() == 0
    }

    /// Returns whether taken entries may wait for the next check: fibers have run for a short time
    /// each.
    #[inline]
    pub(crate) fn may_wait(&self, full: u32) -> bool {
        self.mask.get() == full / LOOKS - 1
    }

    /// Reverses one more link, after a switch without a check.
    #[inline]
    pub(crate) fn reverse_next(&self) {
        if self.reversing.get() {
            self.reversing.set(self.taken.borrow_mut().step());
        }
    }

    /// Returns whether nothing waits to be read.
    #[inline]
    pub(crate) fn is_empty(&self, inbox: &Inbox<FiberTask>) -> bool {
        inbox.is_empty() && self.grants.is_empty() && self.taken.borrow().is_empty()
    }

    /// Returns what the last check took, and takes what has arrived since.
    pub(crate) fn exchange(&self, inbox: &Inbox<FiberTask>) -> Batch<FiberTask> {
        self.reversing.set(true);
        self.taken.replace(inbox.take()).into_batch()
    }

    /// Returns everything: what was taken, and what is in the inbox.
    pub(crate) fn all(&self, inbox: &Inbox<FiberTask>) -> impl Iterator<Item = FiberTask> {
        let before = self.taken.replace(Taken::nothing());
        before.into_batch().chain(inbox.take_all())
    }
}
