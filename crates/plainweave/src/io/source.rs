//! A descriptor that fibers block on: owned, shared by clones of a stream, closable while others wait on it.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// A non-blocking descriptor with the state that outlives one call.
///
/// The descriptor is closed when the last user drops the source. `close` only marks it and shuts the socket down, which
/// wakes whoever is blocked in it on any ring or epoll instance (DESIGN D5).
#[derive(Debug)]
pub(crate) struct Source {
    fd: OwnedFd,
    /// Never used twice in a process; drivers key their registrations with it, not with the descriptor's number.
    id: u64,
    closed: AtomicBool,
    /// One bit a worker (modulo 64) whose driver keeps a registration to be forgotten when the source goes.
    registered: AtomicU64,
}

static NEXT_ID: AtomicU64 = AtomicU64::new(1);

impl Source {
    /// Takes a descriptor that is already in non-blocking mode.
    pub(crate) fn new(fd: OwnedFd) -> Self {
        let id = NEXT_ID.fetch_add(1, Ordering::Relaxed);
        Self { fd, id, closed: AtomicBool::new(false), registered: AtomicU64::new(0) }
    }

    pub(crate) fn raw(&self) -> RawFd {
        self.fd.as_raw_fd()
    }

    pub(crate) fn id(&self) -> u64 {
        self.id
    }

    /// A driver notes that it keeps state for this source; `worker` is that driver's worker.
    pub(crate) fn note_registration(&self, worker: usize) {
        self.registered.fetch_or(1 << (worker % 64), Ordering::Relaxed);
    }

    /// Which workers (modulo 64) hold a registration.
    pub(crate) fn registrations(&self) -> u64 {
        self.registered.load(Ordering::Relaxed)
    }

    /// Any thread. Marks the source closed and shuts the socket down so that every blocked call returns.
    pub(crate) fn close(&self) {
        if !self.closed.swap(true, Ordering::AcqRel) {
            // SAFETY: plain system call on a descriptor that we own; failure (not connected) is of no interest.
            unsafe { libc::shutdown(self.raw(), libc::SHUT_RDWR) };
        }
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// The error that calls on a closed source give.
    pub(crate) fn check_open(&self) -> io::Result<()> {
        if self.is_closed() {
            return Err(io::Error::new(io::ErrorKind::NotConnected, "the stream was closed by close()"));
        }
        Ok(())
    }

    pub(crate) fn into_fd(self) -> OwnedFd {
        self.fd
    }
}
