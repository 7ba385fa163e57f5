//! Reports to the service manager that started the server (`sd_notify(3)`): it serves, reloads,
//! stops; it is alive.
//!
//! Where there is none, that is where `NOTIFY_SOCKET` is not set, nothing is sent. That it cannot
//! be sent is no reason not to serve.

use std::io;
use std::sync::mpsc::channel;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use sd_notify::{NotifyState, notify, watchdog_enabled};

use crate::architecture::Runtimes;
use crate::ticking::Ticking;

/// Reports that the server serves, and which process that is: after `--replace` another one.
pub fn ready() {
    let process = std::process::id();
    let _ = notify(&[NotifyState::Ready, NotifyState::MainPid(process)]);
}

/// Reports that the configuration is read again.
pub(crate) fn reloading() {
    if let Ok(now) = NotifyState::monotonic_usec_now() {
        let _ = notify(&[NotifyState::Reloading, now]);
    }
}

/// Reports that the server stops.
pub fn stopping() {
    let _ = notify(&[NotifyState::Stopping]);
}

/// What the service manager expects of the server that this one has replaced, and so of this one.
static EXPECTED: OnceLock<Duration> = OnceLock::new();

/// Notes how often, in microseconds, the service manager expects to hear from the server that this
/// one replaces. It told that one alone.
pub(crate) fn expect_watchdog(micros: u64) {
    let _ = EXPECTED.set(Duration::from_micros(micros));
}

/// Returns within what time the service manager expects to hear that the server is alive, if it
/// wants to know.
pub(crate) fn watchdog() -> Option<Duration> {
    watchdog_enabled().or_else(|| EXPECTED.get().copied())
}

/// Starts a thread that reports (`WatchdogSec=`) that the server is alive, as long as a fiber can
/// run, if the service manager wants to know.
///
/// # Errors
/// There is no thread.
pub fn watch(runtimes: &Arc<Runtimes>) -> io::Result<Option<Ticking>> {
    let Some(limit) = watchdog() else {
        return Ok(None);
    };
    let runtimes = Arc::downgrade(runtimes);
    let tick = move || {
        if runs_a_fiber(&runtimes, limit) {
            let _ = notify(&[NotifyState::Watchdog]);
        }
    };
    // As sd_watchdog_enabled(3) advises.
    Ticking::start("watchdog", limit / 2, tick).map(Some)
}

/// Returns whether a fresh fiber runs within `limit`.
fn runs_a_fiber(runtimes: &Weak<Runtimes>, limit: Duration) -> bool {
    let (ran, seen) = channel();
    let Some(runtimes) = runtimes.upgrade() else {
        return false;
    };
    runtimes.main.spawn(move || _ = ran.send(()));
    drop(runtimes);
    seen.recv_timeout(limit).is_ok()
}
