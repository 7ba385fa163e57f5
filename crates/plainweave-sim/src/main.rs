//! The program `plainweave-sim`, which `plainweave sim` runs. All of it is in the library beside
//! this file.

use std::process::ExitCode;

/// Runs can be repeated bit for bit.
#[global_allocator]
static ALLOCATOR: plainweave_sim::WholeLines = plainweave_sim::WholeLines;

fn main() -> ExitCode {
    plainweave_sim::main()
}
