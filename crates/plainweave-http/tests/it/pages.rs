//! Fallback and error pages.

use std::fs;
use std::time::Duration;

use plainweave_http::files::{Caching, PAGED};
use plainweave_http::{Server, StatusCode};

use crate::site::{Site, ask};

const BROWSER: &str = "Accept: text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8\r\n";

fn site() -> Site {
    let site = Site::new()
        .with("index.html", "app")
        .with("app.js", "code")
        .with("404.html", "lost");
    site.with("416.html", "range")
        .with("405.txt", "method")
        .with("sub/x", "x")
        .with(".hidden", "x")
}

#[test]
fn a_fallback_is_for_pages_only() {
    let site = site();
    let server = Server::new(site.files().with_fallback("/index.html").unwrap());
    for (request, fields, status, body) in [
        ("GET /some/page", BROWSER, 200, "app"),
        ("GET /page?x=y", "Accept: text/html\r\n", 200, "app"),
        ("GET /page", "Accept: TEXT/HTML;level=1\r\n", 200, "app"),
        ("GET /sub/", BROWSER, 200, "app"),
        ("GET /app.js", BROWSER, 200, "code"),
        ("GET /", "", 200, "app"),
        // Previews of links, monitors, curl.
        ("GET /page", "", 200, "app"),
        ("HEAD /page", "", 200, ""),
        ("GET /page", "Accept: */*\r\n", 200, "app"),
        ("GET /v1.2/page/", "Accept: */*\r\n", 200, "app"),
        ("GET /john.doe", BROWSER, 200, "app"),
        ("GET /john.doe", "", 404, ""),
        ("GET /api", "Accept: application/json\r\n", 404, ""),
        ("GET /api", "Accept: text/html;q=0, text/*\r\n", 404, ""),
        ("GET /api", "Accept: text/*;q=0, */*\r\n", 404, ""),
        ("GET /missing.js", "Accept: */*\r\n", 404, ""),
        (
            "GET /missing.png",
            "Accept: image/avif,image/*,*/*;q=0.8\r\n",
            404,
            "",
        ),
        (
            "GET /api",
            "Accept: application/json, text/*\r\n",
            200,
            "app",
        ),
        ("GET /page", "Accept: text/html;q=0, */*\r\n", 404, ""),
        ("GET /.hidden", BROWSER, 404, ""),
        ("GET /../page", BROWSER, 400, ""),
        ("GET /sub", BROWSER, 301, ""),
        ("POST /page", BROWSER, 405, ""),
    ] {
        let answer = ask(&server, request, fields);
        assert_eq!(answer.status, status, "{request} {fields}");
        assert!(
            status != 200 || answer.body == body.as_bytes(),
            "{request} {fields}"
        );
    }

    let page = ask(&server, "HEAD /page", BROWSER);
    assert_eq!(
        (page.status, page.header("x-length"), page.header("vary")),
        (200, Some("3"), Some("Accept"))
    );
    for (request, fields) in [
        ("GET /page", ""),
        ("GET /page", "Accept: image/*\r\n"),
        ("GET /missing.js", ""),
    ] {
        assert_eq!(
            ask(&server, request, fields).header("vary"),
            Some("Accept"),
            "12.5.5: a cache must know"
        );
    }

    // It is a file like any other.
    let etag = page.header("etag").unwrap();
    assert_eq!(
        ask(
            &server,
            "GET /page",
            &format!("{BROWSER}If-None-Match: {etag}\r\n")
        )
        .status,
        304
    );
}

#[test]
fn error_pages_keep_the_status() {
    let site = site();
    let files = site
        .files()
        .with_error_page(StatusCode::NOT_FOUND, "/404.html")
        .unwrap();
    let files = files
        .with_error_page(StatusCode::RANGE_NOT_SATISFIABLE, "/416.html")
        .unwrap();
    let server = Server::new(
        files
            .with_error_page(StatusCode::METHOD_NOT_ALLOWED, "/405.txt")
            .unwrap(),
    );
    let lost = ask(&server, "GET /none", "");

    assert_eq!((lost.status, lost.body.as_slice()), (404, &b"lost"[..]));
    assert_eq!(
        lost.header("content-type"),
        Some("text/html; charset=utf-8")
    );
    assert_eq!(
        (lost.header("etag"), lost.header("last-modified")),
        (None, None),
        "the page is not what was asked for"
    );
    let head = ask(&server, "HEAD /none", "");

    assert_eq!((head.status, head.header("x-length")), (404, Some("4")));
    let range = ask(&server, "GET /app.js", "Range: bytes=9-\r\n");
    assert_eq!((range.status, range.body.as_slice()), (416, &b"range"[..]));
    assert_eq!(range.header("content-range"), Some("bytes */4"));
    let method = ask(&server, "POST /app.js", "");
    assert_eq!(
        (method.status, method.header("allow")),
        (405, Some("GET, HEAD, OPTIONS"))
    );
    assert_eq!(
        method.header("content-type"),
        Some("text/plain; charset=utf-8")
    );

    // Preconditions and ranges are not for error pages (13.2.1, 14.2).
    for fields in [
        "If-None-Match: *\r\n",
        "Range: bytes=0-0\r\n",
        "If-Match: \"x\"\r\n",
    ] {
        assert_eq!(ask(&server, "GET /none", fields).body, b"lost", "{fields}");
    }

    assert_eq!(
        ask(&server, "GET /%zz", "").body,
        b"400 Bad Request\n",
        "no page for it"
    );
    assert_eq!(ask(&server, "GET /404.html", "").status, 200);
}

#[test]
fn pages_that_are_not_there() {
    let site = site();
    for path in [
        "/none.html",
        "404.html",
        "",
        "/",
        "/sub",
        "/sub/",
        "/../404.html",
        "/.hidden",
    ] {
        let error = site.files().with_fallback(path).unwrap_err();
        assert!(error.to_string().starts_with(path), "{error}");
        assert!(
            site.files()
                .with_error_page(StatusCode::NOT_FOUND, path)
                .is_err(),
            "{path}"
        );
    }

    assert!(
        site.files()
            .with_error_page(StatusCode::OK, "/404.html")
            .is_err()
    );
    // One that goes away later costs the page, not the answer.
    let caching = Caching {
        staleness: Duration::ZERO,
        ..Caching::default()
    };

    let files = site
        .files()
        .with_caching(caching)
        .with_error_page(StatusCode::NOT_FOUND, "/404.html")
        .unwrap();
    let server = Server::new(files);
    fs::remove_file(site.root().join("404.html")).unwrap();
    let answer = ask(&server, "GET /none", "");

    assert_eq!(
        (answer.status, answer.body.as_slice()),
        (404, &b"404 Not Found\n"[..])
    );
}

#[test]
fn only_answers_of_files_have_pages() {
    let site = site();
    for status in 100..600 {
        let status = StatusCode::from_u16(status).unwrap();
        let paged = site.files().with_error_page(status, "/404.html");
        assert_eq!(paged.is_ok(), PAGED.contains(&status), "{status}");
    }

    let files = PAGED.into_iter().try_fold(site.files(), |files, status| {
        files.with_error_page(status, "/404.html")
    });
    let server = Server::new(files.unwrap());
    for (request, fields, status) in [
        ("GET /../x", "", 400),
        ("GET /none", "", 404),
        ("POST /", "", 405),
        ("GET /app.js", "If-Match: \"x\"\r\n", 412),
        ("GET /app.js", "Range: bytes=99-\r\n", 416),
        ("BREW /", "", 501),
    ] {
        let answer = ask(&server, request, fields);
        assert_eq!(
            (answer.status, answer.body.as_slice()),
            (status, &b"lost"[..]),
            "{request}"
        );
    }
}
