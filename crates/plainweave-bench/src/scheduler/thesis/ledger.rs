//! What was done, by worker: latencies, counts, and what of it was wrong.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::ensure;
use crossbeam_utils::CachePadded;
use hdrhistogram::Histogram;

use super::metrics::Figure;
use crate::scheduler::shim::Shim;

/// How often the main thread looks whether all is done. When it was is known exactly.
const LOOK: Duration = Duration::from_micros(500);

/// What one worker has done.
pub(crate) struct Log {
    pub(crate) latencies: Histogram<u64>,
    pub(crate) done: u64,
    wrong: u64,
    last: Option<Instant>,
}

impl Log {
    pub(crate) fn new() -> Self {
        let latencies = Histogram::new_with_bounds(1, 600_000_000_000, 3).expect("valid bounds");
        Self {
            latencies,
            done: 0,
            wrong: 0,
            last: None,
        }
    }
}

/// A log for each worker; only that one's threads lock it while the workload runs.
pub(crate) struct Ledger(Box<[CachePadded<Mutex<Log>>]>);

impl Ledger {
    pub(crate) fn new(workers: usize) -> Self {
        Self(
            (0..workers)
                .map(|_| CachePadded::new(Mutex::new(Log::new())))
                .collect(),
        )
    }

    fn log(&self, worker: usize) -> MutexGuard<'_, Log> {
        self.0[worker % self.0.len()]
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Records one that was begun, or due, at a certain time, and has ended now on this worker.
    pub(crate) fn record(&self, worker: usize, since: Instant, right: bool) {
        let now = Instant::now();
        let mut log = self.log(worker);
        log.done += 1;
        log.wrong += u64::from(!right);
        log.latencies
            .saturating_record(now.saturating_duration_since(since).as_nanos() as u64);
        log.last = Some(now);
    }

    /// Returns when that many have been recorded.
    pub(crate) async fn complete<S: Shim>(&self, count: u64) {
        while (0..self.0.len())
            .map(|worker| self.log(worker).done)
            .sum::<u64>()
            < count
        {
            S::sleep(LOOK).await;
        }
    }

    /// Puts the logs together and checks them.
    ///
    /// # Errors
    /// There are more or fewer than that many, or some were wrong: `what` names them.
    pub(crate) fn outcome(
        &self,
        began: Instant,
        count: u64,
        what: &str,
    ) -> anyhow::Result<Outcome> {
        let mut all = Log::new();
        let mut executed = Vec::new();
        for worker in 0..self.0.len() {
            let log = self.log(worker);
            all.latencies.add(&log.latencies)?;
            all.done += log.done;
            all.wrong += log.wrong;
            all.last = all.last.max(log.last);
            executed.push(log.done);
        }

        ensure!(
            all.done == count,
            "{} of {count} {what} were done",
            all.done
        );
        ensure!(
            all.wrong == 0,
            "{} of {count} {what} have not come to what they should have",
            all.wrong
        );
        let time = all.last.map_or(Duration::ZERO, |last| last - began);
        Ok(Outcome {
            time,
            latencies: all.latencies,
            done: all.done,
            executed,
            readings: 2 * all.done,
        })
    }
}

/// What an iteration came to.
pub(crate) struct Outcome {
    /// From the beginning to the last end.
    pub(crate) time: Duration,
    pub(crate) latencies: Histogram<u64>,
    pub(crate) done: u64,
    /// By worker.
    pub(super) executed: Vec<u64>,
    /// Readings of the clock: two for each latency, and what the workload itself needs.
    pub(super) readings: u64,
}

impl Outcome {
    pub(crate) fn per_second(&self) -> f64 {
        self.done as f64 / self.time.as_secs_f64()
    }

    /// Returns the figures that all experiments have.
    pub(super) fn figures(&self) -> Vec<Figure> {
        let quantile = |share| self.latencies.value_at_quantile(share) as f64 / 1e3;
        let mut figures = vec![
            ("throughput", self.per_second()),
            ("time_ms", self.time.as_secs_f64() * 1e3),
            ("p50_us", quantile(0.5)),
            ("p99_us", quantile(0.99)),
            ("p999_us", quantile(0.999)),
            ("p9999_us", quantile(0.9999)),
            ("clock_readings", self.readings as f64),
        ];
        figures.extend(shares(&self.executed));
        figures
    }
}

/// How many tasks each worker has run, where that is not what the ledger has.
pub(super) struct Executed(Box<[CachePadded<AtomicU64>]>);

impl Executed {
    pub(super) fn new(workers: usize) -> Self {
        Self((0..workers).map(|_| CachePadded::default()).collect())
    }

    /// Counts one, of a worker.
    pub(super) fn add(&self, worker: usize) {
        self.0[worker % self.0.len()].fetch_add(1, Relaxed);
    }

    pub(super) fn by_worker(&self) -> Vec<u64> {
        self.0.iter().map(|tasks| tasks.load(Relaxed)).collect()
    }
}

/// Returns how evenly workers have shared the work: the least, the most, and Jain's index.
pub(super) fn shares(executed: &[u64]) -> [Figure; 3] {
    let each = || executed.iter().map(|n| *n as f64);
    let (sum, squares): (f64, f64) = (each().sum(), each().map(|n| n * n).sum());
    let least = each().fold(f64::INFINITY, f64::min);
    let jain = sum * sum / (executed.len() as f64 * squares);
    [
        ("executed_least", least),
        ("executed_most", each().fold(0.0, f64::max)),
        ("jain", jain),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_lost_or_wrong_is_found() {
        let ledger = Ledger::new(2);
        let began = Instant::now();
        ledger.record(0, began, true);
        ledger.record(3, began, true);
        let outcome = ledger.outcome(began, 2, "tasks").unwrap();
        assert_eq!((outcome.done, &outcome.executed[..]), (2, &[1, 1][..]));
        let error = |count| {
            ledger
                .outcome(began, count, "tasks")
                .err()
                .map(|error| error.to_string())
        };

        assert_eq!(error(3).unwrap(), "2 of 3 tasks were done");
        ledger.record(1, began, false);
        assert_eq!(
            error(3).unwrap(),
            "1 of 3 tasks have not come to what they should have"
        );
    }

    #[test]
    fn jain_is_one_for_equal_shares_and_a_share_for_one_worker() {
        assert_eq!(
            shares(&[5, 5]),
            [
                ("executed_least", 5.0),
                ("executed_most", 5.0),
                ("jain", 1.0)
            ]
        );
        assert_eq!(shares(&[8, 0, 0, 0])[2].1, 0.25);
    }
}
