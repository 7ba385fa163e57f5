//! A repetition, in a process of its own.

use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::bail;
use clap::Args;
use plainweave::policy::Observer;
use plainweave::{Runtime, WorkerMetrics};

use super::cases;
use super::parameters::Shape;
use super::repetition::{Figure, Size};
use super::team::NothingDone;
use crate::harness::child;
use crate::harness::machine;
use crate::harness::mode::Mode;
use crate::harness::report;
use crate::scheduler::shim::{Fibers, May, Shim, Threads, Tokio};

/// Seconds in which something happens on any machine.
const LONG_ENOUGH: f64 = 5.0;

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
    #[arg(long)]
    traced: bool,
    #[command(flatten)]
    shape: Shape,
}

/// Runs such a process and reads its figures.
pub(super) fn figures(command: Command, size: &Size) -> anyhow::Result<Vec<Figure>> {
    child::output(command, patience(size))?
        .lines()
        .map(Figure::parse)
        .collect()
}

/// Returns how long a repetition may take.
pub(super) fn patience(size: &Size) -> Duration {
    match size.shape.iterations {
        Some(_) => Duration::from_secs(600),
        None => Duration::from_secs_f64(60.0 + 4.0 * size.seconds),
    }
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
            let began = Instant::now();
            let counted = !size.clocked;
            let runtime = Arc::new(runtime(flags, observer.as_ref())?);
            let figures = match case {
                "wake-sleeper" => cases::wake_sleeper(&runtime, &size),
                "select-beside" => cases::selects_beside(&runtime, &size),
                "idle" => cases::idle(&runtime, &size),
                _ => on(Fibers::from(runtime.clone()), case, size),
            };

            figures.map(|mut figures| {
                if counted {
                    figures.extend(scheduler(&runtime, began));
                }
                figures
            })
        }
        "threads" => {
            // As many CPUs as the others have workers.
            machine::pin_to_first(flags.workers);
            on(Threads, case, size)
        }
        "tokio" => on(Tokio::new(flags.workers)?, case, size),
        "may" => on(May::new(flags.workers), case, size),
        other => bail!("no system is called '{other}'"),
    };

    let mut figures = figures?;
    if let Some(waits) = observer
        .map(|observer| observer.take())
        .filter(|waits| waits.pops > 0)
    {
        figures.push(Figure::new(
            "greatest_wait_us",
            waits.greatest.as_nanos() as f64 / 1e3,
        ));
        figures.push(Figure::new(
            "rank_error",
            waits.rank_errors as f64 / waits.pops as f64,
        ));
    }
    figures
        .iter()
        .for_each(|figure| report::say(&figure.line()));

    Ok(())
}

/// Returns what the workers have counted.
fn scheduler(runtime: &Runtime, began: Instant) -> Vec<Figure> {
    // What a worker counts last it publishes before it sleeps. One that a workload has left
    // spinning never does.
    let patience = Instant::now() + Duration::from_millis(50);
    while runtime.metrics().sleeping_workers < runtime.workers() && Instant::now() < patience {
        std::thread::sleep(Duration::from_millis(1));
    }
    let metrics = runtime.metrics();
    let elapsed = began.elapsed().as_secs_f64();
    let sum = |count: fn(&WorkerMetrics) -> f64| metrics.workers.iter().map(count).sum::<f64>();
    let steals = sum(|of| of.policy.steals as f64);
    let idle = sum(|of| of.idle.unwrap_or_default().as_secs_f64());

    vec![
        Figure::new("steals", steals),
        Figure::new("steal_attempts", sum(|of| of.policy.steal_attempts as f64)),
        Figure::new(
            "fibers_per_steal",
            sum(|of| of.policy.stolen as f64) / steals.max(1.0),
        ),
        Figure::new("helped", sum(|of| of.policy.helped as f64)),
        Figure::new("spills", sum(|of| of.policy.spills as f64)),
        Figure::new("insert_retries", sum(|of| of.policy.insert_retries as f64)),
        Figure::new("inbox_messages", sum(|of| of.inbox_messages as f64)),
        Figure::new(
            "idle_share",
            idle / (elapsed * metrics.workers.len() as f64),
        ),
    ]
}

/// Runs a case, for longer if that was too short for anything to happen.
fn on<S: Shim>(system: S, case: &str, mut size: Size) -> anyhow::Result<Vec<Figure>> {
    let case = case.to_owned();
    system.run(async move {
        loop {
            match cases::run::<S>(&case, size.clone()).await {
                Err(error) if error.is::<NothingDone>() && size.seconds < LONG_ENOUGH => {
                    size.seconds *= 4.0
                }
                figures => return figures,
            }
        }
    })?
}

fn runtime(flags: &ChildFlags, observer: Option<&Observer>) -> anyhow::Result<Runtime> {
    let builder = Mode::parse(&flags.mode)?.builder();
    let mut builder = builder
        .workers(flags.workers)
        .policy(&*flags.policy)
        .max_fibers(2_000_000);
    if flags.traced {
        builder = builder.trace_capacity(1 << 16);
    }
    Ok(match observer {
        Some(observer) => builder.build_observed(observer.clone())?,
        None => builder.build()?,
    })
}
