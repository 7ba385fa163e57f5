//! Has a stalled worker enter its ring, by a signal: only the thread that a ring belongs to may,
//! and what has come for its fibers does not show before.
//!
//! The handler (`watchdog/sample`, whose rules hold here too) makes one system call. The thread is
//! in user code or in a call of the program's, never in the driver, as the watchdog holds the
//! worker's I/O lock; so no entry is half written, and nobody else reads what the call brings. A
//! call of the program's that is interrupted is restarted where signal(7) says so. The others fail
//! with EINTR, as they do whenever the kernel completes something for a thread, if the ring is one
//! that any thread may enter.
//!
//! # Rejected
//! * *A ring for any thread*, which we had: the kernel then does its part of each completion as the
//!   worker leaves its next system call, a twentieth of a small request. It stays for kernels before
//!   6.1, and where SIGURG is the program's.
//! * *A pointer or descriptor in the signal's value*: see `atomics/signal_slot`.

#![expect(unsafe_code, reason = "enters a ring by its number")]

use std::os::fd::{BorrowedFd, RawFd};
use std::time::Duration;

use rustix::io_uring::{IoringEnterFlags, io_uring_enter};

use super::INTERRUPTION;
use super::sample::Questions;
use crate::io::driver::RingEntry;

static ENTRIES: Questions = Questions::new();

pub(super) fn prepare() {
    ENTRIES.prepare(0);
}

/// How long to wait for the answer. Others wait meanwhile; who has a processor takes some 10 us.
const LIMIT: Duration = INTERRUPTION.saturating_mul(3);

/// Has a worker's thread enter its ring. Returns `false` if it has not within [`LIMIT`]: it has the
/// signal blocked, lacks a processor, or is in a part of the kernel that no signal interrupts.
///
/// Context: the watchdog, with the worker's I/O lock.
pub(super) fn enter(thread: u32, entry: RingEntry) -> bool {
    let detail = u64::from(entry.ring.cast_unsigned()) << 32 | u64::from(entry.submit);
    ENTRIES.ask(thread, detail, LIMIT).is_some()
}

/// Enters the ring that the calling thread is asked to enter, if it is.
///
/// Context: the signal's handler.
pub(super) fn answer(thread: u32) {
    ENTRIES.answer(thread, |answer| {
        let ring = (answer.detail() >> 32) as RawFd;
        let submit = answer.detail() as u32;
        // SAFETY: the ring is open: until the asker gives up, it holds the remote access, without
        // which the worker's loop does not end; from then on only this thread could close it. The
        // entries have been pushed by those who promise that what they point to is valid.
        let _ = unsafe {
            let ring = BorrowedFd::borrow_raw(ring);
            io_uring_enter(ring, submit, 0, IoringEnterFlags::GETEVENTS)
        };
    });
}
