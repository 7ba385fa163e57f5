//! Turns of a long experiment, kept as they come: what was measured survives an interruption, and
//! `--resume` goes on.
//!
//! Each turn is one line of `raw/<experiment>-turns.csv`, written at once: its key, then
//! `metric=value` fields. The first line says what all turns have in common (flags, commit), so
//! that turns of different experiments do not mix. A line that was cut is dropped, and its turn
//! measured again.

use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};

use crate::harness::course::{humane_time, left};
use crate::harness::machine;
use crate::harness::report;

/// Values of a turn by their names.
pub(crate) type Values = Vec<(String, f64)>;

/// The turns of an experiment, those of an interrupted run among them.
pub(crate) struct Turns {
    experiment: &'static str,
    path: PathBuf,
    /// What the file has or will have before the first turn that is measured now.
    kept: String,
    /// Opened for the first of these: a run that measures nothing leaves nothing.
    file: Option<File>,
    known: HashMap<String, Values>,
    /// Of all turns: how many there are, how many were measured before and now, and for how long.
    all: usize,
    before: usize,
    measured: usize,
    spent: Duration,
}

impl Turns {
    /// Begins, or goes on with what `out` has if `resume` is set. `same` is what all turns have in
    /// common.
    ///
    /// # Errors
    /// What is there was measured otherwise.
    pub(crate) fn begin(
        experiment: &'static str,
        out: &Path,
        same: &str,
        resume: bool,
        all: usize,
    ) -> anyhow::Result<Self> {
        let path = out
            .join(report::RAW)
            .join(format!("{experiment}-turns.csv"));
        let head = format!(
            "# commit {}; {}\n",
            machine::commit(),
            same.replace('\n', " ")
        );
        let text = if resume {
            std::fs::read_to_string(&path).unwrap_or_default()
        } else {
            String::new()
        };

        // The last line may be cut.
        let whole = &text[..text.rfind('\n').map_or(0, |end| end + 1)];
        let turns = whole.strip_prefix(&head);
        ensure!(
            turns.is_some() || whole.is_empty(),
            "{} was measured otherwise ({}): use the same flags and commit, or leave out --resume to start over",
            path.display(),
            differences(whole, &head)
        );
        let known: HashMap<_, _> = turns.unwrap_or_default().lines().filter_map(turn).collect();
        let kept = if whole.is_empty() {
            head
        } else {
            whole.to_owned()
        };

        let before = 0;
        let measured = 0;
        let spent = Duration::ZERO;
        Ok(Self {
            experiment,
            path,
            kept,
            file: None,
            known,
            all,
            before,
            measured,
            spent,
        })
    }

    /// Opens the file, so that it is known before a measurement that what comes of it can be kept.
    fn open(&mut self) -> anyhow::Result<()> {
        if self.file.is_some() {
            return Ok(());
        }
        let write = || -> std::io::Result<File> {
            self.path.parent().map_or(Ok(()), std::fs::create_dir_all)?;
            std::fs::write(&self.path, &self.kept)?;
            OpenOptions::new().append(true).open(&self.path)
        };

        self.file = Some(write().with_context(|| format!("cannot write {}", self.path.display()))?);
        Ok(())
    }

    /// Says how long all turns will take.
    pub(crate) fn estimate(&self, each: Duration) {
        let left = self.all.saturating_sub(self.known.len());
        let all = self.all;
        let time = humane_time(each * left as u32);
        report::note(&format!(
            "{}: {all} turns, {left} to measure, about {time}",
            self.experiment
        ));
    }

    /// Returns a turn's values: those that are known, else measured ones, which are kept.
    ///
    /// # Errors
    /// It cannot be measured, or not be kept.
    pub(crate) fn take(
        &mut self,
        key: &str,
        measure: impl FnOnce() -> anyhow::Result<Values>,
    ) -> anyhow::Result<Values> {
        // Commas separate the fields of the file.
        let key = key.replace(',', ";");
        if let Some(values) = self.known.get(&key) {
            self.before += 1;
            return Ok(values.clone());
        }

        self.open()?;
        let done = self.before + self.measured;
        let time = left(self.spent, self.measured, self.all.saturating_sub(done));
        report::progress(&format!(
            "{}: turn {} of {}{time}: {key}",
            self.experiment,
            done + 1,
            self.all
        ));
        let start = Instant::now();
        let values = measure()?;

        self.spent += start.elapsed();
        self.measured += 1;
        let fields: String = values
            .iter()
            .map(|(name, value)| format!(",{name}={value}"))
            .collect();

        // In one write, so that an interruption leaves at most one cut line, the last.
        let written = self.file.as_mut().map_or(Ok(()), |file| {
            file.write_all(format!("{key}{fields}\n").as_bytes())
        });
        written.with_context(|| format!("cannot write {}", self.path.display()))?;

        Ok(values)
    }
}

/// Returns what two heads have each for itself.
fn differences(there: &str, now: &str) -> String {
    let [there, now] = [there, now].map(|head| -> Vec<&str> {
        let line = head
            .lines()
            .next()
            .unwrap_or_default()
            .trim_start_matches("# ");
        line.split([';', ',']).map(str::trim).collect()
    });

    let alone = |these: &[&str], those: &[&str]| {
        let alone: Vec<_> = these
            .iter()
            .copied()
            .filter(|part| !those.contains(part))
            .collect();
        if alone.is_empty() {
            "nothing else".to_owned()
        } else {
            alone.join(", ")
        }
    };

    format!(
        "there: {}, now: {}",
        alone(&there, &now),
        alone(&now, &there)
    )
}

/// Returns a value by its name.
pub(crate) fn value(values: &[(String, f64)], name: &str) -> Option<f64> {
    values
        .iter()
        .find(|(known, _)| known == name)
        .map(|(_, value)| *value)
}

/// Reads a turn's line.
fn turn(line: &str) -> Option<(String, Values)> {
    let mut fields = line.split(',');
    let key = fields.next()?.to_owned();
    let value = |field: &str| {
        let (name, value) = field.split_once('=')?;
        Some((name.to_owned(), value.parse().ok()?))
    };

    Some((key, fields.map(value).collect::<Option<_>>()?))
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::path::{Path, PathBuf};

    use super::Turns;

    fn folder(name: &str) -> PathBuf {
        let dir =
            std::env::temp_dir().join(format!("plainweave-turns-{}-{name}", std::process::id()));
        let _ = std::fs::remove_dir_all(&dir);
        dir
    }

    /// Takes turns `a` and `b`, and returns their values and how many were measured.
    fn take(dir: &Path, same: &str, resume: bool) -> anyhow::Result<(Vec<f64>, usize)> {
        let mut turns = Turns::begin("test", dir, same, resume, 2)?;
        let measured = Cell::new(0);
        let mut one = |key: &str, value| {
            let values = turns.take(key, || {
                measured.set(measured.get() + 1);
                Ok(vec![("x".to_owned(), value), ("y".to_owned(), f64::NAN)])
            });
            values.map(|values| values[0].1)
        };

        let values = vec![one("a", 1.5)?, one("b, c", f64::INFINITY)?];
        Ok((values, measured.get()))
    }

    #[test]
    fn what_is_there_is_not_measured_again() {
        let dir = folder("resume");
        assert_eq!(
            take(&dir, "flags", false).unwrap(),
            (vec![1.5, f64::INFINITY], 2)
        );
        assert_eq!(
            take(&dir, "flags", true).unwrap(),
            (vec![1.5, f64::INFINITY], 0)
        );
        let error = take(&dir, "others", true).unwrap_err();
        let said = error.to_string();

        assert!(
            said.contains("(there: flags, now: others)") && said.contains("--resume"),
            "{said}"
        );

        // A line that was cut is measured again, and kept.
        let path = dir.join("raw/test-turns.csv");
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::write(&path, &text[..text.len() - 4]).unwrap();
        assert_eq!(take(&dir, "flags", true).unwrap().1, 1);
        assert_eq!(take(&dir, "flags", true).unwrap().1, 0);

        // Without the flag it starts over.
        assert_eq!(take(&dir, "others", false).unwrap().1, 2);
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
