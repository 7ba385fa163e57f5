//! When a worker reads its inbox.
//!
//! A look costs little, but what is found does not: the inbox's word was just changed by another core, and so was the
//! header of each fiber in it. A worker that looked before each switch would have that word come over for every single
//! wake-up, and go back for the next.
//!
//! 1. A worker that has had fibers of its own for a while looks four times a stride (`worker`): every 50 us at most,
//!    once the stride has adapted to how long they run. (Until it has, at the worst 31 of them that are suddenly
//!    long run before a wake-up is seen; driver and timers wait for 64.) One that runs out of fibers looks at once, and
//!    from then on before each switch, until it next looks at its driver.
//! 2. What it takes is a chain, newest first, whose links lie in those headers. At full stride nobody waits for them
//!    one after the other: the worker asks for the first and goes on; after each switch the next link is there, it is
//!    turned round, and the one behind asked for. The next look queues them all.
//!
//! Grants to fibers that stay (`queue/mpsc`) are read at the same looks. All that is to be changed of such a
//! fiber is in this core's cache already. They may overtake what came by the inbox before them: who was granted
//! something first has it first, but may run second.
//!
//! Under [`Movement::Anytime`](crate::fiber::Movement) step 2 is left out: the watchdog hands the inbox of a worker
//! that is held up to others, and must find there what has not been queued.

use std::cell::{Cell, RefCell};

use crate::fiber::{FiberTask, Header};
use crate::queue::inbox::{Batch, Inbox, Taken};
use crate::queue::mpsc::Reader;

/// Looks a stride.
const LOOKS: u32 = 4;

/// What a worker knows of its mail. Its thread only.
pub(crate) struct Mailbox {
    /// Grants to fibers that stay here.
    pub(crate) grants: Reader<Header>,
    /// On its way to being read.
    taken: RefCell<Taken<FiberTask>>,
    /// Some of that is still to be turned round.
    walks: Cell<bool>,
    /// One less than the switches between two looks, a power of two.
    mask: Cell<u32>,
}

impl Mailbox {
    pub(crate) fn new(grants: Reader<Header>) -> Self {
        Self { grants, taken: RefCell::new(Taken::nothing()), walks: Cell::new(false), mask: Cell::new(0) }
    }

    /// The worker has had fibers for a stride, a power of two, and begins one of this length.
    pub(crate) fn begin_stride(&self, stride: u32) {
        self.mask.set((stride / LOOKS).max(1) - 1);
    }

    /// The worker has run out of fibers.
    pub(crate) fn ran_dry(&self) {
        self.mask.set(0);
    }

    /// Whether a look is due with so many switches left of the stride.
    #[inline]
    pub(crate) fn is_due(&self, left: u32) -> bool {
        left & self.mask.get() == 0
    }

    /// Whether what is taken may wait for the next look: fibers have run for a short time each.
    #[inline]
    pub(crate) fn may_wait(&self, full: u32) -> bool {
        self.mask.get() == full / LOOKS - 1
    }

    /// After a switch without a look.
    #[inline]
    pub(crate) fn walk(&self) {
        if self.walks.get() {
            self.walks.set(self.taken.borrow_mut().step());
        }
    }

    /// Whether there is any.
    #[inline]
    pub(crate) fn is_empty(&self, inbox: &Inbox<FiberTask>) -> bool {
        inbox.is_empty() && self.grants.is_empty() && self.taken.borrow().is_empty()
    }

    /// What was taken at the last look; what has come since is taken.
    pub(crate) fn turn(&self, inbox: &Inbox<FiberTask>) -> Batch<FiberTask> {
        self.walks.set(true);
        self.taken.replace(inbox.take()).into_batch()
    }

    /// Everything.
    pub(crate) fn all(&self, inbox: &Inbox<FiberTask>) -> impl Iterator<Item = FiberTask> {
        let before = self.taken.replace(Taken::nothing());
        before.into_batch().chain(inbox.take_all())
    }
}
