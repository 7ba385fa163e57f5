//! Where figures go: a table on the terminal, a CSV and a self-contained HTML page.

use std::collections::HashSet;
use std::fmt::Write as _;
use std::io::{IsTerminal, Write};
use std::path::Path;

use anyhow::Context;

use crate::machine;
use crate::plot::dots::{self, Panel};
use crate::plot::text::escape;
use crate::plot::{self, Role};
use crate::sample::{COLUMNS, Row, Spread};

/// A line for a person, on stderr.
pub(crate) fn note(line: &str) {
    let _ = writeln!(std::io::stderr(), "{line}");
}

/// Progress: rewritten in place on a terminal, silent elsewhere.
pub(crate) fn progress(line: &str) {
    let mut stderr = std::io::stderr();
    if stderr.is_terminal() {
        let _ = write!(stderr, "\r\x1b[K{line}").and_then(|()| stderr.flush());
    }
}

/// A line of the result, on stdout.
pub(crate) fn say(line: &str) {
    let _ = writeln!(std::io::stdout(), "{line}");
}

/// One experiment's result.
pub(crate) struct Report {
    pub(crate) experiment: &'static str,
    pub(crate) parameters: Vec<(&'static str, String)>,
    pub(crate) rows: Vec<Row>,
    /// Systems that were not measured, and why.
    pub(crate) absent: Vec<(String, String)>,
}

impl Report {
    /// Prints the table and writes `<experiment>.csv` and `<experiment>.html` into `out`.
    pub(crate) fn publish(&self, out: Option<&Path>) -> anyhow::Result<()> {
        self.publish_with(out, &self.all_dots())
    }

    /// With a picture for the page in place of dots.
    pub(crate) fn publish_with(&self, out: Option<&Path>, picture: &str) -> anyhow::Result<()> {
        progress("");
        say(&self.table());
        let out = out.map_or_else(machine::results_dir, Path::to_owned);
        std::fs::create_dir_all(&out).with_context(|| format!("cannot create {}", out.display()))?;
        let csv: String = self.rows.iter().map(|row| row.csv() + "\n").collect();
        for (ending, text) in [("csv", format!("{COLUMNS}\n{csv}")), ("html", self.html(picture))] {
            let path = out.join(format!("{}.{ending}", self.experiment));
            std::fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
            say(&format!("written: {}", path.display()));
        }
        Ok(())
    }

    fn facts(&self) -> Vec<(&'static str, String)> {
        [machine::describe(), self.parameters.clone()].concat()
    }

    fn table(&self) -> String {
        let mut text = String::new();
        for (key, value) in self.facts() {
            let _ = writeln!(text, "{key}: {value}");
        }
        let _ = writeln!(
            text,
            "\n{:<16} {:<36} {:>7} {:<32} {:>12} {:>12} {:>12} {:>12} {:>12}  runs",
            "case", "system", "workers", "metric", "median", "q1", "q3", "min", "max"
        );
        for row in &self.rows {
            let Spread { median, q1, q3, min, max } = row.spread();
            let metric = format!("{} ({})", row.metric, row.unit);
            let _ = writeln!(
                text,
                "{:<16} {:<36} {:>7} {metric:<32} {median:>12.2} {q1:>12.2} {q3:>12.2} {min:>12.2} {max:>12.2}  {}",
                row.case,
                row.system,
                row.workers,
                row.values.len()
            );
        }
        for (system, why) in &self.absent {
            let _ = writeln!(text, "{system}: not measured ({why})");
        }
        text
    }

    fn html(&self, picture: &str) -> String {
        let mut page = format!(
            "<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport content='width=device-width'>\
             <title>{0}</title><style>{1}{STYLE}</style><h1>{0}</h1><table class=facts>",
            escape(self.experiment),
            plot::STYLE
        );
        for (key, value) in self.facts() {
            let _ = write!(page, "<tr><th>{}<td>{}", escape(key), escape(&value));
        }
        page.push_str("</table>");
        page.push_str(picture);
        for (system, why) in &self.absent {
            let _ = write!(page, "<p>{}: not measured ({})", escape(system), escape(why));
        }
        page
    }

    /// Draws a picture for each metric of each case.
    fn all_dots(&self) -> String {
        let (mut drawn, mut page) = (HashSet::new(), "<div class='panels'>".to_owned());
        for (case, metric) in self.rows.iter().map(|row| (row.case.as_str(), row.metric)) {
            if !drawn.insert((case, metric)) {
                continue;
            }
            let rows: Vec<_> = self.rows.iter().filter(|r| r.case == case && r.metric == metric).collect();
            page.push_str(&dots(case, metric, &rows));
        }
        page + "</div>"
    }
}

const STYLE: &str = "\
body{font:15px/1.5 system-ui,sans-serif;max-width:70rem;margin:2rem auto;padding:0 1rem;color:var(--ink);\
background:var(--paper)}\
table{border-collapse:collapse}.facts{font-size:.9em;margin-bottom:1rem}\
th{text-align:left;font-weight:600;padding-right:1rem;vertical-align:top}";

/// Draws a row for each system.
fn dots(case: &str, metric: &str, rows: &[&Row]) -> String {
    let row = |row: &&Row| {
        let name = format!("{}, {} worker{}", row.system, row.workers, if row.workers == 1 { "" } else { "s" });
        dots::Row { name, role: Role::Ours, spread: row.spread() }
    };
    let unit = rows.first().map_or("", |row| row.unit).to_owned();
    Panel { title: format!("{case}: {metric}"), better: "", unit, rows: rows.iter().map(row).collect() }.svg()
}
