//! Children that end at once, some at a time.

use std::process::Command;
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

fn fibers(children: usize, io: Io) -> anyhow::Result<Turn> {
    // As many workers as the other side has processors.
    let runtime = Runtime::builder().io(io).build()?;
    let wait = |next: &AtomicUsize| -> anyhow::Result<()> {
        while next.fetch_add(1, Ordering::Relaxed) < children {
            let status = plainweave::process::Command::new("true").status()?;
            ensure!(status.success(), "true said {status}");
        }
        Ok(())
    };
    let next = &AtomicUsize::new(0);
    let wait = &wait;
    turn(children, || {
        runtime.scope(|scope| {
            let spawn = |_| scope.spawn(move || wait(next));
            let fibers: Vec<_> = (0..AT_A_TIME).map(spawn).collect();
            fibers
                .into_iter()
                .try_for_each(|fiber| fiber.join().expect("no panic"))
        })
    })
}

fn threads(children: usize) -> anyhow::Result<Turn> {
    turn(children, || {
        let next = &AtomicUsize::new(0);
        std::thread::scope(|scope| {
            let wait = move || -> anyhow::Result<()> {
                while next.fetch_add(1, Ordering::Relaxed) < children {
                    let status = Command::new("true").status()?;
                    ensure!(status.success(), "true said {status}");
                }
                Ok(())
            };

            let threads: Vec<_> = (0..AT_A_TIME).map(|_| scope.spawn(wait)).collect();
            threads
                .into_iter()
                .try_for_each(|thread| thread.join().expect("no panic"))
        })
    })
}
