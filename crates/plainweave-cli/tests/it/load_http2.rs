//! `plainweave load http --http2`: against `plainweave web`, nginx and nghttpd, and against servers
//! that do it badly.

#![cfg(all(feature = "http2", feature = "tls"))]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::common::authority::{Authority, NOW};
use crate::scripted::child::Kept;
use crate::scripted::frames::{answer, begun, frame, goaway, http2, request, reset};
use crate::scripted::others::{free_port, nginx, started};
use crate::scripted::{Figures, drivers, load, server, silent};
use socket2::SockRef;

const NO_ERROR: u32 = 0;
const REFUSED_STREAM: u32 = 7;
const CANCEL: u32 = 8;
const ENHANCE_YOUR_CALM: u32 = 11;

/// `plainweave web` on this package's folder; its URLs over TLS and without.
fn web(authority: &Authority, more: &[&str]) -> (Kept, [String; 2]) {
    let pair = authority.certify("localhost", &["localhost", "127.0.0.1"], NOW);
    let mut command = Command::new(env!("CARGO_BIN_EXE_plainweave"));
    command.args([
        "web",
        env!("CARGO_MANIFEST_DIR"),
        "--listen",
        "127.0.0.1:0",
        "--tls-listen",
        "127.0.0.1:0",
    ]);
    let mut web = Kept::spawn(
        command
            .args(pair)
            .args(more)
            .stdout(Stdio::piped())
            .stderr(Stdio::null()),
    )
    .unwrap();
    let mut line = String::new();

    BufReader::new(web.stdout.as_mut().unwrap())
        .read_line(&mut line)
        .unwrap();
    let url = |scheme: &str| {
        let address = line
            .split_once(scheme)
            .expect(&line)
            .1
            .split([' ', '\n'])
            .next()
            .unwrap();
        format!("{scheme}{address}/")
    };

    let urls = [url("https://"), url("http://")];
    (web, urls)
}

#[test]
fn answers_come_by_tls_and_in_clear_text() {
    let authority = Authority::new();
    let (_web, urls) = web(&authority, &[]);
    let ca = authority.path("ca.pem");

    for url in &urls {
        let trust: &[&str] = if url.starts_with("https") {
            &["--ca", &ca]
        } else {
            &[]
        };

        let file = format!("{url}Cargo.toml");
        for driver in drivers() {
            for more in [
                &["-n", "90"][..],
                &["-n", "90", "--streams", "8"],
                &[
                    "-n",
                    "90",
                    "--streams",
                    "8",
                    "--rate",
                    "1000",
                    "--min-rate",
                    "0",
                ],
            ] {
                let args = [
                    "http",
                    "--http2",
                    &file,
                    "-c",
                    "3",
                    "--workers",
                    "1",
                    "--io",
                    driver,
                    "--json",
                ];
                let result = Figures::of(0, &[&args[..], more, trust].concat());
                assert_eq!(
                    (result.figure("ok"), result.figure("errors")),
                    (90.0, 0.0),
                    "{}",
                    result.0
                );
                assert_eq!(result.figure("reconnects"), 0.0, "{}", result.0);
                let handshakes = (!trust.is_empty()).then_some(3.0);

                assert_eq!(
                    result.0["figures"]["handshakes"].as_f64(),
                    handshakes,
                    "{}",
                    result.0
                );
                let bytes = std::fs::metadata(concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml"))
                    .unwrap()
                    .len() as f64;

                assert_eq!(
                    result.figure("received_bytes"),
                    90.0 * bytes,
                    "{}",
                    result.0
                );
            }
        }

        // A body of more than the windows that the protocol begins with.
        let body = authority.path("body");
        std::fs::write(&body, vec![b'x'; 200_000]).unwrap();
        let args = [
            "http",
            "--http2",
            &file,
            "--body-file",
            &body,
            "--status",
            "405",
            "-c",
            "2",
            "-n",
            "10",
            "--json",
        ];
        let result = Figures::of(0, &[&args[..], trust].concat());
        assert_eq!(
            (result.figure("ok"), result.figure("errors")),
            (10.0, 0.0),
            "{}",
            result.0
        );
        let (code, out, error) = load(
            &[
                &[
                    "http",
                    "--http2",
                    "--streams",
                    "2",
                    &format!("{url}absent"),
                    "-c",
                    "1",
                    "-n",
                    "4",
                ],
                trust,
            ]
            .concat(),
        );

        assert!(
            code == Some(1) && out.contains("2 streams each") && out.contains("status 404 4"),
            "{out}{error}"
        );
    }

    // Both servers at once; no answer is as long as is asked for.
    let args = [
        "http", "--http2", &urls[0], &urls[1], "--ca", &ca, "-c", "2", "-n", "20", "--status",
        "200",
    ];
    let result = Figures::of(
        1,
        &[
            &args[..],
            &["--status", "404", "--body-length", "7", "--json"],
        ]
        .concat(),
    );
    assert_eq!(
        (result.errors("wrong length"), result.figure("handshakes")),
        (20, 1.0),
        "{}",
        result.0
    );
}

#[test]
fn sessions_and_new_connections_are_there_too() {
    let authority = Authority::new();
    let (_web, [by_tls, _]) = web(&authority, &[]);
    let ca = authority.path("ca.pem");
    let log = authority.path("1.log");
    std::fs::write(&log, "/Cargo.toml think=0.01\n  /Cargo.toml\n").unwrap();
    let args = [
        "http",
        "--http2",
        &by_tls,
        "--sessions",
        &log,
        "--ca",
        &ca,
        "-c",
        "2",
        "-n",
        "4",
        "--json",
    ];
    let result = Figures::of(0, &args);

    assert_eq!(
        (result.figure("ok"), result.figure("errors")),
        (8.0, 0.0),
        "{}",
        result.0
    );
    let file = format!("{by_tls}Cargo.toml");
    let args = [
        "http",
        "--http2",
        &file,
        "--no-keep-alive",
        "--ca",
        &ca,
        "-c",
        "1",
        "-n",
        "5",
        "--json",
    ];
    let result = Figures::of(0, &args);

    assert_eq!(
        (result.figure("ok"), result.figure("handshakes")),
        (5.0, 5.0),
        "{}",
        result.0
    );
}

#[test]
fn a_server_without_http_2_is_named() {
    let authority = Authority::new();
    let (_web, [by_tls, plain]) = web(&authority, &["--http2", "off"]);
    for (url, kind) in [
        (by_tls, "TLS: no common protocol (ALPN)"),
        (plain, "HTTP/2: protocol broken"),
    ] {
        let args = [
            "http",
            "--http2",
            &url,
            "-c",
            "2",
            "-n",
            "4",
            "--timeout",
            "20s",
            "--json",
        ];
        let trust: &[&str] = if url.starts_with("https") {
            &["--insecure"]
        } else {
            &[]
        };

        let result = Figures::of(1, &[&args[..], trust].concat());
        assert_eq!(
            (result.figure("ok"), result.errors(kind)),
            (0.0, 4),
            "{}",
            result.0
        );
    }
}

#[test]
fn streams_are_in_progress_together_on_one_connection() {
    // It answers four requests at a time, and none before.
    let most = Arc::new(AtomicUsize::new(0));
    let connections = Arc::new(AtomicUsize::new(0));
    let seen = most.clone();
    let counted = connections.clone();
    let address = http2(move |stream, number| {
        counted.fetch_max(number + 1, Ordering::Relaxed);
        let mut waiting = Vec::new();
        while let Some(id) = request(stream) {
            waiting.push(id);
            seen.fetch_max(waiting.len(), Ordering::Relaxed);
            if waiting.len() == 4 {
                // In another order, and their parts mixed.
                let heads: Vec<u8> = waiting.iter().rev().flat_map(|id| begun(*id)).collect();
                let ends: Vec<u8> = waiting
                    .drain(..)
                    .flat_map(|id| frame(0, 1, id, b"llo"))
                    .collect();
                stream.write_all(&[heads, ends].concat()).unwrap();
            }
        }
    });

    let url = format!("http://{address}/");
    let args = [
        "http",
        "--http2",
        "--streams",
        "4",
        &url,
        "-c",
        "1",
        "-n",
        "40",
        "--body-length",
        "5",
        "--json",
    ];
    let result = Figures::of(0, &args);
    assert_eq!(
        (result.figure("ok"), &result.0["streams"]),
        (40.0, &serde_json::json!(4)),
        "{}",
        result.0
    );

    assert_eq!(
        (
            most.load(Ordering::Relaxed),
            connections.load(Ordering::Relaxed)
        ),
        (4, 1)
    );
}

#[test]
fn latency_counts_from_when_a_request_was_due() {
    // A connection that answers one request each 50 ms is asked for 40 in a second.
    let address = http2(|stream, _| {
        while let Some(id) = request(stream) {
            std::thread::sleep(Duration::from_millis(50));
            if stream.write_all(&answer(id)).is_err() {
                return;
            }
        }
    });

    let url = format!("http://{address}/");
    let args = [
        "http",
        "--http2",
        &url,
        "-c",
        "1",
        "--rate",
        "40",
        "-d",
        "1s",
        "--min-rate",
        "0",
        "--json",
    ];
    let result = Figures::of(0, &args);
    assert_eq!(result.figure("ok"), 40.0, "{}", result.0);

    assert!(
        result.figure("latency_p50_us") > 300_000.0 && result.figure("latency_max_us") > 900_000.0,
        "{}",
        result.0
    );
}

/// Runs a load of some requests, and returns what came of it.
fn asked(url: &str, code: i32, more: &[&str]) -> Figures {
    let args = ["http", "--http2", url, "--workers", "1", "--json"];
    Figures::of(code, &[&args[..], more].concat())
}

#[test]
fn requests_that_a_server_did_not_begin_with_are_repeated() {
    // It ends each connection after its third answer, and refuses what comes then.
    let leaves = http2(|stream, _| {
        let mut last = 0;
        for _ in 0..3 {
            let Some(id) = request(stream) else { return };
            (last, _) = (id, stream.write_all(&answer(id)));
        }

        let _ = stream.write_all(&goaway(last, NO_ERROR));
        while request(stream).is_some() {}
    });

    for more in [
        &["-n", "30"][..],
        &["-n", "30", "--rate", "300", "--min-rate", "0"],
    ] {
        let result = asked(
            &format!("http://{leaves}/"),
            0,
            &[&["-c", "1"], more].concat(),
        );
        assert_eq!(
            (result.figure("ok"), result.figure("errors")),
            (30.0, 0.0),
            "{}",
            result.0
        );
        assert!(
            (9.0..=10.0).contains(&result.figure("reconnects")),
            "{}",
            result.0
        );
    }

    // It refuses each second stream.
    let refuses = http2(|stream, _| {
        let mut count = 0;
        while let Some(id) = request(stream) {
            count += 1;
            let bytes = if count % 2 == 0 {
                reset(id, REFUSED_STREAM)
            } else {
                answer(id)
            };

            if stream.write_all(&bytes).is_err() {
                return;
            }
        }
    });

    let result = asked(&format!("http://{refuses}/"), 0, &["-c", "1", "-n", "9"]);
    assert_eq!(
        (result.figure("ok"), result.figure("errors")),
        (9.0, 0.0),
        "{}",
        result.0
    );
    assert_eq!(
        result.figure("reconnects"),
        0.0,
        "the connection is kept: {}",
        result.0
    );
}

#[test]
fn failures_are_counted_by_kind() {
    let each = |bytes: fn(u32) -> Vec<u8>| {
        http2(move |stream, _| {
            while let Some(id) = request(stream) {
                if stream.write_all(&bytes(id)).is_err() {
                    return;
                }
            }
        })
    };

    /// Sends this for the first request of a connection, and closes it.
    fn once(bytes: fn(u32) -> Vec<u8>) -> std::net::SocketAddr {
        http2(move |stream, _| {
            if let Some(id) = request(stream) {
                let _ = stream.write_all(&bytes(id));
                let _ = stream.shutdown(Shutdown::Write);
                while stream.read(&mut [0; 1000]).is_ok_and(|read| read > 0) {}
            }
        })
    }
    let abort = http2(|stream, _| {
        request(stream);
        SockRef::from(&*stream)
            .set_linger(Some(Duration::ZERO))
            .unwrap();
    });

    let garbage = server(|mut stream: TcpStream, _| {
        let _ = stream.write_all(b"SSH-2.0-x\r\nwhat else is there to say\r\n");
        while stream.read(&mut [0; 1000]).is_ok_and(|read| read > 0) {}
    });

    let closes = server(|mut stream: TcpStream, _| {
        let _ = stream.shutdown(Shutdown::Write);
        while stream.read(&mut [0; 1000]).is_ok_and(|read| read > 0) {}
    });

    for (address, kind) in [
        (
            each(|id| reset(id, CANCEL)),
            "HTTP/2: stream reset (CANCEL)",
        ),
        (
            each(|id| reset(id, REFUSED_STREAM)),
            "HTTP/2: stream reset (REFUSED_STREAM)",
        ),
        (
            each(|id| reset(id, 4711)),
            "HTTP/2: stream reset (unknown code)",
        ),
        (
            each(|id| [begun(id), reset(id, 2)].concat()),
            "HTTP/2: stream reset (INTERNAL_ERROR)",
        ),
        (
            once(|_| goaway(0, ENHANCE_YOUR_CALM)),
            "HTTP/2: GOAWAY (ENHANCE_YOUR_CALM)",
        ),
        (each(|_| goaway(0, NO_ERROR)), "HTTP/2: GOAWAY (NO_ERROR)"),
        // A frame that is too long, one of a stream that nobody opened, a head that is none.
        (each(|_| vec![0xff; 100]), "HTTP/2: protocol broken"),
        (
            each(|id| frame(0, 0, id + 2, b"x")),
            "HTTP/2: protocol broken",
        ),
        (
            each(|id| frame(1, 4, id, &[0xff; 9])),
            "HTTP/2: protocol broken",
        ),
        (garbage, "HTTP/2: protocol broken"),
        (once(begun), "closed within an answer"),
        (once(|_| Vec::new()), "closed without an answer"),
        (abort, "reset"),
        (closes, "closed without an answer"),
    ] {
        for more in [
            &["-c", "1", "-n", "3"][..],
            &["-c", "1", "-n", "3", "--rate", "100", "--min-rate", "0"],
        ] {
            let result = asked(&format!("http://{address}/"), 1, more);
            assert_eq!(
                (result.figure("ok"), result.errors(kind)),
                (0.0, 3),
                "{kind}: {}",
                result.0
            );
        }
    }
}

#[test]
fn silence_is_a_timeout_of_one_stream() {
    // Of two streams each, it answers the second alone.
    let half = http2(|stream, _| {
        let mut count = 0;
        while let Some(id) = request(stream) {
            count += 1;
            if count % 2 == 0 && stream.write_all(&answer(id)).is_err() {
                return;
            }
        }
    });

    let args = [
        "-c",
        "1",
        "--streams",
        "2",
        "-n",
        "4",
        "--timeout",
        "1s",
        "--max-errors",
        "1",
    ];
    let result = asked(&format!("http://{half}/"), 0, &args);
    // Timeouts end a run that only the number of requests would end.
    assert!(
        result.figure("ok") >= 1.0 && result.errors("timeout") >= 1,
        "{}",
        result.0
    );
    assert_eq!(
        result.figure("errors"),
        result.errors("timeout") as f64,
        "{}",
        result.0
    );
    assert_eq!(
        result.figure("reconnects"),
        0.0,
        "the connection is kept: {}",
        result.0
    );
    let (silent, _) = silent();
    let result = asked(
        &format!("http://{silent}/"),
        1,
        &["-c", "1", "-n", "2", "--timeout", "500ms"],
    );

    assert!(
        result.figure("ok") == 0.0 && result.errors("timeout") >= 1,
        "{}",
        result.0
    );
}

#[test]
fn what_does_not_go_together_is_wrong_usage() {
    let authority = Authority::new();
    let log = authority.path("1.log");
    std::fs::write(&log, "/\n").unwrap();

    for (args, said) in [
        (&["http", "http://h/", "--streams", "2"][..], "--http2"),
        (
            &["http", "http://h/", "--http2", "--streams", "0"],
            "1..=10000",
        ),
        (
            &[
                "http",
                "http://h/",
                "--http2",
                "--streams",
                "2",
                "--no-keep-alive",
            ],
            "leave out --streams",
        ),
        (
            &[
                "http",
                "http://h/",
                "--http2",
                "--streams",
                "2",
                "--sessions",
                &log,
            ],
            "leave out --streams",
        ),
        (
            &["http", "http://h/", "--http2", "--header", "Upgrade: x"],
            "HTTP/2 has no such field; leave it out",
        ),
    ] {
        let (code, _, error) = load(args);
        assert!(
            code == Some(2) && error.contains(said),
            "{args:?}: {code:?} {error}"
        );
    }
}

#[test]
fn nginx_answers() {
    let authority = Authority::new();
    authority.certify("fine", &["127.0.0.1"], NOW);
    let ca = authority.path("ca.pem");
    let by_tls = free_port();
    let plain = free_port();
    let listen = format!("listen 127.0.0.1:{by_tls} ssl http2; listen 127.0.0.1:{plain} http2;");
    let Some(_server) = nginx(&authority, &listen, plain) else {
        return;
    };

    for url in [
        format!("https://127.0.0.1:{by_tls}/Cargo.toml"),
        format!("http://127.0.0.1:{plain}/Cargo.toml"),
    ] {
        let trust: &[&str] = if url.starts_with("https") {
            &["--ca", &ca]
        } else {
            &[]
        };

        // It ends connections after 1000 requests, whatever is in progress.
        let result = asked(
            &url,
            0,
            &[&["-c", "2", "--streams", "16", "-n", "3000"], trust].concat(),
        );
        assert_eq!(
            (result.figure("ok"), result.figure("errors")),
            (3000.0, 0.0),
            "{}",
            result.0
        );
    }
}

#[test]
fn nghttpd_answers() {
    let port = free_port();
    let mut command = Command::new("nghttpd");
    command.args([
        "--no-tls",
        "-a",
        "127.0.0.1",
        "-d",
        env!("CARGO_MANIFEST_DIR"),
        &port.to_string(),
    ]);
    let Some(_server) = started(command, port) else {
        return;
    };
    let url = format!("http://127.0.0.1:{port}/Cargo.toml");
    let result = asked(&url, 0, &["-c", "2", "--streams", "16", "-n", "300"]);

    assert_eq!(
        (result.figure("ok"), result.figure("errors")),
        (300.0, 0.0),
        "{}",
        result.0
    );
}
