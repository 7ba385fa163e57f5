//! One I/O operation: what to do, on which descriptor, and how to attempt it without blocking.
//!
//! `Op` is plain data with raw pointers into the caller's buffers. The caller keeps those buffers
//! alive and untouched until the operation has completed; [`Operation::attempt`] makes the system
//! call once, without blocking: for the epoll driver, the uring driver's direct calls and plain
//! threads.

#![expect(unsafe_code, reason = "system calls on raw buffers")]

use std::cell::Cell;
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, RawFd};
use std::ptr::NonNull;
use std::time::Duration;

use rustix::net::{RecvFlags, SendFlags};

use super::file_call::FileCall;
use super::source::Source;
use crate::sys::{self, PollFlags};

/// Which readiness an operation waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Interest {
    Read,
    Write,
    /// An exceptional condition: urgent data, a trigger.
    Priority,
}

impl Interest {
    /// Returns the events of poll(2) to ask for.
    pub(crate) fn poll_flags(self) -> PollFlags {
        match self {
            Self::Read => PollFlags::IN | PollFlags::RDHUP,
            Self::Write => PollFlags::OUT,
            Self::Priority => PollFlags::PRI,
        }
    }

    /// Returns whether a descriptor with these events is what this waits for: the call would not
    /// block. An error or a hang-up counts in both directions, as with poll(2), the end of the
    /// peer's stream only for reading.
    pub(crate) fn is_met(self, events: PollFlags) -> bool {
        events.intersects(self.poll_flags() | PollFlags::ERR | PollFlags::HUP | PollFlags::NVAL)
    }
}

/// What to do. Pointers stay valid until the operation's completion (the submitter's promise).
#[derive(Clone, Copy, Debug)]
pub(crate) enum Op {
    /// Wait until the descriptor is readable or writable; transfers nothing. Result 0.
    Poll(Interest),
    /// `recv(2)`; result: bytes, 0 at end of stream.
    Recv { buf: *mut u8, len: usize },
    /// `recvmsg(2)` into several buffers.
    RecvVectored { msg: *mut libc::msghdr },
    /// `send(2)` with `MSG_NOSIGNAL`; result: bytes taken, possibly fewer than `len`.
    Send { buf: *const u8, len: usize },
    /// `sendmsg(2)` with `MSG_NOSIGNAL` from several buffers.
    SendVectored { msg: *const libc::msghdr },
    /// `accept4(2)` with `SOCK_CLOEXEC` and `SOCK_NONBLOCK`; result: the new descriptor. `addr`
    /// receives the peer's address.
    Accept {
        addr: *mut libc::sockaddr_storage,
        len: *mut libc::socklen_t,
    },
    /// `connect(2)`; result 0.
    Connect {
        addr: *const libc::sockaddr_storage,
        len: libc::socklen_t,
    },
    /// A call that only a ring makes. Its operation has no source.
    File(NonNull<FileCall>),
}

impl Op {
    pub(crate) fn interest(&self) -> Interest {
        match self {
            Op::Poll(interest) => *interest,
            Op::Recv { .. } | Op::RecvVectored { .. } | Op::Accept { .. } | Op::File(_) => {
                Interest::Read
            }
            Op::Send { .. } | Op::SendVectored { .. } | Op::Connect { .. } => Interest::Write,
        }
    }
}

/// The result of an operation as the kernel gives it: a count or descriptor, or a negated errno.
pub(crate) type RawResult = i32;

/// How much of an operation's owner a driver prefetches before it reports the completion. The
/// largest owner, an idle connection's box, begins with its operation.
pub(crate) const OWNER_BYTES: usize = 192;

/// An operation in flight. It lives in the blocked fiber's frame (or in an idle connection's box)
/// and neither moves nor dies before the driver has completed it.
#[derive(Debug)]
pub(crate) struct Operation {
    pub(crate) op: Op,
    pub(crate) fd: RawFd,
    /// The descriptor's owner; outlives the operation (the submitter's promise). Dangling for
    /// [`Op::File`].
    pub(crate) source: NonNull<Source>,
    /// The party to notify of the completion; opaque to drivers.
    pub(crate) owner: Cell<OpOwner>,
    /// The driver's own note: a slot, a list position. Meaningless before `submit`.
    pub(crate) note: Cell<u64>,
    pub(crate) result: Cell<Option<RawResult>>,
    /// A poll for reading, of whatever waits for that again and again: a driver may keep something
    /// for it from one time to the next.
    pub(crate) recurs: bool,
    /// Whether its driver was asked to end it early.
    pub(crate) is_cancelled: Cell<bool>,
}

/// The party that a completion concerns; opaque to drivers.
#[derive(Clone, Copy, Debug)]
pub(crate) enum OpOwner {
    /// None yet, or a test.
    Nobody,
    /// A fiber's header.
    Fiber(NonNull<()>),
    /// An idle connection's box.
    IdleConn(NonNull<()>),
}

impl Operation {
    pub(crate) fn new(op: Op, source: &Source) -> Self {
        Self::of(op, source.raw(), NonNull::from(source))
    }

    /// Creates one for a call on a file; `fd` is of no concern if that is on paths.
    pub(crate) fn on_file(call: NonNull<FileCall>, fd: RawFd) -> Self {
        Self::of(Op::File(call), fd, NonNull::dangling())
    }

    fn of(op: Op, fd: RawFd, source: NonNull<Source>) -> Self {
        Self {
            op,
            fd,
            source,
            owner: Cell::new(OpOwner::Nobody),
            note: Cell::new(0),
            result: Cell::new(None),
            recurs: false,
            is_cancelled: Cell::new(false),
        }
    }

    /// Borrows the descriptor.
    pub(crate) fn borrow_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: its owner keeps it open and outlives the operation, by the submitter's promise.
        unsafe { BorrowedFd::borrow_raw(self.fd) }
    }

    fn is_closed(&self) -> bool {
        // SAFETY: the source outlives the operation, by the submitter's promise.
        unsafe { self.source.as_ref() }.is_closed()
    }

    /// Makes the system call once without blocking. `Connect` reports EINPROGRESS as EAGAIN: wait
    /// until the descriptor is writable, then call [`connect_outcome`]. A second `connect(2)` would
    /// report the outcome too, but would start afresh on a socket that was shut down meanwhile.
    /// `Poll` never succeeds here: only an event completes it; nor does `File`, which a ring does.
    ///
    /// # Safety
    /// The operation's pointers are valid, as promised on construction.
    pub(crate) unsafe fn attempt(&self) -> RawResult {
        // The latter may have no descriptor.
        if matches!(self.op, Op::Poll(_) | Op::File(_)) {
            return -libc::EAGAIN;
        }
        let fd = self.fd;
        let borrowed = self.borrow_fd();
        const SEND: i32 = libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT;
        loop {
            // SAFETY: the buffers and addresses are valid for the lengths given, by the caller's
            // promise.
            let n = unsafe {
                match self.op {
                    Op::Poll(_) | Op::File(_) => unreachable!("above"),
                    Op::Recv { buf, len } => {
                        return receive(borrowed, std::slice::from_raw_parts_mut(buf.cast(), len));
                    }
                    Op::RecvVectored { msg } => libc::recvmsg(fd, msg, libc::MSG_DONTWAIT),
                    Op::Send { buf, len } => {
                        return send(borrowed, std::slice::from_raw_parts(buf, len));
                    }
                    Op::SendVectored { msg } => libc::sendmsg(fd, msg, SEND),
                    Op::Accept { addr, len } => libc::accept4(
                        fd,
                        addr.cast(),
                        len,
                        libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK,
                    ) as isize,
                    Op::Connect { addr, len } => libc::connect(fd, addr.cast(), len) as isize,
                }
            };

            if n >= 0 {
                return n.min(i32::MAX as isize) as i32;
            }
            let errno = last_errno();
            match (self.op, errno) {
                (_, libc::EINTR) => continue,
                (Op::Connect { .. }, libc::EINPROGRESS | libc::EALREADY) => return -libc::EAGAIN,
                // The socket is already connected.
                (Op::Connect { .. }, libc::EISCONN) => return 0,
                // AF_UNIX: the listener's queue is full, and no event will report when it has room.
                // BSD returns ECONNREFUSED too.
                (Op::Connect { .. }, libc::EAGAIN) => return -libc::ECONNREFUSED,
                // AF_UNIX: a listener that was shut down is readable for ever, and has nothing to
                // accept.
                (Op::Accept { .. }, libc::EAGAIN) if self.is_closed() => return -libc::EINVAL,
                (_, errno) => return -errno,
            }
        }
    }
}

/// Calls `recv(2)` without waiting. Uses rustix, which inlines the system call: libc's wrapper is a
/// cancellation point, whose bookkeeping takes some 30 ns.
fn receive(fd: BorrowedFd<'_>, buf: &mut [MaybeUninit<u8>]) -> RawResult {
    let call = || rustix::net::recv(fd, &mut *buf, RecvFlags::DONTWAIT).map(|(_, n)| n);
    raw_result(rustix::io::retry_on_intr(call))
}

/// Calls `send(2)`; neither waits nor raises SIGPIPE.
fn send(fd: BorrowedFd<'_>, buf: &[u8]) -> RawResult {
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    raw_result(rustix::io::retry_on_intr(|| {
        rustix::net::send(fd, buf, flags)
    }))
}

fn raw_result(result: rustix::io::Result<usize>) -> RawResult {
    result.map_or_else(
        |errno| -errno.raw_os_error(),
        |n| n.min(i32::MAX as usize) as i32,
    )
}

/// Returns how the connection attempt under way on `fd` stands: 0 connected, EAGAIN still trying
/// (or shut down before it got anywhere: then the descriptor is hung up), any other errno failed.
/// The kernel reports a failure once.
pub(crate) fn connect_outcome(fd: RawFd) -> RawResult {
    let mut error = 0i32;
    let mut len = size_of::<i32>() as libc::socklen_t;
    // SAFETY: the option is an int and the length says so.
    let asked = unsafe {
        libc::getsockopt(
            fd,
            libc::SOL_SOCKET,
            libc::SO_ERROR,
            (&raw mut error).cast(),
            &mut len,
        )
    };

    if asked < 0 {
        return -last_errno();
    }
    if error != 0 {
        return -error;
    }
    // SAFETY: all-zero bytes are an address of an unspecified family.
    let mut peer: libc::sockaddr_storage = unsafe { std::mem::zeroed() };
    let mut len = size_of::<libc::sockaddr_storage>() as libc::socklen_t;

    // SAFETY: the kernel writes at most `len` bytes.
    if unsafe { libc::getpeername(fd, (&raw mut peer).cast(), &mut len) } == 0 {
        return 0;
    }
    match last_errno() {
        libc::ENOTCONN => -libc::EAGAIN,
        errno => -errno,
    }
}

/// Returns whether `fd` is readable or writable now (an error or a hang-up counts: the call would
/// not block).
pub(crate) fn readable_or_writable(fd: BorrowedFd<'_>, interest: Interest) -> bool {
    sys::poll(fd, interest.poll_flags(), Some(Duration::ZERO)).is_ok_and(|ready| ready)
}

fn last_errno() -> i32 {
    std::io::Error::last_os_error()
        .raw_os_error()
        .unwrap_or(libc::EIO)
}
