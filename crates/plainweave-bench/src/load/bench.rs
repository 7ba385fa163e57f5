//! What the cases share: how much they measure, and what they have found.

use std::time::Duration;

use crate::sample::Row;
use crate::servers::site::Site;

/// What the cases share.
pub(super) struct Bench {
    pub(super) connections: usize,
    pub(super) runs: usize,
    pub(super) turn: Duration,
    pub(super) site: Site,
    pub(super) facts: Vec<(&'static str, String)>,
    pub(super) rows: Vec<Row>,
    pub(super) absent: Vec<(String, String)>,
}

impl Bench {
    /// Adds a column of values.
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
            experiment: "load",
            case,
            system,
            workers: 1,
            metric,
            unit,
            values,
        });
    }

    pub(super) fn missing(&mut self, system: &str, why: &str) {
        self.absent.push((system.to_owned(), why.to_owned()));
    }
}
