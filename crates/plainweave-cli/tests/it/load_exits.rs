//! How `plainweave load` ends: by its objectives, by signals, or because it cannot begin.

use std::io::Read;
use std::net::TcpListener;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::scripted::{child, load, silent, sleeper};
use rustix::process::{Pid, Signal, kill_process};

#[test]
fn conditions_decide_on_the_exit_code() {
    let (address, _) = sleeper(Duration::from_millis(30));
    let url = format!("http://{address}/");
    let args = ["http", &url, "-c", "2", "-n", "10", "--workers", "1"];

    for (conditions, code, said) in [
        (&["p50>60s", "errors>0", "max>=60s", "rate<0.01"][..], 0, ""),
        (&["p50>20ms"], 1, "plainweave: p50>20ms: it was "),
        (&["p99<60s", "rate<1M"], 1, "plainweave: rate<1M: it was "),
    ] {
        let flags = conditions
            .iter()
            .flat_map(|condition| ["--fail-if", condition]);
        let (got, out, error) = load(&args.iter().copied().chain(flags).collect::<Vec<_>>());
        assert_eq!(got, Some(code), "{conditions:?}: {out}{error}");
        assert!(
            error.contains(said) && error.is_empty() == (code == 0),
            "{error}"
        );
        assert!(out.contains("statuses  200 OK: 10"), "{out}");
    }
}

#[test]
fn a_condition_that_is_none_is_pointed_at() {
    let (code, _, error) = load(&["http", "http://127.0.0.1:1/", "--fail-if", "p99>20"]);
    assert_eq!(code, Some(2), "{error}");
    assert!(
        error.contains("write a time with its unit") && error.contains("    p99>20\n          ^"),
        "{error}"
    );
}

#[test]
fn a_condition_that_a_closed_loop_cannot_judge_is_wrong_usage() {
    for condition in ["rate<99%", "lateness>1ms"] {
        let (code, _, error) = load(&[
            "http",
            "http://127.0.0.1:1/",
            "--fail-if",
            "errors>0",
            "--fail-if",
            condition,
        ]);
        assert_eq!(code, Some(2), "{error}");
        let said = format!("--fail-if '{condition}' needs an open loop: add --rate");
        assert!(error.contains(&said), "{error}");
    }
}

#[test]
fn a_rate_that_cannot_be_kept_is_an_error() {
    // One connection to a server that takes 50 ms: 20 requests a second are answered, of 500.
    let (address, _) = sleeper(Duration::from_millis(50));
    let url = format!("http://{address}/");
    let args = [
        "http",
        &url,
        "-c",
        "1",
        "--rate",
        "500",
        "-d",
        "1s",
        "--timeout",
        "500ms",
        "--max-errors",
        "1",
    ];
    let (code, out, error) = load(&args);
    assert_eq!(code, Some(1), "{out}{error}");
    assert!(
        error.contains("the rate was not kept: of 500 requests/s"),
        "{error}"
    );
    let (code, out, error) = load(&[&args[..], &["--min-rate", "0"]].concat());

    assert_eq!(code, Some(0), "{out}{error}");
    // Twenty connections suffice, on any machine that gives a server of as many threads a tenth of
    // a second.
    let (code, out, error) = load(&[
        "http",
        &url,
        "-c",
        "20",
        "--rate",
        "20",
        "-d",
        "1s",
        "--min-rate",
        "0.5",
    ]);
    assert_eq!(code, Some(0), "{out}{error}");
}

#[test]
fn what_cannot_begin_is_told_apart() {
    let down = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let (up, _) = sleeper(Duration::ZERO);
    let (down, up) = (format!("http://{down}/"), format!("http://{up}/"));

    for (args, said) in [
        (&["http", &down][..], "is the server running"),
        (&["http", &up, "-c", "100000000"], "ulimit -n"),
        (
            &["http", &up, "-n", "1", "--csv", "/no/such/folder/file.csv"],
            "/no/such/folder/file.csv",
        ),
    ] {
        let (code, _, error) = load(args);
        assert!(
            code == Some(3) && error.contains(said),
            "{args:?}: {code:?} {error}"
        );
    }
}

/// Sends a signal when the server has seen something; what the program wrote, its exit code, and
/// how long it took.
fn interrupted(
    args: &[&str],
    seen: &AtomicUsize,
    signal: Signal,
) -> (String, Option<i32>, Duration) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_plainweave"));
    command
        .arg("load")
        .args(args)
        .env_remove("PLAINWEAVE_IO")
        .stdout(Stdio::piped());
    let mut child = child::Kept::spawn(&mut command).unwrap();
    let start = Instant::now();
    while seen.load(Ordering::Relaxed) == 0 {
        assert!(start.elapsed() < Duration::from_secs(60), "no request came");
        std::thread::sleep(Duration::from_millis(10));
    }

    let sent = Instant::now();
    kill_process(Pid::from_child(&child), signal).unwrap();
    let mut out = String::new();
    child
        .stdout
        .take()
        .unwrap()
        .read_to_string(&mut out)
        .unwrap();

    (out, child.wait().unwrap().code(), sent.elapsed())
}

#[test]
fn a_signal_ends_a_run_with_a_report() {
    for (signal, code) in [(Signal::INT, 130), (Signal::TERM, 143)] {
        // Nothing is ever answered, and the timeout is far away.
        let (address, seen) = sleeper(Duration::from_secs(3600));
        let url = format!("http://{address}/");
        let args = [
            "http",
            &url,
            "-c",
            "3",
            "-d",
            "1h",
            "--timeout",
            "1h",
            "--workers",
            "1",
        ];
        let (out, got, took) = interrupted(&args, &seen, signal);
        assert_eq!(got, Some(code), "{out}");
        assert!(
            out.contains("answers   0 in ")
                && out.contains("requests without an answer when a signal came"),
            "{out}"
        );
        assert!(took < Duration::from_secs(60));
    }
}

#[test]
fn a_signal_ends_a_run_that_has_long_to_wait() {
    // The second request is due in an hour.
    let (address, seen) = sleeper(Duration::ZERO);
    let url = format!("http://{address}/");
    let args = ["http", &url, "-c", "1", "--rate", "0.001", "-d", "1h"];
    let (out, got, _) = interrupted(&args, &seen, Signal::INT);
    assert_eq!(got, Some(130), "{out}");

    assert!(
        out.contains("answers   1 in ") || out.contains("answers   0 in "),
        "{out}"
    );
}

#[test]
fn a_signal_ends_a_sweep_with_what_there_is() {
    let (address, seen) = sleeper(Duration::ZERO);
    let url = format!("http://{address}/");
    let (out, got, _) = interrupted(
        &["http", &url, "-c", "1", "--rates", "50,60,70", "-d", "1h"],
        &seen,
        Signal::INT,
    );
    assert_eq!(got, Some(130), "{out}");

    assert!(
        out.contains("\n       50 ") && !out.contains("\n       60 "),
        "{out}"
    );
}

#[test]
fn a_signal_ends_the_load_phase() {
    let (address, seen) = silent();
    let (out, code, _) = interrupted(
        &["cache", &address.to_string(), "--timeout", "1h"],
        &seen,
        Signal::INT,
    );
    assert_eq!((code, out.as_str()), (Some(130), ""));
}
