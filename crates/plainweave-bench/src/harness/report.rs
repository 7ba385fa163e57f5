//! Where figures go: a table on the terminal, a CSV and a self-contained HTML page.

use std::collections::HashSet;
use std::fmt::Write as _;
use std::io::{IsTerminal, Write};
use std::path::Path;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};

use crate::harness::interrupt;
use crate::harness::machine;
use crate::harness::sample::{COLUMNS, Row};
use plainweave_report::dots::{self, Panel};
use plainweave_report::statistics::Spread;
use plainweave_report::text::escape;
use plainweave_report::{self, Role};

/// A line for a person, on stderr.
pub(crate) fn note(line: &str) {
    let _ = writeln!(std::io::stderr(), "{line}");
}

/// Between two lines of progress where there is no terminal.
const LINES: Duration = Duration::from_secs(10);

/// Progress: rewritten in place on a terminal, a line now and then elsewhere.
pub(crate) fn progress(line: &str) {
    static LAST: Mutex<Option<Instant>> = Mutex::new(None);
    let mut stderr = std::io::stderr();
    if stderr.is_terminal() {
        let _ = write!(stderr, "\r\x1b[K{line}").and_then(|()| stderr.flush());
        return;
    }

    let mut last = LAST.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    if !line.is_empty() && last.is_none_or(|last| last.elapsed() >= LINES) {
        *last = Some(Instant::now());
        note(line);
    }
}

/// The folder beside the CSV files with single values.
pub(crate) const RAW: &str = "raw";

/// Returns an error with its causes, for people. Sockets here block, with a bound on each read: one
/// that is passed is not what the system calls it.
pub(crate) fn told(error: &anyhow::Error) -> String {
    let timed_out = std::io::Error::from(rustix::io::Errno::AGAIN).to_string();
    format!("{error:#}").replace(&timed_out, "nothing came in time")
}

/// A line of the result, on stdout.
pub(crate) fn say(line: &str) {
    let _ = writeln!(std::io::stdout(), "{line}");
}

/// Lists cases with what they are.
pub(crate) fn list(cases: &[(&str, &str)]) {
    for (name, summary) in cases {
        say(&format!("{name:<16} {summary}"));
    }
}

/// One experiment's result.
pub(crate) struct Report {
    pub(crate) experiment: &'static str,
    pub(crate) parameters: Vec<(&'static str, String)>,
    pub(crate) rows: Vec<Row>,
    /// Systems that were not measured, and why.
    pub(crate) absent: Vec<(String, String)>,
}

/// What could not be measured though it should have been. It is said at once and stands among what
/// was not measured; when all else is written, the program fails. After a signal nothing more is
/// measured.
#[derive(Default)]
pub(crate) struct Failures {
    failed: Vec<(String, String)>,
    /// Whether something was left out after a signal.
    interrupted: bool,
}

impl Failures {
    /// Takes the signals over that end a measurement.
    pub(crate) fn begin() -> anyhow::Result<Self> {
        interrupt::install()?;
        Ok(Self::default())
    }

    /// Measures, and returns the value, or notes what went wrong with `what`.
    pub(crate) fn catch<T>(
        &mut self,
        what: &str,
        measure: impl FnOnce() -> anyhow::Result<T>,
    ) -> Option<T> {
        // A child that the same signal has ended would only give another error.
        let result = if interrupt::came().is_none() {
            Some(measure())
        } else {
            None
        };

        match result {
            Some(Ok(value)) => return Some(value),
            // The signal has ended servers and clients too.
            _ if interrupt::came().is_some() => self.interrupted = true,
            Some(Err(error)) => {
                let why = told(&error);
                progress("");
                note(&format!("plainweave-bench: {what}: {why}"));
                self.failed.push((what.to_owned(), why));
            }
            None => {}
        }

        None
    }

    /// Measures once more, as long as that does not fail: then what was measured before does not
    /// count (`None`), and nothing more is. A signal leaves it as it is.
    pub(crate) fn again<T>(
        &mut self,
        measured: &mut Option<Vec<T>>,
        what: &str,
        measure: impl FnOnce() -> anyhow::Result<T>,
    ) {
        let Some(values) = measured else { return };
        match self.catch(what, measure) {
            Some(value) => values.push(value),
            // It did not fail: what was measured before is as good as it was.
            None if self.interrupted => {}
            None => *measured = None,
        }
    }

    /// Publishes what was measured, with a picture in place of dots if there is one.
    ///
    /// # Errors
    /// Something failed before, a signal came, or the result cannot be written.
    pub(crate) fn publish(
        self,
        mut report: Report,
        out: Option<&Path>,
        picture: Option<&str>,
    ) -> anyhow::Result<()> {
        // A failure stands in the page that is published, not only in a terminal that nobody keeps.
        report.absent.extend(self.failed.iter().cloned());
        if self.interrupted {
            report.absent.push((
                "what was to come".to_owned(),
                "interrupted by a signal".to_owned(),
            ));
        }

        match picture {
            Some(picture) => report.publish_with(out, picture)?,
            None => report.publish(out)?,
        }

        ensure!(
            !self.interrupted,
            "interrupted; what was measured until then is written"
        );
        let failed: Vec<_> = self.failed.iter().map(|(what, _)| what.as_str()).collect();
        ensure!(
            failed.is_empty(),
            "the result is incomplete; what failed: {}",
            failed.join("; ")
        );
        Ok(())
    }
}

impl Report {
    /// Prints the table and writes `<experiment>.csv`, `<experiment>.html` and
    /// `raw/<experiment>.csv` into `out`.
    pub(crate) fn publish(&self, out: Option<&Path>) -> anyhow::Result<()> {
        self.publish_with(out, &self.all_dots())
    }

    /// With a picture for the page in place of dots.
    pub(crate) fn publish_with(&self, out: Option<&Path>, picture: &str) -> anyhow::Result<()> {
        progress("");
        say(&self.table());
        let out = out.map_or_else(machine::results_dir, Path::to_owned);
        let raw = out.join(RAW);
        std::fs::create_dir_all(&raw)
            .with_context(|| format!("cannot create {}", raw.display()))?;
        let file = |dir: &Path, ending: &str| dir.join(format!("{}.{ending}", self.experiment));

        let files = [
            (file(&out, "csv"), self.csv()),
            (file(&out, "html"), self.html(picture)),
            (file(&raw, "csv"), self.raw()),
        ];
        for (path, text) in files {
            std::fs::write(&path, text)
                .with_context(|| format!("cannot write {}", path.display()))?;
            say(&format!("written: {}", path.display()));
        }

        Ok(())
    }

    /// Returns the rows, under a head with what the page has too.
    fn csv(&self) -> String {
        let line = |key: &str, value: &str| format!("# {key}: {}\n", value.replace('\n', " "));
        let mut text: String = self
            .facts()
            .iter()
            .map(|(key, value)| line(key, value))
            .collect();
        text.extend(
            self.absent
                .iter()
                .map(|(system, why)| line("not measured", &format!("{system} ({why})"))),
        );
        text.push_str(COLUMNS);
        text.extend(self.rows.iter().map(|row| format!("\n{}", row.csv())));

        text + "\n"
    }

    /// Returns every value of every row.
    fn raw(&self) -> String {
        let mut text = "case,system,workers,metric,unit,run,value\n".to_owned();
        for Row {
            case,
            system,
            workers,
            metric,
            unit,
            values,
            ..
        } in &self.rows
        {
            for (run, value) in (1..).zip(values) {
                let _ = writeln!(
                    text,
                    "{case},{system},{workers},{metric},{unit},{run},{value}"
                );
            }
        }
        text
    }

    fn facts(&self) -> Vec<(&'static str, String)> {
        let command = std::env::args().skip(1).collect::<Vec<_>>().join(" ");
        [
            machine::describe(),
            vec![("command", format!("plainweave bench {command}"))],
            self.parameters.clone(),
        ]
        .concat()
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
            let Spread {
                median,
                q1,
                q3,
                min,
                max,
            } = row.spread();
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
            plainweave_report::STYLE
        );
        for (key, value) in self.facts() {
            let _ = write!(page, "<tr><th>{}<td>{}", escape(key), escape(&value));
        }
        page.push_str("</table>");
        page.push_str(picture);

        for (system, why) in &self.absent {
            let _ = write!(
                page,
                "<p>{}: not measured ({})",
                escape(system),
                escape(why)
            );
        }

        page
    }

    /// Draws a picture for each metric of each case.
    fn all_dots(&self) -> String {
        let mut drawn = HashSet::new();
        let mut page = "<div class='panels'>".to_owned();
        for (case, metric) in self.rows.iter().map(|row| (row.case.as_str(), row.metric)) {
            if !drawn.insert((case, metric)) {
                continue;
            }
            let rows: Vec<_> = self
                .rows
                .iter()
                .filter(|r| r.case == case && r.metric == metric)
                .collect();
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
        let name = format!(
            "{}, {} worker{}",
            row.system,
            row.workers,
            if row.workers == 1 { "" } else { "s" }
        );
        dots::Row {
            name,
            role: Role::Ours,
            spread: row.spread(),
        }
    };

    let unit = rows.first().map_or("", |row| row.unit).to_owned();
    Panel {
        title: format!("{case}: {metric}"),
        better: "",
        unit,
        rows: rows.iter().map(row).collect(),
    }
    .svg()
}

#[cfg(test)]
mod tests {
    use anyhow::Context;

    use super::{Failures, told};

    /// A read of a blocking socket that is bounded.
    #[test]
    fn a_time_out_is_told_as_such() {
        let (mut one, _other) = std::os::unix::net::UnixStream::pair().unwrap();
        one.set_read_timeout(Some(std::time::Duration::from_millis(1)))
            .unwrap();
        let error = std::io::Read::read(&mut one, &mut [0]).unwrap_err();
        let error = Err::<(), _>(error).context("no answer").unwrap_err();
        assert_eq!(told(&error), "no answer: nothing came in time");
        assert_eq!(told(&anyhow::anyhow!("no")), "no");
    }

    #[test]
    fn what_has_failed_does_not_count_and_is_not_measured_again() {
        let mut failures = Failures::default();
        let mut measured = Some(Vec::new());
        failures.again(&mut measured, "it", || Ok(1));
        failures.again(&mut measured, "it", || Ok(2));
        assert_eq!(measured, Some(vec![1, 2]));
        failures.again(&mut measured, "it", || anyhow::bail!("no"));
        failures.again(&mut measured, "it", || unreachable!("it has failed"));
        assert_eq!((measured, failures.failed.len()), (None, 1));
    }
}
