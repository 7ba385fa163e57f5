//! The servers, of whose requests some block their thread, as handlers do that know no fibers. Each
//! is this program of tests again, in a process of its own.

use std::io::{BufRead, BufReader};
use std::process::{ChildStdout, Command};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

use clap::Parser;
use plainweave_daemon::hooks::Hooks;

/// One request in N blocks, for M milliseconds: `N/M`.
const BLOCK: &str = "PLAINWEAVE_TEST_BLOCK";
/// The server's arguments, each but the first behind a line break.
const ARGUMENTS: &str = "PLAINWEAVE_TEST_ARGUMENTS";

#[derive(Parser)]
enum Server {
    Web(Box<plainweave_web::Flags>),
    Cache(Box<plainweave_cache::Flags>),
}

/// Returns a command for a server, of which one in `every` requests blocks.
pub(crate) fn command(every: u64, block: Duration, arguments: &[&str]) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["--exact", "common::blocking::is_a_server"])
        .args(["--ignored", "--nocapture"])
        .env(BLOCK, format!("{every}/{}", block.as_millis()))
        .env(ARGUMENTS, arguments.join("\n"));
    command
}

/// Reads the server's first line: that of the program of tests, if it is one, stands before it.
pub(crate) fn first_line(stdout: &mut ChildStdout) -> String {
    let mut reader = BufReader::new(stdout);
    loop {
        let mut line = String::new();
        let read = reader.read_line(&mut line).unwrap();
        if read == 0 || line.starts_with("plainweave ") {
            return line;
        }
    }
}

#[test]
#[ignore = "is a server for other tests"]
fn is_a_server() {
    let Ok(block) = std::env::var(BLOCK) else {
        return;
    };
    let (every, milliseconds) = block.split_once('/').unwrap();
    let every: u64 = every.parse().unwrap();
    let block = Duration::from_millis(milliseconds.parse().unwrap());
    let requests = AtomicU64::new(0);
    let hooks = Hooks {
        on_request: Some(Arc::new(move || {
            if (requests.fetch_add(1, Relaxed) + 1).is_multiple_of(every) {
                thread::sleep(block);
            }
        })),
        ..Hooks::default()
    };

    let arguments = std::env::var(ARGUMENTS).unwrap();
    let server = Server::parse_from(std::iter::once("plainweave").chain(arguments.split('\n')));
    match server {
        Server::Web(flags) => plainweave_web::run_with(&flags, &hooks),
        Server::Cache(flags) => plainweave_cache::run_with(&flags, &hooks),
    }
    .unwrap();
}
