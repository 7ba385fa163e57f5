//! What an operator sees of `plainweave web`: its log, its figures, its limits at work.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use crate::common::{Running, admin, ask, eventually, figure, get, lines_of, rest};
use rustix::fs::OFlags;
use rustix::process::{Pid, Signal, kill_process};
use socket2::SockRef;

/// A file that goes away with the test.
struct Log(PathBuf);

impl Log {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!(
            "plainweave-observe-{name}-{}.log",
            std::process::id()
        ));
        let _ = fs::remove_file(&path);
        Self(path)
    }

    fn path(&self) -> &str {
        self.0.to_str().unwrap()
    }

    /// Its lines, once there are so many.
    fn lines(&self, count: usize) -> Vec<String> {
        lines_of(&self.0, count)
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

#[test]
fn combined_lines_that_no_client_can_break() {
    let log = Log::new("combined");
    let server = Running::start(&["--access-log", log.path()]);
    get(server.address, "/Cargo.toml");
    ask(
        server.address,
        "GET /none HTTP/1.0\r\nUser-Agent: a \"b\" c\\\r\nReferer: http://x/\r\n\r\n",
    );
    ask(server.address, "nonsense\r\n\r\n");

    // Each CPU has its lines; those of 200 ms are written together.
    let mut lines = log.lines(3);
    lines.sort_by_key(|line| {
        ["/Cargo.toml", "/none", " 400 "]
            .iter()
            .position(|part| line.contains(part))
    });
    let size = fs::metadata(concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml"))
        .unwrap()
        .len();
    assert!(lines[0].starts_with("127.0.0.1 - - ["), "{}", lines[0]);
    assert!(
        lines[0].ends_with(&format!(
            "+0000] \"GET /Cargo.toml HTTP/1.1\" 200 {size} \"-\" \"-\""
        )),
        "{}",
        lines[0]
    );
    let expected = "\"GET /none HTTP/1.0\" 404 14 \"http://x/\" \"a \\x22b\\x22 c\\x5c\"";

    assert!(lines[1].ends_with(expected), "{}", lines[1]);
    assert!(lines[2].contains("] \"-\" 400 "), "{}", lines[2]);
}

#[test]
fn json_lines_are_json() {
    let log = Log::new("json");
    let server = Running::start(&[
        "--access-log",
        log.path(),
        "--log-format",
        "json",
        "--io",
        "epoll",
    ]);
    get(server.address, "/Cargo.toml?\"q");
    ask(
        server.address,
        "HEAD /none HTTP/1.1\r\nHost: h\r\nUser-Agent: \"\u{fc}\r\nConnection: close\r\n\r\n",
    );
    let mut lines: Vec<serde_json::Value> = log
        .lines(2)
        .iter()
        .map(|l| serde_json::from_str(l).unwrap())
        .collect();

    lines.sort_by_key(|line| line["status"].as_u64());
    assert_eq!(
        (&lines[0]["status"], &lines[0]["method"]),
        (&200.into(), &"GET".into())
    );
    assert_eq!(
        (&lines[0]["target"], &lines[0]["error"]),
        (&"/Cargo.toml?\"q".into(), &serde_json::Value::Null)
    );
    assert_eq!(
        (&lines[1]["status"], &lines[1]["bytes"]),
        (&404.into(), &0.into())
    );
    assert_eq!(lines[1]["user_agent"], "\"\u{fc}");
    assert!(lines[1]["seconds"].as_f64().unwrap() < 10.0);
}

#[test]
fn a_log_that_was_moved_away_is_opened_anew() {
    let log = Log::new("moved");
    let old = Log::new("moved-old");
    let server = Running::start(&["--access-log", log.path()]);
    get(server.address, "/1");
    log.lines(1);
    fs::rename(&log.0, &old.0).unwrap();
    kill_process(Pid::from_child(&server.child), Signal::USR1).unwrap();
    eventually("a new file, though nobody asks for anything", || {
        log.0.exists()
    });
    get(server.address, "/2");
    assert!(log.lines(1)[0].contains("GET /2"));
    assert_eq!(old.lines(1).len(), 1);
    server.signal();
    assert_eq!(server.end().0, Some(0));
}

/// Requests whose lines are much more than the buffers hold.
fn ask_at_length(server: &Running) -> TcpStream {
    let mut stream = server.connect();
    let target = "x".repeat(7000);
    let request = format!("GET /{target} HTTP/1.1\r\nHost: h\r\nReferer: {target}\r\n\r\n");
    let mut answer = [0; 4096];
    for _ in 0..1200 {
        stream.write_all(request.as_bytes()).unwrap();
        assert!(stream.read(&mut answer).unwrap() > 0);
    }

    stream
}

#[test]
fn a_full_disk_costs_log_lines_and_nothing_else() {
    let server = Running::start(&["--access-log", "/dev/full", "--admin", "127.0.0.1:0"]);
    let stream = ask_at_length(&server);
    let admin = admin(&server);
    eventually("a lost line", || {
        figure(admin, "plainweave_access_log_dropped_lines_total") > 0.0
    });
    assert_eq!(
        figure(admin, "plainweave_http_responses_total{status=\"4xx\"}"),
        1200.0
    );
    drop(stream);
    server.signal();
    let (code, said) = server.end();

    assert_eq!(code, Some(0));
    assert!(
        said.contains("access log /dev/full: No space left") && said.contains("served on"),
        "{said}"
    );
    assert_eq!(
        said.matches("No space left").count(),
        1,
        "said once, not for each line: {said}"
    );
}

/// Lines are gathered for 200 ms, in which far more of them come than the buffers hold: whoever
/// waits for that long regardless loses nine of ten. How many are lost at all is up to the
/// scheduler.
#[test]
fn a_disk_that_keeps_up_gets_the_lines() {
    let log = Log::new("fast");
    let server = Running::start(&["--access-log", log.path()]);
    drop(ask_at_length(&server));
    server.signal();
    assert_eq!(server.end().0, Some(0));
    assert!(log.lines(1).len() > 600, "of 1,200");
}

/// A pipe that nobody reads stands for a disk that hangs.
#[test]
fn a_disk_that_hangs_costs_log_lines_and_nothing_else() {
    let log = Log::new("hangs");
    assert!(
        Command::new("mkfifo")
            .arg(&log.0)
            .status()
            .unwrap()
            .success()
    );
    let nonblocking = i32::try_from(OFlags::NONBLOCK.bits()).unwrap();
    let reader = fs::File::options()
        .read(true)
        .custom_flags(nonblocking)
        .open(&log.0)
        .unwrap();
    let mut server = Running::start(&["--access-log", log.path()]);

    drop(ask_at_length(&server));
    server.signal();
    eventually("the end", || server.child.try_wait().unwrap().is_some());
    let (code, said) = server.end();

    drop(reader);
    assert!(
        code == Some(0) && said.contains("it takes lines too slowly; 1 lines lost so far"),
        "{said}"
    );
    assert!(
        said.lines().count() == 2 && said.contains("it took no last lines"),
        "said once, and at the end: {said}"
    );
}

#[test]
fn a_log_that_cannot_be_opened_is_an_error_at_the_start() {
    let (code, said) = crate::common::output(&[".", "--access-log", "/nowhere/access.log"]);
    assert_eq!(code, Some(1));
    assert!(
        said.contains("cannot write the access log /nowhere/access.log") && said.contains("give a"),
        "{said}"
    );
    let (code, said) = crate::common::output(&[".", "--log-format", "json"]);
    assert_eq!(code, Some(2), "a format without a log: {said}");
}

#[test]
fn figures_tell_what_was_answered() {
    for io in ["epoll", "uring"] {
        let server = Running::start(&["--admin", "127.0.0.1:0", "--io", io]);
        let admin = admin(&server);
        for path in ["/Cargo.toml", "/Cargo.toml", "/none", "/src"] {
            get(server.address, path);
        }
        ask(server.address, "nonsense\r\n\r\n");

        for (name, count) in [
            ("plainweave_http_responses_total{status=\"2xx\"}", 2.0),
            ("plainweave_http_responses_total{status=\"3xx\"}", 1.0),
            ("plainweave_http_responses_total{status=\"4xx\"}", 2.0),
            ("plainweave_http_errors_total{kind=\"malformed\"}", 1.0),
            ("plainweave_http_duration_seconds_count", 4.0),
            ("plainweave_http_duration_seconds_bucket{le=\"+Inf\"}", 4.0),
            ("plainweave_connections_accepted_total", 5.0),
        ] {
            eventually(name, || figure(admin, name) == count);
        }

        eventually("no connection", || {
            figure(admin, "plainweave_connections") == 0.0
        });
        assert!(get(admin, "/health").ends_with("\r\n\r\nok\n"));
        assert!(get(admin, "/none").starts_with("HTTP/1.1 404"));
        assert!(
            ask(
                admin,
                "POST /metrics HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n"
            )
            .contains(" 405 ")
        );
    }
}

/// Small answers leave after their exchange is over.
#[test]
fn an_answer_that_could_not_be_sent_is_counted() {
    for style in [
        &["--io", "epoll"][..],
        &["--io", "uring"],
        &["--io", "epoll", "--architecture", "fibers"],
    ] {
        let server = Running::start(&[&["--admin", "127.0.0.1:0"], style].concat());
        let mut stream = server.connect();
        let request = b"GET /Cargo.toml HTTP/1.1\r\nHost: h\r\n\r\n";
        stream.write_all(request).unwrap();
        assert!(stream.read(&mut [0; 8192]).unwrap() > 0);
        let paused = server.paused();

        stream.write_all(request).unwrap();

        // The kernel sends a reset: the request can be read, no answer can be sent.
        SockRef::from(&stream)
            .set_linger(Some(Duration::ZERO))
            .unwrap();
        let ports = [server.address, stream.local_addr().unwrap()];
        let ports = ports.map(|address| format!(":{:04X} ", address.port()));
        drop(stream);

        // On a loaded machine it may arrive after the request by as much as a turn of the server.
        eventually("the reset", || {
            let table = fs::read_to_string("/proc/net/tcp").unwrap();
            !table
                .lines()
                .any(|line| ports.iter().all(|port| line.contains(port)))
        });
        drop(paused);
        let admin = admin(&server);
        let closed = "plainweave_http_errors_total{kind=\"closed\"}";
        eventually(closed, || figure(admin, closed) == 1.0);
        assert_eq!(
            figure(admin, "plainweave_http_responses_total{status=\"2xx\"}"),
            2.0
        );
    }
}

#[test]
fn health_says_so_while_the_server_stops() {
    let server = Running::start(&["--admin", "127.0.0.1:0", "--grace", "5s"]);
    let admin = admin(&server);
    // A request in progress holds the server up.
    let mut slow = server.connect();
    slow.write_all(b"GET /Cargo.toml HTTP/1.1\r\n").unwrap();
    // It has been accepted, and is served by a fiber that stays: not the one that accepts.
    let is_served = || {
        std::thread::sleep(Duration::from_millis(20));
        figure(admin, "plainweave_connections") >= 1.0 && figure(admin, "plainweave_fibers") >= 1.0
    };
    eventually("the connection", || (0..3).all(|_| is_served()));
    server.signal();
    eventually("503", || get(admin, "/health").starts_with("HTTP/1.1 503"));
    slow.write_all(b"Host: h\r\n\r\n").unwrap();
    assert!(rest(slow).starts_with("HTTP/1.1 200"));
    assert_eq!(server.end().0, Some(0));
}

#[test]
fn more_connections_than_there_may_be_wait_and_are_served() {
    for style in [&[][..], &["--architecture", "fibers"]] {
        let flags = [&["--max-connections", "3", "--admin", "127.0.0.1:0"], style].concat();
        let server = Running::start(&flags);
        assert!(
            server.line.contains("up to 3 connections"),
            "{}",
            server.line
        );
        let request = b"GET /Cargo.toml HTTP/1.1\r\nHost: h\r\n\r\n";
        let mut held: Vec<TcpStream> = (0..3).map(|_| server.connect()).collect();

        for stream in &mut held {
            stream.write_all(request).unwrap();
            assert!(stream.read(&mut [0; 4096]).unwrap() > 0);
        }

        let mut fourth = server.connect();
        fourth.write_all(request).unwrap();
        eventually("a pause", || {
            figure(admin(&server), "plainweave_connections_accept_pauses_total") >= 1.0
        });

        // Established connections are served as before.
        held[1].write_all(request).unwrap();
        assert!(held[1].read(&mut [0; 4096]).unwrap() > 0);
        drop(held.pop());
        assert!(
            fourth.read(&mut [0; 4096]).unwrap() > 0,
            "served, below the connection limit"
        );
    }
}

#[test]
fn an_address_has_its_share() {
    let server = Running::start(&["--max-per-address", "2", "--admin", "127.0.0.1:0"]);
    let held: Vec<TcpStream> = (0..2).map(|_| server.connect()).collect();
    let admin = admin(&server);
    eventually("two connections", || {
        figure(admin, "plainweave_connections") == 2.0
    });
    assert_eq!(rest(server.connect()), "", "closed at once");
    assert_eq!(figure(admin, "plainweave_connections_refused_total"), 1.0);
    drop(held);
    eventually("no connection", || {
        figure(admin, "plainweave_connections") == 0.0
    });
    assert!(get(server.address, "/Cargo.toml").starts_with("HTTP/1.1 200"));
}

/// A worker is asked by SIGURG what it does; a server that does not report has no handler for it
/// (on epoll: workers with rings are asked to enter them, too).
#[test]
fn stalls_are_looked_into_on_demand() {
    let root = std::env::temp_dir();
    for (flags, asks) in [(&["--report-stalls"][..], true), (&[], false)] {
        let flags = [flags, &["--io", "epoll"]].concat();
        let server = Running::start_in(&root, &flags);
        let status =
            std::fs::read_to_string(format!("/proc/{}/status", server.child.id())).unwrap();
        let caught = status
            .lines()
            .find_map(|line| line.strip_prefix("SigCgt:"))
            .unwrap();
        let caught = u64::from_str_radix(caught.trim(), 16).unwrap();
        let bit = rustix::process::Signal::URG.as_raw() - 1;

        assert_eq!(caught >> bit & 1 == 1, asks, "{flags:?}");
    }
}

#[test]
fn fibers_are_listed_for_this_machine_and_without_addresses_for_others() {
    for io in ["epoll", "uring"] {
        let server = Running::start(&["--admin", "127.0.0.1:0", "--io", io]);
        let admin = admin(&server);
        let mut begun = server.connect();
        begun.write_all(b"GET /Cargo.toml HTTP/1.1\r\n").unwrap();
        let mut text = String::new();
        eventually("the fiber of a request to wait for its rest", || {
            text = get(admin, "/fibers");
            text.contains("waiting for I/O")
        });
        assert!(
            text.starts_with("HTTP/1.1 200") && text.contains("\r\n\r\nruntime main: "),
            "{text}"
        );
        assert!(!text.contains("\n    "), "{text}");
        let text = get(admin, "/fibers?x&stacks=1");

        assert!(text.contains("\n    "), "{text}");
        // What a browser sends for a name that somebody else has pointed here.
        let text = ask(
            admin,
            "GET /fibers?stacks=1 HTTP/1.1\r\nHost: elsewhere.example\r\nConnection: close\r\n\r\n",
        );
        assert!(text.starts_with("HTTP/1.1 403"), "{text}");

        for path in ["/fibers.json", "/fibers.json?stacks=1"] {
            let text = get(admin, path);
            let (head, body) = text.split_once("\r\n\r\n").unwrap();
            assert!(
                head.to_lowercase()
                    .contains("content-type: application/json"),
                "{head}"
            );
            let json: serde_json::Value = serde_json::from_str(body).unwrap();
            let dump = &json["runtimes"][0]["dump"];

            assert_eq!(json["runtimes"][0]["name"], "main");
            let waits = dump["fibers"]
                .as_array()
                .unwrap()
                .iter()
                .find(|fiber| fiber["reason"] == "io")
                .unwrap();

            assert_eq!(
                waits["frames"].as_array().unwrap().is_empty(),
                path == "/fibers.json",
                "{body}"
            );
        }
    }

    let server = Running::start(&["--admin", "0.0.0.0:0"]);
    let admin = (std::net::Ipv4Addr::LOCALHOST, admin(&server).port()).into();
    for path in ["/fibers?stacks=1", "/fibers.json?stacks=1"] {
        let text = get(admin, path);
        assert!(
            text.starts_with("HTTP/1.1 403") && text.contains("only where --admin is a loopback"),
            "{text}"
        );
    }

    assert!(get(admin, "/fibers").contains("\r\n\r\nruntime main: "));
}
