//! Each limit's flag does what it says: it cuts off who is over it, long before the default would,
//! and nobody else.

use std::fs;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::thread;
use std::time::Duration;

use crate::common::scratch::Scratch;
use crate::common::{Running, admin, ask, eventually, figure, rest};

const DRIVERS: [&str; 2] = ["epoll", "uring"];
const POST: &[u8] = b"POST /f HTTP/1.1\r\nHost: h\r\nContent-Length: 30\r\n\r\n";
const GET: &[u8] = b"GET /f HTTP/1.1\r\nHost: h\r\n\r\n";

/// A directory to serve.
fn site() -> Scratch {
    let site = Scratch::new();
    site.file("f", "here");
    site.file("f.gz", "packed");

    // More than both ends' buffers hold; a hole.
    fs::File::create(site.root().join("large"))
        .unwrap()
        .set_len(256 << 20)
        .unwrap();
    site
}

/// What a client sees that sends these pieces, with pauses, and reads to the end. A client's own
/// timeout is shorter than any default, so that an end is the flag's doing.
fn seen(server: &Running, pieces: &[&[u8]], pause: Duration) -> String {
    let mut stream = server.connect();
    for piece in pieces {
        // Who was cut off already sees it below.
        let _ = stream.write_all(piece);
        thread::sleep(pause);
    }

    let mut text = Vec::new();
    match stream.read_to_end(&mut text) {
        Err(error) if error.kind() != std::io::ErrorKind::ConnectionReset => {
            panic!("{error} after {text:?}")
        }
        _ => String::from_utf8(text).unwrap(),
    }
}

#[test]
fn who_is_silent_is_cut_off() {
    let site = site();
    for driver in DRIVERS {
        for (flag, sent, statuses) in [
            ("--header-timeout", &b"GET /f HTTP"[..], &["408"][..]),
            ("--header-timeout", b"", &[]),
            ("--idle-timeout", GET, &["200"]),
            ("--body-timeout", POST, &["405"]),
        ] {
            for style in [&[][..], &["--architecture", "fibers"]] {
                let server = Running::start_in(
                    site.root(),
                    &[&["--io", driver, flag, "200ms"], style].concat(),
                );
                let text = seen(&server, &[sent], Duration::ZERO);
                let got: Vec<_> = text
                    .split("HTTP/1.1 ")
                    .skip(1)
                    .map(|answer| &answer[..3])
                    .collect();
                assert_eq!(got, statuses, "{driver} {flag}: {text}");
            }
        }
    }
}

#[test]
fn a_client_that_reads_nothing_is_cut_off() {
    let site = site();
    for driver in DRIVERS {
        let flags = [
            "--io",
            driver,
            "--write-timeout",
            "400ms",
            "--admin",
            "127.0.0.1:0",
        ];
        let server = Running::start_in(site.root(), &flags);
        let admin = admin(&server);

        // Also one that has nothing more to say: the state of its socket must not pass for room to
        // send.
        for (cuts, half_closed) in [(1.0, false), (2.0, true)] {
            let used = server.cpu_time();
            let mut deaf = server.connect();
            deaf.write_all(b"GET /large HTTP/1.1\r\nHost: h\r\n\r\n")
                .unwrap();
            if half_closed {
                deaf.shutdown(Shutdown::Write).unwrap();
            }
            let cut = "plainweave_http_errors_total{kind=\"timeout\"}";

            eventually(cut, || figure(admin, cut) == cuts);
            eventually("no connection", || {
                figure(admin, "plainweave_connections") == 0.0
            });
            let used = server.cpu_time() - used;

            assert!(
                used < Duration::from_millis(250),
                "{driver}, {half_closed}: waiting took {used:?} of CPU"
            );
        }
    }
}

/// Never silent for as long as the timeout, and slower than the rate.
#[test]
fn who_is_slow_is_cut_off_by_the_rate_alone() {
    let site = site();
    thread::scope(|scope| {
        for driver in DRIVERS {
            for (rate, statuses) in [("1000000", &["405"][..]), ("0", &["405", "200"])] {
                let root = site.root();
                scope.spawn(move || {
                    let flags = [
                        "--io",
                        driver,
                        "--body-timeout",
                        "2s",
                        "--min-rate",
                        rate,
                        "--max-requests",
                        "2",
                    ];
                    let server = Running::start_in(root, &flags);
                    let bytes: Vec<&[u8]> = vec![b"x"; 30];
                    let text = seen(
                        &server,
                        &[&[POST], &bytes[..], &[GET]].concat(),
                        Duration::from_millis(100),
                    );
                    let got: Vec<_> = text
                        .split("HTTP/1.1 ")
                        .skip(1)
                        .map(|answer| &answer[..3])
                        .collect();

                    assert_eq!(got, statuses, "{driver} {rate}: {text}");
                });
            }
        }
    });
}

#[test]
fn a_connection_has_its_requests() {
    let site = site();
    for driver in DRIVERS {
        let server = Running::start_in(site.root(), &["--io", driver, "--max-requests", "2"]);
        let mut stream: TcpStream = server.connect();
        stream.write_all(&GET.repeat(3)).unwrap();
        let mut text = rest(stream);
        assert_eq!(
            (
                text.matches("200 OK").count(),
                text.matches("Connection: close").count()
            ),
            (2, 1),
            "{text}"
        );
        text.truncate(text.find("Connection: close").unwrap());
        assert_eq!(
            text.matches("200 OK").count(),
            2,
            "the second one is the last"
        );
    }
}

/// An upload that is refused is read to its end, so that a client that writes all of it before it
/// reads finds the refusal: with a reset instead it may find nothing.
#[test]
fn refused_uploads_get_their_status() {
    const LEN: usize = 20 << 20;
    let site = site();
    let head = format!("PUT /f HTTP/1.1\r\nHost: h\r\nContent-Length: {LEN}\r\n\r\n");
    let block = vec![b'x'; 1 << 16];

    for driver in DRIVERS {
        let server = Running::start_in(site.root(), &["--io", driver]);
        for upload in 0..30 {
            let mut stream = server.connect();
            stream.write_all(head.as_bytes()).unwrap();
            for _ in 0..LEN / block.len() {
                let written = stream.write_all(&block);
                written.unwrap_or_else(|error| panic!("upload {upload}, {driver}: {error}"));
            }

            let text = rest(stream);
            assert!(
                text.starts_with("HTTP/1.1 413 "),
                "upload {upload}, {driver}: {text}"
            );
        }
    }
}

#[test]
fn twins_are_sent_where_they_are_asked_for() {
    let site = site();
    let request =
        "GET /f HTTP/1.1\r\nHost: h\r\nAccept-Encoding: gzip\r\nConnection: close\r\n\r\n";
    for (flags, body) in [(&["--precompressed"][..], "packed"), (&[], "here")] {
        let server = Running::start_in(site.root(), flags);
        let text = ask(server.address, request);
        assert_eq!(
            text.contains("Content-Encoding: gzip\r\n"),
            body == "packed",
            "{text}"
        );
        assert!(text.ends_with(&format!("\r\n\r\n{body}")), "{text}");
    }
}

/// Bytes that the kernel holds for each client of a server and was not yet told they arrived.
fn unacknowledged(server: &Running) -> Vec<u64> {
    let table = fs::read_to_string("/proc/net/tcp").unwrap();
    let ours = format!(":{:04X}", server.address.port());
    let rows = table
        .lines()
        .skip(1)
        .map(|line| line.split_whitespace().collect::<Vec<_>>());
    let established = rows.filter(|row| row[1].ends_with(&ours) && row[3] == "01");

    established
        .map(|row| u64::from_str_radix(row[4].split(':').next().unwrap(), 16).unwrap())
        .collect()
}

#[test]
fn of_a_crowd_that_does_not_read_each_takes_little_memory() {
    let site = site();
    site.file("f", vec![b'x'; 2 << 20]);
    for driver in DRIVERS {
        let server = Running::start_in(site.root(), &["--io", driver]);
        let client = |_| {
            let mut stream = server.connect();
            stream.write_all(GET).unwrap();
            stream
        };

        let mut crowd: Vec<TcpStream> = (0..300).map(client).collect();
        eventually("answers under way, large ones to the first 256", || {
            let held = unacknowledged(&server);
            held.len() == 300
                && !held.contains(&0)
                && held.iter().filter(|bytes| **bytes > 256 << 10).count() == 256
        });
        // A small part is no smaller answer.
        let mut last = crowd.pop().unwrap();
        drop(crowd);
        let mut answer = vec![0; 2 << 20];

        last.read_exact(&mut answer).unwrap();
    }
}
