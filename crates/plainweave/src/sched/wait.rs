//! Waiting: the one way in which a fiber, or a plain thread, stops until something happens.
//!
//! Everything that blocks (I/O, timers, joins, locks, the blocking pool) registers a [`Waker`] with
//! the side that will wake it, and calls [`until`] (or [`suspend`] under it) with a condition and a
//! [`Reason`], which dumps and reports show.
//!
//! # Why it is hard
//! The event may come at any moment: before the caller checks, between its check and its
//! suspension, while it leaves its stack, or together with a cancellation and a timer. None of
//! these may be lost, and none may be mistaken for another.
//!
//! # Protocol
//! 1. *Register:* the caller leaves its waker with the waking side, under that side's own lock or
//!    atomic.
//! 2. *Check:* `until` asks for the condition. If it holds, the wait is over.
//! 3. *Interrupts:* if they are allowed, it looks for a cancellation, then whether the deadline has
//!    come.
//! 4. *Suspend:* it notes the reason, arms a timer if there is a deadline, and leaves its stack for
//!    the next fiber's or the worker's. On that one it is published that the fiber is suspended
//!    (`Header::suspended`).
//! 5. *Repeat:* whatever woke it, it goes back to step 2.
//!
//! | what waits | where its waker is | what ends the wait |
//! |---|---|---|
//! | a system call | the operation that the driver has | its completion |
//! | a lock, a channel, a semaphore | the object's wait queue | a grant, or a message |
//! | a join, a scope | the fiber waited for; the scope | its end |
//! | a blocking call | the job in the blocking pool | its result |
//! | `park` | nowhere: others hold handles | the token |
//! | `sleep` | nowhere | its deadline, which here is no error |
//!
//! The waking side first makes the condition true, then calls [`Waker::wake`]; a canceller first
//! sets its word, then wakes.
//!
//! # Why it is safe
//! * *No wake-up is lost.* One that comes before the fiber is suspended leaves a notification in
//!   its state word (`atomics/state`, `atomics/pinned_state`; a thread's parker has one of its
//!   own). Step 4 finds it there and the suspension ends at once. One that comes later finds the
//!   fiber suspended and makes it ready. There is nothing in between: both sides change one word.
//!   (Models: `loom_` tests of those two modules.)
//! * *No wake-up is mistaken.* Wake-ups carry no meaning; only the condition and the interrupts'
//!   own words count. So a waker that is left over from an earlier wait, or two that come at once,
//!   cost a check and nothing else. This is why wakers need no generation numbers, and why whoever
//!   is in doubt may wake.
//! * *What has completed is delivered.* The condition comes **before** the interrupts, also in the
//!   last round after a deadline: bytes that were read, or a lock that was granted, are not thrown
//!   away because a cancellation came with them. That one surfaces at the next call that blocks.
//! * *A timer does not outlive its wait.* It lies in the wheel of the worker that armed it, so
//!   until it is removed the fiber stays on that worker ([`Pin`]). It is removed under the worker's
//!   I/O lock, which the watchdog needs to fire it in the worker's place: `Header` cannot be freed
//!   while somebody follows the timer's pointer to it.
//!
//! A deadline that has passed already is noticed after one suspension, not before: its timer fires
//! at the worker's next turn. A wait whose condition holds already succeeds whatever the deadline
//! (I/O looks at the deadline before it tries: `sched/io_call`).
//!
//! A call that fails before it has waited (cancelled, late, or refused by the kernel) yields once,
//! wherever it is made ([`failed_at_once`]): a loop around it, right or wrong, must not keep the
//! worker from the fiber that would end it.
//!
//! # What it costs
//! Suspension is inlined into its callers ([`until`], [`suspend`], `park`, the waits of `sync`). A
//! processor predicts returns from the calls it has seen, and after a stack switch these are
//! another fiber's. So every frame between the switch and the user's code costs a mispredicted
//! return. What is rare is kept out of line instead: deadlines ([`suspend_until`]), threads
//! ([`until_on_thread`]), cancellation by a scope.
//!
//! # Threads, and fibers that panic
//! The same calls serve plain threads, which wait on a parker of their own. A fiber that is
//! **panicking** suspends like any other if it has fiber-local storage, where its panic count
//! travels with it. On shared storage it would leave its panic count to the worker's next fiber, so
//! it blocks its thread. That wait is bounded: one that a deadline may end ends after a second. One
//! that cannot end (for a fiber that only this worker could run, or longer than ten seconds) aborts
//! the process and reports the fiber and what it waited for.
//!
//! # Rejected
//! * *A wake-up that carries its cause.* Two causes that come at once need a rule for which one
//!   stays, in every state word; and the waiter would have to check its condition all the same.
//! * *Cancellation that unwinds the fiber's stack.* Destructors would run at points where safe code
//!   expects none, and a buffer that the kernel still writes to would be gone. A cancelled call
//!   returns an error instead.
//! * *A pause that grows with each call that fails at once*, as at accept. A cancelled fiber should
//!   end soon, however many calls its destructors make; a yield costs it nothing when nobody else
//!   is ready.

use std::cell::Cell;
use std::io;
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
use crate::sched::lent::Lent;
use crate::sched::pending::Pending;
use crate::sched::worker::TimerTarget;
use crate::timer::Nanos;
use std::ptr::NonNull;

/// How long a panicking fiber may block its thread where a timeout is a possible answer.
pub(crate) const PANICKING_WAIT: Duration = Duration::from_secs(1);
/// How long it may block it where there is no such answer.
const PANICKING_LIMIT: Duration = Duration::from_secs(10);

/// The entry of a plain thread, or of a panicking fiber's thread, that waits.
#[derive(Debug)]
pub(crate) struct ThreadEntry {
    /// Ends the thread's present or next wait in `until`. It is not the token: a wake-up for a lock
    /// must not make a later `park` return.
    unparker: Unparker,
    /// The token of `park` and `unpark` on plain threads.
    pub(crate) token: AtomicBool,
    /// The thread itself, for its name.
    pub(crate) thread: std::thread::Thread,
}

/// Both ends of a thread's waits.
struct ThisThread {
    /// Used by the thread alone.
    parker: Parker,
    /// What others get; it may outlive the thread.
    entry: Arc<ThreadEntry>,
}

thread_local! {
    /// The calling thread's parker. A fiber keeps no reference to it across a suspension: it may go
    /// on elsewhere.
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
///
/// It may be kept for longer than the wait: waking someone who waits for something else, or for
/// nothing, is harmless.
#[derive(Clone, Debug)]
pub(crate) enum Waker {
    /// A fiber; the handle is counted, so its header outlives the waker.
    Fiber(FiberHandle),
    /// A plain thread in `until`, or the thread of a panicking fiber.
    Thread(Arc<ThreadEntry>),
    /// A future's task that awaits a fiber; boxed because it is rare, and a cell for a waker lies
    /// in every fiber.
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

    /// Makes the waiter check its condition again. What the condition depends on must be visible by
    /// then.
    ///
    /// Context: any thread or fiber, and the watchdog; it does not suspend, and nothing unwinds out
    /// of it.
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

/// Calls a task's waker. It may be anybody's code, as its destructor may be, and runs where a fiber
/// ends, or on a worker's own stack, past which nothing may unwind. The payload of its panic may
/// panic when it is dropped, so it is forgotten.
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

/// Returns the calling fiber, unless it is panicking on its worker's storage: then it waits as a
/// thread does.
#[inline]
pub(crate) fn suspendable<'a>() -> Option<&'a Header> {
    fiber::current().filter(|me| me.owns_storage() || !std::thread::panicking())
}

impl Header {
    /// Returns why the fiber should stop, if it was cancelled by its handle or its runtime shuts
    /// down.
    ///
    /// Context: the fiber itself.
    #[inline]
    pub(crate) fn stop_reason(&self) -> Option<CancelReason> {
        self.cancel.get().or_else(|| {
            self.worker()
                .pool()
                .is_closing()
                .then_some(CancelReason::Shutdown)
        })
    }

    /// Returns why the fiber should not block, if it should not.
    ///
    /// Context: the fiber itself.
    #[inline]
    pub(crate) fn cancelled(&self) -> Option<Interrupt> {
        let goes_on = self.stop_reason().is_none() && self.own.cancel_rules.get().are_none();
        if goes_on { None } else { self.cancelled_by() }
    }

    /// Does the work of [`Self::cancelled`] where the fiber's own words do not settle it: a scope's
    /// cancellation is in the tree of nodes, behind a `RefCell`, so only members of a scope ask for
    /// it.
    #[inline(never)]
    fn cancelled_by(&self) -> Option<Interrupt> {
        if self.own.cancel_rules.get().is_shielded() {
            return None;
        }
        let by_scope = || self.own.node.borrow().as_ref().and_then(|n| n.cancelled());
        self.stop_reason()
            .or_else(by_scope)
            .map(Interrupt::Cancelled)
    }
}

/// Returns what keeps the caller from starting something new: its cancellation, or a deadline that
/// has passed.
pub(crate) fn interrupted() -> Option<Interrupt> {
    match suspendable() {
        Some(header) => {
            let late = || {
                let deadline = header.own.deadline.get();
                (deadline != NEVER && header.worker().now() >= deadline)
                    .then_some(Interrupt::TimedOut)
            };
            header.cancelled().or_else(late)
        }
        None => thread_deadline()
            .filter(|d| Instant::now() >= *d)
            .map(|_| Interrupt::TimedOut),
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

/// Lets others run before a call fails that has not waited. A loop that goes on after each error,
/// or a fiber that ignores its cancellation, would otherwise have the worker to itself.
///
/// Context: any thread or fiber.
#[cold]
pub(crate) fn failed_at_once(error: io::Error) -> io::Error {
    let_others_run();
    error
}

/// Lets others run before a wait fails, for that reason, if a cancellation has ended it, which may
/// have come before it began. (A deadline ends a wait after a suspension.) The caller has left
/// every list by now: what it was given while others run it would have to return, and two cancelled
/// fibers could serve each other for ever.
#[cold]
pub(crate) fn fail_after_others(interrupt: Interrupt) -> Interrupt {
    if interrupt != Interrupt::TimedOut {
        let_others_run();
    }
    interrupt
}

/// Does that where there are others: on a fiber that can suspend.
fn let_others_run() {
    if let Some(header) = suspendable() {
        give_way(header);
    }
}

/// Does that for the calling fiber. It yields rather than waits: what others are ready to do comes
/// first, timers and the driver are looked at as between any two fibers, and the error is late by
/// no more than that.
#[cold]
#[inline(never)]
pub(super) fn give_way(header: &Header) {
    header.switch(Switch::Yield);
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
    /// What dumps and reports show while it lasts.
    reason: Reason,
    /// Whether the caller is prepared for an end without a result.
    interrupts: Interrupts,
    /// The call's own timeout, from now on.
    timeout: Option<Duration>,
    /// The fiber waited for, if it is one: a panicking fiber must not block the only worker that
    /// could run it.
    target: Option<&'a Header>,
    /// The lock, channel or the like waited for, for dumps and the search for deadlocks.
    note: Option<&'a Note>,
}

impl<'a> WaitSpec<'a> {
    /// Specifies a wait without a timeout of its own. The caller's deadline applies if interrupts
    /// are allowed.
    #[inline(always)]
    pub(crate) fn new(reason: Reason, interrupts: Interrupts) -> Self {
        Self {
            reason,
            interrupts,
            timeout: None,
            target: None,
            note: None,
        }
    }

    /// Ends the wait after this time. Has no effect where interrupts are ignored.
    #[inline(always)]
    pub(crate) fn timeout(self, timeout: Option<Duration>) -> Self {
        Self { timeout, ..self }
    }

    /// Names the fiber waited for.
    #[inline(always)]
    pub(crate) fn target(self, fiber: &'a Header) -> Self {
        Self {
            target: Some(fiber),
            ..self
        }
    }

    /// Leaves a note of the object waited for, for dumps.
    #[inline(always)]
    pub(crate) fn note(self, note: &'a Note) -> Self {
        Self {
            note: Some(note),
            ..self
        }
    }

    /// Returns whether a cancellation or a deadline may end it.
    #[inline(always)]
    fn may_end_early(&self) -> bool {
        self.interrupts == Interrupts::Allowed
    }
}

/// Waits until `condition` returns a value, or an interrupt comes that `wait` allows.
///
/// The caller has registered its waker before; on an interrupt it removes it again, and must be
/// prepared for the event to have come meanwhile. `condition` is called at least once, and again
/// after each wake-up; it must not suspend.
///
/// Context: any thread or fiber.
#[inline(always)]
pub(crate) fn until<R>(
    wait: WaitSpec<'_>,
    condition: impl FnMut() -> Option<R>,
) -> Result<R, Interrupt> {
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
    // Whether the timer has fired. Looked at only after the condition: what came in time is
    // delivered.
    let mut late = false;
    loop {
        if let Some(result) = condition() {
            return Ok(result);
        }
        if wait.may_end_early() {
            // A cancellation comes before a deadline: the fiber should end, not try again.
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

/// Does the work of [`until`] for a plain thread, or for a fiber that panics on its worker's
/// storage and so blocks the worker. Such a wait always has an end, if only by an abort.
#[cold]
fn until_on_thread<R>(
    wait: WaitSpec<'_>,
    mut condition: impl FnMut() -> Option<R>,
) -> Result<R, Interrupt> {
    let start = Instant::now();
    let mut deadline = None;
    if wait.may_end_early() {
        deadline = earliest(
            thread_deadline(),
            wait.timeout.and_then(|t| start.checked_add(t)),
        );
    }
    let panicking = fiber::current();
    if panicking.is_some() && !wait.may_end_early() {
        deadline = Some(start + PANICKING_LIMIT);
    }
    loop {
        if let Some(result) = condition() {
            return Ok(result);
        }
        // Read once for both tests: a wait that may not end early ends with its condition, or
        // aborts.
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

/// Returns the earlier of two deadlines, either of which may be missing.
pub(crate) fn earliest(a: Option<Instant>, b: Option<Instant>) -> Option<Instant> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}

/// Returns whether only this worker, which the panicking fiber holds up, could run the fiber waited
/// for.
fn hopeless(me: &Header, target: Option<&Header>) -> bool {
    target.is_some_and(|t| {
        t.pool_ptr() == me.pool_ptr() && t.pinned_to() == Some(me.worker().id()) && t.is_live()
    })
}

/// Ends the process in place of a wait that cannot end: no destructor may be left half done, and
/// none can go on.
#[cold]
fn abort_stuck(me: &Header, reason: Reason, target: Option<&Header>) -> ! {
    let whom = target.map_or_else(|| format!("{reason:?}"), |t| format!("{t:?}"));
    abort(format_args!(
        "{me:?} blocks in a destructor while it panics and waits for {whom}, which cannot come: \
         a panicking fiber holds its worker"
    ))
}

/// Suspends the fiber until it is woken or `deadline` comes (nanoseconds since the pool's epoch,
/// `NEVER` for none). Every wait ends here. Returns true if the deadline has come. May return
/// without cause.
///
/// While a timer is armed the fiber is pinned to the worker whose wheel holds it, even if it may
/// move.
#[inline(always)]
pub(crate) fn suspend(header: &Header, reason: Reason, deadline: Nanos) -> bool {
    suspend_for(header, reason, None, deadline)
}

/// Does the work of [`suspend`], and leaves a note of the object waited for.
#[inline(always)]
fn suspend_for(header: &Header, reason: Reason, note: Option<&Note>, deadline: Nanos) -> bool {
    // Plain stores: a dump reads them while it owns the suspended fiber (`sched/inspect`).
    header.own.waits.set(reason, note.is_some());
    if let Some(note) = note {
        header.own.awaited.set(std::ptr::from_ref(note).cast());
    }
    leave(header, deadline)
}

/// Does the same for a fiber that has operations at its worker's driver, and notes which: whoever
/// wakes it before these are over cancels them in its place (`sched/pending`). `pending` and what
/// it points to lie in frames of the fiber's, and stay there until all results have been seen.
#[inline(always)]
pub(super) fn suspend_pending(header: &Header, pending: &Pending, deadline: Nanos) -> bool {
    header.own.waits.set_pending();
    header.own.awaited.set(std::ptr::from_ref(pending).cast());
    leave(header, deadline)
}

/// Leaves the stack, with a timer if there is a deadline; the reason has been noted.
#[inline(always)]
fn leave(header: &Header, deadline: Nanos) -> bool {
    if deadline == NEVER {
        header.switch(Switch::Suspend);
        return false;
    }
    suspend_until(header, deadline)
}

/// Suspends with a timer in the worker's wheel: pin, arm, switch, disarm.
#[inline(never)]
fn suspend_until(header: &Header, deadline: Nanos) -> bool {
    let _lent = Lent::new(header);
    let pin = Pin::new(header);
    header.own.waits.set_timed();
    header.own.timer_fired.set(false);
    let target = TimerTarget::Fiber(NonNull::from(header));

    // The lock is not held across the switch.
    {
        let io = header.worker().io();
        let timer = io.timers.borrow_mut().insert(deadline, target);
        header.own.timer.set(Some(timer));
    }
    header.switch(Switch::Suspend);
    // Only under the worker's I/O lock: a watchdog may be using the timer. (If it has moved the
    // fiber here, it is done with it.)
    let io = header.worker().io();
    let fired = header.own.timer_fired.get();
    if let Some(timer) = header.own.timer.take() {
        io.timers.borrow_mut().remove(timer);
    }
    drop((io, pin));

    fired
}

/// Pins the calling fiber to its present worker, which holds something of it: a timer, an
/// operation. (A watchdog that wakes the fiber in a stalled worker's place removes both, and unpins
/// it.)
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
pub(crate) fn nanos(duration: Duration) -> Nanos {
    u64::try_from(duration.as_nanos()).unwrap_or(NEVER)
}

/// Waits for the caller's token: `park`.
#[inline(always)]
pub(crate) fn park(limit: Option<Duration>) -> Result<(), Interrupt> {
    let wait = WaitSpec::new(Reason::Park, Interrupts::Allowed).timeout(limit);
    match suspendable() {
        Some(header) => until_on_fiber(header, wait, || {
            header.take(WakePayload::Token).then_some(())
        })
        .map_err(fail_after_others),
        None => park_thread(wait),
    }
}

/// Does the work of [`park`] for a plain thread: `unpark` sets the token before it wakes, so the
/// swap finds it.
#[cold]
fn park_thread(wait: WaitSpec<'_>) -> Result<(), Interrupt> {
    let me = this_thread();
    until_on_thread(wait, || {
        me.token.swap(false, Ordering::AcqRel).then_some(())
    })
}
