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

        if std::fs::metadata(path).is_ok_and(|file| file.is_file() && file.len() > 0)
            && !holds_a_number(path)
        {
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
        })
    }
}

impl Drop for PidFile {
    fn drop(&mut self) {
        if std::fs::read(&self.path).is_ok_and(|there| there == self.text.as_bytes()) {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// Returns whether a file begins with a number and has nothing behind it.
fn holds_a_number(path: &Path) -> bool {
    let mut there = Vec::new();
    let read = File::open(path).and_then(|file| file.take(32).read_to_end(&mut there));
    let number = there.trim_ascii();
    read.is_ok() && there.len() < 32 && !number.is_empty() && number.iter().all(u8::is_ascii_digit)
}
