//! Virtual time.

use std::cell::RefCell;
use std::io::ErrorKind;
use std::rc::Rc;
use std::time::{Duration, Instant};

use crate::common::*;
use plainweave::{Io, Runtime, time};

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

/// Who ran when, by the virtual clock: some hundred fibers that sleep, yield, park and wake each
/// other.
fn trace(policy: &'static str, seed: u64) -> Vec<(u64, u64, Duration)> {
    simulated(policy, seed)
        .run(|| {
            // From here on nothing depends on when the worker's thread has come up.
            time::sleep(ms(10)).expect("slept");
            let start = time::now();
            let trace = Rc::new(RefCell::new(Vec::new()));
            let fibers: Vec<_> = (0..300u64)
                .map(|me| {
                    let trace = trace.clone();
                    plainweave::spawn_local(move || {
                        let mut random = Random::new(seed * 1000 + me);
                        for step in 0..8 {
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
