//! Compressed twins of files, chosen by Accept-Encoding (RFC 9110, 12.5.3).

use std::fs;
use std::time::Duration;

use plainweave_http::Server;
use plainweave_http::files::{Caching, StaticFiles};

use crate::site::{Site, ask};

fn site() -> Site {
    let site = Site::new()
        .with("app.js", "plain")
        .with("app.js.br", "br...")
        .with("app.js.zst", "zstd.");
    let site = site
        .with("app.js.gz", "gzip.")
        .with("one.css", "plain")
        .with("one.css.gz", "gzip");
    site.with("none.txt", "plain")
        .with("index.html", "plain")
        .with("index.html.br", "br")
}

fn server(site: &Site) -> Server<StaticFiles> {
    Server::new(site.files().with_precompressed())
}

/// All twins of `app.js` have its size and its time.
#[test]
fn the_best_is_sent() {
    let site = site();
    for (accept, coding) in [
        ("", None),
        ("Accept-Encoding:\r\n", None),
        ("Accept-Encoding: gzip\r\n", Some("gzip")),
        ("Accept-Encoding: gzip, deflate, br, zstd\r\n", Some("br")),
        (
            "Accept-Encoding: gzip\r\nAccept-Encoding: zstd\r\n",
            Some("zstd"),
        ),
        ("Accept-Encoding: br;q=0.1, gzip;q=0.2\r\n", Some("gzip")),
        ("Accept-Encoding: br;q=0, *\r\n", Some("zstd")),
        ("Accept-Encoding: identity, br;q=0.9\r\n", None),
        (
            "Accept-Encoding: identity;q=0, gzip;q=0.1\r\n",
            Some("gzip"),
        ),
        ("Accept-Encoding: nonsense;q=x\r\n", None),
    ] {
        for method in ["GET", "HEAD"] {
            let answer = ask(&server(&site), &format!("{method} /app.js"), accept);
            assert_eq!(
                (answer.status, answer.header("content-encoding")),
                (200, coding),
                "{accept}"
            );
            assert_eq!(answer.header("vary"), Some("Accept-Encoding"), "{accept}");
            assert_eq!(
                answer.header("content-type"),
                Some("text/javascript; charset=utf-8"),
                "{accept}"
            );

            if method == "GET" {
                let expected = coding.unwrap_or("plain");
                assert!(
                    answer.body.starts_with(expected.as_bytes()),
                    "{accept}: {:?}",
                    answer.body
                );
            }
        }
    }

    let refused = ask(
        &server(&site),
        "GET /app.js",
        "Accept-Encoding: identity;q=0, compress\r\n",
    );
    assert_eq!(
        (refused.status, refused.header("vary")),
        (406, Some("Accept-Encoding"))
    );
}

#[test]
fn only_where_a_twin_is() {
    let site = site();
    let every = "Accept-Encoding: br, zstd, gzip\r\n";
    for (path, coding, vary) in [
        ("/one.css", Some("gzip"), true),
        ("/", Some("br"), true),
        ("/none.txt", None, false),
        ("/app.js.br", None, false),
    ] {
        let answer = ask(&server(&site), &format!("GET {path}"), every);
        assert_eq!(
            (answer.status, answer.header("content-encoding")),
            (200, coding),
            "{path}"
        );
        assert_eq!(answer.header("vary").is_some(), vary, "{path}");
    }

    // Who accepts nothing of what there is gets what there is, where there is no choice (12.4.1).
    assert_eq!(
        ask(
            &server(&site),
            "GET /none.txt",
            "Accept-Encoding: identity;q=0\r\n"
        )
        .status,
        200
    );
    let without = ask(&site.server(false), "GET /app.js", every);
    assert_eq!(
        (without.header("content-encoding"), without.header("vary")),
        (None, None)
    );

    // A directory of that name is none, and is found out when it is asked for.
    fs::create_dir(site.root().join("none.txt.br")).unwrap();
    let answer = ask(&server(&site), "GET /none.txt", every);
    assert_eq!(
        (answer.status, answer.body.as_slice()),
        (200, &b"plain"[..])
    );
}

/// RFC 9110, 8.8.3.3: representations that differ have tags that differ; each is judged by its own.
#[test]
fn each_has_its_tag() {
    let site = site();
    let server = server(&site);
    let get = |coding: &str, fields: &str| {
        ask(
            &server,
            "GET /app.js",
            &format!("Accept-Encoding: {coding}\r\n{fields}"),
        )
    };

    let tags: Vec<_> = ["identity", "br", "zstd", "gzip"]
        .map(|coding| (coding, get(coding, "").header("etag").unwrap().to_owned()))
        .into();
    for (coding, own) in &tags {
        assert!(own.starts_with('"'), "strong");
        for (other, tag) in &tags {
            let same = coding == other;
            let answer = get(coding, &format!("If-None-Match: {tag}\r\n"));
            assert_eq!(
                answer.status,
                if same { 304 } else { 200 },
                "{coding} {tag}"
            );
            assert_eq!(answer.header("vary"), Some("Accept-Encoding"), "15.4.5");
            assert_eq!(
                get(coding, &format!("If-Match: {tag}\r\n")).status,
                if same { 200 } else { 412 }
            );
        }
    }
}

/// A range is one of the file, unless If-Range says of which twin.
#[test]
fn ranges_are_the_file_s() {
    let site = site();
    let server = server(&site);
    let get = |fields: &str| {
        let answer = ask(
            &server,
            "GET /app.js",
            &format!("Accept-Encoding: gzip, br\r\n{fields}"),
        );
        let coding = answer.header("content-encoding").map(str::to_owned);
        (
            answer.status,
            coding,
            String::from_utf8(answer.body).unwrap(),
        )
    };

    let tag = |coding: &str| {
        let answer = ask(
            &server,
            "GET /app.js",
            &format!("Accept-Encoding: {coding}\r\n"),
        );
        answer.header("etag").unwrap().to_owned()
    };

    let plain = tag("identity");
    let gzip = tag("gzip");
    let zstd = tag("zstd");
    let some = |coding: &str| Some(coding.to_owned());
    let none = None::<String>;
    assert_eq!(
        get("Range: bytes=0-1\r\n"),
        (206, none.clone(), "pl".into())
    );
    assert_eq!(
        get(&format!("Range: bytes=0-1\r\nIf-Range: {plain}\r\n")),
        (206, none.clone(), "pl".into())
    );
    assert_eq!(
        get(&format!("Range: bytes=0-1\r\nIf-Range: {gzip}\r\n")),
        (206, some("gzip"), "gz".into())
    );

    // Not acceptable any more, or another state of it: the whole file.
    assert_eq!(
        get(&format!("Range: bytes=0-1\r\nIf-Range: {zstd}\r\n")),
        (200, none.clone(), "plain".into())
    );
    assert_eq!(
        get("Range: bytes=0-1\r\nIf-Range: \"1.2-3-gzip\"\r\n"),
        (200, none, "plain".into())
    );
    let refusing = ask(
        &server,
        "GET /app.js",
        "Accept-Encoding: identity;q=0, br\r\nRange: bytes=0-1\r\n",
    );
    assert_eq!(
        (refusing.status, refusing.body.as_slice()),
        (206, &b"br"[..])
    );
}

#[test]
fn twins_come_and_go() {
    let site = site();
    let caching = Caching {
        staleness: Duration::ZERO,
        ..Caching::default()
    };

    let server = Server::new(site.files().with_precompressed().with_caching(caching));
    let coding = || {
        let answer = ask(&server, "GET /none.txt", "Accept-Encoding: br, gzip\r\n");
        (
            answer.header("content-encoding").map(str::to_owned),
            answer.header("vary").is_some(),
        )
    };

    assert_eq!(coding(), (None, false));
    fs::write(site.root().join("none.txt.gz"), "x").unwrap();
    assert_eq!(coding(), (Some("gzip".into()), true));
    fs::write(site.root().join("none.txt.br"), "x").unwrap();
    assert_eq!(coding(), (Some("br".into()), true));
    fs::remove_file(site.root().join("none.txt.br")).unwrap();
    fs::remove_file(site.root().join("none.txt.gz")).unwrap();
    assert_eq!(coding(), (None, false));
}

/// Whether something is there is remembered, for twins and their absence alike.
#[test]
fn a_twin_is_looked_up_once_in_its_time() {
    let site = site();
    let caching = Caching {
        staleness: Duration::from_secs(3600),
        ..Caching::default()
    };

    let server = Server::new(site.files().with_precompressed().with_caching(caching));
    let coding = |path: &str| {
        let answer = ask(&server, &format!("GET {path}"), "Accept-Encoding: br\r\n");
        answer.header("content-encoding").map(str::to_owned)
    };

    assert_eq!(
        (coding("/app.js"), coding("/none.txt")),
        (Some("br".into()), None)
    );
    fs::remove_file(site.root().join("app.js.br")).unwrap();
    fs::write(site.root().join("none.txt.br"), "x").unwrap();
    assert_eq!(
        (coding("/app.js"), coding("/none.txt")),
        (Some("br".into()), None)
    );
}
