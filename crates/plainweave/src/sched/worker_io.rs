//! A worker's I/O: its driver, its timers, its idle connections, and the handling of their events.
//! It belongs to the worker; while a fiber holds the worker up, the watchdog takes over
//! ([`BiasedLock`]).
//!
//! Both do the same, through [`IoCx`]. They differ in where a woken fiber goes: the worker queues
//! it locally, the watchdog hands it to any free worker. A wake-up of a started, pinned fiber can
//! only be sent to its worker. But an idle connection becomes a *fresh* fiber. A fiber that may
//! move at any time is pinned to its worker only by what it waits for, and is unpinned when that
//! has come (`IoCx::unpin`, in `sched/wake`).

#![expect(
    unsafe_code,
    reason = "follows the pointers that timers and completions carry"
)]

use std::cell::{Cell, RefCell};
use std::io;
use std::ops::Deref;
use std::os::fd::OwnedFd;

use super::worker::{TimerTarget, WorkerCtx};
use crate::atomics::biased_lock::{BiasedLock, OwnerGuard, RemoteGuard};
use crate::io::driver::{Completion, Driver, OpRef, PollFd, RingEntry, Wait};
use crate::io::op::{OpOwner, Operation};
use crate::policy::WorkerId;
use crate::sched::idle_conn::{self, IdleConn};
use crate::sched::pool::PoolShared;
use crate::timer::Nanos;
use crate::timer::Wheel;

/// Timers that the watchdog fires at a time at most, in the place of a worker that would fire them
/// in parts too.
pub(crate) const TIMERS_AT_A_LOOK: usize = 1024;

/// The state that the lock guards. Each `RefCell` is borrowed for the length of one call that runs
/// no user code.
pub(crate) struct IoState {
    pub(crate) driver: RefCell<Box<dyn Driver>>,
    pub(crate) timers: RefCell<Wheel<TimerTarget>>,
    pub(crate) idle_conns: RefCell<idle_conn::IdleList>,
    done: RefCell<Vec<Completion>>,
    pub(crate) owed: OwedWakeup,
}

/// Whether the watchdog has consumed a wake-up that was meant for the worker, which may be about to
/// sleep: between its last look and its sleep the worker does not hold the lock. (Model:
/// `loom_a_wake_up_that_the_watchdog_has_is_owed`.)
#[derive(Debug, Default)]
pub(crate) struct OwedWakeup(Cell<bool>);

impl OwedWakeup {
    /// Notes whether a poll has consumed a wake-up.
    ///
    /// Context: the watchdog, with the lock.
    pub(crate) fn note(&self, woken: bool) {
        if woken {
            self.0.set(true);
        }
    }

    /// Returns how the worker is to poll that wants to do so by `wait`: it does not sleep if a
    /// wake-up is owed to it.
    ///
    /// Context: the worker, with the lock, which it keeps while it sleeps.
    pub(crate) fn settle(&self, wait: Wait) -> Wait {
        if wait != Wait::No && self.0.take() {
            Wait::No
        } else {
            wait
        }
    }
}

/// An [`IoState`] and its lock.
pub(crate) struct WorkerIo {
    lock: BiasedLock,
    io: IoState,
}

impl WorkerIo {
    pub(crate) fn new(driver: Box<dyn Driver>) -> Self {
        let timers = match driver.is_virtual() {
            true => Wheel::exact(),
            false => Wheel::new(),
        };
        let io = IoState {
            driver: RefCell::new(driver),
            timers: RefCell::new(timers),
            idle_conns: RefCell::default(),
            done: RefCell::default(),
            owed: OwedWakeup::default(),
        };

        Self {
            lock: BiasedLock::new(),
            io,
        }
    }

    /// Returns a duplicate of [`Driver::watched`]'s descriptor, on which the watchdog can wait in
    /// the worker's place.
    ///
    /// Context: the worker.
    pub(crate) fn watched(&self) -> Option<io::Result<PollFd<OwnedFd>>> {
        let io = self.lock();
        let driver = io.driver.borrow();
        let PollFd { fd, interrupts } = driver.watched()?;
        Some(fd.try_clone_to_owned().map(|fd| PollFd { fd, interrupts }))
    }

    /// Locks the state for the worker.
    #[inline]
    pub(crate) fn lock(&self) -> IoGuard<'_, OwnerGuard<'_>> {
        IoGuard {
            _held: self.lock.lock(),
            io: &self.io,
        }
    }

    /// Tries to lock the state for the watchdog. Returns `None` if the worker is using it, or if
    /// the barrier failed.
    pub(crate) fn try_lock_remote(&self) -> Option<IoGuard<'_, RemoteGuard<'_>>> {
        Some(IoGuard {
            _held: self.lock.try_lock_remote()?,
            io: &self.io,
        })
    }
}

/// A hold on an [`IoState`]; `H` is that of the lock.
pub(crate) struct IoGuard<'a, H> {
    _held: H,
    io: &'a IoState,
}

impl<H> Deref for IoGuard<'_, H> {
    type Target = IoState;

    #[inline]
    fn deref(&self) -> &IoState {
        self.io
    }
}

/// Where an event is handled: whose I/O it is, and on whose thread.
#[derive(Clone, Copy)]
pub(crate) struct IoCx<'a> {
    /// Locked by the caller.
    pub(crate) io: &'a IoState,
    pub(crate) pool: &'a PoolShared,
    /// The worker that it belongs to.
    pub(crate) id: WorkerId,
    /// That worker, if it is the caller; `None` for the watchdog.
    pub(crate) here: Option<&'a WorkerCtx>,
}

impl IoCx<'_> {
    /// Polls the driver, and sleeps in it as `wait` says; then calls `awake`. Fibers become ready
    /// only after that. Returns whether a wake-up had come.
    pub(crate) fn poll(self, wait: Wait, awake: impl FnOnce()) -> bool {
        let mut done = self.io.done.take();
        let woken = self
            .io
            .driver
            .borrow_mut()
            .poll(wait, &mut done)
            .unwrap_or_else(|error| {
                // The descriptor is ours and valid: only a kernel out of memory can refuse. Try
                // again, slowly.
                debug_assert!(false, "driver poll: {error}");
                std::thread::sleep(std::time::Duration::from_millis(1));
                false
            });

        awake();
        self.deliver(done);
        woken
    }

    /// Cancels an operation of this driver, unless it has its result, or this was asked before. The
    /// look and the cancellation are in one section, so the watchdog cannot complete the operation
    /// in between, whatever the caller has seen before.
    ///
    /// # Safety
    /// The operation is in place, and this driver answered
    /// [`Submitted::Pending`](crate::io::driver::Submitted::Pending) or the result is set.
    pub(crate) unsafe fn cancel(self, op: OpRef) {
        // SAFETY: in place, by the caller's promise.
        let operation = unsafe { op.as_ref() };
        if operation.result.get().is_some() || operation.is_cancelled.replace(true) {
            return;
        }
        let mut done = self.io.done.take();

        // SAFETY: pending, as it has no result: reports set it.
        unsafe { self.io.driver.borrow_mut().cancel(op, &mut done) };
        self.deliver(done);
    }

    /// Does the same for an operation of the fiber that the caller runs on, or owns. If that ends
    /// it at once the fiber is not woken: it would find the wake-up at its next wait, and a select
    /// would start over for it.
    ///
    /// # Safety
    /// As for [`Self::cancel`].
    pub(crate) unsafe fn cancel_quietly(self, operation: &Operation) {
        let owner = operation.owner.replace(OpOwner::Nobody);
        // SAFETY: the caller's promise.
        unsafe { self.cancel(OpRef::from(operation)) };
        operation.owner.set(owner);
    }

    /// Does what the worker would do at its next turn. `enter` has its thread enter its ring, if
    /// only that may, and there is something to enter it for.
    ///
    /// Context: the watchdog.
    pub(crate) fn look(self, now: Nanos, enter: impl FnOnce(RingEntry)) {
        let driver = &self.io.driver;
        self.pool.workers[self.id]
            .released
            .drain(|source| driver.borrow_mut().forget(source));
        let left = driver.borrow_mut().left_to_owner();
        if let Some(entry) = left {
            enter(entry);
        }
        self.io.owed.note(self.poll(Wait::No, || ()));
        self.expire(now, TIMERS_AT_A_LOOK);
    }

    /// Fires the timers that are due by `now`, at most this many.
    pub(crate) fn expire(self, now: Nanos, most: usize) {
        if self
            .io
            .timers
            .borrow()
            .next_wake()
            .is_some_and(|t| t <= now)
        {
            // Waking a fiber pushes and does not touch timers; an idle connection does, so it is
            // handled after the borrow.
            let mut expired = Vec::new();
            self.io
                .timers
                .borrow_mut()
                .advance(now, most, &mut |target| expired.push(target));
            self.for_event(|| expired.into_iter().for_each(|target| self.expired(target)));
        }
    }

    fn expired(self, target: TimerTarget) {
        match target {
            TimerTarget::Fiber(header) => {
                // SAFETY: the fiber is suspended in the call that armed the timer, or about to
                // return to it: it takes this worker's I/O lock before it goes on.
                let header = unsafe { header.as_ref() };
                header.own.timer.set(None);
                header.own.timer_fired.set(true);
                self.wake(header);
            }
            // SAFETY: it removes its timer before it is freed.
            TimerTarget::IdleConn(conn) => unsafe { IdleConn::expired(conn, self) },
        }
    }

    /// Calls `handle`, and notes for the policy that what becomes ready meanwhile does so by an
    /// event: the caller holds the worker's I/O lock, so a push must not wait.
    pub(super) fn for_event(self, handle: impl FnOnce()) {
        let before = self.here.map(|ctx| ctx.policy.set_handles_event(true));
        handle();
        if let (Some(ctx), Some(before)) = (self.here, before) {
            ctx.policy.set_handles_event(before);
        }
    }

    /// Hands completions to their owners, and keeps the empty list for the next poll.
    fn deliver(self, mut done: Vec<Completion>) {
        if !done.is_empty() {
            self.for_event(|| {
                done.drain(..)
                    .for_each(|completion| self.completed(completion))
            });
        }

        // Keep the larger buffer: a delivery may itself have cancelled something.
        if self.io.done.borrow().capacity() < done.capacity() {
            self.io.done.replace(done);
        }
    }

    fn completed(self, Completion { op, result }: Completion) {
        // SAFETY: the submitter keeps the operation in place until it has seen the result, which is
        // set here.
        let owner = unsafe {
            op.as_ref().result.set(Some(result));
            op.as_ref().owner.get()
        };

        match owner {
            OpOwner::Nobody => {}
            // SAFETY: the operation lies in the frame of that fiber, which has not ended: it takes
            // this worker's I/O lock before it reads the result.
            OpOwner::Fiber(header) => self.wake(unsafe { header.cast().as_ref() }),
            // SAFETY: the operation lies in that box, which this call consumes.
            OpOwner::IdleConn(conn) => unsafe { IdleConn::completed(conn.cast(), result, self) },
        }
    }
}
