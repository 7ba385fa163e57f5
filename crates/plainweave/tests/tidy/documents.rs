//! Pages agree with the tree.

use crate::source::{pages, read, root, rust_files};
use crate::{Report, is_test};

const ARCHITECTURE: &str = "ARCHITECTURE.md";

#[test]
fn architecture_maps_every_module() {
    let mut report = Report::default();
    let text = read(ARCHITECTURE);
    let source = "crates/plainweave/src/";
    for file in rust_files()
        .iter()
        .filter(|file| file.path.starts_with(source) && !is_test(file))
    {
        let name = &file.path[source.len()..];
        if !text.contains(&format!("`{name}`")) {
            report.add(
                &file.path,
                0,
                format!("not on the code map: give `{name}` a line in ARCHITECTURE.md"),
            );
        }
    }
    report.done();
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
    let (entrances, by_reader) = (
        [read("README.md"), read(ARCHITECTURE)].concat(),
        read("docs/README.md"),
    );
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
