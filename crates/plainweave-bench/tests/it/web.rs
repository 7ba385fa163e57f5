//! `plainweave-bench web`, tiny: where nginx, wrk and our program are, every case gives its rows.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use crate::{installed, skip};

/// A run of some cases; it ends with the value.
struct Run {
    child: Option<Child>,
    out: PathBuf,
}

impl Run {
    /// `timeout` bounds it, its servers and its clients.
    fn start(name: &str, cases: &str, seconds: &str) -> Self {
        let out = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("web-{name}"));
        let _ = std::fs::remove_dir_all(&out);
        let mut command = Command::new("timeout");
        command.args([
            "--kill-after=5",
            "240",
            env!("CARGO_BIN_EXE_plainweave-bench"),
        ]);
        command.args([
            "web",
            "--cases",
            cases,
            "--runs",
            "1",
            "--seconds",
            seconds,
            "--out",
            out.to_str().unwrap(),
        ]);
        command.args([
            "--idle",
            "50",
            "--many",
            "100",
            "--mix-scale",
            "500",
            "--large",
            "20",
        ]);
        let child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();

        Self {
            child: Some(child),
            out,
        }
    }

    /// What it said, and the rows of its table.
    fn end(mut self) -> (String, Vec<Vec<String>>) {
        let Output {
            status,
            stdout,
            stderr,
        } = self.child.take().unwrap().wait_with_output().unwrap();
        let text = String::from_utf8([stdout, stderr].concat()).unwrap();
        assert_eq!(status.code(), Some(0), "{text}");
        let csv = std::fs::read_to_string(self.out.join("web.csv")).unwrap();
        let mut lines = csv.lines().filter(|line| !line.starts_with("# "));

        assert_eq!(
            lines.next(),
            Some("experiment,case,system,workers,metric,unit,median,q1,q3,min,max,runs")
        );

        (
            text,
            lines
                .map(|line| line.split(',').map(str::to_owned).collect())
                .collect(),
        )
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            // `timeout` passes it on; a kill would not be.
            let pid = rustix::process::Pid::from_child(&child);
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
            let _ = child.wait();
        }
    }
}

/// Most of their time they wait, so they run beside each other; what they measure then is nothing.
/// Those that take all of the CPU are not beside those that are late without it.
/// Cases in which bodies are short, and of one length: they have limits.
const SMALL: [&str; 7] = [
    "1k-64",
    "1k-curl",
    "1k-browser",
    "1k-1024",
    "1k-8000",
    "1k-close",
    "100k",
];

#[test]
fn every_case_gives_its_rows() {
    let ours = Path::new(env!("CARGO_BIN_EXE_plainweave-bench"))
        .with_file_name("plainweave")
        .exists();
    let mut text = String::new();
    let mut rows = Vec::new();
    for beside in [
        [
            (
                "closed",
                "1k-64,1k-curl,1k-browser,1k-1024,1k-1024-2,1k-8000,1k-close,100k,1m,mix,access-log",
                "0.3",
            ),
            ("overload", "overload", "1"),
        ],
        [
            ("slow", "slow-10000", "0.3"),
            ("others", "disk,idle-10000,quota-p99", "0.3"),
        ],
    ] {
        for run in beside.map(|(name, cases, seconds)| Run::start(name, cases, seconds)) {
            let (said, more) = run.end();
            text += &said;
            rows.extend(more);
        }
    }

    let expect = |case: &str, system: &str, metric: &str| {
        expect(&rows, &text, [case, system, metric]);
    };

    let nginx = installed("nginx");
    let wrk = installed("wrk");
    for (there, what) in [(nginx, "nginx"), (wrk, "wrk"), (ours, "plainweave")] {
        if !there {
            skip::skip(&format!("bench web: {what} is not installed"));
            assert!(text.contains("not measured"), "{text}");
        }
    }

    for (system, there) in [
        ("nginx", nginx),
        ("nginx defaults", nginx),
        ("plainweave epoll", ours),
    ] {
        if there && wrk {
            for case in SMALL.into_iter().chain(["1m", "mix"]) {
                expect(case, system, "cpu_us_per_request");
                expect(case, system, "requests_per_second");
            }
        }

        if there && system != "nginx defaults" {
            expect("idle-10000", system, "bytes_per_connection");
        }
    }

    if wrk {
        for case in SMALL {
            expect(case, "limit", "cpu_us_per_request");
            if rows.iter().any(|row| row[2] == "plainweave uring") {
                expect(case, "plainweave uring", "ratio_to_limit_uring");
            }
        }

        let limits = |case: &str| {
            rows.iter()
                .any(|row| row[1] == case && row[2].starts_with("limit"))
        };
        assert!(
            !limits("mix") && !limits("1m"),
            "files of many lengths, or so long that copying them is no limit"
        );
    }

    if wrk && ours {
        expect("100k", "plainweave epoll", "ratio_to_limit");
        expect("access-log", "plainweave epoll", "cpu_us_per_request");
        expect(
            "access-log",
            "plainweave epoll combined log",
            "ratio_to_silent",
        );
    }

    if wrk
        && ours
        && !text.contains("CPU quota is available")
        && !text.contains("it takes two CPUs")
    {
        expect("1k-1024-2", "plainweave epoll", "ratio_to_1_worker");
        let two = rows
            .iter()
            .any(|row| row[1] == "1k-1024-2" && row[3] == "2" && row[4] == "requests_per_second");
        assert!(two, "{text}");
    }
    if nginx && ours && !text.contains("CPU quota is available") {
        for load in [30, 60, 90] {
            expect(
                &format!("quota-p99-{load}"),
                "plainweave epoll",
                "p999_to_third_quartile",
            );
        }
        expect("overload-2x", "plainweave epoll", "goodput_to_peak");
    }

    if nginx && ours {
        expect("slow-10000", "plainweave epoll", "p99_us_newcomers");
        expect("slow-10000", "plainweave epoll", "p99_us_beside");
    }

    if ours && !text.contains("blkio are available") {
        expect("disk", "plainweave epoll", "cached_p99_us_beside_disk");
    }
}

/// Asserts that there is a row of this case, system and metric.
fn expect(rows: &[Vec<String>], text: &str, [case, system, metric]: [&str; 3]) {
    let is_it = |row: &&Vec<String>| row[..3] == ["web", case, system] && row[4] == metric;
    let row = rows.iter().find(is_it);
    let row = row.unwrap_or_else(|| panic!("no {metric} of {system} in {case}: {text}"));
    let has_value = row[6].parse::<f64>().unwrap().is_finite();
    assert!(has_value && row[11] == "1", "{row:?}");
}

#[test]
fn cases_of_a_configuration_give_their_rows() {
    let run = Run::start(
        "sites",
        "sites,reloads,gzip-100k,gzip-4m,proxy-1k,proxy-100k",
        "0.2",
    );
    let (text, rows) = run.end();
    let ours = rows.iter().any(|row| row[2].starts_with("plainweave"));
    if !ours || !installed("wrk") {
        skip::skip("bench web: wrk or plainweave is not installed");
        assert!(text.contains("not measured"), "{text}");
        return;
    }

    let rules = "plainweave epoll sites and rules";
    let mut expected = vec![
        ["sites", rules, "ratio_to_plain"],
        ["reloads", "plainweave epoll", "p999_ratio"],
        ["proxy-1k", "plainweave epoll", "cpu_us_per_request"],
    ];
    if installed("haproxy") {
        expected.push(["proxy-100k", "plainweave epoll", "ratio_to_haproxy"]);
    }
    if installed("nginx") {
        expected.push(["sites", rules, "ratio_to_nginx_configured"]);
        expected.push(["reloads", "nginx", "p999_us_reloading"]);
        expected.push(["proxy-1k", "plainweave epoll", "ratio_to_nginx"]);
    }
    let uring = rows.iter().any(|row| row[2] == "plainweave uring");
    if uring && installed("nginx") {
        expected.push(["gzip-100k", "plainweave uring br", "ratio_to_nginx"]);
        expected.push(["gzip-4m", "plainweave uring gzip", "bytes_per_answer"]);
    }
    if installed("caddy") {
        expected.push(["gzip-4m", "caddy zstd", "cpu_us_per_request"]);
    }

    for row in expected {
        expect(&rows, &text, row);
    }
}

#[test]
fn cases_are_listed_and_checked() {
    let run = |args: &[&str]| {
        Command::new(env!("CARGO_BIN_EXE_plainweave-bench"))
            .args(args)
            .output()
            .unwrap()
    };

    let listed = String::from_utf8(run(&["web", "--list"]).stdout).unwrap();
    assert!(
        ["1k-64", "1k-1024", "idle-10000", "quota-p99"]
            .iter()
            .all(|case| listed.contains(case))
    );
    let wrong = run(&["web", "--cases", "nonsense"]);
    let said = String::from_utf8(wrong.stderr).unwrap();

    assert!(
        wrong.status.code() == Some(1) && said.contains("'nonsense'") && said.contains("quota-p99"),
        "{said}"
    );
}
