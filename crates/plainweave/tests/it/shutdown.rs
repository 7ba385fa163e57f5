//! How runtimes end, and how they do not begin.

#![allow(clippy::print_stderr, reason = "a child process tells its parent")]

use std::io::ErrorKind;
use std::io::Read;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::common::*;
use plainweave::{CancelReason, Io, Runtime, Shutdown, cancel_reason, is_cancelled, net, time};
use rustix::process::{Resource, Rlimit, setrlimit};

on_every_setup!(
    drop_cancels_and_waits,
    a_stuck_fiber_is_left_behind,
    a_fiber_that_ignores_cancellation_is_left_behind,
    dropping_it_on_its_own_fiber_panics,
    shutting_it_down_on_its_own_fiber_panics,
    parked_connections_are_told,
    no_fiber_starts_during_the_end,
    those_spawned_before_the_end_run,
    a_shutdown_with_operations_in_flight,
    a_graceful_stop,
    shutdown_against_everything,
);

fn drop_cancels_and_waits(setup: Setup) {
    let runtime = setup.runtime();
    let reasons = Arc::new(Mutex::new(Vec::new()));
    let cleaned = Arc::new(AtomicUsize::new(0));
    let (ours, _theirs) = connected();
    let ours = Arc::new(ours);

    for n in 0..30 {
        let reasons = reasons.clone();
        let cleaned = cleaned.clone();
        let ours = ours.clone();
        drop(runtime.spawn(move || {
            let error = match n % 3 {
                0 => plainweave::park(),
                1 => time::sleep(Duration::from_secs(1000)),
                _ => (&*ours).read(&mut [0; 4]).map(drop),
            };

            reasons
                .lock()
                .expect("lock")
                .push(cancel_reason(&error.expect_err("cancelled")));
            // Waited for, although it goes on for a while.
            (0..50).for_each(|_| plainweave::yield_now());
            cleaned.fetch_add(1, Ordering::SeqCst);
        }));
    }

    std::thread::sleep(ms(10));
    drop(runtime);
    assert_eq!(cleaned.load(Ordering::SeqCst), 30);
    assert_eq!(
        *reasons.lock().expect("lock"),
        vec![Some(CancelReason::Shutdown); 30]
    );
}

fn a_stuck_fiber_is_left_behind(setup: Setup) {
    let runtime = setup.runtime();
    let stop = Arc::new(AtomicBool::new(false));
    let stuck = stop.clone();
    let others = Arc::new(AtomicUsize::new(0));
    let begun = Arc::new(AtomicBool::new(false));
    let tell = begun.clone();

    drop(runtime.spawn(move || {
        tell.store(true, Ordering::SeqCst);
        while !stuck.load(Ordering::SeqCst) {
            std::thread::yield_now();
        }
    }));
    eventually("it is stuck", || begun.load(Ordering::SeqCst));

    for _ in 0..10 {
        let others = others.clone();
        drop(runtime.spawn(move || {
            assert!(is_cancelled(&plainweave::park().expect_err("cancelled")));
            others.fetch_add(1, Ordering::SeqCst);
        }));
    }

    std::thread::sleep(ms(10));
    let start = Instant::now();
    let left = runtime.shutdown(ms(50));
    assert!(start.elapsed() >= ms(50));
    assert_eq!(
        left,
        Shutdown {
            leaked_fibers: 1,
            leaked_workers: 1,
            leaked_operations: 0
        }
    );
    assert_eq!(others.load(Ordering::SeqCst), 10);
    stop.store(true, Ordering::SeqCst);
    std::thread::sleep(ms(5));
}

fn a_fiber_that_ignores_cancellation_is_left_behind(setup: Setup) {
    let runtime = setup.runtime();
    let stop = Arc::new(AtomicBool::new(false));
    let ignores = stop.clone();
    let fiber = runtime.spawn(move || {
        while !ignores.load(Ordering::SeqCst) {
            let _ = plainweave::park();
            plainweave::yield_now();
        }
    });

    let handle = fiber.fiber();
    let id = fiber.fiber().id();
    // Its child joins the fiber above, which ignores its cancellation.
    let joiner = runtime.spawn(move || {
        let mut fiber = Some(fiber);
        plainweave::scope(|s| drop(s.spawn(|| fiber.take().map(|f| f.join().is_ok()))));
    });

    std::thread::sleep(ms(10));
    // Long enough for the others to end, on a busy machine too.
    let left = runtime.shutdown(ms(500));
    assert_eq!(
        (left.leaked_fibers, left.leaked_operations),
        (1, 0),
        "{left:?}"
    );

    // Handles to what was left behind are harmless.
    handle.unpark();
    assert_eq!(handle.id(), id);
    assert!(joiner.join().is_ok());
    stop.store(true, Ordering::SeqCst);
    handle.cancel();
}

/// Hands the runtime to one of its own fibers.
fn given_to_its_own_fiber(setup: Setup, f: impl FnOnce(Runtime) + Send + 'static) -> String {
    let runtime = setup.runtime();
    let slot = Arc::new(Mutex::new(None));
    let theirs = slot.clone();
    let fiber = runtime.spawn(move || {
        let runtime = loop {
            let taken = theirs.lock().expect("lock").take();
            match taken {
                Some(runtime) => break runtime,
                None => plainweave::yield_now(),
            }
        };

        let panic = catch_unwind(AssertUnwindSafe(|| f(runtime))).expect_err("a panic");
        panic_text(&*panic)
    });

    *slot.lock().expect("lock") = Some(runtime);
    fiber.join().expect("it goes on afterwards")
}

fn dropping_it_on_its_own_fiber_panics(setup: Setup) {
    let text = given_to_its_own_fiber(setup, drop);
    assert!(text.contains("dropped by one of its own fibers"), "{text}");
}

fn shutting_it_down_on_its_own_fiber_panics(setup: Setup) {
    let text = given_to_its_own_fiber(setup, |runtime| {
        assert_ne!(runtime.shutdown(ms(10)).leaked_fibers, 0)
    });
    assert!(text.contains("own fibers"), "{text}");
}

fn parked_connections_are_told(setup: Setup) {
    let runtime = setup.runtime();
    let reasons = Arc::new(Mutex::new(Vec::new()));
    let mut theirs = Vec::new();

    for _ in 0..50 {
        let (conn, other) = connected();
        theirs.push(other);
        let reasons = reasons.clone();
        drop(runtime.spawn(move || {
            net::on_readable(conn, None, move |_conn, outcome| {
                reasons
                    .lock()
                    .expect("lock")
                    .push(cancel_reason(&outcome.expect_err("the end")));
            });
        }));
    }

    eventually("all are parked", || {
        runtime.metrics().idle_connections == 50
    });
    assert_eq!(
        runtime.shutdown(Duration::from_secs(20)),
        Shutdown::default()
    );
    assert_eq!(
        *reasons.lock().expect("lock"),
        vec![Some(CancelReason::Shutdown); 50]
    );
}

/// Spawns itself again for as long as that works.
fn respawn(refused: &Arc<AtomicUsize>) {
    let again = refused.clone();
    let next = plainweave::spawn(move || {
        assert!(plainweave::park().is_err());
        respawn(&again);
    });

    match next.join() {
        Ok(()) => {}
        Err(error) if error.is_cancelled() => {}
        Err(error) => {
            assert!(error.is_refused() && is_cancelled(&error.into()));
            refused.fetch_add(1, Ordering::SeqCst);
        }
    }
}

fn no_fiber_starts_during_the_end(setup: Setup) {
    let runtime = setup.runtime();
    let told = Arc::new(AtomicUsize::new(0));
    let refused = Arc::new(AtomicUsize::new(0));
    for _ in 0..20 {
        let told = told.clone();
        let refused = refused.clone();
        drop(runtime.spawn(move || {
            assert!(plainweave::park().is_err());
            respawn(&refused);
            plainweave::scope(|s| {
                let error = s.spawn(|| 1).join().expect_err("refused");
                assert!(error.is_refused(), "{error}");
                // One that nobody joins makes no noise.
                s.spawn(|| 2);
            });

            // What needs a fiber to be told gets one.
            let (conn, theirs) = connected();
            net::on_readable(conn, None, move |_, outcome| {
                assert!(is_cancelled(
                    &outcome.expect_err("nothing is parked any more")
                ));
                drop(theirs);
                told.fetch_add(1, Ordering::SeqCst);
            });
        }));
    }

    std::thread::sleep(ms(5));
    assert_eq!(
        runtime.shutdown(Duration::from_secs(20)),
        Shutdown::default()
    );
    assert_eq!(
        (told.load(Ordering::SeqCst), refused.load(Ordering::SeqCst)),
        (20, 20)
    );
}

fn those_spawned_before_the_end_run(setup: Setup) {
    let runtime = setup.workers(1);
    let ran = Arc::new(AtomicUsize::new(0));
    let count = ran.clone();
    let begun = Arc::new(AtomicBool::new(false));
    let tell = begun.clone();
    drop(runtime.spawn(move || {
        for _ in 0..100 {
            let count = count.clone();
            drop(plainweave::spawn(move || {
                let error = time::sleep(Duration::from_secs(1000)).expect_err("born cancelled");
                assert_eq!(cancel_reason(&error), Some(CancelReason::Shutdown));
                count.fetch_add(1, Ordering::SeqCst);
            }));
        }

        tell.store(true, Ordering::SeqCst);
        assert!(plainweave::park().is_err());
    }));
    eventually("all are spawned", || begun.load(Ordering::SeqCst));
    assert_eq!(
        runtime.shutdown(Duration::from_secs(20)),
        Shutdown::default()
    );
    assert_eq!(ran.load(Ordering::SeqCst), 100);
}

/// A fiber that ignores its cancellation and goes back to reading: each read fails at once, so it
/// cannot block again.
fn a_shutdown_with_operations_in_flight(setup: Setup) {
    let runtime = setup.runtime();
    let (ours, _theirs) = connected();
    let errors = Arc::new(AtomicUsize::new(0));
    let count = errors.clone();
    drop(runtime.spawn(move || {
        for _ in 0..10 {
            assert!(is_cancelled(
                &(&ours).read(&mut [0; 64]).expect_err("cancelled")
            ));
            count.fetch_add(1, Ordering::SeqCst);
        }
    }));
    std::thread::sleep(ms(5));
    assert_eq!(
        runtime.shutdown(Duration::from_secs(20)),
        Shutdown::default()
    );
    assert_eq!(errors.load(Ordering::SeqCst), 10);
}

fn a_graceful_stop(setup: Setup) {
    let runtime = setup.runtime();
    let (conn, _theirs) = connected();
    let told = Arc::new(AtomicUsize::new(0));
    let count = told.clone();
    runtime.run(|| {
        net::on_readable(conn, None, move |_, outcome| {
            assert!(is_cancelled(&outcome.expect_err("ended")));
            count.fetch_add(1, Ordering::SeqCst);
        });
    });
    let works_on = runtime.spawn(|| time::sleep(ms(40)));

    assert!(!runtime.wait_idle(ms(5)));
    runtime.close_idle_connections();
    assert!(runtime.wait_idle(Duration::from_secs(20)));
    works_on.join().expect("no panic").expect("not cancelled");
    assert_eq!(told.load(Ordering::SeqCst), 1);
}

fn shutdown_against_everything(setup: Setup) {
    for round in 0..30 {
        let runtime = setup.workers(1 + round % 3);
        let listener = Arc::new(listener());
        let address = listener.local_addr().expect("address");

        for n in 0..20 {
            let listener = listener.clone();
            drop(runtime.spawn(move || {
                match n % 5 {
                    0 => drop(
                        listener
                            .accept()
                            .map(|(s, _)| drop(plainweave::spawn(move || echo(s)))),
                    ),
                    1 => drop(net::TcpStream::connect(address).map(echo)),
                    2 => drop(plainweave::blocking(move || Random::new(n).spin(100))),
                    3 => plainweave::scope(|s| {
                        for _ in 0..5 {
                            s.spawn(|| time::sleep(Duration::from_millis(n)));
                        }
                    }),
                    _ => (0..100).for_each(|_| plainweave::yield_now()),
                }
            }));
        }

        Random::new(round as u64).spin(1000);
        assert_eq!(
            runtime.shutdown(Duration::from_secs(20)),
            Shutdown::default()
        );
    }
}

#[test]
fn settings_out_of_range_are_errors_that_say_what_is_valid() {
    let says = |builder: plainweave::RuntimeBuilder, parts: &[&str]| {
        let error = builder.build().expect_err("out of range");
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        let text = error.to_string();
        assert!(parts.iter().all(|part| text.contains(part)), "{text}");
    };

    says(
        Runtime::builder().policy("round-robin"),
        &["round-robin", "fifo", "lifo-slot"],
    );
    says(
        Runtime::builder().workers(0),
        &["workers", "0", "1 to 1024"],
    );
    says(
        Runtime::builder().workers(1025),
        &["workers", "1025", "1 to 1024"],
    );
    says(
        Runtime::builder().blocking_threads(0),
        &["blocking_threads", "at least 1"],
    );
    says(
        Runtime::builder().io(Io::Sim { seed: 1 }).workers(2),
        &["simulated", "one worker"],
    );
    says(Runtime::builder().stack_size(100), &[]);

    says(
        Runtime::builder().thread_name("a\0b"),
        &["thread_name", "zero byte"],
    );
}

#[test]
fn defaults() {
    let runtime = Runtime::new().expect("a runtime");
    assert!(
        runtime.workers() >= 1
            && runtime.workers() <= std::thread::available_parallelism().map_or(1, usize::from)
    );
    assert_eq!(runtime.policy(), "fifo");
    assert!(["uring", "epoll"].contains(&runtime.driver()));
    assert_eq!(
        runtime.fallback_reason().is_some(),
        runtime.driver() == "epoll"
    );

    assert_eq!(
        plainweave::run(|| plainweave::metrics().expect("on a fiber").live_fibers),
        1
    );
}

#[test]
fn the_environment_forces_a_driver() {
    let name = "the_environment_forces_a_driver";
    if is_child("reports") {
        match Runtime::new() {
            Ok(runtime) => {
                assert_eq!(runtime.run(|| 1), 1);
                eprintln!("driver={}", runtime.driver());
                let forced = Runtime::builder().io(Io::Epoll).build().expect("a runtime");
                eprintln!("asked for epoll, got={}", forced.driver());
                let sim = Runtime::builder()
                    .io(Io::Sim { seed: 3 })
                    .build()
                    .expect("a runtime");

                eprintln!("sim={}", sim.driver());
            }
            Err(error) => eprintln!("error={error}"),
        }
        return;
    }

    for driver in ["epoll", "uring"] {
        let output = in_child(name, "reports", &[("PLAINWEAVE_IO", driver)]);
        let text = stderr_of(&output);
        assert!(output.status.success(), "{text}");
        assert!(text.contains(&format!("driver={driver}\n")), "{text}");
        assert!(
            text.contains("got=epoll\n") && text.contains("sim=sim"),
            "{text}"
        );
    }

    for wrong in ["kqueue", "EPOLL", " "] {
        let text = stderr_of(&in_child(name, "reports", &[("PLAINWEAVE_IO", wrong)]));
        assert!(
            text.contains("error=") && text.contains("uring") && text.contains("epoll"),
            "{text}"
        );
        assert!(text.contains(&format!("{wrong:?}")), "{text}");
    }

    let text = stderr_of(&in_child(name, "reports", &[("PLAINWEAVE_IO", "")]));
    assert!(text.contains("driver="), "empty is as if not set: {text}");
}

/// However little address space there is, the stacks leave some of it to everybody else.
#[test]
fn a_runtime_starts_at_any_limit_on_address_space() {
    let name = "a_runtime_starts_at_any_limit_on_address_space";
    if let Ok(megabytes) = std::env::var("MEGABYTES") {
        assert!(is_child("starts"));
        let statm = std::fs::read_to_string("/proc/self/statm").expect("it has one");
        let pages: u64 = statm
            .split(' ')
            .next()
            .and_then(|pages| pages.parse().ok())
            .expect("a number");
        let most = Some(pages * 4096 + (megabytes.parse::<u64>().expect("a number") << 20));
        setrlimit(
            Resource::As,
            Rlimit {
                current: most,
                maximum: most,
            },
        )
        .expect("less");
        let runtime = Runtime::builder()
            .workers(2)
            .stack_size(64 << 10)
            .build()
            .expect("a runtime");
        let fibers: Vec<_> = (0..20)
            .map(|_| runtime.spawn(|| time::sleep(ms(1))))
            .collect();

        fibers
            .into_iter()
            .for_each(|fiber| fiber.join().expect("a stack").expect("not cancelled"));
        return;
    }

    // All at once, so that their threads start in various orders: what the allocator takes for one
    // may be what the next one's stack needs.
    std::thread::scope(|scope| {
        for megabytes in (60..700).step_by(20) {
            scope.spawn(move || {
                let output = in_child(name, "starts", &[("MEGABYTES", &megabytes.to_string())]);
                let text = stderr_of(&output);
                assert!(output.status.success(), "{megabytes} MB: {text}");
            });
        }
    });
}
