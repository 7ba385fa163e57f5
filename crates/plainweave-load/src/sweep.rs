//! Several runs, one after the other: at given rates, or in search of the highest rate that meets
//! an objective.

use std::time::Duration;

use super::flags::Common;
use super::plan::Plan;
use super::rates::Rates;
use super::summary::{Outcome, Summary};
use super::verdict::{Objectives, Verdict};

/// Rate that a search tries first, if none is given.
const FIRST: f64 = 1000.0;
/// Runs of a search, at most.
const MOST: usize = 40;
/// No search goes below or above.
const RANGE: (f64, f64) = (1.0, 1e9);

/// Which rates.
#[derive(Debug)]
pub(super) enum Course {
    Rates(Vec<f64>),
    Search { first: f64, precision: f64 },
}

impl Course {
    /// Returns the steps that the flags ask for; `None`: a single run.
    pub(super) fn new(common: &Common) -> Option<Self> {
        if common.search.is_some() {
            let first = common.rate.map_or(FIRST, |rate| rate.to);
            return Some(Course::Search {
                first,
                precision: common.precision,
            });
        }

        common
            .rates
            .as_ref()
            .map(|Rates(rates)| Course::Rates(rates.clone()))
    }
}

/// One run of several.
#[derive(Debug)]
pub(super) struct Step {
    pub(super) plan: Plan,
    pub(super) outcome: Outcome,
    pub(super) verdict: Verdict,
}

/// Makes the runs.
pub(super) trait Runs {
    /// Makes a run. `None`: a signal came before its load began.
    fn run(&mut self, plan: &Plan) -> anyhow::Result<Option<Outcome>>;

    /// Waits between two. Returns false if a signal came.
    fn pause(&mut self, length: Duration) -> bool;

    /// Closes what watched.
    fn finish(self: Box<Self>) -> anyhow::Result<()>;
}

/// What is common to all steps.
pub(super) struct Sweep<'a> {
    pub(super) name: &'a str,
    pub(super) plan: &'a Plan,
    pub(super) objectives: &'a Objectives,
    pub(super) pause: Duration,
    pub(super) steps: Vec<Step>,
}

impl Sweep<'_> {
    /// Makes all runs, or those before a signal. Returns what a search has found: the highest rate
    /// that meets the objective, or `None` if it has found none.
    pub(super) fn follow(
        &mut self,
        course: &Course,
        runs: &mut dyn Runs,
    ) -> anyhow::Result<Option<f64>> {
        match course {
            Course::Rates(rates) => {
                for rate in rates {
                    if self.step(*rate, runs)?.is_none() {
                        break;
                    }
                }
                Ok(None)
            }
            Course::Search { first, precision } => {
                let mut search = Search::new(*first, *precision);
                while let Some(rate) = search.next()
                    && let Some(met) = self.step(rate, runs)?
                {
                    search.learn(rate, met);
                }
                Ok(search.met)
            }
        }
    }

    /// Makes a run. Returns whether its objectives were met; `None` after a signal.
    fn step(&mut self, rate: f64, runs: &mut dyn Runs) -> anyhow::Result<Option<bool>> {
        if !self.steps.is_empty() && !runs.pause(self.pause) {
            return Ok(None);
        }
        let plan = self.plan.at_rate(rate, self.steps.is_empty())?;
        let Some(outcome) = runs.run(&plan)? else {
            return Ok(None);
        };
        let verdict = self
            .objectives
            .judge(self.name, &Summary::new(&plan, &outcome));
        let met = verdict.missed.is_empty() && verdict.unjudged.is_empty();
        let interrupted = outcome.interrupted;

        self.steps.push(Step {
            plan,
            outcome,
            verdict,
        });

        Ok((!interrupted).then_some(met))
    }
}

/// A search: doubles the rate (or halves it) until the answer changes, then bisects.
#[derive(Debug)]
struct Search {
    next: f64,
    precision: f64,
    /// The highest rate that met the objective, and the lowest above that did not.
    met: Option<f64>,
    missed: Option<f64>,
    tried: usize,
}

impl Search {
    fn new(first: f64, precision: f64) -> Self {
        Self {
            next: first,
            precision,
            met: None,
            missed: None,
            tried: 0,
        }
    }

    /// Returns the rate to try next; `None`: the search is over.
    fn next(&self) -> Option<f64> {
        let over = self
            .met
            .zip(self.missed)
            .is_some_and(|(met, missed)| missed - met <= self.precision * missed);
        // So fine that rounding leaves no rate between them.
        let over = over || [self.met, self.missed].contains(&Some(self.next));
        (!over && self.tried < MOST && (RANGE.0..=RANGE.1).contains(&self.next))
            .then_some(self.next)
    }

    fn learn(&mut self, rate: f64, met: bool) {
        self.tried += 1;
        if met {
            self.met = Some(rate);
        } else {
            self.missed = Some(rate);
        }

        self.next = match (self.met, self.missed) {
            (Some(met), Some(missed)) => round((met * missed).sqrt(), self.precision),
            (Some(met), None) => met * 2.0,
            (None, _) => rate / 2.0,
        };
    }
}

/// Rounds for people: to three digits, or to as many as the precision of a search asks for.
fn round(rate: f64, precision: f64) -> f64 {
    let digits = (rate.log10() - 2.0)
        .floor()
        .min((rate * precision / 2.0).log10().floor()) as i32;
    let unit = 10f64.powi(digits.abs());
    if digits < 0 {
        (rate * unit).round() / unit
    } else {
        (rate / unit).round() * unit
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Searches with a server that bears up to `limit`; what was found, and in how many runs.
    fn search(first: f64, precision: f64, limit: f64) -> (Option<f64>, usize) {
        let mut search = Search::new(first, precision);
        let mut rates = Vec::new();
        while let Some(rate) = search.next() {
            assert!(!rates.contains(&rate), "{rate} is tried again");
            rates.push(rate);
            search.learn(rate, rate <= limit);
        }

        (search.met, search.tried)
    }

    #[test]
    fn a_search_finds_the_highest_rate() {
        for (first, precision, limit) in [
            (1000.0, 0.05, 57_500.0),
            (1000.0, 0.01, 57_500.0),
            (1000.0, 0.05, 3.0),
            (50.0, 0.05, 50.0),
            (1000.0, 0.001, 57_503.0),
            (1000.0, 0.002, 1009.0),
            (1000.0, 0.001, 300.3),
        ] {
            let (found, runs) = search(first, precision, limit);
            let found = found.unwrap();
            assert!(
                found <= limit && found >= limit * (1.0 - precision) - 0.05,
                "{first} {precision}: {found}"
            );
            assert!(runs < 20, "{runs}");
        }

        assert_eq!(
            search(1000.0, 0.05, 0.0),
            (None, 10),
            "nothing below one request a second"
        );
        assert_eq!(search(1e8, 0.05, f64::INFINITY).0, Some(8e8));
    }

    #[test]
    fn rates_are_rounded() {
        assert_eq!(
            [1234.5, 57_512.0, 3.456].map(|rate| round(rate, 0.05)),
            [1230.0, 57_500.0, 3.46]
        );
        assert_eq!(
            [1234.56, 57_512.3, 3.45678].map(|rate| round(rate, 0.001)),
            [1234.6, 57_510.0, 3.457]
        );
    }
}
