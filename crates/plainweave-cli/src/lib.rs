//! The `plainweave` program: one binary, a subcommand for each product.
//!
//! It is a library so that tests and fuzz targets reach its parsers and stores; `main.rs` only calls [`main`].

mod admin;
mod bench;
pub mod cache;
mod engine;
mod flag;
mod load;
mod policies;
mod stop;
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
    Cache(Box<cache::Flags>),
    Load(load::Flags),
    Policies(policies::Flags),
    Bench(bench::Flags),
}

/// Parses the arguments, runs a subcommand, and says what went wrong on standard error.
///
/// The exit code is 0 if all was well, 1 after an error at run time, 2 after wrong usage.
pub fn main() -> ExitCode {
    let done = match Cli::parse().command {
        Command::Web(flags) => web::run(&flags),
        Command::Cache(flags) => cache::run(&flags),
        Command::Load(flags) => load::run(&flags),
        Command::Policies(flags) => policies::run(&flags),
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
