//! Counters, written by one and read by all.
//!
//! A turn of a connection borrows `scratch`, and with it a tally that nothing else writes
//! meanwhile: so a count is a load and a store, not a locked addition, and no two workers share a
//! cache line. `stats` adds up all tallies; each sum taken while workers count is right for some
//! moment, but not all for the same one.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use super::store::{CLASSES, class_of};

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident = $text:literal,)*) => {
        /// What is counted; the names are memcached's.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Count {
            $($(#[$doc])* $name,)*
        }

        /// Names in the order of the counters.
        pub(crate) const NAMES: &[&str] = &[$($text,)*];
    };
}

counters! {
    CmdGet = "cmd_get",
    CmdSet = "cmd_set",
    CmdFlush = "cmd_flush",
    CmdTouch = "cmd_touch",
    CmdMeta = "cmd_meta",
    GetHits = "get_hits",
    GetMisses = "get_misses",
    DeleteMisses = "delete_misses",
    DeleteHits = "delete_hits",
    IncrMisses = "incr_misses",
    IncrHits = "incr_hits",
    DecrMisses = "decr_misses",
    DecrHits = "decr_hits",
    CasMisses = "cas_misses",
    CasHits = "cas_hits",
    CasBadval = "cas_badval",
    TouchHits = "touch_hits",
    TouchMisses = "touch_misses",
    StoreTooLarge = "store_too_large",
    StoreNoMemory = "store_no_memory",
    IdleKicks = "idle_kicks",
    BytesRead = "bytes_read",
    BytesWritten = "bytes_written",
    ConnYields = "conn_yields",
    /// Connections that took no answer for too long.
    SlowReaders = "slow_readers",
}

/// Commands whose latency is counted separately.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Get,
    Set,
    Delete,
    Count,
    Touch,
    MetaGet,
    MetaSet,
    MetaDelete,
    MetaCount,
    Other,
}

/// Names in the order of the kinds.
pub(crate) const KINDS: [&str; 10] = [
    "get", "set", "delete", "incr", "touch", "mg", "ms", "md", "ma", "other",
];

/// Parts of a factor of two that the histogram tells apart.
const PARTS: usize = 4;
/// Powers of two above a microsecond.
const POWERS: usize = 24;
const BUCKETS: usize = POWERS * PARTS + 1;

/// One writer's counts.
#[derive(Debug)]
pub(crate) struct Tally {
    counts: [AtomicU64; NAMES.len()],
    /// Gets that found an item, by its size class. What else there is by class the store counts,
    /// under its locks.
    hits: [AtomicU64; CLASSES],
    latency: [Histogram; KINDS.len()],
}

#[derive(Debug)]
struct Histogram {
    buckets: [AtomicU64; BUCKETS],
    nanoseconds: AtomicU64,
}

/// Adds for a writer that is alone.
fn add(word: &AtomicU64, n: u64) {
    word.store(word.load(Relaxed).wrapping_add(n), Relaxed);
}

impl Default for Tally {
    fn default() -> Self {
        let zero = || AtomicU64::new(0);
        let histogram = |_| Histogram {
            buckets: std::array::from_fn(|_| zero()),
            nanoseconds: zero(),
        };

        Self {
            counts: std::array::from_fn(|_| zero()),
            hits: std::array::from_fn(|_| zero()),
            latency: std::array::from_fn(histogram),
        }
    }
}

impl Tally {
    /// Counts one.
    ///
    /// Context: the connection that has borrowed the tally.
    pub(crate) fn count(&self, what: Count) {
        self.add(what, 1);
    }

    /// Counts `n`.
    ///
    /// Context: the connection that has borrowed the tally.
    pub(crate) fn add(&self, what: Count, n: u64) {
        add(&self.counts[what as usize], n);
    }

    /// Counts a get that found an item of `size` bytes.
    ///
    /// Context: the connection that has borrowed the tally.
    pub(crate) fn hit(&self, size: usize) {
        self.count(Count::GetHits);
        add(&self.hits[class_of(size)], 1);
    }

    /// Records the latency of `n` commands.
    ///
    /// Context: the connection that has borrowed the tally.
    pub(crate) fn took(&self, kind: Kind, time: Duration, n: u64) {
        let histogram = &self.latency[kind as usize];
        add(&histogram.buckets[bucket(time)], n);
        add(
            &histogram.nanoseconds,
            (time.as_nanos() as u64).saturating_mul(n),
        );
    }

    /// Adds the counters to `sums`.
    pub(crate) fn sum_into(&self, sums: &mut Sums) {
        for (sum, word) in sums.counts.iter_mut().zip(&self.counts) {
            *sum = sum.wrapping_add(word.load(Relaxed));
        }
        for (sum, word) in sums.hits.iter_mut().zip(&self.hits) {
            *sum = sum.wrapping_add(word.load(Relaxed));
        }
        for (sum, histogram) in sums.latency.iter_mut().zip(&self.latency) {
            sum.nanoseconds = sum
                .nanoseconds
                .wrapping_add(histogram.nanoseconds.load(Relaxed));
            sum.buckets
                .iter_mut()
                .zip(&histogram.buckets)
                .for_each(|(sum, word)| *sum += word.load(Relaxed));
        }
    }
}

/// Returns the bucket of a time: exact to a quarter of a factor of two.
fn bucket(time: Duration) -> usize {
    let quarters = (time.as_nanos() as u64).saturating_mul(PARTS as u64) / 1000;
    if quarters < PARTS as u64 {
        return 0;
    }
    let power = quarters.ilog2() as usize - PARTS.ilog2() as usize;
    let part = (quarters >> power) as usize - PARTS;
    (1 + power * PARTS + part).min(BUCKETS - 1)
}

/// Returns the upper end of a bucket, in microseconds.
pub(crate) fn upper(bucket: usize) -> f64 {
    let power = bucket / PARTS;
    let part = bucket % PARTS;
    f64::from(1u32 << power) * (1.0 + part as f64 / PARTS as f64)
}

/// All tallies added up.
#[derive(Clone, Debug)]
pub(crate) struct Sums {
    pub(crate) counts: [u64; NAMES.len()],
    /// Gets that found an item, by its size class.
    pub(crate) hits: [u64; CLASSES],
    pub(crate) latency: [Latency; KINDS.len()],
}

/// The histogram of a kind of commands.
#[derive(Clone, Debug)]
pub(crate) struct Latency {
    buckets: [u64; BUCKETS],
    nanoseconds: u64,
}

impl Default for Sums {
    fn default() -> Self {
        let latency = Latency {
            buckets: [0; BUCKETS],
            nanoseconds: 0,
        };

        Self {
            counts: [0; NAMES.len()],
            hits: [0; CLASSES],
            latency: std::array::from_fn(|_| latency.clone()),
        }
    }
}

impl Sums {
    /// Returns a count.
    pub(crate) fn get(&self, what: Count) -> u64 {
        self.counts[what as usize]
    }

    /// Returns what has been counted since `before`.
    pub(crate) fn since(mut self, before: &Self) -> Self {
        self.counts
            .iter_mut()
            .zip(&before.counts)
            .for_each(|(now, before)| *now = now.wrapping_sub(*before));
        self.hits
            .iter_mut()
            .zip(&before.hits)
            .for_each(|(now, before)| *now = now.wrapping_sub(*before));
        for (now, before) in self.latency.iter_mut().zip(&before.latency) {
            now.nanoseconds = now.nanoseconds.wrapping_sub(before.nanoseconds);
            now.buckets
                .iter_mut()
                .zip(&before.buckets)
                .for_each(|(now, before)| *now -= before);
        }

        self
    }
}

impl Latency {
    pub(crate) fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }

    pub(crate) fn seconds(&self) -> f64 {
        self.nanoseconds as f64 / 1e9
    }

    /// Returns the time below which a share of the commands was answered, in microseconds: the
    /// upper end of its bucket.
    pub(crate) fn quantile(&self, share: f64) -> f64 {
        let rank = (self.count() as f64 * share).ceil().max(1.0) as u64;
        let mut seen = 0;
        let found = self.buckets.iter().position(|n| {
            seen += n;
            seen >= rank
        });

        found.map_or(0.0, upper)
    }

    /// Returns how many took up to a time, in seconds, and longer than the time before it, of those
    /// that any took.
    pub(crate) fn parts(&self) -> impl Iterator<Item = (f64, u64)> + '_ {
        let buckets = self
            .buckets
            .iter()
            .enumerate()
            .filter(|(_, count)| **count > 0);
        buckets.map(|(bucket, count)| (upper(bucket) / 1e6, *count))
    }

    /// For each power of two in microseconds, how many took at most that long.
    pub(crate) fn powers(&self) -> impl Iterator<Item = (f64, u64)> + '_ {
        let upto = |power: usize| self.buckets[..=power * PARTS].iter().sum();
        (0..POWERS).map(move |power| (upper(power * PARTS), upto(power)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_hold_what_they_say() {
        for nanoseconds in (0..200_000).step_by(7).chain([u64::MAX / 8]) {
            let bucket = bucket(Duration::from_nanos(nanoseconds));
            let micros = nanoseconds as f64 / 1000.0;
            assert!(
                micros < upper(bucket) + 1e-9 || bucket == BUCKETS - 1,
                "{nanoseconds} in {bucket}"
            );
            assert!(
                bucket == 0 || micros >= upper(bucket - 1) - 1e-9,
                "{nanoseconds} in {bucket}"
            );
        }
    }

    #[test]
    fn sums_and_quantiles() {
        let one = Tally::default();
        let two = Tally::default();
        let mut sums = Sums::default();
        one.count(Count::CmdGet);
        two.add(Count::CmdGet, 4);
        one.took(Kind::Get, Duration::from_micros(10), 99);
        two.took(Kind::Get, Duration::from_micros(5000), 1);
        one.sum_into(&mut sums);
        two.sum_into(&mut sums);
        let latency = &sums.latency[Kind::Get as usize];

        assert_eq!((sums.get(Count::CmdGet), latency.count()), (5, 100));
        assert!((10.0..12.5).contains(&latency.quantile(0.5)) && latency.quantile(1.0) > 5000.0);
        assert_eq!(latency.powers().last().map(|(_, n)| n), Some(100));
        assert_eq!(sums.clone().since(&sums).get(Count::CmdGet), 0);
    }
}
