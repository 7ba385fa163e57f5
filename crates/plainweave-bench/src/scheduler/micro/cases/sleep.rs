//! Sleeping workers: how long one takes to wake, and that it costs nothing while it sleeps.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::ensure;
use plainweave::Runtime;
use rustix::thread::futex;

use super::super::repetition::{Figure, Size};
use crate::harness::machine::cpu_ns;

/// What waker and sleeper share: when the one woke the other, and how long that took.
struct Bed {
    epoch: Instant,
    woken_at: AtomicU64,
    /// Nanoseconds, 0 until the sleeper runs.
    took: AtomicU64,
    end: AtomicBool,
}

impl Bed {
    fn new() -> Arc<Self> {
        let woken_at = AtomicU64::new(0);
        let took = AtomicU64::new(0);
        let end = AtomicBool::new(false);
        Arc::new(Self {
            epoch: Instant::now(),
            woken_at,
            took,
            end,
        })
    }

    fn now(&self) -> u64 {
        self.epoch.elapsed().as_nanos() as u64
    }

    /// The sleeper, as soon as it runs.
    fn awake(&self) {
        let took = self.now() - self.woken_at.load(Ordering::Acquire);
        self.took.store(took.max(1), Ordering::Release);
    }

    /// Lets the sleeper fall asleep, wakes it, and returns how long it took until it ran.
    fn wake(&self, wake: impl Fn()) -> f64 {
        std::thread::sleep(Duration::from_micros(300));
        self.took.store(0, Ordering::Relaxed);
        self.woken_at.store(self.now(), Ordering::Release);
        wake();

        loop {
            match self.took.load(Ordering::Acquire) {
                0 => std::hint::spin_loop(),
                took => return took as f64,
            }
        }
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// In turns: a fiber whose worker sleeps in its driver, and a thread in a bare futex.
pub(in crate::scheduler::micro) fn wake_sleeper(
    runtime: &Runtime,
    size: &Size,
) -> anyhow::Result<Vec<Figure>> {
    let turns = ((size.seconds * 1000.0) as usize).max(20);
    let ours = Bed::new();
    let theirs = Bed::new();
    let word = Arc::new(AtomicU32::new(0));
    let bed = theirs.clone();
    let flag = word.clone();
    let sleeper = std::thread::spawn(move || {
        let mut seen = 0;
        while !bed.end.load(Ordering::Acquire) {
            // An error is a word that has changed already.
            let _ = futex::wait(&flag, futex::Flags::PRIVATE, seen, None);
            let now = flag.load(Ordering::Acquire);
            if now != seen {
                seen = now;
                bed.awake();
            }
        }
    });

    let bed = ours.clone();
    let fiber = runtime.spawn(move || {
        while !bed.end.load(Ordering::Acquire) {
            plainweave::park().expect("not cancelled");
            bed.awake();
        }
    });

    let handle = fiber.fiber();
    let wake_thread = || {
        word.fetch_add(1, Ordering::Release);
        let _ = futex::wake(&word, futex::Flags::PRIVATE, 1);
    };

    let slept = runtime.metrics().sleeps;
    let (fibers, futexes): (Vec<_>, Vec<_>) = (0..turns)
        .map(|_| (ours.wake(|| handle.unpark()), theirs.wake(wake_thread)))
        .unzip();
    let slept = runtime.metrics().sleeps - slept;
    [&ours, &theirs]
        .into_iter()
        .for_each(|bed| bed.end.store(true, Ordering::Release));
    handle.unpark();
    wake_thread();
    fiber.join()?;
    sleeper
        .join()
        .map_err(|_| anyhow::anyhow!("the sleeping thread panicked"))?;
    ensure!(
        slept as usize >= turns * 9 / 10,
        "the worker slept {slept} times in {turns} turns"
    );
    let fiber = median(fibers);
    let futex = median(futexes);

    Ok(vec![
        Figure::new("wake_ns", fiber),
        Figure::new("futex_wake_ns", futex),
        Figure::new("ratio_to_futex", fiber / futex),
    ])
}

/// A runtime that has worked and has nothing left to do.
pub(in crate::scheduler::micro) fn idle(
    runtime: &Runtime,
    size: &Size,
) -> anyhow::Result<Vec<Figure>> {
    runtime.scope(|scope| (0..100).for_each(|_| drop(scope.spawn(plainweave::yield_now))));
    // Stacks that are no longer used are trimmed within half a second; a short repetition does not
    // wait for it.
    std::thread::sleep(Duration::from_secs_f64((3.0 * size.seconds).min(0.7)));
    let before = cpu_ns(std::process::id())?;
    let sleeps = runtime.metrics().sleeps;
    let started = Instant::now();

    std::thread::sleep(Duration::from_secs_f64(size.seconds.max(0.2)));
    let cpu =
        (cpu_ns(std::process::id())? - before) as f64 / 1000.0 / started.elapsed().as_secs_f64();
    let woke = (runtime.metrics().sleeps - sleeps) as f64;

    Ok(vec![
        Figure::new("cpu_us_per_s", cpu),
        Figure::new("times_woken", woke),
    ])
}
