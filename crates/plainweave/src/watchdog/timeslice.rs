//! How long a turn a thread asks of the kernel's scheduler.
//!
//! Since Linux 6.6 (EEVDF) a thread that has been given a processor keeps it for a slice, 1 to 4 ms, whoever wakes
//! meanwhile. So whatever wakes on the processor of a fiber that computes is late by milliseconds, though another
//! processor be idle: the watchdog, a worker that it has called, a client on the same machine. Since 6.12 a thread that
//! asks for a shorter slice goes first (sched_setattr(2), `sched_runtime`; `PREEMPT_SHORT` in kernel/sched/features.h).
//! Shares of the processor stay what they were, in either direction, and no privilege is needed.
//!
//! * The watchdog asks for the shortest: it runs for some 20 us at a time, and is of use at once or not at all.
//! * A stalled worker is given the longest until it goes on, if it computes: then it does not mind when. Many seem held
//!   up that only wait, for a processor or a disk; to let others go before those would make it worse.
//!
//! What such a worker starts meanwhile, threads and programs, inherits the long slice. The pool's own threads put
//! theirs right ([`sys::forget_inherited_slice`]).
//!
//! A kernel without this, a thread of another class (`SCHED_FIFO`), or a refusal: everything stays as it was.

use std::time::{Duration, Instant};

use crate::sys::{self, LONGEST_SLICE};

/// Between two looks at how much a thread computes, at least.
const APART: Duration = Duration::from_micros(500);

/// A worker that may be held up, and what was done about its slice.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Turn {
    /// When it was looked at, and how much of a processor it had used by then.
    looked: Option<(Instant, Duration)>,
    /// Its own slice, while it has the longest.
    usual: Option<u64>,
}

impl Turn {
    /// The worker is held up: others go before it from the second call on, at least [`APART`] later, if it has computed
    /// for half of the time between.
    pub(super) fn stalled(&mut self, thread: u32, now: Instant) {
        if self.usual.is_some() || self.looked.is_some_and(|(then, _)| now - then < APART) {
            return;
        }
        let Some(used) = processor_time(thread) else { return };
        if self.looked.is_some_and(|(then, before)| used.saturating_sub(before) >= (now - then) / 2) {
            self.usual = sys::set_time_slice(thread, LONGEST_SLICE);
        }
        self.looked = Some((now, used));
    }

    /// It goes on. The slice to be restored, if another was given.
    pub(super) fn end(&mut self) -> Option<u64> {
        std::mem::take(self).usual
    }
}

/// Undoes what [`Turn::stalled`] has done, unless somebody else has changed it since.
pub(super) fn restore(thread: u32, usual: u64) {
    sys::restore_time_slice(thread, usual);
}

/// Lets the calling thread go before others.
pub(super) fn shorten() {
    sys::set_time_slice(0, sys::SHORTEST_SLICE);
}

/// How much of a processor a thread of this process has used.
fn processor_time(thread: u32) -> Option<Duration> {
    // As pthread_getcpuclockid(3) makes it: the clock of the scheduler (2) of a thread (4).
    let clock = !(thread as libc::clockid_t) << 3 | 6;
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the kernel writes a `timespec`; a clock that is none is refused.
    let result = unsafe { libc::clock_gettime(clock, &mut time) };
    (result == 0).then(|| Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec as u32))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn own() -> u32 {
        rustix::thread::gettid().as_raw_pid() as u32
    }

    /// Computes for so long, and a little more.
    fn compute(time: Duration) {
        let start = processor_time(own()).unwrap();
        while processor_time(own()).unwrap() - start <= time {
            std::hint::spin_loop();
        }
    }

    #[test]
    fn a_thread_that_computes_has_a_long_slice_until_it_ends() {
        let Some(usual) = sys::time_slice(0) else { return };
        let mut turn = Turn::default();
        while turn.usual.is_none() {
            turn.stalled(own(), Instant::now());
            compute(APART);
        }
        assert_eq!((sys::time_slice(0).unwrap(), turn.usual), (LONGEST_SLICE, Some(usual)));
        // What it starts inherits that.
        let inherits = std::thread::spawn(|| {
            let inherited = sys::time_slice(0).unwrap();
            sys::forget_inherited_slice();
            (inherited, sys::time_slice(0).unwrap())
        });
        let (inherited, then) = inherits.join().unwrap();
        assert!(inherited == LONGEST_SLICE && then < LONGEST_SLICE, "{inherited}, {then}");
        restore(own(), turn.end().unwrap());
        assert_eq!(sys::time_slice(0).unwrap(), usual);
    }

    #[test]
    fn a_thread_that_sleeps_keeps_its_slice() {
        let Some(usual) = sys::time_slice(0) else { return };
        let mut turn = Turn::default();
        for _ in 0..3 {
            turn.stalled(own(), Instant::now());
            std::thread::sleep(APART * 8);
        }
        assert_eq!((sys::time_slice(0).unwrap(), turn.usual), (usual, None));
    }

    #[test]
    fn a_thread_that_is_none_is_no_harm() {
        // The kernel's numbers end before that (PID_MAX_LIMIT).
        let (mut turn, none) = (Turn::default(), (1 << 22) + 1);
        (0..2).for_each(|n| turn.stalled(none, Instant::now() + n * APART));
        assert!(turn.looked.is_none() && sys::set_time_slice(none, LONGEST_SLICE).is_none());
    }
}
