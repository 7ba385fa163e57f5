//! The case `transfer`: a leader that computes until all others have run. It asks not what fairness costs but whether
//! there is any: fibers behind a busy worker run only if another worker helps.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, ensure};

use super::plan::Choices;
use crate::sample::Row;

/// The figures of `bench micro` that count here.
const METRICS: [(&str, &str); 4] =
    [("us_per_transfer", "us"), ("starved", "1"), ("delay_p999_ns", "ns"), ("delay_max_ns", "ns")];

/// Runs `bench micro` for it, on two workers in the base's mode, with each policy.
pub(super) fn rows(choices: &Choices, runs: usize, time: Duration, dir: &Path) -> anyhow::Result<Vec<Row>> {
    let (mode, out) = (&choices.modes[0], dir.join("transfer"));
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["micro", "--cases", "transfer-yield", "--systems", "plainweave", "--workers", "2", "--far"]);
    command.args(["--modes", mode, "--policy", &choices.policies.join(",")]);
    command.arg(format!("--runs={}", runs)).arg(format!("--seconds={}", time.as_secs_f64()));
    let output = command.arg("--out").arg(&out).stdout(Stdio::null()).output()?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr).trim());
    let file = out.join("micro.csv");
    let text = std::fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))?;
    let mut lines = text.lines().map(|line| line.split(',').collect::<Vec<_>>());
    let columns = lines.next().unwrap_or_default();
    let place = |name: &str| columns.iter().position(|column| *column == name).with_context(|| format!("no {name}"));
    let [system, metric, median] = [place("system")?, place("metric")?, place("median")?];
    let mut rows = Vec::new();
    for line in lines {
        let Some((metric, unit)) = METRICS.into_iter().find(|(name, _)| *name == line[metric]) else { continue };
        let values = vec![line[median].parse().context("a median")?];
        let system = line[system].trim_start_matches("plainweave ").to_owned();
        rows.push(Row {
            experiment: "fairness",
            case: "transfer".to_owned(),
            system,
            workers: 2,
            metric,
            unit,
            values,
        });
    }
    ensure!(!rows.is_empty(), "{} has no figure", file.display());
    Ok(rows)
}
