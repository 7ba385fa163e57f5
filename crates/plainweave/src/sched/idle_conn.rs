//! Idle connections: connections that wait for their next request without a stack.
//!
//! The box holds the connection's small state, the closure to run on it, and one `Poll` operation
//! at the driver: no receive is posted and no buffer held. Readability, the idle timeout and the
//! end of the runtime all end the wait in the same way: by the operation's completion, after which
//! a **fresh fiber** runs the closure. It may be stolen before it starts, so requests on long-lived
//! connections spread over the workers although started fibers stay where they are.
//!
//! A worker that a fiber holds up sees none of this. Then the watchdog checks its connections in
//! its place: on epoll through the driver itself; on io_uring, whose completions need the worker,
//! with poll(2). In the second case it **takes** the connection: the contents move into a new box,
//! and the old one stays behind, empty, until the driver releases its operation. If only the worker
//! may call the driver, the worker cancels that operation when it is back ([`end_taken`]).
//!
//! A closure that is called each time (`Resume::Each`) keeps the box: its fiber registers the same
//! box again, and a request allocates nothing but its fiber, from the worker's kept blocks.

#![expect(unsafe_code, reason = "the same, for a connection in its box")]

use std::io;
use std::ops::ControlFlow;
use std::os::fd::AsFd;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use slab::Slab;

use crate::fiber::cancel::{CancelReason, Interrupt};
use crate::fiber::{self, Header, NEVER};
use crate::io::driver::Submitted;
use crate::io::op::{Interest, Op, OpOwner, Operation, RawResult, readable_or_writable};
use crate::prefetch::prefetch;
use crate::sched::closure;
use crate::sched::io_call::Descriptor;
use crate::sched::lent::Lent;
use crate::sched::pool::{bump, lower};
use crate::sched::worker::{TimerTarget, WorkerCtx};
use crate::sched::worker_io::IoCx;
use crate::timer::{Nanos, TimerKey};

/// Idle times at least this long are counted from the worker's last clock reading, some
/// microseconds ago: a new reading would be a hundredth of a request's cost. (A fiber that has kept
/// the worker busy shortens them by as much.)
const COARSE: Nanos = 1_000_000_000;

/// Bytes of a connection's own state that are prefetched.
const FETCHED: usize = 256;

/// What a fresh fiber calls.
pub(crate) enum Resume {
    /// A closure for one event.
    Once(Box<dyn FnOnce(io::Result<()>) + Send>),
    /// A closure for every event; the connection is registered again while it returns `Continue`.
    Each(Box<dyn FnMut(io::Result<()>) -> ControlFlow<()> + Send>),
    /// Nothing: the contents have been taken away.
    Taken,
}

/// What waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Connection,
    /// It does not count as an idle connection.
    Listener,
}

/// An idle connection, or a listener that waits in the same way. Pinned in its box while the driver
/// has the operation.
pub(crate) struct IdleConn {
    op: Operation,
    /// Keeps the descriptor open while the operation is at the driver.
    source: Arc<Descriptor>,
    kind: Kind,
    resume: Resume,
    has_waited: bool,
    idle_ns: Nanos,
    timer: Option<TimerKey>,
    interrupt: Option<Interrupt>,
    key: usize,
}

/// A box between two waits, or on its way to its end.
struct Serving(Box<IdleConn>);

// SAFETY: no driver has its operation, no worker has it on its list, and it has no timer. What it
// owns is `Send`.
unsafe impl Send for Serving {}

/// A worker's idle connections, so that shutdown finds them.
#[derive(Default)]
pub(crate) struct IdleList {
    all: Slab<NonNull<IdleConn>>,
    /// Boxes emptied by the watchdog whose operations the driver still has; not cancelled yet.
    taken: Vec<NonNull<IdleConn>>,
}

impl IdleList {
    /// Returns up to `most` connections from key `from` on: their keys and descriptors.
    pub(crate) fn sources(&self, from: usize, most: usize) -> Vec<(usize, Arc<Descriptor>)> {
        let some = self
            .all
            .iter()
            .skip_while(|(key, _)| *key < from)
            .take(most);
        // SAFETY: on the list, so alive; the caller holds the worker's I/O lock.
        some.map(|(key, conn)| (key, unsafe { conn.as_ref() }.source.clone()))
            .collect()
    }
}

/// Gives the connection to a driver, that of the calling fiber's worker if it has one, until the
/// connection is readable or `idle_ns` has passed.
pub(crate) fn register(
    me: &Header,
    (source, kind): (Arc<Descriptor>, Kind),
    idle_ns: Nanos,
    resume: Resume,
) {
    let op = Operation::new(Op::Poll(Interest::Read), &source);
    arm(
        me,
        Box::new(IdleConn {
            op,
            source,
            kind,
            resume,
            has_waited: false,
            idle_ns,
            timer: None,
            interrupt: None,
            key: 0,
        }),
    );
}

/// Registers a box that is new or whose operation is over.
///
/// Context: the calling fiber.
fn arm(me: &Header, mut conn: Box<IdleConn>) {
    let _lent = Lent::new(me);
    let ctx = me.worker();
    if ctx.pool().refuses_idle() {
        // Also if its next request is there already: a connection that is never idle would never
        // end otherwise.
        let shutdown = Interrupt::Cancelled(CancelReason::Shutdown);
        return spawn_fiber(ctx.io_cx(&ctx.io()), Serving(conn), Err(shutdown.into()));
    }

    conn.op = Operation::new(Op::Poll(Interest::Read), &conn.source);
    conn.op.recurs = conn.has_waited && conn.kind == Kind::Connection;
    conn.has_waited = true;
    conn.interrupt = None;
    let mut conn = NonNull::from(Box::leak(conn));
    let io = ctx.io();

    // SAFETY: leaked just now; only the holder of the I/O lock uses it until the operation
    // completes.
    let p = unsafe { conn.as_mut() };
    p.op.owner.set(OpOwner::IdleConn(conn.cast()));
    p.key = io.idle_conns.borrow_mut().all.insert(conn);

    if p.idle_ns != NEVER {
        let now = if p.idle_ns >= COARSE {
            ctx.last_reading()
        } else {
            ctx.now()
        };

        let deadline = now.saturating_add(p.idle_ns);
        p.timer = Some(
            io.timers
                .borrow_mut()
                .insert(deadline, TimerTarget::IdleConn(conn)),
        );
    }

    bump(&ctx.shared().idle_conns);
    if p.kind == Kind::Listener {
        bump(&ctx.shared().idle_listeners);
    }
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

/// Ends all idle connections of a worker whose pool no longer keeps any.
pub(crate) fn cancel_all(cx: IoCx) {
    let all: Vec<_> = cx
        .io
        .idle_conns
        .borrow()
        .all
        .iter()
        .map(|(key, p)| (key, *p))
        .collect();
    for (key, conn) in all {
        // A completion may have freed it meanwhile; then it is no longer on the list.
        if cx.io.idle_conns.borrow().all.get(key) == Some(&conn) {
            // SAFETY: on the list, so alive and at the driver.
            unsafe { IdleConn::end(conn, Interrupt::Cancelled(CancelReason::Shutdown), cx) };
        }
    }
}

/// Cancels the operations of connections that were taken from the driver. It runs before the driver
/// is polled again.
///
/// Context: a thread that may call the driver.
pub(crate) fn end_taken(cx: IoCx) {
    loop {
        let Some(conn) = cx.io.idle_conns.borrow_mut().taken.pop() else {
            return;
        };
        // SAFETY: the driver still has it, because it has not been polled since; cancelled once.
        unsafe { cx.cancel(NonNull::from(&conn.as_ref().op)) };
    }
}

/// Takes the connection under this key, which was readable a moment ago.
///
/// Context: the watchdog, in the place of a worker that is held up.
pub(crate) fn take(cx: IoCx, key: usize, source: &Arc<Descriptor>) {
    let Some(conn) = cx.io.idle_conns.borrow().all.get(key).copied() else {
        return;
    };
    // SAFETY: on the list, so alive, and this caller holds the I/O lock.
    let here = Arc::ptr_eq(unsafe { &conn.as_ref().source }, source);
    // The worker may have run meanwhile: the key may belong to another connection, or to the same
    // one after it was served.
    if here && readable_or_writable(source.as_fd(), Interest::Read) {
        take_away(cx, conn, Ok(()));
    }
}

/// Leaves the empty box to the driver, and gives the rest to a fresh fiber.
///
/// Context: the watchdog.
fn take_away(cx: IoCx, mut conn: NonNull<IdleConn>, outcome: io::Result<()>) {
    // SAFETY: as in `take`.
    let p = unsafe { conn.as_mut() };
    if p.interrupt.is_some() {
        return; // It is ending already.
    }
    let key = p.key;
    let source = p.source.clone();
    let resume = std::mem::replace(&mut p.resume, Resume::Taken);
    let op = Operation::new(Op::Poll(Interest::Read), &source);
    let serving = Serving(Box::new(IdleConn {
        op,
        source,
        kind: p.kind,
        resume,
        has_waited: p.has_waited,
        idle_ns: p.idle_ns,
        timer: None,
        interrupt: None,
        key,
    }));

    if let Some(timer) = p.timer.take() {
        cx.io.timers.borrow_mut().remove(timer);
    }
    let mut list = cx.io.idle_conns.borrow_mut();
    list.all.remove(key);
    list.taken.push(conn);
    drop(list);
    let may_call = cx.io.driver.borrow().watched().is_some();

    if may_call {
        // Cancel at once: the watchdog may see the completion before the worker runs again.
        end_taken(cx);
    }

    spawn_fiber(cx, serving, outcome);
}

/// Spawns the connection's fresh fiber.
fn spawn_fiber(cx: IoCx, serving: Serving, outcome: io::Result<()>) {
    if cx.here.is_none() {
        cx.pool.counts.rescued.fetch_add(1, Ordering::Relaxed);
    }
    let spec = cx.pool.spec(cx.here.map(WorkerCtx::id), None, NEVER);
    // SAFETY: the closure is 'static and Send.
    let task = unsafe {
        closure::create_detached(spec, cx.here.map(WorkerCtx::blocks), move || {
            serving.serve(outcome)
        })
    };

    cx.for_event(|| cx.pool.enqueue(task, cx.here));
}

impl IdleConn {
    /// Ends the wait early.
    ///
    /// # Safety
    /// The connection waits at this driver.
    unsafe fn end(mut this: NonNull<Self>, interrupt: Interrupt, cx: IoCx) {
        // SAFETY: alive until completed, which takes the I/O lock that the caller holds.
        let (op, first) = unsafe {
            let p = this.as_mut();
            (
                NonNull::from(&p.op),
                p.interrupt.replace(interrupt).is_none(),
            )
        };

        if first {
            // SAFETY: pending, by the caller's promise; cancelled once.
            unsafe { cx.cancel(op) };
        }
    }

    /// Ends the wait of a connection whose idle time is over.
    ///
    /// # Safety
    /// The connection waits at this driver, and its timer has just left the wheel.
    pub(crate) unsafe fn expired(mut this: NonNull<Self>, cx: IoCx) {
        // SAFETY: alive, by the caller's promise.
        unsafe { this.as_mut().timer = None };
        if cx.here.is_none() && cx.io.driver.borrow().watched().is_none() {
            // This is the watchdog, and only the worker may call the driver.
            return take_away(cx, this, Err(Interrupt::TimedOut.into()));
        }
        // SAFETY: it waits at this driver, by the caller's promise.
        unsafe { Self::end(this, Interrupt::TimedOut, cx) };
    }

    /// Prefetches what the fresh fiber will need: it runs after the others of this batch.
    fn fetch(&self) {
        prefetch(Arc::as_ptr(&self.source), size_of::<Descriptor>());
        if let Resume::Each(resume) = &self.resume {
            let resume = &**resume;
            prefetch(
                std::ptr::from_ref(resume).cast::<u8>(),
                size_of_val(resume).min(FETCHED),
            );
        }
    }

    /// Gives the connection to a fresh fiber, now that its operation is over.
    ///
    /// # Safety
    /// Called once, when the driver has released the operation.
    pub(crate) unsafe fn completed(this: NonNull<Self>, result: RawResult, cx: IoCx) {
        // SAFETY: made by `Box::leak` in `arm`; nobody else uses it any more.
        let mut conn = unsafe { Box::from_raw(this.as_ptr()) };
        let kind = conn.kind;
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

        // Count it last: a closing pool must see the connection or the fiber that has it.
        if kind == Kind::Listener {
            lower(&cx.pool.workers[cx.id].idle_listeners);
        }
        lower(&cx.pool.workers[cx.id].idle_conns);
    }
}

impl Serving {
    /// Runs the closure on the fresh fiber, and registers the connection again if it goes on.
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
                // The closure may own the connection's last handle.
                drop(source);
                if let Resume::Once(resume) = resume {
                    resume(outcome);
                }
                return;
            }
        }

        if let Some(me) = fiber::current() {
            arm(me, conn);
        }
    }
}
