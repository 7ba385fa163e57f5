//! The blocking pool: how many jobs run at once.

use std::sync::{Arc, Condvar, Mutex, mpsc};

use crate::common::*;
use plainweave::blocking;

on_every_driver!(
    a_burst_runs_as_wide_as_the_pool,
    a_burst_wider_than_the_pool_uses_all_of_it,
    jobs_that_wait_for_each_other_end
);

/// Where jobs meet: how many are here, and the most there were.
type Meeting = Arc<(Mutex<(usize, usize)>, Condvar)>;

/// Waits on the OS thread until `all` jobs are here at once. Whether they came.
fn meet(meeting: &Meeting, all: usize) -> bool {
    let (state, arrived) = &**meeting;
    let mut here = state.lock().expect("no panic");
    here.0 += 1;
    here.1 = here.1.max(here.0);
    arrived.notify_all();
    let (mut here, _) = arrived
        .wait_timeout_while(here, ms(20_000), |here| here.1 < all)
        .expect("no panic");

    here.0 -= 1;
    here.1 >= all
}

/// Runs `jobs` that meet, `all` of which the pool can hold.
fn burst(jobs: usize, all: usize) -> bool {
    let meeting = Meeting::default();
    let job = |_| {
        let meeting = meeting.clone();
        plainweave::spawn(move || blocking(move || meet(&meeting, all)).expect("not cancelled"))
    };

    let jobs: Vec<_> = (0..jobs).map(job).collect();
    jobs.into_iter().all(|job| job.join().expect("no panic"))
}

fn a_burst_runs_as_wide_as_the_pool(setup: Setup) {
    let runtime = setup.check(
        setup
            .builder()
            .blocking_threads(16)
            .build()
            .expect("a runtime"),
    );
    // At first no thread is there, later all are, idle or about to be.
    runtime
        .run(|| (0..20).for_each(|round| assert!(burst(16, 16), "round {round}: not all at once")));
    // Nor where a few are.
    let runtime = setup.check(
        setup
            .builder()
            .blocking_threads(16)
            .build()
            .expect("a runtime"),
    );
    runtime.run(|| (1..=16).for_each(|wide| assert!(burst(wide, wide), "not {wide} at once")));
}

fn a_burst_wider_than_the_pool_uses_all_of_it(setup: Setup) {
    let runtime = setup.check(
        setup
            .builder()
            .blocking_threads(3)
            .build()
            .expect("a runtime"),
    );
    runtime
        .run(|| (0..20).for_each(|round| assert!(burst(50, 3), "round {round}: not all at once")));
}

fn jobs_that_wait_for_each_other_end(setup: Setup) {
    let runtime = setup.check(
        setup
            .builder()
            .workers(1)
            .blocking_threads(2)
            .build()
            .expect("a runtime"),
    );
    for round in 0..20 {
        let came = runtime.run(|| {
            blocking(|| ()).expect("not cancelled");
            if round % 2 == 0 {
                // The thread is idle by now, more often than not.
                pause();
            }

            let (tell, told) = mpsc::channel();
            let first =
                plainweave::spawn(|| blocking(move || told.recv_timeout(ms(20_000)).is_ok()));
            let second = plainweave::spawn(|| blocking(move || tell.send(())));
            let _ = second.join().expect("no panic").expect("not cancelled");
            first.join().expect("no panic").expect("not cancelled")
        });
        assert!(came, "round {round}: the first waits for ever");
    }
}
