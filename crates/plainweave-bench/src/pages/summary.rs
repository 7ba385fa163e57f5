//! Who wins: a table of ratios for each file, and the sentences of a run.

use std::fmt::Write as _;

use super::compare::{Comparison, Verdict, all, place};
use super::meaning::words;
use crate::harness::source::Table;
use crate::scheduler::thesis;
use plainweave_report::text::{attribute, escape, humane, times};

/// Metrics of a table that have a column.
const COLUMNS: usize = 6;

/// How many comparisons came out which way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Score {
    pub(super) better: usize,
    pub(super) even: usize,
    pub(super) worse: usize,
}

impl Score {
    pub(super) fn of<'a>(found: impl IntoIterator<Item = &'a Comparison<'a>>) -> Self {
        let mut score = Self::default();
        for comparison in found {
            match comparison.verdict {
                Verdict::Better => score.better += 1,
                Verdict::Even => score.even += 1,
                Verdict::Worse => score.worse += 1,
            }
        }
        score
    }

    pub(super) fn all(self) -> usize {
        self.better + self.even + self.worse
    }
}

/// Draws a table: a row for each case, a column for each metric, coloured by the winner. Nothing if
/// there is no peer.
pub(super) fn matrix(table: &Table) -> String {
    let found = all(table);
    let (mut metrics, mut places): (Vec<&str>, Vec<(&str, usize)>) = Default::default();
    for comparison in &found {
        let ours = comparison.ours;
        if !metrics.contains(&ours.metric.as_str()) {
            metrics.push(&ours.metric);
        }
        if !places.contains(&(&ours.case, ours.workers)) {
            places.push((&ours.case, ours.workers));
        }
    }

    metrics.truncate(COLUMNS);
    let Some(first) = found.first() else {
        return String::new();
    };
    let ours = escape(&first.ours.system);
    let bands = if table.quartiles {
        "quartiles"
    } else {
        "ranges from the least to the greatest value"
    };

    let mut html = format!(
        "<p>{ours}, the first of ours, beside the best of the others; even where {bands} overlap.</p>\
         <div class='wide'><table class='wins'><thead><tr><th></th>"
    );
    for metric in &metrics {
        let _ = write!(html, "<th>{}</th>", escape(&words(metric)));
    }
    html.push_str("</tr></thead>");

    for (case, workers) in places {
        let _ = write!(html, "<tr><th>{}</th>", escape(&place(case, workers)));
        for metric in &metrics {
            let here = |c: &&Comparison| {
                c.ours.case == case && c.ours.workers == workers && c.ours.metric == *metric
            };
            html.push_str(&found.iter().find(here).map_or("<td></td>".to_owned(), cell));
        }
        html.push_str("</tr>");
    }

    html + "</table></div>"
}

fn cell(found: &Comparison<'_>) -> String {
    let [ours, theirs] =
        [found.ours, found.peer].map(|figure| humane(figure.spread.median, &figure.unit));
    let text = match found.verdict {
        Verdict::Even => "even".to_owned(),
        Verdict::Better if found.ratio.is_finite() => format!("{} better", times(found.ratio)),
        Verdict::Worse if found.ratio > 0.0 => format!("{} worse", times(1.0 / found.ratio)),
        _ => format!("{ours} : {theirs}"),
    };

    format!(
        "<td class='{}' title='{} against {}'>{}<br><small>{}</small></td>",
        found.verdict.class(),
        attribute(&ours),
        attribute(&theirs),
        escape(&text),
        escape(&found.peer.system)
    )
}

/// Returns three sentences on a run: what it is, where ours wins, and where it loses.
pub(super) fn sentences(tables: &[Table]) -> [String; 3] {
    let found: Vec<(&str, Comparison)> = tables
        .iter()
        .flat_map(|table| {
            all(table)
                .into_iter()
                .map(|found| (table.name.as_str(), found))
        })
        .collect();
    let score = Score::of(found.iter().map(|(_, found)| found));
    let commits: Vec<_> = tables
        .iter()
        .filter_map(|table| table.fact("commit"))
        .collect();
    let mut distinct = commits.clone();
    distinct.sort_unstable();
    distinct.dedup();
    let commit = match distinct[..] {
        [] => "a commit that was not recorded".to_owned(),
        [one] => format!("commit {one}"),
        _ => format!("{} commits", distinct.len()),
    };

    let what = format!(
        "{} files of {} were measured at {commit}{}; {} of their figures can be compared with another system's.",
        tables.len(),
        count(tables.iter().map(|table| table.figures.len()).sum(), "row"),
        tables
            .iter()
            .find_map(|table| table.fact("CPU"))
            .map_or(String::new(), |cpu| format!(" on {cpu}")),
        score.all()
    );
    // A peer that is offered a bounded amount of work at a time, where ours is offered all of it,
    // is no headline.
    let fair: Vec<_> = tables
        .iter()
        .flat_map(|table| {
            let found = all(table)
                .into_iter()
                .filter(|found| !is_bounded(table, found));
            found.map(|found| (table.name.as_str(), found))
        })
        .collect();
    let list = |verdict| listed(&fair, verdict);
    let wins = match score.better {
        0 => "Ours is better than the best of the others in none of them.".to_owned(),
        n => format!(
            "Ours is better than the best of the others in {n}, most of all in {}.",
            list(Verdict::Better)
        ),
    };

    let loses = match score.worse {
        0 => format!("It is worse in none, and even in {}.", score.even),
        n => format!(
            "It is even in {} and worse in {n}, most of all in {}.",
            score.even,
            list(Verdict::Worse)
        ),
    };

    [what, wins, loses]
}

/// Returns whether the peer of a comparison has a bound on its work in flight which ours does not
/// have: the plan of the case says so (`in-flight=0`), and what a peer can bear (`thesis::BOUNDS`).
fn is_bounded(table: &Table, found: &Comparison) -> bool {
    let peer = found.peer.system.split(' ').next().unwrap_or_default();
    let plan = |fact: &&(String, String)| {
        fact.0 == "case" && fact.1.starts_with(&format!("{}:", found.ours.case))
    };
    let unbounded = table
        .facts
        .iter()
        .filter(plan)
        .any(|(_, plan)| plan.split(' ').any(|word| word == "in-flight=0"));
    unbounded && thesis::BOUNDS.iter().any(|(kind, _)| *kind == peer)
}

fn count(number: usize, what: &str) -> String {
    format!("{number} {what}{}", if number == 1 { "" } else { "s" })
}

/// Returns the three clearest of a verdict, one of each file first.
fn listed(found: &[(&str, Comparison)], verdict: Verdict) -> String {
    let mut of: Vec<_> = found
        .iter()
        .filter(|(_, found)| found.verdict == verdict)
        .collect();
    of.sort_by(|a, b| b.1.lead().total_cmp(&a.1.lead()));
    let mut chosen: Vec<&(&str, Comparison)> = Vec::new();

    for one in &of {
        if chosen.iter().all(|(name, _)| *name != one.0) {
            chosen.push(one);
        }
    }

    chosen.truncate(3);
    let said = chosen
        .iter()
        .map(|(name, found)| format!("{name}: {} ({})", found.what(), found.words()));
    said.collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests {
    use super::{Score, all, matrix, sentences};
    use crate::pages::compare::tests::{figure, table};

    #[test]
    fn cells_say_who_wins_and_by_how_much() {
        let figures = vec![
            figure("1k", "plainweave", "p99_us", "us", 5.0),
            figure("1k", "nginx", "p99_us", "us", 10.0),
            figure("1k", "plainweave", "requests_per_s", "1/s", 5.0),
            figure("1k", "nginx", "requests_per_s", "1/s", 10.0),
            figure("b<c", "plainweave", "errors", "count", 3.0),
            figure("b<c", "nginx", "errors", "count", 0.0),
            figure("mix", "plainweave", "p99_us", "us", 5.0),
            figure("mix", "nginx", "p99_us", "us", 5.2),
        ];
        let table = table("web", figures);
        let html = matrix(&table);

        for part in [
            "<td class='good' title='5 \u{b5}s against 10 \u{b5}s'>2\u{d7} better<br><small>nginx",
            "<td class='bad' title='5/s against 10/s'>2\u{d7} worse",
            "'>3 : 0<br>",
            "<th>b&lt;c</th>",
            "<td class='even'",
        ] {
            assert!(html.contains(part), "{part}: {html}");
        }

        assert_eq!(
            Score::of(&all(&table)),
            Score {
                better: 1,
                even: 1,
                worse: 2
            }
        );
        let [what, wins, loses] = sentences(&[table]);
        assert!(
            what.contains("1 files of 8 rows") && what.contains("4 of their figures"),
            "{what}"
        );
        assert!(
            wins.contains("in 1, most of all in web: p99 of 1k (2\u{d7} better than nginx)"),
            "{wins}"
        );

        assert!(
            loses.contains(
                "even in 1 and worse in 2, most of all in web: errors of b<c (3 against 0 of"
            ),
            "{loses}"
        );
    }

    #[test]
    fn without_peers_there_is_nothing_to_win() {
        let table = table(
            "micro",
            vec![figure("a", "plainweave", "ns_per_op", "ns", 5.0)],
        );
        assert_eq!(matrix(&table), "");
        assert!(sentences(&[table])[2].contains("worse in none"));
    }

    /// Ours is offered everything at once, and this peer 128 at a time.
    #[test]
    fn a_peer_with_a_bound_is_no_headline() {
        let rows = |peer| {
            vec![
                figure("base", "plainweave fifo", "p99_us", "us", 1000.0),
                figure("base", peer, "p99_us", "us", 1.0),
            ]
        };

        for (plan, peer, named) in [
            ("base: packets=50000 in-flight=0", "threads", false),
            ("base: packets=50000 in-flight=128", "threads", true),
            ("base: packets=50000 in-flight=0", "tokio", true),
        ] {
            let mut table = table("packets", rows(peer));
            table.facts.push(("case".to_owned(), plan.to_owned()));
            let [_, _, loses] = sentences(&[table]);
            assert_eq!(
                loses.contains(&format!("than {peer}")),
                named,
                "{plan}, {peer}: {loses}"
            );
        }
    }
}
