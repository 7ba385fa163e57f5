//! Futures on fibers, and fibers as futures: how they wait, how they are woken, and how both end.

use std::future::{Future, IntoFuture, pending, poll_fn, ready};
use std::io::ErrorKind;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::task::{Context, Poll, Waker};

use crate::common::*;
use futures_util::future::{join, join_all};
use plainweave::{block_on, is_cancelled, park, spawn, spawn_future, yield_now};

on_every_setup!(
    a_fiber_waits_for_a_future,
    a_wake_up_before_the_wait_counts,
    no_wake_up_is_lost,
    a_future_that_wakes_itself_lets_others_run,
    one_within_another,
    the_token_of_park_is_left_alone,
);

on_every_driver!(
    cancellation_drops_the_future,
    a_deadline_ends_what_never_wakes,
    a_future_that_wakes_itself_for_ever_ends,
    what_is_ready_beats_the_cancellation,
    a_panic_passes_through,
    a_panic_drops_the_future_and_the_fiber_goes_on,
    wakers_outlive_fiber_and_runtime,
    a_spawned_future,
    a_fiber_is_awaited,
    an_awaited_fiber_wakes_the_last_that_polled,
    an_awaited_fiber_that_is_dropped_goes_on,
    a_waker_that_panics_harms_no_fiber,
    a_waker_whose_destructor_panics_leaves_the_future_usable,
    a_waker_whose_destructor_panics_harms_no_fiber,
);

/// Wakes its task each time that it is polled, `left` times.
fn wakes_itself(mut left: usize) -> impl Future<Output = ()> {
    poll_fn(move |cx| {
        if left == 0 {
            return Poll::Ready(());
        }
        left -= 1;
        cx.waker().wake_by_ref();
        Poll::Pending
    })
}

fn a_fiber_waits_for_a_future(setup: Setup) {
    let runtime = setup.workers(1);
    // Woken by a fiber of the same worker, which runs only if the waiting one is suspended.
    runtime.run(|| {
        let gate = Gate::default();
        let opener = spawn({
            let gate = gate.clone();
            move || gate.open()
        });

        block_on(gate).expect("not cancelled");
        opener.join().expect("no panic");
        assert_eq!(block_on(ready(7)).expect("not cancelled"), 7);
    });
    // Woken by a thread.
    let gate = Gate::default();
    let waiting = runtime.spawn({
        let gate = gate.clone();
        move || block_on(gate)
    });

    eventually("the fiber waits", || gate.is_waited_for());
    gate.open();
    waiting.join().expect("no panic").expect("not cancelled");
}

fn a_wake_up_before_the_wait_counts(setup: Setup) {
    setup
        .runtime()
        .run(|| block_on(wakes_itself(100)))
        .expect("not cancelled");
}

fn no_wake_up_is_lost(setup: Setup) {
    let runtime = setup.runtime();
    let rounds = 2000;
    let (to_waker, wakers) = mpsc::channel::<Gate>();

    // One thread and the fibers wake each other as fast as they can.
    let opener = std::thread::spawn(move || wakers.into_iter().for_each(|gate| gate.open()));
    runtime.run(move || {
        for _ in 0..rounds {
            let a = Gate::default();
            let b = Gate::default();
            to_waker.send(a.clone()).expect("it runs");
            let fiber = spawn({
                let b = b.clone();
                move || b.open()
            });

            block_on(join(a, b)).expect("not cancelled");
            fiber.join().expect("no panic");
        }
    });
    opener.join().expect("no panic");
}

fn a_future_that_wakes_itself_lets_others_run(setup: Setup) {
    setup.workers(1).run(|| {
        let ran = Arc::new(AtomicBool::new(false));
        let other = spawn({
            let ran = ran.clone();
            move || ran.store(true, Ordering::Relaxed)
        });

        let until_it_ran = poll_fn(|cx| {
            cx.waker().wake_by_ref();
            if ran.load(Ordering::Relaxed) {
                Poll::Ready(())
            } else {
                Poll::Pending
            }
        });

        block_on(until_it_ran).expect("not cancelled");
        other.join().expect("no panic");
    });
}

fn one_within_another(setup: Setup) {
    setup.workers(1).run(|| {
        let outer = Gate::default();
        let inner = Gate::default();
        let mut begun = false;
        let nested = poll_fn(|_| {
            if begun {
                return Poll::Ready(());
            }
            begun = true;
            // The outer future is woken while the inner call waits.
            let opener = spawn({
                let outer = outer.clone();
                let inner = inner.clone();
                move || {
                    outer.open();
                    inner.open();
                }
            });

            block_on(inner.clone()).expect("not cancelled");
            opener.join().expect("no panic");
            Poll::Ready(())
        });

        block_on(join(outer.clone(), nested)).expect("not cancelled");
    });
}

fn the_token_of_park_is_left_alone(setup: Setup) {
    setup.workers(1).run(|| {
        plainweave::current().unpark();
        block_on(wakes_itself(3)).expect("not cancelled");
        let gate = Gate::default();
        let opener = spawn({
            let gate = gate.clone();
            move || gate.open()
        });

        block_on(gate).expect("not cancelled");
        opener.join().expect("no panic");
        park().expect("the token is still there");
    });
}

fn cancellation_drops_the_future(setup: Setup) {
    let runtime = setup.runtime();
    let gate = Gate::default();
    let counts = Arc::new(Counts::default());
    let fiber = runtime.spawn({
        let (gate, counts, counted) = (gate.clone(), counts.clone(), Counted::new(&counts));
        move || {
            let result = block_on(async move {
                gate.await;
                drop(counted);
            });

            assert!(counts.balanced(), "dropped before it returns");
            result
        }
    });

    eventually("the fiber waits", || gate.is_waited_for());
    fiber.cancel();
    assert!(is_cancelled(
        &fiber.join().expect("no panic").expect_err("cancelled")
    ));

    // A waker of what was dropped.
    gate.open();
}

fn a_deadline_ends_what_never_wakes(setup: Setup) {
    let wait = || plainweave::time::with_timeout(ms(5), || block_on(pending::<()>()));
    let error = setup.runtime().run(wait).expect_err("late");
    assert_eq!(error.kind(), ErrorKind::TimedOut);
    assert_eq!(
        wait().expect_err("late, on a plain thread too").kind(),
        ErrorKind::TimedOut
    );
}

fn a_future_that_wakes_itself_for_ever_ends(setup: Setup) {
    let runtime = setup.workers(1);
    let fiber = runtime.spawn(|| block_on(wakes_itself(usize::MAX)));
    runtime.run(yield_now);
    fiber.cancel();
    assert!(is_cancelled(
        &fiber.join().expect("no panic").expect_err("cancelled")
    ));
    let late = runtime
        .run(|| plainweave::time::with_timeout(ms(5), || block_on(wakes_itself(usize::MAX))));

    assert_eq!(late.expect_err("late").kind(), ErrorKind::TimedOut);
}

fn what_is_ready_beats_the_cancellation(setup: Setup) {
    setup.workers(1).run(|| {
        plainweave::current().cancel();
        assert_eq!(block_on(ready(7)).expect("at once"), 7);
        block_on(wakes_itself(1)).expect("woken, and polled once more");
        assert!(is_cancelled(
            &block_on(wakes_itself(2)).expect_err("cancelled")
        ));
        assert!(is_cancelled(
            &block_on(pending::<()>()).expect_err("cancelled")
        ));
    });
}

fn a_panic_passes_through(setup: Setup) {
    let runtime = setup.runtime();
    let fiber = runtime.spawn(|| block_on(async { panic!("in a future") }).map(|(): ()| ()));
    let payload = fiber
        .join()
        .expect_err("a panic")
        .into_panic()
        .expect("a panic");
    assert_eq!(panic_text(&*payload), "in a future");
}

fn a_panic_drops_the_future_and_the_fiber_goes_on(setup: Setup) {
    setup.runtime().run(|| {
        let counts = Arc::new(Counts::default());
        let counted = Counted::new(&counts);
        let future = async move {
            let _counted = counted;
            wakes_itself(1).await;
            panic!("in a future");
        };

        catch_unwind(AssertUnwindSafe(|| block_on(future).map(|(): ()| ()))).expect_err("a panic");
        assert!(counts.balanced());
        assert_eq!(block_on(ready(7)).expect("not cancelled"), 7);
    });
}

fn wakers_outlive_fiber_and_runtime(setup: Setup) {
    let runtime = setup.runtime();
    let kept = Arc::new(Mutex::new(Vec::<Waker>::new()));
    for never in [false, true] {
        let mut builder = setup.builder();
        if never {
            builder = builder.movement(plainweave::Movement::Never);
        }
        let mortal = setup.check(builder.build().expect("a runtime"));
        let keep = kept.clone();
        mortal.run(move || {
            let mut polls = 0;
            let keeper = poll_fn(|cx| {
                polls += 1;
                keep.lock().expect("no panic").push(cx.waker().clone());
                cx.waker().wake_by_ref();

                if polls == 3 {
                    Poll::Ready(())
                } else {
                    Poll::Pending
                }
            });
            block_on(keeper).expect("not cancelled");
        });

        // The fiber has ended, its runtime lives.
        let wakers = kept.lock().expect("no panic").clone();
        wakers.iter().for_each(Waker::wake_by_ref);
        mortal
            .run(|| block_on(wakes_itself(1)))
            .expect("not cancelled");
        mortal.shutdown(HANG);
        wakers.iter().for_each(Waker::wake_by_ref);
    }

    // Both runtimes are gone: woken, cloned and dropped by a thread, and by a fiber of another
    // runtime.
    let wakers = std::mem::take(&mut *kept.lock().expect("no panic"));
    assert_eq!(wakers.len(), 6);
    let theirs: Vec<_> = wakers.to_vec();
    std::thread::spawn(move || theirs.into_iter().for_each(Waker::wake))
        .join()
        .expect("no panic");
    runtime.run(move || wakers.into_iter().for_each(Waker::wake));
}

fn a_spawned_future(setup: Setup) {
    let runtime = setup.runtime();
    runtime.run(|| {
        let gate = Gate::default();
        let opens = gate.clone();
        let first = spawn_future(async move {
            gate.await;
            7
        });

        let second = spawn_future(async move { opens.open() });
        assert_eq!(first.join().expect("no panic").expect("not cancelled"), 7);
        second.join().expect("no panic").expect("not cancelled");

        let never = spawn_future(pending::<()>());
        never.cancel();
        assert!(is_cancelled(
            &never.join().expect("no panic").expect_err("cancelled")
        ));
    });
    catch_unwind(|| spawn_future(ready(()))).expect_err("no runtime here");
}

fn a_fiber_is_awaited(setup: Setup) {
    setup.workers(1).run(|| {
        let fibers = (0..50).map(|n| {
            spawn(move || {
                (0..n % 3).for_each(|_| yield_now());
                assert_ne!(n, 13, "one panics");
                n
            })
        });

        let results =
            block_on(join_all(fibers.map(IntoFuture::into_future))).expect("not cancelled");
        for (n, result) in results.into_iter().enumerate() {
            match result {
                Ok(value) => assert_eq!(value, n),
                Err(error) => assert!(n == 13 && error.is_panic()),
            }
        }

        let ended = spawn(|| 7);
        while !ended.is_finished() {
            yield_now();
        }
        assert_eq!(
            block_on(ended).expect("not cancelled").expect("no panic"),
            7
        );
    });
}

fn an_awaited_fiber_wakes_the_last_that_polled(setup: Setup) {
    let runtime = setup.runtime();
    let gate = Gate::default();
    let fiber = runtime.spawn({
        let gate = gate.clone();
        move || block_on(gate).map(|()| 7)
    });

    eventually("the fiber waits", || gate.is_waited_for());
    let mut joining = fiber.into_future();
    let first = Arc::new(Gate::default());
    let waker = noted(&first);
    assert!(
        Pin::new(&mut joining)
            .poll(&mut Context::from_waker(&waker))
            .is_pending()
    );
    drop(waker);

    // The second task is a plain thread.
    std::thread::scope(|scope| {
        let second = scope.spawn(|| block_on(joining));
        eventually("the second has taken the first's place", || {
            Arc::strong_count(&first) == 1
        });
        gate.open();
        let value = second
            .join()
            .expect("no panic")
            .expect("no deadline")
            .expect("no panic");
        assert_eq!(value.expect("not cancelled"), 7);
    });

    assert!(
        !first.with(|(open, _)| *open),
        "the first is no longer concerned"
    );
}

/// A waker that opens a gate.
fn noted(gate: &Arc<Gate>) -> Waker {
    struct Opens(Arc<Gate>);
    impl std::task::Wake for Opens {
        fn wake(self: Arc<Self>) {
            self.0.open();
        }
    }
    Waker::from(Arc::new(Opens(gate.clone())))
}

fn an_awaited_fiber_that_is_dropped_goes_on(setup: Setup) {
    let runtime = setup.runtime();
    let gate = Gate::default();
    let done = Gate::default();
    let noting = Arc::new(Gate::default());
    let fiber = runtime.spawn({
        let gate = gate.clone();
        let done = done.clone();
        move || {
            block_on(gate).expect("not cancelled");
            done.open();
        }
    });

    let mut joining = fiber.into_future();
    let waker = noted(&noting);
    assert!(
        Pin::new(&mut joining)
            .poll(&mut Context::from_waker(&waker))
            .is_pending()
    );
    drop((joining, waker));
    assert_eq!(Arc::strong_count(&noting), 1, "the fiber keeps no waker");
    gate.open();
    block_on(done).expect("no deadline");
    assert!(!noting.with(|(open, _)| *open));
}

fn a_waker_that_panics_harms_no_fiber(setup: Setup) {
    struct Panics(AtomicUsize);
    impl std::task::Wake for Panics {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
            panic!("a waker");
        }
    }
    let runtime = setup.workers(1);
    let gate = Gate::default();
    let panics = Arc::new(Panics(AtomicUsize::new(0)));
    let fiber = runtime.spawn({
        let gate = gate.clone();
        move || block_on(gate).map(|()| 7)
    });

    let mut joining = fiber.into_future();
    let waker = Waker::from(panics.clone());
    let mut cx = Context::from_waker(&waker);
    assert!(Pin::new(&mut joining).poll(&mut cx).is_pending());
    gate.open();
    eventually("the waker is called", || {
        panics.0.load(Ordering::SeqCst) == 1
    });
    let Poll::Ready(value) = Pin::new(&mut joining).poll(&mut cx) else {
        panic!("it has ended")
    };

    assert_eq!(
        value.expect("no panic of its own").expect("not cancelled"),
        7
    );
    assert_eq!(runtime.run(|| 7), 7);
}

/// Its destructor panics, and it wakes nobody.
struct PanicsOnDrop;

impl std::task::Wake for PanicsOnDrop {
    fn wake(self: Arc<Self>) {}
}

impl Drop for PanicsOnDrop {
    fn drop(&mut self) {
        panic!("the waker's own panic");
    }
}

/// Polls with a waker of which the fiber then has the only one left.
fn poll_with_a_waker_that_panics<F: Future + Unpin>(future: &mut F) {
    let waker = Waker::from(Arc::new(PanicsOnDrop));
    assert!(
        Pin::new(future)
            .poll(&mut Context::from_waker(&waker))
            .is_pending()
    );
    let kept = catch_unwind(AssertUnwindSafe(|| drop(waker)));
    assert!(kept.is_ok(), "the fiber has one too");
}

/// The next poll drops the waker of the last one, and unwinds; the one after that is as new.
fn a_waker_whose_destructor_panics_leaves_the_future_usable(setup: Setup) {
    let gate = Gate::default();
    let runtime = setup.runtime();
    let waits = gate.clone();
    let mut joining = runtime
        .spawn(move || block_on(waits).map(|()| 7))
        .into_future();
    poll_with_a_waker_that_panics(&mut joining);
    let mut cx = Context::from_waker(Waker::noop());

    assert!(catch_unwind(AssertUnwindSafe(|| Pin::new(&mut joining).poll(&mut cx))).is_err());
    assert!(
        Pin::new(&mut joining).poll(&mut cx).is_pending(),
        "the fiber still waits"
    );
    gate.open();
    let value = block_on(joining)
        .expect("not cancelled")
        .expect("no panic")
        .expect("not cancelled");
    assert_eq!(value, 7);
}

fn a_waker_whose_destructor_panics_harms_no_fiber(setup: Setup) {
    let gate = Gate::default();
    let runtime = setup.workers(1);
    let waits = gate.clone();
    let mut joining = runtime
        .spawn(move || block_on(waits).map(|()| 7))
        .into_future();
    poll_with_a_waker_that_panics(&mut joining);
    gate.open();
    let mut cx = Context::from_waker(Waker::noop());

    // The fiber's end calls and drops the waker.
    eventually("it ends", || runtime.metrics().live_fibers == 0);
    let Poll::Ready(value) = Pin::new(&mut joining).poll(&mut cx) else {
        panic!("it has ended")
    };
    assert_eq!(value.expect("no panic").expect("not cancelled"), 7);
    assert_eq!(runtime.run(|| 1), 1);
}
