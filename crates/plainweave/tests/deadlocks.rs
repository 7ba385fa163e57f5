//! Deadlocks: what is reported when nothing can run any more, and what is none. On both drivers.

mod common;

use std::io::Read;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use common::*;
use plainweave::stall::Deadlock;
use plainweave::sync::{Mutex, channel};
use plainweave::{Builder, Movement, Reason, Runtime, RuntimeBuilder};

on_every_driver!(
    two_locks_in_opposite_order,
    a_lock_that_is_locked_twice,
    fibers_that_join_each_other,
    a_channel_whose_senders_all_wait,
    what_can_still_come_is_no_deadlock,
    a_thread_that_will_send_makes_it_a_warning,
);

/// Longer than the watchdog waits before it looks.
const LATER: Duration = Duration::from_millis(1500);

/// What was reported.
struct Reports(std::sync::Mutex<mpsc::Receiver<Deadlock>>);

impl Reports {
    fn next(&self) -> Option<Deadlock> {
        self.0.lock().expect("not poisoned").recv_timeout(HANG / 2).ok()
    }

    /// Those that have come already.
    fn others(&self) -> Vec<Deadlock> {
        self.0.lock().expect("not poisoned").try_iter().collect()
    }
}

/// Movable fibers, and pinned ones; each with what is reported.
fn both_movements(setup: Setup) -> Vec<(Runtime, Reports)> {
    let one = |builder: RuntimeBuilder| {
        let (tell, told) = mpsc::channel();
        let builder = builder.max_workers(2).on_deadlock(move |deadlock| drop(tell.send(deadlock.clone())));
        (builder.build().expect("a runtime"), Reports(std::sync::Mutex::new(told)))
    };
    let movements = [Movement::Anytime, Movement::BeforeStart];
    movements.into_iter().map(|movement| one(setup.builder().own_storage().movement(movement))).collect()
}

/// Runs `f`, which waits until it is cancelled, and cancels it when its deadlock has been reported.
fn report_of(runtime: &Runtime, told: &Reports, f: impl FnOnce() + Send) -> Deadlock {
    let (tell_fiber, fiber) = mpsc::channel();
    std::thread::scope(|threads| {
        let report = threads.spawn(move || {
            let main: plainweave::Fiber = fiber.recv().expect("it runs");
            let report = told.next();
            main.cancel();
            report.expect("a report")
        });
        runtime.run(move || {
            tell_fiber.send(plainweave::current()).expect("the test waits");
            f();
        });
        report.join().expect("a report")
    })
}

fn two_locks_in_opposite_order(setup: Setup) {
    for (runtime, told) in both_movements(setup) {
        let (a, b) = (Mutex::new(()), Mutex::new(()));
        let report = report_of(&runtime, &told, || {
            plainweave::scope(|s| {
                for (one, other) in [(&a, &b), (&b, &a)] {
                    s.spawn(move || {
                        let _one = one.lock().expect("free");
                        pause();
                        // Cancelled with the scope: the first gets an error, and the other the lock.
                        drop(other.lock());
                    });
                }
            });
        });
        assert!(report.is_certain() && report.cycle.len() == 2 && report.count == 3, "{report}");
        for (at, fiber) in report.fibers[..2].iter().enumerate() {
            assert_eq!((fiber.id, fiber.reason), (report.cycle[at], Reason::Sync), "{report}");
            let object = fiber.object.as_ref().expect("known");
            assert_eq!((object.kind, &object.fibers), ("mutex", &vec![report.cycle[1 - at]]), "{report}");
            let place = fiber.frames.first().and_then(|frame| frame.file.clone()).expect("debug information");
            assert!(place.ends_with("tests/deadlocks.rs"), "{report}");
        }
        let text = report.to_string();
        let [one, other] = report.cycle[..] else { unreachable!("two") };
        assert!(text.starts_with("deadlock: 3 fibers wait, and nothing will wake them"), "{text}");
        assert!(text.contains(&format!("; these wait for each other: #{one} -> #{other} -> #{one}\n")), "{text}");
        assert!(text.contains(&format!("fiber #{one} waits for a mutex at 0x")), "{text}");
        assert!(text.contains("waits for a scope: fiber #"), "{text}");
    }
}

fn a_lock_that_is_locked_twice(setup: Setup) {
    for (runtime, told) in both_movements(setup) {
        let lock = Mutex::new(());
        let report = report_of(&runtime, &told, || {
            let _guard = lock.lock().expect("free");
            assert!(lock.lock().is_err());
        });
        assert!(report.is_certain() && report.cycle == [report.fibers[0].id], "{report}");
        assert_eq!((report.count, report.fibers[0].name.as_deref()), (1, Some("main")), "{report}");
    }
}

fn fibers_that_join_each_other(setup: Setup) {
    for (runtime, told) in both_movements(setup) {
        let report = report_of(&runtime, &told, || {
            let (give, take) = channel::bounded(1);
            let one = Builder::new().name("one").spawn(move || {
                let other: plainweave::JoinHandle<()> = take.recv().expect("sent");
                assert!(other.join().is_err());
            });
            let one = one.expect("valid");
            let first = one.fiber();
            let other = Builder::new().name("other").spawn(move || drop(one.join())).expect("valid");
            give.send(other).expect("received");
            assert!(plainweave::park().is_err());
            first.cancel();
        });
        assert!(report.is_certain() && report.cycle.len() == 2 && report.count == 3, "{report}");
        assert!(report.fibers[..2].iter().all(|fiber| fiber.reason == Reason::Join), "{report}");
        assert!(report.to_string().contains("waits for unpark"), "{report}");
    }
}

fn a_channel_whose_senders_all_wait(setup: Setup) {
    for (runtime, told) in both_movements(setup) {
        let report = report_of(&runtime, &told, || {
            let (sender, receiver) = channel::bounded::<()>(4);
            plainweave::scope(|s| {
                for _ in 0..2 {
                    let sender = sender.clone();
                    s.spawn(move || {
                        sender.send(()).expect("room");
                        assert!(plainweave::park().is_err());
                        drop(sender);
                    });
                }
                drop(sender);
                (0..2).for_each(|_| receiver.recv().expect("sent"));
                assert!(receiver.recv().is_err());
            });
        });
        // The test's own threads might hold a handle.
        assert!(!report.is_certain() && report.cycle.is_empty() && report.count == 3, "{report}");
        let text = report.to_string();
        assert!(
            text.starts_with("all 3 fibers wait, and only another thread of the program can wake them\n"),
            "{text}"
        );
        assert!(text.contains("a channel, to receive at 0x"), "{text}");
        assert!(text.contains("(2 senders, 0 values, last used by fiber #"), "{text}");
    }
}

fn what_can_still_come_is_no_deadlock(setup: Setup) {
    for (runtime, told) in both_movements(setup) {
        let (mut ours, theirs) = connected();
        let (idle, their_idle) = connected();
        let waiter = runtime.spawn(|| plainweave::park().is_ok());
        let late = |f: fn()| move || (std::thread::sleep(LATER), f()).1;
        runtime.run(|| {
            plainweave::time::sleep(LATER).expect("not cancelled");
            plainweave::blocking(late(|| ())).expect("not cancelled");
        });
        std::thread::scope(|threads| {
            threads.spawn(|| {
                std::thread::sleep(LATER);
                drop(theirs);
            });
            runtime.run(|| assert_eq!(ours.read(&mut [0]).expect("its end"), 0));
        });
        let (begin, begun) = mpsc::channel();
        runtime.run(|| plainweave::net::on_readable(idle, None, move |_, _| begin.send(()).expect("the test waits")));
        std::thread::scope(|threads| {
            threads.spawn(|| {
                std::thread::sleep(LATER);
                waiter.fiber().unpark();
                drop(their_idle);
            });
            runtime.scope(|s| drop(s.spawn(|| plainweave::time::sleep(LATER))));
        });
        begun.recv().expect("the connection ends");
        let reports = told.others();
        assert!(reports.is_empty(), "{reports:?}");
        assert!(waiter.join().expect("no panic"));
    }
}

fn a_thread_that_will_send_makes_it_a_warning(setup: Setup) {
    for (runtime, told) in both_movements(setup) {
        let (sender, receiver) = channel::bounded(1);
        std::thread::scope(|threads| {
            threads.spawn(move || {
                std::thread::sleep(LATER);
                sender.send(7).expect("it waits");
            });
            assert_eq!(runtime.run(|| receiver.recv().expect("sent")), 7);
        });
        let report = told.next().expect("a warning");
        assert!(!report.is_certain() && report.other_threads.is_some_and(|threads| threads > 0), "{report}");
        assert!(told.others().is_empty(), "once");
    }
}

/// Alone in its process: then nobody is left who could wake it.
#[test]
fn without_other_threads_it_is_certain_and_printed() {
    const NAME: &str = "without_other_threads_it_is_certain_and_printed";
    if is_child("alone") {
        // libtest waits for this thread; it holds nothing of the runtime. So it takes part in the count.
        let (tell, told) = mpsc::channel();
        let lock = Arc::new(Mutex::new(()));
        let runtime = Runtime::builder().workers(1).max_workers(1).report_stalls(true).build().expect("a runtime");
        std::thread::spawn(move || {
            let main: plainweave::Fiber = told.recv().expect("it runs");
            std::thread::sleep(LATER);
            main.cancel();
        });
        runtime.run(move || {
            tell.send(plainweave::current()).expect("the test waits");
            let _guard = lock.lock().expect("free");
            assert!(lock.lock().is_err());
        });
        return;
    }
    let output = in_child(NAME, "alone", &[]);
    let text = stderr_of(&output);
    assert!(output.status.success(), "{text}");
    assert!(text.contains("plainweave: deadlock: 1 fibers wait, and nothing will wake them; these wait"), "{text}");
}
