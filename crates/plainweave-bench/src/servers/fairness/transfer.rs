//! The case `transfer`: a leader that computes until all others have run. It asks not what fairness
//! costs but whether there is any: fibers behind a busy worker run only if another worker helps.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, ensure};

use crate::harness::machine;
use crate::harness::sample::{Origin, Row};
use crate::harness::source::Table;
use crate::harness::turns::{Values, value};

/// Metrics and units, as they are and as an observer sees them.
const PLAIN: [(&str, &str); 3] = [
    ("us_per_transfer", "us"),
    ("transfer_p99_us", "us"),
    ("starved", "1"),
];
const OBSERVED: [(&str, &str); 2] = [("greatest_wait_us", "us"), ("rank_error", "1")];

/// Runs `bench micro` for it on two workers: once as it is, and once observed. Returns the medians.
pub(super) fn turn(
    policy: &str,
    mode: &str,
    runs: usize,
    time: Duration,
    dir: &Path,
) -> anyhow::Result<Values> {
    let out = dir.join("transfer");
    // Servers before it have left this process on the load's CPU.
    machine::pin_to_first(machine::cpus());
    // A process of its own, as for users: what observes waits must not be in the figures.
    let measure = |more: &[&str], metrics: &[(&str, &str)]| {
        let mut command = Command::new(std::env::current_exe()?);
        command.args([
            "micro",
            "--cases",
            "transfer-yield",
            "--systems",
            "plainweave",
            "--workers",
            "2",
            "--far",
            "--once",
        ]);
        command
            .args(["--modes", mode, "--policy", policy])
            .args(more);
        command
            .arg(format!("--runs={runs}"))
            .arg(format!("--seconds={}", time.as_secs_f64()));
        let output = command
            .arg("--out")
            .arg(&out)
            .stdout(Stdio::null())
            .output()?;

        ensure!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr).trim()
        );
        read(&out.join("micro.csv"), metrics)
    };

    Ok([measure(&[], &PLAIN)?, measure(&["--observe"], &OBSERVED)?].concat())
}

/// Returns the rows of such a turn.
pub(super) fn rows(policy: &str, mode: &str, turn: &Values) -> impl Iterator<Item = Row> {
    // A comma would end the field of the CSV.
    let system = format!("{policy} {mode}").replace(',', ";");
    PLAIN
        .into_iter()
        .chain(OBSERVED)
        .filter_map(move |(metric, unit)| {
            let fairness = Origin::new("fairness").with_workers(2);
            let values = vec![value(turn, metric)?];
            Some(fairness.row("transfer", &system, metric, unit, values))
        })
}

/// Reads some of the figures that `bench micro` wrote: their medians.
fn read(file: &Path, metrics: &[(&str, &str)]) -> anyhow::Result<Values> {
    let table = Table::read(file).with_context(|| format!("cannot read {}", file.display()))?;
    let figures = table.into_iter().flat_map(|table| table.figures);
    let values: Vec<_> = figures
        .filter(|figure| metrics.iter().any(|(name, _)| *name == figure.metric))
        .map(|figure| (figure.metric, figure.spread.median))
        .collect();

    ensure!(!values.is_empty(), "{} has no figure", file.display());
    Ok(values)
}
