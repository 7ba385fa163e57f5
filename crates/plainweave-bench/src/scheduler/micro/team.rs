//! A team of threads that do the same until the time is over, and what is asked of their counts.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use anyhow::ensure;
use hdrhistogram::Histogram;

use super::repetition::{Figure, Size};
use crate::scheduler::shim::Shim;

/// What the members share.
pub(super) struct Team<S: Shim> {
    started: AtomicUsize,
    members: usize,
    /// Operations that each member does at least; none are enough if a time ends the run.
    goal: u64,
    /// Members that have not done as many yet.
    short: AtomicUsize,
    stop: AtomicBool,
    over: OnceLock<Instant>,
    logs: Mutex<Vec<(usize, Log)>>,
    main: S::Signal,
    /// Members wait here until all have begun. Not by yielding: on one of the systems those that
    /// yield keep those from running that have not begun. Nor by their signals, which the first to
    /// begin may already have used.
    gate: S::Semaphore,
}

/// What one member did.
pub(super) struct Log {
    pub(super) n: u64,
    /// Operations that had to wait.
    pub(super) blocked: u64,
    /// Waits that ended on another worker than they began on.
    pub(super) moved: u64,
    /// Operations on data that another worker wrote last.
    pub(super) fetched: u64,
    /// Nanoseconds from being ready to running.
    delays: Option<Histogram<u64>>,
    last: Instant,
}

impl Log {
    fn new(clocked: bool) -> Self {
        let delays = clocked
            .then(|| Histogram::new_with_bounds(1, 60_000_000_000, 2).expect("valid bounds"));
        Self {
            n: 0,
            blocked: 0,
            moved: 0,
            fetched: 0,
            delays,
            last: Instant::now(),
        }
    }

    pub(super) fn clocked(&self) -> bool {
        self.delays.is_some()
    }

    /// Returns the time, if it matters.
    #[inline]
    pub(super) fn now(&self) -> Option<Instant> {
        self.clocked().then(Instant::now)
    }

    /// An operation is done; the member was ready since then.
    #[inline]
    pub(super) fn ran(&mut self, since: Option<Instant>) {
        self.n += 1;
        if let Some(delays) = &mut self.delays {
            let now = Instant::now();
            if let Some(since) = since {
                delays.saturating_record(now.saturating_duration_since(since).as_nanos() as u64);
            }
            self.last = now;
        }
    }
}

impl<S: Shim> Team<S> {
    /// Starts `members` threads, lets them run until the time is over or each has done its
    /// iterations, and returns their logs in order, with the time it took. Those that are done go
    /// on until all are: others may need them. `sweep` wakes threads that still wait when the time
    /// is over; it is called until all have ended. With `clocked` the delay of each operation is
    /// measured, which costs more than some operations do.
    pub(super) async fn run<F: Future<Output = Log> + Send + 'static>(
        members: usize,
        size: &Size,
        body: impl Fn(usize, Arc<Self>, Log) -> F,
        sweep: impl Fn() + Send,
    ) -> anyhow::Result<(Vec<Log>, Duration)> {
        let team = Arc::new(Team {
            started: AtomicUsize::new(0),
            members,
            goal: size.shape.iterations.unwrap_or(u64::MAX),
            short: AtomicUsize::new(members),
            stop: AtomicBool::new(false),
            over: OnceLock::new(),
            logs: Mutex::default(),
            main: S::signal(),
            gate: S::semaphore(),
        });

        let mut joins = Vec::with_capacity(members);
        for i in 0..members {
            let member = body(i, team.clone(), Log::new(size.clocked));
            let team = team.clone();
            joins.push(S::spawn(async move {
                let log = member.await;
                team.logs.lock().expect("no panic").push((i, log));
            }));
        }

        while team.started.load(Ordering::Acquire) < members {
            S::wait(&team.main).await;
        }
        let begun = Instant::now();
        if size.shape.iterations.is_none() {
            let timer = team.clone();
            let seconds = size.seconds;
            std::thread::spawn(move || {
                std::thread::sleep(Duration::from_secs_f64(seconds));
                timer.end();
            });
        }

        (0..members).for_each(|_| S::release(&team.gate));
        while !team.stopped() {
            S::wait(&team.main).await;
        }
        while team.logs.lock().expect("no panic").len() < members {
            sweep();
            S::yield_now().await;
        }

        for join in joins {
            S::join(join).await;
        }
        let over = *team.over.get().expect("set before the end");
        let mut logs = std::mem::take(&mut *team.logs.lock().expect("no panic"));
        logs.sort_unstable_by_key(|(i, _)| *i);
        ensure!(
            logs.len() == members,
            "{} of {members} threads have ended",
            logs.len()
        );

        Ok((logs.into_iter().map(|(_, log)| log).collect(), over - begun))
    }

    /// A member, before it begins: all begin at once.
    pub(super) async fn begin(&self) {
        self.arrive();
        S::acquire(&self.gate).await;
    }

    /// A member that begins by waiting for another, just before it does.
    pub(super) fn arrive(&self) {
        if self.started.fetch_add(1, Ordering::AcqRel) + 1 == self.members {
            S::notify(&self.main);
        }
    }

    /// Returns whether the member with this log does another operation. It asks once for each.
    #[inline]
    pub(super) fn goes_on(&self, log: &Log) -> bool {
        if log.n == self.goal && self.short.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.end();
        }
        !self.stopped()
    }

    #[inline]
    pub(super) fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Ends the run.
    pub(super) fn end(&self) {
        let _ = self.over.set(Instant::now());
        self.stop.store(true, Ordering::Release);
        S::notify(&self.main);
    }
}

/// The time was over before any thread of the team had run: the machine has other work.
#[derive(Debug)]
pub(super) struct NothingDone;

impl fmt::Display for NothingDone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("no thread has done anything")
    }
}

impl std::error::Error for NothingDone {}

/// Cost and fairness.
///
/// # Errors
/// [`NothingDone`].
pub(super) fn figures(
    logs: &[Log],
    elapsed: Duration,
    workers: usize,
) -> anyhow::Result<Vec<Figure>> {
    let n: Vec<f64> = logs.iter().map(|log| log.n as f64).collect();
    let (sum, squares): (f64, f64) = (n.iter().sum(), n.iter().map(|n| n * n).sum());
    ensure!(sum > 0.0, NothingDone);
    let ns = elapsed.as_nanos() as f64 / sum;
    let (least, most) = n.iter().fold((f64::MAX, 0.0_f64), |(least, most), n| {
        (least.min(*n), most.max(*n))
    });
    let mut figures = vec![
        Figure::new("ns_per_op", ns),
        Figure::new("ns_per_op_per_worker", ns * workers as f64),
        Figure::new("ops", sum),
        Figure::new("jain", sum * sum / (n.len() as f64 * squares)),
        Figure::new("max_over_min", most / least.max(1.0)),
    ];

    let clocked: Vec<_> = logs.iter().filter_map(|log| log.delays.as_ref()).collect();
    if let Some((first, rest)) = clocked.split_first() {
        let mut all = (*first).clone();
        rest.iter().try_for_each(|more| all.add(*more))?;
        let end = logs.iter().map(|log| log.last).max().expect("not empty");
        let oldest = logs
            .iter()
            .map(|log| end.duration_since(log.last))
            .max()
            .expect("not empty");
        figures = vec![Figure::new("oldest_waiter_ns", oldest.as_nanos() as f64)];

        if !all.is_empty() {
            figures.push(Figure::new(
                "delay_p999_ns",
                all.value_at_quantile(0.999) as f64,
            ));
            figures.push(Figure::new("delay_max_ns", all.max() as f64));
        }

        let blocked: u64 = logs.iter().map(|log| log.blocked).sum();
        if blocked > 0 {
            figures.push(Figure::new("blocks_per_op", blocked as f64 / sum));
        }
    }

    Ok(figures)
}
