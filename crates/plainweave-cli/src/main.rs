//! The `plainweave` program. All of it is in the library beside this file.

use std::process::ExitCode;

fn main() -> ExitCode {
    plainweave_cli::main()
}
