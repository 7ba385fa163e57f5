//! What is granted to fibers that wait alone and stay with a worker: it travels as a message, of
//! which there is room for some.
//!
//! Fibers that never move go to the workers alternately, as a thread outside spawns them: so it is
//! known who is where.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use crate::common::*;
use plainweave::sync::{Barrier, RwLock, Semaphore, channel};
use plainweave::time::with_timeout;
use plainweave::{JoinHandle, Movement, Runtime, yield_now};

on_every_setup!(
    more_grants_than_there_is_room_for_arrive,
    a_grant_wakes_a_worker_that_sleeps,
    a_grant_crosses_runtimes,
    who_is_joined_in_waiting_is_served_first,
    cancelled_loners_lose_no_permit,
    loners_that_are_let_go_together_learn_why,
    loners_pass_a_barrier_in_pairs,
    a_grant_to_a_worker_that_is_stuck_outlives_nobody,
);

/// Many more than a worker's queue of messages holds.
const MANY: usize = 1000;

/// Two workers, *here* and *there*, whose fibers do not move.
struct Pair(Runtime);

impl Pair {
    fn new(setup: Setup) -> Self {
        Self(
            setup.check(
                setup
                    .builder()
                    .workers(2)
                    .movement(Movement::Never)
                    .build()
                    .expect("a runtime"),
            ),
        )
    }

    /// Two fibers, one of each worker. They are the only ones that are spawned, and that by one
    /// thread.
    fn spawn<A, B>(
        &self,
        here: impl FnOnce() -> A + Send + 'static,
        there: impl FnOnce() -> B + Send + 'static,
    ) -> (JoinHandle<A>, JoinHandle<B>)
    where
        A: Send + 'static,
        B: Send + 'static,
    {
        (self.0.spawn(here), self.0.spawn(there))
    }

    fn here<A: Send + 'static>(&self, body: impl FnOnce() -> A + Send + 'static) -> JoinHandle<A> {
        self.spawn(body, || ()).0
    }

    fn there<B: Send + 'static>(&self, body: impl FnOnce() -> B + Send + 'static) -> JoinHandle<B> {
        self.spawn(|| (), body).1
    }

    /// A fiber of *here* that waits at the gate now, and gives whether it was let go.
    fn loner(&self, gate: impl Fn() -> bool + Send + 'static) -> JoinHandle<bool> {
        let began = Arc::new(AtomicBool::new(false));
        let theirs = began.clone();
        let loner = self.here(move || {
            theirs.store(true, Ordering::Release);
            gate()
        });

        eventually("it has begun", || began.load(Ordering::Acquire));
        // Whoever runs there after that finds it suspended.
        self.here(|| ()).join().expect("no panic");
        loner
    }
}

fn acquired(gate: &Semaphore) -> bool {
    gate.acquire().map(plainweave::sync::Permit::forget).is_ok()
}

/// One waits at each. Their worker is busy while all are let go from the other one.
fn more_grants_than_there_is_room_for_arrive(setup: Setup) {
    let pair = Pair::new(setup);
    for _ in 0..3 {
        let gates: Arc<Vec<_>> = Arc::new((0..MANY).map(|_| Semaphore::new(0)).collect());
        let begun = Arc::new(AtomicUsize::new(0));
        let loners: Vec<_> = (0..MANY)
            .map(|i| {
                let gates = gates.clone();
                let begun = begun.clone();
                pair.here(move || {
                    begun.fetch_add(1, Ordering::AcqRel);
                    acquired(&gates[i])
                })
            })
            .collect();
        eventually("all wait", || begun.load(Ordering::Acquire) == MANY);
        let busy = Arc::new(AtomicBool::new(false));
        let done = Arc::new(AtomicBool::new(false));
        let is_busy = busy.clone();
        let is_done = done.clone();
        let holder = move || {
            busy.store(true, Ordering::Release);
            while !done.load(Ordering::Acquire) {
                std::hint::spin_loop();
            }
        };

        let releaser = move || {
            while !is_busy.load(Ordering::Acquire) {
                yield_now();
            }
            gates.iter().for_each(Semaphore::release);
            is_done.store(true, Ordering::Release);
        };

        let (holder, releaser) = pair.spawn(holder, releaser);
        releaser.join().unwrap();
        holder.join().unwrap();
        assert!(loners.into_iter().all(|loner| loner.join().unwrap()));
    }
}

/// Two fibers, and nothing else: whoever lets the other go has its worker fall asleep.
fn a_grant_wakes_a_worker_that_sleeps(setup: Setup) {
    let gates = Arc::new([Semaphore::new(0), Semaphore::new(0)]);
    let partner = |me: usize| {
        let gates = gates.clone();
        move || {
            for round in 0..300 {
                gates[1 - me].release();
                assert!(acquired(&gates[me]));
                if round % 50 == me {
                    plainweave::time::sleep(ms(1)).unwrap();
                }
            }
        }
    };

    let pair = Pair::new(setup);
    let (here, there) = pair.spawn(partner(0), partner(1));
    here.join().unwrap();
    there.join().unwrap();
}

/// Who waits belongs to another pool than who lets it go.
fn a_grant_crosses_runtimes(setup: Setup) {
    let one = setup.workers(1);
    let other = setup.workers(2);
    let there = channel::bounded(1);
    let back = channel::bounded(1);
    let echo =
        one.spawn(move || while there.1.recv().is_ok_and(|n: u64| back.0.send(n).is_ok()) {});

    other.run(move || {
        for n in 0..200 {
            there.0.send(n).unwrap();
            assert_eq!(back.1.recv().unwrap(), n);
        }
    });
    echo.join().unwrap();
}

/// The first is alone until the second comes; whoever leaves, it is as if it had never been.
fn who_is_joined_in_waiting_is_served_first(setup: Setup) {
    let pair = Pair::new(setup);
    for round in 0..12 {
        let gate = Arc::new(Semaphore::new(0));
        // As they are let go, as digits.
        let order = Arc::new(AtomicU64::new(0));
        let mut loners = [1, 2, 3].map(|number| {
            let gate = gate.clone();
            let order = order.clone();
            let through = move || {
                let through = acquired(&gate);
                if through {
                    order
                        .fetch_update(Ordering::AcqRel, Ordering::Acquire, |o| {
                            Some(o * 10 + number)
                        })
                        .unwrap();
                }
                through
            };

            Some(pair.loner(through))
        });

        let leaves = round % 4;
        if leaves > 0 {
            let loner = loners[leaves - 1].take().unwrap();
            loner.cancel();
            assert!(!loner.join().unwrap(), "it was not let go");
        }

        for loner in loners.into_iter().flatten() {
            let theirs = gate.clone();
            pair.there(move || theirs.release()).join().unwrap();
            assert!(loner.join().unwrap());
        }

        assert_eq!(order.load(Ordering::Acquire), [123, 23, 13, 12][leaves]);
        assert_eq!(gate.available(), 0);
    }
}

/// Each waits alone, gives up or is let go from the other worker, and what was given is there
/// afterwards.
fn cancelled_loners_lose_no_permit(setup: Setup) {
    const LONERS: usize = 8;
    let pair = Pair::new(setup);
    let gates: Arc<Vec<_>> = Arc::new((0..LONERS).map(|_| Semaphore::new(0)).collect());
    let done = Arc::new(AtomicBool::new(false));
    let loners: Vec<_> = (0..LONERS)
        .map(|i| {
            let gates = gates.clone();
            let done = done.clone();
            pair.here(move || {
                let mut random = Random::new(i as u64 + 1);
                let mut taken = 0;
                while !done.load(Ordering::Acquire) {
                    let patience = Duration::from_micros(random.below(200));
                    taken += usize::from(with_timeout(patience, || acquired(&gates[i])));
                }

                taken
            })
        })
        .collect();
    let theirs = gates.clone();
    let giver = pair.there(move || {
        let mut random = Random::new(99);
        for _ in 0..3000 {
            theirs[random.below(LONERS as u64) as usize].release();
            random.spin(20);
            yield_now();
        }
    });

    giver.join().unwrap();
    done.store(true, Ordering::Release);
    let taken: usize = loners.into_iter().map(|loner| loner.join().unwrap()).sum();
    let left: usize = gates.iter().map(Semaphore::available).sum();
    assert_eq!(taken + left, 3000);
}

/// One waits alone, or two: a semaphore is closed or has permits for all, a lock is let go to all
/// readers.
fn loners_that_are_let_go_together_learn_why(setup: Setup) {
    let pair = Pair::new(setup);
    for count in [1, 2] {
        for closes in [true, false] {
            let gate = Arc::new(Semaphore::new(1));
            let loners: Vec<_> = (0..count)
                .map(|_| {
                    let theirs = gate.clone();
                    pair.loner(move || {
                        theirs
                            .acquire_many(3)
                            .map(plainweave::sync::Permit::forget)
                            .is_ok()
                    })
                })
                .collect();
            let theirs = gate.clone();
            let let_go = move || {
                if closes {
                    theirs.close()
                } else {
                    theirs.add_permits(3 * count)
                }
            };

            pair.there(let_go).join().unwrap();
            loners
                .into_iter()
                .for_each(|loner| assert_eq!(loner.join().unwrap(), !closes));
            assert_eq!(gate.available(), 1);
        }

        let lock = Arc::new(RwLock::new(()));
        let guard = lock.write_owned().unwrap();
        let loners: Vec<_> = (0..count)
            .map(|_| {
                let theirs = lock.clone();
                pair.loner(move || theirs.read().is_ok())
            })
            .collect();
        pair.there(move || drop(guard)).join().unwrap();
        loners
            .into_iter()
            .for_each(|loner| assert!(loner.join().unwrap()));
        assert!(lock.try_write().is_some());
    }
}

/// One of each worker, and both give up now and then: each passes as often as the other.
fn loners_pass_a_barrier_in_pairs(setup: Setup) {
    let pair = Pair::new(setup);
    let barrier = Arc::new(Barrier::new(2));
    let walk = |seed| {
        let barrier = barrier.clone();
        move || {
            let mut random = Random::new(seed);
            let mut passed = 0_u64;
            for _ in 0..2000 {
                let patience = Duration::from_micros(random.below(100));
                passed += u64::from(with_timeout(patience, || barrier.wait()).is_ok());
                random.spin(10);
            }

            passed
        }
    };

    let (here, there) = pair.spawn(walk(1), walk(2));
    assert_eq!(here.join().unwrap(), there.join().unwrap());
}

/// The message is on its way to a worker that never comes to read it, and the runtime ends.
fn a_grant_to_a_worker_that_is_stuck_outlives_nobody(setup: Setup) {
    let pair = Pair::new(setup);
    let gate = Arc::new(Semaphore::new(0));
    let stuck = Arc::new(AtomicBool::new(false));
    let free = Arc::default();
    let theirs = gate.clone();
    let loner = pair.loner(move || acquired(&theirs));
    let is_stuck = stuck.clone();
    let is_free = Arc::clone(&free);
    let holder = pair.here(move || {
        is_stuck.store(true, Ordering::Release);
        while !AtomicBool::load(&is_free, Ordering::Acquire) {
            std::thread::sleep(ms(1));
        }
    });

    eventually("it is stuck", || stuck.load(Ordering::Acquire));
    pair.there(move || gate.release()).join().unwrap();
    assert_ne!(pair.0.shutdown(ms(20)).leaked_fibers, 0);
    free.store(true, Ordering::Release);
    holder.join().expect("it was left to itself");
    drop(loner);
}
