//! `plainweave bench ...`: hands its arguments to the program `plainweave-bench`, which operators need not have.

use std::ffi::OsString;
use std::io::ErrorKind;
use std::os::unix::process::CommandExt;
use std::process::Command;

use anyhow::{Context, anyhow};

/// Run the benchmarks (needs the program plainweave-bench)
#[derive(Debug, clap::Args)]
#[command(disable_help_flag = true)]
pub(crate) struct Flags {
    /// What plainweave-bench understands; --help lists it
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGS")]
    args: Vec<OsString>,
}

/// Becomes `plainweave-bench`: the one beside this program, else the one in PATH.
pub(crate) fn run(flags: &Flags) -> anyhow::Result<()> {
    let own = std::env::current_exe().context("cannot tell where this program is")?;
    let beside = own.with_file_name("plainweave-bench");
    let program = if beside.exists() { beside } else { "plainweave-bench".into() };
    let error = Command::new(&program).args(&flags.args).exec();
    Err(match error.kind() {
        ErrorKind::NotFound => anyhow!(
            "plainweave-bench is neither beside this program nor in PATH; in the sources, build it with \
             cargo build --release -p plainweave-bench"
        ),
        _ => anyhow::Error::new(error).context(format!("cannot run {}", program.display())),
    })
}
