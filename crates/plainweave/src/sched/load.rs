//! How busy a worker is, as other workers see it: the input of `Policy::place`.
//!
//! It is two words in `sched/worker_shared`, which only the worker writes, and only when they
//! change: how many live fibers are pinned to it, and whether it is out of fibers. Other workers
//! read them without ordering, so they may see old values.

use std::ptr::NonNull;
use std::sync::atomic::Ordering;

use crate::fiber::Header;
use crate::policy::{Load, WorkerId};
use crate::sched::worker::WorkerCtx;

impl WorkerCtx {
    /// Records whether the worker is out of fibers.
    #[inline]
    pub(super) fn set_dry(&self, dry: bool) {
        if self.dry.replace(dry) != dry {
            self.shared().dry.store(dry, Ordering::Relaxed);
        }
    }

    /// Records a fiber that starts and is pinned here. Returns its key.
    #[inline]
    pub(super) fn put_on_record(&self, header: &Header) -> usize {
        let mut pinned = self.pinned.borrow_mut();
        let key = pinned.insert(NonNull::from(header));
        self.shared().live.store(pinned.len(), Ordering::Relaxed);
        key
    }

    /// Removes a fiber that has ended.
    #[inline]
    pub(super) fn strike_off(&self, key: usize) {
        let mut pinned = self.pinned.borrow_mut();
        let _ = pinned.try_remove(key);
        self.shared().live.store(pinned.len(), Ordering::Relaxed);
    }
}

impl Load for WorkerCtx {
    #[inline]
    fn me(&self) -> WorkerId {
        self.id()
    }

    #[inline]
    fn workers(&self) -> usize {
        self.pool().regular()
    }

    #[inline]
    fn mine(&self) -> usize {
        self.pinned.borrow().len()
    }

    #[inline]
    fn live(&self, worker: WorkerId) -> usize {
        self.pool().workers[worker].live.load(Ordering::Relaxed)
    }

    #[inline]
    fn is_idle(&self, worker: WorkerId) -> bool {
        self.pool().workers[worker].dry.load(Ordering::Relaxed)
    }
}
