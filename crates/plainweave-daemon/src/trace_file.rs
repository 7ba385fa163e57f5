//! `--trace`: the file that a server's trace is written to, on SIGUSR2 and at its end.
//!
//! Each writing replaces what was written before. It goes to a new file beside it, of the same name
//! with the process's id and `.part` behind it, which is then renamed: a reader finds a whole trace
//! or the last one, a full disk costs the new one only, and no other file is touched. A character
//! device is written to directly.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::process;
use std::sync::{Mutex, PoisonError};

use anyhow::{Context, ensure};
use plainweave::trace::{self, Tracer};

use crate::console::say;

/// Names for a new file that may be taken.
const TAKEN: u32 = 100;

/// Where the trace goes, and what is in it.
#[derive(Debug)]
pub struct TraceFile {
    path: PathBuf,
    is_device: bool,
    tracers: Vec<Tracer>,
    /// One writes at a time.
    writing: Mutex<()>,
}

impl TraceFile {
    /// Checks that the file can be written, and creates it.
    pub fn open(path: &Path, tracers: Vec<Tracer>) -> anyhow::Result<Self> {
        let remedy = || {
            format!(
                "cannot write a trace to {} (give --trace another FILE)",
                path.display()
            )
        };

        // Looked at before it is opened: opening a pipe may block.
        let is_device = fs::metadata(path).is_ok_and(|found| found.file_type().is_char_device());
        let is_other = fs::metadata(path).is_ok_and(|found| !found.is_file()) && !is_device;
        ensure!(!is_other, "{}: it is neither a file nor a device", remedy());
        File::options()
            .create(true)
            .append(true)
            .open(path)
            .with_context(remedy)?;
        let path = path.canonicalize().with_context(remedy)?;
        let file = Self {
            path,
            is_device,
            tracers,
            writing: Mutex::new(()),
        };

        if !file.is_device {
            // Its folder may not be ours to write to.
            file.create_part()
                .and_then(|(part, _)| fs::remove_file(part))
                .with_context(remedy)?;
        }

        Ok(file)
    }

    /// Writes what the runtimes have recorded, and says so.
    pub fn write(&self) -> anyhow::Result<String> {
        let _one = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        let path = self.path.display();
        if self.is_device {
            let written = File::create(&self.path)
                .and_then(|device| trace::write_json(&self.tracers, device));
            written.with_context(|| format!("cannot write the trace to {path}"))?;
        } else {
            self.replace()
                .with_context(|| format!("cannot write the trace to {path}, which is as it was"))?;
        }

        Ok(format!("the trace is written to {path}"))
    }

    /// Writes it at the end of a server, if there is one; only a failure is said.
    pub fn write_last(file: Option<&Self>, server: &str) {
        if let Some(Err(error)) = file.map(Self::write) {
            say(io::stderr(), &format!("{server}: {error:#}"));
        }
    }

    fn replace(&self) -> io::Result<()> {
        let (part, file) = self.create_part()?;
        let written =
            trace::write_json(&self.tracers, file).and_then(|()| fs::rename(&part, &self.path));
        if written.is_err() {
            let _ = fs::remove_file(&part);
        }
        written
    }

    /// Creates a file beside it that was not there before.
    fn create_part(&self) -> io::Result<(PathBuf, File)> {
        let id = process::id();
        let mut taken = 0;
        loop {
            let mut name = OsString::from(&self.path);
            name.push(if taken == 0 {
                format!(".{id}.part")
            } else {
                format!(".{id}.{taken}.part")
            });
            match File::options().write(true).create_new(true).open(&name) {
                // It may be the user's, or be left by a process that had the same number, as in a
                // container.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists && taken < TAKEN => {
                    taken += 1
                }
                opened => return opened.map(|file| (name.into(), file)),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_files_stay() {
        let id = process::id();
        let folder = std::env::temp_dir().join(format!("plainweave-trace-{id}"));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir(&folder).unwrap();
        let others =
            ["trace.part".to_owned(), format!("trace.{id}.part")].map(|name| folder.join(name));

        for other in &others {
            fs::write(other, "the user's").unwrap();
        }
        let file = TraceFile::open(&folder.join("trace"), Vec::new()).unwrap();
        let written = file.write();
        let left: Vec<_> = others
            .iter()
            .map(|other| fs::read_to_string(other).unwrap_or_default())
            .collect();
        let trace = fs::read(folder.join("trace")).unwrap();
        let count = fs::read_dir(&folder).unwrap().count();

        fs::remove_dir_all(&folder).unwrap();
        assert!(written.is_ok() && !trace.is_empty(), "{written:?}");
        assert_eq!((left, count), (vec!["the user's".to_owned(); 2], 3));
    }
}
