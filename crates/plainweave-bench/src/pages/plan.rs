//! Several experiments in a row, each a child of this program with flags of its own, which writes
//! its CSV into one folder as ever. So one that fails costs the others nothing.
//!
//! What has ended well leaves a mark in the folder: its commit, machine and command. A run that
//! goes on keeps what has such a mark, and nothing else: a CSV alone may be half of one.

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

/// What the figures of one run have in common, by the head of their files.
pub(super) const SAME: [&str; 4] = ["CPU", "kernel", "commit", "profile"];

/// Experiments that keep each turn, and go on behind the last.
pub(super) const RESUMING: [&str; 8] = [
    "cache-sweep",
    "web-sweep",
    "packets",
    "cache-effects",
    "bimodal",
    "mixer",
    "options",
    "fib",
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
    pub(super) fn csv(&self, folder: &Path) -> PathBuf {
        folder.join(format!("{}.csv", self.name()))
    }

    /// Returns where its mark is.
    fn mark(&self, folder: &Path) -> PathBuf {
        folder.join(RAW).join(format!("{}.done", self.name()))
    }

    /// Returns what the mark says.
    fn marked(&self) -> String {
        let mut text = self.words.join(" ") + "\n";
        for (key, value) in machine::describe() {
            if SAME.contains(&key) {
                text += &format!("{key}: {value}\n");
            }
        }
        text
    }

    fn is_done(&self, folder: &Path) -> bool {
        // Two trees with changes have the same name.
        let is_clean = !machine::commit().contains(' ');
        let text = std::fs::read_to_string(self.mark(folder));
        is_clean && self.csv(folder).is_file() && text.is_ok_and(|text| text == self.marked())
    }

    /// Checks that a table is of this command.
    pub(super) fn check(&self, table: &Table) -> anyhow::Result<()> {
        let (theirs, _) = table.command();
        let flags = theirs.split(" --out").next().unwrap_or_default();
        let ours = format!("plainweave bench {}", self.words.join(" "));
        ensure!(
            flags.trim_end_matches(" --resume") == ours,
            "{}.csv is of another command: {theirs}",
            table.name
        );
        Ok(())
    }

    /// Checks that nothing in the folder would be lost.
    fn check_folder(&self, folder: &Path, resume: bool) -> anyhow::Result<()> {
        let path = self.csv(folder);
        if !path.exists() {
            return Ok(());
        }
        let why = || format!("{}: name another folder by --out", path.display());
        ensure!(resume, "{}, or go on by --resume", why());
        let Some(table) = Table::read(&path).with_context(why)? else {
            bail!("{}", why());
        };
        self.check(&table).with_context(why)?;
        let commit = table.fact("commit").unwrap_or("not recorded");
        let is_same = commit == machine::commit();
        ensure!(is_same, "{}: it is of commit {commit}", why());
        Ok(())
    }

    /// Returns whether it can go on behind its last turn.
    fn has_turns(&self, folder: &Path) -> bool {
        let path = folder.join(RAW).join(format!("{}-turns.csv", self.name()));
        RESUMING.contains(&self.name()) && path.is_file()
    }

    /// Runs it to its end; a signal that comes meanwhile is passed on.
    fn run(&self, folder: &Path, resume: bool) -> anyhow::Result<ExitStatus> {
        let _ = std::fs::remove_file(self.mark(folder));
        let mut command = Command::new(std::env::current_exe()?);
        command.args(&self.words);
        command.args((resume && self.has_turns(folder)).then_some("--resume"));
        command.arg("--out").arg(folder);
        let mut child = command.spawn().context("cannot start an experiment")?;
        let mut told = false;

        loop {
            if let Some(status) = child.try_wait()? {
                return Ok(status);
            }
            // A terminal tells both of Ctrl-C; a second signal would end the child at once,
            // without what it has.
            if interrupt::came() == Some(Signal::TERM.as_raw() as u8) && !told {
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
/// The folder has files that would be lost. A signal has come, or experiments have failed, when all
/// others have been run.
pub(super) fn run(plan: &[Planned], folder: &Path, resume: bool) -> anyhow::Result<()> {
    for one in plan {
        one.check_folder(folder, resume)?;
    }
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

        let path = one.mark(folder);
        std::fs::write(&path, one.marked())
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

    /// Writes a file of `fib` as a command has made it.
    fn write(dir: &Path, command: &str, commit: &str) {
        let head = format!("# command: plainweave bench {command}\n# commit: {commit}\n");
        std::fs::write(dir.join("fib.csv"), format!("{head}{HEAD}{ROW}")).unwrap();
    }

    #[test]
    fn what_is_done_has_its_mark_and_its_file() {
        let dir = folder("mark");
        let whole = Planned::new("fib", 1);
        let quick = Planned::new("fib --iterations 3", 1);
        write(&dir, "fib --iterations 3 --out x", machine::commit());
        // A file may be half of what it should be.
        assert!(!quick.is_done(&dir));

        std::fs::write(quick.mark(&dir), quick.marked()).unwrap();
        let is_clean = !machine::commit().contains(' ');
        assert_eq!(
            [quick.is_done(&dir), whole.is_done(&dir)],
            [is_clean, false]
        );
        let other = quick.marked().replace("CPU: ", "CPU: another ");
        std::fs::write(quick.mark(&dir), other).unwrap();
        assert!(!quick.is_done(&dir));
        std::fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn nothing_that_is_there_is_overwritten() {
        let dir = folder("there");
        let quick = Planned::new("fib --iterations 3", 1);
        quick.check_folder(&dir, false).unwrap();
        let commit = machine::commit();
        for (command, commit, may_go_on) in [
            ("fib --iterations 3 --out x", commit, true),
            ("fib --iterations 3 --resume --out=x", commit, true),
            ("fib --iterations 30 --out x", commit, false),
            ("fib --out x", commit, false),
            ("fib --iterations 3 --out x", "abc", false),
        ] {
            write(&dir, command, commit);
            assert_eq!(
                quick.check_folder(&dir, true).is_ok(),
                may_go_on,
                "{command}"
            );
            let error = quick.check_folder(&dir, false).unwrap_err().to_string();
            assert!(error.contains("or go on by --resume"), "{error}");
        }
        // Nobody knows what this was.
        std::fs::write(dir.join("fib.csv"), "cut").unwrap();
        assert!(quick.check_folder(&dir, true).is_err());
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
