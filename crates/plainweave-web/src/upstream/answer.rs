//! The heads of answers, sans I/O: what is passed on, and where the body ends.
//!
//! A body whose end can be read in two ways (a length beside a coding, two lengths, a coding that
//! is not known) makes the answer none: what one reader takes for the rest of it another one takes
//! for the next answer.

use std::mem::MaybeUninit;

use plainweave_http::body::parse_length;
use plainweave_http::parse::{MAX_HEADERS, list};
use plainweave_http::{HeaderLines, HeaderName, HeaderValue, StatusCode};

/// Bytes of a head.
const MOST: usize = 64 << 10;

/// The head of an answer.
#[derive(Debug)]
pub(super) struct AnswerHead {
    pub(super) status: StatusCode,
    /// What is passed on.
    pub(super) lines: HeaderLines,
    pub(super) end: End,
    /// The protocol that the connection changes to, by a 101.
    pub(super) protocol: Option<HeaderValue>,
    /// The connection may have another request behind this answer.
    pub(super) keeps: bool,
    /// Its bytes.
    pub(super) len: usize,
}

/// How a body ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    Length(u64),
    Chunked,
    /// With the connection.
    Closed,
}

/// Fields that are not passed on: those of the connection, and those that this server says itself.
const DROPPED: [&str; 12] = [
    "connection",
    "content-length",
    "date",
    "keep-alive",
    "proxy-authenticate",
    "proxy-connection",
    "server",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "alt-svc",
];

/// Reads the head at the start of what has come. `None`: more has to come.
///
/// # Errors
/// It is no answer, or one that can be read in two ways: says why.
pub(super) fn parse(bytes: &[u8]) -> Result<Option<AnswerHead>, String> {
    let malformed = |why: &str| format!("its answer has {why}");
    // Not written before they are used: there is room for many.
    let mut slots = [const { MaybeUninit::uninit() }; MAX_HEADERS];
    let mut raw = httparse::Response::new(&mut []);
    let config = httparse::ParserConfig::default();
    let len = match config.parse_response_with_uninit_headers(&mut raw, bytes, &mut slots) {
        Ok(httparse::Status::Complete(len)) => len,
        Ok(httparse::Status::Partial) if bytes.len() < MOST => return Ok(None),
        Ok(httparse::Status::Partial) => return Err(malformed("too long a head")),
        Err(error) => return Err(malformed(&format!("a head that cannot be read: {error}"))),
    };

    let status = raw.code.and_then(|code| StatusCode::from_u16(code).ok());
    let status = status.ok_or_else(|| malformed("no status"))?;
    let mut framing = FramingFields::default();
    let headers: &[httparse::Header<'_>] = raw.headers;
    for field in headers {
        framing.note(field).map_err(malformed)?;
    }

    let mut lines = HeaderLines::with_capacity(len);
    for field in headers {
        let is = |name: &&str| field.name.eq_ignore_ascii_case(name);
        if DROPPED.iter().any(is) || framing.names(field.name) {
            continue;
        }
        lines
            .push(field.name, field.value)
            .map_err(|_| malformed("a malformed field"))?;
    }

    let version = raw.version.unwrap_or(0);
    Ok(Some(AnswerHead {
        status,
        lines,
        end: framing.end(version).map_err(malformed)?,
        protocol: framing.protocol,
        keeps: version == 1 && !framing.closes,
        len,
    }))
}

/// What fields say of the connection and of the body's end.
#[derive(Debug, Default)]
struct FramingFields {
    length: Option<u64>,
    is_chunked: bool,
    closes: bool,
    /// The names in `Connection`, whose fields are of this connection alone.
    named: Vec<Vec<u8>>,
    protocol: Option<HeaderValue>,
}

impl FramingFields {
    fn note(&mut self, field: &httparse::Header<'_>) -> Result<(), &'static str> {
        let is = |name: &str| field.name.eq_ignore_ascii_case(name);
        if is("content-length") {
            let length = parse_length(field.value.trim_ascii());
            let length = length.ok_or("a length that is no number")?;
            if self
                .length
                .replace(length)
                .is_some_and(|other| other != length)
            {
                return Err("two lengths");
            }
        } else if is("transfer-encoding") {
            if self.is_chunked || !field.value.trim_ascii().eq_ignore_ascii_case(b"chunked") {
                return Err("a transfer coding that is not known");
            }
            self.is_chunked = true;
        } else if is("connection") {
            for name in list(field.value) {
                self.closes |= name.eq_ignore_ascii_case(b"close");
                self.named.push(name.to_ascii_lowercase());
            }
        } else if is("upgrade") && HeaderName::from_bytes(field.value).is_ok() {
            self.protocol = HeaderValue::from_bytes(field.value).ok();
        }

        Ok(())
    }

    fn names(&self, name: &str) -> bool {
        let mut named = self.named.iter();
        named.any(|named| name.as_bytes().eq_ignore_ascii_case(named))
    }

    fn end(&self, version: u8) -> Result<End, &'static str> {
        match (self.is_chunked, self.length) {
            (true, Some(_)) => Err("both a length and a coding"),
            // RFC 9112, 6.1: it cannot have understood what it says.
            (true, None) if version == 0 => Err("a coding in HTTP/1.0"),
            (true, None) => Ok(End::Chunked),
            (false, Some(length)) => Ok(End::Length(length)),
            (false, None) => Ok(End::Closed),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(fields: &str) -> Result<AnswerHead, String> {
        let text = format!("HTTP/1.1 200 OK\r\n{fields}\r\nrest");
        parse(text.as_bytes()).map(|head| head.expect("it is whole"))
    }

    #[test]
    fn the_end_of_a_body_is_where_one_reader_finds_it() {
        for (fields, end) in [
            ("Content-Length: 5\r\n", End::Length(5)),
            ("Content-Length: 5\r\ncontent-length: 5\r\n", End::Length(5)),
            ("Transfer-Encoding: Chunked\r\n", End::Chunked),
            ("X: y\r\n", End::Closed),
        ] {
            assert_eq!(read(fields).map(|head| head.end), Ok(end), "{fields}");
        }

        for fields in [
            "Content-Length: 5\r\nContent-Length: 6\r\n",
            "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n",
            "Content-Length: +5\r\n",
            "Content-Length: 5, 5\r\n",
            "Content-Length: \r\n",
            "Content-Length: 99999999999999999999\r\n",
            "Transfer-Encoding: gzip, chunked\r\n",
            "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
            "Transfer-Encoding: xchunked\r\n",
            "Transfer-Encoding : chunked\r\n",
            "X: a\r\n b\r\n",
            "X: a\0b\r\n",
        ] {
            assert!(read(fields).is_err(), "{fields}");
        }

        let old = parse(b"HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
        assert!(old.is_err());
        assert!(
            parse(b"HTTP/1.1 200 OK\r\nX: y\r\n")
                .expect("so far")
                .is_none()
        );
        assert!(parse(&[b'a'; MOST + 1]).is_err());
    }

    #[test]
    fn fields_of_the_connection_stay_there() {
        let fields = "Connection: keep-alive, X-Own\r\nX-Own: 1\r\nX-Other: 2\r\nDate: now\r\n\
                      Keep-Alive: 5\r\nServer: them\r\nSet-Cookie: a\r\nSet-Cookie: b\r\n";
        let head = read(fields).expect("a head");
        let lines = String::from_utf8(head.lines.as_bytes().to_vec()).expect("it is text");
        assert_eq!(
            lines.to_lowercase(),
            "x-other: 2\r\nset-cookie: a\r\nset-cookie: b\r\n"
        );
        assert!(head.keeps);
        assert!(!read("Connection: x, Close\r\n").expect("a head").keeps);
    }
}
