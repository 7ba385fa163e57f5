//! A descriptor that fibers block on: owned, shared by clones of a stream, closable while others
//! wait on it.

#![expect(unsafe_code, reason = "`shutdown(2)`")]

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};

/// A non-blocking descriptor with the state that outlives one call.
///
/// The descriptor is closed when the last user drops the source. `close` only marks it and shuts
/// the socket down, which ends every call that is blocked on it, on any ring or epoll instance. See
/// `docs/blocking-and-cancellation.md`.
#[derive(Debug)]
pub(crate) struct Source {
    fd: OwnedFd,
    /// Unique in the process; drivers key their registrations with it, not with the descriptor's
    /// number.
    id: u64,
    closed: AtomicBool,
    /// Set when a poll has found it readable and nothing was received since: a hint that lets a
    /// driver receive directly.
    readable: AtomicBool,
    /// Of a listener: how many accepts in a row have failed because something has run out.
    exhausted: AtomicU8,
    /// Of a listener: whether standard error gets a line about them.
    reports_exhaustion: AtomicBool,
    /// One bit per driver (its tag modulo 64) that keeps a registration, to be forgotten when the
    /// source goes.
    registered: AtomicU64,
    /// Where the driver that registered it last keeps it, for that driver to check: saves a lookup
    /// in each call.
    hint: AtomicU64,
}

static NEXT_ID: AtomicU64 = AtomicU64::new(1);

impl Source {
    /// Takes over a descriptor that is already in non-blocking mode.
    pub(crate) fn new(fd: OwnedFd) -> Self {
        let id = NEXT_ID.fetch_add(1, Ordering::Relaxed);
        Self {
            fd,
            id,
            closed: AtomicBool::new(false),
            readable: AtomicBool::new(false),
            exhausted: AtomicU8::new(0),
            reports_exhaustion: AtomicBool::new(true),
            registered: AtomicU64::new(0),
            hint: AtomicU64::new(0),
        }
    }

    pub(crate) fn raw(&self) -> RawFd {
        self.fd.as_raw_fd()
    }

    pub(crate) fn id(&self) -> u64 {
        self.id
    }

    /// Records that a receive will find data or the end of the stream. Called by drivers.
    pub(crate) fn note_readable(&self) {
        self.readable.store(true, Ordering::Relaxed);
    }

    /// Returns and clears what [`Self::note_readable`] recorded. It may no longer be true.
    pub(crate) fn take_readable(&self) -> bool {
        let noted = self.readable.load(Ordering::Relaxed);
        if noted {
            // No exchange: a note made in between may be lost, which is acceptable for a hint.
            self.readable.store(false, Ordering::Relaxed);
        }
        noted
    }

    /// Notes an accept that has failed because something has run out. Returns how many have in a
    /// row, before this one.
    pub(crate) fn note_exhausted(&self) -> u8 {
        let before = self.exhausted.load(Ordering::Relaxed);
        // No exchange: accepts beside each other may be counted as one.
        self.exhausted
            .store(before.saturating_add(1), Ordering::Relaxed);
        before
    }

    /// Notes an accept that has succeeded.
    pub(crate) fn note_accepted(&self) {
        if self.exhausted.load(Ordering::Relaxed) != 0 {
            self.exhausted.store(0, Ordering::Relaxed);
        }
    }

    /// Sets whether standard error gets a line about such accepts.
    pub(crate) fn report_exhaustion(&self, on: bool) {
        self.reports_exhaustion.store(on, Ordering::Relaxed);
    }

    /// Returns whether it does.
    pub(crate) fn reports_exhaustion(&self) -> bool {
        self.reports_exhaustion.load(Ordering::Relaxed)
    }

    /// Records that a driver keeps state for this source. Called by drivers.
    pub(crate) fn note_registration(&self, driver_tag: usize, hint: u64) {
        self.registered
            .fetch_or(1 << (driver_tag % 64), Ordering::Relaxed);
        self.hint.store(hint, Ordering::Relaxed);
    }

    /// Returns the hint of the last registration, which may be another driver's, or outdated.
    pub(crate) fn hint(&self) -> u64 {
        self.hint.load(Ordering::Relaxed)
    }

    /// Marks the source closed and shuts the socket down so that every blocked call returns. Each
    /// time: `listen(2)` may have had a closed listener listen again.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::Release);
        // SAFETY: plain system call on a descriptor that we own; failure (not connected) is of no
        // interest.
        unsafe { libc::shutdown(self.raw(), libc::SHUT_RDWR) };
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// Returns the error that calls on a closed source fail with.
    pub(crate) fn check_open(&self) -> io::Result<()> {
        if self.is_closed() {
            return Err(io::Error::new(
                io::ErrorKind::NotConnected,
                "the stream was closed by close()",
            ));
        }
        Ok(())
    }

    /// Returns the tags of the drivers that keep state for this source, a bit for each modulo 64,
    /// and clears them: the caller notifies these drivers.
    pub(crate) fn take_registrations(&self) -> u64 {
        self.registered.swap(0, Ordering::Relaxed)
    }
}

impl AsFd for Source {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
