//! Conditional requests, by the paragraphs of RFC 9110.

use crate::site::{Site, ask};

const AT: &str = "Sun, 06 Nov 1994 08:49:37 GMT";
const BEFORE: &str = "Sun, 06 Nov 1994 08:49:36 GMT";
const AFTER: &str = "Sun, 06 Nov 1994 08:49:38 GMT";

/// Paragraph, fields (`{etag}` is the file's tag), status of GET, status of HEAD.
type Case = (&'static str, &'static str, u16, u16);

const TABLE: &[Case] = &[
    // If-Match: strong comparison.
    ("13.1.1", "If-Match: {etag}", 200, 200),
    ("13.1.1", "If-Match: *", 200, 200),
    ("13.1.1", "If-Match: \"x\", {etag}", 200, 200),
    ("13.1.1", "If-Match: \"x\"|If-Match: {etag}", 200, 200),
    ("13.1.1", "If-Match: \"x\"", 412, 412),
    ("13.1.1", "If-Match: W/{etag}", 412, 412),
    ("13.1.1", "If-Match: x", 412, 412),
    ("13.1.1", "If-Match:", 412, 412),
    // If-None-Match: weak comparison.
    ("13.1.2", "If-None-Match: {etag}", 304, 304),
    ("13.1.2", "If-None-Match: W/{etag}", 304, 304),
    ("13.1.2", "If-None-Match: *", 304, 304),
    ("13.1.2", "If-None-Match: \"x\", W/{etag}", 304, 304),
    (
        "13.1.2",
        "If-None-Match: \"x\"|If-None-Match: {etag}",
        304,
        304,
    ),
    ("13.1.2", "If-None-Match: \"x\"", 200, 200),
    ("13.1.2", "If-None-Match:", 200, 200),
    // If-Modified-Since: in the three formats of 5.6.7, ignored when it is no date.
    ("13.1.3", "If-Modified-Since: {at}", 304, 304),
    ("13.1.3", "If-Modified-Since: {after}", 304, 304),
    ("13.1.3", "If-Modified-Since: {before}", 200, 200),
    (
        "5.6.7",
        "If-Modified-Since: Sunday, 06-Nov-94 08:49:37 GMT",
        304,
        304,
    ),
    (
        "5.6.7",
        "If-Modified-Since: Sun Nov  6 08:49:37 1994",
        304,
        304,
    ),
    ("13.1.3", "If-Modified-Since: yesterday", 200, 200),
    (
        "13.1.3",
        "If-Modified-Since: {at}|If-Modified-Since: {at}",
        200,
        200,
    ),
    // If-Unmodified-Since.
    ("13.1.4", "If-Unmodified-Since: {at}", 200, 200),
    ("13.1.4", "If-Unmodified-Since: {after}", 200, 200),
    ("13.1.4", "If-Unmodified-Since: {before}", 412, 412),
    ("13.1.4", "If-Unmodified-Since: tomorrow", 200, 200),
    // Dates before 1970 are dates; a wrong day of the week, or of the month, makes them none.
    (
        "13.1.4",
        "If-Unmodified-Since: Wed, 31 Dec 1969 23:59:59 GMT",
        412,
        412,
    ),
    (
        "13.1.4",
        "If-Unmodified-Since: Wed Dec 31 23:59:59 1969",
        412,
        412,
    ),
    (
        "13.1.4",
        "If-Unmodified-Since: Mon, 01 Jan 1900 00:00:00 GMT",
        412,
        412,
    ),
    (
        "13.1.4",
        "If-Unmodified-Since: Mon, 01 Jan 0001 00:00:00 GMT",
        412,
        412,
    ),
    (
        "13.1.4",
        "If-Unmodified-Since: Tue, 31 Dec 1969 23:59:59 GMT",
        200,
        200,
    ),
    (
        "13.1.4",
        "If-Unmodified-Since: Thu, 29 Feb 1900 00:00:00 GMT",
        200,
        200,
    ),
    (
        "13.1.4",
        "If-Unmodified-Since: Wed, 31 Dec +969 23:59:59 GMT",
        200,
        200,
    ),
    (
        "13.1.3",
        "If-Modified-Since: Wed, 31 Dec 1969 23:59:59 GMT",
        200,
        200,
    ),
    // The order of 13.2.2. Step 1 decides before step 2, which is left out.
    (
        "13.2.2 1",
        "If-Match: {etag}|If-Unmodified-Since: {before}",
        200,
        200,
    ),
    (
        "13.2.2 1",
        "If-Match: \"x\"|If-Unmodified-Since: {after}",
        412,
        412,
    ),
    // Steps 1 and 2 before steps 3 and 4.
    (
        "13.2.2 1",
        "If-None-Match: {etag}|If-Match: \"x\"",
        412,
        412,
    ),
    (
        "13.2.2 1",
        "If-Match: {etag}|If-None-Match: {etag}",
        304,
        304,
    ),
    (
        "13.2.2 2",
        "If-Modified-Since: {at}|If-Unmodified-Since: {before}",
        412,
        412,
    ),
    (
        "13.2.2 2",
        "If-Modified-Since: {at}|If-Unmodified-Since: {at}",
        304,
        304,
    ),
    // Step 3 leaves step 4 out.
    (
        "13.2.2 3",
        "If-None-Match: \"x\"|If-Modified-Since: {at}",
        200,
        200,
    ),
    (
        "13.2.2 3",
        "If-None-Match: {etag}|If-Modified-Since: {before}",
        304,
        304,
    ),
    // Step 5 comes last, for GET alone (14.2).
    ("13.2.2 5", "Range: bytes=0-0|If-Match: \"x\"", 412, 412),
    (
        "13.2.2 5",
        "Range: bytes=0-0|If-None-Match: {etag}",
        304,
        304,
    ),
    (
        "13.2.2 5",
        "Range: bytes=0-0|If-Modified-Since: {at}",
        304,
        304,
    ),
    (
        "13.2.2 5",
        "Range: bytes=0-0|If-Match: {etag}|If-Range: {etag}",
        206,
        200,
    ),
    (
        "13.2.2 5",
        "Range: bytes=9-|If-Unmodified-Since: {before}",
        412,
        412,
    ),
    (
        "14.2",
        "Range: bytes=0-0|If-None-Match: \"x\"|If-Unmodified-Since: {at}",
        206,
        200,
    ),
    // If-Range: strong comparison, the very date; not fulfilled, the whole file is sent.
    ("13.1.5", "Range: bytes=0-0|If-Range: {etag}", 206, 200),
    ("13.1.5", "Range: bytes=0-0|If-Range: W/{etag}", 200, 200),
    ("13.1.5", "Range: bytes=0-0|If-Range: \"x\"", 200, 200),
    (
        "13.1.5",
        "Range: bytes=0-0|If-Range: {etag}, \"x\"",
        200,
        200,
    ),
    ("13.1.5", "Range: bytes=0-0|If-Range: *", 200, 200),
    ("13.1.5", "Range: bytes=0-0|If-Range: {at}", 206, 200),
    ("13.1.5", "Range: bytes=0-0|If-Range: {before}", 200, 200),
    ("13.1.5", "Range: bytes=0-0|If-Range: {after}", 200, 200),
    (
        "13.1.5",
        "Range: bytes=0-0|If-Range: {etag}|If-Range: {etag}",
        200,
        200,
    ),
    ("13.1.5", "Range: bytes=9-|If-Range: \"x\"", 200, 200),
    ("13.1.5", "Range: bytes=9-|If-Range: {etag}", 416, 200),
    ("13.1.5", "If-Range: \"x\"", 200, 200),
];

#[test]
fn rfc_9110_section_13() {
    let site = Site::new().with("a.txt", "text");
    for open in [false, true] {
        let server = site.server(open);
        let whole = ask(&server, "GET /a.txt", "");
        let etag = whole.header("etag").unwrap();
        assert!(etag.starts_with('"'), "a strong validator");
        assert_eq!(whole.header("last-modified"), Some(AT));

        for (paragraph, fields, get, head) in TABLE {
            let lines = fields
                .split('|')
                .map(|field| format!("{field}\r\n"))
                .collect::<String>();
            let lines = lines.replace("{etag}", etag).replace("{at}", AT);
            let lines = lines.replace("{before}", BEFORE).replace("{after}", AFTER);

            for (method, status) in [("GET", get), ("HEAD", head)] {
                let answer = ask(&server, &format!("{method} /a.txt"), &lines);
                assert_eq!(answer.status, *status, "{paragraph}: {method} {fields}");
                if matches!(answer.status, 200 | 206 | 304) {
                    // 15.4.5: a 304 has the validators of the 200.
                    assert_eq!(answer.header("etag"), Some(etag), "{paragraph}: {fields}");
                    assert_eq!(
                        answer.header("last-modified"),
                        Some(AT),
                        "{paragraph}: {fields}"
                    );
                }

                if answer.status == 304 {
                    assert_eq!(answer.header("content-type"), None, "{paragraph}: {fields}");
                }
            }
        }
    }
}

/// 13.2.1: what would not be answered 2xx without the preconditions is answered without them.
#[test]
fn preconditions_on_what_is_not_there() {
    let site = Site::new().with("sub/x", "");
    let server = site.server(false);
    for fields in [
        "If-Match: *\r\n",
        "If-None-Match: *\r\n",
        "Range: bytes=0-0\r\n",
        "If-Match: \"x\"\r\n",
    ] {
        assert_eq!(ask(&server, "GET /none", fields).status, 404, "{fields}");
        assert_eq!(ask(&server, "GET /sub", fields).status, 301, "{fields}");
        assert_eq!(
            ask(&server, "OPTIONS /sub/x", fields).status,
            204,
            "{fields}"
        );
    }
}

/// 13.1.5 and 8.8.2.2: within the second of a change its date is no strong validator.
#[test]
fn dates_of_this_second_do_not_vouch_for_ranges() {
    let site = Site::new().with("a", "text");
    let file = std::fs::File::options()
        .write(true)
        .open(site.root().join("a"))
        .unwrap();
    // So far ahead that the test's own time does not matter.
    file.set_modified(std::time::SystemTime::now() + std::time::Duration::from_secs(3600))
        .unwrap();
    let server = site.server(false);
    let date = ask(&server, "GET /a", "")
        .header("last-modified")
        .unwrap()
        .to_owned();
    let answer = ask(
        &server,
        "GET /a",
        &format!("Range: bytes=0-0\r\nIf-Range: {date}\r\n"),
    );

    assert_eq!(answer.status, 200);
}
