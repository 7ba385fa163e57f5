//! What a test leaves out because the machine lacks something: a line on standard error, past the
//! test harness, which would keep it back; and in the file that `PLAINWEAVE_SKIPPED` names, from
//! which `.ci/run` makes one line at its end.

#![deny(unsafe_code)]

use std::fs::OpenOptions;
use std::io::Write;

/// Says that something is left out, and why.
pub(crate) fn skip(why: &str) {
    let line = format!("skipped: {why}\n");
    let _ = std::io::stderr().write_all(line.as_bytes());
    if let Some(file) = std::env::var_os("PLAINWEAVE_SKIPPED") {
        // Appended in one piece: tests run beside each other.
        let file = OpenOptions::new().create(true).append(true).open(file);
        let _ = file.and_then(|mut file| file.write_all(line.as_bytes()));
    }
}
