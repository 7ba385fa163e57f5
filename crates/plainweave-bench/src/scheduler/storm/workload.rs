//! The workload: a worker with fibers that wait under one deadline, and others beside them.

use std::io::{self, ErrorKind, Read, Write as _};
use std::net::{TcpListener, TcpStream as OsStream};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use clap::{Args, ValueEnum, value_parser};
use plainweave::net::TcpStream;
use plainweave::sync::channel::{self, Receiver, Sender};
use plainweave::{Io, Runtime, scope, time};

use crate::harness::machine;
use crate::harness::mode::Mode;
use crate::harness::report;

/// One storm.
#[derive(Args, Debug)]
pub(crate) struct ChildFlags {
    case: Case,
    #[arg(long)]
    policy: String,
    #[arg(long)]
    mode: String,
    #[command(flatten)]
    pub(super) size: Size,
}

/// What the fibers of a storm wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Case {
    /// They sleep.
    Sleep,
    /// They receive from a channel.
    Channel,
    /// They read from a connection each, on epoll.
    ReadEpoll,
    /// The same on io_uring.
    ReadUring,
}

impl Case {
    pub(super) fn name(self) -> &'static str {
        match self {
            Case::Sleep => "sleep",
            Case::Channel => "channel",
            Case::ReadEpoll => "read-epoll",
            Case::ReadUring => "read-uring",
        }
    }

    pub(super) fn reads(self) -> bool {
        matches!(self, Case::ReadEpoll | Case::ReadUring)
    }

    fn io(self) -> Io {
        if self == Case::ReadUring {
            Io::Uring
        } else {
            Io::Epoll
        }
    }
}

/// How large it is.
#[derive(Args, Clone, Debug)]
pub(crate) struct Size {
    /// Fibers with the deadline that sleep or receive
    #[arg(long, value_name = "N", default_value_t = 100_000, value_parser = value_parser!(u32).range(1..=1_000_000))]
    pub(super) fibers: u32,

    /// Fibers with the deadline that read, each from a connection of its own
    #[arg(long, value_name = "N", default_value_t = 2000, value_parser = value_parser!(u32).range(1..=100_000))]
    pub(super) connections: u32,

    /// Fibers beside them: half of them yield, half pass messages on in pairs
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = value_parser!(u32).range(4..=10_000))]
    pub(super) others: u32,

    /// Milliseconds in which all fibers of the storm must have begun to wait
    #[arg(long, value_name = "MS", default_value_t = 4000, value_parser = value_parser!(u64).range(1..=600_000))]
    pub(super) settle: u64,

    /// Milliseconds for which the others' throughput is measured, before and afterwards
    #[arg(long, value_name = "MS", default_value_t = 500, value_parser = value_parser!(u64).range(1..=60_000))]
    pub(super) window: u64,
}

/// How long memory may take to return.
const RETURN: Duration = Duration::from_secs(3);
const LONG: Duration = Duration::from_secs(1000);

/// What the fibers share.
struct Shared {
    /// What the others have done: yields, and messages that arrived.
    work: AtomicU64,
    waiting: AtomicUsize,
    ended: AtomicUsize,
    wrong: AtomicUsize,
    /// When the first fiber of the storm ended, and when the last one did.
    first: OnceLock<Mark>,
    last: OnceLock<Mark>,
    over: AtomicBool,
}

/// A moment of the run.
#[derive(Clone, Copy, Debug)]
struct Mark {
    at: Instant,
    work: u64,
    cpu: Duration,
}

impl Shared {
    /// Context: the worker, whose CPU time this reads.
    fn mark(&self) -> Mark {
        let cpu = machine::thread_cpu_time();
        Mark {
            at: Instant::now(),
            work: self.work.load(Relaxed),
            cpu,
        }
    }

    /// A fiber of the storm ends; `right` says whether as it should.
    fn end(&self, number: u32, right: bool) {
        self.wrong.fetch_add(usize::from(!right), Relaxed);
        let ended = self.ended.fetch_add(1, Relaxed) + 1;
        // The place is drawn by one addition, so exactly one fiber finds itself first, and one
        // last.
        for (place, mark) in [(1, &self.first), (number as usize, &self.last)] {
            if ended == place {
                mark.get_or_init(|| self.mark());
            }
        }
    }
}

/// Returns the others' operations between two moments for each second of the worker's CPU time. The
/// worker is never idle, so on a quiet machine that is a second; on another one, what other
/// programs take does not count.
fn rate(from: Mark, to: Mark) -> f64 {
    (to.work - from.work) as f64 / (to.cpu - from.cpu).as_secs_f64()
}

/// Runs the child, and prints its figures.
pub(crate) fn run_child(flags: &ChildFlags) -> anyhow::Result<()> {
    // One worker and no spare one: another would take the work that is counted meanwhile.
    let builder = Mode::parse(&flags.mode)?
        .builder()
        .workers(1)
        .max_workers(1);
    let runtime = builder
        .policy(&*flags.policy)
        .io(flags.case.io())
        .max_fibers(2_000_000)
        .build()?;
    let shared = Shared {
        work: AtomicU64::new(0),
        waiting: AtomicUsize::new(0),
        ended: AtomicUsize::new(0),
        wrong: AtomicUsize::new(0),
        first: OnceLock::new(),
        last: OnceLock::new(),
        over: AtomicBool::new(false),
    };

    let figures = std::thread::scope(|threads| {
        let others = threads.spawn(|| runtime.run(|| others(&shared, flags.size.others)));
        let figures = measure(&runtime, &shared, flags);
        // Also when measuring has failed: the others would go on for ever.
        shared.over.store(true, Relaxed);
        others.join().ok().context("a fiber panicked")?;
        figures
    })?;
    figures
        .iter()
        .for_each(|(metric, value)| report::say(&format!("{metric} {value}")));
    Ok(())
}

/// The fibers beside a storm, until it is over.
fn others(shared: &Shared, number: u32) {
    scope(|s| {
        for _ in 0..number / 2 {
            s.spawn(|| {
                while !shared.over.load(Relaxed) {
                    plainweave::yield_now();
                    shared.work.fetch_add(1, Relaxed);
                }
            });
        }

        // Pairs that wait for each other, beside those that are always ready.
        for _ in 0..number / 4 {
            let to = channel::bounded(1);
            let from = channel::bounded(1);
            let there = (from.0, to.1);
            let back = (to.0, from.1);
            s.spawn(move || pass_on(shared, &there.0, &there.1));
            s.spawn(move || {
                if back.0.send(0).is_ok() {
                    pass_on(shared, &back.0, &back.1);
                }
            });
        }
    });
}

/// Sends back what it receives, until the storm is over.
fn pass_on(shared: &Shared, to: &Sender<u64>, from: &Receiver<u64>) {
    while let Ok(message) = from.recv() {
        shared.work.fetch_add(1, Relaxed);
        if shared.over.load(Relaxed) || to.send(message + 1).is_err() {
            return;
        }
    }
}

/// Starts the storm, and looks at the clock before, during and after it.
fn measure(
    runtime: &Runtime,
    shared: &Shared,
    flags: &ChildFlags,
) -> anyhow::Result<Vec<(&'static str, f64)>> {
    let window = Duration::from_millis(flags.size.window);
    let number = if flags.case.reads() {
        flags.size.connections
    } else {
        flags.size.fibers
    };

    let connections = if flags.case.reads() {
        connections(number)?
    } else {
        Vec::new()
    };

    std::thread::sleep(window);
    let resident = || machine::status_bytes("VmRSS") / 1e6;
    // With the connections and the others: what the fibers take is what comes on top.
    let before_mb = resident();
    // Long enough that all fibers wait when it comes; whether they did is checked.
    let deadline = Instant::now() + Duration::from_millis(flags.size.settle) + window;
    let (waiting_mb, before) = std::thread::scope(|threads| {
        let storm = threads.spawn(|| {
            runtime.run(|| {
                time::with_deadline(deadline, || {
                    storm(shared, flags.case, deadline, number, &connections)
                })
            });
        });

        sleep_until(deadline - window);
        let waiting = shared.waiting.load(Relaxed);
        ensure!(
            waiting == number as usize,
            "only {waiting} of {number} fibers wait: raise --settle"
        );
        let marks = (resident(), runtime.run(|| shared.mark()));
        storm.join().ok().context("a fiber panicked")?;
        Ok(marks)
    })?;
    let ended = shared.ended.load(Relaxed);
    let wrong = shared.wrong.load(Relaxed);

    ensure!(
        ended == number as usize && wrong == 0,
        "{ended} of {number} fibers ended, {wrong} of them wrongly"
    );
    let first = *shared.first.get().context("none ended")?;
    let last = *shared.last.get().context("not all ended")?;
    ensure!(
        before.at < first.at,
        "the machine is too busy: nothing was measured before the deadline"
    );
    std::thread::sleep(window);
    let after = runtime.run(|| shared.mark());
    let mut after_mb = resident();
    let returned = Instant::now() + RETURN;

    while after_mb > before_mb && Instant::now() < returned {
        std::thread::sleep(Duration::from_millis(20));
        after_mb = after_mb.min(resident());
    }

    Ok(vec![
        ("others_before", rate(before, first)),
        ("others_during", rate(first, last)),
        ("others_after", rate(last, after)),
        ("during_to_before", rate(first, last) / rate(before, first)),
        ("worker_cpu_ms", (last.cpu - first.cpu).as_secs_f64() * 1e3),
        ("all_ended_ms", (last.at - deadline).as_secs_f64() * 1e3),
        ("memory_before_mb", before_mb),
        ("memory_waiting_mb", waiting_mb),
        ("memory_after_mb", after_mb),
        (
            "memory_returned",
            (waiting_mb - after_mb) / (waiting_mb - before_mb).max(0.001),
        ),
    ])
}

fn sleep_until(time: Instant) {
    std::thread::sleep(time.saturating_duration_since(Instant::now()));
}

/// The fibers of a storm, in a scope under the deadline.
fn storm(
    shared: &Shared,
    case: Case,
    deadline: Instant,
    number: u32,
    connections: &[(TcpStream, OsStream)],
) {
    // A sender that nobody uses: the channel must not end before the deadline.
    let (_sender, receiver) = channel::bounded::<u8>(1);
    scope(|s| {
        for n in 0..number as usize {
            let receiver = &receiver;
            let connection = connections.get(n);
            s.spawn(move || {
                shared.waiting.fetch_add(1, Relaxed);
                let late = match case {
                    Case::Sleep => time::sleep(LONG).is_err_and(timed_out),
                    Case::Channel => receiver.recv().is_err_and(|error| error.is_timed_out()),
                    Case::ReadEpoll | Case::ReadUring => connection
                        .is_some_and(|(ours, _)| (&*ours).read(&mut [0; 8]).is_err_and(timed_out)),
                };
                // One that ends too early is wrong as well.
                shared.end(number, late && Instant::now() >= deadline);
            });
        }
    });
}

fn timed_out(error: io::Error) -> bool {
    error.kind() == ErrorKind::TimedOut
}

/// Opens connections to itself, and sends something through each, so that they are known to work.
fn connections(number: u32) -> anyhow::Result<Vec<(TcpStream, OsStream)>> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    let pair = || {
        let mut theirs = OsStream::connect(address)?;
        let (mut ours, _) = listener.accept()?;
        // A byte there, so that both ends know of the connection.
        theirs.write_all(b"!")?;
        ours.read_exact(&mut [0])?;
        Ok((TcpStream::from_std(ours)?, theirs))
    };

    (0..number)
        .map(|_| pair())
        .collect::<io::Result<_>>()
        .context("cannot open the connections")
}
