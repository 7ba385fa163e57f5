//! From HTTP to HTTPS: the redirect of what comes without TLS, and HSTS for what comes with it.

use plainweave_http::{HeaderValue, Request, RequestHead, Response, StatusCode, Target, header};

/// What an answer says of HTTPS.
#[derive(Clone, Debug, Default)]
pub(super) struct Https {
    /// The port that requests without TLS are sent to.
    pub(super) redirect: Option<u16>,
    /// The value of `Strict-Transport-Security`.
    pub(super) hsts: Option<HeaderValue>,
}

impl Https {
    /// Returns the answer to a request that should come over TLS and does not.
    pub(super) fn redirected(&self, request: &Request<'_>) -> Option<Response> {
        let port = self.redirect?;
        if request.tls().is_some() {
            return None;
        }
        let location =
            location(request.head(), port).and_then(|url| HeaderValue::from_str(&url).ok());
        Some(match location {
            Some(url) => {
                Response::plain(StatusCode::PERMANENT_REDIRECT).with_header(header::LOCATION, url)
            }
            None => Response::text(StatusCode::BAD_REQUEST, "400 Bad Request: use https://\n"),
        })
    }

    /// Adds to an answer what a client should remember.
    pub(super) fn marked(&self, request: &Request<'_>, response: Response) -> Response {
        match &self.hsts {
            Some(value) if request.tls().is_some() => {
                response.with_header(header::STRICT_TRANSPORT_SECURITY, value.clone())
            }
            _ => response,
        }
    }
}

/// The same place over HTTPS; `None` if the request does not say which host it is for, or asks for
/// no place.
fn location(head: &RequestHead<'_>, port: u16) -> Option<String> {
    let authority = head.host().filter(|host| !host.is_empty())?;
    let host = without_port(authority);

    let rest = match head.target() {
        Target::Origin(rest) => rest,
        Target::Absolute { rest: "", .. } => "/",
        Target::Absolute { rest, .. } => rest,
        Target::Authority(_) | Target::Asterisk => return None,
    };

    Some(match port {
        443 => format!("https://{host}{rest}"),
        port => format!("https://{host}:{port}{rest}"),
    })
}

/// Returns a host without its port.
pub(super) fn without_port(authority: &str) -> &str {
    match authority.rsplit_once(':') {
        Some((host, port)) if port.bytes().all(|digit| digit.is_ascii_digit()) => host,
        _ => authority,
    }
}

#[cfg(test)]
mod tests {
    use plainweave_http::parse::{header_slots, parse_head};

    use super::*;

    #[test]
    fn the_place_is_the_same() {
        for (line, host, port, url) in [
            (
                "GET /a/b?c=d",
                "example.com",
                443,
                Some("https://example.com/a/b?c=d"),
            ),
            (
                "GET /",
                "example.com:80",
                8443,
                Some("https://example.com:8443/"),
            ),
            ("GET /", "[::1]:8080", 443, Some("https://[::1]/")),
            ("GET /", "[::1]", 8443, Some("https://[::1]:8443/")),
            (
                "GET http://other?q",
                "example.com",
                443,
                Some("https://other?q"),
            ),
            (
                "GET http://other",
                "example.com",
                443,
                Some("https://other/"),
            ),
            ("OPTIONS *", "example.com", 443, None),
            ("GET /", "", 443, None),
        ] {
            let text = format!("{line} HTTP/1.1\r\nHost: {host}\r\n\r\n");
            let mut slots = header_slots();
            let head = parse_head(text.as_bytes(), &mut slots).expect("a head");
            assert_eq!(location(&head, port).as_deref(), url, "{text}");
        }
    }
}
