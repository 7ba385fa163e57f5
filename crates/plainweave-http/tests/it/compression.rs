//! Files that are compressed when they are asked for.

use std::fs;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use plainweave_http::files::{Caching, Coding, Compression, Encoder, Passed, StaticFiles};
use plainweave_http::{Request, Response, Server, StatusCode};
use plainweave_serve::accept::InProgress;

use crate::site::{Site, ask};
use crate::support::{Script, play};

/// Says what it was given, so that no test needs to undo it. Of a text of failure it fails.
fn compress(coding: Coding, content: &[u8]) -> io::Result<Vec<u8>> {
    static MADE: AtomicU32 = AtomicU32::new(0);
    let text = String::from_utf8_lossy(content);
    if text.starts_with("fails") {
        return Err(io::ErrorKind::OutOfMemory.into());
    }

    let number = MADE.fetch_add(1, Ordering::Relaxed);
    let start: String = text.chars().take(3).collect();
    Ok(format!("{} of {} {start} {number}", coding.name(), content.len()).into_bytes())
}

fn compression(at_once: usize) -> Compression {
    Compression {
        codings: Coding::ALL.to_vec(),
        least_bytes: 10,
        at_once: Arc::new(InProgress::new(at_once)),
        compress,
        streams: Arc::new(InProgress::new(at_once)),
        encoder: |coding, size| Ok(Box::new(Counting(coding, size, 0))),
    }
}

/// Says what it was given, and in how many pieces.
struct Counting(Coding, u64, u64);

impl Encoder for Counting {
    fn push(&mut self, content: &[u8], out: &mut Vec<u8>) -> io::Result<()> {
        assert!(content.len() <= 64 << 10);
        self.2 += content.len() as u64;
        out.push(b'.');
        Ok(())
    }

    fn finish(&mut self, out: &mut Vec<u8>) -> io::Result<()> {
        assert_eq!(self.1, self.2);
        out.extend_from_slice(format!("{} of {}", self.0.name(), self.1).as_bytes());
        Ok(())
    }
}

fn site() -> Site {
    Site::new()
        .with("app.js", "0123456789")
        .with("short.js", "012345678")
        .with("image.png", "0123456789")
        .with("fails.txt", "fails all the time")
        .with("both.css", "0123456789")
        .with("both.css.gz", "from the disk")
        .with("large.txt", vec![b'a'; 3 << 20])
        .with("middling.txt", vec![b'a'; 1 << 20])
}

/// Whatever was made before is believed for an hour.
fn caching() -> Caching {
    Caching {
        staleness: Duration::from_secs(3600),
        ..Caching::default()
    }
}

fn server(site: &Site) -> Server<StaticFiles> {
    let files = site.files().with_caching(caching()).with_precompressed();
    Server::new(files.with_compression(compression(1)))
}

#[test]
fn text_is_compressed_for_those_who_take_it() {
    let site = site();
    let server = server(&site);
    for (path, accept, coding, body) in [
        ("/app.js", "gzip", Some("gzip"), "gzip of 10 012"),
        ("/app.js", "gzip, br, zstd", Some("br"), "br of 10 012"),
        ("/app.js", "br;q=.1, zstd", Some("zstd"), "zstd of 10 012"),
        ("/app.js", "identity;q=0, *", Some("br"), "br of 10 012"),
        ("/app.js", "deflate", None, "0123456789"),
        ("/app.js", "br;q=0", None, "0123456789"),
        ("/short.js", "gzip", None, "012345678"),
        ("/image.png", "gzip", None, "0123456789"),
        ("/fails.txt", "gzip", None, "fails all the time"),
        ("/both.css", "gzip", Some("gzip"), "from the disk"),
        ("/both.css", "br", Some("br"), "br of 10 012"),
        ("/middling.txt", "br", Some("br"), "br of 1048576 aaa"),
    ] {
        let field = format!("Accept-Encoding: {accept}\r\n");
        let answer = ask(&server, &format!("GET {path}"), &field);
        let place = format!("{path} {accept}");
        assert_eq!(answer.status, 200, "{place}");
        assert_eq!(answer.header("content-encoding"), coding, "{place}");
        assert!(answer.body.starts_with(body.as_bytes()), "{place}");
        let length = answer.body.len().to_string();
        let head = ask(&server, &format!("HEAD {path}"), &field);
        assert_eq!(head.header("x-length"), Some(length.as_str()), "{place}");
        assert_eq!(head.header("etag"), answer.header("etag"), "{place}");
        let varies = !matches!(path, "/short.js" | "/image.png");
        assert_eq!(answer.header("vary").is_some(), varies, "{place}");
    }
}

/// Each representation has a tag of its own, which its own conditions are about.
#[test]
fn conditions_are_about_one_representation() {
    let site = site();
    let server = server(&site);
    let get = |fields: &str| ask(&server, "GET /app.js", fields);
    let plain = get("").header("etag").expect("a tag").to_owned();
    let gzip = get("Accept-Encoding: gzip\r\n");
    let gzip = gzip.header("etag").expect("a tag").to_owned();
    assert_ne!(plain, gzip);

    for (coding, tag, status) in [
        ("gzip", &gzip, 304),
        ("gzip", &plain, 200),
        ("identity", &plain, 304),
        ("identity", &gzip, 200),
        ("br", &gzip, 200),
    ] {
        let fields = format!("Accept-Encoding: {coding}\r\nIf-None-Match: {tag}\r\n");
        let answer = get(&fields);
        assert_eq!(answer.status, status, "{fields}");
        assert_eq!(answer.header("vary"), Some("Accept-Encoding"), "{fields}");
    }

    // A range is one of the file, unless it goes on with what the client has of a coding.
    let range = "Accept-Encoding: gzip\r\nRange: bytes=0-3\r\n";
    let part = get(range);
    assert_eq!(part.status, 206);
    assert_eq!(part.body, b"0123");
    assert_eq!(part.header("content-range"), Some("bytes 0-3/10"));
    let part = get(&format!("{range}If-Range: {gzip}\r\n"));
    assert_eq!(part.status, 206);
    assert_eq!(part.body, b"gzip");
    assert_eq!(part.header("content-encoding"), Some("gzip"));
}

/// It is made once for each state of the file.
#[test]
fn what_was_made_is_kept_until_the_file_changes() {
    let site = site();
    let caching = Caching {
        staleness: Duration::ZERO,
        ..caching()
    };

    let files = site.files().with_caching(caching);
    let server = Server::new(files.with_compression(compression(1)));
    let get = || ask(&server, "GET /app.js", "Accept-Encoding: gzip\r\n").body;

    // A file that has just been written might be changed without a sign.
    std::thread::sleep(Duration::from_millis(2100));
    let first = get();
    assert_eq!(get(), first);
    fs::write(site.root().join("app.js"), "abcdefghijk").unwrap();
    let second = get();
    assert!(second.starts_with(b"gzip of 11 abc"), "{second:?}");
    fs::remove_file(site.root().join("app.js")).unwrap();
    let gone = ask(&server, "GET /app.js", "Accept-Encoding: gzip\r\n");
    assert_eq!(gone.status, 404);
}

#[test]
fn who_finds_no_place_gets_the_file() {
    let site = site();
    let compression = compression(1);
    let at_once = compression.at_once.clone();
    let files = site.files().with_caching(caching());
    let server = Server::new(files.with_compression(compression));
    let get = || ask(&server, "GET /app.js", "Accept-Encoding: gzip\r\n").body;

    let place = at_once.begin().expect("a place");
    assert_eq!(get(), b"0123456789");
    drop(place);
    assert!(get().starts_with(b"gzip of 10"));
    let _place = at_once.begin().expect("it was given back");
    assert!(get().starts_with(b"gzip of 10"), "it is kept");
}

/// Of 3 MiB, each 64 KiB are a dot.
const STREAMED: &str = "................................................gzip of 3145728";

#[test]
fn what_is_too_large_to_keep_is_compressed_as_it_is_sent() {
    let site = site();
    let compression = compression(1);
    let places = compression.streams.clone();
    let files = site.files().with_caching(caching());
    let server = Server::new(files.with_compression(compression));
    let gzip = "Accept-Encoding: gzip\r\n";
    let get = |fields: &str| ask(&server, "GET /large.txt", &format!("{gzip}{fields}"));

    let answer = get("");
    assert_eq!(answer.body, STREAMED.as_bytes());
    assert_eq!(answer.header("content-encoding"), Some("gzip"));
    assert_eq!(
        answer.header("content-type"),
        Some("text/plain; charset=utf-8")
    );
    assert_eq!(answer.header("vary"), Some("Accept-Encoding"));
    assert_eq!(answer.header("accept-ranges"), None);
    assert_eq!(answer.header("content-length"), None);
    let tag = answer.header("etag").expect("a tag");
    assert!(tag.starts_with("W/") && tag.ends_with("-gzip\""), "{tag}");
    let head = ask(&server, "HEAD /large.txt", gzip);
    assert_eq!(head.header("etag"), Some(tag));
    assert_eq!(head.header("x-length"), None);

    let unchanged = get(&format!("If-None-Match: {tag}\r\n"));
    assert_eq!(unchanged.status, 304);
    assert_eq!(unchanged.header("etag"), Some(tag));
    assert_eq!(
        get("If-None-Match: \"other\"\r\n").body,
        STREAMED.as_bytes()
    );
    assert_eq!(
        get(&format!("If-Match: {tag}\r\n")).status,
        412,
        "it is weak"
    );

    // A range is one of the file.
    let part = get("Range: bytes=0-3\r\n");
    assert_eq!((part.status, part.body.as_slice()), (206, &b"aaaa"[..]));
    assert_eq!(part.header("content-encoding"), None);
    let part = get(&format!("Range: bytes=0-3\r\nIf-Range: {tag}\r\n"));
    assert_eq!((part.status, part.body.len()), (200, 3 << 20));

    // No place is left, and the file itself is as good.
    let place = places.begin().expect("they were given back");
    let answer = get("");
    assert_eq!(
        (answer.body.len(), answer.header("vary").is_some()),
        (3 << 20, true)
    );
    assert_eq!(ask(&server, "HEAD /large.txt", gzip).status, 200);
    drop(place);
    assert_eq!(get("").body, STREAMED.as_bytes());

    // An old client learns from the end of the connection that the body is over.
    let mut script = Script::of(format!("GET /large.txt HTTP/1.0\r\n{gzip}\r\n"));
    play(&server, &mut script);
    assert!(script.out.ends_with(STREAMED.as_bytes()));
}

#[test]
fn a_twin_beside_a_large_file_goes_before_compressing_it() {
    let site = site().with("large.txt.br", "from the disk");
    let server = server(&site);
    for (coding, body) in [("br", "from the disk"), ("gzip", STREAMED)] {
        let answer = ask(
            &server,
            "GET /large.txt",
            &format!("Accept-Encoding: {coding}\r\n"),
        );
        assert_eq!(answer.body, body.as_bytes(), "{coding}");
        assert_eq!(answer.header("content-encoding"), Some(coding));
    }
}

/// The client must not take what has come for the whole.
#[test]
fn a_file_that_shrinks_as_it_is_compressed_ends_its_connection() {
    static FILE: OnceLock<PathBuf> = OnceLock::new();

    let site = site();
    let path = FILE.get_or_init(|| site.root().join("large.txt"));
    assert!(path.starts_with(site.root()));
    let files = site.files().with_caching(caching());
    let server = Server::new(files.with_compression(Compression {
        encoder: |coding, size| {
            // Between the look at the file and its first byte.
            let path = FILE.get().expect("set above");
            fs::File::options()
                .write(true)
                .open(path)?
                .set_len(1 << 20)?;
            Ok(Box::new(Counting(coding, size, 0)))
        },
        ..compression(1)
    }));

    let request = "GET /large.txt HTTP/1.1\r\nHost: h\r\nAccept-Encoding: br\r\n\r\n";
    let mut script = Script::of(request);
    play(&server, &mut script);
    assert!(script.out.starts_with(b"HTTP/1.1 200"));
    assert!(!script.out.ends_with(b"0\r\n\r\n"));
}

#[test]
fn error_pages_and_listings_are_compressed_too() {
    let site = site().with("lost.html", "Nothing is here.");
    let files = site.files().with_caching(caching()).with_listings();
    let status = StatusCode::NOT_FOUND;
    let files = files
        .with_error_page(status, "/lost.html")
        .expect("it is there");
    let files = files.with_compression(compression(1));
    let server = Server::new(files);

    let gzip = "Accept-Encoding: gzip\r\n";
    let lost = ask(&server, "GET /none", gzip);
    assert_eq!(lost.status, 404);
    assert_eq!(lost.header("content-encoding"), Some("gzip"));
    assert!(lost.body.starts_with(b"gzip of 16 Not"), "{:?}", lost.body);
    let plain = ask(&server, "GET /none", "");
    assert_eq!(plain.body, b"Nothing is here.");
    assert_eq!(plain.header("vary"), Some("Accept-Encoding"));
    let head = ask(&server, "HEAD /none", gzip);
    assert_eq!(
        head.header("x-length"),
        Some(lost.body.len().to_string().as_str())
    );

    let listing = ask(&server, "GET /", gzip);
    assert_eq!(listing.header("content-encoding"), Some("gzip"));
    assert_eq!(listing.header("vary"), Some("Accept, Accept-Encoding"));
    assert!(listing.body.starts_with(b".gzip of "), "{:?}", listing.body);
    let listing = ask(&server, "GET /", "");
    assert_eq!(listing.header("content-encoding"), None);
    assert!(listing.body.starts_with(b"<!"));
}

#[test]
fn without_a_cache_each_answer_is_compressed() {
    let site = site();
    let caching = Caching {
        bytes: 0,
        ..caching()
    };

    let files = site.files().with_caching(caching);
    let server = Server::new(files.with_compression(compression(1)));
    let answer = ask(&server, "GET /app.js", "Accept-Encoding: gzip\r\n");
    assert_eq!(answer.body, b".gzip of 10");
}

#[test]
fn a_handler_may_pass_on_that_nothing_is_to_be_transformed() {
    let site = site();
    let files = site.files().with_caching(caching());
    let files = files.with_compression(compression(1)).with_clean_urls();
    let server = Server::new(move |request: &mut Request<'_>| -> Response {
        let passed = Passed {
            inside: true,
            untransformed: true,
        };

        let head = request.head();
        files.respond_passed(&head.at("/app.js"), passed)
    });

    let answer = ask(&server, "GET /else", "Accept-Encoding: gzip\r\n");
    assert_eq!(answer.body, b"0123456789");
    assert_eq!(answer.header("vary"), Some("Accept-Encoding"));
}
