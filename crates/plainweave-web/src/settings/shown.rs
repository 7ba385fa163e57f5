//! `--print-config`: each setting, its value and where that comes from, as a file that says the
//! same.

use std::ffi::{OsStr, OsString};
use std::fmt::Write;

use clap::{Arg, ArgAction, ArgMatches};
use serde_json::Value;

use super::gathered::{Gathered, Origin, all, command, is_path};

/// Returns all settings as a file has them, and the tables as they are.
///
/// # Errors
/// The flags refuse what they say together.
pub(crate) fn shown(gathered: &Gathered) -> anyhow::Result<String> {
    let command = command();
    let matches = command.clone().try_get_matches_from(&gathered.arguments)?;
    let mut text = String::new();
    for (name, argument) in all(&command) {
        let value = value(argument, &matches);
        let origin = gathered.origins.get(&name).unwrap_or(&Origin::Default);
        let help = argument.get_help().map(ToString::to_string);
        for line in help.iter().flat_map(|help| wrapped(help)) {
            writeln!(text, "# {line}")?;
        }

        match value {
            // As a setting it might need others beside it.
            Some(value) if *origin == Origin::Default => {
                writeln!(text, "# {name} = {value} # {}\n", said(origin))?;
            }
            Some(value) => writeln!(text, "{name} = {value} # {}\n", said(origin))?,
            None => writeln!(text, "# {name} is not set\n")?,
        }
    }

    if let Some((path, tables)) = gathered
        .file
        .as_ref()
        .map(|(path, text)| (path, tables(text)))
    {
        writeln!(
            text,
            "# The tables of {}, as they stand there.\n\n{tables}",
            path.display()
        )?;
    }

    Ok(text)
}

/// Returns the part of a file behind its settings: from the first table on, with comments in front.
fn tables(text: &str) -> &str {
    let mut at = 0;
    for line in text.split_inclusive('\n') {
        if line.trim_start().starts_with("[[") {
            return &text[at..];
        }

        at += line.len();
    }

    ""
}

fn said(origin: &Origin) -> String {
    match origin {
        Origin::Default => "the default".to_owned(),
        Origin::File(line) => format!("line {line} of the file"),
        Origin::Environment(variable) => variable.clone(),
        Origin::CommandLine => "the command line".to_owned(),
    }
}

/// Returns a setting's value as TOML.
fn value(argument: &Arg, matches: &ArgMatches) -> Option<String> {
    let id = argument.get_id().as_str();
    if matches!(argument.get_action(), ArgAction::SetTrue) {
        return Some(matches.get_flag(id).to_string());
    }

    let raw = matches.get_raw(id)?;
    let texts: Vec<_> = raw
        // A string of JSON is one of TOML, too.
        .map(|text| Value::from(absolute(argument, text).to_string_lossy()).to_string())
        .collect();
    Some(match argument.get_action() {
        ArgAction::Append => format!("[{}]", texts.join(", ")),
        _ => texts.concat(),
    })
}

/// Returns a path from the root on: in a file it is meant from the file's directory.
fn absolute(argument: &Arg, text: &OsStr) -> OsString {
    let path = std::path::absolute(text).ok();
    match path.filter(|_| is_path(argument, text)) {
        Some(path) => path.into_os_string(),
        None => text.to_owned(),
    }
}

/// Breaks a text into lines of a page's width.
pub(super) fn wrapped(text: &str) -> Vec<String> {
    const WIDTH: usize = 98;
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let last = lines.last().map_or(0, |line| line.chars().count());
        if last + 1 + word.chars().count() > WIDTH {
            lines.push(String::new());
        }

        if let Some(line) = lines.last_mut() {
            if !line.is_empty() {
                line.push(' ');
            }
            line.push_str(word);
        }
    }

    lines
}
