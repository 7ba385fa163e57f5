//! Who held up a worker: the reports of `on_stall`. On both drivers.

#![expect(
    unsafe_code,
    reason = "tests call what is unsafe, and say at each call why it is sound"
)]

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::time::Duration;

use crate::common::*;
use plainweave::stall::{Culprit, NoSpare};
use plainweave::{Builder, Io, Movement, Runtime, RuntimeBuilder, Stall};

on_every_driver!(
    the_culprit_is_named_with_what_it_does,
    a_worker_alone_is_watched_too,
    a_panic_of_who_is_told_ends_one_call,
    what_blocks_in_std_is_reported_with_its_caller,
    signals_break_no_call_that_blocks,
    a_storm_of_reports,
    a_report_says_that_no_more_workers_may_be_added,
);

const STALL: Duration = Duration::from_millis(2);
const MOVEMENTS: [Movement; 2] = [Movement::BeforeStart, Movement::Anytime];

/// All stalls that were told of.
#[derive(Clone, Default)]
struct Told(Arc<Mutex<Vec<Stall>>>);

impl Told {
    fn tell(&self, stall: &Stall) {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(stall.clone());
    }

    /// The first of the fiber `id` that has been told.
    fn of(&self, id: u64) -> Option<Stall> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.iter()
            .find(|stall| matches!(&stall.culprit, Culprit::Fiber { id: one, .. } if *one == id))
            .cloned()
    }

    fn count(&self) -> usize {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).len()
    }
}

/// Each kind of storage with each movement.
fn every_mode(setup: Setup) -> impl Iterator<Item = RuntimeBuilder> {
    MOVEMENTS.into_iter().flat_map(move |movement| {
        let own = setup.builder().own_storage().movement(movement);
        let shared = setup.shared_builder();
        let shared = match movement {
            // SAFETY: the tests' fibers keep nothing of a thread-local across a suspension.
            Movement::Anytime => unsafe { shared.movement_anytime() },
            other => shared.movement(other),
        };

        [
            own.stall_after(Some(STALL)),
            shared.stall_after(Some(STALL)),
        ]
    })
}

/// Computes, and calls nothing, until it is let go.
#[inline(never)]
fn weave_without_end(go_on: &AtomicBool) -> u64 {
    let mut turns = 0;
    while !go_on.load(Ordering::SeqCst) {
        turns += 1;
    }
    turns
}

/// A caller to be found.
#[inline(never)]
fn hold_up(go_on: &AtomicBool) -> u64 {
    std::hint::black_box(weave_without_end(go_on)) + 1
}

/// Until all workers sleep: what comes next is a stall of its own.
fn rest(runtime: &Runtime) {
    eventually("all workers to sleep", || {
        runtime.metrics().sleeping_workers == runtime.workers()
    });
}

/// Lets the fiber compute until it has been told of.
fn report_of_a_culprit(runtime: &Runtime, told: &Told) -> (u64, Stall) {
    rest(runtime);
    let go_on = Arc::new(AtomicBool::new(false));
    let (seen, (tell_id, id)) = (go_on.clone(), mpsc::channel());
    let culprit = runtime.spawn_with(Builder::new().name("culprit"), move || {
        tell_id
            .send(plainweave::current().id())
            .expect("the test waits");
        hold_up(&seen)
    });

    let id = id.recv().expect("it runs");
    eventually("the culprit is reported", || told.of(id).is_some());
    go_on.store(true, Ordering::SeqCst);
    culprit.expect("spawned").join().expect("no panic");

    (id, told.of(id).expect("as before"))
}

fn the_culprit_is_named_with_what_it_does(setup: Setup) {
    for builder in every_mode(setup) {
        let told = Told::default();
        let tell = told.clone();
        let runtime = setup.check(
            builder
                .on_stall(move |stall| tell.tell(stall))
                .build()
                .expect("a runtime"),
        );
        let (id, stall) = report_of_a_culprit(&runtime, &told);
        let Culprit::Fiber { name, frames, .. } = &stall.culprit else {
            unreachable!("looked for by its number")
        };

        assert_eq!(name.as_deref(), Some("culprit"));
        assert!(
            stall.worker < 2 && stall.held >= STALL && stall.starved <= stall.held,
            "{stall:?}"
        );
        let first = frames.first().expect("the innermost");
        let report = stall.to_string();

        // What is inlined comes before it, at the same address.
        let here = frames
            .iter()
            .take_while(|frame| frame.address == first.address);
        let names: Vec<_> = here.filter_map(|frame| frame.function.as_deref()).collect();
        assert!(
            names.iter().any(|name| name.ends_with("weave_without_end")),
            "{report}"
        );
        let mut callers = frames.iter().filter_map(|frame| frame.function.as_deref());
        assert!(callers.any(|name| name.ends_with("hold_up")), "{report}");

        // To the closure that was spawned, and beyond, without frame pointers.
        assert!(callers.any(|name| name.contains("{closure")), "{report}");
        let own = stall.own_frame().expect("this file is the program's own");
        assert!(
            own.file
                .as_ref()
                .is_some_and(|file| file.ends_with("stall_reports.rs")),
            "{report}"
        );
        assert!(
            report.contains(&format!("by fiber #{id} \"culprit\"\n")),
            "{report}"
        );
        assert!(report.contains("stall_reports.rs:"), "{report}");
        assert!(
            runtime.metrics().stalls >= 1 && stall.no_spare.is_none(),
            "{stall:?}"
        );
    }
}

fn a_worker_alone_is_watched_too(setup: Setup) {
    let told = Told::default();
    let tell = told.clone();
    // A spare worker would be reported by its own number.
    let builder = setup
        .builder()
        .workers(1)
        .max_workers(1)
        .stall_after(Some(STALL));
    let builder = builder.on_stall(move |stall| tell.tell(stall));
    let runtime = setup.check(builder.build().expect("a runtime"));
    let (_, stall) = report_of_a_culprit(&runtime, &told);

    assert_eq!(stall.worker, 0);
}

fn a_panic_of_who_is_told_ends_one_call(setup: Setup) {
    let calls = Arc::new(AtomicUsize::new(0));
    let seen = calls.clone();
    let builder = setup.builder().stall_after(Some(STALL)).on_stall(move |_| {
        seen.fetch_add(1, Ordering::SeqCst);
        // Without the hook, which would print.
        std::panic::resume_unwind(Box::new("told"));
    });

    let runtime = setup.check(builder.build().expect("a runtime"));
    for _ in 0..5 {
        rest(&runtime);
        let before = calls.load(Ordering::SeqCst);
        let calls = calls.clone();
        runtime.run(move || while calls.load(Ordering::SeqCst) == before {});
    }

    assert!(runtime.metrics().stalls >= 1);
}

/// Fibers that block their worker's thread are stalls too. The signal interrupts them, and they do
/// not notice.
fn signals_break_no_call_that_blocks(setup: Setup) {
    for builder in every_mode(setup) {
        let told = Told::default();
        let tell = told.clone();
        let runtime = setup.check(
            builder
                .on_stall(move |stall| tell.tell(stall))
                .build()
                .expect("a runtime"),
        );
        rest(&runtime);
        let (mut read, mut write) = std::io::pipe().expect("a pipe");
        let reader = runtime.spawn(move || {
            let mut byte = [0];
            read.read_exact(&mut byte).map(|()| byte[0])
        });

        let id = reader.fiber().id();
        eventually("the reader is reported", || told.of(id).is_some());
        write.write_all(&[42]).expect("written");
        assert_eq!(reader.join().expect("no panic").expect("read"), 42);

        let slept = runtime.spawn(|| {
            let start = std::time::Instant::now();
            std::thread::sleep(ms(30));
            start.elapsed()
        });

        assert!(slept.join().expect("no panic") >= ms(30));
        let polled = runtime.run(move || {
            let fds = &mut [rustix::event::PollFd::new(
                &write,
                rustix::event::PollFlags::ERR,
            )];
            rustix::event::poll(
                fds,
                Some(&rustix::time::Timespec {
                    tv_sec: 0,
                    tv_nsec: 20_000_000,
                }),
            )
        });

        // poll(2) is never restarted: whoever calls it heeds EINTR, or has no signals.
        assert!(
            matches!(polled, Ok(_) | Err(rustix::io::Errno::INTR)),
            "{polled:?}"
        );
    }
}

/// Short stalls on all workers, beside fibers that sleep, wait and are woken: signals come in the
/// loop, in the driver, between switches.
fn a_storm_of_reports(setup: Setup) {
    for builder in every_mode(setup) {
        let told = Told::default();
        let tell = told.clone();
        let builder = builder
            .workers(3)
            .stall_after(Some(ms(1)))
            .on_stall(move |stall| tell.tell(stall));
        let runtime = setup.check(builder.build().expect("a runtime"));
        let fibers: Vec<_> = (0..12)
            .map(|seed| {
                runtime.spawn(move || {
                    let mut random = Random::new(seed + 1);
                    for round in 0..40 {
                        random.spin(if round % 4 == 0 { 4000 } else { 30 });
                        match round % 3 {
                            0 => plainweave::yield_now(),
                            1 => plainweave::time::sleep(Duration::from_micros(random.below(500)))
                                .expect("slept"),
                            _ => drop(plainweave::spawn(|| ()).join()),
                        }
                    }
                })
            })
            .collect();

        fibers
            .into_iter()
            .for_each(|fiber| fiber.join().expect("no panic"));
        let stalls = runtime.metrics().stalls;
        let told = told.clone();

        eventually("some are told of", || stalls == 0 || told.count() > 0);
        let left = runtime.shutdown(Duration::from_secs(20));
        assert_eq!(
            (
                left.leaked_fibers,
                left.leaked_workers,
                left.leaked_operations
            ),
            (0, 0, 0)
        );
    }
}

/// When all workers that there may be are held up, and more is ready.
fn a_report_says_that_no_more_workers_may_be_added(setup: Setup) {
    for (workers, most) in [(1, 1), (1, 3), (2, 2)] {
        let told = Told::default();
        let tell = told.clone();
        let builder = setup
            .builder()
            .own_storage()
            .movement(Movement::Anytime)
            .workers(workers)
            .max_workers(most);
        let builder = builder
            .stall_after(Some(STALL))
            .on_stall(move |stall| tell.tell(stall));
        let runtime = setup.check(builder.build().expect("a runtime"));
        let blocked = |count| -> (Vec<_>, Vec<_>) {
            let block = |_| {
                let (release, released) = mpsc::channel::<()>();
                let fiber = Builder::new().name("holder");
                (
                    release,
                    runtime
                        .spawn_with(fiber, move || released.recv().is_err())
                        .expect("spawned"),
                )
            };
            (0..count).map(block).unzip()
        };

        let at_the_limit = |told: &Told| {
            let all = told.0.lock().unwrap_or_else(PoisonError::into_inner);
            let is_holder = |name: &Option<String>| name.as_deref() == Some("holder");
            let held = |stall: &&Stall| match &stall.culprit {
                Culprit::Fiber { name, .. } => is_holder(name),
                _ => false,
            };

            all.iter()
                .filter(held)
                .filter(|stall| stall.no_spare.is_some())
                .cloned()
                .collect::<Vec<_>>()
        };

        let (releases, fibers) = blocked(most + 3);
        eventually("each reports the limit", || {
            let mut reported: Vec<_> = at_the_limit(&told)
                .iter()
                .map(|stall| stall.worker)
                .collect();
            reported.sort_unstable();
            reported.dedup();
            reported.len() == most
        });
        for stall in at_the_limit(&told) {
            assert_eq!(stall.no_spare, Some(NoSpare::AtTheLimit { workers: most }));
            let line = format!(
                "\nall {most} workers (RuntimeBuilder::max_workers) are held up, and fibers are ready"
            );
            let report = stall.to_string();
            assert!(
                report.contains("\"holder\"\n") && report.ends_with(&line),
                "{report}"
            );
        }

        drop(releases);
        fibers
            .into_iter()
            .for_each(|fiber| assert!(fiber.join().expect("no panic")));
    }
}

/// What the process does on SIGURG.
fn disposition() -> usize {
    // SAFETY: all zeroes is a valid `sigaction`; a null new action only asks.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        assert_eq!(
            libc::sigaction(libc::SIGURG, std::ptr::null(), &mut action),
            0
        );
        action.sa_sigaction
    }
}

/// Fibers that block in `std`: their report leads to this file, through functions of `std` and the
/// C library.
fn what_blocks_in_std_is_reported_with_its_caller(setup: Setup) {
    let told = Told::default();
    let tell = told.clone();
    let builder = setup
        .builder()
        .stall_after(Some(STALL))
        .on_stall(move |stall| tell.tell(stall));
    let runtime = setup.check(builder.build().expect("a runtime"));
    let lock = Arc::new(Mutex::new(()));
    let held = lock.lock().expect("not poisoned");
    let waits = lock.clone();
    let waiting = runtime.spawn(move || drop(waits.lock()));
    let id = waiting.fiber().id();

    eventually("it is reported", || told.of(id).is_some());
    drop(held);
    waiting.join().expect("no panic");
    let stall = told.of(id).expect("as before");
    let own = stall
        .own_frame()
        .unwrap_or_else(|| panic!("no own frame in {stall}"));

    assert!(
        own.file
            .as_ref()
            .is_some_and(|file| file.ends_with("stall_reports.rs")),
        "{stall}"
    );
}

/// Blocks its thread. (What computes may have no processor for most of the time, and is not
/// reported then.)
#[inline(never)]
fn stall_once() -> u32 {
    std::thread::sleep(ms(100));
    // Not a tail call, which would leave no frame.
    std::hint::black_box(1)
}

/// What a build with debug assertions says without being asked, and each place once.
#[test]
fn stalls_are_reported_by_default_where_assertions_are() {
    const NAME: &str = "stalls_are_reported_by_default_where_assertions_are";
    const DONE: &str = "all have stalled";
    if is_child("child") {
        let builder = Runtime::builder().workers(2).stall_after(Some(STALL));
        let runtime = builder.build().expect("a runtime");
        for _ in 0..10 {
            rest(&runtime);
            runtime
                .spawn_with(Builder::new().name("slow"), stall_once)
                .expect("spawned")
                .join()
                .expect("ended");
        }

        writeln!(std::io::stderr(), "{DONE}").expect("the test reads");
        // The thread that reports reads the symbols of a large program first: the test says when
        // it has seen enough.
        let _ = std::io::stdin().read(&mut [0]);
        return;
    }

    let mut command = child_command(NAME, "child");
    command.stdin(Stdio::piped()).stderr(Stdio::piped());
    let mut child = OwnChild(command.spawn().expect("the child runs"));
    let (send, lines) = mpsc::channel();
    let stderr = child.0.stderr.take().expect("it is piped");
    let reader = std::thread::spawn(move || {
        let mut all = BufReader::new(stderr).lines().map_while(Result::ok);
        let _ = all.try_for_each(|line| send.send(line));
    });

    // Up to the end of the first report where there is one, and of the stalls.
    let mut text = String::new();
    let mut is_done = false;
    let mut is_reported = !cfg!(debug_assertions);
    while !(is_done && is_reported) {
        let line = lines.recv_timeout(Duration::from_secs(60));
        let line = line.unwrap_or_else(|_| panic!("no report: {text}"));
        is_done |= line == DONE;
        is_reported |= line.contains("report_stalls(false)");
        text += &(line + "\n");
    }

    // What would be reported too often has been by then.
    std::thread::sleep(Duration::from_millis(500));
    drop(child.0.stdin.take());
    text.extend(lines.iter().map(|line| line + "\n"));
    assert!(child.0.wait().expect("it was started").success(), "{text}");
    reader.join().expect("no panic");
    let reports: Vec<_> = text
        .lines()
        .filter(|line| line.starts_with("plainweave: worker"))
        .collect();

    if cfg!(debug_assertions) {
        assert!(!reports.is_empty() && reports.len() < 10, "{text}");
        assert!(
            reports.iter().all(|line| line.contains("\"slow\""))
                && text.contains("stall_reports.rs:"),
            "{text}"
        );
        assert_eq!(text.matches("report_stalls(false)").count(), 1, "{text}");
    } else {
        assert!(reports.is_empty(), "{text}");
    }
}

/// In a process of its own: the others install it.
#[test]
fn without_reports_sigurg_is_left_alone() {
    const NAME: &str = "without_reports_sigurg_is_left_alone";
    if !is_child("child") {
        let child = in_child(NAME, "child", &[]);
        assert!(child.status.success(), "{}", stderr_of(&child));
        return;
    }

    let before = disposition();
    let builder = || {
        Runtime::builder()
            .workers(2)
            .stall_after(Some(STALL))
            .report_stalls(false)
    };
    // No worker has to be asked to enter a ring: there is none, or the watchdog has no business
    // with it.
    for builder in [
        builder().io(Io::Epoll),
        builder().movement(Movement::BeforeStart),
    ] {
        let runtime = builder.build().expect("a runtime");
        runtime.run(|| std::thread::sleep(ms(20)));
        assert_eq!((before, disposition()), (libc::SIG_DFL, libc::SIG_DFL));
    }
}

/// In a process of its own, as the signal may be another's in this one.
#[test]
fn who_is_held_up_has_its_reads_completed() {
    const NAME: &str = "who_is_held_up_has_its_reads_completed";
    if !is_child("child") {
        let child = in_child(NAME, "child", &[]);
        assert!(child.status.success(), "{}", stderr_of(&child));
        return;
    }

    for io in [Io::Epoll, Io::Auto] {
        let runtime = Runtime::builder().workers(2).io(io).build();
        let runtime = runtime.expect("a runtime");
        reads_beside_a_stall(&runtime);
        if runtime.driver() == "uring" {
            assert_ne!(disposition(), libc::SIG_DFL, "workers are asked by it");
        }
    }
}

/// Has fibers compute on all workers, without a system call, until another one has read what came
/// after they began.
fn reads_beside_a_stall(runtime: &Runtime) {
    let has_read = Arc::new(AtomicBool::new(false));
    let computing = Arc::new(AtomicUsize::new(0));
    let (ours, mut theirs) = connected();
    let end = has_read.clone();
    let reader = runtime.spawn(move || {
        (&ours).read_exact(&mut [0; 4]).expect("it came");
        end.store(true, Ordering::Release);
    });
    eventually("it waits", || runtime.metrics().live_fibers == 1);
    std::thread::sleep(ms(5));

    let limit = std::time::Instant::now() + Duration::from_secs(20);
    let culprits: Vec<_> = (0..2)
        .map(|_| {
            let (has_read, computing) = (has_read.clone(), computing.clone());
            runtime.spawn(move || {
                computing.fetch_add(1, Ordering::Relaxed);
                while !has_read.load(Ordering::Acquire) && std::time::Instant::now() < limit {
                    std::hint::spin_loop();
                }
                has_read.load(Ordering::Acquire)
            })
        })
        .collect();

    eventually("both compute", || computing.load(Ordering::Relaxed) == 2);
    theirs.write_all(b"late").expect("sent");
    let in_time = culprits
        .into_iter()
        .all(|culprit| culprit.join().expect("no panic"));
    assert!(in_time, "the reader was not served meanwhile");
    reader.join().expect("no panic");
}

#[test]
fn a_foreign_handler_of_sigurg_is_an_error() {
    const NAME: &str = "a_foreign_handler_of_sigurg_is_an_error";
    if !is_child("child") {
        let child = in_child(NAME, "child", &[]);
        assert!(child.status.success(), "{}", stderr_of(&child));
        return;
    }

    extern "C" fn foreign(_: libc::c_int) {}
    // SAFETY: a handler that does nothing.
    unsafe { libc::signal(libc::SIGURG, foreign as *const () as usize) };
    let error = Runtime::builder()
        .workers(2)
        .on_stall(|_| ())
        .build()
        .expect_err("refused");
    assert!(
        error.to_string().contains("SIGURG has a handler already"),
        "{error}"
    );
    let error = Runtime::builder()
        .workers(2)
        .report_stalls(true)
        .build()
        .expect_err("refused");

    assert!(
        error.to_string().contains("SIGURG has a handler already"),
        "{error}"
    );
    Runtime::builder()
        .workers(2)
        .build()
        .map(|runtime| reads_beside_a_stall(&runtime))
        .expect("without reports");

    // One that is installed later, and calls the one before it, is welcome.
    // SAFETY: the default action.
    unsafe { libc::signal(libc::SIGURG, libc::SIG_DFL) };
    let told = Told::default();
    let tell = told.clone();
    let builder = Runtime::builder()
        .workers(2)
        .stall_after(Some(STALL))
        .on_stall(move |stall| tell.tell(stall));
    let runtime = builder.build().expect("a runtime");
    let _caught = plainweave::signal::Signals::new([libc::SIGURG]).expect("caught");

    report_of_a_culprit(&runtime, &told);
}

/// Two workers that compute share one processor: for about half of the time each has none.
#[test]
fn a_stall_without_a_processor_is_told_as_such() {
    const NAME: &str = "a_stall_without_a_processor_is_told_as_such";
    if !is_child("child") {
        let child = in_child(NAME, "child", &[]);
        assert!(child.status.success(), "{}", stderr_of(&child));
        return;
    }

    if !std::path::Path::new("/proc/self/schedstat").exists() {
        return; // This kernel does not count it.
    }
    // Threads to come inherit it.
    rustix::thread::sched_setaffinity(None, &one_processor()).expect("set");
    let told = Told::default();
    let tell = told.clone();
    let builder = Runtime::builder()
        .workers(2)
        .stall_after(Some(STALL))
        .on_stall(move |stall| tell.tell(stall));
    let runtime = builder.build().expect("a runtime");
    let go_on = Arc::new(AtomicBool::new(false));
    let computing = [(); 2].map(|()| {
        let seen = go_on.clone();
        runtime.spawn(move || hold_up(&seen))
    });

    // Of one that has gone on by the time it is sampled, the report says no more than that.
    let starved = || {
        let told = told.0.lock().unwrap();
        told.iter()
            .find(|stall| stall.starved > ms(1) && !matches!(stall.culprit, Culprit::Gone))
            .cloned()
    };

    eventually("one of them has had no processor", || starved().is_some());
    go_on.store(true, Ordering::SeqCst);
    computing
        .into_iter()
        .for_each(|fiber| assert!(fiber.join().is_ok()));
    let starved = starved().expect("as before").to_string();

    assert!(
        starved.contains("of them without a processor)"),
        "{starved}"
    );
}

/// From anybody, to any thread.
#[test]
fn signals_that_nobody_asked_for_are_ignored() {
    let told = Told::default();
    let tell = told.clone();
    let builder = Runtime::builder()
        .workers(2)
        .stall_after(Some(STALL))
        .on_stall(move |stall| tell.tell(stall));
    let runtime = builder.build().expect("a runtime");
    let ended = Arc::new(AtomicBool::new(false));
    let seen = ended.clone();
    let sender = std::thread::spawn(move || {
        while !seen.load(Ordering::SeqCst) {
            // SAFETY: the runtime has a handler.
            unsafe { libc::kill(libc::getpid(), libc::SIGURG) };
        }
    });

    for _ in 0..3 {
        report_of_a_culprit(&runtime, &told);
    }
    ended.store(true, Ordering::SeqCst);
    sender.join().expect("no panic");
}

#[test]
fn reports_without_a_limit_are_refused() {
    let error = Runtime::builder()
        .workers(2)
        .stall_after(None)
        .on_stall(|_| ())
        .build()
        .expect_err("refused");
    assert!(
        error.to_string().contains("on_stall") && error.to_string().contains("stall_after"),
        "{error}"
    );
}

/// Signals that come while others are handled: their handlers' frames lie one above the other on
/// the worker's alternate stack, with that of our own handler.
#[test]
fn nested_signals_have_room() {
    let name = "nested_signals_have_room";
    if is_child("nested") {
        nested_signals();
        return;
    }

    let output = in_child(name, "nested", &[]);
    assert_eq!(
        (output.status.signal(), output.status.code()),
        (None, Some(0)),
        "{}",
        stderr_of(&output)
    );
}

static NESTED: AtomicUsize = AtomicUsize::new(0);

extern "C" fn count_and_return(_: libc::c_int) {
    NESTED.fetch_add(1, Ordering::SeqCst);
}

fn nested_signals() {
    // Lower and higher than SIGURG: below it and above it, if the masks allow that.
    let signals = [
        libc::SIGUSR1,
        libc::SIGUSR2,
        libc::SIGWINCH,
        40,
        41,
        42,
        43,
        44,
        45,
        46,
        47,
    ];
    for signal in signals {
        // SAFETY: a zeroed action with a handler that only counts.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = count_and_return as *const () as usize;
            action.sa_flags = libc::SA_ONSTACK | libc::SA_RESTART;
            assert_eq!(libc::sigaction(signal, &action, std::ptr::null_mut()), 0);
        }
    }

    let runtime = Runtime::builder()
        .workers(1)
        .on_stall(|_| ())
        .build()
        .expect("a runtime");
    runtime.run(move || {
        // SAFETY: plain calls; all signals are sent to this thread while blocked, and come at once.
        unsafe {
            let (mut set, mut before): (libc::sigset_t, libc::sigset_t) = std::mem::zeroed();
            libc::sigemptyset(&mut set);
            for signal in signals.into_iter().chain([libc::SIGURG]) {
                libc::sigaddset(&mut set, signal);
            }
            libc::pthread_sigmask(libc::SIG_BLOCK, &set, &mut before);
            for signal in signals.into_iter().chain([libc::SIGURG]) {
                libc::syscall(libc::SYS_tgkill, libc::getpid(), libc::gettid(), signal);
            }
            libc::pthread_sigmask(libc::SIG_SETMASK, &before, std::ptr::null_mut());
        }
        assert_eq!(NESTED.load(Ordering::SeqCst), signals.len());
    });
}
