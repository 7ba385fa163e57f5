//! Reads of a file: each of its blocks once, by some streams at once.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use anyhow::{Context, ensure};
use plainweave::Io;
use rustix::fs::{Advice, fadvise};

use super::ring::in_flight;
use super::{RUNTIMES, Systems, Turn, cpu_ns, runtime};

pub(super) const BLOCK: usize = 4096;
/// Stacks of threads, so that there is room for thousands.
const STACK: usize = 64 << 10;

/// A file whose blocks say where they are, deleted already.
pub(super) struct Blocks {
    pub(super) file: Arc<File>,
    pub(super) count: usize,
    /// Coprime to the count, so that it leads to each block.
    step: usize,
}

impl Blocks {
    pub(super) fn new(count: usize) -> anyhow::Result<Self> {
        let path = std::env::temp_dir().join(format!("plainweave-blocks-{}", std::process::id()));
        let mut options = File::options();
        let file = options.read(true).write(true).create_new(true).open(&path);
        let file = file.with_context(|| format!("cannot create {}", path.display()))?;
        std::fs::remove_file(&path)?;
        for number in 0..count {
            file.write_all_at(&[mark(number); BLOCK], (number * BLOCK) as u64)?;
        }
        // Pages that are not on the disk yet cannot be dropped from the cache.
        file.sync_data()?;
        fadvise(&file, 0, None, Advice::Random)?;
        let step = [7_368_787, 15_485_863]
            .into_iter()
            .find(|step| step % count != 0 || count == 1);
        Ok(Self {
            file: Arc::new(file),
            count,
            step: step.context("no step leads to all blocks")?,
        })
    }

    /// The block that is the `nth` to be read.
    pub(super) fn block(&self, nth: usize) -> usize {
        nth * self.step % self.count
    }

    /// Puts all of it into the page cache, or nothing.
    fn prepare(&self, cached: bool) -> anyhow::Result<()> {
        if !cached {
            fadvise(&self.file, 0, None, Advice::DontNeed)?;
            let all = 0..(self.count * BLOCK) as u64;
            let resident = plainweave::fs::is_resident(&*self.file, all).unwrap_or(false);
            ensure!(!resident, "the kernel keeps the file in memory");
            return Ok(());
        }
        let mut buf = [0; BLOCK];
        for number in 0..self.count {
            self.file.read_exact_at(&mut buf, (number * BLOCK) as u64)?;
        }
        Ok(())
    }
}

fn mark(number: usize) -> u8 {
    (number % 251) as u8
}

/// # Errors
/// The block is not what stands there.
pub(super) fn check(number: usize, buf: &[u8]) -> anyhow::Result<()> {
    let right = buf[0] == mark(number) && buf[BLOCK - 1] == mark(number);
    ensure!(right, "block {number} has {} in it", buf[0]);
    Ok(())
}

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

/// What all blocks took, in nanoseconds.
pub(super) struct Read {
    wall: u64,
    cpu: u64,
    kernel_workers: usize,
}

/// Measures the reads themselves, without what comes before and after.
pub(super) fn measure(read: impl FnOnce() -> anyhow::Result<()>) -> anyhow::Result<Read> {
    let cpu = cpu_ns();
    let start = Instant::now();
    read()?;
    Ok(Read {
        wall: start.elapsed().as_nanos() as u64,
        cpu: cpu_ns().saturating_sub(cpu),
        kernel_workers: kernel_workers()?,
    })
}

/// Threads of this process that io_uring has started.
fn kernel_workers() -> anyhow::Result<usize> {
    let mut count = 0;
    for task in std::fs::read_dir("/proc/self/task")? {
        // One that ends meanwhile has none.
        let name = std::fs::read_to_string(task?.path().join("comm")).unwrap_or_default();
        count += usize::from(name.starts_with("iou-wrk"));
    }
    Ok(count)
}

fn alone(file: &Blocks) -> anyhow::Result<Read> {
    measure(|| {
        let mut buf = [0; BLOCK];
        for number in (0..file.count).map(|nth| file.block(nth)) {
            file.file.read_exact_at(&mut buf, (number * BLOCK) as u64)?;
            check(number, &buf)?;
        }
        Ok(())
    })
}

fn fibers(file: &Blocks, streams: usize, io: Io) -> anyhow::Result<Read> {
    let shared = plainweave::fs::File::from_std(file.file.try_clone()?);
    let runtime = runtime(io)?;
    let read = |next: &AtomicUsize| {
        let mut buf = [0; BLOCK];
        loop {
            let nth = next.fetch_add(1, Ordering::Relaxed);
            if nth >= file.count {
                return Ok(());
            }
            let number = file.block(nth);
            shared.read_exact_at(&mut buf, (number * BLOCK) as u64)?;
            check(number, &buf)?;
        }
    };
    let next = &AtomicUsize::new(0);
    let read = &read;
    measure(|| {
        runtime.scope(|scope| {
            let fibers: Vec<_> = (0..streams)
                .map(|_| scope.spawn(move || read(next)))
                .collect();
            fibers
                .into_iter()
                .try_for_each(|fiber| fiber.join().expect("a reader does not panic"))
        })
    })
}

fn threads(file: &Blocks, streams: usize) -> anyhow::Result<Read> {
    measure(|| {
        let next = &AtomicUsize::new(0);
        std::thread::scope(|scope| {
            let read = || -> anyhow::Result<()> {
                let mut buf = [0; BLOCK];
                loop {
                    let nth = next.fetch_add(1, Ordering::Relaxed);
                    if nth >= file.count {
                        return Ok(());
                    }
                    let number = file.block(nth);
                    file.file.read_exact_at(&mut buf, (number * BLOCK) as u64)?;
                    check(number, &buf)?;
                }
            };
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
                            let mut buf = [0; BLOCK];
                            file.read_exact_at(&mut buf, (number * BLOCK) as u64)?;
                            check(number, &buf)
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
