//! The simulated driver: a virtual clock and, for now, nothing else.
//!
//! Sleeping takes no real time under this driver, and its clock is exact: it stands while a fiber
//! can run, and jumps to the next timer when all of them wait. So an hour's sleep takes an hour, to
//! the nanosecond, and what a program reads from the clock depends on nothing but what it does.
//!
//! * While a job of the blocking pool is under way the clock is *held*: the job's real time is no
//!   virtual time, and no timer overtakes it.
//! * A fiber that yields until the clock has moved on would do so for ever. After [`SPINS`] looks
//!   at one moment the clock moves a little at each further one, until the next jump.
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

/// Looks at one moment before each takes time: some millions of switches.
const SPINS: u64 = 100_000;
/// What each takes then, in nanoseconds.
const SPIN_COST: u64 = 1_000;
/// How often a held clock looks whether it still is. (What is awaited mostly ends the wait.)
const HELD_LOOK: Duration = Duration::from_millis(1);

/// Says whether the clock is to stand, for something that takes real time.
pub(crate) type Held = Box<dyn Fn() -> bool>;

/// A driver on virtual time.
pub(crate) struct Sim {
    now: Nanos,
    /// Looks since the last jump.
    looks: u64,
    held: Held,
    wakeup: Arc<Wakeup>,
}

impl Sim {
    /// Creates a driver with its clock at zero.
    pub(crate) fn new(held: Held) -> io::Result<Self> {
        Ok(Self {
            now: 0,
            looks: 0,
            held,
            wakeup: Arc::new(Wakeup::new()?),
        })
    }

    /// Consumes a pending wake-up, or waits for one that long. Returns whether there was one.
    fn woken(&self, limit: Option<Duration>) -> io::Result<bool> {
        loop {
            let woken = sys::poll(&*self.wakeup, PollFlags::IN, limit)?;
            if woken {
                self.wakeup.clear();
            }

            if woken || limit.is_some() {
                return Ok(woken);
            }
        }
    }

    /// Jumps to `time`, once nothing holds the clock. Returns whether a wake-up came first.
    fn jump(&mut self, time: Nanos) -> io::Result<bool> {
        let mut limit = Duration::ZERO;
        loop {
            // In this order: who holds the clock wakes somebody, then lets go.
            let held = (self.held)();
            if self.woken(Some(limit))? {
                return Ok(true);
            }

            if !held {
                self.now = self.now.max(time);
                self.looks = 0;
                return Ok(false);
            }

            limit = HELD_LOOK;
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

    fn is_virtual(&self) -> bool {
        true
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

    /// Returns true: looks count, also a busy worker's.
    fn wants_poll(&self) -> bool {
        true
    }

    /// Returns false: time passes in `poll`.
    fn is_idle(&self) -> bool {
        false
    }

    fn poll(&mut self, wait: Wait, _done: &mut Vec<Completion>) -> io::Result<bool> {
        match wait {
            Wait::Until(time) => self.jump(time),
            Wait::Forever => self.woken(None),
            Wait::No => {
                self.looks += 1;
                if self.looks > SPINS {
                    self.now = self.now.saturating_add(SPIN_COST);
                }

                self.woken(Some(Duration::ZERO))
            }
        }
    }

    fn wakeup(&self) -> Arc<Wakeup> {
        Arc::clone(&self.wakeup)
    }

    fn forget(&mut self, _source: u64) {}

    fn in_flight(&self) -> usize {
        0
    }
}
