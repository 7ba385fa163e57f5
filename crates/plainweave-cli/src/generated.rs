//! `plainweave generate`: manual pages, and completions for shells, made of the flags.

use std::fs;
use std::io::{self, Write as _, stdout};
use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::builder::Resettable;
use clap::{Command, Subcommand};
use clap_complete::Shell;
use clap_mangen::Man;

use plainweave_daemon::console::say;

/// Write manual pages, or a shell's completions
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  plainweave generate completions bash > plainweave\n  \
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
    // With what clap adds when it parses.
    let mut program = program.disable_help_subcommand(true);
    program.build();
    pages(&program, "plainweave", directory).with_context(remedy)
}

/// Writes the page of a command, and those of its subcommands.
fn pages(command: &Command, name: &str, directory: &Path) -> io::Result<()> {
    for inner in command.get_subcommands() {
        // Their programs, which need not be there, have help of their own.
        if !["bench", "sim"].contains(&inner.get_name()) {
            pages(inner, &format!("{name}-{}", inner.get_name()), directory)?;
        }
    }

    let notes = command.get_after_help().map(ToString::to_string);
    // In the page it would be filled like a paragraph.
    let command = command.clone().after_help(Resettable::Reset);
    let command = command.version(env!("CARGO_PKG_VERSION"));
    let mut page = Vec::new();
    let title = name.to_uppercase();
    let source = concat!("plainweave ", env!("CARGO_PKG_VERSION"));
    Man::new(command)
        .title(title)
        .source(source)
        .render(&mut page)?;
    if let Some(notes) = notes {
        page.extend_from_slice(b".SH NOTES\n.nf\n");
        for line in notes.lines() {
            let line = line.replace('\\', "\\e").replace('-', "\\-");
            // Not a command of roff's, whatever it begins with.
            writeln!(page, "\\&{line}")?;
        }
        page.extend_from_slice(b".fi\n");
    }
    fs::write(directory.join(format!("{name}.1")), page)
}
