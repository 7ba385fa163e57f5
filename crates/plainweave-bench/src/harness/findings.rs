//! What an experiment has found so far: its rows, facts for the report's head, and what was not
//! measured.

use crate::harness::report::Report;
use crate::harness::sample::{Origin, Row};
use plainweave_report::statistics::ratios;

#[derive(Debug)]
pub(crate) struct Findings {
    origin: Origin,
    /// What was learned on the way.
    pub(crate) facts: Vec<(&'static str, String)>,
    pub(crate) rows: Vec<Row>,
    /// What was not measured, and why.
    absent: Vec<(String, String)>,
}

impl Findings {
    pub(crate) fn of(origin: Origin) -> Self {
        Self {
            origin,
            facts: Vec::new(),
            rows: Vec::new(),
            absent: Vec::new(),
        }
    }

    pub(crate) fn origin(&self) -> Origin {
        self.origin
    }

    /// Adds a column of values.
    pub(crate) fn row(
        &mut self,
        case: &str,
        system: &str,
        metric: &'static str,
        unit: &'static str,
        values: Vec<f64>,
    ) {
        let row = self.origin.row(case, system, metric, unit, values);
        self.rows.push(row);
    }

    /// Adds a system's values as ratios to another's of the same rounds, if that is there.
    pub(crate) fn ratio(
        &mut self,
        case: &str,
        system: &str,
        to: (&'static str, Option<&Vec<f64>>),
        own: &[f64],
    ) {
        if let (metric, Some(other)) = to {
            self.row(case, system, metric, "1", ratios(own, other));
        }
    }

    pub(crate) fn absent(&self) -> &[(String, String)] {
        &self.absent
    }

    /// Notes, once, why something is not measured.
    pub(crate) fn missing(&mut self, what: impl Into<String>, why: impl Into<String>) {
        let lack = (what.into(), why.into());
        if !self.absent.contains(&lack) {
            self.absent.push(lack);
        }
    }

    /// Returns the report. Its head has these parameters, and then the facts.
    pub(crate) fn report(self, mut parameters: Vec<(&'static str, String)>) -> Report {
        parameters.extend(self.facts);
        Report {
            experiment: self.origin.name(),
            parameters,
            rows: self.rows,
            absent: self.absent,
        }
    }
}
