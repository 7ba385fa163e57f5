//! The static handler on a real directory.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, SystemTime};

use plainweave_http::Server;
use plainweave_http::files::{Blocking, Caching, Inline, StaticFiles};

use crate::support::{Answer, Script, play, read_answers};

/// A directory of files that goes away with the test. Its parent holds a secret.
struct Site(PathBuf);

impl Site {
    fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let unique = format!(
            "plainweave-files-{}-{}",
            std::process::id(),
            COUNT.fetch_add(1, Ordering::Relaxed)
        );
        let site = Self(std::env::temp_dir().join(unique));
        let root = site.root();

        for directory in [
            "root/sub/deep",
            "root/empty",
            "root/.well-known",
            "root/.git",
            "root/%41",
        ] {
            fs::create_dir_all(site.0.join(directory)).unwrap();
        }

        for (name, text) in [
            ("../secret", "secret"),
            ("index.html", "<p>home"),
            ("sub/index.html", "<p>sub"),
            ("sub/deep/a b.txt", "deep"),
            ("a.txt", "text"),
            ("empty.css", ""),
            ("noext", "bytes"),
            (".hidden", "hidden"),
            (".git/config", "hidden"),
            (".well-known/x", "known"),
            ("%41/f", "literal"),
        ] {
            fs::write(root.join(name), text).unwrap();
        }

        symlink("a.txt", root.join("inside")).unwrap();
        symlink("../secret", root.join("escape")).unwrap();
        symlink(site.0.join("secret"), root.join("absolute")).unwrap();
        symlink("..", root.join("up")).unwrap();
        symlink("loop", root.join("loop")).unwrap();
        rustix::fs::mknodat(
            rustix::fs::CWD,
            root.join("fifo"),
            rustix::fs::FileType::Fifo,
            0o644.into(),
            0,
        )
        .unwrap();

        site
    }

    fn root(&self) -> PathBuf {
        self.0.join("root")
    }

    fn server(&self) -> Server<StaticFiles> {
        Server::new(StaticFiles::new(self.root()).unwrap())
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn ask<B: Blocking>(server: &Server<StaticFiles<B>>, request: &str, fields: &str) -> Answer {
    let mut script = Script::of(format!("{request} HTTP/1.1\r\nHost: h\r\n{fields}\r\n"));
    play(server, &mut script);
    if request.starts_with("HEAD") {
        assert!(script.out.ends_with(b"\r\n\r\n"));
        let text = String::from_utf8(script.out)
            .unwrap()
            .replace("Content-Length", "X-Length");
        return read_answers(text.as_bytes()).remove(0);
    }

    read_answers(&script.out).remove(0)
}

#[test]
fn paths() {
    let site = Site::new();
    let table: &[(&str, u16, &str)] = &[
        ("/", 200, "<p>home"),
        ("/index.html", 200, "<p>home"),
        ("/sub/", 200, "<p>sub"),
        ("//sub//", 200, "<p>sub"),
        ("/a.txt?x=/../y", 200, "text"),
        ("http://other/a.txt", 200, "text"),
        ("/%61.txt", 200, "text"),
        ("/sub/deep/a%20b.txt", 200, "deep"),
        ("/%2541/f", 200, "literal"),
        ("/empty.css", 200, ""),
        ("/.well-known/x", 200, "known"),
        ("/sub", 301, ""),
        ("/none", 404, ""),
        ("/a.txt/", 404, ""),
        ("/a.txt/b", 404, ""),
        ("/empty/", 404, ""),
        ("/fifo", 404, ""), // And does not wait for a writer.
        ("/escape", 404, ""),
        ("/absolute", 404, ""),
        ("/up/secret", 404, ""),
        ("/up/root/a.txt", 404, ""),
        ("/loop", 404, ""),
        ("/.hidden", 404, ""),
        ("/.git/config", 404, ""),
        ("/%2egit/config", 404, ""),
        ("/..%2fsecret", 404, ""),
        ("/sub%2findex.html", 404, ""),
        ("/../secret", 400, ""),
        ("/sub/../../secret", 400, ""),
        ("/%2e%2e/secret", 400, ""),
        ("/a.txt%00.html", 400, ""),
        ("/%c", 400, ""),
    ];
    let long = format!("/{}", "a".repeat(300));
    let more = [(long.as_str(), 404, "")];

    for server in [
        site.server(),
        Server::new(StaticFiles::new(site.root()).unwrap().without_links()),
    ] {
        for (path, status, body) in table.iter().chain(&more) {
            let answer = ask(&server, &format!("GET {path}"), "");
            assert_eq!(answer.status, *status, "{path}");
            assert!(*status != 200 || answer.body == body.as_bytes(), "{path}");
        }
    }

    assert_eq!(ask(&site.server(), "GET /inside", "").body, b"text");
    let without = Server::new(StaticFiles::new(site.root()).unwrap().without_links());
    assert_eq!(ask(&without, "GET /inside", "").status, 404);
}

#[test]
fn redirects() {
    let site = Site::new();
    fs::create_dir_all(site.root().join("evil.example/\\evil.example")).unwrap();
    for (path, location) in [
        ("/sub", "/sub/"),
        ("/sub?a=b&c=//d", "/sub/?a=b&c=//d"),
        ("/sub/deep", "/sub/deep/"),
        ("//evil.example", "/evil.example/"),
        (
            "//evil.example//%5cevil.example",
            "/evil.example/%5Cevil.example/",
        ),
        ("/%2541", "/%2541/"),
        ("http://evil.example/sub", "/sub/"),
    ] {
        let answer = ask(&site.server(), &format!("GET {path}"), "");
        assert_eq!(
            (answer.status, answer.header("location")),
            (301, Some(location)),
            "{path}"
        );
    }
}

#[test]
fn methods() {
    let site = Site::new();
    for (request, status, allow) in [
        ("OPTIONS /a.txt", 204, true),
        ("OPTIONS *", 204, true),
        ("POST /a.txt", 405, true),
        ("PUT /a.txt", 405, true),
        ("DELETE /none", 405, true),
        ("TRACE /", 405, true),
        ("CONNECT h:80", 405, true),
        ("BREW /", 501, false),
        ("get /", 501, false), // RFC 9110, 9.1: methods are case-sensitive.
    ] {
        let answer = ask(&site.server(), request, "");
        assert_eq!(answer.status, status, "{request}");
        assert_eq!(
            answer.header("allow"),
            allow.then_some("GET, HEAD, OPTIONS"),
            "{request}"
        );
    }
}

#[test]
fn fields() {
    let site = Site::new();
    for (path, kind) in [
        ("/", "text/html; charset=utf-8"),
        ("/a.txt", "text/plain; charset=utf-8"),
        ("/empty.css", "text/css; charset=utf-8"),
        ("/noext", "application/octet-stream"),
    ] {
        assert_eq!(
            ask(&site.server(), &format!("GET {path}"), "").header("content-type"),
            Some(kind),
            "{path}"
        );
    }

    let head = ask(&site.server(), "HEAD /a.txt", "");
    let get = ask(&site.server(), "GET /a.txt", "");
    assert_eq!((head.status, head.header("x-length")), (200, Some("4")));
    assert_eq!(head.header("etag"), get.header("etag"));
}

/// RFC 9110, 13.
#[test]
fn conditions() {
    let site = Site::new();
    let file = fs::File::options()
        .write(true)
        .open(site.root().join("a.txt"))
        .unwrap();
    let time = SystemTime::UNIX_EPOCH + Duration::from_millis(784_111_777_500);
    file.set_modified(time).unwrap();
    let always = Caching {
        staleness: Duration::ZERO,
        ..Caching::default()
    };

    let server = Server::new(StaticFiles::new(site.root()).unwrap().with_caching(always));
    let first = ask(&server, "GET /a.txt", "");
    let etag = first.header("etag").unwrap();
    assert!(etag.starts_with('"'), "strong");
    assert_eq!(
        first.header("last-modified"),
        Some("Sun, 06 Nov 1994 08:49:37 GMT")
    );

    for (fields, status) in [
        (format!("If-None-Match: {etag}\r\n"), 304),
        (format!("If-None-Match: \"x\", W/{etag}\r\n"), 304),
        (
            format!("If-None-Match: \"x\"\r\nIf-None-Match: {etag}\r\n"),
            304,
        ),
        ("If-None-Match: *\r\n".into(), 304),
        ("If-None-Match: \"x\"\r\n".into(), 200),
        (
            "If-Modified-Since: Sun, 06 Nov 1994 08:49:37 GMT\r\n".into(),
            304,
        ),
        (
            "If-Modified-Since: Sunday, 06-Nov-94 08:49:37 GMT\r\n".into(),
            304,
        ),
        (
            "If-Modified-Since: Sun, 06 Nov 1994 08:49:36 GMT\r\n".into(),
            200,
        ),
        ("If-Modified-Since: yesterday\r\n".into(), 200),
        (
            "If-None-Match: \"x\"\r\nIf-Modified-Since: Sun, 06 Nov 1994 08:49:37 GMT\r\n".into(),
            200,
        ),
    ] {
        for method in ["GET", "HEAD"] {
            let answer = ask(&server, &format!("{method} /a.txt"), &fields);
            assert_eq!(answer.status, status, "{fields}");
            assert_eq!(answer.header("etag"), Some(etag));
        }
    }

    file.set_modified(time + Duration::from_secs(1)).unwrap();
    let touched = ask(
        &server,
        "GET /a.txt",
        "If-Modified-Since: Sun, 06 Nov 1994 08:49:37 GMT\r\n",
    );
    assert_eq!(
        (touched.status, touched.header("etag")),
        (200, Some(etag)),
        "another time, the same content"
    );
}

#[test]
fn sizes() {
    let site = Site::new();
    for len in [
        0, 1, 8_191, 8_192, 8_193, 65_535, 65_536, 65_537, 131_072, 300_001,
    ] {
        let content: Vec<u8> = (0..len).map(|n: usize| (n % 253) as u8).collect();
        fs::write(site.root().join("f"), &content).unwrap();
        for file_bytes in [0, 65_536, 262_144] {
            let caching = Caching {
                file_bytes,
                ..Caching::default()
            };

            let server = Server::new(StaticFiles::new(site.root()).unwrap().with_caching(caching));
            for _ in 0..2 {
                let mut script = Script::of("GET /f HTTP/1.1\r\nHost: h\r\n\r\n");
                play(&server, &mut script);
                let answer = read_answers(&script.out).remove(0);
                assert!(answer.body == content, "{len}");
                let whole = len as u64 <= file_bytes;
                let writes = if whole {
                    1
                } else {
                    len.div_ceil(65_536).max(1)
                };

                assert_eq!(
                    script.writes.len(),
                    writes,
                    "{len}: head and first piece go together"
                );
            }
        }
    }
}

/// A pool that does something to the site before its second trip: between the look and the content,
/// or (the file is read in pieces of 64 KiB) between the first piece and the rest.
#[derive(Clone)]
struct Meddling(std::sync::Arc<(AtomicU32, PathBuf, u64)>);

impl Blocking for Meddling {
    const TRY_FIRST: bool = false;

    fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> std::io::Result<T> {
        let (trips, file, len) = &*self.0;
        if trips.fetch_add(1, Ordering::Relaxed) == 1 {
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

#[test]
fn files_that_change_while_they_are_sent() {
    let site = Site::new();
    let file = site.root().join("f");
    let next = "GET /a.txt HTTP/1.1\r\nHost: h\r\n\r\n";

    for (len, answers) in [(70_000, 0), (500_000, 2)] {
        fs::write(&file, vec![b'x'; 200_000]).unwrap();
        let meddling = Meddling(std::sync::Arc::new((AtomicU32::new(0), file.clone(), len)));
        let caching = Caching {
            file_bytes: 65_536,
            ..Caching::default()
        };

        let files = StaticFiles::with_blocking(site.root(), meddling)
            .unwrap()
            .with_caching(caching);
        let server = Server::new(files);
        let mut script = Script::of(format!("GET /f HTTP/1.1\r\nHost: h\r\n\r\n{next}"));
        play(&server, &mut script);

        // Shrunk: cut off, and nothing follows that could be taken for the rest. Grown: only what
        // was promised.
        assert_eq!(read_answers(&script.out).len(), answers, "{len}");
    }
}

/// The caller is cancelled while the pool works.
#[derive(Clone)]
struct Cancelled;

impl Blocking for Cancelled {
    const TRY_FIRST: bool = false;

    fn run<T: Send + 'static>(
        &self,
        _work: impl FnOnce() -> T + Send + 'static,
    ) -> std::io::Result<T> {
        Err(std::io::Error::other("cancelled"))
    }
}

#[test]
fn cancelled_look_ups() {
    let site = Site::new();
    let server = Server::new(StaticFiles::with_blocking(site.root(), Cancelled).unwrap());
    assert_eq!(ask(&server, "GET /a.txt", "").status, 503);
}

#[test]
fn roots_must_be_directories() {
    let site = Site::new();
    assert!(StaticFiles::new(site.root().join("a.txt")).is_err());
    assert!(StaticFiles::new(site.root().join("none")).is_err());
}
