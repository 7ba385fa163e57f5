//! The file with the process's number, `-P`.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};

/// The file. Its drop removes it, unless another process has written its own number there.
#[derive(Debug)]
pub(super) struct PidFile {
    path: PathBuf,
    text: String,
    /// What the drop puts back: a number of a process that may go on.
    before: Option<Vec<u8>>,
}

impl PidFile {
    /// Writes it. A file that holds anything but a number, as one given by mistake does, stays as
    /// it is.
    pub(super) fn write(path: &Path) -> anyhow::Result<Self> {
        let remedy = || {
            format!(
                "cannot write {} (give another file with -P)",
                path.display()
            )
        };

        let is_there = std::fs::metadata(path).is_ok_and(|file| file.is_file() && file.len() > 0);
        let before = number(path).filter(|_| is_there);
        if is_there && before.is_none() {
            bail!(
                "{}: the file is there and is not a process's number; it stays as it is",
                remedy()
            );
        }
        let text = format!("{}\n", std::process::id());
        std::fs::write(path, &text).with_context(remedy)?;

        Ok(Self {
            path: path.to_owned(),
            text,
            before,
        })
    }

    /// Notes that the process whose number stood there has ended, or does now.
    pub(super) fn succeed(&mut self) {
        self.before = None;
    }
}

impl Drop for PidFile {
    fn drop(&mut self) {
        if std::fs::read(&self.path).is_ok_and(|there| there == self.text.as_bytes()) {
            let _ = match &self.before {
                Some(before) => std::fs::write(&self.path, before),
                None => std::fs::remove_file(&self.path),
            };
        }
    }
}

/// Returns what a file has, if that is a number and nothing behind it.
fn number(path: &Path) -> Option<Vec<u8>> {
    let mut there = Vec::new();
    let read = File::open(path).and_then(|file| file.take(32).read_to_end(&mut there));
    let number = there.trim_ascii();
    let is_one = !number.is_empty() && number.iter().all(u8::is_ascii_digit);
    (read.is_ok() && there.len() < 32 && is_one).then_some(there)
}
