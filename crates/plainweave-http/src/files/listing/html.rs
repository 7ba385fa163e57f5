//! Listings for people: one page without scripts, without anything to load, for small and large
//! screens.

use std::fmt::Write;

use super::entries::{Key, Listing, MAX_ENTRIES, Order, Row, shown, timestamp};
use crate::files::path::push_encoded;

const STYLE: &str = include_str!("style.css");

/// The icons, drawn once and used by each row.
const ICONS: &str = "<svg width=\"0\" height=\"0\" style=\"position:absolute\" aria-hidden=\"true\">\
    <symbol id=\"d\" viewBox=\"0 0 20 24\"><path d=\"M1.5 7.5a2 2 0 0 1 2-2h3.6l2 2.2h7.4a2 2 0 0 1 2 2v7.8\
    a2 2 0 0 1-2 2h-13a2 2 0 0 1-2-2z\"/></symbol>\
    <symbol id=\"f\" viewBox=\"0 0 20 24\"><path d=\"M4 5.5a2 2 0 0 1 2-2h5.5L16 8v10.5a2 2 0 0 1-2 2H6a2 2 0 0 1-2-2z\
    M11.5 3.5V8H16\"/></symbol>\
    <symbol id=\"u\" viewBox=\"0 0 20 24\"><path d=\"M16 19v-6a3 3 0 0 0-3-3H4.5M8 6l-4 4 4 4\"/></symbol></svg>\n";

pub(super) fn write(listing: &Listing) -> Vec<u8> {
    let mut out = String::with_capacity(4096 + 384 * listing.rows.len());
    let title = escaped(&format!("/{}", shown(&listing.name)));
    let _ = write!(
        out,
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"robots\" content=\"noindex\">\n<title>{title}</title>\n\
         <style>\n{STYLE}</style>\n</head>\n<body>\n{ICONS}"
    );
    push_trail(&mut out, &listing.name);
    push_table(&mut out, listing);
    push_footer(&mut out, listing);
    out.push_str("</body>\n</html>\n");

    out.into_bytes()
}

/// The way from the root to here; each step is a link, relative, so that it holds behind any proxy.
fn push_trail(out: &mut String, name: &[u8]) {
    let steps: Vec<&[u8]> = name
        .split(|&byte| byte == b'/')
        .filter(|step| !step.is_empty())
        .collect();
    out.push_str("<h1>");
    let root = if steps.is_empty() {
        "./".to_owned()
    } else {
        "../".repeat(steps.len())
    };

    let _ = write!(out, "Index of <a href=\"{root}\">/</a> ");
    for (n, step) in steps.iter().enumerate() {
        let text = escaped(&shown(step));
        let _ = match steps.len() - n - 1 {
            0 => write!(out, "<bdi>{text}</bdi>"),
            up => write!(
                out,
                "<a href=\"{}\"><bdi>{text}</bdi></a><i>/</i>",
                "../".repeat(up)
            ),
        };
    }

    out.push_str("</h1>\n");
}

fn push_table(out: &mut String, listing: &Listing) {
    out.push_str("<table>\n<thead><tr>");
    for (class, key, label) in [
        ("n", Key::Name, "Name"),
        ("s", Key::Size, "Size"),
        ("t", Key::Time, "Modified"),
    ] {
        push_heading(out, listing.order, class, key, label);
    }

    out.push_str("</tr></thead>\n<tbody>\n");
    if !listing.name.is_empty() {
        out.push_str(
            "<tr><td class=\"n\"><a href=\"../\"><svg><use href=\"#u\"/></svg><span>parent directory</span></a>",
        );
        out.push_str("</td><td class=\"s\"></td><td class=\"t\"></td></tr>\n");
    }

    for row in &listing.rows {
        push_row(out, row);
    }
    out.push_str("</tbody>\n</table>\n");
}

/// A column's heading sorts by it; once more, the other way round.
fn push_heading(out: &mut String, order: Order, class: &str, key: Key, label: &str) {
    let sort = match key {
        Key::Name => "name",
        Key::Size => "size",
        Key::Time => "time",
    };

    let is_current = order.key == key;
    let (aria, arrow) = match (is_current, order.descending) {
        (false, _) => ("", ""),
        (true, false) => (" aria-sort=\"ascending\"", " ↑"),
        (true, true) => (" aria-sort=\"descending\"", " ↓"),
    };

    let turn = if is_current && !order.descending {
        "desc"
    } else {
        "asc"
    };

    let _ = write!(
        out,
        "<th class=\"{class}\"{aria}><a href=\"?sort={sort}&amp;order={turn}\">{label}{arrow}</a></th>"
    );
}

fn push_row(out: &mut String, row: &Row) {
    let mut href = String::from("./"); // A name with a colon would look like another scheme.
    push_encoded(&mut href, &row.name);
    let (class, icon, slash) = if row.is_directory {
        (" class=\"d\"", "d", "/")
    } else {
        ("", "f", "")
    };

    let href = escaped(&href);
    let text = escaped(&shown(&row.name));
    let _ = write!(
        out,
        "<tr><td class=\"n\"><a{class} href=\"{href}{slash}\"><svg><use href=\"#{icon}\"/></svg>\
         <bdi>{text}{slash}</bdi></a></td>"
    );
    let _ = match row.is_directory {
        true => write!(out, "<td class=\"s\"></td>"),
        false => write!(
            out,
            "<td class=\"s\" title=\"{} bytes\">{}</td>",
            row.size,
            size(row.size)
        ),
    };

    let stamp = timestamp(row.modified);
    let day = &stamp[..10];
    let minute = &stamp[11..16];
    let _ = writeln!(
        out,
        "<td class=\"t\"><time datetime=\"{stamp}\">{day} {minute}</time></td></tr>"
    );
}

fn push_footer(out: &mut String, listing: &Listing) {
    let directories = listing.rows.iter().filter(|row| row.is_directory).count();
    let files = listing.rows.len() - directories;
    let bytes = listing
        .rows
        .iter()
        .fold(0u64, |sum, row| sum.saturating_add(row.size));
    let count = |number, one, many| format!("{number} {}", if number == 1 { one } else { many });
    let directories = count(directories, "directory", "directories");
    let files = count(files, "file", "files");
    let _ = write!(
        out,
        "<footer>{directories}, {files}, {}. Times are UTC.",
        size(bytes)
    );

    if listing.truncated {
        let _ = write!(
            out,
            " There are more than the {MAX_ENTRIES} entries that are shown."
        );
    }

    out.push_str("</footer>\n");
}

/// In binary units, with three digits at most.
fn size(bytes: u64) -> String {
    let mut value = bytes as f64;
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    for unit in ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"] {
        value /= 1024.0;
        if value < 9.95 {
            return format!("{value:.1} {unit}");
        }
        if value < 1023.5 {
            return format!("{value:.0} {unit}");
        }
    }

    format!("{value:.0} EiB")
}

/// For text and for quoted attributes.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for char in text.chars() {
        match char {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            char => out.push(char),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes() {
        for (bytes, text) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1.0 KiB"),
            (10 << 10, "10 KiB"),
            (1_048_575, "1.0 MiB"),
            (1_500_000, "1.4 MiB"),
            (999 << 20, "999 MiB"),
            (u64::MAX, "16 EiB"),
        ] {
            assert_eq!(size(bytes), text);
        }
    }

    #[test]
    fn nothing_of_a_name_becomes_markup() {
        assert_eq!(escaped("<b a='\"'>&"), "&lt;b a=&#39;&quot;&#39;&gt;&amp;");
        let row = Row {
            name: b"\"><script>\n&\xff'.txt".to_vec(),
            is_directory: false,
            size: 1,
            modified: 0,
        };

        let mut out = String::new();
        push_row(&mut out, &row);
        assert!(
            out.contains("href=\"./%22%3E%3Cscript%3E%0A&amp;%FF&#39;.txt\""),
            "{out}"
        );
        assert!(
            out.contains("<bdi>&quot;&gt;&lt;script&gt;\u{fffd}&amp;\u{fffd}&#39;.txt</bdi>"),
            "{out}"
        );
    }
}
