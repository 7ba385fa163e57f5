//! Access logs of sites: one for each file, whichever sites write to it.
//!
//! A log lives as long as a site that has it, over reloads. The last one to let go of it may be a
//! request, which does not wait for the disk: a thread writes what is left. When the server ends,
//! [`SiteLogs::end`] does.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::thread;

use anyhow::ensure;
use plainweave_http::Exchange;

use super::access::{self, AccessLog, Writer};
use super::faults::Faults;
use super::line::Format;
use super::rotation::Rotation;

/// The logs of all sites.
#[derive(Debug)]
pub(super) struct SiteLogs {
    faults: Arc<Faults>,
    rotation: Option<Rotation>,
    /// Nothing is opened: it is found out whether it could be.
    is_check: bool,
    open: Mutex<Vec<Weak<SiteLog>>>,
    /// Those that are only checked.
    checked: Mutex<Vec<(PathBuf, Format)>>,
    /// Whether exchanges are timed, which the start decides.
    timed: OnceLock<bool>,
}

/// The log of one or more sites.
#[derive(Debug)]
pub(super) struct SiteLog {
    path: PathBuf,
    format: Format,
    log: Arc<AccessLog>,
    writer: Mutex<Option<Writer>>,
}

impl SiteLogs {
    pub(super) fn new(faults: Arc<Faults>, is_check: bool, rotation: Option<Rotation>) -> Self {
        Self {
            faults,
            rotation,
            is_check,
            open: Mutex::default(),
            checked: Mutex::default(),
            timed: OnceLock::new(),
        }
    }

    /// Returns the log in this file; `None`: it is only to be checked, and could be written.
    pub(super) fn open(&self, path: &Path, format: Format) -> anyhow::Result<Option<Arc<SiteLog>>> {
        let times = "this format has times, which are taken from the next start on (restart, or \
                     choose combined)";
        ensure!(
            format != Format::Json || self.timed.get() != Some(&false),
            times
        );
        let other = || format!("{} is another site's, in another format", path.display());
        if self.is_check {
            access::check(path, self.rotation)?;
            let mut checked = lock(&self.checked);
            let mut known = checked.iter();
            ensure!(
                known.all(|known| known.0 != path || known.1 == format),
                other()
            );
            checked.push((path.to_owned(), format));
            return Ok(None);
        }

        let mut open = lock(&self.open);
        open.retain(|log| log.strong_count() > 0);
        let mut known = open.iter().filter_map(Weak::upgrade);
        if let Some(known) = known.find(|log| log.path == path) {
            ensure!(known.format == format, other());
            return Ok(Some(known));
        }

        let (log, writer) = AccessLog::start(path, format, self.faults.clone(), self.rotation)?;
        let log = Arc::new(SiteLog {
            path: path.to_owned(),
            format,
            log,
            writer: Mutex::new(Some(writer)),
        });
        open.push(Arc::downgrade(&log));
        Ok(Some(log))
    }

    /// Says that the server starts, and returns whether any line has times in it. `wanted`: others
    /// have.
    pub(super) fn start(&self, wanted: bool) -> bool {
        let any = self.all().iter().any(|log| log.log.wants_times());
        *self.timed.get_or_init(|| wanted || any)
    }

    /// Reopens all, after files were moved away. False: there are none.
    pub(super) fn reopen(&self) -> bool {
        let all = self.all();
        all.iter().for_each(|log| log.log.reopen());
        !all.is_empty()
    }

    /// Returns how many lines were dropped.
    pub(super) fn dropped(&self) -> u64 {
        self.all().iter().map(|log| log.log.dropped()).sum()
    }

    /// Writes what is left.
    pub(super) fn end(&self) {
        for log in self.all() {
            let writer = lock(&log.writer).take();
            drop(writer);
        }
    }

    fn all(&self) -> Vec<Arc<SiteLog>> {
        lock(&self.open).iter().filter_map(Weak::upgrade).collect()
    }
}

impl SiteLog {
    /// Appends a line.
    pub(super) fn record(&self, exchange: &Exchange<'_>) {
        self.log.record(exchange);
    }
}

impl Drop for SiteLog {
    fn drop(&mut self) {
        let writer = self
            .writer
            .get_mut()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some(writer) = writer.take() {
            // Without a thread it is done here.
            let _ = thread::Builder::new()
                .name("access-log-end".to_owned())
                .spawn(move || drop(writer));
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
