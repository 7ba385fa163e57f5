//! The driver interface: a driver takes operations, reports one completion for each, and sleeps on
//! behalf of its worker.
//!
//! Each worker has one driver. It is called on that worker's thread or, if the driver allows it
//! ([`Driver::watched`]), on the watchdog's thread under the worker's I/O lock
//! (`atomics/biased_lock`). The following contract makes borrowed buffers sound; the common test
//! list checks it for every driver:
//!
//! 1. `submit` either completes the operation at once (`Submitted::Done`) or keeps its address
//!    (`Submitted::Pending`).
//! 2. A pending operation is reported exactly once, by a later `poll` or `cancel`; after that the
//!    driver never touches it again.
//! 3. `cancel` requests an early end. **Completion wins:** an operation that has transferred
//!    something reports that, not ECANCELED. The driver may need further `poll`s before it reports.
//! 4. Completions are appended to a list; the driver runs no user code. The order in which several
//!    operations on one descriptor and direction are served is unspecified: epoll serves the oldest
//!    first, io_uring the youngest.
//! 5. `poll` does not return early without cause, and a `Wakeup::wake` before or during a waiting
//!    `poll` ends it.

#![expect(
    unsafe_code,
    reason = "the trait's contract is `unsafe`: operations stay in place"
)]

use std::io;
use std::os::fd::{BorrowedFd, RawFd};
use std::ptr::NonNull;
use std::sync::Arc;

use super::eventfd::Wakeup;
use super::op::{Operation, RawResult};
use crate::timer::Nanos;

/// The address of an operation that the submitter keeps in place.
pub(crate) type OpRef = NonNull<Operation>;

/// The threads that may call a driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    /// Only the thread that creates it.
    OwnerThread,
    /// Any thread, one at a time; the kernel is entered by the thread that creates it, which others
    /// can have do so ([`Driver::left_to_owner`]).
    OwnerEnters,
    /// Any thread, one at a time.
    AnyThread,
}

/// A call of io_uring_enter(2) that fetches what has come.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RingEntry {
    pub(crate) ring: RawFd,
    /// How many entries it submits.
    pub(crate) submit: u32,
}

/// What another thread can poll in place of a driver's worker.
#[derive(Debug)]
pub(crate) struct PollFd<F> {
    /// Becomes readable when a `poll` would find something.
    pub(crate) fd: F,
    /// Whether readiness may show late while the worker computes: only after the worker is
    /// interrupted, which taking its I/O lock does, or has done what [`Driver::left_to_owner`] says.
    pub(crate) interrupts: bool,
}

/// The outcome of a submission.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Submitted {
    /// Already finished; the driver has not kept the address.
    Done(RawResult),
    /// The driver holds the address until it reports the completion.
    Pending,
}

/// How long a `poll` may sleep. Times are nanoseconds since the runtime's epoch, as [`Driver::now`]
/// gives them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wait {
    /// Do not sleep.
    No,
    /// Sleep until something completes, a wake-up arrives or this time is reached.
    Until(u64),
    /// Sleep until something completes or a wake-up arrives.
    Forever,
}

/// A finished operation and its result.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Completion {
    pub(crate) op: OpRef,
    pub(crate) result: RawResult,
}

/// A worker's link to the kernel, or to a simulated one.
pub(crate) trait Driver {
    /// Returns the name that logs, metrics and `PLAINWEAVE_IO` use.
    fn name(&self) -> &'static str;

    /// Returns nanoseconds since the runtime's epoch, from the monotonic clock or a virtual one.
    fn now(&self) -> Nanos;

    /// Returns whether that clock is a virtual one, which is moved by hand.
    fn is_virtual(&self) -> bool {
        false
    }

    /// Returns for how many nanoseconds the calling thread has had a processor; on virtual time,
    /// what `now` does.
    fn processor_time(&self) -> u64 {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
        time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
    }

    /// Starts an operation.
    ///
    /// # Safety
    /// `op` points to an operation that stays in place, with all its pointers valid and its source
    /// alive, until this driver has reported its completion.
    unsafe fn submit(&mut self, op: OpRef) -> Submitted;

    /// Makes an operation's call once, without waiting, and notes what that shows of its descriptor.
    /// EAGAIN: it would have to wait.
    ///
    /// # Safety
    /// All of the operation's pointers are valid, and its source is alive.
    unsafe fn attempt(&mut self, operation: &Operation) -> RawResult {
        // SAFETY: the caller's promise.
        unsafe { operation.attempt() }
    }

    /// Requests the early end of a pending operation of this driver.
    ///
    /// # Safety
    /// `op` was answered `Pending` by this driver and its completion has not been reported.
    unsafe fn cancel(&mut self, op: OpRef, done: &mut Vec<Completion>);

    /// Returns whether a non-waiting `poll` could find anything, so that a busy worker can skip the
    /// call. May be a false positive.
    fn wants_poll(&self) -> bool;

    /// Returns whether nothing is pending, so that the worker may sleep on its [`Wakeup`] alone.
    fn is_idle(&self) -> bool {
        self.in_flight() == 0
    }

    /// Flushes submissions, sleeps as `wait` says and appends completions. Returns whether a
    /// wake-up had arrived.
    fn poll(&mut self, wait: Wait, done: &mut Vec<Completion>) -> io::Result<bool>;

    /// Returns what to wait for, if any thread that holds the worker's I/O lock may call `poll`;
    /// `None` if only the worker may.
    fn watched(&self) -> Option<PollFd<BorrowedFd<'_>>> {
        None
    }

    /// Returns what the thread that created it is to do before a `poll` by another one, which that
    /// one may not do itself.
    ///
    /// Context: a thread other than that.
    fn left_to_owner(&mut self) -> Option<RingEntry> {
        None
    }

    /// Returns the handle by which other threads end a sleep.
    fn wakeup(&self) -> Arc<Wakeup>;

    /// Drops the state held for a source that is gone, or about to go; its descriptor number may be
    /// reused.
    fn forget(&mut self, source: u64);

    /// Returns whether such state keeps the file open: then the worker is woken to forget it.
    fn keeps_open(&self) -> bool {
        false
    }

    /// Returns the number of operations answered `Pending` and not yet reported.
    fn in_flight(&self) -> usize;
}
