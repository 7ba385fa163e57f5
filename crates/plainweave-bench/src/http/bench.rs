//! What the cases share: the flags' numbers, the files, and the rows.

use std::time::Duration;

use crate::sample::{Row, ratios};
use crate::servers::rounds::Costs;
use crate::servers::site::Site;

/// What the cases share.
pub(super) struct Bench {
    pub(super) experiment: &'static str,
    pub(super) runs: usize,
    pub(super) turn: Duration,
    pub(super) connections: usize,
    pub(super) crowd: usize,
    pub(super) requests: usize,
    pub(super) messages: usize,
    pub(super) site: Site,
    /// What was learned on the way, for the report's head.
    pub(super) facts: Vec<(&'static str, String)>,
    pub(super) rows: Vec<Row>,
    /// What was not measured, and why.
    pub(super) absent: Vec<(String, String)>,
}

/// What systems are compared with: a system's name, and the metric that says how often its cost
/// fits.
pub(super) type Others = [(&'static str, &'static str)];

impl Bench {
    /// A column of values.
    pub(super) fn row(
        &mut self,
        case: &str,
        system: &str,
        metric: &'static str,
        unit: &'static str,
        values: Vec<f64>,
    ) {
        let case = case.to_owned();
        let system = system.to_owned();
        self.rows.push(Row {
            experiment: self.experiment,
            case,
            system,
            workers: 1,
            metric,
            unit,
            values,
        });
    }

    /// Costs of systems, and their ratios to those of `others` in the same rounds.
    pub(super) fn compare(
        &mut self,
        case: &str,
        [metric, rate]: [&'static str; 2],
        costs: &[(&str, Costs)],
        others: &Others,
    ) {
        for (name, own) in costs {
            self.row(case, name, metric, "us", own.cpu.clone());
            self.row(case, name, rate, "1/s", own.rate.clone());
            for (other, ratio) in others.iter().filter(|(other, _)| other != name) {
                let Some((_, theirs)) = costs.iter().find(|(name, _)| name == other) else {
                    continue;
                };
                self.row(case, name, ratio, "1", ratios(&own.cpu, &theirs.cpu));
            }
        }
    }

    pub(super) fn missing(&mut self, what: impl Into<String>, why: impl Into<String>) {
        let pair = (what.into(), why.into());
        if !self.absent.contains(&pair) {
            self.absent.push(pair);
        }
    }
}
