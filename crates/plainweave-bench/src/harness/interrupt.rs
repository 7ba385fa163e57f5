//! SIGINT and SIGTERM in the middle of an experiment: the first ends it with a result of what was
//! measured until then, the second at once.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use anyhow::Context;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;

/// The signal that came, or 0.
static CAME: OnceLock<Arc<AtomicUsize>> = OnceLock::new();

/// Takes the signals over, once.
pub(crate) fn install() -> anyhow::Result<()> {
    if CAME.get().is_some() {
        return Ok(());
    }
    let came = Arc::new(AtomicUsize::new(0));
    let again = Arc::default();

    for signal in [SIGINT, SIGTERM] {
        let caught = || "cannot catch signals";
        flag::register_conditional_shutdown(signal, 128 + signal, Arc::clone(&again))
            .with_context(caught)?;
        flag::register(signal, Arc::clone(&again)).with_context(caught)?;
        flag::register_usize(signal, Arc::clone(&came), signal as usize).with_context(caught)?;
    }

    let _ = CAME.set(came);
    Ok(())
}

/// Returns the signal that came, if one did.
pub(crate) fn came() -> Option<u8> {
    let signal = CAME.get()?.load(Ordering::Relaxed) as u8;
    (signal != 0).then_some(signal)
}
