//! Ends the process where nothing sound can follow, and says why first.

use std::fmt;
use std::io::Write;

/// Any thread or fiber. `why` is a sentence, without its full stop.
#[cold]
pub(crate) fn abort(why: fmt::Arguments<'_>) -> ! {
    let _ = writeln!(std::io::stderr(), "plainweave: {why}. Aborting.");
    std::process::abort()
}

/// Any thread or fiber. Calls `section`; if that unwinds, the process ends and says `why`. Costs nothing otherwise.
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
