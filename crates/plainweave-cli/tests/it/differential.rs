//! Ranges and preconditions, asked of this server, of nginx and of Go's file server: where the
//! answers differ, the difference belongs to a class that is explained here and in
//! `docs/web-differences.md`.
//!
//! A class that no request falls into any more fails the test too: then the explanation has become
//! wrong.

#![expect(clippy::print_stdout, reason = "says what it compared")]

pub(crate) mod peers;
mod requests;

use crate::common::skip;
use std::fs;
use std::time::{Duration, SystemTime};

use crate::common::scratch::Scratch;
use peers::{Answer, Peer};
use requests::{Asked, FILES, Kind, Requests, TIME};

const REQUESTS: usize = 6_000;

/// A directory with `site`, which both serve.
fn scratch() -> Scratch {
    let scratch = Scratch::new();
    let site = scratch.root().join("site");
    fs::create_dir_all(&site).unwrap();

    for (name, size) in FILES {
        let content: Vec<u8> = (0..size).map(|n| (n % 251) as u8).collect();
        fs::write(site.join(name), content).unwrap();
        let file = fs::File::options()
            .write(true)
            .open(site.join(name))
            .unwrap();
        file.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(TIME))
            .unwrap();
    }

    scratch
}

/// What an answer says, apart from how it says it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Outcome {
    status: u16,
    /// Of 416, and of 206 with one part.
    range: Option<String>,
    /// Of 200 and 206.
    content: Vec<u8>,
    /// Of a multipart answer: place and bytes.
    parts: Vec<(String, Vec<u8>)>,
}

impl Outcome {
    fn of(answer: &Answer) -> Self {
        let mut outcome = Self {
            status: answer.status,
            range: None,
            content: Vec::new(),
            parts: Vec::new(),
        };

        if matches!(answer.status, 206 | 416) {
            outcome.range = answer.field("content-range").map(str::to_owned);
        }
        if matches!(answer.status, 200 | 206) {
            let kind = answer.field("content-type").unwrap_or_default();
            match kind.strip_prefix("multipart/byteranges; boundary=") {
                Some(boundary) => outcome.parts = parts(&answer.body, boundary),
                None => outcome.content.clone_from(&answer.body),
            }
        }

        outcome
    }
}

/// RFC 2046, 5.1.1; something may stand before the first delimiter. None for HEAD.
fn parts(body: &[u8], boundary: &str) -> Vec<(String, Vec<u8>)> {
    let delimiter = format!("\r\n--{boundary}");
    let body = [b"\r\n", body].concat();
    let find =
        |bytes: &[u8], what: &[u8]| bytes.windows(what.len()).position(|window| window == what);
    let mut parts = Vec::new();
    let Some(start) = find(&body, delimiter.as_bytes()) else {
        return parts;
    };

    let mut rest = &body[start + delimiter.len()..];
    while !rest.starts_with(b"--") {
        let head = find(rest, b"\r\n\r\n").expect("a part's head") + 4;
        let end = head + find(&rest[head..], delimiter.as_bytes()).expect("a delimiter");
        let fields = String::from_utf8_lossy(&rest[..head]).into_owned();
        let is_place = |line: &&str| line.to_ascii_lowercase().starts_with("content-range: ");
        let place = fields.lines().find(is_place).expect("Content-Range")[15..].to_owned();
        parts.push((place, rest[head..end].to_vec()));
        rest = &rest[end + delimiter.len()..];
    }

    parts
}

/// A way in which another server answers differently.
struct Class {
    why: &'static str,
    covers: fn(&Asked, &Outcome, &Outcome) -> bool,
}

fn is(asked: &Asked, field: &str, values: &[&str]) -> bool {
    asked
        .field(field)
        .is_some_and(|value| values.contains(&value))
}

fn statuses(ours: &Outcome, theirs: &Outcome, ours_are: &[u16], theirs_are: &[u16]) -> bool {
    ours_are.contains(&ours.status) && theirs_are.contains(&theirs.status)
}

/// 14.2: defined for GET alone. Both others answer HEAD as they would GET.
const HEAD: Class = Class {
    why: "Range in HEAD: ignored here (9110, 14.2)",
    covers: |asked, ours, theirs| asked.head && statuses(ours, theirs, &[200], &[206, 416]),
};

/// 14.2 lets a server ignore or reject it; ignored, the client gets what it wants and some more.
const MALFORMED: Class = Class {
    why: "malformed Range: ignored here, 416 there; 9110, 14.2 allows both",
    covers: |asked, ours, theirs| {
        matches!(asked.kind, Kind::Malformed | Kind::Nothing)
            && statuses(ours, theirs, &[200], &[416])
    },
};

/// 17.15 advises a bound on the number of ranges.
const MANY: Class = Class {
    why: "more than 64 ranges: the whole file here (9110, 17.15), all of them there",
    covers: |asked, ours, theirs| {
        asked.kind == Kind::Many && statuses(ours, theirs, &[200], &[206])
    },
};

/// No range begins within a file of no bytes; 15.5.17 says 416. Both others send the nothing there
/// is.
const EMPTY: Class = Class {
    why: "a range of an empty file: 416 here (9110, 15.5.17), 200 there",
    covers: |asked, ours, theirs| asked.file == "empty" && statuses(ours, theirs, &[416], &[200]),
};

/// 14.1.2 sets no bound on digits.
const HUGE: Class = Class {
    why: "a number beyond 64 bits: beyond the file here, malformed there",
    covers: |asked, ours, theirs| {
        asked.kind == Kind::Huge && statuses(ours, theirs, &[200, 206, 416], &[416])
    },
};

const NGINX: &[Class] = &[
    Class {
        why: "If-Unmodified-Since that is no date: ignored here (13.1.4), 412 there",
        covers: |asked, _, theirs| {
            is(asked, "If-Unmodified-Since", &["yesterday"]) && theirs.status == 412
        },
    },
    Class {
        why: "If-Unmodified-Since beside If-Match: left out here (13.2.2, step 1), judged too there",
        covers: |asked, _, theirs| {
            let both =
                asked.field("If-Match").is_some() && asked.field("If-Unmodified-Since").is_some();
            both && theirs.status == 412
        },
    },
    Class {
        why: "If-Modified-Since beside If-None-Match: left out here (13.2.2, step 3), judged too there",
        covers: |asked, ours, theirs| {
            let both = asked.field("If-None-Match").is_some()
                && asked.field("If-Modified-Since").is_some();
            both && ours.status == 304 && theirs.status != 304
        },
    },
    Class {
        why: "empty elements in a list of ranges: passed over here (5.6.1.2), 416 there",
        covers: |asked, ours, theirs| {
            asked.kind == Kind::Gaps && statuses(ours, theirs, &[200, 206], &[416])
        },
    },
    Class {
        why: "a range whose last byte is before its first, among others: all are ignored here, this one there",
        covers: |asked, ours, theirs| {
            asked
                .field("Range")
                .is_some_and(|list| list.ends_with(",5-3"))
                && statuses(ours, theirs, &[200], &[206])
        },
    },
    HEAD,
    MALFORMED,
    MANY,
    EMPTY,
    HUGE,
];

const GO: &[Class] = &[
    Class {
        why: "the suffix of no bytes: not satisfiable here (14.1.2), a part of no bytes there",
        covers: |asked, _, theirs| {
            asked.kind == Kind::ZeroSuffix && matches!(theirs.status, 200 | 206)
        },
    },
    Class {
        why: "a suffix of an empty file: 200 here, 206 with `bytes 0--1/0` there",
        covers: |asked, ours, theirs| {
            asked.file == "empty" && statuses(ours, theirs, &[200], &[206])
        },
    },
    Class {
        why: "a unit that is not known: ignored here (14.2), 416 there",
        covers: |asked, ours, theirs| {
            asked.kind == Kind::OtherUnit && statuses(ours, theirs, &[200], &[416])
        },
    },
    HEAD,
    MALFORMED,
    MANY,
    EMPTY,
    HUGE,
];

fn compare(name: &str, classes: &[Class], ours: &mut Peer, theirs: &mut Peer) {
    let mut etags = Vec::new();
    for (file, _) in FILES {
        let tag = |peer: &mut Peer| {
            let answer = peer.ask(&format!("GET /{file} HTTP/1.1\r\nHost: h\r\n\r\n"));
            answer.field("etag").expect("an entity tag").to_owned()
        };
        etags.push((file, tag(ours), tag(theirs)));
    }

    let mut counts = vec![0; classes.len()];
    let mut unexplained = Vec::new();
    for asked in Requests::new(7).take(REQUESTS) {
        let (_, our_tag, their_tag) = etags.iter().find(|(file, ..)| *file == asked.file).unwrap();
        let ours = Outcome::of(&ours.ask(&asked.text(our_tag)));
        let theirs = Outcome::of(&theirs.ask(&asked.text(their_tag)));
        if ours == theirs {
            continue;
        }
        match classes
            .iter()
            .position(|class| (class.covers)(&asked, &ours, &theirs))
        {
            Some(class) => counts[class] += 1,
            None => {
                let brief = |outcome: &Outcome| {
                    let places: Vec<_> = outcome
                        .parts
                        .iter()
                        .map(|(place, _)| place.as_str())
                        .collect();
                    format!(
                        "{} {:?} {} bytes {places:?}",
                        outcome.status,
                        outcome.range,
                        outcome.content.len()
                    )
                };

                unexplained.push(format!(
                    "{asked:?}\n   here {}\n  there {}",
                    brief(&ours),
                    brief(&theirs)
                ));
            }
        }
    }

    println!("{name}: {REQUESTS} requests");
    for (class, count) in classes.iter().zip(&counts) {
        println!("{count:6} {}", class.why);
    }
    let shown = unexplained
        .iter()
        .take(20)
        .cloned()
        .collect::<Vec<_>>()
        .join("\n");
    assert!(
        unexplained.is_empty(),
        "{} differences from {name} are not explained:\n{shown}",
        unexplained.len()
    );

    for (class, count) in classes.iter().zip(&counts) {
        assert!(
            *count > 0,
            "{name}: no request differs in this way: {}",
            class.why
        );
    }
}

#[test]
fn beside_nginx() {
    let scratch = scratch();
    let Some(mut theirs) = peers::nginx(&scratch.root().join("site"), scratch.root()) else {
        skip::skip("nginx is not installed");
        return;
    };

    compare(
        "nginx",
        NGINX,
        &mut peers::plainweave(&scratch.root().join("site")),
        &mut theirs,
    );
}

#[test]
fn beside_go() {
    let scratch = scratch();
    let Some(mut theirs) = peers::go(&scratch.root().join("site"), scratch.root()) else {
        skip::skip("Go is not installed");
        return;
    };

    compare(
        "Go",
        GO,
        &mut peers::plainweave(&scratch.root().join("site")),
        &mut theirs,
    );
}
