//! The io_uring driver: the kernel makes the calls and reports their results.
//!
//! # Why it is hard
//! The kernel holds pointers into fibers' stacks between submission and completion, queues are
//! smaller than the number of operations, and with DEFER_TASKRUN a ring that is never entered
//! delivers nothing.
//!
//! # Which call goes where, and why
//! CPU of the server thread per echo (64 connections, 128 bytes, one ring, best of many runs),
//! against 4.34 us for a raw epoll loop: receive entry and direct send 4.40; multishot poll, direct
//! receive and send 4.48; receive entry with `POLL_FIRST` 4.56; one-shot poll, direct receive and
//! send 4.59. (The best runs of the whole drivers: this one 1.00 times the raw loop, the epoll
//! driver 1.03: `tests/echo.rs`.) Hence:
//!
//! * *Receive*: an entry. The failing first attempt inside the kernel is cheaper than `POLL_FIRST`,
//!   and it succeeds where data has already arrived. After a poll that found the descriptor
//!   readable: the direct call, which then rarely fails, and saves a second suspension.
//! * *Send, accept*: the direct call first (it nearly always succeeds), then an entry.
//! * *Connect*: the direct call, a poll entry, then the outcome. The kernel's own connect entry
//!   calls connect(2) again when the socket wakes, which starts afresh on a socket that
//!   `Source::close` has just shut down.
//! * *Calls on files*: an entry, where the kernel has it (`file_call`).
//! * *Poll*: a one-shot poll entry; one that ended in vain is armed again as a multishot one: see
//!   step 6. An idle connection that has waited before has a multishot poll that stays
//!   (`uring/standing`).
//!
//! # The protocol
//! 1. An entry's user data is its operation's address. It stays valid: the operation does not move
//!    before its completion is reported. User data below [`FIRST_ADDRESS`] is the driver's own.
//! 2. `submit` and `cancel` only fill the submission queue; `poll` flushes it. A full queue is
//!    submitted at once; what the kernel does not take then waits in `backlog`, in order.
//! 3. With DEFER_TASKRUN completions appear only when the ring's own thread enters with GETEVENTS.
//!    So `poll` enters if TASKRUN or CQ_OVERFLOW is set, to flush, or to sleep; otherwise it makes
//!    no system call. Where the watchdog may call in the worker's place ([`Access::OwnerEnters`]), it
//!    has the worker's thread enter, as the kernel refuses any other (EEXIST). A ring for any thread
//!    ([`Access::AnyThread`], where that cannot be) has COOP_TASKRUN instead:
//!    completions appear when the thread that submitted the operation next returns from the kernel,
//!    even from an interrupt. An operation that the watchdog submitted completes on its thread,
//!    interrupting that thread's sleep. When the thread ends the kernel cancels the operation, and
//!    the driver, which did not ask for that, waits for it again. Either thread clears the TASKRUN
//!    flag when it has run its part, so the worker may overlook completions until it next enters
//!    the kernel (with a periodic tick, at the next one).
//! 4. A cancellation is an entry of its own. The operation is reported with whatever its own
//!    completion says: received bytes win. If the cancel entry gets ENOENT or EALREADY, that
//!    completion is on its way. The cancel entry precedes, in the queue, any later operation that
//!    reuses the address, so it cannot hit that one.
//! 5. A thread that wakes the worker writes an eventfd, watched by a multishot poll. Each write is
//!    an edge; the eventfd is not read. When a multishot ends (no `MORE` flag: overflow, or any
//!    other reason of the kernel's) the eventfd is cleared, and before the next sleep another is
//!    armed: arming itself detects a write in between.
//! 6. A poll entry also ends by RDHUP, HUP or ERR, which io_uring adds to whatever is asked for. So
//!    its events are judged by the operation's interest ([`Interest::is_met`]), and the call that
//!    follows may say EAGAIN: a peer that has shut its sending side keeps RDHUP set while there is
//!    no room to send. A one-shot poll would end at once again, for as long as that lasts. Then a
//!    *multishot* poll waits ([`EDGES`]), which the kernel reports per wake-up of the descriptor
//!    and not per look. Once the operation has its result, that poll is cancelled, and the result
//!    is reported when the poll has ended: until then the kernel holds the operation's address.
//!    Before Linux 5.13, which has no multishot poll, the driver pauses for [`PAUSE`] between two
//!    one-shot polls.
//!
//! # Dropping
//! With operations in flight the kernel may yet write into their buffers, and closing the ring does
//! not wait for it. So the ring is leaked and counted; its owner must leak the stacks as well.

#![expect(unsafe_code, reason = "follows operations; pushes entries")]

mod standing; // Polls that stay, for idle connections.

use std::collections::VecDeque;
use std::io;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use io_uring::squeue::{Entry, Flags};
use io_uring::types::{Fd, Timespec};
use io_uring::{IoUring, cqueue, opcode};

use super::driver::{Access, Completion, Driver, OpRef, PollFd, RingEntry, Submitted, Wait};
use super::eventfd::Wakeup;
use super::file_call::{FileCall, FileCalls};
use super::op::{Interest, OWNER_BYTES, Op, Operation, RawResult, connect_outcome};
use super::uring_setup::{Gate, build};
use crate::prefetch::prefetch;
use crate::sys::PollFlags;
use standing::{NUMBER, Standing};

/// User data of the wake-up poll and of cancel entries; no operation has such an address.
const WAKE: u64 = 1;
const CANCEL: u64 = 2;
const FIRST_ADDRESS: u64 = 4096;

/// `Operation::note`: a poll entry replaces the call, which the driver makes when the descriptor is
/// ready.
const POLLING: u64 = 1;
/// `Operation::note`: a cancellation was requested, so the operation is not tried again.
const CANCELLED: u64 = 2;
/// `Operation::note`: a multishot poll entry (or a pause in place of it) replaces the call.
const EDGES: u64 = 4;
/// `Operation::note`: the result is in the upper half, and is reported when the multishot poll has
/// ended; or it is on its way to be reported.
const DECIDED: u64 = 8;
/// `Operation::note`: it waits by the standing poll whose number is in the upper half.
const STANDS: u64 = 16;

/// Between two one-shot polls of a descriptor whose state ends each of them in vain, where there
/// are no multishot ones.
static PAUSE: Timespec = Timespec::new().nsec(10_000_000);

/// Completions taken at a time; see the constant of this name in the epoll driver.
const BATCH: usize = 64;

static LEAKED: AtomicUsize = AtomicUsize::new(0);

#[cfg(test)]
/// Returns the number of rings leaked because operations were in flight when their driver was
/// dropped.
pub(crate) fn leaked_rings() -> usize {
    LEAKED.load(Ordering::Relaxed)
}

/// The io_uring driver of one worker.
pub(crate) struct Uring {
    ring: ManuallyDrop<IoUring>,
    gate: Gate,
    epoch: Instant,
    wakeup: Arc<Wakeup>,
    access: Access,
    /// Whether multishot poll (Linux 5.13) is available.
    multishot: bool,
    /// Whether the wake-up poll is armed.
    armed: bool,
    /// Entries that did not fit into a full queue, in order.
    backlog: VecDeque<Entry>,
    in_flight: usize,
    standing: Standing,
    /// The calls on files that the kernel has.
    file_calls: FileCalls,
    /// Completions taken from the queue since the beginning.
    taken_so_far: u64,
    /// By which sources note that it has a standing poll for them.
    tag: usize,
    /// Completions being processed; empty between calls.
    taken: Vec<cqueue::Entry>,
    /// Tests: behave as on a kernel that answers EAGAIN for descriptors in non-blocking mode.
    #[cfg(test)]
    polls_only: bool,
    /// Unless any thread may enter it, the ring belongs to the thread that made it (SINGLE_ISSUER;
    /// the registered descriptor is per thread).
    _not_send: PhantomData<*mut ()>,
}

impl Uring {
    /// Creates a driver whose clock counts from `epoch`, with a submission queue of `entries`;
    /// `access` says which threads may call its methods. `worker` is the driver's tag, as for epoll.
    /// On an error, which says why io_uring cannot be used, take the epoll driver instead.
    ///
    /// Context: the worker's own thread only.
    pub(crate) fn new(
        epoch: Instant,
        worker: usize,
        access: Access,
        entries: u32,
    ) -> io::Result<Self> {
        // First: an error after the ring is in its field would leak the ring.
        let wakeup = Arc::new(Wakeup::new()?);
        let (ring, file_calls) = build(entries, access)?;
        let access = match access {
            // Before Linux 6.1 no ring is bound to a thread.
            Access::OwnerEnters if !ring.params().is_setup_single_issuer() => Access::AnyThread,
            access => access,
        };
        let mut this = Self {
            gate: Gate::new(ring.as_raw_fd(), access),
            ring: ManuallyDrop::new(ring),
            epoch,
            wakeup,
            access,
            multishot: true,
            armed: false,
            backlog: VecDeque::new(),
            in_flight: 0,
            standing: Standing::default(),
            file_calls,
            taken_so_far: 0,
            tag: worker,
            taken: Vec::with_capacity(BATCH),
            #[cfg(test)]
            polls_only: false,
            _not_send: PhantomData,
        };

        this.arm_wakeup();
        // A filter that allows io_uring_setup but not io_uring_enter is detected here.
        this.enter(0, Some(0))?;
        Ok(this)
    }

    fn arm_wakeup(&mut self) {
        let poll =
            opcode::PollAdd::new(Fd(self.wakeup.raw()), libc::POLLIN as u32).multi(self.multishot);
        self.push(poll.build().user_data(WAKE));
        self.armed = true;
    }

    /// Appends an entry to the submission queue, or to the backlog behind it.
    fn push(&mut self, entry: Entry) {
        if !self.backlog.is_empty() || !self.push_queue(&entry) {
            self.backlog.push_back(entry);
            self.flush_backlog();
        }
    }

    fn push_queue(&mut self, entry: &Entry) -> bool {
        // SAFETY: the buffers of an entry are valid until its completion (contract of `submit`).
        unsafe { self.ring.submission().push(entry).is_ok() }
    }

    /// Submits what the queue holds and moves the backlog into it, as far as the kernel takes it.
    fn flush_backlog(&mut self) {
        while let Some(entry) = self.backlog.pop_front() {
            if self.push_queue(&entry) {
                continue;
            }
            let queued = self.ring.submission().len() as u32;
            // Failure (EAGAIN: no memory, EBUSY: completions first) leaves the rest for the next
            // `poll`.
            let taken = self.gate.enter(queued, 0, None, false);
            self.backlog.push_front(entry);
            if !matches!(taken, Ok(n) if n > 0) {
                return;
            }
        }
    }

    /// Calls io_uring_enter once: submits, runs deferred work, and waits for `min` completions, at
    /// most `nanoseconds`.
    fn enter(&mut self, min: u32, nanoseconds: Option<u64>) -> io::Result<()> {
        let queued = self.ring.submission().len() as u32;
        let timeout = nanoseconds.filter(|_| min > 0);
        match self.gate.enter(queued, min, timeout, true) {
            Ok(_) => Ok(()),
            Err(error) => match error.raw_os_error() {
                // The time is over, or a signal came: the caller checks the clock.
                Some(libc::ETIME | libc::EINTR) => Ok(()),
                // Another thread than the ring's own, which has entered it if it could.
                Some(libc::EEXIST) if self.access == Access::OwnerEnters => Ok(()),
                // No memory for a request, or a backlog of completions: take those, and retry.
                Some(libc::EAGAIN | libc::EBUSY) => {
                    std::thread::yield_now();
                    Ok(())
                }
                _ => Err(error),
            },
        }
    }

    /// Takes up to [`BATCH`] entries from the completion queue. Returns whether a wake-up was among
    /// them.
    fn reap(&mut self, done: &mut Vec<Completion>) -> bool {
        let mut woken = false;
        let mut taken = std::mem::take(&mut self.taken);
        let first = self.taken_so_far;
        taken.extend(self.ring.completion().take(BATCH));
        self.taken_so_far += taken.len() as u64;
        for op in taken.iter().filter_map(|entry| self.operation_of(entry)) {
            // An idle connection's box begins with its operation.
            prefetch(op, OWNER_BYTES);
        }

        for (nth, entry) in (first..).zip(taken.drain(..)) {
            match entry.user_data() {
                WAKE => {
                    woken = true;
                    self.wakeup.acknowledge();
                    self.wake_entry(&entry);
                }
                CANCEL => {}
                data @ NUMBER.. => {
                    let more = cqueue::more(entry.flags());
                    self.stood((data, entry.result(), more), nth, done);
                }
                address => {
                    let more = cqueue::more(entry.flags());
                    self.complete(address, entry.result(), more, done);
                }
            }
        }

        self.taken = taken;
        woken
    }

    /// Returns the address of the operation that an entry is of.
    fn operation_of(&self, entry: &cqueue::Entry) -> Option<*const u8> {
        match entry.user_data() {
            ..FIRST_ADDRESS => None,
            data @ NUMBER.. => self
                .standing
                .waiting(data)
                .map(|op| op.as_ptr().cast_const().cast()),
            address => Some(std::ptr::without_provenance(address as usize)),
        }
    }

    fn wake_entry(&mut self, entry: &cqueue::Entry) {
        if !cqueue::more(entry.flags()) {
            self.multishot &= entry.result() != -libc::EINVAL;
            self.wakeup.clear();
            self.armed = false;
        }
    }

    /// Processes the completion of the operation at `address`: reports it, unless the call is still
    /// to be made. `more`: the entry stays with the kernel, as only a multishot poll does.
    fn complete(
        &mut self,
        address: u64,
        result: RawResult,
        more: bool,
        done: &mut Vec<Completion>,
    ) {
        debug_assert!(address >= FIRST_ADDRESS);
        let op = OpRef::new(std::ptr::with_exposed_provenance_mut(address as usize))
            .expect("an operation's address");
        // SAFETY: an operation stays in place until it is reported (contract of `submit`), which is
        // below.
        let operation = unsafe { op.as_ref() };
        let note = operation.note.get();
        if note & EDGES != 0 {
            return self.edge(op, result, more, done);
        }

        if let Op::File(call) = operation.op {
            return self.complete_file_call((op, call), result, done);
        }

        let polled = result >= 0 && (note & POLLING != 0 || matches!(operation.op, Op::Poll(_)));
        let mut result = if polled {
            ready(operation, result)
        } else {
            result
        };

        // Kernels before 5.19 answer EAGAIN for a descriptor in non-blocking mode; an interrupted
        // call gives EINTR, and the end of the submitting thread ECANCELED.
        if matches!(-result, libc::EAGAIN | libc::EINTR | libc::ECANCELED) {
            if note & CANCELLED == 0 {
                // What ended a poll in vain would end the next one too.
                return if polled {
                    self.poll_edges(op)
                } else {
                    self.poll_for(op)
                };
            }
            result = -libc::ECANCELED;
        }

        self.report(op, result, done);
    }

    /// Processes the completion of a call on a file: no poll ever stands in for it.
    fn complete_file_call(
        &mut self,
        (op, call): (OpRef, NonNull<FileCall>),
        mut result: RawResult,
        done: &mut Vec<Completion>,
    ) {
        // SAFETY: as in `complete`; the call stays in place as long as its operation.
        let (operation, call) = unsafe { (op.as_ref(), call.as_ref()) };
        let is_cancelled = operation.note.get() & CANCELLED != 0;
        let again = match -result {
            // The end of the submitting thread: nothing was done.
            libc::ECANCELED => !is_cancelled,
            libc::EINTR => !is_cancelled && call.may_be_repeated(),
            _ => false,
        };
        if again {
            return self.push(entry_for(operation).user_data(address_of(op)));
        }

        if result == -libc::EINTR && is_cancelled {
            result = -libc::ECANCELED;
        }
        self.report(op, result, done);
    }

    /// Processes what a multishot poll, or the pause in place of one, has reported: step 6 of the
    /// protocol.
    fn edge(&mut self, op: OpRef, result: RawResult, more: bool, done: &mut Vec<Completion>) {
        // SAFETY: the operation is not reported yet, hence in place.
        let operation = unsafe { op.as_ref() };
        let mut note = operation.note.get();
        if note & DECIDED == 0 && result >= 0 {
            let result = ready(operation, result);
            if result != -libc::EAGAIN {
                note |= DECIDED | u64::from(result.cast_unsigned()) << 32;
                operation.note.set(note);
                if more {
                    return self.push_cancel(address_of(op));
                }
            }
        }

        if more {
            return;
        }
        if note & DECIDED != 0 {
            return self.report(op, ((note >> 32) as u32).cast_signed(), done);
        }
        if note & CANCELLED != 0 {
            return self.report(op, -libc::ECANCELED, done);
        }
        self.multishot &= result != -libc::EINVAL;
        operation.note.set(note & !EDGES);

        // The kernel ends such a poll when it likes, or the pause is over.
        if self.multishot {
            self.poll_edges(op)
        } else {
            self.poll_for(op)
        }
    }

    fn report(&mut self, op: OpRef, result: RawResult, done: &mut Vec<Completion>) {
        self.in_flight -= 1;
        done.push(Completion { op, result });
    }

    /// Waits for readiness; `complete` then makes the call.
    fn poll_for(&mut self, op: OpRef) {
        // SAFETY: the operation is pending or being submitted, hence in place.
        let operation = unsafe { op.as_ref() };
        operation.note.set(operation.note.get() | POLLING);
        self.push(poll_entry(operation, operation.op.interest(), false).user_data(address_of(op)));
    }

    /// Waits for a change of readiness after a poll that ended in vain; `edge` then makes the call.
    fn poll_edges(&mut self, op: OpRef) {
        // SAFETY: the operation is pending, hence in place.
        let operation = unsafe { op.as_ref() };
        operation.note.set(operation.note.get() | EDGES);
        let entry = match self.multishot {
            true => poll_entry(operation, operation.op.interest(), true),
            false => opcode::Timeout::new(&PAUSE).build(),
        };

        self.push(entry.user_data(address_of(op)));
    }

    /// Has the kernel end the entry that has this user data.
    fn push_cancel(&mut self, data: u64) {
        let mut entry = opcode::AsyncCancel::new(data).build().user_data(CANCEL);
        if self.ring.params().is_feature_skip_cqe_on_success() {
            entry = entry.flags(Flags::SKIP_SUCCESS);
        }
        self.push(entry);
    }

    /// Returns whether entering the kernel would reveal completions.
    fn kernel_holds_completions(&mut self) -> bool {
        let queue = self.ring.submission();
        queue.taskrun() || queue.cq_overflow()
    }
}

fn address_of(op: OpRef) -> u64 {
    op.as_ptr().expose_provenance() as u64
}

/// Makes the call that a poll entry replaced; `events` are what the poll reported. EAGAIN: they are
/// not what the operation waits for.
fn ready(operation: &Operation, events: RawResult) -> RawResult {
    match operation.op {
        Op::Poll(interest) if !interest.is_met(PollFlags::from_bits_retain(events as u16)) => {
            -libc::EAGAIN
        }
        Op::Poll(interest) => {
            if interest == Interest::Read {
                // SAFETY: the source outlives the operation.
                unsafe { operation.source.as_ref() }.note_readable();
            }
            0
        }
        Op::Connect { .. } => match connect_outcome(operation.fd) {
            // Neither connected nor failed, but hung up: the socket was shut down.
            r if r == -libc::EAGAIN && events & i32::from(libc::POLLHUP) != 0 => {
                -libc::ECONNABORTED
            }
            r => r,
        },
        // SAFETY: the operation is pending, so its pointers are valid (contract of `submit`).
        _ => unsafe { operation.attempt() },
    }
}

fn poll_entry(operation: &Operation, interest: Interest, multishot: bool) -> Entry {
    let mut flags = interest.poll_flags();
    if interest == Interest::Priority {
        // The kernel passes a wake-up over for which POLLPRI is the only event asked for
        // (IO_ASYNC_POLL_COMMON). Sockets name this one beside it, and never report it.
        flags |= PollFlags::RDBAND;
    }
    poll_of(operation.fd, flags, multishot)
}

/// Builds a multishot poll for what a receive may find, and for what may cut one short.
fn read_poll(fd: RawFd) -> Entry {
    let flags = Interest::Read.poll_flags() | PollFlags::PRI | PollFlags::RDBAND;
    poll_of(fd, flags, true)
}

fn poll_of(fd: RawFd, flags: PollFlags, multishot: bool) -> Entry {
    opcode::PollAdd::new(Fd(fd), flags.bits().into())
        .multi(multishot)
        .build()
}

/// Builds the entry that makes the kernel perform the operation.
fn entry_for(operation: &Operation) -> Entry {
    let fd = Fd(operation.fd);
    let length = |len: usize| len.min(i32::MAX as usize) as u32;
    match operation.op {
        Op::Poll(interest) => poll_entry(operation, interest, false),
        Op::Recv { buf, len } => opcode::Recv::new(fd, buf, length(len)).build(),
        Op::RecvVectored { msg } => opcode::RecvMsg::new(fd, msg).build(),
        Op::Send { buf, len } => opcode::Send::new(fd, buf, length(len))
            .flags(libc::MSG_NOSIGNAL)
            .build(),
        Op::SendVectored { msg } => opcode::SendMsg::new(fd, msg)
            .flags(libc::MSG_NOSIGNAL as u32)
            .build(),
        Op::Accept { addr, len } => {
            let flags = libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
            opcode::Accept::new(fd, addr.cast(), len)
                .flags(flags)
                .build()
        }
        Op::Connect { .. } => poll_entry(operation, Interest::Write, false),
        // SAFETY: the operation's pointers are valid (contract of `submit`).
        Op::File(call) => unsafe { call.as_ref() }.entry(operation.fd),
    }
}

impl Driver for Uring {
    fn name(&self) -> &'static str {
        "uring"
    }

    fn now(&self) -> u64 {
        self.epoch.elapsed().as_nanos() as u64
    }

    unsafe fn submit(&mut self, op: OpRef) -> Submitted {
        // SAFETY: the operation is alive (contract of `submit`).
        let operation = unsafe { op.as_ref() };
        if let Op::File(call) = operation.op {
            // SAFETY: so is what it points to.
            if !self.file_calls.has(unsafe { call.as_ref() }) {
                return Submitted::Done(-libc::ENOSYS);
            }
            operation.note.set(0);
            self.in_flight += 1;
            self.push(entry_for(operation).user_data(address_of(op)));
            return Submitted::Pending;
        }

        // SAFETY: so is its source.
        let source = unsafe { operation.source.as_ref() };
        let mut note = 0;
        match operation.op {
            Op::Send { .. } | Op::SendVectored { .. } | Op::Accept { .. } | Op::Connect { .. } => {
                // SAFETY: the operation's pointers are valid (contract of `submit`).
                let result = unsafe { operation.attempt() };
                if result != -libc::EAGAIN {
                    return Submitted::Done(result);
                }
                if matches!(operation.op, Op::Connect { .. }) {
                    note = POLLING;
                }
            }
            Op::Recv { .. } | Op::RecvVectored { .. } => {
                // SAFETY: the operation's pointers are valid (contract of `submit`).
                let tried = || unsafe { operation.attempt() };
                let result = source.take_readable().then(tried);
                self.standing.learn(source, &operation.op, result);
                if let Some(result) = result.filter(|&result| result != -libc::EAGAIN) {
                    return Submitted::Done(result);
                }
            }
            Op::Poll(_) if operation.recurs && self.multishot => {
                if let Some(submitted) = self.stand(op, operation, source) {
                    return submitted;
                }
            }
            Op::Poll(_) | Op::File(_) => {}
        }

        operation.note.set(note);
        self.in_flight += 1;
        #[cfg(test)]
        if self.polls_only && !matches!(operation.op, Op::Poll(_)) {
            self.poll_for(op);
            return Submitted::Pending;
        }

        self.push(entry_for(operation).user_data(address_of(op)));
        Submitted::Pending
    }

    unsafe fn attempt(&mut self, operation: &Operation) -> RawResult {
        // SAFETY: the source outlives the operation (the caller's promise).
        let source = unsafe { operation.source.as_ref() };
        source.take_readable();
        // SAFETY: the caller's promise.
        let result = unsafe { operation.attempt() };
        if operation.op.interest() == Interest::Read {
            self.standing.learn(source, &operation.op, Some(result));
        }
        result
    }

    unsafe fn cancel(&mut self, op: OpRef, done: &mut Vec<Completion>) {
        // SAFETY: the operation is pending here, so it is in place (contract of `cancel`).
        let note = &unsafe { op.as_ref() }.note;
        let before = note.get();
        if before & STANDS != 0 {
            return self.leave_standing(op, before, done);
        }
        note.set(before | CANCELLED);

        // One that has its result is being ended already.
        if before & DECIDED == 0 {
            self.push_cancel(address_of(op));
        }
    }

    fn wants_poll(&self) -> bool {
        if self.is_idle() {
            return false;
        }
        // SAFETY: the views are dropped before anybody else can make one: the caller alone has the
        // ring.
        let (submission, completion) =
            unsafe { (self.ring.submission_shared(), self.ring.completion_shared()) };
        !submission.is_empty()
            || submission.taskrun()
            || submission.cq_overflow()
            || !completion.is_empty()
    }

    fn poll(&mut self, wait: Wait, done: &mut Vec<Completion>) -> io::Result<bool> {
        let before = done.len();
        loop {
            let mut woken = self.reap(done);
            self.flush_backlog();
            let found = woken || done.len() > before;
            let timeout = match wait {
                _ if found => Some(0),
                Wait::No => Some(0),
                Wait::Until(time) => Some(time.saturating_sub(self.now())),
                Wait::Forever => None,
            };

            if timeout == Some(0) {
                // The last round, or a poll without sleep: enter only if there is something to
                // submit or to fetch.
                if !self.ring.submission().is_empty() || self.kernel_holds_completions() {
                    self.enter(0, None)?;
                    woken |= self.reap(done);
                }
                return Ok(woken);
            }

            // Armed by the worker, the only thread that sleeps here: the kernel wakes the thread
            // that submitted it.
            if !self.armed {
                self.arm_wakeup();
            }
            // With a backlog there is more to submit before sleeping.
            self.enter(u32::from(self.backlog.is_empty()), timeout)?;
        }
    }

    fn watched(&self) -> Option<PollFd<BorrowedFd<'_>>> {
        // SAFETY: the ring is this driver's until it ends.
        let fd = unsafe { BorrowedFd::borrow_raw(self.ring.as_raw_fd()) };
        (self.access != Access::OwnerThread).then_some(PollFd {
            fd,
            interrupts: true,
        })
    }

    fn left_to_owner(&mut self) -> Option<RingEntry> {
        let submit = self.ring.submission().len() as u32;
        let some = submit > 0 || self.kernel_holds_completions();
        (some && self.access == Access::OwnerEnters).then(|| RingEntry {
            ring: self.ring.as_raw_fd(),
            submit,
        })
    }

    fn wakeup(&self) -> Arc<Wakeup> {
        Arc::clone(&self.wakeup)
    }

    fn forget(&mut self, source: u64) {
        self.end_standing(source);
    }

    fn keeps_open(&self) -> bool {
        true
    }

    /// A standing poll whose end is under way is to be looked after, too.
    fn is_idle(&self) -> bool {
        self.in_flight == 0 && !self.standing.is_ending()
    }

    fn in_flight(&self) -> usize {
        self.in_flight
    }
}

impl Drop for Uring {
    fn drop(&mut self) {
        if self.in_flight > 0 {
            LEAKED.fetch_add(1, Ordering::Relaxed);
            // Lest it keeps connections open that are none of those operations'.
            self.end_all();
            return;
        }

        self.gate.close();
        // SAFETY: dropped once, here, and not used afterwards.
        unsafe { ManuallyDrop::drop(&mut self.ring) };
    }
}

#[cfg(test)]
impl Uring {
    /// Creates a driver that waits by one-shot poll entries only, as on an old kernel.
    pub(crate) fn polling(entries: u32) -> io::Result<Self> {
        let mut this = Self::new(Instant::now(), 0, Access::OwnerThread, entries)?;
        this.polls_only = true;
        this.multishot = false;
        Ok(this)
    }

    /// Ends the wake-up's multishot poll, as the kernel may at any time.
    pub(crate) fn end_wakeup_poll(&mut self) {
        let entry = opcode::AsyncCancel::new(WAKE).build().user_data(CANCEL);
        self.push(entry);
    }
}
