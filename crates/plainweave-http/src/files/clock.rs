//! The clock of the files' caches.

use rustix::time::{ClockId, clock_gettime};

/// A moment by [`coarse_millis`], or a span of time: milliseconds.
pub(super) type Millis = u64;

/// Reads the coarse monotonic clock: some four milliseconds wrong, and a fifth of the price.
pub(super) fn coarse_millis() -> Millis {
    let now = clock_gettime(ClockId::MonotonicCoarse);
    now.tv_sec.unsigned_abs() * 1000 + now.tv_nsec.unsigned_abs() / 1_000_000
}
