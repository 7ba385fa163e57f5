//! Hidden flags of both servers, for `plainweave bench` alone.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::Context;
use clap::Args;
use plainweave::policy::Observer;
use plainweave::{Movement, Runtime, RuntimeBuilder, Storage};

use crate::bench_block::BenchBlock;
use crate::mode::Mode;

/// How often a line is written about fibers that waited.
const PERIOD: Duration = Duration::from_millis(100);

/// What benchmarks may ask for beside `--help`.
#[derive(Args, Clone, Debug)]
pub struct BenchFlags {
    /// For `bench shapes`: every Nth request blocks its thread for so long, as in 50ms/100
    #[arg(long = "bench-block", value_name = "TIME/N", value_parser = BenchBlock::parse, hide = true)]
    pub block: Option<BenchBlock>,

    /// For `bench fairness`: write to this file, ten times a second, how long ready fibers have
    /// waited
    #[arg(long = "bench-waits", value_name = "FILE", hide = true)]
    pub waits: Option<PathBuf>,

    /// For `bench fairness`: serve in the mode anytime/shared, which --mode refuses
    #[arg(long = "bench-anytime-shared", hide = true)]
    anytime_shared: bool,
}

impl BenchFlags {
    /// Returns the mode to serve in, where `--mode` says `asked`.
    pub fn mode(&self, asked: Mode) -> Mode {
        let unsafe_mode = Mode {
            movement: Movement::Anytime,
            storage: Storage::Shared,
        };

        if self.anytime_shared {
            unsafe_mode
        } else {
            asked
        }
    }
}

/// Starts a runtime whose policy is observed, and a thread that writes what comes of it.
pub fn start_observed(builder: RuntimeBuilder, file: &Path) -> anyhow::Result<Runtime> {
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
