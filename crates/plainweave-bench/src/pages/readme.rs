//! `plainweave bench readme`: the tables of README.md, measured in one run on one machine and
//! written into it, each between its two marks.
//!
//! `rows.toml` has what is run and which rows there are. The systems take turns in each round, so a
//! ratio is that of a round, our cost divided by theirs: its median and quartiles stand in the
//! table. A loss stands there like a win, and what could not be measured says so. A test compares
//! README with the kept figures, digit for digit.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use anyhow::{Context, ensure};
use clap::Args;
use serde::Deserialize;

use super::plan::{self, Planned, SAME};
use crate::harness::experiment::Common;
use crate::harness::machine;
use crate::harness::report::{RAW, note, say};
use crate::harness::source::Table;
use plainweave_report::statistics::{Spread, ratios};

/// The tables of README.md: measures every row in one run, and writes them there.
#[derive(Args, Debug)]
pub(crate) struct Flags {
    #[command(flatten)]
    common: Common,

    /// Keep what the folder has of the same commands at this commit
    #[arg(long)]
    resume: bool,

    /// Measure nothing: write what this folder has
    #[arg(long, value_name = "DIR", conflicts_with_all = ["out", "resume"])]
    from: Option<PathBuf>,

    /// The page to write
    #[arg(long, value_name = "FILE", default_value = "README.md")]
    readme: PathBuf,
}

/// What is not there.
const ABSENT: &str = "not measured";

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    run: Vec<Experiment>,
    table: Vec<Rows>,
}

/// What is measured.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Experiment {
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
    /// What it is for.
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
}

/// What is part of this program has been read by its tests.
static FILE: LazyLock<File> = LazyLock::new(|| {
    toml::from_str(include_str!("readme/rows.toml")).expect("rows.toml is well-formed")
});

/// The figures of a folder.
struct Found {
    /// The folder's name, and whether it is in `results`.
    name: String,
    is_in_results: bool,
    facts: HashMap<&'static str, String>,
    /// Values by round, under experiment, case, system and metric.
    values: HashMap<[String; 4], Vec<f64>>,
}

pub(crate) fn run(flags: &Flags) -> anyhow::Result<()> {
    let plan = plan();
    if flags.common.list {
        plan.iter().for_each(|one| say(&one.line()));
        return Ok(());
    }

    let read = || {
        std::fs::read_to_string(&flags.readme)
            .with_context(|| format!("cannot read {}", flags.readme.display()))
    };
    // Before an hour is spent.
    let page = read()?;
    for table in &FILE.table {
        between(&page, &table.name)?;
    }

    let folder = flags.from.clone().unwrap_or_else(|| flags.common.folder());
    if flags.from.is_none() {
        plan::run(&plan, &folder, flags.resume)?;
    }
    let found = Found::read(&folder)?;
    if let Some(why) = found.unfit() {
        FILE.table.iter().for_each(|table| say(&table.text(&found)));
        note(&format!("{} stays as it is: {why}", flags.readme.display()));
        return Ok(());
    }

    // Somebody may have written in it meanwhile.
    let page = with_tables(read()?, &found)?;
    std::fs::write(&flags.readme, page)
        .with_context(|| format!("cannot write {}", flags.readme.display()))?;
    say(&format!("written: {}", flags.readme.display()));
    Ok(())
}

fn plan() -> Vec<Planned> {
    let planned = |one: &Experiment| Planned::new(&one.command, one.minutes);
    FILE.run.iter().map(planned).collect()
}

/// Returns the page with all tables as these figures have them.
fn with_tables(mut page: String, found: &Found) -> anyhow::Result<String> {
    for table in &FILE.table {
        let place = between(&page, &table.name)?;
        page.replace_range(place, &format!("\n{}", table.text(found)));
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

impl Found {
    /// # Errors
    /// A file is not there or cannot be read, or they are not of one run.
    fn read(folder: &Path) -> anyhow::Result<Self> {
        let whole = folder.canonicalize();
        let whole = whole.with_context(|| format!("cannot read {}", folder.display()))?;
        let name = whole.file_name().unwrap_or_default().to_string_lossy();
        let mut found = Self {
            name: name.into_owned(),
            is_in_results: whole.parent().is_some_and(|dir| dir.ends_with("results")),
            facts: HashMap::new(),
            values: HashMap::new(),
        };

        for one in plan() {
            let path = one.csv(folder);
            let table = Table::read(&path).with_context(|| path.display().to_string())?;
            let table = table.with_context(|| format!("{} has no rows", path.display()))?;
            one.check(&table)?;
            found.take_facts(&table, &path)?;
            let path = one.csv(&folder.join(RAW));
            let text = std::fs::read_to_string(&path);
            let text = text.with_context(|| format!("cannot read {}", path.display()))?;
            found.take_values(one.name(), &text);
        }

        Ok(found)
    }

    /// Takes over what the figures of a run have in common, and the day.
    fn take_facts(&mut self, table: &Table, path: &Path) -> anyhow::Result<()> {
        for key in SAME.into_iter().chain(["date"]) {
            let value = table.fact(key).unwrap_or("not recorded").to_owned();
            let first = self.facts.entry(key).or_insert_with(|| value.clone());
            ensure!(
                key == "date" || *first == value,
                "{}: its {key} is {value}, another file's {first}: they are not of one run",
                path.display()
            );
        }
        Ok(())
    }

    /// Takes over the single values of an experiment: `case,system,workers,metric,unit,run,value`.
    fn take_values(&mut self, experiment: &str, text: &str) {
        for line in text.lines().skip(1) {
            let fields: Vec<_> = line.split(',').collect();
            let [case, system, _, metric, _, _, value] = fields[..] else {
                continue;
            };
            let key = [experiment, case, system, metric].map(str::to_owned);
            self.values
                .entry(key)
                .or_default()
                .extend(value.parse::<f64>());
        }
    }

    /// Returns why the figures cannot stand in README.
    fn unfit(&self) -> Option<&'static str> {
        if !machine::is_kept(&self.facts["commit"], &self.facts["profile"]) {
            return Some("its figures come from a clean commit and the profile dist");
        }
        (!self.is_in_results).then_some("move the folder into results/, and write it with --from")
    }

    fn of(&self, row: &Row, system: &str) -> Option<&[f64]> {
        let key = [&row.experiment, &row.case, system, &row.metric].map(str::to_owned);
        self.values.get(&key).map(Vec::as_slice)
    }

    /// Writes the ratio of two systems, round by round.
    fn ratio(&self, row: &Row, ours: &str, theirs: &str) -> Option<(f64, String)> {
        let ours = self.of(row, ours)?;
        let theirs = self.of(row, theirs)?;
        // Rounds that one of them lacks would pair the others wrongly.
        if ours.len() != theirs.len() || ours.is_empty() {
            return None;
        }
        let spread = Spread::of(&ratios(ours, theirs));
        let brackets = format!("({:.2} to {:.2})", spread.q1, spread.q3);
        Some((spread.median, brackets))
    }
}

impl Rows {
    fn text(&self, found: &Found) -> String {
        let fact = |key| found.facts.get(key).map_or("not recorded", String::as_str);
        let mut text = format!(
            "`plainweave bench readme` on {}, {}, {},\ncommit {}, profile {} (`results/{}`):\n\n\
             | measured | against | default | {} | A/A | what it is for |\n\
             |---|---|---|---|---|---|\n",
            fact("CPU"),
            fact("kernel"),
            fact("date").split(' ').next().unwrap_or_default(),
            fact("commit"),
            fact("profile"),
            found.name,
            self.other
        );

        for row in &self.row {
            for (n, peer) in row.peers.iter().enumerate() {
                let [what, again, gives] = if n == 0 {
                    [row.what.clone(), row.noise(found), row.gives.clone()]
                } else {
                    ["the same".to_owned(), String::new(), String::new()]
                };
                let [default, other] = row.ours.each_ref().map(|ours| {
                    let ratio = found.ratio(row, ours, &peer.system);
                    ratio.map_or(ABSENT.to_owned(), |(median, brackets)| {
                        let loss = if median > 1.0 { "**" } else { "" };
                        format!("{loss}{median:.2}{loss} {brackets}")
                    })
                });
                let _ = writeln!(
                    text,
                    "| {what} | {} | {default} | {other} | {again} | {gives} |",
                    peer.name
                );
            }
        }

        text
    }
}

impl Row {
    /// Writes what lies between the default and itself.
    fn noise(&self, found: &Found) -> String {
        let noise = found.ratio(self, &self.again, &self.ours[0]);
        noise.map_or(ABSENT.to_owned(), |(median, brackets)| {
            format!("{median:.2} {brackets}")
        })
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use clap::Parser;

    use super::*;
    use crate::Cli;

    #[test]
    fn what_is_run_can_be() {
        for run in &FILE.run {
            let words = std::iter::once("bench").chain(run.command.split(' '));
            let parsed = Cli::try_parse_from(words);
            assert!(parsed.is_ok(), "{}", run.command);
        }
        for row in FILE.table.iter().flat_map(|table| &table.row) {
            let plan = plan();
            let run = plan.iter().find(|one| one.name() == row.experiment);
            let run = run.unwrap_or_else(|| panic!("{}: no run", row.what));
            let mut words = run.words.iter().skip_while(|word| *word != "--cases");
            let cases = words.nth(1).unwrap_or(&row.case);
            assert!(
                cases.split(',').any(|case| case == row.case),
                "{}",
                row.what
            );
        }
    }

    /// Some figures of the first row.
    fn some() -> Found {
        let facts = [
            ("CPU", "2 x EPYC"),
            ("kernel", "Linux 7"),
            ("date", "2026-11-30 10:00 UTC"),
            ("commit", "abc"),
            ("profile", "dist"),
        ];
        let mut found = Found {
            name: "2026-11-30-lab".to_owned(),
            is_in_results: true,
            facts: facts.map(|(key, value)| (key, value.to_owned())).into(),
            values: HashMap::new(),
        };
        let rounds = [
            ("plainweave uring", [6.0, 9.0, 7.0]),
            ("plainweave uring again", [6.0, 9.9, 7.0]),
            ("nginx", [10.0, 10.0, 10.0]),
            ("nginx defaults", [12.0, 18.0, 14.0]),
            ("limit", [5.0, 5.0, 5.0]),
        ];
        let mut text = "case,system,workers,metric,unit,run,value\n".to_owned();
        for (system, values) in rounds {
            for (n, value) in values.iter().enumerate() {
                let _ = writeln!(
                    text,
                    "1k-64,{system},1,cpu_us_per_request,us,{},{value}",
                    n + 1
                );
            }
        }

        text += "1k-64,limit uring,1,cpu_us_per_request,us,1,5\n";
        found.take_values("web", &text);
        found
    }

    #[test]
    fn ratios_are_those_of_rounds() {
        let text = FILE.table[0].text(&some());
        for part in [
            "readme` on 2 x EPYC, Linux 7, 2026-11-30,\n",
            "\ncommit abc, profile dist (`results/2026-11-30-lab`):\n",
            "64 connections | nginx, tuned | 0.70 (0.65 to 0.80) | not measured | 1.00 (1.00 to",
            // However the rounds differ, half of it in each.
            "| the same | nginx as installed | 0.50 (0.50 to 0.50) | not measured |  |",
            "| the same | a raw epoll loop | **1.40** (",
            // A round of one, and three of the other.
            "| the same | a raw io_uring loop | not measured |",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }

    #[test]
    fn figures_of_two_machines_are_refused() {
        let table = |cpu: &str| Table {
            facts: vec![("CPU".to_owned(), cpu.to_owned())],
            ..crate::pages::compare::tests::table("web", Vec::new())
        };
        let mut found = Found {
            facts: HashMap::new(),
            ..some()
        };
        found
            .take_facts(&table("EPYC"), Path::new("a.csv"))
            .unwrap();
        found
            .take_facts(&table("EPYC"), Path::new("b.csv"))
            .unwrap();
        let error = found.take_facts(&table("Xeon"), Path::new("c.csv"));
        let error = error.unwrap_err().to_string();
        assert!(
            error.contains("its CPU is Xeon, another file's EPYC"),
            "{error}"
        );
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

    /// README says what the kept figures say, to the digit; they are of a commit before this one.
    #[test]
    fn readme_has_the_kept_figures() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let page = std::fs::read_to_string(root.join("README.md")).unwrap();
        let name = page
            .split("(`results/")
            .nth(1)
            .and_then(|rest| rest.split('`').next())
            .expect("README names the folder of its figures");
        let folder = root.join("results").join(name);
        let found = Found::read(&folder).unwrap();
        assert_eq!(with_tables(page.clone(), &found).unwrap(), page);

        let [commit, profile] = ["commit", "profile"].map(|key| found.facts[key].as_str());
        assert!(machine::is_kept(commit, profile), "{commit}, {profile}");
        let git = |args: &[&str]| {
            let mut command = Command::new("git");
            command.current_dir(&root).args(args).output().ok()
        };
        let said = |args: &[&str]| Some(String::from_utf8(git(args)?.stdout).unwrap());
        // Only a whole history has to have it.
        let is_shallow = said(&["rev-parse", "--is-shallow-repository"]);
        if is_shallow.is_some_and(|said| said.trim() == "false") {
            let args = ["merge-base", "--is-ancestor", commit, "HEAD"];
            let is_before = git(&args).is_some_and(|output| output.status.success());
            assert!(is_before, "{commit} is not before HEAD");
        }
    }
}
