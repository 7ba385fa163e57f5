//! Clients that misbehave, vanish or come in crowds, and a stop in the middle of it, on both
//! drivers, in both styles, with fibers that move and fibers that do not.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use crate::common::scratch::Scratch;
use crate::common::{Running, admin, eventually, rest};
use rustix::process::{Pid, Resource, Rlimit, Signal, kill_process, prlimit};

const STYLES: [&[&str]; 10] = [
    &["--io", "epoll", "--workers", "2"],
    &["--io", "uring", "--workers", "2"],
    &[
        "--io",
        "epoll",
        "--workers",
        "2",
        "--architecture",
        "fibers",
        "--policy",
        "lifo-slot",
    ],
    &[
        "--io",
        "uring",
        "--workers",
        "2",
        "--architecture",
        "fibers",
    ],
    &["--io", "epoll", "--workers", "2", "--mode", "anytime/own"],
    &[
        "--io",
        "epoll",
        "--workers",
        "2",
        "--mode",
        "anytime/own",
        "--architecture",
        "fibers",
        "--policy",
        "helping",
    ],
    &[
        "--io",
        "uring",
        "--workers",
        "2",
        "--mode",
        "anytime/own",
        "--architecture",
        "fibers",
    ],
    &[
        "--io",
        "uring",
        "--workers",
        "2",
        "--architecture",
        "acceptors",
    ],
    &[
        "--io",
        "epoll",
        "--workers",
        "2",
        "--architecture",
        "event-loops",
    ],
    &[
        "--io",
        "epoll",
        "--workers",
        "2",
        "--architecture",
        "pipeline:4",
    ],
];

/// A request whose answer is a whole file.
const GET: &[u8] = b"GET /Cargo.toml HTTP/1.1\r\nHost: h\r\n\r\n";

/// Reads one answer with a `Content-Length`. `None`: the connection was closed before its first
/// byte.
fn answer(stream: &mut TcpStream) -> Option<String> {
    let mut text = Vec::new();
    let mut byte = [0];
    while !text.ends_with(b"\r\n\r\n") {
        match stream.read(&mut byte) {
            Ok(0) if text.is_empty() => return None,
            Ok(0) => panic!("cut in the head: {}", String::from_utf8_lossy(&text)),
            Ok(_) => text.push(byte[0]),
            Err(error) if text.is_empty() && error.kind() == ErrorKind::ConnectionReset => {
                return None;
            }
            Err(error) => panic!("{error} after {}", String::from_utf8_lossy(&text)),
        }
    }

    let head = String::from_utf8(text).unwrap();
    let length = head
        .lines()
        .find_map(|l| l.strip_prefix("Content-Length: "))
        .expect("a length")
        .parse()
        .unwrap();
    let mut body = vec![0; length];
    stream.read_exact(&mut body).expect("a whole body");

    Some(head)
}

#[test]
fn bad_requests_get_their_status_and_a_closed_connection() {
    let long = format!("GET /{} HTTP/1.1\r\nHost: h\r\n\r\n", "a".repeat(100_000));
    let big = format!(
        "GET / HTTP/1.1\r\nHost: h\r\nX: {}\r\n\r\n",
        "a".repeat(100_000)
    );
    let cases: [(&str, &[u16]); 9] = [
        ("nonsense\r\n\r\n", &[400]),
        ("GET / HTTP/1.1\r\n\r\n", &[400]),
        ("GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", &[400]),
        ("GET / HTTP/3.7\r\nHost: h\r\n\r\n", &[505]),
        (
            "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n",
            &[400],
        ),
        (
            "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\nContent-Length: 5\r\n\r\n",
            &[400],
        ),
        (
            "GET /../../etc/passwd HTTP/1.1\r\nHost: h\r\n\r\n",
            &[400, 403, 404],
        ),
        (&long, &[414]),
        (&big, &[431]),
    ];

    for style in STYLES {
        let server = Running::start(style);
        for (request, statuses) in &cases {
            let mut stream = server.connect();
            // The server may answer and close before it has read a long one.
            let _ = stream.write_all(request.as_bytes());
            let _ = stream.shutdown(Shutdown::Write);
            let text = rest(stream);
            let status: u16 = text.get(9..12).and_then(|s| s.parse().ok()).unwrap_or(0);

            assert!(
                statuses.contains(&status),
                "{style:?} {:?}: {text:?}",
                &request[..request.len().min(60)]
            );
        }

        server.signal();
        assert_eq!(server.end().0, Some(0));
    }
}

#[test]
fn a_client_that_vanishes_at_any_byte_leaks_nothing() {
    for style in STYLES {
        let server = Running::start(style);
        let mut first = server.connect();
        first.write_all(GET).unwrap();
        answer(&mut first).expect("an answer");
        let before = server.descriptors();

        let pipelined = [GET, GET].concat();
        for at in 0..=pipelined.len() {
            let mut stream = server.connect();
            stream.write_all(&pipelined[..at]).unwrap();
            if at % 3 == 0 {
                // What is left unread makes the kernel send a reset.
                let _ = stream.set_read_timeout(Some(Duration::from_millis(1)));
                let _ = stream.read(&mut [0]);
            }
        }

        eventually("the number of descriptors before", || {
            server.descriptors() <= before
        });
        first.write_all(GET).unwrap();
        answer(&mut first).expect("the first connection still works");
        server.signal();
        assert_eq!(server.end(), (Some(0), String::new()));
    }
}

#[test]
fn a_stop_under_load_cuts_no_answer() {
    for style in STYLES {
        let server = Running::start(style);
        let answers = AtomicU64::new(0);
        thread::scope(|scope| {
            // Ends the threads, as none can connect any more.
            let signalled = server.signalled();
            for _ in 0..8 {
                scope.spawn(|| {
                    while let Ok(mut stream) = TcpStream::connect(server.address) {
                        stream
                            .set_read_timeout(Some(Duration::from_secs(10)))
                            .unwrap();
                        while stream.write_all(GET).is_ok() {
                            let Some(head) = answer(&mut stream) else {
                                break;
                            };
                            answers.fetch_add(1, Ordering::Relaxed);
                            if head.contains("Connection: close") {
                                break;
                            }
                        }
                    }
                });
            }

            eventually("load", || answers.load(Ordering::Relaxed) > 500);
            drop(signalled);
        });
        assert_eq!(server.end(), (Some(0), String::new()), "{style:?}");
    }
}

#[test]
fn out_of_descriptors_it_pauses_and_goes_on() {
    for style in STYLES {
        let server = Running::start_with_descriptors(60, style);
        let mut first = server.connect();
        first.write_all(GET).unwrap();
        answer(&mut first).expect("an answer");
        let crowd: Vec<_> = (0..100).map(|_| server.connect()).collect();

        // No descriptor is left to accept with; files cannot be opened either, which is an answer
        // of its own.
        first
            .write_all(b"GET /no-such-file HTTP/1.1\r\nHost: h\r\n\r\n")
            .unwrap();
        answer(&mut first).expect("an answer to who is connected already");
        drop(crowd);
        eventually("a new connection's answer", || {
            let mut stream = server.connect();
            stream.write_all(GET).is_ok()
                && answer(&mut stream).is_some_and(|head| head.contains("200 OK"))
        });
        server.signal();
        assert_eq!(server.end().0, Some(0));
    }
}

/// The bound on connections leaves room; somebody else may take it away.
#[test]
fn a_limit_lowered_meanwhile_is_said_once() {
    for style in STYLES {
        let server = Running::start(style);
        let mut first = server.connect();
        first.write_all(GET).unwrap();
        answer(&mut first).expect("an answer");
        let pid = Some(Pid::from_child(&server.child));
        let limit = |current| {
            prlimit(
                pid,
                Resource::Nofile,
                Rlimit {
                    current,
                    maximum: Some(1024),
                },
            )
            .unwrap()
        };

        limit(Some(5));
        let mut second = server.connect();
        second.write_all(GET).unwrap();

        // Meanwhile who is connected is served, from memory.
        thread::sleep(Duration::from_millis(200));
        first.write_all(GET).unwrap();
        answer(&mut first).expect("an answer");
        limit(Some(1024));
        answer(&mut second).expect("an answer, once there are descriptors");
        server.signal();
        let (code, said) = server.end();

        assert!(
            code == Some(0) && said.contains("cannot accept connections: Too many open files"),
            "{said}"
        );
        assert_eq!(said.lines().count(), 1, "once a minute: {said}");
    }
}

#[test]
fn a_directory_that_is_gone_is_said_and_answered() {
    for style in STYLES {
        let root = std::env::temp_dir().join(format!("plainweave-gone-{}", std::process::id()));
        std::fs::create_dir_all(&root).unwrap();
        std::fs::write(root.join("f"), "here").unwrap();
        let server = Running::start_in(&root, &[style, &["--staleness", "0s"]].concat());
        let mut stream = server.connect();
        let mut ask = |status: &str| {
            stream
                .write_all(b"GET /f HTTP/1.1\r\nHost: h\r\n\r\n")
                .unwrap();
            assert!(
                answer(&mut stream).is_some_and(|head| head.contains(status)),
                "{style:?} {status}"
            );
        };

        ask("200 OK");
        std::fs::remove_dir_all(&root).unwrap();
        ask("503 ");
        ask("503 ");
        server.signal();
        let (code, said) = server.end();

        assert!(
            code == Some(0)
                && said.contains("\"/f\" is answered 503: the served directory is gone"),
            "{said}"
        );
        assert_eq!(said.lines().count(), 1, "once a minute: {said}");
    }
}

/// The client learns nothing of it, the operator does, once.
#[test]
fn a_link_that_leads_out_is_said() {
    let base = Scratch::new();
    let root = base.root().join("site");
    std::fs::create_dir_all(&root).unwrap();
    base.file("secret", "outside");
    std::fs::write(root.join("f"), "inside").unwrap();
    for (to, name) in [("../secret", "out"), ("f", "in"), ("nowhere", "dangling")] {
        std::os::unix::fs::symlink(to, root.join(name)).unwrap();
    }
    let server = Running::start_in(&root, &[]);
    let status = |path| crate::common::get(server.address, path).contains("404 Not Found");

    assert!(status("/dangling") && !status("/in"));
    assert!((0..3).all(|_| status("/out")));
    server.signal();
    let (code, said) = server.end();
    let line = "\"/out\" is answered 404: a symbolic link leads out of the served directory";
    assert!(code == Some(0) && said.contains(line), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
}

/// By a build that makes it again, and by a link that is switched: within `--staleness`, without a
/// signal and without an error once it is there; `/health` says when it is not.
#[test]
fn a_directory_that_is_replaced_is_served() {
    for style in &STYLES[..2] {
        let base = Scratch::new();
        let root = base.root().join("dist");
        let link = base.root().join("current");
        let build = |text: &str| {
            std::fs::create_dir_all(&root).unwrap();
            std::fs::write(root.join("f"), text).unwrap();
        };

        build("one");
        let flags = [*style, &["--staleness", "100ms", "--admin", "127.0.0.1:0"]].concat();
        let server = Running::start_in(&root, &flags);
        let admin = admin(&server);
        let serves = |text: &str| crate::common::get(server.address, "/f").ends_with(text);
        let health = |status: &str| crate::common::get(admin, "/health").contains(status);

        assert!(serves("one") && health("200 OK"));

        for text in ["two", "three"] {
            std::fs::remove_dir_all(&root).unwrap();
            eventually("503", || {
                serves("503 Service Unavailable\n") && health("503 ")
            });
            assert!(health("the served directory is gone"));
            build(text);
            eventually(text, || serves(text));
            assert!(health("200 OK"));
        }

        drop(server);

        std::os::unix::fs::symlink("dist", &link).unwrap();
        let server = Running::start_in(&link, &[*style, &["--staleness", "1h"]].concat());
        assert!(crate::common::get(server.address, "/f").ends_with("three"));
        std::fs::create_dir(base.root().join("next")).unwrap();
        std::fs::write(base.root().join("next/f"), "four").unwrap();
        std::os::unix::fs::symlink("next", base.root().join("new")).unwrap();
        std::fs::rename(base.root().join("new"), &link).unwrap();
        assert!(
            crate::common::get(server.address, "/f").ends_with("three"),
            "believed for an hour"
        );
        kill_process(Pid::from_child(&server.child), Signal::HUP).unwrap();
        eventually("the next release", || {
            crate::common::get(server.address, "/f").ends_with("four")
        });
        server.signal();
        let (code, said) = server.end();

        assert!(
            code == Some(0) && said.contains("SIGHUP: the directory is reopened"),
            "{said}"
        );
    }
}
