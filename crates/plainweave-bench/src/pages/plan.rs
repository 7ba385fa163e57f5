//! Several experiments in a row, each a child of this program with flags of its own, which writes
//! its CSV into one folder as ever. So one that fails costs the others nothing.
//!
//! What has ended well leaves a note in the folder: its commit and its command. A run that goes on
//! keeps what has such a note, and nothing else: a CSV alone may be half of one.

use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use rustix::process::{Pid, Signal, kill_process};

use crate::harness::report::{RAW, note};
use crate::harness::source::Table;
use crate::harness::{interrupt, machine};

/// Between two looks at a child.
const LOOK: Duration = Duration::from_millis(100);

/// Experiments that go on in the middle themselves.
const RESUMING: [&str; 9] = [
    "cache-sweep",
    "web-sweep",
    "packets",
    "cache-effects",
    "bimodal",
    "mixer",
    "options",
    "fib",
    "compose",
];

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

    /// Returns its file of the folder.
    fn csv(&self, folder: &Path) -> PathBuf {
        folder.join(format!("{}.csv", self.name()))
    }

    /// Returns where its note is.
    fn note(&self, folder: &Path) -> PathBuf {
        folder.join(RAW).join(format!("{}.done", self.name()))
    }

    /// Returns what the note says.
    fn said(&self) -> String {
        format!("{}\n{}\n", machine::commit(), self.words.join(" "))
    }

    fn is_done(&self, folder: &Path) -> bool {
        let said = std::fs::read_to_string(self.note(folder));
        said.is_ok_and(|said| said == self.said())
    }

    /// # Errors
    /// The folder has its file, by another command: that would be lost.
    fn check(&self, folder: &Path) -> anyhow::Result<()> {
        let path = self.csv(folder);
        let Ok(Some(table)) = Table::read(&path) else {
            return Ok(());
        };
        let (theirs, _) = table.command();
        let flags = theirs.split(" --out ").next().unwrap_or_default();
        let ours = format!("plainweave bench {}", self.words.join(" "));
        ensure!(
            flags.trim_end_matches(" --resume") == ours,
            "{} is of another command: {theirs}; name another folder by --out",
            path.display()
        );
        Ok(())
    }

    /// Runs it to its end; a signal that comes meanwhile is passed on.
    fn run(&self, folder: &Path, resume: bool) -> anyhow::Result<ExitStatus> {
        let _ = std::fs::remove_file(self.note(folder));
        let mut command = Command::new(std::env::current_exe()?);
        command.args(&self.words);
        command.args((resume && RESUMING.contains(&self.name())).then_some("--resume"));
        command.arg("--out").arg(folder);
        // In a group of its own, so that a terminal's signals come by this process alone: a second
        // one would end it at once, without what it has.
        command.process_group(0);
        let mut child = command.spawn().context("cannot start an experiment")?;
        let mut told = false;

        loop {
            if let Some(status) = child.try_wait()? {
                return Ok(status);
            }
            if interrupt::came().is_some() && !told {
                told = true;
                let _ = kill_process(Pid::from_child(&child), Signal::TERM);
            }
            std::thread::sleep(LOOK);
        }
    }
}

/// Runs them all into a folder; `resume`: but for those that it has.
///
/// # Errors
/// The folder has files of other commands. A signal has come, or experiments have failed, when all
/// others have been run.
pub(super) fn run(plan: &[Planned], folder: &Path, resume: bool) -> anyhow::Result<()> {
    plan.iter().try_for_each(|one| one.check(folder))?;
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
        if resume && one.is_done(folder) {
            note(&format!("{n} of {many}: {}: kept", one.name()));
            continue;
        }

        let past = clock(began.elapsed());
        note(&format!("{n} of {many}, {past} so far: {}", one.line()));
        let status = one.run(folder, resume)?;
        if interrupt::came().is_some() {
            let folder = folder.display();
            bail!("ended by a signal: `--resume --out {folder}` goes on");
        }
        if !status.success() {
            failed.push(one.name());
            continue;
        }

        let path = one.note(folder);
        std::fs::write(&path, one.said())
            .with_context(|| format!("cannot write {}", path.display()))?;
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

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = "experiment,case,system,workers,metric,unit,median,q1,q3,min,max,runs\n";
    const ROW: &str = "fib,base,plainweave,1,time_ms,ms,1,1,1,1,1,1\n";

    fn folder(name: &str) -> PathBuf {
        let dir = std::env::temp_dir().join(format!("plan-{}-{name}", std::process::id()));
        std::fs::create_dir_all(dir.join(RAW)).unwrap();
        dir
    }

    #[test]
    fn what_is_done_is_known_by_its_note_alone() {
        let dir = folder("note");
        let whole = Planned::new("fib", 1);
        let quick = Planned::new("fib --iterations 3", 1);
        let command = "# command: plainweave bench fib --iterations 3 --out x\n";
        std::fs::write(whole.csv(&dir), format!("{command}{HEAD}{ROW}")).unwrap();
        // A file may be half of what it should be.
        assert!(!quick.is_done(&dir));

        std::fs::write(quick.note(&dir), quick.said()).unwrap();
        assert!(quick.is_done(&dir) && !whole.is_done(&dir));
        std::fs::write(quick.note(&dir), "another\nfib --iterations 3\n").unwrap();
        assert!(!quick.is_done(&dir));
        std::fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn nothing_of_another_command_is_overwritten() {
        let dir = folder("other");
        let quick = Planned::new("fib --iterations 3", 1);
        quick.check(&dir).unwrap();
        for (command, is_same) in [
            ("fib --iterations 3 --out x", true),
            ("fib --iterations 3 --resume --out x", true),
            ("fib --iterations 30 --out x", false),
            ("fib --out x", false),
        ] {
            let head = format!("# command: plainweave bench {command}\n");
            std::fs::write(quick.csv(&dir), format!("{head}{HEAD}{ROW}")).unwrap();
            assert_eq!(quick.check(&dir).is_ok(), is_same, "{command}");
        }
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
