//! How a fiber becomes ready. Every path but a yield's is in this file; each ends at a policy's
//! `push`.
//!
//! | fiber | waker runs on | what happens |
//! |---|---|---|
//! | movable | anywhere | compare-and-exchange on the state word; the winner pushes to the policy (*) |
//! | pinned | its own worker | plain store, push to the worker's own queues |
//! | pinned | elsewhere | `fetch_or` on the state word; the first sends the fiber to its worker's inbox |
//! | pinned, alone in a wait queue, granted | another worker of the pool | a grant by message; as above if full (**) |
//!
//! In this table, *pinned* means pinned for good (`Header::pins`). (*) While an operation or a
//! timer pins a movable fiber to another worker (`wait::Pin`), the winner sends it to that worker's
//! inbox.
//!
//! The state words are in `atomics/state` and `atomics/pinned_state`; the messages of the last row
//! go through `queue/mpsc`.
//!
//! Entry points: [`FiberHandle::wake`] and [`FiberHandle::unpark`] for holders of a reference,
//! [`grant`] for wait queues, [`IoCx::wake`] for timers and completions, [`PoolShared::spawn`] for
//! a new fiber, or [`PoolShared::spawn_if_open`] for one that comes from another pool. The thread
//! that has won a fiber calls [`schedule`], which knows three destinations: this worker's own
//! queues ([`WorkerCtx::push`]), another worker's inbox ([`send_to`]) and, from outside the pool,
//! the policy's shared half. The worker passes what it takes out of its inbox to
//! [`WorkerCtx::deliver`]. A fiber that yields needs none of this: the worker's loop pushes it
//! again.

#![expect(
    unsafe_code,
    reason = "the right to queue a fiber; the pool found from a fiber; a worker found by its address"
)]

use std::io;
use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::pool::{PoolShared, WorkerShared, bump};
use super::worker::{WorkerCtx, current_worker};
use super::worker_io::IoCx;
use crate::abort::abort;
use crate::atomics::pinned_state::WakeAction;
use crate::atomics::state::WakePayload;
use crate::fiber::cancel::{CancelReason, Node, shutting_down};
use crate::fiber::{FiberHandle, FiberTask, Header, Movement};
use crate::policy::{Ready, WorkerId};
use crate::queue::mpsc::Push;

impl FiberHandle {
    /// Wakes the fiber: a suspended one becomes ready; if it is awake, its next suspension ends at
    /// once.
    pub(crate) fn wake(&self) {
        wake(self.header(), current_worker());
    }

    /// Wakes the fiber with the token of `park`.
    #[inline]
    pub(crate) fn unpark(&self) {
        wake_with(self.header(), WakePayload::Token, current_worker());
    }
}

impl Node {
    /// Cancels the scope, the fibers in it and the scopes below.
    pub(crate) fn cancel(&self, reason: CancelReason) {
        self.cancel_with(reason, FiberHandle::wake);
    }
}

/// Wakes a fiber that the caller may refer to; `here` is the worker that the caller runs on, if
/// any.
#[inline]
pub(crate) fn wake(header: &Header, here: Option<&WorkerCtx>) {
    wake_with(header, WakePayload::Nothing, here);
}

/// Wakes a fiber with a payload. A fiber that waits for a grant lives until it has the grant. So
/// once the grant is given, `header` is touched only if that made the caller its owner.
#[inline]
fn wake_with(header: &Header, payload: WakePayload, here: Option<&WorkerCtx>) {
    let won = if !header.pins() {
        let won = header.state.wake(payload);
        if won {
            header.bring(payload);
        }
        won
    } else if let Some(ctx) = here.filter(|ctx| header.is_pinned_to(ctx)) {
        return wake_here(header, payload, ctx);
    } else {
        header.state.wake_remote(payload)
    };

    if won {
        // SAFETY: `State::wake` or `State::wake_remote` gave the right to queue the fiber, or to
        // send its worker a message about it, to this caller alone.
        schedule(
            unsafe { FiberTask::new(NonNull::from(header)) },
            Ready::Woken,
            here,
        );
    }
}

/// Wakes a fiber that is pinned to the worker `ctx`, on that worker.
#[inline]
fn wake_here(header: &Header, payload: WakePayload, ctx: &WorkerCtx) {
    if let Some(task) = wake_suspended(header, payload) {
        ctx.record_ready(header, Ready::Woken);
        ctx.schedule_here(task);
    }
}

/// Wakes a fiber that is pinned to this worker, and returns its task if it was suspended.
#[inline]
fn wake_suspended(header: &Header, payload: WakePayload) -> Option<FiberTask> {
    header.bring(payload);
    let queue = header.own.pinned.wake() == WakeAction::Queue;
    // SAFETY: its worker found it suspended, so this worker now owns it.
    queue.then(|| unsafe { FiberTask::new(NonNull::from(header)) })
}

/// Gives a fiber the grant that it waits for; `home` is the worker that it is pinned to, or null.
///
/// # Safety
/// The fiber has started and waits for the grant, so it is alive until it has the grant. If `home`
/// is not null the fiber is pinned there.
#[inline]
pub(crate) unsafe fn grant(header: NonNull<Header>, home: *const WorkerShared) {
    let here = current_worker();
    if let Some(ctx) = here
        && !home.is_null()
    {
        if ptr::eq(ctx.shared(), home) {
            // SAFETY: the caller's promise.
            return wake_here(unsafe { header.as_ref() }, WakePayload::Grant, ctx);
        }

        // SAFETY: the caller's promise.
        if unsafe { ctx.send_grant(home, header) } {
            return;
        }
    }

    // SAFETY: the caller's promise: the fiber waits until this call has given the grant.
    wake_with(unsafe { header.as_ref() }, WakePayload::Grant, here);
}

impl Header {
    /// Returns whether the fiber is pinned to this worker.
    #[inline]
    fn is_pinned_to(&self, ctx: &WorkerCtx) -> bool {
        self.pinned_to() == Some(ctx.id())
            && ptr::eq(self.pool_ptr().as_ptr(), ptr::from_ref(ctx.pool()).cast())
    }
}

impl PoolShared {
    /// Counts and queues a new fiber. Once the pool's fibers have been cancelled it refuses it:
    /// fibers that spawn others would otherwise keep the pool from ever ending.
    pub(crate) fn spawn(&self, task: FiberTask, here: Option<&WorkerCtx>) {
        if self.is_closing() {
            return refuse_late(task, here);
        }
        self.enqueue(task, here);
    }

    /// Counts and queues a new fiber that the pool cannot refuse: one that ends what another has
    /// begun.
    pub(super) fn enqueue(&self, task: FiberTask, here: Option<&WorkerCtx>) {
        self.count_spawned(here);
        schedule(task, Ready::Spawned, here);
    }

    /// Spawns a fiber like [`Self::spawn`], and queues it with the worker `home`. If it is not
    /// pinned, others may steal it there.
    pub(crate) fn spawn_at(&self, home: WorkerId, task: FiberTask, here: Option<&WorkerCtx>) {
        if self.is_closing() {
            return refuse_late(task, here);
        }
        if here.is_some_and(|ctx| ctx.id() == home) {
            return self.enqueue(task, here);
        }
        self.count_spawned(here);
        match here {
            Some(ctx) => ctx.record_ready(task.header(), Ready::Spawned),
            None => self.record_ready_outside(task.header(), Ready::Spawned),
        }

        send_to(self, home, task);
    }

    /// Records that a fiber becomes ready, which a caller outside the pool owns.
    fn record_ready_outside(&self, header: &Header, why: Ready) {
        if let Some(recorder) = &self.recorder {
            recorder.ready_outside(header.id(), why);
        }
    }

    fn count_spawned(&self, here: Option<&WorkerCtx>) {
        match here {
            Some(ctx) => bump(&ctx.shared().spawned),
            None => {
                self.spawned_outside.fetch_add(1, Ordering::AcqRel);
            }
        }
    }

    /// Spawns a fiber that `create` makes, unless the pool is ending: then none is made.
    ///
    /// Context: any thread or fiber that holds a reference to the pool, which may have ended.
    /// `create` runs no code of the program's, because the pool's end waits for it.
    pub(crate) fn spawn_if_open<R>(
        &self,
        create: impl FnOnce(Option<&WorkerCtx>) -> (FiberTask, R),
    ) -> Option<R> {
        let here = current_worker().filter(|ctx| ptr::eq(ctx.pool(), self));
        // A fiber of this pool is counted itself, so the closer waits for what it does. Others pass
        // the gate.
        let pass = match here {
            Some(_) if self.is_closing() => return None,
            Some(_) => None,
            None => Some(self.entry.enter()?),
        };

        let (task, handle) = create(here);
        self.enqueue(task, here);
        drop(pass);
        Some(handle)
    }
}

/// Refuses a new fiber of a pool whose fibers have been cancelled. Nobody else knows of it yet.
#[cold]
fn refuse_late(task: FiberTask, here: Option<&WorkerCtx>) {
    task.refuse(shutting_down(), here.map(WorkerCtx::blocks));
}

/// Queues a fiber that the caller has the right to queue. `here` is the worker that the caller runs
/// on, if any.
#[inline]
pub(crate) fn schedule(task: FiberTask, why: Ready, here: Option<&WorkerCtx>) {
    let pool_ptr = task.header().pool();
    let local = here.filter(|ctx| ptr::eq(ctx.pool(), pool_ptr.as_ptr()));
    match (local, task.header().pinned_to()) {
        (Some(ctx), Some(worker)) if worker != ctx.id() => {
            ctx.record_ready(task.header(), why);
            send_to(ctx.pool(), worker, task);
        }
        (Some(ctx), Some(_)) if !task.header().pins() => {
            if let Some(task) = ctx.settle(task) {
                ctx.record_ready(task.header(), why);
                ctx.push(task, why);
            }
        }
        (Some(ctx), _) => {
            ctx.record_ready(task.header(), why);
            ctx.push(task, why);
        }
        (None, pinned) => {
            // SAFETY: pools live in an `Arc`, and this one has a fiber that has not ended. That may
            // change at any moment once the task is pushed, hence the reference.
            let pool = unsafe {
                Arc::increment_strong_count(pool_ptr.as_ptr());
                Arc::from_raw(pool_ptr.as_ptr())
            };

            pool.record_ready_outside(task.header(), why);
            match pinned {
                Some(worker) => send_to(&pool, worker, task),
                None => pool.act_on(pool.outside.push(task, why)),
            }
        }
    }
}

/// Deals with a fiber whose task was dropped, by the policy or by code that it gave the task to:
/// the fiber's worker refuses it, or any worker if it may start anywhere. Here that cannot be done,
/// because a fiber that waits for it would be pushed within a call of the policy. A fiber that has
/// started ends the process.
///
/// # Safety
/// The caller gives up the fiber's task.
pub(super) unsafe fn lost(header: NonNull<Header>) {
    // SAFETY: the caller's promise.
    let task = unsafe { FiberTask::new(header) };
    if task.has_started() {
        abort(format_args!(
            "a scheduling policy has dropped {task:?}, which has started and cannot be ended"
        ));
    }

    let pool_ptr = task.header().pool();
    // SAFETY: as in `schedule`.
    let pool = unsafe {
        Arc::increment_strong_count(pool_ptr.as_ptr());
        Arc::from_raw(pool_ptr.as_ptr())
    };

    let pinned = task.header().pinned_to();
    if pool.is_stopping() && pinned.is_none() {
        // No worker is left to do it, and nothing is pushed.
        return task.refuse(dropped(), None);
    }

    task.header().state.lose();
    send_to(&pool, pinned.unwrap_or(0), task);
}

/// What the join of such a fiber gives.
fn dropped() -> io::Error {
    io::Error::other("the scheduling policy has dropped it")
}

/// Puts a task into a worker's inbox.
pub(super) fn send_to(pool: &PoolShared, worker: WorkerId, task: FiberTask) {
    // Only the pusher that found the inbox empty wakes the worker. A spare one may rest
    // (`sched/spare`).
    if pool.workers[worker].inbox.push(task)
        && (worker >= pool.regular() || pool.sleepers.wake_worker(worker))
    {
        pool.workers[worker].signal();
    }
}

impl WorkerCtx {
    /// Sends a grant to the worker at `home`, another one, to which the waiting fiber is pinned.
    /// Returns false if it was not sent: `home` belongs to another pool or its queue is full.
    ///
    /// # Safety
    /// The fiber waits for the grant.
    #[inline]
    unsafe fn send_grant(&self, home: *const WorkerShared, fiber: NonNull<Header>) -> bool {
        if !self
            .pool()
            .workers
            .first()
            .as_ptr_range()
            .contains(&home.cast())
        {
            return false;
        }
        // Before the fiber is sent, and may run and end. Whoever wakes it instead records that, so
        // only what has been sent is recorded here. SAFETY: the caller's promise.
        let ready = self
            .lane
            .as_ref()
            .map(|lane| (lane, lane.now(), unsafe { fiber.as_ref() }.id()));

        // SAFETY: it points to one of this pool's workers.
        let home = unsafe { &*home };
        let push = home.granted.push(fiber);
        if push == Push::Wake {
            home.signal();
        }
        if let Some((lane, time, id)) = ready.filter(|_| push != Push::Full) {
            lane.ready_at(time, id, Ready::Woken);
        }

        push != Push::Full
    }

    /// Pushes to the policy, with this worker's local policy, and wakes the worker that the policy
    /// asks for.
    #[inline]
    fn push(&self, task: FiberTask, why: Ready) {
        let wake = self.policy.push(task, why);
        self.pool().act_on_own(wake);
    }

    /// Records that a fiber becomes ready, which the caller owns.
    #[inline(always)]
    fn record_ready(&self, header: &Header, why: Ready) {
        if let Some(lane) = &self.lane {
            lane.ready(header.id(), why);
        }
    }

    /// Queues a fiber that is pinned to this worker and has just been woken.
    #[inline]
    pub(super) fn schedule_here(&self, task: FiberTask) {
        self.push(task, Ready::Woken);
    }

    /// Queues a woken fiber that may be pinned to this worker by what it waits for, unless it has
    /// to wait on.
    #[inline]
    pub(super) fn schedule_bound(&self, task: FiberTask) {
        let is_bound = !task.header().pins() && task.header().pinned_to().is_some();
        let ready = if is_bound {
            self.settle(task)
        } else {
            Some(task)
        };
        ready.into_iter().for_each(|task| self.schedule_here(task));
    }

    /// Does what [`IoCx::settle`] does.
    #[cold]
    fn settle(&self, task: FiberTask) -> Option<FiberTask> {
        self.io_cx(&self.io()).settle(task)
    }

    /// Gives a fiber that is pinned to this worker the grant that another worker sent.
    ///
    /// # Safety
    /// The fiber was sent to this worker by [`grant`].
    pub(super) unsafe fn deliver_grant(&self, header: NonNull<Header>) {
        // SAFETY: the caller's promise: the fiber waits for this grant. Its sender has recorded it.
        if let Some(task) = wake_suspended(unsafe { header.as_ref() }, WakePayload::Grant) {
            self.schedule_here(task);
        }
    }

    /// Handles one entry of this worker's inbox: a message about a fiber that is pinned here, or a
    /// fiber that is ready. Returns a fiber that has ended and was kept for this message; the
    /// caller retires it.
    pub(super) fn deliver(&self, task: FiberTask) -> Option<FiberTask> {
        let header = task.header();
        if !header.own.pinned.has_suspended() {
            if header.state.is_lost() {
                task.refuse(dropped(), Some(self.blocks()));
                self.count_end();
                return None;
            }

            if task.has_started() {
                self.schedule_bound(task);
            } else {
                self.push(task, Ready::Spawned);
            }

            return None;
        }

        match header
            .state
            .read(&header.own.pinned, |payload| header.bring(payload))
        {
            WakeAction::Queue => self.schedule_here(task),
            WakeAction::Nothing => task.leak(),
            WakeAction::Retire => return Some(task),
        }
        None
    }
}

impl IoCx<'_> {
    /// Wakes a fiber that waits for this worker's timers or driver.
    #[inline]
    pub(super) fn wake(self, header: &Header) {
        if header.movement() == Movement::Anytime {
            self.wake_movable(header);
        } else {
            wake(header, self.here);
        }
    }

    /// Wakes a fiber that may move. Unpins it first, so that a busy worker does not delay it.
    fn wake_movable(self, header: &Header) {
        if !header.state.wake(WakePayload::Nothing) {
            return; // It is awake, and will check its condition.
        }
        // SAFETY: `State::wake` gave the right to queue it to this caller alone.
        let task = unsafe { FiberTask::new(NonNull::from(header)) };
        if let Some(task) = self.settle(task) {
            schedule(task, Ready::Woken, self.here);
        }
    }

    /// Unpins a fiber that may move and that the caller owns, and removes its timer from this
    /// worker's wheel.
    pub(super) fn unpin(self, header: &Header) {
        if let Some(timer) = header.own.timer.take() {
            self.io.timers.borrow_mut().remove(timer);
        }
        header.pin_to(None);
        if self.here.is_none() {
            self.pool.counts.rescued.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Empties the inbox of a stalled worker: fibers that may move, or start elsewhere, go to other
    /// workers; entries that are pinned to it go back into the inbox.
    pub(crate) fn empty_inbox(self) {
        let inbox = self.pool.workers[self.id].inbox();
        if self.pool.movement == Movement::Never || inbox.is_empty() {
            return;
        }
        for task in inbox.take_all() {
            let header = task.header();
            // Only a worker refuses what is lost. What stays on its worker may be a message about
            // the very fiber that holds it up, which this thread must not touch.
            if header.state.is_lost() || (header.pins() && header.pinned_to().is_some()) {
                send_to(self.pool, self.id, task);
                continue;
            }

            let why = if task.has_started() {
                Ready::Woken
            } else {
                Ready::Spawned
            };

            // What has to stay goes back into the inbox.
            self.settle(task)
                .into_iter()
                .for_each(|task| schedule(task, why, None));
        }
    }
}
