//! How long workers have been ready and had no processor, because others ran: as the kernel counts it for a thread, in
//! the second field of proc(5)'s `schedstat`. On a busy machine that, and not a fiber, is what most stalls are.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::time::Duration;

use crate::policy::WorkerId;
use crate::sched::pool::PoolShared;

/// A descriptor for each worker.
#[derive(Debug)]
pub(super) struct Delays(Vec<Option<File>>);

impl Delays {
    /// When the workers have started. Without proc or descriptors nothing is counted.
    pub(super) fn of(pool: &PoolShared) -> Self {
        let open = |thread: u32| File::open(format!("/proc/self/task/{thread}/schedstat")).ok();
        Self(pool.workers.iter().map(|worker| open(worker.thread())).collect())
    }

    /// Since the worker has started; up to when it last ran. 0 if the kernel does not say. Two microseconds or so.
    pub(super) fn now(&self, worker: WorkerId) -> Duration {
        let mut text = [0; 96];
        let file = self.0.get(worker).and_then(Option::as_ref);
        let len = file.and_then(|file| file.read_at(&mut text, 0).ok()).unwrap_or(0);
        Duration::from_nanos(waited(&text[..len]).unwrap_or(0))
    }
}

/// The second of the numbers.
fn waited(text: &[u8]) -> Option<u64> {
    std::str::from_utf8(text).ok()?.split_ascii_whitespace().nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_second_field_is_read() {
        assert_eq!(waited(b"1200 98605 1\n"), Some(98605));
        assert_eq!(waited(b""), None);
        assert_eq!(waited(b"12 x 1\n"), None);
    }
}
