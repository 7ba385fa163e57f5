//! Sets of fibers: what is joined, in which order, and what happens to the others. And handles in a
//! select.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::common::*;
use plainweave::sync::{JoinSet, channel, select};
use plainweave::time::{sleep, with_timeout};
use plainweave::{is_cancelled, park, spawn, yield_now};

on_every_setup!(
    fibers_are_joined_as_they_end,
    a_panic_is_joined_and_leaves_the_others,
    a_joiner_that_is_cancelled_or_late_keeps_the_set,
    a_set_is_cancelled,
    a_set_that_is_dropped_cancels_and_joins,
    detached_fibers_go_on,
    a_set_is_joined_on_a_plain_thread,
    a_set_grows_while_it_is_joined,
    a_fiber_that_never_starts_is_joined,
    a_select_waits_for_handles,
    a_select_waits_for_sets,
    cancelled_selects_lose_no_result,
    a_set_survives_a_panic_in_a_losing_branch,
    no_more_run_than_the_limit,
    a_spawn_that_is_cancelled_or_late_leaves_the_set_as_it_is,
);

const LONG: Duration = Duration::from_secs(3600);

fn fibers_are_joined_as_they_end(setup: Setup) {
    setup.runtime().run(|| {
        let mut set = JoinSet::new();
        assert!(set.join_next().is_none() && set.is_empty());
        let gates: Vec<_> = (0..5)
            .map(|n| {
                let (gate, opened) = channel::bounded::<()>(0);
                set.spawn(move || {
                    assert!(opened.recv().unwrap_err().is_closed());
                    n
                });
                Some(gate)
            })
            .collect();
        assert_eq!(set.len(), 5);
        assert!(set.try_join_next().is_none());
        let mut gates = gates;

        for n in [3, 0, 4, 1, 2] {
            gates[n] = None;
            assert_eq!(set.join_next().unwrap().unwrap(), n);
        }

        assert!(set.is_empty() && set.join_next().is_none());
    });
}

fn a_panic_is_joined_and_leaves_the_others(setup: Setup) {
    setup.runtime().run(|| {
        let mut set = JoinSet::new();
        set.spawn(|| panic!("one of them"));
        let error = set.join_next().unwrap().unwrap_err();
        assert!(error.is_panic());
        assert_eq!(panic_text(&*error.into_panic().unwrap()), "one of them");
        set.spawn(|| 7);
        assert_eq!(set.join_next().unwrap().unwrap(), 7);
    });
}

fn a_joiner_that_is_cancelled_or_late_keeps_the_set(setup: Setup) {
    setup.runtime().run(|| {
        let (gate, opened) = channel::bounded::<()>(0);
        let mut set = JoinSet::new();
        set.spawn(move || opened.recv().is_err());
        assert!(
            with_timeout(ms(2), || set.join_next())
                .unwrap()
                .unwrap_err()
                .is_timed_out()
        );
        assert_eq!(set.len(), 1);
        let fiber = spawn(move || {
            plainweave::current().cancel();
            let error = set.join_next().unwrap().unwrap_err();
            assert!(error.is_cancelled());
            set
        });

        let mut set = fiber.join().unwrap();
        assert_eq!(set.len(), 1);
        drop(gate);
        assert!(set.join_next().unwrap().unwrap());
    });
}

fn a_set_is_cancelled(setup: Setup) {
    setup.runtime().run(|| {
        let mut set = JoinSet::new();
        let first = set.spawn(|| is_cancelled(&sleep(LONG).unwrap_err()));
        (0..4).for_each(|_| drop(set.spawn(|| is_cancelled(&sleep(LONG).unwrap_err()))));
        first.cancel();
        assert!(set.join_next().unwrap().unwrap(), "alone");
        assert_eq!(set.len(), 4);
        set.cancel_all();
        assert_eq!(
            std::iter::from_fn(|| set.join_next())
                .filter(|result| *result.as_ref().unwrap())
                .count(),
            4
        );
    });
}

fn a_set_that_is_dropped_cancels_and_joins(setup: Setup) {
    let counts = Arc::new(Counts::default());
    setup.runtime().run(|| {
        let ended = Arc::new(AtomicUsize::new(0));
        let fill = |set: &mut JoinSet<Counted>| {
            for n in 0..6 {
                let ended = ended.clone();
                let result = Counted::new(&counts);
                set.spawn(move || {
                    if n % 2 == 0 {
                        assert!(is_cancelled(&sleep(LONG).unwrap_err()));
                    }
                    (0..n).for_each(|_| yield_now());
                    ended.fetch_add(1, Ordering::SeqCst);
                    assert!(n != 5, "nobody asks");
                    result
                });
            }
        };

        let mut set = JoinSet::new();
        fill(&mut set);
        drop(set);
        assert_eq!(ended.load(Ordering::SeqCst), 6);
        assert!(counts.balanced(), "{counts:?}");

        // Also if the owner panics, or is cancelled.
        for panics in [true, false] {
            let mut set = JoinSet::new();
            ended.store(0, Ordering::SeqCst);
            fill(&mut set);
            let owner = spawn(move || {
                let _set = set;
                assert!(!panics, "with a set");
                sleep(LONG)
            });

            pause();
            owner.cancel();
            assert_eq!(owner.join().is_err(), panics);
            assert_eq!(ended.load(Ordering::SeqCst), 6);
        }
    });
    assert!(counts.balanced(), "{counts:?}");
}

fn detached_fibers_go_on(setup: Setup) {
    setup.runtime().run(|| {
        let (gate, opened) = channel::bounded::<()>(0);
        let (result, results) = channel::unbounded();
        let mut set = JoinSet::new();

        for n in 0..3 {
            let opened = opened.clone();
            let result = result.clone();
            set.spawn(move || {
                let closed = opened.recv().unwrap_err().is_closed();
                result.send((n, closed)).unwrap();
                n
            });
        }

        set.detach_all();
        assert!(set.is_empty() && set.join_next().is_none());
        // What they report does not come to the set's next fibers.
        set.spawn(|| park().map_or(10, |()| 20));
        drop((gate, result));
        assert_eq!(results.iter().filter(|(_, closed)| *closed).count(), 3);
        pause();
        assert!(set.try_join_next().is_none());
        set.cancel_all();
        assert_eq!(set.join_next().unwrap().unwrap(), 10);
    });
}

fn a_set_is_joined_on_a_plain_thread(setup: Setup) {
    let runtime = setup.runtime();
    let mut set = JoinSet::new();
    (0..20).for_each(|n| drop(set.spawn_on(&runtime, move || n)));
    let sum: i32 = std::iter::from_fn(|| set.join_next())
        .map(Result::unwrap)
        .sum();
    assert_eq!(sum, 190);
    set.spawn_on(&runtime, || sleep(LONG).map_or(1, |()| 0));
    assert!(
        with_timeout(ms(2), || set.join_next())
            .unwrap()
            .unwrap_err()
            .is_timed_out()
    );
    drop(set);
    let outside = std::panic::catch_unwind(|| JoinSet::new().spawn(|| ()));

    assert!(outside.is_err(), "there is no runtime");
}

fn a_set_grows_while_it_is_joined(setup: Setup) {
    setup.runtime().run(|| {
        let mut set = JoinSet::new();
        (0..4).for_each(|_| drop(set.spawn(|| 6_u32)));
        let mut joined = 0;

        while let Some(depth) = set.join_next() {
            joined += 1;
            let depth = depth.unwrap();
            if depth > 0 {
                (0..2).for_each(|_| drop(set.spawn(move || depth - 1)));
            }
        }

        assert_eq!(joined, 4 * 127);
    });
}

fn a_fiber_that_never_starts_is_joined(setup: Setup) {
    let runtime = setup.workers(1);
    let mut set = JoinSet::new();
    let (release, held) = std::sync::mpsc::channel::<()>();
    let holder = runtime.spawn(move || held.recv().is_err());
    set.spawn_on(&runtime, || 1);
    drop(release);
    assert!(holder.join().unwrap());
    runtime.shutdown(Duration::from_secs(30));

    // It ran, or was refused when the runtime ended: either way it is joined.
    assert!(set.join_next().is_some());
    assert!(set.join_next().is_none());
}

fn a_select_waits_for_handles(setup: Setup) {
    setup.runtime().run(|| {
        let (_sender, empty) = channel::bounded::<u8>(0);
        let mut slow = spawn(|| is_cancelled(&sleep(LONG).unwrap_err()));
        // The handle that loses waits again, any number of times.
        for n in 0..3 {
            let mut fast = spawn(move || {
                yield_now();
                n
            });

            let got = select! {
                join(slow) -> _ => panic!("it sleeps"),
                join(fast) -> result => result.unwrap(),
                recv(empty) -> _ => 9,
            };

            assert_eq!(got.unwrap(), n);
            let late = select! {
                join(slow) -> _ => panic!("it sleeps"),
                after(ms(1)) => true,
            };

            assert!(late.unwrap() && !slow.is_finished());
        }

        slow.cancel();
        assert!(select! { join(slow) -> result => result.unwrap() }.unwrap());
        let mut panics = spawn(|| panic!("joined by a select"));
        assert!(
            select! { join(panics) -> result => result.is_err_and(|error| error.is_panic()) }
                .unwrap()
        );
        plainweave::scope(|s| {
            let mut scoped = s.spawn(|| 5);
            assert_eq!(
                select! { join(scoped) -> result => result.unwrap() }.unwrap(),
                5
            );
        });
    });
}

fn a_select_waits_for_sets(setup: Setup) {
    setup.runtime().run(|| {
        let (work, to_do) = channel::bounded(0);
        let feeder = spawn(move || (0..50_u32).for_each(|n| work.send(n).unwrap()));

        // A server of at most four requests at a time.
        let mut set = JoinSet::new();
        let mut open = true;
        let mut sum = 0;

        while open || !set.is_empty() {
            if !open || set.len() == 4 {
                sum += set.join_next().unwrap().unwrap();
            } else if set.is_empty() {
                match to_do.recv() {
                    Ok(n) => drop(set.spawn(move || n)),
                    Err(_) => open = false,
                }
            } else {
                select! {
                    recv(to_do) -> request => match request {
                        Ok(n) => drop(set.spawn(move || n)),
                        Err(_) => open = false,
                    },
                    join_next(set) -> result => sum += result.unwrap().unwrap(),
                }
                .unwrap();
            }
            assert!(set.len() <= 4);
        }

        assert_eq!(sum, 49 * 25);
        feeder.join().unwrap();
        let none = select! {
            recv(to_do) -> _ => false,
            join_next(set) -> result => result.is_none(),
        };

        assert!(
            none.is_ok(),
            "both are ready: a closed channel and an empty set"
        );
    });
}

/// Selects over handles, sets and channels, cancelled at any moment: each result is joined once or
/// still there.
fn cancelled_selects_lose_no_result(setup: Setup) {
    let runtime = setup.runtime();
    let counts = Arc::new(Counts::default());
    for round in 0..100 {
        let made = counts.clone();
        let fiber = runtime.spawn(move || {
            let mut set = JoinSet::new();
            (0..6).for_each(|n| {
                let result = Counted::new(&made);
                set.spawn(move || {
                    (0..n).for_each(|_| yield_now());
                    result
                });
            });
            let result = Counted::new(&made);
            let mut alone = spawn(move || {
                yield_now();
                result
            });

            let mut joined = 0;
            loop {
                let more = select! {
                    join_next(set) -> result => result.is_some_and(|result| result.is_ok()),
                    join(alone) -> result => { drop(result.unwrap()); break; }
                };

                match more {
                    Ok(more) => joined += usize::from(more),
                    Err(error) => {
                        assert!(is_cancelled(&error));
                        break;
                    }
                }
            }

            // What was not joined is still in the set.
            assert_eq!(joined + set.len(), 6);
        });

        Random::new(round + 1).spin(60);
        fiber.cancel();
        fiber.join().unwrap();
    }

    eventually("all results are gone", || counts.balanced());
}

/// Its destructor panics if it is armed.
struct Bomb(bool);

impl Drop for Bomb {
    fn drop(&mut self) {
        assert!(!self.0, "dropped");
    }
}

/// The value of a send that loses is dropped when a fiber's end has been chosen already.
fn a_set_survives_a_panic_in_a_losing_branch(setup: Setup) {
    setup.runtime().run(|| {
        let (full, _receiver) = channel::bounded(1);
        full.send(Bomb(false)).ok().unwrap();
        let mut set = JoinSet::new();
        set.spawn(|| 1);
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            select! {
                send(full, Bomb(true)) -> _ => unreachable!("full"),
                join_next(set) -> result => result.unwrap().unwrap(),
            }
        }));

        assert!(outcome.is_err() && set.is_empty());
        assert!(with_timeout(LONG, || set.join_next()).is_none());
        set.spawn(|| 2);
        assert_eq!(set.join_next().unwrap().unwrap(), 2);
    });
}

fn no_more_run_than_the_limit(setup: Setup) {
    setup.runtime().run(|| {
        let running = Arc::new(AtomicUsize::new(0));
        let most = Arc::new(AtomicUsize::new(0));
        let mut set = JoinSet::new();
        for n in 0..200 {
            let running = running.clone();
            let most = most.clone();
            let job = move || {
                most.fetch_max(running.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                yield_now();
                running.fetch_sub(1, Ordering::SeqCst);
                assert_ne!(n, 150, "one of them panics");
                n
            };

            set.spawn_limited(5, job).expect("not cancelled");
            assert!(set.running() <= 5);
            if n % 50 == 0 {
                // Whichever way results are taken, none is lost.
                assert!(
                    set.try_join_next()
                        .is_none_or(|end| end.is_ok_and(|n| n < 150))
                );
            }
        }

        assert!(most.load(Ordering::SeqCst) <= 5);
        let before = set.len();
        let mut ends = Vec::new();
        while let Some(end) = select!(join_next(set) -> end => end).expect("not cancelled") {
            ends.push(end);
        }
        assert_eq!((ends.len(), set.len(), set.running()), (before, 0, 0));
        assert_eq!(ends.iter().filter(|end| end.is_err()).count(), 1);
    });
}

fn a_spawn_that_is_cancelled_or_late_leaves_the_set_as_it_is(setup: Setup) {
    setup.runtime().run(|| {
        let mut set = JoinSet::new();
        set.spawn(|| sleep(LONG).is_err());
        let late = with_timeout(ms(5), || set.spawn_limited(1, || true)).expect_err("late");
        assert_eq!(late.kind(), std::io::ErrorKind::TimedOut);
        assert_eq!(
            set.spawn_limited(0, || true).expect_err("no limit").kind(),
            std::io::ErrorKind::InvalidInput
        );
        assert_eq!((set.len(), set.running()), (1, 1));
        set.cancel_all();
        set.spawn_limited(1, || true).expect("there is room");
        assert_eq!(set.len(), 2);
        assert!(
            set.join_next().expect("two").expect("no panic")
                && set.join_next().expect("one").expect("no panic")
        );
        let owner = spawn(|| {
            let mut set = JoinSet::new();
            set.spawn(park);
            let error = set.spawn_limited(1, park).expect_err("cancelled");
            (is_cancelled(&error), set.len())
        });

        owner.cancel();
        assert_eq!(owner.join().expect("no panic"), (true, 1));
    });
}
