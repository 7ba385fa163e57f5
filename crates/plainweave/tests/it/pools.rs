//! Pools: spawning and calling from one into another, limits, and what happens when one ends.

use std::io::{self, ErrorKind};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use crate::common::*;
use plainweave::pools::{Pool, PoolSpec, Pools};
use plainweave::sync::Semaphore;
use plainweave::{CancelReason, Io, Movement, Runtime, cancel_reason, is_cancelled, scope, time};

on_every_driver!(
    a_fiber_runs_in_the_pool_it_is_spawned_into,
    a_call_borrows_and_returns_a_value,
    panics_travel_back,
    deadlines_travel,
    cancellation_travels,
    a_value_is_delivered_although_the_caller_is_cancelled,
    a_scope_joins_its_fibers_in_other_pools,
    a_scope_cancels_its_fibers_in_other_pools,
    a_full_pool_makes_spawners_wait,
    a_wait_for_room_ends_early,
    places_come_back,
    pools_that_call_each_other_do_not_deadlock,
    a_circle_leads_through_pools_without_a_limit,
    a_pool_that_waits_for_itself_is_refused,
    calls_wait_where_that_will_end,
    a_place_counts_once_however_many_wait_below_it,
    a_destructor_after_the_end_may_wait_for_a_place,
    what_ends_with_a_pool,
    waiters_for_room_leave_when_the_pool_ends,
    spawners_against_the_end,
    dropping_pools_on_their_own_fiber_panics,
);

const LONG: Duration = Duration::from_secs(1000);

/// Two pools, `a` and `b`, with these limits.
fn pair(setup: Setup, a: Option<usize>, b: Option<usize>) -> (Pools, Pool, Pool) {
    let spec = |name: &str, limit: Option<usize>| {
        let spec = PoolSpec::new(name).runtime(setup.builder());
        limit.map_or(spec.clone(), |limit| spec.max_fibers(limit))
    };

    let pools = Pools::build([spec("a", a), spec("b", b)]).expect("pools");
    let [a, b] = ["a", "b"].map(|name| pools.get(name).expect("built").clone());
    (pools, a, b)
}

/// The name of the pool whose worker runs the caller.
fn here() -> String {
    let thread = std::fs::read_to_string("/proc/thread-self/comm").expect("proc");
    thread.split('-').next().expect("a name").trim().to_owned()
}

fn a_fiber_runs_in_the_pool_it_is_spawned_into(setup: Setup) {
    let (pools, a, b) = pair(setup, None, Some(100));
    assert_eq!(a.spawn(here).expect("open").join().expect("no panic"), "a");
    let inner = b.clone();
    let names = a.spawn(move || {
        let there = inner
            .spawn(|| (here(), plainweave::spawn(here).join().expect("no panic")))
            .expect("open");
        (here(), there.join().expect("no panic"))
    });

    let names = names.expect("open").join().expect("no panic");
    assert_eq!(names, ("a".to_owned(), ("b".to_owned(), "b".to_owned())));
    let named = plainweave::Builder::new().name("deep").stack_size(1 << 20);
    let name = b
        .spawn_with(named, || plainweave::current().name().map(str::to_owned))
        .expect("open")
        .join();
    assert_eq!(name.expect("no panic").as_deref(), Some("deep"));
    assert_eq!(pools.runtime("b").expect("built").run(here), "b");
    assert_eq!(pools.iter().map(Pool::name).collect::<Vec<_>>(), ["a", "b"]);
}

fn a_call_borrows_and_returns_a_value(setup: Setup) {
    let (_pools, a, b) = pair(setup, None, Some(1));
    let mut numbers = vec![3, 1, 2];
    let sum = a.call(|| {
        b.call(|| {
            numbers.sort_unstable();
            assert_eq!(here(), "b");
            plainweave::yield_now();
            numbers.iter().sum::<i32>()
        })
    });

    assert_eq!(sum.expect("open").expect("open"), 6);
    assert_eq!(numbers, [1, 2, 3]);
    // Each call gives its place back.
    assert_eq!(
        (0..100).map(|n| b.call(|| n).expect("open")).sum::<i32>(),
        4950
    );
}

fn panics_travel_back(setup: Setup) {
    let (_pools, a, b) = pair(setup, Some(1), Some(1));
    for _ in 0..3 {
        let panic = catch_unwind(AssertUnwindSafe(|| {
            a.call(|| b.call(|| -> u8 { panic!("far away") }))
        }));
        assert_eq!(panic_text(&*panic.expect_err("propagated")), "far away");
    }

    assert_eq!(
        a.call(|| b.call(|| 1)).expect("open").expect("open"),
        1,
        "no place is lost"
    );
}

/// Makes a call under longer and longer limits until it has begun in time, and returns how what it
/// did ended.
fn once_begun(call: impl Fn() -> io::Result<io::Result<()>>) -> ErrorKind {
    let limits = (0..10).map(|n| ms(30 << n));
    let mut ends = limits
        .map(|limit| time::with_timeout(limit, &call).map(|end| end.expect_err("late").kind()));
    ends.find_map(|end| {
        end.map_err(|error| assert_eq!(error.kind(), ErrorKind::TimedOut))
            .ok()
    })
    .expect("begun in time")
}

fn deadlines_travel(setup: Setup) {
    let (pools, a, b) = pair(setup, None, None);
    // From a plain thread, from a fiber, and through two pools.
    assert_eq!(
        once_begun(|| b.call(|| time::sleep(LONG))),
        ErrorKind::TimedOut
    );
    let through_two = || b.call(|| a.call(|| time::sleep(LONG))).and_then(|end| end);
    assert_eq!(
        a.call(|| once_begun(through_two)).expect("open"),
        ErrorKind::TimedOut
    );
    let into_a_scope = || {
        let spawned = scope(|s| {
            s.spawn_in(&b, || time::sleep(LONG))
                .map(|fiber| fiber.join().map_err(io::Error::from))
        });
        // The join may be late before the sleep is.
        spawned.map(|joined| joined.and_then(|slept| slept))
    };

    assert_eq!(
        a.call(|| once_begun(into_a_scope)).expect("open"),
        ErrorKind::TimedOut
    );
    // Into the fibers of a scope that a plain thread, or a fiber of another pool, has on a runtime.
    let runtime = pools.runtime("b").expect("built");
    let in_scope = || {
        let mut slept = None;
        time::with_timeout(ms(30), || {
            runtime.scope(|s| {
                s.spawn(|| slept = Some(time::sleep(LONG)));
            });
        });
        slept.expect("run").expect_err("late").kind()
    };

    assert_eq!(
        [in_scope(), a.call(in_scope).expect("open")],
        [ErrorKind::TimedOut; 2]
    );
    // A call that would begin late does not begin.
    let begun = AtomicBool::new(false);
    let never = time::with_timeout(Duration::ZERO, || {
        b.call(|| begun.store(true, Ordering::SeqCst))
    });
    assert_eq!(never.expect_err("late").kind(), ErrorKind::TimedOut);
    assert!(!begun.into_inner());
}

fn cancellation_travels(setup: Setup) {
    let (_pools, a, b) = pair(setup, None, Some(2));
    let begun = Arc::new(Semaphore::new(0));
    let inner = b.clone();
    let begin = begun.clone();
    let caller = a.spawn(move || {
        inner.call(|| {
            begin.release();
            time::sleep(LONG)
        })
    });

    let caller = caller.expect("open");
    begun.acquire().expect("begun").forget();
    caller.cancel();
    let slept = caller
        .join()
        .expect("no panic")
        .expect("the fiber was called");
    assert_eq!(
        cancel_reason(&slept.expect_err("cancelled")),
        Some(CancelReason::Requested)
    );

    // By its scope, two calls deep.
    let reason = a.call(|| {
        scope(|s| {
            let call = s.spawn(|| {
                b.call(|| {
                    a.call(|| {
                        begun.release();
                        time::sleep(LONG)
                    })
                })
            });

            begun.acquire().expect("begun").forget();
            s.cancel();
            plainweave::spawn(|| ())
                .join()
                .expect("the body itself is not cancelled");
            call.join()
                .expect("no panic")
                .expect("called")
                .expect("called")
                .expect_err("cancelled")
        })
    });

    assert_eq!(
        cancel_reason(&reason.expect("open")),
        Some(CancelReason::Requested)
    );
    // A cancelled fiber calls nobody.
    let inner = b.clone();
    let cancelled = a.spawn(move || {
        let _ = plainweave::park();
        inner.call(|| ())
    });

    let cancelled = cancelled.expect("open");
    cancelled.cancel();
    assert!(is_cancelled(
        &cancelled.join().expect("no panic").expect_err("cancelled")
    ));
}

fn a_value_is_delivered_although_the_caller_is_cancelled(setup: Setup) {
    let (_pools, a, b) = pair(setup, None, None);
    let begun = Arc::new(Semaphore::new(0));
    let go_on = Arc::new(AtomicBool::new(false));
    let begin = begun.clone();
    let wait = go_on.clone();
    let caller = a.spawn(move || {
        b.call(move || {
            begin.release();
            while !wait.load(Ordering::SeqCst) {
                plainweave::yield_now();
            }
            7
        })
    });

    let caller = caller.expect("open");
    begun.acquire().expect("begun").forget();
    caller.cancel();
    go_on.store(true, Ordering::SeqCst);
    assert_eq!(caller.join().expect("no panic").expect("the value"), 7);
}

fn a_scope_joins_its_fibers_in_other_pools(setup: Setup) {
    let (pools, a, b) = pair(setup, None, Some(3));
    let mut numbers: Vec<u64> = (0..100).collect();
    let count = AtomicUsize::new(0);
    let body = || {
        scope(|s| {
            for n in &mut numbers {
                let count = &count;
                let add = move || {
                    assert_eq!(here(), "b");
                    *n += 1;
                    plainweave::yield_now();
                    count.fetch_add(1, Ordering::SeqCst);
                };
                drop(s.spawn_in(&b, add).expect("open"));
            }

            s.spawn_in(&b, || 5)
                .expect("open")
                .join()
                .expect("no panic")
        })
    };

    assert_eq!(a.call(body).expect("open"), 5);
    assert_eq!(
        (numbers.iter().sum::<u64>(), count.into_inner()),
        (5050, 100)
    );
    // From a plain thread, and although the body panics.
    let ended = AtomicBool::new(false);
    let panic = catch_unwind(AssertUnwindSafe(|| {
        pools.runtime("a").expect("built").scope(|s| {
            let child = || {
                assert_eq!(
                    cancel_reason(&time::sleep(LONG).expect_err("cancelled")),
                    Some(CancelReason::ScopePanicked)
                );
                ended.store(true, Ordering::SeqCst);
            };

            drop(s.spawn_in(&b, child).expect("open"));
            panic!("body");
        })
    }));
    assert_eq!(panic_text(&*panic.expect_err("propagated")), "body");
    assert!(ended.into_inner());
}

fn a_scope_cancels_its_fibers_in_other_pools(setup: Setup) {
    let (_pools, a, b) = pair(setup, Some(2), Some(2));
    let panic = catch_unwind(AssertUnwindSafe(|| {
        a.call(|| {
            scope(|s| {
                let sleeper = s.spawn_in(&b, || time::sleep(LONG)).expect("open");
                drop(s.spawn_in(&b, || panic!("sibling")).expect("open"));
                let reason = sleeper.join().expect("no panic").expect_err("cancelled");
                assert_eq!(cancel_reason(&reason), Some(CancelReason::SiblingPanicked));
            })
        })
    }));
    assert_eq!(panic_text(&*panic.expect_err("propagated")), "sibling");
}

fn a_full_pool_makes_spawners_wait(setup: Setup) {
    let (_pools, a, b) = pair(setup, None, Some(2));
    assert_eq!((a.max_fibers(), b.max_fibers()), (None, Some(2)));
    let inside: Vec<_> = (0..2)
        .map(|_| b.spawn(plainweave::park).expect("room"))
        .collect();
    let full = b.try_spawn(|| ()).expect_err("full");
    assert_eq!(full.kind(), ErrorKind::WouldBlock);
    assert!(
        full.to_string().contains("'b' is full: it has 2 fibers"),
        "{full}"
    );
    let spawned = Arc::new(AtomicUsize::new(0));
    let inner = b.clone();
    let count = spawned.clone();
    let spawner = a.spawn(move || {
        for _ in 0..10 {
            drop(inner.spawn(|| ()).expect("room"));
            count.fetch_add(1, Ordering::SeqCst);
        }
    });

    let inner = b.clone();
    let count = spawned.clone();
    let thread = std::thread::spawn(move || {
        inner.call(|| ()).expect("room");
        count.fetch_add(1, Ordering::SeqCst);
    });

    std::thread::sleep(ms(20));
    assert_eq!(spawned.load(Ordering::SeqCst), 0);
    assert_eq!(b.metrics().live_fibers, 2);
    inside[0].fiber().unpark();
    spawner.expect("open").join().expect("no panic");
    thread.join().expect("no panic");
    inside[1].fiber().unpark();
    inside
        .into_iter()
        .for_each(|fiber| fiber.join().expect("no panic").expect("unparked"));
    eventually("there is room", || b.try_spawn(|| ()).is_ok());
}

fn a_wait_for_room_ends_early(setup: Setup) {
    let (_pools, a, b) = pair(setup, None, Some(1));
    let inside = b.spawn(plainweave::park).expect("room");
    let ran = Arc::new(AtomicBool::new(false));
    let run = |ran: &Arc<AtomicBool>| {
        let ran = ran.clone();
        move || ran.store(true, Ordering::SeqCst)
    };

    let kind = |result: io::Result<()>| result.expect_err("full").kind();
    assert_eq!(
        kind(time::with_timeout(ms(5), || b.spawn(run(&ran)).map(drop))),
        ErrorKind::TimedOut
    );
    let inner = a.call(|| {
        let late = time::with_timeout(ms(5), || b.spawn(run(&ran)).map(drop));
        let late_call = time::with_timeout(ms(5), || b.call(run(&ran)));
        let late_child =
            scope(|s| time::with_timeout(ms(5), || s.spawn_in(&b, run(&ran)).map(drop)));
        [late, late_call, late_child].map(kind)
    });

    assert_eq!(inner.expect("open"), [ErrorKind::TimedOut; 3]);
    let pool = b.clone();
    let closure = run(&ran);
    let spawner = a
        .spawn(move || pool.spawn(closure).map(drop))
        .expect("open");
    std::thread::sleep(ms(5));
    spawner.cancel();
    assert!(is_cancelled(
        &spawner.join().expect("no panic").expect_err("cancelled")
    ));
    assert!(!ran.load(Ordering::SeqCst));
    inside.fiber().unpark();
    inside.join().expect("no panic").expect("unparked");
    b.call(run(&ran)).expect("the place is free again");
    assert!(ran.load(Ordering::SeqCst));
}

fn places_come_back(setup: Setup) {
    let (_pools, _a, b) = pair(setup, None, Some(3));
    for n in 0..300 {
        let handle = b.spawn(move || {
            assert!(n % 3 != 0, "on purpose");
            let _ = plainweave::park();
        });

        let handle = handle.expect("room");
        match n % 3 {
            0 => drop(handle),
            1 => handle.cancel(),
            _ => {
                handle.fiber().unpark();
                handle.join().expect("no panic");
            }
        }
    }

    let bad = plainweave::Builder::new().weight(0);
    assert_eq!(
        b.spawn_with(bad, || ()).expect_err("weight").kind(),
        ErrorKind::InvalidInput
    );
    let all: Vec<_> = (0..3)
        .map(|_| b.spawn(plainweave::park).expect("room"))
        .collect();
    assert_eq!(
        b.try_spawn(|| ()).expect_err("full").kind(),
        ErrorKind::WouldBlock
    );
    all.iter().for_each(plainweave::JoinHandle::cancel);
}

/// Runs `calls` at once, after all of them have begun; returns how each went.
fn at_once<const N: usize>(
    begun: &Arc<Semaphore>,
    calls: [plainweave::JoinHandle<io::Result<()>>; N],
) -> [String; N] {
    // Each waits for its turn to be the last to begin.
    (0..N).for_each(|_| begun.release());
    calls.map(|call| match call.join().expect("no panic") {
        Ok(()) => String::new(),
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::Deadlock);
            error.to_string()
        }
    })
}

fn pools_that_call_each_other_do_not_deadlock(setup: Setup) {
    let (_pools, a, b) = pair(setup, Some(2), Some(2));
    for _ in 0..20 {
        let begun = Arc::new(Semaphore::new(0));
        let call = |from: &Pool, to: &Pool| {
            let begun = begun.clone();
            let to = to.clone();
            let body = move || {
                begun.acquire()?.forget();
                to.call(|| ())
            };

            from.spawn(body).expect("room")
        };

        let calls = [call(&a, &b), call(&a, &b), call(&b, &a), call(&b, &a)];
        for text in at_once(&begun, calls)
            .iter()
            .filter(|text| !text.is_empty())
        {
            assert!(
                text.contains("'a' (2 fibers)") && text.contains("'b' (2 fibers)"),
                "{text}"
            );
        }
    }

    // A circle for certain: both have begun, and neither ends before it has called.
    let (_pools, a, b) = pair(setup, Some(1), Some(1));
    let inside = Arc::new(AtomicUsize::new(0));
    let call = |from: &Pool, to: &Pool| {
        let inside = inside.clone();
        let to = to.clone();
        from.spawn(move || {
            inside.fetch_add(1, Ordering::SeqCst);
            while inside.load(Ordering::SeqCst) < 2 {
                plainweave::yield_now();
            }
            to.call(|| ())
        })
        .expect("room")
    };

    let texts = at_once(&Arc::new(Semaphore::new(0)), [call(&a, &b), call(&b, &a)]);
    assert_eq!(
        texts.iter().filter(|text| text.is_empty()).count(),
        1,
        "one gives way: {texts:?}"
    );
    let text = texts.concat();
    assert!(
        text.contains("'a' (1 fibers)") && text.contains("'b' (1 fibers)"),
        "{text}"
    );
}

fn a_circle_leads_through_pools_without_a_limit(setup: Setup) {
    let (_pools, a, b) = pair(setup, Some(1), None);
    // The only fiber of `a` calls into `b`, whose fiber calls back.
    let error = a
        .call(|| b.call(|| a.call(|| ())))
        .expect("room")
        .expect("no limit")
        .expect_err("a circle");
    assert_eq!(error.kind(), ErrorKind::Deadlock);

    // The same through a scope.
    let through_scope = || {
        scope(|s| {
            let child = s.spawn(|| {
                s.spawn_in(&b, || a.spawn(|| ()).map(drop))
                    .expect("no limit")
                    .join()
            });
            child.join().expect("no panic").expect("no panic")
        })
    };

    assert_eq!(
        a.call(through_scope)
            .expect("room")
            .expect_err("a circle")
            .kind(),
        ErrorKind::Deadlock
    );
    // A detached fiber keeps nobody's place.
    let later = a
        .call(|| {
            b.spawn({
                let a = a.clone();
                move || a.call(|| 3)
            })
            .expect("no limit")
        })
        .expect("room");
    assert_eq!(
        later
            .join()
            .expect("no panic")
            .expect("room, once its spawner has ended"),
        3
    );
}

fn a_pool_that_waits_for_itself_is_refused(setup: Setup) {
    let (_pools, a, _b) = pair(setup, Some(2), None);
    let inside = Arc::new(AtomicUsize::new(0));
    let both = [0; 2].map(|_| {
        let pool = a.clone();
        let inside = inside.clone();
        a.spawn(move || {
            inside.fetch_add(1, Ordering::SeqCst);
            while inside.load(Ordering::SeqCst) < 2 {
                plainweave::yield_now();
            }
            pool.spawn(|| ()).map(drop)
        })
        .expect("room")
    });

    let texts = at_once(&Arc::new(Semaphore::new(0)), both);
    assert_eq!(
        texts.iter().filter(|text| text.is_empty()).count(),
        1,
        "{texts:?}"
    );
    assert!(
        texts
            .concat()
            .contains("room in the pool 'a' would never end"),
        "{texts:?}"
    );
}

fn calls_wait_where_that_will_end(setup: Setup) {
    let (_pools, a, b) = pair(setup, Some(1), Some(2));
    // One fiber of `b` calls nobody, so a call from the only fiber of `a` waits, and its place is
    // not lost.
    let busy = b.spawn(plainweave::park).expect("room");
    let other = {
        let a = a.clone();
        b.spawn(move || plainweave::park().and_then(|()| a.call(|| ())))
            .expect("room")
    };

    let caller = {
        let b = b.clone();
        a.spawn(move || b.call(|| ())).expect("room")
    };

    other.fiber().unpark();
    std::thread::sleep(ms(10));
    assert!(
        !caller.is_finished() && !other.is_finished(),
        "both wait for a place"
    );
    busy.fiber().unpark();
    caller.join().expect("no panic").expect("room, in the end");
    other.join().expect("no panic").expect("room, in the end");
    busy.join().expect("no panic").expect("unparked");
}

fn a_place_counts_once_however_many_wait_below_it(setup: Setup) {
    let (_pools, a, b) = pair(setup, Some(1), Some(2));
    let idle = b.spawn(plainweave::park).expect("room");
    let caller = {
        let b = b.clone();
        a.spawn(move || plainweave::park().and_then(|()| b.call(|| ())))
            .expect("room")
    };

    // Two calls from one place of `b`: its other place is not blocked, so there is no circle.
    let twice = {
        let a = a.clone();
        let both = move || {
            scope(|s| {
                [0; 2]
                    .map(|_| s.spawn(|| a.call(|| ())))
                    .map(|call| call.join().expect("no panic"))
            })
        };
        b.spawn(both).expect("room")
    };

    std::thread::sleep(ms(5));
    caller.fiber().unpark();
    std::thread::sleep(ms(5));
    assert!(
        !caller.is_finished() && !twice.is_finished(),
        "both wait for a place"
    );
    idle.fiber().unpark();
    caller.join().expect("no panic").expect("room, in the end");
    twice
        .join()
        .expect("no panic")
        .into_iter()
        .for_each(|call| call.expect("room, in the end"));
    idle.join().expect("no panic").expect("unparked");
}

fn what_ends_with_a_pool(setup: Setup) {
    let (pools, a, b) = pair(setup, None, Some(10));
    let other = Runtime::builder().workers(1).build().expect("a runtime");
    let begun = Arc::new(Semaphore::new(0));
    let pool = b.clone();
    let begin = begun.clone();
    let call = other.spawn(move || {
        pool.call(|| {
            begin.release();
            time::sleep(LONG)
        })
    });

    let sleeper = a.spawn(|| time::sleep(LONG)).expect("open");
    begun.acquire().expect("begun").forget();
    let left = pools.shutdown(Duration::from_secs(20));
    assert_eq!(left, [plainweave::Shutdown::default(); 2]);

    // The called fiber was cancelled, and its caller has the error as the value.
    let slept = call.join().expect("no panic").expect("called");
    assert_eq!(
        cancel_reason(&slept.expect_err("cancelled")),
        Some(CancelReason::Shutdown)
    );
    assert!(is_cancelled(
        &sleeper.join().expect("no panic").expect_err("cancelled")
    ));
    let counts = Arc::new(Counts::default());
    let captured = || {
        let counted = Counted::new(&counts);
        move || drop(counted)
    };

    let ended = [
        a.spawn(captured()).map(drop),
        b.try_spawn(captured()).map(drop),
        b.call(captured()),
        other.run(|| scope(|s| s.spawn_in(&a, captured()).map(drop))),
    ];
    for error in ended.map(|result| result.expect_err("ended")) {
        assert_eq!(error.kind(), ErrorKind::BrokenPipe);
        assert!(error.to_string().ends_with("' has ended"), "{error}");
    }

    assert!(counts.balanced() && counts.made() == 4);
}

fn waiters_for_room_leave_when_the_pool_ends(setup: Setup) {
    let (pools, _a, b) = pair(setup, None, Some(1));
    let other = Runtime::builder().workers(1).build().expect("a runtime");
    let stop = Arc::new(AtomicBool::new(false));
    let end = stop.clone();

    // It keeps its place for as long as it likes.
    let busy = b.spawn(move || {
        while !end.load(Ordering::SeqCst) {
            plainweave::yield_now();
        }
    });

    let waiters: Vec<_> = (0..20)
        .map(|_| {
            let pool = b.clone();
            other.spawn(move || pool.spawn(|| ()).map(drop))
        })
        .collect();
    let pool = b.clone();
    let thread = std::thread::spawn(move || pool.call(|| ()));
    std::thread::sleep(ms(10));
    let ends = std::thread::spawn(move || pools.shutdown(Duration::from_secs(20)));

    for waiter in waiters {
        assert_eq!(
            waiter.join().expect("no panic").expect_err("ended").kind(),
            ErrorKind::BrokenPipe
        );
    }

    assert_eq!(
        thread.join().expect("no panic").expect_err("ended").kind(),
        ErrorKind::BrokenPipe
    );
    stop.store(true, Ordering::SeqCst);
    assert_eq!(
        ends.join().expect("no panic"),
        [plainweave::Shutdown::default(); 2]
    );
    busy.expect("room").join().expect("no panic");
}

/// Spawns into a pool, or calls it, until it has ended. Each call returns, and each join.
fn spawn_until_it_ends(pool: &Pool, call: bool) {
    let mut handles = Vec::new();
    for n in 0_u64.. {
        let result = if call {
            pool.call(|| n).map(drop)
        } else {
            pool.spawn(move || n).map(|h| handles.push(h))
        };

        if result.is_err() {
            break;
        }
    }
    handles.into_iter().for_each(|handle| drop(handle.join()));
}

/// Whatever was spawned ends, or was refused: no join and no call waits for ever, however little
/// time the end takes.
fn spawners_against_the_end(setup: Setup) {
    let other = Runtime::builder().workers(1).build().expect("a runtime");
    for round in 0..60 {
        let (pools, a, b) = pair(setup, Some(4), None);
        let spawners = [&a, &b].map(|pool| {
            let pool = pool.clone();
            other.spawn(move || spawn_until_it_ends(&pool, false))
        });

        let threads = [(&a, true), (&b, true), (&b, false), (&b, false)].map(|(pool, call)| {
            let pool = pool.clone();
            std::thread::spawn(move || spawn_until_it_ends(&pool, call))
        });

        Random::new(round).spin(500);
        if round % 4 == 0 {
            drop(pools)
        } else {
            drop(pools.shutdown(Duration::ZERO))
        }

        spawners
            .into_iter()
            .for_each(|spawner| spawner.join().expect("no panic"));
        threads
            .into_iter()
            .for_each(|thread| thread.join().expect("no panic"));
    }
}

fn dropping_pools_on_their_own_fiber_panics(setup: Setup) {
    let (pools, a, _b) = pair(setup, None, None);
    let panic = a
        .spawn(move || drop(pools))
        .expect("open")
        .join()
        .expect_err("it cannot wait for itself");
    let text = panic_text(&*panic.into_panic().expect("a panic"));
    assert!(
        text.contains("pools were dropped by a fiber of one of them"),
        "{text}"
    );
}

#[test]
fn each_pool_has_its_own_settings() {
    let settings = |workers, policy: &str| Runtime::builder().workers(workers).policy(policy);
    let pools = Pools::build([
        PoolSpec::new("front").runtime(settings(2, "lifo-slot").movement(Movement::BeforeStart)),
        PoolSpec::new("back_1")
            .runtime(settings(1, "priority"))
            .max_fibers(7),
        PoolSpec::new("mine")
            .policy_type::<plainweave::policy::GlobalFifo<plainweave::FiberTask>>(()),
    ])
    .expect("pools");
    let front = pools.runtime("front").expect("built");
    assert_eq!(
        (front.policy(), front.workers(), front.movement()),
        ("lifo-slot", 2, Movement::BeforeStart)
    );
    let back = pools.runtime("back_1").expect("built");

    assert_eq!(
        (back.policy(), back.workers(), back.movement()),
        ("priority", 1, Movement::Anytime)
    );
    assert_eq!(pools.runtime("mine").expect("built").policy(), "custom");
    assert_eq!(pools.get("back_1").expect("built").max_fibers(), Some(7));
    assert!(pools.get("side").is_none() && pools.runtime("side").is_none());
}

#[test]
fn what_cannot_be_built() {
    let text = |specs: Vec<PoolSpec>| {
        let error = Pools::build(specs).expect_err("refused");
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        error.to_string()
    };

    let one = || PoolSpec::new("one").runtime(Runtime::builder().workers(1));
    assert_eq!(text(vec![]), "there are no pools");
    assert_eq!(text(vec![one(), one()]), "two pools are called 'one'");
    assert_eq!(
        text(vec![one().max_fibers(0)]),
        "the pool 'one': max_fibers: at least 1, not 0"
    );
    assert!(text(vec![PoolSpec::new("a/b")]).starts_with("'a/b' is no name of a pool"));
    assert!(text(vec![PoolSpec::new("")]).starts_with("'' is no name of a pool"));
    let unknown = text(vec![
        one(),
        PoolSpec::new("two").runtime(Runtime::builder().policy("fofo")),
    ]);

    assert!(
        unknown
            .starts_with("the pool 'two': no scheduling policy is called 'fofo'; there are: fifo"),
        "{unknown}"
    );
    let sim = text(vec![
        PoolSpec::new("sim").runtime(Runtime::builder().io(Io::Sim { seed: 1 })),
    ]);
    assert!(sim.starts_with("the pool 'sim': on virtual time"), "{sim}");
}

/// A result that nobody takes; its destructor calls into the pool, in which somebody else has got
/// the only place.
struct CallsLate {
    pool: Pool,
    next_runs: Arc<AtomicBool>,
    outcome: Arc<std::sync::Mutex<Option<io::Result<i32>>>>,
}

impl Drop for CallsLate {
    fn drop(&mut self) {
        eventually("the next one runs", || {
            self.next_runs.load(Ordering::SeqCst)
        });
        let outcome = self.pool.call(|| 7);
        *self.outcome.lock().expect("not poisoned") = Some(outcome);
    }
}

/// The fiber has given back its place by then, so its wait closes no circle.
fn a_destructor_after_the_end_may_wait_for_a_place(setup: Setup) {
    let (_pools, pool, _) = pair(setup, Some(1), None);
    let next_runs = Arc::<AtomicBool>::default();
    let outcome = Arc::default();
    let go_on = Arc::<AtomicBool>::default();
    let late = CallsLate {
        pool: pool.clone(),
        next_runs: next_runs.clone(),
        outcome: Arc::clone(&outcome),
    };

    let goes_on = go_on.clone();
    drop(pool.spawn(move || {
        while !goes_on.load(Ordering::SeqCst) {
            time::sleep(ms(1)).expect("not cancelled");
        }
        late
    }));
    std::thread::scope(|threads| {
        let next = threads.spawn(|| {
            let next_runs = next_runs.clone();
            let next = pool.spawn(move || {
                next_runs.store(true, Ordering::SeqCst);
                time::sleep(ms(20))
            });

            next.expect("open")
                .join()
                .expect("no panic")
                .expect("not cancelled");
        });

        go_on.store(true, Ordering::SeqCst);
        next.join().expect("no panic");
    });

    eventually("it has called", || {
        outcome.lock().expect("not poisoned").is_some()
    });
    assert_eq!(
        outcome
            .lock()
            .expect("not poisoned")
            .take()
            .expect("as before")
            .expect("no circle"),
        7
    );
}
