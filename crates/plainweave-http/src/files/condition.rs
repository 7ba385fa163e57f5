//! Validators of a file, and the preconditions that a request sets on them (RFC 9110, 8.8 and 13).
//!
//! The order is that of 13.2.2: If-Match, else If-Unmodified-Since; If-None-Match, else
//! If-Modified-Since; If-Range.

use std::hash::Hasher;
use std::time::{Duration, SystemTime};

use http::Method;
use rustix::fs::Stat;
use siphasher::sip128::{Hasher128, SipHasher13};

use super::coding::Coding;
use super::fields::{Fields, single};
use crate::message::encode::http_date;
use crate::message::head::RequestHead;

/// Within that time after a change another one may leave the same time.
const GRAIN: Duration = Duration::from_secs(2);
/// Up to this second of 1970 a time is none: tools for reproducible builds give it to all files.
const PINNED: i64 = 1;

/// What identifies one state of one file to this server. Its clients see no more than the
/// [`Version`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Identity {
    device: u64,
    inode: u64,
    changed: (i64, u64),
    pub(super) version: Version,
}

impl Identity {
    pub(super) fn of(stat: &Stat) -> Self {
        let changed = (stat.st_ctime, nanos(stat.st_ctime_nsec));
        Self {
            device: stat.st_dev,
            inode: stat.st_ino,
            changed,
            version: Version::of(stat),
        }
    }

    /// Returns whether the system's own time of change, which no tool sets, says so little.
    pub(super) fn has_just_changed(&self, now: SystemTime) -> bool {
        is_recent(self.changed, now)
    }

    /// Returns whether a later change may leave all of it the same.
    pub(super) fn is_recent(&self, now: SystemTime) -> bool {
        is_recent(self.changed, now) || self.version.is_recent(now)
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
        Self {
            seconds: stat.st_mtime,
            nanos: nanos(stat.st_mtime_nsec),
            size: stat.st_size.try_into().unwrap_or(0),
        }
    }

    /// Returns whether a later write may leave the same time: the file system's clock has a grain,
    /// 2 s at the coarsest. A time in the future says nothing either.
    fn is_recent(&self, now: SystemTime) -> bool {
        is_recent((self.seconds, self.nanos), now)
    }

    /// `Last-Modified`, never later than now (RFC 9110, 8.8.2.1).
    pub(super) fn last_modified(&self) -> String {
        http_date(self.modified().min(SystemTime::now()))
    }

    /// In whole seconds, as HTTP can say it.
    pub(super) fn modified(&self) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(self.seconds.max(0).unsigned_abs())
    }
}

fn is_recent((seconds, nanos): (i64, u64), now: SystemTime) -> bool {
    let since_epoch = Duration::new(seconds.max(0).unsigned_abs(), nanos.min(999_999_999) as u32);
    SystemTime::UNIX_EPOCH
        .checked_add(since_epoch + GRAIN)
        .is_none_or(|settled| settled > now)
}

/// What an entity tag is made of. Neither inode nor time of change are in it, so that several nodes
/// with one content give it one tag; these only say whether this server must look again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tagged {
    /// Of a file that is kept in memory: a hash of its content. SipHash has a fixed key here, so
    /// whoever may write both contents could make two with one tag, and gains what writing one of
    /// them would.
    Content(u128),
    /// Of a larger one: its time and size. The tag is weak if they may stay when the content
    /// changes: a time that is recent, or one that tools for reproducible builds give to all files.
    Time { weak: bool },
}

impl Tagged {
    pub(super) fn content(bytes: &[u8]) -> Self {
        let mut hasher = SipHasher13::new();
        hasher.write(bytes);
        Self::Content(hasher.finish128().as_u128())
    }

    pub(super) fn time(version: &Version, now: SystemTime) -> Self {
        Self::Time {
            weak: version.seconds <= PINNED || version.is_recent(now),
        }
    }

    pub(super) fn is_weak(self) -> bool {
        matches!(self, Self::Time { weak: true })
    }

    /// Returns the tag without the sign that it is weak. Compressed twins say their coding: one
    /// that was given the file's time and happens to have its size is still another representation.
    pub(super) fn opaque(self, version: &Version, coding: Option<Coding>) -> String {
        let (dash, coding) = coding.map_or(("", ""), |coding| ("-", coding.name()));
        match self {
            Self::Content(hash) => format!("\"{hash:032x}{dash}{coding}\""),
            Self::Time { .. } => {
                format!(
                    "\"{:x}.{:x}-{:x}{dash}{coding}\"",
                    version.seconds, version.nanos, version.size
                )
            }
        }
    }
}

/// Of a second. Their type is one with rustix's own system calls, and another through libc, as
/// under Miri.
fn nanos(value: impl TryInto<u64>) -> u64 {
    value.try_into().unwrap_or(0)
}

/// What a client's validators are compared with.
#[derive(Clone, Debug)]
pub(super) struct Validators {
    /// Without the sign that it is weak.
    pub(super) etag: String,
    pub(super) weak: bool,
    /// In whole seconds.
    pub(super) modified: SystemTime,
}

/// What the preconditions make of a request that would be answered 200 without them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Whole,
    /// The ranges that the request names, if they can be served.
    Ranges,
    /// 304: the client's copy is good.
    NotModified,
    /// 412.
    Failed,
}

/// RFC 9110, 13.2.2. `fields` are those of `head`.
pub(super) fn judge(head: &RequestHead<'_>, fields: Fields, current: &Validators) -> Verdict {
    let Validators {
        etag,
        weak,
        modified,
    } = current;
    if fields.has(Fields::IF_MATCH) {
        if !any_tag(head, "if-match", |tag| {
            tag == Tag::Any || (!weak && tag.is_strongly(etag))
        }) {
            return Verdict::Failed;
        }
    } else if let Some(since) = date(
        head,
        fields,
        Fields::IF_UNMODIFIED_SINCE,
        "if-unmodified-since",
    ) && *modified > since
    {
        return Verdict::Failed;
    }

    if fields.has(Fields::IF_NONE_MATCH) {
        if any_tag(head, "if-none-match", |tag| tag.is_weakly(etag)) {
            return Verdict::NotModified;
        }
    } else if let Some(since) = date(head, fields, Fields::IF_MODIFIED_SINCE, "if-modified-since")
        && *modified <= since
    {
        return Verdict::NotModified;
    }
    // 14.2: other methods do not know ranges, HEAD among them.
    let asks = fields.has(Fields::RANGE) && *head.method() == Method::GET;
    match asks && (!fields.has(Fields::IF_RANGE) || if_range(head, current)) {
        true => Verdict::Ranges,
        false => Verdict::Whole,
    }
}

/// Returns the value of If-Range, where it is one strong entity tag.
pub(super) fn if_range_tag<'b>(head: &RequestHead<'b>) -> Option<&'b [u8]> {
    single(head, "if-range")
        .map(<[u8]>::trim_ascii)
        .filter(|value| value.starts_with(b"\""))
}

impl Validators {
    /// Returns whether this is the file's entity tag, and both are strong.
    pub(super) fn is_strongly(&self, tag: &[u8]) -> bool {
        !self.weak && tag == self.etag.as_bytes()
    }
}

/// RFC 9110, 13.1.5. A date must be the very one, and its second must be over: within it the file
/// can change again and keep its date.
fn if_range(head: &RequestHead<'_>, current: &Validators) -> bool {
    if let Some(tag) = if_range_tag(head) {
        return current.is_strongly(tag);
    }
    let settled = current.modified + Duration::from_secs(1) <= SystemTime::now();
    settled && single(head, "if-range").and_then(parse_date) == Some(current.modified)
}

/// Returns a date field's value; an invalid date is ignored (13.1.3 and 13.1.4).
fn date(head: &RequestHead<'_>, fields: Fields, field: Fields, name: &str) -> Option<SystemTime> {
    if fields.has(field) {
        single(head, name).and_then(parse_date)
    } else {
        None
    }
}

fn parse_date(value: &[u8]) -> Option<SystemTime> {
    let text = str::from_utf8(value).ok()?.trim_ascii();
    httpdate::parse_http_date(text)
        .ok()
        .or_else(|| parse_early_date(text))
}

/// Parses a date before 1970, which `httpdate` refuses: as one some 400 years later, for so the
/// calendar repeats, days of the week included. Years of two digits are never that early.
fn parse_early_date(text: &str) -> Option<SystemTime> {
    const DAYS: u64 = 146_097;
    let (before, after) = match text.len() {
        29 => (text.get(..12)?, text.get(16..)?),
        24 => (text.get(..20)?, ""),
        _ => return None,
    };

    let digits = text.get(before.len()..before.len() + 4)?;
    let year: u64 = digits
        .bytes()
        .all(|byte| byte.is_ascii_digit())
        .then(|| digits.parse().ok())??;
    let cycles = 1970_u64.checked_sub(year)?.div_ceil(400);
    let later =
        httpdate::parse_http_date(&format!("{before}{}{after}", year + 400 * cycles)).ok()?;

    later.checked_sub(Duration::from_secs(cycles * DAYS * 86_400))
}

/// An element of a list of entity tags.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Tag<'b> {
    /// `*`: any state of the file.
    Any,
    /// With its quotation marks.
    Exactly { weak: bool, opaque: &'b [u8] },
}

impl Tag<'_> {
    /// RFC 9110, 8.8.3.2.
    fn is_strongly(self, etag: &str) -> bool {
        self == Tag::Any
            || self
                == Tag::Exactly {
                    weak: false,
                    opaque: etag.as_bytes(),
                }
    }

    fn is_weakly(self, etag: &str) -> bool {
        self == Tag::Any || matches!(self, Tag::Exactly { opaque, .. } if opaque == etag.as_bytes())
    }
}

/// Returns whether an element of this list, which may be spread over several fields, is what is
/// asked for.
fn any_tag(head: &RequestHead<'_>, name: &str, is: impl Fn(Tag<'_>) -> bool) -> bool {
    head.header_all(name).flat_map(Tags::of).any(is)
}

/// The entity tags of a list, up to the first thing that is none.
struct Tags<'b>(&'b [u8]);

impl<'b> Tags<'b> {
    fn of(list: &'b [u8]) -> Self {
        Self(list)
    }
}

impl<'b> Iterator for Tags<'b> {
    type Item = Tag<'b>;

    fn next(&mut self) -> Option<Tag<'b>> {
        while let [b' ' | b'\t' | b',', rest @ ..] = self.0 {
            self.0 = rest;
        }
        let list = std::mem::take(&mut self.0);
        let (weak, tag) = match list {
            b"*" => return Some(Tag::Any),
            [b'W', b'/', tag @ ..] => (true, tag),
            tag => (false, tag),
        };

        let end = memchr::memchr(b'"', tag.strip_prefix(b"\"")?)? + 2;
        let (opaque, rest) = tag.split_at(end);
        // What follows must be the end or a comma; otherwise the list says nothing more.
        if matches!(rest.trim_ascii_start(), [] | [b',', ..]) {
            self.0 = rest;
        }
        Some(Tag::Exactly { weak, opaque })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: Version = Version {
        seconds: 784_111_777,
        nanos: 0xab,
        size: 0x10,
    };

    #[test]
    fn validators() {
        let at = |seconds| SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
        let settled = Tagged::time(&FILE, at(784_111_780));
        assert_eq!(
            (settled.opaque(&FILE, None).as_str(), settled.is_weak()),
            ("\"2ebc98a1.ab-10\"", false)
        );
        assert_eq!(
            settled.opaque(&FILE, Some(Coding::Br)),
            "\"2ebc98a1.ab-10-br\""
        );

        // Recent, in the future, pinned.
        assert!(
            Tagged::time(&FILE, at(784_111_779)).is_weak() && Tagged::time(&FILE, at(0)).is_weak()
        );
        for seconds in [i64::MIN, -1, 0, 1] {
            assert!(
                Tagged::time(&Version { seconds, ..FILE }, SystemTime::now()).is_weak(),
                "{seconds}"
            );
        }

        assert!(
            Tagged::time(
                &Version {
                    seconds: i64::MAX,
                    ..FILE
                },
                SystemTime::now()
            )
            .is_weak()
        );
        // Whatever time it has; this is what other nodes with the same file give.
        let content = Tagged::content(b"content");
        assert_eq!(
            content.opaque(&FILE, Some(Coding::Gzip)),
            "\"f8fbc83a2b652509a043a5a86c4594ce-gzip\""
        );
        assert!(!content.is_weak() && Tagged::content(b"contend") != content);
        assert_eq!(FILE.last_modified(), "Sun, 06 Nov 1994 08:49:37 GMT");
        assert!(
            Version {
                seconds: i64::MAX,
                ..FILE
            }
            .last_modified()
            .ends_with("GMT")
        );

        assert!(
            Version {
                seconds: i64::MIN,
                ..FILE
            }
            .last_modified()
            .contains("1970")
        );
    }

    #[test]
    fn lists_of_entity_tags() {
        for (list, weakly, strongly) in [
            ("\"ab\"", true, true),
            ("W/\"ab\"", true, false),
            ("\"x\", \"ab\"", true, true),
            ("\"x\",W/\"y\" , W/\"ab\",", true, false),
            (",, \"ab\"", true, true),
            ("*", true, true),
            (" *", true, true),
            ("*, \"x\"", false, false), // `*` stands alone (13.1.1).
            ("", false, false),
            ("\"x\"", false, false),
            ("ab", false, false),
            ("\"ab", false, false),
            ("w/\"ab\"", false, false),   // Case-sensitive (8.8.3).
            ("\"x,\"ab\"", false, false), // The comma belongs to the first tag.
            ("\"ab\"\"x\"", true, true),
            ("\"x\"\"ab\"", false, false),
        ] {
            let tags = || Tags::of(list.as_bytes());
            assert_eq!(tags().any(|tag| tag.is_weakly("\"ab\"")), weakly, "{list}");
            assert_eq!(
                tags().any(|tag| tag.is_strongly("\"ab\"")),
                strongly,
                "{list}"
            );
        }
    }
}
