//! The readers-writer lock: between fibers and threads, in phases, cancelled, late and raced.

use std::io::ErrorKind;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};

use crate::common::*;
use plainweave::sync::{Mutex, RwLock, RwLockWriteGuard};
use plainweave::time::with_timeout;
use plainweave::{JoinHandle, is_cancelled, spawn, yield_now};

on_every_driver!(
    writers_exclude_and_readers_share,
    readers_are_inside_together,
    a_waiting_writer_keeps_later_readers_out,
    a_writer_lets_in_all_waiting_readers_and_then_the_next_writer,
    a_writer_is_passed_once_by_one_that_runs,
    a_writer_that_was_passed_and_gives_up_lets_in_readers,
    busy_readers_do_not_starve_a_writer,
    busy_writers_do_not_starve_a_reader,
    a_reader_that_reads_again_behind_a_writer_times_out,
    a_writer_that_gives_up_lets_in_the_readers_behind_it,
    a_reader_that_gives_up_leaves_the_lock_to_others,
    waits_are_cancelled_and_late,
    what_is_free_is_given_to_the_cancelled,
    panicking_holders_release,
    a_destructor_of_a_panicking_fiber_waits_for_the_lock,
    a_downgraded_guard_shares_at_once,
    owned_guards_outlive_the_borrow,
    cancelled_waiters_leave_the_lock_free,
);

/// Readers count up from 0, a writer takes -1: no mixture is ever seen.
fn use_it(
    lock: &RwLock<u64>,
    inside: &AtomicI64,
    rounds: u64,
    writes: impl Fn(u64) -> bool,
) -> u64 {
    let mut written = 0;
    for n in 0..rounds {
        if writes(n) {
            let mut guard = lock.write().unwrap();
            assert_eq!(inside.fetch_sub(1, Ordering::SeqCst), 0);
            *guard += 1;
            yield_now();
            assert_eq!(inside.fetch_add(1, Ordering::SeqCst), -1);
            written += 1;
        } else {
            let guard = lock.read().unwrap();
            assert!(inside.fetch_add(1, Ordering::SeqCst) >= 0);
            let seen = *guard;
            yield_now();
            assert_eq!(*guard, seen);
            assert!(inside.fetch_sub(1, Ordering::SeqCst) > 0);
        }
    }
    written
}

fn writers_exclude_and_readers_share(setup: Setup) {
    let shared = Arc::new((RwLock::new(0), AtomicI64::new(0)));
    let threads: Vec<_> = (0..2)
        .map(|me| {
            let shared = shared.clone();
            std::thread::spawn(move || use_it(&shared.0, &shared.1, 200, |n| (n + me) % 5 == 0))
        })
        .collect();
    let mut written = setup.runtime().run(|| {
        let fibers: Vec<_> = (0..8)
            .map(|me| {
                let shared = shared.clone();
                spawn(move || use_it(&shared.0, &shared.1, 200, |n| (n + me) % 3 == 0))
            })
            .collect();
        fibers.into_iter().map(|f| f.join().unwrap()).sum::<u64>()
    });

    written += threads.into_iter().map(|t| t.join().unwrap()).sum::<u64>();
    assert_eq!(*shared.0.read().unwrap(), written);
    assert!(shared.0.try_write().is_some(), "nobody holds it");
}

fn readers_are_inside_together(setup: Setup) {
    let lock = RwLock::new(());
    let inside = AtomicUsize::new(0);
    setup.runtime().scope(|s| {
        for _ in 0..5 {
            s.spawn(|| {
                let _guard = lock.read().unwrap();
                inside.fetch_add(1, Ordering::SeqCst);
                // Each leaves only when all are inside.
                while inside.load(Ordering::SeqCst) < 5 {
                    yield_now();
                }
            });
        }
    });
}

fn a_waiting_writer_keeps_later_readers_out(setup: Setup) {
    setup.workers(1).run(|| {
        let lock = Arc::new(RwLock::new(()));
        let order = Arc::new(Mutex::new(Vec::new()));
        let reader = lock.read().unwrap();
        let note = |name: &'static str, write: bool| {
            let lock = lock.clone();
            let order = order.clone();
            let fiber = spawn(move || {
                if write {
                    let _guard = lock.write().unwrap();
                    order.lock().unwrap().push(name);
                } else {
                    let _guard = lock.read().unwrap();
                    order.lock().unwrap().push(name);
                }
            });

            pause();
            fiber
        };

        let writer = note("writer", true);
        assert!(lock.try_read().is_none(), "behind the writer");
        let later = note("later reader", false);
        assert!(order.lock().unwrap().is_empty());
        drop(reader);
        writer.join().unwrap();
        later.join().unwrap();
        assert_eq!(*order.lock().unwrap(), ["writer", "later reader"]);
    });
}

fn a_writer_lets_in_all_waiting_readers_and_then_the_next_writer(setup: Setup) {
    setup.workers(1).run(|| {
        let lock = RwLock::new(());
        let order = Mutex::new(Vec::new());
        let guard = lock.write().unwrap();
        plainweave::scope(|s| {
            for name in ["writer", "reader 1", "reader 2"] {
                let lock = &lock;
                let order = &order;
                s.spawn(move || {
                    if name == "writer" {
                        let _guard = lock.write().unwrap();
                        order.lock().unwrap().push(name);
                    } else {
                        let _guard = lock.read().unwrap();
                        order.lock().unwrap().push(name);
                        pause();
                    }
                });
                pause();
            }
            drop(guard);
        });

        let mut order = order.into_inner();
        order[..2].sort_unstable();
        assert_eq!(order, ["reader 1", "reader 2", "writer"]);
    });
}

/// A waiting writer, woken to try again, that finds the lock taken by this fiber, which did not
/// suspend meanwhile.
fn passed_writer(
    lock: &Arc<RwLock<u32>>,
) -> (RwLockWriteGuard<'_, u32>, JoinHandle<std::io::Result<u32>>) {
    let reader = lock.read().unwrap();
    let theirs = lock.clone();
    let writer = spawn(move || {
        theirs
            .write()
            .map(|mut guard| std::mem::replace(&mut *guard, 3))
    });

    pause();
    drop(reader);
    let guard = lock.try_write().expect("free until the writer has come");
    pause();

    (guard, writer)
}

fn a_writer_is_passed_once_by_one_that_runs(setup: Setup) {
    setup.workers(1).run(|| {
        let lock = Arc::new(RwLock::new(1));
        let (mut guard, writer) = passed_writer(&lock);
        *guard = 2;
        drop(guard);

        // It has lost before, so the lock is its own now.
        assert!(lock.try_write().is_none() && lock.try_read().is_none());
        assert_eq!(*lock.read().unwrap(), 3);
        assert_eq!(writer.join().unwrap().unwrap(), 2);
        assert!(lock.try_write().is_some());
    });
}

fn a_writer_that_was_passed_and_gives_up_lets_in_readers(setup: Setup) {
    setup.workers(1).run(|| {
        let lock = Arc::new(RwLock::new(1));
        let (guard, writer) = passed_writer(&lock);
        let shared = RwLockWriteGuard::downgrade(guard);
        assert!(lock.try_read().is_none(), "behind the writer");
        let theirs = lock.clone();
        let reader = spawn(move || *theirs.read().unwrap());

        pause();
        writer.cancel();
        assert!(is_cancelled(&writer.join().unwrap().unwrap_err()));
        assert_eq!(
            reader.join().unwrap(),
            1,
            "beside the guard that is still held"
        );
        drop(shared);
        assert!(lock.try_write().is_some());
    });
}

/// Two readers that always overlap: without fairness the lock is never free.
fn busy_readers_do_not_starve_a_writer(setup: Setup) {
    let lock = RwLock::new(false);
    let written = AtomicUsize::new(0);
    setup.runtime().scope(|s| {
        for _ in 0..3 {
            s.spawn(|| {
                for _ in 0..100_000 {
                    let guard = lock.read().unwrap();
                    yield_now();
                    if *guard {
                        return;
                    }
                }
                panic!("the writer never came");
            });
        }

        s.spawn(|| {
            *lock.write().unwrap() = true;
            written.fetch_add(1, Ordering::SeqCst);
        });
    });
    assert_eq!(written.into_inner(), 1);
}

fn busy_writers_do_not_starve_a_reader(setup: Setup) {
    let lock = RwLock::new(0_u32);
    let read = AtomicUsize::new(0);
    setup.runtime().scope(|s| {
        for _ in 0..3 {
            s.spawn(|| {
                for _ in 0..100_000 {
                    if read.load(Ordering::SeqCst) > 0 {
                        return;
                    }
                    let mut guard = lock.write().unwrap();
                    *guard += 1;
                    yield_now();
                }
                panic!("the reader never came");
            });
        }

        s.spawn(|| {
            drop(lock.read().unwrap());
            read.fetch_add(1, Ordering::SeqCst);
        });
    });
}

fn a_reader_that_reads_again_behind_a_writer_times_out(setup: Setup) {
    setup.runtime().run(|| {
        let lock = Arc::new(RwLock::new(0));
        let first = lock.read().unwrap();
        drop(lock.read().expect("no writer waits"));
        let theirs = lock.clone();
        let writer = spawn(move || *theirs.write().unwrap() = 1);
        while lock.try_read().is_some() {
            yield_now();
        }
        let error = with_timeout(ms(5), || lock.read().map(drop)).unwrap_err();

        assert_eq!(error.kind(), ErrorKind::TimedOut);
        drop(first);
        writer.join().unwrap();
        assert_eq!(*lock.read().unwrap(), 1);
    });
}

fn a_writer_that_gives_up_lets_in_the_readers_behind_it(setup: Setup) {
    setup.runtime().run(|| {
        let lock = Arc::new(RwLock::new(()));
        let guard = lock.read().unwrap();
        let theirs = lock.clone();
        let writer = spawn(move || theirs.write().map(drop));
        while lock.try_read().is_some() {
            yield_now();
        }
        let readers: Vec<_> = (0..3)
            .map(|_| {
                let theirs = lock.clone();
                spawn(move || drop(theirs.read().unwrap()))
            })
            .collect();

        pause();
        writer.cancel();
        assert!(is_cancelled(&writer.join().unwrap().unwrap_err()));

        // The first guard is still held.
        readers
            .into_iter()
            .for_each(|reader| reader.join().unwrap());
        drop(guard);
        assert!(lock.try_write().is_some());
    });
}

fn a_reader_that_gives_up_leaves_the_lock_to_others(setup: Setup) {
    setup.runtime().run(|| {
        let lock = Arc::new(RwLock::new(()));
        let guard = lock.write().unwrap();
        let readers: Vec<_> = (0..3)
            .map(|_| {
                let theirs = lock.clone();
                spawn(move || theirs.read().map(drop))
            })
            .collect();
        pause();
        readers[1].cancel();
        pause();
        drop(guard);
        let ended: Vec<_> = readers
            .into_iter()
            .map(|reader| reader.join().unwrap().is_ok())
            .collect();

        assert_eq!(ended, [true, false, true]);
        assert!(
            lock.try_write().is_some(),
            "the one that gave up was not counted"
        );
    });
}

fn waits_are_cancelled_and_late(setup: Setup) {
    type Call = (&'static str, fn(&RwLock<()>) -> std::io::Result<()>);
    let calls: [Call; 2] = [
        ("read", |lock| lock.read().map(drop)),
        ("write", |lock| lock.write().map(drop)),
    ];
    let runtime = setup.runtime();
    let lock = Arc::new(RwLock::new(()));
    let _held = lock.try_write().unwrap();

    for (name, call) in calls {
        let theirs = lock.clone();
        let fiber = runtime.spawn(move || call(&theirs));
        std::thread::sleep(ms(2));
        fiber.cancel();
        assert!(
            is_cancelled(&fiber.join().unwrap().expect_err(name)),
            "{name}"
        );
        let theirs = lock.clone();
        let late = runtime
            .spawn(move || with_timeout(ms(2), || call(&theirs)))
            .join()
            .unwrap()
            .expect_err(name);

        assert_eq!(late.kind(), ErrorKind::TimedOut, "{name}");
        let late = with_timeout(ms(2), || call(&lock)).expect_err(name);
        assert_eq!(late.kind(), ErrorKind::TimedOut, "{name} on a plain thread");
    }
}

fn what_is_free_is_given_to_the_cancelled(setup: Setup) {
    setup.runtime().run(|| {
        let fiber = spawn(|| {
            plainweave::current().cancel();
            let lock = RwLock::new(1);
            *lock.write().unwrap() = 2;
            let guard = lock.read().unwrap();
            assert!(is_cancelled(&lock.write().map(drop).unwrap_err()));
            assert_eq!(*guard, 2);
            drop(guard);
            *lock.write_always() += 1;
            *lock.read_always()
        });
        assert_eq!(fiber.join().unwrap(), 3);
    });
}

fn panicking_holders_release(setup: Setup) {
    let lock = Arc::new(RwLock::new(0));
    setup.runtime().run(|| {
        for n in 1..=10 {
            let theirs = lock.clone();
            let writer = spawn(move || {
                let mut guard = theirs.write().unwrap();
                *guard = n;
                panic!("with the lock");
            });

            let theirs = lock.clone();
            let reader = spawn(move || {
                let _guard = theirs.read().unwrap();
                panic!("with the lock");
            });

            assert!(writer.join().unwrap_err().is_panic());
            assert!(reader.join().unwrap_err().is_panic());
            assert_eq!(*lock.read().unwrap(), n, "as the holder left it");
        }
        assert!(lock.try_write().is_some());
    });
}

struct CountsDrop(Arc<RwLock<u32>>);

impl Drop for CountsDrop {
    fn drop(&mut self) {
        *self.0.write_always() += 1;
    }
}

fn a_destructor_of_a_panicking_fiber_waits_for_the_lock(setup: Setup) {
    setup.runtime().run(|| {
        let lock = Arc::new(RwLock::new(0));
        let guard = lock.read().unwrap();
        let counts = CountsDrop(lock.clone());
        let panicking = spawn(move || {
            let _counts = counts;
            panic!("with a destructor that waits");
        });

        while lock.try_read().is_some() {
            // The destructor does not wait yet.
            yield_now();
        }

        assert_eq!(*guard, 0);
        drop(guard);
        assert!(panicking.join().unwrap_err().is_panic());
        assert_eq!(*lock.read().unwrap(), 1);
    });
}

fn a_downgraded_guard_shares_at_once(setup: Setup) {
    setup.workers(1).run(|| {
        let lock = Arc::new(RwLock::new(0));
        let mut guard = lock.write().unwrap();
        let theirs = lock.clone();
        let reader = spawn(move || *theirs.read().unwrap());
        let theirs = lock.clone();
        let writer = spawn(move || *theirs.write().unwrap() = 2);

        pause();
        *guard = 1;
        let guard = RwLockWriteGuard::downgrade(guard);

        assert_eq!(
            reader.join().unwrap(),
            1,
            "it shares the lock while the writer waits"
        );
        assert_eq!(*guard, 1);
        drop(guard);
        writer.join().unwrap();
        assert_eq!(*lock.read().unwrap(), 2);
    });
}

fn owned_guards_outlive_the_borrow(setup: Setup) {
    setup.runtime().run(|| {
        let lock = Arc::new(RwLock::new(String::from("one")));
        let first = lock.read_owned().unwrap();
        let second = lock.try_read_owned().unwrap();
        assert!(lock.try_write_owned().is_none());

        // To another fiber, which releases it.
        assert_eq!(spawn(move || first.len()).join().unwrap(), 3);
        drop(second);
        let mut guard = lock.write_owned().unwrap();
        let left = Arc::downgrade(&lock);
        drop(lock);
        guard.push('!');
        assert_eq!(*guard, "one!");
        drop(guard);
        assert!(left.upgrade().is_none());
    });
}

fn cancelled_waiters_leave_the_lock_free(setup: Setup) {
    let runtime = setup.runtime();
    let lock = Arc::new(RwLock::new(0_u64));
    for round in 0..60 {
        let mut random = Random::new(round + 1);
        let fibers: Vec<_> = (0..12)
            .map(|me| {
                let lock = lock.clone();
                runtime.spawn(move || {
                    for n in 0..20 {
                        let held = if (me + n) % 3 == 0 {
                            with_timeout(ms(1), || lock.write())
                                .map(|mut guard| *guard += 1)
                                .is_ok()
                        } else {
                            lock.read().map(|_guard| yield_now()).is_ok()
                        };

                        if !held {
                            return;
                        }
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
        assert!(lock.try_write().is_some(), "nobody holds it, nobody waits");
    }
}
