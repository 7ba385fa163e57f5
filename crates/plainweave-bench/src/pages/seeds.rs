//! `plainweave bench seeds`: what the published figures of the seeds take is measured, one
//! experiment after the other (`published/figures.toml`), and all of it stands on one page beside
//! them.

use std::path::PathBuf;

use anyhow::ensure;
use clap::Args;

use super::plan::{self, Planned};
use super::published::{self, Run, Seed};
use crate::harness::experiment::Common;
use crate::harness::report::say;
use crate::harness::{interrupt, names};

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

    /// For tests: a flag of every experiment
    #[arg(
        long,
        hide = true,
        value_name = "FLAG=VALUE",
        allow_hyphen_values = true
    )]
    more: Vec<String>,
}

/// The experiment that has other systems by their folders.
const MICRO: &str = "micro";

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

    // Before hours are spent.
    let has_micro = plan.iter().any(|one| one.name() == MICRO);
    for (flag, folder) in flags.peers() {
        ensure!(has_micro, "{flag}: no chosen seed has micro-benchmarks");
        let there = folder.is_dir();
        ensure!(there, "{flag} {}: no such folder", folder.display());
    }

    let folder = flags.common.folder();
    let done = plan::run(&plan, &folder, flags.resume);
    if interrupt::came().is_some() {
        return done;
    }

    super::run(&super::Flags {
        results: folder.clone(),
    })?;
    say(&format!(
        "published figures beside ours: {}",
        folder.join(super::PUBLISHED).display()
    ));
    done
}

impl Flags {
    /// Returns the folders of other systems, each with its flag.
    fn peers(&self) -> impl Iterator<Item = (&'static str, &PathBuf)> {
        let peers = [("--cfa", &self.cfa), ("--libfibre", &self.libfibre)];
        let given = peers.map(|(flag, folder)| Some((flag, folder.as_ref()?)));
        given.into_iter().flatten()
    }

    fn plan(&self, run: &Run, quick: bool) -> Planned {
        let (command, minutes) = if quick {
            (&run.quick, run.quick_minutes)
        } else {
            (&run.command, run.minutes)
        };
        let mut planned = Planned::new(command, minutes);
        planned.words.extend(self.more.iter().cloned());
        if planned.name() == MICRO {
            let peers = self.peers();
            let more = peers.map(|(flag, folder)| [flag.to_owned(), folder.display().to_string()]);
            planned.words.extend(more.flatten());
        }

        planned
    }
}
