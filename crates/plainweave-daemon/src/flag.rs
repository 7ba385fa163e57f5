//! Values that flags of several subcommands take.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

/// Parses a positive whole number of `ms`, `s`, `m` or `h`; seconds if there is no unit.
pub fn time(text: &str) -> Result<Duration, String> {
    let time = duration(text).filter(|time| !time.is_zero());
    time.ok_or_else(|| "write a positive number of ms, s, m or h, as in 500ms or 10s".to_owned())
}

/// Does the same, and takes 0 as well.
pub fn time_or_none(text: &str) -> Result<Duration, String> {
    duration(text).map_or_else(|| time(text), Ok)
}

fn duration(text: &str) -> Option<Duration> {
    let (number, unit) = split_unit(text);
    let millis = match unit {
        "ms" => 1,
        "s" | "" => 1000,
        "m" => 60_000,
        "h" => 3_600_000,
        _ => return None,
    };

    let number: u32 = number.parse().ok()?;
    Some(Duration::from_millis(u64::from(number) * millis))
}

/// Splits behind the digits that a text begins with.
fn split_unit(text: &str) -> (&str, &str) {
    let end = text.find(|digit: char| !digit.is_ascii_digit());
    text.split_at(end.unwrap_or(text.len()))
}

/// Parses a whole number of bytes, or of `k`, `m` or `g` (1024 each).
pub fn size(text: &str) -> Result<u64, String> {
    let (number, unit) = split_unit(text);
    let shift = match unit.to_ascii_lowercase().as_str() {
        "" | "b" => 0,
        "k" | "kib" => 10,
        "m" | "mib" => 20,
        "g" | "gib" => 30,
        _ => 64,
    };
    let bytes = number
        .parse::<u64>()
        .ok()
        .and_then(|number| number.checked_mul(1u64.checked_shl(shift)?));
    bytes.ok_or_else(|| "write a number of bytes, or of k, m or g, as in 64m".to_owned())
}

/// Parses `127.0.0.1:80`, `[::1]:80`, or a port alone.
pub fn address(text: &str) -> Result<SocketAddr, String> {
    if let Ok(port) = text.parse::<u16>() {
        return Ok((Ipv4Addr::LOCALHOST, port).into());
    }
    text.parse().map_err(|_| {
        "write ADDRESS:PORT as in 0.0.0.0:8080 or [::]:8080, or a port alone".to_owned()
    })
}

/// Reads a file's access mask.
pub fn octal(text: &str) -> Result<u32, String> {
    let mask = u32::from_str_radix(text, 8)
        .ok()
        .filter(|mask| *mask <= 0o777);
    mask.ok_or_else(|| "write three octal digits, as in 770".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses() {
        assert_eq!(address("8000"), Ok("127.0.0.1:8000".parse().unwrap()));
        assert_eq!(address("[::1]:80"), Ok("[::1]:80".parse().unwrap()));
        assert!(address("127.0.0.1").is_err() && address("70000").is_err() && address("").is_err());
    }

    #[test]
    fn sizes() {
        for (text, bytes) in [
            ("0", 0),
            ("512", 512),
            ("64k", 64 << 10),
            ("64M", 64 << 20),
            ("2GiB", 2 << 30),
        ] {
            assert_eq!(size(text), Ok(bytes));
        }

        for text in ["", "k", "-1", "1.5m", "1 k", "1t", "99999999999999g"] {
            assert!(size(text).is_err(), "{text}");
        }
    }

    #[test]
    fn times() {
        for (text, millis) in [
            ("500ms", 500),
            ("10s", 10_000),
            ("7", 7_000),
            ("2m", 120_000),
            ("1h", 3_600_000),
        ] {
            assert_eq!(time(text), Ok(Duration::from_millis(millis)));
        }

        for text in [
            "",
            "s",
            "0",
            "0s",
            "-1s",
            "1.5s",
            "1 s",
            "1d",
            "99999999999s",
        ] {
            assert!(time(text).is_err(), "{text}");
        }

        for text in ["0", "0ms", "0h"] {
            assert_eq!(time_or_none(text), Ok(Duration::ZERO));
        }
        for text in ["", "s", "0sss", "0mh", "-0"] {
            assert_eq!(time_or_none(text), time(text), "{text}");
        }
        assert_eq!(time_or_none("2m"), time("2m"));
    }
}
