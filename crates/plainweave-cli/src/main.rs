//! The `plainweave` program: one binary, a subcommand for each product.
//!
//! Exit codes: 0 fine, 1 an error at run time, 2 wrong usage.

mod bench;
mod web;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Servers on user-level threads.
#[derive(Debug, Parser)]
#[command(name = "plainweave", version, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Web(Box<web::Flags>),
    Bench(bench::Flags),
}

fn main() -> ExitCode {
    let done = match Cli::parse().command {
        Command::Web(flags) => web::run(&flags),
        Command::Bench(flags) => bench::run(&flags),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            web::say(std::io::stderr(), &format!("plainweave: {error:#}"));
            ExitCode::FAILURE
        }
    }
}
