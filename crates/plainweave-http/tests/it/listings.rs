//! Listings, as pages and as JSON.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;

use plainweave_http::Server;
use plainweave_http::files::StaticFiles;

use crate::site::{Site, ask};

fn site() -> Site {
    let site = Site::new()
        .with("b.txt", "bytes")
        .with("sub/deep/x", "x")
        .with(".hidden", "x")
        .with(".git/config", "x");
    let site = site
        .with("indexed/index.html", "index")
        .with("A <b>&\"'.txt", "")
        .with("a:b", "");
    let root = site.root();
    fs::write(root.join(OsStr::from_bytes(b"\xff.bin")), "12").unwrap();
    fs::create_dir(root.join("empty")).unwrap();
    symlink("b.txt", root.join("inside")).unwrap();
    symlink("sub", root.join("inside-dir")).unwrap();
    symlink("/etc/passwd", root.join("escape")).unwrap();
    symlink("..", root.join("up")).unwrap();
    symlink("none", root.join("dangling")).unwrap();
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

fn server(site: &Site) -> Server<StaticFiles> {
    Server::new(site.files().with_listings())
}

fn text(server: &Server<StaticFiles>, path: &str) -> String {
    let answer = ask(server, &format!("GET {path}"), "");
    assert_eq!(answer.status, 200, "{path}");
    String::from_utf8(answer.body).unwrap()
}

/// The values of the links to entries, in order.
fn links(page: &str) -> Vec<&str> {
    page.split("href=\"./")
        .skip(1)
        .map(|rest| &rest[..rest.find('"').unwrap()])
        .filter(|link| !link.is_empty())
        .collect()
}

#[test]
fn what_can_be_served_is_listed() {
    let site = site();
    let server = server(&site);
    let page = text(&server, "/");
    let expected = [
        "empty/",
        "indexed/",
        "inside-dir/",
        "sub/",
        "A%20%3Cb%3E&amp;%22&#39;.txt",
        "a:b",
        "b.txt",
        "inside",
        "%FF.bin",
    ];
    assert_eq!(links(&page), expected);
    assert!(!page.contains("<b>") && !page.contains("<script"), "{page}");

    // Each link leads somewhere.
    for link in expected {
        let link = link.replace("&amp;", "&").replace("&#39;", "'");
        assert_eq!(
            ask(&server, &format!("GET /{link}"), "").status,
            200,
            "{link}"
        );
    }

    assert_eq!(text(&server, "/indexed/"), "index");
    for (path, status) in [
        ("/sub", 301),
        ("/none/", 404),
        ("/b.txt/", 404),
        ("/.git/", 404),
        ("/up/", 404),
    ] {
        assert_eq!(
            ask(&server, &format!("GET {path}"), "").status,
            status,
            "{path}"
        );
    }

    assert!(text(&server, "/sub/deep/").contains("href=\"../../\""));
    assert_eq!(links(&text(&server, "/empty/")), [""; 0]);
}

#[test]
fn off_unless_wanted() {
    let site = site();
    assert_eq!(ask(&site.server(false), "GET /sub/", "").status, 404);
}

#[test]
fn orders() {
    let site = Site::new()
        .with("b", "333")
        .with("a", "4444")
        .with("c", "1")
        .with("d/x", "");
    let server = server(&site);
    for (query, expected) in [
        ("", "d/abc"),
        ("?sort=name&order=desc", "d/cba"),
        ("?sort=size", "d/cba"),
        ("?sort=size&order=desc", "d/abc"),
        ("?sort=%3Cscript%3E", "d/abc"),
    ] {
        assert_eq!(
            links(&text(&server, &format!("/{query}"))).concat(),
            expected,
            "{query}"
        );
    }

    let page = text(&server, "/?sort=size");
    assert!(
        page.contains("aria-sort=\"ascending\"><a href=\"?sort=size&amp;order=desc\">"),
        "{page}"
    );
}

#[test]
fn fields() {
    let site = site();
    let answer = ask(&server(&site), "GET /", "");
    for (name, value) in [
        ("content-type", "text/html; charset=utf-8"),
        ("vary", "Accept"),
        ("cache-control", "no-cache"),
        ("x-content-type-options", "nosniff"),
    ] {
        assert_eq!(answer.header(name), Some(value));
    }

    assert!(
        answer
            .header("content-security-policy")
            .unwrap()
            .starts_with("default-src 'none'")
    );
    let head = ask(&server(&site), "HEAD /", "");
    assert_eq!(
        head.header("x-length"),
        Some(answer.body.len().to_string().as_str())
    );
}

#[test]
fn json() {
    let site = site();
    let server = server(&site);
    let body = text(&server, "/?format=json");
    let first = body.lines().next().unwrap();
    let last = body.lines().last().unwrap();
    assert_eq!(
        (first, last),
        ("{\"path\":\"/\",\"truncated\":false,\"entries\":[", "]}")
    );
    let stamp = "\"modified\":\"1994-11-06T08:49:37Z\"}";

    for entry in [
        format!("{{\"name\":\"b.txt\",\"href\":\"./b.txt\",\"type\":\"file\",\"size\":5,{stamp},"),
        format!(
            "{{\"name\":\"A <b>&\\\"'.txt\",\"href\":\"./A%20%3Cb%3E&%22'.txt\",\"type\":\"file\",\"size\":0,{stamp},"
        ),
        "{\"name\":\"\u{fffd}.bin\",\"href\":\"./%FF.bin\",\"type\":\"file\",\"size\":2,"
            .to_owned(),
        "{\"name\":\"sub\",\"href\":\"./sub/\",\"type\":\"directory\",\"modified\":".to_owned(),
    ] {
        assert!(
            body.lines().any(|line| line.starts_with(&entry)),
            "{entry} in {body}"
        );
    }

    let html = "text/html; charset=utf-8";
    for (target, accept, kind) in [
        ("/", "application/json", "application/json"),
        ("/", "text/html;q=0.5, application/json", "application/json"),
        ("/", "text/html, application/json", html),
        ("/", "*/*", html),
        ("/", "application/json;q=0", html),
        ("/?format=html", "application/json", html),
        ("/?sort=size&format=json", "text/html", "application/json"),
    ] {
        let answer = ask(
            &server,
            &format!("GET {target}"),
            &format!("Accept: {accept}\r\n"),
        );
        assert_eq!(
            answer.header("content-type"),
            Some(kind),
            "{target} {accept}"
        );
    }

    assert!(text(&server, "/sub/deep/?format=json").starts_with("{\"path\":\"/sub/deep/\""));
}

#[test]
fn the_longest() {
    let site = Site::new();
    for n in 0..10_001 {
        fs::write(site.root().join(format!("{n:05}")), "").unwrap();
    }
    let server = server(&site);
    let page = text(&server, "/");
    assert_eq!(links(&page).len(), 10_000);
    assert!(page.contains("There are more than the 10000 entries"));
    assert!(text(&server, "/?format=json").contains("\"truncated\":true"));
}
