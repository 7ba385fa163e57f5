//! A descriptor that fibers block on: owned, shared by clones of a stream, closable while others wait on it.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
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
    /// A poll has found it readable, and nothing was received since: a hint for drivers that would rather not try.
    readable: AtomicBool,
    /// One bit a driver (its tag modulo 64) that keeps a registration, to be forgotten when the source goes.
    registered: AtomicU64,
    /// Where the driver that registered it last keeps it, for that driver to check: a look-up less in each call.
    hint: AtomicU64,
}

static NEXT_ID: AtomicU64 = AtomicU64::new(1);

impl Source {
    /// Takes a descriptor that is already in non-blocking mode.
    pub(crate) fn new(fd: OwnedFd) -> Self {
        let id = NEXT_ID.fetch_add(1, Ordering::Relaxed);
        let (closed, readable) = (AtomicBool::new(false), AtomicBool::new(false));
        Self { fd, id, closed, readable, registered: AtomicU64::new(0), hint: AtomicU64::new(0) }
    }

    pub(crate) fn raw(&self) -> RawFd {
        self.fd.as_raw_fd()
    }

    pub(crate) fn id(&self) -> u64 {
        self.id
    }

    /// A driver notes that a receive will find something, or the end.
    pub(crate) fn note_readable(&self) {
        self.readable.store(true, Ordering::Relaxed);
    }

    /// Whether a driver has noted so since the last time that this was asked. It may no longer be true.
    pub(crate) fn take_readable(&self) -> bool {
        let noted = self.readable.load(Ordering::Relaxed);
        if noted {
            // No exchange: what is noted in between may be lost, for it is only a hint.
            self.readable.store(false, Ordering::Relaxed);
        }
        noted
    }

    /// A driver notes that it keeps state for this source.
    pub(crate) fn note_registration(&self, driver_tag: usize, hint: u64) {
        self.registered.fetch_or(1 << (driver_tag % 64), Ordering::Relaxed);
        self.hint.store(hint, Ordering::Relaxed);
    }

    /// What a driver last said with a registration; any driver's, and perhaps outdated.
    pub(crate) fn hint(&self) -> u64 {
        self.hint.load(Ordering::Relaxed)
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

    /// Returns the tags of the drivers that keep state for this source, a bit for each modulo 64, and forgets them: the
    /// caller tells these drivers.
    pub(crate) fn take_registrations(&self) -> u64 {
        self.registered.swap(0, Ordering::Relaxed)
    }
}

impl AsFd for Source {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
