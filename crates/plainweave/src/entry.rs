//! Where a program of `#[plainweave::main]` begins.

use std::process::{ExitCode, Termination};

use crate::abort::warn;
use crate::builder::RuntimeBuilder;
use crate::panics::name_panics;

/// Runs a program's `main` on a fiber. What the attribute expands to calls this.
pub fn main<R: Termination>(builder: RuntimeBuilder, body: fn() -> R) -> ExitCode {
    name_panics();
    match builder.build() {
        // Its error is printed on the fiber, for it need not be `Send`.
        Ok(runtime) => runtime.run(|| body().report()),
        Err(error) => {
            warn(format_args!("the runtime cannot start: {error}"));
            ExitCode::FAILURE
        }
    }
}
