//! Ends the process with a message where it could not continue soundly; and messages without an end.

use std::fmt;
use std::io::Write;

/// Prints `why`, a sentence without its full stop, and aborts the process.
#[cold]
pub(crate) fn abort(why: fmt::Arguments<'_>) -> ! {
    let _ = writeln!(std::io::stderr(), "plainweave: {why}. Aborting.");
    std::process::abort()
}

/// Prints a sentence, without its full stop, about something that is wrong and that no caller can be given as an error.
pub(crate) fn warn(what: fmt::Arguments<'_>) {
    let _ = writeln!(std::io::stderr(), "plainweave: {what}.");
}

/// Prints a report of one or more lines.
pub(crate) fn report(text: &str) {
    // In one call, so that lines of other threads do not come between. Nobody is left to be told that it failed.
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
