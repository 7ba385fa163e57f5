//! How any thread interrupts a sleeping worker: by an eventfd that its driver waits on or, when the driver has nothing
//! pending, by a futex, which saves the sleeper two system calls and a pass through the driver.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering, fence};
use std::time::Duration;

use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::Timespec;
use rustix::thread::futex;

/// A non-blocking eventfd. The worker's driver waits on it; any thread may write it.
///
/// All wake-ups until the worker notices cost one system call together: `pending` says that one is on its way. The
/// worker clears it with a read-modify-write, so what a waker published before a `wake` that found it pending is
/// visible to the worker afterwards.
///
/// Dozing: 1. The worker sets `dozing`, fences, and waits in the kernel while `pending` is 0. 2. A waker sets
/// `pending`, then reads `dozing`: if set, it wakes the futex; otherwise it writes the eventfd. If the kernel saw 0,
/// the waker's swap came after it, so the waker sees `dozing`. 3. The worker clears `dozing`, then `pending`: a waker
/// that sets `pending` from now on sees `dozing` clear. A waker in between makes a futile futex call, which is harmless
/// because the worker is about to look anyway.
#[derive(Debug)]
pub(crate) struct Wakeup {
    fd: OwnedFd,
    /// 1: a wake-up is on its way.
    pending: AtomicU32,
    dozing: AtomicBool,
}

impl Wakeup {
    pub(crate) fn new() -> io::Result<Self> {
        let fd = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?;
        Ok(Self { fd, pending: AtomicU32::new(0), dozing: AtomicBool::new(false) })
    }

    /// Makes the worker return from its sleep, now or at the next one.
    pub(crate) fn wake(&self) {
        if self.pending.swap(1, Ordering::SeqCst) != 0 {
            return;
        }
        if self.dozing.load(Ordering::SeqCst) {
            let _ = futex::wake(&self.pending, futex::Flags::PRIVATE, 1);
        } else {
            // EAGAIN means the counter is full, so the worker is being woken anyway.
            let _ = rustix::io::write(&self.fd, &1u64.to_ne_bytes());
        }
    }

    /// Sleeps until a wake-up or for `limit`, while the driver has nothing pending. May return early.
    ///
    /// Context: the worker only.
    pub(crate) fn doze(&self, limit: Option<Duration>) {
        // A limit that does not fit is longer than any run: wait for ever.
        let limit = limit.and_then(|limit| Timespec::try_from(limit).ok());
        self.dozing.store(true, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        // The word has changed, the time is over, or a signal came: the caller looks again in each case.
        let _ = futex::wait(&self.pending, futex::Flags::PRIVATE, 0, limit.as_ref());
        self.dozing.store(false, Ordering::Release);
        self.acknowledge();
    }

    /// Clears `pending`; called on an edge of the eventfd, before the poller looks for what it was woken for. The
    /// counter stays: the next write is an edge of its own.
    pub(crate) fn acknowledge(&self) {
        self.pending.swap(0, Ordering::AcqRel);
    }

    /// Does the same as `acknowledge` and resets the counter, for drivers that look at the counter and not at edges.
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
