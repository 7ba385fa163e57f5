//! What a worker's thread does while its counts stand still, as the kernel says.
//!
//! A worker may lack nothing but a processor: its own has used up what a quota gives it, while that
//! of the watchdog has not, or other programs use it. No fiber holds the worker up then, and a
//! spare worker would take processor time from it.

#![expect(unsafe_code, reason = "`clock_gettime(2)` of another thread")]

use std::fs;
use std::time::Duration;

/// What a thread does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Doing {
    /// It computes; also if the kernel does not say.
    Computes,
    /// It waits in the kernel.
    Waits,
    /// It could go on, and has no processor.
    LacksProcessor,
}

/// Returns what a thread of this process does, and how much processor time it has used. Takes a
/// microsecond for one that computes, some 15 for others.
pub(super) fn doing(thread: u32) -> (Doing, Option<Duration>) {
    let used = processor_time(thread);
    // A thread that runs has used more by the next reading.
    if used.is_none() || processor_time(thread) != used {
        return (Doing::Computes, used);
    }
    let stat = fs::read_to_string(format!("/proc/self/task/{thread}/stat")).unwrap_or_default();
    let doing = match state(&stat) {
        Some('S' | 'D') => Doing::Waits,
        Some('R') => Doing::LacksProcessor,
        _ => Doing::Computes,
    };

    (doing, used)
}

/// Returns whether a thread of this process has had no processor since it had used that much: one
/// that waited in the kernel still does.
pub(super) fn has_not_run(thread: u32, used: Duration) -> bool {
    processor_time(thread) == Some(used)
}

/// Returns the state in a line of proc_pid_stat(5): what follows the name, which may contain
/// anything.
fn state(stat: &str) -> Option<char> {
    stat.rsplit_once(") ")?.1.chars().next()
}

/// Returns how much processor time a thread of this process has used.
pub(super) fn processor_time(thread: u32) -> Option<Duration> {
    // The clock that pthread_getcpuclockid(3) returns: the scheduler's clock (2) of a thread (4).
    let clock = !(thread as libc::clockid_t) << 3 | 6;
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };

    // SAFETY: the kernel writes a `timespec`, and rejects an invalid clock.
    let result = unsafe { libc::clock_gettime(clock, &mut time) };
    (result == 0).then(|| Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec as u32))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst};
    use std::thread;
    use std::time::Instant;

    use rustix::thread::{CpuSet, gettid, sched_getaffinity, sched_setaffinity};

    use super::*;

    #[test]
    fn the_state_follows_the_name() {
        assert_eq!(state("71 (plainweave-0) S 1 71 71 0"), Some('S'));
        assert_eq!(state("71 (a) R b) R 1 71"), Some('R'));
        assert_eq!(state(""), None);
    }

    /// Starts a thread that computes until `end` is set, with `prepare` as the first thing; waits
    /// for its number.
    fn computes<'s, 'e>(
        scope: &'s thread::Scope<'s, 'e>,
        end: &'e AtomicBool,
        prepare: impl FnOnce() + Send + 's,
        number: &'e AtomicU32,
    ) -> u32 {
        scope.spawn(move || {
            prepare();
            number.store(gettid().as_raw_pid() as u32, SeqCst);
            while !end.load(SeqCst) {
                std::hint::spin_loop();
            }
        });
        while number.load(SeqCst) == 0 {
            thread::yield_now();
        }
        number.load(SeqCst)
    }

    /// Waits until a thread is seen to do that, for a minute at most.
    fn is_seen(thread: u32, what: Doing) -> bool {
        let start = Instant::now();
        while doing(thread).0 != what {
            if start.elapsed() > Duration::from_secs(60) {
                return false;
            }
            thread::sleep(Duration::from_millis(1));
        }
        true
    }

    #[test]
    fn a_thread_computes_or_waits() {
        let end = AtomicBool::new(false);
        let number = AtomicU32::new(0);
        thread::scope(|scope| {
            let computing = computes(scope, &end, || {}, &number);
            let seen = is_seen(computing, Doing::Computes);
            end.store(true, SeqCst);
            assert!(seen);
        });
        let own = gettid().as_raw_pid() as u32;
        assert!(thread::scope(|scope| scope
            .spawn(|| is_seen(own, Doing::Waits))
            .join()
            .expect("no panic")));

        assert_eq!(
            doing((1 << 22) + 1),
            (Doing::Computes, None),
            "there is no such thread"
        );
    }

    /// Two threads share one processor, so mostly one of them lacks it.
    #[test]
    fn a_thread_that_could_go_on_lacks_a_processor() {
        let all = sched_getaffinity(None).expect("own processors");
        let first = (0..CpuSet::MAX_CPU)
            .find(|cpu| all.is_set(*cpu))
            .expect("a processor");
        let bind = move || {
            let mut one = CpuSet::new();
            one.set(first);
            sched_setaffinity(None, &one).expect("its own processor");
        };

        let end = AtomicBool::new(false);
        let numbers = [const { AtomicU32::new(0) }; 2];
        thread::scope(|scope| {
            let both = [0, 1].map(|i| computes(scope, &end, bind, &numbers[i]));
            let seen = both.map(|thread| is_seen(thread, Doing::LacksProcessor));
            end.store(true, SeqCst);
            assert_eq!(seen, [true, true]);
        });
    }
}
