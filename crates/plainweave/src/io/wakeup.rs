//! How any thread interrupts a worker that sleeps in its driver: an eventfd.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::event::{EventfdFlags, eventfd};

/// A non-blocking eventfd. The worker's driver waits on it, anybody may write it.
///
/// Wake-ups until the worker has noticed cost one system call together: `pending` says that one is on its way. The
/// worker takes it back with a read-modify-write, so what a waker published before a `wake` that found it pending is
/// visible to the worker afterwards.
#[derive(Debug)]
pub(crate) struct Wakeup {
    fd: OwnedFd,
    pending: AtomicBool,
}

impl Wakeup {
    pub(crate) fn new() -> io::Result<Self> {
        let fd = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?;
        Ok(Self { fd, pending: AtomicBool::new(false) })
    }

    /// Any thread. The worker's driver returns from its wait, now or at the next one.
    pub(crate) fn wake(&self) {
        if !self.pending.swap(true, Ordering::AcqRel) {
            // EAGAIN means the counter is full, so the worker is being woken anyway.
            let _ = rustix::io::write(&self.fd, &1u64.to_ne_bytes());
        }
    }

    /// The driver's worker only, on an edge of the eventfd, before it looks for what it was woken for. The counter
    /// stays: the next write is an edge of its own.
    pub(crate) fn acknowledge(&self) {
        self.pending.swap(false, Ordering::AcqRel);
    }

    /// The driver's worker only. As `acknowledge`, for a driver that looks at the counter and not at edges.
    pub(crate) fn clear(&self) {
        let mut count = [0u8; 8];
        let _ = rustix::io::read(&self.fd, &mut count);
        self.acknowledge();
    }

    pub(crate) fn raw(&self) -> RawFd {
        self.fd.as_raw_fd()
    }
}

impl AsFd for Wakeup {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
