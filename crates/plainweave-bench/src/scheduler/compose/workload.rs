//! The workload: a burst of packets, some of which bring a slow job, on one pool or on two.
//!
//! The packets are those of the OCaml schedulers' thesis (`thesis/packets`). The fiber that spawns
//! them does not pause, but waits while as many as may be under way are; the thesis's own spawner
//! waits likewise, for a place in a full queue.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use clap::{Args, ValueEnum, value_parser};
use plainweave::Builder;
use plainweave::policy::PRIORITY;
use plainweave::pools::{Pool, PoolSpec, Pools};
use plainweave::sync::Semaphore;

use crate::harness::machine;
use crate::harness::mode::Mode;
use crate::harness::report;
use crate::scheduler::shim::{self, Fibers};
use crate::scheduler::thesis::ledger::Outcome;
use crate::scheduler::thesis::packets::{Delay, Load, burst};

/// One repetition on one system.
#[derive(Args, Debug)]
pub(crate) struct ChildFlags {
    case: Case,
    /// As `--pools` of other programs has them: `NAME:POLICY/WORKERS`, with spaces between pools.
    /// The first has the packets, the last the jobs.
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

/// What the jobs of an iteration share.
struct Jobs {
    case: Case,
    length: Duration,
    done: AtomicU64,
    last: Mutex<Option<Instant>>,
    /// A permit for each job that has ended.
    ended: Semaphore,
}

impl Jobs {
    /// A job's fiber.
    fn run(&self) {
        match self.case {
            Case::Compute => {
                // Of its own time: a job that was preempted has not computed meanwhile.
                let end = machine::thread_cpu_time() + self.length;
                while machine::thread_cpu_time() < end {
                    std::hint::spin_loop();
                }
            }
            Case::Block => std::thread::sleep(self.length),
        }

        self.done.fetch_add(1, Relaxed);
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        // Two jobs may come here in another order than they ended.
        *last = (*last).max(Some(Instant::now()));
        // Before the release: whoever waits for it reads the time.
        drop(last);
        self.ended.release();
    }
}

/// Figures of one iteration.
struct Done {
    packets: Outcome,
    side_per_s: Option<f64>,
}

/// Runs the child: prints the medians over the iterations, and quantiles of all their latencies.
pub(crate) fn run_child(flags: &ChildFlags) -> anyhow::Result<()> {
    let pools = pools(&flags.pools, &flags.mode)?;
    // With one pool they are the same.
    let [packets, side] =
        [pools.iter().next(), pools.iter().last()].map(|pool| pool.context("no pools"));
    let packets = packets?;
    let side = side?;
    let workers = pools.runtime(packets.name()).context("no pools")?.workers();
    let mut done = Vec::new();

    for number in 0..=flags.size.iterations {
        let iteration = iterate(flags, packets, side, workers)?;
        // The first warms up.
        if number > 0 {
            done.push(iteration);
        }
    }

    let mut all = done
        .first()
        .context("no iterations")?
        .packets
        .latencies
        .clone();
    done[1..]
        .iter()
        .try_for_each(|more| all.add(&more.packets.latencies))?;
    let median = |mut values: Vec<f64>| {
        values.sort_by(f64::total_cmp);
        values.get(values.len() / 2).copied()
    };

    let quantile = |share| all.value_at_quantile(share) as f64 / 1e3;
    let figures = [
        (
            "packets_per_s",
            median(done.iter().map(|done| done.packets.per_second()).collect()),
        ),
        ("p50_us", Some(quantile(0.5))),
        ("p99_us", Some(quantile(0.99))),
        ("p9999_us", Some(quantile(0.9999))),
        (
            "side_per_s",
            median(done.iter().filter_map(|done| done.side_per_s).collect()),
        ),
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
        let parts = text
            .split_once(':')
            .and_then(|(name, rest)| Some((name, rest.rsplit_once('/')?)));
        let Some((name, (policy, workers))) = parts else {
            bail!("'{text}' is not NAME:POLICY/WORKERS")
        };
        let workers = workers.parse()?;
        let runtime = mode
            .builder()
            .workers(workers)
            // No spare workers: all systems have as many threads.
            .max_workers(workers)
            .policy(policy);
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
) -> anyhow::Result<Done> {
    let Size {
        packets: count,
        in_flight,
        one_in,
        side_us,
        ..
    } = flags.size;
    let jobs = Arc::new(Jobs {
        case: flags.case,
        length: Duration::from_micros(side_us),
        done: AtomicU64::new(0),
        last: Mutex::new(None),
        ended: Semaphore::new(0),
    });

    let spawned = jobs.clone();
    let side = side.clone();
    let bring = move |number: u64| {
        if (number + 1).is_multiple_of(one_in) {
            let jobs = spawned.clone();
            let job = side.spawn_with(Builder::new().priority(JOB_PRIORITY), move || jobs.run());
            drop(job.expect("the pool is open"));
        }
    };

    let in_flight = u64::from(in_flight);
    let load = Load {
        packets: count,
        spawners: 1,
        handlers_copy: false,
        delay: Delay::None,
        in_flight,
    };

    let began = Instant::now();
    let outcome = packets.call(|| shim::ready(burst::<Fibers>(load, workers, bring)))??;
    let wanted = count / one_in;
    // Packets are done before the jobs that they brought.
    for _ in 0..wanted {
        jobs.ended.acquire()?.forget();
    }
    let done = jobs.done.load(Relaxed);

    ensure!(done == wanted, "{done} of {wanted} jobs were done");
    let last = *jobs.last.lock().unwrap_or_else(PoisonError::into_inner);
    let side_per_s = last.map(|last| wanted as f64 / (last - began).as_secs_f64());

    Ok(Done {
        packets: outcome,
        side_per_s,
    })
}
