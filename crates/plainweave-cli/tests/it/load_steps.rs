//! `plainweave load` at several rates and at rates that change.

use std::io::Write;
use std::net::SocketAddr;
use std::sync::Mutex;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::scripted::{Figures, OK, load, requests, server, sleeper};
use serde_json::Value;

/// A server that takes this long for a request, and one request at a time, over all connections.
fn one_at_a_time(time: Duration) -> SocketAddr {
    let turn = Mutex::new(());
    server(move |stream, _| {
        requests(stream, |_, stream| {
            let turn = turn.lock().unwrap();
            std::thread::sleep(time);
            drop(turn);
            stream.write_all(OK.as_bytes()).is_ok()
        });
    })
}

fn steps(code: i32, args: &[&str]) -> Value {
    let (got, out, error) = load(args);
    assert_eq!(got, Some(code), "{args:?}: {out}{error}");
    serde_json::from_str(&out).unwrap_or_else(|e| panic!("{e}: {out}"))
}

#[test]
fn a_sweep_measures_each_rate() {
    let (address, seen) = sleeper(Duration::from_millis(20));
    let url = format!("http://{address}/");
    let csv = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("sweep.csv");
    let args = [
        "http",
        &url,
        "-c",
        "8",
        "--rates",
        "20..100/3",
        "-d",
        "500ms",
        "--pause",
        "1ms",
        "--json",
    ];

    let result = steps(0, &[&args[..], &["--csv", csv.to_str().unwrap()]].concat());
    let figures: Vec<_> = result["steps"]
        .as_array()
        .unwrap()
        .iter()
        .map(|step| &step["figures"])
        .collect();
    for (figures, rate) in figures.iter().zip([20.0, 60.0, 100.0]) {
        assert_eq!(figures["intended_rate_per_second"], rate);
        // The last start may be a rounding away from the end.
        let ok = figures["ok"].as_f64().unwrap();
        assert!(
            (0.0..=1.0).contains(&(ok - rate / 2.0)),
            "the server answers everything: {figures}"
        );

        // The server is the oracle: nothing comes sooner than it sleeps. Histograms have three
        // digits.
        assert!(
            figures["latency_p50_us"].as_f64().unwrap() >= 19_980.0,
            "{figures}"
        );
    }

    assert!(
        figures.len() == 3 && (90..=93).contains(&seen.load(Ordering::Relaxed)),
        "{seen:?}"
    );
    let text = std::fs::read_to_string(csv).unwrap();
    let rows: Vec<Vec<_>> = text.lines().map(|line| line.split(',').collect()).collect();
    assert!(
        text.starts_with(
            "step,intended_rate_per_second,rate_per_second,requests,ok,errors,latency_p50_us,"
        ) && text.contains(",latency_p99_9_us,"),
        "{text}"
    );
    assert!(
        rows.len() == 4 && rows.iter().all(|row| row.len() == rows[0].len()),
        "{text}"
    );

    assert_eq!(
        rows[1..]
            .iter()
            .map(|row| row[..2].join(" "))
            .collect::<Vec<_>>(),
        ["1 20", "2 60", "3 100"]
    );
}

#[test]
fn a_search_finds_what_a_server_bears() {
    // One request at a time, 10 ms each: below 100 a second, whatever the machine.
    let address = one_at_a_time(Duration::from_millis(10));
    let url = format!("http://{address}/");
    let search = [
        "--search",
        "p99<=10s,errors<=0%",
        "--rate",
        "25",
        "--precision",
        "0.5",
        "--pause",
        "1ms",
    ];
    let result = steps(
        0,
        &[
            &["http", &url, "-c", "100", "-d", "600ms", "--json"],
            &search[..],
        ]
        .concat(),
    );
    let highest = result["search"]["highest_rate"].as_f64().unwrap();

    // What chance may account for, at so few requests, is a third.
    assert!((1.0..150.0).contains(&highest), "{result}");
    let tried = result["steps"].as_array().unwrap();
    let missed = tried
        .iter()
        .filter(|step| !step["missed"].as_array().unwrap().is_empty());
    let lowest = missed.map(|step| {
        step["figures"]["intended_rate_per_second"]
            .as_f64()
            .unwrap()
    });

    assert!(lowest.fold(f64::MAX, f64::min) > highest, "{result}");
}

#[test]
fn a_search_without_success_is_an_error() {
    let (address, _) = sleeper(Duration::from_millis(10));
    let url = format!("http://{address}/");
    let args = [
        "--rate", "4", "--search", "p50<1us", "-d", "100ms", "--pause", "1ms",
    ];
    let (code, out, error) = load(&[&["http", &url, "-c", "1"], &args[..]].concat());
    assert_eq!(code, Some(1), "{out}{error}");

    assert!(
        out.contains("highest rate with p50<1us: none was found"),
        "{out}"
    );
}

#[test]
fn a_sweep_may_go_beyond_what_can_be_kept() {
    // At 200 requests a second, one connection is answered every 20 ms.
    for (conditions, expected, said) in [
        (&[][..], 0, "at 200 requests/s: the rate was not kept"),
        (
            &["--fail-if", "rate<50%"],
            1,
            "at 200 requests/s: rate<50%: it was ",
        ),
    ] {
        let url = format!("http://{}/", one_at_a_time(Duration::from_millis(20)));
        let args = [
            "http", &url, "-c", "1", "--rates", "10,200", "-d", "300ms", "--pause", "1ms",
        ];
        let (code, out, error) = load(&[&args[..], conditions].concat());
        assert!(
            code == Some(expected) && error.contains(said),
            "{out}{error}"
        );
    }
}

#[test]
fn rates_may_change_during_a_run() {
    let (address, _) = sleeper(Duration::ZERO);
    let url = format!("http://{address}/");
    let result = Figures::of(
        0,
        &[
            "http",
            &url,
            "-c",
            "4",
            "--rate",
            "10..190",
            "-d",
            "1s",
            "--min-rate",
            "0",
            "--json",
        ],
    );
    assert_eq!(result.figure("intended_rate_per_second"), 100.0);
    assert!(
        (99.0..=102.0).contains(&result.figure("requests")),
        "{}",
        result.0
    );

    // What comes while the rate grows is not counted.
    let (address, seen) = sleeper(Duration::ZERO);
    let url = format!("http://{address}/");
    let ramp = [
        "--rate",
        "100",
        "--ramp",
        "500ms",
        "-d",
        "500ms",
        "--min-rate",
        "0",
        "--json",
    ];
    let result = Figures::of(0, &[&["http", &url, "-c", "4"], &ramp[..]].concat());
    assert!(
        (49.0..=52.0).contains(&result.figure("requests")),
        "{}",
        result.0
    );

    assert!(
        (74..=78).contains(&seen.load(Ordering::Relaxed)),
        "{seen:?}"
    );
}

#[test]
fn wrong_steps_are_told_apart() {
    for (args, said) in [
        (&["--rates", "10k..70k"][..], "FROM..TO/STEPS"),
        (&["--rates", "1", "--rate", "1"], "cannot be used with"),
        (&["--search", "p99<=5"], "write a time with its unit"),
        (
            &["--search", "p99<=5ms", "--rate", "1..2"],
            "--rate as one number",
        ),
        (&["--ramp", "1s"], "add --rate"),
        (&["--rate", "1..2", "--ramp", "1s"], "a ramp itself"),
    ] {
        let (code, _, error) = load(&[&["http", "http://127.0.0.1:1/"], args].concat());
        assert!(
            code == Some(2) && error.contains(said),
            "{args:?}: {code:?} {error}"
        );
    }
}
