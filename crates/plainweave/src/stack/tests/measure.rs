//! Measurements, and tests that need the machine to themselves; run by name, one at a time.

#![allow(clippy::print_stderr)]

use std::sync::Arc;
use std::time::Instant;

use super::super::cache;
use super::super::guard::mappings;
use super::*;
use crate::context::tests::{Flow, flow};

/// Prints the best of seven runs, per round.
fn time(name: &str, rounds: u32, f: &mut dyn FnMut()) {
    let best = (0..7).map(|_| {
        let start = Instant::now();
        f();
        start.elapsed()
    });

    eprintln!(
        "{name}: {:.1} ns",
        best.min().expect("seven").as_nanos() as f64 / f64::from(rounds)
    );
}

/// Returns a line of `/proc/self/status`, in KiB.
fn status_kib(field: &str) -> usize {
    let status = std::fs::read_to_string("/proc/self/status").expect("/proc");
    let line = status
        .lines()
        .find(|line| line.starts_with(field))
        .expect("field");
    line.split_whitespace()
        .nth(1)
        .and_then(|number| number.parse().ok())
        .expect("a number")
}

/// Run alone: `cargo test -p plainweave --release --lib a_million_stacks -- --ignored --nocapture`.
/// Needs 5 GB of memory.
#[test]
#[ignore = "takes 5 GB of memory and seconds"]
fn a_million_stacks() {
    let count = 1_000_000;
    let start = Instant::now();
    let pool = StackPool::new(StackConfig {
        size: 256 << 10,
        guard: GuardMode::Madvise,
        ..Default::default()
    });

    let pool = pool.expect("Linux 6.13");
    let stacks = take(&pool, count);
    let carved = start.elapsed();
    stacks.iter().for_each(|stack| touch(stack, 1));
    let touched = start.elapsed();
    let rss = status_kib("VmRSS");
    let tables = status_kib("VmPTE");
    let maps = mappings();
    let slabs = pool.stats().slabs;

    stacks.into_iter().for_each(|stack| pool.put(stack));
    let returned = start.elapsed();
    let after = status_kib("VmRSS");
    eprintln!(
        "take {carved:?}, touch {:?}, put {:?}",
        touched - carved,
        returned - touched
    );
    eprintln!(
        "VmRSS {rss} KiB, page tables {tables} KiB, {maps} mappings, {slabs} slabs; put back: VmRSS {after} KiB"
    );
    assert!(rss <= 4_600_000_000 / 1024 && maps < 200);
    assert!(after < 200_000, "cold stacks hold no pages");
    assert_eq!(pool.stats().in_use, 0);
}

/// `cargo test -p plainweave --release --lib prices -- --ignored --nocapture`: what the essay and
/// the docs quote.
#[test]
#[ignore = "a measurement"]
fn prices() {
    let pool = Arc::new(
        StackPool::new(StackConfig {
            size: 256 << 10,
            ..Default::default()
        })
        .expect("pool"),
    );
    let mut mine = StackCache::new(Arc::clone(&pool));
    time("cache: take + put", 1_000_000, &mut || {
        for _ in 0..1_000_000 {
            let stack = mine.take().expect("stack");
            mine.put(std::hint::black_box(stack));
        }
    });
    time("pool: take + put", 1_000_000, &mut || {
        for _ in 0..1_000_000 {
            pool.put(std::hint::black_box(pool.take().expect("stack")));
        }
    });
    let mut other = StackCache::new(Arc::clone(&pool));

    time("one cache takes, another puts", 1_000_000, &mut || {
        for _ in 0..1_000_000 {
            other.put(mine.take().expect("stack"));
        }
    });
    let mut held = Vec::with_capacity(4 * cache::CAPACITY);

    time("take 512, put 512 through one cache", 512_000, &mut || {
        for _ in 0..1000 {
            held.extend((0..512).map(|_| mine.take().expect("stack")));
            held.drain(..).for_each(|stack| mine.put(stack));
        }
    });
    let stack = mine.take().expect("stack");
    touch(&stack, 8 << 10);
    time("high_water of 256 KiB", 100_000, &mut || {
        for _ in 0..100_000 {
            std::hint::black_box(stack.high_water());
        }
    });
    time("touch a page, drop it", 100_000, &mut || {
        for _ in 0..100_000 {
            touch(&stack, 1);
            stack.shrink(0);
        }
    });
    mine.put(stack);
}

/// Touches a little of its stack and answers, for ever.
extern "C" fn ticker(argument: usize, _: usize) -> ! {
    let flow = flow(argument);
    let mut frame = [0u64; 16];
    loop {
        std::hint::black_box(&mut frame)[3] += 1;
        flow.answer(0);
    }
}

/// `cargo test -p plainweave --release --lib switches -- --ignored --nocapture`: what the colours
/// are for.
#[test]
#[ignore = "a measurement"]
fn switches() {
    for count in [8, 256, 1024, 8192] {
        // A pool of its own: the order of its stacks does not depend on earlier measurements.
        let pool = StackPool::new(StackConfig {
            size: 256 << 10,
            ..Default::default()
        })
        .expect("pool");
        let stacks = take(&pool, count);
        let on = |stack: &Stack| Flow::new(stack.bottom_address(), stack.base(), ticker);
        let round: Vec<_> = stacks.iter().map(on).collect();
        time(
            &format!("switch there and back, {count} in a round"),
            409_600,
            &mut || {
                for _ in 0..409_600 / count {
                    for flow in &round {
                        flow.ask(0);
                    }
                }
            },
        );

        // Their frames own nothing.
        drop(round);
        stacks.into_iter().for_each(|stack| pool.put(stack));
    }
}

/// The limit of this machine itself, not an injected one.
#[test]
#[ignore = "uses up the mappings that other tests need"]
fn mprotect_stops_before_the_kernel_does() {
    let pool = StackPool::new(StackConfig {
        size: 64 << 10,
        guard: GuardMode::Mprotect,
        ..Default::default()
    });

    let pool = pool.expect("pool");
    let start = Instant::now();
    let mut stacks = Vec::new();
    let error = loop {
        match pool.take() {
            Ok(stack) => stacks.push(stack),
            Err(error) => break error,
        }
    };

    let each = start.elapsed() / stacks.len() as u32;
    eprintln!(
        "{} stacks at {each:?}, {} mappings: {error}",
        stacks.len(),
        mappings()
    );
    assert!(error.to_string().contains("vm.max_map_count"), "{error}");
    std::thread::spawn(|| ())
        .join()
        .expect("room is left for a thread");
    stacks.into_iter().for_each(|stack| pool.put(stack));
}
