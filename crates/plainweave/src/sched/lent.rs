//! How a fiber waits whose worker has no driver: it borrows another worker's.
//!
//! Spare workers beyond the first few have neither driver nor timers (`sched/workers`). A fiber
//! that has to wait there, for a descriptor or until a point in time, goes to the one spare worker
//! that is there for this: it runs no code of the program's and is never held up. There the fiber
//! registers what it waits for, as on any worker, and suspends. Once that has come it is unpinned
//! and pushed to the shared half of the policy, so it goes on anywhere else.
//!
//! # Protocol
//! 1. [`Lent::new`] pins the fiber to that worker and switches with [`Switch::Elsewhere`]: its
//!    present worker, off the fiber's stack, sends it there, as one that waits for I/O, so that it
//!    stays pinned when the inbox is read.
//! 2. The fiber does what it would have done at a driver of its own worker.
//! 3. When the [`Lent`] is dropped and the fiber is still there (the wait was over at once, or was
//!    cancelled), it goes to the shared half: code of the program's may hold up its thread.
//!
//! A call that need not wait never comes here: on such a worker it is tried first, as on a plain
//! thread.
//!
//! # Rejected
//! * *Waiting in poll(2) on the worker's own thread*: a thread for each wait, of which there are
//!   thousands.
//! * *Submitting to another worker's driver from here*: io_uring completes what a thread has
//!   submitted on that thread, which may be held up or gone by then; and every submission would
//!   take the lock that is biased towards its owner.

use crate::fiber::{Header, Reason, Switch};
use crate::sched::worker::WorkerCtx;

/// A fiber's stay at the worker whose driver it borrows; `None` if its own worker has one.
pub(super) struct Lent<'a>(Option<&'a Header>);

impl<'a> Lent<'a> {
    /// Takes the calling fiber to a driver, if its worker has none.
    #[inline]
    pub(super) fn new(header: &'a Header) -> Self {
        if header.worker().has_driver() {
            Self(None)
        } else {
            Self::go(header)
        }
    }

    #[cold]
    fn go(header: &'a Header) -> Self {
        let there = header.worker().pool().numbers.waits_for_others();
        debug_assert!(
            there.is_some(),
            "a worker without a driver, and none to borrow from"
        );
        // Nothing is registered yet, so a wait that is noted already comes later.
        let waits = header.own.waits.replace(Reason::Io);
        header.pin_to(there);
        header.switch(Switch::Elsewhere);
        header.pin_to(None);
        header.own.waits.put_back(waits);

        Self(Some(header))
    }
}

impl Drop for Lent<'_> {
    #[inline]
    fn drop(&mut self) {
        if let Some(header) = self.0
            && header.worker().waits_for_others()
        {
            header.switch(Switch::YieldShared);
        }
    }
}

impl WorkerCtx {
    /// Returns whether its fibers can wait at a driver of its own.
    #[inline]
    pub(super) fn has_driver(&self) -> bool {
        !self.host.borrows
    }

    /// Returns whether it is the worker whose driver others borrow.
    pub(super) fn waits_for_others(&self) -> bool {
        self.pool().numbers.waits_for_others() == Some(self.id())
    }
}
