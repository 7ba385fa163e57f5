//! Locks, semaphores, condition variables and channels: between fibers and threads, cancelled,
//! late, and raced.

use std::io::ErrorKind;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use crate::common::*;
use plainweave::sync::{Condvar, Mutex, Semaphore, channel};
use plainweave::time::with_timeout;
use plainweave::{Runtime, is_cancelled, spawn, yield_now};

on_every_setup!(
    a_mutex_excludes_fibers_and_threads,
    a_mutex_is_held_across_suspensions,
    a_busy_locker_does_not_starve_a_waiter,
    a_panicking_holder_releases,
    a_semaphore_serves_in_order,
    a_semaphore_bounds,
    a_condvar_hands_over_turn_by_turn,
    notify_all_lets_all_go,
    a_cancelled_waiter_leaves_its_notification_to_another,
    each_value_is_received_once_and_in_order,
    a_bounded_channel_holds_back_its_senders,
    a_closed_channel_gives_what_is_left,
    a_channel_without_receivers_refuses_and_drops,
    every_wait_is_cancelled,
    every_wait_heeds_its_deadline,
    what_is_free_is_given_also_to_the_cancelled,
    cancelled_lockers_leave_the_lock_usable,
    cancelled_acquirers_lose_no_permit,
    cancelled_receivers_lose_no_value,
    cancelled_senders_send_or_keep,
);

fn a_mutex_excludes_fibers_and_threads(setup: Setup) {
    let count = Arc::new(Mutex::new(0_u64));
    let add = |count: &Mutex<u64>| {
        for n in 0..500 {
            let mut guard = count.lock().expect("not cancelled");
            let seen = *guard;
            if n % 7 == 0 {
                yield_now();
            }
            *guard = seen + 1;
        }
    };

    let threads: Vec<_> = (0..2)
        .map(|_| {
            let count = count.clone();
            std::thread::spawn(move || add(&count))
        })
        .collect();
    setup.runtime().run(|| {
        let fibers: Vec<_> = (0..8)
            .map(|_| {
                let count = count.clone();
                spawn(move || add(&count))
            })
            .collect();
        fibers.into_iter().for_each(|f| f.join().unwrap());
    });
    threads.into_iter().for_each(|t| t.join().unwrap());
    assert_eq!(*count.lock().unwrap(), 10 * 500);
}

fn a_mutex_is_held_across_suspensions(setup: Setup) {
    setup.runtime().run(|| {
        let turns = Mutex::new(Vec::new());
        plainweave::scope(|s| {
            for n in 0..4 {
                let turns = &turns;
                s.spawn(move || {
                    let mut guard = turns.lock().unwrap();
                    guard.push(n);
                    pause();
                    guard.push(n);
                });
            }
        });

        let turns = turns.into_inner();
        assert_eq!(turns.len(), 8);
        assert!(turns.chunks(2).all(|pair| pair[0] == pair[1]), "{turns:?}");
    });
}

fn a_busy_locker_does_not_starve_a_waiter(setup: Setup) {
    let lock = Arc::new(Mutex::new(()));
    let served = Arc::new(AtomicBool::new(false));
    setup.workers(1).run(|| {
        let other = lock.clone();
        let done = served.clone();
        let guard = lock.lock().unwrap();
        let waiter = spawn(move || {
            drop(other.lock().unwrap());
            done.store(true, Ordering::Relaxed);
        });

        yield_now();
        drop(guard);
        // Never gives the lock up for longer than an instant, and never its turn without holding
        // it.
        let mut rounds = 0;

        while !served.load(Ordering::Relaxed) {
            let _guard = lock.lock().unwrap();
            yield_now();
            rounds += 1;
            assert!(rounds < 1000, "passed over {rounds} times");
        }

        waiter.join().unwrap();
    });
}

fn a_panicking_holder_releases(setup: Setup) {
    let lock = Arc::new(Mutex::new(1));
    setup.runtime().run(|| {
        let other = lock.clone();
        let holder = spawn(move || {
            let mut guard = other.lock().unwrap();
            *guard = 2;
            panic!("with the lock");
        });

        assert!(holder.join().unwrap_err().is_panic());
        assert_eq!(*lock.lock().unwrap(), 2);
    });
}

fn a_semaphore_serves_in_order(setup: Setup) {
    setup.workers(1).run(|| {
        let free = Semaphore::new(0);
        let order = Mutex::new(Vec::new());
        plainweave::scope(|s| {
            for n in 0..10 {
                let free = &free;
                let order = &order;
                s.spawn(move || {
                    free.acquire().unwrap().forget();
                    order.lock().unwrap().push(n);
                });

                // It waits before the next is there.
                yield_now();
                yield_now();
            }

            for _ in 0..10 {
                free.release();
                // Not for whoever comes now.
                assert!(free.try_acquire().is_none());
                yield_now();
            }
        });
        assert_eq!(order.into_inner(), (0..10).collect::<Vec<_>>());
    });
}

fn a_semaphore_bounds(setup: Setup) {
    let three = Arc::new(Semaphore::new(3));
    let inside = Arc::new(AtomicUsize::new(0));
    let work = move |three: &Semaphore| {
        for _ in 0..100 {
            let _permit = three.acquire().unwrap();
            let now = inside.fetch_add(1, Ordering::SeqCst);
            assert!(now < 3, "{now} inside already");
            yield_now();
            inside.fetch_sub(1, Ordering::SeqCst);
        }
    };

    let theirs = three.clone();
    let work_too = work.clone();
    let thread = std::thread::spawn(move || work_too(&theirs));
    setup
        .runtime()
        .scope(|s| (0..10).for_each(|_| drop(s.spawn(|| work(&three)))));
    thread.join().unwrap();
    assert_eq!(three.available(), 3);
}

fn a_condvar_hands_over_turn_by_turn(setup: Setup) {
    let turn = Arc::new((Mutex::new(0), Condvar::new()));
    let play = |me: u32, turn: &(Mutex<u32>, Condvar)| {
        for _ in 0..200 {
            let mut guard = turn.0.lock().unwrap();
            turn.1.wait_while(&mut guard, |now| *now % 3 != me).unwrap();
            *guard += 1;
            turn.1.notify_all();
        }
    };

    let theirs = turn.clone();
    let thread = std::thread::spawn(move || play(0, &theirs));
    setup.runtime().scope(|s| {
        s.spawn(|| play(1, &turn));
        s.spawn(|| play(2, &turn));
    });
    thread.join().unwrap();
    assert_eq!(*turn.0.lock().unwrap(), 600);
}

fn notify_all_lets_all_go(setup: Setup) {
    setup.runtime().run(|| {
        let waiting = AtomicUsize::new(0);
        let go = Mutex::new(false);
        let changed = Condvar::new();
        plainweave::scope(|s| {
            for _ in 0..20 {
                s.spawn(|| {
                    let mut guard = go.lock().unwrap();
                    waiting.fetch_add(1, Ordering::SeqCst);
                    changed.wait_while(&mut guard, |go| !*go).unwrap();
                });
            }

            while waiting.load(Ordering::SeqCst) < 20 {
                yield_now();
            }
            *go.lock().unwrap() = true;
            changed.notify_all();
        });
    });
}

/// Two wait; one is cancelled while one notification is sent: it goes to the other, unless it came
/// first.
fn a_cancelled_waiter_leaves_its_notification_to_another(setup: Setup) {
    let runtime = setup.runtime();
    for seed in 0..100 {
        let pair = Arc::new((Mutex::new(0), Condvar::new()));
        let woken = runtime.run(|| {
            let wait = |pair: Arc<(Mutex<i32>, Condvar)>| {
                move || {
                    let mut guard = pair.0.lock_always();
                    *guard += 1;
                    pair.1.wait(&mut guard).is_ok()
                }
            };

            let first = spawn(wait(pair.clone()));
            let second = spawn(wait(pair.clone()));
            while *pair.0.lock().unwrap() < 2 {
                yield_now();
            }
            let notifier = pair.clone();
            let notifier = std::thread::spawn(move || {
                Random::new(seed).spin(20);
                notifier.1.notify_one();
            });

            Random::new(seed + 1000).spin(20);
            first.cancel();
            let first = first.join().unwrap();
            notifier.join().unwrap();
            if first {
                second.cancel();
            }
            (first, second.join().unwrap())
        });
        assert!(woken.0 != woken.1, "woken: {woken:?}");
    }
}

fn each_value_is_received_once_and_in_order(setup: Setup) {
    for bound in [1, 3, usize::MAX] {
        let (sender, receiver) = if bound == usize::MAX {
            channel::unbounded()
        } else {
            channel::bounded(bound)
        };

        let sum = Arc::new(AtomicU64::new(0));
        let receive = {
            let sum = sum.clone();
            move |receiver: channel::Receiver<(usize, u64)>| {
                let mut last = [0; 3];
                while let Ok((from, n)) = receiver.recv() {
                    assert!(n > last[from], "out of order");
                    last[from] = n;
                    sum.fetch_add(n, Ordering::Relaxed);
                }
            }
        };

        let send = |from, sender: channel::Sender<_>| {
            (1..=1000).for_each(|n| sender.send((from, n)).unwrap())
        };
        let to = sender.clone();
        let of = receiver.clone();
        let receive_too = receive.clone();
        let threads = [
            std::thread::spawn(move || send(0, to)),
            std::thread::spawn(move || receive_too(of)),
        ];

        setup.runtime().run(|| {
            let to = sender.clone();
            let fibers = [
                spawn(move || send(1, to)),
                spawn(move || send(2, sender)),
                spawn({
                    let receive = receive.clone();
                    let receiver = receiver.clone();
                    move || receive(receiver)
                }),
                spawn(move || receive(receiver)),
            ];
            fibers.into_iter().for_each(|f| f.join().unwrap());
        });
        threads.into_iter().for_each(|t| t.join().unwrap());
        assert_eq!(sum.load(Ordering::Relaxed), 3 * 500_500);
    }
}

fn a_bounded_channel_holds_back_its_senders(setup: Setup) {
    setup.workers(1).run(|| {
        let (sender, receiver) = channel::bounded(2);
        let sent = Arc::new(AtomicUsize::new(0));
        let count = sent.clone();
        let fiber = spawn(move || {
            for n in 0..5 {
                sender.send(n).unwrap();
                count.fetch_add(1, Ordering::SeqCst);
            }

            assert!(
                sender
                    .try_send(5)
                    .is_err_and(|e| e.is_full() && e.into_inner() == 5)
            );
        });

        (0..10).for_each(|_| yield_now());
        assert_eq!((sent.load(Ordering::SeqCst), receiver.len()), (2, 2));
        assert_eq!(
            [
                receiver.recv().unwrap(),
                receiver.recv().unwrap(),
                receiver.recv().unwrap()
            ],
            [0, 1, 2]
        );
        fiber.join().unwrap();
        assert_eq!([receiver.recv().unwrap(), receiver.recv().unwrap()], [3, 4]);
        assert!(receiver.recv().is_err_and(|e| e.is_closed()));
    });
}

fn a_closed_channel_gives_what_is_left(setup: Setup) {
    setup.runtime().run(|| {
        let (sender, receiver) = channel::unbounded();
        let other = receiver.clone();
        assert!(receiver.try_recv().is_err_and(|e| e.is_empty()));
        let waiter = spawn(move || (other.recv(), other.recv()));
        pause();
        sender.send(1).unwrap();
        drop(sender);
        let (first, second) = waiter.join().unwrap();

        assert_eq!(first.unwrap(), 1);
        assert!(second.as_ref().is_err_and(|e| e.is_closed()));
        assert_eq!(
            std::io::Error::from(second.unwrap_err()).kind(),
            ErrorKind::BrokenPipe
        );
    });
}

fn a_channel_without_receivers_refuses_and_drops(setup: Setup) {
    let counts = Arc::new(Counts::default());
    setup.runtime().run(|| {
        let (sender, receiver) = channel::bounded(1);
        sender.send(Counted::new(&counts)).unwrap();
        let waiting = sender.clone();
        let value = Counted::new(&counts);
        let blocked = spawn(move || waiting.send(value));
        pause();
        drop(receiver);
        assert!(blocked.join().unwrap().is_err_and(|e| e.is_closed()));
        assert!(
            sender
                .send(Counted::new(&counts))
                .is_err_and(|e| e.is_closed())
        );
    });
    assert!(counts.balanced(), "{counts:?}");
}

type Call = (
    &'static str,
    Box<dyn FnOnce() -> std::io::Result<()> + Send>,
);

/// Calls that would wait for ever.
fn waits() -> Vec<Call> {
    let lock = Arc::new(Mutex::new(()));
    std::mem::forget(lock.try_lock());
    let none = Semaphore::new(0);
    let pair = (Mutex::new(()), Condvar::new());
    let (full, never_received) = channel::bounded(1);
    full.send(1).unwrap();
    let (never_sent, empty) = channel::unbounded::<u8>();

    vec![
        ("lock", Box::new(move || lock.lock().map(drop))),
        ("acquire", Box::new(move || none.acquire().map(drop))),
        (
            "wait",
            Box::new(move || pair.1.wait(&mut pair.0.lock_always())),
        ),
        (
            "send",
            Box::new(move || (full.send(2).map_err(Into::into), never_received).0),
        ),
        (
            "recv",
            Box::new(move || (empty.recv().map(drop).map_err(Into::into), never_sent).0),
        ),
    ]
}

fn every_wait_is_cancelled(setup: Setup) {
    let runtime = setup.runtime();
    for already in [true, false] {
        for (name, call) in waits() {
            let fiber = runtime.spawn(move || {
                if already {
                    plainweave::current().cancel();
                }
                call()
            });

            if !already {
                std::thread::sleep(ms(2));
                fiber.cancel();
            }

            let error = fiber.join().unwrap().expect_err(name);
            assert!(is_cancelled(&error), "{name}: {error}");
        }
    }
}

fn every_wait_heeds_its_deadline(setup: Setup) {
    let runtime = setup.runtime();
    for (name, call) in waits() {
        let error = runtime.run(|| with_timeout(ms(2), call)).expect_err(name);
        assert_eq!(error.kind(), ErrorKind::TimedOut, "{name}: {error}");
    }

    // On plain threads too.
    for (name, call) in waits() {
        let error = with_timeout(ms(2), call).expect_err(name);
        assert_eq!(error.kind(), ErrorKind::TimedOut, "{name}: {error}");
    }
}

fn what_is_free_is_given_also_to_the_cancelled(setup: Setup) {
    setup.runtime().run(|| {
        let fiber = spawn(|| {
            plainweave::current().cancel();
            let lock = Mutex::new(1);
            assert_eq!(*lock.lock().unwrap(), 1);
            Semaphore::new(1).acquire().unwrap().forget();
            let (sender, receiver) = channel::bounded(1);
            sender.send(2).unwrap();
            assert_eq!(receiver.recv().unwrap(), 2);
            assert!(receiver.recv().is_err_and(|e| e.is_cancelled()));
        });
        fiber.join().unwrap();
    });
}

/// Runs `body` on `n` fibers at once, over and over, and cancels each at a random moment, some of
/// them late.
fn storm(runtime: &Runtime, rounds: u64, n: u64, body: impl Fn(u64) + Send + Sync + 'static) {
    let body = Arc::new(body);
    for round in 0..rounds {
        let mut random = Random::new(round + 1);
        let fibers: Vec<_> = (0..n)
            .map(|i| {
                let body = body.clone();
                runtime.spawn(move || body(i))
            })
            .collect();
        for fiber in &fibers {
            random.spin(10);
            if random.below(4) > 0 {
                fiber.cancel();
            }
        }

        std::thread::sleep(ms(1));
        for fiber in fibers {
            fiber.cancel();
            fiber.join().unwrap();
        }
    }
}

fn cancelled_lockers_leave_the_lock_usable(setup: Setup) {
    let lock = Arc::new(Mutex::new(0));
    let theirs = lock.clone();
    storm(&setup.runtime(), 60, 12, move |_| {
        while let Ok(mut guard) = theirs.lock() {
            *guard += 1;
            yield_now();
            if *guard % 50 == 0 {
                break;
            }
        }
    });
    assert!(lock.try_lock().is_some(), "nobody holds it");
}

fn cancelled_acquirers_lose_no_permit(setup: Setup) {
    let two = Arc::new(Semaphore::new(2));
    let theirs = two.clone();
    storm(&setup.runtime(), 60, 12, move |_| {
        for _ in 0..50 {
            let Ok(_permit) = with_timeout(ms(1), || theirs.acquire()) else {
                return;
            };
            yield_now();
        }
    });
    assert_eq!(two.available(), 2);
}

fn cancelled_receivers_lose_no_value(setup: Setup) {
    let (sender, receiver) = channel::bounded(2);
    let sent = Arc::new(AtomicU64::new(0));
    let got = Arc::new(AtomicU64::new(0));
    let count_sent = sent.clone();
    let count_got = got.clone();
    let theirs = receiver.clone();

    storm(&setup.runtime(), 60, 12, move |me| {
        if me % 2 == 0 {
            while theirs.recv().is_ok() {
                count_got.fetch_add(1, Ordering::SeqCst);
            }
        } else {
            for _ in 0..20 {
                if sender.try_send(()).is_ok() {
                    count_sent.fetch_add(1, Ordering::SeqCst);
                }
                yield_now();
            }
        }
        // Whoever was not cancelled must come to an end too.
        plainweave::current().cancel();
    });
    let left = std::iter::from_fn(|| receiver.try_recv().ok()).count() as u64;

    assert_eq!(
        got.load(Ordering::SeqCst) + left,
        sent.load(Ordering::SeqCst)
    );
}

fn cancelled_senders_send_or_keep(setup: Setup) {
    let counts = Arc::new(Counts::default());
    let (sender, receiver) = channel::bounded(1);
    let sent = Arc::new(AtomicU64::new(0));
    let got = Arc::new(AtomicU64::new(0));
    let count_sent = sent.clone();
    let count_got = got.clone();
    let theirs = receiver.clone();
    let made = counts.clone();

    storm(&setup.runtime(), 60, 12, move |me| {
        if me % 2 == 0 {
            while sender.send(Counted::new(&made)).is_ok() {
                count_sent.fetch_add(1, Ordering::SeqCst);
                if count_sent.load(Ordering::SeqCst).is_multiple_of(100) {
                    break;
                }
            }
        } else {
            for _ in 0..20 {
                count_got.fetch_add(u64::from(theirs.try_recv().is_ok()), Ordering::SeqCst);
                yield_now();
            }
            plainweave::current().cancel();
        }
    });
    let left = std::iter::from_fn(|| receiver.try_recv().ok()).count() as u64;

    assert_eq!(
        got.load(Ordering::SeqCst) + left,
        sent.load(Ordering::SeqCst)
    );
    drop(receiver);
    assert!(counts.balanced(), "{counts:?}");
}
