//! An idle connection: an idle connection that needs no stack (DESIGN D13).
//!
//! The box holds the connection's small state, the closure to run on it, and one `Poll` operation at the driver:
//! no receive is posted and no buffer held. Readability, the idle time-out and the end of the runtime all end the wait
//! by one road: the operation's completion, after which a **fresh fiber** runs the closure. It may be stolen before it
//! starts, so requests on long-lived connections spread over the workers although started fibers stay where they are.
//!
//! A worker that a fiber holds up hears of none of this. Then the watchdog looks at its connections in its place: on
//! epoll at the driver itself, on io_uring, whose completions need the worker, with poll(2). There it **takes**
//! the connection: what it consists of goes into a new box, and the old one stays behind, empty, until the driver lets
//! go of its operation. If the worker alone may call the driver, it asks for that when it is back ([`end_taken`]).
//!
//! A closure that is called each time (`Resume::Each`) keeps the box: its fiber registers the same box again, and a
//! request allocates nothing but its fiber, from the worker's kept blocks.

use std::io;
use std::ops::ControlFlow;
use std::os::fd::AsFd;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use slab::Slab;

use crate::fiber::cancel::{CancelReason, Interrupt};
use crate::fiber::{self, NEVER};
use crate::io::driver::Submitted;
use crate::io::op::{Interest, Op, OpOwner, Operation, RawResult, readable_or_writable};
use crate::prefetch::prefetch;
use crate::sched::closure;
use crate::sched::io_call::Descriptor;
use crate::sched::pool::{bump, lower};
use crate::sched::worker::{TimerTarget, WorkerCtx};
use crate::sched::worker_io::IoCx;
use crate::timer::TimerKey;

/// Idle times from this on are counted from the worker's last look at the clock, some microseconds ago: a
/// reading for each request would be a hundredth of its price. (A fiber that has kept the worker busy shortens them by
/// as much.)
const COARSE: u64 = 1_000_000_000;

/// Of a connection's own state, so much is fetched in advance.
const FETCHED: usize = 256;

/// What a fresh fiber calls.
pub(crate) enum Resume {
    /// And that was all.
    Once(Box<dyn FnOnce(io::Result<()>) + Send>),
    /// And registers the connection again if it is to go on.
    Each(Box<dyn FnMut(io::Result<()>) -> ControlFlow<()> + Send>),
    /// Nothing: the connection has been taken away.
    Taken,
}

/// See the module's page. Pinned in its box while the driver has the operation.
pub(crate) struct IdleConn {
    op: Operation,
    /// Keeps the descriptor open while the operation is at the driver.
    source: Arc<Descriptor>,
    resume: Resume,
    idle_ns: u64,
    timer: Option<TimerKey>,
    interrupt: Option<Interrupt>,
    key: usize,
}

/// A box on its way from one wait to the next, or to its end.
struct Serving(Box<IdleConn>);

// SAFETY: no driver has its operation, no worker has it on its list, and its timer is gone. What it owns is `Send`.
unsafe impl Send for Serving {}

/// A worker's idle connections, so that shutdown finds them.
#[derive(Default)]
pub(crate) struct List {
    all: Slab<NonNull<IdleConn>>,
    /// What was taken, and is still at the driver, which has not been told.
    taken: Vec<NonNull<IdleConn>>,
}

impl List {
    /// At most `most` of them: where they are and what they wait for. `from`: the key to begin with.
    pub(crate) fn sources(&self, from: usize, most: usize) -> Vec<(usize, Arc<Descriptor>)> {
        let some = self.all.iter().skip_while(|(key, _)| *key < from).take(most);
        // SAFETY: on the list, so alive; whoever calls has the worker's claim.
        some.map(|(key, conn)| (key, unsafe { conn.as_ref() }.source.clone())).collect()
    }
}

/// Gives the connection to the driver of `ctx`'s worker until it is readable or `idle_ns` has passed.
pub(crate) fn register(ctx: &WorkerCtx, source: Arc<Descriptor>, idle_ns: u64, resume: Resume) {
    let op = Operation::new(Op::Poll(Interest::Read), &source);
    arm(ctx, Box::new(IdleConn { op, source, resume, idle_ns, timer: None, interrupt: None, key: 0 }));
}

/// A fiber of `ctx`'s worker, with a box that is new or whose operation is over.
fn arm(ctx: &WorkerCtx, mut conn: Box<IdleConn>) {
    conn.op = Operation::new(Op::Poll(Interest::Read), &conn.source);
    conn.interrupt = None;
    let mut conn = NonNull::from(Box::leak(conn));
    let io = ctx.io();
    // SAFETY: leaked just now; whoever has the claim is alone with it until the operation completes.
    let p = unsafe { conn.as_mut() };
    p.op.owner.set(OpOwner::IdleConn(conn.cast()));
    p.key = io.idle_conns.borrow_mut().all.insert(conn);
    if p.idle_ns != NEVER {
        let now = if p.idle_ns >= COARSE { ctx.last_reading() } else { ctx.now() };
        let deadline = now.saturating_add(p.idle_ns);
        p.timer = Some(io.timers.borrow_mut().insert(deadline, TimerTarget::IdleConn(conn)));
    }
    bump(&ctx.shared().idle_conns);
    let op = NonNull::from(&p.op);
    // SAFETY: the box stays where it is until `completed`, and keeps the source alive.
    let submitted = unsafe { io.driver.borrow_mut().submit(op) };
    match submitted {
        // SAFETY: done, so the driver no longer has the operation.
        Submitted::Done(result) => unsafe { IdleConn::completed(conn, result, ctx.io_cx(&io)) },
        Submitted::Pending if ctx.pool().refuses_idle() => {
            let shutdown = Interrupt::Cancelled(CancelReason::Shutdown);
            // SAFETY: pending.
            unsafe { IdleConn::end(conn, shutdown, ctx.io_cx(&io)) };
        }
        Submitted::Pending => {}
    }
}

/// Ends all idle connections of a worker whose pool keeps them no longer.
pub(crate) fn cancel_all(cx: IoCx) {
    let all: Vec<_> = cx.io.idle_conns.borrow().all.iter().map(|(key, p)| (key, *p)).collect();
    for (key, conn) in all {
        // A completion may have freed it meanwhile; then it is no longer on the list.
        if cx.io.idle_conns.borrow().all.get(key) == Some(&conn) {
            // SAFETY: on the list, so alive and at the driver.
            unsafe { IdleConn::end(conn, Interrupt::Cancelled(CancelReason::Shutdown), cx) };
        }
    }
}

/// Who may call the driver, before it is looked at again: ends the operations of connections that were taken from it.
pub(crate) fn end_taken(cx: IoCx) {
    loop {
        let Some(conn) = cx.io.idle_conns.borrow_mut().taken.pop() else { return };
        // SAFETY: the driver, which has not been looked at since, has it; cancelled once.
        unsafe { cx.cancel(NonNull::from(&conn.as_ref().op)) };
    }
}

/// The watchdog, in the place of a worker that is held up: the connection under this key was readable a moment ago.
pub(crate) fn take(cx: IoCx, key: usize, source: &Arc<Descriptor>) {
    let Some(conn) = cx.io.idle_conns.borrow().all.get(key).copied() else { return };
    // SAFETY: on the list, so alive, and with the claim this caller's.
    let here = Arc::ptr_eq(unsafe { &conn.as_ref().source }, source);
    // The worker may have been back meanwhile: another has that place now, or the same again, which has been served.
    if here && readable_or_writable(source.as_fd(), Interest::Read) {
        take_away(cx, conn, Ok(()));
    }
}

/// The watchdog. Leaves the driver the empty box, and gives the rest to a fresh fiber.
fn take_away(cx: IoCx, mut conn: NonNull<IdleConn>, outcome: io::Result<()>) {
    // SAFETY: as in `take`.
    let p = unsafe { conn.as_mut() };
    if p.interrupt.is_some() {
        return; // It is ending anyway.
    }
    let key = p.key;
    let source = p.source.clone();
    let resume = std::mem::replace(&mut p.resume, Resume::Taken);
    let op = Operation::new(Op::Poll(Interest::Read), &source);
    let serving =
        Serving(Box::new(IdleConn { op, source, resume, idle_ns: p.idle_ns, timer: None, interrupt: None, key }));
    if let Some(timer) = p.timer.take() {
        cx.io.timers.borrow_mut().remove(timer);
    }
    let mut list = cx.io.idle_conns.borrow_mut();
    list.all.remove(key);
    list.taken.push(conn);
    drop(list);
    let may_call = cx.io.driver.borrow().watched().is_some();
    if may_call {
        // At once: the watchdog may see its completion before the worker comes by.
        end_taken(cx);
    }
    spawn_fiber(cx, serving, outcome);
}

/// The connection's fresh fiber.
fn spawn_fiber(cx: IoCx, serving: Serving, outcome: io::Result<()>) {
    if cx.here.is_none() {
        cx.pool.counts.rescued.fetch_add(1, Ordering::Relaxed);
    }
    let spec = cx.pool.spec(cx.here, None, NEVER);
    // SAFETY: the closure is 'static and Send.
    let task =
        unsafe { closure::create_detached(spec, cx.here.map(WorkerCtx::blocks), move || serving.serve(outcome)) };
    cx.pool.spawn(task, cx.here);
}

impl IdleConn {
    /// # Safety
    /// The connection waits at this driver.
    unsafe fn end(mut this: NonNull<Self>, interrupt: Interrupt, cx: IoCx) {
        // SAFETY: alive until completed, which takes the claim that the caller has.
        let (op, first) = unsafe {
            let p = this.as_mut();
            (NonNull::from(&p.op), p.interrupt.replace(interrupt).is_none())
        };
        if first {
            // SAFETY: pending, by the caller's promise; cancelled once.
            unsafe { cx.cancel(op) };
        }
    }

    /// Its idle time is over.
    ///
    /// # Safety
    /// The connection waits at this driver, and its timer has just left the wheel.
    pub(crate) unsafe fn expired(mut this: NonNull<Self>, cx: IoCx) {
        // SAFETY: alive, by the caller's promise.
        unsafe { this.as_mut().timer = None };
        if cx.here.is_none() && cx.io.driver.borrow().watched().is_none() {
            // The watchdog, and the driver does what it is told by its worker alone.
            return take_away(cx, this, Err(Interrupt::TimedOut.into()));
        }
        // SAFETY: conn, by the caller's promise.
        unsafe { Self::end(this, Interrupt::TimedOut, cx) };
    }

    /// Has what the fresh fiber will need fetched from memory: its turn comes after the others of this batch.
    fn fetch(&self) {
        prefetch(Arc::as_ptr(&self.source), size_of::<Descriptor>());
        if let Resume::Each(resume) = &self.resume {
            let resume = &**resume;
            prefetch(std::ptr::from_ref(resume).cast::<u8>(), size_of_val(resume).min(FETCHED));
        }
    }

    /// The operation is over: a fresh fiber takes the connection.
    ///
    /// # Safety
    /// Called once, when the driver has let go of the operation.
    pub(crate) unsafe fn completed(this: NonNull<Self>, result: RawResult, cx: IoCx) {
        // SAFETY: made by `Box::leak` in `arm`; nobody else uses it any more.
        let mut conn = unsafe { Box::from_raw(this.as_ptr()) };
        conn.fetch();
        if !matches!(conn.resume, Resume::Taken) {
            if let Some(timer) = conn.timer.take() {
                cx.io.timers.borrow_mut().remove(timer);
            }
            cx.io.idle_conns.borrow_mut().all.remove(conn.key);
            let outcome = match (result, conn.interrupt) {
                (0.., _) => Ok(()),
                (_, Some(interrupt)) => Err(interrupt.into()),
                (errno, None) => Err(io::Error::from_raw_os_error(-errno)),
            };
            spawn_fiber(cx, Serving(conn), outcome);
        }
        // Only now: a closing pool must see the connection or the fiber that has it.
        lower(&cx.pool.workers[cx.id].idle_conns);
    }
}

impl Serving {
    /// The fresh fiber.
    fn serve(self, outcome: io::Result<()>) {
        let Self(mut conn) = self;
        match &mut conn.resume {
            Resume::Each(resume) => {
                if resume(outcome).is_break() {
                    return;
                }
            }
            Resume::Taken => return,
            Resume::Once(_) => {
                let IdleConn { source, resume, .. } = *conn;
                // What the closure has may be the connection's last handle.
                drop(source);
                if let Resume::Once(resume) = resume {
                    resume(outcome);
                }
                return;
            }
        }
        if let Some(me) = fiber::current() {
            arm(me.worker(), conn);
        }
    }
}
