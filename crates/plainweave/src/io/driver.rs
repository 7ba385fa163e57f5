//! What a driver is: it takes operations, reports each one's single completion, and sleeps for the worker.
//!
//! One driver belongs to one worker and is called on that worker's thread, or under its claim (`atomics/biased_lock`)
//! on the watchdog's if the driver says that it may be ([`Driver::watched`]). The contract that makes borrowed buffers
//! sound, and that the common test list checks for every driver:
//!
//! 1. `submit` either completes the operation at once (`Submitted::Done`) or keeps its address (`Submitted::Pending`).
//! 2. A pending operation is reported exactly once, by a later `poll` or `cancel`; after that the driver never touches
//!    it again.
//! 3. `cancel` asks for an early end. **Completion wins:** an operation that has transferred something reports that,
//!    not ECANCELED. The driver may need further `poll`s before it reports.
//! 4. Completions are appended to a list; the driver runs no user code.
//!    Which of several operations on one descriptor and in one direction is served first is not said: epoll serves the
//!    oldest, io_uring the youngest.
//! 5. `poll` does not return early without cause, and a `Wakeup::wake` before or during a waiting `poll` ends it.

use std::io;
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;
use std::sync::Arc;

use super::eventfd::Wakeup;
use super::op::{Operation, RawResult};

/// The address of an operation that the submitter keeps in place.
pub(crate) type OpRef = NonNull<Operation>;

/// Which threads call a driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    /// The thread that makes it, and nobody else.
    OwnerThread,
    /// Any thread, one at a time.
    AnyThread,
}

/// What others can wait for in the place of a driver's worker.
#[derive(Debug)]
pub(crate) struct PollFd<F> {
    /// Becomes readable when a `poll` would find something.
    pub(crate) fd: F,
    /// It may do so late while the worker computes: not before that is interrupted, as taking its claim does.
    pub(crate) interrupts: bool,
}

/// The outcome of a submission.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Submitted {
    /// Finished already; the driver has not kept the address.
    Done(RawResult),
    /// The driver holds the address until it reports the completion.
    Pending,
}

/// How long a `poll` may sleep. Times are nanoseconds since the runtime's epoch, as [`Driver::now`] gives them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wait {
    /// Look only.
    No,
    /// Sleep until something completes, a wake-up arrives or the time has come.
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
    /// The name that logs, metrics and `PLAINWEAVE_IO` use.
    fn name(&self) -> &'static str;

    /// Nanoseconds since the runtime's epoch: the monotonic clock, or a virtual one.
    fn now(&self) -> u64;

    /// Starts an operation.
    ///
    /// # Safety
    /// `op` points to an operation that stays in place, with all its pointers valid and its source alive, until this
    /// driver has reported its completion.
    unsafe fn submit(&mut self, op: OpRef) -> Submitted;

    /// Asks for the early end of a pending operation of this driver.
    ///
    /// # Safety
    /// `op` was answered `Pending` by this driver and its completion has not been reported.
    unsafe fn cancel(&mut self, op: OpRef, done: &mut Vec<Completion>);

    /// Whether a non-waiting `poll` could find anything: lets a busy worker skip the call. May be true in vain.
    fn wants_poll(&self) -> bool;

    /// Whether nothing is pending, so that the worker may sleep on its [`Wakeup`] alone.
    fn rests(&self) -> bool {
        self.in_flight() == 0
    }

    /// Flushes submissions, sleeps as `wait` says, appends what has completed. Whether a wake-up had come.
    fn poll(&mut self, wait: Wait, done: &mut Vec<Completion>) -> io::Result<bool>;

    /// What to wait for, if any thread that has the worker's claim may call `poll`. `None`: only the worker can.
    fn watched(&self) -> Option<PollFd<BorrowedFd<'_>>> {
        None
    }

    /// The handle by which other threads end a sleep.
    fn wakeup(&self) -> Arc<Wakeup>;

    /// A source that this driver holds state for is gone; its descriptor number may be reused.
    fn forget(&mut self, source: u64);

    /// Operations answered `Pending` and not yet reported.
    fn in_flight(&self) -> usize;
}
