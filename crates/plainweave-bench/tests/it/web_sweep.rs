//! `plainweave-bench web-sweep`, tiny: every rate and every size of memory gives its rows, for the
//! controls too.

use std::path::Path;
use std::process::Command;

use crate::skip;

/// `timeout` bounds it, its servers and its clients.
fn run(args: &[&str]) -> (Option<i32>, String) {
    let mut command = Command::new("timeout");
    command
        .args([
            "--kill-after=5",
            "300",
            env!("CARGO_BIN_EXE_plainweave-bench"),
            "web-sweep",
        ])
        .args(args);
    let output = command.output().unwrap();
    (
        output.status.code(),
        String::from_utf8([output.stdout, output.stderr].concat()).unwrap(),
    )
}

#[test]
fn every_point_gives_its_rows() {
    let out = Path::new(env!("CARGO_TARGET_TMPDIR")).join("web-sweep");
    let _ = std::fs::remove_dir_all(&out);
    let size = [
        "--scale",
        "200",
        "--steps",
        "2",
        "--sessions",
        "300",
        "--seconds",
        "0.3",
        "--runs",
        "1",
        "--controls",
    ];
    let ours = ["--drivers", "epoll", "--architectures", "driver"];
    let (code, text) = run(&[&size[..], &ours, &["--out", out.to_str().unwrap()]].concat());
    let lacks = ["is not installed", "not beside", "no control group"];

    if let Some(what) = lacks
        .iter()
        .find(|what| code == Some(1) && text.contains(**what))
    {
        return skip::skip(&format!("web-sweep: {what}"));
    }
    assert_eq!(code, Some(0), "{text}");
    let csv = std::fs::read_to_string(out.join("web-sweep.csv")).unwrap();
    let rows: Vec<Vec<&str>> = csv
        .lines()
        .filter(|line| !line.starts_with("# "))
        .skip(1)
        .map(|line| line.split(',').collect())
        .collect();
    let find = |case: &str, system: &str, metric: &str| {
        let row = rows
            .iter()
            .find(|row| row[1] == case && row[2] == system && row[4] == metric);
        row.unwrap_or_else(|| panic!("no {metric} of {system} in {case}: {text}"))[6]
            .parse::<f64>()
            .unwrap()
    };

    // In a step of 0.3 s on a busy machine none of a load beyond the peak may be answered in time.
    for system in ["nginx", "plainweave epoll driver"] {
        for case in ["rate 0.25", "rate 1.50"] {
            assert!(find(case, system, "answers_per_s") >= 0.0, "{case}: {text}");
            assert!((0.0..=1.0).contains(&find(case, system, "failed_share")));
        }
        assert!(find("past the peak", system, "answers_to_own_peak") >= 0.0);
    }
    let of_rates = |row: &&Vec<&str>| row[1].starts_with("rate ") && row[4] == "answers_per_s";
    let answers = rows.iter().filter(of_rates);
    let answers: f64 = answers.map(|row| row[6].parse::<f64>().unwrap()).sum();
    assert!(answers > 0.0, "nobody answered anything: {text}");

    // Where there is no group for memory, or the files lie on no disk, all of the second part is
    // missing, and is said.
    if csv.contains("no control group") || csv.contains("cannot throttle") {
        return skip::skip(
            "web-sweep with less memory: no control group for memory, or no disk below it",
        );
    }

    let controls = ["control: blocking sendfile", "control: spinning sendfile"];
    for system in ["nginx", "nginx aio threads", "plainweave epoll driver"]
        .into_iter()
        .chain(controls)
    {
        let mut answers = 0.0;
        for case in ["memory 100 %", "memory 3 %"] {
            answers += find(case, system, "answers_per_s");
            assert!(
                find(case, system, "disk_mb_per_s") >= 0.0
                    && find(case, system, "hot_failed_share") >= 0.0
            );
        }

        assert!(answers > 0.0, "{system} answered nothing: {text}");
        assert!(
            find("memory 100 %", system, "memory_mb")
                > find("memory 3 %", system, "memory_mb") + 5.0
        );
    }
    let page = std::fs::read_to_string(out.join("web-sweep.html")).unwrap();

    assert!(
        page.contains("in memory: answers")
            && page.contains("from a slow disk: read from the disk"),
        "{page}"
    );
}

#[test]
fn systems_are_listed_and_values_checked() {
    let (code, listed) = run(&["--list", "--controls", "--drivers", "epoll", "--steps", "2"]);
    assert_eq!(code, Some(0), "{listed}");
    for part in [
        "rates: nginx, nginx defaults, plainweave epoll driver, plainweave epoll acceptors:4096\n",
        "acceptors:4096\n  rate 0.25, rate 1.50\n",
        "memory: nginx, nginx aio threads, ",
        "control: uncapped splices\n  memory 100 %, memory 50 %, memory 20 %, memory 10 %, memory 5.5 %, memory 3 %\n",
    ] {
        assert!(listed.contains(part), "{listed}");
    }

    for (flag, value) in [
        ("--share", "2"),
        ("--steps", "1"),
        ("--parts", "some"),
        ("--seconds", "x"),
        ("--scale", "0"),
        ("--runs", "0"),
    ] {
        let (code, said) = run(&[flag, value]);
        assert!(
            code == Some(2) && said.contains(flag),
            "{flag} {value}: {said}"
        );
    }
}
