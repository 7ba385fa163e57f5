//! The published figures of the workloads, and what each of them claims, read from `figures.toml`.

use std::collections::HashMap;
use std::sync::LazyLock;

use serde::Deserialize;

use super::claims::{Finding, Line, Measure, Rows, left};
use crate::pages::meaning::Better;

/// A published value.
#[derive(Clone, Copy, Debug)]
pub(super) struct Published {
    pub(super) line: Line,
    /// As our rows have it, and its unit.
    pub(super) metric: &'static str,
    pub(super) unit: &'static str,
    /// With how many domains, or under which load.
    pub(super) place: &'static str,
    /// The value, unless only how lines compare can be read.
    pub(super) value: Option<f64>,
}

/// What a figure claims.
pub(super) struct Claim {
    pub(super) text: &'static str,
    judge: Judge,
    measure: Measure,
    lines: Vec<Line>,
    /// Of a peak: with how many workers.
    at: usize,
}

/// How a claim is judged.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Judge {
    /// The first line is ahead of all others.
    Leads,
    /// The two lines do not differ.
    Equals,
    /// Each line gets better as workers are added.
    Improves,
    /// Each line gets no worse than its best.
    Keeps,
    /// The line is highest with `at` workers.
    Peaks,
    /// It speaks of more workers than there are: nothing is judged.
    Left,
}

/// A figure, and the experiment of ours that repeats it.
pub(super) struct Workload {
    pub(super) title: &'static str,
    /// As our rows have it.
    pub(super) experiment: &'static str,
    pub(super) command: &'static str,
    /// Where the values are from.
    pub(super) source: &'static str,
    pub(super) figures: Vec<Published>,
    pub(super) claims: Vec<Claim>,
    /// The simulator's commands; none if it does not have the workload.
    pub(super) simulated: &'static [String],
}

impl Claim {
    pub(super) fn judge(&self, rows: &Rows<'_>) -> Vec<Finding> {
        let measure = self.measure;
        match (self.judge, &*self.lines) {
            (Judge::Leads, [first, others @ ..]) => rows.leads(measure, *first, others),
            (Judge::Equals, [first, other]) => rows.equals(measure, *first, *other),
            (Judge::Improves, lines) => rows.improves(measure, lines),
            (Judge::Keeps, lines) => rows.keeps(measure, lines),
            (Judge::Peaks, [line]) => rows.peaks(measure, *line, self.at),
            _ => left(rows),
        }
    }
}

/// All of them, in the order of the page.
pub(super) static WORKLOADS: LazyLock<Vec<Workload>> =
    LazyLock::new(|| FILE.workload.iter().map(Workload::of).collect());

/// What is part of this program has been read by its tests.
static FILE: LazyLock<File> = LazyLock::new(|| {
    toml::from_str(include_str!("figures.toml")).expect("figures.toml is well-formed")
});

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    metrics: HashMap<String, Metric>,
    workload: Vec<InFile>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Metric {
    unit: String,
    ahead: Ahead,
}

/// How much of a metric is ahead.
#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Ahead {
    More,
    Less,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct InFile {
    title: String,
    experiment: String,
    command: String,
    source: String,
    simulated: Vec<String>,
    lines: HashMap<String, LineInFile>,
    figures: Vec<FigureInFile>,
    claims: Vec<ClaimInFile>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LineInFile {
    case: String,
    policy: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FigureInFile {
    line: String,
    metric: String,
    place: String,
    value: Option<f64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ClaimInFile {
    text: String,
    judge: Judge,
    #[serde(default)]
    metric: String,
    /// Unless as its metric.
    ahead: Option<Ahead>,
    #[serde(default)]
    lines: Vec<String>,
    #[serde(default)]
    at: usize,
    least: Option<usize>,
    most: Option<usize>,
}

impl Workload {
    fn of(file: &'static InFile) -> Self {
        let line = |name: &'static String| {
            let LineInFile { case, policy } = &file.lines[name];
            Line { name, case, policy }
        };

        let published = |figure: &'static FigureInFile| Published {
            line: line(&figure.line),
            metric: &figure.metric,
            unit: &FILE.metrics[&figure.metric].unit,
            place: &figure.place,
            value: figure.value,
        };

        let claim = |claim: &'static ClaimInFile| Claim {
            text: &claim.text,
            judge: claim.judge,
            measure: claim.measure(),
            lines: claim.lines.iter().map(line).collect(),
            at: claim.at,
        };

        Self {
            title: &file.title,
            experiment: &file.experiment,
            command: &file.command,
            source: &file.source,
            figures: file.figures.iter().map(published).collect(),
            claims: file.claims.iter().map(claim).collect(),
            simulated: &file.simulated,
        }
    }
}

impl ClaimInFile {
    fn measure(&'static self) -> Measure {
        // What is left to the simulator has no metric.
        let usual = FILE.metrics.get(&self.metric).map(|metric| metric.ahead);
        Measure {
            metric: &self.metric,
            ahead: match self.ahead.or(usual) {
                Some(Ahead::More) => Better::More,
                Some(Ahead::Less) => Better::Less,
                None => Better::Neither,
            },
            least: self.least.unwrap_or(1),
            most: self.most.unwrap_or(usize::MAX),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{FILE, Judge, WORKLOADS};

    /// What the reader does not look at: that what a claim says can be judged.
    #[test]
    fn each_claim_has_what_its_way_to_be_judged_takes() {
        for (workload, file) in WORKLOADS.iter().zip(&FILE.workload) {
            for claim in &file.claims {
                let lines = match claim.judge {
                    Judge::Leads => 2..=usize::MAX,
                    Judge::Equals => 2..=2,
                    Judge::Improves | Judge::Keeps => 1..=usize::MAX,
                    Judge::Peaks => 1..=1,
                    Judge::Left => 0..=0,
                };

                let measured = FILE.metrics.contains_key(&claim.metric);
                assert!(
                    lines.contains(&claim.lines.len())
                        && measured == !matches!(claim.judge, Judge::Left)
                        && (claim.at > 0) == matches!(claim.judge, Judge::Peaks),
                    "{}: {}",
                    workload.title,
                    claim.text
                );
            }
        }
    }
}
