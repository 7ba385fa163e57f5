//! Signals that end the load: SIGINT and SIGTERM.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context;
use plainweave::time::saturating_add;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;

use super::exit::Exit;

/// How soon a signal ends a pause.
pub(super) const TICK: Duration = Duration::from_millis(50);

/// The signals, once they are taken over: the first ends a run early, with a report; a second ends
/// the process.
#[derive(Clone, Debug)]
pub(super) struct Interrupt {
    /// Set by a signal; or by whoever else ends a run.
    pub(super) stop: Arc<AtomicBool>,
    /// The signal that came, or 0.
    signal: Arc<AtomicUsize>,
}

impl Interrupt {
    /// Takes the signals over.
    pub(super) fn install() -> anyhow::Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let signal = Arc::new(AtomicUsize::new(0));
        for number in [SIGINT, SIGTERM] {
            let caught = || "cannot catch signals";
            flag::register_conditional_shutdown(number, 128 + number, Arc::clone(&stop))
                .with_context(caught)?;
            flag::register_usize(number, Arc::clone(&signal), number as usize)
                .with_context(caught)?;
            flag::register(number, Arc::clone(&stop)).with_context(caught)?;
        }

        Ok(Self { stop, signal })
    }

    /// Takes no signal over.
    pub(super) fn none() -> Self {
        Self {
            stop: Arc::default(),
            signal: Arc::default(),
        }
    }

    /// Returns the exit after a signal, if one came.
    pub(super) fn exit(&self) -> Option<Exit> {
        let signal = self.signal.load(Ordering::Relaxed) as u8;
        (signal != 0).then_some(Exit::Signal(signal))
    }

    pub(super) fn is_interrupted(&self) -> bool {
        self.exit().is_some()
    }

    /// Waits. Returns false if a signal came.
    pub(super) fn pause(&self, length: Duration) -> bool {
        let end = saturating_add(Instant::now(), length);
        while Instant::now() < end && !self.is_interrupted() {
            std::thread::sleep(TICK.min(end.saturating_duration_since(Instant::now())));
        }
        !self.is_interrupted()
    }
}
