//! Scopes: borrowing, joining, and what ends one child ends all.

use std::io::{ErrorKind, Read};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, mpsc};
use std::time::{Duration, Instant};

use crate::common::*;
use plainweave::{CancelReason, Runtime, cancel_reason, is_cancelled, scope, time};

in_pools_too!(
    children_borrow,
    children_spawn_into_their_scope,
    a_panicking_body_waits_for_its_children,
    a_panicking_child_cancels_blocked_siblings,
    a_panicking_child_leaves_the_body_to_itself,
    the_first_panic_is_propagated,
    a_panic_taken_by_join_is_not_propagated,
    scopes_nest,
    an_inner_panic_stays_inside,
    cancelling_the_owner_reaches_children,
    cancelling_the_owner_reaches_grandchildren,
    a_scope_can_be_cancelled,
    deadlines_are_inherited,
    scopes_work_from_plain_threads,
    children_born_into_a_cancelled_scope_are_cancelled,
    panics_with_nasty_payloads,
    deeply_nested_scopes_are_cancelled,
);

const LONG: Duration = Duration::from_secs(1000);

fn children_borrow(setup: Setup) {
    setup.tested().run(|| {
        let mut numbers: Vec<u64> = (0..100).collect();
        let sum = AtomicUsize::new(0);
        let name = String::from("borrowed");
        let first = scope(|s| {
            for n in &mut numbers {
                let sum = &sum;
                let name = &name;
                s.spawn(move || {
                    *n += 1;
                    plainweave::yield_now();
                    sum.fetch_add(name.len(), Ordering::SeqCst);
                });
            }
            s.spawn(|| name.as_str()).join().expect("no panic")
        });

        assert_eq!(first, "borrowed");
        assert_eq!(numbers.iter().sum::<u64>(), 5050);
        assert_eq!(sum.into_inner(), 800);
    });
}

fn children_spawn_into_their_scope(setup: Setup) {
    setup.tested().run(|| {
        let count = AtomicUsize::new(0);
        scope(|s| {
            for _ in 0..10 {
                s.spawn(|| {
                    for _ in 0..10 {
                        s.spawn(|| {
                            pause();
                            count.fetch_add(1, Ordering::SeqCst);
                        });
                    }
                });
            }
        });
        assert_eq!(count.into_inner(), 100);
    });
}

fn a_panicking_body_waits_for_its_children(setup: Setup) {
    setup.tested().run(|| {
        let ended = AtomicUsize::new(0);
        let reasons = Mutex::new(Vec::new());
        let panic = catch_unwind(AssertUnwindSafe(|| {
            scope(|s| {
                for _ in 0..5 {
                    s.spawn(|| {
                        let error = time::sleep(LONG).expect_err("cancelled");
                        reasons.lock().expect("lock").push(cancel_reason(&error));
                        // The scope waits for what comes after the cancellation too.
                        for _ in 0..20 {
                            plainweave::yield_now();
                        }
                        ended.fetch_add(1, Ordering::SeqCst);
                    });
                }

                pause();
                panic!("body");
            })
        }));
        assert_eq!(panic_text(&*panic.expect_err("propagated")), "body");
        assert_eq!(ended.load(Ordering::SeqCst), 5);
        assert_eq!(
            reasons.into_inner().expect("lock"),
            vec![Some(CancelReason::ScopePanicked); 5]
        );
    });
}

fn a_panicking_child_cancels_blocked_siblings(setup: Setup) {
    setup.tested().run(|| {
        let reasons = Mutex::new(Vec::new());
        let tell = |what: &'static str, result: std::io::Result<()>| {
            let error = result.expect_err("cancelled");
            assert_ne!(error.kind(), ErrorKind::Interrupted);
            reasons
                .lock()
                .expect("lock")
                .push((what, cancel_reason(&error)));
        };

        let (reader, _silent) = connected();
        let (poller, _silent_too) = connected();
        let listener = listener();
        let full = FullListener::new();
        let forever = plainweave::spawn(plainweave::park);
        let forever_fiber = forever.fiber();

        // What the pool runs cannot be cancelled: it ends after the scope, however long printing
        // the panic takes.
        let (over, told) = mpsc::channel::<()>();
        let panic = catch_unwind(AssertUnwindSafe(|| {
            scope(|s| {
                s.spawn(|| tell("sleep", time::sleep(LONG)));
                s.spawn(|| tell("park", plainweave::park()));
                s.spawn(|| tell("read", (&reader).read(&mut [0; 10]).map(drop)));
                s.spawn(|| tell("wait_readable", poller.wait_readable()));
                s.spawn(|| tell("accept", listener.accept().map(drop)));
                s.spawn(|| {
                    tell(
                        "connect",
                        plainweave::net::TcpStream::connect(full.address()).map(drop),
                    )
                });
                s.spawn(|| tell("join", forever.join().map(drop).map_err(Into::into)));
                s.spawn(|| {
                    tell(
                        "blocking",
                        plainweave::blocking(move || told.recv().unwrap_or(())),
                    )
                });
                s.spawn(|| {
                    time::sleep(ms(20)).expect("not yet cancelled");
                    panic!("child");
                });
            })
        }));
        drop(over);
        assert_eq!(panic_text(&*panic.expect_err("propagated")), "child");
        let mut seen = reasons.into_inner().expect("lock");

        seen.sort_unstable_by_key(|(what, _)| *what);
        let all = [
            "accept",
            "blocking",
            "connect",
            "join",
            "park",
            "read",
            "sleep",
            "wait_readable",
        ];

        assert_eq!(
            seen,
            all.map(|what| (what, Some(CancelReason::SiblingPanicked)))
        );
        forever_fiber.unpark();
    });
}

fn a_panicking_child_leaves_the_body_to_itself(setup: Setup) {
    setup.tested().run(|| {
        let ended = AtomicBool::new(false);
        let panic = catch_unwind(AssertUnwindSafe(|| {
            scope(|s| {
                let sibling = s.spawn(|| is_cancelled(&plainweave::park().expect_err("cancelled")));
                s.spawn(|| panic!("child"));
                assert!(sibling.join().expect("no panic"));

                // By now the panic is known.
                time::sleep(ms(1)).expect("not interrupted");
                ended.store(true, Ordering::Relaxed);
            });
        }));
        assert_eq!(panic_text(&*panic.expect_err("propagated")), "child");
        assert!(ended.load(Ordering::Relaxed));
    });
}

fn the_first_panic_is_propagated(setup: Setup) {
    setup.tested().run(|| {
        let panic = catch_unwind(AssertUnwindSafe(|| {
            scope(|s| {
                s.spawn(|| {
                    let _ = time::sleep(LONG);
                    panic!("second");
                });
                s.spawn(|| {
                    pause();
                    panic!("first");
                });
            })
        }));
        assert_eq!(panic_text(&*panic.expect_err("propagated")), "first");
        // The body's own panic goes before.
        let panic = catch_unwind(AssertUnwindSafe(|| {
            scope(|s| {
                s.spawn(|| panic!("child"));
                pause();
                panic!("body");
            })
        }));
        assert_eq!(panic_text(&*panic.expect_err("propagated")), "body");
    });
}

fn a_panic_taken_by_join_is_not_propagated(setup: Setup) {
    setup.tested().run(|| {
        let value = scope(|s| {
            let child = s.spawn(|| -> () { panic!("taken") });
            assert!(child.join().expect_err("it panicked").is_panic());
            5
        });

        assert_eq!(value, 5);
        // A handle dropped after the panic does not hide it.
        let panic = catch_unwind(AssertUnwindSafe(|| {
            scope(|s| {
                let child = s.spawn(|| panic!("untaken"));
                while !child.is_finished() {
                    plainweave::yield_now();
                }
                drop(child);
            })
        }));
        assert_eq!(panic_text(&*panic.expect_err("propagated")), "untaken");
    });
}

fn scopes_nest(setup: Setup) {
    setup.tested().run(|| {
        let mut grid = vec![vec![1u32; 10]; 10];
        scope(|outer| {
            for row in &mut grid {
                outer.spawn(move || {
                    scope(|inner| {
                        for cell in row.iter_mut() {
                            inner.spawn(move || *cell *= 2);
                        }
                    });
                    row.iter_mut().for_each(|cell| *cell += 1);
                });
            }
        });
        assert_eq!(grid.iter().flatten().sum::<u32>(), 300);
    });
}

fn an_inner_panic_stays_inside(setup: Setup) {
    setup.tested().run(|| {
        let outer_went_on = AtomicBool::new(false);
        scope(|outer| {
            outer.spawn(|| {
                time::sleep(ms(20)).expect("the outer scope is not cancelled");
                outer_went_on.store(true, Ordering::SeqCst);
            });
            let inner = catch_unwind(AssertUnwindSafe(|| {
                scope(|s| drop(s.spawn(|| panic!("inner"))))
            }));
            assert!(inner.is_err());
            time::sleep(ms(1)).expect("nor is its body");
        });
        assert!(outer_went_on.into_inner());
    });
}

fn cancelling_the_owner_reaches_children(setup: Setup) {
    let runtime = setup.tested();
    for body_blocks in [false, true] {
        let owner = runtime.spawn(move || {
            let reasons = Mutex::new(Vec::new());
            scope(|s| {
                for _ in 0..3 {
                    s.spawn(|| {
                        let error = plainweave::park().expect_err("cancelled");
                        reasons.lock().expect("lock").push(cancel_reason(&error));
                    });
                }

                if body_blocks {
                    assert!(is_cancelled(&time::sleep(LONG).expect_err("cancelled")));
                }
            });
            reasons.into_inner().expect("lock")
        });

        std::thread::sleep(ms(10));
        owner.cancel();
        assert_eq!(
            owner.join().expect("no panic"),
            vec![Some(CancelReason::Requested); 3]
        );
    }
}

fn cancelling_the_owner_reaches_grandchildren(setup: Setup) {
    let runtime = setup.tested();
    let ended = std::sync::Arc::new(AtomicUsize::new(0));
    let count = ended.clone();
    let owner = runtime.spawn(move || {
        scope(|s| {
            for _ in 0..3 {
                s.spawn(|| {
                    scope(|s| {
                        for _ in 0..3 {
                            s.spawn(|| {
                                assert!(is_cancelled(&plainweave::park().expect_err("cancelled")));
                                count.fetch_add(1, Ordering::SeqCst);
                            });
                        }

                        scope(|s| {
                            s.spawn(|| {
                                assert!(is_cancelled(&time::sleep(LONG).expect_err("cancelled")));
                                count.fetch_add(1, Ordering::SeqCst);
                            });
                        });
                    });
                });
            }
        });
    });

    std::thread::sleep(ms(10));
    owner.cancel();
    owner.join().expect("no panic");
    assert_eq!(ended.load(Ordering::SeqCst), 12);
}

fn a_scope_can_be_cancelled(setup: Setup) {
    setup.tested().run(|| {
        scope(|s| {
            let children: Vec<_> = (0..10).map(|_| s.spawn(|| time::sleep(LONG))).collect();
            let one = s.spawn(|| time::sleep(LONG));
            pause();
            one.cancel();
            let error = one.join().expect("no panic").expect_err("cancelled alone");
            assert_eq!(cancel_reason(&error), Some(CancelReason::Requested));
            assert!(children.iter().all(|c| !c.is_finished()));
            s.cancel();

            // Not the body: it is the one that cancels.
            time::sleep(ms(1)).expect("not cancelled");
            for child in children {
                assert!(is_cancelled(
                    &child.join().expect("no panic").expect_err("cancelled")
                ));
            }
        });
    });
}

fn deadlines_are_inherited(setup: Setup) {
    setup.tested().run(|| {
        let start = Instant::now();
        let kinds = time::with_timeout(ms(30), || {
            scope(|s| {
                let child = s.spawn(|| {
                    let own = time::sleep(LONG).expect_err("late").kind();
                    let deeper = scope(|s| {
                        s.spawn(|| plainweave::park().expect_err("late").kind())
                            .join()
                    });

                    // The deadline ends either the wait of the grandchild or, first, that of its
                    // joiner.
                    (
                        own,
                        deeper
                            .map_or_else(|e| e.is_timed_out(), |kind| kind == ErrorKind::TimedOut),
                    )
                });

                let sooner = s.spawn(|| {
                    time::with_timeout(ms(5), || time::sleep(LONG))
                        .expect_err("late")
                        .kind()
                });

                let later = s.spawn(|| {
                    time::with_timeout(LONG, || time::sleep(LONG))
                        .expect_err("late")
                        .kind()
                });

                // The body is under the same deadline; `scope` itself waits whatever happens.
                assert_eq!(
                    time::sleep(LONG).expect_err("late").kind(),
                    ErrorKind::TimedOut
                );
                while !(child.is_finished() && sooner.is_finished() && later.is_finished()) {
                    plainweave::yield_now();
                }
                (child.join(), sooner.join(), later.join())
            })
        });

        assert!(start.elapsed() >= ms(30));
        let (own, deeper) = kinds
            .0
            .expect("a result that is there can be had after the deadline");
        assert_eq!((own, deeper), (ErrorKind::TimedOut, true));
        assert_eq!(kinds.1.expect("as above"), ErrorKind::TimedOut);
        assert_eq!(kinds.2.expect("as above"), ErrorKind::TimedOut);
        time::sleep(ms(1)).expect("the deadline has gone with its block");

        // A detached fiber has none.
        let detached = time::with_timeout(ms(5), || plainweave::spawn(|| time::sleep(ms(20))));
        detached.join().expect("no panic").expect("no deadline");
    });
}

fn scopes_work_from_plain_threads(setup: Setup) {
    let runtime = setup.tested();
    let mut numbers = [1, 2, 3];
    let done = runtime.scope(|s| {
        let handles: Vec<_> = numbers
            .iter_mut()
            .map(|n| {
                s.spawn(move || {
                    pause();
                    *n *= 2;
                })
            })
            .collect();
        handles
            .into_iter()
            .map(|h| h.join().is_ok())
            .collect::<Vec<_>>()
    });

    assert_eq!((numbers, done), ([2, 4, 6], vec![true; 3]));
    let panic = catch_unwind(AssertUnwindSafe(|| {
        runtime.scope(|s| drop(s.spawn(|| panic!("seen"))))
    }));
    assert_eq!(panic_text(&*panic.expect_err("propagated")), "seen");
}

fn children_born_into_a_cancelled_scope_are_cancelled(setup: Setup) {
    setup.tested().run(|| {
        scope(|s| {
            s.cancel();
            for _ in 0..10 {
                let child = s.spawn(|| {
                    plainweave::yield_now();
                    scope(|s| {
                        drop(s.spawn(|| {
                            assert!(is_cancelled(&plainweave::park().expect_err("cancelled")))
                        }))
                    });
                    is_cancelled(&plainweave::park().expect_err("cancelled"))
                });
                assert!(child.join().expect("no panic"));
            }
        });
    });
}

/// Payloads that block or panic when they are dropped.
fn panics_with_nasty_payloads(setup: Setup) {
    struct Nasty(u32);
    impl Drop for Nasty {
        fn drop(&mut self) {
            if !std::thread::panicking() {
                panic!("dropped {}", self.0);
            }
        }
    }
    let runtime = setup.tested_with(setup.builder().workers(1));
    runtime.run(|| {
        for handles_are_kept in [false, true] {
            let panic = catch_unwind(AssertUnwindSafe(|| {
                scope(|s| {
                    let children =
                        [1, 2, 3].map(|n| s.spawn(move || std::panic::panic_any(Nasty(n))));
                    if handles_are_kept {
                        pause();
                    }
                    drop(children);
                })
            }));
            std::mem::forget(panic.expect_err("propagated"));
        }

        let panic = catch_unwind(AssertUnwindSafe(|| {
            scope(|s| {
                s.spawn(|| std::panic::panic_any(Nasty(4)));
                pause();
                panic!("body");
            })
        }));
        assert_eq!(panic_text(&*panic.expect_err("propagated")), "body");
        // Detached ones.
        for n in 0..3 {
            drop(plainweave::spawn(move || std::panic::panic_any(Nasty(n))));
            drop(plainweave::spawn(move || Nasty(n)));
        }

        pause();
    });
    assert_eq!(runtime.run(|| 1), 1, "the worker has survived");
}

/// The canceller's stack does not hold a frame for each.
fn deeply_nested_scopes_are_cancelled(setup: Setup) {
    const DEPTH: usize = 3000;

    fn nest(depth: usize, innermost: &AtomicBool) {
        if depth == 0 {
            innermost.store(true, Ordering::SeqCst);
            assert!(is_cancelled(&time::sleep(LONG).expect_err("cancelled")));
            return;
        }
        scope(|s| drop(s.spawn(|| nest(depth - 1, innermost))));
    }

    let runtime = setup.tested_with(setup.builder().stack_size(128 << 10));
    runtime.run(|| {
        let innermost = AtomicBool::new(false);
        scope(|s| {
            s.spawn(|| nest(DEPTH, &innermost));
            while !innermost.load(Ordering::SeqCst) {
                pause();
            }
            s.cancel();
        });
    });
}

/// More frames than a fiber's own stack holds, on a fiber and on a thread.
#[test]
fn a_big_stack_is_had_for_a_call() {
    fn depth(n: usize) -> usize {
        let frame = std::hint::black_box([n; 512]);
        if n == 0 {
            0
        } else {
            depth(n - 1) + frame[n % 512] / n
        }
    }
    let deep = |levels: usize| plainweave::on_big_stack(128 << 20, || depth(levels));
    assert_eq!(deep(5_000).expect("a stack"), 5_000);
    let runtime = Runtime::builder()
        .workers(1)
        .report_stalls(false)
        .build()
        .expect("a runtime");

    runtime.run(|| {
        assert_eq!(deep(5_000).expect("a stack"), 5_000);
        let panic = catch_unwind(|| plainweave::on_big_stack(1 << 20, || panic!("within")));
        assert_eq!(panic_text(&*panic.expect_err("a panic")), "within");
        for size in [0, 1 << 20 << 11] {
            let error = plainweave::on_big_stack(size, || ()).expect_err("out of range");
            assert_eq!(error.kind(), std::io::ErrorKind::InvalidInput, "{size}");
        }

        // In the caller's place.
        let sleep = || plainweave::time::sleep(Duration::from_secs(1000));
        let late =
            plainweave::time::with_timeout(ms(5), || plainweave::on_big_stack(1 << 20, sleep));
        assert_eq!(
            late.expect("a stack").expect_err("late").kind(),
            std::io::ErrorKind::TimedOut
        );
        let cancelled = plainweave::spawn(move || plainweave::on_big_stack(1 << 20, sleep));
        plainweave::yield_now();
        cancelled.cancel();
        let error = cancelled
            .join()
            .expect("no panic")
            .expect("a stack")
            .expect_err("cancelled");

        assert!(plainweave::is_cancelled(&error));
    });
}
