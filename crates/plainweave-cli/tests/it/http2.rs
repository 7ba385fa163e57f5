//! `plainweave web` over HTTP/2, with curl, h2load and h2spec as its clients.

#![cfg(all(feature = "http2", feature = "tls"))]

use crate::common::scratch::Scratch;
use crate::common::skip;
use std::io::{self, Read, Write};
use std::path::PathBuf;
use std::process::{Command, Output};
use std::{env, fs};

use crate::common::{Running, admin, child, eventually, figure};
use rcgen::{CertifiedKey, generate_simple_self_signed};

/// Serves a directory, over TLS and without.
fn serve(scratch: &Scratch, more: &[&str]) -> Running {
    let CertifiedKey { cert, signing_key } =
        generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let chain = scratch.path("cert.pem");
    let key = scratch.path("key.pem");
    fs::write(&chain, cert.pem()).unwrap();
    fs::write(&key, signing_key.serialize_pem()).unwrap();
    let flags = [
        "--tls-cert",
        &chain,
        "--tls-key",
        &key,
        "--tls-listen",
        "127.0.0.1:0",
    ];

    Running::start_in(scratch.root(), &[&flags, more].concat())
}

/// Where a server speaks TLS.
fn by_tls(server: &Running) -> String {
    let address = server
        .line
        .split_once("https://")
        .expect(&server.line)
        .1
        .split(' ')
        .next()
        .unwrap();
    format!("https://{address}")
}

/// Runs a program; `None`, with a word, if it is not installed.
fn run(program: &str, args: &[&str]) -> Option<Output> {
    let found = child::output(Command::new(program).args(args)).ok();
    if found.is_none() {
        skip::skip(&format!("{program} is not installed"));
    }
    found
}

/// curl's standard output, which includes heads; `None` if curl is not there, or not over HTTP/2.
fn curl(args: &[&str]) -> Option<String> {
    if !String::from_utf8_lossy(&run("curl", &["--version"])?.stdout).contains("HTTP2") {
        skip::skip("this curl has no HTTP/2");
        return None;
    }

    let out = run("curl", &[&["-ksSi"], args].concat())?;
    assert!(
        out.status.success(),
        "{args:?}: {}",
        String::from_utf8_lossy(&out.stderr)
    );
    Some(String::from_utf8_lossy(&out.stdout).into_owned())
}

const IO: [&str; 2] = ["--io=epoll", "--io=uring"];

#[test]
fn curl_is_served_as_by_http_1() {
    let scratch = Scratch::new();
    let log = scratch.path("log");
    scratch.file("page.html", "0123456789");
    scratch.file("page.html.gz", "gz");

    for io in IO {
        let server = serve(
            &scratch,
            &[io, "--precompressed", "--access-log", &log, "--hsts", "60"],
        );
        let plain = format!("http://{}", server.address);
        for (version, base) in [
            ("--http2-prior-knowledge", plain),
            ("--http2", by_tls(&server)),
        ] {
            let url = format!("{base}/page.html");
            let Some(answer) = curl(&[version, &url]) else {
                return;
            };
            assert!(
                answer.starts_with("HTTP/2 200") && answer.ends_with("\r\n\r\n0123456789"),
                "{answer}"
            );
            assert!(
                answer.contains("content-type: text/html") && !answer.contains("connection:"),
                "{answer}"
            );
            assert_eq!(
                answer.contains("strict-transport-security: max-age=60"),
                base.starts_with("https"),
                "{answer}"
            );
            let etag = answer
                .split_once("etag: ")
                .unwrap()
                .1
                .split_once('\r')
                .unwrap()
                .0;
            let ask = |args: &[&str]| curl(&[&[version, &url], args].concat()).unwrap();
            let answer = ask(&["-H", "Range: bytes=2-4"]);

            assert!(
                answer.starts_with("HTTP/2 206") && answer.ends_with("\r\n\r\n234"),
                "{answer}"
            );
            assert!(answer.contains("content-range: bytes 2-4/10"), "{answer}");
            assert!(ask(&["-H", "Range: bytes=20-"]).starts_with("HTTP/2 416"));
            assert!(ask(&["-H", &format!("If-None-Match: {etag}")]).starts_with("HTTP/2 304"));
            let answer = ask(&["-H", "Accept-Encoding: gzip"]);

            assert!(
                answer.contains("content-encoding: gzip") && answer.ends_with("\r\n\r\ngz"),
                "{answer}"
            );
            let answer = ask(&["-I"]);

            assert!(
                answer.contains("content-length: 10") && answer.ends_with("\r\n\r\n"),
                "{answer}"
            );
            assert!(ask(&["-X", "DELETE"]).starts_with("HTTP/2 405"));
            // Nobody reads what it sends, which is no failure of the request.
            assert!(ask(&["-d", "a=b"]).starts_with("HTTP/2 405"));
            assert!(
                curl(&[version, &format!("{base}/absent")])
                    .unwrap()
                    .starts_with("HTTP/2 404")
            );
        }

        server.signal();
        assert_eq!(server.end(), (Some(0), String::new()));
        let log = fs::read_to_string(&log).unwrap();
        assert!(log.contains("\"GET /page.html HTTP/2.0\" 200 10 "), "{log}");
    }
}

/// More than windows, buffers and sockets hold, many at once, on few connections.
#[test]
fn large_files_arrive_whole() {
    let scratch = Scratch::new();
    let bytes: Vec<u8> = (0..5_000_001_u32).map(|n| (n % 251) as u8).collect();
    scratch.file("large", &bytes);

    for io in IO {
        let server = serve(&scratch, &[io]);
        let mut args = vec![
            "-ksS".to_owned(),
            "--http2".to_owned(),
            "--parallel".to_owned(),
        ];
        for n in 0..4 {
            args.extend([
                "-o".to_owned(),
                scratch.path(&format!("got{n}")),
                format!("{}/large", by_tls(&server)),
            ]);
        }

        let Some(out) = run("curl", &args.iter().map(String::as_str).collect::<Vec<_>>()) else {
            return;
        };
        assert!(
            out.status.success(),
            "{}",
            String::from_utf8_lossy(&out.stderr)
        );
        for n in 0..4 {
            assert!(
                fs::read(scratch.path(&format!("got{n}"))).unwrap() == bytes,
                "{io}"
            );
        }
    }
}

/// What TLS has taken and not sent when the last request ends is sent while the connection is idle.
#[test]
fn a_slow_client_gets_the_end_too() {
    let scratch = Scratch::new();
    scratch.file("large", vec![b'x'; 5_000_000]);
    for io in IO {
        let server = serve(&scratch, &[io]);
        let url = format!("{}/large", by_tls(&server));
        let args = [
            "-ksS",
            "--http2",
            "--limit-rate",
            "2500k",
            "--max-time",
            "30",
            "-w",
            "%{size_download}",
            "-o",
        ];
        let Some(out) = run("curl", &[&args[..], &["/dev/null", &url]].concat()) else {
            return;
        };
        assert!(
            out.status.success(),
            "{io}: {}",
            String::from_utf8_lossy(&out.stderr)
        );
        assert_eq!(out.stdout, b"5000000", "{io}");
    }
}

#[test]
fn it_can_be_turned_off() {
    let scratch = Scratch::new();
    let server = serve(&scratch, &["--http2", "off"]);
    scratch.file("page", "page");
    let Some(answer) = curl(&["--http2", &format!("{}/page", by_tls(&server))]) else {
        return;
    };
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
}

const PLACES: [&str; 5] = [
    "driver",
    "fibers",
    "acceptors:4",
    "event-loops",
    "pipeline:2",
];

/// In each architecture, and then nothing is in progress.
#[test]
fn h2load_is_served_in_every_architecture() {
    let scratch = Scratch::new();
    scratch.file("page", vec![b'x'; 1024]);
    for architecture in PLACES {
        let server = serve(
            &scratch,
            &["--architecture", architecture, "--admin", "127.0.0.1:0"],
        );
        for base in [format!("http://{}", server.address), by_tls(&server)] {
            let url = format!("{base}/page");
            let Some(out) = run("h2load", &["-n", "2000", "-c", "4", "-m", "32", &url]) else {
                return;
            };
            let text = String::from_utf8_lossy(&out.stdout);
            assert!(
                text.contains("2000 succeeded, 0 failed, 0 errored"),
                "{architecture}: {text}"
            );
        }

        let admin = admin(&server);
        eventually("the end of all requests", || {
            figure(admin, "plainweave_requests_in_progress") == 0.0
        });
        server.signal();
        assert_eq!(server.end(), (Some(0), String::new()), "{architecture}");
    }
}

/// A frame whose length, like the number of its stream, fits in a byte or two.
fn frame(kind: u8, flags: u8, id: u16, content: &[u8]) -> Vec<u8> {
    let [high, low] = id.to_be_bytes();
    [
        &[0, 0, content.len() as u8, kind, flags, 0, 0, high, low],
        content,
    ]
    .concat()
}

/// The type of a frame, and its flags for a request without a body.
const HEADERS: (u8, u8) = (1, 5);
/// GET, http, and a path of six bytes.
const LARGE: &[u8] = b"\x82\x86\x04\x06/large\x01\x01h";

/// What a client begins with.
fn preface() -> Vec<u8> {
    [
        &b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"[..],
        &frame(4, 0, 0, &[]),
    ]
    .concat()
}

/// One connection, whose client asks for a hundred files and takes none, leaves most of the
/// requests that there is memory for to others; fewer if the operator says so; and one address has
/// no more than its share, whatever it does.
#[test]
fn a_connection_has_its_share_of_the_requests_in_progress() {
    let scratch = Scratch::new();
    scratch.file("large", vec![b'x'; 4 << 20]);
    scratch.file("small", "small");

    for io in IO {
        for (more, expected) in [
            (&["--max-memory", "128m"][..], 8..=40),
            (&["--max-memory", "128m", "--http2-streams", "7"][..], 7..=7),
            (
                &["--max-memory", "128m", "--max-per-address", "3"][..],
                3..=3,
            ),
            (&[][..], 100..=100),
        ] {
            let server = serve(&scratch, &[&[io, "--admin", "127.0.0.1:0"], more].concat());
            let admin = admin(&server);
            let mut hog = server.connect();
            let requests = (0..100).flat_map(|n| frame(HEADERS.0, HEADERS.1, 1 + 2 * n, LARGE));
            hog.write_all(&preface().into_iter().chain(requests).collect::<Vec<u8>>())
                .unwrap();
            let in_progress = || figure(admin, "plainweave_requests_in_progress") as i32;

            eventually("what it is allowed", || {
                in_progress() == *expected.end() || !more.is_empty()
            });
            eventually("what it is allowed, at least", || {
                in_progress() >= *expected.start()
            });
            // Over HTTP/1, as any other client.
            for _ in 0..20 {
                let answer = crate::common::get(server.address, "/small");
                assert!(
                    answer.starts_with("HTTP/1.1 200"),
                    "{io} {more:?}: {answer}"
                );
            }

            assert!(
                expected.contains(&in_progress()),
                "{io} {more:?}: {}",
                in_progress()
            );
            assert_eq!(figure(admin, "plainweave_requests_shed_total"), 0.0);
        }
    }
}

/// A crowd that asks for much and takes nothing is forgotten: what was kept for it goes back to the
/// kernel.
#[test]
fn memory_comes_back_after_a_crowd() {
    const CROWD: usize = 20;
    let scratch = Scratch::new();
    scratch.file("large", vec![b'x'; 4 << 20]);
    scratch.file("small", "small");

    for io in IO {
        // However long the crowd takes to come, nobody of it has to leave.
        let patient = ["--write-timeout", "10m", "--min-rate", "0"];
        let flags = [&[io, "--admin", "127.0.0.1:0"], &patient[..]].concat();
        let server = serve(&scratch, &flags);
        let admin = admin(&server);
        crate::common::get(server.address, "/small");
        let before = server.resident();
        let crowd: Vec<_> = (0..CROWD)
            .map(|_| {
                let mut client = server.connect();
                let requests = (0..100).flat_map(|n| frame(HEADERS.0, HEADERS.1, 1 + 2 * n, LARGE));
                // Windows that bound nothing.
                let windows = [
                    frame(4, 0, 0, &[0, 4, 0x7f, 0xff, 0xff, 0xff]),
                    frame(8, 0, 0, &[0x7f, 0, 0, 0]),
                ];
                client
                    .write_all(
                        &preface()
                            .into_iter()
                            .chain(windows.concat())
                            .chain(requests)
                            .collect::<Vec<u8>>(),
                    )
                    .unwrap();
                client
            })
            .collect();
        let in_progress = || figure(admin, "plainweave_requests_in_progress") as usize;

        eventually("the crowd", || in_progress() == CROWD * 100);
        eventually("its memory", || server.resident() > before + (100 << 20));
        drop(crowd);
        eventually("its end", || in_progress() == 0);
        // Of some 300 MiB, which all stay without `malloc_trim`. On a busy machine spare workers
        // are started, each with an arena of its own, in whose pages a few blocks live on: 52 MiB.
        eventually("less memory", || server.resident() < before + (80 << 20));
        assert!(crate::common::get(server.address, "/small").ends_with("small"));
    }
}

/// Requests in progress are what takes memory: a connection counts as one while it waits for its
/// client, once.
#[test]
fn whatever_waits_for_its_client_counts_once() {
    let scratch = Scratch::new();
    scratch.file("large", vec![b'x'; 200_000]);
    for io in IO {
        let server = serve(&scratch, &[io, "--admin", "127.0.0.1:0"]);
        let admin = admin(&server);
        let in_progress = || figure(admin, "plainweave_requests_in_progress");

        // As much as the window of the connection takes: the request is in progress, in the first
        // turn.
        let mut asks = server.connect();
        asks.write_all(&[preface(), frame(HEADERS.0, HEADERS.1, 1, LARGE)].concat())
            .unwrap();

        let mut data = 0;
        while data < 65_535 {
            let mut header = [0; 9];
            asks.read_exact(&mut header).unwrap();
            let [high, middle, low, kind, ..] = header;
            let len = u32::from_be_bytes([0, high, middle, low]);
            io::copy(&mut (&asks).take(len.into()), &mut io::sink()).unwrap();
            data += if kind == 0 { len } else { 0 };
        }

        assert_eq!(in_progress(), 1.0, "{io}");
        // In the middle of a frame, in a later turn.
        let mut begins = server.connect();
        begins.write_all(&preface()).unwrap();
        assert!(begins.read(&mut [0; 100]).unwrap() > 0);
        eventually("the end of its turn", || in_progress() == 1.0);
        begins
            .write_all(&frame(HEADERS.0, HEADERS.1, 1, LARGE)[..4])
            .unwrap();
        eventually("a permit of its own", || in_progress() == 2.0);
        drop((asks, begins));
        eventually("the end of both", || in_progress() == 0.0);
    }
}

/// Its WINDOW_UPDATEs may come after the whole answer, and then they are for a stream that is
/// closed.
const LATE: &str = "3: Sends multiple WINDOW_UPDATE frames increasing the flow control window \
                    to above 2^31-1 on a stream";

/// Cases that h2spec has, at least.
const CASES: usize = 145;

/// Conformance. Over TLS, for what is no HTTP/2 is answered over HTTP/1 without it.
#[test]
fn h2spec_finds_nothing() {
    let scratch = Scratch::new();
    // Its cases that need a long answer ask for the root.
    scratch.file("index.html", "x".repeat(1000));
    let installed =
        PathBuf::from(env::var_os("HOME").unwrap_or_default()).join(".cargo/bin/h2spec");
    let program = if installed.exists() {
        installed.to_str().unwrap()
    } else {
        "h2spec"
    };

    for io in IO {
        let server = serve(&scratch, &[io]);
        let base = by_tls(&server);
        let port = base.rsplit(':').next().unwrap();
        let Some(out) = run(
            program,
            &["-h", "127.0.0.1", "-p", port, "-t", "-k", "-o", "5"],
        ) else {
            return;
        };

        let text = String::from_utf8_lossy(&out.stdout);
        let (_, failures) = text.split_once("Failures:").unwrap_or_default();
        let failures = failures
            .lines()
            .filter_map(|line| line.trim().strip_prefix("\u{d7} "));
        let failures = failures.filter(|failure| *failure != LATE).count();
        let run = text
            .lines()
            .find_map(|line| line.split_once(" tests, ")?.0.trim().parse::<usize>().ok());

        assert!(
            failures == 0 && run >= Some(CASES) && text.contains(" 0 skipped"),
            "{io}: {text}"
        );
    }
}
