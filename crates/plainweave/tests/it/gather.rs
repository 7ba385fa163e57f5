//! Barriers and wait groups: fibers and threads that wait for each other, and some that do not wait
//! to the end.

use std::io::ErrorKind;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::common::*;
use plainweave::sync::{Barrier, WaitGroup};
use plainweave::time::with_timeout;
use plainweave::{is_cancelled, spawn, yield_now};

on_every_driver!(
    a_barrier_holds_round_after_round,
    a_barrier_for_one_lets_go,
    one_that_gives_up_has_not_arrived,
    cancelled_arrivals_are_made_up_for,
    a_group_ends_with_its_last_member,
    a_panicking_member_has_left,
    a_group_of_one_does_not_wait,
    a_wait_for_members_is_cancelled_and_late,
    all_members_may_wait,
);

fn a_barrier_holds_round_after_round(setup: Setup) {
    const ROUNDS: usize = 50;
    let shared = Arc::new((Barrier::new(5), AtomicUsize::new(0), AtomicUsize::new(0)));
    let walk = |(barrier, arrived, leaders): &(Barrier, AtomicUsize, AtomicUsize)| {
        for round in 1..=ROUNDS {
            arrived.fetch_add(1, Ordering::SeqCst);
            let leads = barrier.wait().unwrap().is_leader();
            leaders.fetch_add(usize::from(leads), Ordering::SeqCst);
            assert!(
                arrived.load(Ordering::SeqCst) >= 5 * round,
                "somebody is missing"
            );
        }
    };

    let theirs = shared.clone();
    let thread = std::thread::spawn(move || walk(&theirs));
    setup
        .runtime()
        .scope(|s| (0..4).for_each(|_| drop(s.spawn(|| walk(&shared)))));
    thread.join().unwrap();
    assert_eq!(shared.1.load(Ordering::SeqCst), 5 * ROUNDS);

    assert_eq!(
        shared.2.load(Ordering::SeqCst),
        ROUNDS,
        "one leader a round"
    );
}

fn a_barrier_for_one_lets_go(setup: Setup) {
    setup.runtime().run(|| {
        for size in [0, 1] {
            assert!(Barrier::new(size).wait().unwrap().is_leader());
        }
    });
}

fn one_that_gives_up_has_not_arrived(setup: Setup) {
    setup.runtime().run(|| {
        let barrier = Arc::new(Barrier::new(2));
        assert_eq!(
            with_timeout(ms(2), || barrier.wait()).unwrap_err().kind(),
            ErrorKind::TimedOut
        );
        let theirs = barrier.clone();
        let waiter = spawn(move || theirs.wait());
        pause();
        waiter.cancel();
        assert!(is_cancelled(&waiter.join().unwrap().unwrap_err()));

        // Two have gone: one alone still waits.
        assert_eq!(
            with_timeout(ms(2), || barrier.wait()).unwrap_err().kind(),
            ErrorKind::TimedOut
        );
        let theirs = barrier.clone();
        let other = spawn(move || theirs.wait().unwrap().is_leader());
        assert!(barrier.wait().unwrap().is_leader() != other.join().unwrap());
    });
    let on_thread = with_timeout(ms(2), || Barrier::new(2).wait());
    assert_eq!(on_thread.unwrap_err().kind(), ErrorKind::TimedOut);
}

/// Pairs pass; whoever is cancelled passes with a partner or not at all.
fn cancelled_arrivals_are_made_up_for(setup: Setup) {
    let runtime = setup.runtime();
    for round in 0..100 {
        let mut random = Random::new(round + 1);
        let barrier = Arc::new(Barrier::new(2));
        let fibers: Vec<_> = (0..6)
            .map(|_| {
                let barrier = barrier.clone();
                runtime.spawn(move || barrier.wait().is_ok())
            })
            .collect();
        for fiber in &fibers {
            random.spin(10);
            fiber.cancel();
        }

        let passed = fibers
            .into_iter()
            .filter_map(|fiber| fiber.join().unwrap().then_some(()))
            .count();
        assert_eq!(passed % 2, 0, "{passed} passed");
    }
}

fn a_group_ends_with_its_last_member(setup: Setup) {
    let runtime = setup.runtime();
    for _ in 0..20 {
        let group = WaitGroup::new();
        let done = Arc::new(AtomicUsize::new(0));
        let work = |n: u64| {
            let member = group.clone();
            let done = done.clone();
            move || {
                Random::new(n).spin(50);
                done.fetch_add(1, Ordering::SeqCst);
                drop(member);
            }
        };

        let thread = std::thread::spawn(work(1));
        (2..6).for_each(|n| drop(runtime.spawn(work(n))));
        group.wait().unwrap();
        assert_eq!(done.load(Ordering::SeqCst), 5);
        thread.join().unwrap();
    }
}

fn a_panicking_member_has_left(setup: Setup) {
    setup.runtime().run(|| {
        let group = WaitGroup::new();
        let member = group.clone();
        let fiber = spawn(move || {
            let _member = member;
            panic!("in the group");
        });

        group.wait().unwrap();
        assert!(fiber.join().unwrap_err().is_panic());
    });
}

fn a_group_of_one_does_not_wait(setup: Setup) {
    setup.runtime().run(|| {
        plainweave::current().cancel();
        WaitGroup::new().wait().expect("nobody to wait for");
    });
}

fn a_wait_for_members_is_cancelled_and_late(setup: Setup) {
    let group = WaitGroup::new();
    let first = group.clone();
    let second = group.clone();
    let third = group.clone();
    let runtime = setup.runtime();
    let waiter = runtime.spawn(move || first.wait());

    waiter.cancel();
    assert!(is_cancelled(&waiter.join().unwrap().unwrap_err()));
    let late = runtime
        .run(move || with_timeout(ms(2), || second.wait()))
        .unwrap_err();

    assert_eq!(late.kind(), ErrorKind::TimedOut);
    assert_eq!(
        with_timeout(ms(2), || third.wait()).unwrap_err().kind(),
        ErrorKind::TimedOut
    );
    // They have left, so nobody is waited for.
    group.wait().unwrap();
}

fn all_members_may_wait(setup: Setup) {
    setup.runtime().scope(|s| {
        let group = WaitGroup::new();
        for _ in 0..5 {
            let member = group.clone();
            s.spawn(move || {
                yield_now();
                member.wait().unwrap();
            });
        }
        group.wait().unwrap();
    });
}
