//! Header fields as encoded lines, checked when they are added: one field each, and none that is
//! the connection's.

use bytes::Bytes;
use http::header::{self, HeaderName};

use super::error::Error;

/// Header fields encoded when they are added, for handlers that count nanoseconds: one buffer, no
/// map. Lines that were made once can be shared by many responses.
#[derive(Clone, Debug)]
pub struct HeaderLines(Lines);

#[derive(Clone, Debug)]
enum Lines {
    Own(Vec<u8>),
    Shared(Bytes),
}

impl Default for HeaderLines {
    fn default() -> Self {
        Self(Lines::Own(Vec::new()))
    }
}

impl HeaderLines {
    /// Makes an empty one with room for lines of this many bytes together.
    pub fn with_capacity(bytes: usize) -> Self {
        Self(Lines::Own(Vec::with_capacity(bytes)))
    }

    /// Appends a field. Refuses names that are none, values with control characters (CR, LF, NUL),
    /// and the fields that the connection writes itself.
    pub fn push(&mut self, name: &str, value: impl AsRef<[u8]>) -> Result<(), Error> {
        checked_line(self.own(), name, value.as_ref())
    }

    /// Appends the fields of others.
    pub fn append(&mut self, others: &Self) {
        self.own().extend_from_slice(others.as_bytes());
    }

    /// Removes all fields of this name.
    pub(crate) fn remove(&mut self, name: &HeaderName) {
        if !self
            .as_bytes()
            .split_inclusive(|&byte| byte == b'\n')
            .any(|line| is_of(line, name))
        {
            return; // Shared lines stay shared.
        }
        let lines = self.as_bytes().split_inclusive(|&byte| byte == b'\n');
        let kept: Vec<_> = lines.filter(|line| !is_of(line, name)).collect();
        self.0 = Lines::Own(kept.concat());
    }

    /// Makes clones cheap: they share the lines from now on.
    #[must_use]
    pub fn shared(self) -> Self {
        Self(Lines::Shared(match self.0 {
            Lines::Own(lines) => lines.into(),
            Lines::Shared(lines) => lines,
        }))
    }

    /// Returns a copy that can be shared, and that others than those of its own clones do not
    /// share.
    pub(crate) fn copied(&self) -> Self {
        Self(Lines::Shared(Bytes::copy_from_slice(self.as_bytes())))
    }

    /// Returns the lines behind the first `start` bytes, shared. `start` is where a line begins.
    pub(crate) fn tail(&self, start: usize) -> Self {
        match &self.0 {
            Lines::Own(lines) => Self(Lines::Own(lines[start..].to_vec())),
            Lines::Shared(lines) => Self(Lines::Shared(lines.slice(start..))),
        }
    }

    /// Appends a field whose name and value (in parts) are ours and valid.
    pub(crate) fn push_known(&mut self, name: &'static str, value: &[&str]) {
        let lines = self.own();
        for part in [&[name, ": "], value, &["\r\n"]].into_iter().flatten() {
            lines.extend_from_slice(part.as_bytes());
        }
    }

    /// Returns whether there are none.
    pub fn is_empty(&self) -> bool {
        self.as_bytes().is_empty()
    }

    /// Returns the encoded lines.
    pub fn as_bytes(&self) -> &[u8] {
        match &self.0 {
            Lines::Own(lines) => lines,
            Lines::Shared(lines) => lines,
        }
    }

    fn own(&mut self) -> &mut Vec<u8> {
        if let Lines::Shared(lines) = &self.0 {
            self.0 = Lines::Own(lines.to_vec());
        }
        match &mut self.0 {
            Lines::Own(lines) => lines,
            Lines::Shared(_) => unreachable!("made its own above"),
        }
    }
}

/// Names whose usual spelling is not that of [`append_field`].
const SPELLED: [&str; 8] = [
    "ETag",
    "WWW-Authenticate",
    "DNT",
    "Sec-WebSocket-Accept",
    "Sec-WebSocket-Extensions",
    "Sec-WebSocket-Protocol",
    "Sec-WebSocket-Version",
    "Content-MD5",
];

/// Appends a field, its name spelled as HTTP/1 knows it: with capitals where its words begin.
pub(crate) fn append_field(out: &mut Vec<u8>, name: &HeaderName, value: &[u8]) {
    if let Some(spelled) = SPELLED
        .iter()
        .find(|spelled| name.as_str().eq_ignore_ascii_case(spelled))
    {
        return append_line(out, spelled, value);
    }
    let start = out.len();
    append_line(out, name.as_str(), value);
    let mut begins = true;

    for byte in &mut out[start..start + name.as_str().len()] {
        if begins {
            byte.make_ascii_uppercase();
        }
        begins = *byte == b'-';
    }
}

/// Returns whether a line is a field of this name.
fn is_of(line: &[u8], name: &HeaderName) -> bool {
    let name = name.as_str().as_bytes();
    line.get(name.len()) == Some(&b':') && line[..name.len()].eq_ignore_ascii_case(name)
}

/// Appends a field as it is. (Inlined, which LLVM would not do by itself: most names are constants,
/// and copying one is then a few plain moves.)
#[inline(always)]
pub(crate) fn append_line(out: &mut Vec<u8>, name: &str, value: &[u8]) {
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b": ");
    out.extend_from_slice(value);
    out.extend_from_slice(b"\r\n");
}

/// Returns whether only the connection may write this field: a handler's own would break the
/// framing.
pub(crate) fn is_ours(name: &HeaderName) -> bool {
    [
        header::CONNECTION,
        header::CONTENT_LENGTH,
        header::TRANSFER_ENCODING,
        header::TE,
        header::TRAILER,
    ]
    .contains(name)
        || name == "keep-alive"
}

/// Appends a field after checking that it is one field and nothing else (RFC 9110, 5.1 and 5.5).
fn checked_line(out: &mut Vec<u8>, name: &str, value: &[u8]) -> Result<(), Error> {
    let name =
        HeaderName::from_bytes(name.as_bytes()).map_err(|_| Error::header("not a header name"))?;
    if is_ours(&name) {
        return Err(Error::header(
            "a header field that the connection writes itself",
        ));
    }
    if value
        .iter()
        .any(|&byte| (byte < b' ' && byte != b'\t') || byte == 0x7f)
    {
        return Err(Error::header("a header value with a control character"));
    }
    append_field(out, &name, value);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_that_would_split_a_response_are_refused() {
        for value in [&b"a\r\nSet-Cookie: b"[..], b"a\nb", b"a\0b", b"\x7f", b"\r"] {
            let mut out = Vec::new();
            assert!(
                checked_line(&mut out, "X-A", value).is_err_and(|error| error.is_invalid_header())
            );
            assert!(out.is_empty());
        }

        for name in [
            "",
            "a b",
            "a:",
            "a\r\n",
            "content-length",
            "Transfer-Encoding",
            "Connection",
        ] {
            assert!(
                checked_line(&mut Vec::new(), name, b"1").is_err(),
                "{name:?}"
            );
        }

        assert!(checked_line(&mut Vec::new(), "X-A", "tab\t and gr\u{fc}n".as_bytes()).is_ok());
    }

    #[test]
    fn fields_are_removed_by_their_whole_names() {
        let mut lines = HeaderLines::default();
        for (name, value) in [
            ("ETag", "\"a\""),
            ("X-E", "etag: 1"),
            ("E", "1"),
            ("ETag", "2"),
        ] {
            lines.push(name, value).unwrap();
        }
        let mut shared = lines.shared();
        shared.remove(&header::VARY);
        assert!(matches!(shared.0, Lines::Shared(_)));
        shared.remove(&header::ETAG);
        assert_eq!(shared.as_bytes(), b"X-E: etag: 1\r\nE: 1\r\n");
    }

    #[test]
    fn names_are_spelled_in_one_way() {
        for (name, spelled) in [
            ("content-TYPE", "Content-Type"),
            ("etag", "ETag"),
            ("www-authenticate", "WWW-Authenticate"),
            ("x-a-1b-", "X-A-1b-"),
            ("_x", "_x"),
        ] {
            let mut out = Vec::new();
            checked_line(&mut out, name, b"v").unwrap();
            assert_eq!(out, format!("{spelled}: v\r\n").into_bytes());
        }
    }
}
