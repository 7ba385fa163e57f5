//! The simulator's predictions beside what is measured, tiny.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::tiny::run;

/// All figures are there, measured and simulated; what was fitted is said; and the simulator takes
/// the constants.
#[test]
fn predict() {
    let simulator =
        PathBuf::from(env!("CARGO_BIN_EXE_plainweave-bench")).with_file_name("plainweave-sim");
    if !simulator.exists() {
        return; // Built by `cargo test --workspace`; without it there is nothing to compare.
    }
    let out = Path::new(env!("CARGO_TARGET_TMPDIR")).join("predict");
    let _ = std::fs::remove_dir_all(&out);
    let at = ["--out", out.to_str().unwrap()];
    let (code, text) = run(&[
        &[
            "predict",
            "--runs",
            "1",
            "--seconds",
            "0.02",
            "--scale",
            "0.01",
            "--far",
        ],
        &at[..],
    ]
    .concat());

    assert_eq!(code, Some(0), "{text}");
    // Should a checker of the simulator object to so short a run, two figures are not there.
    let objections = text.matches("a checker objects").count();
    assert!(
        text.contains(&format!("{} figures predicted", 59 - 2 * objections)),
        "{text}"
    );
    let csv = std::fs::read_to_string(out.join("predict.csv")).unwrap();
    let rows: Vec<Vec<_>> = csv
        .lines()
        .map(|line| line.split(',').collect())
        .filter(|r: &Vec<_>| r.len() == 12)
        .collect();
    let count = |system: &str, metric: &str| {
        let of = rows.iter().filter(|r| r[2] == system && r[4] == metric);
        of.filter(|r| r[6].parse::<f64>().unwrap().is_finite())
            .count()
    };

    // Ten workloads, two of them not covered; four policies, one worker and two.
    let predicted = 59 - 2 * objections;
    assert_eq!(
        (
            count("measured", "throughput"),
            count("simulated", "throughput")
        ),
        (predicted + 21, predicted)
    );
    assert_eq!(
        (
            count("simulated (fitted)", "deviation"),
            count("simulated", "deviation")
        ),
        (5, predicted)
    );

    for metric in ["median_error", "worst_error"] {
        assert_eq!(
            (count("simulated", metric), count("goal", metric)),
            (1, 1),
            "{metric}"
        );
    }

    let machine = out.join("machine.toml");
    let text = std::fs::read_to_string(&machine).unwrap();
    for constant in [
        "exchange", "group", "wake", "scan", "node", "switch", "park", "task", "away", "fresh",
    ] {
        assert!(text.contains(&format!("\n{constant} = ")), "{text}");
    }

    let simulated = Command::new(simulator)
        .arg(&machine)
        .args(["--workload=yield", "--size=1000"])
        .output()
        .unwrap();
    assert!(
        simulated.status.success(),
        "{}",
        String::from_utf8_lossy(&simulated.stderr)
    );
    // Constants of an earlier run serve another one; what is not there is said.
    let (code, text) = run(&[&["predict", "--costs", "/nonsense"], &at[..]].concat());
    assert!(
        code == Some(1) && text.contains("/nonsense is not there"),
        "{text}"
    );
    let (code, text) =
        run(&[&["predict", "--calibrate-only", "--scale", "7000"], &at[..]].concat());

    assert!(code == Some(2) && text.contains("0.01 to 10"), "{text}");
}
