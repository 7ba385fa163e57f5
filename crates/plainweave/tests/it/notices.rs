//! Notify, watch and broadcast: news that one or all of those who wait get, whoever is cancelled
//! meanwhile.

use std::io::ErrorKind;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use crate::common::*;
use plainweave::sync::{Mutex, Notify, broadcast, watch};
use plainweave::time::with_timeout;
use plainweave::{is_cancelled, spawn, yield_now};

on_every_driver!(
    one_notification_is_kept,
    the_longest_waiter_is_notified,
    all_waiters_are_notified_and_no_later_one,
    whoever_asked_before_notices,
    cancelled_waiters_lose_no_notification,
    a_watch_shows_the_latest,
    a_watch_ends_with_its_senders,
    a_sender_learns_that_nobody_watches,
    a_condition_that_panics_leaves_the_watch_usable,
    each_receiver_gets_each_value,
    whoever_falls_behind_is_told,
    a_broadcast_ends_with_its_senders,
    a_broadcast_may_keep_everything,
    values_are_dropped_once_read,
    a_receiver_that_leaves_with_a_backlog_takes_its_time,
    waits_for_news_are_cancelled_and_late,
    cancelled_receivers_miss_nothing,
);

fn one_notification_is_kept(setup: Setup) {
    setup.runtime().run(|| {
        let notify = Notify::new();
        notify.notify_one();
        notify.notify_one();
        notify.wait().unwrap();
        assert_eq!(
            with_timeout(ms(2), || notify.wait()).unwrap_err().kind(),
            ErrorKind::TimedOut
        );
        notify.notify_one();
        plainweave::current().cancel();
        notify.wait().expect("it has come");
        assert!(is_cancelled(&notify.wait().unwrap_err()));
    });
}

fn the_longest_waiter_is_notified(setup: Setup) {
    setup.workers(1).run(|| {
        let notify = Notify::new();
        let order = Mutex::new(Vec::new());
        plainweave::scope(|s| {
            for n in 0..5 {
                let notify = &notify;
                let order = &order;
                s.spawn(move || {
                    notify.wait().unwrap();
                    order.lock().unwrap().push(n);
                });
                pause();
            }

            for n in 1..=5 {
                notify.notify_one();
                while order.lock().unwrap().len() < n {
                    yield_now();
                }
            }
        });
        assert_eq!(order.into_inner(), [0, 1, 2, 3, 4]);
    });
}

fn all_waiters_are_notified_and_no_later_one(setup: Setup) {
    let notify = Arc::new(Notify::new());
    let waiting = Arc::new(AtomicUsize::new(0));
    let wait = || {
        let notify = notify.clone();
        let waiting = waiting.clone();
        move || {
            waiting.fetch_add(1, Ordering::SeqCst);
            notify.wait()
        }
    };

    // One worker: whoever has counted itself waits, when another fiber runs.
    setup
        .check(
            setup
                .builder()
                .workers(1)
                .max_workers(1)
                .build()
                .expect("a runtime"),
        )
        .run(|| {
            let fibers: Vec<_> = (0..10).map(|_| spawn(wait())).collect();
            while waiting.load(Ordering::SeqCst) < 10 {
                yield_now();
            }
            notify.notify_waiters();
            assert_eq!(
                with_timeout(ms(2), || notify.wait()).unwrap_err().kind(),
                ErrorKind::TimedOut
            );
            fibers
                .into_iter()
                .for_each(|fiber| fiber.join().unwrap().unwrap());
        });
    let thread = std::thread::spawn(wait());
    eventually("the thread is notified", || {
        notify.notify_waiters();
        thread.is_finished()
    });
    thread.join().unwrap().unwrap();
}

fn whoever_asked_before_notices(setup: Setup) {
    setup.runtime().run(|| {
        let notify = Notify::new();
        let first = notify.notified();
        let second = notify.notified();
        notify.notify_waiters();
        first.wait().unwrap();
        second.wait().unwrap();
        let third = notify.notified();

        assert_eq!(
            with_timeout(ms(2), || third.wait()).unwrap_err().kind(),
            ErrorKind::TimedOut
        );
        let fourth = notify.notified();

        notify.notify_one();
        fourth.wait().unwrap();
        assert!(
            with_timeout(ms(2), || notify.wait()).is_err(),
            "it was used up"
        );
    });
}

/// As many are woken as were notified, and what is left is kept.
fn cancelled_waiters_lose_no_notification(setup: Setup) {
    let runtime = setup.runtime();
    for seed in 0..100 {
        let notify = Arc::new(Notify::new());
        let fibers = [0, 1].map(|_| {
            let notify = notify.clone();
            runtime.spawn(move || notify.wait().is_ok())
        });

        let theirs = notify.clone();
        let notifier = std::thread::spawn(move || {
            Random::new(seed).spin(30);
            theirs.notify_one();
        });

        Random::new(seed + 1000).spin(30);
        fibers.iter().for_each(plainweave::JoinHandle::cancel);
        let woken: usize = fibers
            .into_iter()
            .map(|fiber| usize::from(fiber.join().unwrap()))
            .sum();
        notifier.join().unwrap();
        let kept = usize::from(with_timeout(ms(1), || notify.wait()).is_ok());

        assert_eq!(woken + kept, 1);
    }
}

fn a_watch_shows_the_latest(setup: Setup) {
    let (sender, receiver) = watch::channel(0_u64);
    let follow = |mut receiver: watch::Receiver<u64>| {
        move || {
            let mut last = 0;
            while last < 1000 {
                receiver.changed().unwrap();
                assert!(!receiver.has_changed() || *receiver.get() > last);
                let value = *receiver.get_and_update();
                assert!(value >= last, "it went back");
                last = value;
            }
        }
    };

    let runtime = setup.runtime();
    let fibers: Vec<_> = (0..3)
        .map(|_| runtime.spawn(follow(receiver.clone())))
        .collect();
    let thread = std::thread::spawn(follow(receiver));
    assert_eq!(*sender.send_replace(1), 0);
    runtime.run(|| {
        for n in 2..=1000 {
            sender.send(n);
            yield_now();
        }
    });
    fibers.into_iter().for_each(|fiber| fiber.join().unwrap());
    thread.join().unwrap();
}

fn a_watch_ends_with_its_senders(setup: Setup) {
    setup.runtime().run(|| {
        let (sender, mut receiver) = watch::channel("first");
        let mut other = receiver.clone();
        let waiter = spawn(move || other.wait_for(|word| *word == "last").map(|word| *word));
        let mut third = sender.subscribe();
        let never = spawn(move || third.wait_for(|word| *word == "never"));
        let second = sender.clone();

        sender.send("last");
        drop(sender);
        assert_eq!(waiter.join().unwrap().unwrap(), "last");
        drop(second);
        assert_eq!(
            never.join().unwrap().unwrap_err().kind(),
            ErrorKind::BrokenPipe
        );
        receiver.changed().expect("the last value was not seen yet");
        assert_eq!(
            receiver.changed().unwrap_err().kind(),
            ErrorKind::BrokenPipe
        );
        assert_eq!(*receiver.get(), "last");
    });
}

fn a_sender_learns_that_nobody_watches(setup: Setup) {
    setup.runtime().run(|| {
        let (sender, receiver) = watch::channel(());
        assert_eq!(
            with_timeout(ms(2), || sender.closed()).unwrap_err().kind(),
            ErrorKind::TimedOut
        );
        let waiting = sender.clone();
        let second = receiver.clone();
        let waiter = spawn(move || waiting.closed());

        drop(receiver);
        assert_eq!(sender.receiver_count(), 1);
        drop(second);
        waiter.join().unwrap().unwrap();
        assert!(sender.is_closed());
        sender.send(());
        assert!(
            !sender.subscribe().has_changed(),
            "it has seen what was there"
        );
    });
}

fn a_condition_that_panics_leaves_the_watch_usable(setup: Setup) {
    setup.runtime().run(|| {
        let (sender, receiver) = watch::channel(1);
        let mut theirs = receiver.clone();
        let fiber = spawn(move || theirs.wait_for(|_| panic!("in the condition")).map(drop));
        assert!(fiber.join().unwrap_err().is_panic());
        sender.send(2);
        assert_eq!((*receiver.get(), sender.receiver_count()), (2, 1));
    });
}

fn each_receiver_gets_each_value(setup: Setup) {
    let (sender, first) = broadcast::channel(64);
    let receivers: Vec<_> = (0..3).map(|_| sender.subscribe()).chain([first]).collect();
    let got = Arc::new(AtomicU64::new(0));
    let receive = |mut receiver: broadcast::Receiver<u64>| {
        let got = got.clone();
        move || {
            let mut last = 0;
            let mut lost = 0;
            loop {
                match receiver.recv() {
                    Ok(value) => {
                        assert_eq!(
                            value,
                            last + lost + 1,
                            "in order, and what is missing is counted"
                        );
                        (last, lost) = (value, 0);
                        got.fetch_add(1, Ordering::SeqCst);
                    }
                    Err(error) if error.is_closed() => break,
                    Err(error) => lost += error.lagged().expect("not cancelled"),
                }
            }

            assert_eq!(last, 2000);
        }
    };

    let runtime = setup.runtime();
    let mut receivers = receivers.into_iter();
    let thread = std::thread::spawn(receive(receivers.next().unwrap()));
    let fibers: Vec<_> = receivers
        .map(|receiver| runtime.spawn(receive(receiver)))
        .collect();
    runtime.run(move || {
        for n in 1..=2000 {
            assert_eq!(sender.send(n), 4);
            if n % 16 == 0 {
                yield_now();
            }
        }
    });
    fibers.into_iter().for_each(|fiber| fiber.join().unwrap());
    thread.join().unwrap();
    assert!(got.load(Ordering::SeqCst) >= 4 * 64);
}

fn whoever_falls_behind_is_told(setup: Setup) {
    setup.runtime().run(|| {
        let (sender, mut slow) = broadcast::channel(2);
        let mut quick = sender.subscribe();
        for n in 0..5 {
            assert_eq!(sender.send(n), 2);
            assert_eq!(quick.recv().unwrap(), n);
        }

        assert_eq!(slow.len(), 2);
        assert_eq!(slow.recv().unwrap_err().lagged(), Some(3));
        assert_eq!([slow.recv().unwrap(), slow.recv().unwrap()], [3, 4]);
        assert!(slow.try_recv().unwrap_err().is_empty());
        assert!(quick.is_empty());
        let mut later = slow.resubscribe();

        sender.send(5);
        assert_eq!(
            [
                later.recv().unwrap(),
                quick.recv().unwrap(),
                slow.recv().unwrap()
            ],
            [5; 3]
        );
    });
}

fn a_broadcast_may_keep_everything(setup: Setup) {
    setup.runtime().run(|| {
        let (sender, mut receiver) = broadcast::channel(usize::MAX);
        (0..10_000).for_each(|n| assert_eq!(sender.send(n), 1));
        (0..10_000).for_each(|n| assert_eq!(receiver.recv().expect("a value"), n));
    });
}

fn a_broadcast_ends_with_its_senders(setup: Setup) {
    setup.runtime().run(|| {
        let (sender, mut receiver) = broadcast::channel(2);
        let second = sender.clone();
        let mut waiting = sender.subscribe();
        let waiter = spawn(move || (waiting.recv().unwrap(), waiting.recv()));
        pause();
        drop(sender);
        second.send(1);
        drop(second);
        let (value, end) = waiter.join().unwrap();

        assert_eq!(value, 1);
        assert!(end.unwrap_err().is_closed());
        assert_eq!(receiver.recv().unwrap(), 1);
        let error = receiver.recv().unwrap_err();
        assert!(error.is_closed());
        assert_eq!(std::io::Error::from(error).kind(), ErrorKind::BrokenPipe);
    });
}

#[derive(Clone)]
struct Shared(#[allow(dead_code)] Arc<Counted>);

fn values_are_dropped_once_read(setup: Setup) {
    setup.runtime().run(|| {
        let counts = Arc::new(Counts::default());
        let value = || Shared(Arc::new(Counted::new(&counts)));
        let (sender, mut first) = broadcast::channel(3);
        let mut second = sender.subscribe();
        sender.send(value());
        drop(first.recv().unwrap());
        assert_eq!(counts.dropped(), 0, "the second has not read it");
        drop(second.recv().unwrap());
        assert!(counts.balanced(), "{counts:?}");
        (0..4).for_each(|_| assert_eq!(sender.send(value()), 2));
        assert_eq!(counts.dropped(), 2, "one is overwritten");
        drop(second);
        assert_eq!(counts.dropped(), 2);
        drop(first);
        assert!(counts.balanced(), "nobody reads them: {counts:?}");
        assert_eq!(sender.send(value()), 0);
        assert!(counts.balanced());
    });
}

fn waits_for_news_are_cancelled_and_late(setup: Setup) {
    type Call = (
        &'static str,
        Box<dyn FnOnce() -> std::io::Result<()> + Send>,
    );
    let waits = || -> [Call; 5] {
        let notify = Notify::new();
        let also = Notify::new();
        let (setter, mut watcher) = watch::channel(());
        let (watched, watching) = watch::channel(());
        let (sender, mut receiver) = broadcast::channel::<()>(1);
        [
            ("notify", Box::new(move || notify.wait())),
            ("notified", Box::new(move || also.notified().wait())),
            ("changed", Box::new(move || (watcher.changed(), setter).0)),
            ("closed", Box::new(move || (watched.closed(), watching).0)),
            (
                "recv",
                Box::new(move || (receiver.recv().map_err(Into::into), sender).0),
            ),
        ]
    };

    let runtime = setup.runtime();
    for (name, call) in waits() {
        let fiber = runtime.spawn(call);
        std::thread::sleep(ms(2));
        fiber.cancel();
        assert!(
            is_cancelled(&fiber.join().unwrap().expect_err(name)),
            "{name}"
        );
    }

    for (name, call) in waits() {
        let late = runtime.run(|| with_timeout(ms(2), call)).expect_err(name);
        assert_eq!(late.kind(), ErrorKind::TimedOut, "{name}");
    }

    for (name, call) in waits() {
        assert_eq!(
            with_timeout(ms(2), call).expect_err(name).kind(),
            ErrorKind::TimedOut,
            "{name} on a thread"
        );
    }
}

/// A receiver whose waits are cut short sees the same values as one that is left alone.
fn cancelled_receivers_miss_nothing(setup: Setup) {
    let (sender, mut receiver) = broadcast::channel(1 << 12);
    let (setter, mut watcher) = watch::channel(0_u64);
    let done = Arc::new(AtomicBool::new(false));
    let rounds = Arc::new(AtomicUsize::new(0));
    let runtime = setup.runtime();
    let ended = done.clone();
    let hasty = runtime.spawn(move || {
        let mut next = 0;
        let mut last = 0;
        while !ended.load(Ordering::SeqCst) || next < 2000 || last < 2000 {
            match with_timeout(ms(0), || receiver.recv()) {
                Ok(value) => {
                    assert_eq!(value, next);
                    next += 1;
                }
                Err(error) => assert!(error.is_timed_out(), "{error}"),
            }

            match with_timeout(ms(0), || watcher.changed()) {
                Ok(()) => last = *watcher.get_and_update(),
                Err(error) => assert_eq!(error.kind(), ErrorKind::TimedOut),
            }

            rounds.fetch_add(1, Ordering::SeqCst);
        }
        (next, last)
    });

    let mut random = Random::new(1);
    for n in 0..2000 {
        sender.send(n);
        setter.send(n + 1);
        random.spin(10);
    }

    done.store(true, Ordering::SeqCst);
    assert_eq!(hasty.join().unwrap(), (2000, 2000));
}

/// Its destructor gives way, and counts.
#[derive(Clone)]
struct Slow(u64, Arc<AtomicU64>);

impl Drop for Slow {
    fn drop(&mut self) {
        self.1.fetch_add(1, Ordering::SeqCst);
        yield_now();
    }
}

/// While one receiver gives up what it has not got, another gets values that were sent later.
fn a_receiver_that_leaves_with_a_backlog_takes_its_time(setup: Setup) {
    setup.workers(1).run(|| {
        let dropped = Arc::new(AtomicU64::new(0));
        let value = |n| Slow(n, dropped.clone());
        let (sender, mut stays) = broadcast::channel(8);
        let leaves = sender.subscribe();
        sender.send(value(0));
        let zero = stays.recv().unwrap();

        sender.send(value(1));
        let leaving = spawn(move || drop(leaves));

        while dropped.load(Ordering::SeqCst) == 0 {
            yield_now();
        }
        sender.send(value(2));
        let later: Vec<_> = (0..2).map(|_| stays.recv().unwrap()).collect();
        assert_eq!((zero.0, later[0].0, later[1].0), (0, 1, 2));
        leaving.join().unwrap();
        sender.send(value(3));
        assert_eq!(stays.recv().unwrap().0, 3);
        assert!(stays.try_recv().is_err_and(|error| error.is_empty()) && stays.is_empty());
    });
}
