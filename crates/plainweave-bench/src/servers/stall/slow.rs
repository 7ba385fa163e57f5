//! What a slow request does.
//!
//! To sleep is to block the thread in the kernel, as ordinary code does that knows of no runtime,
//! and each system treats it as any such call. Go's program calls nanosleep(2) by
//! `syscall.Nanosleep`: `time.Sleep` would suspend the goroutine only. Go's scheduler is notified
//! of such a call, as of a read of a file, and moves the goroutines behind it to another thread.
//! Tokio's tasks call `std::thread::sleep`, as careless users do.

use std::time::{Duration, Instant};

use clap::ValueEnum;

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum SlowBy {
    /// Keep a processor busy
    Compute,
    /// Block the thread in the kernel: std::thread::sleep, in Go syscall.Nanosleep
    Sleep,
}

/// What a slow request does, and for how long.
#[derive(Clone, Copy, Debug)]
pub(super) struct Slow {
    pub(super) by: SlowBy,
    pub(super) time: Duration,
}

impl SlowBy {
    /// Returns its name on the command line, here and of Go's program.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Compute => "compute",
            Self::Sleep => "sleep",
        }
    }
}

impl Slow {
    pub(super) fn run(self) {
        match self.by {
            SlowBy::Compute => {
                let start = Instant::now();
                while start.elapsed() < self.time {
                    std::hint::spin_loop();
                }
            }
            SlowBy::Sleep => std::thread::sleep(self.time),
        }
    }
}

#[cfg(test)]
mod tests {
    use rustix::time::{ClockId, clock_gettime};

    use super::*;

    const TIME: Duration = Duration::from_millis(20);

    /// CPU time of this thread while it runs a slow request.
    fn cpu_of(by: SlowBy) -> Duration {
        let start = Instant::now();
        let cpu = || Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).expect("a time");
        let before = cpu();
        Slow { by, time: TIME }.run();
        assert!(start.elapsed() >= TIME, "it takes its time");
        cpu() - before
    }

    #[test]
    fn one_that_sleeps_leaves_the_processor_to_others() {
        assert!(cpu_of(SlowBy::Sleep) < TIME / 2);
    }
}
