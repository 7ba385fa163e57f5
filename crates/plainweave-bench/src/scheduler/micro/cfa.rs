//! C∀'s own programs of the micro-benchmarks (cforall/SchedulingBenchmarks_PhD22), built by whoever
//! has its compiler. They have flags and words of their own, which are translated here.
//!
//! Of what they print, the operations and the nanoseconds of one are read: rates are divided by
//! whole seconds there, and one duration is printed in a wrong format.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, bail, ensure};

use super::child::patience;
use super::repetition::{Figure, Size};
use crate::harness::child::{self, Texts};

/// Its programs, by their names.
const PROGRAMS: [&str; 5] = ["yield", "cycle", "churn", "locality", "transfer"];
/// A file beside them whose first line says which version they are.
const VERSION: &str = "VERSION";
/// What `transfer` says if the leader has waited for five seconds.
const STARVED: &str = "blocked for more than 5 secs";
/// Transfers in a second of a repetition: those are counted there, not timed.
const TRANSFERS_A_SECOND: f64 = 10_000.0;

/// The folder of the programs.
pub(super) struct Cfa(PathBuf);

impl Cfa {
    /// # Errors
    /// A program is not there.
    pub(super) fn new(folder: &Path) -> anyhow::Result<Self> {
        let folder = folder
            .canonicalize()
            .with_context(|| format!("--cfa {}", folder.display()))?;
        let missing: Vec<_> = PROGRAMS
            .into_iter()
            .filter(|name| !folder.join(name).is_file())
            .collect();
        ensure!(
            missing.is_empty(),
            "--cfa {}: not there: {}; build them of cforall/SchedulingBenchmarks_PhD22, each \
             under its own name",
            folder.display(),
            missing.join(", ")
        );
        Ok(Self(folder))
    }

    /// Returns which version the programs are, if that is known.
    pub(super) fn version(&self) -> String {
        let text = std::fs::read_to_string(self.0.join(VERSION)).unwrap_or_default();
        match text.lines().next() {
            Some(line) => line.to_owned(),
            None => format!("unknown, there is no file {VERSION}"),
        }
    }

    /// Returns whether there is such a case.
    pub(super) fn has(case: &str) -> bool {
        program(case).is_some()
    }

    /// Runs one repetition.
    pub(super) fn run(&self, case: &str, size: &Size) -> anyhow::Result<Vec<Figure>> {
        let Some(name) = program(case) else {
            bail!("there is no case '{case}'")
        };
        // They look every 100 ms whether all is done, and one of them never sees it.
        ensure!(
            name == "transfer" || size.shape.iterations.is_none(),
            "it does not count operations: leave out --iterations"
        );

        let mut command = Command::new(self.0.join(name));
        command.args(arguments(name, case, size));
        // Numbers without commas.
        command.env("LC_ALL", "C").env("LANG", "C");
        command.stdin(Stdio::null());
        let Texts { printed, errors } = child::texts(command, patience(size))?;

        if name == "transfer" {
            return transfers(&printed, errors.contains(STARVED));
        }
        let ops = value(&printed, "Total Operations(ops)")?;
        if size.clocked {
            let moves = |(what, key)| Ok(Figure::new(what, value(&printed, key)? / ops));
            return [
                ("thread_migrations_per_op", "Total G Migrations"),
                ("data_migrations_per_op", "Total D Migrations"),
            ]
            .into_iter()
            .map(moves)
            .collect();
        }

        let ns = value(&printed, "ns per ops")?;
        Ok(vec![
            Figure::new("ns_per_op", ns),
            Figure::new("ns_per_op_per_worker", ns * size.workers as f64),
            Figure::new("ops", ops),
        ])
    }
}

/// Returns the program that has a case.
fn program(case: &str) -> Option<&'static str> {
    let name = case.split('-').next()?;
    // "yield-1" is yield in another shape, "select-1" nothing of theirs.
    PROGRAMS.into_iter().find(|program| *program == name)
}

/// Returns a case's size in their words.
fn arguments(name: &str, case: &str, size: &Size) -> Vec<String> {
    let shape = &size.shape;
    let mut words: Vec<(&str, String)> = vec![("-p", size.workers.to_string())];
    let mut add = |flag, value: usize| words.push((flag, value.to_string()));

    match name {
        // There `-t` are the rings, each of which has `-r` threads.
        "cycle" => {
            add("-t", shape.rings);
            add("-r", shape.threads);
        }
        "churn" => {
            add("-t", shape.threads);
            add("-s", shape.spots);
        }
        "locality" => {
            add("-t", shape.threads);
            add("-n", shape.spots);
            add("-w", shape.words);
            add("-c", shape.writes);
            words.push(("-s", shape.share.to_string()));
        }
        _ => add("-t", shape.threads),
    }

    if name == "transfer" {
        let parks = case == "transfer-park";
        words.push(("-e", if parks { "yes" } else { "no" }.to_owned()));
        let usual = (size.seconds * TRANSFERS_A_SECOND).ceil() as u64;
        words.push(("-i", shape.iterations.unwrap_or(usual).to_string()));
    } else {
        words.push(("-d", size.seconds.to_string()));
    }

    let pairs = words.into_iter();
    pairs
        .flat_map(|(flag, value)| [flag.to_owned(), value])
        .collect()
}

fn transfers(printed: &str, starved: bool) -> anyhow::Result<Vec<Figure>> {
    let us = if starved {
        f64::INFINITY
    } else {
        value(printed, "us per transfer")?
    };
    Ok(vec![
        Figure::new("starved", f64::from(starved)),
        Figure::new("us_per_transfer", us),
    ])
}

/// Reads the value of a line `key : value`.
fn value(printed: &str, key: &str) -> anyhow::Result<f64> {
    let pairs = printed.lines().filter_map(|line| line.split_once(':'));
    let mut found = pairs.filter(|(name, _)| name.trim() == key);
    let (_, value) = found
        .next()
        .with_context(|| format!("it does not print '{key}'"))?;
    let value = value.trim();
    value
        .parse()
        .with_context(|| format!("'{key}' is no number: {value}"))
}

#[cfg(test)]
mod tests {
    use super::super::parameters::Shape;
    use super::*;

    fn size(shape: Shape) -> Size {
        Size {
            workers: 2,
            seconds: 0.3,
            shape,
            fibers: 0,
            clocked: false,
            heavy: false,
            baseline: 0.0,
        }
    }

    #[test]
    fn sizes_are_said_in_their_words() {
        let ring = Shape {
            threads: 5,
            rings: 200,
            ..Shape::default()
        };
        let words = arguments("cycle", "cycle", &size(ring.clone())).join(" ");
        assert_eq!(words, "-p 2 -t 200 -r 5 -d 0.3");

        let programs = Cfa(PathBuf::from("/nowhere"));
        let counted = Shape {
            iterations: Some(7),
            ..ring
        };
        let error = programs.run("cycle-1", &size(counted)).unwrap_err();
        assert!(
            error.to_string().contains("leave out --iterations"),
            "{error}"
        );

        let many = Shape {
            threads: 100,
            ..Shape::default()
        };
        let words = arguments("transfer", "transfer-park", &size(many)).join(" ");
        assert_eq!(words, "-p 2 -t 100 -e yes -i 3000");
    }

    #[test]
    fn what_they_print_is_read() {
        let printed = "Running for 0.300000 seconds\nTotal Operations(ops):        1200\n\
                       ns per ops           :              41.50\n\
                       ns per ops/procs     :              83.00\n";
        assert_eq!(value(printed, "Total Operations(ops)").unwrap(), 1200.0);
        assert_eq!(value(printed, "ns per ops").unwrap(), 41.5);
        let error = value(printed, "us per transfer").unwrap_err();
        assert_eq!(error.to_string(), "it does not print 'us per transfer'");
    }

    #[test]
    fn a_starved_leader_is_a_figure() {
        let figures = transfers("", true).unwrap();
        assert_eq!(
            figures.iter().map(Figure::line).collect::<Vec<_>>(),
            ["starved 1", "us_per_transfer inf"]
        );
    }

    #[test]
    fn cases_that_they_lack_are_known() {
        assert!(Cfa::has("yield-1") && Cfa::has("transfer-park") && Cfa::has("locality-share"));
        assert!(!Cfa::has("select-1") && !Cfa::has("spawn-join-1") && !Cfa::has("mutex"));
    }
}
