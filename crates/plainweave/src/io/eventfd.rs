//! How any thread interrupts a worker that sleeps: an eventfd that its driver waits on, or, when the driver waits for
//! nothing, a futex, which costs the sleeper two system calls less and a turn through the driver.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering, fence};
use std::time::Duration;

use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::Timespec;
use rustix::thread::futex;

/// A non-blocking eventfd. The worker's driver waits on it, anybody may write it.
///
/// Wake-ups until the worker has noticed cost one system call together: `pending` says that one is on its way. The
/// worker takes it back with a read-modify-write, so what a waker published before a `wake` that found it pending is
/// visible to the worker afterwards.
///
/// Dozing: 1. the worker sets `dozing`, fences, and waits in the kernel while `pending` is 0. 2. A waker sets
/// `pending`, then reads `dozing`: set, it wakes the futex; else it writes the eventfd. If the kernel saw 0, the
/// waker's swap came after it, so it sees `dozing`. 3. The worker takes back `dozing`, then `pending`: who sets that
/// from now on sees that nobody dozes. A waker in between wakes in vain, and the worker, which is about to look, needs
/// no telling.
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

    /// Any thread. The worker returns from its sleep, now or at the next one.
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

    /// The worker, when its driver waits for nothing: sleeps until a wake-up, or for so long. May return early.
    pub(crate) fn doze(&self, limit: Option<Duration>) {
        // Longer than any run: for ever.
        let limit = limit.and_then(|limit| Timespec::try_from(limit).ok());
        self.dozing.store(true, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        // An error is a word that has changed, the time, or a signal: a reason to look each time.
        let _ = futex::wait(&self.pending, futex::Flags::PRIVATE, 0, limit.as_ref());
        self.dozing.store(false, Ordering::Release);
        self.acknowledge();
    }

    /// Whoever polls the driver, on an edge of the eventfd, before it looks for what it was woken for. The counter
    /// stays: the next write is an edge of its own.
    pub(crate) fn acknowledge(&self) {
        self.pending.swap(0, Ordering::AcqRel);
    }

    /// As `acknowledge`, for a driver that looks at the counter and not at edges.
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
