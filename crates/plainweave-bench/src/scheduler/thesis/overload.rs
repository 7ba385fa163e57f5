//! Stages through overload: jobs of several tasks, staged against stealing, at loads below and
//! above the capacity.
//!
//! The thesis argues that stages are worse at low load and degrade more gracefully, and does not
//! measure it. Arrivals are open-loop: a thread of its own sends each job when it is due, by
//! exponential gaps, whatever has become of those before; latency counts from when it was due.
//! Staged, each kind of task has a pool with a bounded queue, and a job that finds the first one
//! full is shed; stealing, all workers run all tasks, and a job is shed that finds as many under
//! way as all those queues hold. The capacity is what the workers could compute, with a scheduler
//! that costs nothing: tasks go by their thread's CPU time, so that the generator, which shares the
//! processors, does not count.

use std::io::ErrorKind;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use hdrhistogram::Histogram;
use plainweave::pools::Stage;
use plainweave_sim::thesis::{Case, Parameter, split};
use rand::SeedableRng;
use rand::rngs::SmallRng;
use rand_distr::{Distribution, Exp1};

use super::experiment::{Experiment, NO_POOLS, PLAIN};
use super::ledger::{Executed, Ledger, Outcome};
use super::metrics::Figure;
use super::parameters::{Plan, Table};
use crate::harness::machine;
use crate::scheduler::shim::{Fibers, Shim};

/// The options of `overload-stages`.
#[derive(Debug)]
pub(crate) struct OverloadStages;

impl Table for OverloadStages {
    const NAME: &'static str = "overload-stages";
    const PARAMETERS: &'static [Parameter] = &[
        Parameter::decimal(
            "load",
            "0.3,0.6,0.9,1.2,1.5,2",
            (0.01, 10.0),
            "Share of the capacity that arrives",
        ),
        Parameter::decimal(
            "seconds",
            "0.5",
            (0.01, 600.0),
            "How long jobs arrive, in each iteration",
        )
        .full("5"),
        Parameter::count(
            "stages",
            "2",
            (1, 16),
            "Tasks of a job, one after the other",
        ),
        Parameter::count(
            "work-us",
            "20",
            (1, 100_000),
            "Microseconds that each computes",
        ),
        Parameter::count(
            "queue",
            "1000",
            (1, 1_000_000),
            "Jobs that wait for a stage at most",
        ),
        Parameter::word(
            "pools",
            &["single", "staged"],
            "All workers for all tasks, or a pool for each stage",
        ),
    ];
}

const CASES: &[Case] = &[
    Case::new("stealing", "", "all workers run all tasks"),
    Case::new(
        "staged",
        "pools=staged",
        "a pool for each stage, with a bounded queue",
    ),
];

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: OverloadStages::NAME,
    parameters: OverloadStages::PARAMETERS,
    cases: CASES,
    policies: &["fifo", "lifo"],
    pools: |plan, workers| match is_staged(plan) {
        true => split(workers, plan.count("stages") as usize),
        false => vec![workers],
    },
    least_workers: |plan| {
        if is_staged(plan) {
            plan.count("stages") as usize
        } else {
            1
        }
    },
    lacks: |plan, _| is_staged(plan).then_some(NO_POOLS),
    ..PLAIN
};

pub(super) fn is_staged(plan: &Plan) -> bool {
    plan.word("pools") == "staged"
}

/// What the jobs of an iteration share.
struct Shared {
    load: f64,
    length: Duration,
    stages: usize,
    work: Duration,
    queue: u64,
    workers: usize,
    /// Jobs that have come to each stage, and in the end out of the last.
    come: Vec<AtomicU64>,
    ledger: Ledger,
    executed: Executed,
}

impl Shared {
    fn new(plan: &Plan, workers: usize) -> Arc<Self> {
        let stages = plan.count("stages") as usize;
        Arc::new(Self {
            load: plan.decimal("load"),
            length: Duration::from_secs_f64(plan.decimal("seconds")),
            stages,
            work: Duration::from_micros(plan.count("work-us")),
            queue: plan.count("queue"),
            workers,
            come: (0..=stages).map(|_| AtomicU64::new(0)).collect(),
            ledger: Ledger::new(workers),
            executed: Executed::new(workers),
        })
    }

    /// Jobs a second that the workers could compute.
    fn capacity(&self) -> f64 {
        self.workers as f64 / (self.stages as f64 * self.work.as_secs_f64())
    }

    /// Does a task's work. True: it was the job's last.
    fn compute(&self, stage: usize, worker: usize, due: Instant) -> bool {
        let end = machine::thread_cpu_time() + self.work;
        while machine::thread_cpu_time() < end {
            std::hint::spin_loop();
        }
        self.executed.add(worker);
        self.come[stage + 1].fetch_add(1, Relaxed);
        let last = stage + 1 == self.stages;

        if last {
            self.ledger.record(worker, due, true);
        }

        last
    }

    /// Jobs in or before each stage.
    fn backlogs(&self) -> Vec<u64> {
        // Read from the last stage back: a job that moves on meanwhile is counted twice rather than
        // not at all.
        let come: Vec<_> = self
            .come
            .iter()
            .rev()
            .map(|come| come.load(Relaxed))
            .collect();
        come.windows(2)
            .map(|two| two[1].saturating_sub(two[0]))
            .collect()
    }

    fn outcome(
        &self,
        began: Instant,
        arrivals: &Arrivals,
    ) -> anyhow::Result<(Outcome, Vec<Figure>)> {
        ensure!(
            arrivals.taken > 0,
            "no job was taken in; --load or --seconds is too small"
        );
        let mut outcome = self.ledger.outcome(began, arrivals.taken, "jobs")?;
        outcome.executed = self.executed.by_worker();
        let backlog = |share| arrivals.backlog.value_at_quantile(share) as f64;
        let figures = vec![
            (
                "offered_per_s",
                arrivals.offered as f64 / self.length.as_secs_f64(),
            ),
            (
                "shed_share",
                (arrivals.offered - arrivals.taken) as f64 / arrivals.offered as f64,
            ),
            ("backlog_p50", backlog(0.5)),
            ("backlog_p99", backlog(0.99)),
            ("backlog_spread", arrivals.spread.mean()),
        ];

        Ok((outcome, figures))
    }
}

/// What has arrived, and how many jobs there were meanwhile.
struct Arrivals {
    offered: u64,
    taken: u64,
    backlog: Histogram<u64>,
    /// From the stage with the least to that with the most.
    spread: Histogram<u64>,
}

/// How often backlogs are looked at.
const LOOK: Duration = Duration::from_millis(1);

/// Offers jobs when they are due, on a thread of its own. `offer` takes a job in, or sheds it.
fn generate(
    shared: &Shared,
    began: Instant,
    mut offer: impl FnMut(Instant) -> anyhow::Result<bool>,
) -> anyhow::Result<Arrivals> {
    // The same arrivals on all systems.
    let mut random = SmallRng::seed_from_u64(1);
    let gap = 1.0 / (shared.load * shared.capacity());
    let mut gap = || Duration::from_secs_f64(gap * Distribution::<f64>::sample(&Exp1, &mut random));
    let histogram = || Histogram::new(3).expect("a valid precision");
    let mut arrivals = Arrivals {
        offered: 0,
        taken: 0,
        backlog: histogram(),
        spread: histogram(),
    };

    let mut due = began + gap();
    let mut look = began + LOOK;
    let end = began + shared.length;
    while due < end {
        let now = Instant::now();
        if now >= due {
            arrivals.offered += 1;
            arrivals.taken += u64::from(offer(due)?);
            due += gap();
        } else {
            std::thread::sleep(due.min(look) - now);
        }

        if Instant::now() >= look {
            let backlogs = shared.backlogs();
            let least = backlogs.iter().min().unwrap_or(&0);
            let most = backlogs.iter().max().unwrap_or(&0);
            arrivals.backlog.record(backlogs.iter().sum())?;
            arrivals.spread.record(most - least)?;
            look += LOOK;
        }
    }

    Ok(arrivals)
}

/// A task of a job, which schedules the next.
// It spawns itself, so it must declare that it is `Send`.
#[allow(clippy::manual_async_fn)]
fn task<S: Shim>(
    shared: Arc<Shared>,
    stage: usize,
    due: Instant,
) -> impl Future<Output = ()> + Send + 'static {
    async move {
        if !shared.compute(stage, S::worker(), due) {
            drop(S::spawn(task::<S>(shared, stage + 1, due)));
        }
    }
}

/// Runs one iteration with all tasks in one pool.
pub(super) async fn iterate<S: Shim>(
    plan: &Plan,
    workers: usize,
    pools: Vec<S::Pool>,
) -> anyhow::Result<(Outcome, Vec<Figure>)> {
    let shared = Shared::new(plan, workers);
    let began = Instant::now();
    let pool = pools
        .into_iter()
        .next()
        .context("no pool to send jobs to")?;
    let jobs = shared.clone();
    let most = shared.queue * shared.stages as u64;
    let generator = std::thread::spawn(move || {
        generate(&jobs, began, |due| {
            if jobs.backlogs().iter().sum::<u64>() >= most {
                return Ok(false);
            }
            jobs.come[0].fetch_add(1, Relaxed);
            S::spawn_in(&pool, task::<S>(jobs.clone(), 0, due));
            Ok(true)
        })
    });

    while !generator.is_finished() {
        S::sleep(LOOK).await;
    }
    let arrivals = generator
        .join()
        .ok()
        .context("the generator has panicked")??;
    shared.ledger.complete::<S>(arrivals.taken).await;
    shared.outcome(began, &arrivals)
}

/// Runs one iteration with a pool for each stage.
pub(super) fn staged(
    fibers: &Fibers,
    plan: &Plan,
    sizes: &[usize],
) -> anyhow::Result<(Outcome, Vec<Figure>)> {
    let shared = Shared::new(plan, sizes.iter().sum());
    let pools = fibers.pools();
    let queue = shared.queue as usize;
    let mut stages: Vec<Stage<Instant>> = Vec::new();

    // From the last to the first.
    for (stage, pool) in pools.iter().enumerate().rev() {
        let before = sizes[..stage].iter().sum::<usize>();
        let jobs = shared.clone();
        let compute = move |due| jobs.compute(stage, before + Fibers::worker(), due);
        stages.push(match stages.last() {
            None => Stage::new(pool, queue, sizes[stage], move |due| {
                compute(due);
                Ok(())
            })?,
            Some(next) => next.fed_by(pool, queue, sizes[stage], move |due, next| {
                compute(due);
                Ok(next.send(due)?)
            })?,
        });
    }

    let first = stages.last().context("no pools")?.sender();
    let began = Instant::now();
    let arrivals = generate(&shared, began, |due| {
        shared.come[0].fetch_add(1, Relaxed);
        match first.try_send(due) {
            Ok(()) => Ok(true),
            Err(unsent) if unsent.error.kind() == ErrorKind::WouldBlock => {
                shared.come[0].fetch_sub(1, Relaxed);
                Ok(false)
            }
            Err(unsent) => bail!(unsent.error),
        }
    })?;
    drop(first);
    while let Some(stage) = stages.pop() {
        stage.join()?;
    }

    shared.outcome(began, &arrivals)
}
