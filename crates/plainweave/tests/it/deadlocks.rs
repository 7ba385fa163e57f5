//! Deadlocks: what is reported when nothing can run any more, and what is none. On both drivers.

use std::io::{BufRead, BufReader, Read};
use std::process::Stdio;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use crate::common::*;
use plainweave::stall::Deadlock;
use plainweave::sync::{Mutex, channel};
use plainweave::{Builder, Movement, Reason, Runtime, RuntimeBuilder};

on_every_driver!(
    two_locks_in_opposite_order,
    circles_are_reported_while_others_run,
    a_lock_that_is_locked_twice,
    fibers_that_join_each_other,
    a_channel_whose_senders_all_wait,
    fibers_that_were_stuck_before_a_thread_waits,
    a_watchdog_that_seldom_looks_is_not_late,
    a_scope_of_many,
    a_guard_that_was_sent_away_makes_no_circle,
    what_can_still_come_is_no_deadlock,
    a_thread_that_will_send_makes_it_a_warning,
);

/// Longer than any test.
const LONG: Duration = Duration::from_secs(1000);

/// What was reported.
struct Reports(std::sync::Mutex<mpsc::Receiver<Deadlock>>);

impl Reports {
    fn next(&self) -> Option<Deadlock> {
        self.0
            .lock()
            .expect("not poisoned")
            .recv_timeout(HANG / 2)
            .ok()
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
        let builder = builder
            .max_workers(2)
            .on_deadlock(move |deadlock| drop(tell.send(deadlock.clone())));
        (
            builder.build().expect("a runtime"),
            Reports(std::sync::Mutex::new(told)),
        )
    };

    let movements = [Movement::Anytime, Movement::BeforeStart];
    movements
        .into_iter()
        .map(|movement| one(setup.builder().own_storage().movement(movement)))
        .collect()
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
            tell_fiber
                .send(plainweave::current())
                .expect("the test waits");
            f();
        });
        report.join().expect("a report")
    })
}

fn two_locks_in_opposite_order(setup: Setup) {
    for (runtime, told) in both_movements(setup) {
        let a = Mutex::new(());
        let b = Mutex::new(());
        let report = report_of(&runtime, &told, || {
            plainweave::scope(|s| {
                for (one, other) in [(&a, &b), (&b, &a)] {
                    s.spawn(move || {
                        let _one = one.lock().expect("free");
                        pause();
                        // Cancelled with the scope: the first gets an error, and the other the
                        // lock.
                        drop(other.lock());
                    });
                }
            });
        });

        assert!(
            report.is_certain() && report.cycle.len() == 2 && report.count == 3,
            "{report}"
        );
        for (at, fiber) in report.fibers[..2].iter().enumerate() {
            assert_eq!(
                (fiber.id, fiber.reason),
                (report.cycle[at], Reason::Sync),
                "{report}"
            );
            let object = fiber.object.as_ref().expect("known");
            assert_eq!(
                (object.kind, &object.fibers),
                ("mutex", &vec![report.cycle[1 - at]]),
                "{report}"
            );
            let place = fiber
                .frames
                .first()
                .and_then(|frame| frame.file.clone())
                .expect("debug information");
            assert!(place.ends_with("it/deadlocks.rs"), "{report}");
        }

        let text = report.to_string();
        let [one, other] = report.cycle[..] else {
            unreachable!("two")
        };
        assert!(
            text.starts_with("deadlock: 3 fibers wait, and nothing will wake them"),
            "{text}"
        );
        assert!(
            text.contains(&format!(
                "; these wait for each other: #{one} -> #{other} -> #{one}\n"
            )),
            "{text}"
        );
        assert!(
            text.contains(&format!("fiber #{one} waits for a mutex at 0x")),
            "{text}"
        );
        assert!(text.contains("waits for a scope: fiber #"), "{text}");
    }
}

/// Of two circles each is reported once, and nothing else is: not those who wait for one of its
/// fibers, nor locks that are held for long.
fn circles_are_reported_while_others_run(setup: Setup) {
    for (runtime, told) in both_movements(setup) {
        let locks: [_; 4] = std::array::from_fn(|_| Arc::new(Mutex::new(())));
        let ticks = runtime.spawn(|| while plainweave::time::sleep(ms(1)).is_ok() {});
        let stuck: Vec<_> = [(0, 1), (1, 0), (2, 3), (3, 2)]
            .map(|(one, other)| {
                let one = locks[one].clone();
                let other = locks[other].clone();
                runtime.spawn(move || {
                    let _one = one.lock().expect("free");
                    plainweave::time::sleep(ms(300)).expect("others take theirs");
                    drop(other.lock());
                })
            })
            .into();
        let waits = {
            let lock = locks[0].clone();
            runtime.spawn(move || drop(lock.lock()))
        };

        let mut found: Vec<u64> = Vec::new();
        for _ in 0..2 {
            let report = told.next().expect("a report");
            assert!(report.others_run && report.is_certain(), "{report}");
            assert_eq!((report.cycle.len(), report.count), (2, 2), "{report}");
            let text = report.to_string();
            assert!(
                text.starts_with("deadlock: 2 fibers wait, for ever unless another has a guard"),
                "{text}"
            );
            found.extend(&report.cycle);
        }

        let mut all: Vec<_> = stuck.iter().map(|fiber| fiber.fiber().id()).collect();
        found.sort_unstable();
        all.sort_unstable();
        assert_eq!(found, all);
        std::thread::sleep(ms(5000));
        assert!(told.others().is_empty(), "each once");
        for fiber in stuck.iter().chain([&waits, &ticks]) {
            fiber.cancel();
        }
        for fiber in stuck.into_iter().chain([waits, ticks]) {
            fiber.join().expect("no panic");
        }
    }
}

fn a_lock_that_is_locked_twice(setup: Setup) {
    for (runtime, told) in both_movements(setup) {
        let lock = Mutex::new(());
        let report = report_of(&runtime, &told, || {
            let _guard = lock.lock().expect("free");
            assert!(lock.lock().is_err());
        });

        assert!(
            report.is_certain() && report.cycle == [report.fibers[0].id],
            "{report}"
        );
        assert_eq!(
            (report.count, report.fibers[0].name.as_deref()),
            (1, Some("main")),
            "{report}"
        );
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
            let other = Builder::new()
                .name("other")
                .spawn(move || drop(one.join()))
                .expect("valid");
            give.send(other).expect("received");
            assert!(plainweave::park().is_err());
            first.cancel();
        });

        assert!(
            report.is_certain() && report.cycle.len() == 2 && report.count == 3,
            "{report}"
        );
        assert!(
            report.fibers[..2]
                .iter()
                .all(|fiber| fiber.reason == Reason::Join),
            "{report}"
        );
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
        assert!(
            !report.is_certain() && report.cycle.is_empty() && report.count == 3,
            "{report}"
        );
        let text = report.to_string();
        assert!(
            text.starts_with(
                "all 3 fibers wait, and only another thread of the program can wake them\n"
            ),
            "{text}"
        );
        assert!(text.contains("a channel, to receive at 0x"), "{text}");
        assert!(
            text.contains("(2 senders, 0 values, last used by fiber #"),
            "{text}"
        );
    }
}

/// Returns when another runtime, whose fibers are stuck from now on, has reported that: its
/// watchdog has then had as much time as others that had nothing to do.
fn until_others_report(setup: Setup) {
    let (tell, told) = mpsc::channel();
    let builder = setup.builder().workers(1).max_workers(1);
    let runtime = builder
        .on_deadlock(move |deadlock| drop(tell.send(deadlock.clone())))
        .build()
        .expect("a runtime");
    let lock = Mutex::new(());

    report_of(&runtime, &Reports(std::sync::Mutex::new(told)), || {
        let _guard = lock.lock().expect("free");
        assert!(lock.lock().is_err());
    });
}

fn fibers_that_were_stuck_before_a_thread_waits(setup: Setup) {
    for (runtime, told) in both_movements(setup) {
        let lock = Mutex::new(());
        let (tell, stuck) = mpsc::channel();
        let (wait, waits) = mpsc::channel();
        let told = &told;
        std::thread::scope(|threads| {
            threads.spawn(move || {
                let fiber: plainweave::Fiber = stuck.recv().expect("it runs");
                until_others_report(setup);
                assert!(told.others().is_empty(), "nobody waits");
                wait.send(()).expect("the test waits");
                let report = told.next();
                fiber.cancel();
                assert!(report.expect("a report").is_certain());
            });
            runtime.scope(|s| {
                s.spawn(|| {
                    let _guard = lock.lock().expect("free");
                    tell.send(plainweave::current()).expect("the test waits");
                    assert!(lock.lock().is_err());
                });
                waits.recv().expect("sent");
            });
        });
    }
}

fn a_watchdog_that_seldom_looks_is_not_late(setup: Setup) {
    let (tell, told) = mpsc::channel();
    let builder = setup
        .builder()
        .max_workers(2)
        .stall_after(Some(Duration::from_secs(60)));
    let runtime = builder
        .on_deadlock(move |deadlock| drop(tell.send(deadlock.clone())))
        .build()
        .expect("a runtime");
    let lock = Mutex::new(());
    let report = report_of(&runtime, &Reports(std::sync::Mutex::new(told)), || {
        let _guard = lock.lock().expect("free");
        assert!(lock.lock().is_err());
    });

    assert!(report.is_certain(), "{report}");
}

fn a_scope_of_many(setup: Setup) {
    const CHILDREN: usize = 1500;
    for (runtime, told) in both_movements(setup) {
        let lock = Mutex::new(());
        // The last of them closes the circle.
        let last = Mutex::new(());
        let report = report_of(&runtime, &told, || {
            let _guards = (lock.lock().expect("free"), last.lock().expect("free"));
            plainweave::scope(|s| {
                (1..CHILDREN).for_each(|_| drop(s.spawn(|| assert!(plainweave::park().is_err()))));
                s.spawn(|| drop(last.lock()));
            });
        });

        assert!(
            report.is_certain() && report.cycle.len() == 2 && report.count == CHILDREN + 1,
            "{report}"
        );
        let scope = report.fibers[..2]
            .iter()
            .find(|fiber| fiber.reason == Reason::Scope)
            .expect("it is in the circle");
        assert_eq!(
            scope.object.as_ref().map(|object| object.fibers.len()),
            Some(1000),
            "{report}"
        );
    }
}

fn a_guard_that_was_sent_away_makes_no_circle(setup: Setup) {
    for movement in [Movement::Anytime, Movement::BeforeStart] {
        let (tell, told) = mpsc::channel();
        let builder = setup
            .builder()
            .workers(1)
            .max_workers(1)
            .own_storage()
            .movement(movement);
        let builder =
            builder.on_deadlock(move |deadlock: &Deadlock| drop(tell.send(deadlock.clone())));
        let runtime = builder.build().expect("a runtime");
        let told = Reports(std::sync::Mutex::new(told));
        let lock = Arc::new(Mutex::new(()));
        let holder = lock.clone();
        let guard = runtime
            .spawn(move || holder.lock_owned().expect("free"))
            .join()
            .expect("no panic");

        assert!(runtime.wait_idle(HANG));
        // On the stack that the holder has left.
        let waiter = lock.clone();
        let report = report_of(&runtime, &told, move || {
            assert!(waiter.lock_owned().is_err())
        });
        drop(guard);
        assert!(
            !report.is_certain() && report.cycle.is_empty() && report.count == 1,
            "{report}"
        );
        assert!(
            report
                .to_string()
                .contains("taken by a fiber that has ended"),
            "{report}"
        );
    }
}

/// Runs `f` on a fiber for longer than the watchdog waits before it looks, and then has `end` end
/// it.
fn for_a_while(
    setup: Setup,
    runtime: &Runtime,
    f: impl FnOnce() + Send,
    end: impl FnOnce(plainweave::Fiber) + Send,
) {
    let (tell, told) = mpsc::channel();
    std::thread::scope(|threads| {
        threads.spawn(move || {
            let fiber = told.recv().expect("it runs");
            until_others_report(setup);
            end(fiber);
        });
        runtime.run(move || {
            tell.send(plainweave::current()).expect("the test waits");
            f();
        });
    });
}

fn what_can_still_come_is_no_deadlock(setup: Setup) {
    for (runtime, told) in both_movements(setup) {
        let (mut ours, theirs) = connected();
        let (idle, their_idle) = connected();
        let waiter = runtime.spawn(|| plainweave::park().is_ok());
        for_a_while(
            setup,
            &runtime,
            || assert!(plainweave::time::sleep(LONG).is_err()),
            |fiber| fiber.cancel(),
        );
        let (release, released) = mpsc::channel::<()>();
        let job = || {
            plainweave::blocking(move || assert!(released.recv().is_err())).expect("not cancelled")
        };

        for_a_while(setup, &runtime, job, |_| drop(release));
        let read = || assert_eq!(ours.read(&mut [0]).expect("its end"), 0);
        for_a_while(setup, &runtime, read, |_| drop(theirs));
        let (begin, begun) = mpsc::channel();
        runtime.run(|| {
            plainweave::net::on_readable(idle, None, move |_, _| {
                begin.send(()).expect("the test waits")
            })
        });
        let beside_an_idle_connection = || assert!(plainweave::park().is_err());

        for_a_while(setup, &runtime, beside_an_idle_connection, |fiber| {
            waiter.fiber().unpark();
            drop(their_idle);
            fiber.cancel();
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
            let told = &told;
            let report = threads.spawn(move || {
                let report = told.next();
                sender.send(7).expect("it waits");
                report.expect("a warning")
            });

            assert_eq!(runtime.run(|| receiver.recv().expect("sent")), 7);
            let report = report.join().expect("a report");
            assert!(
                !report.is_certain() && report.other_threads.is_some_and(|threads| threads > 0),
                "{report}"
            );
        });
        assert!(told.others().is_empty(), "once");
    }
}

/// Alone in its process: then nobody is left who could wake it.
#[test]
fn without_other_threads_it_is_certain_and_printed() {
    const NAME: &str = "without_other_threads_it_is_certain_and_printed";
    if is_child("alone") {
        let lock = Arc::new(Mutex::new(()));
        let runtime = Runtime::builder()
            .workers(1)
            .max_workers(1)
            .report_stalls(true)
            .build()
            .expect("a runtime");
        runtime.run(move || {
            let _guard = lock.lock().expect("free");
            // For ever: the parent ends this process.
            drop(lock.lock());
        });
        return;
    }

    let mut command = child_command(NAME, "alone");
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the child runs");
    let (tell, told) = mpsc::channel();
    let lines = BufReader::new(child.stderr.take().expect("piped")).lines();
    std::thread::spawn(move || {
        lines
            .map_while(Result::ok)
            .all(|line| tell.send(line).is_ok())
    });
    let mut text = String::new();
    let expected = "plainweave: deadlock: 1 fibers wait, and nothing will wake them; these wait";

    while !text.contains(expected)
        && let Ok(line) = told.recv_timeout(HANG / 2)
    {
        text += &(line + "\n");
    }
    child.kill().expect("it is ours");
    child.wait().expect("it ends");
    assert!(text.contains(expected), "{text}");
}

/// Two fibers wait for locks of their own. In any build that is said, once, unless nothing is to be
/// printed.
#[test]
fn a_fiber_that_waits_for_itself_is_named_once() {
    const NAME: &str = "a_fiber_that_waits_for_itself_is_named_once";
    if is_child("locks") {
        let runtime = Runtime::builder().workers(1).build().expect("a runtime");
        for name in ["first", "second"] {
            let body = || {
                let lock = Mutex::new(());
                let late = plainweave::sync::RwLock::new(());
                let (_guard, _other) = (lock.lock().expect("free"), late.write().expect("free"));
                plainweave::time::with_timeout(ms(1), || lock.lock().map(drop))
                    .expect_err("its own");
                plainweave::time::with_timeout(ms(1), || late.read().map(drop))
                    .expect_err("its own");
            };

            runtime
                .spawn_with(Builder::new().name(name), body)
                .expect("in range")
                .join()
                .expect("no panic");
        }
        return;
    }

    let text = |env: &[(&str, &str)]| {
        let child = in_child(NAME, "locks", env);
        assert!(child.status.success(), "{}", stderr_of(&child));
        stderr_of(&child)
    };

    let said = text(&[]);
    let lines: Vec<_> = said
        .lines()
        .filter(|line| line.starts_with("plainweave: "))
        .collect();
    assert!(
        lines.len() == 1
            && lines[0].contains("\"first\" waits for a mutex that it has locked itself"),
        "{said}"
    );
    assert!(!text(&[("PLAINWEAVE_REPORT", "none")]).contains("plainweave: "));
}

/// The environment turns reports on where the program does not say; nonsense is an error.
#[test]
fn the_environment_asks_for_reports() {
    const NAME: &str = "the_environment_asks_for_reports";
    if is_child("builds") {
        let built = Runtime::builder().workers(1).build();
        std::process::exit(built.map_or_else(
            |error| i32::from(error.to_string().contains("\"all\"")),
            |_| 2,
        ));
    }

    let status = |value| {
        in_child(NAME, "builds", &[("PLAINWEAVE_REPORT", value)])
            .status
            .code()
    };

    assert_eq!(
        [status("all"), status("stalls,deadlocks"), status("none")],
        [Some(1), Some(2), Some(2)]
    );
}
