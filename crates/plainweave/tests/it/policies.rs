//! Every policy on the real runtime, and what fibers tell policies of themselves.

#![expect(
    unsafe_code,
    reason = "tests call what is unsafe, and say at each call why it is sound"
)]

use std::io::ErrorKind;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::common::*;
use plainweave::policy::PRESETS;
use plainweave::{Builder, Movement, Runtime};

/// Fibers that yield, spawn, and hand a token round a ring; all of it is done once.
fn work() -> usize {
    let done = Arc::new(AtomicUsize::new(0));
    let mut fibers = Vec::new();
    for i in 0..60 {
        let done = done.clone();
        fibers.push(plainweave::spawn(move || {
            for turn in 0..i % 5 {
                [
                    plainweave::yield_now,
                    plainweave::yield_local,
                    plainweave::yield_shared,
                ][turn % 3]();
            }

            let child = done.clone();
            let child = plainweave::spawn(move || child.fetch_add(1, Ordering::Relaxed));
            child.join().expect("no panic");
            done.fetch_add(1, Ordering::Relaxed);
        }));
    }

    // Each of the ring waits for its token, then wakes the next.
    let mut next: Option<plainweave::Fiber> = None;
    for _ in 0..10 {
        let done = done.clone();
        let wakes = next.take();
        let fiber = plainweave::spawn(move || {
            plainweave::park().expect("not cancelled");
            done.fetch_add(1, Ordering::Relaxed);
            wakes.into_iter().for_each(|fiber| fiber.unpark());
        });

        next = Some(fiber.fiber());
        fibers.push(fiber);
    }

    next.expect("a ring").unpark();
    fibers
        .into_iter()
        .for_each(|fiber| fiber.join().expect("no panic"));
    done.load(Ordering::Relaxed)
}

#[test]
fn every_policy_runs_everything() {
    for preset in PRESETS {
        for anytime in [false, true] {
            let what = format!("{} {anytime}", preset.name);
            unless_it_hangs(&what, || {
                let mut builder = Runtime::builder().workers(3).policy(preset.name);
                if anytime {
                    // SAFETY: these fibers use no thread-local storage of their own, and everything
                    // in them is Send.
                    builder = unsafe { builder.movement_anytime() };
                }

                let runtime = builder.build().expect("a runtime");
                assert_eq!(runtime.policy(), preset.name);
                assert_eq!(runtime.run(work), 130, "{what}");
                let left = runtime.shutdown(Duration::from_secs(30));
                assert_eq!(left, plainweave::Shutdown::default(), "{what}");
            });
        }
    }
}

/// Two fibers that wait for each other's turn by `yield_now` alone, `TURNS` times each.
fn spin_on_each_other() -> usize {
    const TURNS: usize = 100;
    let turn = Arc::new(AtomicUsize::new(0));
    let spin = |me: usize| {
        let turn = turn.clone();
        plainweave::spawn(move || {
            for _ in 0..TURNS {
                while turn.load(Ordering::Acquire) % 2 != me {
                    plainweave::yield_now();
                }
                turn.fetch_add(1, Ordering::Release);
            }
        })
    };

    let fibers = [spin(0), spin(1)];
    fibers
        .into_iter()
        .for_each(|fiber| fiber.join().expect("no panic"));
    turn.load(Ordering::Relaxed)
}

#[test]
fn fibers_that_spin_by_yields_make_progress_under_every_policy() {
    for preset in PRESETS {
        for workers in [1, 2] {
            let what = format!("{} with {workers}", preset.name);
            unless_it_hangs(&what, || {
                // No spare worker helps.
                let builder = Runtime::builder()
                    .workers(workers)
                    .max_workers(workers)
                    .policy(preset.name);
                let runtime = builder.build().expect("a runtime");
                assert_eq!(runtime.run(spin_on_each_other), 200, "{what}");
            });
        }
    }
}

/// Two workers with room for two fibers each, both full of what spawners that spin want to add.
#[test]
fn full_workers_whose_spawners_spin_come_to_an_end() {
    for preset in ["ot-fifo-base", "ot-lifo-base"] {
        unless_it_hangs(preset, || {
            let policy = format!("{preset}:capacity=2");
            let runtime = Runtime::builder()
                .workers(2)
                .policy(policy)
                .build()
                .expect("a runtime");
            let ran = Arc::new(AtomicUsize::new(0));
            runtime.run(|| {
                let spawner = |_| {
                    let ran = ran.clone();
                    plainweave::spawn(move || {
                        let count = |_| {
                            let ran = ran.clone();
                            plainweave::spawn(move || ran.fetch_add(1, Ordering::Relaxed))
                        };

                        let fibers: Vec<_> = (0..300).map(count).collect();
                        for fiber in fibers {
                            fiber.join().expect("no panic");
                        }
                    })
                };

                let spawners: Vec<_> = (0..2).map(spawner).collect();
                spawners
                    .into_iter()
                    .for_each(|fiber| fiber.join().expect("no panic"));
            });
            assert_eq!(ran.load(Ordering::Relaxed), 600);
            assert_eq!(
                runtime.shutdown(Duration::from_secs(30)),
                plainweave::Shutdown::default()
            );
        });
    }
}

/// One worker, with room for two of ten fibers; no spare one comes, though it might.
#[test]
fn metrics_count_inserts_that_found_no_room() {
    let build = |policy| {
        let builder = Runtime::builder()
            .workers(1)
            .policy(policy)
            .stall_after(Some(Duration::from_secs(60)));
        // SAFETY: these fibers use no thread-local storage of their own, and everything in them is
        // Send.
        unsafe { builder.movement_anytime() }
            .build()
            .expect("a runtime")
    };

    let spawn_ten = || {
        let fibers: Vec<_> = (0..10).map(|_| plainweave::spawn(|| ())).collect();
        fibers
            .into_iter()
            .for_each(|fiber| fiber.join().expect("no panic"));
    };

    let runtime = build("ot-fifo-base:capacity=2");
    runtime.run(spawn_ten);
    eventually("the worker looks at its driver", || {
        runtime.metrics().insert_overflows >= 8
    });
    let metrics = runtime.metrics();
    assert!(metrics.insert_retries >= 8, "{metrics:?}");
    let runtime = build("fifo:capacity=2");

    runtime.run(spawn_ten);
    let metrics = runtime.metrics();
    assert_eq!((metrics.insert_retries, metrics.insert_overflows), (0, 0));
}

/// The order in which fibers run that were spawned while their worker was busy.
fn order(policy: &str, make: impl Fn(usize) -> Builder + Sync) -> Vec<usize> {
    let runtime = Runtime::builder()
        .workers(1)
        .max_workers(1)
        .policy(policy)
        .build()
        .expect("a runtime");
    let ran = Arc::new(Mutex::new(Vec::new()));
    runtime.run(|| {
        let spawn = |i: usize| {
            let ran = ran.clone();
            make(i)
                .spawn(move || ran.lock().expect("no panic").push(i))
                .expect("a fiber")
        };

        let fibers: Vec<_> = (0..6).map(spawn).collect();
        fibers
            .into_iter()
            .for_each(|fiber| fiber.join().expect("no panic"));
    });
    Arc::into_inner(ran)
        .expect("all have ended")
        .into_inner()
        .expect("no panic")
}

/// What three fibers do before and after a yield each, on one worker that looks at the shared queue
/// last.
fn yields(movement: Movement) -> Vec<usize> {
    let builder = Runtime::builder()
        .workers(1)
        .policy("fifo:poll=60000")
        .stall_after(Some(Duration::from_secs(60)));
    let runtime = match movement {
        // SAFETY: these fibers use no thread-local storage of their own, and everything in them is
        // Send.
        Movement::Anytime => unsafe { builder.movement_anytime() },
        movement => builder.movement(movement),
    };

    let runtime = runtime.build().expect("a runtime");
    let ran = Arc::new(Mutex::new(Vec::new()));
    runtime.run(|| {
        let calls: [fn(); 3] = [
            plainweave::yield_shared,
            plainweave::yield_local,
            plainweave::yield_now,
        ];
        let spawn = |(i, yields): (usize, fn())| {
            let ran = ran.clone();
            plainweave::spawn(move || {
                ran.lock().expect("no panic").push(i);
                yields();
                ran.lock().expect("no panic").push(10 + i);
            })
        };

        let fibers: Vec<_> = calls.into_iter().enumerate().map(spawn).collect();
        fibers
            .into_iter()
            .for_each(|fiber| fiber.join().expect("no panic"));
    });
    Arc::into_inner(ran)
        .expect("all have ended")
        .into_inner()
        .expect("no panic")
}

#[test]
fn a_fiber_that_yields_to_the_shared_queue_waits_for_the_others() {
    assert_eq!(yields(Movement::Anytime), [0, 1, 2, 11, 12, 10]);
    assert_eq!(
        yields(Movement::BeforeStart),
        [0, 1, 2, 10, 11, 12],
        "a pinned fiber stays with its worker"
    );
    // On a plain thread all of them are the thread's.
    plainweave::thread::yield_local();
    plainweave::thread::yield_shared();
}

#[test]
fn priorities_order_fibers() {
    assert_eq!(
        order("priority", |i| Builder::new().priority(i as u8 * 40)),
        [5, 4, 3, 2, 1, 0]
    );
    assert_eq!(
        order("fifo", |i| Builder::new().priority(i as u8 * 40)),
        [0, 1, 2, 3, 4, 5]
    );
}

#[test]
fn deadlines_order_fibers() {
    let start = Instant::now();
    let hour = |i: usize| Duration::from_secs(3600 * (7 - i as u64));
    let order = order("edf:patience=60000", move |i| {
        // One without a deadline is due in a minute.
        if i == 2 {
            Builder::new()
        } else {
            Builder::new().deadline(start + hour(i))
        }
    });

    assert_eq!(order, [2, 5, 4, 3, 1, 0]);
}

#[test]
fn weights_share_the_processor() {
    let runtime = Runtime::builder()
        .workers(1)
        .max_workers(1)
        .policy("shares")
        .build()
        .expect("a runtime");
    let total = Arc::new(AtomicUsize::new(0));
    let stop = Arc::new(AtomicBool::new(false));
    let counts = runtime.run(|| {
        let spawn = |weight: u32| {
            let total = total.clone();
            let stop = stop.clone();
            let count = move || {
                let mut runs = 0;
                while !stop.load(Ordering::Relaxed) {
                    runs += 1;
                    if total.fetch_add(1, Ordering::Relaxed) > 8000 {
                        stop.store(true, Ordering::Relaxed);
                    }
                    plainweave::yield_now();
                }
                runs
            };

            Builder::new().weight(weight).spawn(count).expect("a fiber")
        };

        [50, 150, 600]
            .map(spawn)
            .map(|fiber| fiber.join().expect("no panic"))
    });

    assert!(
        counts
            .iter()
            .zip([500, 1500, 6000])
            .all(|(&n, due): (&usize, _)| n.abs_diff(due) < 50),
        "{counts:?}"
    );
}

#[test]
fn a_weight_out_of_range_is_told() {
    plainweave::run(|| {
        for weight in [0, 1001] {
            let error = Builder::new()
                .weight(weight)
                .spawn(|| ())
                .expect_err("out of range");
            assert_eq!(error.kind(), ErrorKind::InvalidInput);
            assert!(error.to_string().contains("1 to 1,000"), "{error}");
        }
    });
}
