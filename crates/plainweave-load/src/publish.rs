//! Where results go: standard output, and the files asked for.

use std::fs::OpenOptions;
use std::io;
use std::path::Path;

use anyhow::Context;
use serde_json::Value;

use super::flags::Common;
use plainweave_daemon::console;

/// A result in all its forms.
pub(super) struct Forms {
    pub(super) table: String,
    pub(super) csv: String,
    pub(super) json: Value,
    pub(super) html: String,
}

/// Checks that the files can be written, before there is something to lose.
pub(super) fn check(flags: &Common) -> anyhow::Result<()> {
    let json = flags.json.as_ref().filter(|path| path.as_os_str() != "-");
    for path in [json, flags.csv.as_ref(), flags.html.as_ref()]
        .into_iter()
        .flatten()
    {
        let opened = OpenOptions::new().append(true).create(true).open(path);
        opened.with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
}

/// Prints the table, or the JSON in its place, and writes the files.
pub(super) fn publish(flags: &Common, forms: &Forms) -> anyhow::Result<()> {
    let json = format!("{:#}\n", forms.json);
    let to_stdout = flags.json.as_deref() == Some(Path::new("-"));
    console::say(
        io::stdout(),
        (if to_stdout { &json } else { &forms.table }).trim_end(),
    );
    if let Some(path) = flags.json.as_deref().filter(|_| !to_stdout) {
        write(path, &json)?;
    }
    if let Some(path) = &flags.html {
        write(path, &forms.html)?;
    }

    flags
        .csv
        .as_deref()
        .map_or(Ok(()), |path| write(path, &forms.csv))
}

fn write(path: &Path, text: &str) -> anyhow::Result<()> {
    std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}
