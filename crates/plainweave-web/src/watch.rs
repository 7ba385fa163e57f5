//! A watch of the configuration's file, when asked: a change of it is taken up as HUP takes it up.
//!
//! The file is looked at twice a second, and taken up when it has been the same for as long: an
//! editor or a copy may write it in pieces.
//!
//! *Rejected:* `inotify`. It watches one file or one folder, and a configuration is often reached
//! through links that are exchanged as a whole (Kubernetes), or lies on another machine's disk.

use std::fs::metadata;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use plainweave_daemon::console::say;
use plainweave_daemon::ticking::Ticking;

use super::configured::Reload;

const PAUSE: Duration = Duration::from_millis(500);

/// What says that a file is another one, or has been written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct FileState {
    device: u64,
    inode: u64,
    size: u64,
    seconds: i64,
    nanos: i64,
}

/// Finds out when a file has changed and stayed so.
#[derive(Debug)]
struct Changes {
    taken: Option<FileState>,
    last: Option<FileState>,
}

/// Watches until the value is dropped.
pub(super) fn watch(file: PathBuf, reload: Arc<Reload>) -> io::Result<Ticking> {
    let mut changes = Changes::new(state(&file));
    Ticking::start("watch", PAUSE, move || {
        if changes.has_changed(state(&file)) {
            let done = reload.run();
            say(io::stderr(), &format!("plainweave web: a change: {done}"));
        }
    })
}

impl Changes {
    fn new(state: Option<FileState>) -> Self {
        Self {
            taken: state,
            last: state,
        }
    }

    /// Returns whether a change is to be taken up. A file that is gone is one that will come back.
    fn has_changed(&mut self, now: Option<FileState>) -> bool {
        let stayed = self.last == now;
        self.last = now;
        let is_new = now.is_some() && stayed && self.taken != now;
        if is_new {
            self.taken = now;
        }

        is_new
    }
}

fn state(file: &Path) -> Option<FileState> {
    let metadata = metadata(file).ok()?;
    Some(FileState {
        device: metadata.dev(),
        inode: metadata.ino(),
        size: metadata.size(),
        seconds: metadata.ctime(),
        nanos: metadata.ctime_nsec(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(size: u64) -> Option<FileState> {
        Some(FileState {
            device: 1,
            inode: 1,
            size,
            seconds: 0,
            nanos: 0,
        })
    }

    #[test]
    fn a_change_counts_once_it_stays() {
        let mut changes = Changes::new(state(1));
        for (now, has_changed) in [
            (state(1), false),
            (state(2), false),
            (state(3), false),
            (state(3), true),
            (state(3), false),
            (None, false),
            (None, false),
            (state(3), false),
            (state(3), false),
            (None, false),
            (state(4), false),
            (state(4), true),
        ] {
            assert_eq!(changes.has_changed(now), has_changed, "{now:?}");
        }
    }
}
