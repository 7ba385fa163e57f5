//! `plainweave load` against servers that do as a script says: well, badly, slowly, not at all.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::scripted::{Figures, OK, drivers, load, server};
use serde_json::Value;

/// Runs `load http` on each driver there is; the result of each.
fn on_drivers(address: SocketAddr, code: i32, args: &[&str]) -> Vec<Figures> {
    let url = format!("http://{address}/");
    let with = |driver| {
        Figures::of(
            code,
            &[
                &["http", &url, "--json", "--io", driver, "--workers", "1"],
                args,
            ]
            .concat(),
        )
    };
    drivers().iter().map(|driver| with(*driver)).collect()
}

/// Reads a request's head; `None` at the end of the stream.
fn request(stream: &mut TcpStream) -> Option<String> {
    let mut text = Vec::new();
    let mut byte = [0];
    while !text.ends_with(b"\r\n\r\n") {
        match stream.read(&mut byte) {
            Ok(1) => text.push(byte[0]),
            Ok(_) => return None,
            Err(error) if error.kind() == ErrorKind::ConnectionReset => return None,
            Err(error) => panic!("{error}"),
        }
    }

    Some(String::from_utf8(text).unwrap())
}

/// Answers every request with these bytes.
fn always(answer: &'static str) -> SocketAddr {
    server(
        move |mut stream, _| {
            while request(&mut stream).is_some() && stream.write_all(answer.as_bytes()).is_ok() {}
        },
    )
}

#[test]
fn a_closed_loop_counts_answers() {
    let address = always(OK);
    for result in on_drivers(address, 0, &["-c", "4", "-n", "100"]) {
        assert_eq!(
            (
                result.figure("ok"),
                result.figure("errors"),
                result.figure("requests")
            ),
            (100.0, 0.0, 100.0)
        );
        assert_eq!(result.figure("received_bytes"), (100 * OK.len()) as f64);
        assert_eq!(result.0["loop"], "closed");
        let p50 = result.figure("latency_p50_us");
        let max = result.figure("latency_max_us");

        assert!(p50 > 1.0 && max >= p50 && max < 60e6, "{p50} {max}");
    }
}

#[test]
fn chunked_bodies_are_read_to_their_end() {
    let address = always(
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n",
    );
    for result in on_drivers(address, 0, &["-c", "2", "-n", "20", "--body-length", "5"]) {
        assert_eq!((result.figure("ok"), result.figure("errors")), (20.0, 0.0));
    }
}

#[test]
fn large_bodies_are_read_to_their_end() {
    let address = server(|mut stream, _| {
        while request(&mut stream).is_some() {
            let answer = [
                b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n".to_vec(),
                vec![7; 1_000_000],
            ]
            .concat();
            if stream.write_all(&answer).is_err() {
                return;
            }
        }
    });

    for result in on_drivers(
        address,
        0,
        &["-c", "2", "-n", "10", "--body-length", "1000000"],
    ) {
        assert_eq!((result.figure("ok"), result.figure("errors")), (10.0, 0.0));
    }
}

#[test]
fn a_body_may_end_with_the_connection() {
    let address = server(|mut stream, _| {
        if request(&mut stream).is_some() {
            stream.write_all(b"HTTP/1.1 200 OK\r\n\r\nhello").unwrap();
        }
    });

    for result in on_drivers(address, 0, &["-c", "2", "-n", "10", "--body-length", "5"]) {
        assert_eq!(
            (
                result.figure("ok"),
                result.figure("errors"),
                result.figure("reconnects")
            ),
            (10.0, 0.0, 8.0)
        );
    }
}

#[test]
fn a_connection_a_request() {
    let address = server(|mut stream, number| {
        if let Some(text) = request(&mut stream) {
            assert!(
                number > 0 && text.contains("\r\nConnection: close\r\n"),
                "{number} {text}"
            );
            stream.write_all(OK.as_bytes()).unwrap();
            assert_eq!(request(&mut stream), None);
        }
    });

    for result in on_drivers(address, 0, &["-c", "2", "-n", "10", "--no-keep-alive"]) {
        assert_eq!(
            (
                result.figure("ok"),
                result.figure("errors"),
                result.figure("reconnects")
            ),
            (10.0, 0.0, 10.0)
        );
    }
}

#[test]
fn an_idle_connection_that_was_given_up_is_no_error() {
    // Every connection ends silently after one answer.
    let address = server(|mut stream, _| {
        if request(&mut stream).is_some() {
            stream.write_all(OK.as_bytes()).unwrap();
        }
    });

    for result in on_drivers(address, 0, &["-c", "1", "-n", "5"]) {
        assert_eq!(
            (
                result.figure("ok"),
                result.figure("errors"),
                result.figure("reconnects")
            ),
            (5.0, 0.0, 4.0)
        );
    }
}

#[test]
fn urls_and_fields_are_sent_as_given() {
    let address = server(|mut stream, _| {
        for path in ["/a", "/b?c", "/a"] {
            let Some(text) = request(&mut stream) else {
                return;
            };
            assert!(
                text.starts_with(&format!("GET {path} HTTP/1.1\r\nHost: 127.0.0.1:")),
                "{text}"
            );
            assert!(text.ends_with("\r\nX-One: 1\r\nX-Two: 2\r\n\r\n"), "{text}");
            stream.write_all(OK.as_bytes()).unwrap();
        }
    });

    let list = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("urls.txt");
    std::fs::write(&list, format!("# a list\n\nhttp://{address}/b?c\n")).unwrap();
    let url = format!("http://{address}/a");
    let args = [
        "http",
        &url,
        "--urls",
        list.to_str().unwrap(),
        "--header",
        "X-One: 1",
        "--header",
        "X-Two:2",
    ];
    let result = Figures::of(0, &[&args[..], &["-c", "1", "-n", "3", "--json"]].concat());

    assert_eq!((result.figure("ok"), result.figure("errors")), (3.0, 0.0));
}

#[test]
fn bodies_are_sent_whole() {
    let body = "x".repeat(100_000);
    let expected = body.clone();
    let address = server(move |mut stream, _| {
        while let Some(text) = request(&mut stream) {
            let fields = "\r\nX-A: 1\r\nX-B: 2\r\nX-C: 3\r\nContent-Length: 100000\r\n\r\n";
            assert!(
                text.starts_with("PATCH /item HTTP/1.1\r\n") && text.ends_with(fields),
                "{text}"
            );
            let mut got = vec![0; expected.len()];
            stream.read_exact(&mut got).unwrap();
            assert!(got == expected.as_bytes());
            stream.write_all(OK.as_bytes()).unwrap();
        }
    });

    let dir = std::path::Path::new(env!("CARGO_TARGET_TMPDIR"));
    let file = dir.join("body");
    let fields = dir.join("fields");
    std::fs::write(&file, body).unwrap();
    std::fs::write(&fields, "# fields\nX-A: 1\n\nX-B:2\n").unwrap();
    let url = format!("http://{address}/item");
    let files = [
        "--body-file",
        file.to_str().unwrap(),
        "--header-file",
        fields.to_str().unwrap(),
    ];
    let args = [
        "http", &url, "--method", "PATCH", "--header", "X-C: 3", "-c", "2", "-n", "6", "--json",
    ];
    let result = Figures::of(0, &[&args[..], &files].concat());

    assert_eq!(
        (
            result.figure("ok"),
            result.0["answers_by_status"]["200"].as_u64()
        ),
        (6.0, Some(6))
    );
}

#[test]
fn several_servers_get_their_own_urls() {
    let seen: Vec<_> = (0..2).map(|_| Arc::new(Mutex::new(Vec::new()))).collect();
    let servers = seen.iter().map(|seen| {
        let seen = seen.clone();
        server(move |mut stream, _| {
            while let Some(text) = request(&mut stream) {
                seen.lock()
                    .unwrap()
                    .push(text.split(' ').nth(1).unwrap().to_owned());
                stream.write_all(OK.as_bytes()).unwrap();
            }
        })
    });

    let servers: Vec<_> = servers.collect();
    let urls = [(0, "a"), (1, "b"), (0, "c")]
        .map(|(server, path)| format!("http://{}/{path}", servers[server]));
    let args = [
        "http",
        &urls[0],
        &urls[1],
        &urls[2],
        "-c",
        "2",
        "-n",
        "40",
        "--rate",
        "200",
        "--workers",
        "1",
    ];
    let result = Figures::of(0, &[&args[..], &["--json", "--min-rate", "0"]].concat());
    assert_eq!(result.figure("ok"), 40.0);
    let seen: Vec<_> = seen
        .iter()
        .map(|seen| seen.lock().unwrap().clone())
        .collect();

    assert!(seen[0].len() + seen[1].len() == 40 && !seen[1].is_empty());
    assert!(
        seen[0]
            .iter()
            .enumerate()
            .all(|(n, path)| path == if n % 2 == 0 { "/a" } else { "/c" }),
        "{seen:?}"
    );
    assert!(seen[1].iter().all(|path| path == "/b"), "{seen:?}");
}

#[test]
fn failures_are_counted_by_kind() {
    for (answer, args, kind) in [
        (
            "HTTP/1.1 503 No\r\nContent-Length: 0\r\n\r\n",
            &[][..],
            "status 503",
        ),
        (OK, &["--status", "404"], "status 200"),
        (OK, &["--body-length", "6"], "wrong length"),
        ("SSH-2.0-OpenSSH_9.2\r\n", &[], "garbage"),
        (
            "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nxyz",
            &[],
            "garbage",
        ),
        (
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
            &[],
            "garbage",
        ),
    ] {
        for result in on_drivers(always(answer), 1, &[&["-c", "2", "-n", "6"], args].concat()) {
            assert_eq!(
                (result.figure("ok"), result.errors(kind)),
                (0.0, 6),
                "{kind}: {}",
                result.0
            );
        }
    }
}

/// One in ten is not found.
#[test]
fn too_many_errors_fail_a_run() {
    let address = server(|mut stream, _| {
        for number in 1.. {
            let missing = "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n";
            let answer = if number % 10 == 0 { missing } else { OK };
            if request(&mut stream).is_none() || stream.write_all(answer.as_bytes()).is_err() {
                return;
            }
        }
    });

    let url = format!("http://{address}/");
    for (allowed, expected) in [
        (&[][..], 1),
        (&["--max-errors", "0.09"], 1),
        (&["--max-errors", "0.1"], 0),
    ] {
        let (code, out, error) = load(&[&["http", &url, "-c", "1", "-n", "20"], allowed].concat());
        assert_eq!(code, Some(expected), "{allowed:?}: {error}");
        assert!(out.contains("errors    2: status 404 2"), "{out}");
        assert_eq!(
            error.contains("10.0 % of the requests failed"),
            expected == 1,
            "{error}"
        );
    }
}

#[test]
fn peers_that_vanish_are_counted_by_kind() {
    // Closed before an answer, within a head, within a body; reset.
    for (answer, reset, kind) in [
        ("", false, "closed without an answer"),
        ("HTTP/1.1 2", false, "closed within an answer"),
        (
            "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhel",
            false,
            "closed within an answer",
        ),
        ("", true, "reset"),
    ] {
        let address = server(move |mut stream, _| {
            if reset {
                // Closing with unread input resets.
                let _ = stream.peek(&mut [0]);
            } else if request(&mut stream).is_some() {
                stream.write_all(answer.as_bytes()).unwrap();
            }
        });

        for result in on_drivers(address, 1, &["-c", "2", "-n", "4"]) {
            assert_eq!(
                (result.figure("ok"), result.errors(kind)),
                (0.0, 4),
                "{kind}: {}",
                result.0
            );
        }
    }
}

#[test]
fn silence_is_a_time_out() {
    let address = server(|mut stream, _| while request(&mut stream).is_some() {});
    for result in on_drivers(
        address,
        1,
        &["-c", "3", "-d", "200ms", "--timeout", "300ms"],
    ) {
        assert_eq!(
            (result.figure("ok"), result.errors("timeout")),
            (0.0, 3),
            "{}",
            result.0
        );
    }
}

#[test]
fn an_answer_that_never_ends_is_a_time_out() {
    // A byte now and then keeps the connection alive, and not the request.
    let address = server(|mut stream, _| {
        if request(&mut stream).is_some() {
            while stream.write_all(b"H").is_ok() {
                std::thread::sleep(Duration::from_millis(20));
            }
        }
    });

    for result in on_drivers(address, 1, &["-c", "1", "-n", "1", "--timeout", "300ms"]) {
        // Both are right: the bytes that came by then are no head.
        assert_eq!(
            result.errors("timeout") + result.errors("garbage"),
            1,
            "{}",
            result.0
        );
    }
}

#[test]
fn a_target_that_is_down_is_said_at_once() {
    let address = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let (code, out, error) = load(&["http", &format!("http://{address}/")]);
    assert_eq!((code, out.as_str()), (Some(3), ""));
    assert!(
        error.contains("cannot reach") && error.contains("is the server running"),
        "{error}"
    );
}

#[test]
fn a_target_that_goes_away_ends_a_run_of_so_many_requests() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        drop(listener.accept().unwrap());
        let (mut stream, _) = listener.accept().unwrap();
        request(&mut stream).unwrap();
        drop(listener);
        stream.write_all(OK.as_bytes()).unwrap();
    });
    let url = format!("http://{address}/");
    let result = Figures::of(
        1,
        &[
            "http",
            &url,
            "-c",
            "1",
            "-n",
            "1000000",
            "--timeout",
            "300ms",
            "--json",
        ],
    );

    assert!(
        result.figure("ok") == 1.0 && result.errors("connection refused") > 1,
        "{}",
        result.0
    );
}

#[test]
fn a_server_that_was_away_gets_its_connections_back() {
    // The first closes its connection after five answers, and three more at once; then it is there
    // again.
    let seen: Vec<_> = (0..2).map(|_| Arc::new(AtomicUsize::new(0))).collect();
    let servers = [0, 1].map(|which| {
        let seen = seen[which].clone();
        server(move |mut stream, number| {
            let answers = match number {
                1 if which == 0 => 5,
                2..=4 if which == 0 => 0,
                _ => usize::MAX,
            };

            for _ in 0..answers {
                if request(&mut stream).is_none() || stream.write_all(OK.as_bytes()).is_err() {
                    return;
                }
                seen.fetch_add(1, Ordering::Relaxed);
            }
        })
    });

    let urls = servers.map(|address| format!("http://{address}/"));
    let args = [
        "http",
        &urls[0],
        &urls[1],
        "-c",
        "2",
        "--rate",
        "200",
        "-n",
        "200",
        "--workers",
        "1",
        "--json",
    ];
    let result = Figures::of(
        0,
        &[&args[..], &["--max-errors", "0.1", "--min-rate", "0"]].concat(),
    );
    let seen = seen[0].load(Ordering::Relaxed);
    assert!(
        seen > 20 && result.figure("errors") == 3.0,
        "{seen}: {}",
        result.0
    );
    assert_eq!(result.figure("reconnects"), 4.0, "{}", result.0);
}

/// A number of requests ends a run when no server answers any more, not when one of two is gone.
#[test]
fn a_server_that_is_gone_leaves_the_requests_to_the_others() {
    let gone = {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        std::thread::spawn(move || {
            // The probe, and the connection.
            let kept: Vec<_> = (0..2).map(|_| listener.accept().unwrap()).collect();
            drop((listener, kept));
        });
        address
    };

    let there =
        server(
            |mut stream, _| {
                while request(&mut stream).is_some() && stream.write_all(OK.as_bytes()).is_ok() {}
            },
        );
    let urls = [gone, there].map(|address| format!("http://{address}/"));
    let args = [
        "http",
        &urls[0],
        &urls[1],
        "-c",
        "2",
        "--rate",
        "200",
        "-n",
        "400",
        "--timeout",
        "200ms",
    ];
    let more = [
        "--workers",
        "1",
        "--json",
        "--max-errors",
        "0.5",
        "--min-rate",
        "0",
    ];
    let result = Figures::of(0, &[&args[..], &more].concat());

    assert!(result.figure("ok") >= 200.0, "{}", result.0);
}

#[test]
fn a_server_that_is_down_is_tried_later_and_later() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        // The probe, and the connections.
        let kept: Vec<_> = (0..3).map(|_| listener.accept().unwrap()).collect();
        drop(listener);
        drop(kept);
    });
    let url = format!("http://{address}/");
    let args = [
        "http",
        &url,
        "-c",
        "2",
        "--rate",
        "500",
        "-d",
        "1s",
        "--timeout",
        "300ms",
        "--workers",
        "1",
        "--json",
    ];
    let result = Figures::of(1, &args);

    // Requests fail when they are due, and seldom by an attempt: 10, 20, 40 ... ms after each
    // other.
    assert!(result.errors("connection refused") > 100, "{}", result.0);
    assert!(
        (1.0..=20.0).contains(&result.figure("failed_connects")),
        "{}",
        result.0
    );
}

#[test]
fn an_open_loop_leaves_nothing_out() {
    // One connection, 100 requests a second; the 50th answer takes a second. A loop that waited for
    // its answers would see one slow request. Here about 100 queue behind it, the last of which
    // hardly waits: half of the 200 requests are slow, and their waits are spread evenly from 1 s
    // down to 0.
    let address = server(|mut stream, _| {
        for number in 0.. {
            if request(&mut stream).is_none() {
                return;
            }
            if number == 50 {
                std::thread::sleep(Duration::from_secs(1));
            }
            stream.write_all(OK.as_bytes()).unwrap();
        }
    });

    for result in on_drivers(
        address,
        0,
        &["-c", "1", "--rate", "100", "-d", "2s", "--min-rate", "0"],
    ) {
        assert_eq!((result.figure("ok"), result.figure("errors")), (200.0, 0.0));
        // Lower bounds only: a busy machine makes waits longer.
        for (name, at_least) in [
            ("max", 1e6),
            ("p99", 0.95e6),
            ("p90", 0.75e6),
            ("p75", 0.45e6),
        ] {
            let waited = result.figure(&format!("latency_{name}_us"));
            assert!(
                waited >= at_least,
                "{name}: {waited} us, and {at_least} us were waited: {}",
                result.0
            );
        }
        assert_eq!(result.0["loop"], "open, constant");
    }
}

#[test]
fn what_never_had_its_turn_is_a_time_out() {
    // The only connection is never answered: what is due meanwhile runs out of time too, and is not
    // forgotten.
    let address = server(|mut stream, _| while request(&mut stream).is_some() {});
    let args = [
        "-c",
        "1",
        "--rate",
        "100",
        "-d",
        "500ms",
        "--timeout",
        "200ms",
        "--arrivals",
        "constant",
    ];
    for result in on_drivers(address, 1, &args) {
        assert_eq!(
            (result.figure("ok"), result.errors("timeout")),
            (0.0, 50),
            "{}",
            result.0
        );
    }
}

#[test]
fn a_warm_up_is_not_counted() {
    let address = always(OK);
    for result in on_drivers(
        address,
        0,
        &[
            "-c",
            "1",
            "--rate",
            "100",
            "-d",
            "300ms",
            "--warm-up",
            "200ms",
            "--min-rate",
            "0",
        ],
    ) {
        assert_eq!((result.figure("ok"), result.figure("errors")), (30.0, 0.0));
        assert_eq!(result.figure("elapsed_seconds"), 0.3);
        let since_1970 = std::time::UNIX_EPOCH
            .elapsed()
            .expect("later")
            .as_secs_f64();
        assert!((since_1970 - result.figure("began_seconds")).abs() < 600.0);
    }
}

#[test]
fn results_are_written_where_asked() {
    let address = always(OK);
    let dir = std::path::Path::new(env!("CARGO_TARGET_TMPDIR"));
    let csv = dir.join("load.csv");
    let json = dir.join("load.json");
    let args = ["-c", "3", "-n", "30", "--workers", "2"];
    let url = format!("http://{address}/");

    // What follows a bare --json is no file.
    let result = Figures::of(0, &[&["http", "--json"][..], &args, &[&url]].concat());
    assert_eq!(result.figure("ok"), 30.0);
    let into = format!("--json={}", json.display());
    let files = ["--csv", csv.to_str().unwrap(), &into];
    let (code, out, error) = load(&[&["http", &url][..], &args, &files].concat());

    assert_eq!(
        (code, error.as_str()),
        (Some(0), ""),
        "no progress line without a terminal"
    );

    for said in [
        "closed loop",
        "3 connections",
        "2 workers",
        "answers   30",
        "errors    0: none",
        "p99 ",
        "CPU",
    ] {
        assert!(out.contains(said), "{said}: {out}");
    }

    let csv = std::fs::read_to_string(csv).unwrap();
    assert!(
        csv.starts_with("metric,unit,value\n") && csv.contains("\nok,1,30\n"),
        "{csv}"
    );
    let json: Value = serde_json::from_str(&std::fs::read_to_string(json).unwrap()).unwrap();
    assert_eq!(json["figures"]["ok"], 30);
}

#[test]
fn wrong_usage_is_told_apart() {
    for (args, said) in [
        (&["http"][..], "URL"),
        (&["http", "http://h/", "--rate", "0"], "requests a second"),
        (&["http", "http://h/", "--arrivals", "poisson"], "--rate"),
        (
            &["http", "http://h/", "--connections", "0"],
            "--connections",
        ),
        (
            &["http", "http://h/", "-n", "1", "--warm-up", "1s"],
            "--duration",
        ),
        (&["http", "http://h/", "--frobnicate"], "--frobnicate"),
        (
            &["http", "http://h/", "--rate", "1", "--arrivals", "nonsense"],
            "constant or poisson",
        ),
        (&["cache"], "HOST:PORT"),
        (&["cache", "h:port"], "HOST:PORT"),
        (&["cache", "h", "--set-ratio", "2"], "0 to 1"),
        (&["cache", "h", "--value-size", "normal:1"], "MEAN,SD"),
    ] {
        let (code, _, error) = load(args);
        assert!(
            code == Some(2) && error.contains(said),
            "{args:?}: {code:?} {error}"
        );
    }

    let (code, _, error) = load(&["http", "http://127.0.0.1/", "--connections", "100000000"]);
    assert!(
        code == Some(3) && error.contains("ulimit -n"),
        "{code:?} {error}"
    );
}
