//! In place of a driver, for workers that have none: a clock, and nothing that could be submitted.
//! Their fibers wait at another worker's driver (`sched/lent`), so such a worker costs no
//! descriptor.

#![expect(unsafe_code, reason = "implements the trait")]

use std::io;
use std::sync::Arc;
use std::time::Instant;

use super::driver::{Completion, Driver, OpRef, Submitted, Wait};
use super::eventfd::Wakeup;
use crate::timer::Nanos;

/// A driver that is always idle, so its worker sleeps on the wake-up alone.
#[derive(Debug)]
pub(crate) struct NoDriver {
    epoch: Instant,
    wakeup: Arc<Wakeup>,
}

impl NoDriver {
    /// Creates one whose clock began at `epoch`, for the worker that `wakeup` wakes.
    pub(crate) fn new(epoch: Instant, wakeup: Arc<Wakeup>) -> Self {
        Self { epoch, wakeup }
    }
}

impl Driver for NoDriver {
    fn name(&self) -> &'static str {
        "none"
    }

    fn now(&self) -> Nanos {
        self.epoch.elapsed().as_nanos() as u64
    }

    unsafe fn submit(&mut self, _: OpRef) -> Submitted {
        debug_assert!(false, "a fiber waits for I/O on a worker without a driver");
        Submitted::Done(-libc::ENOSYS)
    }

    unsafe fn cancel(&mut self, _: OpRef, _: &mut Vec<Completion>) {
        debug_assert!(false, "nothing is pending here");
    }

    fn wants_poll(&self) -> bool {
        false
    }

    fn poll(&mut self, _: Wait, _: &mut Vec<Completion>) -> io::Result<bool> {
        Ok(false)
    }

    fn wakeup(&self) -> Arc<Wakeup> {
        self.wakeup.clone()
    }

    fn forget(&mut self, _: u64) {}

    fn in_flight(&self) -> usize {
        0
    }
}
