//! How a file gets into a socket: `sendfile`, `splice`, linked splices on io_uring, and read then
//! send on io_uring.
//!
//! One worker thread on CPU 0 sends files of 1 MiB on some streams at once, each on from file to
//! file; sinks on CPU 1 take them and look at what comes. Once all files are in memory; once a
//! tenth of them is, in a memory cgroup, with reads throttled to the rate of a slow disk (as
//! `plainweave bench web --cases disk`). Each run is a process of its own, `child`. Measured are
//! bytes a second, CPU a MiB (kernel threads of the process included, sinks not), the threads that
//! there were, and for how long the worker did not look at its events: what a worker that waits for
//! the disk does to everything else it has to do.

mod child; // A run of one method: streams, sinks, and the clock.
mod course; // What the methods share.
mod epoll; // The two methods on sockets that do not block, under epoll.
mod ring; // The two methods on io_uring.

use std::fs::File;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, bail, ensure};
use clap::{Args, ValueEnum};
use rustix::fs::{Advice, fadvise};

use crate::harness::cgroup::Group;
use crate::harness::experiment::Common;
use crate::harness::report::{self, Report};
use crate::harness::sample::Origin;
use child::Method;
pub(crate) use child::{ChildFlags, run_child};
use course::SIZE;
pub(crate) use ring::Splices;

/// The group's memory beside a tenth of the files.
const BESIDE: usize = 24 << 20;
/// Bytes a second of the disk.
const DISK: u64 = 40 << 20;

/// Ways to send a file, beside each other: in memory, and from a slow disk.
#[derive(Args, Debug)]
pub(crate) struct Flags {
    #[command(flatten)]
    common: Common,

    /// Rounds; in each, every method gets its turn
    #[arg(long, value_name = "N", default_value = "3")]
    runs: NonZeroUsize,

    /// Length of a turn
    #[arg(long, value_name = "SECONDS", default_value = "3")]
    seconds: f64,

    /// Files of 1 MiB; a tenth of them fits the memory of the case disk
    #[arg(long, value_name = "N", default_value = "200")]
    files: NonZeroUsize,

    /// Streams at once
    #[arg(long, value_name = "N", default_value = "16")]
    streams: NonZeroUsize,
}

/// What the child says, and in which unit.
const FIGURES: [(&str, &str); 6] = [
    ("mib_per_s", "MiB/s"),
    ("cpu_us_per_mib", "us"),
    ("away_p50_us", "us"),
    ("away_p99_us", "us"),
    ("away_max_us", "us"),
    ("threads_max", "1"),
];

/// A directory of files, removed at the end.
struct Files(PathBuf);

impl Files {
    fn new(count: usize) -> anyhow::Result<Self> {
        let files =
            Self(std::env::temp_dir().join(format!("plainweave-files-{}", std::process::id())));
        std::fs::create_dir_all(&files.0)?;
        // Not zeroes: a sink checks what comes, and holes would not be read from the disk.
        let content: Vec<u8> = (0..SIZE).map(course::byte).collect();

        for number in 0..count {
            let path = course::path(&files.0, number);
            std::fs::write(&path, &content)
                .with_context(|| format!("cannot write {}", path.display()))?;
            // Pages that are not on the disk yet cannot be dropped from the cache.
            File::open(&path)?.sync_data()?;
        }

        Ok(files)
    }

    /// Reads them all, or has the page cache forget them.
    fn prepare(&self, count: usize, resident: bool) -> anyhow::Result<()> {
        for number in 0..count {
            let mut file = File::open(course::path(&self.0, number))?;
            match resident {
                // Read once, a file is in the page cache.
                true => drop(std::io::copy(&mut file, &mut std::io::sink())?),
                false => fadvise(&file, 0, None, Advice::DontNeed)?,
            }
        }
        Ok(())
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

pub(crate) fn run(flags: &Flags) -> anyhow::Result<()> {
    if flags.common.list {
        report::say("cases: memory, disk");
        Method::value_variants()
            .iter()
            .for_each(|method| report::say(&format!("method: {}", method.name())));
        return Ok(());
    }

    ensure!(flags.seconds > 0.0, "--seconds: give more than 0");
    let count = flags.files.get();
    let files = Files::new(count)?;
    let memory = BESIDE + count * SIZE / 10;
    let mut rows = Vec::new();
    let mut absent = Vec::new();

    for (case, resident) in [("memory", true), ("disk", false)] {
        let mut values = vec![vec![Vec::new(); FIGURES.len()]; Method::value_variants().len()];
        for round in 1..=flags.runs.get() {
            for (method, values) in Method::value_variants().iter().zip(&mut values) {
                report::progress(&format!(
                    "files: {case}, round {round} of {}, {}",
                    flags.runs,
                    method.name()
                ));
                let group = match resident {
                    true => None,
                    false => match Group::confined(&method.name(), &files.0, memory, DISK) {
                        Some(group) => Some(group),
                        None => continue,
                    },
                };

                // Before each turn: the last one has left some in memory, and driven out others.
                files.prepare(count, resident)?;
                for (values, figure) in
                    values
                        .iter_mut()
                        .zip(turn(*method, flags, &files.0, group.as_ref())?)
                {
                    values.push(figure);
                }
            }
        }

        // No round had a group, so the case has no figures.
        if values[0][0].is_empty() {
            absent.push((
                case.to_owned(),
                "no control groups for memory and blkio are available".to_owned(),
            ));
            continue;
        }

        for (method, values) in Method::value_variants().iter().zip(values) {
            for ((metric, unit), values) in FIGURES.into_iter().zip(values) {
                rows.push(Origin::new("files").row(case, method.name(), metric, unit, values));
            }
        }
    }

    let parameters = vec![
        (
            "rounds",
            format!(
                "{}, the methods in turn, {} s a turn",
                flags.runs, flags.seconds
            ),
        ),
        (
            "files",
            format!(
                "{count} of 1 MiB, {} streams at once, in random order",
                flags.streams
            ),
        ),
        (
            "disk",
            format!(
                "{} MB of memory, {} MB/s by blkio throttling",
                memory >> 20,
                DISK >> 20
            ),
        ),
        (
            "away",
            "how long the worker was between two looks at its events".to_owned(),
        ),
    ];
    Report {
        experiment: "files",
        parameters,
        rows,
        absent,
    }
    .publish(flags.common.out())
}

/// Runs one method in a process of its own; returns its figures in the order of `FIGURES`.
fn turn(
    method: Method,
    flags: &Flags,
    dir: &Path,
    group: Option<&Group>,
) -> anyhow::Result<Vec<f64>> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["files-child", &method.name()]).arg(dir);
    command.args([
        flags.files.to_string(),
        flags.streams.to_string(),
        flags.seconds.to_string(),
    ]);
    if let Some(group) = group {
        command = group.around(&command);
    }
    let output = command.output().context("cannot run itself")?;
    let text = String::from_utf8_lossy(&output.stdout);

    if !output.status.success() {
        bail!(
            "{}: {}",
            method.name(),
            String::from_utf8_lossy(&output.stderr)
        );
    }

    let figure = |name: &str| -> anyhow::Result<f64> {
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.and_then(|value| value.parse().ok())
            .with_context(|| format!("no {name} among {text}"))
    };

    FIGURES.iter().map(|(name, _)| figure(name)).collect()
}
