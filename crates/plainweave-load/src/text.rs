//! Figures as people read them.

use super::objective::{Bound, Condition, Metric};

/// Writes microseconds.
pub(super) fn time(us: f64) -> String {
    match us {
        ..1e3 => format!("{us:.0} us"),
        1e3..1e6 => format!("{:.2} ms", us / 1e3),
        _ => format!("{:.3} s", us / 1e6),
    }
}

/// Writes a figure in the unit of the condition that it was compared with.
pub(super) fn figure(condition: &Condition, figure: f64) -> String {
    match (condition.metric, condition.bound) {
        (_, Bound::Share(_)) => format!("{:.3} %", figure * 100.0),
        (metric, _) if metric.is_count() => format!("{figure}"),
        (Metric::Rate, _) => format!("{figure:.1}/s"),
        _ => time(figure),
    }
}

/// Returns the key of a figure: letters, digits and underscores, so that `jq` and the like take it as
/// it is.
pub(super) fn key(metric: &str, unit: &str) -> String {
    let unit = match unit {
        "us" => "_us",
        "s" => "_seconds",
        "1/s" => "_per_second",
        "B" => "_bytes",
        _ => "",
    };
    format!("{}{unit}", metric.replace('.', "_"))
}

/// Writes a number with at most three decimals, and none that are 0.
pub(super) fn trimmed(number: f64) -> String {
    let text = format!("{number:.3}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// Writes a rate in few characters: `950`, `12.5k`, `3.1M`.
pub(super) fn short_rate(rate: f64) -> String {
    let scaled = |value: f64, unit| {
        let text = format!("{value:.1}");
        format!("{}{unit}", text.trim_end_matches(".0"))
    };

    match rate {
        ..1e4 => scaled(rate, ""),
        1e4..1e6 => scaled(rate / 1e3, "k"),
        _ => scaled(rate / 1e6, "M"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_for_people() {
        assert_eq!(
            [12.4, 1234.5, 2e6].map(time),
            ["12 us", "1.23 ms", "2.000 s"]
        );
        assert_eq!(
            [0.0, 99.9, 99.99, 100.0].map(trimmed),
            ["0", "99.9", "99.99", "100"]
        );
        assert_eq!(
            [950.0, 0.5, 12_500.0, 70_000.0, 3.14e6].map(short_rate),
            ["950", "0.5", "12.5k", "70k", "3.1M"]
        );
    }
}
