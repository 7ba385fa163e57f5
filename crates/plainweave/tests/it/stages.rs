//! Stages: what goes in comes out, full queues hold senders up, and failures reach whoever sends.

use std::io::{self, ErrorKind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::common::*;
use plainweave::pools::{Pool, PoolSpec, Pools, Stage};
use plainweave::sync::Semaphore;
use plainweave::{is_cancelled, scope, time};

on_every_driver!(
    items_pass_through_all_stages,
    a_full_stage_holds_its_senders_up,
    a_send_into_a_full_stage_ends_early,
    a_panic_fails_the_senders,
    an_error_travels_back_through_all_stages,
    other_fibers_of_a_stage_that_fails_are_cancelled,
    a_stage_ends_with_its_pool,
    a_join_that_is_cancelled,
);

const LONG: Duration = Duration::from_secs(1000);

fn pools(setup: Setup) -> (Pools, [Pool; 3]) {
    let spec = |name| PoolSpec::new(name).runtime(setup.builder().workers(1));
    let pools =
        Pools::build([spec("first"), spec("second"), spec("third").max_fibers(4)]).expect("pools");
    let all = ["first", "second", "third"].map(|name| pools.get(name).expect("built").clone());
    (pools, all)
}

fn items_pass_through_all_stages(setup: Setup) {
    let (_pools, [first, second, third]) = pools(setup);
    let out = Arc::new(Mutex::new(Vec::new()));
    let sink = out.clone();
    let last = Stage::new(&third, 1, 1, move |n: u64| {
        sink.lock().expect("lock").push(n);
        Ok(())
    });

    let last = last.expect("a stage");
    // From each item two, and from every tenth none.
    let double = |n: u64, next: &plainweave::pools::Next<u64>| {
        if !n.is_multiple_of(10) {
            next.send(n)?;
            plainweave::yield_now();
            next.send(n + 1000)?;
        }
        Ok(())
    };

    let middle = last.fed_by(&second, 3, 4, double).expect("a stage");
    let head = middle
        .fed_by(&first, 2, 2, |n: u32, next| Ok(next.send(u64::from(n))?))
        .expect("a stage");
    let sender = head.sender();
    let fiber = first
        .spawn(move || (0..50).try_for_each(|n| sender.send(n)))
        .expect("open");
    (50..100).for_each(|n| head.send(n).expect("open"));
    fiber.join().expect("no panic").expect("open");
    let ended =
        [head.join(), middle.join(), last.join()].map(|result| result.expect("all is done"));

    assert_eq!(
        ended.map(|m| (m.received, m.done, m.queued, m.failed)),
        [(100, 100, 0, false); 2]
            .into_iter()
            .chain([(180, 180, 0, false)])
            .collect::<Vec<_>>()[..]
    );
    let mut got = std::mem::take(&mut *out.lock().expect("lock"));
    got.sort_unstable();
    let sent = (0..100_u64).filter(|n| n % 10 != 0);

    assert_eq!(
        got,
        sent.clone()
            .chain(sent.map(|n| n + 1000))
            .collect::<Vec<_>>()
    );
}

/// A last stage of one fiber that does an item for each permit.
fn gated(pool: &Pool, capacity: usize) -> (Stage<u32>, Arc<Semaphore>) {
    let gate = Arc::new(Semaphore::new(0));
    let permits = gate.clone();
    let stage = Stage::new(pool, capacity, 1, move |_| {
        permits.acquire()?.forget();
        Ok(())
    });

    (stage.expect("a stage"), gate)
}

fn a_full_stage_holds_its_senders_up(setup: Setup) {
    let (_pools, [first, _, third]) = pools(setup);
    let (last, gate) = gated(&third, 2);
    let head = last
        .fed_by(&first, 3, 1, |n, next| Ok(next.send(n)?))
        .expect("a stage");
    let sent = Arc::new(AtomicU64::new(0));
    let sender = head.sender();
    let count = sent.clone();
    let source = first.spawn(move || {
        for n in 0..100 {
            sender.send(n)?;
            count.fetch_add(1, Ordering::SeqCst);
        }
        io::Result::Ok(())
    });

    // One in work and two queued there, one in hand and three queued here.
    eventually("all is full", || sent.load(Ordering::SeqCst) == 7);
    eventually("both queues are full", || {
        (head.metrics().queued, last.metrics().queued) == (3, 2)
    });
    std::thread::sleep(ms(20));
    assert_eq!(sent.load(Ordering::SeqCst), 7);
    assert_eq!(
        head.sender().try_send(1).expect_err("full").error.kind(),
        ErrorKind::WouldBlock
    );
    assert_eq!((last.metrics().received, last.metrics().done), (3, 0));
    gate.release();
    eventually("one more", || sent.load(Ordering::SeqCst) == 8);
    (0..99).for_each(|_| gate.release());
    source
        .expect("open")
        .join()
        .expect("no panic")
        .expect("sent");
    let head = head.join().expect("done");

    assert!(!head.blocked.is_zero(), "{head:?}");
    let last = last.join().expect("done");
    assert_eq!((last.done, last.blocked), (100, Duration::ZERO));
}

fn a_send_into_a_full_stage_ends_early(setup: Setup) {
    let (_pools, [first, _, third]) = pools(setup);
    let (last, gate) = gated(&third, 1);
    (0..2).for_each(|n| last.send(n).expect("room"));
    let late = time::with_timeout(ms(5), || last.send(2)).expect_err("full");
    assert_eq!((late.item, late.error.kind()), (2, ErrorKind::TimedOut));
    let sender = last.sender();
    let fiber = first.spawn(move || sender.send(3)).expect("open");

    std::thread::sleep(ms(5));
    fiber.cancel();
    let unsent = fiber.join().expect("no panic").expect_err("cancelled");
    assert!(unsent.item == 3 && is_cancelled(&unsent.error));
    gate.release();
    gate.release();
    assert_eq!(last.join().expect("done").received, 2);
}

fn a_panic_fails_the_senders(setup: Setup) {
    let (_pools, [first, _, third]) = pools(setup);
    let stage = Stage::new(&third, 2, 1, |n: u32| {
        assert!(n != 3, "three");
        Ok(())
    });

    let stage = stage.expect("a stage");
    let unsent = (0..).find_map(|n| stage.send(n).err()).expect("it fails");
    assert_eq!(unsent.error.kind(), ErrorKind::BrokenPipe);
    assert_eq!(
        unsent.error.to_string(),
        "the stage on the pool 'third' has failed: its function panicked: three"
    );

    // Those that wait for room hear of it too, and whoever comes later.
    let sender = stage.sender();
    assert!(
        first
            .spawn(move || sender.send(9))
            .expect("open")
            .join()
            .expect("no panic")
            .is_err()
    );
    assert!(stage.metrics().failed);
    let error = stage.join().expect_err("it has failed");
    let lost = u64::from(unsent.item) - 3;
    let text = format!(
        "its function panicked: three; of {} items, {lost} are not done",
        unsent.item
    );

    assert!(error.to_string().ends_with(&text), "{error}");
    assert!(third.spawn(|| ()).is_ok(), "its place is free");
}

fn an_error_travels_back_through_all_stages(setup: Setup) {
    let (_pools, [first, second, third]) = pools(setup);
    let last = Stage::new(&third, 1, 1, |n: u32| {
        if n < 5 {
            Ok(())
        } else {
            Err(io::Error::other("disk full"))
        }
    });

    let last = last.expect("a stage");
    let middle = last
        .fed_by(&second, 1, 1, |n, next| Ok(next.send(n)?))
        .expect("a stage");
    let head = middle
        .fed_by(&first, 1, 1, |n, next| Ok(next.send(n)?))
        .expect("a stage");
    let unsent = (0..).find_map(|n| head.send(n).err()).expect("it fails");
    let text = "the stage on the pool 'first' has failed: the stage on the pool 'second' has failed: \
                the stage on the pool 'third' has failed: disk full";

    assert_eq!(unsent.error.to_string(), text);
    let errors = [head.join(), middle.join(), last.join()]
        .map(|result| result.expect_err("all have failed"));

    assert!(errors[0].to_string().starts_with(text), "{}", errors[0]);
    assert!(
        errors
            .iter()
            .all(|error| error.kind() == ErrorKind::BrokenPipe)
    );
}

fn other_fibers_of_a_stage_that_fails_are_cancelled(setup: Setup) {
    let (_pools, [_, _, third]) = pools(setup);
    let cancelled = Arc::new(AtomicBool::new(false));
    let note = cancelled.clone();
    let begun = Arc::new(Semaphore::new(0));
    let begin = begun.clone();
    let stage = Stage::new(&third, 2, 3, move |wait: bool| {
        if !wait {
            return Err(io::Error::other("on purpose"));
        }
        begin.release();
        let error = time::sleep(LONG).expect_err("cancelled");
        note.store(is_cancelled(&error), Ordering::SeqCst);
        Err(error)
    });

    let stage = stage.expect("a stage");
    stage.send(true).expect("open");
    begun.acquire().expect("begun").forget();

    // One fiber sleeps, one gets this, one waits for an item.
    stage.send(false).expect("open");
    let error = stage.join().expect_err("it has failed").to_string();
    assert!(
        error.ends_with("has failed: on purpose; of 2 items, 2 are not done"),
        "{error}"
    );
    assert!(cancelled.load(Ordering::SeqCst));
}

fn a_stage_ends_with_its_pool(setup: Setup) {
    let (pools, [first, _, third]) = pools(setup);
    let (last, _gate) = gated(&third, 1);
    (0..2).for_each(|n| last.send(n).expect("room"));
    let waiting = last.sender();
    let thread = std::thread::spawn(move || waiting.send(2));
    std::thread::sleep(ms(5));
    drop(pools);
    let unsent = thread.join().expect("no panic").expect_err("it has ended");

    assert_eq!(
        (unsent.item, unsent.error.kind()),
        (2, ErrorKind::BrokenPipe)
    );
    assert_eq!(
        last.send(3).expect_err("it has ended").error.kind(),
        ErrorKind::BrokenPipe
    );
    let error = last.join().expect_err("it has ended").to_string();
    assert!(
        error.contains("runtime is shutting down; of 2 items, 2 are not done"),
        "{error}"
    );
    let none = Stage::new(&first, 1, 1, |_: u8| Ok(())).expect_err("no pool");

    assert_eq!(none.to_string(), "the pool 'first' has ended");
}

fn a_join_that_is_cancelled(setup: Setup) {
    let (_pools, [first, _, third]) = pools(setup);
    let (last, gate) = gated(&third, 1);
    last.send(1).expect("room");
    let sender = last.sender();
    let late = first
        .call(|| scope(|_| time::with_timeout(ms(5), || last.join())))
        .expect("open");

    assert_eq!(late.expect_err("late").kind(), ErrorKind::TimedOut);

    // It goes on, detached.
    gate.release();
    gate.release();
    sender.send(2).expect("open");
}

#[test]
fn what_cannot_be_a_stage() {
    let pools = Pools::build(
        PoolSpec::parse("a:fifo/1")
            .expect("valid")
            .into_iter()
            .map(|spec| spec.max_fibers(3)),
    );
    let pools = pools.expect("pools");
    let pool = pools.get("a").expect("built");
    let text = |capacity, fibers| {
        let error = Stage::new(pool, capacity, fibers, |_: u8| Ok(())).expect_err("refused");
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        error.to_string()
    };

    assert_eq!(
        text(0, 1),
        "a stage on the pool 'a': a queue holds at least 1 item, not 0"
    );
    assert_eq!(
        text(1, 0),
        "a stage on the pool 'a': at least 1 fiber, not 0"
    );
    assert_eq!(
        text(1, 4),
        "a stage on the pool 'a': 4 fibers are more than its limit, 3"
    );
    let last = Stage::new(pool, 1, 1, |_: u8| Ok(())).expect("a stage");
    assert!(
        last.fed_by(pool, 0, 1, |n: u8, next| Ok(next.send(n)?))
            .is_err()
    );
    last.join().expect("nothing to do");
}
