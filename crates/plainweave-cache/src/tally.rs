//! Counters, written by one and read by all.
//!
//! A turn of a connection borrows `scratch`, and with it a tally that nothing else writes
//! meanwhile: so a count is a load and a store, not a locked addition, and no two workers share a
//! cache line. `stats` adds up all tallies; each sum taken while workers count is right for some
//! moment, but not all for the same one.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use plainweave_serve::{Latencies, LatencyHistogram};

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
    AuthCmds = "auth_cmds",
    AuthErrors = "auth_errors",
    /// Of these, those that nobody looked at, for their address had been wrong too often.
    AuthRefused = "auth_refused",
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

/// One writer's counts.
#[derive(Debug)]
pub(crate) struct Tally {
    counts: [AtomicU64; NAMES.len()],
    /// Gets that found an item, by its size class. What else there is by class the store counts,
    /// under its locks.
    hits: [AtomicU64; CLASSES],
    latency: [LatencyHistogram; KINDS.len()],
}

/// Adds for a writer that is alone.
fn add(word: &AtomicU64, n: u64) {
    word.store(word.load(Relaxed).wrapping_add(n), Relaxed);
}

impl Default for Tally {
    fn default() -> Self {
        let zero = || AtomicU64::new(0);
        Self {
            counts: std::array::from_fn(|_| zero()),
            hits: std::array::from_fn(|_| zero()),
            latency: Default::default(),
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
        self.latency[kind as usize].record_alone(time, n);
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
            histogram.add_to(sum);
        }
    }
}

/// All tallies added up.
#[derive(Clone, Debug)]
pub(crate) struct Sums {
    pub(crate) counts: [u64; NAMES.len()],
    /// Gets that found an item, by its size class.
    pub(crate) hits: [u64; CLASSES],
    pub(crate) latency: [Latencies; KINDS.len()],
}

impl Default for Sums {
    fn default() -> Self {
        Self {
            counts: [0; NAMES.len()],
            hits: [0; CLASSES],
            latency: Default::default(),
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
            *now = std::mem::take(now).since(before);
        }

        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        assert_eq!(latency.quantile_us(0.5), 10.0);
        assert_eq!(latency.quantile_us(1.0), 5000.0);
        assert_eq!(sums.clone().since(&sums).get(Count::CmdGet), 0);
    }
}
