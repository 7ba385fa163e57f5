//! `uri-host [ ":" port ]`, as `Host` and request-targets have it (RFC 9110, 7.2; RFC 3986, 3.2).

use std::net::Ipv6Addr;

use memchr::memchr;

use super::body::parse_length;

/// The bytes that a `reg-name` has as they are: `unreserved` and `sub-delims`. A request's host is
/// looked at byte by byte, so a byte must cost little.
const PLAIN: [bool; 256] = {
    let mut plain = [false; 256];
    let mut byte = 0;
    while byte < 256 {
        let unreserved = matches!(byte as u8, b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~');
        let sub_delim = matches!(
            byte as u8,
            b'!' | b'$' | b'&' | b'\'' | b'(' | b')' | b'*' | b'+' | b',' | b';' | b'='
        );
        plain[byte] = unreserved || sub_delim;
        byte += 1;
    }
    plain
};

/// Returns whether this is a host, not an empty one, with or without a port. All of it is ASCII
/// then. User information is not allowed (RFC 9110, 4.2.4), and of the bracketed addresses only
/// IPv6, the one version that there is.
pub(crate) fn is_authority(value: &[u8]) -> bool {
    if let [b'[', rest @ ..] = value {
        let Some((address, [b']', port @ ..])) = memchr(b']', rest).map(|end| rest.split_at(end))
        else {
            return false;
        };

        return str::from_utf8(address).is_ok_and(|text| text.parse::<Ipv6Addr>().is_ok())
            && is_port(port);
    }

    let Some(port) = after_name(value) else {
        return false;
    };
    port.len() < value.len() && is_port(port)
}

/// Returns what follows the `reg-name`, which IPv4 addresses are too; `None` if a `%` begins no
/// encoded byte.
fn after_name(mut value: &[u8]) -> Option<&[u8]> {
    loop {
        let plain = value
            .iter()
            .position(|&byte| !PLAIN[usize::from(byte)])
            .unwrap_or(value.len());
        value = match &value[plain..] {
            [b'%', high, low, rest @ ..] if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() => {
                rest
            }
            [b'%', ..] => return None,
            rest => return Some(rest),
        }
    }
}

/// Returns whether this is nothing, or a colon and a port; the port may be empty (RFC 3986, 3.2.3).
fn is_port(text: &[u8]) -> bool {
    match text {
        [] | [b':'] => true,
        [b':', digits @ ..] => parse_length(digits).is_some_and(|port| port <= u64::from(u16::MAX)),
        _ => false,
    }
}
