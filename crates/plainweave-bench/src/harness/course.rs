//! How far a measurement is: what is measured now, and about how long the rest takes.

use std::time::{Duration, Instant};

use crate::harness::report;

/// A measurement of several steps, which take about as long each.
pub(crate) struct Course {
    all: usize,
    done: usize,
    began: Instant,
}

impl Course {
    pub(crate) fn new(all: usize) -> Self {
        Self {
            all,
            done: 0,
            began: Instant::now(),
        }
    }

    /// Says what the next step measures.
    pub(crate) fn step(&mut self, what: &str) {
        let rest = self.all.saturating_sub(self.done);
        let left = left(self.began.elapsed(), self.done, rest);
        report::progress(&format!("{what}{left}"));
        self.done += 1;
    }

    /// Passes over steps that are not made.
    pub(crate) fn skip(&mut self, steps: usize) {
        self.all = self.all.saturating_sub(steps);
    }
}

/// Returns the time that the rest takes if its steps take as long as those before, for the end of a
/// line; nothing where there were none.
pub(crate) fn left(spent: Duration, steps: usize, rest: usize) -> String {
    if steps == 0 {
        return String::new();
    }
    let left = (spent / steps as u32) * rest as u32;
    format!(", {} left", humane_time(left))
}

/// Writes a time as people say it.
pub(crate) fn humane_time(time: Duration) -> String {
    match time.as_secs() {
        seconds @ ..100 => format!("{seconds} s"),
        seconds @ 100..6000 => format!("{} min", (seconds + 30) / 60),
        seconds => format!("{} h {} min", seconds / 3600, seconds % 3600 / 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rest_takes_as_long_as_what_is_done() {
        let spent = Duration::from_secs(60);
        assert_eq!(left(spent, 0, 10), "");
        assert_eq!(left(spent, 2, 8), ", 4 min left");
        assert_eq!(left(spent, 10, 0), ", 0 s left");
    }

    #[test]
    fn times_are_short() {
        let said =
            [5, 99, 100, 5999, 7500].map(|seconds| humane_time(Duration::from_secs(seconds)));
        assert_eq!(said, ["5 s", "99 s", "2 min", "100 min", "2 h 5 min"]);
    }
}
