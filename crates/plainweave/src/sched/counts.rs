//! What a worker counts, as other threads see it.
//!
//! The worker counts in plain words of its own and publishes them in batches: once a stride
//! (`sched/worker`), and before it sleeps. So the figures of a worker that sleeps are exact, those
//! of a busy one are up to 64 switches old, and those of a worker that a fiber holds up stand
//! still. Nobody else writes here, and every word only grows.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::policy::Counts;
use crate::timer::Nanos;

/// The published counts of a worker.
#[derive(Debug, Default)]
pub(crate) struct PublishedCounts {
    steal_attempts: AtomicU64,
    steals: AtomicU64,
    stolen: AtomicU64,
    helped: AtomicU64,
    spills: AtomicU64,
    insert_retries: AtomicU64,
    insert_overflows: AtomicU64,
    /// In nanoseconds, at least 1; 0: not known.
    longest_wait: AtomicU64,
    messages: AtomicU64,
    pub(crate) idle: IdleTime,
}

impl PublishedCounts {
    /// Publishes what the policy has counted, and the number of messages received.
    ///
    /// Context: the worker.
    pub(super) fn publish(&self, counts: &Counts, messages: u64) {
        let nanos = |wait: Duration| u64::try_from(wait.as_nanos()).unwrap_or(u64::MAX).max(1);
        for (word, count) in [
            (&self.steal_attempts, counts.steal_attempts),
            (&self.steals, counts.steals),
            (&self.stolen, counts.stolen),
            (&self.helped, counts.helped),
            (&self.spills, counts.spills),
            (&self.insert_retries, counts.insert_retries),
            (&self.insert_overflows, counts.insert_overflows),
            (&self.longest_wait, counts.longest_wait.map_or(0, nanos)),
            (&self.messages, messages),
        ] {
            word.store(count, Ordering::Relaxed);
        }
    }

    /// Returns what the policy had counted when the worker last published it.
    pub(crate) fn policy(&self) -> Counts {
        let read = |word: &AtomicU64| word.load(Ordering::Relaxed);
        let longest_wait = read(&self.longest_wait);
        Counts {
            steal_attempts: read(&self.steal_attempts),
            steals: read(&self.steals),
            stolen: read(&self.stolen),
            helped: read(&self.helped),
            spills: read(&self.spills),
            insert_retries: read(&self.insert_retries),
            insert_overflows: read(&self.insert_overflows),
            longest_wait: (longest_wait > 0).then(|| Duration::from_nanos(longest_wait)),
        }
    }

    /// Returns the number of messages that the worker has received.
    pub(crate) fn messages(&self) -> u64 {
        self.messages.load(Ordering::Relaxed)
    }
}

/// How long a worker has slept so far, in nanoseconds on the pool's clock, also while it sleeps. In
/// one word, so that a reader never counts a sleep twice: the time times 2 while the worker is
/// awake; while it sleeps, the point in time since which it would have had to sleep to have slept
/// for so long, times 2, plus 1.
#[derive(Debug, Default)]
pub(crate) struct IdleTime(AtomicU64);

impl IdleTime {
    /// Notes that the worker falls asleep now.
    ///
    /// Context: the worker.
    pub(super) fn begin(&self, now: Nanos) {
        let slept = self.0.load(Ordering::Relaxed) >> 1;
        self.0
            .store(now.saturating_sub(slept) << 1 | 1, Ordering::Relaxed);
    }

    /// Notes that it is awake, after a [`Self::begin`].
    ///
    /// Context: the worker.
    pub(super) fn end(&self, now: Nanos) {
        self.0.store(
            now.saturating_sub(self.0.load(Ordering::Relaxed) >> 1) << 1,
            Ordering::Relaxed,
        );
    }

    /// Returns how long it has slept. `now`: `None` if the caller does not know the pool's clock;
    /// then a sleep that has not ended is not counted.
    pub(crate) fn read(&self, now: Option<Nanos>) -> Option<Duration> {
        let word = self.0.load(Ordering::Relaxed);
        let slept = if word & 1 == 0 {
            word >> 1
        } else {
            now?.saturating_sub(word >> 1)
        };
        Some(Duration::from_nanos(slept))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idle_time_grows_during_a_sleep_too() {
        let idle = IdleTime::default();
        let read = |now| idle.read(Some(now)).map(|time| time.as_nanos());
        assert_eq!(read(100), Some(0));
        idle.begin(100);
        assert_eq!((read(100), read(130)), (Some(0), Some(30)));
        assert_eq!(idle.read(None), None);
        idle.end(140);
        assert_eq!((read(140), read(500)), (Some(40), Some(40)));
        idle.begin(1000);
        assert_eq!((read(1000), read(1001)), (Some(40), Some(41)));
        idle.end(1002);
        assert_eq!(idle.read(None), Some(Duration::from_nanos(42)));
    }

    #[test]
    fn what_is_published_is_read() {
        let published = PublishedCounts::default();
        assert_eq!(published.policy(), Counts::default());
        let counts = |wait| Counts {
            steal_attempts: 1,
            steals: 2,
            stolen: 3,
            helped: 4,
            spills: 5,
            insert_retries: 6,
            insert_overflows: 7,
            longest_wait: Some(Duration::from_nanos(wait)),
        };

        // Known, and too short for the clock.
        published.publish(&counts(0), 9);
        assert_eq!((published.policy(), published.messages()), (counts(1), 9));
    }
}
