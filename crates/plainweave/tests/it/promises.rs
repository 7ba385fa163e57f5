//! Promises: one value for many waiters, and what becomes of waiters without one.

use std::io::ErrorKind;
use std::sync::Arc;
use std::time::Duration;

use crate::common::*;
use plainweave::sync::{channel, promise, select};
use plainweave::time::with_timeout;
use plainweave::{is_cancelled, spawn};

on_every_setup!(
    every_waiter_gets_the_value,
    a_promise_that_is_dropped_fails_its_waiters,
    a_waiter_is_cancelled_or_late,
    what_has_come_is_given_also_to_the_cancelled,
    nobody_left_gives_the_value_back,
    the_value_is_dropped_once,
    cancelled_waiters_leave_the_others_theirs,
    a_select_waits_for_promises,
);

fn every_waiter_gets_the_value(setup: Setup) {
    let (resolver, answer) = promise::<String>();
    assert!(answer.try_get().unwrap_err().is_pending() && !answer.is_ended());
    let threads: Vec<_> = (0..3)
        .map(|_| {
            let answer = answer.clone();
            std::thread::spawn(move || answer.wait().unwrap().clone())
        })
        .collect();
    setup.runtime().run(|| {
        let fibers: Vec<_> = (0..10)
            .map(|_| {
                let answer = answer.clone();
                spawn(move || answer.wait().unwrap().clone())
            })
            .collect();
        pause();
        resolver
            .resolve("the answer".to_owned())
            .expect("they wait");
        fibers
            .into_iter()
            .for_each(|fiber| assert_eq!(fiber.join().unwrap(), "the answer"));
        assert_eq!(answer.wait().unwrap(), "the answer", "and again");
    });
    threads
        .into_iter()
        .for_each(|thread| assert_eq!(thread.join().unwrap(), "the answer"));
    assert!(answer.is_ended());
    assert_eq!(answer.try_get().unwrap(), "the answer");
}

fn a_promise_that_is_dropped_fails_its_waiters(setup: Setup) {
    setup.runtime().run(|| {
        for panics in [false, true] {
            let (resolver, answer) = promise::<u8>();
            let waiters: Vec<_> = (0..4)
                .map(|_| {
                    let answer = answer.clone();
                    spawn(move || answer.wait().copied())
                })
                .collect();
            pause();
            let fiber = spawn(move || {
                let _resolver = resolver;
                assert!(!panics, "before it has given the value");
            });

            assert_eq!(fiber.join().is_err(), panics);
            for waiter in waiters {
                let error = waiter.join().unwrap().expect_err("abandoned");
                assert!(error.is_abandoned(), "{error}");
                assert_eq!(std::io::Error::from(error).kind(), ErrorKind::BrokenPipe);
            }

            assert!(answer.try_get().unwrap_err().is_abandoned());
        }
    });
}

fn a_waiter_is_cancelled_or_late(setup: Setup) {
    let runtime = setup.runtime();
    let (_resolver, answer) = promise::<u8>();
    for already in [true, false] {
        let answer = answer.clone();
        let fiber = runtime.spawn(move || {
            if already {
                plainweave::current().cancel();
            }
            answer.wait().map(drop).map_err(std::io::Error::from)
        });

        if !already {
            std::thread::sleep(ms(2));
            fiber.cancel();
        }

        assert!(is_cancelled(&fiber.join().unwrap().expect_err("cancelled")));
    }

    let late = || {
        assert!(
            with_timeout(ms(2), || answer.wait().map(drop))
                .unwrap_err()
                .is_timed_out()
        );
        assert!(answer.wait_timeout(ms(2)).unwrap_err().is_timed_out());
    };

    runtime.run(late);
    late();
}

fn what_has_come_is_given_also_to_the_cancelled(setup: Setup) {
    setup.runtime().run(|| {
        let (resolver, answer) = promise();
        resolver.resolve(1).unwrap();
        let fiber = spawn(move || {
            plainweave::current().cancel();
            *answer.wait().unwrap() + *answer.wait_timeout(Duration::ZERO).unwrap()
        });

        assert_eq!(fiber.join().unwrap(), 2);
    });
}

fn nobody_left_gives_the_value_back(_: Setup) {
    let (resolver, answer) = promise();
    let other = answer.clone();
    drop(answer);
    assert!(!resolver.is_closed());
    drop(other);
    assert!(resolver.is_closed());
    assert_eq!(resolver.resolve(Box::new(5)), Err(Box::new(5)));
}

fn the_value_is_dropped_once(setup: Setup) {
    let counts = Arc::new(Counts::default());
    setup.runtime().run(|| {
        let (resolver, answer) = promise();
        let other = answer.clone();
        let fiber = spawn(move || other.wait().is_ok());
        resolver.resolve(Counted::new(&counts)).expect("one waits");
        assert!(fiber.join().unwrap());
        assert_eq!(counts.dropped(), 0);
        drop(answer);
    });
    assert_eq!((counts.made(), counts.dropped()), (1, 1));
}

/// Waiters that are cancelled about when the value comes: they have it or not, and all others have
/// it.
fn cancelled_waiters_leave_the_others_theirs(setup: Setup) {
    let runtime = setup.runtime();
    for round in 0..200 {
        let (resolver, answer) = promise();
        let waiters: Vec<_> = (0..6)
            .map(|n| {
                let answer = answer.clone();
                runtime.spawn(move || {
                    let value = if n % 3 == 0 {
                        select! { promise(answer) -> result => result.copied() }
                            .map(|value| value.ok())
                    } else {
                        Ok(answer.wait().ok().copied())
                    };
                    matches!(value, Ok(Some(7)))
                })
            })
            .collect();
        let mut random = Random::new(round + 1);
        let thread = std::thread::spawn(move || {
            Random::new(round + 5000).spin(30);
            resolver.resolve(7).expect("awaited");
        });

        for waiter in &waiters[3..] {
            random.spin(20);
            waiter.cancel();
        }

        let got: Vec<_> = waiters
            .into_iter()
            .map(|waiter| waiter.join().unwrap())
            .collect();
        assert!(got[..3].iter().all(|got| *got), "{got:?}");
        thread.join().unwrap();
    }
}

fn a_select_waits_for_promises(setup: Setup) {
    setup.runtime().run(|| {
        let ((one, first), (other, second)) = (promise(), promise());
        let (_sender, empty) = channel::bounded::<u8>(1);
        let waiters: Vec<_> = (0..3)
            .map(|_| {
                let first = first.clone();
                let second = second.clone();
                let empty = empty.clone();
                spawn(move || {
                    select! {
                        promise(first) -> result => result.copied().map_err(|error| error.is_abandoned()),
                        promise(second) -> result => result.copied().map_err(|error| error.is_abandoned()),
                        recv(empty) -> _ => Ok(0),
                    }
                    .unwrap()
                })
            })
            .collect();
        pause();
        other.resolve(7).unwrap();
        waiters.into_iter().for_each(|waiter| assert_eq!(waiter.join().unwrap(), Ok(7)));
        drop(one);
        let failed = select! { promise(first) -> result => result.unwrap_err().is_abandoned() };

        assert!(failed.unwrap());
    });
}
