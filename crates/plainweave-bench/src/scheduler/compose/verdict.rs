//! Does composition pay? Two pools against each single policy, by medians and quartiles.

use crate::harness::sample::Row;
use plainweave_report::statistics::Spread;

/// How a system's figure lies to another's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Better,
    Worse,
    /// Their quartiles overlap.
    Near,
}

impl Place {
    /// `more`: more is better.
    fn of(own: Spread, other: Spread, more: bool) -> Self {
        match (own.q1 > other.q3, own.q3 < other.q1) {
            (false, false) => Place::Near,
            // Apart: which side is better depends on the metric.
            (above, _) => {
                if above == more {
                    Place::Better
                } else {
                    Place::Worse
                }
            }
        }
    }

    fn text(self) -> &'static str {
        match self {
            Place::Better => "better, quartiles apart",
            Place::Worse => "worse, quartiles apart",
            Place::Near => "quartiles overlap",
        }
    }
}

/// What the side task keeps of its best single-policy figure at least.
const SIDE_GOAL: f64 = 0.9;

/// Says of one case how the pools compare with each single policy, and with all.
pub(super) fn lines(rows: &[Row], case: &str, pools: &str, singles: &[String]) -> Vec<String> {
    let of = |system: &str, metric: &str| {
        let found = rows
            .iter()
            .find(|row| row.case == case && row.system == system && row.metric == metric);
        found.map(Row::spread)
    };

    let (Some(own_rate), Some(own_p99)) = (of(pools, "packets_per_s"), of(pools, "p99_us")) else {
        return Vec::new();
    };
    let mut lines = Vec::new();
    let mut beaten = 0;
    let mut compared = 0;

    for single in singles {
        // One that failed is compared with nothing, and is not counted as beaten.
        let (Some(rate), Some(p99)) = (of(single, "packets_per_s"), of(single, "p99_us")) else {
            continue;
        };
        let places = [
            Place::of(own_rate, rate, true),
            Place::of(own_p99, p99, false),
        ];
        compared += 1;
        beaten += usize::from(places == [Place::Better; 2]);
        lines.push(format!(
            "{case}, {pools} to {single}: throughput {:.2} ({}), p99 {:.2} ({})",
            own_rate.median / rate.median,
            places[0].text(),
            own_p99.median / p99.median,
            places[1].text()
        ));
    }

    let pays = if beaten == compared {
        "composition pays"
    } else {
        "composition does not pay against all"
    };

    lines.push(format!(
        "{case}: {pays}: better in throughput and in p99, quartiles apart, than {beaten} of {compared} single policies"
    ));
    let best = singles
        .iter()
        .filter_map(|single| of(single, "side_per_s"))
        .map(|side| side.median)
        .max_by(f64::total_cmp);
    if let (Some(side), Some(best)) = (of(pools, "side_per_s"), best) {
        let ratio = side.median / best;
        let verdict = if ratio < SIDE_GOAL { "missed" } else { "met" };
        lines.push(format!("{case}: the side task keeps {ratio:.2} of its best figure (goal: {SIDE_GOAL}, {verdict})"));
    }

    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harness::sample::Origin;

    fn row(system: &str, metric: &'static str, values: &[f64]) -> Row {
        let compose = Origin::new("compose").with_workers(2);
        compose.row("compute", system, metric, "1", values.to_vec())
    }

    #[test]
    fn only_what_is_apart_counts_as_better() {
        let rows = [
            row("two", "packets_per_s", &[10.0, 11.0, 12.0]),
            row("two", "p99_us", &[1.0, 1.0, 1.0]),
            row("two", "side_per_s", &[8.0]),
            row("slow", "packets_per_s", &[5.0, 6.0, 7.0]),
            row("slow", "p99_us", &[9.0, 9.0, 9.0]),
            row("slow", "side_per_s", &[10.0]),
            row("near", "packets_per_s", &[9.0, 10.6, 13.0]),
            row("near", "p99_us", &[0.5, 0.5, 0.5]),
            row("near", "side_per_s", &[4.0]),
        ];
        let lines = lines(
            &rows,
            "compute",
            "two",
            &["slow".to_owned(), "near".to_owned()],
        );
        let has = |line: usize, parts: &[&str]| {
            assert!(
                parts.iter().all(|part| lines[line].contains(part)),
                "{}",
                lines[line]
            );
        };

        has(
            0,
            &[
                "two to slow: throughput 1.83 (better, quartiles apart), p99 0.11 (better, quartiles apart)",
            ],
        );
        has(
            1,
            &[
                "two to near: throughput 1.04 (quartiles overlap), p99 2.00 (worse, quartiles apart)",
            ],
        );
        has(
            2,
            &["does not pay against all", "than 1 of 2 single policies"],
        );
        has(3, &["keeps 0.80 of its best figure (goal: 0.9, missed)"]);
    }
}
