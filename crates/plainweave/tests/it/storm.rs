//! A storm of deadlines: fibers whose deadlines fall into one tick end among the other fibers, not
//! before them.

use std::io::{self, ErrorKind, Read};
use std::net::TcpStream as OsStream;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use crate::common::*;
use plainweave::net::TcpStream;
use plainweave::sync::channel;
use plainweave::{scope, time};

on_every_driver!(
    sleepers_end_among_others,
    receivers_end_among_others,
    readers_end_among_others,
    a_fiber_that_computes_delays_no_timers,
    idle_ones_end_too,
);

const LONG: Duration = Duration::from_secs(1000);
const STORM: usize = 3000;

/// Runs fibers that wait by `wait` until their common deadline, beside one that does `work` and
/// yields. Returns how often that had its turn between the end of the first and that of the last of
/// them.
fn turns_during(
    setup: Setup,
    fibers: usize,
    wait: impl Fn(usize) -> io::Result<()> + Sync,
    work: impl Fn() + Sync,
) -> usize {
    // On a machine with other work, some may begin to wait after the deadline: then a later one.
    let mut limit = ms(500);
    loop {
        let (turns, ready) = turns_until(setup, fibers, limit, &wait, &work);
        if ready == fibers {
            return turns;
        }
        assert!(limit < ms(30_000), "only {ready} of {fibers} wait");
        limit *= 4;
    }
}

/// Does so for a deadline that ends `limit` later; returns also how many waited when the first
/// ended.
fn turns_until(
    setup: Setup,
    fibers: usize,
    limit: Duration,
    wait: &(impl Fn(usize) -> io::Result<()> + Sync),
    work: &(impl Fn() + Sync),
) -> (usize, usize) {
    let runtime = setup.check(
        setup
            .builder()
            .workers(1)
            .max_workers(1)
            .build()
            .expect("a runtime"),
    );
    let turns = AtomicUsize::new(0);
    let begun = AtomicUsize::new(0);
    let ready = AtomicUsize::new(0);
    let ended = AtomicUsize::new(0);
    let first = AtomicUsize::new(0);
    let last = AtomicUsize::new(0);
    let late = |n| {
        begun.fetch_add(1, SeqCst);
        assert_eq!(wait(n).expect_err("late").kind(), ErrorKind::TimedOut);
        let turn = turns.load(SeqCst);
        if ended.fetch_add(1, SeqCst) == 0 {
            first.store(turn, SeqCst);
            ready.store(begun.load(SeqCst), SeqCst);
        }

        last.fetch_max(turn, SeqCst);
    };

    runtime.run(|| {
        scope(|s| {
            s.spawn(|| {
                while ended.load(SeqCst) < fibers {
                    turns.fetch_add(1, SeqCst);
                    work();
                    plainweave::yield_now();
                }
            });
            time::with_timeout(limit, || {
                scope(|storm| (0..fibers).for_each(|n| drop(storm.spawn(move || late(n)))));
            });
        });
    });
    assert_eq!(ended.into_inner(), fibers);
    (last.into_inner() - first.into_inner(), ready.into_inner())
}

/// Requires that another fiber has its turns during a storm of so many. Where a machine gives the
/// worker little time, a turn takes long, and then 212 timers fire in one.
fn others_have_turns(setup: Setup, fibers: usize, wait: impl Fn(usize) -> io::Result<()> + Sync) {
    let turns = turns_during(setup, fibers, wait, || ());
    assert!(turns >= fibers / 256, "{turns} turns");
}

fn sleepers_end_among_others(setup: Setup) {
    others_have_turns(setup, STORM, |_| time::sleep(LONG));
}

fn receivers_end_among_others(setup: Setup) {
    let (_sender, receiver) = channel::bounded::<u8>(1);
    others_have_turns(setup, STORM, |_| {
        receiver.recv().map(drop).map_err(io::Error::from)
    });
}

fn readers_end_among_others(setup: Setup) {
    if apart() {
        return;
    }
    let pairs: Vec<(TcpStream, OsStream)> = (0..200).map(|_| connected()).collect();
    let turns = turns_during(
        setup,
        pairs.len(),
        |n| (&pairs[n].0).read(&mut [0; 8]).map(drop),
        || (),
    );

    // As in `others_have_turns`, after the first 16.
    assert!(turns >= 2, "{turns} turns");
}

/// Where a turn takes long, many timers fire in one: no worker falls behind because of its other
/// fibers.
fn a_fiber_that_computes_delays_no_timers(setup: Setup) {
    let turns = turns_during(setup, 2000, |_| time::sleep(LONG), || compute(ms(2)));
    // 2000 of them at 212 a turn, and the first 16; 125 turns at 16.
    assert!(turns <= 60, "{turns} turns");
}

/// With nothing else to run, the worker goes on from one part of the storm to the next.
fn idle_ones_end_too(setup: Setup) {
    let runtime = setup.without_spares();
    let late = AtomicUsize::new(0);
    let sleeper = || {
        assert_eq!(
            time::sleep(LONG).expect_err("late").kind(),
            ErrorKind::TimedOut
        );
        late.fetch_add(1, SeqCst);
    };

    runtime.run(|| {
        time::with_timeout(ms(300), || {
            scope(|storm| (0..STORM).for_each(|_| drop(storm.spawn(sleeper))))
        });
    });
    assert_eq!(late.into_inner(), STORM);
}

/// What a storm has needed of thread-local storage is given back while its worker goes on with
/// other fibers.
#[test]
fn storage_is_freed_beside_fibers_that_never_rest() {
    const NAME: &str = "storage_is_freed_beside_fibers_that_never_rest";
    /// Blocks that the process and its workers keep, and those in use.
    const KEPT: usize = 256 + 2 * 128 + 16;
    if !is_child("busy") {
        let output = in_child(NAME, "busy", &[]);
        assert!(output.status.success(), "{}", stderr_of(&output));
        return;
    }

    let builder = plainweave::Runtime::builder()
        .own_storage()
        .workers(1)
        .max_workers(1)
        .report_stalls(false);
    let runtime = builder.build().expect("a runtime");
    let over = AtomicUsize::new(0);
    let waiting = AtomicUsize::new(0);
    std::thread::scope(|threads| {
        let busy = threads.spawn(|| {
            runtime.run(|| {
                while over.load(SeqCst) == 0 {
                    plainweave::yield_now();
                }
            });
        });

        let end = plainweave::sync::Semaphore::new(0);
        runtime.run(|| {
            scope(|storm| {
                for _ in 0..STORM {
                    storm.spawn(|| {
                        waiting.fetch_add(1, SeqCst);
                        assert!(end.acquire().is_err());
                    });
                }

                while waiting.load(SeqCst) < STORM {
                    plainweave::yield_now();
                }
                end.close();
            });
        });
        assert!(runtime.metrics().storage_blocks >= STORM);
        let sleeps = runtime.metrics().sleeps;
        eventually("the storage to go", || {
            runtime.metrics().storage_blocks <= KEPT
        });
        assert_eq!(
            runtime.metrics().sleeps,
            sleeps,
            "the worker has never slept"
        );
        over.store(1, SeqCst);
        busy.join().expect("no panic");
    });
}
