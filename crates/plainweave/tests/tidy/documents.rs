//! Pages agree with the tree.

use crate::source::{pages, read, root, rust_files};
use crate::{Report, is_test};

const ARCHITECTURE: &str = "ARCHITECTURE.md";

/// What a file is stands where it is declared, so that a folder is read at one place.
#[test]
fn each_file_is_explained_where_it_is_declared() {
    let mut report = Report::default();
    let files = rust_files();
    for file in files.iter().filter(|file| !is_test(file)) {
        let Some((source, stem)) = declared(&file.path) else {
            continue;
        };
        let (folder, name) = stem.rsplit_once('/').unwrap_or(("", stem));
        let parents = match folder {
            "" => ["lib.rs", "main.rs"].map(|parent| format!("{source}{parent}")),
            folder => ["/mod.rs", ".rs"].map(|end| format!("{source}{folder}{end}")),
        };

        let is_explained = parents.iter().any(|parent| {
            let parent = files.iter().find(|file| file.path == *parent);
            parent.is_some_and(|parent| explains(&parent.text, name))
        });

        if !is_explained {
            let what =
                format!("not explained where it is declared: say behind `mod {name};` what it is");
            report.add(&file.path, 0, what);
        }
    }

    report.done();
}

/// Returns the folder of sources and the rest of a module's path, without its ending; `None` for
/// what no `mod` declares.
fn declared(path: &str) -> Option<(&str, &str)> {
    let (before, within) = path.split_once("/src/")?;
    let stem = within.strip_suffix(".rs")?;
    let stem = stem.strip_suffix("/mod").unwrap_or(stem);
    let is_root = matches!(stem, "lib" | "main") || stem.starts_with("bin/");

    // Declared by a path, in place of another.
    let is_stand_in = stem.ends_with("_absent") || stem.ends_with("/absent");
    let source = &path[..before.len() + "/src/".len()];
    (!is_root && !is_stand_in).then_some((source, stem))
}

/// Whether a comment stands behind the declaration, or in the lines above it and its attributes.
fn explains(text: &str, name: &str) -> bool {
    let lines: Vec<_> = text.lines().collect();
    let declaration = format!("mod {name};");
    let is_it = |line: &&str| {
        let line = line
            .trim_start_matches("pub(crate) ")
            .trim_start_matches("pub(super) ");
        line.trim_start_matches("pub ").starts_with(&declaration)
    };

    let all = lines.iter().enumerate().filter(|(_, line)| is_it(line));
    all.into_iter().any(|(n, line)| {
        let mut above = lines[..n]
            .iter()
            .rev()
            .skip_while(|line| line.starts_with("#["));
        let is_comment = |line: &&str| line.starts_with("//") && !line.starts_with("//!");
        line.contains("; // ") || above.next().is_some_and(is_comment)
    })
}

#[test]
fn readme_shows_the_echo_example() {
    let example = read("crates/plainweave/examples/echo.rs");
    let shown: Vec<_> = example
        .lines()
        .skip_while(|line| line.starts_with("//!") || line.is_empty())
        .collect();
    // The test that runs it reaches into it.
    let shown = shown.join("\n").replace("pub(crate) ", "");
    let what = "not in README.md as it stands: copy one to the other, apart from the `//!` lines";
    let mut report = Report::default();

    if !read("README.md").contains(&shown) {
        report.add("crates/plainweave/examples/echo.rs", 0, what);
    }
    report.done();
}

#[test]
fn decisions_can_be_found() {
    let mut report = Report::default();
    let entrances = [read("README.md"), read(ARCHITECTURE)].concat();
    let by_reader = read("docs/README.md");

    for page in pages() {
        let Some(name) = page.path.strip_prefix("docs/") else {
            continue;
        };
        if !by_reader.contains(&format!("]({name})"))
            && !entrances.contains(&format!("]({})", page.path))
        {
            report.add(
                &page.path,
                0,
                "no way leads here: give it a line in docs/README.md, under its readers",
            );
        }
    }

    report.done();
}

#[test]
fn links_lead_somewhere() {
    let mut report = Report::default();
    for page in pages() {
        let dir = page.path.rsplit_once('/').map_or("", |(dir, _)| dir);
        for (n, line) in page.text.lines().enumerate() {
            let targets = line
                .split("](")
                .skip(1)
                .filter_map(|rest| rest.split(')').next());
            for target in
                targets.filter(|target| !target.contains("://") && !target.starts_with('#'))
            {
                let file = target.split('#').next().unwrap_or_default();
                if !root().join(dir).join(file).exists() {
                    report.add(
                        &page.path,
                        n + 1,
                        format!("a link to {target}, which is not there: mend or drop it"),
                    );
                }
            }
        }
    }
    report.done();
}

/// A program that wraps paragraphs must not have wrapped code with them.
#[test]
fn blocks_of_code_stand_on_lines_of_their_own() {
    let mut report = Report::default();
    for page in pages() {
        let mut open = false;
        for (n, line) in page.text.lines().enumerate() {
            let fence = line.trim_start().strip_prefix("```");
            let spoilt = match fence {
                Some(rest) if open => !rest.is_empty(),
                Some(language) => language.contains(' '),
                None => line.contains("```"),
            };
            if spoilt {
                report.add(
                    &page.path,
                    n + 1,
                    "text in the line that begins or ends a block of code: give it one of its own",
                );
            }
            open ^= fence.is_some();
        }
        if open {
            report.add(&page.path, 0, "a block of code has no end");
        }
    }
    report.done();
}
