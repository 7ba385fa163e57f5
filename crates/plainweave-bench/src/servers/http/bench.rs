//! What the cases share: how much there is of what, and how systems are compared.

use crate::serving::rounds::Costs;
use plainweave_report::statistics::ratios;

/// How many of what the cases have.
pub(super) struct Sizes {
    pub(super) connections: usize,
    pub(super) crowd: usize,
    pub(super) requests: usize,
    pub(super) messages: usize,
}

pub(super) type Bench = crate::serving::bench::Bench<Sizes>;

/// What systems are compared with: a system's name, and the metric that says how often its cost
/// fits.
pub(super) type Others = [(&'static str, &'static str)];

impl Bench {
    /// Costs of systems, and their ratios to those of `others` in the same rounds.
    pub(super) fn compare(
        &mut self,
        case: &str,
        [metric, rate]: [&'static str; 2],
        costs: &[(&str, Costs)],
        others: &Others,
    ) {
        for (name, own) in costs {
            self.findings.row(case, name, metric, "us", own.cpu.clone());
            self.findings.row(case, name, rate, "1/s", own.rate.clone());
            for (other, ratio) in others.iter().filter(|(other, _)| other != name) {
                let Some((_, theirs)) = costs.iter().find(|(name, _)| name == other) else {
                    continue;
                };
                self.findings
                    .row(case, name, ratio, "1", ratios(&own.cpu, &theirs.cpu));
            }
        }
    }
}
