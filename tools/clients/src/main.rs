//! Popular client crates on fibers, against real servers: which work as they are, which want a
//! stream or an adapter of ours, and which hold up a worker while they wait.
//!
//! For each crate three things are done. Sixty-four fibers on two workers ask something short, and
//! check the answers. Sixteen fibers on one worker wait for a server that takes .2 s: once without
//! spare workers, where they take .2 s if a fiber waits and 3.2 s if its worker does, and once by
//! the default. And one fiber waits with a deadline of .05 s.
//!
//! `cargo run --release` in this folder writes the table of docs/crates.md; `--check` fails instead
//! where one is not what its row says: `.ci/more clients`. Both start the servers themselves, on
//! loopback: PostgreSQL, Redis, MariaDB and nginx of Debian.

mod servers;
mod sessions;

use std::error::Error;
use std::io::IsTerminal;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use plainweave::sync::Barrier;
use plainweave::{Runtime, scope, time};

use servers::{DELAY, Servers};
use sessions::{Failure, Row, Session, Waits, databases, http, local, mail};

/// Fibers that ask, and how often each does.
const ASKING: usize = 64;
const QUESTIONS: usize = 10;
/// Fibers that wait at the same time.
const WAITING: usize = 16;
/// How long a row may take, which hangs otherwise.
const PATIENCE: Duration = Duration::from_secs(60);

/// What was seen of a crate.
struct Seen {
    /// Sixteen waits of .2 s on one worker that gets no help, and on one that may.
    alone: Duration,
    helped: Duration,
    has_deadline: bool,
}

impl Seen {
    fn waits(&self) -> Waits {
        if self.alone < DELAY / 2 {
            Waits::Computes
        } else if self.alone < DELAY * 4 {
            Waits::Fiber
        } else {
            Waits::Worker
        }
    }
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let texts: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let result = match texts[..] {
        [] => table(false),
        ["--check"] => table(true),
        _ => {
            eprintln!("usage: clients-on-fibers [--check]");
            return ExitCode::from(2);
        }
    };
    match result {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("clients-on-fibers: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Tries every crate. Returns whether each is what its row says.
fn table(check: bool) -> Result<bool, Box<dyn Error>> {
    let servers = Arc::new(Servers::start()?);
    let rows: Vec<&Row> = [http::ROWS, databases::ROWS, mail::ROWS, local::ROWS]
        .into_iter()
        .flatten()
        .collect();
    if !check {
        println!(
            "| crate | how | 16 waits of .2 s, s | with spare workers, s | a deadline ends one |"
        );
        println!("|---|---|---|---|---|");
    }

    let shows_progress = std::io::stderr().is_terminal();
    let (mut good, mut computing) = (true, Vec::new());
    for (at, row) in rows.iter().enumerate() {
        if shows_progress {
            eprint!("\r\x1b[K{} of {}: {}", at + 1, rows.len(), row.name);
        }
        let seen = match bounded(row, &servers) {
            Ok(seen) => seen,
            Err(error) => {
                println!("{}: {error}", said(row));
                good = false;
                continue;
            }
        };
        if check {
            good &= is_as_said(row, &seen);
        } else if row.waits == Waits::Computes {
            computing.push(said(row));
        } else {
            print_row(row, &seen);
        }
    }
    if shows_progress {
        eprint!("\r\x1b[K");
    }
    if !computing.is_empty() {
        println!("\nNothing to wait for: {}.", computing.join("; "));
    }
    Ok(good)
}

/// Tries a crate on a thread of its own. A row that hangs is an error; its thread ends with
/// the program, as the servers do then.
fn bounded(row: &'static Row, servers: &Arc<Servers>) -> Result<Seen, Failure> {
    let (done, is_done) = channel();
    let servers = Arc::clone(servers);
    thread::spawn(move || done.send(look(row, &servers)));
    match is_done.recv_timeout(PATIENCE) {
        Ok(result) => result,
        Err(RecvTimeoutError::Timeout) => Err(format!("no end after {PATIENCE:?}").into()),
        Err(RecvTimeoutError::Disconnected) => Err("it panicked".into()),
    }
}

fn look(row: &Row, servers: &Servers) -> Result<Seen, Failure> {
    Runtime::builder()
        .workers(2)
        .build()?
        .run(|| questions(row, servers))?;
    let alone = Runtime::builder().workers(1).max_workers(1).build()?;
    let alone = alone.run(|| waits(row, servers))?;
    let helped = Runtime::builder().workers(1).build()?;
    Ok(Seen {
        alone,
        helped: helped.run(|| waits(row, servers))?,
        has_deadline: plainweave::run(|| deadline(row, servers))?,
    })
}

/// Opens sessions, one after the other.
fn open(row: &Row, servers: &Servers, count: usize) -> Result<Vec<Box<dyn Session>>, Failure> {
    (0..count).map(|_| (row.open)(servers)).collect()
}

/// Has many fibers ask at once.
fn questions(row: &Row, servers: &Servers) -> Result<(), Failure> {
    let mut sessions = open(row, servers, ASKING)?;
    scope(|s| {
        let asking: Vec<_> = sessions
            .iter_mut()
            .map(|session| s.spawn(|| (0..QUESTIONS).try_for_each(|_| session.ask())))
            .collect();
        asking.into_iter().try_for_each(|one| one.join()?)
    })
}

/// Has fibers wait at once. Returns how long all of them took.
fn waits(row: &Row, servers: &Servers) -> Result<Duration, Failure> {
    let mut sessions = open(row, servers, WAITING)?;
    let all = Barrier::new(WAITING);
    let begun = Instant::now();
    scope(|s| {
        let waiting: Vec<_> = sessions
            .iter_mut()
            .map(|session| {
                s.spawn(|| {
                    all.wait()?;
                    session.wait()
                })
            })
            .collect();
        waiting.into_iter().try_for_each(|one| one.join()?)
    })?;
    Ok(begun.elapsed())
}

/// Whether a wait ends with the fiber's deadline.
fn deadline(row: &Row, servers: &Servers) -> Result<bool, Failure> {
    let mut session = (row.open)(servers)?;
    let begun = Instant::now();
    let result = time::with_timeout(DELAY / 4, || session.wait());
    Ok(result.is_err() && begun.elapsed() < DELAY * 3 / 4)
}

fn said(row: &Row) -> String {
    match row.by {
        "" => row.name.to_owned(),
        by => format!("{}, {by}", row.name),
    }
}

/// Prints what a crate is not as its row says.
fn is_as_said(row: &Row, seen: &Seen) -> bool {
    let is = (seen.waits(), seen.has_deadline);
    let should_be = (row.waits, row.has_deadline);
    if is != should_be {
        println!("{}: {is:?} was seen, {should_be:?} is said", said(row));
    }
    // Whatever holds its worker up may not hold the others up for long.
    let is_helped = seen.helped < DELAY * 5;
    if !is_helped {
        println!(
            "{}: {WAITING} waits take {:?} beside spare workers",
            said(row),
            seen.helped
        );
    }
    is == should_be && is_helped
}

fn print_row(row: &Row, seen: &Seen) {
    let how = if row.by.is_empty() {
        "unchanged"
    } else {
        row.by
    };
    let ends = if seen.has_deadline { "yes" } else { "no" };
    println!(
        "| {} | {how} | {:.2} | {:.2} | {ends} |",
        row.name,
        seen.alone.as_secs_f64(),
        seen.helped.as_secs_f64(),
    );
}
