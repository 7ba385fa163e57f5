//! Request heads, sans I/O, as strict as RFC 9112 allows.
//!
//! Two steps, because input arrives in pieces. [`HeadScanner`] looks for the empty line, remembers
//! where it stopped (so that a peer that sends byte by byte costs linear work) and enforces the
//! size limits while there is nothing to parse yet. [`parse_head`] then sees a complete head
//! exactly once: `httparse` checks the grammar, the rest of this file checks what makes two readers
//! of one connection disagree on where a request ends.
//!
//! Line ends: CRLF only. RFC 9112, 2.2 lets a recipient take a bare LF; we refuse it, for a proxy
//! in front may not.

use std::mem::MaybeUninit;

use http::{Method, StatusCode, Version};
use memchr::memchr;

use super::authority::is_authority;
use super::body::{is_token, parse_length};
use super::error::Error;
use super::head::{Framing, RequestHead, Target};
use crate::limits::Limits;

pub use crate::limits::MAX_HEADERS;

/// Room for a head's fields; lives on the stack, is not initialised.
#[derive(Debug)]
pub struct HeaderSlots<'b> {
    slots: [MaybeUninit<httparse::Header<'b>>; MAX_HEADERS],
    /// For versions that `httparse` does not know.
    later: Vec<httparse::Header<'b>>,
}

/// Makes empty [`HeaderSlots`].
pub fn header_slots<'b>() -> HeaderSlots<'b> {
    HeaderSlots {
        slots: [const { MaybeUninit::uninit() }; MAX_HEADERS],
        later: Vec::new(),
    }
}

/// The first byte of a TLS client's greeting (RFC 8446, 5.1).
const TLS_HANDSHAKE: u8 = 22;

/// What a look at the buffer found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scan {
    /// No end yet: read more, then scan the longer buffer.
    More,
    /// This many bytes of an empty line before the request (RFC 9112, 2.2): drop them, start with a
    /// fresh scanner.
    Blank(usize),
    /// The head is complete and has this length, its empty line included.
    Head(usize),
}

/// Finds the end of a head in a buffer that grows.
///
/// ```
/// use plainweave_http::Limits;
/// use plainweave_http::parse::{HeadScanner, Scan};
///
/// let (mut scanner, limits) = (HeadScanner::default(), Limits::default());
/// assert!(matches!(scanner.scan(b"GET / HTTP/1.1\r\n", &limits)?, Scan::More));
/// assert!(matches!(scanner.scan(b"GET / HTTP/1.1\r\n\r\n", &limits)?, Scan::Head(18)));
/// # Ok::<(), plainweave_http::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct HeadScanner {
    /// Nothing before this needs another look.
    next: usize,
    line_start: usize,
    lines: usize,
}

impl HeadScanner {
    /// Looks on from where the last look stopped. `buf` begins with the request and holds all that
    /// was received of it: between two calls it may only have grown.
    pub fn scan(&mut self, buf: &[u8], limits: &Limits) -> Result<Scan, Error> {
        if self.next == 0
            && buf
                .first()
                .is_some_and(|&first| !is_token(first) && !matches!(first, b'\r' | b'\n'))
        {
            // Said at once: a client that speaks something else may send no line end, and wait.
            return Err(match buf {
                [TLS_HANDSHAKE, ..] => Error::bad("a TLS handshake where HTTP is expected"),
                _ => Error::bad("malformed request line or header field"),
            });
        }
        while let Some(offset) = memchr(b'\n', &buf[self.next..]) {
            let end = self.next + offset;
            self.check_size(end + 1, limits)?;
            // A proxy in front that takes a bare LF for data would see another request here.
            if end == self.line_start || buf[end - 1] != b'\r' {
                return Err(Error::bad("a line ends in a bare LF"));
            }
            let empty = end - 1 == self.line_start;
            if empty && self.lines == 0 {
                // Old clients send an empty line behind a body, which its length does not count.
                return Ok(Scan::Blank(end + 1));
            }
            if empty {
                return Ok(Scan::Head(end + 1));
            }
            // The request line is counted too, so this is the number of the field that ends here.
            if self.lines > limits.headers.min(MAX_HEADERS) {
                return Err(too_many());
            }
            self.lines += 1;
            self.next = end + 1;
            self.line_start = end + 1;
        }

        // What has no end yet is judged as well: a line that never ends must not fill the memory.
        self.next = buf.len();
        self.check_size(buf.len(), limits)?;
        Ok(Scan::More)
    }

    fn check_size(&self, len: usize, limits: &Limits) -> Result<(), Error> {
        if self.lines == 0 && len > limits.line_bytes {
            return Err(Error::too_large(
                StatusCode::URI_TOO_LONG,
                "the request line is too long",
            ));
        }
        if len > limits.head_bytes {
            return Err(Error::too_large(
                StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
                "the request head is too large",
            ));
        }
        Ok(())
    }
}

fn too_many() -> Error {
    Error::too_large(
        StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
        "too many header fields",
    )
}

/// Parses a complete head, as [`HeadScanner`] delimits it.
///
/// ```
/// use plainweave_http::parse::{header_slots, parse_head};
///
/// let mut slots = header_slots();
/// let head = parse_head(b"GET /a HTTP/1.1\r\nHost: h\r\n\r\n", &mut slots)?;
/// assert_eq!((head.path(), head.header("host")), ("/a", Some(&b"h"[..])));
/// # Ok::<(), plainweave_http::Error>(())
/// ```
pub fn parse_head<'b>(
    buf: &'b [u8],
    slots: &'b mut HeaderSlots<'b>,
) -> Result<RequestHead<'b>, Error> {
    let mut raw = httparse::Request::new(&mut []);
    match raw.parse_with_uninit_headers(buf, &mut slots.slots) {
        // The scanner and this parser have to agree on where it ends.
        Ok(httparse::Status::Complete(len)) if len == buf.len() => {}
        Ok(_) => return Err(incomplete()),
        Err(httparse::Error::Version) => return parse_later(buf, &mut slots.later),
        Err(error) => return Err(malformed(error)),
    }
    let (Some(method), Some(target_text), Some(minor)) = (raw.method, raw.path, raw.version) else {
        return Err(Error::bad("malformed request line"));
    };
    let version = if minor == 0 {
        Version::HTTP_10
    } else {
        Version::HTTP_11
    };
    judge(method, target_text, version, raw.headers)
}

/// Parses the head of a later HTTP/1, as one of HTTP/1.1 (RFC 9110, 2.5). Method and target were
/// found well formed.
#[cold]
fn parse_later<'b>(
    buf: &'b [u8],
    fields: &'b mut Vec<httparse::Header<'b>>,
) -> Result<RequestHead<'b>, Error> {
    let line = buf.split(|&byte| byte == b'\r').next().unwrap_or(buf);
    let rest = buf[line.len()..]
        .strip_prefix(b"\r\n")
        .ok_or_else(|| Error::bad("malformed request line"))?;
    let mut words = line.split(|&byte| byte == b' ');
    let method = words.next();
    let target = words.next();
    let version = words.next();
    let more = words.next();
    match version.filter(|_| more.is_none()) {
        Some([b'H', b'T', b'T', b'P', b'/', b'1', b'.', minor]) if minor.is_ascii_digit() => {}
        Some([b'H', b'T', b'T', b'P', b'/', major, b'.', minor])
            if major.is_ascii_digit() && minor.is_ascii_digit() =>
        {
            return Err(Error::parse(
                StatusCode::HTTP_VERSION_NOT_SUPPORTED,
                "only HTTP/1 is spoken here",
            ));
        }
        _ => return Err(Error::bad("malformed HTTP version")),
    }
    let text = |word: Option<&'b [u8]>| word.and_then(|word| str::from_utf8(word).ok());
    let (Some(method), Some(target)) = (text(method), text(target)) else {
        return Err(Error::bad("malformed request line"));
    };

    // The slots on the stack are lent to the first attempt for as long as the head lives.
    fields.resize(MAX_HEADERS, httparse::EMPTY_HEADER);
    match httparse::parse_headers(rest, fields).map_err(malformed)? {
        httparse::Status::Complete((len, fields)) if len == rest.len() => {
            judge(method, target, Version::HTTP_11, fields)
        }
        _ => Err(incomplete()),
    }
}

fn incomplete() -> Error {
    Error::bad("the head is not one complete request head")
}

fn malformed(error: httparse::Error) -> Error {
    match error {
        httparse::Error::TooManyHeaders => too_many(),
        _ => Error::bad("malformed request line or header field"),
    }
}

/// Refuses what makes two readers of one connection disagree.
fn judge<'b>(
    method: &'b str,
    target_text: &'b str,
    version: Version,
    headers: &'b [httparse::Header<'b>],
) -> Result<RequestHead<'b>, Error> {
    let method =
        Method::from_bytes(method.as_bytes()).map_err(|_| Error::bad("malformed method"))?;
    let target = parse_target(&method, target_text)?;
    let fields = Fields::collect(headers)?;
    if fields.host.is_none() && version == Version::HTTP_11 {
        return Err(Error::bad("HTTP/1.1 without Host"));
    }
    Ok(RequestHead {
        framing: fields.framing(version)?,
        // `close` wins where both are said (RFC 9112, 9.3).
        keep_alive: !fields.close && (version == Version::HTTP_11 || fields.keep_alive),
        expects_continue: fields.expects_continue(version)?,
        host: fields.host,
        method,
        target,
        target_text,
        version,
        headers,
    })
}

/// RFC 9112, 3.2. Fragments, controls and raw non-ASCII bytes are refused; the parser has already
/// refused spaces.
pub(crate) fn parse_target<'b>(method: &Method, target: &'b str) -> Result<Target<'b>, Error> {
    let bad = Error::bad("malformed request-target");
    if !target
        .bytes()
        .all(|byte| byte.is_ascii_graphic() && byte != b'#')
    {
        return Err(bad);
    }
    if *method == Method::CONNECT {
        let port = target.rsplit_once(':').map(|(_, port)| port);
        let valid = port.is_some_and(|port| port.ends_with(|last: char| last.is_ascii_digit()))
            && is_authority(target.as_bytes());
        return if valid {
            Ok(Target::Authority(target))
        } else {
            Err(bad)
        };
    }
    if target.starts_with('/') {
        return Ok(Target::Origin(target));
    }
    if target == "*" {
        return if *method == Method::OPTIONS {
            Ok(Target::Asterisk)
        } else {
            Err(bad)
        };
    }
    let Some((scheme, after)) = target.split_once("://") else {
        return Err(bad);
    };
    // The path may be empty, and a query follow at once: `http://h?q`.
    let (authority, rest) = after.split_at(after.find(['/', '?']).unwrap_or(after.len()));
    let http = scheme.eq_ignore_ascii_case("http") || scheme.eq_ignore_ascii_case("https");
    if !http || !is_authority(authority.as_bytes()) {
        return Err(bad);
    }
    Ok(Target::Absolute { authority, rest })
}

/// The fields that decide where the request ends and what becomes of the connection.
#[derive(Default)]
struct Fields<'b> {
    host: Option<&'b [u8]>,
    length: Option<u64>,
    coding: Option<Coding>,
    close: bool,
    keep_alive: bool,
    expect: Option<&'b [u8]>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Coding {
    /// `chunked` came last, once, alone.
    Chunked,
    /// Codings that we do not decode, the last of them possibly `chunked`.
    Other,
}

impl<'b> Fields<'b> {
    fn collect(headers: &'b [httparse::Header<'b>]) -> Result<Self, Error> {
        let mut fields = Self::default();
        for header in headers {
            let name = header.name;
            let value = header.value;
            // By the length first: most fields are none of these, and are not compared at all.
            match name.len() {
                4 if name.eq_ignore_ascii_case("host") => fields.add_host(value)?,
                6 if name.eq_ignore_ascii_case("expect") => fields.expect = Some(value),
                10 if name.eq_ignore_ascii_case("connection") => fields.add_connection(value),
                14 if name.eq_ignore_ascii_case("content-length") => fields.add_length(value)?,
                17 if name.eq_ignore_ascii_case("transfer-encoding") => fields.add_coding(value)?,
                _ => {}
            }
        }
        Ok(fields)
    }

    /// An empty one says that the target has no authority (RFC 9112, 3.2), and then ours holds
    /// (3.3).
    fn add_host(&mut self, value: &'b [u8]) -> Result<(), Error> {
        let sound = value.is_empty() || is_authority(value);
        match (self.host, sound) {
            (None, true) => self.host = Some(value),
            (Some(_), _) => return Err(Error::bad("more than one Host")),
            (None, false) => return Err(Error::bad("malformed Host")),
        }
        Ok(())
    }

    fn add_connection(&mut self, value: &[u8]) {
        for option in list(value) {
            self.close |= option.eq_ignore_ascii_case(b"close");
            self.keep_alive |= option.eq_ignore_ascii_case(b"keep-alive");
        }
    }

    /// RFC 9110, 8.6: repeated lengths are taken when they all say the same.
    fn add_length(&mut self, value: &[u8]) -> Result<(), Error> {
        for item in value.split(|&byte| byte == b',') {
            let number =
                parse_length(item.trim_ascii()).ok_or(Error::bad("malformed Content-Length"))?;
            if self.length.is_some_and(|length| length != number) {
                return Err(Error::bad("Content-Length fields that differ"));
            }
            self.length = Some(number);
        }
        Ok(())
    }

    fn add_coding(&mut self, value: &[u8]) -> Result<(), Error> {
        let before = self.coding;
        for coding in list(value) {
            let chunked = coding.eq_ignore_ascii_case(b"chunked");
            self.coding = match self.coding {
                Some(Coding::Chunked) => {
                    return Err(Error::bad("chunked is not the last transfer coding, once"));
                }
                None if chunked => Some(Coding::Chunked),
                _ => Some(Coding::Other),
            };
        }
        if self.coding == before && before.is_none() {
            return Err(Error::bad("empty Transfer-Encoding"));
        }
        Ok(())
    }

    /// RFC 9112, 6.3.
    fn framing(&self, version: Version) -> Result<Framing, Error> {
        match (self.coding, self.length) {
            (None, length) => Ok(Framing::Length(length.unwrap_or(0))),
            (Some(_), Some(_)) => Err(Error::bad("both Content-Length and Transfer-Encoding")),
            (Some(_), None) if version == Version::HTTP_10 => {
                Err(Error::bad("Transfer-Encoding in HTTP/1.0"))
            }
            (Some(Coding::Chunked), None) => Ok(Framing::Chunked),
            (Some(Coding::Other), None) => Err(Error::parse(
                StatusCode::NOT_IMPLEMENTED,
                "a transfer coding other than chunked",
            )),
        }
    }

    /// RFC 9110, 10.1.1.
    fn expects_continue(&self, version: Version) -> Result<bool, Error> {
        match self.expect {
            None => Ok(false),
            Some(value) if value.eq_ignore_ascii_case(b"100-continue") => {
                Ok(version == Version::HTTP_11)
            }
            Some(_) => Err(Error::parse(
                StatusCode::EXPECTATION_FAILED,
                "an expectation other than 100-continue",
            )),
        }
    }
}

/// Returns the non-empty elements of a comma-separated list (RFC 9110, 5.6.1).
pub fn list(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    value
        .split(|&byte| byte == b',')
        .map(<[u8]>::trim_ascii)
        .filter(|item| !item.is_empty())
}
