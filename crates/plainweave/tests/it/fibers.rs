//! Fibers: joining, naming, parking, moving.

#![expect(
    unsafe_code,
    reason = "tests call what is unsafe, and say at each call why it is sound"
)]

use std::cell::RefCell;
use std::collections::HashSet;
use std::io::{ErrorKind, Read, Write};
use std::panic::{AssertUnwindSafe, catch_unwind, panic_any, resume_unwind};
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::common::*;
use plainweave::{Builder, Io, Movement, Runtime, time};

on_every_setup!(
    join_gives_the_value,
    join_gives_the_panic_with_its_payload,
    a_dropped_handle_detaches,
    is_finished_tells,
    names_and_numbers,
    the_builders_stack_size_holds,
    yield_is_fair,
    yielding_fibers_do_not_starve_timers,
    a_token_left_before_ends_the_park,
    tokens_merge,
    unpark_from_a_thread,
    stale_wake_ups_do_not_end_a_park,
    unpark_of_the_ended_is_harmless,
    wake_ups_from_elsewhere_race_with_the_end,
    ping_pong_across_runtimes,
    local_fibers_share_an_rc,
    local_fibers_stay_on_their_worker,
    never_moving_fibers_stay_on_their_worker,
    unstarted_fibers_are_stolen_and_started_ones_stay,
    fibers_of_anytime_move,
    run_borrows_and_propagates,
    runtimes_nest,
    a_storm_of_spawns_from_many_threads,
    on_plain_threads_everything_works,
);

#[inline(never)]
fn os_thread() -> i32 {
    // SAFETY: no preconditions.
    unsafe { libc::gettid() }
}

fn join_gives_the_value(setup: Setup) {
    let runtime = setup.runtime();
    let sum = runtime.run(|| {
        let spawn = |n: u64| {
            plainweave::spawn(move || {
                (0..n % 3).for_each(|_| plainweave::yield_now());
                n
            })
        };

        let handles: Vec<_> = (0..1000).map(spawn).collect();
        handles
            .into_iter()
            .map(|h| h.join().expect("no panic"))
            .sum::<u64>()
    });

    assert_eq!(sum, 499_500);
    assert_eq!(
        runtime.spawn(|| "outside").join().expect("no panic"),
        "outside"
    );
}

fn join_gives_the_panic_with_its_payload(setup: Setup) {
    #[derive(Debug, PartialEq)]
    struct Payload(u32);
    setup.runtime().run(|| {
        let error = plainweave::spawn(|| -> () { panic_any(Payload(7)) })
            .join()
            .expect_err("it panicked");
        assert!(
            error.is_panic()
                && !error.is_cancelled()
                && !error.is_timed_out()
                && !error.is_refused()
        );
        assert_eq!(
            error.into_panic().expect("a panic").downcast_ref(),
            Some(&Payload(7))
        );

        let error = plainweave::spawn(|| -> () { panic!("seen {}", "text") })
            .join()
            .expect_err("it panicked");
        assert_eq!(error.to_string(), "the fiber panicked: seen text");
        assert!(
            std::io::Error::from(error)
                .to_string()
                .contains("seen text")
        );

        // The worker's panic count is what it was.
        assert!(!std::thread::panicking());
        assert_eq!(plainweave::spawn(|| 1).join().expect("no panic"), 1);
    });
}

fn a_dropped_handle_detaches(setup: Setup) {
    let runtime = setup.runtime();
    let done = Arc::new(AtomicUsize::new(0));
    runtime.run(|| {
        for _ in 0..100 {
            let done = done.clone();
            drop(plainweave::spawn(move || {
                plainweave::yield_now();
                done.fetch_add(1, Ordering::SeqCst);
            }));
        }
    });
    eventually("detached fibers run on", || {
        done.load(Ordering::SeqCst) == 100
    });
}

fn is_finished_tells(setup: Setup) {
    let runtime = setup.runtime();
    let handle = runtime.spawn(|| plainweave::park().is_ok());
    std::thread::sleep(ms(5));
    assert!(!handle.is_finished());
    handle.fiber().unpark();
    eventually("the end", || handle.is_finished());
    assert!(handle.join().expect("no panic"));
}

fn names_and_numbers(setup: Setup) {
    setup.runtime().run(|| {
        let me = plainweave::current();
        assert_eq!(me.name(), Some("main"));
        assert!(me.id() > 0 && plainweave::on_fiber());
        let named = Builder::new().name("weaver").spawn(|| {
            let me = plainweave::current();
            (me.id(), me.name().map(str::to_owned))
        });

        let named = named.expect("spawned");
        let seen_by_handle = named.fiber().id();
        let name = named.fiber().name().map(str::to_owned);
        assert_eq!(name.as_deref(), Some("weaver"));
        assert_eq!(named.join().expect("no panic"), (seen_by_handle, name));
        assert_eq!(
            plainweave::spawn(|| plainweave::current().name().is_none())
                .join()
                .ok(),
            Some(true)
        );

        let handles: Vec<_> = (0..1000)
            .map(|_| plainweave::spawn(|| plainweave::current().id()))
            .collect();
        let ids: HashSet<u64> = handles
            .into_iter()
            .map(|h| h.join().expect("no panic"))
            .collect();
        assert_eq!(ids.len(), 1000);
        assert!(plainweave::worker_index().is_some());
    });
    assert!(!plainweave::on_fiber() && plainweave::worker_index().is_none());
    assert_eq!(plainweave::current().id(), 0);
}

#[inline(never)]
fn recurse(bytes: usize) -> usize {
    let frame = std::hint::black_box([bytes as u8; 1024]);
    if bytes <= 1024 {
        usize::from(frame[0])
    } else {
        recurse(bytes - 1024).wrapping_add(usize::from(frame[7]))
    }
}

fn the_builders_stack_size_holds(setup: Setup) {
    let runtime = setup.runtime();
    runtime.run(|| {
        for _ in 0..20 {
            let deep = Builder::new().name("deep").stack_size(16 << 20);
            assert!(
                deep.clone()
                    .spawn(|| recurse(8 << 20))
                    .expect("in range")
                    .join()
                    .is_ok()
            );
            let small = Builder::new().stack_size(32 << 10);
            assert_eq!(
                small
                    .spawn(|| 5)
                    .expect("in range")
                    .join()
                    .expect("no panic"),
                5
            );
        }

        for wrong in [1, 4096, usize::MAX, 4 << 30] {
            let error = Builder::new()
                .stack_size(wrong)
                .spawn(|| ())
                .expect_err("out of range");
            assert_eq!(error.kind(), ErrorKind::InvalidInput);
            assert!(error.to_string().contains("bytes"), "{error}");
        }
    });
    assert!(
        runtime
            .spawn_with(Builder::new().stack_size(1 << 20).name("n"), || 1)
            .expect("in range")
            .join()
            .is_ok()
    );
    let parked = runtime
        .spawn_with(Builder::new().stack_size(2 << 20), plainweave::park)
        .expect("in range");
    eventually("it counts as a stack in use", || {
        runtime.metrics().stacks_in_use == 1
    });
    parked.fiber().unpark();
    parked.join().expect("no panic").expect("unparked");
    eventually("it is given back", || runtime.metrics().stacks_in_use == 0);
    let wrong = setup
        .builder()
        .stack_size(1)
        .build()
        .expect_err("out of range");

    assert_eq!(wrong.kind(), ErrorKind::InvalidInput);
}

/// On one worker no yielding fiber gets far ahead of another.
fn yield_is_fair(setup: Setup) {
    let runtime = setup.shared_workers(1);
    runtime.run(|| {
        let counts: Rc<RefCell<Vec<u32>>> = Rc::new(RefCell::new(vec![0; 5]));
        let ahead = Rc::new(RefCell::new(0));
        let start = Rc::new(RefCell::new(false));
        let fibers: Vec<_> = (0..5)
            .map(|me| {
                let counts = counts.clone();
                let ahead = ahead.clone();
                let start = start.clone();
                plainweave::spawn_local(move || {
                    while !*start.borrow() {
                        plainweave::yield_now();
                    }
                    for _ in 0..1000 {
                        counts.borrow_mut()[me] += 1;
                        let least = *counts.borrow().iter().min().expect("five");
                        let lead = counts.borrow()[me] - least;
                        let most = lead.max(*ahead.borrow());
                        *ahead.borrow_mut() = most;
                        plainweave::yield_now();
                    }
                })
            })
            .collect();
        for _ in 0..10 {
            plainweave::yield_now();
        }
        *start.borrow_mut() = true;
        fibers.into_iter().for_each(|f| f.join().expect("no panic"));
        assert!(
            *ahead.borrow() <= 5,
            "one was {} yields ahead of another",
            ahead.borrow()
        );
    });
}

fn yielding_fibers_do_not_starve_timers(setup: Setup) {
    let runtime = setup.workers(1);
    let stop = Arc::new(AtomicBool::new(false));
    let spinners: Vec<_> = (0..4)
        .map(|_| {
            let stop = stop.clone();
            runtime.spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    plainweave::yield_now();
                }
            })
        })
        .collect();
    runtime.run(|| {
        for _ in 0..5 {
            time::sleep(ms(3)).expect("not cancelled");
        }
        let (mut ours, mut theirs) = connected();
        theirs.write_all(b"x").expect("write");
        assert_eq!(ours.read(&mut [0; 8]).expect("read"), 1);
        stop.store(true, Ordering::Relaxed);
    });

    spinners
        .into_iter()
        .for_each(|s| s.join().expect("no panic"));
}

fn a_token_left_before_ends_the_park(setup: Setup) {
    setup.runtime().run(|| {
        for _ in 0..100 {
            plainweave::current().unpark();
            plainweave::park().expect("a token");
        }

        let parked = plainweave::spawn(|| {
            pause();
            plainweave::park()
        });

        parked.fiber().unpark();
        parked
            .join()
            .expect("no panic")
            .expect("the token was left before");
    });
}

fn tokens_merge(setup: Setup) {
    setup.runtime().run(|| {
        let me = plainweave::current();
        (0..3).for_each(|_| me.unpark());
        plainweave::park().expect("a token");
        let late = plainweave::park_timeout(ms(10)).expect_err("no second token");
        assert_eq!(late.kind(), ErrorKind::TimedOut);
        assert!(!plainweave::is_cancelled(&late));
    });
}

fn unpark_from_a_thread(setup: Setup) {
    let runtime = setup.runtime();
    let rounds = 2000;
    let fiber = runtime.spawn(move || (0..rounds).filter(|_| plainweave::park().is_ok()).count());
    let handle = fiber.fiber();
    let mut random = Random::new(3);
    while !fiber.is_finished() {
        handle.unpark();
        random.spin(20);
    }

    assert_eq!(fiber.join().expect("no panic"), rounds);
}

/// A blocking job, and timers, wake a fiber that has gone on to something else.
fn stale_wake_ups_do_not_end_a_park(setup: Setup) {
    setup.runtime().run(|| {
        for _ in 0..20 {
            let (finish, told) = std::sync::mpsc::channel::<()>();
            let late = time::with_timeout(ms(2), || {
                plainweave::blocking(move || {
                    let _ = told.recv();
                })
            });

            assert_eq!(late.expect_err("too slow").kind(), ErrorKind::TimedOut);
            let start = Instant::now();
            drop(finish);
            let late = plainweave::park_timeout(ms(12)).expect_err("nobody left a token");
            assert_eq!(late.kind(), ErrorKind::TimedOut);
            assert!(start.elapsed() >= ms(12));
        }
    });
}

/// Fibers that park a few times and end, while two threads go on waking them: each token ends a
/// park, the last of them come when the fiber is ending or has ended, and the runtime ends with
/// nobody left.
fn wake_ups_from_elsewhere_race_with_the_end(setup: Setup) {
    const PARKS: usize = 3;
    let runtime = setup.workers(2);
    for round in 0..60 {
        let parked = Arc::new(AtomicUsize::new(0));
        let fibers: Vec<_> = (0..4)
            .map(|i| {
                let parked = parked.clone();
                runtime.spawn(move || {
                    for _ in 0..(round + i) % (PARKS + 1) {
                        plainweave::park().unwrap();
                        parked.fetch_add(1, Ordering::Relaxed);
                    }
                })
            })
            .collect();
        let over = AtomicBool::new(false);
        std::thread::scope(|threads| {
            for _ in 0..2 {
                threads.spawn(|| {
                    while !over.load(Ordering::Relaxed) {
                        fibers.iter().for_each(|fiber| fiber.fiber().unpark());
                    }
                });
            }

            eventually("all have ended", || {
                fibers.iter().all(plainweave::JoinHandle::is_finished)
            });
            over.store(true, Ordering::Relaxed);
        });

        assert_eq!(
            parked.load(Ordering::Relaxed),
            (0..4).map(|i| (round + i) % (PARKS + 1)).sum::<usize>()
        );
        fibers.into_iter().for_each(|fiber| fiber.join().unwrap());
    }

    assert!(runtime.wait_idle(Duration::from_secs(10)));
}

fn unpark_of_the_ended_is_harmless(setup: Setup) {
    let runtime = setup.runtime();
    let handles: Vec<_> = (0..50)
        .map(|_| runtime.spawn(plainweave::current))
        .collect();
    let ended: Vec<_> = handles
        .into_iter()
        .map(|h| h.join().expect("no panic"))
        .collect();
    ended.iter().for_each(|f| f.unpark());
    drop(runtime);

    for fiber in ended {
        fiber.unpark();
        fiber.cancel();
        assert!(fiber.id() > 0);
    }
}

fn ping_pong_across_runtimes(setup: Setup) {
    let one = setup.workers(1);
    let two = setup.runtime();
    let main = plainweave::current();
    let turns = 1000;
    let player = |opponent: Arc<Mutex<Option<plainweave::Fiber>>>| {
        move || {
            let other = loop {
                match opponent.lock().expect("lock").clone() {
                    Some(other) => break other,
                    None => plainweave::yield_now(),
                }
            };

            for _ in 0..turns {
                plainweave::park().expect("a token");
                other.unpark();
            }
        }
    };

    let for_first = Arc::new(Mutex::new(None));
    let for_second = Arc::new(Mutex::new(None));
    let first = one.spawn(player(for_first.clone()));
    let second = two.spawn(player(for_second.clone()));
    *for_first.lock().expect("lock") = Some(second.fiber());
    *for_second.lock().expect("lock") = Some(first.fiber());
    first.fiber().unpark();
    first.join().expect("no panic");
    second.join().expect("no panic");
    drop(main);
}

fn local_fibers_share_an_rc(setup: Setup) {
    setup.shared_workers(2).run(|| {
        let shared = Rc::new(RefCell::new(Vec::new()));
        let fibers: Vec<_> = (0..10)
            .map(|n| {
                let shared = shared.clone();
                plainweave::spawn_local(move || {
                    for _ in 0..10 {
                        shared.borrow_mut().push(n);
                        plainweave::yield_now();
                    }

                    time::sleep(ms(1)).expect("not cancelled");
                    shared
                })
            })
            .collect();
        for fiber in fibers {
            assert!(Rc::ptr_eq(&fiber.join().expect("no panic"), &shared));
        }
        assert_eq!(shared.borrow().len(), 100);
        assert_eq!(Rc::strong_count(&shared), 1);
    });
}

fn local_fibers_stay_on_their_worker(setup: Setup) {
    setup.shared_workers(2).run(|| {
        let here = os_thread();
        let fibers: Vec<_> = (0..50)
            .map(|_| {
                Builder::new().name("local").spawn_local(move || {
                    (0..20).all(|_| {
                        plainweave::yield_now();
                        os_thread() == here
                    })
                })
            })
            .collect();
        assert!(
            fibers
                .into_iter()
                .all(|f| f.expect("pinned").join().expect("no panic"))
        );
    });
}

fn never_moving_fibers_stay_on_their_worker(setup: Setup) {
    let runtime = setup.check(
        setup
            .builder()
            .workers(3)
            .movement(Movement::Never)
            .build()
            .expect("a runtime"),
    );
    runtime.run(|| {
        let here = os_thread();
        let fiber = move || {
            let first = os_thread();
            time::sleep(ms(2)).expect("not cancelled");
            plainweave::yield_now();
            first == here && os_thread() == here
        };

        let fibers: Vec<_> = (0..100).map(|_| plainweave::spawn(fiber)).collect();
        // Busy for a while: others would steal if they could.
        Random::new(1).spin(10_000);
        assert!(fibers.into_iter().all(|f| f.join().expect("no panic")));
    });
    let outside: Vec<_> = (0..30).map(|_| runtime.spawn(os_thread)).collect();
    let threads: HashSet<_> = outside
        .into_iter()
        .map(|f| f.join().expect("no panic"))
        .collect();

    assert_eq!(
        threads.len(),
        3,
        "spawned from outside, they are spread over the workers"
    );
}

fn unstarted_fibers_are_stolen_and_started_ones_stay(setup: Setup) {
    let builder = setup.builder().workers(3).movement(Movement::BeforeStart);
    let runtime = setup.check(builder.build().expect("a runtime"));
    runtime.run(|| {
        let started = Arc::new(AtomicUsize::new(0));
        let here = os_thread();
        let fibers: Vec<_> = (0..300)
            .map(|n| {
                let started = started.clone();
                plainweave::spawn(move || {
                    let first = os_thread();
                    started.fetch_add(1, Ordering::SeqCst);
                    for k in 0..5 {
                        plainweave::yield_now();
                        if (n + k) % 4 == 0 {
                            time::sleep(ms(1)).expect("not cancelled");
                        }
                        assert_eq!(os_thread(), first, "a started fiber has moved");
                    }

                    first
                })
            })
            .collect();

        // This worker does not run anything else until all have started: elsewhere.
        while started.load(Ordering::SeqCst) < 300 {
            std::hint::spin_loop();
        }
        for fiber in fibers {
            assert_ne!(fiber.join().expect("no panic"), here);
        }
    });
}

fn fibers_of_anytime_move(setup: Setup) {
    // SAFETY: no fiber here holds a reference into a thread-local across a suspension, and
    // `os_thread`, which uses one, is not inlined.
    let builder = unsafe { setup.shared_builder().workers(2).movement_anytime() };
    let runtime = setup.check(builder.build().expect("a runtime"));
    let refused = runtime.run(|| Builder::new().spawn_local(|| ()).err());
    let refused = refused.expect("fibers that may move have no worker to share");
    assert_eq!(refused.kind(), ErrorKind::Unsupported);
    assert!(refused.to_string().contains("Anytime"), "{refused}");

    let moved = Arc::new(AtomicUsize::new(0));
    let work = Arc::new(AtomicUsize::new(0));

    let mut rounds = 0;
    while moved.load(Ordering::SeqCst) == 0 || rounds < 3 {
        rounds += 1;
        let moved = &moved;
        let work = &work;
        runtime.scope(|s| {
            for n in 0..100 {
                s.spawn(move || {
                    let mut threads = HashSet::new();
                    for k in 0..30 {
                        threads.insert(os_thread());
                        Random::new(n + 1).spin(10);
                        match (n + k) % 10 {
                            0 => time::sleep(ms(1)).expect("not cancelled"),
                            1 => plainweave::blocking(|| ()).expect("not cancelled"),
                            _ => plainweave::yield_now(),
                        }

                        work.fetch_add(1, Ordering::SeqCst);
                    }
                    moved.fetch_add(usize::from(threads.len() > 1), Ordering::SeqCst);
                });
            }
        });
    }

    assert_eq!(work.load(Ordering::SeqCst), rounds * 3000);
    // Connections too: an operation binds its fiber only while it is in flight.
    runtime.run(|| {
        let (ours, theirs) = stream_pair();
        let server = plainweave::spawn(move || echo(ours));
        let mut theirs = theirs;

        for n in 0..200u32 {
            theirs.write_all(&n.to_le_bytes()).expect("write");
            let mut back = [0; 4];
            theirs.read_exact(&mut back).expect("read");
            assert_eq!(u32::from_le_bytes(back), n);
            plainweave::yield_now();
        }

        drop(theirs);
        assert_eq!(server.join().expect("no panic").expect("no error"), 800);
    });
}

fn run_borrows_and_propagates(setup: Setup) {
    let runtime = setup.runtime();
    let mut list = vec![1, 2];
    let len = runtime.run(|| {
        list.push(3);
        plainweave::yield_now();
        list.len()
    });

    assert_eq!((len, list.as_slice()), (3, [1, 2, 3].as_slice()));
    let panic = catch_unwind(AssertUnwindSafe(|| {
        runtime.run(|| -> () { resume_unwind(Box::new(77u8)) })
    }));
    assert_eq!(panic.expect_err("propagated").downcast_ref(), Some(&77u8));
    assert_eq!(runtime.run(|| 4), 4);
}

fn runtimes_nest(setup: Setup) {
    let outer = setup.runtime();
    let inner = setup.workers(1);
    let ticks = AtomicUsize::new(0);
    outer.run(|| {
        plainweave::scope(|s| {
            // Others of the outer runtime go on meanwhile.
            s.spawn(|| {
                for _ in 0..10 {
                    time::sleep(ms(1)).expect("not cancelled");
                    ticks.fetch_add(1, Ordering::SeqCst);
                }
            });
            let outer_id = plainweave::current().id();
            let value = inner.run(|| {
                pause();
                let there = plainweave::spawn(|| 5).join().expect("no panic");
                assert_ne!(plainweave::current().id(), outer_id);
                there
            });

            assert_eq!(value, 5);
            let panic = catch_unwind(AssertUnwindSafe(|| inner.run(|| panic!("inner"))));
            assert_eq!(panic_text(&*panic.expect_err("propagated")), "inner");

            // On its own runtime too.
            assert_eq!(
                outer.run(|| plainweave::spawn(|| 6).join().expect("no panic")),
                6
            );
            assert_eq!(
                inner.scope(|s| s.spawn(|| outer.run(|| 7)).join().expect("no panic")),
                7
            );
        });
    });
    assert_eq!(ticks.load(Ordering::SeqCst), 10);

    // A whole runtime within a fiber.
    assert_eq!(outer.run(|| setup.runtime().run(|| 8)), 8);
}

fn a_storm_of_spawns_from_many_threads(setup: Setup) {
    let runtime = setup.runtime();
    let done = AtomicUsize::new(0);
    std::thread::scope(|threads| {
        for _ in 0..4 {
            threads.spawn(|| {
                for _ in 0..50 {
                    runtime.scope(|s| {
                        for _ in 0..20 {
                            s.spawn(|| done.fetch_add(1, Ordering::Relaxed));
                        }
                    });
                }
            });
        }
    });

    assert_eq!(done.load(Ordering::SeqCst), 4000);
    eventually("all have ended", || runtime.metrics().live_fibers == 0);
}

fn on_plain_threads_everything_works(setup: Setup) {
    let runtime = setup.runtime();
    // park, unpark
    let me = plainweave::current();
    me.unpark();
    plainweave::park().expect("a token");
    assert_eq!(
        plainweave::park_timeout(ms(5)).expect_err("none").kind(),
        ErrorKind::TimedOut
    );
    let waker = runtime.spawn(move || {
        pause();
        me.unpark();
    });

    plainweave::park().expect("a token from a fiber");
    waker.join().expect("no panic");
    plainweave::yield_now();

    // sleep, deadlines
    let start = Instant::now();
    time::sleep(ms(10)).expect("slept");
    assert!(start.elapsed() >= ms(10));
    let late = time::with_timeout(ms(5), || time::sleep(Duration::from_secs(100)));
    assert_eq!(late.expect_err("late").kind(), ErrorKind::TimedOut);

    // join
    let slow = runtime.spawn(|| plainweave::park().is_ok());
    let fiber = slow.fiber();
    let late = time::with_timeout(ms(5), || slow.join()).expect_err("late");
    assert!(late.is_timed_out());
    fiber.unpark();

    // net, both ways
    let listener = listener();
    let address = listener.local_addr().expect("address");
    let server = runtime.spawn(move || echo(listener.accept().expect("accept").0));
    let mut client = plainweave::net::TcpStream::connect(address).expect("connect");
    client.write_all(b"from a thread").expect("write");
    client.wait_readable().expect("readable");
    let mut back = [0; 13];

    client.read_exact(&mut back).expect("read");
    assert_eq!(&back, b"from a thread");
    client.set_read_timeout(Some(ms(5))).expect("set");
    assert_eq!(
        client.read(&mut back).expect_err("nothing").kind(),
        ErrorKind::TimedOut
    );
    let late = time::with_timeout(ms(5), || {
        client.set_read_timeout(None).expect("set");
        client.read(&mut [0; 1])
    });

    assert_eq!(late.expect_err("nothing").kind(), ErrorKind::TimedOut);
    drop(client);
    assert_eq!(server.join().expect("no panic").expect("no error"), 13);
    let listener = crate::common::listener();
    let address = listener.local_addr().expect("address");
    let client = runtime.spawn(move || plainweave::net::TcpStream::connect(address).is_ok());

    listener.accept().expect("accepted by a thread");
    assert!(client.join().expect("no panic"));
    let late = time::with_timeout(ms(5), || listener.accept());

    assert_eq!(late.expect_err("nobody").kind(), ErrorKind::TimedOut);
    // blocking, files
    assert_eq!(plainweave::blocking(|| 9).expect("runs here"), 9);
    assert!(
        !plainweave::fs::read("/proc/self/stat")
            .expect("a file")
            .is_empty()
    );

    // scope
    assert_eq!(
        runtime.scope(|s| s.spawn(|| 3).join().expect("no panic")),
        3
    );
    assert!(plainweave::metrics().is_none());
}

#[test]
fn outside_a_runtime_spawn_says_what_to_do() {
    for call in [
        || drop(plainweave::spawn(|| ())),
        || plainweave::scope(|s| drop(s.spawn(|| ()))),
        || plainweave::net::on_readable(connected().0, None, |_, _| ()),
    ] {
        let text = panic_text(&*catch_unwind(call).expect_err("a panic"));
        assert!(
            text.contains("outside a runtime") && text.contains("plainweave::run"),
            "{text}"
        );
    }

    assert!(catch_unwind(|| drop(plainweave::spawn_local(|| ()))).is_err());
    assert!(Builder::new().spawn(|| ()).is_err());
    let text = panic_text(&*catch_unwind(|| drop(plainweave::spawn(|| ()))).expect_err("a panic"));
    assert!(text.contains("Runtime::spawn"), "{text}");
}

/// Measured where stacks come back to the pool: a worker keeps some for itself. In rounds, because
/// only what is in memory at that moment counts: pages that the kernel has swapped out by then do
/// not.
#[test]
fn the_high_water_mark_shows_how_deep_fibers_go() {
    unless_it_hangs("the_high_water_mark_shows_how_deep_fibers_go", || {
        let runtime = Runtime::builder().workers(1).build().expect("a runtime");
        let deep = || {
            recurse(64 << 10);
            plainweave::park()
        };

        let round = || {
            let fibers: Vec<_> = (0..400).map(|_| runtime.spawn(deep)).collect();
            eventually("all are parked", || runtime.metrics().stacks_in_use == 400);
            fibers.iter().for_each(|f| f.fiber().unpark());
            fibers
                .into_iter()
                .for_each(|f| f.join().expect("no panic").expect("unparked"));
            eventually("stacks are back", || runtime.metrics().stacks_in_use == 0);
            runtime.metrics().stack_high_water.unwrap_or(0)
        };

        let marks: Vec<_> = (0..20)
            .map(|_| round())
            .take_while(|mark| *mark < 64 << 10)
            .collect();
        let mark = runtime.metrics().stack_high_water.unwrap_or(0);
        let expected = 64 << 10..512 << 10;
        assert!(
            expected.contains(&mark),
            "{mark} after {marks:?}; {:?}",
            std::fs::read_to_string("/proc/swaps")
        );
    });
}

/// What one worker keeps for itself does not count against the others.
#[test]
fn no_fiber_is_refused_below_the_limit() {
    unless_it_hangs("no_fiber_is_refused_below_the_limit", || {
        let builder = Runtime::builder()
            .workers(3)
            .movement(Movement::Never)
            .max_fibers(30);
        let runtime = builder.build().expect("a runtime");
        for _ in 0..20 {
            // Round robin over the workers.
            let fibers: Vec<_> = (0..24).map(|n| runtime.spawn(move || n)).collect();
            for (n, fiber) in fibers.into_iter().enumerate() {
                assert_eq!(fiber.join().map_err(|e| e.to_string()), Ok(n));
            }
        }
    });
}

#[test]
fn anytime_is_not_to_be_had_without_unsafe() {
    // SAFETY: no runtime comes of it.
    let builder = unsafe { Runtime::builder().shared_storage() };
    let error = builder
        .movement(Movement::Anytime)
        .build()
        .expect_err("storage is shared");
    assert!(error.to_string().contains("own_storage"), "{error}");
}

#[test]
fn many_runtimes_at_once() {
    unless_it_hangs("many_runtimes_at_once", || {
        std::thread::scope(|threads| {
            for n in 0..8 {
                threads.spawn(move || {
                    let io = if n % 2 == 0 { Io::Epoll } else { Io::Uring };
                    for round in 0..5 {
                        let policy = if round % 2 == 0 { "fifo" } else { "lifo-slot" };
                        let runtime = Setup {
                            io,
                            policy,
                            pooled: false,
                        }
                        .runtime();
                        let sum = runtime.scope(|s| {
                            let handles: Vec<_> = (0..50u64)
                                .map(|k| {
                                    s.spawn(move || {
                                        let (ours, mut theirs) = stream_pair();
                                        let server = plainweave::spawn(move || echo(ours));
                                        theirs.write_all(&k.to_le_bytes()).expect("write");
                                        let mut back = [0; 8];
                                        theirs.read_exact(&mut back).expect("read");
                                        drop(theirs);
                                        server.join().expect("no panic").expect("no error");
                                        u64::from_le_bytes(back)
                                    })
                                })
                                .collect();
                            handles
                                .into_iter()
                                .map(|h| h.join().expect("no panic"))
                                .sum::<u64>()
                        });

                        assert_eq!(sum, 1225);
                    }
                });
            }
        });
    });
}

#[test]
fn too_many_fibers_are_refused() {
    unless_it_hangs("too_many_fibers_are_refused", || {
        let runtime = Runtime::builder()
            .workers(1)
            .max_fibers(10)
            .build()
            .expect("a runtime");
        let parked: Vec<_> = (0..10).map(|_| runtime.spawn(plainweave::park)).collect();
        eventually("all have stacks", || runtime.metrics().stacks_in_use == 10);
        let error = runtime.spawn(|| 1).join().expect_err("no stack left");
        assert!(error.is_refused() && !error.is_panic(), "{error}");
        assert!(!error.to_string().is_empty());
        let panic = catch_unwind(AssertUnwindSafe(|| runtime.run(|| 1)));

        assert!(panic_text(&*panic.expect_err("refused")).contains("could not start"));
        let panic = catch_unwind(AssertUnwindSafe(|| {
            runtime.scope(|s| s.spawn(|| 1).join().is_err())
        }));
        assert!(panic.expect("the handle told"));
        parked.iter().for_each(|p| p.fiber().unpark());
        parked
            .into_iter()
            .for_each(|p| p.join().expect("no panic").expect("unparked"));
        assert_eq!(runtime.spawn(|| 1).join().expect("stacks are back"), 1);
    });
}
