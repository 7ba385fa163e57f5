//! Entity tags: one for each content, whatever a file's time says, and weak where nothing vouches
//! for the content.

use std::fs;
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant, SystemTime};

use plainweave_http::Server;
use plainweave_http::files::{Caching, StaticFiles};

use crate::site::{Site, TIME, ask};

/// Looks at the file for each request. Small ones are kept whole, or every one is kept open and
/// streamed.
fn server(site: &Site, open: bool) -> Server<StaticFiles> {
    let file_bytes = if open { 0 } else { 1 << 20 };
    Server::new(site.files().with_caching(Caching {
        file_bytes,
        staleness: Duration::ZERO,
        ..Caching::default()
    }))
}

fn set_time(path: &Path, time: Duration) {
    let file = fs::File::options().write(true).open(path).unwrap();
    file.set_modified(SystemTime::UNIX_EPOCH + time).unwrap();
}

fn tag(server: &Server<StaticFiles>, path: &str) -> String {
    ask(server, &format!("GET {path}"), "")
        .header("etag")
        .unwrap()
        .to_owned()
}

/// Several nodes have copies, each with an inode and a time of change of its own.
#[test]
fn copies_have_one_tag() {
    for open in [false, true] {
        let [one, two] = [(); 2].map(|()| Site::new().with("f", "the same").with("g", "another!"));
        let tags = [&one, &two].map(|site| tag(&server(site, open), "/f"));
        assert_eq!(tags[0], tags[1], "open: {open}");
        assert!(tags[0].starts_with('"'), "strong");

        if !open {
            // What is kept in memory is known by its content: neither times nor names matter.
            set_time(&two.root().join("f"), TIME + Duration::from_secs(1));
            assert_eq!(tag(&server(&two, open), "/f"), tags[0]);
            assert_ne!(tag(&server(&two, open), "/g"), tags[0]);
        }
    }
}

/// Reproducible builds, Docker's layers and Nix give every file one time, and versions often have
/// one size.
#[test]
fn another_content_of_the_same_size_and_time_has_another_tag() {
    for time in [Duration::ZERO, Duration::from_secs(1), TIME] {
        for by_rename in [true, false] {
            let site = Site::new().with("f", "version 1");
            let file = site.root().join("f");
            set_time(&file, time);
            let server = server(&site, false);
            let first = tag(&server, "/f");
            let written = if by_rename {
                site.root().join("new")
            } else {
                file.clone()
            };

            fs::write(&written, "version 2").unwrap();
            set_time(&written, time);
            fs::rename(&written, &file).unwrap();
            let answer = ask(&server, "GET /f", &format!("If-None-Match: {first}\r\n"));
            assert_eq!(
                (answer.status, answer.body.as_slice()),
                (200, &b"version 2"[..]),
                "{time:?}, {by_rename}"
            );
            assert_ne!(
                answer.header("etag"),
                Some(first.as_str()),
                "{time:?}, {by_rename}"
            );
            let continued = ask(
                &server,
                "GET /f",
                &format!("Range: bytes=4-\r\nIf-Range: {first}\r\n"),
            );

            assert_eq!(
                continued.status, 200,
                "no part of one with a part of the other"
            );
        }
    }
}

/// A large file's tag is made of its time and size, which vouch for nothing if the time is one that
/// tools give.
#[test]
fn a_time_that_is_not_to_be_trusted_makes_a_weak_tag() {
    let ahead = SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap()
        + Duration::from_secs(3600);
    for time in [Duration::ZERO, Duration::from_secs(1), ahead] {
        let site = Site::new().with("f", "0123456789");
        set_time(&site.root().join("f"), time);
        let server = server(&site, true);
        let weak = tag(&server, "/f");
        let strong = weak
            .strip_prefix("W/")
            .unwrap_or_else(|| panic!("weak: {weak}"))
            .to_owned();

        for (fields, status) in [
            (format!("If-None-Match: {weak}"), 304),
            (format!("If-None-Match: {strong}"), 304), // The comparison is a weak one (13.1.2).
            (format!("If-Match: {weak}"), 412),
            (format!("If-Match: {strong}"), 412),
            ("If-Match: *".into(), 200),
            (format!("Range: bytes=0-1\r\nIf-Range: {weak}"), 200),
            (format!("Range: bytes=0-1\r\nIf-Range: {strong}"), 200),
            ("Range: bytes=0-1".into(), 206),
        ] {
            let answer = ask(&server, "GET /f", &format!("{fields}\r\n"));
            assert_eq!(answer.status, status, "{fields}");
            if status != 412 {
                assert_eq!(answer.header("etag"), Some(weak.as_str()), "{fields}");
            }
        }
    }
}

/// Until the file system's clock has ticked, a second write may leave the same time.
#[test]
fn a_tag_becomes_strong_once_its_file_has_settled() {
    let site = Site::new();
    fs::write(site.root().join("f"), "now").unwrap();
    let server = server(&site, true);
    let first = tag(&server, "/f");
    let start = Instant::now();
    let strong = first.strip_prefix("W/").expect("weak");

    while tag(&server, "/f") != strong {
        assert!(start.elapsed() < Duration::from_secs(60), "still weak");
        sleep(Duration::from_millis(100));
    }

    let answer = ask(
        &server,
        "GET /f",
        &format!("Range: bytes=0-0\r\nIf-Range: {strong}\r\n"),
    );
    assert_eq!(answer.status, 206);
}

/// A twin's time and size may well be those of its file; its tag says its coding.
#[test]
fn twins_with_one_content_differ_in_their_coding() {
    let site = Site::new().with("f", "same").with("f.gz", "same");
    let server = Server::new(site.files().with_precompressed());
    let tags = ["identity", "gzip"].map(|coding| {
        let answer = ask(&server, "GET /f", &format!("Accept-Encoding: {coding}\r\n"));
        answer.header("etag").unwrap().to_owned()
    });

    assert_ne!(tags[0], tags[1]);
}
