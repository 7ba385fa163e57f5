//! Dumps: what each fiber does, while they run. On both drivers; fibers that may move, and pinned
//! ones.

use std::io::{Read, Write};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use crate::common::*;
use plainweave::dump::{Activity, FiberState, Options};
use plainweave::sync::{Mutex, RwLock, Semaphore, channel};
use plainweave::{Builder, Dump, Io, JoinHandle, Movement, Reason, Runtime, RuntimeBuilder};

on_every_driver!(
    each_fiber_is_listed_with_what_it_waits_for,
    the_stack_of_a_fiber_that_waits_is_shown_on_demand,
    the_fiber_that_holds_up_its_worker_is_named,
    two_may_ask_at_once_while_fibers_wake_each_other,
    a_runtime_that_ends_can_be_asked,
);

/// Movable fibers, and pinned ones.
fn both_movements(setup: Setup) -> [RuntimeBuilder; 2] {
    [Movement::Anytime, Movement::BeforeStart]
        .map(|movement| setup.builder().own_storage().movement(movement))
}

fn spawn<T: Send + 'static>(
    runtime: &Runtime,
    name: &str,
    f: impl FnOnce() -> T + Send + 'static,
) -> JoinHandle<T> {
    runtime
        .spawn_with(Builder::new().name(name), f)
        .expect("valid")
}

fn named<'a>(dump: &'a Dump, name: &str) -> Option<&'a FiberState> {
    dump.fibers
        .iter()
        .find(|fiber| fiber.name.as_deref() == Some(name))
}

/// What a fiber waits for: reason, kind of object, whether there is a timer.
fn wait_of(dump: &Dump, name: &str) -> Option<(Reason, &'static str, bool)> {
    match &named(dump, name)?.activity {
        Activity::Waiting {
            reason,
            timed,
            object,
        } => Some((
            *reason,
            object.as_ref().map_or("", |object| object.kind),
            *timed,
        )),
        _ => None,
    }
}

/// For dumps that must be complete on a busy machine: workers without a processor do not answer a
/// signal in time.
fn complete() -> Options {
    Options::new().limit(HANG).signals(false)
}

fn waits(dump: &Dump) -> usize {
    dump.fibers
        .iter()
        .filter(|fiber| matches!(fiber.activity, Activity::Waiting { .. }))
        .count()
}

fn each_fiber_is_listed_with_what_it_waits_for(setup: Setup) {
    for builder in both_movements(setup) {
        let runtime = builder.build().expect("a runtime");
        let (mut ours, theirs) = connected();
        let lock = Arc::new((
            Mutex::new(()),
            RwLock::new(()),
            Semaphore::new(0),
            Mutex::new(()),
        ));
        let (sender, receiver) = channel::bounded::<()>(1);
        let mut fibers = Vec::new();
        let holder = lock.clone();

        fibers.push(spawn(&runtime, "holder", move || {
            let _guards = (
                holder.0.lock().expect("free"),
                holder.1.write().expect("free"),
            );
            plainweave::park().expect("not cancelled");
        }));
        eventually("the holder to wait", || {
            wait_of(&runtime.dump(), "holder").is_some()
        });
        let of_mutex = lock.clone();
        let of_lock = lock.clone();
        let of_semaphore = lock.clone();

        fibers.push(spawn(&runtime, "mutex", move || drop(of_mutex.0.lock())));
        fibers.push(spawn(&runtime, "reader", move || drop(of_lock.1.read())));
        fibers.push(spawn(&runtime, "semaphore", move || {
            drop(of_semaphore.2.acquire())
        }));
        fibers.push(spawn(&runtime, "receiver", move || drop(receiver.recv())));
        fibers.push(spawn(&runtime, "sleeper", || {
            drop(plainweave::time::sleep(Duration::from_secs(1000)))
        }));
        fibers.push(spawn(&runtime, "socket", move || drop(ours.read(&mut [0]))));
        fibers.push(spawn(&runtime, "scope", || {
            plainweave::scope(|s| drop(s.spawn(|| drop(plainweave::park()))));
        }));
        fibers.push(spawn(&runtime, "joiner", || {
            drop(plainweave::spawn(|| drop(plainweave::park())).join());
        }));
        let expected = [
            ("holder", (Reason::Park, "", false)),
            ("mutex", (Reason::Sync, "mutex", false)),
            ("reader", (Reason::Sync, "readers-writer lock", false)),
            ("semaphore", (Reason::Sync, "semaphore", false)),
            ("receiver", (Reason::Sync, "channel, to receive", false)),
            ("sleeper", (Reason::Sleep, "", true)),
            ("socket", (Reason::Io, "", false)),
            ("scope", (Reason::Scope, "scope", false)),
            ("joiner", (Reason::Join, "fiber", false)),
        ];

        eventually("all to wait", || {
            waits(&runtime.dump()) == expected.len() + 2
        });
        let dump = runtime.dump_with(&complete());
        for (name, wait) in expected {
            assert_eq!(wait_of(&dump, name), Some(wait), "{name}: {dump}");
        }
        assert_eq!(
            (dump.fibers.len(), dump.not_started, &dump.missing),
            (expected.len() + 2, 0, &vec![]),
            "{dump}"
        );
        let text = dump.to_string();
        let json = parsed(&dump);
        let id = named(&dump, "holder").expect("listed").id;

        assert!(
            text.contains("\"mutex\": waiting for a mutex at 0x"),
            "{text}"
        );
        assert_eq!(
            text.matches(&format!(", held by fiber #{id}")).count(),
            2,
            "{text}"
        );
        assert!(
            text.contains("waiting for a channel, to receive at 0x")
                && text.contains("(1 senders, 0 values"),
            "{text}"
        );
        assert!(
            text.contains(": waiting for the clock, with a deadline; "),
            "{text}"
        );
        assert_eq!(
            json["fibers"].as_array().expect("a list").len(),
            expected.len() + 2
        );
        drop((sender, theirs));
        lock.2.release();
        fibers.iter().for_each(JoinHandle::cancel);
        drop(runtime);
    }
}

fn parsed(dump: &Dump) -> serde_json::Value {
    let json = dump.json().to_string();
    assert!(!json.contains(|c: char| c.is_control()), "one line");
    serde_json::from_str(&json).unwrap_or_else(|error| panic!("{error}: {json}"))
}

/// A caller to be found.
#[inline(never)]
fn waits_deep_down(depth: u32) -> u32 {
    if depth == 0 {
        plainweave::park().expect("not cancelled");
        return 0;
    }
    std::hint::black_box(waits_deep_down(depth - 1)) + 1
}

fn the_stack_of_a_fiber_that_waits_is_shown_on_demand(setup: Setup) {
    for builder in both_movements(setup) {
        let runtime = builder.build().expect("a runtime");
        let fiber = spawn(&runtime, "deep", || waits_deep_down(3));
        eventually("it to wait", || waits(&runtime.dump()) == 1);
        assert!(runtime.dump().fibers[0].frames.is_empty());
        let dump = runtime.dump_with(&complete().stacks(true));
        let frames = &dump.fibers[0].frames;
        let own = |name: &&plainweave::stall::Frame| {
            name.function
                .as_deref()
                .is_some_and(|function| function.contains("waits_deep_down"))
        };

        assert_eq!(frames.iter().filter(own).count(), 4, "{dump}");
        let line = frames.iter().find(own).and_then(|frame| frame.line);
        assert!(line.is_some_and(|line| line > 100), "{dump}");
        assert!(
            dump.to_string().contains("\n    waits_deep_down ("),
            "{dump}"
        );
        assert!(
            parsed(&dump)["fibers"][0]["frames"]
                .as_array()
                .is_some_and(|frames| frames.len() >= 4)
        );
        assert!(dump.without_addresses().fibers[0].frames.is_empty());
        fiber.fiber().unpark();
        assert_eq!(fiber.join().expect("no panic"), 3);
    }
}

fn the_fiber_that_holds_up_its_worker_is_named(setup: Setup) {
    for builder in both_movements(setup) {
        let pinned = !format!("{builder:?}").contains("Anytime");
        let runtime = builder
            .workers(1)
            .max_workers(1)
            .stall_after(Some(ms(2)))
            .report_stalls(true);
        let runtime = runtime.build().expect("a runtime");
        let waiter = spawn(&runtime, "waiter", || plainweave::park().is_ok());
        eventually("it to wait", || waits(&runtime.dump()) == 1);
        let (release, held) = mpsc::channel::<()>();
        let (begun, begins) = mpsc::channel();
        let fiber = spawn(&runtime, "computes", move || {
            begun.send(()).expect("the test waits");
            let _ = held.recv();
        });

        begins.recv().expect("it begins");
        let options = Options::new().limit(ms(200));
        let mut dump = runtime.dump_with(&options);

        // The watchdog notices it within two of its periods; a busy machine may take longer.
        eventually("the watchdog to notice", || {
            dump = runtime.dump_with(&options);
            dump.workers[0].held.is_some() && dump.workers[0].runs.is_some()
        });
        assert_eq!(dump.workers[0].runs, Some(fiber.fiber().id()), "{dump}");
        assert_eq!(
            named(&dump, "computes").map(|fiber| &fiber.activity),
            Some(&Activity::Running),
            "{dump}"
        );
        assert_eq!(named(&dump, "waiter").is_some(), !pinned, "{dump}");
        let text = dump.to_string();
        let why = format!(
            "worker 0, which did not answer in time: held up by fiber #{}",
            fiber.fiber().id()
        );

        assert_eq!(text.contains(&why), pinned, "{text}");
        drop(release);
        fiber.join().expect("no panic");
        waiter.fiber().unpark();
        assert!(waiter.join().expect("no panic"));
    }
}

/// Fibers that wake each other without end, while two threads and a fiber ask: no wake-up is lost,
/// or they would stop.
fn two_may_ask_at_once_while_fibers_wake_each_other(setup: Setup) {
    const FIBERS: usize = 200;
    const ROUNDS: usize = 50;
    for builder in both_movements(setup) {
        let runtime = Arc::new(builder.build().expect("a runtime"));
        let turns = Arc::new(AtomicUsize::new(0));
        let mut senders = Vec::new();
        let mut receivers = Vec::new();

        for _ in 0..FIBERS {
            let (sender, receiver) = channel::bounded::<usize>(1);
            senders.push(sender);
            receivers.push(receiver);
        }

        let first = senders[0].clone();
        senders.rotate_left(1);
        let ring: Vec<_> = (senders.into_iter().zip(receivers))
            .map(|(next, before)| {
                let turns = turns.clone();
                runtime.spawn(move || {
                    while let Ok(n) = before.recv() {
                        turns.fetch_add(1, Ordering::Relaxed);
                        if next.send(n).is_err() {
                            return;
                        }
                    }
                })
            })
            .collect();

        // Fibers that have not started are in no dump.
        eventually("all to start", || {
            runtime.dump_with(&complete()).fibers.len() == FIBERS
        });
        (0..10).for_each(|n| first.send(n).expect("they receive"));
        let asks = |runtime: Arc<Runtime>| {
            std::thread::spawn(move || {
                (0..ROUNDS).for_each(|_| drop(runtime.dump_with(&Options::new().stacks(true))))
            })
        };

        let askers = [asks(runtime.clone()), asks(runtime.clone())];
        let asker = runtime.spawn(|| {
            let dumps =
                (0..ROUNDS).map(|_| plainweave::dump::dump_with(&complete()).expect("on a fiber"));
            dumps.map(|dump| dump.fibers.len()).min().expect("some")
        });

        askers
            .into_iter()
            .for_each(|asker| asker.join().expect("no panic"));
        assert!(asker.join().expect("no panic") > FIBERS);
        let before = turns.load(Ordering::Relaxed);
        eventually("all ten to go round", || {
            turns.load(Ordering::Relaxed) > before + 2 * 10 * FIBERS
        });
        ring.iter().for_each(JoinHandle::cancel);
        drop(first);
        ring.into_iter()
            .for_each(|fiber| fiber.join().expect("no panic"));
    }
}

fn a_runtime_that_ends_can_be_asked(setup: Setup) {
    for builder in both_movements(setup) {
        let runtime = builder.build().expect("a runtime");
        let (begun, begins) = mpsc::channel();
        let (tell, told) = mpsc::channel();
        let waiter = runtime.spawn(|| plainweave::park().is_ok());
        runtime.spawn(move || {
            begun.send(()).expect("the test waits");
            while plainweave::park().is_ok() {}
            // Cancelled: the runtime ends.
            tell.send(plainweave::dump::dump_with(&complete()).expect("on a fiber"))
                .expect("the test waits");
        });
        begins.recv().expect("it begins");
        let left = runtime.shutdown(Duration::from_secs(20));

        assert_eq!(left.leaked_fibers, 0);
        let dump = told.recv().expect("a dump");
        assert!(!dump.fibers.is_empty() && dump.missing.is_empty(), "{dump}");
        assert!(!waiter.join().expect("no panic"));
    }
}

#[test]
fn ages_are_by_the_runtimes_own_clock() {
    let hour = Duration::from_secs(3600);
    let runtime = Runtime::builder()
        .io(Io::Sim { seed: 1 })
        .build()
        .expect("a runtime");
    let old = spawn(&runtime, "old", || plainweave::park().is_ok());
    let dump = runtime.run(|| {
        plainweave::time::sleep(hour).expect("not cancelled");
        let young = Builder::new()
            .name("young")
            .spawn(|| plainweave::park().is_ok())
            .expect("valid");
        plainweave::yield_now();
        let dump = plainweave::dump().expect("on a fiber");
        young.fiber().unpark();
        dump
    });

    let age = |dump: &Dump, name| named(dump, name).expect("listed").age;
    assert!(
        age(&dump, "old") >= hour && age(&dump, "young") < hour,
        "{dump}"
    );
    let dump = runtime.dump();
    assert!(age(&dump, "old") >= hour, "{dump}");
    old.fiber().unpark();
    assert!(old.join().expect("no panic"));
}

#[test]
fn names_are_escaped() {
    let runtime = Runtime::builder()
        .workers(1)
        .report_stalls(false)
        .build()
        .expect("a runtime");
    let name = "a\"b\\c\n\u{1b}[31m\r\0\u{7f}\u{9b}\u{2028}é\u{202e}";
    let fiber = runtime
        .spawn_with(Builder::new().name(name), || drop(plainweave::park()))
        .expect("valid");
    eventually("it to wait", || waits(&runtime.dump()) == 1);
    let dump = runtime.dump_with(&complete());

    assert_eq!(parsed(&dump)["fibers"][0]["name"], name);
    let text = dump.to_string();

    assert!(
        !text.contains(|c: char| c.is_control() && c != '\n'),
        "{text:?}"
    );
    assert!(
        text.contains("a\\\"b\\\\c\\n\\u{1b}[31m\\r\\0\\u{7f}"),
        "{text}"
    );
    // On a busy machine there may be a spare worker.
    assert_eq!(
        text.lines()
            .filter(|line| !line.starts_with("worker "))
            .count(),
        2,
        "{text}"
    );
    fiber.cancel();
}

#[test]
fn a_full_disk_is_the_writers_error() {
    let runtime = Runtime::builder()
        .workers(1)
        .report_stalls(false)
        .build()
        .expect("a runtime");
    let mut full = std::fs::OpenOptions::new()
        .write(true)
        .open("/dev/full")
        .expect("Linux has it");

    let dump = runtime.dump();
    for error in [write!(full, "{dump}"), write!(full, "{}", dump.json())] {
        assert_eq!(
            error.expect_err("there is no room").kind(),
            std::io::ErrorKind::StorageFull
        );
    }
}

#[test]
fn a_plain_thread_that_holds_a_lock_is_no_fiber() {
    let runtime = Runtime::builder()
        .workers(1)
        .report_stalls(false)
        .build()
        .expect("a runtime");
    assert!(plainweave::dump().is_none());
    let lock = Arc::new(Mutex::new(()));
    let guard = lock.lock().expect("free");
    let other = lock.clone();
    let fiber = runtime.spawn(move || other.lock().is_ok());

    eventually("it to wait", || waits(&runtime.dump()) == 1);
    let text = runtime.dump().to_string();
    assert!(text.contains("(held by a plain thread)"), "{text}");
    drop(guard);
    assert!(fiber.join().expect("no panic"));
}

/// A hundred thousand fibers wait, and a few run all the time.
#[test]
fn a_hundred_thousand_fibers_while_others_run() {
    const FIBERS: usize = 100_000;
    let builder = Runtime::builder()
        .workers(2)
        .max_workers(2)
        .stack_size(32 << 10)
        .report_stalls(false);
    let runtime = builder.build().expect("a runtime");
    let over = Arc::new(AtomicBool::new(false));
    let runners: Vec<_> = (0..4)
        .map(|_| {
            let over = over.clone();
            runtime.spawn(move || {
                let mut turns = 0_u64;
                while !over.load(Ordering::Relaxed) {
                    plainweave::yield_now();
                    turns += 1;
                }
                turns
            })
        })
        .collect();
    let shared = Arc::new((Semaphore::new(0), AtomicUsize::new(0)));
    let fibers: Vec<_> = (0..FIBERS)
        .map(|_| {
            let shared = shared.clone();
            runtime.spawn(move || {
                shared.1.fetch_add(1, Ordering::SeqCst);
                shared.0.acquire().is_ok()
            })
        })
        .collect();

    eventually("all to start", || shared.1.load(Ordering::SeqCst) == FIBERS);
    let options = complete();
    let mut dump = runtime.dump_with(&options);
    eventually("all to wait", || {
        dump = runtime.dump_with(&options);
        waits(&dump) >= FIBERS
    });
    assert!(
        dump.missing.is_empty() && dump.fibers.len() == FIBERS + 4,
        "{:?}",
        dump.missing
    );
    assert!(
        runtime
            .dump_with(&Options::new().limit(Duration::MAX))
            .missing
            .is_empty(),
        "as long as it takes"
    );
    let cut = runtime.dump_with(&Options::new().limit(Duration::ZERO));

    assert!(
        cut.missing
            .iter()
            .any(|missing| missing.contains("time (0ns) was up after")),
        "{:?}",
        cut.missing
    );
    over.store(true, Ordering::Relaxed);
    runners
        .into_iter()
        .for_each(|runner| assert!(runner.join().expect("no panic") > 0));
    shared.0.close();

    fibers
        .into_iter()
        .for_each(|fiber| assert!(!fiber.join().expect("no panic")));
}
