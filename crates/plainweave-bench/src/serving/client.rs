//! `plainweave load http` as a client: its command and its figures.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, ensure};
use serde::Deserialize;

use super::web::plainweave_program;
use crate::harness::report;

/// How the names begin that `plainweave load` gives to answers that no load excuses.
const WRONG: [&str; 4] = [
    "status ",
    "garbage",
    "wrong length",
    "closed within an answer",
];

/// One run of `plainweave load`.
#[derive(Debug, Deserialize)]
pub(crate) struct Figures {
    figures: plainweave_load::Figures,
    errors_by_kind: BTreeMap<String, u64>,
}

impl Figures {
    /// As `plainweave load --json` has written them.
    pub(crate) fn read(json: &Path) -> anyhow::Result<Self> {
        let text = std::fs::read_to_string(json)
            .with_context(|| format!("cannot read {}", json.display()))?;
        serde_json::from_str(&text)
            .with_context(|| format!("{}: not the results of a load", json.display()))
    }

    /// Makes those of a run that was none.
    #[cfg(test)]
    pub(crate) fn of(figures: &[(&str, f64)]) -> Self {
        let named = |(name, value): &(&str, f64)| ((*name).to_owned(), *value);
        Self {
            figures: figures.iter().map(named).collect(),
            errors_by_kind: BTreeMap::new(),
        }
    }

    /// Returns the figure of this name, as JSON has it.
    pub(crate) fn get(&self, name: &str) -> anyhow::Result<f64> {
        self.figures
            .get(name)
            .with_context(|| format!("no {name} among {:?}", self.figures))
    }

    /// Returns how many of the requests got no right answer, as a share.
    pub(crate) fn failed_share(&self) -> anyhow::Result<f64> {
        Ok(self.get("errors")? / self.get("requests")?.max(1.0))
    }

    /// Wrong answers of `who` are an error. Requests that got none, as on a machine that others
    /// keep busy, are reported and left out of the figures.
    pub(crate) fn check(&self, who: &str) -> anyhow::Result<()> {
        let kinds = &self.errors_by_kind;
        let told: Vec<_> = kinds
            .iter()
            .map(|(kind, count)| format!("{count} of {kind}"))
            .collect();
        let wrong = kinds
            .keys()
            .any(|kind| WRONG.iter().any(|wrong| kind.starts_with(wrong)));
        ensure!(!wrong, "wrong answers from {who}: {}", told.join(", "));

        if !told.is_empty() {
            report::note(&format!(
                "warning: errors under load from {who}: {}",
                told.join(", ")
            ));
        }

        Ok(())
    }
}

/// `plainweave load http` with one worker on this driver.
pub(crate) fn load(
    driver: &str,
    url: &str,
    length: Duration,
    json: &Path,
    more: &[&str],
) -> anyhow::Result<Command> {
    let mut command = Command::new(plainweave_program().context("no plainweave")?);
    command.args([
        "load",
        "http",
        url,
        "--workers",
        "1",
        "--io",
        driver,
        "--max-errors",
        "1",
        "--min-rate",
        "0",
    ]);
    command
        .args(["--duration", &format!("{}ms", length.as_millis())])
        .arg(to_json(json))
        .args(more);
    Ok(command)
}

/// Returns the flag that has `plainweave load` write its results to a file.
pub(crate) fn to_json(file: &Path) -> String {
    format!("--json={}", file.display())
}

/// Runs it to its end; more load than can be borne may leave every request without an answer.
pub(crate) fn run_overload(command: &mut Command, json: &Path) -> anyhow::Result<Figures> {
    let _ = std::fs::remove_file(json);
    let output = command.output().context("cannot run plainweave load")?;
    Figures::read(json).with_context(|| {
        format!(
            "plainweave load: {}",
            String::from_utf8_lossy(&output.stderr)
        )
    })
}

/// Runs it to its end.
pub(crate) fn run_load(command: &mut Command, json: &Path) -> anyhow::Result<Figures> {
    let output = command.output().context("cannot run plainweave load")?;
    ensure!(
        output.status.success(),
        "plainweave load: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    Figures::read(json)
}

/// CPU time of all children that have ended, from start to end of each.
pub(crate) fn children_cpu() -> anyhow::Result<Duration> {
    let text = std::fs::read_to_string("/proc/self/stat")?;
    // Behind the name, which may hold blanks, come the third and further fields; these are the 16th
    // and 17th.
    let after = text.rsplit_once(')').map_or("", |(_, after)| after);
    let ticks = after
        .split_whitespace()
        .skip(13)
        .take(2)
        .map(str::parse::<u64>)
        .sum::<Result<u64, _>>()?;
    Ok(Duration::from_secs_f64(
        ticks as f64 / rustix::param::clock_ticks_per_second() as f64,
    ))
}
