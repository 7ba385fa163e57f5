//! Yield and Cycle: what it costs to give way, and to wake and be woken.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::ensure;
use crossbeam_utils::CachePadded;

use super::super::repetition::{Figure, Size};
use super::super::shim::Shim;
use super::super::team::{self, Team};

/// `yield(); n++`.
pub(super) async fn yields<S: Shim>(threads: usize, size: &Size) -> anyhow::Result<Vec<Figure>> {
    let body = |_, team: Arc<Team<S>>, mut log: team::Log| async move {
        team.begin().await;
        while !team.stopped() {
            let ready = log.now();
            S::yield_now().await;
            log.ran(ready);
        }
        log
    };
    let (logs, elapsed) = Team::run(threads, size.seconds, size.clocked, body, || ()).await?;
    team::figures(&logs, elapsed, size.workers)
}

/// A million yields of the only thread.
pub(super) async fn alone<S: Shim>() -> anyhow::Result<Vec<Figure>> {
    const N: u32 = 1_000_000;
    let started = Instant::now();
    for _ in 0..N {
        S::yield_now().await;
    }
    let ns = started.elapsed().as_nanos() as f64;
    Ok(vec![Figure::new("ns_per_op", ns / f64::from(N)), Figure::new("ops", f64::from(N))])
}

/// The threads' bells by number, each known when its thread has begun; and when each was last rung.
pub(super) struct Bells<S: Shim> {
    bells: Box<[CachePadded<std::sync::OnceLock<S::Bell>>]>,
    rung: Box<[CachePadded<AtomicU64>]>,
    epoch: Instant,
    clocked: bool,
}

impl<S: Shim> Bells<S> {
    pub(super) fn new(threads: usize, clocked: bool) -> Arc<Self> {
        let bells = (0..threads).map(|_| CachePadded::default()).collect();
        let rung = (0..threads).map(|_| CachePadded::default()).collect();
        Arc::new(Self { bells, rung, epoch: Instant::now(), clocked })
    }

    /// Thread `i`, at its beginning.
    pub(super) fn hang(&self, i: usize) {
        assert!(self.bells[i].set(S::bell()).is_ok(), "thread {i} has a bell already");
    }

    #[inline]
    pub(super) fn ring(&self, i: usize) {
        if self.clocked {
            self.rung[i].store(self.epoch.elapsed().as_nanos() as u64, Ordering::Relaxed);
        }
        if let Some(bell) = self.bells[i].get() {
            S::ring(bell);
        }
    }

    /// Thread `i`.
    #[inline]
    pub(super) fn wait(&self, i: usize) -> impl Future<Output = ()> + Send {
        S::wait(self.bells[i].get().expect("hung at its beginning"))
    }

    /// Thread `i`, after a wait: when it was rung.
    #[inline]
    pub(super) fn since(&self, i: usize) -> Option<Instant> {
        self.clocked.then(|| self.epoch + Duration::from_nanos(self.rung[i].load(Ordering::Relaxed)))
    }
}

/// `wait(self); post(next); n++`: rings of five.
pub(super) async fn cycle<S: Shim>(rings: usize, size: &Size) -> anyhow::Result<Vec<Figure>> {
    const RING: usize = 5;
    let bells = Bells::<S>::new(rings * RING, size.clocked);
    let shared = bells.clone();
    let body = move |i: usize, team: Arc<Team<S>>, mut log: team::Log| {
        let bells = shared.clone();
        async move {
            bells.hang(i);
            team.begin().await;
            let next = i / RING * RING + (i + 1) % RING;
            if i.is_multiple_of(RING) {
                // The ring's token.
                bells.ring(i);
            }
            loop {
                bells.wait(i).await;
                log.ran(bells.since(i));
                // Asked while the token is here: who asked after passing it on could end with the next round's in hand.
                // So it goes round once more, and each that passes it on ends.
                let last = team.stopped();
                bells.ring(next);
                if last {
                    return log;
                }
            }
        }
    };
    let (logs, elapsed) = Team::run(rings * RING, size.seconds, size.clocked, body, || ()).await?;
    for ring in logs.chunks(RING) {
        let n = || ring.iter().map(|log| log.n);
        let (least, most) = (n().min().unwrap_or(0), n().max().unwrap_or(0));
        ensure!(most - least <= 1, "a ring's token was seen {least} to {most} times: it was lost or doubled");
    }
    team::figures(&logs, elapsed, size.workers)
}
