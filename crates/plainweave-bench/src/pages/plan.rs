//! Several experiments in a row, each a child of this program with flags of its own, which writes
//! its CSV into one folder as ever. So one that fails costs the others nothing, and what the folder
//! has already is not measured again if a run goes on.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};

use crate::harness::report::note;
use crate::harness::source::Table;
use crate::harness::{interrupt, machine};

/// An experiment that will be run.
pub(super) struct Planned {
    /// Its arguments, the first of which is its name.
    pub(super) words: Vec<String>,
    /// About how long it takes.
    pub(super) minutes: u32,
}

impl Planned {
    pub(super) fn new(command: &str, minutes: u32) -> Self {
        let words = command.split(' ').map(str::to_owned).collect();
        Self { words, minutes }
    }

    /// Returns the name of the experiment.
    pub(super) fn name(&self) -> &str {
        &self.words[0]
    }

    pub(super) fn line(&self) -> String {
        format!("{} (about {} min)", self.words.join(" "), self.minutes)
    }

    /// Returns whether the folder has its rows, made by the same command at this commit.
    fn is_in(&self, folder: &Path) -> bool {
        let path = folder.join(format!("{}.csv", self.name()));
        let Ok(Some(table)) = Table::read(&path) else {
            return false;
        };
        let same = table.command().0.contains(&self.words.join(" "));
        same && table.fact("commit") == Some(machine::commit())
    }
}

/// Runs them all into a folder; `resume`: but for those that it has.
///
/// # Errors
/// A signal has come, or experiments have failed, when all others have been run.
pub(super) fn run(plan: &[Planned], folder: &Path, resume: bool) -> anyhow::Result<()> {
    let minutes: u32 = plan.iter().map(|one| one.minutes).sum();
    let many = plan.len();
    let all = if many == 1 {
        "experiment"
    } else {
        "experiments"
    };
    note(&format!("{many} {all}, about {minutes} minutes in all"));
    interrupt::install()?;
    let began = Instant::now();
    let mut failed = Vec::new();

    for (n, one) in (1..).zip(plan) {
        if resume && one.is_in(folder) {
            note(&format!("{n} of {many}: {}: kept", one.name()));
            continue;
        }

        let past = clock(began.elapsed());
        note(&format!("{n} of {many}, {past} so far: {}", one.line()));
        let mut command = Command::new(std::env::current_exe()?);
        command.args(&one.words).arg("--out").arg(folder);
        let status = command.status().context("cannot start an experiment")?;

        if interrupt::came().is_some() {
            let folder = folder.display();
            bail!("ended by a signal: `--resume --out {folder}` goes on");
        }
        if !status.success() {
            failed.push(one.name());
        }
    }

    match &*failed {
        [] => Ok(()),
        names => bail!("these failed, as is said above: {}", names.join(", ")),
    }
}

/// Writes a time in minutes and seconds.
fn clock(time: Duration) -> String {
    let seconds = time.as_secs();
    format!("{}:{:02}", seconds / 60, seconds % 60)
}
