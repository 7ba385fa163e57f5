//! Values of a worker, which its fibers share, and code on a worker's storage.

#![expect(
    unsafe_code,
    reason = "tests call what is unsafe, and say at each call why it is sound"
)]

use std::cell::{Cell, RefCell};
use std::collections::HashSet;
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::common::*;
use plainweave::{
    Movement, Runtime, owns_storage, spawn, with_worker_storage, worker_index, yield_now,
};

on_every_driver!(
    fibers_of_a_worker_share_a_value,
    a_fiber_finds_the_value_where_it_runs,
    a_panic_passes_through,
    what_waits_there_blocks_the_thread,
    a_value_is_dropped_with_its_thread,
    shared_storage_is_the_worker_s,
);

fn runtime(setup: Setup, workers: usize) -> Runtime {
    let builder = setup
        .builder()
        .workers(workers)
        .max_workers(workers.max(2))
        .own_storage();
    setup.check(builder.build().expect("a runtime"))
}

fn fibers_of_a_worker_share_a_value(setup: Setup) {
    plainweave::worker_local! {
        static COUNT: Cell<usize> = const { Cell::new(0) };
        static NAMES: RefCell<Vec<Rc<str>>> = RefCell::default();
    }
    let runtime = setup.check(
        setup
            .builder()
            .workers(1)
            .max_workers(1)
            .build()
            .expect("a runtime"),
    );
    for n in 0..100 {
        let count = runtime.run(|| {
            assert!(owns_storage());
            NAMES.with(|names| names.borrow_mut().push("a name".into()));
            COUNT.with(|count| count.replace(count.get() + 1))
        });
        assert_eq!(count, n);
    }

    assert_eq!(
        runtime.run(|| NAMES.with(|names| names.borrow().len())),
        100
    );
    // A plain thread has its own.
    assert!(!owns_storage());
    assert_eq!(COUNT.with(Cell::get), 0);
}

fn a_fiber_finds_the_value_where_it_runs(setup: Setup) {
    plainweave::worker_local!(static WORKER: Cell<Option<usize>> = const { Cell::new(None) });
    let runtime = runtime(setup, 4);
    runtime.run(|| {
        let fibers: Vec<_> = (0..50)
            .map(|_| {
                spawn(|| {
                    for _ in 0..100 {
                        // Nothing suspends in between.
                        let here = worker_index();
                        let known = WORKER.with(|worker| worker.replace(here));
                        assert!(known.is_none() || known == here);
                        yield_now();
                    }
                })
            })
            .collect();
        fibers
            .into_iter()
            .for_each(|fiber| fiber.join().expect("no panic"));
    });
}

fn a_panic_passes_through(setup: Setup) {
    let runtime = runtime(setup, 1);
    runtime.run(|| {
        for _ in 0..3 {
            let panic = std::panic::catch_unwind(|| with_worker_storage(|| panic!("as expected")))
                .expect_err("panics");
            assert_eq!(panic_text(&*panic), "as expected");
            assert!(!std::thread::panicking() && owns_storage());
        }

        // Also while the fiber panics itself.
        struct Counts;
        impl Drop for Counts {
            fn drop(&mut self) {
                assert!(std::thread::panicking());
                assert!(!with_worker_storage(std::thread::panicking));
            }
        }
        let outer = std::panic::catch_unwind(|| {
            let _counts = Counts;
            panic!("as expected too");
        });

        assert_eq!(panic_text(&*outer.expect_err("panics")), "as expected too");
    });
}

/// To this crate the code is a thread's: it finds no fiber, and nothing moves.
fn what_waits_there_blocks_the_thread(setup: Setup) {
    let runtime = runtime(setup, 2);
    runtime.run(|| {
        let here = worker_index();
        let (sender, receiver) = plainweave::sync::channel::bounded(1);
        let sends = spawn(move || sender.send(7).expect("it waits"));
        let (inside, received, nested) = with_worker_storage(|| {
            yield_now();
            (
                worker_index(),
                receiver.recv(),
                with_worker_storage(owns_storage),
            )
        });

        assert_eq!((inside, received.expect("sent"), nested), (None, 7, false));
        assert_eq!(worker_index(), here);
        sends.join().expect("no panic");
    });
}

fn a_value_is_dropped_with_its_thread(setup: Setup) {
    static DROPPED: AtomicUsize = AtomicUsize::new(0);
    struct Counted(#[expect(dead_code, reason = "not Send")] Rc<()>);
    impl Drop for Counted {
        fn drop(&mut self) {
            DROPPED.fetch_add(1, Ordering::SeqCst);
        }
    }
    plainweave::worker_local!(static COUNTED: Counted = Counted(Rc::new(())));
    let before = DROPPED.load(Ordering::SeqCst);
    let runtime = setup.check(
        setup
            .builder()
            .workers(1)
            .max_workers(1)
            .build()
            .expect("a runtime"),
    );

    (0..10).for_each(|_| runtime.run(|| COUNTED.with(|_| ())));
    assert_eq!(DROPPED.load(Ordering::SeqCst), before);
    drop(runtime);
    assert_eq!(DROPPED.load(Ordering::SeqCst), before + 1);
}

fn shared_storage_is_the_worker_s(setup: Setup) {
    plainweave::worker_local!(static SEEN: RefCell<HashSet<u64>> = RefCell::default());
    // SAFETY: no scoped thread-local is held across a suspension.
    let builder = unsafe { setup.builder().workers(1).max_workers(1).shared_storage() };
    let runtime = setup.check(
        builder
            .movement(Movement::BeforeStart)
            .build()
            .expect("a runtime"),
    );

    for n in 0..10 {
        assert!(
            runtime.run(move || !owns_storage() && SEEN.with(|seen| seen.borrow_mut().insert(n)))
        );
    }

    assert_eq!(runtime.run(|| SEEN.with(|seen| seen.borrow().len())), 10);
}
