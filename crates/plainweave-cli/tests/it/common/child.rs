//! Children that end: with the value that stands for them, and after a while in any case.

use std::io;
use std::ops::{Deref, DerefMut};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

/// No test needs a child for longer, unless it says so.
const LIMIT: Duration = Duration::from_secs(240);
/// Seconds more; see [`extend`].
static MORE: AtomicU64 = AtomicU64::new(0);

/// Lets children that are started from now on live longer, for runs that take hours.
pub(crate) fn extend(seconds: u64) {
    MORE.store(seconds, Ordering::Relaxed);
}

/// Kills the child after its time. Whoever reads from it or waits for it goes on then, and fails.
fn bound(child: &Child) {
    let pid = pidfd_open(Pid::from_child(child), PidfdFlags::empty()).unwrap();
    thread::spawn(move || {
        let limit = LIMIT + Duration::from_secs(MORE.load(Ordering::Relaxed));
        let limit = Timespec::try_from(limit).unwrap();
        // Readable once it has ended.
        if poll(&mut [PollFd::new(&pid, PollFlags::IN)], Some(&limit)) == Ok(0) {
            let _ = pidfd_send_signal(&pid, Signal::KILL);
        }
    });
}

/// A child that is killed when the value is dropped.
pub(crate) struct Kept(Child);

impl Kept {
    pub(crate) fn spawn(command: &mut Command) -> io::Result<Self> {
        let child = command.spawn()?;
        bound(&child);
        Ok(Self(child))
    }
}

impl Deref for Kept {
    type Target = Child;

    fn deref(&self) -> &Child {
        &self.0
    }
}

impl DerefMut for Kept {
    fn deref_mut(&mut self) -> &mut Child {
        &mut self.0
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// As [`Command::output`], with a limit.
pub(crate) fn output(command: &mut Command) -> io::Result<Output> {
    let child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    bound(&child);
    child.wait_with_output()
}
