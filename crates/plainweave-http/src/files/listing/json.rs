//! Listings for programs.

use std::fmt::Write;

use super::entries::{Listing, Row, timestamp};
use crate::files::path::push_encoded;

/// `{"path", "truncated", "entries": [{"name", "href", "type", "size", "modified"}]}`; `size` in
/// bytes, of files only; `href` relative to the listing, for names that are not UTF-8 too.
pub(super) fn write(listing: &Listing) -> Vec<u8> {
    let mut out = String::with_capacity(64 + 128 * listing.rows.len());
    let mut path = String::from("/");
    if !listing.name.is_empty() {
        push_encoded(&mut path, &listing.name);
        path.push('/');
    }

    out.push_str("{\"path\":");
    push_string(&mut out, &path);
    let _ = write!(out, ",\"truncated\":{},\"entries\":[", listing.truncated);
    for (n, row) in listing.rows.iter().enumerate() {
        out.push_str(if n == 0 { "\n" } else { ",\n" });
        push_row(&mut out, row);
    }

    out.push_str("\n]}\n");
    out.into_bytes()
}

fn push_row(out: &mut String, row: &Row) {
    out.push_str("{\"name\":");
    push_string(out, &String::from_utf8_lossy(&row.name));
    out.push_str(",\"href\":");
    let mut href = String::from("./");
    push_encoded(&mut href, &row.name);
    if row.is_directory {
        href.push('/');
    }
    push_string(out, &href);
    let _ = match row.is_directory {
        true => write!(out, ",\"type\":\"directory\""),
        false => write!(out, ",\"type\":\"file\",\"size\":{}", row.size),
    };

    let _ = write!(out, ",\"modified\":\"{}\"}}", timestamp(row.modified));
}

/// RFC 8259, 7.
fn push_string(out: &mut String, text: &str) {
    out.push('"');
    for char in text.chars() {
        match char {
            '"' | '\\' => out.extend(['\\', char]),
            char if char.is_control() => {
                let _ = write!(out, "\\u{:04x}", u32::from(char));
            }
            char => out.push(char),
        }
    }
    out.push('"');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings() {
        let mut out = String::new();
        push_string(&mut out, "a\"b\\c\n\u{7f}\u{85}é😀/");
        assert_eq!(out, "\"a\\\"b\\\\c\\u000a\\u007f\\u0085é😀/\"");
    }
}
