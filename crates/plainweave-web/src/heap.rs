//! Gives memory back to the kernel after a crowd.
//!
//! glibc keeps what was freed in the middle of its arenas: after 50 connections with 100 unread
//! answers each, 741 of 848 MB stayed with the process for as long as it ran, of which it used 17.
//! `malloc_trim` gives that back, in some 40 ms, in which requests wait for each other. So it is
//! called when hardly any request is in progress, by a thread of its own, and only when the process
//! has become larger than it was after the last time. Tuning glibc's thresholds was tried:
//! `mmap_threshold=65536` leaves 196 MB and makes each buffer of 64 KiB a system call,
//! `trim_threshold` and a single arena change nothing.

use std::fs;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use plainweave_serve::accept::InProgress;

/// Between two looks.
const INTERVAL: Duration = Duration::from_secs(2);
/// What the process may gain before it is worth the time.
const GROWTH: usize = 32 << 20;
/// Requests in progress that are hardly any.
const CALM: usize = 8;

/// The thread, until this is dropped.
#[derive(Debug)]
pub(super) struct HeapKeeper {
    end: Arc<(Mutex<bool>, Condvar)>,
    thread: Option<JoinHandle<()>>,
}

impl HeapKeeper {
    /// Starts it. Without a thread the memory stays.
    pub(super) fn start(in_progress: Arc<InProgress>) -> Self {
        let end = Arc::<(Mutex<bool>, Condvar)>::default();
        let ended = end.clone();
        let keep = move || {
            let mut heap = Heap {
                last: 0,
                trimmed: resident().unwrap_or(0),
            };

            while !is_over(&ended, INTERVAL) {
                let Some(now) = resident() else { return };
                if heap.is_worth_it(now) && in_progress.now() <= CALM {
                    plainweave::trim_heap();
                    heap.trimmed = resident().unwrap_or(now);
                }
            }
        };

        let thread = std::thread::Builder::new()
            .name("heap".to_owned())
            .spawn(keep)
            .ok();
        Self { end, thread }
    }
}

impl Drop for HeapKeeper {
    fn drop(&mut self) {
        *self.end.0.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.end.1.notify_all();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Waits for `limit` at most. Returns whether the end has come.
fn is_over(end: &(Mutex<bool>, Condvar), limit: Duration) -> bool {
    let ended = end.0.lock().unwrap_or_else(PoisonError::into_inner);
    *end.1
        .wait_timeout_while(ended, limit, |ended| !*ended)
        .unwrap_or_else(PoisonError::into_inner)
        .0
}

/// The process's size, in bytes.
struct Heap {
    /// At the last look.
    last: usize,
    /// When it was trimmed last, or at the start.
    trimmed: usize,
}

impl Heap {
    /// Returns whether the process, which has `now` bytes, has become much larger, and does not
    /// grow at the moment.
    fn is_worth_it(&mut self, now: usize) -> bool {
        let grows = now > std::mem::replace(&mut self.last, now);
        // What has become smaller by itself may grow again.
        self.trimmed = self.trimmed.min(now);
        !grows && now >= self.trimmed + GROWTH
    }
}

/// Returns the resident memory of this process in bytes.
fn resident() -> Option<usize> {
    let text = fs::read_to_string("/proc/self/statm").ok()?;
    let pages: usize = text.split(' ').nth(1)?.parse().ok()?;
    Some(pages * rustix::param::page_size())
}

#[cfg(test)]
mod tests {

    use super::*;

    const MIB: usize = 1 << 20;

    #[test]
    fn what_has_grown_is_trimmed_once_it_grows_no_more() {
        let mut heap = Heap {
            last: 0,
            trimmed: 20 * MIB,
        };

        for (now, worth_it) in [
            (30, false),
            (30, false),
            (100, false),
            (400, false),
            (390, true),
            (390, true),
        ] {
            assert_eq!(heap.is_worth_it(now * MIB), worth_it, "{now}");
        }

        // It was used: another trim would gain nothing.
        heap.trimmed = 380 * MIB;
        for (now, worth_it) in [(390, false), (390, false), (412, false), (412, true)] {
            assert_eq!(heap.is_worth_it(now * MIB), worth_it, "{now}");
        }
        // It has shrunk meanwhile.
        for (now, worth_it) in [
            (50, false),
            (81, false),
            (81, false),
            (82, false),
            (82, true),
        ] {
            assert_eq!(heap.is_worth_it(now * MIB), worth_it, "{now}");
        }
    }

    #[test]
    fn this_process_has_a_size() {
        assert!(resident().is_some_and(|bytes| bytes > MIB));
    }
}
