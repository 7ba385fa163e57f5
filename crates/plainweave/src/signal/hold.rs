//! What a signal does when nobody waits for it any more: what it did before.
//!
//! The handler that `signal-hook` installs stays for good. Other users of it may have come
//! meanwhile, so it cannot be taken out; left alone, it would ignore the signal. So the first to
//! catch a signal that has its default action registers one more thing to do: that action, unless
//! somebody holds the signal.

#![deny(unsafe_code)]

use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use signal_hook::flag::register_conditional_default;
use signal_hook::low_level::signal_name;

use crate::sys;

/// Suspends a signal's default action while it exists.
#[derive(Debug)]
pub(super) struct Hold(i32);

/// How many hold a signal.
#[derive(Debug)]
struct Held {
    count: usize,
    /// Read by the handler.
    nobody: Arc<AtomicBool>,
}

/// By the signal's number.
static HELD: Mutex<BTreeMap<i32, Held>> = Mutex::new(BTreeMap::new());

fn held() -> MutexGuard<'static, BTreeMap<i32, Held>> {
    HELD.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Hold {
    /// Takes a hold of the signal, before anything else is registered for it.
    ///
    /// # Errors
    /// The signal cannot be caught.
    pub(super) fn take(signal: i32) -> io::Result<Self> {
        let mut held = held();
        if let Some(held) = held.get_mut(&signal) {
            held.count += 1;
            held.nobody.store(false, Ordering::SeqCst);
            return Ok(Self(signal));
        }

        let nobody = Arc::new(AtomicBool::new(false));
        // One that was ignored, as `nohup` has it, or that somebody else handles, goes on like
        // that.
        let is_default = sys::signal_action(signal)?.sa_sigaction == libc::SIG_DFL;
        if is_default && signal_name(signal).is_some() {
            register_conditional_default(signal, nobody.clone())?;
        }
        held.insert(signal, Held { count: 1, nobody });

        Ok(Self(signal))
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        if let Some(held) = held().get_mut(&self.0) {
            held.count -= 1;
            held.nobody.store(held.count == 0, Ordering::SeqCst);
        }
    }
}
