//! Yield and Cycle: what it costs to give way, and to wake and be woken.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::ensure;
use crossbeam_utils::CachePadded;

use super::super::repetition::{Figure, Size};
use super::super::team::{self, Team};
use crate::scheduler::shim::Shim;

/// `yield(); n++`.
pub(super) async fn yields<S: Shim>(size: &Size) -> anyhow::Result<Vec<Figure>> {
    let body = |_, team: Arc<Team<S>>, mut log: team::Log| async move {
        team.begin().await;
        while team.goes_on(&log) {
            let ready = log.now();
            S::yield_now().await;
            log.ran(ready);
        }
        log
    };

    let (logs, elapsed) = Team::run(size.shape.threads, size, body, || ()).await?;
    team::figures(&logs, elapsed, size.workers)
}

/// Yields a million times, or as often as it is asked to, from the only thread.
pub(super) async fn alone<S: Shim>(size: &Size) -> anyhow::Result<Vec<Figure>> {
    let n = size.shape.iterations.unwrap_or(1_000_000);
    let started = Instant::now();
    for _ in 0..n {
        S::yield_now().await;
    }
    let ns = started.elapsed().as_nanos() as f64;

    Ok(vec![
        Figure::new("ns_per_op", ns / n as f64),
        Figure::new("ops", n as f64),
    ])
}

/// The threads' signals by number, each known when its thread has begun; and when each was last
/// notified.
pub(super) struct Signals<S: Shim> {
    signals: Box<[CachePadded<std::sync::OnceLock<S::Signal>>]>,
    notified: Box<[CachePadded<AtomicU64>]>,
    epoch: Instant,
    clocked: bool,
}

impl<S: Shim> Signals<S> {
    pub(super) fn new(threads: usize, clocked: bool) -> Arc<Self> {
        let signals = (0..threads).map(|_| CachePadded::default()).collect();
        let notified = (0..threads).map(|_| CachePadded::default()).collect();
        Arc::new(Self {
            signals,
            notified,
            epoch: Instant::now(),
            clocked,
        })
    }

    /// Thread `i`, at its beginning.
    pub(super) fn register(&self, i: usize) {
        assert!(
            self.signals[i].set(S::signal()).is_ok(),
            "thread {i} has a signal already"
        );
    }

    #[inline]
    pub(super) fn notify(&self, i: usize) {
        if self.clocked {
            self.notified[i].store(self.epoch.elapsed().as_nanos() as u64, Ordering::Relaxed);
        }
        if let Some(signal) = self.signals[i].get() {
            S::notify(signal);
        }
    }

    /// Thread `i`.
    #[inline]
    pub(super) fn wait(&self, i: usize) -> impl Future<Output = ()> + Send {
        S::wait(self.signals[i].get().expect("registered at its beginning"))
    }

    /// Thread `i`, after a wait: when it was notified.
    #[inline]
    pub(super) fn since(&self, i: usize) -> Option<Instant> {
        self.clocked
            .then(|| self.epoch + Duration::from_nanos(self.notified[i].load(Ordering::Relaxed)))
    }
}

/// `wait(self); post(next); n++`, in rings.
pub(super) async fn cycle<S: Shim>(size: &Size) -> anyhow::Result<Vec<Figure>> {
    let ring = size.shape.threads;
    let threads = size.shape.threads * size.shape.rings;
    let signals = Signals::<S>::new(threads, size.clocked);
    let shared = signals.clone();
    let body = move |i: usize, team: Arc<Team<S>>, mut log: team::Log| {
        let signals = shared.clone();
        async move {
            signals.register(i);
            team.begin().await;
            let next = i / ring * ring + (i + 1) % ring;
            if i.is_multiple_of(ring) {
                // The ring's token.
                signals.notify(i);
            }

            loop {
                signals.wait(i).await;
                log.ran(signals.since(i));
                // Asked while the token is here: after passing it on, a thread could end with the
                // next round's in hand. So it goes round once more, and each that passes it on
                // ends.
                let last = !team.goes_on(&log);
                signals.notify(next);
                if last {
                    return log;
                }
            }
        }
    };

    let (logs, elapsed) = Team::run(threads, size, body, || ()).await?;
    for members in logs.chunks(ring) {
        let n = || members.iter().map(|log| log.n);
        let least = n().min().unwrap_or(0);
        let most = n().max().unwrap_or(0);
        ensure!(
            most - least <= 1,
            "a ring's token was seen {least} to {most} times: it was lost or doubled"
        );
    }

    team::figures(&logs, elapsed, size.workers)
}
