//! A histogram of latencies that costs a server an addition, and what operators are shown of it.

use std::array::from_fn;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// Upper bounds of the latencies that are published, in microseconds. Each is one of [`BOUNDS`].
const PUBLISHED: [u64; 14] = [
    10, 25, 50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 50_000, 250_000, 1_000_000, 10_000_000,
];

/// Upper bounds of the latencies that are distinguished, in nanoseconds: ten for each factor of
/// ten, from 1 us to 10 s.
const BOUNDS: [u64; 71] = bounds();

/// The last one counts what is slower than every bound.
const BUCKETS: usize = BOUNDS.len() + 1;

const fn bounds() -> [u64; 71] {
    let steps = [10, 12, 15, 20, 25, 30, 40, 50, 60, 75];
    let mut bounds = [0; 71];
    let mut n = 0;
    let mut unit = 100;

    while n < bounds.len() {
        bounds[n] = steps[n % steps.len()] * unit;
        n += 1;
        if n % steps.len() == 0 {
            unit *= 10;
        }
    }

    bounds
}

/// Latencies as they are counted.
#[derive(Debug)]
pub struct LatencyHistogram {
    buckets: [AtomicU64; BUCKETS],
    nanoseconds: AtomicU64,
}

impl Default for LatencyHistogram {
    fn default() -> Self {
        Self {
            buckets: from_fn(|_| AtomicU64::new(0)),
            nanoseconds: AtomicU64::new(0),
        }
    }
}

impl LatencyHistogram {
    /// Counts one.
    pub fn record(&self, time: Duration) {
        let time_ns = nanoseconds(time);
        self.buckets[bucket(time_ns)].fetch_add(1, Relaxed);
        self.nanoseconds.fetch_add(time_ns, Relaxed);
    }

    /// Counts `n` of the same latency, without a locked instruction.
    ///
    /// Context: nobody else records meanwhile.
    pub fn record_alone(&self, time: Duration, n: u64) {
        let time_ns = nanoseconds(time);
        let add = |word: &AtomicU64, n: u64| {
            word.store(word.load(Relaxed).wrapping_add(n), Relaxed);
        };

        add(&self.buckets[bucket(time_ns)], n);
        add(&self.nanoseconds, time_ns.saturating_mul(n));
    }

    /// Adds what was counted so far to `sum`.
    pub fn add_to(&self, sum: &mut Latencies) {
        for (sum, word) in sum.buckets.iter_mut().zip(&self.buckets) {
            *sum = sum.wrapping_add(word.load(Relaxed));
        }
        sum.nanoseconds = sum.nanoseconds.wrapping_add(self.nanoseconds.load(Relaxed));
    }
}

/// Latencies that were counted, of one histogram or of several.
#[derive(Clone, Debug)]
pub struct Latencies {
    buckets: [u64; BUCKETS],
    nanoseconds: u64,
}

impl Default for Latencies {
    fn default() -> Self {
        Self {
            buckets: [0; BUCKETS],
            nanoseconds: 0,
        }
    }
}

impl Latencies {
    /// Returns how many there are.
    pub fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }

    /// Returns their sum.
    pub fn total(&self) -> Duration {
        Duration::from_nanos(self.nanoseconds)
    }

    /// Returns those that were counted since `before`.
    pub fn since(mut self, before: &Self) -> Self {
        for (now, before) in self.buckets.iter_mut().zip(&before.buckets) {
            *now = now.wrapping_sub(*before);
        }
        self.nanoseconds = self.nanoseconds.wrapping_sub(before.nanoseconds);
        self
    }

    /// Returns, for each of the bounds that are published, in seconds, how many took at most that
    /// long.
    pub fn cumulative(&self) -> impl Iterator<Item = (f64, u64)> + '_ {
        PUBLISHED.into_iter().map(|micros| {
            let upto = self.buckets[..=bucket(micros * 1000)].iter().sum();
            (micros as f64 / 1e6, upto)
        })
    }

    /// Returns how many took up to a time, in seconds, and longer than the time before it, of those
    /// that any took.
    pub fn parts(&self) -> impl Iterator<Item = (f64, u64)> + '_ {
        let parts = self.buckets.iter().enumerate();
        parts
            .filter(|(_, count)| **count > 0)
            .map(|(bucket, count)| (upper_ns(bucket) / 1e9, *count))
    }

    /// Returns the time within which a share of them ended, in microseconds: the upper end of its
    /// bucket. 0 if there are none.
    pub fn quantile_us(&self, share: f64) -> f64 {
        let rank = (self.count() as f64 * share).ceil().max(1.0) as u64;
        let mut seen = 0;
        let found = self.buckets.iter().position(|n| {
            seen += n;
            seen >= rank
        });

        found.map_or(0.0, |bucket| upper_ns(bucket) / 1e3)
    }
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// Returns the place of a latency: that of the least bound that is not below it.
fn bucket(time_ns: u64) -> usize {
    BOUNDS.partition_point(|bound| *bound < time_ns)
}

/// Returns the upper end of a bucket; of the last one, which has none, twice the longest bound.
fn upper_ns(bucket: usize) -> f64 {
    let longest = BOUNDS[BOUNDS.len() - 1];
    BOUNDS.get(bucket).copied().unwrap_or(longest * 2) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_are_fine_and_hold_those_that_are_published() {
        assert_eq!((BOUNDS[0], BOUNDS[70]), (1_000, 10_000_000_000));
        assert!(
            BOUNDS
                .windows(2)
                .all(|pair| pair[0] < pair[1] && pair[1] * 3 <= pair[0] * 4),
            "{BOUNDS:?}"
        );
        assert!(
            PUBLISHED
                .iter()
                .all(|micros| BOUNDS.contains(&(micros * 1000)))
        );
        assert_eq!(
            [0, 1_000, 1_001, 1_200, 10_000_000_001].map(bucket),
            [0, 0, 1, 1, 71]
        );
    }

    fn sum(of: &LatencyHistogram) -> Latencies {
        let mut sum = Latencies::default();
        of.add_to(&mut sum);
        sum
    }

    #[test]
    fn latencies_add_up() {
        let histogram = LatencyHistogram::default();
        for nanoseconds in [5_000, 10_000, 10_001, 70_000, 20_000_000_000] {
            histogram.record(Duration::from_nanos(nanoseconds));
        }
        let latencies = sum(&histogram);
        let first: Vec<_> = latencies.cumulative().take(4).collect();

        assert_eq!(first, [(10e-6, 2), (25e-6, 3), (50e-6, 3), (100e-6, 4)]);
        assert_eq!(latencies.count(), 5);
        assert_eq!(latencies.total(), Duration::from_nanos(20_000_095_001));
        assert_eq!(latencies.parts().map(|(_, count)| count).sum::<u64>(), 5);
        assert!(latencies.parts().all(|(upper, _)| upper >= 5e-6));
    }

    #[test]
    fn quantiles_are_upper_ends() {
        let histogram = LatencyHistogram::default();
        assert_eq!(sum(&histogram).quantile_us(0.5), 0.0);
        histogram.record_alone(Duration::from_micros(10), 99);
        let before = sum(&histogram);
        histogram.record_alone(Duration::from_micros(5_100), 1);
        let latencies = sum(&histogram);

        assert_eq!(latencies.quantile_us(0.5), 10.0);
        assert_eq!(latencies.quantile_us(1.0), 6_000.0);
        assert_eq!(latencies.since(&before).quantile_us(0.0), 6_000.0);
    }
}
