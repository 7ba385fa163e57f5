//! Printing lines to the operator, on standard output or standard error.

use std::io::Write;

/// Writes a line; a closed terminal is no reason to stop.
pub fn say(mut to: impl Write, line: &str) {
    let _ = writeln!(to, "{line}").and_then(|()| to.flush());
}
