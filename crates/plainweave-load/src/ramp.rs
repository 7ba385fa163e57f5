//! Rates that change while the load runs.
//!
//! A schedule with a steady rate is stretched: its starts are taken as *work*, the number of
//! requests due by a time, and a ramp says when that much work is due. So gaps of any distribution
//! keep their shape, and exponential ones make a Poisson process whose intensity changes.

use super::clock::Nanos;

/// A rate that changes linearly, then stays. Rates are shares of the schedule's own.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Ramp {
    /// The rate before `begin`, and at it.
    from: f64,
    /// Nanoseconds since the start of load.
    begin: f64,
    /// From here on the rate is the schedule's own.
    end: f64,
}

impl Ramp {
    /// Goes from a share of the rate to the whole of it between two times, in nanoseconds since the
    /// start of load.
    pub(super) fn new(from: f64, begin: Nanos, end: Nanos) -> Self {
        Self {
            from,
            begin: begin as f64,
            end: end as f64,
        }
    }

    /// Returns when a start is due that a steady rate makes due at `work`.
    pub(super) fn stretch(&self, work: f64) -> f64 {
        let Self { from, begin, end } = *self;
        let before = from * begin;
        if work < before {
            return work / from;
        }
        let length = end - begin;
        let left = work - before;
        let within = length * (1.0 + from) / 2.0;

        if left >= within {
            return end + left - within;
        }
        // left = from t + (1 - from) t^2 / (2 length), solved for t in the form that loses no
        // digits.
        let root = (from * from + 2.0 * (1.0 - from) * left / length).sqrt();
        if from + root > 0.0 {
            begin + 2.0 * left / (from + root)
        } else {
            begin
        }
    }

    /// Returns the mean rate between two times behind the beginning, as a share.
    pub(super) fn mean(&self, since: Nanos, until: Nanos) -> f64 {
        let work = |time: f64| {
            let t = (time - self.begin).clamp(0.0, self.end - self.begin);
            let length = (self.end - self.begin).max(f64::MIN_POSITIVE);
            let after = (time - self.end).max(0.0);
            self.from * time.min(self.begin)
                + self.from * t
                + (1.0 - self.from) * t * t / (2.0 * length)
                + after
        };

        let since = since as f64;
        let until = until as f64;
        if until > since {
            (work(until) - work(since)) / (until - since)
        } else {
            1.0
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_that_grows_from_nothing() {
        let ramp = Ramp::new(0.0, 0, 1000);
        // Half of a steady rate's work is done on the way; a quarter of that in the first half.
        let times: Vec<_> = [0.0, 125.0, 500.0, 600.0]
            .iter()
            .map(|work| ramp.stretch(*work).round())
            .collect();
        assert_eq!(times, [0.0, 500.0, 1000.0, 1100.0]);
        assert_eq!(ramp.mean(0, 1000), 0.5);
        assert_eq!(ramp.mean(500, 1000), 0.75);
        assert_eq!(ramp.mean(1000, 3000), 1.0);
    }

    #[test]
    fn a_rate_that_falls_after_a_while() {
        let ramp = Ramp::new(3.0, 100, 300);
        // 300 of work by 100, then 400 by 300.
        let times: Vec<_> = [150.0, 300.0, 575.0, 700.0, 750.0]
            .iter()
            .map(|work| ramp.stretch(*work).round())
            .collect();
        assert_eq!(times, [50.0, 100.0, 213.0, 300.0, 350.0]);
        assert_eq!(ramp.mean(100, 300), 2.0);
        let steps: Vec<_> = (0..800).map(|work| ramp.stretch(f64::from(work))).collect();

        assert!(
            steps.windows(2).all(|pair| pair[0] < pair[1]),
            "time goes on"
        );
    }
}
