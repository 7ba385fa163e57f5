//! What lets a reader breathe: blank lines between steps, a `let` for each value, and names that
//! mean one thing.

use std::collections::HashMap;

use crate::source::rust_files;
use crate::{Report, is_test, lists};

/// A ratchet: what is counted may become less, and the entry then follows.
fn judge(report: &mut Report, count: usize, entry: usize, name: &str, remedy: &str) {
    if count > entry {
        let what = format!("{count}, {entry} at most: {remedy} ({name})");
        report.add("crates", 0, what);
    } else if count + 10 < entry {
        let what = format!("{count} by now: lower {name}, {entry}");
        report.add("crates/plainweave/tests/tidy/lists.rs", 0, what);
    }
}

/// Steps of a function stand apart. Counted are the lines of functions, which rustfmt indents.
#[test]
fn functions_have_air() {
    let mut lines = 0;
    let mut blank = 0;

    for file in rust_files().iter().filter(|file| !is_test(file)) {
        let mut indent = None;
        for line in file.text.lines() {
            let text = line.trim_start();
            let depth = line.len() - text.len();
            match indent {
                None if is_function(text) => indent = Some(depth),
                Some(own) if depth == own && text.starts_with('}') => indent = None,
                Some(own) if depth == own && text.ends_with(';') => indent = None,
                Some(_) => {
                    lines += 1;
                    blank += usize::from(text.is_empty());
                }
                None => {}
            }
        }
    }

    let mut report = Report::default();
    let share = 1000 * blank / lines;
    if share < lists::BLANK_PER_MILLE {
        let what = format!(
            "{share} of 1,000 lines in functions are blank, {} at least: set steps apart",
            lists::BLANK_PER_MILLE
        );
        report.add("crates", 0, what);
    }
    report.done();
}

/// Whether a line begins a function with a body or the first line of its head.
fn is_function(text: &str) -> bool {
    let mut words = text
        .split_whitespace()
        .skip_while(|word| word.starts_with("pub") || *word == "in" || word.starts_with("crate::"));
    let first =
        words.find(|word| !matches!(*word, "const" | "async" | "unsafe" | "extern" | "\"C\""));
    first == Some("fn") && !text.ends_with(';')
}

/// Values that have nothing to do with each other have a `let` each.
#[test]
fn a_let_has_one_value() {
    let files = rust_files();
    let tuples = files
        .iter()
        .filter(|file| !is_test(file))
        .flat_map(|file| file.code.lines())
        .filter(|line| {
            let line = line.trim_start();
            line.starts_with("let (") && line.contains(") = (")
        });
    let mut report = Report::default();
    judge(
        &mut report,
        tuples.count(),
        lists::TUPLE_LETS,
        "TUPLE_LETS",
        "give each value a `let` of its own",
    );
    report.done();
}

/// A type's name is looked for: one that stands in four places is found in the wrong three.
#[test]
fn names_mean_one_thing() {
    let files = rust_files();
    let mut declared: HashMap<&str, usize> = HashMap::new();
    for line in files
        .iter()
        .filter(|file| !is_test(file))
        .flat_map(|file| file.code.lines())
    {
        let mut words = line
            .split_whitespace()
            .skip_while(|word| word.starts_with("pub"));
        let kind = words.next().unwrap_or_default();
        // Not what a trait's type is in one implementation: those are indented.
        if !line.starts_with(' ')
            && matches!(kind, "struct" | "enum" | "trait" | "type" | "union")
            && let Some(name) = words.next()
        {
            let end = name
                .find(|c: char| !c.is_alphanumeric())
                .unwrap_or(name.len());
            *declared.entry(&name[..end]).or_default() += 1;
        }
    }

    let often = declared.values().filter(|times| **times > 3).count();
    let mut report = Report::default();
    judge(
        &mut report,
        often,
        lists::NAMES_DECLARED_OFTEN,
        "NAMES_DECLARED_OFTEN",
        "a type's name stands more than three times: say what it is the state or kind of",
    );
    report.done();
}
