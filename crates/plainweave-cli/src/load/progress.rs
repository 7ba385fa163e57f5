//! The progress line: once a second, on a terminal only.

use std::io::{IsTerminal, Write, stderr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use super::plan::Plan;

/// Between two lines.
const REFRESH: Duration = Duration::from_secs(1);

/// What the progress line reads.
#[derive(Debug, Default)]
pub(super) struct Live {
    pub(super) ok: AtomicU64,
    pub(super) failed: AtomicU64,
}

/// Shows progress until all workers have dropped their ends of the channel.
pub(super) fn show(plan: &Plan, live: &[Arc<Live>], running: &Receiver<()>) {
    let terminal = stderr().is_terminal();
    let (start, mut shown, mut before) = (Instant::now(), Instant::now(), 0);
    while running.recv_timeout(REFRESH) == Err(RecvTimeoutError::Timeout) {
        if !terminal {
            continue;
        }
        let ok: u64 = live.iter().map(|live| live.ok.load(Ordering::Relaxed)).sum();
        let failed: u64 = live.iter().map(|live| live.failed.load(Ordering::Relaxed)).sum();
        let rate = (ok - before) as f64 / shown.elapsed().as_secs_f64();
        (shown, before) = (Instant::now(), ok);
        let whole = plan.duration.map(|duration| format!(" of {}", (plan.warm_up + duration).as_secs()));
        let seconds = start.elapsed().as_secs();
        let line = format!("{seconds}{} s: {ok} answers, {rate:.0}/s, {failed} errors", whole.unwrap_or_default());
        let _ = write!(stderr(), "\r\x1b[K{line}");
    }
    if terminal {
        let _ = write!(stderr(), "\r\x1b[K");
    }
}
