//! `plainweave sim ...`: hands its arguments to the program `plainweave-sim`.

use std::ffi::OsString;

use crate::beside::become_program;

/// Run scheduling policies on simulated machines (needs the program plainweave-sim, which is built
/// first in the sources)
#[derive(Debug, clap::Args)]
#[command(disable_help_flag = true)]
pub(crate) struct Flags {
    /// What plainweave-sim understands; --help lists it
    #[arg(
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "ARGS"
    )]
    args: Vec<OsString>,
}

/// Becomes `plainweave-sim`.
pub(crate) fn run(flags: &Flags) -> anyhow::Result<()> {
    become_program("plainweave-sim", &flags.args)
}
