//! `plainweave generate`: manual pages, and completions for shells, made of the flags.

use std::fs;
use std::io::stdout;
use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::{Command, Subcommand};
use clap_complete::Shell;

use plainweave_daemon::console::say;

/// Write manual pages, or a shell's completions
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  plainweave generate completions bash > plainweave.bash\n  \
                        plainweave generate manual /usr/local/share/man/man1"
)]
pub(crate) struct Flags {
    #[command(subcommand)]
    what: Generated,
}

#[derive(Debug, Subcommand)]
enum Generated {
    /// Write the manual pages, plainweave(1) and one for each subcommand, into a directory
    Manual {
        /// Made if it is not there
        #[arg(value_name = "DIR")]
        directory: PathBuf,
    },
    /// Print the completions for a shell
    Completions {
        /// Which
        shell: Shell,
    },
}

/// Writes or prints it. `program`: all of its arguments.
pub(crate) fn run(flags: &Flags, mut program: Command) -> anyhow::Result<()> {
    match &flags.what {
        Generated::Manual { directory } => manual(program, directory),
        Generated::Completions { shell } => {
            let mut text = Vec::new();
            clap_complete::generate(*shell, &mut program, "plainweave", &mut text);
            say(stdout(), String::from_utf8_lossy(&text).trim_end());
            Ok(())
        }
    }
}

fn manual(program: Command, directory: &Path) -> anyhow::Result<()> {
    let remedy = || format!("cannot write to {}", directory.display());
    fs::create_dir_all(directory).with_context(remedy)?;
    // With what clap adds when it parses, and the names of subcommands in full.
    let mut program = program.disable_help_subcommand(true);
    program.build();
    clap_mangen::generate_to(program, directory).with_context(remedy)
}
