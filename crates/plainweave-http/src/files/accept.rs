//! What a client would rather have: `Accept` and `Accept-Encoding` (RFC 9110, 12.4.2, 12.5.1 and
//! 12.5.3), sans I/O.

use crate::message::head::RequestHead;

/// A weight in thousandths; 0 means that it is not acceptable.
pub(super) type Weight = u16;

const FULL: Weight = 1000;

/// Returns the elements of a list with their weights, parameters dropped. What cannot be read is
/// left out.
pub(super) fn elements<'b>(
    head: &RequestHead<'b>,
    name: &str,
) -> impl Iterator<Item = (&'b [u8], Weight)> {
    head.header_all(name)
        .flat_map(|value| value.split(|&byte| byte == b','))
        .filter_map(element)
}

fn element(text: &[u8]) -> Option<(&[u8], Weight)> {
    let mut parts = text.split(|&byte| byte == b';').map(<[u8]>::trim_ascii);
    let what = parts.next().filter(|what| !what.is_empty())?;
    let weight = parts.find_map(|part| {
        part.split_at_checked(2)
            .filter(|(name, _)| name.eq_ignore_ascii_case(b"q="))
    });

    Some((
        what,
        weight.map_or(Some(FULL), |(_, value)| parse_weight(value))?,
    ))
}

/// `0`, `1`, or one of them with up to three decimals.
fn parse_weight(value: &[u8]) -> Option<Weight> {
    let (whole, decimals) = match value {
        [whole] | [whole, b'.'] => (whole, &[][..]),
        [whole, b'.', decimals @ ..] if decimals.len() <= 3 => (whole, decimals),
        _ => return None,
    };

    let digit = |byte: &u8| byte.is_ascii_digit().then(|| Weight::from(byte - b'0'));
    let mut weight = digit(whole)? * FULL;
    for (place, byte) in [100, 10, 1].into_iter().zip(decimals) {
        weight += place * digit(byte)?;
    }
    Some(weight).filter(|weight| *weight <= FULL)
}

/// Returns the weight that Accept gives to a media type by its name; 0 where it names it not, or
/// only by a wildcard.
pub(super) fn weight_of(head: &RequestHead<'_>, essence: &str) -> Weight {
    named(head, essence).unwrap_or(0)
}

/// Returns the weight that Accept gives to this very range.
fn named(head: &RequestHead<'_>, range: &str) -> Option<Weight> {
    let same = |(what, _): &(&[u8], Weight)| what.eq_ignore_ascii_case(range.as_bytes());
    elements(head, "accept")
        .find(same)
        .map(|(_, weight)| weight)
}

/// Returns whether the client takes a media type: by its most specific range that covers it (RFC
/// 9110, 12.5.1), and in any case if it says nothing.
pub(super) fn takes(head: &RequestHead<'_>, essence: &str) -> bool {
    let family = essence.split('/').next().unwrap_or_default();
    let ranges = [essence, &format!("{family}/*"), "*/*"];
    let weight = || ranges.into_iter().find_map(|range| named(head, range));
    head.header("accept").is_none() || weight().is_some_and(|weight| weight > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights() {
        for (text, expected) in [
            ("gzip", Some(("gzip", 1000))),
            (" gzip ; q=0.5 ", Some(("gzip", 500))),
            ("text/html;level=1;Q=0.123", Some(("text/html", 123))),
            ("*;q=0", Some(("*", 0))),
            ("a;q=0.000", Some(("a", 0))),
            ("a;q=1.", Some(("a", 1000))),
            ("a;q=1.000", Some(("a", 1000))),
            ("a;q=1.001", None),
            ("a;q=2", None),
            ("a;q=", None),
            ("a;q=.5", None),
            ("a;q=0.1234", None),
            ("a;q=0.x", None),
            ("", None),
            (";q=1", None),
        ] {
            let expected = expected.map(|(what, weight): (&str, _)| (what.as_bytes(), weight));
            assert_eq!(element(text.as_bytes()), expected, "{text}");
        }
    }
}
