//! What is claimed of any configuration's text and of any rule and path: nothing panics, what is
//! wrong has a place in the text, and which rules match is what each of them says by itself.
//!
//! Used by the fuzz targets (feature `fuzzing`) and, with a fixed seed, by the tests.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use plainweave_http::files::{decoded, push_encoded};
use toml::Spanned;

use crate::config::{MistakeAt, RuleTable, SiteTable, Tables};
use crate::settings::read_text;
use crate::sites::{Paths, Rule, Rules};
use crate::upstream::Upstreams;

/// The file that a text is said to be of.
const FILE: &str = "/nonexistent/web.toml";

/// Holds the claims against the text of a configuration.
///
/// # Panics
/// They do not hold.
pub fn configuration(data: &[u8]) {
    let Ok(text) = str::from_utf8(data) else {
        return;
    };

    let file = Path::new(FILE);
    if let Err(error) = read_text(file, text) {
        assert_placed(text, &error.to_string());
    }
    let tables = match Tables::of(file, text) {
        Ok(tables) => tables,
        Err(error) => return assert_placed(text, &error.to_string()),
    };

    let sites = tables.site.iter().map(Spanned::get_ref);
    let of_sites = sites.flat_map(|site: &SiteTable| &site.rule);
    for rule in of_sites.chain(&tables.rule) {
        if let Err(error) = compiled(rule, text) {
            assert_placed(text, &error.to_string());
        }
    }
}

/// Compiles a rule, without a look at the file of its passwords.
fn compiled(table: &Spanned<RuleTable>, text: &str) -> Result<Rule, MistakeAt> {
    let mut inner = table.get_ref().clone();
    inner.basic_auth = None;
    let rule = Rule::of(
        &Spanned::new(table.span(), inner),
        Path::new(FILE),
        &Upstreams::default(),
    );
    rule.map_err(|mistake| mistake.of(Path::new(FILE), text))
}

/// What is said of a mistake is one line, and names a line and a column that the text has.
fn assert_placed(text: &str, said: &str) {
    assert!(!said.contains('\n'), "{said}");
    let place = said
        .strip_prefix(FILE)
        .and_then(|rest| rest.strip_prefix(':'));
    let mut parts = place.expect("the file's name").splitn(3, ':');
    let mut number = || parts.next().and_then(|part| part.parse::<usize>().ok());
    let line = number().expect("a line");
    let column = number().expect("a column");
    let wanted = text
        .split('\n')
        .nth(line - 1)
        .expect("the text has the line");
    let width = wanted.chars().count();
    assert!((1..=width + 1).contains(&column), "{said}");
}

/// Holds the claims against rules and a path: lines of patterns (or, behind `~`, of a regular
/// expression) and of where they lead behind a blank, an empty line, and the path.
///
/// # Panics
/// They do not hold.
pub fn paths(data: &[u8]) {
    let Ok(text) = str::from_utf8(data) else {
        return;
    };
    let Some((lines, path)) = text.split_once("\n\n") else {
        return;
    };
    let Ok(path) = decoded(path) else {
        return;
    };

    // Written and read again it is the same.
    let mut url = String::new();
    push_encoded(&mut url, &path);
    assert_eq!(decoded(&url).as_deref(), Ok(&*path), "{url}");

    let rules: Vec<_> = lines.lines().filter_map(rule).map(Into::into).collect();
    let Ok(compiled) = Rules::new(rules.clone()) else {
        return;
    };
    let found = compiled.numbers(&path);
    let each = (0..).zip(&rules).filter(|(_, rule)| matches(rule, &path));
    assert_eq!(found, each.map(|(number, _)| number).collect::<Vec<_>>());

    for rule in &rules {
        if let Some(location) = rule.location(&path) {
            let is_header = location.bytes().all(|byte| (0x21..0x7f).contains(&byte));
            assert!(is_header, "{location}");
            let is_path = location.starts_with('/') && !location.starts_with("//");
            let is_url = location.starts_with("http://") || location.starts_with("https://");
            assert!(is_path || is_url, "{location}");
        }
    }
}

/// Makes a rule of a line, if it is one.
fn rule(line: &str) -> Option<Rule> {
    let spanned = |text: &str| Some(Spanned::new(0..0, text.to_owned()));
    let (place, redirect) = match line.split_once(' ') {
        Some((place, redirect)) => (place, spanned(redirect)),
        None => (line, None),
    };

    let mut table = RuleTable {
        redirect,
        ..RuleTable::default()
    };
    match place.strip_prefix('~') {
        Some(regex) => table.regex = spanned(regex),
        None => table.path = spanned(place).map(|path| vec![path].into()),
    }
    Rule::of(
        &Spanned::new(0..0, table),
        Path::new(FILE),
        &Upstreams::default(),
    )
    .ok()
}

/// Returns whether a rule is for a path, by itself.
fn matches(rule: &Rule, path: &[u8]) -> bool {
    match rule.paths() {
        Paths::All => true,
        Paths::Regex(regex) => regex.is_match(&String::from_utf8_lossy(path)),
        Paths::Patterns(globs) => globs
            .iter()
            .any(|glob| glob.compile_matcher().is_match(OsStr::from_bytes(path))),
    }
}

#[cfg(test)]
mod tests; // The fuzz targets without a fuzzer.
