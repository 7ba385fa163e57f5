//! Our servers with what only benchmarks ask for: requests that block, an observed policy, a mode
//! that is not for use.

#![expect(
    unsafe_code,
    reason = "starts a runtime whose fibers move and share storage"
)]

use std::fs::File;
use std::io::Write;
use std::num::NonZeroU64;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, ensure};
use clap::{Args, Subcommand};
use plainweave::policy::Observer;
use plainweave::{Runtime, RuntimeBuilder};
use plainweave_daemon::flag;
use plainweave_daemon::hooks::Hooks;

use crate::harness::machine;

/// How often a line is written about fibers that waited.
const PERIOD: Duration = Duration::from_millis(100);

/// `plainweave web` or `plainweave cache`, with what benchmarks add to them
#[derive(Args, Debug)]
pub(crate) struct Flags {
    #[command(flatten)]
    added: Added,

    #[command(subcommand)]
    server: Server,
}

#[derive(Debug, Subcommand)]
enum Server {
    Web(Box<plainweave_web::Flags>),
    Cache(Box<plainweave_cache::Flags>),
}

/// What is added.
#[derive(Args, Clone, Debug)]
struct Added {
    /// Every Nth request blocks its thread for so long, as in 50ms/100
    #[arg(long, value_name = "TIME/N", value_parser = Block::parse)]
    block: Option<Block>,

    /// Write to this file, ten times a second, how long ready fibers have waited
    #[arg(long, value_name = "FILE")]
    waits: Option<PathBuf>,

    /// Serve in the mode anytime/shared, which --mode refuses
    #[arg(long)]
    anytime_shared: bool,
}

/// Returns a command that runs one; flags of the server's own follow.
pub(crate) fn command(server: &str, added: &[&str]) -> anyhow::Result<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    command.arg("serve").args(added).arg(server);
    Ok(command)
}

/// In a child process, or by hand: serves until a signal asks it to stop.
pub(crate) fn serve(flags: &Flags) -> anyhow::Result<()> {
    machine::end_with_parent();
    let hooks = flags.added.hooks();
    match &flags.server {
        Server::Web(flags) => plainweave_web::run_with(flags, &hooks),
        Server::Cache(flags) => plainweave_cache::run_with(flags, &hooks),
    }
}

impl Added {
    fn hooks(&self) -> Hooks {
        let mut hooks = Hooks::default();
        if let Some(block) = self.block {
            let requests = AtomicU64::new(0);
            hooks.on_request = Some(Arc::new(move || block.pass(&requests)));
        }

        if self.waits.is_some() || self.anytime_shared {
            let added = self.clone();
            let observed = AtomicBool::new(false);
            hooks.start = Some(Arc::new(move |builder| added.start(builder, &observed)));
        }
        hooks
    }

    fn start(&self, builder: RuntimeBuilder, observed: &AtomicBool) -> anyhow::Result<Runtime> {
        let builder = if self.anytime_shared {
            // SAFETY: what the servers' fibers hold across a suspension was looked through: they
            // and the HTTP library have no thread-local, `Rc` or `RefCell`, and release a lock of
            // `std` before they suspend; sockets, buffers, the store's and the file cache's entries
            // are `Send` and counted atomically. Dependencies use thread-locals within calls that
            // do not suspend: `foldhash` and `RandomState` for seeds, the C library for `errno`,
            // which `rustix` does without. `std` asks for the thread's count of panics when a lock
            // is taken and released, but only while somewhere a panic unwinds, and the load of the
            // benchmark makes nothing panic.
            unsafe { builder.shared_storage().movement_anytime() }
        } else {
            builder
        };

        match &self.waits {
            None => builder.build().context("cannot start the runtime"),
            Some(file) => {
                ensure!(
                    !observed.swap(true, Relaxed),
                    "--waits observes one runtime, and this architecture has several"
                );
                start_observed(builder, file)
            }
        }
    }
}

/// How often requests block, and for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Block {
    time: Duration,
    every: NonZeroU64,
}

impl Block {
    /// Reads `TIME/N`; the message says how to write it.
    fn parse(text: &str) -> Result<Self, String> {
        let (time, every) = text.split_once('/').ok_or("write TIME/N, as in 50ms/100")?;
        let every = every
            .parse()
            .map_err(|_| "N is a whole number from 1, as in 50ms/100")?;
        Ok(Self {
            time: flag::time(time)?,
            every,
        })
    }

    /// Counts a request, and blocks the calling *thread* if its turn has come, as a handler does
    /// that knows no fibers.
    fn pass(self, requests: &AtomicU64) {
        if (requests.fetch_add(1, Relaxed) + 1).is_multiple_of(self.every.get()) {
            thread::sleep(self.time);
        }
    }
}

/// Starts a runtime whose policy is observed, and a thread that writes what comes of it.
fn start_observed(builder: RuntimeBuilder, file: &Path) -> anyhow::Result<Runtime> {
    let file = File::create(file).with_context(|| format!("cannot create {}", file.display()))?;
    let observer = Observer::new();
    let runtime = builder
        .build_observed(observer.clone())
        .context("cannot start the runtime")?;

    thread::Builder::new()
        .name("waits".to_owned())
        .spawn(move || write_waits(&observer, file))?;
    Ok(runtime)
}

/// Writes a line each period, until the file cannot be written or the process ends.
fn write_waits(observer: &Observer, mut file: File) {
    let mut written = writeln!(
        file,
        "unix_ms,pops,total_ns,greatest_ns,rank_errors,greatest_rank_error"
    );
    while written.is_ok() {
        thread::sleep(PERIOD);
        let waits = observer.take();
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default()
            .as_millis();
        let total = waits.total.as_nanos();
        let greatest = waits.greatest.as_nanos();
        let ranks = format!("{},{}", waits.rank_errors, waits.greatest_rank_error);

        written = writeln!(file, "{now},{},{total},{greatest},{ranks}", waits.pops);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn how_often_and_how_long() {
        let block = Block::parse("50ms/100").unwrap();
        assert_eq!(
            (block.time, block.every.get()),
            (Duration::from_millis(50), 100)
        );
        for text in ["", "50ms", "50ms/0", "50ms/x", "/100", "0s/100"] {
            assert!(Block::parse(text).is_err(), "{text}");
        }
    }
}
