//! `plainweave bench readme`: the tables of README.md, measured in one run on one machine and
//! written into it, each between its two marks.
//!
//! `rows.toml` has what is run and which rows there are. A ratio is our cost divided by theirs: the
//! median of the rounds' ratios where the systems take turns in a round, else that of the medians,
//! with the widest range that their quartiles allow. A loss stands there like a win, and what could
//! not be measured says so. A test compares README with the kept figures, digit for digit.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use anyhow::{Context, ensure};
use clap::Args;
use serde::Deserialize;

use super::Run as Folder;
use super::plan::{self, Planned};
use crate::harness::experiment::Common;
use crate::harness::report::say;
use crate::harness::source::{Figure, Table};

/// The tables of README.md: measures every row in one run, and writes them there.
#[derive(Args, Debug)]
pub(crate) struct Flags {
    #[command(flatten)]
    common: Common,

    /// Keep what the folder has of the same commands at this commit
    #[arg(long)]
    resume: bool,

    /// Measure nothing: write what the folder has
    #[arg(long, requires = "out")]
    write_only: bool,

    /// The page to write
    #[arg(long, value_name = "FILE", default_value = "README.md")]
    readme: PathBuf,
}

/// What is not there.
const ABSENT: &str = "not measured";

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    run: Vec<Run>,
    table: Vec<Rows>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Run {
    command: String,
    minutes: u32,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Rows {
    name: String,
    /// What the column beside the default is called.
    other: String,
    row: Vec<Row>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Row {
    what: String,
    gives: String,
    experiment: String,
    case: String,
    metric: String,
    ours: [String; 2],
    again: String,
    peers: Vec<Peer>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Peer {
    name: String,
    system: String,
    /// The metric with the ratio of each round.
    paired: Option<String>,
}

/// What is part of this program has been read by its tests.
static FILE: LazyLock<File> = LazyLock::new(|| {
    toml::from_str(include_str!("readme/rows.toml")).expect("rows.toml is well-formed")
});

pub(crate) fn run(flags: &Flags) -> anyhow::Result<()> {
    let planned = |run: &Run| Planned::new(&run.command, run.minutes);
    let plan: Vec<_> = FILE.run.iter().map(planned).collect();
    if flags.common.list {
        plan.iter().for_each(|one| say(&one.line()));
        return Ok(());
    }

    // Before an hour is spent.
    let page = std::fs::read_to_string(&flags.readme);
    let page = page.with_context(|| format!("cannot read {}", flags.readme.display()))?;
    for table in &FILE.table {
        between(&page, &table.name)?;
    }

    let folder = flags.common.folder();
    if !flags.write_only {
        plan::run(&plan, &folder, flags.resume)?;
    }
    let page = filled(page, &folder)?;
    std::fs::write(&flags.readme, page)
        .with_context(|| format!("cannot write {}", flags.readme.display()))?;
    say(&format!("written: {}", flags.readme.display()));
    Ok(())
}

/// Returns the page with all tables as a folder's figures have them.
fn filled(mut page: String, folder: &Path) -> anyhow::Result<String> {
    let mut problems = Vec::new();
    let found = Folder::read(folder, &mut problems)?;
    ensure!(problems.is_empty(), "{}", problems.join("\n"));
    for table in &FILE.table {
        let place = between(&page, &table.name)?;
        let text = format!("\n{}", table.text(&found)?);
        page.replace_range(place, &text);
    }

    Ok(page)
}

/// Returns where a table's text is: between its marks.
fn between(page: &str, name: &str) -> anyhow::Result<std::ops::Range<usize>> {
    let [begin, end] = marks(name);
    let from = page.find(&begin).map(|at| at + begin.len());
    let place = from.and_then(|from| Some(from..from + page.get(from..)?.find(&end)?));
    place.with_context(|| format!("the page has no place for a table: {begin} and {end}"))
}

fn marks(name: &str) -> [String; 2] {
    [
        format!("<!-- bench readme: {name} -->"),
        format!("<!-- end of {name} -->"),
    ]
}

impl Rows {
    fn text(&self, folder: &Folder) -> anyhow::Result<String> {
        let mut text = format!(
            "{}| measured | against | default | {} | A/A | what it is for |\n\
             |---|---|---|---|---|---|\n",
            self.origin(folder)?,
            self.other
        );
        for row in &self.row {
            let table = table(folder, &row.experiment);
            for (n, peer) in row.peers.iter().enumerate() {
                let [what, again, gives] = if n == 0 {
                    [row.what.clone(), row.noise(table), row.gives.clone()]
                } else {
                    ["the same".to_owned(), String::new(), String::new()]
                };
                let [default, other] = [0, 1].map(|which| row.ratio(table, which, peer));
                let _ = writeln!(
                    text,
                    "| {what} | {} | {default} | {other} | {again} | {gives} |",
                    peer.name
                );
            }
        }

        Ok(text)
    }

    /// Returns the sentence on where the figures are from.
    fn origin(&self, folder: &Folder) -> anyhow::Result<String> {
        let tables = self.row.iter().map(|row| table(folder, &row.experiment));
        let table = tables.flatten().next();
        let table = table.context("the folder has no figures of README's tables")?;
        let fact = |key| table.fact(key).unwrap_or("not recorded");
        let [day, ..] = fact("date").split(' ').collect::<Vec<_>>()[..] else {
            return Ok(String::new());
        };
        Ok(format!(
            "`plainweave bench readme` on {}, {}, {day}, commit {}, profile {} (`results/{}`):\n\n",
            fact("CPU"),
            fact("kernel"),
            fact("commit"),
            fact("profile"),
            folder.name
        ))
    }
}

/// Returns an experiment's table in a folder.
fn table<'a>(folder: &'a Folder, experiment: &str) -> Option<&'a Table> {
    let mut tables = folder.tables.iter();
    tables.find(|table| table.experiment == experiment)
}

impl Row {
    fn find<'a>(&self, table: Option<&'a Table>, system: &str, metric: &str) -> Option<&'a Figure> {
        table?.figures.iter().find(|figure| {
            let names = [&figure.case, &figure.system, &figure.metric].map(String::as_str);
            names == [&self.case, system, metric]
        })
    }

    /// Writes the ratio of one of ours to a peer, with its quartiles.
    fn ratio(&self, table: Option<&Table>, which: usize, peer: &Peer) -> String {
        let ours = &self.ours[which];
        let paired = peer.paired.as_deref();
        let paired = paired.and_then(|metric| self.find(table, ours, metric));
        let [median, low, high] = if let Some(ratio) = paired {
            let spread = &ratio.spread;
            [spread.median, spread.q1, spread.q3]
        } else {
            let of = |system: &str| Some(&self.find(table, system, &self.metric)?.spread);
            let (Some(ours), Some(theirs)) = (of(ours), of(&peer.system)) else {
                return ABSENT.to_owned();
            };
            [
                ours.median / theirs.median,
                ours.q1 / theirs.q3,
                ours.q3 / theirs.q1,
            ]
        };

        let loss = if median > 1.0 { "**" } else { "" };
        format!("{loss}{median:.2}{loss} ({low:.2} to {high:.2})")
    }

    /// Writes what lies between the default and itself.
    fn noise(&self, table: Option<&Table>) -> String {
        let of = |system: &str| Some(self.find(table, system, &self.metric)?.spread.median);
        match (of(&self.ours[0]), of(&self.again)) {
            (Some(once), Some(again)) => format!("{:.2}", again / once),
            _ => ABSENT.to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::Cli;
    use crate::pages::compare::tests::{figure, table as made};

    #[test]
    fn what_is_run_can_be() {
        for run in &FILE.run {
            let words = std::iter::once("bench").chain(run.command.split(' '));
            let parsed = Cli::try_parse_from(words);
            assert!(parsed.is_ok(), "{}", run.command);
        }
        for row in FILE.table.iter().flat_map(|table| &table.row) {
            let begin = format!("{} ", row.experiment);
            let mut runs = FILE.run.iter();
            let run = runs.find(|run| format!("{} ", run.command).starts_with(&begin));
            let run = &run
                .unwrap_or_else(|| panic!("{}: no run", row.what))
                .command;
            let mut words = run.split(' ').skip_while(|word| *word != "--cases");
            let cases = words.nth(1).unwrap_or(&row.case);
            assert!(
                cases.split(',').any(|case| case == row.case),
                "{}",
                row.what
            );
        }
    }

    /// Some figures of the first row.
    fn some() -> Folder {
        let cpu = |system, us| figure("1k-64", system, "cpu_us_per_request", "us", us);
        let mut web = made(
            "web",
            vec![
                cpu("plainweave uring", 6.0),
                cpu("plainweave uring again", 6.3),
                cpu("nginx defaults", 10.0),
                figure("1k-64", "plainweave uring", "ratio_to_nginx", "1", 0.8),
                cpu("limit", 5.0),
            ],
        );
        let facts = [
            ("CPU", "2 x EPYC"),
            ("date", "2026-11-30 10:00 UTC"),
            ("commit", "abc"),
        ];
        web.facts = facts
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .to_vec();
        Folder {
            name: "2026-11-30-lab".to_owned(),
            tables: vec![web],
        }
    }

    #[test]
    fn ratios_stand_in_their_rows() {
        let text = FILE.table[0].text(&some()).unwrap();
        for part in [
            "on 2 x EPYC, not recorded, 2026-11-30, commit abc, profile not recorded",
            "(`results/2026-11-30-lab`):\n",
            "64 connections | nginx, tuned | 0.80 (0.72 to 0.88) | not measured | 1.05 |",
            // By medians and the widest range, since no round has them side by side.
            "| the same | nginx as installed | 0.60 (0.49 to 0.73) | not measured |  |",
            "| the same | a raw epoll loop | **1.20** (",
            "| the same | a raw io_uring loop | not measured |",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }

    #[test]
    fn tables_take_the_place_between_their_marks() {
        let [begin, end] = marks("servers");
        let page = format!("before\n{begin}\nold\n{end}\nafter\n");
        let place = between(&page, "servers").unwrap();
        assert_eq!(&page[place], "\nold\n");
        let error = between("nothing", "servers").unwrap_err().to_string();
        assert!(error.contains("the page has no place for a table: <!-- bench readme: servers"));
    }
}
