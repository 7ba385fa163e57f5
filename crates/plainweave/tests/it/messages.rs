//! What the library says, and counts, when something is wrong or somebody asks.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::common::*;
use plainweave::{Builder, Io, Runtime, net};

#[test]
fn a_fiber_that_does_not_end_is_named_at_exit() {
    static STARTED: AtomicBool = AtomicBool::new(false);
    const NAME: &str = "a_fiber_that_does_not_end_is_named_at_exit";
    if is_child("exit") {
        let runtime = Runtime::builder()
            .workers(2)
            .shutdown_timeout(ms(1500))
            .build()
            .expect("a runtime");
        let spinner = Builder::new().name("spinner");
        drop(runtime.spawn_with(spinner, || {
            STARTED.store(true, Ordering::SeqCst);
            loop {
                std::hint::spin_loop();
            }
        }));
        eventually("it runs", || STARTED.load(Ordering::SeqCst));
        drop(runtime);
        std::process::exit(0);
    }

    unless_it_hangs(NAME, || {
        let output = in_child(NAME, "exit", &[]);
        let text = stderr_of(&output);
        assert!(
            text.contains("\"spinner\"") && text.contains("leaves them behind"),
            "{text}"
        );
    });
}

#[test]
fn the_error_of_a_join_shows_the_panic() {
    let runtime = Runtime::builder().workers(1).build().expect("a runtime");
    let fiber = runtime.spawn(|| std::panic::resume_unwind(Box::new("why")));
    let error = fiber.join().expect_err("it panics");
    assert_eq!(format!("{error:?}"), "Panicked(\"why\")");
}

#[test]
fn virtual_time_has_no_network_and_says_so() {
    let runtime = Runtime::builder()
        .io(Io::Sim { seed: 1 })
        .build()
        .expect("a runtime");
    let error = runtime
        .run(|| net::TcpStream::connect("127.0.0.1:1"))
        .expect_err("there is no network");
    let text = error.to_string();
    assert!(
        text.contains("\"sim\"") && text.contains("Io::Auto"),
        "{text}"
    );
}

#[test]
fn what_needs_a_runtime_blames_its_caller() {
    const NAME: &str = "what_needs_a_runtime_blames_its_caller";
    if is_child("spawn") {
        drop(plainweave::spawn(|| ()));
    }
    if is_child("scope") {
        plainweave::scope(|_| ());
    }

    for part in ["spawn", "scope"] {
        let output = in_child(NAME, part, &[]);
        let text = stderr_of(&output);
        let place = text
            .lines()
            .find(|line| line.contains("panicked at"))
            .unwrap_or_default();
        assert!(place.contains("it/messages.rs:"), "{text}");
    }
}

/// Read while all workers sleep, the count is exact.
#[test]
fn switches_are_counted_one_by_one() {
    for workers in [1, 2] {
        let runtime = Runtime::builder()
            .workers(workers)
            .build()
            .expect("a runtime");
        for n in 1..=200 {
            runtime.spawn(|| ()).join().expect("no panic");
            eventually("all workers sleep", || {
                runtime.metrics().sleeping_workers == workers
            });
            eventually("it is counted", || runtime.metrics().switches == n);
        }
    }
}
