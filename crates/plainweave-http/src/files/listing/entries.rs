//! A directory as it is listed: its entries read, filtered and sorted.

use std::ffi::CStr;

use rustix::fs::{AtFlags, Dir, FileType, Stat, statat};
use rustix::io::Errno;

use crate::files::open::Root;

/// Entries of a listing at most.
pub(super) const MAX_ENTRIES: usize = 10_000;
/// An entry of a directory that can be asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Row {
    pub(super) name: Vec<u8>,
    pub(super) is_directory: bool,
    /// In bytes; of a file.
    pub(super) size: u64,
    /// Seconds since 1970.
    pub(super) modified: i64,
}

/// A directory as it was found.
#[derive(Debug)]
pub(super) struct Listing {
    /// Beneath the root, without slashes around it; empty for the root.
    pub(super) name: Vec<u8>,
    pub(super) rows: Vec<Row>,
    /// There are more than [`MAX_ENTRIES`].
    pub(super) truncated: bool,
    pub(super) order: Order,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Key {
    Name,
    Size,
    Time,
}

/// How rows are sorted; directories come first in any case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Order {
    pub(super) key: Key,
    pub(super) descending: bool,
}

impl Order {
    /// From a query as the listing's own links write it; anything else is passed over.
    pub(super) fn of(query: Option<&str>) -> Self {
        let mut order = Self {
            key: Key::Name,
            descending: false,
        };

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
            let by_name = || {
                (one.name.to_ascii_lowercase(), &one.name)
                    .cmp(&(two.name.to_ascii_lowercase(), &two.name))
            };

            let by_key = match self.key {
                Key::Name => by_name(),
                Key::Size => one.size.cmp(&two.size).then_with(by_name),
                Key::Time => one.modified.cmp(&two.modified).then_with(by_name),
            };

            let by_key = if self.descending {
                by_key.reverse()
            } else {
                by_key
            };

            two.is_directory.cmp(&one.is_directory).then(by_key)
        });
    }
}

impl Listing {
    /// May wait for the disk.
    pub(super) fn read(root: &Root, name: Vec<u8>, order: Order) -> Result<Self, Errno> {
        let directory = root.read(&name)?;
        let mut listing = Self {
            name,
            rows: Vec::new(),
            truncated: false,
            order,
        };
        for entry in Dir::read_from(&directory)? {
            let entry = entry?;
            let file_name = entry.file_name();
            if file_name.to_bytes().starts_with(b".") {
                continue;
            }
            // What goes away meanwhile is left out.
            let stat = statat(&directory, file_name, AtFlags::SYMLINK_NOFOLLOW);
            let Some(row) = stat
                .ok()
                .and_then(|stat| listing.row(root, file_name, stat))
            else {
                continue;
            };
            if listing.rows.len() == MAX_ENTRIES {
                listing.truncated = true;
                break;
            }
            listing.rows.push(row);
        }
        order.sort(&mut listing.rows);
        Ok(listing)
    }

    /// Returns the row of an entry, if it can be requested; for a link, that of its target.
    fn row(&self, root: &Root, name: &CStr, stat: Stat) -> Option<Row> {
        let kind = |stat: &Stat| FileType::from_raw_mode(stat.st_mode);
        let stat = match kind(&stat) {
            FileType::Symlink => {
                let slash: &[u8] = if self.name.is_empty() { b"" } else { b"/" };
                root.stat(&[&self.name, slash, name.to_bytes()].concat())
                    .ok()?
            }
            _ => stat,
        };

        let is_directory = match kind(&stat) {
            FileType::Directory => true,
            FileType::RegularFile => false,
            _ => return None,
        };

        let size = if is_directory {
            0
        } else {
            stat.st_size.try_into().unwrap_or(0)
        };

        Some(Row {
            name: name.to_bytes().to_vec(),
            is_directory,
            size,
            modified: stat.st_mtime,
        })
    }
}

/// Returns a name for display: control characters and what is not UTF-8 are replaced.
pub(super) fn shown(name: &[u8]) -> String {
    String::from_utf8_lossy(name).replace(char::is_control, "\u{fffd}")
}

/// `2026-11-21T08:00:00Z` (RFC 3339) of seconds since 1970. The calendar is Howard Hinnant's
/// `civil_from_days`.
pub(super) fn timestamp(seconds: i64) -> String {
    // From year 1 to 9999: beyond it the format ends.
    let seconds = seconds.clamp(-62_135_596_800, 253_402_300_799);
    let days = seconds.div_euclid(86_400);
    let second = seconds.rem_euclid(86_400);
    let shifted = days + 719_468; // Since 0000-03-01.
    let era = shifted.div_euclid(146_097);
    let of_era = shifted.rem_euclid(146_097);
    let year_of_era = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let march = (5 * of_year + 2) / 153;
    let day = of_year - (153 * march + 2) / 5 + 1;
    let month = if march < 10 { march + 3 } else { march - 9 };
    let year = year_of_era + 400 * era + i64::from(month <= 2);
    let hours = second / 3600;
    let minutes = second / 60 % 60;
    let seconds = second % 60;

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
        let row = |name: &str, is_directory, size, modified| Row {
            name: name.into(),
            is_directory,
            size,
            modified,
        };

        let rows = [
            row("b", false, 1, 9),
            row("A", false, 1, 7),
            row("c", true, 0, 8),
            row("a", false, 5, 8),
        ];
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
}
