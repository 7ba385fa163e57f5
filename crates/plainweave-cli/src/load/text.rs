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
        (Metric::Errors, _) => format!("{figure}"),
        (Metric::Rate, _) => format!("{figure:.1}/s"),
        _ => time(figure),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_for_people() {
        assert_eq!([12.4, 1234.5, 2e6].map(time), ["12 us", "1.23 ms", "2.000 s"]);
    }
}
