//! The workload: a burst of packets, some of which bring a slow job, on one pool or on two.
//!
//! The packets are those of the OCaml schedulers' thesis: ten templates of 2000 and more bytes, a copy of which is
//! searched for line ends by a fiber of its own. One fiber spawns them. It does not pause, but waits while as many as
//! may be under way are; the thesis's own spawner waits likewise, for a place in a full queue.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use clap::{Args, ValueEnum, value_parser};
use hdrhistogram::Histogram;
use plainweave::Builder;
use plainweave::policy::PRIORITY;
use plainweave::pools::{Pool, PoolSpec, Pools};
use plainweave::sync::Semaphore;

use crate::mode::Mode;
use crate::{machine, report};

/// One repetition on one system.
#[derive(Args, Debug)]
pub(crate) struct ChildFlags {
    case: Case,
    /// As `--pools` of other programs has them: `NAME:POLICY/WORKERS`, with spaces between pools. The first has the
    /// packets, the last the jobs.
    #[arg(required = true)]
    pools: Vec<String>,
    #[arg(long)]
    mode: String,
    #[command(flatten)]
    pub(super) size: Size,
}

/// What a job does while it is slow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Case {
    /// It computes, for a certain time on a processor.
    Compute,
    /// It blocks its thread, as a call into the kernel or a library does.
    Block,
}

impl Case {
    pub(super) fn name(self) -> &'static str {
        match self {
            Case::Compute => "compute",
            Case::Block => "block",
        }
    }
}

/// How much of it there is.
#[derive(Args, Clone, Debug)]
pub(crate) struct Size {
    /// Packets of an iteration
    #[arg(long, value_name = "N", default_value_t = 50_000, value_parser = value_parser!(u64).range(10..=10_000_000))]
    pub(super) packets: u64,

    /// Packets under way at most
    #[arg(long, value_name = "N", default_value_t = 128, value_parser = value_parser!(u32).range(1..=1_000_000))]
    pub(super) in_flight: u32,

    /// Packets for each job of the side task
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = value_parser!(u64).range(1..=1_000_000))]
    pub(super) one_in: u64,

    /// Microseconds of a job
    #[arg(long, value_name = "US", default_value_t = 1000, value_parser = value_parser!(u64).range(1..=1_000_000))]
    pub(super) side_us: u64,

    /// Iterations of a repetition; one more before them is dropped
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = value_parser!(u64).range(1..=1000))]
    pub(super) iterations: u64,
}

/// Urgency of the fibers, for the policies that heed it.
const JOB_PRIORITY: u8 = PRIORITY - 64;
const TEMPLATES: usize = 10;

/// A packet, and where its line ends are.
struct Template {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

fn templates() -> Vec<Template> {
    let template = |i: usize| {
        let ends: Vec<_> = (1..300).filter(|k| k % (20 + i) == 0).collect();
        let mut bytes = vec![b'-'; 2000 + 30 * i];
        ends.iter().for_each(|end| bytes[*end] = b'\n');
        Template { bytes, ends }
    };
    (0..TEMPLATES).map(template).collect()
}

/// What one worker has done.
struct Log {
    latencies: Histogram<u64>,
    packets: u64,
    wrong: u64,
    last: Option<Instant>,
}

impl Log {
    fn new() -> Self {
        let latencies = Histogram::new_with_bounds(1, 600_000_000_000, 3).expect("valid bounds");
        Self { latencies, packets: 0, wrong: 0, last: None }
    }
}

/// What the fibers of an iteration share.
struct Iteration {
    case: Case,
    length: Duration,
    templates: Arc<Vec<Template>>,
    /// Permits to spawn a packet.
    room: Semaphore,
    side: Pool,
    /// By worker of the packets' pool; only that one's fibers lock it.
    logs: Vec<Mutex<Log>>,
    jobs: AtomicU64,
    last_job: Mutex<Option<Instant>>,
    /// A permit for each job that has ended.
    ended: Semaphore,
}

impl Iteration {
    /// A packet's fiber.
    fn packet(self: Arc<Self>, bytes: &[u8], template: usize, brings_job: bool, spawned: Instant) {
        let found = bytes.iter().enumerate().filter(|(_, byte)| **byte == b'\n').map(|(place, _)| place);
        let right = found.eq(self.templates[template].ends.iter().copied());
        if brings_job {
            let iteration = self.clone();
            let job = self.side.spawn_with(Builder::new().priority(JOB_PRIORITY), move || iteration.job());
            drop(job.expect("the pool is open"));
        }
        let now = Instant::now();
        let worker = plainweave::worker_index().expect("a fiber");
        let mut log = self.logs[worker].lock().unwrap_or_else(PoisonError::into_inner);
        log.packets += 1;
        log.wrong += u64::from(!right);
        log.latencies.saturating_record((now - spawned).as_nanos() as u64);
        log.last = Some(now);
        drop(log);
        self.room.release();
    }

    /// A job's fiber.
    fn job(&self) {
        match self.case {
            Case::Compute => {
                let end = machine::thread_cpu_time() + self.length;
                while machine::thread_cpu_time() < end {
                    std::hint::spin_loop();
                }
            }
            Case::Block => std::thread::sleep(self.length),
        }
        self.jobs.fetch_add(1, Relaxed);
        let mut last = self.last_job.lock().unwrap_or_else(PoisonError::into_inner);
        *last = (*last).max(Some(Instant::now()));
        drop(last);
        self.ended.release();
    }
}

/// Figures of one iteration.
struct Done {
    packets_per_s: f64,
    side_per_s: Option<f64>,
}

/// Runs the child: prints the medians over the iterations, and quantiles of all their latencies.
pub(crate) fn run_child(flags: &ChildFlags) -> anyhow::Result<()> {
    let pools = pools(&flags.pools, &flags.mode)?;
    let [packets, side] = [pools.iter().next(), pools.iter().last()].map(|pool| pool.context("no pools"));
    let (packets, side) = (packets?, side?);
    let workers = pools.runtime(packets.name()).context("no pools")?.workers();
    let templates = Arc::new(templates());
    let mut all = Log::new();
    let mut done = Vec::new();
    for number in 0..=flags.size.iterations {
        let mut log = Log::new();
        let iteration = iterate(flags, packets, side, workers, &templates, &mut log)?;
        // The first warms up.
        if number > 0 {
            all.latencies.add(&log.latencies)?;
            done.push(iteration);
        }
    }
    let median = |mut values: Vec<f64>| {
        values.sort_by(f64::total_cmp);
        values.get(values.len() / 2).copied()
    };
    let quantile = |share| all.latencies.value_at_quantile(share) as f64 / 1e3;
    let figures = [
        ("packets_per_s", median(done.iter().map(|done| done.packets_per_s).collect())),
        ("p50_us", Some(quantile(0.5))),
        ("p99_us", Some(quantile(0.99))),
        ("p9999_us", Some(quantile(0.9999))),
        ("side_per_s", median(done.iter().filter_map(|done| done.side_per_s).collect())),
    ];
    for (metric, value) in figures {
        if let Some(value) = value {
            report::say(&format!("{metric} {value}"));
        }
    }
    Ok(())
}

/// Builds the pools; none adds spare workers, so all systems have as many threads.
fn pools(texts: &[String], mode: &str) -> anyhow::Result<Pools> {
    let mode = Mode::parse(mode)?;
    let spec = |text: &String| {
        let parts = text.split_once(':').and_then(|(name, rest)| Some((name, rest.rsplit_once('/')?)));
        let Some((name, (policy, workers))) = parts else { bail!("'{text}' is not NAME:POLICY/WORKERS") };
        let workers = workers.parse()?;
        let runtime = mode.builder().workers(workers).max_workers(workers).policy(policy);
        Ok(PoolSpec::new(name).runtime(runtime))
    };
    let specs = texts.iter().map(spec).collect::<anyhow::Result<Vec<_>>>()?;
    Ok(Pools::build(specs)?)
}

/// Runs one iteration and checks that nothing was lost.
fn iterate(
    flags: &ChildFlags,
    packets: &Pool,
    side: &Pool,
    workers: usize,
    templates: &Arc<Vec<Template>>,
    log: &mut Log,
) -> anyhow::Result<Done> {
    let size = &flags.size;
    let iteration = Arc::new(Iteration {
        case: flags.case,
        length: Duration::from_micros(size.side_us),
        templates: templates.clone(),
        room: Semaphore::new(size.in_flight as usize),
        side: side.clone(),
        logs: (0..workers).map(|_| Mutex::new(Log::new())).collect(),
        jobs: AtomicU64::new(0),
        last_job: Mutex::new(None),
        ended: Semaphore::new(0),
    });
    let began = Instant::now();
    packets.call(|| spawn_all(&iteration, packets, size))??;
    let jobs = size.packets / size.one_in;
    for _ in 0..jobs {
        iteration.ended.acquire()?.forget();
    }
    for worker in &iteration.logs {
        let worker = worker.lock().unwrap_or_else(PoisonError::into_inner);
        log.latencies.add(&worker.latencies)?;
        log.packets += worker.packets;
        log.wrong += worker.wrong;
        log.last = log.last.max(worker.last);
    }
    ensure!(log.packets == size.packets, "{} of {} packets were done", log.packets, size.packets);
    ensure!(log.wrong == 0, "{} packets have line ends in other places than they were given", log.wrong);
    let done = iteration.jobs.load(Relaxed);
    ensure!(done == jobs, "{done} of {jobs} jobs were done");
    let rate = |count: u64, last: Option<Instant>| Some(count as f64 / (last? - began).as_secs_f64());
    let last_job = *iteration.last_job.lock().unwrap_or_else(PoisonError::into_inner);
    let packets_per_s = rate(size.packets, log.last).context("no packets")?;
    Ok(Done { packets_per_s, side_per_s: rate(jobs, last_job) })
}

/// The fiber that spawns the packets, and waits for the last.
fn spawn_all(iteration: &Arc<Iteration>, packets: &Pool, size: &Size) -> anyhow::Result<()> {
    // A pseudo-random template for each, the same ones on all systems.
    let mut state = 1_u64;
    for number in 1..=size.packets {
        iteration.room.acquire()?.forget();
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let template = (state >> 33) as usize % TEMPLATES;
        let spawned = Instant::now();
        let bytes = iteration.templates[template].bytes.clone();
        let brings_job = number.is_multiple_of(size.one_in);
        let theirs = iteration.clone();
        drop(packets.spawn(move || theirs.packet(&bytes, template, brings_job, spawned))?);
    }
    iteration.room.acquire_many(size.in_flight)?.forget();
    Ok(())
}
