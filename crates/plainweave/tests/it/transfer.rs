//! Transfer: a leader waits busily, without yielding, until every other fiber has acknowledged its
//! epoch; then a random one leads. A fiber that is ready behind the leader on its worker must be
//! helped by another, or nothing goes on: the experiment of the Cforall runtime, which measures
//! starvation. Fibers have storage of their own and move at any time.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::common::*;
use plainweave::{Fiber, Movement, Runtime, yield_now};

/// How those wait that do not lead.
#[derive(Clone, Copy, Debug)]
enum Others {
    Yield,
    Park,
}

#[derive(Default)]
struct Shared {
    epoch: AtomicU64,
    leader: AtomicUsize,
    acknowledged: Vec<AtomicU64>,
    fibers: std::sync::OnceLock<Vec<Fiber>>,
    /// The longest time from an epoch to its last acknowledgement, in ns.
    slowest: AtomicU64,
}

impl Shared {
    fn lead(&self, me: usize, random: &mut Random) {
        let start = Instant::now();
        let epoch = self.epoch.load(Ordering::Relaxed) + 1;
        self.epoch.store(epoch, Ordering::SeqCst);
        self.wake(me);

        for (n, acknowledged) in self.acknowledged.iter().enumerate() {
            while n != me && acknowledged.load(Ordering::Acquire) != epoch {
                assert!(
                    start.elapsed() < Duration::from_secs(30),
                    "fiber {n} starves in epoch {epoch}"
                );
                std::hint::spin_loop();
            }
        }

        self.slowest
            .fetch_max(start.elapsed().as_nanos() as u64, Ordering::Relaxed);
        let next = random.below(self.acknowledged.len() as u64) as usize;
        self.leader.store(next, Ordering::SeqCst);
        self.fibers.get().expect("started")[next].unpark();
    }

    fn wake(&self, me: usize) {
        let fibers = self.fibers.get().expect("started");
        fibers
            .iter()
            .enumerate()
            .filter(|(n, _)| *n != me)
            .for_each(|(_, fiber)| fiber.unpark());
    }

    fn body(&self, me: usize, hops: u64, others: Others) {
        let mut random = Random::new(me as u64 + 77);
        while self.fibers.get().is_none() {
            yield_now();
        }
        loop {
            let epoch = self.epoch.load(Ordering::SeqCst);
            self.acknowledged[me].store(epoch, Ordering::Release);
            if epoch >= hops {
                return self.wake(me);
            }
            if self.leader.load(Ordering::SeqCst) == me {
                self.lead(me, &mut random);
                continue;
            }

            match others {
                Others::Yield => yield_now(),
                Others::Park => plainweave::park().expect("not cancelled"),
            }
        }
    }
}

/// Microseconds a transfer, and the slowest.
fn transfer(policy: &str, workers: usize, fibers: usize, hops: u64, others: Others) -> (f64, f64) {
    let builder = Runtime::builder()
        .policy(policy)
        .workers(workers)
        .movement(Movement::Anytime);
    let runtime = builder.build().expect("a runtime");
    let acknowledged = (0..fibers).map(|_| AtomicU64::new(0)).collect();
    let shared = Arc::new(Shared {
        acknowledged,
        ..Shared::default()
    });

    let started: Vec<_> = (0..fibers)
        .map(|me| {
            let shared = shared.clone();
            runtime.spawn(move || shared.body(me, hops, others))
        })
        .collect();
    let start = Instant::now();
    let _ = shared
        .fibers
        .set(started.iter().map(|f| f.fiber()).collect());
    started
        .into_iter()
        .for_each(|fiber| fiber.join().expect("none starves"));
    let slowest = shared.slowest.load(Ordering::Relaxed) as f64 / 1e3;

    (start.elapsed().as_secs_f64() * 1e6 / hops as f64, slowest)
}

#[test]
fn helping_never_starves_a_fiber_behind_a_busy_one() {
    unless_it_hangs("helping_never_starves_a_fiber_behind_a_busy_one", || {
        for others in [Others::Yield, Others::Park] {
            for workers in [2, 4] {
                transfer("helping", workers, 30, 200, others);
            }
        }
    });
}

/// Alone, in release mode: `cargo test --release -p plainweave --test it transfer -- --ignored
/// --nocapture`.
#[test]
#[ignore = "a measurement"]
fn measure_transfer() {
    use std::io::Write;
    for policy in ["helping", "fifo", "lifo-slot"] {
        for others in [Others::Yield, Others::Park] {
            for _ in 0..5 {
                let (us, slowest) = transfer(policy, 2, 100, 2000, others);
                let _ = writeln!(
                    std::io::stderr(),
                    "{policy:<10} {others:?}: {us:.1} us a transfer, slowest {slowest:.0}"
                );
            }
        }
    }
}
