//! `plainweave bench report`: a page for each run and one for the project, from the CSV files of a
//! results folder.
//!
//! A run is a folder of CSV files, `results/<date>-<host>`. Its page, `index.html`, and `README.md`
//! are written into it; the project's page, with the newest file of each name, lies above. Pages
//! have no scripts and need nothing beside them. All sentences and colours are computed from the
//! rows: `meaning` says whose a system is and which way a metric is better, `compare` who wins,
//! `finding` puts it into words. `published` is a page of its own: what a thesis has measured, and
//! whether its claims hold in our rows.
//!
//! A file that cannot be read is named and skipped. The pages are written all the same; the exit
//! code is 1.

mod compare; // Ours beside the best of the others, one figure at a time.
mod experiment; // A file's part of a page.
mod finding; // One sentence on what a picture shows, computed from its figures.
mod meaning; // What the names in a CSV mean: whose a system is, and which way a metric is better.
mod plan; // Several experiments in a row.
mod published; // Published figures beside ours.
pub(crate) mod readme; // `plainweave bench readme`: the tables of README.md.
pub(crate) mod seeds; // `plainweave bench seeds`: all that the published figures take.
mod summary; // Who wins: a table of ratios for each file, and the sentences of a run.
pub(crate) mod trace_svg; // A trace as a picture.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail, ensure};
use clap::Args;

use crate::harness::report::{note, say};
use crate::harness::source::Table;
use plainweave_report::text::{attribute, escape};
use plainweave_report::{self, heat};
use published::Source;
use summary::Score;

/// Pages from what the benchmarks have written: one for each run, one for all.
#[derive(Args, Debug)]
pub(crate) struct Flags {
    /// A folder of runs, or one run's folder with its CSV files
    #[arg(default_value = "results")]
    results: PathBuf,
}

const PAGE: &str = "index.html";
const PUBLISHED: &str = "published.html";
const README: &str = "README.md";
/// Tells a README of ours from one that somebody wrote.
const MARK: &str = "Written by `plainweave bench report`";
/// Characters in a line of a README.
const COLUMNS: usize = 120;

const STYLE: &str = "\
*{box-sizing:border-box}\
body{font:15px/1.5 system-ui,sans-serif;max-width:72rem;margin:1.5rem auto;padding:0 1rem;color:var(--ink);\
background:var(--paper);overflow-wrap:anywhere}\
h1{font-size:1.5rem}h2{font-size:1.2rem;margin:2.5rem 0 .3rem;border-top:1px solid var(--rule);padding-top:1rem}\
h3{font-size:1rem;margin:1.5rem 0 .5rem}h3 small,.faint,.caption code{color:var(--faint);font-weight:400}\
a{color:var(--c0)}code{font-size:.85em}\
nav a{margin-right:.8rem;white-space:nowrap}nav{line-height:2}\
details{margin:.5rem 0}summary{cursor:pointer}\
.facts th{text-align:left;vertical-align:top;padding-right:1rem;white-space:nowrap}.facts{font-size:.85rem}\
.wins{border-collapse:separate;border-spacing:2px;font-size:.8rem;overflow-wrap:normal}\
.wins th{text-align:left;font-weight:600;padding:2px 6px;vertical-align:bottom}\
.wins td{padding:2px 6px;border-radius:3px;line-height:1.25;white-space:nowrap}\
.wins small{color:var(--faint)}.good small,.bad small{color:inherit;opacity:.8}\
.good{background:var(--good)}.bad{background:var(--bad)}.even{background:var(--even)}\
.map{margin:.5rem 0}.map p{margin:.3rem 0;font-size:.85rem}";

/// A folder of files.
struct Run {
    name: String,
    tables: Vec<Table>,
}

pub(crate) fn run(flags: &Flags) -> anyhow::Result<()> {
    let folder = &flags.results;
    let mut problems = Vec::new();

    let files = entries(folder)?;
    // A folder with files is a run; one with folders of files is the project's.
    if files.iter().any(|path| is_csv(path)) {
        let run = Run::read(folder, &mut problems)?;
        ensure!(!run.tables.is_empty(), "{}", nothing(folder, &problems));
        run.write(folder)?;
    } else {
        let mut runs = Vec::new();
        // Names begin with dates, so this is from the newest to the oldest.
        for dir in files.iter().rev().filter(|path| path.is_dir()) {
            let run = Run::read(dir, &mut problems)?;
            if !run.tables.is_empty() {
                run.write(dir)?;
                runs.push(run);
            }
        }

        ensure!(!runs.is_empty(), "{}", nothing(folder, &problems));
        write(&folder.join(PAGE), &project(&runs))?;
        let sources: Vec<_> = runs.iter().flat_map(Run::sources).collect();
        write(&folder.join(PUBLISHED), &published_page(&sources))?;
    }

    say(&format!(
        "open {} in a browser",
        folder.join(PAGE).display()
    ));
    // Only now: one file that cannot be read costs the others no page.
    match problems.len() {
        0 => Ok(()),
        n => {
            problems.iter().for_each(|problem| note(problem));
            bail!("files that were skipped: {n}")
        }
    }
}

fn nothing(folder: &Path, problems: &[String]) -> String {
    let found = format!(
        "no results in {}: name a folder with CSV files of `plainweave bench`",
        folder.display()
    );
    std::iter::once(&found)
        .chain(problems)
        .cloned()
        .collect::<Vec<_>>()
        .join("\n")
}

/// Returns what is in a folder, in order.
fn entries(folder: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let entries =
        std::fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))?;
    let mut paths = entries
        .map(|entry| Ok(entry?.path()))
        .collect::<anyhow::Result<Vec<_>>>()?;
    paths.sort();
    Ok(paths)
}

fn is_csv(path: &Path) -> bool {
    path.extension().is_some_and(|ending| ending == "csv")
}

fn write(path: &Path, text: &str) -> anyhow::Result<()> {
    std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))?;
    say(&format!("written: {}", path.display()));
    Ok(())
}

impl Run {
    /// Reads the files of a folder; what cannot be read is named in `problems`.
    fn read(folder: &Path, problems: &mut Vec<String>) -> anyhow::Result<Self> {
        let mut tables = Vec::new();
        for path in entries(folder)?.iter().filter(|path| is_csv(path)) {
            match Table::read(path) {
                Ok(table) => tables.extend(table),
                Err(error) => problems.push(format!("{}: skipped: {error:#}", path.display())),
            }
        }

        // `.` has no name of its own.
        let whole = folder.canonicalize().unwrap_or_else(|_| folder.to_owned());
        let name = whole
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        Ok(Self { name, tables })
    }

    /// Writes the run's page and README.
    fn write(&self, folder: &Path) -> anyhow::Result<()> {
        write(&folder.join(PAGE), &self.page())?;
        let sources = self.own_sources();
        if !sources.is_empty() {
            write(&folder.join(PUBLISHED), &published_page(&sources))?;
        }

        let readme = folder.join(README);
        match std::fs::read_to_string(&readme) {
            // A page that somebody has written by hand says more than this one.
            Ok(text) if !text.contains(MARK) => {
                note(&format!(
                    "{}: kept: it was not written by this command",
                    readme.display()
                ));
                Ok(())
            }
            _ => write(&readme, &self.readme()),
        }
    }

    /// Returns the run's files, as the page above the runs links to them.
    fn sources(&self) -> Vec<Source<'_>> {
        let source = |table| Source {
            table,
            run: &self.name,
            page: format!("{}/{PAGE}", attribute(&self.name)),
        };
        self.tables.iter().map(source).collect()
    }

    /// Returns the run's files that have something published beside them, as the run's own page
    /// links to them.
    fn own_sources(&self) -> Vec<Source<'_>> {
        let sources = self
            .sources()
            .into_iter()
            .filter(|source| published::is_beside(source.table));
        sources
            .map(|source| Source {
                page: PAGE.to_owned(),
                ..source
            })
            .collect()
    }

    fn page(&self) -> String {
        let mut html = head(&format!("Plainweave: {}", self.name));
        for sentence in summary::sentences(&self.tables) {
            let _ = write!(html, "<p>{}</p>", escape(&sentence));
        }
        let sources = self.own_sources();
        if !sources.is_empty() {
            html.push_str(&link(&sources));
        }
        html.push_str(&navigation(self.tables.iter()));
        for table in &self.tables {
            html.push_str(&experiment::section(table, ""));
        }

        html + END
    }

    fn readme(&self) -> String {
        let [what, wins, loses] = summary::sentences(&self.tables);
        let mut text = format!("# Results: {}\n", self.name);
        for sentence in [what, wins, loses] {
            let _ = write!(text, "\n{}\n", filled(&sentence));
        }
        let rest = format!(
            "{MARK}. The CSV files have the figures; that command makes {PAGE} of them, with plots."
        );
        let _ = write!(text, "\n{}\n", filled(&rest));

        text
    }
}

/// Breaks a paragraph into lines.
fn filled(text: &str) -> String {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let line = lines.last_mut().expect("there is always one");
        if !line.is_empty() && line.chars().count() + 1 + word.chars().count() > COLUMNS {
            lines.push(word.to_owned());
            continue;
        }

        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
    }
    lines.join("\n")
}

fn head(title: &str) -> String {
    let title = escape(title);
    format!(
        "<!doctype html><html lang='en'><head><meta charset='utf-8'>\
         <meta name='viewport' content='width=device-width,initial-scale=1'><title>{title}</title>\
         <style>{}{}{STYLE}{}</style></head><body><h1>{title}</h1>",
        plainweave_report::STYLE,
        heat::STYLE,
        published::STYLE
    )
}

const END: &str = "</body></html>\n";

fn navigation<'a>(tables: impl Iterator<Item = &'a Table>) -> String {
    let mut html = "<nav>".to_owned();
    for table in tables {
        let _ = write!(
            html,
            "<a href='#{}'>{}</a> ",
            experiment::id(&table.name),
            escape(&table.name)
        );
    }
    html + "</nav>"
}

fn published_page(sources: &[Source<'_>]) -> String {
    head("Plainweave: published figures beside ours") + &published::body(sources) + END
}

/// Leads from an index to the page of published figures.
fn link(sources: &[Source<'_>]) -> String {
    let said = escape(&published::sentence(sources));
    format!("<p><a href='{PUBLISHED}'>Published figures beside ours</a>: {said}</p>")
}

/// Writes the page above the runs, which are the newest first.
fn project(runs: &[Run]) -> String {
    let mut html = head("Plainweave: all results");
    html.push_str(
        "<p>The newest file of each name, with who wins; the plots are on the pages of the runs.</p>\
         <div class='wide'><table class='wins'><thead><tr><th>run</th><th>files</th><th>CPU</th><th>better</th>\
         <th>even</th><th>worse</th></tr></thead>",
    );
    for run in runs {
        let found: Vec<_> = run.tables.iter().flat_map(compare::all).collect();
        let score = Score::of(&found);
        let cpu = run
            .tables
            .iter()
            .find_map(|table| table.fact("CPU"))
            .unwrap_or("not recorded");
        let _ = write!(
            html,
            "<tr><th><a href='{6}/{PAGE}'>{0}</a></th><td>{1}</td><td>{2}</td><td class='good'>{3}</td>\
             <td class='even'>{4}</td><td class='bad'>{5}</td></tr>",
            escape(&run.name),
            run.tables.len(),
            escape(cpu),
            score.better,
            score.even,
            score.worse,
            attribute(&run.name)
        );
    }

    html.push_str("</table></div>");
    html.push_str(&link(
        &runs.iter().flat_map(Run::sources).collect::<Vec<_>>(),
    ));
    let mut newest: Vec<(&Run, &Table)> = Vec::new();

    for run in runs {
        for table in &run.tables {
            // Runs come newest first, so the first of a name is the newest.
            if newest.iter().all(|(_, other)| other.name != table.name) {
                newest.push((run, table));
            }
        }
    }

    newest.sort_by(|a, b| a.1.name.cmp(&b.1.name));
    html.push_str(&navigation(newest.iter().map(|(_, table)| *table)));
    for (run, table) in newest {
        let (command, _) = table.command();
        let id = experiment::id(&table.name);
        let name = escape(&table.name);
        let _ = write!(
            html,
            "<section id='{id}'><h2>{name}</h2><p><a href='{3}/{PAGE}#{id}'>Plots</a> of {0}, commit {1}: \
             <code>{2}</code></p>",
            escape(&run.name),
            escape(table.fact("commit").unwrap_or("not recorded")),
            escape(&command),
            attribute(&run.name)
        );
        let matrix = summary::matrix(table);

        html.push_str(if matrix.is_empty() {
            "<p>Nothing of another system's to compare.</p>"
        } else {
            &matrix
        });
        html.push_str("</section>");
    }

    html + END
}
