//! The simulator's rows in the words of the benchmarks, so that the same claims judge them.
//!
//! The simulator names a case after its workload and machine and after what differs from the usual
//! ("packets (delay-spin) on epyc, thieves never sleep"), and its figures in its own words. Of a
//! workload without a named case it has the published parameters: the case `base` here.

use crate::harness::source::{Figure, Table};

/// The simulator's figures that have a word of the benchmarks, and that.
const METRICS: [(&str, &str); 6] = [
    ("throughput", "throughput"),
    ("latency-p99", "p99_us"),
    ("insert-retries", "insert_retries"),
    // Published counts seem to include looks at victims that had nothing.
    ("looks", "steal_attempts"),
    ("time", "time_ms"),
    ("breach_rate", "breach_rate"),
];

/// How thieves choose victims: with published thieves, which never sleep, and as benchmarks on real
/// workers call that.
const VICTIMS: (&str, &str) = ("victim=only:", "victim=near:");

/// Returns whether the simulator has written a file.
pub(super) fn is_simulated(table: &Table) -> bool {
    table.experiment == "sim"
}

/// Returns what a file of the simulator has of an experiment, in that one's words.
pub(super) fn rows(table: &Table, experiment: &str) -> Vec<Figure> {
    let row = |figure: &Figure| {
        let case = case(&figure.case, experiment)?;
        let policy = figure.system.strip_prefix("simulated ")?;
        let (_, metric) = METRICS
            .iter()
            .find(|(theirs, _)| *theirs == figure.metric)?;
        let policy = policy.replace(VICTIMS.0, VICTIMS.1);
        Some(Figure {
            case,
            system: format!("plainweave {policy}"),
            metric: (*metric).to_owned(),
            ..figure.clone()
        })
    };
    table.figures.iter().filter_map(row).collect()
}

/// Returns the benchmark's name for a case of the simulator, if it is of this experiment.
fn case(described: &str, experiment: &str) -> Option<String> {
    let (workload, differs) = described.split_once(" on ")?;
    let rest = workload.strip_prefix(experiment)?;
    let case = if rest.is_empty() {
        "base"
    } else {
        rest.strip_prefix(" (")?.strip_suffix(')')?
    };

    let size = differs
        .split(", ")
        .find_map(|part| part.strip_prefix("size="));
    Some(match (experiment, size) {
        ("mixer", Some(mixers)) => format!("{case} mixers={mixers}"),
        _ => case.to_owned(),
    })
}

/// Returns with how many workers a published value can be told in the simulation: `counts`, the
/// least first, are those that were simulated. A value that is published without a number of
/// domains stands beside the greatest.
pub(super) fn workers(place: &str, counts: &[usize]) -> Option<usize> {
    let Some((before, _)) = place.split_once(" domain") else {
        return counts.last().copied();
    };
    let (word, number) = before.rsplit_once(' ').unwrap_or(("", before));
    let number = number.parse().ok()?;
    let mut counts = counts.iter().copied();

    match word {
        "above" | "beyond" => counts.find(|count| *count > number),
        _ => counts.find(|count| *count == number),
    }
}

#[cfg(test)]
mod tests {
    use super::{case, workers};

    #[test]
    fn cases_have_the_benchmarks_names() {
        let names = [
            (
                "packets on epyc, thieves never sleep, cost look=700",
                Some("base"),
            ),
            ("packets (delay-spin) on epyc", Some("delay-spin")),
            ("packets-spawners on epyc", None),
            ("fib on epyc", None),
        ];
        for (described, name) in names {
            assert_eq!(case(described, "packets").as_deref(), name, "{described}");
        }
        assert_eq!(
            case("mixer on epyc, size=1400, rounds=3", "mixer").as_deref(),
            Some("base mixers=1400")
        );
    }

    #[test]
    fn published_values_find_their_number_of_workers() {
        let counts = [5, 20, 80, 115];
        let places = [
            ("5 domains", Some(5)),
            ("80 domains, its peak", Some(80)),
            ("up to 50 domains", None),
            ("above 40 domains", Some(80)),
            ("beyond 115 domains", None),
            ("1,400 mixers", Some(115)),
        ];
        for (place, count) in places {
            assert_eq!(workers(place, &counts), count, "{place}");
        }
        assert_eq!(workers("800 mixers", &[]), None);
    }
}
