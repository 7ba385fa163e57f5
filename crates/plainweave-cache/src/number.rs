//! Numbers as memcached reads them: C's `strtol` family, base 10, whose habits clients can see.
//!
//! Leading white space and a sign are taken; white space ends the number and what follows it is
//! ignored. Out of the range of 64 bits is an error, beyond 32 bits is cut off silently. A minus
//! sign wraps around, and is an error only when the wrapped number has its highest bit set.

/// 64 bits, unsigned.
pub(crate) fn unsigned64(text: &[u8]) -> Option<u64> {
    let (negative, magnitude) = scan(text)?;
    let value = if negative {
        magnitude.wrapping_neg()
    } else {
        magnitude
    };
    ((value as i64) >= 0 || !text.contains(&b'-')).then_some(value)
}

/// 32 bits, unsigned: the lower half of 64.
pub(crate) fn unsigned32(text: &[u8]) -> Option<u32> {
    unsigned64(text).map(|value| value as u32)
}

/// 32 bits, signed: the lower half of 64.
pub(crate) fn signed32(text: &[u8]) -> Option<i32> {
    let (negative, magnitude) = scan(text)?;
    let value = match (negative, i64::try_from(magnitude)) {
        (false, Ok(value)) => value,
        (true, Ok(value)) => -value,
        (true, Err(_)) if magnitude == i64::MIN.unsigned_abs() => i64::MIN,
        (_, Err(_)) => return None,
    };
    Some(value as i32)
}

/// Sign and magnitude; `None` without digits, above 64 bits, or when something other than white
/// space follows.
fn scan(text: &[u8]) -> Option<(bool, u64)> {
    let start = text.iter().position(|byte| !is_space(*byte))?;
    let (negative, digits) = match text[start] {
        b'-' => (true, &text[start + 1..]),
        b'+' => (false, &text[start + 1..]),
        _ => (false, &text[start..]),
    };

    let len = digits
        .iter()
        .position(|byte| !byte.is_ascii_digit())
        .unwrap_or(digits.len());
    if len == 0
        || digits
            .get(len)
            .is_some_and(|byte| !is_space(*byte) && *byte != 0)
    {
        return None;
    }
    let mut value: u64 = 0;

    for digit in &digits[..len] {
        value = value
            .checked_mul(10)?
            .checked_add(u64::from(digit - b'0'))?;
    }

    Some((negative, value))
}

fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t'..=b'\r')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_those_of_strtol() {
        for (text, unsigned, signed) in [
            ("0", Some(0), Some(0)),
            ("+7", Some(7), Some(7)),
            (" \t12\r\n", Some(12), Some(12)),
            ("12 34", Some(12), Some(12)),
            ("", None, None),
            ("-", None, None),
            ("x1", None, None),
            ("1x", None, None),
            ("1-", None, None),
            ("-1", None, Some(-1)),
            ("4294967296", Some(4_294_967_296), Some(0)),
            ("18446744073709551615", Some(u64::MAX), None),
            ("18446744073709551616", None, None),
            ("-18446744073709551615", Some(1), None),
            ("-9223372036854775808", None, Some(0)),
        ] {
            assert_eq!(unsigned64(text.as_bytes()), unsigned, "{text}");
            assert_eq!(signed32(text.as_bytes()), signed, "{text}");
        }

        assert_eq!(unsigned32(b"4294967297"), Some(1));
        assert_eq!(unsigned64(b"5\0garbage"), Some(5));
    }
}
