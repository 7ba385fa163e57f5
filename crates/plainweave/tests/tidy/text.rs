//! Lengths, widths and words.

use crate::source::{File, has_word, pages, rust_files};
use crate::{Report, lists};

#[test]
fn modules_begin_with_an_essay() {
    let mut report = Report::default();
    for file in rust_files()
        .iter()
        .filter(|file| file.path.contains("/src/"))
    {
        if !file.text.starts_with("//! ") {
            report.add(
                &file.path,
                1,
                "no essay: begin with `//!` and what a newcomer must know of this file",
            );
        }
    }
    report.done();
}

/// Where the scheduler is hardest to follow, at least a third of the lines explain.
#[test]
fn hard_files_are_explained() {
    let mut report = Report::default();
    let files = rust_files();
    for path in lists::HARD_FILES {
        let file = files
            .iter()
            .find(|file| file.path == *path)
            .unwrap_or_else(|| panic!("no file {path}"));
        let lines: Vec<_> = file
            .text
            .lines()
            .map(str::trim)
            .filter(|line| !line.is_empty())
            .collect();
        let comments = lines.iter().filter(|line| line.starts_with("//")).count();
        let share = 100 * comments / lines.len();
        if share < lists::COMMENT_PERCENT {
            report.add(
                path,
                0,
                format!(
                    "{share} % comments, {} % at least: explain it",
                    lists::COMMENT_PERCENT
                ),
            );
        }
    }

    report.done();
}

#[test]
fn files_are_short() {
    let mut report = Report::default();
    for file in rust_files() {
        let lines = file
            .text
            .lines()
            .filter(|line| !line.trim().is_empty())
            .count();
        let most = if file.path.contains("/tests/") {
            lists::TEST_LINES
        } else {
            lists::FILE_LINES
        };

        let listed = lists::LONG_FILES
            .iter()
            .find(|(path, _)| *path == file.path)
            .map(|(_, lines)| *lines);
        match listed {
            None if lines > most => {
                report.add(
                    &file.path,
                    0,
                    format!("{lines} lines, {most} at most: split it"),
                );
            }
            Some(limit) if lines > limit => {
                report.add(
                    &file.path,
                    0,
                    format!("{lines} lines, and it was too long with {limit}: split it"),
                );
            }
            Some(limit) if lines <= lists::FILE_LINES || lines + 20 < limit => {
                report.add(
                    &file.path,
                    0,
                    format!("{lines} lines by now: lower its entry in tidy/lists.rs, {limit}"),
                );
            }
            _ => {}
        }
    }
    report.done();
}

#[test]
fn functions_are_short() {
    let mut report = Report::default();
    for file in rust_files() {
        for (name, line, length) in functions(&file) {
            let listed = lists::LONG_FUNCTIONS
                .iter()
                .find(|(path, function, _)| (*path, *function) == (&file.path, &name));
            let most = listed.map_or(lists::FUNCTION_LINES, |(_, _, lines)| *lines);
            if length > most {
                let what = format!("`{name}` has {length} lines, {most} at most: split it");
                report.add(&file.path, line, what);
            } else if listed.is_some() && (length <= lists::FUNCTION_LINES || length + 10 < most) {
                let what = format!("`{name}` has {length} lines by now: lower its entry, {most}");
                report.add(&file.path, line, what);
            }
        }
    }
    report.done();
}

/// The functions with a body: name, first line, number of lines.
fn functions(file: &File) -> Vec<(String, usize, usize)> {
    let lines: Vec<&str> = file.code.lines().collect();
    let mut functions = Vec::new();
    for (n, line) in lines
        .iter()
        .enumerate()
        .filter(|(_, line)| has_word(line, "fn"))
    {
        let after = line.split("fn ").nth(1).unwrap_or_default();
        let name: String = after
            .chars()
            .take_while(|c| c.is_alphanumeric() || *c == '_')
            .collect();
        if name.is_empty() {
            continue; // A function pointer's type.
        }
        let rest = lines[n..]
            .iter()
            .flat_map(|line| line.chars().chain(['\n']));
        let mut braces = 0;
        let mut brackets = 0;
        let mut ends = 0;

        for c in rest {
            match c {
                '\n' => ends += 1,
                '(' | '[' => brackets += 1,
                ')' | ']' => brackets -= 1,
                '{' => braces += 1,
                '}' => braces -= 1,
                _ => {}
            }

            if (c == '}' && braces <= 0) || (c == ';' && braces == 0 && brackets == 0) {
                break;
            }
        }

        // Comments are blank in the code, and count.
        let blank = file.text.lines().skip(n).take(ends + 1);
        let blank = blank.filter(|line| line.trim().is_empty()).count();
        functions.push((name, n + 1, ends + 1 - blank));
    }

    functions
}

#[test]
fn lines_are_narrow_and_without_tabs() {
    let mut wide = 0;
    let mut report = Report::default();
    for file in rust_files().iter().chain(&pages()) {
        let mut code = false;
        for (n, line) in file.text.lines().enumerate() {
            let width = line.chars().count();
            // Tables and links of a page cannot be broken.
            let unbroken =
                file.path.ends_with(".md") && (line.starts_with('|') || line.contains("]("));
            code ^= line.trim_start().starts_with("```");
            let most = if file.path.ends_with(".md") && !code && !line.starts_with("    ") {
                lists::LINE_WIDTH
            } else {
                lists::UNBROKEN_WIDTH
            };

            if width > most && !unbroken {
                let what = format!("{width} characters, {most} at most: break it");
                report.add(&file.path, n + 1, what);
            }

            wide += usize::from(width > lists::LINE_WIDTH && !file.path.ends_with(".md"));
            if line.contains('\t') {
                report.add(&file.path, n + 1, "a tab: indent with spaces");
            }
            if line.ends_with(' ') {
                report.add(&file.path, n + 1, "a blank at the end: remove it");
            }
        }
    }

    if wide > lists::UNBROKEN_LINES || wide + 20 < lists::UNBROKEN_LINES {
        let width = lists::LINE_WIDTH;
        let most = lists::UNBROKEN_LINES;
        let what = format!("{wide} lines above {width} characters, not {most}: see UNBROKEN_LINES");
        report.add("crates/plainweave/tests/tidy/lists.rs", 0, what);
    }

    report.done();
}

#[test]
fn words_are_plain() {
    let mut report = Report::default();
    let own = |file: &&File| !file.path.contains("/tests/tidy/");
    for file in rust_files().iter().chain(&pages()).filter(own) {
        for (n, line) in file.text.lines().enumerate() {
            let line = lists::QUOTED
                .iter()
                .fold(line.to_owned(), |line, quoted| line.replace(quoted, ""));
            let line = line.to_lowercase();
            for (word, instead) in lists::WORDS
                .iter()
                .filter(|(word, _)| has_word(&line, word))
            {
                report.add(&file.path, n + 1, format!("\"{word}\": {instead}"));
            }
            for (phrase, instead) in lists::PHRASES
                .iter()
                .filter(|(phrase, _)| line.contains(phrase))
            {
                report.add(&file.path, n + 1, format!("\"{phrase}\": {instead}"));
            }
        }
    }

    report.done();
}
