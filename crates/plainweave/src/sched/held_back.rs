//! Fresh fibers that are held back while many workers are held up.
//!
//! A fiber that has started may hold what others block their threads for: a lock of `std`, a
//! connection of a pool. It is ready somewhere behind a thousand fresh fibers, each of which would
//! take a worker to wait for it. So once many workers are held up in the kernel, those that have
//! started come first: a worker that pops a fresh fiber leaves it here. The watchdog lets as many
//! go as there are workers with nothing else to do, **less one**: whoever becomes ready then finds
//! a worker, and it is always one of those that have started. A fresh fiber that another waits for
//! may be what the others wait for too, so it counts as one that has started: one that is joined,
//! and, where somebody waits for all fibers of a scope or for the next of a set, one of these at a
//! time. (All at once would be all that there are, where a program's fibers are in one scope.)
//!
//! The watchdog says when (`watchdog/spares`); it scans every millisecond meanwhile, so what is
//! here waits for no wake-up. Both the end and each fiber that is left here are under one lock, so
//! none is left behind.
//!
//! # Rejected
//! * *A queue for fresh fibers in each policy*: the order of what is ready is the policy's, and
//!   which fibers wait for which is unknown to it as well.
//! * *Refusing fresh fibers*: the caller would have to try again, and cannot know when.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering, fence};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::pool::PoolShared;
use crate::fiber::cancel::Node;
use crate::fiber::{FiberTask, Header};
use crate::policy::Ready;

/// The fresh fibers of a pool that are held back, oldest first.
#[derive(Default)]
pub(crate) struct HeldBack {
    /// Whether fresh fibers are held back. Written under the lock.
    on: AtomicBool,
    /// How many may start all the same.
    may_start: AtomicUsize,
    fibers: Mutex<VecDeque<FiberTask>>,
}

impl HeldBack {
    /// Returns the fiber, which has not started, if it may start now.
    ///
    /// Context: a worker that has popped it.
    #[inline]
    pub(super) fn admit(&self, task: FiberTask) -> Option<FiberTask> {
        if self.is_on() {
            self.hold(task)
        } else {
            Some(task)
        }
    }

    #[cold]
    fn hold(&self, task: FiberTask) -> Option<FiberTask> {
        if self
            .may_start
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| {
                left.checked_sub(1)
            })
            .is_ok()
        {
            return Some(task);
        }
        let mut fibers = self.fibers();
        let is_awaited = || {
            let scope = task.scope();
            task.is_joined() || scope.is_some_and(|scope| scope.waits_for_a_start())
        };

        if !self.is_on() || is_awaited() {
            return Some(task);
        }
        fibers.push_back(task);
        None
    }

    /// Returns whether fresh fibers are held back.
    #[inline]
    pub(crate) fn is_on(&self) -> bool {
        self.on.load(Ordering::Relaxed)
    }

    /// Returns whether there are any.
    pub(crate) fn has_some(&self) -> bool {
        self.is_on() && !self.fibers().is_empty()
    }

    /// Holds fresh fibers back from now on.
    ///
    /// Context: the watchdog.
    pub(crate) fn begin(&self) {
        let _fibers = self.fibers();
        self.may_start.store(0, Ordering::Relaxed);
        self.on.store(true, Ordering::Relaxed);

        // With the one in `let_start_for`, and the exchange in `note_awaited`: either they see
        // this, or `hold` sees who is waited for.
        fence(Ordering::SeqCst);
    }

    fn fibers(&self) -> MutexGuard<'_, VecDeque<FiberTask>> {
        self.fibers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl PoolShared {
    /// Lets that many of the fibers that are held back start.
    ///
    /// Context: the watchdog.
    pub(crate) fn let_start(&self, most: usize) {
        self.held_back.may_start.store(most, Ordering::Relaxed);
        let some: Vec<_> = {
            let mut fibers = self.held_back.fibers();
            let count = most.min(fibers.len());
            fibers.drain(..count).collect()
        };
        self.push_back(some);
    }

    /// Lets a fiber start that `me` has begun to wait for, if it is held back.
    ///
    /// Context: the fiber `me`, of this pool, which is registered as the joiner.
    #[inline]
    pub(super) fn let_start_for(&self, me: &Header, joined: &Header) {
        // On x86 the registration is a barrier; elsewhere see `begin`.
        if cfg!(not(target_arch = "x86_64")) {
            fence(Ordering::SeqCst);
        }
        if self.held_back.is_on() && me.pool_ptr() == joined.pool_ptr() {
            self.let_one_start(|task| std::ptr::eq(task.header(), joined));
        }
    }

    /// Lets a fiber of a scope start whose owner has begun to wait for them, or one of which has
    /// ended, if all that are left are held back.
    #[inline]
    pub(crate) fn let_start_in(&self, scope: &Arc<Node>) {
        if self.held_back.is_on() && scope.waits_for_a_start() {
            let is_in = |task: &FiberTask| task.scope().is_some_and(|it| Arc::ptr_eq(&it, scope));
            self.let_one_start(is_in);
        }
    }

    #[cold]
    fn let_one_start(&self, is_it: impl Fn(&FiberTask) -> bool) {
        let task = {
            let mut fibers = self.held_back.fibers();
            let at = fibers.iter().position(is_it);
            at.and_then(|at| fibers.remove(at))
        };
        self.push_back(task);
    }

    /// Holds none back any more.
    ///
    /// Context: the watchdog.
    pub(crate) fn hold_none_back(&self) {
        let all = {
            let mut fibers = self.held_back.fibers();
            self.held_back.on.store(false, Ordering::Relaxed);
            std::mem::take(&mut *fibers)
        };
        self.push_back(all);
    }

    /// Takes those that the pool's end has left here.
    pub(super) fn take_held_back(&self) -> impl Iterator<Item = FiberTask> {
        std::mem::take(&mut *self.held_back.fibers()).into_iter()
    }

    /// Queues fresh fibers again; without the lock, because a policy is called.
    fn push_back(&self, fibers: impl IntoIterator<Item = FiberTask>) {
        for task in fibers {
            let wake = self.outside.push(task, Ready::Spawned);
            self.act_on(wake);
        }
    }
}
