//! Whether the watchdog scans when it meant to.
//!
//! Its thread runs before others (`timeslice`), so when a scan is late by milliseconds, mostly
//! nobody of this process ran: a control group has used up its quota of processor time (`cpu.max`
//! in the kernel's documentation of cgroups), the process was stopped, or the host gave the machine
//! no processor. Workers stand still then without being held up by a fiber. To take them for
//! stalled costs what little time there is: under a quota of a quarter of a processor, the scans
//! and spare workers for such stalls took a tenth of it.
//!
//! The wait before a late scan therefore counts for no worker: not that by which it is late alone,
//! since the process may have lost its processor at any time in it. The next scan comes soon, so
//! that a worker which is held up in the time that there is will be found.

use std::time::{Duration, Instant};

/// A scan is late if it comes this much after its time.
const LATE: Duration = Duration::from_millis(2);

/// When the watchdog scanned, and when it means to scan next.
#[derive(Debug)]
pub(super) struct Punctuality {
    scanned: Instant,
    /// When the next scan is due, unless it waits for a worker that wakes.
    due: Option<Instant>,
    was_late: bool,
}

impl Punctuality {
    pub(super) fn from(now: Instant) -> Self {
        Self {
            scanned: now,
            due: None,
            was_late: false,
        }
    }

    /// Records when the next scan is to come, at the latest.
    pub(super) fn expect(&mut self, due: Instant) {
        self.due = Some(due);
    }

    /// Records a scan. Returns the time since the last one if it is late, otherwise 0.
    pub(super) fn lost(&mut self, now: Instant) -> Duration {
        let scanned = std::mem::replace(&mut self.scanned, now);
        self.was_late = self.due.take().is_some_and(|due| now > due + LATE);
        if self.was_late {
            now - scanned
        } else {
            Duration::ZERO
        }
    }

    /// Returns whether the last scan was late.
    pub(super) fn was_late(&self) -> bool {
        self.was_late
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WAIT: Duration = Duration::from_millis(10);

    #[test]
    fn a_late_scan_loses_all_of_its_wait() {
        let start = Instant::now();
        let mut punctuality = Punctuality::from(start);
        punctuality.expect(start + WAIT);
        let late = start + WAIT + LATE * 2;
        assert_eq!(
            (punctuality.lost(late), punctuality.was_late()),
            (WAIT + LATE * 2, true)
        );

        // The next counts from there.
        punctuality.expect(late + WAIT);
        assert_eq!(
            (punctuality.lost(late + WAIT + LATE), punctuality.was_late()),
            (Duration::ZERO, false)
        );
    }

    #[test]
    fn a_scan_in_time_and_one_that_waited_for_a_worker_lose_nothing() {
        let start = Instant::now();
        let mut punctuality = Punctuality::from(start);
        punctuality.expect(start + WAIT);
        assert_eq!(punctuality.lost(start), Duration::ZERO);
        assert_eq!(
            (punctuality.lost(start + WAIT * 100), punctuality.was_late()),
            (Duration::ZERO, false)
        );
    }
}
