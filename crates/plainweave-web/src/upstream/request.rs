//! The heads and bodies of requests, written anew from what the parser has found.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::Write;
use std::net::IpAddr;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use plainweave_http::parse::list;
use plainweave_http::{Framing, HeaderName, Method, Request, RequestHead, Target, Version};

/// What a request asks the connection to become.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wish<'r> {
    None,
    Upgrade(&'r str),
}

/// Fields that are not passed on: those of the connection, those that are written here, and those
/// by which an application believes who has asked.
const DROPPED: [&str; 20] = [
    "connection",
    "content-length",
    "cookie",
    "expect",
    "forwarded",
    "host",
    "http2-settings",
    "keep-alive",
    "proxy",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "x-client-ip",
    "x-original-url",
    "x-real-ip",
    "x-rewrite-url",
    "x-url-scheme",
];

/// What the names of further ones begin with.
const FORWARDED: &str = "x-forwarded-";

/// Returns whether a field is not passed on. An application may take `_` for `-`, as CGI does.
fn is_dropped(name: &str) -> bool {
    let begins = |dropped: &str| {
        dropped.len() <= name.len()
            && dropped.bytes().zip(name.bytes()).all(|(one, two)| {
                let two = if two == b'_' { b'-' } else { two };
                one == two.to_ascii_lowercase()
            })
    };
    let same = |dropped: &&str| dropped.len() == name.len() && begins(dropped);
    begins(FORWARDED) || DROPPED.iter().any(same)
}

/// Returns what the connection is asked to become.
pub(super) fn wish<'r>(head: &RequestHead<'r>) -> Wish<'r> {
    let mut options = head.header_all("connection").flat_map(list);
    // The library shows the extended CONNECT of HTTP/2 as such a request, without `Connection`.
    let asks = head.version() == Version::HTTP_2
        || options.any(|option| option.eq_ignore_ascii_case(b"upgrade"));
    // HTTP/1.0 knows no upgrade (RFC 9110, 7.8).
    let asks = asks && head.version() != Version::HTTP_10;
    let protocol = head.header("upgrade").filter(|_| asks);
    let protocol = protocol.filter(|name| HeaderName::from_bytes(name).is_ok());
    match protocol.and_then(|name| str::from_utf8(name).ok()) {
        Some(name) if !name.eq_ignore_ascii_case("h2c") => Wish::Upgrade(name),
        _ => Wish::None,
    }
}

/// The host of a client that names none.
const NO_HOST: &str = "localhost";

/// Appends the head of a request for this path and query.
pub(super) fn write_head(out: &mut Vec<u8>, request: &Request<'_>, place: &str, wish: Wish<'_>) {
    let head = request.head();
    out.extend_from_slice(head.method().as_str().as_bytes());
    out.push(b' ');
    match head.target() {
        Target::Asterisk => out.push(b'*'),
        _ => out.extend_from_slice(place.as_bytes()),
    }
    out.extend_from_slice(b" HTTP/1.1\r\n");
    let host = head.host().filter(|host| !host.is_empty());
    let host = host.unwrap_or(NO_HOST);
    line(out, "Host", host.as_bytes());

    let named: Vec<_> = head.header_all("connection").flat_map(list).collect();
    let is_named = |name: &str| {
        let mut named = named.iter();
        named.any(|named| named.eq_ignore_ascii_case(name.as_bytes()))
    };
    for (name, value) in head.headers() {
        if !name.starts_with(':') && !is_dropped(name) && !is_named(name) {
            line(out, name, value);
        }
    }

    // HTTP/2 may have one for each cookie (RFC 9113, 8.2.3).
    let cookies: Vec<_> = head.header_all("cookie").collect();
    if !cookies.is_empty() {
        line(out, "Cookie", &cookies.join(&b"; "[..]));
    }

    forwarded(out, request, host);
    match head.framing() {
        Framing::Length(0) if !announces(head.method()) => {}
        // Memory takes all.
        Framing::Length(length) => drop(write!(out, "Content-Length: {length}\r\n")),
        Framing::Chunked => line(out, "Transfer-Encoding", b"chunked"),
    }
    if let Wish::Upgrade(protocol) = wish {
        line(out, "Connection", b"Upgrade");
        line(out, "Upgrade", protocol.as_bytes());
        // HTTP/2 has none (RFC 8441, 5).
        if protocol.eq_ignore_ascii_case("websocket") && head.header("sec-websocket-key").is_none()
        {
            line(out, "Sec-WebSocket-Key", key().as_bytes());
        }
    }
    out.extend_from_slice(b"\r\n");
}

/// Says who has asked, and how: the client as this server knows it, instead of what it says itself.
fn forwarded(out: &mut Vec<u8>, request: &Request<'_>, host: &str) {
    let scheme = match request.tls() {
        Some(_) => "https",
        None => "http",
    };
    let client = request.peer().map(|peer| peer.ip().to_canonical());
    // Memory takes all.
    let _ = match client {
        Some(address @ IpAddr::V4(_)) => write!(
            out,
            "X-Forwarded-For: {address}\r\nForwarded: for={address}"
        ),
        Some(address) => write!(
            out,
            "X-Forwarded-For: {address}\r\nForwarded: for=\"[{address}]\""
        ),
        None => write!(out, "Forwarded: for=unknown"),
    };
    let _ = write!(out, ";host=\"{host}\";proto={scheme}\r\n");
    line(out, "X-Forwarded-Proto", scheme.as_bytes());
    line(out, "X-Forwarded-Host", host.as_bytes());
}

/// Sixteen bytes that nobody need guess, in Base64 (RFC 6455, 4.1).
fn key() -> String {
    let random = || RandomState::new().build_hasher().finish().to_ne_bytes();
    STANDARD.encode([random(), random()].concat())
}

/// Returns whether a method announces that it has no body, either (RFC 9110, 8.6).
fn announces(method: &Method) -> bool {
    matches!(*method, Method::POST | Method::PUT | Method::PATCH)
}

fn line(out: &mut Vec<u8>, name: &str, value: &[u8]) {
    for part in [name.as_bytes(), b": ", value, b"\r\n"] {
        out.extend_from_slice(part);
    }
}

/// Returns whether a request may be sent twice (RFC 9110, 9.2.2).
pub(super) fn is_idempotent(method: &Method) -> bool {
    matches!(
        *method,
        Method::GET | Method::HEAD | Method::OPTIONS | Method::TRACE | Method::PUT | Method::DELETE
    )
}

#[cfg(test)]
mod tests {
    use super::is_dropped;

    #[test]
    fn no_spelling_passes_for_a_field_of_ours() {
        for name in [
            "X-Forwarded-For",
            "x_forwarded_for",
            "X_Real-IP",
            "X-Forwarded-Ssl",
            "TE",
            "Content_Length",
        ] {
            assert!(is_dropped(name), "{name}");
        }
        for name in ["X-Forward", "Accept", "X-Forwarde", "Authorization"] {
            assert!(!is_dropped(name), "{name}");
        }
    }
}
