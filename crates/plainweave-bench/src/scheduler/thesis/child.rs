//! A repetition, in a process of its own: some iterations, of which the first are dropped.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::bail;
use clap::Args;
use plainweave::policy::Observer;
use plainweave::pools::{PoolSpec, Pools};
use plainweave::{Metrics, Runtime, RuntimeBuilder, WorkerMetrics};

use super::experiment::Experiment;
use super::metrics::Figure;
use super::parameters::Plan;
use super::{overload, workloads};
use crate::harness::machine;
use crate::harness::mode::Mode;
use crate::harness::report;
use crate::scheduler::shim::{Fibers, May, Shim, Threads, Tokio};

/// One repetition of an experiment on one system.
#[derive(Args, Debug)]
pub(crate) struct ChildFlags {
    experiment: String,
    system: String,
    /// The parameters: all of them
    #[arg(long)]
    set: Vec<String>,
    #[arg(long, default_value = "fifo")]
    policy: String,
    #[arg(long, default_value = "before-start/shared")]
    mode: String,
    #[arg(long)]
    workers: usize,
    #[arg(long)]
    iterations: u32,
    #[arg(long)]
    dropped: u32,
    /// Report what an observer sees, and nothing else
    #[arg(long)]
    observe: bool,
}

/// Fibers that may be under way at once.
const MOST_FIBERS: usize = 2_000_000;

/// Runs the child: prints the figures of each iteration that counts.
pub(crate) fn run(flags: &ChildFlags) -> anyhow::Result<()> {
    let experiment = workloads::named(&flags.experiment)?;
    let plan = Plan::parse(experiment.parameters, &flags.set)?;
    let job = Job {
        experiment,
        plan,
        workers: flags.workers,
        clock: clock(),
    };

    match flags.system.as_str() {
        "plainweave" if flags.observe => observed(&job, flags),
        "plainweave" => ours(&job, flags),
        "threads" => {
            // As many CPUs as the others have workers.
            machine::pin_to_first(flags.workers);
            repeat(flags, || job.run(&Threads))
        }
        "tokio" => {
            let tokio = Tokio::with_timers(flags.workers)?;
            repeat(flags, || job.run(&tokio))
        }
        "may" => {
            let may = May::new(flags.workers);
            repeat(flags, || job.run(&may))
        }
        other => bail!("no system is called '{other}'"),
    }
}

/// What an iteration does.
struct Job {
    experiment: &'static Experiment,
    plan: Plan,
    workers: usize,
    /// Nanoseconds of a reading of the clock.
    clock: f64,
}

impl Job {
    /// Runs one iteration, and adds what the clock has cost.
    fn run<S: Shim>(&self, system: &S) -> anyhow::Result<Vec<Figure>> {
        let iteration = workloads::run::<S>(
            self.experiment,
            self.plan.clone(),
            self.workers,
            system.pools(),
        );
        Ok(self.with_clock(system.run(iteration)??))
    }

    fn on_fibers(&self, fibers: &Fibers) -> anyhow::Result<Vec<Figure>> {
        if self.experiment.name != overload::EXPERIMENT.name || !overload::is_staged(&self.plan) {
            return self.run(fibers);
        }
        let sizes = (self.experiment.pools)(&self.plan, self.workers);
        let (outcome, figures) = overload::staged(fibers, &self.plan, &sizes)?;
        Ok(self.with_clock([outcome.figures(), figures].concat()))
    }

    fn with_clock(&self, mut figures: Vec<Figure>) -> Vec<Figure> {
        let value = |name| {
            figures
                .iter()
                .find(|(metric, _)| *metric == name)
                .map(|(_, value)| *value)
        };

        if let (Some(readings), Some(ms)) = (value("clock_readings"), value("time_ms")) {
            let share = readings * self.clock / (ms * 1e6 * self.workers as f64);
            figures.extend([("clock_ns", self.clock), ("clock_ppm", share * 1e6)]);
        }

        figures
    }
}

/// Returns the nanoseconds that it takes to read the clock.
fn clock() -> f64 {
    const READINGS: u32 = 100_000;
    let began = Instant::now();
    (1..READINGS).for_each(|_| _ = std::hint::black_box(Instant::now()));
    began.elapsed().as_nanos() as f64 / f64::from(READINGS)
}

/// Runs the iterations and prints those that count.
fn repeat(
    flags: &ChildFlags,
    mut iteration: impl FnMut() -> anyhow::Result<Vec<Figure>>,
) -> anyhow::Result<()> {
    for number in 0..flags.iterations {
        let figures = iteration()?;
        if number >= flags.dropped {
            figures
                .iter()
                .for_each(|(metric, value)| report::say(&format!("{metric} {value}")));
        }
    }
    Ok(())
}

fn builder(flags: &ChildFlags) -> anyhow::Result<RuntimeBuilder> {
    // No spare workers: as many threads as the others have.
    let builder = Mode::parse(&flags.mode)?
        .builder()
        .workers(flags.workers)
        .max_workers(flags.workers);
    Ok(builder.policy(&*flags.policy).max_fibers(MOST_FIBERS))
}

/// Builds the runtime, or the pools that the plan wants.
fn fibers(job: &Job, flags: &ChildFlags) -> anyhow::Result<Fibers> {
    let sizes = (job.experiment.pools)(&job.plan, flags.workers);
    if sizes.is_empty() {
        return Ok(Fibers::from(Arc::new(builder(flags)?.build()?)));
    }
    let spec = |(pool, workers): (usize, &usize)| {
        let runtime = builder(flags)?.workers(*workers).max_workers(*workers);
        Ok(PoolSpec::new(format!("pool-{pool}")).runtime(runtime))
    };

    let specs = sizes
        .iter()
        .enumerate()
        .map(spec)
        .collect::<anyhow::Result<Vec<_>>>()?;
    Ok(Fibers::Pools(Pools::build(specs)?))
}

fn ours(job: &Job, flags: &ChildFlags) -> anyhow::Result<()> {
    let fibers = fibers(job, flags)?;
    let mut before = counts(&fibers);
    repeat(flags, || {
        let mut figures = job.on_fibers(&fibers)?;
        let now = counts(&fibers);
        figures.extend(scheduler(&before, &now));
        before = now;
        Ok(figures)
    })
}

/// Runs with an observer, which slows everything down: only what that sees counts.
fn observed(job: &Job, flags: &ChildFlags) -> anyhow::Result<()> {
    let observer = Observer::new();
    let fibers = Fibers::from(Arc::new(builder(flags)?.build_observed(observer.clone())?));
    repeat(flags, || {
        job.on_fibers(&fibers)?;
        let waits = observer.take();
        Ok(vec![
            (
                "rank_error",
                waits.rank_errors as f64 / waits.pops.max(1) as f64,
            ),
            ("greatest_rank_error", waits.greatest_rank_error as f64),
            ("greatest_wait_us", waits.greatest.as_nanos() as f64 / 1e3),
        ])
    })
}

/// Reads what the workers have counted.
fn counts(fibers: &Fibers) -> Vec<Metrics> {
    let runtimes = fibers.runtimes();
    let asleep = |runtime: &&Runtime| runtime.metrics().sleeping_workers >= runtime.workers();
    // What a worker counts last it publishes before it sleeps.
    let patience = Instant::now() + Duration::from_millis(50);
    while !runtimes.iter().all(asleep) && Instant::now() < patience {
        std::thread::sleep(Duration::from_millis(1));
    }
    runtimes.iter().map(|runtime| runtime.metrics()).collect()
}

/// Returns what they have counted in between.
fn scheduler(before: &[Metrics], now: &[Metrics]) -> Vec<Figure> {
    let sum = |all: &[Metrics], count: fn(&WorkerMetrics) -> u64| {
        all.iter()
            .flat_map(|metrics| &metrics.workers)
            .map(count)
            .sum::<u64>()
    };

    let more = |count: fn(&WorkerMetrics) -> u64| {
        sum(now, count).saturating_sub(sum(before, count)) as f64
    };
    let attempts = more(|of| of.policy.steal_attempts);
    let steals = more(|of| of.policy.steals);
    vec![
        ("insert_retries", more(|of| of.policy.insert_retries)),
        ("insert_overflows", more(|of| of.policy.insert_overflows)),
        ("steal_attempts", attempts),
        (
            "steal_attempts_per_task",
            attempts / more(|of| of.finished_fibers).max(1.0),
        ),
        ("steals", steals),
        (
            "fibers_per_steal",
            more(|of| of.policy.stolen) / steals.max(1.0),
        ),
    ]
}
