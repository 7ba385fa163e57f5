//! How long workers were ready to run but had no processor, because other threads ran: the kernel
//! counts it per thread, in the second field of `schedstat` in proc(5). On a busy machine most
//! stalls are this, and not a fiber.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::time::Duration;

use crate::policy::WorkerId;
use crate::sched::pool::PoolShared;

/// One descriptor per worker.
#[derive(Debug)]
pub(super) struct Delays(Vec<Option<File>>);

impl Delays {
    /// Opens the files, after the workers have started. Without proc or descriptors nothing is
    /// counted.
    pub(super) fn of(pool: &PoolShared) -> Self {
        let open = |thread: u32| File::open(format!("/proc/self/task/{thread}/schedstat")).ok();
        Self(
            pool.workers
                .iter()
                .map(|worker| open(worker.thread()))
                .collect(),
        )
    }

    /// Returns the worker's delay from its start to when it last ran; 0 if the kernel does not say.
    /// Takes about two microseconds.
    pub(super) fn now(&self, worker: WorkerId) -> Duration {
        let mut text = [0; 96];
        let file = self.0.get(worker).and_then(Option::as_ref);
        let len = file
            .and_then(|file| file.read_at(&mut text, 0).ok())
            .unwrap_or(0);
        Duration::from_nanos(waited(&text[..len]).unwrap_or(0))
    }
}

/// Returns the second number.
fn waited(text: &[u8]) -> Option<u64> {
    std::str::from_utf8(text)
        .ok()?
        .split_ascii_whitespace()
        .nth(1)?
        .parse()
        .ok()
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
