//! Byte ranges of a request (RFC 9110, 14.1.2 and 14.2), sans I/O.
//!
//! What a client may ask for is bounded twice, as 14.2 and 17.15 advise: at most [`MAX_RANGES`]
//! ranges, and together no more bytes than the file has. Beyond that, as for anything that is no
//! list of byte ranges, the field is ignored and the whole file is sent. Ranges are neither sorted
//! nor merged: a client gets what it asked for, in its order.

use std::ops::Range;

/// Ranges of one request at most.
pub(super) const MAX_RANGES: usize = 64;

/// What a `Range` field means for a file of a certain size.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Ranges {
    /// The whole file, as without the field.
    Ignored,
    /// 416: none of them begins within the file.
    Unsatisfiable,
    /// At least one, each within the file and not empty.
    Satisfiable(Vec<Range<u64>>),
}

/// Reads the value of `Range` for a file of `size` bytes. Stops at the first thing that is wrong or
/// too much.
pub(super) fn parse(value: &[u8], size: u64) -> Ranges {
    parse_set(value, size).unwrap_or(Ranges::Ignored)
}

fn parse_set(value: &[u8], size: u64) -> Option<Ranges> {
    let (unit, set) = value.split_at_checked(6)?;
    if !unit.eq_ignore_ascii_case(b"bytes=") {
        return None;
    }
    let mut ranges = Vec::new();
    let mut specs = 0;
    let mut bytes = 0;
    for spec in set
        .split(|&byte| byte == b',')
        .map(<[u8]>::trim_ascii)
        .filter(|spec| !spec.is_empty())
    {
        specs += 1;
        if specs > MAX_RANGES {
            return None;
        }
        let range = parse_spec(spec, size)?;

        // Of an empty file, a suffix is all there is of it, and no Content-Range can say so.
        if size == 0 && range.is_some() {
            return None;
        }
        if let Some(range) = range {
            bytes += u128::from(range.end - range.start);
            ranges.push(range);
        }
    }

    match ranges.len() {
        _ if specs == 0 || bytes > size.into() => None,
        0 => Some(Ranges::Unsatisfiable),
        _ => Some(Ranges::Satisfiable(ranges)),
    }
}

/// `first-last`, `first-` or `-length`. The outer `None`: invalid. The inner one: not satisfiable.
fn parse_spec(spec: &[u8], size: u64) -> Option<Option<Range<u64>>> {
    let dash = memchr::memchr(b'-', spec)?;
    let range = match (&spec[..dash], &spec[dash + 1..]) {
        ([], length) => {
            let length = number(length)?;
            (length > 0).then(|| size.saturating_sub(length)..size)
        }
        (first, last) => {
            let first = number(first)?;
            let last = if last.is_empty() {
                u64::MAX
            } else {
                number(last)?
            };

            if last < first {
                return None;
            }
            (first < size).then(|| first..last.saturating_add(1).min(size))
        }
    };
    Some(range)
}

/// Digits only, at least one. Beyond what any file has, all numbers are the same.
fn number(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let add = |number: u64, digit: &u8| {
        number
            .saturating_mul(10)
            .saturating_add(u64::from(digit - b'0'))
    };
    Some(digits.iter().fold(0, add))
}

#[cfg(test)]
#[expect(
    clippy::single_range_in_vec_init,
    reason = "lists of ranges, some of them with one"
)]
mod tests {
    use std::iter::repeat_n;

    use proptest::prelude::*;

    use super::*;

    fn some(ranges: &[Range<u64>]) -> Ranges {
        Ranges::Satisfiable(ranges.to_vec())
    }

    #[test]
    fn of_a_thousand_bytes() {
        for (value, expected) in [
            ("bytes=0-0", some(&[0..1])),
            ("bytes=0-499", some(&[0..500])),
            ("bytes=500-", some(&[500..1000])),
            ("bytes=-500", some(&[500..1000])),
            ("bytes=-5000", some(&[0..1000])),
            ("bytes=999-2000", some(&[999..1000])),
            ("BYTES=0-0", some(&[0..1])),
            ("bytes=0-0,-1", some(&[0..1, 999..1000])),
            ("bytes= 5-6 ,\t1-2", some(&[5..7, 1..3])),
            ("bytes=,0-0,,", some(&[0..1])),
            ("bytes=0-0,5000-", some(&[0..1])),
            ("bytes=0-99999999999999999999999", some(&[0..1000])),
            ("bytes=-99999999999999999999999", some(&[0..1000])),
            ("bytes=0-499,500-999", some(&[0..500, 500..1000])),
            ("bytes=0-9,0-9", some(&[0..10, 0..10])),
            ("bytes=1000-", Ranges::Unsatisfiable),
            ("bytes=1000-1000,5000-", Ranges::Unsatisfiable),
            ("bytes=-0", Ranges::Unsatisfiable),
            ("bytes=99999999999999999999999-", Ranges::Unsatisfiable),
        ] {
            assert_eq!(parse(value.as_bytes(), 1000), expected, "{value}");
        }

        for value in [
            "",
            "bytes",
            "bytes=",
            "bytes=,",
            "bytes=-",
            "bytes=a-",
            "bytes=5-3",
            "bytes=0-0,5-3",
            "bytes=0-0;1-1",
            "bytes =0-0",
            "bytes=+0-0",
            "bytes=0 - 0",
            "bytes=--1",
            "bytes=0-1-2",
            "bytes=0x0-1",
            "lines=0-0",
            "0-0",
            "bytes=0-,0-0",
            "bytes=0-999,-1",
            "bytes:0-0",
            "bytes=\u{660}-",
        ] {
            assert_eq!(parse(value.as_bytes(), 1000), Ranges::Ignored, "{value}");
        }
    }

    #[test]
    fn of_nothing() {
        assert_eq!(parse(b"bytes=0-", 0), Ranges::Unsatisfiable);
        assert_eq!(parse(b"bytes=-0", 0), Ranges::Unsatisfiable);
        assert_eq!(parse(b"bytes=-1", 0), Ranges::Ignored);
    }

    #[test]
    fn of_the_largest_file() {
        assert_eq!(
            parse(b"bytes=18446744073709551614-", u64::MAX),
            some(&[u64::MAX - 1..u64::MAX])
        );
        let twice = Ranges::Ignored;
        assert_eq!(
            parse(
                b"bytes=0-18446744073709551615,0-18446744073709551615",
                u64::MAX
            ),
            twice
        );
    }

    #[test]
    fn by_the_thousand() {
        let list = |count| {
            format!(
                "bytes={}",
                repeat_n("0-0", count).collect::<Vec<_>>().join(",")
            )
        };

        assert_eq!(
            parse(list(MAX_RANGES).as_bytes(), 1000),
            some(&vec![0..1; MAX_RANGES])
        );
        for count in [MAX_RANGES + 1, 5_000] {
            assert_eq!(parse(list(count).as_bytes(), 1 << 40), Ranges::Ignored);
        }
        // Unsatisfiable ones count too.
        let far = format!("bytes=0-0{}", ",5000-".repeat(MAX_RANGES));
        assert_eq!(parse(far.as_bytes(), 1000), Ranges::Ignored);
    }

    /// A range as a client means it.
    #[derive(Clone, Debug)]
    enum Spec {
        Between(u64, u64),
        From(u64),
        Last(u64),
    }

    impl Spec {
        fn text(&self) -> String {
            match self {
                Self::Between(first, last) => format!("{first}-{last}"),
                Self::From(first) => format!("{first}-"),
                Self::Last(length) => format!("-{length}"),
            }
        }

        /// By the definition: the positions that satisfy it, one by one.
        fn positions(&self, size: u64) -> Vec<u64> {
            let wanted = |at: &u64| match *self {
                Self::Between(first, last) => (first..=last).contains(at),
                Self::From(first) => *at >= first,
                Self::Last(length) => size - at <= length,
            };
            (0..size).filter(wanted).collect()
        }
    }

    fn spec() -> impl Strategy<Value = Spec> {
        prop_oneof![
            (0..50u64, 0..50u64).prop_map(|(one, two)| Spec::Between(one.min(two), one.max(two))),
            (0..50u64).prop_map(Spec::From),
            (0..50u64).prop_map(Spec::Last),
        ]
    }

    proptest! {
        #[test]
        fn as_defined(specs in prop::collection::vec(spec(), 1..8), size in 1..40u64, gap in "[ \t]{0,2},[ \t,]{0,2}") {
            let value = format!("bytes={}", specs.iter().map(Spec::text).collect::<Vec<_>>().join(&gap));
            let wanted: Vec<_> = specs.iter().map(|spec| spec.positions(size)).filter(|all| !all.is_empty()).collect();
            let total: usize = wanted.iter().map(Vec::len).sum();

            match parse(value.as_bytes(), size) {
                Ranges::Ignored => prop_assert!(total as u64 > size, "{}", value),
                Ranges::Unsatisfiable => prop_assert_eq!(total, 0),
                Ranges::Satisfiable(ranges) => {
                    let got: Vec<Vec<u64>> = ranges.into_iter().map(Iterator::collect).collect();
                    prop_assert_eq!(got, wanted);
                }
            }
        }

        #[test]
        fn whatever_comes_stays_within_the_file(value in "(bytes=)?[0-9,\\- \tx]{0,60}", size: u64) {
            if let Ranges::Satisfiable(ranges) = parse(value.as_bytes(), size) {
                prop_assert!(!ranges.is_empty() && ranges.len() <= MAX_RANGES);
                prop_assert!(ranges.iter().all(|range| range.start < range.end && range.end <= size));
                let total: u128 = ranges.iter().map(|range| u128::from(range.end - range.start)).sum();
                prop_assert!(total <= size.into());
            }
        }
    }
}
