//! How long a time slice a thread requests from the kernel's scheduler.
//!
//! Since Linux 6.6 (EEVDF) a thread keeps a processor for its time slice, 1 to 4 ms, whatever wakes
//! meanwhile. So a thread that wakes on the processor of a computing fiber is late by milliseconds,
//! even if another processor is idle: the watchdog, a worker that it has woken, a client on the
//! same machine. Since 6.12 a thread that requests a shorter slice goes first (sched_setattr(2),
//! `sched_runtime`; `PREEMPT_SHORT` in kernel/sched/features.h). Shares of the processor do not
//! change, in either direction, and no privilege is needed.
//!
//! * The watchdog requests the shortest: it runs for some 20 us at a time, and is useful at once or
//!   not at all.
//! * A stalled worker that computes is given the longest until it continues: then a delay costs it
//!   nothing. Many workers that seem stalled only wait, for a processor or a disk; letting others
//!   go before those would make it worse.
//!
//! Threads and programs that such a worker starts meanwhile inherit the long slice. The pool's own
//! threads restore theirs ([`sys::forget_inherited_slice`]).
//!
//! On a kernel without this, for a thread of another class (`SCHED_FIFO`), or after a refusal,
//! nothing changes.

use std::time::{Duration, Instant};

use super::thread::processor_time;
use crate::sys::{self, LONGEST_SLICE};

/// Minimum interval between two readings of how much a thread computes.
const APART: Duration = Duration::from_micros(500);

/// A worker that may be stalled, and its change of time slice.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Turn {
    /// The time of the last reading, and how much of a processor it had used by then.
    looked: Option<(Instant, Duration)>,
    /// Its own time slice, while it has the longest.
    usual: Option<u64>,
}

impl Turn {
    /// Records that the worker is stalled. From the second call on, at least [`APART`] later, other
    /// threads go before it if it has computed for half of the time in between.
    pub(super) fn stalled(&mut self, thread: u32, now: Instant) {
        if self.usual.is_some() || self.looked.is_some_and(|(then, _)| now - then < APART) {
            return;
        }
        let Some(used) = processor_time(thread) else {
            return;
        };
        if self
            .looked
            .is_some_and(|(then, before)| used.saturating_sub(before) >= (now - then) / 2)
        {
            self.usual = sys::set_time_slice(thread, LONGEST_SLICE);
        }
        self.looked = Some((now, used));
    }

    /// Records that the worker runs again. Returns the time slice to restore, if it was changed.
    pub(super) fn end(&mut self) -> Option<u64> {
        std::mem::take(self).usual
    }
}

/// Undoes the change by [`Turn::stalled`], unless the time slice has been changed again since.
pub(super) fn restore(thread: u32, usual: u64) {
    sys::restore_time_slice(thread, usual);
}

/// Lets the calling thread run before others.
pub(super) fn shorten() {
    sys::set_time_slice(0, sys::SHORTEST_SLICE);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn own() -> u32 {
        rustix::thread::gettid().as_raw_pid() as u32
    }

    /// Computes for at least `time`.
    fn compute(time: Duration) {
        let start = processor_time(own()).unwrap();
        while processor_time(own()).unwrap() - start <= time {
            std::hint::spin_loop();
        }
    }

    #[test]
    fn a_thread_that_computes_has_a_long_slice_until_it_ends() {
        let Some(usual) = sys::time_slice(0) else {
            return;
        };
        let mut turn = Turn::default();
        while turn.usual.is_none() {
            turn.stalled(own(), Instant::now());
            compute(APART);
        }

        assert_eq!(
            (sys::time_slice(0).unwrap(), turn.usual),
            (LONGEST_SLICE, Some(usual))
        );
        // A thread that it starts inherits that.
        let inherits = std::thread::spawn(|| {
            let inherited = sys::time_slice(0).unwrap();
            sys::forget_inherited_slice();
            (inherited, sys::time_slice(0).unwrap())
        });

        let (inherited, then) = inherits.join().unwrap();
        assert!(
            inherited == LONGEST_SLICE && then < LONGEST_SLICE,
            "{inherited}, {then}"
        );
        restore(own(), turn.end().unwrap());
        assert_eq!(sys::time_slice(0).unwrap(), usual);
    }

    #[test]
    fn a_thread_that_sleeps_keeps_its_slice() {
        let Some(usual) = sys::time_slice(0) else {
            return;
        };
        let mut turn = Turn::default();
        for _ in 0..3 {
            turn.stalled(own(), Instant::now());
            std::thread::sleep(APART * 8);
        }

        assert_eq!((sys::time_slice(0).unwrap(), turn.usual), (usual, None));
    }

    #[test]
    fn a_thread_that_is_none_is_no_harm() {
        // The kernel's thread numbers end below that (PID_MAX_LIMIT).
        let mut turn = Turn::default();
        let none = (1 << 22) + 1;
        (0..2).for_each(|n| turn.stalled(none, Instant::now() + n * APART));
        assert!(turn.looked.is_none() && sys::set_time_slice(none, LONGEST_SLICE).is_none());
    }
}
