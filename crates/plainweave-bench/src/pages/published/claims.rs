//! What becomes of a published claim on this machine: small functions over our rows.
//!
//! Two medians are compared as on all pages ([`Comparison`]): where their quartiles overlap,
//! nothing can be told. A claim that takes more workers than were measured is left to the
//! simulator.

use crate::harness::source::Figure;
use crate::pages::compare::{Comparison, Verdict};
use crate::pages::meaning::Better;
use plainweave_report::text::humane;

/// A peak's neighbours differ from it by at most this part of its workers: a quarter.
const NEAR: usize = 4;

/// What becomes of a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Holds,
    Fails,
    /// It cannot be told on this machine.
    Open,
}

impl Outcome {
    /// Returns the outcome of a claim from those with each number of workers: once is enough to
    /// fail.
    pub(super) fn of(findings: &[Finding]) -> Self {
        let any = |outcome| findings.iter().any(|finding| finding.outcome == outcome);
        match () {
            () if any(Outcome::Fails) => Outcome::Fails,
            () if any(Outcome::Holds) => Outcome::Holds,
            () => Outcome::Open,
        }
    }

    pub(super) fn words(self) -> &'static str {
        match self {
            Outcome::Holds => "holds",
            Outcome::Fails => "does not hold",
            Outcome::Open => "cannot be told here",
        }
    }

    /// Returns the class of its colour.
    pub(super) fn class(self) -> &'static str {
        match self {
            Outcome::Holds => Verdict::Better,
            Outcome::Open => Verdict::Even,
            Outcome::Fails => Verdict::Worse,
        }
        .class()
    }
}

/// An outcome, and what it follows from.
#[derive(Debug)]
pub(super) struct Finding {
    pub(super) outcome: Outcome,
    pub(super) words: String,
}

impl Finding {
    fn open(words: impl Into<String>) -> Self {
        Self {
            outcome: Outcome::Open,
            words: words.into(),
        }
    }
}

/// A line of a published figure: a case of somebody's.
#[derive(Clone, Copy, Debug)]
pub(super) struct Line {
    pub(super) name: &'static str,
    /// As our rows have it; an `N` at the end stands for the greatest number that was measured.
    pub(super) case: &'static str,
    pub(super) who: Who,
}

impl Line {
    /// Returns whether its rows are of this case.
    pub(super) fn is_of(&self, case: &str) -> bool {
        match self.case.strip_suffix('N') {
            None => self.case == case,
            Some(start) => case
                .strip_prefix(start)
                .is_some_and(|number| number.parse::<u64>().is_ok()),
        }
    }
}

/// Whose rows a line consists of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Who {
    /// Ours under a policy, as our rows have it; in the case of queues, which queue.
    Policy(&'static str),
    /// A system by its name.
    System(&'static str),
}

impl Who {
    pub(super) fn is(self, system: &str) -> bool {
        match self {
            Who::Policy(name) => policy(system) == Some(name),
            Who::System(name) => system == name,
        }
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Who::Policy(name) | Who::System(name) => name,
        }
    }
}

/// What lines are compared by.
#[derive(Clone, Copy, Debug)]
pub(super) struct Measure {
    pub(super) metric: &'static str,
    /// Which way a line is ahead.
    pub(super) ahead: Better,
    /// The fewest workers with which the claim can be judged.
    pub(super) least: usize,
    /// The most.
    pub(super) most: usize,
}

/// Our rows of an experiment.
#[derive(Debug, Default)]
pub(super) struct Rows<'a>(pub(super) Vec<&'a Figure>);

impl<'a> Rows<'a> {
    /// Returns the case of a line, as the rows have it.
    pub(super) fn case(&self, line: Line) -> Option<&'a str> {
        let mut cases = self.0.iter().map(|figure| figure.case.as_str());
        let Some(before) = line.case.strip_suffix('N') else {
            return cases.find(|case| *case == line.case);
        };
        let numbered =
            cases.filter_map(|case| Some((case.strip_prefix(before)?.parse::<u64>().ok()?, case)));
        numbered.max().map(|(_, case)| case)
    }

    /// Returns the figure of a line: that of the first mode, if there are several.
    pub(super) fn get(&self, line: Line, metric: &str, workers: usize) -> Option<&'a Figure> {
        let case = self.case(line)?;
        let here = |figure: &&Figure| {
            (figure.case.as_str(), figure.metric.as_str(), figure.workers)
                == (case, metric, workers)
                && line.who.is(&figure.system)
        };
        self.0.iter().copied().find(here)
    }

    /// Returns the numbers of workers that a line has a figure for, the least first.
    pub(super) fn workers(&self, line: Line, metric: &str) -> Vec<usize> {
        let mut all: Vec<_> = self.0.iter().map(|figure| figure.workers).collect();
        all.sort_unstable();
        all.dedup();
        all.retain(|workers| self.get(line, metric, *workers).is_some());
        all
    }

    /// Returns a line's figures with which a claim can be judged, that with the fewest workers
    /// first.
    fn judged(
        &self,
        line: Line,
        Measure {
            metric,
            least,
            most,
            ..
        }: Measure,
    ) -> Vec<&'a Figure> {
        let within = self
            .workers(line, metric)
            .into_iter()
            .filter(|workers| (least..=most).contains(workers));
        within
            .filter_map(|workers| self.get(line, metric, workers))
            .collect()
    }

    /// Judges with each number of workers; `None`: lines were not measured with it.
    fn each(
        &self,
        line: Line,
        measure: Measure,
        judge: impl Fn(usize) -> Option<Finding>,
    ) -> Vec<Finding> {
        let least = measure.least;
        if !self.0.is_empty() && self.0.iter().all(|figure| figure.workers < least) {
            return vec![Finding::open(format!("it takes {least} workers or more"))];
        }

        let enough = self.judged(line, measure).into_iter();
        found(enough.filter_map(|figure| judge(figure.workers)))
    }

    /// Judges that a line is ahead of others.
    pub(super) fn leads(&self, measure: Measure, first: Line, others: &[Line]) -> Vec<Finding> {
        self.each(first, measure, |workers| {
            let of = |line: Line| self.get(line, measure.metric, workers);
            let ours = of(first)?;
            let mut verdicts = Vec::new();
            let mut words = said(first, ours);

            for other in others {
                let Some(figure) = of(*other) else { continue };
                verdicts.push(Comparison::new(ours, figure, measure.ahead).verdict);
                words = format!("{words}, {}", said(*other, figure));
            }

            let outcome = match () {
                () if verdicts.is_empty() => return None,
                () if verdicts.contains(&Verdict::Worse) => Outcome::Fails,
                () if verdicts.contains(&Verdict::Even) || verdicts.len() < others.len() => {
                    Outcome::Open
                }
                () => Outcome::Holds,
            };

            Some(Finding {
                outcome,
                words: format!("with {}: {words}", count(workers)),
            })
        })
    }

    /// Judges that a line keeps up with others: at most half of them are ahead. With fewer than
    /// two of them nothing can be told.
    pub(super) fn among(&self, measure: Measure, first: Line, others: &[Line]) -> Vec<Finding> {
        self.each(first, measure, |workers| {
            let of = |line: Line| self.get(line, measure.metric, workers);
            let ours = of(first)?;
            let there: Vec<_> = others
                .iter()
                .filter_map(|other| Some((*other, of(*other)?)))
                .collect();

            let is_ahead = |(_, figure): &&(Line, &Figure)| {
                Comparison::new(ours, figure, measure.ahead).verdict == Verdict::Worse
            };
            let ahead = there.iter().filter(is_ahead).count();
            let outcome = match () {
                () if there.is_empty() => return None,
                () if there.len() < others.len().min(2) => Outcome::Open,
                () if 2 * ahead > there.len() => Outcome::Fails,
                () => Outcome::Holds,
            };

            let words: Vec<_> = there.iter().map(|(line, of)| said(*line, of)).collect();
            let count = count(workers);
            let words = format!("with {count}: {}, {}", said(first, ours), words.join(", "));
            Some(Finding { outcome, words })
        })
    }

    /// Judges that no line has more than a limit: than nothing in any of its runs, else by its
    /// median.
    pub(super) fn within(&self, measure: Measure, lines: &[Line], limit: f64) -> Vec<Finding> {
        let judge = |line: &Line| {
            let of = self.judged(*line, measure).into_iter();
            let line = *line;
            of.map(move |figure| {
                let spread = &figure.spread;
                let value = if limit > 0.0 {
                    spread.median
                } else {
                    spread.max
                };
                let outcome = if value <= limit {
                    Outcome::Holds
                } else {
                    Outcome::Fails
                };
                let value = shown(value, &figure.unit);
                let words = format!("with {}: {} {value}", count(figure.workers), line.name);
                Finding { outcome, words }
            })
        };

        found(lines.iter().flat_map(judge))
    }

    /// Judges that two lines do not differ.
    pub(super) fn equals(&self, measure: Measure, first: Line, other: Line) -> Vec<Finding> {
        self.each(first, measure, |workers| {
            let of = |line: Line| self.get(line, measure.metric, workers);
            let a = of(first)?;
            let b = of(other)?;
            let even = Comparison::new(a, b, measure.ahead).verdict == Verdict::Even;
            let outcome = if even { Outcome::Holds } else { Outcome::Fails };
            let words = format!(
                "with {}: {}, {}",
                count(workers),
                said(first, a),
                said(other, b)
            );

            Some(Finding { outcome, words })
        })
    }

    /// Judges that lines get better as workers are added.
    pub(super) fn improves(&self, measure: Measure, lines: &[Line]) -> Vec<Finding> {
        let fewest = |figures: &[&'a Figure]| figures[0];
        self.course(measure, lines, fewest, |verdict| match verdict {
            Verdict::Better => Outcome::Holds,
            Verdict::Even => Outcome::Open,
            Verdict::Worse => Outcome::Fails,
        })
    }

    /// Judges that lines get no worse than their best as workers are added.
    pub(super) fn keeps(&self, measure: Measure, lines: &[Line]) -> Vec<Finding> {
        let best = |figures: &[&'a Figure]| {
            let ahead = |a: &Figure, b: &Figure| {
                Comparison::new(a, b, measure.ahead).verdict == Verdict::Better
            };
            figures[1..].iter().fold(
                figures[0],
                |best, figure| if ahead(figure, best) { figure } else { best },
            )
        };

        self.course(measure, lines, best, |verdict| match verdict {
            Verdict::Worse => Outcome::Fails,
            Verdict::Better | Verdict::Even => Outcome::Holds,
        })
    }

    /// Judges each line by how its figure with the most workers compares with one of those with
    /// fewer.
    fn course(
        &self,
        measure: Measure,
        lines: &[Line],
        choose: impl Fn(&[&'a Figure]) -> &'a Figure,
        outcome: fn(Verdict) -> Outcome,
    ) -> Vec<Finding> {
        let judge = |line: &Line| {
            let figures = self.judged(*line, measure);
            let (last, fewer) = figures.split_last()?;
            if fewer.is_empty() {
                return Some(Finding::open(format!(
                    "measured with {} alone",
                    count(last.workers)
                )));
            }

            let before = choose(fewer);
            let outcome = outcome(Comparison::new(last, before, measure.ahead).verdict);
            let after = shown(last.spread.median, &last.unit);
            let words = format!(
                "from {} to {}: {}, then {after}",
                before.workers,
                count(last.workers),
                said(*line, before)
            );
            Some(Finding { outcome, words })
        };

        found(lines.iter().filter_map(judge))
    }

    /// Judges that a line is highest with this many workers. A grid that goes past a peak in large
    /// steps has its greatest value at one of them, wherever the peak is: so its neighbours must
    /// have been measured.
    pub(super) fn peaks(&self, measure: Measure, line: Line, at: usize) -> Vec<Finding> {
        let figures = self.judged(line, measure);
        if figures.last().is_none_or(|most| most.workers <= at) {
            return left(self);
        }
        let beside = |workers: usize| workers != at && workers.abs_diff(at) <= at / NEAR;
        let is_surrounded = [
            figures
                .iter()
                .any(|figure| beside(figure.workers) && figure.workers < at),
            figures
                .iter()
                .any(|figure| beside(figure.workers) && figure.workers > at),
        ];
        let there = figures.iter().find(|figure| figure.workers == at);
        let (Some(there), [true, true]) = (there, is_surrounded) else {
            return vec![Finding::open(format!("the grid has no neighbours of {at}"))];
        };
        let top = figures.iter().fold(there, |top, figure| {
            if figure.spread.median > top.spread.median {
                figure
            } else {
                top
            }
        });

        let outcome = match Comparison::new(there, top, measure.ahead).verdict {
            _ if top.workers == at => Outcome::Holds,
            Verdict::Worse => Outcome::Fails,
            _ => Outcome::Open,
        };

        let words = format!("highest with {}: {}", count(top.workers), said(line, top));
        vec![Finding { outcome, words }]
    }
}

/// Returns what was found; without anything, that it was not measured.
fn found(findings: impl Iterator<Item = Finding>) -> Vec<Finding> {
    let mut findings: Vec<_> = findings.collect();
    if findings.is_empty() {
        findings.push(Finding::open("not measured"));
    }
    findings
}

/// Judges nothing: the claim speaks of more workers, and is left to the simulator.
pub(super) fn left(_: &Rows<'_>) -> Vec<Finding> {
    vec![Finding::open("it takes more workers")]
}

/// Returns the policy in the name of one of our systems.
fn policy(system: &str) -> Option<&str> {
    system.strip_prefix("plainweave ")?.split(' ').next()
}

/// Returns a number of workers in words.
pub(super) fn count(workers: usize) -> String {
    format!("{workers} worker{}", if workers == 1 { "" } else { "s" })
}

fn said(line: Line, figure: &Figure) -> String {
    format!(
        "{} {}",
        line.name,
        shown(figure.spread.median, &figure.unit)
    )
}

/// Writes a value as the theses do: high rates in millions a second.
pub(super) fn shown(value: f64, unit: &str) -> String {
    match unit {
        "1/s" if value >= FAST => humane(value / 1e6, "M/s"),
        "1/s" => format!("{}/s", thousands(value.round() as u64)),
        _ => humane(value, unit),
    }
}

/// From this rate on, millions a second are written.
const FAST: f64 = 100_000.0;

/// Writes a number with commas.
fn thousands(number: u64) -> String {
    match (number / 1000, number % 1000) {
        (0, rest) => rest.to_string(),
        (more, rest) => format!("{},{rest:03}", thousands(more)),
    }
}
