//! What else `select!` waits for: watched values, broadcast channels, notifications, futures and
//! intervals; and the order of a biased one.

use std::future::poll_fn;
use std::io::ErrorKind;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Poll, Waker};
use std::time::Duration;

use crate::common::*;
use plainweave::sync::{Notify, broadcast, channel, select, watch};
use plainweave::time::{self, interval, interval_at, sleep, with_timeout};
use plainweave::{is_cancelled, spawn, yield_now};

on_every_setup!(
    a_select_waits_for_a_watched_value,
    a_select_receives_what_is_broadcast,
    a_select_waits_for_a_notification,
    notifications_are_not_lost_to_selects,
    every_select_notices_that_all_are_notified,
    a_select_polls_a_future,
    a_lent_future_goes_on_in_the_next_select,
    a_future_that_wakes_itself_does_not_keep_the_others,
    an_interval_keeps_its_pace,
    a_biased_select_takes_the_first,
    cancelled_selects_leave_their_sources,
    threads_wait_for_them_too,
);

const LONG: Duration = Duration::from_secs(3600);

fn a_select_waits_for_a_watched_value(setup: Setup) {
    setup.runtime().run(|| {
        let (level, mut seen) = watch::channel(0);
        let (_never, empty) = channel::bounded::<()>(1);
        let watcher = spawn(move || {
            let mut values = Vec::new();
            loop {
                let changed = select! {
                    changed(seen) -> result => result,
                    recv(empty) -> _ => unreachable!("nothing is sent"),
                };

                match changed.unwrap() {
                    Ok(()) => values.push(*seen.get()),
                    Err(error) => break (values, error.kind()),
                }
            }
        });

        for n in 1..=3 {
            level.send(n);
            sleep(ms(2)).unwrap();
        }

        drop(level);
        let (values, end) = watcher.join().unwrap();
        // It may miss values between, never the last.
        assert!(
            values.last() == Some(&3) && values.is_sorted(),
            "{values:?}"
        );
        assert_eq!(end, ErrorKind::BrokenPipe);
    });
}

fn a_select_receives_what_is_broadcast(setup: Setup) {
    setup.runtime().run(|| {
        let (news, first) = broadcast::channel(1000);
        let receivers = [news.subscribe(), first.resubscribe(), first];
        let fibers = receivers.map(|mut receiver| {
            spawn(move || {
                let (_never, empty) = channel::bounded::<()>(1);
                let mut sum = 0;
                loop {
                    let received = select! {
                        recv(receiver) -> value => value,
                        recv(empty) -> _ => unreachable!("nothing is sent"),
                    };

                    match received.unwrap() {
                        Ok(value) => sum += value,
                        Err(error) => break (sum, error.is_closed()),
                    }
                }
            })
        });

        for n in 0..500_u64 {
            news.send(n);
            if n % 16 == 0 {
                yield_now();
            }
        }

        drop(news);
        for fiber in fibers {
            assert_eq!(fiber.join().unwrap(), (124_750, true));
        }
        // One that has fallen behind learns it here, too.
        let (news, mut late) = broadcast::channel(2);
        (0..5).for_each(|n| assert_eq!(news.send(n), 1));
        let lagged = select!(recv(late) -> value => value.unwrap_err().lagged()).unwrap();
        assert_eq!(lagged, Some(3));
        assert_eq!(select!(recv(late) -> value => value.unwrap()).unwrap(), 3);
        assert!(select!(recv(late) -> value => value.unwrap() == 4, default => false).unwrap());
        assert!(select!(recv(late) -> _ => false, default => true).unwrap());
    });
}

fn a_select_waits_for_a_notification(setup: Setup) {
    setup.runtime().run(|| {
        let notify = Arc::new(Notify::new());
        // One that came before.
        notify.notify_one();
        select!(notified(notify) => (), after(LONG) => unreachable!()).unwrap();
        assert!(select!(notified(notify) => false, default => true).unwrap());
        let waits = notify.clone();
        let waiter = spawn(move || select!(notified(waits) => 1, after(LONG) => 2).unwrap());

        sleep(ms(2)).unwrap();
        notify.notify_one();
        assert_eq!(waiter.join().unwrap(), 1);

        // It was used up.
        assert_eq!(
            with_timeout(ms(2), || notify.wait()).unwrap_err().kind(),
            ErrorKind::TimedOut
        );
        // One that was asked for before all were notified.
        let noticed = notify.notified();
        notify.notify_waiters();
        select!(notified(noticed) => (), after(LONG) => unreachable!()).unwrap();
    });
}

/// Each permit ends one wait: of a plain waiter or of a select, whichever of its branches a select
/// takes.
fn notifications_are_not_lost_to_selects(setup: Setup) {
    const EACH: usize = 200;
    let runtime = setup.runtime();
    let notify = Arc::new(Notify::new());
    let got = Arc::new(AtomicUsize::new(0));
    let (other, others) = channel::bounded::<()>(4);
    let waiters: Vec<_> = (0..6)
        .map(|n| {
            let notify = notify.clone();
            let got = got.clone();
            let others = others.clone();
            runtime.spawn(move || {
                for _ in 0..EACH {
                    if n % 3 == 0 {
                        notify.wait().unwrap();
                    } else {
                        while !select!(notified(notify) => true, recv(others) -> _ => false)
                            .unwrap()
                        {}
                    }
                    got.fetch_add(1, Ordering::SeqCst);
                }
            })
        })
        .collect();

    drop(runtime.spawn(move || while other.send(()).is_ok() {}));

    // The next one only when the last was taken: permits that meet are one.
    for n in 0..6 * EACH {
        notify.notify_one();
        eventually("somebody takes it", || got.load(Ordering::SeqCst) > n);
    }

    waiters
        .into_iter()
        .for_each(|waiter| waiter.join().unwrap());
}

fn every_select_notices_that_all_are_notified(setup: Setup) {
    let runtime = setup.runtime();
    let notify = Arc::new(Notify::new());
    let begun = Arc::new(AtomicUsize::new(0));
    let selects: Vec<_> = (0..20)
        .map(|_| {
            let notify = notify.clone();
            let begun = begun.clone();
            runtime.spawn(move || {
                let noticed = notify.notified();
                begun.fetch_add(1, Ordering::SeqCst);
                select!(notified(noticed) => true, after(LONG) => false).unwrap()
            })
        })
        .collect();
    eventually("all have begun", || begun.load(Ordering::SeqCst) == 20);
    notify.notify_waiters();

    selects
        .into_iter()
        .for_each(|select| assert!(select.join().unwrap()));
}

/// A future that ends once `tell` is called, and counts how often it is polled.
#[derive(Default)]
struct Told {
    told: AtomicBool,
    waker: Mutex<Option<Waker>>,
    polls: AtomicUsize,
}

impl Told {
    fn tell(&self) {
        self.told.store(true, Ordering::SeqCst);
        self.waker
            .lock()
            .unwrap()
            .take()
            .into_iter()
            .for_each(Waker::wake);
    }

    fn future(&self) -> impl Future<Output = &'static str> {
        poll_fn(|cx| {
            self.polls.fetch_add(1, Ordering::SeqCst);
            *self.waker.lock().unwrap() = Some(cx.waker().clone());
            if self.told.load(Ordering::SeqCst) {
                Poll::Ready("told")
            } else {
                Poll::Pending
            }
        })
    }
}

fn a_select_polls_a_future(setup: Setup) {
    setup.runtime().run(|| {
        let ready = select!(future(async { 7 }) -> n => n, after(LONG) => 0);
        assert_eq!(ready.unwrap(), 7);
        let told = Arc::new(Told::default());
        let teller = told.clone();
        let tells = spawn(move || {
            sleep(ms(2)).unwrap();
            teller.tell();
        });

        let end = select!(future(told.future()) -> what => what, after(LONG) => "late");
        assert_eq!(end.unwrap(), "told");
        tells.join().unwrap();

        // It is polled when it is woken, not at every turn of the select.
        assert!(told.polls.load(Ordering::SeqCst) <= 3);
        let never =
            select!(future(std::future::pending::<()>()) -> () => "ended", after(ms(2)) => "late");
        assert_eq!(never.unwrap(), "late");

        // A fiber's handle is a future, and so is what waits for a socket on a thread of its own.
        let fiber = spawn(|| 3);
        assert_eq!(select!(future(fiber) -> end => end.unwrap()).unwrap(), 3);
    });
}

fn a_lent_future_goes_on_in_the_next_select(setup: Setup) {
    setup.runtime().run(|| {
        let told = Arc::new(Told::default());
        let mut future = std::pin::pin!(told.future());
        for _ in 0..5 {
            let end = select!(future(&mut future) -> _ => "told", after(ms(1)) => "late");
            assert_eq!(end.unwrap(), "late");
        }

        told.tell();
        assert_eq!(
            select!(future(&mut future) -> what => what, after(LONG) => "late").unwrap(),
            "told"
        );
    });
}

fn a_future_that_wakes_itself_does_not_keep_the_others(setup: Setup) {
    setup.runtime().run(|| {
        let busy = poll_fn(|cx| {
            cx.waker().wake_by_ref();
            Poll::<()>::Pending
        });

        assert_eq!(
            select!(future(busy) -> () => "ended", after(ms(5)) => "late").unwrap(),
            "late"
        );
    });
}

fn an_interval_keeps_its_pace(setup: Setup) {
    setup.runtime().run(|| {
        let start = time::now();
        let mut ticks = interval_at(start, ms(10));
        assert_eq!(ticks.tick().unwrap(), start, "it has come");
        let due = ticks.next();
        assert!(due >= start + ms(10), "{:?}", due - start);
        assert_eq!(
            select!(tick(ticks) -> at => at, after(LONG) => start).unwrap(),
            due
        );

        // Late by several: one at once, and then the next that has not passed.
        let due = ticks.next();
        sleep(ms(45)).unwrap();
        let awake = time::now();
        assert_eq!(ticks.tick().unwrap(), due);
        let next = ticks.tick().unwrap();

        assert!(next >= awake.max(due + ms(10)), "{:?}", next - start);
        assert_eq!((next - start).as_nanos() % ms(10).as_nanos(), 0);

        // A time that was not waited for is still the next one.
        let mut far = interval(LONG);
        let at = far.next();
        assert_eq!(
            with_timeout(ms(1), || far.tick()).unwrap_err().kind(),
            ErrorKind::TimedOut
        );
        assert_eq!(
            select!(tick(far) -> _ => false, default => true).ok(),
            Some(true)
        );
        assert_eq!(far.next(), at);
        let forever = interval(Duration::MAX);

        assert!(forever.next() > time::now() + LONG);
    });
    assert!(std::panic::catch_unwind(|| interval(Duration::ZERO)).is_err());
}

fn a_biased_select_takes_the_first(setup: Setup) {
    setup.runtime().run(|| {
        let (sender, receiver) = channel::bounded(1);
        let notify = Notify::new();
        for _ in 0..100 {
            sender.send(()).unwrap();
            notify.notify_one();
            let first = select! {
                biased;
                recv(receiver) -> _ => 1,
                notified(notify) => 2,
                after(Duration::ZERO) => 3,
            };

            assert_eq!(first.unwrap(), 1);
            let second = select!(biased; notified(notify), if true => 1, default => 2);
            assert_eq!(second.unwrap(), 1);
        }

        // After a wait, too: both have become ready by the time that it is over.
        let notify = Arc::new(notify);
        let sender = Arc::new(sender);
        let wakes = notify.clone();
        let sends = sender.clone();
        let waker = spawn(move || {
            sleep(ms(2)).unwrap();
            wakes.notify_one();
            sends.send(()).unwrap();
        });

        let chosen =
            select!(biased; recv(receiver) -> _ => 1, notified(notify) => 2, after(LONG) => 3);
        waker.join().unwrap();
        assert!([1, 2].contains(&chosen.unwrap()));
        assert_eq!(select!(biased; default => 5).unwrap(), 5);
    });
}

fn cancelled_selects_leave_their_sources(setup: Setup) {
    setup.runtime().run(|| {
        let (level, seen) = watch::channel(0);
        let (news, heard) = broadcast::channel(4);
        let notify = Arc::new(Notify::new());

        for _ in 0..20 {
            let mut seen = seen.clone();
            let mut heard = heard.resubscribe();
            let notify = notify.clone();
            let told = Told::default();
            let waiter = spawn(move || {
                select! {
                    changed(seen) -> _ => unreachable!(),
                    recv(heard) -> _ => unreachable!(),
                    notified(notify) => unreachable!(),
                    future(told.future()) -> _ => unreachable!(),
                }
            });

            yield_now();
            waiter.cancel();
            let end: std::io::Result<()> = waiter.join().unwrap();
            assert!(is_cancelled(&end.unwrap_err()));
        }

        level.send(1);
        news.send(());
        notify.notify_one();
        notify.wait().unwrap();
    });
}

fn threads_wait_for_them_too(setup: Setup) {
    let runtime = setup.runtime();
    let (level, mut seen) = watch::channel(0);
    let notify = Notify::new();
    let told = Arc::new(Told::default());
    let (teller, (ours, _theirs)) = (told.clone(), connected());
    let tells = runtime.spawn(move || {
        sleep(ms(2)).unwrap();
        level.send(1);
        sleep(ms(2)).unwrap();
        teller.tell();
        level
    });

    select!(changed(seen) -> result => result.unwrap(), notified(notify) => unreachable!())
        .unwrap();
    // Beside a socket the thread waits in another way.
    let end = select!(future(told.future()) -> what => what, readable(ours) => "readable");
    assert_eq!(end.unwrap(), "told");
    drop(tells.join().unwrap());
}
