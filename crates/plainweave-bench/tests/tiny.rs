//! Every benchmark, tiny: does it do its work, and does its CSV have the columns and the figures?

use std::path::PathBuf;
use std::process::Command;

const COLUMNS: &str = "experiment,case,system,workers,metric,unit,median,min,max,runs";

fn run(args: &[&str]) -> (Option<i32>, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_plainweave-bench")).args(args).output().unwrap();
    (output.status.code(), String::from_utf8([output.stdout, output.stderr].concat()).unwrap())
}

/// A folder of its own under the build's, empty.
fn folder(name: &str) -> PathBuf {
    let dir = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = std::fs::remove_dir_all(&dir);
    dir
}

/// Runs an experiment and gives the rows of its CSV.
fn rows(experiment: &str, args: &[&str]) -> Vec<Vec<String>> {
    let out = folder(experiment);
    let (code, text) = run(&[&[experiment, "--out", out.to_str().unwrap()], args].concat());
    assert_eq!(code, Some(0), "{text}");
    let html = std::fs::read_to_string(out.join(format!("{experiment}.html"))).unwrap();
    assert!(html.contains("<svg") && html.contains("kernel"), "{html}");
    let csv = std::fs::read_to_string(out.join(format!("{experiment}.csv"))).unwrap();
    let mut lines = csv.lines();
    assert_eq!(lines.next(), Some(COLUMNS));
    lines.map(|line| line.split(',').map(str::to_owned).collect()).collect()
}

#[test]
fn micro() {
    let args = ["--runs", "2", "--iterations", "1000", "--fibers", "500", "--workers", "1,2"];
    let rows = rows("micro", &args);
    for case in ["resume-suspend", "yield", "yield-100", "spawn-join", "parked-fibers"] {
        for (system, workers) in [("plainweave", "1"), ("plainweave", "2"), ("threads", "1")] {
            let found = rows.iter().find(|r| r[1] == case && r[2] == system && r[3] == workers);
            let row = found.unwrap_or_else(|| panic!("no row of {case} on {system}"));
            assert!(row[6].parse::<f64>().unwrap().is_finite() && row[9] == "2", "{row:?}");
        }
    }
    assert!(rows.iter().any(|r| r[4] == "bytes_per_fiber") && rows.iter().any(|r| r[4] == "ns_per_op"));
}

#[test]
fn echo() {
    let rows = rows("echo", &["--runs", "2", "--iterations", "500", "--connections", "4"]);
    let systems: Vec<_> = rows.iter().filter(|r| r[4] == "cpu_us_per_request").map(|r| r[2].as_str()).collect();
    assert!(systems.starts_with(&["raw epoll loop", "plainweave epoll"]), "{systems:?}");
    assert!(rows.iter().any(|r| r[4] == "ratio_to_raw"));
}

/// Its servers are other programs: they are measured where they are.
#[test]
fn cache() {
    let args = ["--runs", "2", "--iterations", "500", "--connections", "20"];
    let rows = rows("cache", &args);
    if !PathBuf::from(env!("CARGO_BIN_EXE_plainweave-bench")).with_file_name("plainweave").exists() {
        return; // Built by `cargo test --workspace`; without it there is nothing to measure.
    }
    let of = |metric: &str| rows.iter().filter(|r| r[4] == metric).count();
    assert!(of("cpu_us_per_request") >= 7 && of("hit_ratio") >= 1 && of("items") >= 1, "{rows:?}");
}

#[test]
fn wrong_names_list_the_valid_ones() {
    let (code, text) = run(&["micro", "--cases", "nonsense"]);
    assert!(code == Some(1) && text.contains("'nonsense'") && text.contains("spawn-join"), "{text}");
    let (code, text) = run(&["micro", "--systems", "nonsense"]);
    assert!(code == Some(1) && text.contains("plainweave, threads"), "{text}");
    let (code, text) = run(&["micro", "--policy", "nonsense"]);
    assert!(code == Some(1) && text.contains("lifo-slot"), "{text}");
    let (code, text) = run(&["cache", "--cases", "nonsense"]);
    assert!(code == Some(1) && text.contains("'nonsense'") && text.contains("64x16"), "{text}");
    let (code, text) = run(&["micro", "--list"]);
    assert!(code == Some(0) && text.contains("parked-fibers"), "{text}");
}
