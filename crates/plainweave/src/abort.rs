//! Ends the process with a message where it could not continue soundly; and messages without an
//! end.

use std::fmt;
use std::io::Write;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

/// Prints `why`, a sentence without its full stop, and aborts the process.
#[cold]
pub(crate) fn abort(why: fmt::Arguments<'_>) -> ! {
    let _ = writeln!(std::io::stderr(), "plainweave: {why}. Aborting.");
    std::process::abort()
}

/// The environment variable that says what is reported on standard error: see
/// [`RuntimeBuilder::report_stalls`](crate::RuntimeBuilder::report_stalls).
pub(crate) const REPORTS: &str = "PLAINWEAVE_REPORT";
/// Its value for nothing at all.
pub(crate) const NONE: &str = "none";

/// Returns whether nothing is to be printed but the reason of an abort.
fn is_silent() -> bool {
    static SILENT: OnceLock<bool> = OnceLock::new();
    *SILENT.get_or_init(|| std::env::var_os(REPORTS).is_some_and(|value| value == NONE))
}

/// Prints a sentence, without its full stop, about something that is wrong and that no caller can
/// be given as an error.
pub(crate) fn warn(what: fmt::Arguments<'_>) {
    if !is_silent() {
        let _ = writeln!(std::io::stderr(), "plainweave: {what}.");
    }
}

/// What is worth a line on standard error in any build, once a process.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Kind {
    /// All workers that there may be are held up.
    NoMoreWorkers,
    /// A fiber waits for a lock that it holds.
    LockedByItself,
    /// An accept has failed for lack of descriptors or memory.
    AcceptFails,
    /// A fiber that nobody joins has found no stack.
    DetachedRefused,
}

/// Prints such a sentence, once for each kind.
pub(crate) fn warn_once(kind: Kind, what: fmt::Arguments<'_>) {
    static SAID: AtomicU32 = AtomicU32::new(0);
    let bit = 1 << kind as u32;
    if SAID.fetch_or(bit, Ordering::Relaxed) & bit == 0 {
        warn(what);
    }
}

/// Prints a report of one or more lines.
pub(crate) fn report(text: &str) {
    if is_silent() {
        return;
    }
    // In one call, so that lines of other threads do not come between. Nobody is left to be told
    // that it failed.
    let _ = std::io::stderr().write_all(format!("plainweave: {text}\n").as_bytes());
}

/// Calls `section`; if that unwinds, prints `why` and aborts. Costs nothing otherwise.
#[inline(always)]
pub(crate) fn no_unwind<R>(why: &'static str, section: impl FnOnce() -> R) -> R {
    struct Guard(&'static str);
    impl Drop for Guard {
        #[cold]
        fn drop(&mut self) {
            abort(format_args!("{}", self.0));
        }
    }
    let guard = Guard(why);
    let result = section();
    std::mem::forget(guard);

    result
}
