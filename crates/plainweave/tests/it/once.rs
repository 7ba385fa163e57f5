//! Once, OnceLock and LazyLock: one initialises, whatever happens to those that try.

use std::io::{self, ErrorKind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use crate::common::*;
use plainweave::sync::{LazyLock, Once, OnceLock};
use plainweave::time::with_timeout;
use plainweave::{JoinError, is_cancelled, spawn, yield_now};

on_every_driver!(
    one_of_many_initialises,
    threads_and_fibers_share_a_cell,
    the_next_one_tries_after_a_panic,
    the_next_one_tries_after_a_cancellation,
    waiters_are_cancelled_and_late,
    an_initialiser_that_needs_itself_panics,
    set_waits_for_an_initialiser,
    wait_ends_with_the_value,
    a_cell_is_emptied_and_filled,
    once_runs_once,
    a_lazy_value_is_computed_once,
    a_lazy_value_is_computed_again_after_a_panic,
    a_cancelled_fiber_gets_its_lazy_value,
    racing_initialisers_that_are_cancelled_leave_one_value,
);

fn one_of_many_initialises(setup: Setup) {
    let cell = OnceLock::new();
    let runs = AtomicUsize::new(0);
    setup.runtime().scope(|s| {
        for n in 0..20 {
            let cell = &cell;
            let runs = &runs;
            s.spawn(move || {
                let value = *cell
                    .get_or_init(|| {
                        runs.fetch_add(1, Ordering::SeqCst);
                        pause();
                        n
                    })
                    .unwrap();
                assert_eq!(cell.get(), Some(&value));
            });
        }
    });
    assert_eq!(runs.into_inner(), 1);
}

fn threads_and_fibers_share_a_cell(setup: Setup) {
    let runtime = setup.runtime();
    for _ in 0..50 {
        let cell = Arc::new(OnceLock::new());
        let runs = Arc::new(AtomicUsize::new(0));
        let init = {
            let cell = cell.clone();
            let runs = runs.clone();
            move || {
                let run = || runs.fetch_add(1, Ordering::SeqCst) + 1;
                *cell.get_or_init(run).unwrap()
            }
        };

        let on_thread = init.clone();
        let on_fiber = init.clone();
        let thread = std::thread::spawn(on_thread);
        let fiber = runtime.spawn(on_fiber);
        assert_eq!(
            [thread.join().unwrap(), fiber.join().unwrap(), init()],
            [1; 3]
        );
    }
}

fn the_next_one_tries_after_a_panic(setup: Setup) {
    setup.runtime().run(|| {
        let cell = Arc::new(OnceLock::new());
        let began = Arc::new(AtomicBool::new(false));
        let theirs = cell.clone();
        let begins = began.clone();
        let first = spawn(move || {
            let init = || -> u32 {
                begins.store(true, Ordering::SeqCst);
                pause();
                panic!("no value")
            };
            theirs.get_or_init(init).map(drop)
        });

        while !began.load(Ordering::SeqCst) {
            yield_now();
        }
        let others: Vec<_> = (1..4)
            .map(|n| {
                let theirs = cell.clone();
                spawn(move || *theirs.get_or_init(|| n).unwrap())
            })
            .collect();
        assert!(first.join().unwrap_err().is_panic());
        let values: Vec<u32> = others
            .into_iter()
            .map(|other| other.join().unwrap())
            .collect();
        assert!(
            values.iter().all(|value| Some(value) == cell.get()),
            "{values:?}"
        );
    });
}

fn the_next_one_tries_after_a_cancellation(setup: Setup) {
    setup.workers(1).run(|| {
        let cell = Arc::new(OnceLock::new());
        let theirs = cell.clone();
        let again = cell.clone();
        let stuck = || plainweave::time::sleep(10 * HANG).map(|()| 1);
        let first = spawn(move || theirs.get_or_try_init(stuck).copied());
        pause();
        let second = spawn(move || again.get_or_try_init(|| Ok::<_, io::Error>(2)).copied());

        pause();
        assert_eq!(cell.get(), None);
        first.cancel();
        assert!(is_cancelled(&first.join().unwrap().unwrap_err()));
        assert_eq!(second.join().unwrap().unwrap(), 2);
        assert_eq!(
            *cell
                .get_or_try_init(|| Err(io::Error::other("not asked")))
                .unwrap(),
            2
        );
    });
}

fn waiters_are_cancelled_and_late(setup: Setup) {
    setup.workers(1).run(|| {
        let cell = Arc::new(OnceLock::new());
        let go = Arc::new(AtomicBool::new(false));
        let theirs = cell.clone();
        let went = go.clone();
        let slow = spawn(move || {
            let init = || {
                while !went.load(Ordering::SeqCst) {
                    yield_now();
                }
            };
            theirs.get_or_init(init).map(drop)
        });

        pause();
        for only_waits in [false, true] {
            let call = move |cell: &OnceLock<()>| match only_waits {
                true => cell.wait().map(drop),
                false => cell
                    .get_or_init(|| panic!("another one initialises"))
                    .map(drop),
            };

            assert_eq!(
                with_timeout(ms(2), || call(&cell)).unwrap_err().kind(),
                ErrorKind::TimedOut
            );
            let theirs = cell.clone();
            let waiter = spawn(move || call(&theirs));
            pause();
            waiter.cancel();
            assert!(is_cancelled(&waiter.join().unwrap().unwrap_err()));
        }

        go.store(true, Ordering::SeqCst);
        slow.join().unwrap().unwrap();
        assert!(cell.get().is_some());
    });
}

fn an_initialiser_that_needs_itself_panics(setup: Setup) {
    fn message<T>(result: Result<T, JoinError>) -> String {
        panic_text(
            result
                .err()
                .expect("it panics")
                .into_panic()
                .expect("a panic")
                .as_ref(),
        )
    }
    type Use = fn(&OnceLock<u32>) -> u32;
    let uses: [Use; 3] = [
        |cell| *cell.get_or_init(|| 1).unwrap(),
        |cell| *cell.wait().unwrap(),
        |cell| cell.set(1).map_or(0, |()| 1),
    ];
    setup.runtime().run(move || {
        for again in uses {
            let cell = Arc::new(OnceLock::new());
            let theirs = cell.clone();
            let fiber = spawn(move || theirs.get_or_init(|| again(&theirs)).copied());
            assert!(message(fiber.join()).contains("needs the value"));

            // As after any panic.
            assert_eq!(*cell.get_or_init(|| 2).unwrap(), 2);
        }
    });
    let cell = OnceLock::new();
    let again = std::panic::AssertUnwindSafe(|| {
        cell.get_or_init(|| *cell.get_or_init(|| 1).unwrap())
            .copied()
    });

    let on_thread = std::panic::catch_unwind(again).expect_err("on a plain thread too");
    assert!(panic_text(on_thread.as_ref()).contains("needs the value"));
}

fn set_waits_for_an_initialiser(setup: Setup) {
    setup.runtime().run(|| {
        for fails in [false, true] {
            let cell = Arc::new(OnceLock::new());
            let began = Arc::new(AtomicBool::new(false));
            let theirs = cell.clone();
            let begins = began.clone();
            let first = spawn(move || {
                let init = || {
                    begins.store(true, Ordering::SeqCst);
                    pause();
                    if fails {
                        Err(io::Error::other("no value"))
                    } else {
                        Ok(1)
                    }
                };
                theirs.get_or_try_init(init).is_ok()
            });

            while !began.load(Ordering::SeqCst) {
                yield_now();
            }
            assert_eq!(cell.set(2), if fails { Ok(()) } else { Err(2) });
            assert_eq!(cell.get(), Some(&if fails { 2 } else { 1 }));
            assert_eq!(first.join().unwrap(), !fails);
        }
    });
}

fn wait_ends_with_the_value(setup: Setup) {
    let cell = Arc::new(OnceLock::new());
    let theirs = cell.clone();
    let thread = std::thread::spawn(move || *theirs.wait().unwrap());
    setup.runtime().run(|| {
        let waiters: Vec<_> = (0..3)
            .map(|_| {
                let theirs = cell.clone();
                spawn(move || *theirs.wait().unwrap())
            })
            .collect();
        pause();
        // Whoever only waits does not try in the place of one that fails.
        assert!(
            cell.get_or_try_init(|| Err(io::Error::other("no value")))
                .is_err()
        );
        pause();
        cell.set(3).unwrap();
        waiters
            .into_iter()
            .for_each(|waiter| assert_eq!(waiter.join().unwrap(), 3));
    });
    assert_eq!(thread.join().unwrap(), 3);
}

fn a_cell_is_emptied_and_filled(setup: Setup) {
    setup.runtime().run(|| {
        let counts = Arc::new(Counts::default());
        let mut cell = OnceLock::new();
        assert!(cell.take().is_none());
        assert!(cell.set(Counted::new(&counts)).is_ok());
        assert!(cell.set(Counted::new(&counts)).is_err());
        assert!(cell.get_mut().is_some());
        drop(cell.take());
        assert!(cell.get().is_none());
        assert!(cell.get_or_init(|| Counted::new(&counts)).is_ok());
        assert!(cell.into_inner().is_some());
        assert!(counts.balanced(), "{counts:?}");
        assert_eq!(OnceLock::from(3).clone().into_inner(), Some(3));
    });
}

fn once_runs_once(setup: Setup) {
    static ONCE: Once = Once::new();
    static RUNS: AtomicUsize = AtomicUsize::new(0);
    setup.runtime().run(|| {
        let once = Arc::new(Once::new());
        let theirs = once.clone();
        let panicking = spawn(move || theirs.call_once(|| panic!("the first one")));
        assert!(panicking.join().unwrap_err().is_panic());
        assert!(!once.is_completed());
        let theirs = once.clone();
        let waiter = spawn(move || theirs.wait());

        once.call_once(|| ()).unwrap();
        once.call_once(|| panic!("it has run")).unwrap();
        waiter.join().unwrap().unwrap();
        let callers: Vec<_> = (0..5)
            .map(|_| {
                spawn(|| {
                    ONCE.call_once(|| {
                        pause();
                        RUNS.fetch_add(1, Ordering::SeqCst);
                    })
                    .unwrap();
                    assert!(RUNS.load(Ordering::SeqCst) > 0, "it returns after the run");
                })
            })
            .collect();
        callers
            .into_iter()
            .for_each(|caller| caller.join().unwrap());
    });
    assert_eq!(RUNS.load(Ordering::SeqCst), 1);
}

fn a_lazy_value_is_computed_once(setup: Setup) {
    static RUNS: AtomicUsize = AtomicUsize::new(0);
    static VALUE: LazyLock<usize> = LazyLock::new(|| {
        pause();
        RUNS.fetch_add(1, Ordering::SeqCst) + 1
    });
    let runtime = setup.runtime();
    let on_fiber = (0..5).map(|_| runtime.spawn(|| *VALUE)).collect::<Vec<_>>();
    on_fiber
        .into_iter()
        .for_each(|fiber| assert_eq!(fiber.join().unwrap(), 1));
    assert_eq!(*VALUE, 1, "on a plain thread too");
    assert_eq!(LazyLock::get(&VALUE), Some(&1));
}

fn a_lazy_value_is_computed_again_after_a_panic(setup: Setup) {
    setup.runtime().run(|| {
        let runs = Arc::new(AtomicUsize::new(0));
        let count = runs.clone();
        let value = Arc::new(LazyLock::new(move || {
            match count.fetch_add(1, Ordering::SeqCst) {
                0 => panic!("not yet"),
                n => n,
            }
        }));
        let theirs = value.clone();
        assert!(spawn(move || **theirs).join().unwrap_err().is_panic());
        assert_eq!(LazyLock::get(&value), None);
        assert_eq!(*LazyLock::try_force(&value).unwrap(), 1);
        assert_eq!((**value, runs.load(Ordering::SeqCst)), (1, 2));
    });
}

fn a_cancelled_fiber_gets_its_lazy_value(setup: Setup) {
    let began = Arc::new(AtomicBool::new(false));
    let go = Arc::new(AtomicBool::new(false));
    let begins = began.clone();
    let went = go.clone();
    let value = Arc::new(LazyLock::new(move || {
        begins.store(true, Ordering::SeqCst);
        while !went.load(Ordering::SeqCst) {
            yield_now();
        }
        1
    }));
    setup.runtime().run(|| {
        let theirs = value.clone();
        let first = spawn(move || **theirs);
        while !began.load(Ordering::SeqCst) {
            yield_now();
        }
        let waiter = spawn(move || {
            plainweave::current().cancel();
            let tried = LazyLock::try_force(&value).copied();
            go.store(true, Ordering::SeqCst);
            (tried, **value)
        });

        let (tried, forced) = waiter.join().unwrap();
        assert!(is_cancelled(&tried.unwrap_err()));
        assert_eq!([forced, first.join().unwrap()], [1, 1]);
    });
}

fn racing_initialisers_that_are_cancelled_leave_one_value(setup: Setup) {
    let runtime = setup.runtime();
    for round in 0..100 {
        let mut random = Random::new(round + 1);
        let cell = Arc::new(OnceLock::new());
        let runs = Arc::new(AtomicUsize::new(0));
        let fibers: Vec<_> = (0..8)
            .map(|me| {
                let cell = cell.clone();
                let runs = runs.clone();
                runtime.spawn(move || {
                    let init = || {
                        yield_now();
                        plainweave::time::sleep(ms(0))?;
                        runs.fetch_add(1, Ordering::SeqCst);
                        Ok::<_, io::Error>(me)
                    };
                    cell.get_or_try_init(init).map(drop)
                })
            })
            .collect();
        for fiber in fibers.iter().skip(1) {
            random.spin(10);
            fiber.cancel();
        }

        let ended: Vec<_> = fibers
            .into_iter()
            .map(|fiber| fiber.join().unwrap().is_ok())
            .collect();
        assert!(ended[0], "whoever is not cancelled gets a value");
        assert_eq!(runs.load(Ordering::SeqCst), 1);
    }
}
