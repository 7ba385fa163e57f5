//! An interval log of HdrHistogram (format 1.3, histograms of version 2, compressed): a line a
//! second, which that project's tools read. Values are nanoseconds, tags the rates of several runs.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use anyhow::Context;
use hdrhistogram::serialization::V2DeflateSerializer;
use hdrhistogram::serialization::interval_log::{
    IntervalLogWriterBuilder, IntervalLogWriterError, Tag,
};

use super::collect::Second;

/// A log that is being written.
pub(super) struct HdrLog {
    path: PathBuf,
    file: BufWriter<File>,
    /// What times are relative to.
    base: SystemTime,
    /// The first error; nothing is written after it.
    failed: Option<io::Error>,
}

impl HdrLog {
    /// Creates the file, or empties it.
    pub(super) fn create(path: &Path) -> anyhow::Result<Self> {
        let file =
            File::create(path).with_context(|| format!("cannot write {}", path.display()))?;
        let mut file = BufWriter::new(file);
        let base = SystemTime::now();
        let mut head = IntervalLogWriterBuilder::new();
        head.add_comment("[Histogram log format version 1.3]")
            .with_start_time(base)
            .with_base_time(base);
        let failed = head
            .begin_log_with(&mut file, &mut V2DeflateSerializer::new())
            .err();

        Ok(Self {
            path: path.to_owned(),
            file,
            base,
            failed,
        })
    }

    /// Adds a second of a run that began at `began`.
    pub(super) fn add(&mut self, began: SystemTime, tag: Option<&str>, second: &Second<'_>) {
        if self.failed.is_none() && !second.tally.latency.is_empty() {
            self.failed = self.write(began, tag, second).err();
        }
    }

    fn write(
        &mut self,
        began: SystemTime,
        tag: Option<&str>,
        second: &Second<'_>,
    ) -> io::Result<()> {
        let begins = began.duration_since(self.base).unwrap_or_default()
            + Duration::from_secs(second.number);
        let length = Duration::from_nanos(second.length);
        let mut serializer = V2DeflateSerializer::new();

        // A writer without a head: there is one already.
        let mut writer =
            IntervalLogWriterBuilder::new().begin_log_with(&mut self.file, &mut serializer)?;
        let written = writer.write_histogram(
            &second.tally.latency,
            begins,
            length,
            tag.and_then(Tag::new),
        );
        written.map_err(|error| match error {
            IntervalLogWriterError::IoError(error) => error,
            IntervalLogWriterError::SerializeError(error) => io::Error::other(error.to_string()),
        })
    }

    /// Writes what is left.
    pub(super) fn finish(mut self) -> anyhow::Result<()> {
        let done = self.failed.take().map_or_else(|| self.file.flush(), Err);
        done.with_context(|| format!("cannot write {}", self.path.display()))
    }
}
