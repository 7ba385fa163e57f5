//! What `plainweave load` writes: each form, and that others can read it.

use std::path::PathBuf;
use std::time::Duration;

use crate::scripted::{load, sleeper};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hdrhistogram::Histogram;
use hdrhistogram::serialization::Deserializer;
use hdrhistogram::serialization::interval_log::{IntervalLogIterator, LogEntry};
use serde_json::Value;

fn file(name: &str) -> PathBuf {
    std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join(name)
}

/// The entries of an interval log: tag, start and length in seconds, histogram.
fn intervals(log: &[u8]) -> Vec<(Option<String>, f64, f64, Histogram<u64>)> {
    let entries =
        IntervalLogIterator::new(log).map(|entry| entry.expect("a line of an interval log"));
    let intervals = entries.filter_map(|entry| match entry {
        LogEntry::Interval(interval) => {
            let bytes = STANDARD.decode(interval.encoded_histogram()).unwrap();
            let histogram = Deserializer::new()
                .deserialize(&mut bytes.as_slice())
                .unwrap();
            let tag = interval.tag().map(|tag| tag.as_str().to_owned());
            let times =
                [interval.start_timestamp(), interval.duration()].map(|time| time.as_secs_f64());
            Some((tag, times[0], times[1], histogram))
        }
        _ => None,
    });
    intervals.collect()
}

#[test]
fn a_run_is_written_in_every_form() {
    let url = format!("http://{}/", sleeper(Duration::ZERO).0);
    let [log, html, json] = ["run.hlog", "run.html", "run.json"].map(file);
    let files = [("--hdr-log", &log), ("--html", &html), ("--json", &json)];
    let files = files.map(|(flag, path)| format!("{flag}={}", path.display()));
    let files = files.iter().map(String::as_str);
    let args = [
        "http",
        &url,
        "-c",
        "2",
        "--rate",
        "100",
        "-d",
        "1500ms",
        "--workers",
        "2",
        "--min-rate",
        "0",
    ];
    let (code, out, error) = load(&args.into_iter().chain(files).collect::<Vec<_>>());

    assert_eq!((code, error.as_str()), (Some(0), ""), "{out}");
    let json: Value = serde_json::from_str(&std::fs::read_to_string(json).unwrap()).unwrap();
    let ok = json["figures"]["ok"].as_u64().unwrap();

    let text = std::fs::read(&log).unwrap();
    assert!(text.starts_with(b"#[Histogram log format version 1.3]\n#[StartTime: "));
    let intervals = intervals(&text);
    assert_eq!(
        intervals
            .iter()
            .map(|interval| interval.3.len())
            .sum::<u64>(),
        ok,
        "every answer is in one of them"
    );
    assert!(
        intervals.len() >= 2 && intervals.iter().all(|(tag, ..)| tag.is_none()),
        "{intervals:?}"
    );
    assert!(
        intervals
            .windows(2)
            .all(|pair| pair[0].1 + pair[0].2 <= pair[1].1 + 0.002),
        "{intervals:?}"
    );
    let greatest = intervals
        .iter()
        .map(|interval| interval.3.max())
        .max()
        .unwrap() as f64
        / 1e3;

    assert!(
        (greatest - json["figures"]["latency_max_us"].as_f64().unwrap()).abs() <= greatest / 500.0,
        "nanoseconds"
    );

    let seconds = json["seconds"].as_array().unwrap();
    assert!(
        seconds.len() >= 2 && seconds[0]["at_seconds"] == 1.0,
        "{seconds:?}"
    );
    assert!(
        seconds[0]["rate_per_second"].as_f64().unwrap() > 0.0
            && seconds[0]["latency_p99_us"].is_number()
    );

    let html = std::fs::read_to_string(html).unwrap();
    assert_eq!(
        html.matches("<svg").count(),
        3,
        "rates, latencies, percentiles"
    );
    assert!(
        html.contains("prefers-color-scheme:dark")
            && !html.contains("<script")
            && !html.contains("NaN")
    );

    for outside in ["src=", "href=", "@import", "url("] {
        assert!(
            !html.contains(outside),
            "it needs nothing beside it, and has {outside}"
        );
    }
}

#[test]
fn a_sweep_is_written_in_every_form() {
    let url = format!("http://{}/", sleeper(Duration::ZERO).0);
    let [log, html] = ["sweep.hlog", "sweep.html"].map(file);
    let files = [
        "--hdr-log",
        log.to_str().unwrap(),
        "--html",
        html.to_str().unwrap(),
    ];
    let args = [
        "http", &url, "-c", "2", "--rates", "50,100", "-d", "200ms", "--pause", "1ms", "--json",
    ];
    let (code, out, error) = load(&[&args[..], &files].concat());

    assert_eq!(code, Some(0), "{error}");
    let json: Value = serde_json::from_str(&out).unwrap();
    let intervals = intervals(&std::fs::read(log).unwrap());

    for (step, tag) in ["rate=50", "rate=100"].into_iter().enumerate() {
        let of = intervals
            .iter()
            .filter(|interval| interval.0.as_deref() == Some(tag));
        let count: u64 = of.map(|interval| interval.3.len()).sum();
        assert_eq!(json["steps"][step]["figures"]["ok"], count, "{tag}");
    }

    let html = std::fs::read_to_string(html).unwrap();
    assert!(
        html.contains("Throughput") && html.contains("Errors") && html.matches("<svg").count() == 3
    );
}

/// It took the URL behind it for a file once.
#[test]
fn a_file_for_json_without_its_sign_is_no_url() {
    let (code, _, error) = load(&["http", "http://127.0.0.1:1/", "--json", "run.json"]);
    assert!(
        code == Some(2) && error.contains("--json=FILE"),
        "{code:?} {error}"
    );
}

#[test]
fn files_that_cannot_be_written_are_said_before_the_run() {
    let url = format!("http://{}/", sleeper(Duration::ZERO).0);
    for flag in ["--csv", "--json", "--html", "--hdr-log"] {
        // It would last an hour.
        let (code, out, error) = load(&[
            "http",
            &url,
            "-d",
            "1h",
            &format!("{flag}=/no/such/folder/file"),
        ]);
        assert_eq!((code, out.as_str()), (Some(3), ""), "{flag}");
        assert!(
            error.contains("cannot write /no/such/folder/file"),
            "{flag}: {error}"
        );
    }
}
