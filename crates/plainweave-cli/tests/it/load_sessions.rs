//! Session logs: drawn from a seed by `plainweave load sessions`, replayed by `plainweave load http
//! --sessions`.

use std::io::Write;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use crate::scripted::{Figures, drivers, load, requests, server};

/// What a server was asked: the number of the connection, method and path.
type Seen = Arc<Mutex<Vec<(usize, String)>>>;

fn recorder(answer: &'static str) -> (SocketAddr, Seen) {
    let seen = Seen::default();
    let kept = seen.clone();
    let address = server(move |stream, number| {
        requests(stream, |line, stream| {
            kept.lock()
                .unwrap()
                .push((number, line.split(" HTTP").next().unwrap().to_owned()));
            stream.write_all(answer.as_bytes()).is_ok()
        });
    });

    (address, seen)
}

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";

/// An empty place for a test's files.
fn place(name: &str) -> PathBuf {
    let place = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = std::fs::remove_dir_all(&place);
    std::fs::create_dir_all(&place).unwrap();
    place
}

#[test]
fn a_session_keeps_its_connection_and_its_pauses() {
    let place = place("replayed");
    std::fs::write(
        place.join("1.log"),
        "/a think=0.2\n  /b method=HEAD\n\n/c\n",
    )
    .unwrap();
    std::fs::write(place.join("2.log"), "/d\n").unwrap();
    std::fs::write(place.join("notes.txt"), "no log").unwrap();

    for driver in drivers() {
        let (address, seen) = recorder(OK);
        let url = format!("http://{address}/");
        let args = [
            "http",
            &url,
            "--sessions",
            place.to_str().unwrap(),
            "-c",
            "1",
            "-n",
            "6",
            "--workers",
            "1",
        ];
        let result = Figures::of(0, &[&args[..], &["--json", "--io", driver]].concat());

        // Logs go on side by side: a session of each, then the next.
        let seen = seen.lock().unwrap();
        let asked: Vec<_> = seen.iter().map(|(_, asked)| asked.as_str()).collect();
        assert_eq!(
            asked,
            [
                "GET /a", "HEAD /b", "GET /d", "GET /c", "GET /a", "HEAD /b", "GET /d", "GET /c"
            ]
        );
        let same: Vec<_> = seen.windows(2).map(|pair| pair[0].0 == pair[1].0).collect();
        assert_eq!(
            same,
            [true, false, false, false, true, false, false],
            "a connection a session"
        );
        assert_eq!((result.figure("ok"), result.figure("errors")), (8.0, 0.0));
        assert!(
            result.figure("elapsed_seconds") >= 0.4,
            "two pauses of 0.2 s: {}",
            result.0
        );
    }
}

#[test]
fn nobody_connects_before_a_session_is_due() {
    let place = place("none-early");
    std::fs::write(place.join("1.log"), "/a\n").unwrap();
    for driver in drivers() {
        let seen = Arc::new(Mutex::new(0));
        let kept = seen.clone();
        let address = server(move |stream, _| {
            *kept.lock().unwrap() += 1;
            requests(stream, |_, stream| stream.write_all(OK.as_bytes()).is_ok());
        });

        let url = format!("http://{address}/");
        let args = [
            "http",
            &url,
            "--sessions",
            place.to_str().unwrap(),
            "-c",
            "50",
            "-n",
            "3",
            "--rate",
            "30",
        ];
        let result = Figures::of(
            0,
            &[&args[..], &["--workers", "1", "--io", driver, "--json"]].concat(),
        );

        // The fourth asks whether anybody listens.
        assert_eq!(
            (result.figure("ok"), *seen.lock().unwrap()),
            (3.0, 4),
            "{}",
            result.0
        );
    }
}

#[test]
fn sessions_arrive_at_the_rate_of_their_requests() {
    let place = place("rate");
    std::fs::write(place.join("1.log"), "/a\n/b\n\n/c\n").unwrap();
    let (address, seen) = recorder(OK);
    let url = format!("http://{address}/");

    // 20 sessions a second, of 1.5 requests.
    let args = [
        "http",
        &url,
        "--sessions",
        place.to_str().unwrap(),
        "-c",
        "8",
        "--rate",
        "30",
        "-d",
        "1s",
        "--json",
    ];
    let result = Figures::of(
        0,
        &[&args[..], &["--workers", "1", "--min-rate", "0"]].concat(),
    );
    let requests = result.figure("requests");
    assert!(
        (27.0..=32.0).contains(&requests) && seen.lock().unwrap().len() == requests as usize,
        "{}",
        result.0
    );
    assert_eq!(result.figure("intended_rate_per_second"), 30.0);
}

#[test]
fn pauses_of_sessions_do_not_break_the_rate() {
    let place = place("paused");
    std::fs::write(place.join("1.log"), "/a think=1.5\n/b\n").unwrap();
    // All second requests are due after the last session has arrived, at one second. Some do not
    // get an answer.
    let answered = recorder(OK).0;
    let dropped = server(|stream, _| {
        let mut left = 1;
        requests(stream, |_, stream| {
            left -= 1;
            left >= 0 && stream.write_all(OK.as_bytes()).is_ok()
        });
    });

    for address in [answered, dropped] {
        let url = format!("http://{address}/");
        let args = [
            "http",
            &url,
            "--sessions",
            place.to_str().unwrap(),
            "-c",
            "20",
            "-n",
            "20",
            "--rate",
            "40",
        ];
        let result = Figures::of(
            0,
            &[
                &args[..],
                &["--max-errors", "1", "--workers", "1", "--json"],
            ]
            .concat(),
        );
        assert_eq!(
            (result.figure("requests"), result.figure("kept")),
            (40.0, 1.0),
            "{}",
            result.0
        );
    }
}

#[test]
fn a_session_that_fails_is_given_up() {
    let place = place("failing");
    std::fs::write(place.join("1.log"), "/a\n/b\n").unwrap();
    let (address, seen) = recorder("HTTP/1.1 2");
    let url = format!("http://{address}/");
    let args = [
        "http",
        &url,
        "--sessions",
        place.to_str().unwrap(),
        "-c",
        "1",
        "-d",
        "500ms",
        "--timeout",
        "200ms",
    ];
    let result = Figures::of(1, &[&args[..], &["--workers", "1", "--json"]].concat());

    assert!(
        result.figure("ok") == 0.0 && result.errors("timeout") >= 1,
        "{}",
        result.0
    );
    assert!(
        seen.lock()
            .unwrap()
            .iter()
            .all(|(_, asked)| asked == "GET /a")
    );
}

#[test]
fn logs_are_drawn_from_a_seed_and_replayed() {
    let place = place("drawn");
    let paths = place.join("paths");
    let logs = place.join("logs");
    let again = place.join("again");
    std::fs::write(&paths, "# the most popular first\n/a\n/b\n/c\n").unwrap();
    let draw = |dir: &Path| {
        let args = [
            "sessions",
            dir.to_str().unwrap(),
            "--paths",
            paths.to_str().unwrap(),
            "--logs",
            "3",
        ];
        load(
            &[
                &args[..],
                &[
                    "--sessions",
                    "5",
                    "--active-off",
                    "0.001",
                    "--inactive-off",
                    "0.002",
                ],
            ]
            .concat(),
        )
    };

    let (code, out, error) = draw(&logs);
    assert!(
        code == Some(0) && out.contains("15 sessions"),
        "{out}{error}"
    );
    assert_eq!(draw(&again).0, Some(0));
    let names = ["client-001.log", "client-002.log", "client-003.log"];
    let texts = names.map(|name| std::fs::read_to_string(logs.join(name)).unwrap());

    assert_eq!(
        texts,
        names.map(|name| std::fs::read_to_string(again.join(name)).unwrap())
    );
    let (code, _, error) = draw(&logs);

    assert!(
        code == Some(3) && error.contains("is not empty; name a new folder"),
        "{error}"
    );

    let requests = texts
        .iter()
        .flat_map(|text| text.lines())
        .filter(|line| line.trim().starts_with('/'))
        .count();
    let (address, seen) = recorder(OK);
    let url = format!("http://{address}/");
    let args = [
        "http",
        &url,
        "--sessions",
        logs.to_str().unwrap(),
        "-c",
        "3",
        "-n",
        "15",
        "--workers",
        "1",
        "--json",
    ];
    let result = Figures::of(0, &args);

    assert_eq!(
        (result.figure("ok"), seen.lock().unwrap().len()),
        (requests as f64, requests)
    );
}

#[test]
fn faults_in_logs_name_their_place() {
    let place = place("faults");
    let log = place.join("1.log");
    for (text, said) in [
        ("/a\n/b size=3\n", "1.log:2"),
        ("/a method=CONNECT\n", "'CONNECT' is no method"),
        ("", "has no session"),
        ("a\n", "begins with its path"),
    ] {
        std::fs::write(&log, text).unwrap();
        let (code, _, error) = load(&[
            "http",
            "http://127.0.0.1:1/",
            "--sessions",
            place.to_str().unwrap(),
        ]);
        assert!(code == Some(2) && error.contains(said), "{text:?}: {error}");
    }

    std::fs::remove_file(log).unwrap();
    let (code, _, error) = load(&[
        "http",
        "http://127.0.0.1:1/",
        "--sessions",
        place.to_str().unwrap(),
    ]);
    assert!(
        code == Some(2) && error.contains("has no file that ends with .log"),
        "{error}"
    );
}
