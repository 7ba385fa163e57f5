//! `plainweave-bench http` and `hello`, tiny: every case gives its rows with the servers and
//! clients that are here.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::{installed, skip};

const COLUMNS: &str = "experiment,case,system,workers,metric,unit,median,q1,q3,min,max,runs";
const SIZE: [&str; 12] = [
    "--runs",
    "1",
    "--seconds",
    "0.1",
    "--connections",
    "8",
    "--crowd",
    "30",
    "--requests",
    "120",
    "--messages",
    "400",
];

fn program() -> PathBuf {
    PathBuf::from(env!("CARGO_BIN_EXE_plainweave-bench"))
}

/// What a run said, and the rows of its table.
struct Found {
    experiment: &'static str,
    text: String,
    rows: Vec<Vec<String>>,
}

impl Found {
    /// `timeout` bounds it, its servers and its clients.
    fn run(experiment: &'static str, name: &str, args: &[&str]) -> Self {
        let out = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("http-{name}"));
        let _ = std::fs::remove_dir_all(&out);
        let mut command = Command::new("timeout");
        command
            .args(["--kill-after=5", "120"])
            .arg(program())
            .arg(experiment)
            .args(args)
            .args(SIZE);
        let output = command.arg("--out").arg(&out).output().unwrap();
        let text = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();

        assert_eq!(output.status.code(), Some(0), "{text}");
        let csv = std::fs::read_to_string(out.join(format!("{experiment}.csv"))).unwrap();
        let mut lines = csv.lines().filter(|line| !line.starts_with("# "));
        assert_eq!(lines.next(), Some(COLUMNS));
        let rows = lines
            .map(|line| line.split(',').map(str::to_owned).collect())
            .collect();

        assert!(out.join(format!("{experiment}.html")).exists());

        Self {
            experiment,
            text,
            rows,
        }
    }

    /// The median of a metric, which has to be there and a number.
    fn median(&self, case: &str, system: &str, metric: &str) -> f64 {
        let row = self
            .rows
            .iter()
            .find(|row| row[..3] == [self.experiment, case, system] && row[4] == metric);
        let row = row.unwrap_or_else(|| panic!("no {metric} of {system} in {case}: {}", self.text));
        let median: f64 = row[6].parse().unwrap();
        assert!(median.is_finite() && row[11] == "1", "{row:?}");
        median
    }

    /// Returns whether a system was measured; the report says of one that was not.
    fn has(&self, case: &str, system: &str, there: bool) -> bool {
        let measured = self
            .rows
            .iter()
            .any(|row| row[1] == case && row[2] == system);
        let said = self
            .text
            .lines()
            .any(|line| line.starts_with(system) && line.contains("not measured"));
        assert!(
            measured != said && measured == there,
            "{case}, {system}: {}",
            self.text
        );
        measured
    }
}

/// Says what keeps a case from being measured here.
fn skipped(needs: &[&str]) -> bool {
    let own =
        |name: &&&str| **name == "plainweave" && program().with_file_name("plainweave").exists();
    let lacking = needs.iter().find(|name| !own(name) && !installed(name));
    if let Some(name) = lacking {
        skip::skip(&format!("what needs {name} is not installed"));
    }
    lacking.is_some()
}

const OURS: [&str; 3] = [
    "plainweave epoll",
    "plainweave epoll before-start/shared",
    "plainweave threads",
];
const CRATES: [&str; 2] = ["hyper", "may_minihttp"];

#[test]
fn hello_and_the_load_of_the_seed() {
    let found = Found::run("hello", "hello", &[]);
    let go = installed("go") || Path::new("/usr/local/go/bin/go").exists();

    let cases = [
        ("hello", skipped(&["wrk"])),
        ("seed", skipped(&["plainweave"])),
    ];
    if !cases[0].1 {
        for system in OURS.iter().chain(&["hyper", "limit"]) {
            assert!(found.median("hello-chunked", system, "cpu_us_per_request") > 0.0);
        }
        for system in ["may_minihttp", "nginx"] {
            let says = format!("hello-chunked: {system}: not measured (it knows");
            assert!(
                found.text.lines().any(|line| line.starts_with(&says)),
                "{says}: {}",
                found.text
            );
        }
    }

    for (case, _) in cases.iter().filter(|(_, skipped)| !skipped) {
        for system in OURS.iter().chain(&CRATES) {
            assert!(found.median(case, system, "cpu_us_per_request") > 0.0);
            assert!(found.median(case, system, "requests_per_second") > 0.0);
            assert!(found.median(case, system, "ratio_to_limit") > 0.0);
            if !found.text.contains("limit uring: not measured") {
                assert!(found.median(case, system, "ratio_to_limit_uring") > 0.0);
            }
        }

        assert!(found.median(case, "limit", "cpu_us_per_request") > 0.0);
        for (peer, ratio, there) in [
            ("hyper", "ratio_to_hyper", true),
            ("go net/http", "ratio_to_go", go),
            ("nginx", "ratio_to_nginx", installed("nginx")),
            ("warp", "ratio_to_warp", false),
        ] {
            if (peer != "warp" || !installed("ghc")) && found.has(case, peer, there) {
                found.median(case, OURS[0], ratio);
            }
        }
    }

    if !cases[1].1 {
        OURS.iter().for_each(|system| {
            assert_eq!(found.median("seed", system, "failures"), 0.0, "{system}")
        });
    }

    if !installed("ghc") {
        let said = found
            .text
            .lines()
            .any(|line| line.starts_with("warp: not measured (ghc is not installed"));
        assert!(said, "{}", found.text);
    }

    assert!(
        found.text.contains("crates: hyper 1.") && found.text.contains("may_minihttp 0."),
        "{}",
        found.text
    );
}

#[test]
fn files_and_handshakes_by_tls() {
    if skipped(&["wrk", "nginx", "plainweave"]) {
        return;
    }
    let found = Found::run("http", "tls", &["--cases", "tls,handshakes"]);
    let ours = OURS[0];
    assert!(found.median("tls", "nginx", "cpu_us_per_request") > 0.0);
    assert!(
        found.median("tls", ours, "cpu_us_per_request") > 0.0
            && found.median("tls", ours, "ratio_to_nginx") > 0.0
    );
    assert!(
        found.text.contains("plainweave epoll: (TLSv1_3), (TLS13_"),
        "{}",
        found.text
    );

    for system in [ours, "nginx"] {
        assert_eq!(found.median("handshakes", system, "failures"), 0.0);
        let [alone, median, p99, max] = [
            "p99_us_alone",
            "p50_us_beside",
            "p99_us_beside",
            "max_us_beside",
        ]
        .map(|metric| found.median("handshakes", system, metric));
        assert!(
            alone > 0.0 && 0.0 < median && median <= p99 && p99 <= max,
            "{system}: {median} {p99} {max}"
        );
        assert!(
            found.median("handshakes", system, "cpu_us_per_handshake") > 20.0,
            "a handshake signs"
        );
    }

    found.median("handshakes", ours, "p99_to_nginx");
}

#[test]
fn messages_by_websocket() {
    let found = Found::run("http", "websocket", &["--cases", "websocket"]);
    for system in OURS {
        assert!(found.median("websocket", system, "cpu_us_per_message") > 0.0);
        assert!(found.median("websocket", system, "ratio_to_threads") > 0.0);
    }
    assert!(found.median("websocket", "tungstenite on threads", "messages_per_second") > 0.0);
}

#[test]
fn files_by_http_2() {
    if skipped(&["h2load", "nginx", "plainweave"]) {
        return;
    }
    let found = Found::run("http", "h2", &["--cases", "h2"]);
    assert!(found.median("h2", "nginx", "cpu_us_per_request") > 0.0);
    let ours = found.rows.iter().any(|row| row[2] == OURS[0]);

    assert_ne!(
        ours,
        found
            .text
            .contains("h2, plainweave epoll: not measured (it does not speak HTTP/2)")
    );
}

#[test]
fn what_is_not_installed_is_said() {
    let out = Path::new(env!("CARGO_TARGET_TMPDIR")).join("http-absent");
    let mut command = Command::new(program());
    command
        .args(["http", "--cases", "hello,tls,h2"])
        .args(SIZE)
        .arg("--out")
        .arg(&out)
        .env("PATH", "/nowhere");
    let output = command.output().unwrap();
    let text = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();

    assert_eq!(output.status.code(), Some(0), "{text}");

    for absent in [
        "hello: not measured (wrk",
        "tls: not measured (wrk",
        "h2: not measured (h2load",
        "wrk: not installed",
    ] {
        assert!(text.contains(absent), "{absent}: {text}");
    }
}

#[test]
fn cases_are_listed_and_values_checked() {
    let run = |args: &[&str]| {
        let output = Command::new(program()).args(args).output().unwrap();
        (
            output.status.code(),
            String::from_utf8([output.stdout, output.stderr].concat()).unwrap(),
        )
    };

    let (code, listed) = run(&["http", "--list"]);
    assert_eq!(code, Some(0));
    for case in [
        "hello",
        "hello-chunked",
        "seed",
        "tls",
        "handshakes",
        "websocket",
        "h2",
    ] {
        assert!(
            listed
                .lines()
                .any(|line| line.split(' ').next() == Some(case)),
            "{case}: {listed}"
        );
    }

    let (code, said) = run(&["http", "--cases", "nonsense"]);
    assert!(
        code == Some(1) && said.contains("'nonsense'") && said.contains("handshakes"),
        "{said}"
    );
    for (flag, value) in [
        ("--runs", "0"),
        ("--seconds", "0"),
        ("--crowd", "none"),
        ("--connections", "0"),
    ] {
        for experiment in ["http", "hello"] {
            let (code, said) = run(&[experiment, flag, value]);
            assert!(
                code == Some(2) && said.contains(flag),
                "{experiment} {flag} {value}: {said}"
            );
        }
    }

    let (code, help) = run(&["hello", "--help"]);
    assert!(
        code == Some(0)
            && help.contains("--connections")
            && help.contains("hello, hello-chunked and seed"),
        "{help}"
    );
}
