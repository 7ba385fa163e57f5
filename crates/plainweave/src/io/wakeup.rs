//! How any thread interrupts a worker that sleeps in its driver: an eventfd.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

use rustix::event::{EventfdFlags, eventfd};

/// A non-blocking eventfd. The worker's driver waits on it, anybody may write it.
#[derive(Debug)]
pub(crate) struct Wakeup(OwnedFd);

impl Wakeup {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self(eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?))
    }

    /// Any thread. The worker's driver returns from its wait, now or at the next one.
    pub(crate) fn wake(&self) {
        // EAGAIN means the counter is full, so the worker is being woken anyway.
        let _ = rustix::io::write(&self.0, &1u64.to_ne_bytes());
    }

    /// The driver's worker only. Takes all wake-ups so far.
    pub(crate) fn clear(&self) {
        let mut count = [0u8; 8];
        let _ = rustix::io::read(&self.0, &mut count);
    }

    pub(crate) fn raw(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

impl AsFd for Wakeup {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
