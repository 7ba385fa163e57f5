//! No address space is left: what the runtime does by itself does not end the program.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::common::*;
use plainweave::{Runtime, time};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Takes all that there is, whatever the size, and gives it back when dropped.
fn hoard() -> Vec<Vec<u8>> {
    let mut all = Vec::with_capacity(1 << 20);
    for size in (4..26).rev().map(|bits| 1usize << bits) {
        loop {
            let mut some = Vec::new();
            if some.try_reserve_exact(size).is_err() || all.len() == all.capacity() {
                break;
            }
            all.push(some);
        }
    }
    all
}

#[test]
fn nothing_of_the_runtime_ends_a_program_without_address_space() {
    if apart() {
        return;
    }
    let reports = Arc::new(AtomicUsize::new(0));
    let seen = reports.clone();
    let runtime = Runtime::builder()
        .workers(2)
        .stall_after(Some(ms(2)))
        .on_stall(move |_| {
            seen.fetch_add(1, Ordering::Relaxed);
        })
        .build()
        .expect("a runtime");
    let fibers: Vec<_> = (0..50).map(|_| runtime.spawn(plainweave::park)).collect();
    let busy = |time| {
        runtime.spawn(move || {
            let end = time::now() + time;
            while time::now() < end {}
        })
    };

    // All threads have started.
    busy(ms(50)).join().expect("no panic");
    eventually("it is reported", || reports.load(Ordering::Relaxed) > 0);
    let busy = [(); 3].map(|()| busy(ms(500)));
    let before = getrlimit(Resource::As);
    let statm = std::fs::read_to_string("/proc/self/statm").expect("proc");
    let pages: u64 = statm
        .split(' ')
        .next()
        .expect("the first is the size")
        .parse()
        .expect("a number");
    let few = Rlimit {
        current: Some(pages * 4096 + (24 << 20)),
        maximum: before.maximum,
    };

    setrlimit(Resource::As, few).expect("less");
    let all = hoard();
    let dump = runtime.dump();
    std::thread::sleep(ms(500));
    drop(all);
    setrlimit(Resource::As, before).expect("as before");
    assert_eq!(dump.fibers.len(), 0, "{dump}");
    let all_there = runtime.dump();

    assert!(all_there.fibers.len() >= 50, "{all_there}");
    for busy in busy {
        busy.join().expect("no panic");
    }
    for fiber in fibers {
        fiber.fiber().unpark();
        fiber.join().expect("no panic").expect("unparked");
    }
}
