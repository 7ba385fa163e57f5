//! Reads of a file: each of its blocks once, by some streams at once.

use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use plainweave::Io;

use super::file::{BLOCK, Blocks, Buffer, Read, check, measure};
use super::ring::in_flight;
use super::turn::{RUNTIMES, Systems, Turn, runtime};

/// Stacks of threads, so that there is room for thousands.
const STACK: usize = 64 << 10;

pub(super) fn systems<'a>(case: &str, file: &'a Blocks) -> Systems<'a> {
    if case == "look-alike" {
        return vec![
            ("again", Box::new(|| turn(file, true, || alone(file)))),
            ("limit", Box::new(|| turn(file, true, || alone(file)))),
        ];
    }
    let (kind, streams) = case.split_once('-').expect("kind-streams");
    let streams: usize = streams.parse().expect("a number");
    let cached = kind == "cached";

    let mut systems: Systems<'a> = Vec::new();
    for (name, io) in RUNTIMES {
        let measure = move || turn(file, cached, || fibers(file, streams, io));
        systems.push((name, Box::new(measure)));
    }
    systems.push((
        "tokio",
        Box::new(move || turn(file, cached, || tokio(file, streams))),
    ));
    systems.push((
        "threads",
        Box::new(move || turn(file, cached, || threads(file, streams))),
    ));
    systems.push(match cached {
        true => ("limit", Box::new(|| turn(file, true, || alone(file)))),
        false => (
            "limit",
            Box::new(move || turn(file, false, || in_flight(file, streams))),
        ),
    });
    systems
}

/// Measures `read`, which reads each block.
fn turn(
    file: &Blocks,
    cached: bool,
    read: impl FnOnce() -> anyhow::Result<Read>,
) -> anyhow::Result<Turn> {
    file.prepare(cached)?;
    let read = read()?;
    let each = |ns: u64| ns as f64 / file.count as f64;
    Ok(vec![
        ("time", "ns", each(read.wall)),
        ("cpu", "ns", each(read.cpu)),
        ("kernel_workers", "1", read.kernel_workers as f64),
    ])
}

/// One stream: reads blocks by `read` as long as nobody else has begun them.
fn stream(
    file: &Blocks,
    next: &AtomicUsize,
    read: impl Fn(&mut [u8], u64) -> io::Result<()>,
) -> anyhow::Result<()> {
    let mut buf = Buffer([0; BLOCK]);
    loop {
        let nth = next.fetch_add(1, Ordering::Relaxed);
        if nth >= file.count {
            return Ok(());
        }

        let number = file.block(nth);
        read(&mut buf.0, (number * BLOCK) as u64)?;
        check(number, &buf.0)?;
    }
}

/// The same by a thread.
fn blocking_stream(file: &Blocks, next: &AtomicUsize) -> anyhow::Result<()> {
    stream(file, next, |buf, at| file.file.read_exact_at(buf, at))
}

fn alone(file: &Blocks) -> anyhow::Result<Read> {
    measure(|| blocking_stream(file, &AtomicUsize::new(0)))
}

fn fibers(file: &Blocks, streams: usize, io: Io) -> anyhow::Result<Read> {
    let shared = &plainweave::fs::File::from_std(file.file.try_clone()?);
    let runtime = runtime(io)?;
    let next = &AtomicUsize::new(0);
    let read = move || stream(file, next, |buf, at| shared.read_exact_at(buf, at));
    measure(|| {
        runtime.scope(|scope| {
            let fibers: Vec<_> = (0..streams).map(|_| scope.spawn(read)).collect();
            fibers
                .into_iter()
                .try_for_each(|fiber| fiber.join().expect("a reader does not panic"))
        })
    })
}

fn threads(file: &Blocks, streams: usize) -> anyhow::Result<Read> {
    let next = &AtomicUsize::new(0);
    let read = move || blocking_stream(file, next);
    measure(|| {
        std::thread::scope(|scope| {
            let spawn = |_| {
                let builder = std::thread::Builder::new().stack_size(STACK);
                builder.spawn_scoped(scope, read)
            };

            let threads = (0..streams).map(spawn).collect::<Result<Vec<_>, _>>()?;
            threads
                .into_iter()
                .try_for_each(|thread| thread.join().expect("a reader does not panic"))
        })
    })
}

/// As Tokio's own files are read: by a job on its pool for each read.
fn tokio(file: &Blocks, streams: usize) -> anyhow::Result<Read> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .build()?;
    let next = Arc::new(AtomicUsize::new(0));
    let plan = (file.count, file.step);
    measure(|| {
        runtime.block_on(async {
            let spawn = |_| {
                let next = Arc::clone(&next);
                let file = Arc::clone(&file.file);
                tokio::spawn(async move {
                    loop {
                        let nth = next.fetch_add(1, Ordering::Relaxed);
                        if nth >= plan.0 {
                            return anyhow::Ok(());
                        }

                        let number = nth * plan.1 % plan.0;
                        let file = Arc::clone(&file);
                        let read = move || -> anyhow::Result<()> {
                            let mut buf = Buffer([0; BLOCK]);
                            file.read_exact_at(&mut buf.0, (number * BLOCK) as u64)?;
                            check(number, &buf.0)
                        };

                        tokio::task::spawn_blocking(read).await??;
                    }
                })
            };

            let tasks: Vec<_> = (0..streams).map(spawn).collect();
            for task in tasks {
                task.await??;
            }
            Ok(())
        })
    })
}
