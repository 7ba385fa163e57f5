//! A wait for several descriptors, and for something else besides: the part of a select that
//! drivers do.
//!
//! A fiber: 1. It pins itself to its worker and gives the worker's driver a poll for each
//! descriptor. 2. It waits until one of them, or the condition besides, is over. 3. It asks the
//! driver to cancel the others, and waits until the driver has reported **all**: only then may the
//! operations go. A poll transfers nothing, so nothing is lost by its cancellation.
//!
//! The fiber stays pinned until the driver has reported all. One that may move leaves step 3 to
//! whoever wakes it, so that a worker that is held up does not delay it (`sched/pending`). As only
//! the fiber can say whether the condition is over, any wake-up ends the polls; if it finds that it
//! was woken for nothing, it begins again at step 1.
//!
//! A plain thread waits in poll(2), for an eventfd too, by which it is woken for what is not a
//! descriptor.

#![expect(unsafe_code, reason = "the same, for several polls of one fiber")]

use std::cell::Cell;
use std::io::ErrorKind;
use std::os::fd::AsFd;
use std::ptr::NonNull;
use std::time::{Duration, Instant};

use crate::fiber::cancel::Interrupt;
use crate::fiber::{Header, NEVER};
use crate::io::driver::Submitted;
use crate::io::eventfd::Wakeup;
use crate::io::op::{Interest, Op, OpOwner, Operation, RawResult};
use crate::io::source::Source;
use crate::sched::lent::Lent;
use crate::sched::pending::Pending;
use crate::sched::wait::{self, Pin};
use crate::sys::{self, PollEntry, PollFlags};
use crate::timer::Nanos;

/// A descriptor that is waited for.
pub(crate) struct Poll<'a> {
    pub(crate) source: &'a Source,
    pub(crate) interest: Interest,
    /// Set when the descriptor has become ready, or, to a negated errno, when it cannot be waited
    /// for.
    pub(crate) result: &'a Cell<Option<RawResult>>,
}

/// Waits until one of the descriptors is ready, `over` gives something, or `limit` has passed. On a
/// thread, what makes `over` give something wakes `event` too.
///
/// Context: any thread or fiber; on a thread with an `event`.
pub(crate) fn poll_any(
    polls: &[Poll<'_>],
    event: Option<&Wakeup>,
    limit: Option<Duration>,
    over: impl FnMut() -> Option<()>,
) -> Result<(), Interrupt> {
    match (wait::suspendable(), event) {
        (Some(header), _) => on_fiber(header, polls, limit, over),
        (None, Some(event)) => on_thread(event, polls, limit, over),
        (None, None) => unreachable!("a thread brings an eventfd"),
    }
}

fn on_fiber(
    header: &Header,
    polls: &[Poll<'_>],
    limit: Option<Duration>,
    mut over: impl FnMut() -> Option<()>,
) -> Result<(), Interrupt> {
    let own = limit.map_or(NEVER, |limit| {
        header.worker().now().saturating_add(wait::nanos(limit))
    });
    let deadline = header.own.deadline.get().min(own);
    loop {
        if let Some(ended) = round(header, polls, deadline, &mut over) {
            return ended;
        }
    }
}

/// Performs steps 1 to 3. Returns `None` if the polls were ended for nothing.
fn round(
    header: &Header,
    polls: &[Poll<'_>],
    deadline: Nanos,
    over: &mut impl FnMut() -> Option<()>,
) -> Option<Result<(), Interrupt>> {
    let _lent = Lent::new(header);
    let _pin = Pin::new(header);
    let operations: Vec<_> = polls
        .iter()
        .map(|poll| Operation::new(Op::Poll(poll.interest), poll.source))
        .collect();
    // From here on nothing unwinds until the driver has reported all of them.
    for operation in &operations {
        operation
            .owner
            .set(OpOwner::Fiber(NonNull::from(header).cast()));
        // SAFETY: the vector does not change, and this frame does not end before all completions
        // have been seen.
        let submitted = unsafe {
            header
                .worker()
                .io()
                .driver
                .borrow_mut()
                .submit(NonNull::from(operation))
        };
        if let Submitted::Done(result) = submitted {
            operation.result.set(Some(result));
        }
    }
    let pending = Pending::any_of(&operations);
    let mut late = false;
    let ended = loop {
        // Under the lock, because the watchdog may complete operations too.
        let locked = header.worker().io();
        let is_ready = operations
            .iter()
            .any(|operation| found(operation).is_some());
        let all_over = operations
            .iter()
            .all(|operation| operation.result.get().is_some());
        drop(locked);
        if is_ready || over().is_some() {
            break Some(Ok(()));
        }
        // As in `wait::until`: a cancellation comes before a deadline.
        if let Some(interrupt) = header.cancelled().or(late.then_some(Interrupt::TimedOut)) {
            break Some(Err(interrupt));
        }
        if all_over {
            break None;
        }
        late = wait::suspend_pending(header, &pending, deadline);
    };
    end_all(header, &operations, &pending);
    for (poll, operation) in polls.iter().zip(&operations) {
        poll.result.set(found(operation));
    }
    ended
}

/// Returns what a poll has found; `None` if nothing yet, or if it was cancelled before.
fn found(operation: &Operation) -> Option<RawResult> {
    operation
        .result
        .get()
        .filter(|result| *result != -libc::ECANCELED)
}

/// Performs step 3.
fn end_all(header: &Header, operations: &[Operation], pending: &Pending) {
    for operation in operations {
        let io = header.worker().io();
        // SAFETY: at the driver of this worker, to which the fiber is pinned, or it has its result.
        unsafe { header.worker().io_cx(&io).cancel_quietly(operation) };
    }

    loop {
        let locked = header.worker().io();
        let all = operations
            .iter()
            .all(|operation| operation.result.get().is_some());
        drop(locked);
        if all {
            return;
        }
        wait::suspend_pending(header, pending, NEVER);
    }
}

fn on_thread(
    event: &Wakeup,
    polls: &[Poll<'_>],
    limit: Option<Duration>,
    mut over: impl FnMut() -> Option<()>,
) -> Result<(), Interrupt> {
    let own = limit.and_then(|limit| Instant::now().checked_add(limit));
    let deadline = wait::earliest(wait::thread_deadline(), own);
    loop {
        if over().is_some() {
            return Ok(());
        }
        let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        if left.is_some_and(|left| left.is_zero()) {
            return Err(Interrupt::TimedOut);
        }
        let mut entries = vec![PollEntry::new(event, PollFlags::IN)];
        entries.extend(polls.iter().map(entry));
        // A signal, or a kernel out of memory: look again. Any other error lasts (there are more
        // entries than descriptors are allowed).
        let lasting = sys::poll_all(&mut entries, left).err().filter(|error| {
            !matches!(
                error.kind(),
                ErrorKind::Interrupted | ErrorKind::WouldBlock | ErrorKind::OutOfMemory
            )
        });
        let error = lasting.map(|error| -error.raw_os_error().unwrap_or(libc::EIO));
        let found = entries[1..]
            .iter()
            .map(|entry| error.or_else(|| (!entry.revents().is_empty()).then_some(0)));
        let found: Vec<_> = found.collect();
        // Before `over` is asked again: what came earlier is seen then.
        event.clear();
        if found.iter().any(Option::is_some) {
            polls
                .iter()
                .zip(found)
                .for_each(|(poll, found)| poll.result.set(found));
            return Ok(());
        }
    }
}

fn entry<'a>(poll: &Poll<'a>) -> PollEntry<'a> {
    PollEntry::from_borrowed_fd(poll.source.as_fd(), poll.interest.poll_flags())
}
