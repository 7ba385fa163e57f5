//! The published figures of the workloads, and what each of them claims, read from `figures.toml`.

use std::collections::HashMap;
use std::sync::LazyLock;

use serde::Deserialize;

use super::claims::{Finding, Line, Measure, Rows, Who, left};
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
    /// Of what is within a limit.
    limit: f64,
    /// Whether it is ours, about the same figures, and not published.
    pub(super) ours: bool,
}

/// How a claim is judged.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Judge {
    /// The first line is ahead of all others.
    Leads,
    /// At most half of the others are ahead of the first line.
    Among,
    /// No line has more than `limit`.
    Within,
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

/// A published work.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::pages) struct Seed {
    /// What `bench seeds --seeds` calls it.
    pub(in crate::pages) name: String,
    pub(in crate::pages) title: String,
    /// Author, title and year.
    pub(in crate::pages) work: String,
    /// What was measured there, and how that differs from here.
    pub(in crate::pages) there: String,
    pub(in crate::pages) here: String,
    /// What has to be measured for its figures.
    pub(in crate::pages) runs: Vec<Run>,
}

/// An experiment that is run for the figures of a seed.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::pages) struct Run {
    /// Its arguments.
    pub(in crate::pages) command: String,
    /// How long it takes, in minutes, on the machine of `results`.
    pub(in crate::pages) minutes: u32,
    /// The same with `--quick`.
    pub(in crate::pages) quick: String,
    pub(in crate::pages) quick_minutes: u32,
}

/// A figure, and the experiment of ours that repeats it.
pub(super) struct Workload {
    /// The seed that it is from, by its name.
    pub(super) seed: &'static str,
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
            (Judge::Among, [first, others @ ..]) => rows.among(measure, *first, others),
            (Judge::Within, lines) => rows.within(measure, lines, self.limit),
            (Judge::Equals, [first, other]) => rows.equals(measure, *first, *other),
            (Judge::Improves, lines) => rows.improves(measure, lines),
            (Judge::Keeps, lines) => rows.keeps(measure, lines),
            (Judge::Peaks, [line]) => rows.peaks(measure, *line, self.at),
            _ => left(rows),
        }
    }
}

/// The published works, in the order of the page.
pub(in crate::pages) fn seeds() -> &'static [Seed] {
    &FILE.seed
}

/// All workloads, in the order of the page.
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
    seed: Vec<Seed>,
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
    seed: String,
    title: String,
    experiment: String,
    command: String,
    source: String,
    #[serde(default)]
    simulated: Vec<String>,
    lines: HashMap<String, LineInFile>,
    figures: Vec<FigureInFile>,
    claims: Vec<ClaimInFile>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LineInFile {
    case: String,
    /// Ours under a policy.
    policy: Option<String>,
    /// Any system, where the policy does not tell.
    system: Option<String>,
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
    #[serde(default)]
    limit: f64,
    #[serde(default)]
    ours: bool,
    least: Option<usize>,
    most: Option<usize>,
}

impl Workload {
    fn of(file: &'static InFile) -> Self {
        let line = |name: &'static String| {
            let LineInFile {
                case,
                policy,
                system,
            } = &file.lines[name];
            let who = match (policy, system) {
                (Some(policy), _) => Who::Policy(policy),
                (None, Some(system)) => Who::System(system),
                (None, None) => unreachable!("{name} has a policy or a system"),
            };
            Line { name, case, who }
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
            limit: claim.limit,
            ours: claim.ours,
        };

        Self {
            seed: &file.seed,
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
    use clap::Parser;

    use super::{FILE, Judge, WORKLOADS};
    use crate::Cli;
    use crate::pages::plan::RESUMING;

    /// What the reader does not look at: that what a claim says can be judged.
    #[test]
    fn each_claim_has_what_its_way_to_be_judged_takes() {
        for (workload, file) in WORKLOADS.iter().zip(&FILE.workload) {
            for claim in &file.claims {
                let lines = match claim.judge {
                    Judge::Leads | Judge::Among => 2..=usize::MAX,
                    Judge::Equals => 2..=2,
                    Judge::Improves | Judge::Keeps | Judge::Within => 1..=usize::MAX,
                    Judge::Peaks => 1..=1,
                    Judge::Left => 0..=0,
                };

                let measured = FILE.metrics.contains_key(&claim.metric);
                assert!(
                    lines.contains(&claim.lines.len())
                        && measured == !matches!(claim.judge, Judge::Left)
                        && (claim.at > 0) == matches!(claim.judge, Judge::Peaks)
                        && (claim.limit == 0.0 || matches!(claim.judge, Judge::Within)),
                    "{}: {}",
                    workload.title,
                    claim.text
                );
            }
        }
    }

    /// What `bench seeds` runs: each command is one that there is, and each workload has one, whose
    /// cases it has.
    #[test]
    fn every_workload_is_run_for_its_seed() {
        for seed in &FILE.seed {
            for run in &seed.runs {
                for command in [&run.command, &run.quick] {
                    let words = || std::iter::once("bench").chain(command.split(' '));
                    let parsed = Cli::try_parse_from(words());
                    assert!(parsed.is_ok(), "{command}: {}", parsed.unwrap_err());
                    // Those that can go on get the flag.
                    let resumes = Cli::try_parse_from(words().chain(["--resume"])).is_ok();
                    let name = words().nth(1).unwrap();
                    assert_eq!(RESUMING.contains(&name), resumes, "{command}");
                }
            }
        }

        for workload in WORKLOADS.iter() {
            let seed = FILE.seed.iter().find(|seed| seed.name == workload.seed);
            let runs = &seed.unwrap().runs;
            let run = runs.iter().find(|run| {
                let words: Vec<_> = run.command.split(' ').collect();
                words[0] == workload.experiment
            });
            let run = run.unwrap_or_else(|| panic!("{}: no run", workload.title));

            for command in [&run.command, &run.quick] {
                let mut words = command.split(' ').skip_while(|word| *word != "--cases");
                let Some(cases) = words.nth(1) else { continue };
                for figure in &workload.figures {
                    let case = figure.line.case.split(' ').next().unwrap();
                    assert!(
                        cases.split(',').any(|known| known == case),
                        "{command}: {case}"
                    );
                }
            }
        }
    }
}
