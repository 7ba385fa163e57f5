//! Time as the store sees it: whole seconds, handed to every call.
//!
//! The store reads no clock. Its caller reads one [`Clock`] for a whole batch of commands and
//! passes the [`Time`] on, so a get costs no call for time, and a test passes what it likes.

use std::time::{SystemTime, UNIX_EPOCH};

use rustix::time::{ClockId, clock_gettime};

/// Relative expiry times are at most this many seconds; larger ones are seconds since 1970. A rule
/// of the protocol.
pub const LONGEST_RELATIVE: i64 = 60 * 60 * 24 * 30;

/// A second on the store's clock. The clock starts at [`Time::START`]; there is no earlier time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(pub u32);

impl Time {
    /// The first second. It is not 0, so that 0 can mean "never" in an [`Expiry`] and a time in the
    /// past exists.
    pub const START: Self = Self(2);

    /// `seconds` later, or the last second there is.
    #[must_use]
    pub const fn after(self, seconds: u32) -> Self {
        Self(self.0.saturating_add(seconds))
    }

    /// Seconds since `earlier`, or 0 if that is not earlier.
    #[must_use]
    pub const fn since(self, earlier: Self) -> u32 {
        self.0.saturating_sub(earlier.0)
    }
}

/// When an item ends: it is there before that second, and gone from its beginning on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Expiry(pub(super) u32);

impl Expiry {
    /// Only eviction ends the item.
    pub const NEVER: Self = Self(0);
    /// The item is gone before anybody can read it.
    pub const AT_ONCE: Self = Self(1);

    /// Makes an expiry at `time`.
    #[must_use]
    pub const fn at(time: Time) -> Self {
        Self(if time.0 == 0 { 1 } else { time.0 })
    }

    /// Returns whether it has passed.
    #[must_use]
    pub const fn passed(self, now: Time) -> bool {
        self.0 != 0 && self.0 <= now.0
    }

    /// Returns the second in which the item ends, or `None` for never.
    #[must_use]
    pub const fn time(self) -> Option<Time> {
        if self.0 == 0 {
            None
        } else {
            Some(Time(self.0))
        }
    }
}

/// The clock of a server: seconds since it was made, beginning with [`Time::START`].
#[derive(Debug)]
pub struct Clock {
    /// Nanoseconds of the monotonic clock at [`Time::START`].
    start: u64,
    /// Seconds since 1970 at [`Time`] 0.
    epoch: u64,
}

impl Clock {
    /// Makes a clock that starts now.
    #[must_use]
    pub fn start() -> Self {
        let since = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        // Its seconds begin when those of 1970's count begin: a date then ends an item in that very
        // second.
        let start = read(ClockId::Monotonic).saturating_sub(since.subsec_nanos().into());
        Self {
            start,
            epoch: since.as_secs().saturating_sub(u64::from(Time::START.0)),
        }
    }

    /// Returns the current second. Monotonic; some 8 ns, so ask once for a batch of commands. It is
    /// the kernel's clock as of its last tick: a second begins a tick late (4 ms where there are
    /// 250 a second), and never early.
    #[must_use]
    pub fn now(&self) -> Time {
        let since = read(ClockId::MonotonicCoarse).saturating_sub(self.start);
        Time::START.after(u32::try_from(since / 1_000_000_000).unwrap_or(u32::MAX))
    }

    /// Seconds since 1970 at `time`.
    #[must_use]
    pub const fn unix(&self, time: Time) -> u64 {
        self.epoch + time.0 as u64
    }

    /// Returns what `exptime` of the protocol means at `now`: 0 is never, negative at once, up to
    /// 30 days relative to `now`, and anything larger seconds since 1970.
    #[must_use]
    pub fn expiry(&self, exptime: i64, now: Time) -> Expiry {
        match exptime {
            0 => Expiry::NEVER,
            ..0 => Expiry::AT_ONCE,
            1..=LONGEST_RELATIVE => {
                Expiry::at(now.after(u32::try_from(exptime).unwrap_or(u32::MAX)))
            }
            _ => {
                let since = exptime.unsigned_abs().saturating_sub(self.epoch);
                // A date before the clock began is in the past, whatever second it is.
                Expiry(
                    u32::try_from(since)
                        .unwrap_or(u32::MAX)
                        .max(Expiry::AT_ONCE.0),
                )
            }
        }
    }
}

/// Returns a clock in nanoseconds.
fn read(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

#[cfg(test)]
mod tests {
    use super::{Clock, Expiry, LONGEST_RELATIVE, Time};

    #[test]
    fn exptime_follows_the_protocol() {
        let clock = Clock::start();
        let now = Time(1000);
        assert_eq!(clock.expiry(0, now), Expiry::NEVER);
        assert_eq!(clock.expiry(-1, now), Expiry::AT_ONCE);
        assert_eq!(clock.expiry(10, now), Expiry::at(Time(1010)));
        assert_eq!(
            clock.expiry(LONGEST_RELATIVE, now),
            Expiry::at(now.after(2_592_000))
        );
        assert!(
            clock.expiry(LONGEST_RELATIVE + 1, now).passed(now),
            "a date in 1970"
        );
        let date = i64::try_from(clock.unix(Time(1234))).unwrap();

        assert_eq!(clock.expiry(date, now), Expiry::at(Time(1234)));
        assert!(!clock.expiry(i64::MAX, now).passed(Time(u32::MAX - 1)));
    }

    #[test]
    fn an_item_ends_with_the_beginning_of_its_second() {
        assert!(!Expiry::at(Time(10)).passed(Time(9)));
        assert!(Expiry::at(Time(10)).passed(Time(10)));
        assert!(!Expiry::NEVER.passed(Time(u32::MAX)));
        assert!(Expiry::AT_ONCE.passed(Time::START));
    }
}
