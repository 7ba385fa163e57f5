//! `plainweave bench ...`: hands its arguments to the program `plainweave-bench`.

use std::ffi::OsString;

use crate::beside::become_program;

/// Run the benchmarks (needs the program plainweave-bench, which is built first in the sources)
#[derive(Debug, clap::Args)]
#[command(disable_help_flag = true)]
pub(crate) struct Flags {
    /// What plainweave-bench understands; --help lists it
    #[arg(
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "ARGS"
    )]
    args: Vec<OsString>,
}

/// Becomes `plainweave-bench`.
pub(crate) fn run(flags: &Flags) -> anyhow::Result<()> {
    become_program("plainweave-bench", &flags.args)
}
