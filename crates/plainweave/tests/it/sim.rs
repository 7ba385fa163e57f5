//! Virtual time.

use std::cell::RefCell;
use std::io::ErrorKind;
use std::process::Command;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::common::*;
use plainweave::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use plainweave::sync::{Mutex, Notify};
use plainweave::{Io, Runtime, sim, time};

const YEAR: Duration = Duration::from_secs(365 * 24 * 3600);

fn simulated(policy: &'static str, seed: u64) -> Runtime {
    let setup = Setup {
        io: Io::Sim { seed },
        policy,
        pooled: false,
    };
    setup.shared_workers(1)
}

#[test]
fn a_year_passes_at_once() {
    unless_it_hangs("a_year_passes_at_once", || {
        let real = Instant::now();
        simulated("fifo", 1).run(|| {
            let start = time::now();
            time::sleep(YEAR).expect("slept");
            let passed = time::now() - start;
            assert_eq!(passed, YEAR, "to the nanosecond");

            // Timers keep their order, however far apart.
            let order = Rc::new(RefCell::new(Vec::new()));
            let sleepers: Vec<_> = [7u32, 1, 300, 30]
                .map(|days| {
                    let order = order.clone();
                    plainweave::spawn_local(move || {
                        time::sleep(YEAR / 365 * days).expect("slept");
                        order.borrow_mut().push(days);
                    })
                })
                .into();
            sleepers
                .into_iter()
                .for_each(|s| s.join().expect("no panic"));
            assert_eq!(*order.borrow(), [1, 7, 30, 300]);
            let late = time::with_timeout(YEAR, plainweave::park).expect_err("late");

            assert_eq!(late.kind(), ErrorKind::TimedOut);
        });

        assert!(real.elapsed() < Duration::from_secs(30));
    });
}

/// Real time that a job takes, and what waits meanwhile, is no virtual time.
#[test]
fn the_clock_stands_while_a_job_is_under_way() {
    unless_it_hangs("the_clock_stands_while_a_job_is_under_way", || {
        simulated("fifo", 1).run(|| {
            let start = time::now();
            let job = || plainweave::blocking(|| std::thread::sleep(ms(50)));
            time::with_timeout(Duration::from_secs(1), job).expect("no time has passed");
            assert_eq!(time::now(), start);

            let sleeper = plainweave::spawn(|| time::sleep(Duration::from_secs(3600)));
            plainweave::yield_now();
            plainweave::fs::read("/proc/self/status").expect("read");
            plainweave::fs::metadata("/proc").expect("there");
            assert_eq!(time::now(), start);
            assert!(!sleeper.is_finished());
            sleeper.join().expect("no panic").expect("slept");
            assert_eq!(time::now() - start, Duration::from_secs(3600));
        });
    });
}

/// Time passes only when all wait, also for locks, for messages and for each other.
#[test]
fn timers_come_at_their_nanosecond() {
    unless_it_hangs("timers_come_at_their_nanosecond", || {
        simulated("fifo", 1).run(|| {
            let start = time::now();
            let (sender, receiver) = plainweave::sync::channel::bounded(1);
            let sends = plainweave::spawn(move || {
                for n in 1..=100u32 {
                    (0..1000).for_each(|_| plainweave::yield_now());
                    time::sleep(Duration::from_nanos(7)).expect("slept");
                    sender.send(n).expect("received");
                }
            });

            for n in 1..=100u32 {
                assert_eq!(receiver.recv().expect("sent"), n);
                assert_eq!(time::now() - start, Duration::from_nanos(7) * n);
            }

            sends.join().expect("no panic");

            let limit = Duration::from_nanos(1_234_567_891);
            let late = time::with_timeout(limit, plainweave::park).expect_err("late");
            assert_eq!(late.kind(), ErrorKind::TimedOut);
            assert_eq!(time::now() - start, Duration::from_nanos(700) + limit);
        });
    });
}

/// A loop that waits for the clock has it move, after a while.
#[test]
fn who_yields_until_a_time_gets_there() {
    unless_it_hangs("who_yields_until_a_time_gets_there", || {
        simulated("fifo", 1).run(|| {
            let until = time::now() + ms(1);
            while time::now() < until {
                plainweave::yield_now();
            }
        });
    });
}

/// Nobody else is there who could wake a fiber, so what can never end is reported.
#[test]
fn a_wait_without_end_is_reported() {
    unless_it_hangs("a_wait_without_end_is_reported", || {
        let (report, reports) = std::sync::mpsc::channel();
        let report = std::sync::Mutex::new(report);
        let runtime = Runtime::builder()
            .io(Io::Sim { seed: 1 })
            .on_deadlock(move |deadlock| {
                report
                    .lock()
                    .expect("one at a time")
                    .send(deadlock.to_string())
                    .expect("awaited");
            })
            .build()
            .expect("a runtime");
        let waits = std::thread::spawn(move || {
            runtime.run(|| {
                let (_sender, receiver) = plainweave::sync::channel::bounded::<u8>(1);
                time::sleep(YEAR).expect("slept");
                let late = time::with_timeout(YEAR, || receiver.recv());
                assert!(late.is_err(), "a timer ends this one");
                plainweave::park().is_err()
            })
        });

        let text = reports.recv_timeout(HANG).expect("a report");
        assert!(text.contains("main"), "{text}");
        assert!(!waits.is_finished());
    });
}

/// A test that hangs instead says nothing of where.
#[test]
fn a_program_that_never_ends_is_given_up() {
    unless_it_hangs("a_program_that_never_ends_is_given_up", || {
        let endless = || {
            let simulation = plainweave::sim::Simulation::new(3).max_switches(20_000);
            simulation.run(|| {
                let fibers = (0..2).map(|n| {
                    let name = format!("turns-{n}");
                    plainweave::Builder::new().name(name).spawn(|| {
                        loop {
                            plainweave::yield_now();
                        }
                    })
                });
                let fibers: Vec<_> = fibers.collect();
                for fiber in fibers {
                    let _: Result<(), _> = fiber.expect("a stack").join();
                }
            });
        };
        let panic = std::panic::catch_unwind(endless).expect_err("given up");
        let text = panic.downcast_ref::<String>().expect("a text");
        assert!(
            text.starts_with("by seed 3: it goes on after 20000 switches"),
            "{text}"
        );
        assert!(
            text.contains("turns-0") && text.contains("turns-1"),
            "{text}"
        );

        // One that ends within the bound does so.
        let simulation = plainweave::sim::Simulation::new(3).max_switches(1 << 40);
        assert_eq!(
            simulation.run(|| (0..100).map(|_| plainweave::yield_now()).count()),
            100
        );
    });
}

/// Others may go on before each of these, though it need not wait.
#[test]
fn notices_and_shared_messages_are_points_to_go_on_at() {
    /// What is done twice by each of two fibers.
    type Step = Box<dyn FnMut() + Send>;

    let broadcast = || -> Step {
        let (sender, mut receiver) = plainweave::sync::broadcast::channel(4);
        assert_eq!((0..2).map(|n| sender.send(n)).sum::<usize>(), 2);
        Box::new(move || {
            receiver.recv().expect("one of two");
            let _alive = &sender;
        })
    };
    let notify = || -> Step {
        let notify = Notify::new();
        Box::new(move || {
            notify.notify_one();
            notify.wait().expect("a permit");
        })
    };
    let notified = || -> Step {
        let notify = Notify::new();
        Box::new(move || {
            let notified = notify.notified();
            notify.notify_waiters();
            notified.wait().expect("all");
        })
    };
    let watch = || -> Step {
        let (sender, mut receiver) = plainweave::sync::watch::channel(0);
        Box::new(move || {
            sender.send(1);
            receiver.changed().expect("a sender");
        })
    };

    let makes: [(&str, &dyn Fn() -> Step); 4] = [
        ("broadcast", &broadcast),
        ("notify", &notify),
        ("notified", &notified),
        ("watch", &watch),
    ];
    for (what, make) in makes {
        let order = |seed| {
            let mut steps = [("a", make()), ("b", make())];
            let order = Arc::new(std::sync::Mutex::new(String::new()));
            let log = order.clone();
            plainweave::sim::run(seed, move || {
                let fibers = steps.each_mut().map(|(name, step)| {
                    let mut step = std::mem::replace(step, Box::new(|| ()));
                    let name = *name;
                    let log = log.clone();
                    plainweave::spawn(move || {
                        for _ in 0..2 {
                            step();
                            log.lock().expect("no panic").push_str(name);
                        }
                    })
                });
                for fiber in fibers {
                    fiber.join().expect("no panic");
                }
            });
            std::mem::take(&mut *order.lock().expect("no panic"))
        };
        let orders: std::collections::BTreeSet<_> = (0..60).map(order).collect();
        assert!(
            orders.contains("abab") || orders.contains("baba"),
            "{what}: {orders:?}"
        );
    }
}

/// Who ran when, by the virtual clock: some hundred fibers that sleep, yield, park and wake each
/// other.
fn trace(policy: &'static str, seed: u64) -> Vec<(u64, u64, Duration)> {
    simulated(policy, seed)
        .run(|| {
            // From here on nothing depends on when the worker's thread has come up.
            time::sleep(ms(10)).expect("slept");
            let start = time::now();
            let trace = Rc::new(RefCell::new(Vec::new()));
            let shared = Arc::new((Mutex::new(0), AtomicU32::new(0)));
            let fibers: Vec<_> = (0..300u64)
                .map(|me| {
                    let (trace, shared) = (trace.clone(), shared.clone());
                    plainweave::spawn_local(move || {
                        let mut random = Random::new(seed * 1000 + me);
                        for step in 0..8 {
                            *shared.0.lock().expect("free") += 1;
                            shared.1.fetch_add(1, Ordering::SeqCst);
                            trace.borrow_mut().push((me, step, time::now() - start));
                            match random.below(4) {
                                0 => plainweave::yield_now(),
                                1 => time::sleep(Duration::from_micros(random.below(50_000)))
                                    .expect("slept"),
                                2 => {
                                    let child = plainweave::spawn(plainweave::yield_now);
                                    child.join().expect("no panic");
                                }
                                _ => {
                                    let limit = Duration::from_secs(random.below(100));
                                    let late =
                                        plainweave::park_timeout(limit).expect_err("no token");
                                    assert_eq!(late.kind(), ErrorKind::TimedOut);
                                }
                            }
                        }
                    })
                })
                .collect();
            fibers.into_iter().for_each(|f| f.join().expect("no panic"));
            let trace = trace.borrow().clone();

            SendTrace(trace)
        })
        .0
}

struct SendTrace(Vec<(u64, u64, Duration)>);

#[test]
fn a_seed_gives_the_same_trace_each_time() {
    unless_it_hangs("a_seed_gives_the_same_trace_each_time", || {
        for policy in ["fifo", "lifo-slot"] {
            for seed in [1, 2, 77] {
                let first = trace(policy, seed);
                assert_eq!(first.len(), 2400);
                for _ in 0..4 {
                    let again = trace(policy, seed);
                    let differ = first.iter().zip(&again).position(|(a, b)| a != b);
                    assert_eq!(
                        differ,
                        None,
                        "{:?} {:?}",
                        first[differ.unwrap_or(0)],
                        again[differ.unwrap_or(0)]
                    );
                }
            }

            assert_ne!(trace(policy, 1), trace(policy, 2));
        }
    });
}

/// Whether this build lets others go on before locks and atomics.
const HAS_POINTS: bool = cfg!(any(debug_assertions, feature = "preemption-points"));

/// The name of a bug, and a program that says whether it has shown.
type Planted = (&'static str, fn() -> bool);

/// Bugs that some schedules show.
const PLANTED: [Planted; 9] = [
    ("check, then act", || {
        let left = Arc::new(Mutex::new(1));
        both(&left, |left| {
            if *left.lock().expect("free") > 0 {
                *left.lock().expect("free") -= 1;
            }
        });
        *left.lock().expect("free") != 0
    }),
    ("a lost update", || {
        let sum = Arc::new(Mutex::new(0));
        both(&sum, |sum| {
            let before = *sum.lock().expect("free");
            *sum.lock().expect("free") = before + 1;
        });
        *sum.lock().expect("free") != 2
    }),
    ("a place taken twice", || {
        let pool = Arc::new(Mutex::new(vec![1, 2]));
        let taken = Arc::new(Mutex::new(Vec::new()));
        both(&(pool, taken.clone()), |(pool, taken)| {
            let last = *pool.lock().expect("free").last().expect("one for each");
            pool.lock().expect("free").pop();
            taken.lock().expect("free").push(last);
        });
        let mut taken = taken.lock().expect("free").clone();
        taken.sort_unstable();
        taken != [1, 2]
    }),
    ("released twice", || {
        let permits = Arc::new(Mutex::new((0, false)));
        both(&permits, |permits| {
            let is_released = permits.lock().expect("free").1;
            if !is_released {
                let mut permits = permits.lock().expect("free");
                *permits = (permits.0 + 1, true);
            }
        });
        permits.lock().expect("free").0 != 1
    }),
    ("a message before its answer is awaited", || {
        let waits = Arc::new(Mutex::new(false));
        let calls = waits.clone();
        let caller = plainweave::spawn(move || *calls.lock().expect("free"));
        *waits.lock().expect("free") = true;
        let was_heard = caller.join().expect("no panic");
        !was_heard
    }),
    ("locks in two orders", || {
        let locks = Arc::new((Mutex::new(0), Mutex::new(0)));
        let other = locks.clone();
        let turned = plainweave::spawn(move || {
            let _second = other.1.lock().expect("free");
            time::with_timeout(ms(1), || other.0.lock().map(drop)).is_err()
        });

        let first = locks.0.lock().expect("free");
        let late = time::with_timeout(ms(2), || locks.1.lock().map(drop)).is_err();
        drop(first);
        turned.join().expect("no panic") || late
    }),
    ("an update in two halves", || {
        let halves = Arc::new((AtomicU32::new(0), AtomicU32::new(0)));
        let other = halves.clone();
        let writer = plainweave::spawn(move || {
            other.0.store(1, Ordering::SeqCst);
            other.1.store(1, Ordering::SeqCst);
        });
        let first = halves.0.load(Ordering::SeqCst);
        let seen = (first, halves.1.load(Ordering::SeqCst));
        writer.join().expect("no panic");
        seen == (0, 1)
    }),
    ("made twice, though looked for twice", || {
        let cell = Arc::new((AtomicBool::new(false), AtomicU32::new(0)));
        both(&cell, |cell| {
            if !cell.0.load(Ordering::SeqCst) {
                cell.1.fetch_add(1, Ordering::SeqCst);
                cell.0.store(true, Ordering::SeqCst);
            }
        });
        cell.1.load(Ordering::SeqCst) != 1
    }),
    ("a head that was there before", || {
        // A stack of places 1 and 2 by the number of the first, 0 is none: popped, popped and
        // pushed between a look at the head and its exchange.
        let stack = Arc::new((AtomicU32::new(1), [0, 2, 0].map(AtomicU32::new)));
        let pop = |stack: &(AtomicU32, [AtomicU32; 3])| loop {
            let head = stack.0.load(Ordering::SeqCst);
            if head == 0 {
                return 0;
            }
            let next = stack.1[head as usize].load(Ordering::SeqCst);
            let order = Ordering::SeqCst;
            if stack.0.compare_exchange(head, next, order, order).is_ok() {
                return head;
            }
        };
        let other = stack.clone();
        let popper = plainweave::spawn(move || pop(&other));
        let first = pop(&stack);
        let second = pop(&stack);
        if first != 0 {
            let top = stack.0.load(Ordering::SeqCst);
            stack.1[first as usize].store(top, Ordering::SeqCst);
            stack.0.store(first, Ordering::SeqCst);
        }
        let theirs = popper.join().expect("no panic");
        // They have one, and ours is not on the stack any more.
        second != 0 && theirs == 1 && stack.0.load(Ordering::SeqCst) == second
    }),
];

/// Has two fibers do the same.
fn both<T: Clone + Send + 'static>(with: &T, act: fn(&T)) {
    let spawn = |_| {
        let with = with.clone();
        plainweave::spawn(move || act(&with))
    };
    let fibers: Vec<_> = (0..2).map(spawn).collect();
    fibers
        .into_iter()
        .for_each(|fiber| fiber.join().expect("no panic"));
}

/// Before each lock and each atomic another may go on: so each is found, and not by all seeds.
#[test]
fn drawn_schedules_show_what_depends_on_them() {
    if !HAS_POINTS {
        return;
    }
    unless_it_hangs("drawn_schedules_show_what_depends_on_them", || {
        for order in ["random", "pct,steps=64", "drawn"] {
            for (bug, program) in PLANTED {
                let shows = |seed| {
                    let builder = Runtime::builder().io(Io::Sim { seed });
                    let policy = format!("local-fifo:order={order}");
                    let runtime = builder.policy(policy).build().expect("a runtime");
                    runtime.spawn(program).join().expect("no panic")
                };

                let found: Vec<u64> = (0..100).filter(|&seed| shows(seed)).collect();
                assert!((1..100).contains(&found.len()), "{order}, {bug}: {found:?}");
                assert!(shows(found[0]), "{order}, {bug}: a seed shows it each time");
            }
        }
    });
}

/// One runs to its end between two steps of another: priorities soon find what a draw at each step
/// hardly ever does.
#[test]
fn priorities_let_one_run_for_long() {
    if !HAS_POINTS {
        return;
    }
    unless_it_hangs("priorities_let_one_run_for_long", || {
        let shows = |order: &str, seed| {
            let builder = Runtime::builder().io(Io::Sim { seed });
            let policy = format!("local-fifo:order={order},depth=2,steps=128");
            let runtime = builder.policy(policy).build().expect("a runtime");
            let other_ran_through = || {
                let steps = Arc::new(AtomicU32::new(0));
                let others = steps.clone();
                let other = plainweave::spawn(move || {
                    for _ in 0..40 {
                        others.fetch_add(1, Ordering::SeqCst);
                    }
                });
                let before = steps.load(Ordering::SeqCst);
                let behind = steps.load(Ordering::SeqCst);
                other.join().expect("no panic");
                behind - before == 40
            };
            runtime.spawn(other_ran_through).join().expect("no panic")
        };
        let count = |order| (0..200).filter(|&seed| shows(order, seed)).count();
        assert_eq!(count("random"), 0);
        assert!(count("pct") > 2, "{}", count("pct"));
    });
}

/// Whoever waits in a loop, in whatever way, keeps nobody from running for ever.
#[test]
fn who_waits_in_a_loop_keeps_nobody_from_running() {
    if !HAS_POINTS {
        return;
    }
    unless_it_hangs("who_waits_in_a_loop_keeps_nobody_from_running", || {
        let pauses: [fn(); 3] = [
            plainweave::yield_now,
            plainweave::yield_local,
            std::hint::spin_loop,
        ];
        for (pause, seed) in pauses
            .into_iter()
            .flat_map(|pause| (0..30).map(move |seed| (pause, seed)))
        {
            let builder = Runtime::builder().io(Io::Sim { seed });
            let runtime = builder.policy("local-fifo:order=pct").build();
            runtime.expect("a runtime").run(|| {
                let is_done = Arc::new(AtomicBool::new(false));
                let spinning = [(); 3].map(|()| {
                    let is_done = is_done.clone();
                    plainweave::spawn(move || {
                        while !is_done.load(Ordering::SeqCst) {
                            pause();
                        }
                    })
                });
                plainweave::spawn(move || is_done.store(true, Ordering::SeqCst));
                spinning
                    .into_iter()
                    .for_each(|one| one.join().expect("no panic"));
            });
        }
    });
}

/// The variable that names the file to which a child writes what it has seen.
const TRACE_TO: &str = "PLAINWEAVE_TEST_TRACE_TO";

/// What seeds give depends neither on where memory lies nor on the environment.
#[test]
fn a_seed_gives_the_same_trace_in_other_processes() {
    if let Some(file) = std::env::var_os(TRACE_TO) {
        let policies = ["fifo", "local-fifo:order=drawn", "local-fifo:order=pct"];
        let traces = policies.map(|policy| [1, 2, 3, 4, 5].map(|seed| trace(policy, seed)));
        std::fs::write(file, format!("{traces:?}")).expect("written");
        return;
    }

    let directory = tempfile::tempdir().expect("a directory");
    let run = |wrapper: &[&str], clutter: usize| {
        let file = directory.path().join(clutter.to_string());
        let mut child = Command::new(wrapper[0]);
        child
            .args(&wrapper[1..])
            .arg(std::env::current_exe().expect("this program"));
        child.args([
            "--exact",
            "sim::a_seed_gives_the_same_trace_in_other_processes",
        ]);
        child
            .env(TRACE_TO, &file)
            .env("CLUTTER", "x".repeat(clutter));
        let output = child.output().expect("a child");
        assert!(output.status.success(), "{output:?}");
        std::fs::read(file).expect("a trace")
    };
    let first = run(&["env"], 0);
    assert!(first.len() > 100_000, "all of them");
    assert!(first == run(&["env"], 100_000));
    // Without random addresses, where that may be asked for.
    let may_fix = Command::new("setarch").args(["-R", "true"]).status();
    if may_fix.is_ok_and(|status| status.success()) {
        assert!(first == run(&["setarch", "-R"], 7));
    }
}

/// What can never come is said, by the panic of who waits for the program.
#[test]
fn a_program_that_is_stuck_panics() {
    // Other tests' threads might be those of the program.
    if apart() {
        return;
    }
    unless_it_hangs("a_program_that_is_stuck_panics", || {
        let stuck = || {
            sim::run(11, || {
                let (_sender, receiver) = plainweave::sync::channel::bounded::<u8>(1);
                receiver.recv().is_err()
            })
        };
        let panic = std::panic::catch_unwind(stuck).expect_err("it never ends");
        let text = panic.downcast_ref::<String>().expect("a text");
        assert!(
            text.contains("by seed 11") && text.contains("to receive"),
            "{text}"
        );

        let panics = || sim::run(1, || panic!("on purpose"));
        let panic = std::panic::catch_unwind(panics).expect_err("passed on");
        assert_eq!(panic.downcast_ref::<&str>(), Some(&"on purpose"));
    });
}

/// A thread that might wake a fiber ends, and has not: then nothing will.
#[test]
fn a_program_is_stuck_when_its_last_thread_has_ended() {
    if apart() {
        return;
    }
    unless_it_hangs("a_program_is_stuck_when_its_last_thread_has_ended", || {
        let stuck = || {
            sim::run(5, || {
                let (_sender, receiver) = plainweave::sync::channel::bounded::<u8>(1);
                std::thread::spawn(|| std::thread::sleep(ms(1500)));
                receiver.recv().is_err()
            })
        };
        let panic = std::panic::catch_unwind(stuck).expect_err("it never ends");
        let text = panic.downcast_ref::<String>().expect("a text");
        assert!(text.contains("to receive"), "{text}");
    });
}

/// One seed gives one order, also beside jobs and files, and others give others.
#[test]
fn a_seed_gives_one_order_beside_jobs() {
    if apart() {
        return;
    }
    unless_it_hangs("a_seed_gives_one_order_beside_jobs", || {
        let order = |seed| {
            sim::run(seed, || {
                let order = Arc::new(Mutex::new(Vec::new()));
                let fiber = |me: u32| {
                    let order = order.clone();
                    plainweave::spawn(move || {
                        for step in 0..5 {
                            match (me + step) % 3 {
                                0 => drop(plainweave::fs::metadata("/proc").expect("there")),
                                1 => plainweave::blocking(plainweave::yield_now).expect("ran"),
                                _ => time::sleep(Duration::from_nanos(me.into())).expect("slept"),
                            }
                            order.lock().expect("free").push((me, step));
                        }
                    })
                };
                let fibers: Vec<_> = (0..6).map(fiber).collect();
                fibers
                    .into_iter()
                    .for_each(|fiber| fiber.join().expect("no panic"));
                sim::wait_quiet().expect("not cancelled");
                order.lock().expect("free").clone()
            })
        };
        let orders: Vec<_> = (0..10).map(order).collect();
        for (seed, first) in orders.iter().enumerate() {
            assert_eq!(&order(seed as u64), first, "{seed}");
        }
        assert!(orders.iter().any(|other| *other != orders[0]));
        let outside = sim::wait_quiet().expect_err("no simulation");
        assert_eq!(outside.kind(), ErrorKind::Unsupported);
    });
}

#[test]
fn sockets_are_refused_not_hung() {
    unless_it_hangs("sockets_are_refused_not_hung", || {
        simulated("fifo", 1).run(|| {
            let listener = listener();
            assert!(listener.accept().is_err());
            assert!(
                plainweave::net::TcpStream::connect(listener.local_addr().expect("address"))
                    .is_err()
            );

            // Threads outside still reach its fibers.
            assert_eq!(plainweave::blocking(|| 3).expect("a real thread"), 3);
        });
    });
}

#[test]
fn shutdown_and_cancellation_work_there_too() {
    unless_it_hangs("shutdown_and_cancellation_work_there_too", || {
        let runtime = simulated("fifo", 5);
        let parked: Vec<_> = (0..10).map(|_| runtime.spawn(plainweave::park)).collect();
        let cancelled = runtime.spawn(plainweave::park);
        cancelled.cancel();
        assert!(cancelled.join().expect("no panic").is_err());
        assert_eq!(
            runtime.shutdown(Duration::from_secs(20)),
            plainweave::Shutdown::default()
        );

        assert!(
            parked
                .into_iter()
                .all(|p| p.join().expect("no panic").is_err())
        );
    });
}
