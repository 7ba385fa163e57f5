//! Less and less memory for the files, which then come from a slow disk.

use std::process::{Child, Command, Stdio};
use std::time::Instant;

use anyhow::Context;

use super::load::{Offered, Step};
use super::system::System;
use crate::serving::client::Figures;
use crate::serving::web::Server;

/// Bytes a second of the disk.
const DISK: u64 = 40 << 20;
/// Requests a second for the files of the first 80 % of all requests.
const HOT_RATE: f64 = 200.0;
const HOT_CONNECTIONS: &str = "64";
/// No limit is below the server's own memory and this many times the largest file.
const LARGEST: usize = 4;
/// Beside what a server's processes hold: the kernel's memory on its behalf.
const KERNEL: f64 = 8e6;
const CONTROLLERS: [&str; 2] = ["memory", "blkio"];

/// In words, for the report.
pub(super) fn describe(bench: &Offered, rate: f64) -> String {
    let files: usize = bench.catalog.items.iter().map(|item| item.len).sum();
    format!(
        "a server's own and a part of {:.0} MB of files, the disk at {} MiB/s by blkio; {rate:.0} requests/s and \
         {HOT_RATE}/s for the files of the first 80 % of the requests",
        files as f64 / 1e6,
        DISK >> 20
    )
}

/// Measures a server with each of these parts of the files in memory, at this rate.
pub(super) fn sweep(
    bench: &Offered,
    system: &System,
    cases: &[(String, f64)],
    rate: f64,
) -> anyhow::Result<Vec<Step>> {
    let files: usize = bench.catalog.items.iter().map(|item| item.len).sum();
    let largest = bench
        .catalog
        .items
        .iter()
        .map(|item| item.len)
        .max()
        .unwrap_or(0);
    // Each server has its own beside the files: what is compared is how they use the rest.
    let own = own_memory(bench, system, rate)?;
    let point = |(_, share): &(String, f64)| {
        // A server cannot send what does not fit, however little memory it has.
        let room = (share * files as f64).max((LARGEST * largest) as f64);
        turn(bench, system, own + room, rate)
    };

    cases.iter().map(point).collect()
}

/// Returns the memory that a server needs beside the files, in bytes, with the kernel's on its
/// behalf.
fn own_memory(bench: &Offered, system: &System, rate: f64) -> anyhow::Result<f64> {
    let server = system.start(&bench.site, bench.group(&CONTROLLERS)?)?;
    bench.warm(&server)?;
    let held = bench.step(&server, rate).and_then(|_| server.memory())?;
    Ok(held + KERNEL)
}

/// Starts a server with this much memory; once it has had every file, its disk becomes slow, and
/// the loads begin.
fn turn(bench: &Offered, system: &System, memory: f64, rate: f64) -> anyhow::Result<Step> {
    bench
        .catalog
        .items
        .iter()
        .try_for_each(|item| bench.site.forget(&item.path))?;
    let group = bench.group(&CONTROLLERS)?;
    group
        .limit_memory(memory as usize)
        .context("a limit of memory")?;
    let server = system.start(&bench.site, group)?;
    bench.sample(&server)?;
    bench.warm(&server)?;
    let group = || server.group().context("no group");

    // Throttled only now: the warm-up would take minutes.
    group()?
        .throttle(bench.site.dir(), DISK)
        .context("cannot throttle the disk that the files lie on")?;
    let before = group()?.disk_bytes()?;
    let start = Instant::now();
    let hot = Hot::start(bench, &server)?;
    let mut step = bench.step(&server, rate)?;

    (step.hot_p99, step.hot_failed) = hot.end(bench)?;
    let read = (group()?.disk_bytes()? - before) as f64;

    (step.megabytes, step.limit) = (read / 1e6 / start.elapsed().as_secs_f64(), memory / 1e6);
    Ok(step)
}

/// The load that asks for files that memory is meant to hold; ends with this value.
struct Hot(Child);

const HOT_JSON: &str = "hot.json";

impl Hot {
    fn start(bench: &Offered, server: &Server) -> anyhow::Result<Self> {
        let list = bench.list(
            server,
            "hot.txt",
            &mut bench.catalog.hot().map(|item| item.path.as_str()),
        )?;
        let more = [
            "--urls",
            &list,
            "--zipf",
            "0",
            "--connections",
            HOT_CONNECTIONS,
        ];
        // The last turn's figures must not be taken for those of one that failed.
        let _ = std::fs::remove_file(bench.site.dir().join(HOT_JSON));
        let mut command: Command = bench.open(server, HOT_RATE, HOT_JSON, &more)?;
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());

        Ok(Self(command.spawn().context("cannot run plainweave load")?))
    }

    /// Returns the p99 in microseconds, and the share that failed.
    fn end(mut self, bench: &Offered) -> anyhow::Result<(f64, f64)> {
        self.0.wait()?;
        let figures = Figures::read(&bench.site.dir().join(HOT_JSON))?;
        Ok((
            figures.get("latency_p99_us").unwrap_or(f64::NAN),
            figures.failed_share()?,
        ))
    }
}

impl Drop for Hot {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
