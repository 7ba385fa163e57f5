//! The `plainweave` program: one binary, a subcommand for each product.
//!
//! It is a library so that tests and fuzz targets reach its parsers and stores; `main.rs` only
//! calls [`main`].

mod admin; // The admin address of a server.
mod architecture; // What serves a connection (`--architecture`).
mod arguments; // The arguments of the program: a subcommand and its flags.
mod bench; // `plainweave bench ...`: hands its arguments to the program `plainweave-bench`.
mod bench_block; // `--bench-block`: requests that block, for benchmarks.
mod bench_flags; // Hidden flags of both servers, for `plainweave bench` alone.
mod beside; // Programs of their own beside this one, which operators need not have.
pub mod cache; // `plainweave cache`: a server that speaks memcached's protocol.
mod console; // Printing lines to the operator, on standard output or standard error.
mod engine; // What all servers choose of the runtime, and how they say so in their first line.
mod fibers; // Dumps of a server's fibers.
mod flag; // Values that flags of several subcommands take.
mod listening; // How the servers open listening sockets, and accept.
mod load; // `plainweave load`: load generators on fibers.
mod memory_limit; // How much memory the process may take.
// `--mode`: when fibers may move between workers, and whose thread-local storage they see.
mod mode;
mod policies; // `plainweave policies`.
mod privileges; // Root becomes another user.
mod signals; // What signals mean to the servers; `docs/signals.md` has the same table.
mod sim; // `plainweave sim ...`: hands its arguments to the program `plainweave-sim`.
mod stalls; // Reports of stalls: on standard error, and the last ones for the admin address.
// The page in the browser at the admin address of both servers, and the figures that it asks for
// once a second.
mod status;
mod tips; // What to try where a flag is none.
// `--trace`: the file that a server's trace is written to, on SIGUSR2 and at its end.
mod trace_file;
mod web; // `plainweave web`: the static web server.

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
