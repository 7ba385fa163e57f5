//! The `plainweave` program: one binary, a subcommand for each product.
//!
//! It is a library so that tests and fuzz targets reach its parsers and stores; `main.rs` only
//! calls [`main`].

mod admin;
mod architecture;
mod arguments;
mod bench;
mod bench_block;
mod bench_flags;
mod beside;
pub mod cache;
mod console;
mod engine;
mod fibers;
mod flag;
mod listening;
mod load;
mod memory_limit;
mod mode;
mod policies;
mod privileges;
mod signals;
mod sim;
mod stalls;
mod status;
mod tips;
mod trace_file;
mod web;

use std::process::ExitCode;

use clap::Parser;

use arguments::{Arguments, Command};

/// Parses the arguments, runs a subcommand, and says what went wrong on standard error.
///
/// The exit code is 0 if all was well, 1 after an error at run time, 2 after wrong usage; `load`
/// has more of them.
pub fn main() -> ExitCode {
    let arguments = Arguments::try_parse().unwrap_or_else(|mut error| {
        tips::improve(&mut error, std::env::args_os());
        error.exit()
    });
    let done = match arguments.command {
        Command::Web(flags) => web::run(&flags),
        Command::Cache(flags) => cache::run(&flags),
        // Its exit codes say more.
        Command::Load(flags) => return load::run(&flags),
        Command::Policies(flags) => policies::run(&flags),
        Command::Bench(flags) => bench::run(&flags),
        Command::Sim(flags) => sim::run(&flags),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            console::say(std::io::stderr(), &format!("plainweave: {error:#}"));
            ExitCode::FAILURE
        }
    }
}
