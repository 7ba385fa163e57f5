//! What a site has for itself beside its files: a prefix, a log, and bounds on requests.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::time::Duration;

use crate::common::scratch::Scratch;
use crate::common::{Running, ask, eventually, get, hang_up, lines_of, output};
use crate::sites::{answer, start};

/// Asserts that an answer has a status and ends like this, or (`-> PLACE`) leads there.
fn assert_answer(answer: &str, expected: &str) {
    let (status, rest) = expected.split_once(' ').unwrap();
    assert!(
        answer.starts_with(&format!("HTTP/1.1 {status} ")),
        "{answer}"
    );
    match rest.strip_prefix("-> ") {
        Some(place) => assert!(
            answer
                .to_lowercase()
                .contains(&format!("\r\nlocation: {place}\r\n")),
            "{place}: {answer}"
        ),
        None => assert!(answer.ends_with(rest), "{rest}: {answer}"),
    }
}

const FILES: [(&str, &str); 7] = [
    ("www/index.html", "this is www/index.html"),
    ("www/lost.html", "this is www/lost.html"),
    ("docs/index.html", "this is docs/index.html"),
    ("docs/guide.html", "this is docs/guide.html"),
    ("docs/sub/index.html", "this is docs/sub/index.html"),
    ("docs/lost.html", "this is docs/lost.html"),
    ("deep/index.html", "this is deep/index.html"),
];

const PREFIXES: &str = r#"
[[site]]
names = ["a.example", "b.example"]
root = "www"
error-page = ["404=/lost.html"]

[[site]]
names = ["a.example"]
root = "docs"
prefix = "/docs/"
clean-urls = true
error-page = ["404=/lost.html"]

[[site.rule]]
path = "/docs/secret/**"
deny = ["127.0.0.1"]

[[site.rule]]
path = "/docs/old/**"
rewrite = "/docs/sub/"

[[site.rule]]
path = "/docs/lost/**"
rewrite = "/elsewhere"

[[site]]
names = ["a.example", "c.example"]
root = "deep"
prefix = "/docs/d%65ep"
listing = true
"#;

#[test]
fn sites_of_one_name_are_told_apart_by_their_prefix() {
    let (_scratch, server) = start(&FILES, PREFIXES, &[]);
    for (line, host, expected) in [
        ("GET /", "a.example", "200 this is www/index.html"),
        ("GET /docs", "a.example", "301 -> /docs/"),
        ("GET /docs?a=b", "a.example", "301 -> /docs/?a=b"),
        ("POST /docs", "a.example", "405 405 Method Not Allowed\n"),
        ("GET /docs/", "a.example", "200 this is docs/index.html"),
        (
            "GET /d%6fcs//guide",
            "a.example",
            "200 this is docs/guide.html",
        ),
        (
            "GET /docs/guide.html?x",
            "a.example",
            "301 -> /docs/guide?x",
        ),
        ("GET /docs/sub", "a.example", "301 -> /docs/sub/"),
        (
            "GET /docs/sub/",
            "a.example",
            "200 this is docs/sub/index.html",
        ),
        (
            "GET /docs/old/x",
            "a.example",
            "200 this is docs/sub/index.html",
        ),
        (
            "GET /docs/lost/x",
            "a.example",
            "404 this is docs/lost.html",
        ),
        ("GET /docs/none", "a.example", "404 this is docs/lost.html"),
        ("GET /docs/secret/x", "a.example", "403 403 Forbidden\n"),
        ("GET /docsx", "a.example", "404 this is www/lost.html"),
        ("GET /docs", "b.example", "404 this is www/lost.html"),
        (
            "GET /docs/deep/",
            "a.example",
            "200 this is deep/index.html",
        ),
        (
            "GET /docs/deep/",
            "c.example",
            "200 this is deep/index.html",
        ),
        ("GET /docs/%64eep", "c.example", "301 -> /docs/deep/"),
        ("GET /docs/", "c.example", "404 404 Not Found\n"),
        ("GET /%00", "c.example", "400 400 Bad Request\n"),
        ("GET /%00", "a.example", "400 400 Bad Request\n"),
        ("GET /", "d.example", "421 421 Misdirected Request\n"),
    ] {
        assert_answer(&answer(server.address, line, host, ""), expected);
    }
}

#[test]
fn a_prefix_may_be_a_flag() {
    let scratch = Scratch::new();
    scratch.file("a.html", "a page");
    fs::create_dir(scratch.root().join("sub")).unwrap();
    let server = Running::start_in(scratch.root(), &["--prefix", "/docs", "--listing"]);
    for (path, expected) in [
        ("/docs/a.html", "200 a page"),
        ("/docs/sub", "301 -> /docs/sub/"),
        ("/docs", "301 -> /docs/"),
        ("/a.html", "404 404 Not Found\n"),
    ] {
        assert_answer(&get(server.address, path), expected);
    }

    // All that a listing links to is there.
    let listing = get(server.address, "/docs/");
    let links = listing.split("href=\"").skip(1);
    let links = links
        .filter_map(|rest| rest.split_once('"'))
        .map(|(link, _)| link);
    for link in links.filter(|link| link.starts_with("./")) {
        let answer = get(server.address, &format!("/docs/{}", &link[2..]));
        assert!(answer.starts_with("HTTP/1.1 200 "), "{link}: {answer}");
    }
}

#[test]
fn a_body_may_be_no_longer_than_a_rule_says() {
    let settings = "root = \"www\"\n[[rule]]\npath = \"/small/**\"\nmax-body = \"10\"\n";
    let (_scratch, server) = start(&FILES, settings, &[]);
    for (path, fields, status) in [
        ("/small/a", "Content-Length: 10\r\n\r\n0123456789", "405"),
        ("/small/a", "Content-Length: 11\r\n\r\n01234567890", "413"),
        (
            "/small/a",
            "Transfer-Encoding: chunked\r\n\r\n5\r\n01234\r\n0\r\n\r\n",
            "405",
        ),
        ("/other", "Content-Length: 11\r\n\r\n01234567890", "405"),
    ] {
        let request = format!("POST {path} HTTP/1.1\r\nHost: h\r\nConnection: close\r\n{fields}");
        let answer = ask(server.address, &request);
        assert!(
            answer.starts_with(&format!("HTTP/1.1 {status} ")),
            "{path}: {answer}"
        );
    }
}

/// Holds answers that nobody reads.
#[test]
fn a_site_has_a_bound_on_its_requests_and_others_have_theirs() {
    let settings = "[[site]]\nnames = [\"a\"]\nroot = \"www\"\nmax-in-progress = 2\n\
                    error-page = [\"503=/lost.html\"]\n\
                    [[site.rule]]\nset-headers = { X-A = \"1\" }\n\
                    [[site]]\nnames = [\"b\"]\nroot = \"www\"\n";
    let (scratch, server) = start(&FILES, settings, &[]);
    fs::write(scratch.root().join("www/large"), vec![0; 64 << 20]).unwrap();
    let held = || {
        let mut stream = server.connect();
        let large = b"GET /large HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
        stream.write_all(large).unwrap();
        stream.read_exact(&mut [0; 15]).unwrap();
        stream
    };
    let one = held();
    let mut two = held();
    let busy = answer(server.address, "GET /", "a", "");
    assert_answer(&busy, "503 this is www/lost.html");
    assert!(busy.contains("\r\nRetry-After: 1\r\n"), "{busy}");
    assert!(busy.contains("\r\nX-A: 1\r\n"), "{busy}");
    assert_answer(
        &answer(server.address, "GET /", "b", ""),
        "200 this is www/index.html",
    );

    drop(one);
    eventually("a place is free again", || {
        answer(server.address, "GET /", "a", "").starts_with("HTTP/1.1 200 ")
    });
    // One that is read to its end gives its place back, too.
    let mut body = Vec::new();
    two.read_to_end(&mut body).unwrap();
    assert!(body.len() > 64 << 20);
    let _held = (held(), held());
    assert_answer(
        &answer(server.address, "GET /", "a", ""),
        "503 this is www/lost.html",
    );
}

const LOGS: &str = r#"
access-log = "all.log"
[[site]]
names = ["a"]
root = "www"
access-log = "a.log"
[[site]]
names = ["b", "c"]
root = "www"
access-log = "bc.json"
log-format = "json"
[[site]]
names = ["*"]
root = "www"
"#;

/// What a log has of these hosts' paths, in order.
fn logged(file: &Path, count: usize) -> Vec<String> {
    let lines = lines_of(file, count);
    assert_eq!(lines.len(), count, "{lines:?}");
    lines
}

#[test]
fn a_site_has_its_own_log() {
    let (scratch, server) = start(&FILES, LOGS, &[]);
    let path = |name: &str| scratch.root().join(name);
    for (host, path) in [("a", "/1"), ("b", "/2"), ("c", "/3"), ("else", "/4")] {
        answer(server.address, &format!("GET {path}"), host, "");
    }
    let malformed = ask(server.address, "GET\r\n\r\n");
    assert!(malformed.starts_with("HTTP/1.1 400 "), "{malformed}");

    assert!(logged(&path("a.log"), 1)[0].contains("\"GET /1 HTTP/1.1\" 404 "));
    // Each processor has a buffer, so their order is any.
    let has = |lines: &[String], part: &str| lines.iter().any(|line| line.contains(part));
    let lines = logged(&path("bc.json"), 2);
    assert!(has(&lines, "\"target\":\"/2\""), "{lines:?}");
    assert!(has(&lines, "\"target\":\"/3\""), "{lines:?}");
    assert!(!has(&lines, "\"seconds\":0.000000"), "{lines:?}");
    let lines = logged(&path("all.log"), 2);
    assert!(has(&lines, "\"GET /4 HTTP/1.1\""), "{lines:?}");
    assert!(has(&lines, "\"-\" 400 "), "{lines:?}");

    // All are opened again, and what was moved away keeps its lines.
    fs::rename(path("a.log"), path("a.old")).unwrap();
    let process = rustix::process::Pid::from_child(&server.child);
    rustix::process::kill_process(process, rustix::process::Signal::USR1).unwrap();
    eventually("the log is opened again", || path("a.log").exists());
    answer(server.address, "GET /5", "a", "");
    assert!(logged(&path("a.log"), 1)[0].contains("GET /5 "));
    assert_eq!(logged(&path("a.old"), 1).len(), 1);

    // What comes last is written, too.
    answer(server.address, "GET /6", "a", "");
    server.signal();
    let (code, _) = server.end();
    assert_eq!(code, Some(0));
    assert!(logged(&path("a.log"), 2)[1].contains("GET /6 "));
}

#[test]
fn a_reload_takes_logs_up_and_ends_them() {
    let settings = |log: &str| format!("[[site]]\nnames = [\"*\"]\nroot = \"www\"\n{log}");
    // Confined, it would write where it did at the start.
    let (scratch, mut server) = start(&FILES, &settings(""), &["--no-confinement"]);
    let mut said = BufReader::new(server.child.stderr.take().unwrap());
    let mut reload = |log: &str| {
        scratch.file("web.toml", settings(log));
        hang_up(&server, &mut said)
    };

    for n in 1..=20 {
        let line = reload(&format!("access-log = \"{n}.log\"\n"));
        assert!(line.contains("is loaded"), "{line}");
        answer(server.address, &format!("GET /{n}"), "h", "");
    }

    let line = reload("");
    assert!(line.contains("the log is reopened"), "the old one: {line}");
    answer(server.address, "GET /none", "h", "");
    for n in 1..=20 {
        let lines = logged(&scratch.root().join(format!("{n}.log")), 1);
        assert!(lines[0].contains(&format!("GET /{n} ")), "{lines:?}");
    }

    let files = format!("/proc/{}/fd", server.child.id());
    eventually("old logs are closed", || {
        let open = fs::read_dir(&files).unwrap();
        let open = open.filter_map(|entry| fs::read_link(entry.ok()?.path()).ok());
        open.filter(|path| path.extension().is_some_and(|name| name == "log"))
            .count()
            == 0
    });

    // Times are taken from the start on, or not.
    for (log, why) in [
        (
            "access-log = \"x.log\"\nlog-format = \"json\"\n",
            ":4:14: this format has times",
        ),
        (
            "access-log = \"/nonexistent/x\"\n",
            ":4:14: cannot write the access log",
        ),
    ] {
        let line = reload(log);
        assert!(
            line.contains(why) && line.contains("the sites stay as they were"),
            "{line}"
        );
    }
}

#[test]
fn a_changed_file_is_taken_up_when_it_is_watched() {
    let settings =
        |n: u32| format!("root = \"www\"\n[[rule]]\nset-headers = {{ X-N = \"{n}\" }}\n");
    let (scratch, mut server) = start(&FILES, &settings(0), &["--watch-config"]);
    let mut said = BufReader::new(server.child.stderr.take().unwrap());
    let mut line = || {
        let mut line = String::new();
        said.read_line(&mut line).unwrap();
        line
    };

    // Written in place, and put in its place.
    scratch.file("web.toml", settings(1));
    let done = line();
    assert!(done.contains("web.toml is loaded, 1 site"), "{done}");
    assert!(get(server.address, "/").contains("\r\nX-N: 1\r\n"));
    let new = scratch.file("new.toml", settings(2));
    fs::rename(new, scratch.path("web.toml")).unwrap();
    let done = line();
    assert!(done.contains("is loaded"), "{done}");
    assert!(get(server.address, "/").contains("\r\nX-N: 2\r\n"));

    // A bad one is refused, and then a good one is taken.
    scratch.file("web.toml", "root = \"gone\"\n");
    let done = line();
    assert!(
        done.contains("cannot serve") && done.contains("stay as they were"),
        "{done}"
    );
    assert!(get(server.address, "/").contains("\r\nX-N: 2\r\n"));
    fs::remove_file(scratch.path("web.toml")).unwrap();
    std::thread::sleep(Duration::from_millis(1200));
    scratch.file("web.toml", settings(3));
    let done = line();
    assert!(done.contains("is loaded"), "{done}");
    assert!(get(server.address, "/").contains("\r\nX-N: 3\r\n"));
    server.child.stderr = Some(said.into_inner());
    server.signal();
    let (code, _) = server.end();
    assert_eq!(code, Some(0));
}

/// `--check` opens nothing for writing, and says what could not be.
#[test]
fn logs_and_users_are_checked() {
    let scratch = Scratch::new();
    fs::create_dir(scratch.root().join("www")).unwrap();
    let site = "[[site]]\nnames = [\"a\"]\nroot = \"www\"\n";
    for (settings, said) in [
        (
            format!("access-log = \"all.log\"\n{site}access-log = \"a.log\"\n"),
            "is good",
        ),
        (
            format!("{site}access-log = \"none/a.log\"\n"),
            ":4:14: cannot write the access log",
        ),
        (
            format!("access-log = \"none/a.log\"\n{site}"),
            "cannot write the access log",
        ),
        (
            format!("access-log = \"www\"\n{site}"),
            "cannot write the access log",
        ),
        (
            format!("user = \"nobody-of-this-name\"\n{site}"),
            "there is no user",
        ),
    ] {
        let file = scratch.file("web.toml", &settings);
        let (code, output) = output(&["--config", &file, "--check"]);
        assert_eq!(code == Some(0), said == "is good", "{output}");
        assert!(output.contains(said), "{output}");
    }

    let left = fs::read_dir(scratch.root()).unwrap().count();
    assert_eq!(left, 2, "no log is made");
}
