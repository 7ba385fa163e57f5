//! Values that flags of several subcommands take.

use std::time::Duration;

/// Parses a positive whole number of `ms`, `s`, `m` or `h`; seconds if there is no unit.
pub(crate) fn time(text: &str) -> Result<Duration, String> {
    let (number, unit) = text.split_at(text.find(|digit: char| !digit.is_ascii_digit()).unwrap_or(text.len()));
    let millis = match unit {
        "ms" => 1,
        "s" | "" => 1000,
        "m" => 60_000,
        "h" => 3_600_000,
        _ => 0,
    };
    match number.parse::<u32>().map(|number| u64::from(number) * millis) {
        Ok(millis @ 1..) => Ok(Duration::from_millis(millis)),
        _ => Err("write a positive number of ms, s, m or h, as in 500ms or 10s".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times() {
        for (text, millis) in [("500ms", 500), ("10s", 10_000), ("7", 7_000), ("2m", 120_000), ("1h", 3_600_000)] {
            assert_eq!(time(text), Ok(Duration::from_millis(millis)));
        }
        for text in ["", "s", "0", "0s", "-1s", "1.5s", "1 s", "1d", "99999999999s"] {
            assert!(time(text).is_err(), "{text}");
        }
    }
}
