//! The tree's files, and Rust lines without their comments and literals.

use std::fs;
use std::path::{Path, PathBuf};

/// One file.
pub(crate) struct File {
    /// From the workspace's root, with `/`.
    pub(crate) path: String,
    pub(crate) text: String,
    /// For Rust: the text with comments and the contents of literals blanked, line by line the
    /// same. Else empty.
    pub(crate) code: String,
}

/// The workspace's root.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The text of a file of the workspace.
pub(crate) fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// All Rust files of the crates.
pub(crate) fn rust_files() -> Vec<File> {
    files("crates", "rs")
}

/// All pages: at the root and under `docs`.
pub(crate) fn pages() -> Vec<File> {
    let mut pages = files("docs", "md");
    let at_root = fs::read_dir(root()).expect("the workspace");
    let names = at_root.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    for path in names.filter(|name| name.ends_with(".md")) {
        pages.push(File {
            text: read(&path),
            path,
            code: String::new(),
        });
    }

    pages
}

/// The files under `dir` with an extension, in order.
pub(crate) fn files(dir: &str, extension: &str) -> Vec<File> {
    let mut found = Vec::new();
    let mut dirs = vec![dir.to_owned()];
    while let Some(dir) = dirs.pop() {
        for entry in
            fs::read_dir(root().join(&dir)).unwrap_or_else(|error| panic!("{dir}: {error}"))
        {
            let entry = entry.expect("an entry");
            let path = format!("{dir}/{}", entry.file_name().to_string_lossy());
            if entry.file_type().expect("its type").is_dir() {
                // Generated, or not ours.
                if !matches!(path.rsplit('/').next(), Some("target" | "corpus")) {
                    dirs.push(path);
                }
            } else if path.ends_with(&format!(".{extension}")) {
                let text = read(&path);
                let code = if extension == "rs" {
                    code_of(&text)
                } else {
                    String::new()
                };
                found.push(File { path, text, code });
            }
        }
    }

    found.sort_by(|a, b| a.path.cmp(&b.path));
    found
}

/// Blanks comments, strings and characters; keeps line ends.
fn code_of(text: &str) -> String {
    let chars: Vec<char> = text.chars().collect();
    let mut code = String::with_capacity(text.len());
    let mut i = 0;
    while i < chars.len() {
        let end = match chars[i] {
            '/' if chars.get(i + 1) == Some(&'/') => find(&chars, i, |c| c == '\n'),
            '/' if chars.get(i + 1) == Some(&'*') => end_of_block_comment(&chars, i),
            '"' => end_of_string(&chars, i),
            'r' if !in_word(&chars, i) => end_of_raw_string(&chars, i).unwrap_or(i),
            '\'' => end_of_char(&chars, i).unwrap_or(i),
            _ => i,
        };

        if end == i {
            code.push(chars[i]);
            i += 1;
        } else {
            code.extend(
                chars[i..end]
                    .iter()
                    .map(|c| if *c == '\n' { '\n' } else { ' ' }),
            );
            i = end;
        }
    }

    code
}

fn find(chars: &[char], from: usize, wanted: impl Fn(char) -> bool) -> usize {
    (from..chars.len())
        .find(|&i| wanted(chars[i]))
        .unwrap_or(chars.len())
}

/// Whether the character before belongs to an identifier (other than the `b` of a byte string).
fn in_word(chars: &[char], i: usize) -> bool {
    let before = |n: usize| i.checked_sub(n).map_or(' ', |i| chars[i]);
    let word = |c: char| c.is_alphanumeric() || c == '_';
    let last = if before(1) == 'b' { 2 } else { 1 };
    word(before(last))
}

fn end_of_block_comment(chars: &[char], start: usize) -> usize {
    let mut depth = 0;
    let mut i = start;
    while i + 1 < chars.len() {
        match (chars[i], chars[i + 1]) {
            ('/', '*') => (depth, i) = (depth + 1, i + 2),
            ('*', '/') => (depth, i) = (depth - 1, i + 2),
            _ => i += 1,
        }

        if depth == 0 {
            return i;
        }
    }
    chars.len()
}

fn end_of_string(chars: &[char], start: usize) -> usize {
    let mut i = start + 1;
    while i < chars.len() && chars[i] != '"' {
        i += if chars[i] == '\\' { 2 } else { 1 };
    }
    (i + 1).min(chars.len())
}

fn end_of_raw_string(chars: &[char], start: usize) -> Option<usize> {
    let open = find(chars, start + 1, |c| c != '#');
    let hashes = open - start - 1;
    if chars.get(open) != Some(&'"') {
        return None;
    }
    let follow = |i: usize| chars[i + 1..].iter().take_while(|c| **c == '#').count();
    let closes = |i: usize| chars[i] == '"' && follow(i) >= hashes;
    let close = (open + 1..chars.len()).find(|&i| closes(i))?;

    Some(close + 1 + hashes)
}

/// `None` for a lifetime.
fn end_of_char(chars: &[char], start: usize) -> Option<usize> {
    match chars.get(start + 1)? {
        '\\' => Some(find(chars, start + 3, |c| c == '\'') + 1),
        _ => (chars.get(start + 2) == Some(&'\'')).then_some(start + 3),
    }
}

/// Where `word` stands as a word of its own: line numbers from 1.
pub(crate) fn lines_with(code: &str, word: &str) -> Vec<usize> {
    let lines = code
        .lines()
        .enumerate()
        .filter(|(_, line)| has_word(line, word));
    lines.map(|(n, _)| n + 1).collect()
}

/// Whether `word` stands in `line`, not as a part of a longer word.
pub(crate) fn has_word(line: &str, word: &str) -> bool {
    let part = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_');
    line.match_indices(word).any(|(at, _)| {
        !part(line[..at].chars().next_back()) && !part(line[at + word.len()..].chars().next())
    })
}

#[test]
fn comments_and_literals_are_blanked() {
    let code = code_of(
        "a // b\n'\\'' 'x' &'a b\"c\\\"\" r#\"d\"e\"# br\"f\" /* g /* h */ */ i b'\"' bar\"j\"",
    );
    let words: Vec<_> = code.split_whitespace().collect();
    assert_eq!(words, ["a", "&'a", "b", "b", "i", "b", "bar"]);
    assert_eq!(code.lines().count(), 2);
}
