//! Listings of directories: read, sorted and written on the pool for blocking work, in HTML or JSON.
//!
//! A listing shows what this server would serve, and nothing else: no dotfiles, no links out of the root, no devices.
//! It is bounded three times: entries ([`MAX_ENTRIES`]; the listing says when there are more), listings at a time
//! ([`AT_ONCE`]; then 503), and the pool. It is not kept: a directory tells of its changes in too many ways.

mod html;
mod json;

use std::ffi::CStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use http::{HeaderName, HeaderValue, Method, StatusCode, header};
use rustix::fs::{AtFlags, Dir, FileType, Stat, statat};
use rustix::io::Errno;

use super::accept::weight_of;
use super::fields::Fields;
use super::open::Root;
use super::path::FilePath;
use super::{Blocking, StaticFiles};
use crate::{Body, RequestHead, Response};

/// Entries of a listing at most.
const MAX_ENTRIES: usize = 10_000;
/// Listings in the making at a time.
const AT_ONCE: usize = 8;

/// Pages are drawn from nothing but what they bring along.
const POLICY: HeaderValue =
    HeaderValue::from_static("default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'");

/// Counts the listings in the making.
#[derive(Clone, Debug, Default)]
pub(super) struct Listings(Arc<AtomicUsize>);

/// A turn among [`AT_ONCE`]; it ends when the listing does, even if nobody waits for it any more.
struct Turn(Arc<AtomicUsize>);

impl Listings {
    fn turn(&self) -> Option<Turn> {
        let turn = Turn(Arc::clone(&self.0));
        (turn.0.fetch_add(1, Ordering::Relaxed) < AT_ONCE).then_some(turn)
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// An entry of a directory that can be asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Row {
    name: Vec<u8>,
    is_directory: bool,
    /// In bytes; of a file.
    size: u64,
    /// Seconds since 1970.
    modified: i64,
}

/// A directory as it was found.
#[derive(Debug)]
struct Listing {
    /// Beneath the root, without slashes around it; empty for the root.
    name: Vec<u8>,
    rows: Vec<Row>,
    /// There are more than [`MAX_ENTRIES`].
    truncated: bool,
    order: Order,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Key {
    Name,
    Size,
    Time,
}

/// How rows are sorted; directories come first in any case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Order {
    key: Key,
    descending: bool,
}

impl Order {
    /// From a query as the listing's own links write it; anything else is passed over.
    fn of(query: Option<&str>) -> Self {
        let mut order = Self { key: Key::Name, descending: false };
        for part in query.unwrap_or_default().split('&') {
            match part {
                "sort=name" => order.key = Key::Name,
                "sort=size" => order.key = Key::Size,
                "sort=time" => order.key = Key::Time,
                "order=desc" => order.descending = true,
                _ => {}
            }
        }
        order
    }

    fn sort(self, rows: &mut [Row]) {
        rows.sort_by(|one, two| {
            let by_name =
                || (one.name.to_ascii_lowercase(), &one.name).cmp(&(two.name.to_ascii_lowercase(), &two.name));
            let by_key = match self.key {
                Key::Name => by_name(),
                Key::Size => one.size.cmp(&two.size).then_with(by_name),
                Key::Time => one.modified.cmp(&two.modified).then_with(by_name),
            };
            let by_key = if self.descending { by_key.reverse() } else { by_key };
            two.is_directory.cmp(&one.is_directory).then(by_key)
        });
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Format {
    Html,
    Json,
}

impl Format {
    /// `?format=` decides; else JSON goes to who accepts it by name and likes it better than HTML.
    fn of(head: &RequestHead<'_>, fields: Fields) -> Self {
        let wanted = head.query().and_then(|query| query.split('&').find_map(|part| part.strip_prefix("format=")));
        match wanted {
            Some("json") => Self::Json,
            Some("html") => Self::Html,
            _ if !fields.has(Fields::ACCEPT) => Self::Html,
            _ if weight_of(head, "application/json") > weight_of(head, "text/html") => Self::Json,
            _ => Self::Html,
        }
    }

    fn content_type(self) -> HeaderValue {
        HeaderValue::from_static(match self {
            Self::Html => "text/html; charset=utf-8",
            Self::Json => "application/json",
        })
    }
}

impl<B: Blocking> StaticFiles<B> {
    /// The listing of a directory without an index file, or the status that says why there is none.
    pub(super) fn list(
        &self,
        listings: &Listings,
        path: &FilePath<'_>,
        head: &RequestHead<'_>,
        fields: Fields,
    ) -> Result<Response, StatusCode> {
        let turn = listings.turn().ok_or(StatusCode::SERVICE_UNAVAILABLE)?;
        let (root, name, order) = (Arc::clone(&self.root), path.name().to_vec(), Order::of(head.query()));
        let format = Format::of(head, fields);
        let work = move || {
            let _turn = turn;
            let listing = Listing::read(&root, name, order)?;
            Ok(match format {
                Format::Html => html::write(&listing),
                Format::Json => json::write(&listing),
            })
        };
        let text = self.blocking.run(work).map_err(|_| StatusCode::SERVICE_UNAVAILABLE)?.map_err(status)?;
        let body = match *head.method() {
            Method::HEAD => Body::Omitted(text.len() as u64),
            _ => Body::from(text),
        };
        let response = Response::ok(body).with_header(header::CONTENT_TYPE, format.content_type());
        let response = response.with_header(header::VARY, HeaderValue::from_static("Accept"));
        let response = response.with_header(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
        let nosniff = (HeaderName::from_static("x-content-type-options"), HeaderValue::from_static("nosniff"));
        let response = response.with_header(nosniff.0, nosniff.1);
        Ok(match format {
            Format::Html => response.with_header(header::CONTENT_SECURITY_POLICY, POLICY),
            Format::Json => response,
        })
    }
}

fn status(error: Errno) -> StatusCode {
    match error {
        Errno::ACCESS | Errno::PERM => StatusCode::FORBIDDEN,
        Errno::MFILE | Errno::NFILE | Errno::NOMEM | Errno::AGAIN => StatusCode::SERVICE_UNAVAILABLE,
        Errno::IO => StatusCode::INTERNAL_SERVER_ERROR,
        _ => StatusCode::NOT_FOUND,
    }
}

impl Listing {
    /// May wait for the disk.
    fn read(root: &Root, name: Vec<u8>, order: Order) -> Result<Self, Errno> {
        let directory = root.read(&name)?;
        let mut listing = Self { name, rows: Vec::new(), truncated: false, order };
        for entry in Dir::read_from(&directory)? {
            let entry = entry?;
            let file_name = entry.file_name();
            if file_name.to_bytes().starts_with(b".") {
                continue;
            }
            // What goes away meanwhile is left out.
            let stat = statat(&directory, file_name, AtFlags::SYMLINK_NOFOLLOW);
            let Some(row) = stat.ok().and_then(|stat| listing.row(root, file_name, stat)) else { continue };
            if listing.rows.len() == MAX_ENTRIES {
                listing.truncated = true;
                break;
            }
            listing.rows.push(row);
        }
        order.sort(&mut listing.rows);
        Ok(listing)
    }

    /// An entry, if it can be asked for; of a link, what it leads to.
    fn row(&self, root: &Root, name: &CStr, stat: Stat) -> Option<Row> {
        let kind = |stat: &Stat| FileType::from_raw_mode(stat.st_mode);
        let stat = match kind(&stat) {
            FileType::Symlink => {
                let slash: &[u8] = if self.name.is_empty() { b"" } else { b"/" };
                root.stat(&[&self.name, slash, name.to_bytes()].concat()).ok()?
            }
            _ => stat,
        };
        let is_directory = match kind(&stat) {
            FileType::Directory => true,
            FileType::RegularFile => false,
            _ => return None,
        };
        let size = if is_directory { 0 } else { stat.st_size.try_into().unwrap_or(0) };
        Some(Row { name: name.to_bytes().to_vec(), is_directory, size, modified: stat.st_mtime })
    }
}

/// A name for people: what is not UTF-8 or a control character is replaced.
fn shown(name: &[u8]) -> String {
    String::from_utf8_lossy(name).replace(char::is_control, "\u{fffd}")
}

/// `2026-11-21T08:00:00Z` (RFC 3339) of seconds since 1970. The calendar is Howard Hinnant's `civil_from_days`.
fn timestamp(seconds: i64) -> String {
    // From year 1 to 9999: beyond it the format ends.
    let seconds = seconds.clamp(-62_135_596_800, 253_402_300_799);
    let (days, second) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    let shifted = days + 719_468; // Since 0000-03-01.
    let (era, of_era) = (shifted.div_euclid(146_097), shifted.rem_euclid(146_097));
    let year_of_era = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let march = (5 * of_year + 2) / 153;
    let (day, month) = (of_year - (153 * march + 2) / 5 + 1, if march < 10 { march + 3 } else { march - 9 });
    let year = year_of_era + 400 * era + i64::from(month <= 2);
    let (hours, minutes, seconds) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02}T{hours:02}:{minutes:02}:{seconds:02}Z")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timestamps() {
        for (seconds, text) in [
            (0, "1970-01-01T00:00:00Z"),
            (784_111_777, "1994-11-06T08:49:37Z"),
            (951_782_399, "2000-02-28T23:59:59Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
            (-1, "1969-12-31T23:59:59Z"),
            (i64::MAX, "9999-12-31T23:59:59Z"),
            (i64::MIN, "0001-01-01T00:00:00Z"),
        ] {
            assert_eq!(timestamp(seconds), text);
        }
    }

    #[test]
    fn orders() {
        let row = |name: &str, is_directory, size, modified| Row { name: name.into(), is_directory, size, modified };
        let rows = [row("b", false, 1, 9), row("A", false, 1, 7), row("c", true, 0, 8), row("a", false, 5, 8)];
        for (query, expected) in [
            ("", "cAab"),
            ("order=desc", "cbaA"),
            ("sort=size", "cAba"),
            ("sort=size&order=desc", "cabA"),
            ("format=json&sort=time", "cAab"),
            ("sort=time&order=desc&x=y", "cbaA"),
            ("sort=colour", "cAab"),
        ] {
            let mut rows = rows.clone();
            Order::of(Some(query)).sort(&mut rows);
            let names: String = rows.iter().map(|row| shown(&row.name)).collect();
            assert_eq!(names, expected, "{query}");
        }
    }

    #[test]
    fn so_many_at_once() {
        let listings = Listings::default();
        let mut turns: Vec<_> = (0..AT_ONCE).map(|_| listings.turn().unwrap()).collect();
        assert!(listings.turn().is_none() && listings.turn().is_none());
        turns.pop();
        assert!(listings.turn().is_some());
    }
}
