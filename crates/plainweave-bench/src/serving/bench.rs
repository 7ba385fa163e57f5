//! An experiment of several cases on one site: what it measures with, and what it has found.

use std::time::Duration;

use super::site::Site;
use crate::harness::experiment::{Cases, Common};
use crate::harness::findings::Findings;
use crate::harness::machine;
use crate::harness::report::{self, Failures};
use crate::harness::sample::Origin;

/// What the cases of an experiment share; `sizes` are those of its own.
pub(crate) struct Bench<S> {
    pub(crate) runs: usize,
    /// For each system in each round.
    pub(crate) turn: Duration,
    pub(crate) sizes: S,
    pub(crate) site: Site,
    pub(crate) findings: Findings,
}

/// A case: its name, what it measures, how.
pub(crate) struct Case<S> {
    pub(crate) name: &'static str,
    pub(crate) summary: &'static str,
    pub(crate) run: fn(&mut Bench<S>) -> anyhow::Result<()>,
}

/// Prints the names of cases, and what they measure.
pub(crate) fn list<'a, S: 'a>(cases: impl Iterator<Item = &'a Case<S>>) {
    for case in cases {
        report::say(&format!("{:<16} {}", case.name, case.summary));
    }
}

impl<S> Bench<S> {
    pub(crate) fn new(
        experiment: &'static str,
        runs: usize,
        turn: Duration,
        sizes: S,
    ) -> anyhow::Result<Self> {
        Ok(Self {
            runs,
            turn,
            sizes,
            site: Site::new()?,
            findings: Findings::of(Origin::new(experiment)),
        })
    }

    /// Runs the cases one after the other, and publishes what they have found. One that fails does
    /// not keep the others from their turn.
    ///
    /// # Errors
    /// A case has failed, or the result cannot be written.
    pub(crate) fn publish<'a>(
        mut self,
        cases: impl Iterator<Item = &'a Case<S>>,
        mut parameters: Vec<(&'static str, String)>,
        common: &Common,
    ) -> anyhow::Result<()>
    where
        S: 'a,
    {
        let mut failures = Failures::begin()?;
        for case in cases {
            failures.catch(&format!("the case {}", case.name), || (case.run)(&mut self));
        }

        if machine::cpus() < 2 {
            parameters.push(("warning", "one CPU: servers and client share it".to_owned()));
        }
        failures.publish(self.findings.report(parameters), common.out(), None)
    }
}

/// Returns those that were asked for.
///
/// # Errors
/// One that was asked for is not known.
pub(crate) fn chosen<'a, S>(
    cases: &'a [Case<S>],
    asked: &'a Cases,
) -> anyhow::Result<impl Iterator<Item = &'a Case<S>>> {
    asked.check(cases.iter().map(|case| case.name))?;
    Ok(cases.iter().filter(|case| asked.has(case.name)))
}
