//! The clock of the files' caches.

use rustix::time::{ClockId, clock_gettime};

/// Returns milliseconds of the coarse monotonic clock: some four milliseconds wrong, and a fifth of
/// the price.
pub(super) fn coarse_millis() -> u64 {
    let now = clock_gettime(ClockId::MonotonicCoarse);
    now.tv_sec.unsigned_abs() * 1000 + now.tv_nsec.unsigned_abs() / 1_000_000
}
