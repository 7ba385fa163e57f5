//! A repetition: its job, what came out, and two threads that begin together.

use std::time::Instant;

use anyhow::{Context, bail, ensure};

use crate::harness::machine;

/// What a repetition is to do.
pub(super) struct Job {
    pub(super) system: String,
    pub(super) threads: usize,
    pub(super) items: u64,
}

impl Job {
    pub(super) fn unknown<T>(&self) -> anyhow::Result<T> {
        bail!("no system is called '{}' here", self.system)
    }
}

/// What came out.
#[derive(Clone, Copy, Default)]
pub(super) struct Tally {
    pub(super) count: u64,
    sum: u64,
    squares: u64,
}

impl Tally {
    #[inline]
    pub(super) fn add(&mut self, item: u64) {
        self.count += 1;
        self.sum = self.sum.wrapping_add(item);
        self.squares = self.squares.wrapping_add(item.wrapping_mul(item));
    }

    pub(super) fn of(items: impl IntoIterator<Item = u64>) -> Self {
        let mut tally = Self::default();
        items.into_iter().for_each(|item| tally.add(item));
        tally
    }

    pub(super) fn and(self, other: Self) -> Self {
        Self {
            count: self.count + other.count,
            sum: self.sum.wrapping_add(other.sum),
            squares: self.squares.wrapping_add(other.squares),
        }
    }

    /// Fails unless each of `1..=items` came out once.
    pub(super) fn check(self, items: u64) -> anyhow::Result<()> {
        let wanted = Self::of(1..=items);
        let right =
            (self.count, self.sum, self.squares) == (wanted.count, wanted.sum, wanted.squares);
        ensure!(
            right,
            "{} of {items} items came out, or not the right ones",
            self.count
        );
        Ok(())
    }
}

/// Waits a little, longer from the 100th turn on.
pub(super) fn wait(turns: &mut u32) {
    *turns += 1;
    if *turns < 100 {
        std::hint::spin_loop()
    } else {
        std::thread::yield_now()
    }
}

/// Runs a body with its number on each of many threads that begin together; the time from there to
/// the end of all.
pub(super) fn crowd(
    threads: usize,
    body: impl Fn(usize) -> Tally + Sync,
) -> anyhow::Result<(f64, Tally)> {
    let barrier = std::sync::Barrier::new(threads + 1);
    let cpus = machine::cpus();
    std::thread::scope(|scope| {
        let barrier = &barrier;
        let body = &body;
        let thread = |number| {
            scope.spawn(move || {
                machine::pin_to(number % cpus);
                barrier.wait();
                body(number)
            })
        };

        let threads: Vec<_> = (0..threads).map(thread).collect();
        barrier.wait();
        let start = Instant::now();
        let mut all = Tally::default();
        for thread in threads {
            all = all.and(thread.join().ok().context("a thread panicked")?);
        }
        Ok((start.elapsed().as_nanos() as f64, all))
    })
}

/// Runs one body on each of two threads that begin together; the time from there to the end of
/// both.
pub(super) fn two<A: Send, B: Send>(
    first: impl FnOnce() -> A + Send,
    second: impl FnOnce() -> B + Send,
) -> anyhow::Result<(f64, A, B)> {
    let barrier = std::sync::Barrier::new(2);
    std::thread::scope(|scope| {
        let barrier = &barrier;
        let second = scope.spawn(move || {
            machine::pin_to(1);
            barrier.wait();
            second()
        });
        let first = scope.spawn(move || {
            machine::pin_to(0);
            barrier.wait();
            let start = Instant::now();
            (start, first())
        });
        let (start, a) = first.join().ok().context("a thread panicked")?;
        let b = second.join().ok().context("a thread panicked")?;
        Ok((start.elapsed().as_nanos() as f64, a, b))
    })
}
