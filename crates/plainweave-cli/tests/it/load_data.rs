//! `plainweave load http` with data that differs by request, servers that are elsewhere than their
//! URLs say, and figures that others read while the load runs.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::common::child::Kept;
use crate::common::scratch::Scratch;
use crate::scripted::{Figures, OK, drivers, load, server, sleeper};

/// Whole requests, as they came.
type Seen = Arc<Mutex<Vec<String>>>;

/// A server that notes heads and bodies.
fn noting() -> (SocketAddr, Seen) {
    let seen = Seen::default();
    let noted = seen.clone();
    let address = server(move |mut stream, _| {
        let mut reader = BufReader::new(stream.try_clone().unwrap());
        loop {
            let mut request = String::new();
            let mut length = 0;
            while !request.ends_with("\r\n\r\n") {
                let at = request.len();
                if reader.read_line(&mut request).unwrap_or(0) == 0 {
                    return;
                }
                let line = request[at..].to_ascii_lowercase();
                if let Some(value) = line.strip_prefix("content-length:") {
                    length = value.trim().parse().unwrap();
                }
            }

            let mut body = vec![0; length];
            reader.read_exact(&mut body).unwrap();
            request += &String::from_utf8(body).unwrap();
            noted.lock().unwrap().push(request);
            if stream.write_all(OK.as_bytes()).is_err() {
                return;
            }
        }
    });

    (address, seen)
}

const ONCE: [&str; 5] = ["-c", "1", "--workers", "1", "--json"];

#[test]
fn each_line_is_a_request() {
    let lines = [
        r#"{"url": "/a", "headers": {"X-Id": "1", "accept": "text/plain"}}"#,
        r#"{"url": "/b?x=1", "method": "PUT", "body": {"n": 2}}"#,
        r#"{"body": "three"}"#,
    ];
    let folder = Scratch::new();
    let json = folder.file("rows.jsonl", lines.join("\n"));

    let csv = folder.file(
        "rows.csv",
        "url,method,body,X-Id,accept\n/a,,,1,text/plain\n/b?x=1,PUT,\"{\"\"n\"\":2}\",,\n,,three,,\n",
    );
    for (file, driver) in [(&json, "epoll"), (&csv, *drivers().last().unwrap())] {
        let (address, seen) = noting();
        let url = format!("http://{address}/base");
        let args = [
            "http",
            &url,
            "--data",
            file,
            "--header",
            "Accept: */*",
            "-n",
            "4",
        ];
        Figures::of(0, &[&args[..], &ONCE, &["--io", driver]].concat());
        let host = format!("Host: {address}\r\n");
        let expected = [
            format!("GET /a HTTP/1.1\r\n{host}X-Id: 1\r\naccept: text/plain\r\n\r\n"),
            format!(
                "PUT /b?x=1 HTTP/1.1\r\n{host}Accept: */*\r\nContent-Length: 7\r\n\r\n{{\"n\":2}}"
            ),
            format!("POST /base HTTP/1.1\r\n{host}Accept: */*\r\nContent-Length: 5\r\n\r\nthree"),
        ];
        let mut seen = seen.lock().unwrap().clone();

        assert_eq!(seen.pop().as_ref(), Some(&expected[0]), "in turn: {seen:?}");
        // Keys of JSON are in the order of the alphabet.
        let in_order = |text: &String| {
            let mut lines: Vec<_> = text.lines().map(str::to_owned).collect();
            lines.sort_unstable();
            lines
        };

        let lines = |texts: &[String]| texts.iter().map(in_order).collect::<Vec<_>>();
        assert_eq!(lines(&seen), lines(&expected));
    }
}

#[test]
fn a_line_may_name_another_server_and_its_host() {
    let one = noting();
    let other = noting();
    let text = format!(
        "url,Host\nhttp://{}/x,\nhttp://{}/y,example.org\n",
        one.0, other.0
    );
    let folder = Scratch::new();
    let file = &folder.file("servers.csv", text);

    // By a clock: in a closed loop the faster connection may take all.
    let args = ["http", "--data", file, "-n", "40", "-c", "2"];
    let rate = ["--rate", "200", "--min-rate", "0"];
    Figures::of(
        0,
        &[&args[..], &rate, &["--workers", "1", "--json"]].concat(),
    );
    let counts = [&one, &other].map(|seen| seen.1.lock().unwrap().len());
    assert!(
        counts.iter().sum::<usize>() == 40 && !counts.contains(&0),
        "{counts:?}"
    );
    let other = other.1.lock().unwrap().clone();

    assert!(
        other
            .iter()
            .all(|seen| seen == "GET /y HTTP/1.1\r\nHost: example.org\r\n\r\n"),
        "{other:?}"
    );
}

#[test]
fn wrong_lines_are_refused_before_the_load() {
    let folder = Scratch::new();
    for (name, text, what) in [
        (
            "a.jsonl",
            "{\"url\": \"/\"}\n{\"path\": \"/\"}\n",
            "a.jsonl:2: 'path' is none of",
        ),
        (
            "b.csv",
            "url\nhttp://a b/\n",
            "b.csv:2: http://a b/ is not a URL",
        ),
        (
            "c.csv",
            "url,method\n/,CONNECT\n",
            "c.csv:2: 'CONNECT' is no method",
        ),
        (
            "d.csv",
            "url,Content-Length\n/,7\n",
            "d.csv:2 'Content-Length: 7': this program sets",
        ),
        ("e.csv", "url\n/a b\n", "e.csv:2: '/a b'"),
        ("f.csv", "", "f.csv:1: the first line names the columns"),
    ] {
        let file = &folder.file(name, text);
        let (code, _, error) = load(&["http", "http://127.0.0.1:1/", "--data", file]);
        assert!(code == Some(2) && error.contains(what), "{name}: {error}");
    }

    let file = &folder.file("g.csv", "url\n/a\n");
    let (code, _, error) = load(&["http", "--data", file]);
    assert!(
        code == Some(2) && error.contains("a URL must be given"),
        "{error}"
    );
}

#[test]
fn a_server_is_reached_elsewhere() {
    let (address, seen) = noting();
    let to = format!("example.org:80:127.0.0.1:{}", address.port());
    let args = [
        "http",
        "http://example.org/x",
        "--connect-to",
        &to,
        "-n",
        "1",
    ];
    let result = Figures::of(0, &[&args[..], &ONCE].concat());
    assert_eq!(result.figure("ok"), 1.0);
    assert_eq!(
        seen.lock().unwrap()[..],
        ["GET /x HTTP/1.1\r\nHost: example.org\r\n\r\n"]
    );

    for (rule, what) in [
        ("example.org:81:127.0.0.1:1", "fits none of the URLs"),
        ("example.org:80", "write HOST:PORT:TO:PORT"),
        (
            "::127.0.0.1:1",
            "cannot reach http://example.org by way of 127.0.0.1:1",
        ),
    ] {
        let (code, _, error) = load(&["http", "http://example.org/", "--connect-to", rule]);
        assert!(code != Some(0) && error.contains(what), "{rule}: {error}");
    }
}

/// Asks for a page of the admin address.
fn page(address: &str, path: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream
        .set_read_timeout(Some(Duration::from_secs(10)))
        .unwrap();
    write!(
        stream,
        "GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n"
    )
    .unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();

    text
}

#[test]
fn figures_are_served_while_the_load_runs() {
    let (address, _) = sleeper(Duration::from_millis(1));
    // Free a moment ago.
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let admin = port.local_addr().unwrap().to_string();
    let url = format!("http://{address}/");
    let taken = load(&["http", &url, "-n", "1", "--admin", &admin]);

    assert!(
        taken.0.is_some_and(|code| code != 0) && taken.2.contains("(--admin)"),
        "{}",
        taken.2
    );
    drop(port);

    let mut command = Command::new(env!("CARGO_BIN_EXE_plainweave"));
    command
        .args([
            "load", "http", &url, "--rate", "200", "-d", "60s", "--quiet",
        ])
        .args(["--admin", &admin])
        .stdout(Stdio::null());
    let running = Kept::spawn(&mut command).unwrap();
    let start = Instant::now();
    let text = loop {
        assert!(start.elapsed() < Duration::from_secs(40), "it counts");
        std::thread::sleep(Duration::from_millis(100));
        if TcpStream::connect(&admin).is_err() {
            continue;
        }
        let text = page(&admin, "/metrics");
        if !text.contains("plainweave_load_requests_total{outcome=\"ok\"} 0\n") {
            break text;
        }
    };

    for line in [
        "HTTP/1.1 200 OK",
        "plainweave_load_offered_rate 200",
        "plainweave_load_answers_total{status=\"200\"} ",
        "plainweave_load_latency_seconds_bucket{le=\"+Inf\"} ",
    ] {
        assert!(text.contains(line), "{line} in {text}");
    }

    assert!(page(&admin, "/none").starts_with("HTTP/1.1 404"));
    drop(running);
}

/// A server whose `/N` leads to `/N-1`, and `/0` nowhere; `/out` leads to another, `/end` ends the
/// connection, `/loop` leads to itself.
fn leading() -> (SocketAddr, Seen) {
    let seen = Seen::default();
    let noted = seen.clone();
    let address = server(move |stream, _| {
        crate::scripted::requests(stream, |first, stream| {
            noted.lock().unwrap().push(first.to_owned());
            let path = first.split(' ').nth(1).unwrap();
            let (location, more) = match path.trim_start_matches('/') {
                "0" => return stream.write_all(OK.as_bytes()).is_ok(),
                "out" => ("http://elsewhere.example/".to_owned(), ""),
                "end" => ("/0".to_owned(), "Connection: close\r\n"),
                "loop" => ("loop".to_owned(), ""),
                n => (format!("/{}", n.parse::<u32>().unwrap() - 1), ""),
            };

            let answer = format!(
                "HTTP/1.1 302 Found\r\nLocation: {location}\r\n{more}Content-Length: 4\r\n\r\nmore"
            );
            stream.write_all(answer.as_bytes()).is_ok() && more.is_empty()
        });
    });

    (address, seen)
}

#[test]
fn redirects_are_followed_when_asked() {
    let (address, seen) = leading();
    let run = |path: &str, more: &[&str]| {
        let url = format!("http://{address}/{path}");
        let args = ["http", &url, "-n", "2", "--max-errors", "1"];
        let (_, out, error) = load(&[&args[..], &ONCE, more].concat());
        let json: serde_json::Value =
            serde_json::from_str(&out).unwrap_or_else(|_| panic!("{path}: {out}{error}"));
        let seen = std::mem::take(&mut *seen.lock().unwrap()).len();

        (json["figures"]["ok"].as_f64().unwrap(), seen)
    };

    for driver in drivers() {
        let with = |most| ["--redirects", most, "--io", driver];
        assert_eq!(run("3", &["--io", driver]), (2.0, 2), "a 302 is an answer");
        assert_eq!(run("3", &with("3")), (2.0, 8));
        assert_eq!(run("3", &with("2")), (0.0, 6), "too many");
        assert_eq!(run("out", &with("9")), (0.0, 2));
        assert_eq!(run("end", &with("9")), (0.0, 2));
        assert_eq!(run("loop", &with("4")), (0.0, 10));
    }

    let (code, _, error) = load(&["http", "http://h/", "--redirects", "1", "--http2"]);
    assert!(code == Some(2) && error.contains("--http2"), "{error}");
}

/// A server on a Unix socket that answers what `answer` says to each request's last line.
fn by_path(answer: fn(&str) -> Option<String>) -> PathBuf {
    let name = format!(
        "plainweave-load-{}-{}.sock",
        std::process::id(),
        answer as usize
    );
    let path = std::env::temp_dir().join(name);
    let _ = std::fs::remove_file(&path);
    let listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let stream = stream.unwrap();
            std::thread::spawn(move || {
                let mut out = stream.try_clone().unwrap();
                for line in BufReader::new(stream).lines().map_while(Result::ok) {
                    let Some(answer) = answer(&line) else {
                        continue;
                    };
                    if out.write_all(answer.as_bytes()).is_err() {
                        return;
                    }
                }
            });
        }
    });

    path
}

#[test]
fn unix_sockets_are_loaded() {
    let http = by_path(|line| line.is_empty().then(|| OK.to_owned()));
    let cache = by_path(|line| {
        let answer = match line.split(' ').next()? {
            "set" => return None,
            "get" => "END\r\n",
            _ => "STORED\r\n",
        };
        Some(answer.to_owned())
    });
    for driver in drivers() {
        let path = http.to_str().unwrap();
        let args = [
            "http",
            "http://any.example/",
            "--unix-socket",
            path,
            "--io",
            driver,
        ];
        let result = Figures::of(0, &[&args[..], &["-n", "20"], &ONCE].concat());
        assert_eq!(result.figure("ok"), 20.0);
        assert_eq!(result.0["addresses"][0], path);

        let args = [
            "cache",
            cache.to_str().unwrap(),
            "--keys",
            "10",
            "--io",
            driver,
        ];
        let result = Figures::of(0, &[&args[..], &["-n", "20"], &ONCE].concat());
        assert_eq!(result.figure("misses"), 20.0);
    }
    for path in [&http, &cache] {
        std::fs::remove_file(path).unwrap();
    }
    let gone = http.to_str().unwrap();
    let (code, _, error) = load(&["http", "http://any.example/", "--unix-socket", gone]);
    assert!(
        code != Some(0) && error.contains("cannot reach http://any.example by way of"),
        "{error}"
    );
}
