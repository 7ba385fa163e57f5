//! A repetition in a process of its own: each begins with a fresh heap and fresh pools, and one
//! that hangs is ended.

use std::io::Read;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};

/// Runs such a process and returns what it prints, which is little: nothing is read before it ends.
///
/// # Errors
/// It fails: the message is its first line on standard error. Or it takes longer than `patience`.
pub(crate) fn output(command: Command, patience: Duration) -> anyhow::Result<String> {
    Ok(texts(command, patience)?.printed)
}

/// What a process has written.
pub(crate) struct Texts {
    pub(crate) printed: String,
    /// On standard error.
    pub(crate) errors: String,
}

/// As [`output`], for programs that say what they found on standard error.
///
/// # Errors
/// As [`output`].
pub(crate) fn texts(mut command: Command, patience: Duration) -> anyhow::Result<Texts> {
    let mut child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .context("cannot start a child")?;
    let started = Instant::now();
    let status = loop {
        match child.try_wait()? {
            Some(status) => break status,
            None if started.elapsed() > patience => {
                child.kill()?;
                child.wait()?;
                bail!("hangs: not done after {} s", patience.as_secs());
            }
            None => std::thread::sleep(Duration::from_millis(2)),
        }
    };

    let mut printed = String::new();
    let mut errors = String::new();
    child
        .stdout
        .take()
        .context("no pipe")?
        .read_to_string(&mut printed)?;
    child
        .stderr
        .take()
        .context("no pipe")?
        .read_to_string(&mut errors)?;
    let first = errors.trim().lines().next().unwrap_or_default();

    ensure!(
        status.success(),
        "{}",
        if first.is_empty() {
            status.to_string()
        } else {
            first.to_owned()
        }
    );

    Ok(Texts { printed, errors })
}

/// Reads one figure from each line: the name of a metric and its value.
pub(crate) fn values(text: &str) -> anyhow::Result<Vec<(&str, f64)>> {
    let value = |line| {
        let figure = |(name, value): (_, &str)| Some((name, value.parse().ok()?));
        str::split_once(line, ' ')
            .and_then(figure)
            .with_context(|| format!("not a figure: '{line}'"))
    };
    text.lines().map(value).collect()
}
