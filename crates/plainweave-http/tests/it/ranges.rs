//! Ranges, by the paragraphs of RFC 9110.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use plainweave_http::files::{Blocking, Caching, Inline};
use proptest::prelude::*;

use crate::site::{Site, ask};
use crate::support::{Answer, Script, play, read_answers};

/// One part: its `Content-Range` and its bytes.
type Part = (String, Vec<u8>);

/// Takes `multipart/byteranges` apart, as strictly as RFC 2046, 5.1.1 writes it.
fn parts(answer: &Answer) -> Vec<Part> {
    let kind = answer.header("content-type").unwrap();
    let boundary = kind
        .strip_prefix("multipart/byteranges; boundary=")
        .expect(kind);
    let mut rest = answer
        .body
        .strip_prefix(format!("--{boundary}").as_bytes())
        .expect("a delimiter first");
    let delimiter = format!("\r\n--{boundary}");
    let mut parts = Vec::new();

    while rest != b"--\r\n" {
        rest = rest
            .strip_prefix(b"\r\n")
            .expect("a line's end behind the delimiter");
        let head = rest
            .windows(4)
            .position(|end| end == b"\r\n\r\n")
            .expect("a head")
            + 4;
        let fields = str::from_utf8(&rest[..head]).unwrap();
        let content = &rest[head..];
        let len = content
            .windows(delimiter.len())
            .position(|end| end == delimiter.as_bytes())
            .expect("a delimiter");

        assert!(
            fields.contains("Content-Type: text/plain; charset=utf-8\r\n"),
            "14.6: {fields}"
        );
        let place = fields
            .lines()
            .find_map(|line| line.strip_prefix("Content-Range: "))
            .expect("14.6");

        parts.push((place.to_owned(), content[..len].to_vec()));
        rest = &content[len + delimiter.len()..];
    }

    parts
}

fn content(len: usize) -> Vec<u8> {
    (0..len).map(|n| (n % 251) as u8).collect()
}

/// Paragraph, Range, status, `Content-Range` of the parts.
type Case = (&'static str, &'static str, u16, &'static [&'static str]);

/// For a file of 1,000 bytes.
const TABLE: &[Case] = &[
    ("14.1.2", "bytes=0-499", 206, &["bytes 0-499/1000"]),
    ("14.1.2", "bytes=500-999", 206, &["bytes 500-999/1000"]),
    ("14.1.2", "bytes=500-", 206, &["bytes 500-999/1000"]),
    ("14.1.2", "bytes=-500", 206, &["bytes 500-999/1000"]),
    ("14.1.2", "bytes=0-0", 206, &["bytes 0-0/1000"]),
    ("14.1.2", "bytes=-1", 206, &["bytes 999-999/1000"]),
    (
        "14.1.2: no further than the file",
        "bytes=990-4000",
        206,
        &["bytes 990-999/1000"],
    ),
    (
        "14.1.2: no longer than the file",
        "bytes=-4000",
        206,
        &["bytes 0-999/1000"],
    ),
    (
        "14.1.2",
        "bytes=0-0,-1",
        206,
        &["bytes 0-0/1000", "bytes 999-999/1000"],
    ),
    (
        "14.1.2",
        "bytes=500-600,601-999",
        206,
        &["bytes 500-600/1000", "bytes 601-999/1000"],
    ),
    (
        "14.1.2",
        "bytes=500-700,601-899",
        206,
        &["bytes 500-700/1000", "bytes 601-899/1000"],
    ),
    (
        "15.3.7.2: in the order asked for",
        "bytes=9-9, 1-1",
        206,
        &["bytes 9-9/1000", "bytes 1-1/1000"],
    ),
    (
        "15.3.7.2: one that can be had",
        "bytes=4000-,5-5",
        206,
        &["bytes 5-5/1000"],
    ),
    (
        "5.6.1.2: empty elements",
        "bytes=,5-5, ,",
        206,
        &["bytes 5-5/1000"],
    ),
    (
        "14.1: units in any case",
        "Bytes=5-5",
        206,
        &["bytes 5-5/1000"],
    ),
    (
        "14.1.2: nothing within",
        "bytes=1000-",
        416,
        &["bytes */1000"],
    ),
    (
        "14.1.2: an empty suffix",
        "bytes=-0",
        416,
        &["bytes */1000"],
    ),
    ("15.5.17", "bytes=1000-1999,2000-", 416, &["bytes */1000"]),
    ("14.2: another unit", "lines=0-0", 200, &[]),
    ("14.1.1: last before first", "bytes=5-4", 200, &[]),
    ("14.1.1: one is invalid", "bytes=0-0,5-4", 200, &[]),
    ("14.1.1: not a number", "bytes=x-5", 200, &[]),
    ("14.1.1: no range", "bytes=", 200, &[]),
    ("14.2: more than there is", "bytes=0-,0-", 200, &[]),
    (
        "17.15: more than there is",
        "bytes=0-999,1-999,2-999",
        200,
        &[],
    ),
];

#[test]
fn rfc_9110_section_14() {
    let bytes = content(1000);
    let site = Site::new().with("a.txt", &bytes);
    for open in [false, true] {
        let server = site.server(open);
        let whole = ask(&server, "GET /a.txt", "");
        assert_eq!(whole.header("accept-ranges"), Some("bytes"), "14.3");

        for (paragraph, range, status, places) in TABLE {
            let answer = ask(&server, "GET /a.txt", &format!("Range: {range}\r\n"));
            assert_eq!(answer.status, *status, "{paragraph}: {range}");
            let place = |place: &str| -> Vec<u8> {
                let (first, last) = place[6..]
                    .strip_suffix("/1000")
                    .unwrap()
                    .split_once('-')
                    .unwrap();
                bytes[first.parse().unwrap()..=last.parse().unwrap()].to_vec()
            };

            match places {
                [] => assert_eq!(
                    (&answer.body, answer.header("content-range")),
                    (&bytes, None),
                    "{range}"
                ),
                [one] => {
                    assert_eq!(
                        answer.header("content-range"),
                        Some(*one),
                        "{paragraph}: {range}"
                    );
                    assert!(
                        *status == 416 || answer.body == place(one),
                        "{paragraph}: {range}"
                    );
                }
                many => {
                    assert_eq!(answer.header("content-range"), None, "15.3.7.2: {range}");
                    let expected: Vec<Part> = many
                        .iter()
                        .map(|one| ((*one).to_owned(), place(one)))
                        .collect();
                    assert_eq!(parts(&answer), expected, "{paragraph}: {range}");
                }
            }

            if *status == 206 {
                for field in ["etag", "last-modified", "accept-ranges"] {
                    assert_eq!(
                        answer.header(field),
                        whole.header(field),
                        "15.3.7: {field} of {range}"
                    );
                }
            }

            // 14.2: HEAD does not know ranges.
            let head = ask(&server, "HEAD /a.txt", &format!("Range: {range}\r\n"));
            assert_eq!(
                (head.status, head.header("x-length")),
                (200, Some("1000")),
                "{range}"
            );
        }

        let twice = ask(
            &server,
            "GET /a.txt",
            "Range: bytes=0-0\r\nRange: bytes=1-1\r\n",
        );
        assert_eq!(twice.status, 200, "5.3: a field that stands once only");
    }
}

#[test]
fn of_an_empty_file() {
    let site = Site::new().with("a.txt", "");
    for (range, status) in [
        ("bytes=0-", 416),
        ("bytes=0-0", 416),
        ("bytes=-0", 416),
        ("bytes=-5", 200),
    ] {
        let answer = ask(
            &site.server(false),
            "GET /a.txt",
            &format!("Range: {range}\r\n"),
        );
        assert_eq!(answer.status, status, "{range}");
        assert_eq!(
            answer.header("content-range"),
            (status == 416).then_some("bytes */0"),
            "{range}"
        );
    }
}

#[test]
fn by_the_thousand() {
    let site = Site::new().with("a.txt", content(300_000));
    let list = |count: usize| {
        (0..count)
            .map(|n| format!("{n}-{n}"))
            .collect::<Vec<_>>()
            .join(",")
    };

    for open in [false, true] {
        let server = site.server(open);
        for (count, status) in [(64, 206), (65, 200), (1_700, 200)] {
            let next = "GET /a.txt HTTP/1.1\r\nHost: h\r\nRange: bytes=7-7\r\n\r\n";
            let fields = format!("Range: bytes={}\r\n\r\n{next}", list(count));
            let mut script = Script::of(format!("GET /a.txt HTTP/1.1\r\nHost: h\r\n{fields}"));
            play(&server, &mut script);
            let answers = read_answers(&script.out);
            assert_eq!(
                (answers[0].status, answers[1].status),
                (status, 206),
                "{count}"
            );
            assert_eq!(answers[1].body, [7]);
            match status {
                206 => assert_eq!(parts(&answers[0]).len(), count),
                _ => assert_eq!(answers[0].body.len(), 300_000),
            }
        }
    }
}

#[test]
fn a_boundary_is_its_answer_s_own() {
    let site = Site::new().with("a.txt", "text");
    let server = site.server(false);
    let kind = || {
        ask(&server, "GET /a.txt", "Range: bytes=0-0,2-2\r\n")
            .header("content-type")
            .unwrap()
            .to_owned()
    };

    assert_ne!(kind(), kind());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// Across the pieces in which an open file is read.
    #[test]
    fn parts_are_the_file_s(ends in prop::collection::vec(0..200_000usize, 2..8)) {
        let bytes = content(200_000);
        let site = Site::new().with("a.txt", &bytes);
        let ranges: Vec<_> = ends.chunks_exact(2).map(|pair| (pair[0].min(pair[1]), pair[0].max(pair[1]))).collect();
        let list = ranges.iter().map(|(first, last)| format!("{first}-{last}")).collect::<Vec<_>>().join(",");
        let mut all = Vec::new();

        for open in [false, true] {
            let answer = ask(&site.server(open), "GET /a.txt", &format!("Range: bytes={list}\r\n"));
            let whole = ranges.iter().map(|(first, last)| last - first + 1).sum::<usize>() > bytes.len();
            prop_assert_eq!(answer.status, if whole { 200 } else { 206 });
            let got = match answer.status {
                200 => vec![answer.body],
                _ if ranges.len() == 1 => vec![answer.body],
                _ => parts(&answer).into_iter().map(|(_, bytes)| bytes).collect(),
            };

            let expected: Vec<_> = match whole {
                true => vec![bytes.clone()],
                false => ranges.iter().map(|(first, last)| bytes[*first..=*last].to_vec()).collect(),
            };

            prop_assert!(got == expected, "{}", list);
            all.push(got);
        }

        prop_assert!(all[0] == all[1]);
    }
}

/// A pool that cuts the file short before its trip with this number.
#[derive(Clone)]
struct Cutting(Arc<(AtomicU32, u32, PathBuf, u64)>);

impl Blocking for Cutting {
    const TRY_FIRST: bool = false;

    fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> std::io::Result<T> {
        let (trips, at, file, len) = &*self.0;
        if trips.fetch_add(1, Ordering::Relaxed) == *at {
            fs::File::options()
                .write(true)
                .open(file)
                .unwrap()
                .set_len(*len)
                .unwrap();
        }
        Inline.run(work)
    }
}

/// RFC 9112, 8: an answer that cannot be completed is cut off, and nothing follows that could be
/// taken for the rest.
#[test]
fn a_file_that_shrinks_meanwhile() {
    let next = "GET /a.txt HTTP/1.1\r\nHost: h\r\n\r\n";
    for range in [
        "bytes=100000-199999",
        "bytes=0-9,150000-199999",
        "bytes=0-9,150000-199999,20-29",
    ] {
        let site = Site::new().with("a.txt", content(200_000));
        let pool = Cutting(Arc::new((
            AtomicU32::new(0),
            2,
            site.root().join("a.txt"),
            160_000,
        )));
        let server = site.server_on(
            pool,
            Caching {
                file_bytes: 0,
                ..Caching::default()
            },
        );
        let fields = format!("Range: {range}\r\n\r\n");
        let mut script = Script::of(format!("GET /a.txt HTTP/1.1\r\nHost: h\r\n{fields}{next}"));

        play(&server, &mut script);
        assert!(script.out.starts_with(b"HTTP/1.1 206 "), "{range}");
        assert_eq!(read_answers(&script.out).len(), 0, "{range}");
    }
}
