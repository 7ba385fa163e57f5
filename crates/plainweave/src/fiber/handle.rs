//! Counted references to a fiber, and how a fiber is woken.

use std::fmt;
use std::ptr::{self, NonNull};
use std::sync::atomic::Ordering;

use super::blocks::Blocks;
use super::{FiberTask, Header, current_worker};
use crate::atomics::pinned_state::Call;
use crate::atomics::state::Brings;
use crate::policy::Ready;
use crate::sched::pool::WorkerShared;
use crate::sched::worker::WorkerCtx;

/// A counted reference to a fiber, ended or not.
pub(crate) struct FiberHandle(pub(crate) NonNull<Header>);

// SAFETY: gives access to atomics and immutable parts only.
unsafe impl Send for FiberHandle {}
// SAFETY: as above.
unsafe impl Sync for FiberHandle {}

impl FiberHandle {
    pub(crate) fn from_ref(header: &Header) -> Self {
        header.refs.fetch_add(1, Ordering::Relaxed);
        Self(NonNull::from(header))
    }

    #[inline]
    pub(crate) fn header(&self) -> &Header {
        // SAFETY: counted.
        unsafe { self.0.as_ref() }
    }

    /// Any thread. If the fiber is parked it becomes ready; if it is awake, its next suspension ends at once.
    pub(crate) fn wake(&self) {
        wake(self.header(), current_worker());
    }

    /// Any thread. The same, with the token of `park`.
    #[inline]
    pub(crate) fn unpark(&self) {
        wake_with(self.header(), Brings::Token, current_worker());
    }
}

/// Any thread that has a right to the reference; `here` is the worker it runs on, if any.
#[inline]
pub(crate) fn wake(header: &Header, here: Option<&WorkerCtx>) {
    wake_with(header, Brings::Nothing, here);
}

/// [`wake`] that brings something. A fiber that waits for a grant lives until it has come: with a grant, `header` is
/// not touched after it was given unless that made it the caller's.
#[inline]
pub(crate) fn wake_with(header: &Header, brings: Brings, here: Option<&WorkerCtx>) {
    if !header.stays() {
        if header.state.wake(brings) {
            header.bring(brings);
            make_ready(header, here);
        }
    } else if let Some(ctx) = here.filter(|ctx| header.stays_on(ctx)) {
        wake_here(header, brings, ctx);
    } else if header.state.post(brings) {
        make_ready(header, here);
    }
}

/// Any thread. Gives a grant; `home` is the worker that the fiber stays with, or null.
///
/// # Safety
/// The fiber has started and waits for the grant, so it is alive until it has it. If `home` is not null the fiber is
/// anchored there.
#[inline]
pub(crate) unsafe fn grant(header: NonNull<Header>, home: *const WorkerShared) {
    let here = current_worker();
    if let Some(ctx) = here
        && !home.is_null()
    {
        if ptr::eq(ctx.shared(), home) {
            // SAFETY: the caller's promise.
            return wake_here(unsafe { header.as_ref() }, Brings::Grant, ctx);
        }
        if ctx.pool().send_grant(home, header) {
            return;
        }
    }
    // SAFETY: the caller's promise: it waits, until this has given it.
    wake_with(unsafe { header.as_ref() }, Brings::Grant, here);
}

/// On the worker that the fiber stays with: [`wake_with`] where that is known.
#[inline]
pub(crate) fn wake_here(header: &Header, brings: Brings, ctx: &WorkerCtx) {
    header.bring(brings);
    if header.own.local.wake() == Call::Queue {
        // SAFETY: its worker found it parked, so this worker owns it now.
        ctx.queue(unsafe { FiberTask::new(NonNull::from(header)) });
    }
}

/// The caller has won the right to queue the fiber, or to send its worker a message about it.
#[inline]
fn make_ready(header: &Header, here: Option<&WorkerCtx>) {
    // SAFETY: `State::wake` or `State::post` gave that right to this caller alone.
    let task = unsafe { FiberTask::new(NonNull::from(header)) };
    crate::sched::pool::make_ready(task, Ready::Woken, here);
}

impl Clone for FiberHandle {
    fn clone(&self) -> Self {
        Self::from_ref(self.header())
    }
}

impl Drop for FiberHandle {
    fn drop(&mut self) {
        // SAFETY: gives up the counted reference.
        unsafe { release(self.0, current_worker().map(|ctx| &ctx.blocks)) };
    }
}

impl fmt::Debug for FiberHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.header().fmt(f)
    }
}

/// # Safety
/// The caller owns one reference and does not use it again.
pub(super) unsafe fn release(header: NonNull<Header>, here: Option<&Blocks>) {
    // SAFETY: alive until the count reaches zero.
    let h = unsafe { header.as_ref() };
    // The only reference left is the caller's: nobody can make another, so no read-modify-write is needed.
    if h.refs.load(Ordering::Acquire) == 1 || h.refs.fetch_sub(1, Ordering::AcqRel) == 1 {
        // SAFETY: that was the last reference.
        unsafe { (h.vtable.free)(header, here) };
    }
}
