//! `plainweave-bench cache-sweep`, tiny: every rate of every system gives its rows, and the page
//! has the lines.

use std::path::Path;
use std::process::Command;

use crate::skip;

fn run(args: &[&str]) -> (Option<i32>, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_plainweave-bench"))
        .arg("cache-sweep")
        .args(args)
        .output()
        .unwrap();
    (
        output.status.code(),
        String::from_utf8([output.stdout, output.stderr].concat()).unwrap(),
    )
}

#[test]
fn every_rate_gives_its_rows() {
    let out = Path::new(env!("CARGO_TARGET_TMPDIR")).join("cache-sweep");
    let _ = std::fs::remove_dir_all(&out);
    let size = [
        "--connections",
        "20",
        "--updates",
        "3,50",
        "--steps",
        "3",
        "--keys",
        "500",
        "--seconds",
        "0.2",
        "--warm-up",
        "0.1",
        "--workers",
        "1",
    ];
    let (code, text) = run(&[&size[..], &["--runs", "1", "--out", out.to_str().unwrap()]].concat());

    let lacks = ["cannot start memcached", "not beside", "no control group"];
    if let Some(what) = lacks.iter().find(|what| text.contains(**what)) {
        skip::skip(&format!("cache-sweep: {what}"));
        assert_eq!(code, Some(1), "{text}");
        return;
    }

    assert_eq!(code, Some(0), "{text}");
    let csv = std::fs::read_to_string(out.join("cache-sweep.csv")).unwrap();
    let rows: Vec<Vec<&str>> = csv
        .lines()
        .filter(|line| !line.starts_with("# "))
        .skip(1)
        .map(|line| line.split(',').collect())
        .collect();
    let systems = [
        "memcached",
        "plainweave epoll before-start/shared",
        "plainweave epoll anytime/own",
    ];

    for updates in ["3 %", "50 %"] {
        for system in systems {
            let find = |case: &str, metric: &str| {
                let row = rows
                    .iter()
                    .find(|row| row[1] == case && row[2] == system && row[4] == metric);
                row.unwrap_or_else(|| panic!("no {metric} of {system} in {case}: {text}"))[6]
                    .parse::<f64>()
                    .unwrap()
            };

            assert!(find(updates, "knee_per_s") >= 0.0);
            let mut answers = 0.0;
            for share in ["0.10", "0.75", "1.40"] {
                let case = format!("{updates} at {share}");
                let rate = find(&case, "answers_per_s");
                // Within so short a step a busy machine may answer nobody in time.
                assert!(
                    rate >= 0.0 && find(&case, "answers_to_target") >= 0.0,
                    "{case}, {system}"
                );
                answers += rate;
                assert!((0.0..=1.0).contains(&find(&case, "points_that_count")));

                // A client that shares its CPU with others is late, and then there is no p99.
                let counts = find(&case, "points_that_count") == 1.0;
                let p99 = rows
                    .iter()
                    .any(|row| row[1] == case && row[2] == system && row[4] == "p99_us");
                assert_eq!(p99, counts, "{case}, {system}: {text}");
            }
            assert!(answers > 0.0, "{system} answered nobody: {text}");
        }
    }

    let page = std::fs::read_to_string(out.join("cache-sweep.html")).unwrap();
    // A median, a least and a greatest value for each of two shares of updates.
    let lines = page.matches("<polyline").count();
    assert!(
        lines == 2 * 2 * 3 * systems.len() && page.contains("memcached, 1 worker: p99"),
        "{page}"
    );
}

#[test]
fn systems_are_listed_and_values_checked() {
    let (code, listed) = run(&[
        "--list",
        "--modes",
        "anytime/own",
        "--drivers",
        "epoll,uring",
        "--steps",
        "2",
    ]);
    let lines: Vec<_> = listed.lines().collect();
    assert_eq!(code, Some(0));
    assert_eq!(
        lines,
        [
            "memcached",
            "plainweave epoll anytime/own",
            "plainweave uring anytime/own",
            "rates, of memcached's peak: 0.10, 1.40"
        ]
    );
    let (code, said) = run(&["--modes", "sometimes"]);

    assert!(
        code == Some(1) && said.contains("'sometimes'") && said.contains("anytime/own"),
        "{said}"
    );

    for (flag, value) in [
        ("--share", "2"),
        ("--steps", "1"),
        ("--updates", "101"),
        ("--seconds", "x"),
        ("--workers", "3"),
        ("--cache-binary", "nothing"),
    ] {
        let (code, said) = run(&[flag, value]);
        assert!(
            code == Some(2) && said.contains(flag),
            "{flag} {value}: {said}"
        );
    }
}
