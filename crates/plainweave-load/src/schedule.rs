//! When requests start.
//!
//! **Closed loop.** A connection asks again when it has its answer: the next start is now. The load
//! bends to the server, so latencies say nothing of how long users would have queued.
//!
//! **Open loop.** A clock that knows nothing of answers sets the starts. A connection that is free
//! takes the next one; if it lies in the past, because all connections were busy, the request goes
//! out at once, and its latency still counts from the time at which it was meant to start. So the
//! schedule *is* the queue: a first-come, first-served queue with a server a connection, of
//! unbounded length and constant memory. Leaving out what a stalled server kept from being asked is
//! known as co-ordinated omission (G. Tene); here nothing is left out, for every start before the
//! end is taken, late or not, or its request counts as timed out.
//!
//! Times are nanoseconds since the worker's start of load.

use anyhow::ensure;
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use rand_distr::Exp1;

use super::clock::Nanos;
use super::distribution::Distribution;
use super::ramp::Ramp;

/// How starts follow each other.
#[derive(Clone, Copy, Debug)]
pub(super) enum Pace {
    /// Closed loop.
    OnAnswer,
    /// Open loop, this many nanoseconds apart.
    Constant(f64),
    /// Open loop, exponential gaps of this mean.
    Poisson(f64),
    /// Open loop, gaps that follow a distribution, stretched by this factor.
    Distribution(Distribution, f64),
}

impl Pace {
    /// Makes gaps that follow a distribution, stretched so that their mean is `gap` nanoseconds.
    pub(super) fn distribution(distribution: Distribution, gap: f64) -> anyhow::Result<Self> {
        let mean = distribution.mean();
        ensure!(
            mean.is_finite() && mean > 0.0,
            "--arrivals: the gaps must have a positive mean"
        );
        Ok(Pace::Distribution(distribution, gap / mean))
    }

    /// Returns the pace of one of `workers`, which together make this one.
    pub(super) fn share(self, workers: usize) -> Self {
        match self {
            Pace::OnAnswer => self,
            Pace::Constant(gap) => Pace::Constant(gap * workers as f64),
            // Independent Poisson processes add up to one.
            Pace::Poisson(gap) => Pace::Poisson(gap * workers as f64),
            // As mutilate does: each worker follows the distribution, more slowly.
            Pace::Distribution(distribution, factor) => {
                Pace::Distribution(distribution, factor * workers as f64)
            }
        }
    }

    pub(super) fn is_open(self) -> bool {
        !matches!(self, Pace::OnAnswer)
    }
}

/// The starts of one worker's requests.
#[derive(Debug)]
pub(super) struct Schedule {
    pace: Pace,
    /// Open loop: the next start, by a steady rate.
    next: f64,
    ramp: Option<Ramp>,
    /// No start at or after this.
    end: u64,
    /// No more starts than this.
    left: u64,
    random: SmallRng,
}

impl Schedule {
    /// Starts before `end`, at most `count` of them. `phase`, below 1, sets evenly spaced workers
    /// apart.
    pub(super) fn new(pace: Pace, end: u64, count: u64, phase: f64, seed: u64) -> Self {
        let random = SmallRng::seed_from_u64(seed);
        let mut schedule = Self {
            pace,
            next: 0.0,
            ramp: None,
            end,
            left: count,
            random,
        };

        schedule.next = match pace {
            Pace::OnAnswer => 0.0,
            Pace::Constant(gap) => gap * phase,
            Pace::Poisson(_) | Pace::Distribution(..) => schedule.gap(),
        };
        schedule
    }

    /// Lets the rate change.
    pub(super) fn with_ramp(self, ramp: Option<Ramp>) -> Self {
        Self { ramp, ..self }
    }

    /// Returns when the next start of an open loop is due.
    #[inline]
    fn due(&self) -> Nanos {
        self.ramp.map_or(self.next, |ramp| ramp.stretch(self.next)) as u64
    }

    fn gap(&mut self) -> f64 {
        match self.pace {
            Pace::OnAnswer => 0.0,
            Pace::Constant(gap) => gap,
            Pace::Poisson(gap) => gap * self.random.sample::<f64, _>(Exp1),
            Pace::Distribution(distribution, factor) => {
                (distribution.at(self.random.random(), self.random.random()) * factor).max(0.0)
            }
        }
    }

    /// Takes the next start, in the past or in the future of `now`. `None`: there are no more.
    #[inline]
    pub(super) fn take(&mut self, now: Nanos) -> Option<Nanos> {
        let start = if self.pace.is_open() { self.due() } else { now };
        if self.left == 0 || start >= self.end {
            return None;
        }
        self.left -= 1;
        self.next += self.gap();
        Some(start)
    }

    /// Takes the next start if its time has come.
    pub(super) fn take_due(&mut self, now: Nanos) -> Option<Nanos> {
        if self.pace.is_open() && self.due() > now {
            None
        } else {
            self.take(now)
        }
    }

    /// Takes all starts up to and including a time. Returns how many of them lie at `measured` or
    /// later.
    pub(super) fn skip(&mut self, until: Nanos, measured: Nanos) -> u64 {
        let until = until.min(self.end.saturating_sub(1));
        let mut counted = 0;
        if let (Pace::Constant(gap), None) = (self.pace, self.ramp) {
            // A rate far above what can be kept leaves millions behind: to take each would hold up
            // the worker.
            let before = measured.checked_sub(1).map(|last| (last.min(until), false));
            for (last, counts) in before.into_iter().chain([(until, true)]) {
                if self.next as u64 <= last {
                    let starts = (((last as f64 + 1.0 - self.next) / gap).ceil() as u64)
                        .max(1)
                        .min(self.left);
                    self.next += starts as f64 * gap;
                    self.left -= starts;
                    counted += if counts { starts } else { 0 };
                }
            }
            return counted;
        }

        while self.pace.is_open() && self.left > 0 && self.due() <= until {
            counted += u64::from(self.due() >= measured);
            self.left -= 1;
            self.next += self.gap();
        }

        counted
    }

    /// There are no more.
    pub(super) fn stop(&mut self) {
        self.left = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn starts(mut schedule: Schedule) -> Vec<Nanos> {
        std::iter::from_fn(|| schedule.take(0)).collect()
    }

    #[test]
    fn an_open_loop_does_not_wait_for_anybody() {
        let mut schedule = Schedule::new(Pace::Constant(100.0), 1000, u64::MAX, 0.0, 1);
        assert_eq!((schedule.take(0), schedule.take(0)), (Some(0), Some(100)));
        // 750 ns later: the starts that were missed are still taken, each at its own time, and none
        // is made up.
        let late: Vec<_> = std::iter::from_fn(|| schedule.take_due(750)).collect();
        assert_eq!(late, [200, 300, 400, 500, 600, 700]);

        assert_eq!(
            (schedule.take(750), schedule.take(750), schedule.take(750)),
            (Some(800), Some(900), None)
        );
    }

    #[test]
    fn a_closed_loop_starts_now_until_the_end() {
        let mut schedule = Schedule::new(Pace::OnAnswer, 1000, 2, 0.0, 1);
        assert_eq!(
            (schedule.take(7), schedule.take_due(9), schedule.take(10)),
            (Some(7), Some(9), None)
        );
        assert_eq!(
            Schedule::new(Pace::OnAnswer, 1000, 2, 0.0, 1).take(1000),
            None
        );
    }

    #[test]
    fn the_workers_shares_add_up() {
        let of = |worker: usize| {
            Schedule::new(
                Pace::Constant(10.0).share(4),
                100,
                99,
                worker as f64 / 4.0,
                1,
            )
        };

        let mut all: Vec<_> = (0..4).flat_map(|worker| starts(of(worker))).collect();
        all.sort_unstable();
        assert_eq!(all, [0, 10, 20, 30, 40, 50, 60, 70, 80, 90]);
    }

    #[test]
    fn what_is_skipped_is_counted_as_if_taken() {
        let poisson = || Schedule::new(Pace::Poisson(7.0), 1000, u64::MAX, 0.0, 3);
        let constant = || Schedule::new(Pace::Constant(7.3), 1000, u64::MAX, 0.5, 3);

        let few = || Schedule::new(Pace::Constant(7.3), 1000, 20, 0.0, 3);
        for schedule in [poisson, constant, few] {
            for (until, measured) in [
                (0, 0),
                (3, 0),
                (500, 0),
                (500, 200),
                (500, 500),
                (500, 900),
                (5000, 400),
            ] {
                let all = starts(schedule());
                let mut skipping = schedule();
                let counted = skipping.skip(until, measured);
                let expected = all
                    .iter()
                    .filter(|start| **start <= until && **start >= measured)
                    .count();
                assert_eq!(counted, expected as u64, "{until} {measured}");
                let left: Vec<_> = all.iter().copied().filter(|start| *start > until).collect();

                assert_eq!(starts(skipping), left, "{until} {measured}");
            }
        }

        assert_eq!(
            Schedule::new(Pace::OnAnswer, 1000, 5, 0.0, 1).skip(500, 0),
            0
        );
    }

    #[test]
    fn a_ramp_takes_half_the_requests() {
        let schedule = || Schedule::new(Pace::Constant(10.0), 1000, u64::MAX, 0.0, 1);
        let all = starts(schedule().with_ramp(Some(Ramp::new(0.0, 0, 1000))));
        let half = all.iter().filter(|start| **start < 500).count();
        assert_eq!(
            (starts(schedule()).len(), all.len(), half),
            (100, 50, 13),
            "{all:?}"
        );
    }

    #[test]
    fn gaps_by_a_law_make_the_rate_asked_for() {
        for text in ["fb_ia", "uniform:3", "gev:30,8,0.1", "7"] {
            let pace = Pace::distribution(Distribution::parse(text).unwrap(), 1000.0).unwrap();
            let all = starts(Schedule::new(pace, u64::MAX, 100_000, 0.0, 3));
            let mean = *all.last().unwrap() as f64 / all.len() as f64;
            assert!((970.0..1030.0).contains(&mean), "{text}: {mean}");
        }
        assert!(Pace::distribution(Distribution::Fixed(0.0), 1000.0).is_err());
    }

    #[test]
    fn poisson_gaps_have_their_mean_and_spread() {
        let all = starts(Schedule::new(
            Pace::Poisson(1000.0),
            u64::MAX,
            100_000,
            0.0,
            7,
        ));
        let gaps: Vec<_> = all
            .windows(2)
            .map(|pair| (pair[1] - pair[0]) as f64)
            .collect();
        let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
        let deviation =
            (gaps.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>() / gaps.len() as f64).sqrt();
        assert!(
            (980.0..1020.0).contains(&mean) && (970.0..1030.0).contains(&deviation),
            "{mean} {deviation}"
        );
        let again = starts(Schedule::new(Pace::Poisson(1000.0), u64::MAX, 100, 0.0, 7));

        assert_eq!(all[..100], again);
    }
}
