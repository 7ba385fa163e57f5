//! `uri-host [ ":" port ]`, as `Host` and request-targets have it (RFC 9110, 7.2; RFC 3986, 3.2).

use std::net::Ipv6Addr;

use memchr::memchr;

/// Returns whether this is a host, not an empty one, with or without a port. User information is not allowed (RFC 9110,
/// 4.2.4), and of the bracketed addresses only IPv6, the one version that there is.
pub(crate) fn is_authority(value: &[u8]) -> bool {
    if let [b'[', rest @ ..] = value {
        let Some((address, [b']', port @ ..])) = memchr(b']', rest).map(|end| rest.split_at(end)) else {
            return false;
        };
        return str::from_utf8(address).is_ok_and(|text| text.parse::<Ipv6Addr>().is_ok()) && is_port(port);
    }
    let (host, port) = value.split_at(memchr(b':', value).unwrap_or(value.len()));
    !host.is_empty() && is_name(host) && is_port(port)
}

/// Returns whether this is `reg-name`, which IPv4 addresses are too.
fn is_name(mut host: &[u8]) -> bool {
    while let [byte, rest @ ..] = host {
        host = match (byte, rest) {
            (b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~', _) => rest,
            (b'!' | b'$' | b'&' | b'\'' | b'(' | b')' | b'*' | b'+' | b',' | b';' | b'=', _) => rest,
            (b'%', [high, low, rest @ ..]) if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() => rest,
            _ => return false,
        };
    }
    true
}

/// Returns whether this is nothing, or a colon and a port; the port may be empty (RFC 3986, 3.2.3).
fn is_port(text: &[u8]) -> bool {
    match text {
        [] | [b':'] => true,
        [b':', digits @ ..] => {
            // `parse` would take a sign.
            digits.iter().all(u8::is_ascii_digit)
                && str::from_utf8(digits).is_ok_and(|port| port.parse::<u16>().is_ok())
        }
        _ => false,
    }
}
