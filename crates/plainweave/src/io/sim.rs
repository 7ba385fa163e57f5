//! The simulated driver: a virtual clock and, for now, nothing else.
//!
//! Sleeping takes no real time under this driver, and clock readings depend only on the calls made,
//! so a test of timers over hours is exact and quick. The clock starts at zero and moves in two
//! ways:
//!
//! * A `poll` that may sleep until `t` jumps there at once, unless a wake-up is pending.
//! * Any other `poll` costs a little (1 us, see [`Sim::poll_cost`]): otherwise a fiber that yields
//!   until the clock has moved on would spin for ever.
//!
//! `Wait::Forever` really waits, in poll(2): only a thread outside the simulation can end it.
//!
//! Network operations return ENOSYS. An in-memory network with injected faults can be added here
//! without a change to the trait.

#![expect(unsafe_code, reason = "implements the trait")]

use std::io;
use std::sync::Arc;
use std::time::Duration;

use super::driver::{Completion, Driver, OpRef, Submitted, Wait};
use super::eventfd::Wakeup;
use crate::sys::{self, PollFlags};
use crate::timer::Nanos;

/// The default duration of a `poll` without sleep, in nanoseconds.
const POLL_COST: u64 = 1_000;

/// A driver on virtual time.
#[derive(Debug)]
pub(crate) struct Sim {
    now: Nanos,
    poll_cost: u64,
    wakeup: Arc<Wakeup>,
}

impl Sim {
    /// Creates a driver with its clock at zero.
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self {
            now: 0,
            poll_cost: POLL_COST,
            wakeup: Arc::new(Wakeup::new()?),
        })
    }

    #[cfg(test)]
    /// Sets the virtual nanoseconds that a `poll` without sleep takes.
    pub(crate) fn poll_cost(mut self, nanoseconds: u64) -> Self {
        self.poll_cost = nanoseconds;
        self
    }

    /// Consumes a pending wake-up; with `block`, waits for one. Returns whether there was one.
    fn woken(&self, block: bool) -> io::Result<bool> {
        loop {
            let woken = sys::poll(
                &*self.wakeup,
                PollFlags::IN,
                (!block).then_some(Duration::ZERO),
            )?;
            if woken {
                self.wakeup.clear();
            }
            if woken || !block {
                return Ok(woken);
            }
        }
    }
}

impl Driver for Sim {
    fn name(&self) -> &'static str {
        "sim"
    }

    fn now(&self) -> Nanos {
        self.now
    }

    fn processor_time(&self) -> u64 {
        self.now()
    }

    unsafe fn submit(&mut self, _op: OpRef) -> Submitted {
        Submitted::Done(-libc::ENOSYS)
    }

    unsafe fn cancel(&mut self, _op: OpRef, _done: &mut Vec<Completion>) {
        debug_assert!(false, "no operation is ever pending here");
    }

    /// Returns true: time passes in `poll`, so even a busy worker has to call it.
    fn wants_poll(&self) -> bool {
        true
    }

    /// Returns false: time passes in `poll`.
    fn is_idle(&self) -> bool {
        false
    }

    fn poll(&mut self, wait: Wait, _done: &mut Vec<Completion>) -> io::Result<bool> {
        let woken = self.woken(wait == Wait::Forever)?;
        self.now = match wait {
            Wait::Until(time) if !woken => self.now.max(time),
            _ => self.now.saturating_add(self.poll_cost),
        };
        Ok(woken)
    }

    fn wakeup(&self) -> Arc<Wakeup> {
        Arc::clone(&self.wakeup)
    }

    fn forget(&mut self, _source: u64) {}

    fn in_flight(&self) -> usize {
        0
    }
}
