//! What the benches have written: a CSV, and with it what was measured, on which machine and how.
//!
//! The head is lines `# key: value` before the columns. Old results lack `q1` and `q3`: then bands
//! lead from the least to the greatest value. The simulator writes the same columns, its names in
//! quotation marks.

use std::collections::HashMap;
use std::path::Path;

use anyhow::{Context, bail, ensure};

use crate::harness::report::RAW;
use plainweave_report::statistics::Spread;

/// A row of a CSV.
#[derive(Clone, Debug)]
pub(crate) struct Figure {
    pub(crate) case: String,
    pub(crate) system: String,
    pub(crate) workers: usize,
    pub(crate) metric: String,
    pub(crate) unit: String,
    pub(crate) spread: Spread,
    pub(crate) runs: usize,
}

/// A file.
#[derive(Clone, Debug)]
pub(crate) struct Table {
    /// Its name without the ending.
    pub(crate) name: String,
    pub(crate) experiment: String,
    pub(crate) facts: Vec<(String, String)>,
    /// Systems that were not measured, and why.
    pub(crate) absent: Vec<String>,
    /// Whether it has quartiles.
    pub(crate) quartiles: bool,
    /// Whether its single values are kept beside it.
    pub(crate) raw: bool,
    pub(crate) figures: Vec<Figure>,
}

const NEEDED: [&str; 10] = [
    "experiment",
    "case",
    "system",
    "workers",
    "metric",
    "unit",
    "median",
    "min",
    "max",
    "runs",
];
const QUARTILES: [&str; 2] = ["q1", "q3"];
/// The key of a head's line on a system that was not measured.
const ABSENT: &str = "not measured";
/// What `plainweave load --csv` writes: one load, which has no systems to compare.
const LOAD: &str = "metric,unit,value";

impl Table {
    /// Reads a file; `None`: it is a single load's, and nothing to compare.
    ///
    /// # Errors
    /// It is no CSV of a bench, or is cut.
    pub(crate) fn read(path: &Path) -> anyhow::Result<Option<Self>> {
        let text = std::fs::read_to_string(path)?;
        let name = path
            .file_stem()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        if text.lines().next() == Some(LOAD) {
            return Ok(None);
        }
        let mut table = Self::parse(name, &text)?;
        let single = path
            .parent()
            .zip(path.file_name())
            .map(|(dir, name)| dir.join(RAW).join(name));

        table.raw = single.is_some_and(|path| path.is_file());
        Ok(Some(table))
    }

    /// Reads the text of a file of that name.
    ///
    /// # Errors
    /// As `read`.
    pub(crate) fn parse(name: String, text: &str) -> anyhow::Result<Self> {
        ensure!(!text.is_empty(), "the file is empty");
        ensure!(
            text.ends_with('\n'),
            "line {} is cut: it does not end",
            text.lines().count()
        );
        let mut lines = (1..).zip(text.lines());
        let mut facts = Vec::new();
        let mut absent = Vec::new();
        let columns = loop {
            let (number, line) = lines.next().context("it has no columns")?;
            let Some(fact) = line.strip_prefix("# ") else {
                break line;
            };

            let (key, value) = fact
                .split_once(": ")
                .with_context(|| format!("line {number}: no key and value"))?;
            if key == ABSENT {
                absent.push(value.to_owned());
            } else {
                facts.push((key.to_owned(), value.to_owned()));
            }
        };

        let columns: Vec<&str> = columns.split(',').collect();
        let known = |column: &&str| NEEDED.contains(column) || QUARTILES.contains(column);
        if let Some(unknown) = columns.iter().find(|column| !known(column)) {
            bail!(
                "unknown column '{unknown}'; there are: {}",
                [&NEEDED[..], &QUARTILES[..]].concat().join(", ")
            );
        }

        if let Some(missing) = NEEDED.iter().find(|column| !columns.contains(column)) {
            bail!("no column '{missing}'");
        }
        let quartiles = QUARTILES.iter().all(|column| columns.contains(column));
        let mut figures = Vec::new();
        let mut experiment = String::new();

        for (number, line) in lines {
            let fields = fields(line);
            let found = fields.len();
            let due = columns.len();
            ensure!(
                found >= due,
                "line {number} is cut: {found} of {due} fields"
            );
            ensure!(
                found == due,
                "line {number} has {found} fields, and there are {due} columns"
            );
            let row: HashMap<&str, String> = columns.iter().copied().zip(fields).collect();

            experiment.clone_from(&row["experiment"]);
            figures.push(figure(&row, quartiles).with_context(|| format!("line {number}"))?);
        }

        ensure!(!figures.is_empty(), "it has no rows");
        Ok(Self {
            name,
            experiment,
            facts,
            absent,
            quartiles,
            raw: false,
            figures,
        })
    }

    /// Returns a line of the head.
    pub(crate) fn fact(&self, key: &str) -> Option<&str> {
        self.facts
            .iter()
            .find(|(name, _)| name == key)
            .map(|(_, value)| value.as_str())
    }

    /// Returns the command that made it, and whether that is known with its flags.
    pub(crate) fn command(&self) -> (String, bool) {
        match self.fact("command") {
            // Some heads have it without the program.
            Some(command) if command.starts_with("plainweave") => (command.to_owned(), true),
            Some(command) => (format!("plainweave bench {command}"), true),
            None => (format!("plainweave bench {}", self.experiment), false),
        }
    }
}

/// Splits a line at its commas, but for those between quotation marks, which are dropped. Names
/// have none of these.
fn fields(line: &str) -> Vec<String> {
    let mut fields = vec![String::new()];
    let mut quoted = false;
    for c in line.chars() {
        match c {
            '"' => quoted = !quoted,
            ',' if !quoted => fields.push(String::new()),
            c => fields.last_mut().expect("there is always one").push(c),
        }
    }

    fields
}

fn figure(row: &HashMap<&str, String>, quartiles: bool) -> anyhow::Result<Figure> {
    let number = |column: &str| -> anyhow::Result<f64> {
        let field = &row[column];
        field
            .parse()
            .map_err(|_| anyhow::anyhow!("'{field}' is not a number ({column})"))
    };

    let text = |column: &str| row[column].clone();
    let median = number("median")?;
    let min = number("min")?;
    let max = number("max")?;
    let (q1, q3) = if quartiles {
        (number("q1")?, number("q3")?)
    } else {
        (min, max)
    };

    Ok(Figure {
        case: text("case"),
        system: text("system"),
        workers: number("workers")? as usize,
        metric: text("metric"),
        unit: text("unit"),
        spread: Spread {
            median,
            q1,
            q3,
            min,
            max,
        },
        runs: number("runs")? as usize,
    })
}

#[cfg(test)]
mod tests {
    use super::Table;

    const HEAD: &str = "experiment,case,system,workers,metric,unit,median,q1,q3,min,max,runs\n";

    fn parse(text: &str) -> anyhow::Result<Table> {
        Table::parse("web".to_owned(), text)
    }

    #[test]
    fn a_file_has_its_head_and_rows() {
        let text =
            format!("# host: vm: a\n# command: web --runs 3\n# not measured: nginx (no)\n{HEAD}");
        let table = parse(&(text + "web,1k,nginx,1,p99_us,us,3.5,3,4,inf,NaN,5\n")).unwrap();
        assert_eq!(
            (table.fact("host"), table.command()),
            (
                Some("vm: a"),
                ("plainweave bench web --runs 3".into(), true)
            )
        );
        assert!(table.quartiles && table.absent == ["nginx (no)"] && table.experiment == "web");
        let figure = &table.figures[0];

        assert!(
            figure.spread.q1 == 3.0
                && figure.spread.min.is_infinite()
                && figure.spread.max.is_nan()
        );

        assert_eq!(
            (figure.system.as_str(), figure.workers, figure.runs),
            ("nginx", 1, 5)
        );
    }

    #[test]
    fn results_from_before_quartiles_are_read() {
        let old = "experiment,case,system,workers,metric,unit,median,min,max,runs\nweb,a,b,1,m,us,2,1,3,5\n";
        let table = parse(old).unwrap();
        assert!(!table.quartiles && table.figures[0].spread.q3 == 3.0);
        assert_eq!(table.command(), ("plainweave bench web".to_owned(), false));
    }

    #[test]
    fn names_of_the_simulator_may_have_commas() {
        let row = "sim,\"open on epyc at 50 %, cost group=40\",\"simulated fifo\",2,time,ms,1,1,1,1,1,1\n";
        let table = parse(&format!("# command: plainweave sim --csv\n{HEAD}{row}")).unwrap();
        let figure = &table.figures[0];
        assert_eq!(
            (figure.case.as_str(), figure.system.as_str()),
            ("open on epyc at 50 %, cost group=40", "simulated fifo")
        );

        assert_eq!(table.command().0, "plainweave sim --csv");
    }

    #[test]
    fn what_is_wrong_is_named() {
        let row = "web,a,b,1,m,us,2,1,3,1,3,5\n";
        for (text, says) in [
            (String::new(), "empty"),
            (HEAD.to_owned(), "no rows"),
            (format!("{HEAD}{row}web,a,b,1,m,u"), "line 3 is cut"),
            (format!("{HEAD}web,a,b,1\n{row}"), "line 2 is cut: 4 of 12"),
            (format!("{HEAD}{}", row.replace(",5", ",5,6")), "13 fields"),
            (
                format!("{HEAD}{}", row.replace(",2,", ",two,")),
                "line 2: 'two' is not a number (median)",
            ),
            (
                HEAD.replace("unit", "colour") + row,
                "unknown column 'colour'",
            ),
            (HEAD.replace("unit,", "") + row, "no column 'unit'"),
            ("# host: vm\n".to_owned(), "no columns"),
        ] {
            let error = parse(&text).unwrap_err();
            assert!(format!("{error:#}").contains(says), "{text}: {error:#}");
        }
    }
}
