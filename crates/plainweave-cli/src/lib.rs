//! The `plainweave` program: one binary, a subcommand for each product.
//!
//! It is a library so that tests and fuzz targets reach its parsers and stores; `main.rs` only
//! calls [`main`].

mod arguments; // The arguments of the program: a subcommand and its flags.
mod bench; // `plainweave bench ...`: hands its arguments to the program `plainweave-bench`.
mod beside; // Programs of their own beside this one, which operators need not have.
mod generated; // `plainweave generate`: manual pages, and completions for shells.
mod policies; // `plainweave policies`.
mod sim; // `plainweave sim ...`: hands its arguments to the program `plainweave-sim`.
mod tips; // What to try where a flag is none.

use std::process::ExitCode;

use clap::{CommandFactory, Parser};
use plainweave_cache as cache;
use plainweave_daemon::console;
use plainweave_load as load;
use plainweave_web as web;

use arguments::{Arguments, Command};

/// Parses the arguments, runs a subcommand, and says what went wrong on standard error.
///
/// The exit code is 0 if all was well, 1 after an error at run time, 2 after wrong usage; `load`
/// has more of them.
pub fn main() -> ExitCode {
    let given = match web::arguments(std::env::args_os()) {
        Ok(given) => given,
        Err(error) => {
            console::say(std::io::stderr(), &format!("plainweave web: {error:#}"));
            return ExitCode::from(2);
        }
    };
    let arguments = Arguments::try_parse_from(given.all).unwrap_or_else(|mut error| {
        tips::improve(&mut error, std::env::args_os());
        error.exit()
    });

    let done = match arguments.command {
        Command::Web(flags) => web::run(&flags, given.settings),
        Command::Cache(flags) => cache::run(&flags),
        // Its exit codes say more.
        Command::Load(flags) => return load::run(&flags),
        Command::Policies(flags) => policies::run(&flags),
        Command::Bench(flags) => bench::run(&flags),
        Command::Sim(flags) => sim::run(&flags),
        Command::Generate(flags) => generated::run(&flags, Arguments::command()),
    };

    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            console::say(std::io::stderr(), &format!("plainweave: {error:#}"));
            ExitCode::FAILURE
        }
    }
}
