//! A channel each way, and locks.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use anyhow::ensure;

use super::super::repetition::{Figure, Size};
use super::super::team::{self, Team};
use crate::scheduler::shim::Shim;

/// A number goes there and comes back.
pub(super) async fn ping_pong<S: Shim>(size: &Size) -> anyhow::Result<Vec<Figure>> {
    let (mut there, mut come) = S::channel();
    let (mut back, mut returned) = S::channel();
    let other = S::spawn(async move {
        while let Some(n) = S::receive(&mut come).await {
            if !S::send(&mut back, n + 1).await {
                return;
            }
        }
    });

    let mut n = 0_u64;
    let started = Instant::now();
    // The clock is read every thousand.
    while (size.shape.iterations.is_none() && !n.is_multiple_of(1000)) || !size.is_over(n, started)
    {
        ensure!(S::send(&mut there, n).await, "the other end is gone");
        let answer = S::receive(&mut returned).await;
        ensure!(answer == Some(n + 1), "{n} came back as {answer:?}");
        n += 1;
    }
    let ns = started.elapsed().as_nanos() as f64;

    drop(there);
    S::join(other).await;

    Ok(vec![
        Figure::new("ns_per_op", ns / n as f64),
        Figure::new("ops", n as f64),
    ])
}

/// `lock(); total++; unlock(); yield()`.
pub(super) async fn mutex<S: Shim>(size: &Size) -> anyhow::Result<Vec<Figure>> {
    let lock = Arc::new(S::lock());
    let shared = lock.clone();
    let body = move |_: usize, team: Arc<Team<S>>, mut log: team::Log| {
        let lock = shared.clone();
        async move {
            team.begin().await;
            while team.goes_on(&log) {
                let ready = log.now();
                S::add(&lock).await;
                S::yield_now().await;
                log.ran(ready);
            }
            log
        }
    };

    let (logs, elapsed) = Team::run(size.shape.threads, size, body, || ()).await?;
    let added = logs.iter().map(|log| log.n).sum::<u64>();
    let total = S::total(&lock).await;
    ensure!(
        added == total,
        "{added} were added under the lock, and it has {total}"
    );

    team::figures(&logs, elapsed, size.workers)
}

/// Of this many operations on a readers-writer lock one writes.
const WRITES: u64 = 20;

/// `read()` or `write()`, `yield()`.
pub(super) async fn rw_lock<S: Shim>(size: &Size) -> anyhow::Result<Vec<Figure>> {
    let lock = Arc::new(S::rw_lock());
    let torn = Arc::new(AtomicBool::new(false));
    let shared = (lock.clone(), torn.clone());
    let body = move |i: usize, team: Arc<Team<S>>, mut log: team::Log| {
        let (lock, torn) = shared.clone();
        async move {
            team.begin().await;
            while team.goes_on(&log) {
                let ready = log.now();
                if (log.n + i as u64).is_multiple_of(WRITES) {
                    S::write(&lock).await;
                } else {
                    let [first, second] = S::read(&lock).await;
                    if first != second {
                        torn.store(true, Ordering::Relaxed);
                    }
                }

                S::yield_now().await;
                log.ran(ready);
            }
            log
        }
    };

    let (logs, elapsed) = Team::run(size.shape.threads, size, body, || ()).await?;
    ensure!(
        !torn.load(Ordering::Relaxed),
        "somebody read while somebody wrote"
    );
    // Thread `i` counts from `i`.
    let writes = |(i, log): (usize, &team::Log)| {
        (i as u64 + log.n).div_ceil(WRITES) - (i as u64).div_ceil(WRITES)
    };
    let written = logs.iter().enumerate().map(writes).sum::<u64>();
    let total = S::read(&lock).await;
    ensure!(
        total == [written; 2],
        "{written} were added under the lock, and it has {total:?}"
    );

    team::figures(&logs, elapsed, size.workers)
}
