//! Fibers that have run deep and then wait: what they do not use of their stacks goes back.

use std::hint::black_box;
use std::time::{Duration, Instant};

use crate::common::*;
use plainweave::time::sleep;
use plainweave::{Builder, Movement, Runtime};

on_every_driver!(
    pages_of_fibers_that_may_move_go_back,
    pages_of_pinned_fibers_go_back,
    frames_stay_as_they_were,
    a_stack_of_another_kind_is_left_alone,
    a_program_at_rest_goes_back_to_sleep,
);

/// Two rounds, and as much again on a busy machine.
const ROUNDS: Duration = Duration::from_secs(30);
const FIBERS: usize = 500;
const DEEP: usize = 160 << 10;

/// Touches these many bytes of the stack.
#[inline(never)]
fn run_deep(bytes: usize) -> u64 {
    let mut frame = [0u8; 1024];
    black_box(&mut frame)[0] = 1;
    if bytes <= 1024 {
        u64::from(frame[0])
    } else {
        run_deep(bytes - 1024) + u64::from(black_box(&frame)[0])
    }
}

fn resident() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").expect("proc");
    let pages = statm.split(' ').nth(1).expect("the second is resident");
    pages.parse::<usize>().expect("a number") * 4096
}

/// Waits until the process has at most this much memory, while its main thread sleeps.
fn shrinks_to(bytes: usize) {
    let end = Instant::now() + ROUNDS;
    while resident() > bytes {
        assert!(Instant::now() < end, "{} of {bytes} bytes", resident());
        std::thread::sleep(ms(100));
    }
}

fn pages_go_back(runtime: Runtime) {
    let before = resident();
    let fibers: Vec<_> = (0..FIBERS)
        .map(|_| {
            let deep = move || {
                assert!(run_deep(DEEP) > 0);
                plainweave::park().expect("unparked");
                run_deep(DEEP)
            };

            let builder = Builder::new().stack_size(1 << 20);
            runtime.spawn_with(builder, deep).expect("a fiber")
        })
        .collect();
    eventually("all wait", || resident() > before + FIBERS * DEEP * 9 / 10);
    shrinks_to(before + FIBERS * DEEP / 8);
    let deepest = runtime.metrics().stack_high_water.expect("some are known");
    assert!(deepest >= DEEP, "what was there is remembered: {deepest}");

    for fiber in fibers {
        fiber.fiber().unpark();
        assert!(fiber.join().expect("no panic") > 0);
    }
}

fn pages_of_fibers_that_may_move_go_back(setup: Setup) {
    if !apart() {
        pages_go_back(setup.runtime());
    }
}

fn pages_of_pinned_fibers_go_back(setup: Setup) {
    if apart() {
        return;
    }
    let builder = setup.builder().movement(Movement::BeforeStart);
    pages_go_back(setup.check(builder.build().expect("a runtime")));
}

/// A value in each of many frames, and a wait at the bottom.
#[inline(never)]
fn nested(depth: u64, wait: &dyn Fn()) -> u64 {
    let frame = black_box([depth; 40]);
    if depth == 0 {
        wait();
    } else {
        assert_eq!(nested(depth - 1, wait), (depth - 1) * 40);
    }
    frame.iter().sum()
}

/// Some wait so long that their stacks are trimmed, some are woken in the midst of it.
fn frames_stay_as_they_were(setup: Setup) {
    let runtime = setup.runtime();
    let fibers: Vec<_> = (0..60u64)
        .map(|n| {
            runtime.spawn(move || {
                for round in 0..3 {
                    run_deep(DEEP);
                    let depth = 10 + n;
                    let wait = || sleep(ms(700 * (n % 7) + 50 * round)).expect("slept");
                    assert_eq!(nested(depth, &wait), depth * 40);
                }
            })
        })
        .collect();
    fibers
        .into_iter()
        .for_each(|fiber| fiber.join().expect("no panic"));
}

/// Code that has switched to a stack of its own is suspended there; what it has below on the
/// fiber's is in use.
fn a_stack_of_another_kind_is_left_alone(setup: Setup) {
    let runtime = setup.runtime();
    let deep = || {
        nested(30, &|| {
            let inner = || nested(30, &|| sleep(ms(6000)).expect("slept"));
            assert_eq!(stacker::grow(128 << 10, inner), 30 * 40);
        })
    };

    let fibers = [(); 10].map(|()| runtime.spawn(deep));
    for fiber in fibers {
        assert_eq!(fiber.join().expect("no panic"), 30 * 40);
    }
}

fn a_program_at_rest_goes_back_to_sleep(setup: Setup) {
    let runtime = setup.runtime();
    let fibers: Vec<_> = (0..100).map(|_| runtime.spawn(plainweave::park)).collect();
    let sleeps = || {
        let metrics = runtime.metrics();
        metrics
            .workers
            .iter()
            .map(|worker| worker.sleeps)
            .sum::<u64>()
    };

    let quiet = |before: u64| {
        std::thread::sleep(ms(5000));
        sleeps() == before
    };

    eventually("nobody wakes up for five seconds", || quiet(sleeps()));
    for fiber in fibers {
        fiber.fiber().unpark();
        fiber.join().expect("no panic").expect("unparked");
    }
}
