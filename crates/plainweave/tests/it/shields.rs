//! What a cancelled fiber may still do: `cancel::shielded`.

use std::io::{self, ErrorKind, Read, Write};
use std::sync::mpsc;
use std::time::Duration;

use crate::common::*;
use plainweave::{is_cancelled, time};

on_every_setup!(
    a_shield_lets_a_cancelled_fiber_finish,
    a_shield_has_a_limit,
    a_shield_ends_with_a_panic
);

const LONG: Duration = Duration::from_secs(1000);

/// A cancelled fiber, one in a cancelled scope, one that is late, and one whose runtime shuts down
/// write what they owe.
fn a_shield_lets_a_cancelled_fiber_finish(setup: Setup) {
    let runtime = setup.runtime();
    let mut readers = Vec::new();
    let mut owes = || {
        let (ours, theirs) = connected();
        readers.push(theirs);
        move || {
            let mut log = io::BufWriter::new(ours);
            log.write_all(b"the last line").expect("room");
            let error = time::sleep(LONG).expect_err("interrupted");
            assert!(
                is_cancelled(&error) || error.kind() == ErrorKind::TimedOut,
                "{error}"
            );
            assert!(log.flush().is_err(), "not without a shield");
            plainweave::cancel::shielded(LONG, || {
                // It waits, too, whatever wakes it.
                time::sleep(ms(5)).expect("shielded");
                log.flush().expect("shielded");
            });

            // As before.
            assert!(time::sleep(LONG).is_err());
        }
    };

    let alone = runtime.spawn(owes());
    let in_scope = owes();
    let parent = runtime.spawn(move || plainweave::scope(|s| s.spawn(in_scope).join().is_err()));
    let late = owes();
    let late = runtime.spawn(move || time::with_timeout(ms(10), late));
    let (begun, begins) = mpsc::channel();
    let to_the_end = owes();

    drop(runtime.spawn(move || {
        begun.send(()).expect("the test waits");
        to_the_end();
    }));
    begins.recv_timeout(HANG).expect("it begins");
    std::thread::sleep(ms(10));
    alone.cancel();
    parent.cancel();
    alone.join().expect("no panic");
    assert!(
        parent.join().expect("no panic"),
        "its own wait is cancelled"
    );
    late.join().expect("no panic");
    assert_eq!(runtime.shutdown(HANG).leaked_fibers, 0);

    for mut reader in readers {
        let mut text = String::new();
        reader.read_to_string(&mut text).expect("read");
        assert_eq!(text, "the last line");
    }
}

fn a_shield_has_a_limit(setup: Setup) {
    let runtime = setup.runtime();
    let fiber = runtime.spawn(|| {
        assert!(plainweave::park().is_err());
        let start = time::now();
        let error = plainweave::cancel::shielded(ms(20), || {
            // One within another ends with it, and so does what has a limit of its own.
            plainweave::cancel::shielded(LONG, || time::with_timeout(LONG, || time::sleep(LONG)))
        });

        assert_eq!(error.expect_err("late").kind(), ErrorKind::TimedOut);
        assert!(time::now() - start >= ms(20));
        // Within a shield an inner one leaves the outer one as it is.
        plainweave::cancel::shielded(LONG, || {
            plainweave::cancel::shielded(LONG, || ());
            time::sleep(ms(1)).expect("still shielded");
        });
        assert!(is_cancelled(&plainweave::park().expect_err("cancelled")));
    });

    fiber.cancel();
    fiber.join().expect("no panic");
    // A plain thread's deadline is replaced, and comes back.
    time::with_timeout(Duration::ZERO, || {
        plainweave::cancel::shielded(LONG, || time::sleep(ms(1))).expect("shielded");
        assert_eq!(
            time::sleep(LONG).expect_err("late").kind(),
            ErrorKind::TimedOut
        );
    });
}

fn a_shield_ends_with_a_panic(setup: Setup) {
    let fiber = setup.runtime().run(|| {
        let fiber = plainweave::spawn(|| {
            assert!(plainweave::park().is_err());
            let within = || plainweave::cancel::shielded(LONG, || panic!("within"));
            std::panic::catch_unwind(std::panic::AssertUnwindSafe(within)).expect_err("a panic");
            plainweave::park().expect_err("cancelled as before")
        });

        fiber.cancel();
        fiber.join().expect("no panic")
    });
    assert!(is_cancelled(&fiber));
}
