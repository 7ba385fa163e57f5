//! A parked connection: an idle connection that needs no stack (DESIGN D13).
//!
//! The box holds the connection's small state, the closure to run on it, and one `Poll` operation at the driver: no
//! receive is posted and no buffer held. Readability, the idle time-out and the end of the runtime each end the
//! parking, by one road: the operation's completion, after which a **fresh fiber** runs the closure. It may be stolen
//! before it starts, so requests on long-lived connections spread over the workers although started fibers stay where
//! they are.
//!
//! A closure that is called each time (`Resume::Each`) keeps the box: its fiber parks the same box again, and a request
//! allocates nothing but its fiber, from the worker's kept blocks.

use std::io;
use std::ops::ControlFlow;
use std::ptr::NonNull;
use std::sync::Arc;

use slab::Slab;

use super::driver::Submitted;
use super::op::{Interest, Op, Operation, RawResult, Waiter};
use super::prefetch::prefetch;
use super::source::Source;
use crate::cancel::{CancelReason, Interrupt};
use crate::fiber::{self, NEVER, body};
use crate::pool::{bump, lower};
use crate::timer::TimerKey;
use crate::worker::{TimerTarget, WorkerCtx};

/// Idle times from this on are counted from the worker's last look at the clock, some microseconds ago: a reading for
/// each request would be a hundredth of its price. (A fiber that has kept the worker busy shortens them by as much.)
const COARSE: u64 = 1_000_000_000;

/// Of a connection's own state, so much is fetched in advance.
const FETCHED: usize = 256;

/// What a fresh fiber calls.
pub(crate) enum Resume {
    /// And that was all.
    Once(Box<dyn FnOnce(io::Result<()>) + Send>),
    /// And parks the connection again if told to go on.
    Each(Box<dyn FnMut(io::Result<()>) -> ControlFlow<()> + Send>),
}

/// See the module's page. Pinned in its box while the driver has the operation.
pub(crate) struct Parked {
    op: Operation,
    /// Keeps the descriptor open while the operation is at the driver.
    source: Arc<Source>,
    resume: Resume,
    idle_ns: u64,
    timer: Option<TimerKey>,
    interrupt: Option<Interrupt>,
    key: usize,
}

/// A box on its way from one parking to the next, or to its end.
struct Serving(Box<Parked>);

// SAFETY: no driver has its operation, no worker has it on its list, and its timer is gone. What it owns is `Send`.
unsafe impl Send for Serving {}

/// A worker's parked connections, so that shutdown finds them.
#[derive(Default)]
pub(crate) struct List(Slab<NonNull<Parked>>);

/// A fiber of `ctx`'s worker. Parks the connection until it is readable or `idle_ns` has passed.
pub(crate) fn park(ctx: &WorkerCtx, source: Arc<Source>, idle_ns: u64, resume: Resume) {
    let op = Operation::new(Op::Poll(Interest::Read), &source);
    again(ctx, Box::new(Parked { op, source, resume, idle_ns, timer: None, interrupt: None, key: 0 }));
}

/// A fiber of `ctx`'s worker, with a box that is new or whose operation is over.
fn again(ctx: &WorkerCtx, mut parked: Box<Parked>) {
    parked.op = Operation::new(Op::Poll(Interest::Read), &parked.source);
    parked.interrupt = None;
    let mut parked = NonNull::from(Box::leak(parked));
    // SAFETY: leaked just now; this worker's alone until the operation completes.
    let p = unsafe { parked.as_mut() };
    p.op.waiter.set(Waiter::Parked(parked.cast()));
    p.key = ctx.parked.borrow_mut().0.insert(parked);
    if p.idle_ns != NEVER {
        let now = if p.idle_ns >= COARSE { ctx.last_reading() } else { ctx.now() };
        let deadline = now.saturating_add(p.idle_ns);
        p.timer = Some(ctx.timers.borrow_mut().insert(deadline, TimerTarget::Parked(parked)));
    }
    bump(&ctx.shared().parked);
    let op = NonNull::from(&p.op);
    // SAFETY: the box stays where it is until `completed`, and keeps the source alive.
    let submitted = unsafe { ctx.driver.borrow_mut().submit(op) };
    match submitted {
        // SAFETY: done, so the driver no longer has the operation.
        Submitted::Done(result) => unsafe { Parked::completed(parked, result, ctx) },
        Submitted::Pending if ctx.pool().no_parking() => {
            let shutdown = Interrupt::Cancelled(CancelReason::Shutdown);
            // SAFETY: pending.
            unsafe { Parked::end(parked, shutdown, ctx) };
        }
        Submitted::Pending => {}
    }
}

/// The worker, when its pool parks connections no longer.
pub(crate) fn cancel_all(ctx: &WorkerCtx) {
    let all: Vec<_> = ctx.parked.borrow().0.iter().map(|(key, p)| (key, *p)).collect();
    for (key, parked) in all {
        // A completion may have freed it meanwhile; then it is no longer on the list.
        if ctx.parked.borrow().0.get(key) == Some(&parked) {
            // SAFETY: on the list, so alive and at the driver.
            unsafe { Parked::end(parked, Interrupt::Cancelled(CancelReason::Shutdown), ctx) };
        }
    }
}

impl Parked {
    /// # Safety
    /// The connection is parked at `ctx`'s driver.
    unsafe fn end(mut this: NonNull<Self>, interrupt: Interrupt, ctx: &WorkerCtx) {
        // SAFETY: alive until completed, which only this worker does.
        let (op, first) = unsafe {
            let p = this.as_mut();
            (NonNull::from(&p.op), p.interrupt.replace(interrupt).is_none())
        };
        if first {
            // SAFETY: pending, by the caller's promise; cancelled once.
            unsafe { ctx.cancel(op) };
        }
    }

    /// Its idle time is over.
    ///
    /// # Safety
    /// The connection is parked at `ctx`'s driver, and its timer has just left the wheel.
    pub(crate) unsafe fn expired(mut this: NonNull<Self>, ctx: &WorkerCtx) {
        // SAFETY: alive, by the caller's promise.
        unsafe {
            this.as_mut().timer = None;
            Self::end(this, Interrupt::TimedOut, ctx);
        }
    }

    /// Has what the fresh fiber will need fetched from memory: its turn comes after the others of this batch.
    fn fetch(&self) {
        prefetch(Arc::as_ptr(&self.source), size_of::<Source>());
        if let Resume::Each(resume) = &self.resume {
            let resume = &**resume;
            prefetch(std::ptr::from_ref(resume).cast::<u8>(), size_of_val(resume).min(FETCHED));
        }
    }

    /// The operation is over: a fresh fiber takes the connection.
    ///
    /// # Safety
    /// Called once, when the driver has let go of the operation, on its worker.
    pub(crate) unsafe fn completed(this: NonNull<Self>, result: RawResult, ctx: &WorkerCtx) {
        // SAFETY: made by `Box::leak` in `park`; nobody else uses it any more.
        let mut parked = unsafe { Box::from_raw(this.as_ptr()) };
        parked.fetch();
        if let Some(timer) = parked.timer.take() {
            ctx.timers.borrow_mut().remove(timer);
        }
        ctx.parked.borrow_mut().0.remove(parked.key);
        let outcome = match (result, parked.interrupt) {
            (0.., _) => Ok(()),
            (_, Some(interrupt)) => Err(interrupt.into()),
            (errno, None) => Err(io::Error::from_raw_os_error(-errno)),
        };
        let birth = ctx.pool().birth(Some(ctx), None, NEVER);
        let serving = Serving(parked);
        // SAFETY: the closure is 'static and Send.
        let task = unsafe { body::create_detached(birth, &ctx.blocks, move || serving.serve(outcome)) };
        ctx.pool().launch(task, Some(ctx));
        // Only now: a closing pool must see the connection or the fiber that has it.
        lower(&ctx.shared().parked);
    }
}

impl Serving {
    /// The fresh fiber.
    fn serve(self, outcome: io::Result<()>) {
        let Self(mut parked) = self;
        match &mut parked.resume {
            Resume::Each(resume) => {
                if resume(outcome).is_break() {
                    return;
                }
            }
            Resume::Once(_) => {
                let Parked { source, resume, .. } = *parked;
                // What the closure has may be the connection's last handle.
                drop(source);
                if let Resume::Once(resume) = resume {
                    resume(outcome);
                }
                return;
            }
        }
        if let Some(me) = fiber::current() {
            again(me.worker(), parked);
        }
    }
}
