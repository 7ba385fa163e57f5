//! The one way to wait. Everything that blocks (I/O, timers, joins, locks, the blocking pool) registers a [`Waker`] and
//! calls [`until`] (or [`suspend`] under it) with a reason.
//!
//! 1. The caller registers its waker with the waking side.
//! 2. `until` checks the condition, then cancellation and deadline, then suspends; it repeats this after every wake-up.
//!
//! A waker that comes between check and suspension leaves a notification in the fiber's state word (or in the thread's
//! parker), so the suspension ends at once. The condition is checked **first**: what has completed is delivered, and
//! the cancellation surfaces at the next call. Wake-ups may be spurious; only the condition counts.
//!
//! Suspension is inlined into its callers ([`until`], [`suspend`], `park`, the waits of `sync`). A processor predicts
//! returns from the calls it has seen, and after a stack switch these are another fiber's. So every frame between the
//! switch and the user's code costs a mispredicted return.
//!
//! The same calls serve plain threads, which wait on a parker of their own. A fiber that is **panicking** suspends like
//! any other if it has fiber-local storage, where its panic count travels with it. On shared storage it would leave its
//! panic count to the worker's next fiber, so it blocks its thread. That wait is bounded: one that a deadline may end
//! ends after a second. One that cannot end (for a fiber that only this worker could run, or longer than ten seconds)
//! aborts the process and reports the fiber and what it waited for.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task;
use std::time::{Duration, Instant};

use crossbeam_utils::sync::{Parker, Unparker};

use crate::abort::abort;
use crate::atomics::state::WakePayload;
use crate::fiber::cancel::{CancelReason, Interrupt};
use crate::fiber::note::Note;
use crate::fiber::{self, FiberHandle, Header, NEVER, Reason, Switch};
use crate::io::eventfd::Wakeup;
use crate::sched::worker::TimerTarget;
use std::ptr::NonNull;

/// How long a panicking fiber may block its thread where a timeout is a possible answer.
pub(crate) const PANICKING_WAIT: Duration = Duration::from_secs(1);
/// How long it may block it where there is no such answer.
const PANICKING_LIMIT: Duration = Duration::from_secs(10);

/// The entry of a plain thread, or of a panicking fiber's thread, that waits.
#[derive(Debug)]
pub(crate) struct ThreadEntry {
    unparker: Unparker,
    /// The token of `park` and `unpark` on plain threads.
    pub(crate) token: AtomicBool,
    pub(crate) thread: std::thread::Thread,
}

struct ThisThread {
    parker: Parker,
    entry: Arc<ThreadEntry>,
}

thread_local! {
    static THIS_THREAD: ThisThread = {
        let parker = Parker::new();
        let unparker = parker.unparker().clone();
        let thread = std::thread::current();
        ThisThread { parker, entry: Arc::new(ThreadEntry { unparker, token: AtomicBool::new(false), thread }) }
    };
    /// The deadline that `time::with_deadline` has set on a plain thread.
    static THREAD_DEADLINE: Cell<Option<Instant>> = const { Cell::new(None) };
}

/// A waiter, as the waking side keeps it.
#[derive(Clone, Debug)]
pub(crate) enum Waker {
    Fiber(FiberHandle),
    Thread(Arc<ThreadEntry>),
    /// A future's task that awaits a fiber; boxed because it is rare, and a cell for a waker lies in every fiber.
    Task(Box<task::Waker>),
    /// A plain thread in poll(2).
    Event(Arc<Wakeup>),
}

impl Waker {
    /// Returns the waker of the calling fiber or thread.
    pub(crate) fn current() -> Self {
        match suspendable() {
            Some(header) => Waker::Fiber(FiberHandle::from_ref(header)),
            None => Waker::Thread(this_thread()),
        }
    }

    /// Makes the waiter check its condition again.
    pub(crate) fn wake(&self) {
        match self {
            Waker::Fiber(fiber) => fiber.wake(),
            Waker::Thread(entry) => entry.unparker.unpark(),
            Waker::Task(waker) => contain(|| waker.wake_by_ref()),
            Waker::Event(event) => event.wake(),
        }
    }

    /// Does the same, and drops the waker.
    #[inline]
    pub(crate) fn wake_and_drop(self) {
        match self {
            Waker::Task(waker) => contain(|| waker.wake()),
            other => other.wake(),
        }
    }
}

/// Calls a task's waker. It may be anybody's code, as its destructor may be, and runs where a fiber ends, or on a
/// worker's own stack, past which nothing may unwind. The payload of its panic may panic when it is dropped, so it is
/// forgotten.
#[cold]
fn contain(wake: impl FnOnce()) {
    if let Err(payload) = catch_unwind(AssertUnwindSafe(wake)) {
        std::mem::forget(payload);
    }
}

/// Returns the entry by which the calling thread is woken.
pub(crate) fn this_thread() -> Arc<ThreadEntry> {
    THIS_THREAD.with(|t| t.entry.clone())
}

/// Returns the calling fiber, unless it is panicking on its worker's storage: then it waits as a thread does.
#[inline]
pub(crate) fn suspendable<'a>() -> Option<&'a Header> {
    fiber::current().filter(|me| me.owns_storage() || !std::thread::panicking())
}

impl Header {
    /// Returns why the fiber should stop, if it was cancelled by its handle or its runtime shuts down.
    ///
    /// Context: the fiber itself.
    #[inline]
    pub(crate) fn stop_reason(&self) -> Option<CancelReason> {
        self.cancel.get().or_else(|| self.worker().pool().is_closing().then_some(CancelReason::Shutdown))
    }

    /// Returns why the fiber should not block, if it should not.
    ///
    /// Context: the fiber itself.
    #[inline]
    pub(crate) fn cancelled(&self) -> Option<Interrupt> {
        let goes_on = self.stop_reason().is_none() && !self.own.in_scope;
        if goes_on { None } else { self.cancelled_by() }
    }

    #[inline(never)]
    fn cancelled_by(&self) -> Option<Interrupt> {
        let by_scope = || self.own.node.borrow().as_ref().and_then(|n| n.cancelled());
        self.stop_reason().or_else(by_scope).map(Interrupt::Cancelled)
    }
}

/// Returns what keeps the caller from starting something new: its cancellation, or a deadline that has passed.
pub(crate) fn interrupted() -> Option<Interrupt> {
    match suspendable() {
        Some(header) => {
            let late = || {
                let deadline = header.own.deadline.get();
                (deadline != NEVER && header.worker().now() >= deadline).then_some(Interrupt::TimedOut)
            };
            header.cancelled().or_else(late)
        }
        None => thread_deadline().filter(|d| Instant::now() >= *d).map(|_| Interrupt::TimedOut),
    }
}

/// Returns the calling thread's deadline, or the bound of a panicking fiber's wait.
pub(crate) fn thread_deadline() -> Option<Instant> {
    if std::thread::panicking() && fiber::current().is_some() {
        return Some(Instant::now() + PANICKING_WAIT);
    }
    THREAD_DEADLINE.with(Cell::get)
}

/// Sets a plain thread's deadline and returns the previous one.
pub(crate) fn set_thread_deadline(deadline: Option<Instant>) -> Option<Instant> {
    THREAD_DEADLINE.with(|d| d.replace(deadline))
}

/// What may end a wait before its condition holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Interrupts {
    /// The caller's cancellation and its deadline.
    Allowed,
    /// Nothing.
    Ignored,
}

/// What a caller of [`until`] waits for, and how.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WaitSpec<'a> {
    reason: Reason,
    interrupts: Interrupts,
    /// The call's own timeout, from now on.
    timeout: Option<Duration>,
    /// The fiber waited for.
    target: Option<&'a Header>,
    note: Option<&'a Note>,
}

impl<'a> WaitSpec<'a> {
    #[inline(always)]
    pub(crate) fn new(reason: Reason, interrupts: Interrupts) -> Self {
        Self { reason, interrupts, timeout: None, target: None, note: None }
    }

    /// Ends the wait after this time. Has no effect where interrupts are ignored.
    #[inline(always)]
    pub(crate) fn timeout(self, timeout: Option<Duration>) -> Self {
        Self { timeout, ..self }
    }

    /// Names the fiber waited for.
    #[inline(always)]
    pub(crate) fn target(self, fiber: &'a Header) -> Self {
        Self { target: Some(fiber), ..self }
    }

    /// Leaves a note of the object waited for, for dumps.
    #[inline(always)]
    pub(crate) fn note(self, note: &'a Note) -> Self {
        Self { note: Some(note), ..self }
    }

    #[inline(always)]
    fn may_end_early(&self) -> bool {
        self.interrupts == Interrupts::Allowed
    }
}

/// Waits until `condition` returns a value, or an interrupt comes that `wait` allows.
///
/// Context: any thread or fiber.
#[inline(always)]
pub(crate) fn until<R>(wait: WaitSpec<'_>, condition: impl FnMut() -> Option<R>) -> Result<R, Interrupt> {
    match suspendable() {
        Some(header) => until_on_fiber(header, wait, condition),
        None => until_on_thread(wait, condition),
    }
}

/// Does the work of [`until`] for a fiber that can suspend.
#[inline(always)]
pub(crate) fn until_on_fiber<R>(
    header: &Header,
    wait: WaitSpec<'_>,
    mut condition: impl FnMut() -> Option<R>,
) -> Result<R, Interrupt> {
    let mut deadline = NEVER;
    if wait.may_end_early() {
        deadline = header.own.deadline.get();
        if let Some(limit) = wait.timeout {
            deadline = deadline.min(header.worker().now().saturating_add(nanos(limit)));
        }
    }
    let mut late = false;
    loop {
        if let Some(result) = condition() {
            return Ok(result);
        }
        if wait.may_end_early() {
            if let Some(interrupt) = header.cancelled() {
                return Err(interrupt);
            }
            if late {
                return Err(Interrupt::TimedOut);
            }
        }
        late = suspend_for(header, wait.reason, wait.note, deadline);
    }
}

#[cold]
fn until_on_thread<R>(wait: WaitSpec<'_>, mut condition: impl FnMut() -> Option<R>) -> Result<R, Interrupt> {
    let start = Instant::now();
    let mut deadline = None;
    if wait.may_end_early() {
        deadline = earliest(thread_deadline(), wait.timeout.and_then(|t| start.checked_add(t)));
    }
    let panicking = fiber::current();
    if panicking.is_some() && !wait.may_end_early() {
        deadline = Some(start + PANICKING_LIMIT);
    }
    loop {
        if let Some(result) = condition() {
            return Ok(result);
        }
        // Read once for both tests: a wait that may not end early ends with its condition, or aborts.
        let late = deadline.is_some_and(|d| Instant::now() >= d);
        if let Some(me) = panicking
            && (hopeless(me, wait.target) || (!wait.may_end_early() && late))
        {
            abort_stuck(me, wait.reason, wait.target);
        }
        if late {
            return Err(Interrupt::TimedOut);
        }
        THIS_THREAD.with(|t| match deadline {
            Some(deadline) => t.parker.park_deadline(deadline),
            None => t.parker.park(),
        });
    }
}

pub(crate) fn earliest(a: Option<Instant>, b: Option<Instant>) -> Option<Instant> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}

/// Returns whether only this worker, which the panicking fiber holds up, could run the fiber waited for.
fn hopeless(me: &Header, target: Option<&Header>) -> bool {
    target.is_some_and(|t| t.pool_ptr() == me.pool_ptr() && t.pinned_to() == Some(me.worker().id()) && t.is_live())
}

#[cold]
fn abort_stuck(me: &Header, reason: Reason, target: Option<&Header>) -> ! {
    let whom = target.map_or_else(|| format!("{reason:?}"), |t| format!("{t:?}"));
    abort(format_args!(
        "{me:?} blocks in a destructor while it panics and waits for {whom}, which cannot come: \
         a panicking fiber holds its worker"
    ))
}

/// Suspends the fiber until it is woken or `deadline` comes (nanoseconds since the pool's epoch, `NEVER` for none).
/// Every wait ends here. Returns true if the deadline has come. May return without cause.
///
/// While a timer is armed the fiber is pinned to the worker whose wheel holds it, even if it may move.
#[inline(always)]
pub(crate) fn suspend(header: &Header, reason: Reason, deadline: u64) -> bool {
    suspend_for(header, reason, None, deadline)
}

#[inline(always)]
fn suspend_for(header: &Header, reason: Reason, note: Option<&Note>, deadline: u64) -> bool {
    header.own.waits.set(reason, note.is_some());
    if let Some(note) = note {
        header.own.note.set(note);
    }
    if deadline == NEVER {
        header.switch(Switch::Suspend);
        return false;
    }
    suspend_until(header, deadline)
}

#[inline(never)]
fn suspend_until(header: &Header, deadline: u64) -> bool {
    let pin = Pin::new(header);
    header.own.waits.set_timed();
    header.own.timer_fired.set(false);
    let target = TimerTarget::Fiber(NonNull::from(header));
    {
        let io = header.worker().io();
        let timer = io.timers.borrow_mut().insert(deadline, target);
        header.own.timer.set(Some(timer));
    }
    header.switch(Switch::Suspend);
    // Only under the worker's I/O lock: a watchdog may be using the timer. (If it has moved the fiber here, it is done
    // with it.)
    let io = header.worker().io();
    let fired = header.own.timer_fired.get();
    if let Some(timer) = header.own.timer.take() {
        io.timers.borrow_mut().remove(timer);
    }
    drop((io, pin));
    fired
}

/// Pins the calling fiber to its present worker, which holds something of it: a timer, an operation. (A watchdog that
/// wakes the fiber in a stalled worker's place removes both, and unpins it.)
pub(crate) struct Pin<'a>(Option<&'a Header>);

impl<'a> Pin<'a> {
    pub(crate) fn new(header: &'a Header) -> Self {
        if header.pinned_to().is_some() {
            return Self(None);
        }
        header.pin_to(Some(header.worker().id()));
        Self(Some(header))
    }
}

impl Drop for Pin<'_> {
    fn drop(&mut self) {
        if let Some(header) = self.0 {
            header.pin_to(None);
        }
    }
}

/// Converts a duration to nanoseconds; five centuries or more are for ever.
pub(crate) fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(NEVER)
}

/// Waits for the caller's token: `park`.
#[inline(always)]
pub(crate) fn park(limit: Option<Duration>) -> Result<(), Interrupt> {
    let wait = WaitSpec::new(Reason::Park, Interrupts::Allowed).timeout(limit);
    match suspendable() {
        Some(header) => until_on_fiber(header, wait, || header.take(WakePayload::Token).then_some(())),
        None => park_thread(wait),
    }
}

#[cold]
fn park_thread(wait: WaitSpec<'_>) -> Result<(), Interrupt> {
    let me = this_thread();
    until_on_thread(wait, || me.token.swap(false, Ordering::AcqRel).then_some(()))
}
