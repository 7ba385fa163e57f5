//! `--trace`: the file that a server's trace is written to, on SIGUSR2 and at its end.
//!
//! Each writing replaces what was written before. It goes to a file of the same name with `.part` behind it, which is
//! then renamed: a reader finds a whole trace or the last one, and a full disk costs the new one only. A character
//! device is written to directly.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use anyhow::{Context, ensure};
use plainweave::trace::{self, Tracer};

use crate::console::say;

/// Where the trace goes, and what is in it.
#[derive(Debug)]
pub(crate) struct TraceFile {
    path: PathBuf,
    is_device: bool,
    tracers: Vec<Tracer>,
    /// One writes at a time.
    writing: Mutex<()>,
}

impl TraceFile {
    /// Checks that the file can be written, and creates it.
    pub(crate) fn open(path: &Path, tracers: Vec<Tracer>) -> anyhow::Result<Self> {
        let remedy = || format!("cannot write a trace to {} (give --trace another FILE)", path.display());
        // Looked at before it is opened: opening a pipe may block.
        let is_device = fs::metadata(path).is_ok_and(|found| found.file_type().is_char_device());
        let is_other = fs::metadata(path).is_ok_and(|found| !found.is_file()) && !is_device;
        ensure!(!is_other, "{}: it is neither a file nor a device", remedy());
        File::options().create(true).append(true).open(path).with_context(remedy)?;
        let path = path.canonicalize().with_context(remedy)?;
        let file = Self { path, is_device, tracers, writing: Mutex::new(()) };
        if !file.is_device {
            // Its folder may not be ours to write to.
            let part = file.part();
            File::create(&part).and_then(|_| fs::remove_file(&part)).with_context(remedy)?;
        }
        Ok(file)
    }

    /// Writes what the runtimes have recorded, and says so.
    pub(crate) fn write(&self) -> anyhow::Result<String> {
        let _one = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        let path = self.path.display();
        if self.is_device {
            self.write_to(&self.path).with_context(|| format!("cannot write the trace to {path}"))?;
        } else {
            let part = self.part();
            let written = self.write_to(&part).and_then(|()| fs::rename(&part, &self.path));
            if written.is_err() {
                let _ = fs::remove_file(&part);
            }
            written.with_context(|| format!("cannot write the trace to {path}, which is as it was"))?;
        }
        Ok(format!("the trace is written to {path}"))
    }

    /// Writes it at the end of a server, if there is one; only a failure is said.
    pub(crate) fn write_last(file: Option<&Self>, server: &str) {
        if let Some(Err(error)) = file.map(Self::write) {
            say(io::stderr(), &format!("{server}: {error:#}"));
        }
    }

    fn write_to(&self, path: &Path) -> io::Result<()> {
        trace::write_json(&self.tracers, File::create(path)?)
    }

    fn part(&self) -> PathBuf {
        let mut name = OsString::from(&self.path);
        name.push(".part");
        name.into()
    }
}
