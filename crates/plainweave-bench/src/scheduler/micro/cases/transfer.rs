//! Transfer: a leader that does not give way, and must be seen by all others.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crossbeam_utils::CachePadded;
use hdrhistogram::Histogram;

use super::super::repetition::{Figure, Size};
use super::super::team::{self, Team};
use super::switch::Signals;
use crate::harness::random::Random;
use crate::scheduler::shim::Shim;

/// A leader that has waited this long will wait for ever: a thread behind it is not helped.
const STARVED: Duration = Duration::from_secs(5);

struct Stage {
    epoch: CachePadded<AtomicU64>,
    leader: CachePadded<AtomicUsize>,
    /// The epoch that each thread has seen.
    seen: Box<[CachePadded<AtomicU64>]>,
    starved: AtomicBool,
    /// Nanoseconds of each transfer. Only the leader writes.
    times: Mutex<Histogram<u64>>,
}

impl Stage {
    /// Waits as the leader until all have seen the epoch, without yielding. Returns `false` if they
    /// cannot.
    fn all_see(&self, epoch: u64) -> bool {
        let began = Instant::now();
        for seen in &self.seen {
            let mut turn = 0_u32;
            while seen.load(Ordering::Acquire) < epoch {
                std::hint::spin_loop();
                turn = turn.wrapping_add(1);
                if turn.is_multiple_of(1 << 12) && began.elapsed() > STARVED {
                    self.starved.store(true, Ordering::Relaxed);
                    return false;
                }
            }
        }

        let time = began.elapsed().as_nanos() as u64;
        // Fails if there is no memory for another bucket.
        let _ = self.times().record(time);
        true
    }

    fn times(&self) -> MutexGuard<'_, Histogram<u64>> {
        self.times.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Has a leader begin an epoch, wait for all to see it, and make a random thread the leader. Each
/// thread has its own random numbers for good. (In the published source each leader began them
/// again, so that one led for ever.)
pub(super) async fn transfer<S: Shim>(parking: bool, size: &Size) -> anyhow::Result<Vec<Figure>> {
    let threads = size.shape.threads;
    let goal = size.shape.iterations.unwrap_or(u64::MAX);
    let signals = Signals::<S>::new(threads, false);
    let stage = Arc::new(Stage {
        epoch: CachePadded::default(),
        leader: CachePadded::default(),
        seen: (0..threads).map(|_| CachePadded::default()).collect(),
        starved: AtomicBool::new(false),
        times: Mutex::new(Histogram::new(3)?),
    });

    let all_signals = signals.clone();
    let scene = stage.clone();
    let body = move |me: usize, team: Arc<Team<S>>, mut log: team::Log| {
        let signals = all_signals.clone();
        let stage = scene.clone();
        async move {
            let mut random = Random::new(me);
            signals.register(me);
            team.begin().await;

            while !team.stopped() && !stage.starved.load(Ordering::Relaxed) {
                if stage.leader.load(Ordering::Acquire) != me {
                    stage.seen[me].store(stage.epoch.load(Ordering::Acquire), Ordering::Release);
                    if parking {
                        signals.wait(me).await;
                    } else {
                        S::yield_now().await;
                    }
                    continue;
                }

                let epoch = stage.epoch.fetch_add(1, Ordering::AcqRel) + 1;
                stage.seen[me].store(epoch, Ordering::Release);
                if parking {
                    (0..threads)
                        .filter(|i| *i != me)
                        .for_each(|i| signals.notify(i));
                }

                if stage.all_see(epoch) {
                    log.n += 1;
                }
                if epoch == goal || stage.starved.load(Ordering::Relaxed) {
                    team.end();
                }
                let next = random.below(threads);
                stage.leader.store(next, Ordering::Release);
                if parking && next != me {
                    signals.notify(next);
                }
            }

            // A thread that still leads must not wait for it.
            stage.seen[me].store(u64::MAX, Ordering::Release);
            log
        }
    };

    let sweep = || {
        (0..threads).for_each(|i| {
            if parking {
                signals.notify(i)
            }
        })
    };

    let (logs, elapsed) = Team::run(threads, size, body, sweep).await?;
    let transfers: u64 = logs.iter().map(|log| log.n).sum();
    if stage.starved.load(Ordering::Relaxed) {
        return Ok(vec![
            Figure::new("starved", 1.0),
            Figure::new("us_per_transfer", f64::INFINITY),
        ]);
    }

    anyhow::ensure!(transfers > 0, "no leader was seen by all");
    let us = elapsed.as_nanos() as f64 / 1000.0 / transfers as f64;
    let p99 = stage.times().value_at_quantile(0.99) as f64 / 1000.0;
    Ok(vec![
        Figure::new("starved", 0.0),
        Figure::new("us_per_transfer", us),
        Figure::new("transfer_p99_us", p99),
    ])
}
