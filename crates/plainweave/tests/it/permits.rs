//! Owned guards and permits, permits in bulk, and semaphores that are closed.

use std::io::ErrorKind;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Instant;

use crate::common::*;
use plainweave::sync::{Mutex, Semaphore, channel, select};
use plainweave::time::with_timeout;
use plainweave::{is_cancelled, spawn, yield_now};

on_every_driver!(
    an_owned_guard_outlives_the_borrow,
    an_owned_permit_outlives_the_borrow,
    many_permits_come_together,
    one_that_wants_many_is_not_passed_over,
    one_that_gives_up_lets_the_next_have_the_permits,
    added_permits_serve_all_they_suffice_for,
    a_closed_semaphore_refuses,
    permits_are_conserved_when_waiters_are_cancelled,
    closing_loses_no_permit,
    a_permit_is_a_branch,
    a_semaphore_that_closes_ends_selects,
    neither_selects_nor_waiters_keep_the_others_out,
    cancelled_selects_lose_no_permit,
);

fn an_owned_guard_outlives_the_borrow(setup: Setup) {
    setup.runtime().run(|| {
        let lock = Arc::new(Mutex::new(String::from("one")));
        let mut guard = lock.lock_owned().unwrap();
        assert!(lock.try_lock_owned().is_none());
        let theirs = lock.clone();
        let waiter = spawn(move || theirs.lock_owned().unwrap().len());

        // To another fiber, which releases it.
        let holder = spawn(move || guard.push('!'));
        holder.join().unwrap();
        assert_eq!(waiter.join().unwrap(), 4);
        let guard = lock.try_lock_owned().unwrap();
        let left = Arc::downgrade(&lock);

        drop(lock);
        assert_eq!(*guard, "one!");
        drop(guard);
        assert!(left.upgrade().is_none());
    });
}

fn an_owned_permit_outlives_the_borrow(setup: Setup) {
    setup.runtime().run(|| {
        let three = Arc::new(Semaphore::new(3));
        let one = three.acquire_owned().unwrap();
        let two = three.acquire_many_owned(2).unwrap();
        assert_eq!((one.count(), two.count()), (1, 2));
        assert!(three.try_acquire_owned().is_none());
        spawn(move || drop(two)).join().unwrap();
        assert_eq!(three.available(), 2);
        one.forget();
        three.try_acquire_owned().unwrap().forget();
        assert_eq!(three.available(), 1);
        assert_eq!(
            Arc::strong_count(&three),
            1,
            "what is forgotten keeps nothing alive"
        );
    });
}

fn many_permits_come_together(setup: Setup) {
    setup.runtime().run(|| {
        let permits = Semaphore::new(2);
        assert!(permits.try_acquire_many(3).is_none());
        plainweave::scope(|s| {
            let three = s.spawn(|| permits.acquire_many(3).unwrap().count());
            while permits.try_acquire().is_some() {
                // It is not in line yet.
                yield_now();
            }

            assert_eq!(permits.available(), 2, "none is taken before all are there");
            permits.release();
            assert_eq!(three.join().unwrap(), 3);
        });

        assert_eq!(permits.available(), 3);
        let all = permits.try_acquire_many(3).unwrap();
        assert_eq!(permits.acquire_many(0).unwrap().count(), 0);
        drop(all);
        assert_eq!(permits.available(), 3);
    });
}

/// Callers that want one permit each keep the semaphore busy.
fn one_that_wants_many_is_not_passed_over(setup: Setup) {
    let permits = Semaphore::new(2);
    let served = AtomicBool::new(false);
    // Not a number of turns: its worker may be without a processor for thousands of the others'.
    let start = Instant::now();
    setup.runtime().scope(|s| {
        for _ in 0..4 {
            s.spawn(|| {
                while !served.load(Ordering::SeqCst) {
                    assert!(start.elapsed() < HANG / 2, "it was passed over");
                    let _permit = permits.acquire().unwrap();
                    yield_now();
                }
            });
        }

        s.spawn(|| {
            let _all = permits.acquire_many(2).unwrap();
            served.store(true, Ordering::SeqCst);
        });
    });
}

fn one_that_gives_up_lets_the_next_have_the_permits(setup: Setup) {
    setup.runtime().run(|| {
        let permits = Arc::new(Semaphore::new(2));
        let theirs = permits.clone();
        let many = spawn(move || theirs.acquire_many(5).map(drop));
        pause();
        let few: Vec<_> = (0..2)
            .map(|_| {
                let theirs = permits.clone();
                spawn(move || theirs.acquire().unwrap().forget())
            })
            .collect();

        pause();
        many.cancel();
        assert!(is_cancelled(&many.join().unwrap().unwrap_err()));
        few.into_iter().for_each(|fiber| fiber.join().unwrap());
        assert_eq!(permits.available(), 0);
        let late = with_timeout(ms(2), || permits.acquire_many(2).map(drop)).unwrap_err();

        assert_eq!(late.kind(), ErrorKind::TimedOut);
    });
}

fn added_permits_serve_all_they_suffice_for(setup: Setup) {
    let permits = Arc::new(Semaphore::new(0));
    let take = |count| {
        let permits = permits.clone();
        move || permits.acquire_many(count).unwrap().forget()
    };

    let runtime = setup.runtime();
    let fibers: Vec<_> = (1..=3).map(|count| runtime.spawn(take(count))).collect();
    let thread = std::thread::spawn(take(4));
    std::thread::sleep(ms(5));
    permits.add_permits(11);
    fibers.into_iter().for_each(|fiber| fiber.join().unwrap());
    thread.join().unwrap();
    assert_eq!(permits.available(), 1);
    permits.add_permits(0);
    let more = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        permits.add_permits(usize::MAX)
    }));

    assert!(more.is_err());
    assert_eq!(permits.available(), 1, "as before");
}

fn a_closed_semaphore_refuses(setup: Setup) {
    let permits = Arc::new(Semaphore::new(1));
    let held = permits.try_acquire().unwrap();
    let wait = || {
        let permits = permits.clone();
        move || permits.acquire().map(drop)
    };

    let runtime = setup.runtime();
    // One that waits alone, and several.
    for count in [1, 4] {
        let other = Arc::new(Semaphore::new(0));
        let fibers: Vec<_> = (0..count)
            .map(|_| {
                let other = other.clone();
                runtime.spawn(move || other.acquire().map(drop))
            })
            .collect();
        std::thread::sleep(ms(2));
        other.close();
        let refused = |error: std::io::Error| error.kind() == ErrorKind::BrokenPipe;

        fibers
            .into_iter()
            .for_each(|fiber| assert!(fiber.join().unwrap().is_err_and(refused)));
    }

    let fiber = runtime.spawn(wait());
    let thread = std::thread::spawn(wait());
    std::thread::sleep(ms(2));
    assert!(!permits.is_closed());
    permits.close();
    permits.close();

    for refused in [
        fiber.join().unwrap(),
        thread.join().unwrap(),
        permits.acquire_many(0).map(drop),
    ] {
        assert_eq!(refused.unwrap_err().kind(), ErrorKind::BrokenPipe);
    }

    drop(held);
    assert!(permits.is_closed());
    assert_eq!(permits.available(), 1);
    assert!(permits.try_acquire().is_none());
}

fn permits_are_conserved_when_waiters_are_cancelled(setup: Setup) {
    let runtime = setup.runtime();
    let permits = Arc::new(Semaphore::new(5));
    for round in 0..60 {
        let mut random = Random::new(round + 1);
        let fibers: Vec<_> = (0..12)
            .map(|me| {
                let permits = permits.clone();
                runtime.spawn(move || {
                    for n in 0..20 {
                        let Ok(_some) = with_timeout(ms(1), || permits.acquire_many((me + n) % 6))
                        else {
                            return;
                        };
                        yield_now();
                    }
                })
            })
            .collect();
        for fiber in &fibers {
            random.spin(10);
            if random.below(4) > 0 {
                fiber.cancel();
            }
        }

        fibers.into_iter().for_each(|fiber| fiber.join().unwrap());
        assert_eq!(permits.available(), 5);
    }
}

fn closing_loses_no_permit(setup: Setup) {
    let runtime = setup.runtime();
    for round in 0..100 {
        let permits = Arc::new(Semaphore::new(0));
        let fibers = [0, 1, 2].map(|_| {
            let permits = permits.clone();
            runtime.spawn(move || {
                permits
                    .acquire()
                    .map(plainweave::sync::Permit::forget)
                    .is_ok()
            })
        });

        let theirs = permits.clone();
        let releaser = std::thread::spawn(move || {
            Random::new(round).spin(20);
            theirs.add_permits(2);
        });

        Random::new(round + 1000).spin(20);
        permits.close();
        releaser.join().unwrap();
        let served: usize = fibers
            .into_iter()
            .map(|fiber| usize::from(fiber.join().unwrap()))
            .sum();
        assert_eq!(served + permits.available(), 2);
    }
}

fn a_permit_is_a_branch(setup: Setup) {
    setup.runtime().run(|| {
        let permits = Arc::new(Semaphore::new(1));
        let (sender, receiver) = channel::bounded::<u8>(1);
        let held = select! {
            acquire(permits) -> permit => permit.unwrap(),
            recv(receiver) -> _ => unreachable!("empty"),
        };

        let held = held.unwrap();
        assert_eq!((held.count(), permits.available()), (1, 0));
        sender.send(1).unwrap();
        let lost = select! {
            acquire(permits) -> _ => unreachable!("none is left"),
            recv(receiver) -> result => result.unwrap(),
        };

        assert_eq!(lost.unwrap(), 1);
        let theirs = permits.clone();
        let waiter = spawn(move || {
            let waited = select! {
                acquire(theirs) -> permit => permit.unwrap().count(),
                recv(receiver) -> _ => unreachable!("empty"),
            };
            waited.unwrap()
        });

        pause();
        drop(held);
        assert_eq!(waiter.join().unwrap(), 1);
        assert_eq!(
            permits.available(),
            1,
            "the branch that lost took none, and the one that won gave it back"
        );
        assert!(
            select! { acquire(permits) -> permit => permit.is_ok(), default => false }.unwrap()
        );
    });
}

fn a_semaphore_that_closes_ends_selects(setup: Setup) {
    setup.runtime().run(|| {
        let permits = Arc::new(Semaphore::new(0));
        let select = |permits: Arc<Semaphore>| {
            move || {
                let result =
                    select! { acquire(permits) -> permit => permit.map(|permit| permit.forget()) };
                result.unwrap().unwrap_err().kind()
            }
        };

        let waiters = [0, 1].map(|_| spawn(select(permits.clone())));
        pause();
        permits.close();
        waiters
            .into_iter()
            .for_each(|waiter| assert_eq!(waiter.join().unwrap(), ErrorKind::BrokenPipe));
        assert_eq!(select(permits)(), ErrorKind::BrokenPipe);
    });
}

/// One permit, and fibers that come back for it at once, by a select or not: each is overtaken by a
/// bounded number.
fn neither_selects_nor_waiters_keep_the_others_out(setup: Setup) {
    const EACH: usize = 200;
    for selects in [1, 3, 5] {
        let permits = Arc::new(Semaphore::new(1));
        let served = Arc::new(AtomicUsize::new(0));
        let worst = setup.workers(1).run(move || {
            let fibers: Vec<_> = (0..6)
                .map(|n| {
                    let permits = permits.clone();
                    let served = served.clone();
                    spawn(move || {
                        let (_never, empty) = channel::bounded::<u8>(0);
                        let mut worst = 0;
                        for _ in 0..EACH {
                            let before = served.load(Ordering::SeqCst);
                            let permit = if n < selects {
                                select! {
                                    acquire(permits) -> permit => permit.unwrap(),
                                    recv(empty) -> _ => unreachable!("nobody sends"),
                                }
                                .unwrap()
                            } else {
                                permits.acquire().unwrap()
                            };

                            worst = worst.max(served.fetch_add(1, Ordering::SeqCst) - before);
                            yield_now();
                            drop(permit);
                        }

                        worst
                    })
                })
                .collect();
            fibers
                .into_iter()
                .map(|fiber| fiber.join().unwrap())
                .max()
                .unwrap()
        });

        // Served alternately, one of five in its line waits for the other four and for as many of
        // the other line.
        assert!(
            worst <= 12,
            "{worst} were served before one that waited, with {selects} selects"
        );
    }
}

fn cancelled_selects_lose_no_permit(setup: Setup) {
    const PERMITS: usize = 2;
    for runtime in [setup.runtime(), setup.shared_workers(2)] {
        let semaphores = Arc::new([Semaphore::new(PERMITS), Semaphore::new(PERMITS)]);
        let holders = Arc::new([AtomicUsize::new(0), AtomicUsize::new(0)]);
        let taken = Arc::new(AtomicUsize::new(0));

        for round in 0..40 {
            let mut random = Random::new(round + 1);
            let fibers: Vec<_> = (0..8)
                .map(|n| {
                    let semaphores = semaphores.clone();
                    let holders = holders.clone();
                    let taken = taken.clone();
                    runtime.spawn(move || {
                        for _ in 0..1000 {
                            let chosen = match n {
                                6 => semaphores[0].acquire().map(|permit| (0, permit)),
                                7 => semaphores[1].acquire_many(2).map(|permit| (1, permit)),
                                _ => select! {
                                    acquire(semaphores[0]) -> permit => (0, permit.unwrap()),
                                    acquire(semaphores[1]) -> permit => (1, permit.unwrap()),
                                },
                            };

                            let Ok((which, permit)) = chosen else { return };
                            let count = permit.count() as usize;
                            taken.fetch_add(1, Ordering::SeqCst);
                            assert!(
                                holders[which].fetch_add(count, Ordering::SeqCst) + count
                                    <= PERMITS
                            );
                            yield_now();
                            holders[which].fetch_sub(count, Ordering::SeqCst);
                        }
                    })
                })
                .collect();
            for fiber in &fibers {
                random.spin(100);
                fiber.cancel();
            }

            fibers.into_iter().for_each(|fiber| fiber.join().unwrap());
            assert!(
                semaphores
                    .iter()
                    .all(|semaphore| semaphore.available() == PERMITS),
                "{semaphores:?}"
            );
        }

        assert!(taken.load(Ordering::SeqCst) > 0);
    }
}
