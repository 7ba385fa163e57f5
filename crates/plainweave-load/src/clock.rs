//! The clock of a load.

use std::time::Duration;

/// A moment in nanoseconds since the start of load, or a span of time.
pub(super) type Nanos = u64;

pub(super) const SECOND: Nanos = 1_000_000_000;

/// Returns a span of time; 584 years stand for longer ones.
pub(super) fn nanos(duration: Duration) -> Nanos {
    Nanos::try_from(duration.as_nanos()).unwrap_or(Nanos::MAX)
}
