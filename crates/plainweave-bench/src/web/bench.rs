//! What the cases share: the flags' numbers, the site, and the rows.

use std::time::Duration;

use crate::sample::{Row, ratios};
use crate::servers::site::Site;
use crate::servers::web::{Kind, Server};

/// What the cases share.
pub(super) struct Bench {
    pub(super) runs: usize,
    pub(super) turn: Duration,
    pub(super) idle: usize,
    pub(super) many: usize,
    pub(super) mix_scale: usize,
    pub(super) large: usize,
    pub(super) site: Site,
    /// What was learned on the way, for the report's head.
    pub(super) facts: Vec<(&'static str, String)>,
    pub(super) rows: Vec<Row>,
    pub(super) absent: Vec<(&'static str, &'static str)>,
}

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
            experiment: "web",
            case,
            system,
            workers: 1,
            metric,
            unit,
            values,
        });
    }

    /// A system's values as ratios to another's of the same rounds, if that is there.
    pub(super) fn ratio(
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

    pub(super) fn missing(&mut self, system: &'static str, why: &'static str) {
        if !self.absent.contains(&(system, why)) {
            self.absent.push((system, why));
        }
    }

    /// Starts the servers that there are, ours with these flags.
    pub(super) fn servers(
        &mut self,
        kinds: &[Kind],
        extra: &[&str],
    ) -> anyhow::Result<Vec<Server>> {
        let mut servers = Vec::new();
        for kind in kinds {
            match kind.absence() {
                Some(why) => self.missing(kind.name(), why),
                None => servers.push(Server::start_with(*kind, &self.site, None, extra)?),
            }
        }
        Ok(servers)
    }
}
