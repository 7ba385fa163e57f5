//! The systems `limit` and `limit uring`: loops that read a request and send a fixed answer from
//! memory. They have no parser, no timeouts and nothing of ours, so that they show what the kernel
//! takes for the calls alone, on epoll and on io_uring.

pub(crate) mod answers; // What is sent for what comes.
mod epoll; // The loop on epoll.
mod listener; // Where they listen, and what they read into.
mod uring; // The loop on io_uring.

use std::net::TcpListener;
use std::process::Command;

use clap::{Args, Subcommand};

use super::driver::Driver;
use crate::harness::machine;
use answers::{Answers, Cache, Http};
pub(crate) use listener::{BUFFER, listen};

/// The loop on epoll, as tables have it.
pub(crate) const EPOLL: &str = "limit";
/// The one on io_uring.
pub(crate) const URING: &str = "limit uring";

/// A loop in a process of its own, told by its parent what to send.
#[derive(Args, Debug)]
pub(crate) struct Flags {
    #[arg(long)]
    io: Driver,

    #[command(subcommand)]
    protocol: Protocol,
}

#[derive(Debug, Subcommand)]
enum Protocol {
    /// Answers each request of HTTP with the same body.
    Http {
        #[arg(long, default_value = "13")]
        bytes: usize,
        /// Closes the connection after each answer
        #[arg(long)]
        close: bool,
        /// Sends the body as one chunk
        #[arg(long)]
        chunked: bool,
    },
    /// Answers a `get` with the same value and a `set` with `STORED`.
    Cache {
        #[arg(long, default_value = "200")]
        bytes: usize,
    },
}

/// Returns the loop's name in tables.
pub(crate) const fn name(io: Driver) -> &'static str {
    match io {
        Driver::Epoll => EPOLL,
        Driver::Uring => URING,
    }
}

/// Returns a command that runs the loop for a protocol; it prints its address.
pub(crate) fn command(io: Driver, protocol: &str, arguments: &[&str]) -> anyhow::Result<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    command
        .args(["limit", "--io", io.name(), protocol])
        .args(arguments);
    Ok(command)
}

/// In a child process: serves until it is killed.
pub(crate) fn run(flags: &Flags) -> anyhow::Result<()> {
    machine::end_with_parent();
    let listener = listen()?;
    match flags.protocol {
        Protocol::Http {
            bytes,
            close,
            chunked,
        } => serve(&listener, flags.io, Http::new(bytes, close, chunked)),
        Protocol::Cache { bytes } => serve(&listener, flags.io, Cache::new(bytes)),
    }
}

/// Prints the address and serves until the process ends.
pub(crate) fn serve<A: Answers>(
    listener: &TcpListener,
    io: Driver,
    answers: A,
) -> anyhow::Result<()> {
    match io {
        Driver::Epoll => epoll::serve(listener, answers),
        Driver::Uring => uring::serve(listener, answers),
    }
}
