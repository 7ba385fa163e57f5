//! From a request's path to the name of a file beneath the root: decoded once, never trusted.

use std::borrow::Cow;

use http::StatusCode;

/// What a page's name ends in.
const PAGE: &str = ".html";

/// Returns a request's path as the files' handler understands it, the one by which rules should go:
/// decoded once, without empty segments. Begins with `/`.
///
/// # Errors
/// The status of the answer to a path that names no file: 400 for a malformed one, as with `..` or
/// NUL; 404 for what is hidden, as are dotfiles.
pub fn decoded(path: &str) -> Result<Cow<'_, [u8]>, StatusCode> {
    match FilePath::decode(path) {
        Ok(path) => Ok(path.canonical),
        Err(refusal) => Err(refusal.status()),
    }
}

/// Appends a decoded path, or a part of one, to a URL, percent-encoded but for its slashes.
pub fn push_encoded(url: &mut String, name: &[u8]) {
    for &byte in name {
        match byte {
            b'/' | b'-' | b'.' | b'_' | b'~' | b'!' | b'$' | b'&' | b'\'' | b'(' | b')' | b'*'
            | b'+' | b',' | b';' | b'=' | b':' | b'@' => url.push(byte as char),
            _ if byte.is_ascii_alphanumeric() => url.push(byte as char),
            _ => {
                url.push('%');
                url.push(HEX[usize::from(byte >> 4)] as char);
                url.push(HEX[usize::from(byte & 15)] as char);
            }
        }
    }
}

/// Why a path names no file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// No sensible client sends this: bad percent-encoding, NUL, `..`.
    Malformed,
    /// Not for the public: dotfiles, names that hold an encoded slash.
    Hidden,
}

impl Refusal {
    /// Returns the answer's status.
    pub(super) fn status(self) -> StatusCode {
        match self {
            Self::Malformed => StatusCode::BAD_REQUEST,
            // As if it did not exist: 403 would say that it does.
            Self::Hidden => StatusCode::NOT_FOUND,
        }
    }
}

/// A path beneath the root: no empty, `.` or `..` segments, no NUL, nothing hidden.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FilePath<'a> {
    /// `/`, then segments joined by `/`; another one at the end when a directory is meant.
    canonical: Cow<'a, [u8]>,
}

impl<'a> FilePath<'a> {
    /// Takes a path that begins with `/` apart. Empty segments are dropped, as most file systems
    /// do. What needs no decoding is not copied.
    pub(super) fn decode(path: &'a str) -> Result<Self, Refusal> {
        if is_plain(path.as_bytes()) {
            return Ok(Self {
                canonical: Cow::Borrowed(path.as_bytes()),
            });
        }
        let mut canonical = Vec::with_capacity(path.len() + 1);
        for segment in path.split('/').filter(|segment| !segment.is_empty()) {
            let start = canonical.len() + 1;
            canonical.push(b'/');
            decode_segment(segment.as_bytes(), &mut canonical)?;
            check_segment(&canonical[start..], start == 1)?;
        }
        if canonical.is_empty() || path.ends_with('/') {
            canonical.push(b'/');
        }
        Ok(Self {
            canonical: Cow::Owned(canonical),
        })
    }

    /// Returns the key that all paths to one file share.
    pub(super) fn key(&self) -> &[u8] {
        &self.canonical
    }

    /// Beneath the root: segments joined by `/`, without one in front or at the end; empty for the
    /// root itself.
    pub(super) fn name(&self) -> &[u8] {
        let name = &self.canonical[1..];
        name.strip_suffix(b"/").unwrap_or(name)
    }

    /// Returns whether the path ended in `/`, which means a directory.
    pub(super) fn is_directory(&self) -> bool {
        self.canonical.ends_with(b"/")
    }

    /// Returns the path of the page that stands for this one where URLs are clean: `/a` is for the
    /// file `/a.html`.
    pub(super) fn page(&self) -> FilePath<'static> {
        let canonical = [b"/", self.name(), PAGE.as_bytes()].concat();
        FilePath {
            canonical: Cow::Owned(canonical),
        }
    }

    /// Returns the path that this page stands for.
    pub(super) fn without_page(&self) -> Option<FilePath<'_>> {
        let left = self.canonical.strip_suffix(PAGE.as_bytes())?;
        Some(FilePath {
            canonical: Cow::Borrowed(left),
        })
    }

    /// Returns the clean URL of a page, encoded: `/a` for `/a.html`, and `/b/` for `/b/` and the
    /// name of an index file. `None`: it has no other name.
    pub(super) fn clean(&self, index: &[u8]) -> Option<String> {
        let slash = memchr::memrchr(b'/', self.name()).map_or(0, |slash| slash + 1);
        let (folder, last) = self.name().split_at(slash);
        let name = match last {
            _ if self.is_directory() => return None,
            last if last == index => folder,
            _ => self
                .name()
                .strip_suffix(PAGE.as_bytes())
                .filter(|name| !name.ends_with(b"/"))?,
        };
        let mut url = String::from("/");
        push_encoded(&mut url, name);
        Some(url)
    }

    /// Returns the same path encoded again with a slash at its end, for a redirect. It has exactly
    /// one slash in front and no character that a browser could take for another (`\` is `%5C`), so
    /// it never names another host.
    pub(super) fn as_directory(&self) -> String {
        let name = self.name();
        let mut url = String::with_capacity(name.len() + 2);
        url.push('/');
        push_encoded(&mut url, name);
        if !url.ends_with('/') {
            url.push('/');
        }
        url
    }

    /// Returns the same path as an owned value.
    pub(super) fn into_owned(self) -> FilePath<'static> {
        FilePath {
            canonical: Cow::Owned(self.canonical.into_owned()),
        }
    }
}

/// Returns what follows the last dot of the last segment of a name.
pub(super) fn extension(name: &[u8]) -> Option<&str> {
    let last = name.rsplit(|&byte| byte == b'/').next()?;
    let dot = memchr::memrchr(b'.', last).filter(|&dot| dot > 0)?;
    str::from_utf8(&last[dot + 1..]).ok()
}

/// Returns whether a path is canonical as it stands, as nearly all are: nothing encoded, no empty
/// segment and none that begins with a dot. The parser lets no control character through.
fn is_plain(path: &[u8]) -> bool {
    let mut before = 0;
    path.first() == Some(&b'/')
        && path.iter().all(|&byte| {
            let odd =
                byte == b'%' || (before == b'/' && (byte == b'/' || byte == b'.')) || byte < b' ';
            before = byte;
            !odd
        })
}

const HEX: &[u8; 16] = b"0123456789ABCDEF";

fn decode_segment(segment: &[u8], out: &mut Vec<u8>) -> Result<(), Refusal> {
    let mut bytes = segment.iter();
    while let Some(&byte) = bytes.next() {
        if byte != b'%' {
            out.push(byte);
            continue;
        }
        let mut digit = || bytes.next().and_then(|&byte| (byte as char).to_digit(16));
        match (digit(), digit()) {
            (Some(high), Some(low)) => out.push((high << 4 | low) as u8),
            _ => return Err(Refusal::Malformed),
        }
    }
    Ok(())
}

fn check_segment(segment: &[u8], first: bool) -> Result<(), Refusal> {
    match segment {
        b"." | b".." => Err(Refusal::Malformed),
        _ if segment.contains(&0) => Err(Refusal::Malformed),
        _ if segment.contains(&b'/') => Err(Refusal::Hidden),
        b".well-known" if first => Ok(()),
        [b'.', ..] => Err(Refusal::Hidden),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::Refusal::{Hidden, Malformed};
    use super::*;

    #[test]
    fn safe_paths() {
        let table: [(&str, Result<&str, Refusal>); 28] = [
            ("/", Ok("")),
            ("/a", Ok("a")),
            ("/a/b.html", Ok("a/b.html")),
            ("/a/", Ok("a")),
            ("//a///b", Ok("a/b")),
            ("/%61%2e%62", Ok("a.b")),
            ("/a%20b", Ok("a b")),
            ("/%2541", Ok("%41")), // Decoded once.
            ("/%25%32%65", Ok("%2e")),
            ("/a\\..\\b", Ok("a\\..\\b")), // A file name like any other here.
            ("/...", Err(Hidden)),
            ("/a..b", Ok("a..b")),
            (
                "/.well-known/acme-challenge/x",
                Ok(".well-known/acme-challenge/x"),
            ),
            ("/..", Err(Malformed)),
            ("/../etc/passwd", Err(Malformed)),
            ("/a/../../b", Err(Malformed)),
            ("/a/./b", Err(Malformed)),
            ("/%2e%2e/b", Err(Malformed)),
            ("/.%2E/b", Err(Malformed)),
            ("/a%00b", Err(Malformed)),
            ("/%", Err(Malformed)),
            ("/%4", Err(Malformed)),
            ("/%zz", Err(Malformed)),
            ("/%+1", Err(Malformed)),
            ("/a%2fb", Err(Hidden)),
            ("/..%2f..%2fetc", Err(Hidden)),
            ("/.git/config", Err(Hidden)),
            ("/a/.well-known/x", Err(Hidden)),
        ];
        for (path, expected) in table {
            let got =
                FilePath::decode(path).map(|path| String::from_utf8(path.name().to_vec()).unwrap());
            assert_eq!(
                got.as_deref().map_err(|refusal| *refusal),
                expected,
                "{path}"
            );
        }
    }

    #[test]
    fn one_file_has_one_key() {
        for (path, key) in [
            ("/a/b", "/a/b"),
            ("//a///b", "/a/b"),
            ("/%61/b", "/a/b"),
            ("/a/b/", "/a/b/"),
            ("/a//b//", "/a/b/"),
            ("/", "/"),
            ("//", "/"),
            ("/.well-known/x", "/.well-known/x"),
        ] {
            assert_eq!(
                FilePath::decode(path).unwrap().key(),
                key.as_bytes(),
                "{path}"
            );
        }
    }

    #[test]
    fn redirects_stay_on_this_host() {
        for (path, location) in [
            ("/a", "/a/"),
            ("//evil.example", "/evil.example/"),
            ("///evil.example/x", "/evil.example/x/"),
            ("/\\evil.example", "/%5Cevil.example/"),
            ("/%5c%5cevil.example", "/%5C%5Cevil.example/"),
            ("/%0d%0aX:%20y", "/%0D%0AX:%20y/"),
            ("/gr%C3%BCn", "/gr%C3%BCn/"),
        ] {
            assert_eq!(FilePath::decode(path).unwrap().as_directory(), location);
        }
    }

    #[test]
    fn clean_urls() {
        for (path, url) in [
            ("/a.html", Some("/a")),
            ("/a/b%20c.html", Some("/a/b%20c")),
            ("/index.html", Some("/")),
            ("/a/index.html", Some("/a/")),
            ("/a", None),
            ("/a.htm", None),
            ("/a.html/", None),
            ("/", None),
        ] {
            let path = FilePath::decode(path).unwrap();
            assert_eq!(path.clean(b"index.html").as_deref(), url);
        }
        assert_eq!(
            FilePath::decode("/a/b/").unwrap().page().key(),
            b"/a/b.html"
        );
    }

    #[test]
    fn extensions() {
        for (path, extension) in [
            ("/a.b/c", None),
            ("/a.tar.gz", Some("gz")),
            ("/a.", Some("")),
            ("/a", None),
        ] {
            assert_eq!(
                super::extension(FilePath::decode(path).unwrap().name()),
                extension,
                "{path}"
            );
        }
    }

    proptest! {
        #[test]
        fn nothing_leaves_the_root(path in "(/|\\.|%2[ef]|%2F|%5c|%00|%25|a|\\\\){0,24}") {
            if let Ok(path) = FilePath::decode(&format!("/{path}")) {
                prop_assert!(!path.name().contains(&0));
                for segment in path.name().split(|&byte| byte == b'/').filter(|_| !path.name().is_empty()) {
                    prop_assert!(!segment.is_empty() && segment[0] != b'.', "{:?}", segment);
                }
                let url = path.as_directory();
                prop_assert!(url.starts_with('/') && !url.starts_with("//") && !url.contains('\\'));
            }
        }
    }
}
