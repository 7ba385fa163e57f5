//! `plainweave bench seeds`: what the published figures of the seeds take is measured, one
//! experiment after the other, and all of it stands on one page beside them.
//!
//! Each experiment is a child of this program with flags of its own (`published/figures.toml`),
//! which writes its CSV into the folder as ever. So one that fails costs the others nothing, and
//! what a folder has already is not measured again with `--resume`.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use clap::Args;

use super::published::{self, Run, Seed};
use crate::harness::experiment::Common;
use crate::harness::report::{note, say};
use crate::harness::source::Table;
use crate::harness::{interrupt, machine, names};

/// Every published figure of the seeds (two theses and a web server) beside ours: measures all that
/// takes, and writes one page.
#[derive(Args, Debug)]
pub(crate) struct Flags {
    #[command(flatten)]
    common: Common,

    /// Only the figures of these: cforall, ocaml, warp
    #[arg(long, value_name = "A,B", value_delimiter = ',')]
    seeds: Vec<String>,

    /// Keep what the folder has of the same commands at this commit
    #[arg(long)]
    resume: bool,

    /// Measure C∀ too: see `micro --help`
    #[arg(long, value_name = "DIR")]
    cfa: Option<PathBuf>,

    /// Measure libfibre too: see `micro --help`
    #[arg(long, value_name = "DIR")]
    libfibre: Option<PathBuf>,
}

/// An experiment, as it is run here.
struct Planned {
    words: Vec<String>,
    minutes: u32,
}

/// Runs them all, in the sizes of `--quick` if that was given.
pub(crate) fn run(flags: &Flags, quick: bool) -> anyhow::Result<()> {
    let known = published::seeds().iter().map(|seed| seed.name.as_str());
    names::check("seed", &flags.seeds, known)?;
    let is_chosen = |seed: &&Seed| flags.seeds.is_empty() || flags.seeds.contains(&seed.name);
    let chosen: Vec<_> = published::seeds().iter().filter(is_chosen).collect();
    let runs = chosen.iter().flat_map(|seed| &seed.runs);
    let plan: Vec<_> = runs.map(|run| flags.plan(run, quick)).collect();

    if flags.common.list {
        for seed in chosen {
            say(&format!("{:<8} {}", seed.name, seed.work));
        }
        plan.iter().for_each(|one| say(&one.line()));
        return Ok(());
    }

    let minutes: u32 = plan.iter().map(|one| one.minutes).sum();
    let many = plan.len();
    let all = if many == 1 {
        "experiment"
    } else {
        "experiments"
    };
    note(&format!("{many} {all}, about {minutes} minutes in all"));
    let folder = flags.common.folder();
    interrupt::install()?;
    let began = Instant::now();
    let mut failed = Vec::new();

    for (n, one) in (1..).zip(&plan) {
        let name = one.name();
        if flags.resume && is_there(&folder, one) {
            note(&format!("{n} of {many}: {name}: kept"));
            continue;
        }

        let past = clock(began.elapsed());
        note(&format!("{n} of {many}, {past} so far: {}", one.line()));
        let mut command = Command::new(std::env::current_exe()?);
        command.args(&one.words).arg("--out").arg(&folder);
        let status = command.status().context("cannot start an experiment")?;

        if interrupt::came().is_some() {
            bail!(
                "ended by a signal: `--resume --out {}` goes on",
                folder.display()
            );
        }
        if !status.success() {
            failed.push(name);
        }
    }

    super::run(&super::Flags {
        results: folder.clone(),
    })?;
    say(&format!(
        "published figures beside ours: {}",
        folder.join(super::PUBLISHED).display()
    ));
    match &*failed {
        [] => Ok(()),
        names => bail!("these failed, as is said above: {}", names.join(", ")),
    }
}

impl Flags {
    fn plan(&self, run: &Run, quick: bool) -> Planned {
        let (command, minutes) = if quick {
            (&run.quick, run.quick_minutes)
        } else {
            (&run.command, run.minutes)
        };
        let words = command.split(' ').map(str::to_owned).collect();
        let mut planned = Planned { words, minutes };

        if planned.name() == "micro" {
            for (flag, folder) in [("--cfa", &self.cfa), ("--libfibre", &self.libfibre)] {
                let folder = folder.as_ref().map(|folder| folder.display().to_string());
                let more = folder.map(|folder| [flag.to_owned(), folder]);
                planned.words.extend(more.into_iter().flatten());
            }
        }

        planned
    }
}

impl Planned {
    /// Returns the name of the experiment.
    fn name(&self) -> &str {
        &self.words[0]
    }

    fn line(&self) -> String {
        format!("{} (about {} min)", self.words.join(" "), self.minutes)
    }
}

/// Returns whether the folder has an experiment's rows, made by the same command at this commit.
fn is_there(folder: &Path, one: &Planned) -> bool {
    let path = folder.join(format!("{}.csv", one.name()));
    let Ok(Some(table)) = Table::read(&path) else {
        return false;
    };
    let same = table.command().0.contains(&one.words.join(" "));
    same && table.fact("commit") == Some(machine::commit())
}

/// Writes a time in minutes and seconds.
fn clock(time: Duration) -> String {
    let seconds = time.as_secs();
    format!("{}:{:02}", seconds / 60, seconds % 60)
}
