//! A line of the access log. Sans I/O.

use std::io::Write;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, SystemTime};

use clap::ValueEnum;
use plainweave_http::{Exchange, Version};

/// How lines are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Format {
    /// Apache's combined log format, in UTC
    Combined,
    /// A JSON object a line
    Json,
}

/// Returns the time of a second, as the format writes it.
pub(super) fn time(format: Format, time: SystemTime) -> String {
    let text = httpdate::fmt_http_date(time); // "Sun, 06 Nov 1994 08:49:37 GMT"
    let day = &text[5..7];
    let month = &text[8..11];
    let year = &text[12..16];
    let clock = &text[17..25];

    match format {
        Format::Combined => format!("{day}/{month}/{year}:{clock} +0000"),
        Format::Json => {
            const MONTHS: &str = "JanFebMarAprMayJunJulAugSepOctNovDec";
            let number = MONTHS.find(month).unwrap_or(0) / 3 + 1;
            format!("{year}-{number:02}-{day}T{clock}Z")
        }
    }
}

/// Appends the line of an exchange at `time`.
pub(super) fn append(out: &mut Vec<u8>, format: Format, time: &str, exchange: &Exchange<'_>) {
    match format {
        Format::Combined => combined(out, time, exchange),
        Format::Json => json(out, time, exchange),
    }
}

/// nginx's number for a client that went away before it was answered; no answer ever carries it.
const GONE: u16 = 499;

fn status(exchange: &Exchange<'_>) -> u16 {
    exchange.status.map_or(GONE, |status| status.as_u16())
}

fn version(exchange: &Exchange<'_>) -> &'static str {
    match exchange.head.map(|head| head.version()) {
        Some(Version::HTTP_10) => "HTTP/1.0",
        Some(Version::HTTP_2) => "HTTP/2.0",
        _ => "HTTP/1.1",
    }
}

fn combined(out: &mut Vec<u8>, time: &str, exchange: &Exchange<'_>) {
    match exchange.peer {
        Some(peer) => address(out, peer.ip()),
        None => out.push(b'-'),
    }

    out.extend_from_slice(b" - - [");
    out.extend_from_slice(time.as_bytes());
    out.extend_from_slice(b"] \"");

    if let Some(head) = exchange.head {
        out.extend_from_slice(head.method().as_str().as_bytes());
        out.push(b' ');
        quoted(out, head.target_text().as_bytes());
        out.push(b' ');
        out.extend_from_slice(version(exchange).as_bytes());
    } else {
        out.push(b'-');
    }

    out.extend_from_slice(b"\" ");
    number(out, status(exchange));
    out.push(b' ');
    number(out, exchange.body_bytes);

    for value in referer_and_agent(exchange) {
        out.extend_from_slice(b" \"");
        match value {
            Some(value) => quoted(out, value),
            None => out.push(b'-'),
        }
        out.push(b'"');
    }

    out.push(b'\n');
}

/// Returns the first field of each name, in one pass over all.
fn referer_and_agent<'b>(exchange: &Exchange<'b>) -> [Option<&'b [u8]>; 2] {
    let mut found = [None; 2];
    for (name, value) in exchange.head.into_iter().flat_map(|head| head.headers()) {
        let place = match name.len() {
            7 if name.eq_ignore_ascii_case("referer") => 0,
            10 if name.eq_ignore_ascii_case("user-agent") => 1,
            _ => continue,
        };
        found[place].get_or_insert(value);
    }
    found
}

/// Bytes that could end the line or the quotes, and those that are not ASCII, as `\xHH`.
fn quoted(out: &mut Vec<u8>, bytes: &[u8]) {
    const HEX: &[u8; 16] = b"0123456789abcdef";
    let is_plain = |byte: &u8| !matches!(byte, b'"' | b'\\' | 0..0x20 | 0x7f..);
    // As it is nearly always. To look at all bytes, not up to the first, is to look at many at a
    // time.
    if bytes.iter().fold(true, |all, byte| all & is_plain(byte)) {
        return out.extend_from_slice(bytes);
    }

    for part in bytes.chunk_by(|before, after| is_plain(before) && is_plain(after)) {
        match part {
            [byte] if !is_plain(byte) => {
                let high = HEX[usize::from(byte >> 4)];
                let low = HEX[usize::from(byte & 15)];
                out.extend_from_slice(&[b'\\', b'x', high, low]);
            }
            plain => out.extend_from_slice(plain),
        }
    }
}

fn json(out: &mut Vec<u8>, time: &str, exchange: &Exchange<'_>) {
    let head = exchange.head;
    let [referer, agent] =
        referer_and_agent(exchange).map(|value| value.map(String::from_utf8_lossy));
    // Neither a time nor an address has anything to escape.
    out.extend_from_slice(b"{\"time\":\"");
    out.extend_from_slice(time.as_bytes());
    out.extend_from_slice(b"\",\"peer\":");

    match exchange.peer {
        Some(peer) => {
            out.push(b'"');
            socket_address(out, peer);
            out.push(b'"');
        }
        None => out.extend_from_slice(b"null"),
    }

    text(out, "method", head.map(|head| head.method().as_str()));
    text(out, "target", head.map(|head| head.target_text()));
    text(out, "version", head.map(|_| version(exchange)));
    text(out, "host", head.and_then(|head| head.host()));
    out.extend_from_slice(b",\"status\":");
    number(out, status(exchange));
    out.extend_from_slice(b",\"bytes\":");
    number(out, exchange.body_bytes);
    out.extend_from_slice(b",\"seconds\":");
    seconds(out, exchange.duration);
    text(out, "referer", referer.as_deref());
    text(out, "user_agent", agent.as_deref());
    text(
        out,
        "error",
        exchange.error.map(ToString::to_string).as_deref(),
    );
    out.extend_from_slice(b"}\n");
}

/// A member with a string, or null.
fn text(out: &mut Vec<u8>, name: &str, value: Option<&str>) {
    out.extend_from_slice(b",\"");
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b"\":");
    // Writing to memory does not fail.
    let _ = serde_json::to_writer(out, &value);
}

/// As `Display` writes it, without the machinery where it counts: a tenth of a line's price.
fn address(out: &mut Vec<u8>, address: IpAddr) {
    let IpAddr::V4(address) = address else {
        let _ = write!(out, "{address}");
        return;
    };

    let [first, rest @ ..] = address.octets();
    number(out, first);
    for octet in rest {
        out.push(b'.');
        number(out, octet);
    }
}

/// The same with a port.
fn socket_address(out: &mut Vec<u8>, peer: SocketAddr) {
    if peer.is_ipv6() {
        let _ = write!(out, "{peer}");
        return;
    }

    address(out, peer.ip());
    out.push(b':');
    number(out, peer.port());
}

fn number(out: &mut Vec<u8>, number: impl itoa::Integer) {
    out.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
}

/// With six places.
fn seconds(out: &mut Vec<u8>, time: Duration) {
    number(out, time.as_secs());
    out.push(b'.');
    let mut places = time.subsec_micros();
    out.extend([100_000, 10_000, 1_000, 100, 10, 1].map(|place| {
        let digit = (places / place) as u8;
        places %= place;
        b'0' + digit
    }));
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn times() {
        let at = SystemTime::UNIX_EPOCH + Duration::from_secs(784_111_777);
        assert_eq!(time(Format::Combined, at), "06/Nov/1994:08:49:37 +0000");
        assert_eq!(time(Format::Json, at), "1994-11-06T08:49:37Z");
        assert_eq!(
            time(
                Format::Json,
                SystemTime::UNIX_EPOCH + Duration::from_secs(1 << 31)
            ),
            "2038-01-19T03:14:08Z"
        );
    }

    #[test]
    fn nothing_that_a_client_sends_ends_a_line() {
        let mut out = Vec::new();
        quoted(&mut out, b"a\"b\\c\r\n\x7f\xff d");
        assert_eq!(out, br"a\x22b\x5cc\x0d\x0a\x7f\xff d");
    }

    #[test]
    fn addresses_and_times_are_as_display_writes_them() {
        let text = |write: &dyn Fn(&mut Vec<u8>)| {
            let mut out = Vec::new();
            write(&mut out);
            String::from_utf8(out).unwrap()
        };

        for shown in [
            "127.0.0.1",
            "0.0.0.0",
            "255.10.9.100",
            "::1",
            "2001:db8::7",
            "::ffff:10.0.0.1",
        ] {
            assert_eq!(text(&|out| address(out, shown.parse().unwrap())), shown);
        }

        for shown in ["127.0.0.1:80", "[::1]:65535", "[fe80::1%2]:443"] {
            assert_eq!(
                text(&|out| socket_address(out, shown.parse().unwrap())),
                shown
            );
        }

        for micros in [0, 7, 999_999, 1_000_000, 61_020_304] {
            let time = Duration::from_micros(micros);
            assert_eq!(
                text(&|out| seconds(out, time)),
                format!("{:.6}", time.as_secs_f64())
            );
        }
    }
}
