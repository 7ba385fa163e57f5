//! What must not go on: blocking while panicking, and running out of stack.

#![expect(
    unsafe_code,
    reason = "tests call what is unsafe, and say at each call why it is sound"
)]
#![allow(clippy::print_stderr, reason = "a child process tells its parent")]

use std::cell::RefCell;
use std::io::{ErrorKind, Read, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

use crate::common::*;
use plainweave::{Builder, Io, Movement, Runtime, time};

in_pools_too!(
    a_destructor_does_its_io_on_the_thread,
    a_destructors_waits_are_bounded,
    a_destructor_may_join_what_runs_elsewhere,
    the_panic_count_stays_with_its_fiber,
    a_destructor_may_use_the_runtime,
);

/// Runs its closure when dropped.
struct OnDrop<F: FnMut()>(F);

impl<F: FnMut()> Drop for OnDrop<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}

/// Runs `f` in a destructor while a fiber panics, and gives back what it returned.
fn while_panicking<T: Send + 'static>(
    runtime: &TestRuntime,
    f: impl Fn() -> T + Send + 'static,
) -> T {
    let result = Arc::new(Mutex::new(None));
    let theirs = result.clone();
    let fiber = runtime.spawn(move || {
        let _last = OnDrop(move || {
            assert!(std::thread::panicking());
            *theirs.lock().expect("lock") = Some(f());
        });
        std::panic::resume_unwind(Box::new("on purpose"));
    });

    let error = fiber.join().expect_err("it panicked");
    assert_eq!(error.to_string(), "the fiber panicked: on purpose");
    result
        .lock()
        .expect("lock")
        .take()
        .expect("the destructor ran to its end")
}

fn a_destructor_does_its_io_on_the_thread(setup: Setup) {
    let runtime = setup.tested_with(setup.shared_builder().workers(1));
    let (ours, mut theirs) = connected();
    let sender = std::thread::spawn(move || {
        std::thread::sleep(ms(20));
        theirs.write_all(b"farewell").expect("write");
        let mut answer = [0; 4];
        theirs.read_exact(&mut answer).expect("read");
        answer
    });

    let got = while_panicking(&runtime, move || {
        let mut buf = [0; 8];
        (&ours).read_exact(&mut buf).expect("read");
        (&ours).write_all(b"bye!").expect("write");
        buf
    });

    assert_eq!(&got, b"farewell");
    assert_eq!(&sender.join().expect("sent"), b"bye!");
    let slept = while_panicking(&runtime, || {
        let start = Instant::now();
        time::sleep(ms(20)).expect("not long");
        start.elapsed()
    });

    assert!(slept >= ms(20));
    assert_eq!(runtime.run(|| 5), 5);
}

fn a_destructors_waits_are_bounded(setup: Setup) {
    let runtime = setup.tested_with(setup.shared_builder().workers(1));
    let start = Instant::now();
    let (ours, _theirs) = connected();
    let kinds = while_panicking(&runtime, move || {
        let listener = listener();
        [
            (&ours).read(&mut [0; 8]).expect_err("nothing comes").kind(),
            listener.accept().expect_err("nobody").kind(),
            plainweave::park().expect_err("no token").kind(),
            time::sleep(Duration::from_secs(1000))
                .expect_err("too long")
                .kind(),
        ]
    });

    assert_eq!(kinds, [ErrorKind::TimedOut; 4]);
    assert!(start.elapsed() < Duration::from_secs(20));
    // A token is taken there too; `park_timeout` and timeouts of the stream may be shorter.
    let (ours, _theirs) = connected();
    let parked = while_panicking(&runtime, move || {
        plainweave::current().unpark();
        let token = plainweave::park().is_ok();
        ours.set_read_timeout(Some(ms(5))).expect("set");
        let late = (&ours).read(&mut [0; 8]).expect_err("nothing comes").kind();
        (
            token,
            late,
            plainweave::park_timeout(ms(5))
                .expect_err("no token")
                .kind(),
        )
    });

    assert_eq!(
        (parked.1, parked.2),
        (ErrorKind::TimedOut, ErrorKind::TimedOut)
    );
    assert_eq!(runtime.run(|| 5), 5);
}

fn a_destructor_may_join_what_runs_elsewhere(setup: Setup) {
    let runtime = setup.tested_with(setup.shared_builder().workers(1));
    let other = setup.tested_with(setup.shared_builder().workers(1));
    let handles: Vec<_> = (0..3)
        .map(|n| {
            other.spawn(move || {
                time::sleep(ms(10)).expect("slept");
                n
            })
        })
        .collect();
    let handles = Mutex::new(handles);
    let sum = while_panicking(&runtime, move || {
        let handles = std::mem::take(&mut *handles.lock().expect("lock"));
        handles
            .into_iter()
            .map(|h| h.join().expect("it runs elsewhere"))
            .sum::<i32>()
    });

    assert_eq!(sum, 3);
    // One that runs there for long: the join gives up.
    let long = other.spawn(plainweave::park);
    let fiber = long.fiber();
    let long = Mutex::new(Some(long));
    let late = while_panicking(&runtime, move || {
        let long = long.lock().expect("lock").take();
        long.map(|l| l.join().expect_err("it parks").is_timed_out())
    });

    assert_eq!(late, Some(true));
    fiber.unpark();
}

/// Fibers that panic with blocking destructors, among others that look at their own panic count all
/// the time.
fn the_panic_count_stays_with_its_fiber(setup: Setup) {
    let runtime = setup.tested_with(setup.shared_builder().workers(2));
    let looks = AtomicUsize::new(0);
    runtime.scope(|s| {
        for n in 0..20u64 {
            let looks = &looks;
            s.spawn(move || {
                for k in 0..20 {
                    assert!(!std::thread::panicking());
                    looks.fetch_add(1, Ordering::Relaxed);
                    if (n + k) % 5 == 0 {
                        time::sleep(ms(1)).expect("slept");
                    } else {
                        plainweave::yield_now();
                    }
                }
            });
            let panicking = s.spawn(|| {
                let caught = catch_unwind(AssertUnwindSafe(|| {
                    let _sleeps = OnDrop(|| time::sleep(ms(2)).expect("short"));
                    let _yields = OnDrop(plainweave::yield_now);
                    std::panic::resume_unwind(Box::new(()));
                }));
                assert!(caught.is_err() && !std::thread::panicking());
                plainweave::yield_now();
                assert!(!std::thread::panicking());
            });

            drop(panicking);
        }
    });
    assert_eq!(looks.into_inner(), 400);
}

fn a_destructor_may_use_the_runtime(setup: Setup) {
    let runtime = setup.tested_with(setup.shared_builder().workers(2));
    let spawned = while_panicking(&runtime, || {
        let detached = plainweave::spawn(|| 3);
        detached.cancel();
        drop(detached);
        let blocked = plainweave::blocking(|| 4).expect("runs here");
        plainweave::yield_now();
        (plainweave::on_fiber(), blocked)
    });
    assert_eq!(spawned, (true, 4));
}

/// A runtime of its own, and a pool beside another: what each is called as a part of a test, and
/// its workers.
const KINDS: [(&str, Setup, &str); 2] = [
    (
        "alone",
        Setup {
            io: Io::Epoll,
            policy: "fifo",
            pooled: false,
        },
        "plainweave-",
    ),
    (
        "in a pool",
        Setup {
            io: Io::Epoll,
            policy: "priority",
            pooled: true,
        },
        "tested-",
    ),
];

#[test]
fn a_join_that_only_its_own_worker_could_satisfy_aborts() {
    let name = "a_join_that_only_its_own_worker_could_satisfy_aborts";
    if let Some((_, setup, _)) = KINDS.into_iter().find(|(part, ..)| is_child(part)) {
        setup
            .tested_with(setup.shared_builder().workers(1).movement(Movement::Never))
            .run(|| {
                let awaited = Builder::new()
                    .name("awaited one")
                    .spawn(plainweave::park)
                    .expect("spawned");
                let panicking = Builder::new().name("panicking one").spawn(move || {
                    let mut awaited = Some(awaited);
                    let _joins =
                        OnDrop(move || assert!(awaited.take().is_none_or(|a| a.join().is_err())));
                    panic!("on purpose");
                });
                drop(panicking.expect("spawned").join());
            });
        return;
    }

    for (part, ..) in KINDS {
        let text = dies_of(name, part, libc::SIGABRT);
        let all = ["awaited one", "panicking one", "destructor"]
            .into_iter()
            .all(|what| text.contains(what));
        assert!(all, "{part}: {text}");
    }
}

/// As on a thread: what unwinding leaves behind would be nobody's.
#[test]
fn a_second_panic_during_the_first_ends_the_process() {
    let name = "a_second_panic_during_the_first_ends_the_process";
    if let Some((_, setup, _)) = KINDS.into_iter().find(|(part, ..)| is_child(part)) {
        let fiber = setup.tested().spawn(|| {
            let _second = OnDrop(|| panic!("the second"));
            panic!("the first");
        });

        eprintln!("survived: {:?}", fiber.join().is_ok());
        return;
    }

    for (part, ..) in KINDS {
        let text = dies_of(name, part, libc::SIGABRT);
        assert!(
            text.contains("the first") && text.contains("the second") && !text.contains("survived"),
            "{text}"
        );
    }
}

/// Goes deeper until there is no more stack.
#[inline(never)]
fn deeper(n: u64) -> u64 {
    let frame = std::hint::black_box([n; 64]);
    if n == u64::MAX {
        0
    } else {
        deeper(n + 1) + frame[5]
    }
}

#[test]
fn a_stack_overflow_names_the_fiber() {
    let name = "a_stack_overflow_names_the_fiber";
    let sizes = [
        ("default", None, ""),
        ("builder", Some(64), "64 KiB"),
        ("runtime", None, "128 KiB"),
    ];
    let parts = sizes
        .into_iter()
        .flat_map(|size| KINDS.map(|kind| (format!("{} {}", size.0, kind.0), size, kind)));
    for (part, (size, kib, _), (_, setup, _)) in parts.clone() {
        if is_child(&part) {
            let mut builder = setup.builder();
            if size == "runtime" {
                builder = builder.stack_size(128 << 10);
            }
            let runtime = setup.tested_with(builder);
            let mut fiber = Builder::new().name("the deep one");

            if let Some(kib) = kib {
                fiber = fiber.stack_size(kib << 10);
            }

            // It has been suspended before, and others are about.
            let others: Vec<_> = (0..10).map(|_| runtime.spawn(plainweave::park)).collect();
            let deep = runtime.spawn_with(fiber, || {
                time::sleep(ms(2)).expect("slept");
                deeper(0)
            });

            eprintln!("survived: {:?}", deep.expect("spawned").join().is_ok());
            drop(others);
            return;
        }
    }

    for (part, (_, _, size), (_, _, worker)) in parts {
        let text = dies_of(name, &part, libc::SIGABRT);
        let worker = format!(") on thread '{worker}");

        for what in [
            "fiber 'the deep one' (#",
            &worker,
            "overflowed its stack",
            size,
        ] {
            assert!(text.contains(what), "{part}: {text}");
        }

        assert!(text.contains("stack_size"), "how to raise it: {text}");
        assert!(!text.contains("survived"), "{text}");
    }
}

/// A fiber's code may grow its stack by segments of its own; the handler knows only that these are
/// no fiber's.
#[test]
fn an_overflow_of_a_segment_names_the_fiber() {
    let name = "an_overflow_of_a_segment_names_the_fiber";
    if let Some((_, setup, _)) = KINDS.into_iter().find(|(part, ..)| is_child(part)) {
        let runtime = setup.tested();
        let deep = runtime.spawn_with(Builder::new().name("the parser"), || {
            stacker::grow(256 << 10, || {
                time::sleep(ms(2)).expect("slept");
                deeper(0)
            })
        });

        eprintln!("survived: {:?}", deep.expect("spawned").join().is_ok());
        return;
    }

    for (part, _, worker) in KINDS {
        let text = dies_of(name, part, libc::SIGSEGV);
        let worker = format!(") on thread '{worker}");

        for what in [
            "fiber 'the parser' (#",
            &worker,
            "has probably overflowed a stack that its code has switched to",
        ] {
            assert!(text.contains(what), "{part}: {text}");
        }

        assert!(!text.contains("survived"), "{text}");
    }
}

/// Other faults go to whoever had the signal before: the process dies of it.
#[test]
fn another_fault_is_not_taken_for_an_overflow() {
    let name = "another_fault_is_not_taken_for_an_overflow";
    if let Some((_, setup, _)) = KINDS.into_iter().find(|(part, ..)| is_child(part)) {
        setup.tested().run(|| {
            // SAFETY: it is not sound, and that is its purpose: the kernel sends SIGSEGV for the
            // unmapped first page.
            unsafe { std::ptr::without_provenance_mut::<u8>(8).write_volatile(1) };
        });
        return;
    }

    for (part, ..) in KINDS {
        let text = dies_of(name, part, libc::SIGSEGV);
        assert!(!text.contains("plainweave:"), "{part}: {text}");
    }
}

/// A thread that ends has no way to wait once its thread-locals are gone: `run` says so before
/// there is a fiber that borrows from it.
#[test]
fn run_within_a_late_destructor_starts_no_fiber() {
    struct Late(Arc<Runtime>, Arc<AtomicUsize>, mpsc::Sender<bool>);
    impl Drop for Late {
        fn drop(&mut self) {
            let mut lent = [0; 16];
            let outcome = catch_unwind(AssertUnwindSafe(|| {
                self.0.run(|| {
                    lent[1] = 1;
                    self.1.fetch_add(1, Ordering::SeqCst)
                })
            }));
            let _ = self.2.send(outcome.is_err() && lent == [0; 16]);
        }
    }
    thread_local!(static LATE: RefCell<Option<Late>> = const { RefCell::new(None) });

    let runtime = Arc::new(Runtime::builder().workers(1).build().expect("a runtime"));
    let (ran, (report, told)) = (Arc::new(AtomicUsize::new(0)), mpsc::channel());
    let theirs = runtime.clone();
    let count = ran.clone();
    let thread = std::thread::spawn(move || {
        // Its destructor is the first to be registered, so it runs last.
        LATE.with(|late| *late.borrow_mut() = Some(Late(theirs.clone(), count, report)));
        assert_eq!(theirs.run(|| 5), 5);
    });

    thread.join().expect("no panic");
    assert!(
        told.recv_timeout(HANG).expect("the destructor ran"),
        "run unwinds before its fiber starts"
    );
    assert!(runtime.wait_idle(HANG));
    assert_eq!(
        ran.load(Ordering::SeqCst),
        0,
        "no fiber has what the destructor lent"
    );
}

/// Panics when dropped, with a payload that does the same.
struct Twice;
struct Payload;
impl Drop for Payload {
    fn drop(&mut self) {
        panic!("the payload, too");
    }
}
impl Drop for Twice {
    fn drop(&mut self) {
        std::panic::panic_any(Payload);
    }
}

#[test]
fn payloads_that_panic_end_no_worker() {
    unless_it_hangs("payloads_that_panic_end_no_worker", || {
        let runtime = Runtime::builder()
            .workers(1)
            .max_fibers(1)
            .build()
            .expect("a runtime");
        // The one that runs has the only stack.
        let error = runtime.run(|| {
            let twice = Twice;
            plainweave::spawn(move || drop(twice))
                .join()
                .expect_err("no stack is left")
        });

        assert!(error.is_refused(), "{error}");
        // A result that nobody wants.
        drop(runtime.spawn(|| Twice));
        assert!(runtime.wait_idle(HANG));
        drop(runtime.spawn(|| std::panic::panic_any(Payload)));
        assert!(runtime.wait_idle(HANG));
        assert_eq!(runtime.run(|| 7), 7);
    });
}

/// The least stack that is accepted, see `RuntimeBuilder::stack_size`.
const LEAST: usize = 32 << 10;

/// The message of a panic with its backtrace is made on the stack of the fiber.
#[test]
fn the_least_stack_holds_a_panic_with_a_backtrace() {
    let name = "the_least_stack_holds_a_panic_with_a_backtrace";
    if let Some((_, setup, _)) = KINDS.into_iter().find(|(part, ..)| is_child(part)) {
        let runtime = setup.tested_with(setup.builder().workers(1).stack_size(LEAST));
        for _ in 0..2 {
            let error = runtime
                .spawn(|| -> () { panic!("on a small stack: {:?}", [1.5; 4]) })
                .join();
            assert!(error.expect_err("it panics").is_panic());
        }
        return;
    }

    for (backtrace, (part, ..)) in ["1", "full"]
        .into_iter()
        .flat_map(|how| KINDS.map(|kind| (how, kind)))
    {
        let output = in_child(name, part, &[("RUST_BACKTRACE", backtrace)]);
        let text = stderr_of(&output);
        assert!(output.status.success(), "{part}: {text}");
        assert!(
            text.contains("on a small stack") && text.contains("stack backtrace"),
            "{text}"
        );
    }
    let error = Runtime::builder()
        .stack_size(LEAST - 1)
        .build()
        .expect_err("too small");
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
}
