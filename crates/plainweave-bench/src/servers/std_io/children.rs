//! Children that end at once, some at a time.

use std::io;
use std::process::{Command, ExitStatus};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use anyhow::ensure;
use plainweave::{Io, Runtime};

use super::turn::{RUNTIMES, Systems, Turn};

/// How many there are at a time.
const AT_A_TIME: usize = 16;

pub(super) fn systems(children: usize) -> Systems<'static> {
    let mut systems: Systems<'static> = Vec::new();
    for (name, io) in RUNTIMES {
        systems.push((name, Box::new(move || fibers(children, io))));
    }
    systems.push(("again", Box::new(move || threads(children))));
    systems.push(("limit", Box::new(move || threads(children))));
    systems
}

/// Measures `wait`, which has each child run.
fn turn(children: usize, wait: impl FnOnce() -> anyhow::Result<()>) -> anyhow::Result<Turn> {
    let start = Instant::now();
    wait()?;
    let each = start.elapsed().as_nanos() as f64 / children as f64;
    Ok(vec![("time", "ns", each)])
}

/// Waits for children, one after the other, as long as nobody else has begun them.
fn wait(
    children: usize,
    next: &AtomicUsize,
    status: impl Fn() -> io::Result<ExitStatus>,
) -> anyhow::Result<()> {
    while next.fetch_add(1, Ordering::Relaxed) < children {
        let status = status()?;
        ensure!(status.success(), "true said {status}");
    }
    Ok(())
}

fn fibers(children: usize, io: Io) -> anyhow::Result<Turn> {
    // As many workers as the other side has processors.
    let runtime = Runtime::builder().io(io).build()?;
    let next = &AtomicUsize::new(0);
    let status = || plainweave::process::Command::new("true").status();
    let wait = move || wait(children, next, status);
    turn(children, || {
        runtime.scope(|scope| {
            let fibers: Vec<_> = (0..AT_A_TIME).map(|_| scope.spawn(wait)).collect();
            fibers
                .into_iter()
                .try_for_each(|fiber| fiber.join().expect("no panic"))
        })
    })
}

fn threads(children: usize) -> anyhow::Result<Turn> {
    let next = &AtomicUsize::new(0);
    let wait = move || wait(children, next, || Command::new("true").status());
    turn(children, || {
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..AT_A_TIME).map(|_| scope.spawn(wait)).collect();
            threads
                .into_iter()
                .try_for_each(|thread| thread.join().expect("no panic"))
        })
    })
}
