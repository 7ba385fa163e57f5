//! The case `transfer`: a leader that computes until all others have run. It asks not what fairness costs but whether
//! there is any: fibers behind a busy worker run only if another worker helps.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, ensure};

use super::plan::Choices;
use crate::machine;
use crate::sample::Row;

/// Runs `bench micro` for it, on two workers in the base's mode, with each policy: once as it is, and once observed.
pub(super) fn rows(choices: &Choices, runs: usize, time: Duration, dir: &Path) -> anyhow::Result<Vec<Row>> {
    let out = dir.join("transfer");
    // Servers before it have left this process on the load's CPU.
    machine::pin_to_first(machine::cpus());
    let measure = |more: &[&str], metrics: &[(&'static str, &'static str)]| {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["micro", "--cases", "transfer-yield", "--systems", "plainweave", "--workers", "2", "--far"]);
        command.args(["--modes", &choices.modes[0], "--policy", &choices.policies.join(",")]).args(more);
        command.arg(format!("--runs={runs}")).arg(format!("--seconds={}", time.as_secs_f64()));
        let output = command.arg("--out").arg(&out).stdout(Stdio::null()).output()?;
        ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr).trim());
        read(&out.join("micro.csv"), metrics)
    };
    let mut rows = measure(&[], &[("us_per_transfer", "us"), ("transfer_p99_us", "us"), ("starved", "1")])?;
    rows.extend(measure(&["--observe"], &[("greatest_wait_us", "us"), ("rank_error", "1")])?);
    Ok(rows)
}

/// Reads some of the figures that `bench micro` wrote: their medians.
fn read(file: &Path, metrics: &[(&'static str, &'static str)]) -> anyhow::Result<Vec<Row>> {
    let text = std::fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
    let mut lines = text.lines().filter(|line| !line.starts_with('#')).map(|line| line.split(',').collect::<Vec<_>>());
    let columns = lines.next().unwrap_or_default();
    let place = |name: &str| columns.iter().position(|column| *column == name).with_context(|| format!("no {name}"));
    let [system, metric, median] = [place("system")?, place("metric")?, place("median")?];
    let mut rows = Vec::new();
    for line in lines {
        let Some(&(metric, unit)) = metrics.iter().find(|(name, _)| *name == line[metric]) else { continue };
        let values = vec![line[median].parse().context("a median")?];
        let system = line[system].trim_start_matches("plainweave ").to_owned();
        let case = "transfer".to_owned();
        rows.push(Row { experiment: "fairness", case, system, workers: 2, metric, unit, values });
    }
    ensure!(!rows.is_empty(), "{} has no figure", file.display());
    Ok(rows)
}
