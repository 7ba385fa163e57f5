//! Ours beside the best of the others, one figure at a time.
//!
//! Ours is the *first* of ours in a file, which is the one with the default settings: the best of
//! fifty policies, chosen after the fact, would win too often. The best of the others is chosen
//! after the fact, against ourselves.

use super::meaning::{Better, better, is_ratio, is_rival, metrics, role, words};
use crate::harness::source::{Figure, Table};
use plainweave_report::Role;
use plainweave_report::text::{humane, times};

/// Medians that differ by less count as even.
const EVEN: f64 = 1.02;
/// The same with one run each, where nothing is known of how a figure varies.
const EVEN_ONCE: f64 = 1.1;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Better,
    Even,
    Worse,
}

impl Verdict {
    /// Returns the class of a cell in the summary.
    pub(super) fn class(self) -> &'static str {
        match self {
            Verdict::Better => "good",
            Verdict::Even => "even",
            Verdict::Worse => "bad",
        }
    }
}

/// Two figures of one case.
#[derive(Clone, Debug)]
pub(super) struct Comparison<'a> {
    pub(super) ours: &'a Figure,
    pub(super) peer: &'a Figure,
    /// How many times better ours is; less than one if it is worse.
    pub(super) ratio: f64,
    pub(super) verdict: Verdict,
}

impl<'a> Comparison<'a> {
    pub(super) fn new(ours: &'a Figure, peer: &'a Figure, better: Better) -> Self {
        let ratio = better.ratio(ours.spread.median, peer.spread.median);
        let a = &ours.spread;
        let b = &peer.spread;
        // Overlapping quartiles: another run of the same binaries could come out the other way.
        let apart = a.q3 < b.q1 || b.q3 < a.q1;
        let least = if ours.runs.min(peer.runs) > 1 {
            EVEN
        } else {
            EVEN_ONCE
        };

        let verdict = match ratio {
            _ if !apart => Verdict::Even,
            ratio if ratio >= least => Verdict::Better,
            ratio if ratio <= 1.0 / least => Verdict::Worse,
            _ => Verdict::Even,
        };

        Self {
            ours,
            peer,
            ratio,
            verdict,
        }
    }

    /// Returns how ours compares: `2.1x better than nginx`.
    pub(super) fn words(&self) -> String {
        let peer = &self.peer.system;
        match self.verdict {
            Verdict::Even => format!("even with {peer}"),
            Verdict::Better if self.ratio.is_finite() => {
                format!("{} better than {peer}", times(self.ratio))
            }
            Verdict::Worse if self.ratio > 0.0 => {
                format!("{} worse than {peer}", times(1.0 / self.ratio))
            }
            _ => {
                let [ours, theirs] =
                    [self.ours, self.peer].map(|f| humane(f.spread.median, &f.unit));
                format!("{ours} against {theirs} of {peer}")
            }
        }
    }

    /// Returns what is compared: `p99 of 1k-64`.
    pub(super) fn what(&self) -> String {
        format!(
            "{} of {}",
            words(&self.ours.metric),
            place(&self.ours.case, self.ours.workers)
        )
    }

    /// Returns by how much one is ahead, whichever it is; for sorting.
    pub(super) fn lead(&self) -> f64 {
        if self.ratio >= 1.0 {
            self.ratio
        } else {
            1.0 / self.ratio
        }
    }
}

/// Returns a case with its workers, where they are not one.
pub(super) fn place(case: &str, workers: usize) -> String {
    if workers == 1 {
        case.to_owned()
    } else {
        format!("{case}, {workers} workers")
    }
}

/// Compares figures of one metric in one case; `None`: one side is missing, or neither way is
/// better.
pub(super) fn of_case<'a>(experiment: &str, figures: &[&'a Figure]) -> Option<Comparison<'a>> {
    let better = better(&figures.first()?.metric, &figures.first()?.unit);
    if better == Better::Neither {
        return None;
    }
    let there = || {
        figures
            .iter()
            .copied()
            .filter(|figure| !figure.spread.median.is_nan())
    };

    let is_rival = |figure: &&Figure| is_rival(experiment, &figure.system);
    let ours = there()
        .find(|figure| role(experiment, &figure.system) == Role::Ours && !is_rival(figure))?;
    let peers = there().filter(is_rival);
    let key = |figure: &&Figure| {
        if better == Better::Less {
            figure.spread.median
        } else {
            -figure.spread.median
        }
    };

    let peer = peers.min_by(|a, b| key(a).total_cmp(&key(b)))?;
    Some(Comparison::new(ours, peer, better))
}

/// Compares all that can be compared in a table, but for ratios, which say the same again.
pub(super) fn all(table: &Table) -> Vec<Comparison<'_>> {
    let mut found = Vec::new();
    for (metric, _) in metrics(table) {
        let figures: Vec<_> = table
            .figures
            .iter()
            .filter(|f| f.metric == metric && !is_ratio(f))
            .collect();
        for group in by_place(&figures) {
            found.extend(of_case(&table.experiment, &group));
        }
    }
    found
}

/// Groups figures by case and workers, in their order.
pub(super) fn by_place<'a>(figures: &[&'a Figure]) -> Vec<Vec<&'a Figure>> {
    let mut groups: Vec<Vec<&Figure>> = Vec::new();
    for &figure in figures {
        let same = |group: &&mut Vec<&Figure>| {
            group[0].case == figure.case && group[0].workers == figure.workers
        };
        match groups.iter_mut().find(same) {
            Some(group) => group.push(figure),
            None => groups.push(vec![figure]),
        }
    }
    groups
}

#[cfg(test)]
pub(super) mod tests {
    use super::{Verdict, all, of_case};
    use crate::harness::source::{Figure, Table};
    use plainweave_report::statistics::Spread;

    /// A figure of one case, with quartiles a tenth of the median away.
    pub(in crate::pages) fn figure(
        case: &str,
        system: &str,
        metric: &str,
        unit: &str,
        median: f64,
    ) -> Figure {
        let text = |text: &str| text.to_owned();
        let spread = Spread {
            median,
            q1: median * 0.9,
            q3: median * 1.1,
            min: median * 0.8,
            max: median * 1.3,
        };

        let case = text(case);
        let system = text(system);
        let metric = text(metric);
        let unit = text(unit);

        Figure {
            case,
            system,
            workers: 1,
            metric,
            unit,
            spread,
            runs: 3,
        }
    }

    pub(in crate::pages) fn table(experiment: &str, figures: Vec<Figure>) -> Table {
        let name = experiment.to_owned();
        let experiment = experiment.to_owned();
        let facts = Vec::new();
        let absent = Vec::new();

        Table {
            name,
            experiment,
            facts,
            absent,
            quartiles: true,
            raw: false,
            figures,
        }
    }

    #[test]
    fn ours_is_the_first_and_the_peer_the_best() {
        let systems = [
            ("plainweave epoll", 8.0),
            ("plainweave uring", 2.0),
            ("nginx", 16.0),
            ("go", 12.0),
        ];
        let figures = systems.map(|(name, median)| figure("1k", name, "p99_us", "us", median));
        let found = of_case("web", &figures.iter().collect::<Vec<_>>()).unwrap();
        assert_eq!((found.ratio, found.verdict), (1.5, Verdict::Better));

        assert_eq!(
            (found.words(), found.what()),
            (
                "1.5\u{d7} better than go".to_owned(),
                "p99 of 1k".to_owned()
            )
        );
    }

    #[test]
    fn overlapping_quartiles_are_even_and_rates_go_up() {
        let verdict = |metric: &str, unit: &str, ours: f64, peer: f64| {
            let figures = [
                figure("a", "plainweave", metric, unit, ours),
                figure("a", "go", metric, unit, peer),
            ];
            of_case("micro", &figures.iter().collect::<Vec<_>>())
                .map(|found| (found.verdict, found.words()))
        };

        assert_eq!(
            verdict("p99_us", "us", 10.0, 11.0),
            Some((Verdict::Even, "even with go".to_owned()))
        );
        assert_eq!(
            verdict("requests_per_s", "1/s", 10.0, 20.0).unwrap(),
            (Verdict::Worse, "2\u{d7} worse than go".into())
        );
        assert_eq!(
            verdict("errors", "count", 0.0, 20.0).unwrap().1,
            "0 against 20 of go"
        );
        assert_eq!(
            verdict("errors", "count", 20.0, 0.0).unwrap(),
            (Verdict::Worse, "20 against 0 of go".into())
        );
        assert_eq!(
            verdict("errors", "count", 0.0, 0.0).unwrap().0,
            Verdict::Even
        );
        assert_eq!(verdict("stolen_percent", "%", 1.0, 5.0), None);
    }

    #[test]
    fn ratios_are_not_counted_again() {
        let figures = vec![
            figure("a", "plainweave", "p99_us", "us", 1.0),
            figure("a", "go", "p99_us", "us", 4.0),
            figure("a", "plainweave", "ratio_to_go", "1", 0.25),
            figure("a", "go", "ratio_to_go", "1", 1.0),
        ];
        assert_eq!(all(&table("micro", figures)).len(), 1);
    }
}
