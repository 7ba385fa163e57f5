//! What is granted to fibers that wait alone and stay with a worker: it travels as a message, of which there is room
//! for some.

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use common::*;
use plainweave::sync::{Semaphore, channel};
use plainweave::time::with_timeout;
use plainweave::{Runtime, spawn, yield_now};

on_every_setup!(
    more_grants_than_there_is_room_for_arrive,
    a_grant_wakes_a_worker_that_sleeps,
    a_grant_crosses_runtimes,
    who_is_joined_in_waiting_is_served_first,
    cancelled_loners_lose_no_permit,
    partners_on_many_workers_lose_no_turn,
);

/// So many more than a worker's messages.
const MANY: usize = 1000;

/// One waits at each; a thread, or a fiber of another worker, lets them all go while theirs may be held up.
fn more_grants_than_there_is_room_for_arrive(setup: Setup) {
    setup.workers(2).run(|| {
        for round in 0..4 {
            let gates: Arc<Vec<_>> = Arc::new((0..MANY).map(|_| Semaphore::new(0)).collect());
            let (waiting, passed) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
            let fibers: Vec<_> = (0..MANY)
                .map(|i| {
                    let (gates, waiting, passed) = (gates.clone(), waiting.clone(), passed.clone());
                    spawn(move || {
                        waiting.fetch_add(1, Ordering::AcqRel);
                        gates[i].acquire().unwrap().forget();
                        passed.fetch_add(1, Ordering::AcqRel);
                    })
                })
                .collect();
            eventually("all wait", || {
                yield_now();
                waiting.load(Ordering::Acquire) == MANY
            });
            // On this worker or on the other one, which then reads no messages; the rest goes on here.
            let busy = Arc::new(AtomicBool::new(true));
            let theirs = busy.clone();
            let holder = spawn(move || {
                while theirs.load(Ordering::Acquire) {
                    std::hint::spin_loop();
                }
            });
            let releaser = gates.clone();
            let release = move || releaser.iter().for_each(Semaphore::release);
            if round % 2 == 0 {
                release();
            } else {
                std::thread::spawn(release).join().unwrap();
            }
            busy.store(false, Ordering::Release);
            holder.join().unwrap();
            fibers.into_iter().for_each(|fiber| fiber.join().unwrap());
            assert_eq!(passed.load(Ordering::Acquire), MANY);
        }
    });
}

/// Two fibers, and nothing else: whoever lets the other go has its worker fall asleep.
fn a_grant_wakes_a_worker_that_sleeps(setup: Setup) {
    setup.workers(2).run(|| {
        let gates = Arc::new([Semaphore::new(0), Semaphore::new(0)]);
        let partner = |me: usize| {
            let gates = gates.clone();
            spawn(move || {
                for round in 0..300 {
                    gates[1 - me].release();
                    gates[me].acquire().unwrap().forget();
                    if round % 50 == 0 {
                        plainweave::time::sleep(ms(1)).unwrap();
                    }
                }
            })
        };
        let partners = [partner(0), partner(1)];
        partners.into_iter().for_each(|partner| partner.join().unwrap());
    });
}

/// Who waits belongs to another pool than who lets it go.
fn a_grant_crosses_runtimes(setup: Setup) {
    let (one, other) = (setup.workers(1), setup.workers(2));
    let (there, back) = (channel::bounded(1), channel::bounded(1));
    let echo = one.spawn(move || while there.1.recv().is_ok_and(|n: u64| back.0.send(n).is_ok()) {});
    other.run(move || {
        for n in 0..200 {
            there.0.send(n).unwrap();
            assert_eq!(back.1.recv().unwrap(), n);
        }
    });
    echo.join().unwrap();
}

/// The first is alone until the second comes; it leaves, or is let go, as if it had never been.
fn who_is_joined_in_waiting_is_served_first(setup: Setup) {
    setup.workers(2).run(|| {
        for round in 0..60 {
            let gate = Arc::new(Semaphore::new(0));
            let order = Arc::new(AtomicU64::new(0));
            let waiter = |number: u64| {
                let (theirs, order) = (gate.clone(), order.clone());
                let fiber = spawn(move || match theirs.acquire() {
                    // The order in which they are let go, as digits.
                    Ok(permit) => {
                        permit.forget();
                        order.fetch_update(Ordering::AcqRel, Ordering::Acquire, |o| Some(o * 10 + number)).unwrap();
                    }
                    Err(error) => assert!(plainweave::is_cancelled(&error)),
                });
                for _ in 0..3 {
                    yield_now();
                }
                plainweave::time::sleep(ms(1)).unwrap();
                fiber
            };
            let fibers = [waiter(1), waiter(2), waiter(3)];
            let left = round % 4;
            if left > 0 {
                fibers[left - 1].cancel();
                plainweave::time::sleep(ms(1)).unwrap();
            }
            let served = if left > 0 { 2 } else { 3 };
            for n in 1..=served {
                gate.release();
                eventually("the next is let go", || {
                    yield_now();
                    order.load(Ordering::Acquire) >= 10_u64.pow(n - 1)
                });
            }
            fibers.into_iter().for_each(|fiber| fiber.join().unwrap());
            assert_eq!(order.load(Ordering::Acquire), [123, 23, 13, 12][left]);
            assert_eq!(gate.available(), 0);
        }
    });
}

/// Each waits alone, gives up or is let go from elsewhere, and what was given is there afterwards.
fn cancelled_loners_lose_no_permit(setup: Setup) {
    setup.workers(2).run(|| {
        let gates: Arc<Vec<_>> = Arc::new((0..8).map(|_| Semaphore::new(0)).collect());
        let done = Arc::new(AtomicBool::new(false));
        let taken = Arc::new(AtomicUsize::new(0));
        let loners: Vec<_> = (0..gates.len())
            .map(|i| {
                let (gates, done, taken) = (gates.clone(), done.clone(), taken.clone());
                spawn(move || {
                    let mut random = Random::new(i as u64 + 1);
                    while !done.load(Ordering::Acquire) {
                        let patience = std::time::Duration::from_micros(random.below(200));
                        if let Ok(permit) = with_timeout(patience, || gates[i].acquire()) {
                            permit.forget();
                            taken.fetch_add(1, Ordering::AcqRel);
                        }
                    }
                })
            })
            .collect();
        let mut random = Random::new(99);
        let mut given = 0;
        for _ in 0..3000 {
            gates[random.below(8) as usize].release();
            given += 1;
            random.spin(20);
            yield_now();
        }
        done.store(true, Ordering::Release);
        loners.into_iter().for_each(|loner| loner.join().unwrap());
        let left: usize = gates.iter().map(Semaphore::available).sum();
        assert_eq!(taken.load(Ordering::Acquire) + left, given);
    });
}

/// Many pairs that hand a turn to and fro, each partner wherever it came to be; the pool keeps up with ends and starts.
fn partners_on_many_workers_lose_no_turn(setup: Setup) {
    let runtime: Runtime = setup.workers(3);
    let turns = Arc::new(AtomicU64::new(0));
    runtime.scope(|s| {
        for _ in 0..40 {
            let turns = turns.clone();
            s.spawn(move || {
                let (there, back) = (channel::bounded(1), channel::bounded(1));
                let partner = spawn(move || {
                    while let Ok(n) = there.1.recv() {
                        back.0.send(n + 1).unwrap();
                    }
                });
                let mut n = 0;
                for _ in 0..100 {
                    there.0.send(n).unwrap();
                    n = back.1.recv().unwrap();
                }
                drop(there.0);
                partner.join().unwrap();
                turns.fetch_add(n, Ordering::AcqRel);
            });
        }
    });
    assert_eq!(turns.load(Ordering::Acquire), 40 * 100);
}
