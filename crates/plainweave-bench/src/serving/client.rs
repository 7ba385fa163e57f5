//! `plainweave load http` as a client: its command and its figures.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, ensure};

use super::web::plainweave_program;
use crate::harness::report;

/// How the names begin that `plainweave load` gives to answers that no load excuses.
const WRONG: [&str; 4] = [
    "status ",
    "garbage",
    "wrong length",
    "closed within an answer",
];

/// The figures of one run of `plainweave load`, by name.
pub(crate) struct Figures(pub(crate) String);

impl From<&str> for Figures {
    fn from(text: &str) -> Self {
        Self(text.to_owned())
    }
}

impl Figures {
    /// As `plainweave load` has written them.
    pub(crate) fn read(csv: &Path) -> anyhow::Result<Self> {
        let text = std::fs::read_to_string(csv);
        Ok(Self(text.with_context(|| {
            format!("cannot read {}", csv.display())
        })?))
    }

    pub(crate) fn get(&self, metric: &str) -> anyhow::Result<f64> {
        let line = self
            .0
            .lines()
            .find_map(|line| line.strip_prefix(metric)?.strip_prefix(','));
        let value = line.and_then(|rest| rest.split_once(',')?.1.parse().ok());
        value.with_context(|| format!("no {metric} among {}", self.0))
    }

    /// Returns how many of the requests got no right answer, as a share.
    pub(crate) fn failed_share(&self) -> anyhow::Result<f64> {
        Ok(self.get("errors")? / self.get("requests")?.max(1.0))
    }

    /// Wrong answers of `who` are an error. Requests that got none, as on a machine that others
    /// keep busy, are reported and left out of the figures.
    pub(crate) fn check(&self, who: &str) -> anyhow::Result<()> {
        let kinds = self
            .0
            .lines()
            .filter_map(|line| line.strip_prefix("errors: ")?.split_once(",1,"));
        let told: Vec<_> = kinds
            .clone()
            .map(|(kind, count)| format!("{count} of {kind}"))
            .collect();
        let wrong = kinds
            .clone()
            .any(|(kind, _)| WRONG.iter().any(|wrong| kind.starts_with(wrong)));
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
    csv: &Path,
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
        .arg("--csv")
        .arg(csv)
        .args(more);
    Ok(command)
}

/// Runs it to its end; more load than can be borne may leave every request without an answer.
pub(crate) fn run_overload(command: &mut Command, csv: &Path) -> anyhow::Result<Figures> {
    let _ = std::fs::remove_file(csv);
    let output = command.output().context("cannot run plainweave load")?;
    Figures::read(csv).with_context(|| {
        format!(
            "plainweave load: {}",
            String::from_utf8_lossy(&output.stderr)
        )
    })
}

/// Runs it to its end.
pub(crate) fn run_load(command: &mut Command, csv: &Path) -> anyhow::Result<Figures> {
    let output = command.output().context("cannot run plainweave load")?;
    ensure!(
        output.status.success(),
        "plainweave load: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    Figures::read(csv)
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
