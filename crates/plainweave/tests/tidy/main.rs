//! The project's habits and invariants as a test over its source tree.
//!
//! A rule that is only written down erodes; one that fails with file, line and remedy does not.
//! What the rules allow stands in [`lists`]; `ARCHITECTURE.md` and `STYLE.md` say why. The tables
//! of exceptions are ratchets: an entry that is larger than it need be fails too, so they only
//! shrink.

mod air;
mod cycles;
mod documents;
mod layers;
mod lists;
mod source;
mod text;

use std::fmt::Write;

use source::File;

/// What is wrong, where, and what to do about it.
struct Finding {
    place: String,
    what: String,
}

/// The findings of one rule; fails the test if there are any.
#[derive(Default)]
struct Report(Vec<Finding>);

impl Report {
    /// `line` counts from 1; 0 stands for the whole file.
    fn add(&mut self, file: &str, line: usize, what: impl Into<String>) {
        let place = if line == 0 {
            file.to_owned()
        } else {
            format!("{file}:{line}")
        };

        self.0.push(Finding {
            place,
            what: what.into(),
        });
    }

    #[track_caller]
    fn done(self) {
        let mut text = String::new();
        for Finding { place, what } in &self.0 {
            let _ = write!(text, "\n  {place}: {what}");
        }
        assert!(self.0.is_empty(), "{} findings:{text}\n", self.0.len());
    }
}

/// Whether a file holds tests only. `unsafe`, prints and exits are judged in the others.
fn is_test(file: &File) -> bool {
    let name = file.path.rsplit('/').next().unwrap_or_default();
    file.path.contains("/tests/") || matches!(name, "tests.rs" | "models.rs" | "cost.rs")
}

/// Whether a file belongs to a library that is not a test of it.
fn is_library(file: &File) -> bool {
    let library = [
        "crates/plainweave/src/",
        "crates/plainweave-http/src/",
        "crates/plainweave-macros/src/",
        "crates/plainweave-tracing/src/",
        "crates/plainweave-ureq/src/",
    ];
    library.iter().any(|dir| file.path.starts_with(dir)) && !is_test(file)
}
