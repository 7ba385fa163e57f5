//! Validators of a file, and the conditional requests that ask for them (RFC 9110, 8.8 and 13).

use std::time::{Duration, SystemTime};

use rustix::fs::Stat;

use crate::encode::http_date;
use crate::head::RequestHead;

/// What identifies one state of one file to this server. Its clients see no more than the [`Version`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Identity {
    device: u64,
    inode: u64,
    changed: (i64, u64),
    pub(super) version: Version,
}

impl Identity {
    pub(super) fn of(stat: &Stat) -> Self {
        let changed = (stat.st_ctime, stat.st_ctime_nsec);
        Self { device: stat.st_dev, inode: stat.st_ino, changed, version: Version::of(stat) }
    }
}

/// What identifies one state of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Version {
    seconds: i64,
    nanos: u64,
    pub(super) size: u64,
}

impl Version {
    pub(super) fn of(stat: &Stat) -> Self {
        Self { seconds: stat.st_mtime, nanos: stat.st_mtime_nsec, size: stat.st_size.try_into().unwrap_or(0) }
    }

    /// Sent as a strong validator. It is as good as the file system's clock: before Linux 6.13 two writes of one size
    /// within a clock tick (some milliseconds) leave the same tag.
    pub(super) fn etag(&self) -> String {
        format!("\"{:x}.{:x}-{:x}\"", self.seconds, self.nanos, self.size)
    }

    /// `Last-Modified`, never later than now (RFC 9110, 8.8.2.1).
    pub(super) fn last_modified(&self) -> String {
        http_date(self.modified().min(SystemTime::now()))
    }

    /// In whole seconds, as HTTP can say it.
    fn modified(&self) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(self.seconds.max(0).unsigned_abs())
    }
}

/// The conditions of a request, owned, for they are judged on another thread.
#[derive(Debug, Default)]
pub(super) struct Conditions {
    none_match: Option<Vec<u8>>,
    modified_since: Option<SystemTime>,
}

impl Conditions {
    pub(super) fn of(head: &RequestHead<'_>) -> Self {
        let mut none_match: Option<Vec<u8>> = None;
        for value in head.header_all("if-none-match") {
            let list = none_match.get_or_insert_default();
            list.extend_from_slice(value);
            list.push(b',');
        }
        let since = head.header("if-modified-since").and_then(|value| str::from_utf8(value).ok());
        Self { none_match, modified_since: since.and_then(|value| httpdate::parse_http_date(value).ok()) }
    }

    /// Whether the client's copy is still good: 304. If-None-Match decides alone when it is there (13.1.3).
    pub(super) fn not_modified(&self, version: &Version) -> bool {
        match (&self.none_match, self.modified_since) {
            (Some(list), _) => any_match(list, version.etag().as_bytes()),
            (None, Some(since)) => version.modified() <= since,
            (None, None) => false,
        }
    }
}

/// Weak comparison (8.8.3.2) of a list of entity tags, or `*`, with ours.
fn any_match(list: &[u8], etag: &[u8]) -> bool {
    let mut rest = list;
    loop {
        rest = rest.trim_ascii_start();
        rest = match rest {
            [] => return false,
            [b'*', ..] => return true,
            [b',', after @ ..] | [b'W', b'/', after @ ..] => after,
            [b'"', after @ ..] => {
                let Some(end) = memchr::memchr(b'"', after) else {
                    return false;
                };
                if rest[..end + 2] == *etag {
                    return true;
                }
                &after[end + 1..]
            }
            _ => return false,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: Version = Version { seconds: 784_111_777, nanos: 0xab, size: 0x10 };

    #[test]
    fn validators() {
        assert_eq!(FILE.etag(), "\"2ebc98a1.ab-10\"");
        assert_eq!(FILE.last_modified(), "Sun, 06 Nov 1994 08:49:37 GMT");
        assert!(Version { seconds: i64::MAX, ..FILE }.last_modified().ends_with("GMT"));
        assert!(Version { seconds: i64::MIN, ..FILE }.last_modified().contains("1970"));
    }

    #[test]
    fn lists_of_entity_tags() {
        let etag = b"\"ab\"";
        for (list, expected) in [
            ("\"ab\"", true),
            ("W/\"ab\"", true),
            ("\"x\", \"ab\"", true),
            ("\"x\",W/\"y\" , W/\"ab\",", true),
            ("*", true),
            ("", false),
            ("\"x\"", false),
            ("ab", false),
            ("\"ab", false),
            ("\"x,\"ab\"", false), // The comma belongs to the first tag.
        ] {
            assert_eq!(any_match(list.as_bytes(), etag), expected, "{list}");
        }
    }

    #[test]
    fn times() {
        let at = |seconds| SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
        let since = |seconds| Conditions { none_match: None, modified_since: Some(at(seconds)) };
        assert!(since(784_111_777).not_modified(&FILE));
        assert!(!since(784_111_776).not_modified(&FILE));
        let both = Conditions { none_match: Some(b"\"x\"".to_vec()), ..since(784_111_777) };
        assert!(!both.not_modified(&FILE));
    }
}
