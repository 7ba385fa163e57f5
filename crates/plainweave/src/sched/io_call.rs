//! One blocking I/O call, made by a fiber or by a plain thread.
//!
//! A fiber: 1. If it is cancelled or past its deadline, it gets an error and nothing starts. 2. A
//! send is tried at once; anything else, and a send that would block, goes to the worker's driver.
//! Most are done then. 3. Otherwise the fiber suspends until the driver has completed it. If
//! cancellation or a deadline comes first, the driver is asked to cancel: by whoever wakes the
//! fiber (`sched/pending`), or by the fiber itself if it is pinned for good or has not suspended
//! yet. It goes on waiting for the one completion. Only then may it touch its buffer again.
//!
//! **Completion wins**: bytes received or a descriptor accepted are delivered even if the
//! cancellation came first; the cancellation surfaces at the next call.
//!
//! A plain thread, or a fiber that panics on its worker's thread-local storage, makes the
//! non-blocking system call, then `poll(2)`.

#![expect(unsafe_code, reason = "keeps the promise of `io/driver`")]

use std::io;
use std::ops::Deref;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd, RawFd};
use std::ptr::NonNull;
use std::time::{Duration, Instant};

use crate::fiber::cancel::Interrupt;
use crate::fiber::{Header, NEVER};
use crate::io::driver::Submitted;
use crate::io::file_call::FileCall;
use crate::io::op::{Interest, Op, OpOwner, Operation, RawResult, connect_outcome};
use crate::io::release;
use crate::io::source::Source;
use crate::sched::lent::Lent;
use crate::sched::pending::Pending;
use crate::sched::wait::{self, Pin, failed_at_once};
use crate::sched::worker::current_worker;
use crate::sys;
use crate::timer::Nanos;

/// A [`Source`] that notifies the drivers that keep state for it when it is dropped.
#[derive(Debug)]
pub(crate) struct Descriptor(Source);

impl Descriptor {
    /// Takes a descriptor that is already in non-blocking mode.
    pub(crate) fn new(fd: OwnedFd) -> Self {
        Self(Source::new(fd))
    }
}

impl Deref for Descriptor {
    type Target = Source;

    #[inline]
    fn deref(&self) -> &Source {
        &self.0
    }
}

impl AsFd for Descriptor {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Drop for Descriptor {
    fn drop(&mut self) {
        let tags = self.take_registrations();
        if tags == 0 {
            return;
        }
        // A driver that alone knows the source is notified at once if it is that of the calling
        // fiber's worker; others are at their next turn, by a list that takes a lock.
        if let Some(ctx) = current_worker()
            && ctx
                .driver_tag
                .as_ref()
                .is_some_and(|tag| tag.is_all_of(tags))
            && let io = ctx.io()
            && let Ok(mut driver) = io.driver.try_borrow_mut()
        {
            driver.forget(self.id());
            return;
        }
        release::post(self.id(), tags);
    }
}

/// Performs `op`; `limit` is the call's own timeout.
///
/// Context: any thread or fiber.
///
/// # Safety
/// The pointers in `op` are valid until this returns.
pub(crate) unsafe fn perform(source: &Source, op: Op, limit: Option<Duration>) -> io::Result<u32> {
    source.check_open().map_err(failed_at_once)?;
    let operation = Operation::new(op, source);
    let result = match wait::suspendable() {
        // SAFETY: the caller's promise.
        Some(header) => unsafe { on_fiber(header, &operation, limit) },
        // SAFETY: the caller's promise.
        None => unsafe { on_thread(source, &operation, limit) },
    };

    unless_closed(source, op, result)
}

/// A stream that is closed during a call ends that like this: returns the error that says so.
fn unless_closed(source: &Source, op: Op, result: io::Result<u32>) -> io::Result<u32> {
    match result {
        Ok(0) if source.is_closed() && !matches!(op, Op::Accept { .. }) => {
            source.check_open().map(|()| 0)
        }
        Err(_) if source.is_closed() => source.check_open().map(|()| 0),
        result => result,
    }
}

/// Performs `op` if that can be done without waiting; [`io::ErrorKind::WouldBlock`] if not.
///
/// Context: any thread or fiber.
///
/// # Safety
/// As for [`perform`].
pub(crate) unsafe fn perform_now(source: &Source, op: Op) -> io::Result<u32> {
    source.check_open().map_err(failed_at_once)?;
    let operation = Operation::new(op, source);
    let result = match wait::suspendable().filter(|header| header.worker().has_driver()) {
        // SAFETY: the caller's promise.
        Some(header) => unsafe {
            if let Some(interrupt) = header.cancelled() {
                return Err(failed_at_once(interrupt.into()));
            }
            header.worker().io().driver.borrow_mut().attempt(&operation)
        },
        // SAFETY: the caller's promise.
        None => unsafe { operation.attempt() },
    };
    unless_closed(source, op, outcome(result, || None))
}

/// Has the ring of the calling fiber's worker make a call on the file `fd`, or on paths. Returns
/// `None` if the caller is to make it in another way: it is no fiber, or its driver has no such
/// call.
///
/// A fiber that is cancelled meanwhile, or late, has the kernel asked to end the call, and waits
/// for that: a disk may take its time.
///
/// # Safety
/// The pointers in `call` are valid until this returns.
pub(crate) unsafe fn perform_on_file(call: &FileCall, fd: RawFd) -> Option<io::Result<u32>> {
    let header = wait::suspendable()?;
    let operation = Operation::on_file(NonNull::from(call), fd);
    // SAFETY: the caller's promise.
    match unsafe { on_fiber(header, &operation, None) } {
        Err(error) if is_not_there(&error) => None,
        result => Some(result),
    }
}

/// Waits until the descriptor is readable or writable.
///
/// Context: any thread or fiber.
pub(crate) fn wait_ready(
    source: &Source,
    interest: Interest,
    limit: Option<Duration>,
) -> io::Result<()> {
    // SAFETY: no pointers.
    unsafe { perform(source, Op::Poll(interest), limit) }.map(drop)
}

/// Performs the operation on the calling fiber.
///
/// # Safety
/// The operation's pointers are valid until this returns.
unsafe fn on_fiber(
    header: &Header,
    operation: &Operation,
    limit: Option<Duration>,
) -> io::Result<u32> {
    if let Some(interrupt) = header.cancelled() {
        return Err(failed_at_once(interrupt.into()));
    }
    let deadline = header.own.deadline.get();
    if deadline != NEVER && header.worker().now() >= deadline {
        return Err(failed_at_once(Interrupt::TimedOut.into()));
    }

    if matches!(operation.op, Op::Send { .. } | Op::SendVectored { .. }) {
        // There is almost always room: then the driver is not involved.
        // SAFETY: the caller's promise.
        let result = unsafe { operation.attempt() };
        if result != -libc::EAGAIN {
            return at_once(header, result);
        }
    }

    if !header.worker().has_driver() {
        // SAFETY: the caller's promise.
        return unsafe { on_borrowed_driver(header, operation, limit) };
    }

    // SAFETY: the caller's promise.
    unsafe { at_driver(header, operation, limit) }
}

/// Performs it for a fiber whose worker has no driver: at once if that can be, else at a borrowed
/// one.
///
/// # Safety
/// As for `on_fiber`.
#[cold]
unsafe fn on_borrowed_driver(
    header: &Header,
    operation: &Operation,
    limit: Option<Duration>,
) -> io::Result<u32> {
    // A send has been tried; a connect that was begun here would fail when a ring begins it again;
    // and only a ring makes calls on files.
    if !matches!(
        operation.op,
        Op::Send { .. } | Op::SendVectored { .. } | Op::Connect { .. } | Op::File(_)
    ) {
        // SAFETY: the caller's promise.
        let result = unsafe { operation.attempt() };
        if result != -libc::EAGAIN {
            return at_once(header, result);
        }
    }

    let _lent = Lent::new(header);
    // SAFETY: the caller's promise.
    unsafe { at_driver(header, operation, limit) }
}

/// Submits the operation to the driver of the fiber's worker, and waits for its completion.
///
/// # Safety
/// As for `on_fiber`.
#[inline(always)]
unsafe fn at_driver(
    header: &Header,
    operation: &Operation,
    limit: Option<Duration>,
) -> io::Result<u32> {
    let ctx = header.worker();
    let deadline = header.own.deadline.get();
    let pin = Pin::new(header);
    let op = NonNull::from(operation);
    operation
        .owner
        .set(OpOwner::Fiber(NonNull::from(header).cast()));

    // SAFETY: this frame does not end before the completion has been seen.
    let submitted = unsafe { ctx.io().driver.borrow_mut().submit(op) };
    match submitted {
        Submitted::Done(result) if result == -libc::ENOSYS => {
            if let Op::File(_) = operation.op {
                return Err(NO_SUCH_FILE_CALL.into());
            }
            Err(not_there(ctx.io().driver.borrow().name()))
        }
        Submitted::Done(result) => {
            drop(pin);
            at_once(header, result)
        }
        Submitted::Pending => {
            // Read the clock only now, because most calls are done at once.
            let own = limit.map_or(NEVER, |l| ctx.now().saturating_add(wait::nanos(l)));
            // SAFETY: as above.
            unsafe { wait(header, operation, deadline.min(own)) }
        }
    }
}

/// Returns the outcome of a call that was made without a wait.
#[inline]
fn at_once(header: &Header, result: RawResult) -> io::Result<u32> {
    if result < 0 {
        wait::give_way(header);
    }
    outcome(result, || None)
}

/// Waits for the completion; on cancellation or at the deadline asks the driver to cancel.
///
/// # Safety
/// The operation is at the driver of the fiber's worker.
unsafe fn wait(header: &Header, operation: &Operation, mut deadline: Nanos) -> io::Result<u32> {
    let pending = Pending::one(operation);
    let mut late = false;
    loop {
        // Locked, because the watchdog may complete the operation too.
        let io = header.worker().io();
        let interrupt = || header.cancelled().or(late.then_some(Interrupt::TimedOut));
        if let Some(result) = operation.result.get() {
            return outcome(result, interrupt);
        }

        if interrupt().is_some() {
            // It stays late: the timer has gone.
            deadline = NEVER;
            // SAFETY: pending at this driver, or it has its result.
            unsafe { header.worker().io_cx(&io).cancel_quietly(operation) };
            if operation.result.get().is_some() {
                continue;
            }
        }

        drop(io);
        late |= wait::suspend_pending(header, &pending, deadline);
    }
}

/// What a driver says that cannot make a call on a file.
const NO_SUCH_FILE_CALL: io::ErrorKind = io::ErrorKind::Unsupported;

/// Returns whether an error is the driver's: one from the kernel has a number.
fn is_not_there(error: &io::Error) -> bool {
    error.kind() == NO_SUCH_FILE_CALL && error.raw_os_error().is_none()
}

/// What a driver cannot do.
#[cold]
fn not_there(driver: &str) -> io::Error {
    let text = format!(
        "the I/O driver \"{driver}\" has no such operation (\"sim\" has no network yet); build the runtime with \
         another, RuntimeBuilder::io(Io::Auto)"
    );
    io::Error::new(io::ErrorKind::Unsupported, text)
}

/// Returns the outcome of an operation that has ended; `interrupt` says what it may have been
/// cancelled for.
#[inline]
fn outcome(result: RawResult, interrupt: impl FnOnce() -> Option<Interrupt>) -> io::Result<u32> {
    if result >= 0 {
        return Ok(result as u32);
    }
    let early = result == -libc::ECANCELED || result == -libc::EINTR;
    match early.then(interrupt).flatten() {
        Some(interrupt) => Err(interrupt.into()),
        None => Err(io::Error::from_raw_os_error(-result)),
    }
}

/// Performs the operation on a plain thread.
///
/// # Safety
/// As for `perform`.
unsafe fn on_thread(
    source: &Source,
    operation: &Operation,
    limit: Option<Duration>,
) -> io::Result<u32> {
    let own = limit.and_then(|l| Instant::now().checked_add(l));
    let deadline = wait::earliest(wait::thread_deadline(), own);
    let interest = operation.op.interest();
    let mut ready = false;

    loop {
        let result = match operation.op {
            Op::Poll(_) if ready => 0,
            Op::Connect { .. } if ready => connect_outcome(operation.fd),
            // SAFETY: the caller's promise.
            _ => unsafe { operation.attempt() },
        };

        if result != -libc::EAGAIN && result != -libc::EWOULDBLOCK {
            return outcome(result, || None);
        }
        poll(source, interest, deadline)?;
        ready = true;
    }
}

/// Waits for readiness on a plain thread.
fn poll(source: &Source, interest: Interest, deadline: Option<Instant>) -> io::Result<()> {
    loop {
        let left = deadline.map(|d| d.saturating_duration_since(Instant::now()));
        if left.is_some_and(|l| l.is_zero()) {
            return Err(Interrupt::TimedOut.into());
        }
        if sys::poll(source, interest.poll_flags(), left)? {
            return Ok(());
        }
    }
}
