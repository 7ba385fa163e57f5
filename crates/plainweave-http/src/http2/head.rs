//! The head of a request as handlers see it, from what the engine has read.

use http::request::Parts;
use http::{Method, StatusCode, Version, header};

use super::tunnel::Asked;
use crate::limits::Limits;
use crate::message::authority::is_authority;
use crate::message::body::parse_length;
use crate::message::error::Error;
use crate::message::head::{Framing, RequestHead};
use crate::message::parse::{MAX_HEADERS, parse_target};

/// What of a head is not lent by the engine's.
#[derive(Default)]
pub(super) struct Joined {
    cookies: Option<Vec<u8>>,
}

impl Joined {
    /// Joins cookies that came as several fields (RFC 9113, 8.2.3).
    pub(super) fn of(parts: &Parts) -> Self {
        let cookies: Vec<_> = parts
            .headers
            .get_all(header::COOKIE)
            .iter()
            .map(|value| value.as_bytes())
            .collect();
        Self {
            cookies: (cookies.len() > 1).then(|| cookies.join(&b"; "[..])),
        }
    }

    /// Returns the fields. Their names are in lower case.
    pub(super) fn fields<'a>(&'a self, parts: &'a Parts) -> Vec<httparse::Header<'a>> {
        let mut joined = self.cookies.as_deref();
        let mut fields = Vec::with_capacity(parts.headers.len());
        for (name, value) in &parts.headers {
            let value = match self.cookies.is_some() && name == header::COOKIE {
                false => value.as_bytes(),
                true => match joined.take() {
                    Some(cookies) => cookies,
                    None => continue,
                },
            };

            fields.push(httparse::Header {
                name: name.as_str(),
                value,
            });
        }

        fields
    }
}

/// Makes the head, and judges it as one of HTTP/1 is judged. `ends`: no body follows. `asked`: what
/// follows instead, in both directions.
pub(super) fn head<'a>(
    parts: &'a Parts,
    fields: &'a [httparse::Header<'a>],
    ends: bool,
    asked: Option<Asked<'_>>,
    limits: &Limits,
) -> Result<RequestHead<'a>, Error> {
    let method = match asked {
        Some(Asked::Protocol(_)) => &Method::GET,
        _ => &parts.method,
    };
    let authority = parts.uri.authority().map(http::uri::Authority::as_str);
    let target_text = match parts.uri.path_and_query() {
        Some(path) if *method != Method::CONNECT => path.as_str(),
        _ => authority.unwrap_or_default(),
    };
    if target_text.len() > limits.line_bytes {
        return Err(Error::too_large(
            StatusCode::URI_TOO_LONG,
            "the request's path is too long",
        ));
    }
    if fields.len() > limits.headers.min(MAX_HEADERS) {
        let status = StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE;
        return Err(Error::too_large(status, "too many header fields"));
    }
    well_formed(parts)?;
    Ok(RequestHead {
        method: method.clone(),
        target: parse_target(method, target_text)?,
        target_text,
        version: Version::HTTP_2,
        headers: fields,
        host: host(authority, fields)?.map(str::as_bytes),
        framing: framing(fields, ends || asked.is_some())?,
        keep_alive: true,
        expects_continue: expects_continue(fields)?,
    })
}

/// Refuses what the engine lets pass: blanks around a value (RFC 9113, 8.2.1), and schemes that are
/// not those of HTTP (8.3.1), which it shows only beside an authority.
fn well_formed(parts: &Parts) -> Result<(), Error> {
    let blank = |byte: Option<&u8>| byte.is_some_and(|byte| matches!(byte, b' ' | b'\t'));
    let has_blanks = |value: &http::HeaderValue| {
        blank(value.as_bytes().first()) || blank(value.as_bytes().last())
    };
    if parts.headers.values().any(has_blanks) {
        return Err(Error::bad("a field's value begins or ends with a blank"));
    }
    match parts.uri.scheme_str() {
        Some(scheme)
            if !["http", "https"]
                .iter()
                .any(|known| scheme.eq_ignore_ascii_case(known)) =>
        {
            Err(Error::bad("a :scheme other than http and https"))
        }
        _ => Ok(()),
    }
}

/// RFC 9113, 8.3.1: the pseudo-header or a field says it; both may, and then say the same.
fn host<'a>(
    authority: Option<&'a str>,
    fields: &[httparse::Header<'a>],
) -> Result<Option<&'a str>, Error> {
    let mut host = authority;
    let mut named = false;
    for field in fields.iter().filter(|field| field.name == "host") {
        let text = str::from_utf8(field.value).map_err(|_| Error::bad("malformed Host"))?;
        if std::mem::replace(&mut named, true) {
            return Err(Error::bad("more than one Host"));
        }
        if host.is_some_and(|host| !host.eq_ignore_ascii_case(text)) {
            return Err(Error::bad("Host differs from :authority"));
        }
        host = Some(text);
    }
    match host {
        Some(host) if !is_authority(host.as_bytes()) => {
            Err(Error::bad("malformed :authority or Host"))
        }
        None => Err(Error::bad("neither :authority nor Host")),
        host => Ok(host),
    }
}

fn framing(fields: &[httparse::Header<'_>], ends: bool) -> Result<Framing, Error> {
    let mut length = None;
    for field in fields.iter().filter(|field| field.name == "content-length") {
        let number = parse_length(field.value).ok_or(Error::bad("malformed Content-Length"))?;
        if length.is_some_and(|length| length != number) {
            return Err(Error::bad("Content-Length fields that differ"));
        }
        length = Some(number);
    }
    Ok(match (length, ends) {
        (_, true) => Framing::Length(0),
        (Some(length), false) => Framing::Length(length),
        (None, false) => Framing::Chunked,
    })
}

/// RFC 9110, 10.1.1.
fn expects_continue(fields: &[httparse::Header<'_>]) -> Result<bool, Error> {
    match fields.iter().find(|field| field.name == "expect") {
        None => Ok(false),
        Some(field) if field.value.eq_ignore_ascii_case(b"100-continue") => Ok(true),
        Some(_) => Err(Error::parse(
            StatusCode::EXPECTATION_FAILED,
            "an expectation other than 100-continue",
        )),
    }
}
