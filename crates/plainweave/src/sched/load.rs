//! How busy a worker is, as the others see it: what `Policy::place` decides by.
//!
//! Two words in `sched/worker_shared`, written by the worker alone and only when they change: how many live fibers are
//! pinned to it, and whether it is out of fibers. Others read them without ordering, so what they see may be
//! late.

use std::ptr::NonNull;
use std::sync::atomic::Ordering;

use crate::fiber::Header;
use crate::policy::{Load, WorkerId};
use crate::sched::worker::WorkerCtx;

impl WorkerCtx {
    /// Notes whether the worker is out of fibers.
    #[inline]
    pub(super) fn set_dry(&self, dry: bool) {
        if self.dry.replace(dry) != dry {
            self.shared().dry.store(dry, Ordering::Relaxed);
        }
    }

    /// Notes a fiber that starts and is pinned here. Returns its key.
    #[inline]
    pub(super) fn put_on_record(&self, header: &Header) -> usize {
        let mut pinned = self.pinned.borrow_mut();
        let key = pinned.insert(NonNull::from(header));
        self.shared().live.store(pinned.len(), Ordering::Relaxed);
        key
    }

    /// Notes that it has ended.
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
        self.pool().workers.len()
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
