//! A repetition, in a process of its own.

use std::process::Command;
use std::time::Duration;

use anyhow::bail;
use clap::Args;
use plainweave::Runtime;
use plainweave::policy::Observer;

use super::cases;
use super::parameters::Shape;
use super::repetition::{Figure, Size};
use super::shim::{Fibers, May, Shim, Threads, Tokio};
use crate::mode::Mode;
use crate::{child, machine, report};

/// One repetition of one case on one system.
#[derive(Args, Debug)]
pub(crate) struct ChildFlags {
    case: String,
    system: String,
    #[arg(long, default_value = "fifo")]
    policy: String,
    #[arg(long, default_value = "before-start/shared")]
    mode: String,
    #[arg(long)]
    workers: usize,
    #[arg(long)]
    seconds: f64,
    #[arg(long)]
    fibers: usize,
    #[arg(long)]
    clocked: bool,
    #[arg(long)]
    observe: bool,
    #[command(flatten)]
    shape: Shape,
}

/// Runs such a process and reads its figures.
pub(super) fn figures(command: Command, size: &Size) -> anyhow::Result<Vec<Figure>> {
    let patience = match size.shape.iterations {
        Some(_) => Duration::from_secs(600),
        None => Duration::from_secs_f64(60.0 + 4.0 * size.seconds),
    };
    child::output(command, patience)?.lines().map(Figure::parse).collect()
}

/// Runs the child.
pub(crate) fn run(flags: &ChildFlags) -> anyhow::Result<()> {
    let size = Size {
        workers: flags.workers,
        seconds: flags.seconds,
        shape: flags.shape.clone(),
        fibers: flags.fibers,
        clocked: flags.clocked,
        heavy: flags.system == "threads",
        baseline: machine::status_bytes("VmRSS"),
    };
    let case = flags.case.as_str();
    let observer = flags.observe.then(Observer::new);
    let figures = match flags.system.as_str() {
        "plainweave" => {
            let runtime = runtime(flags, observer.as_ref())?;
            match case {
                "wake-sleeper" => cases::wake_sleeper(&runtime, &size),
                "idle" => cases::idle(&runtime, &size),
                _ => on(Fibers(runtime), case, size),
            }
        }
        "threads" => {
            // As many CPUs as the others have workers.
            machine::pin_to_first(flags.workers);
            on(Threads, case, size)
        }
        "tokio" => on(Tokio { workers: flags.workers }, case, size),
        "may" => on(May { workers: flags.workers }, case, size),
        other => bail!("no system is called '{other}'"),
    };
    let mut figures = figures?;
    if let Some(waits) = observer.map(|observer| observer.take()).filter(|waits| waits.pops > 0) {
        figures.push(Figure::new("greatest_wait_us", waits.greatest.as_nanos() as f64 / 1e3));
        figures.push(Figure::new("rank_error", waits.rank_errors as f64 / waits.pops as f64));
    }
    figures.iter().for_each(|figure| report::say(&figure.line()));
    Ok(())
}

fn on<S: Shim>(system: S, case: &str, size: Size) -> anyhow::Result<Vec<Figure>> {
    let case = case.to_owned();
    system.run(async move { cases::run::<S>(&case, size).await })?
}

fn runtime(flags: &ChildFlags, observer: Option<&Observer>) -> anyhow::Result<Runtime> {
    let builder = Mode::parse(&flags.mode)?.builder();
    let builder = builder.workers(flags.workers).policy(&*flags.policy).max_fibers(2_000_000);
    Ok(match observer {
        Some(observer) => builder.build_observed(observer.clone())?,
        None => builder.build()?,
    })
}
