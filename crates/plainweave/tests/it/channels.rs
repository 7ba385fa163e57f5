//! Channels beyond `sync.rs`: rendezvous, timeouts, iterators, and what both halves say of
//! themselves.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use crate::common::*;
use plainweave::sync::channel;
use plainweave::time::with_timeout;
use plainweave::{is_cancelled, spawn, yield_now};

on_every_setup!(
    a_rendezvous_send_returns_when_its_value_is_taken,
    a_rendezvous_try_needs_a_waiting_peer,
    rendezvous_values_are_received_once_and_in_order,
    rendezvous_waiters_are_served_in_order,
    a_closed_rendezvous_returns_its_values,
    a_cancelled_rendezvous_sends_or_keeps,
    a_timeout_ends_a_send_and_a_receive,
    a_receiver_is_iterated,
    an_iteration_ends_when_it_is_cancelled,
    both_halves_tell_the_state,
    a_panicking_waiter_leaves_the_channel_usable,
);

fn a_rendezvous_send_returns_when_its_value_is_taken(setup: Setup) {
    setup.workers(1).run(|| {
        let (sender, receiver) = channel::bounded(0);
        let sent = Arc::new(AtomicBool::new(false));
        let done = sent.clone();
        let fiber = spawn(move || {
            sender.send(1).unwrap();
            done.store(true, Ordering::SeqCst);
        });

        (0..10).for_each(|_| yield_now());
        assert!(!sent.load(Ordering::SeqCst), "nobody has taken it");
        assert_eq!(receiver.recv().unwrap(), 1);
        fiber.join().unwrap();
        assert!(sent.load(Ordering::SeqCst));
        assert!(receiver.recv().unwrap_err().is_closed());
    });
}

fn a_rendezvous_try_needs_a_waiting_peer(setup: Setup) {
    setup.workers(1).run(|| {
        let (sender, receiver) = channel::bounded(0);
        assert!(
            sender
                .try_send(1)
                .is_err_and(|e| e.is_full() && e.into_inner() == 1)
        );
        assert!(receiver.try_recv().is_err_and(|e| e.is_empty()));
        let other = receiver.clone();
        let theirs = sender.clone();
        let waits = spawn(move || other.recv().unwrap());

        (0..3).for_each(|_| yield_now());
        sender.try_send(2).expect("one waits");
        assert!(
            sender.try_send(3).unwrap_err().is_full(),
            "it has its value"
        );
        assert_eq!(waits.join().unwrap(), 2);
        let waits = spawn(move || theirs.send(4).unwrap());

        (0..3).for_each(|_| yield_now());
        assert_eq!(receiver.try_recv().expect("one waits"), 4);
        assert!(
            receiver.try_recv().unwrap_err().is_empty(),
            "its value is gone"
        );
        waits.join().unwrap();
    });
}

fn rendezvous_values_are_received_once_and_in_order(setup: Setup) {
    let (sender, receiver) = channel::bounded(0);
    let sum = Arc::new(AtomicU64::new(0));
    let send = |from: usize, sender: channel::Sender<(usize, u64)>| {
        (1..=500).for_each(|n| sender.send((from, n)).unwrap())
    };
    let receive = |sum: Arc<AtomicU64>, receiver: channel::Receiver<(usize, u64)>| {
        let mut last = [0; 3];
        for (from, n) in receiver {
            assert!(n > last[from], "out of order");
            last[from] = n;
            sum.fetch_add(n, Ordering::Relaxed);
        }
    };

    let to = sender.clone();
    let of = receiver.clone();
    let total = sum.clone();
    let threads = [
        std::thread::spawn(move || send(0, to)),
        std::thread::spawn(move || receive(total, of)),
    ];
    let total = sum.clone();

    setup.runtime().run(move || {
        let to = sender.clone();
        let of = receiver.clone();
        let theirs = total.clone();
        let fibers = [
            spawn(move || send(1, to)),
            spawn(move || send(2, sender)),
            spawn(move || receive(theirs, of)),
            spawn(move || receive(total, receiver)),
        ];
        fibers.into_iter().for_each(|f| f.join().unwrap());
    });
    threads.into_iter().for_each(|t| t.join().unwrap());
    assert_eq!(sum.load(Ordering::Relaxed), 3 * 125_250);
}

fn rendezvous_waiters_are_served_in_order(setup: Setup) {
    setup.workers(1).run(|| {
        let (sender, receiver) = channel::bounded(0);
        let fibers: Vec<_> = (0..5)
            .map(|n| {
                let sender = sender.clone();
                let fiber = spawn(move || sender.send(n).unwrap());
                // It waits before the next is there.
                (0..2).for_each(|_| yield_now());
                fiber
            })
            .collect();
        let got: Vec<_> = (0..5).map(|_| receiver.recv().unwrap()).collect();
        assert_eq!(got, [0, 1, 2, 3, 4]);
        fibers.into_iter().for_each(|f| f.join().unwrap());
    });
}

fn a_closed_rendezvous_returns_its_values(setup: Setup) {
    let counts = Arc::new(Counts::default());
    setup.runtime().run(|| {
        let (sender, receiver) = channel::bounded(0);
        let blocked: Vec<_> = (0..3)
            .map(|_| {
                let sender = sender.clone();
                let value = Counted::new(&counts);
                spawn(move || sender.send(value))
            })
            .collect();
        pause();
        drop(receiver);

        for fiber in blocked {
            let error = fiber.join().unwrap().expect_err("closed");
            assert!(error.is_closed());
            drop(error.into_inner());
        }

        assert!(
            sender
                .try_send(Counted::new(&counts))
                .unwrap_err()
                .is_closed()
        );
        let (sender, receiver) = channel::bounded::<()>(0);
        let blocked = spawn(move || receiver.recv());
        pause();
        drop(sender);
        assert!(blocked.join().unwrap().unwrap_err().is_closed());
    });
    assert!(counts.balanced(), "{counts:?}");
}

/// Senders and receivers that are cancelled at any moment: every value was received, or came back.
fn a_cancelled_rendezvous_sends_or_keeps(setup: Setup) {
    let runtime = setup.runtime();
    let counts = Arc::new(Counts::default());
    let sent = Arc::new(AtomicUsize::new(0));
    let got = Arc::new(AtomicUsize::new(0));

    // On a busy machine all fibers of many rounds are cancelled before they run.
    let wanted = |round| round < 100 || (round < 10_000 && sent.load(Ordering::SeqCst) == 0);
    for round in (0..).take_while(|&round| wanted(round)) {
        let (sender, receiver) = channel::bounded(0);
        let mut random = Random::new(round + 1);
        let fibers: Vec<_> = (0..8)
            .map(|n| {
                let sender = sender.clone();
                let receiver = receiver.clone();
                let made = counts.clone();
                let sent = sent.clone();
                let got = got.clone();
                runtime.spawn(move || {
                    if n % 2 == 0 {
                        while sender.send(Counted::new(&made)).is_ok() {
                            sent.fetch_add(1, Ordering::SeqCst);
                        }
                    } else {
                        while with_timeout(Duration::from_micros(200), || receiver.recv()).is_ok() {
                            got.fetch_add(1, Ordering::SeqCst);
                        }
                    }
                })
            })
            .collect();
        drop((sender, receiver));
        for fiber in &fibers {
            random.spin(50);
            fiber.cancel();
        }

        fibers.into_iter().for_each(|fiber| fiber.join().unwrap());
    }

    assert_eq!(got.load(Ordering::SeqCst), sent.load(Ordering::SeqCst));
    assert!(sent.load(Ordering::SeqCst) > 0, "none has met");
    assert!(counts.balanced(), "{counts:?}");
}

fn a_timeout_ends_a_send_and_a_receive(setup: Setup) {
    let check = || {
        for bound in [0, 1] {
            let (sender, receiver) = channel::bounded(bound);
            let error = receiver.recv_timeout(ms(2)).expect_err("empty");
            assert!(error.is_timed_out(), "{error}");
            (0..bound).for_each(|n| sender.send_timeout(n, ms(2)).expect("room"));
            let error = sender.send_timeout(9, ms(2)).expect_err("full");
            assert!(error.is_timed_out(), "{error}");
            assert_eq!(error.into_inner(), 9);

            // The value that did not go is not there either.
            assert_eq!(receiver.try_iter().count(), bound);
        }

        let (sender, receiver) = channel::bounded(1);
        sender
            .send_timeout(1, Duration::ZERO)
            .expect("room needs no time");
        assert_eq!(
            receiver
                .recv_timeout(Duration::ZERO)
                .expect("nor does a value"),
            1
        );
        assert_eq!(
            sender
                .send_timeout(2, Duration::MAX)
                .map(|()| receiver.recv_timeout(Duration::MAX).unwrap())
                .unwrap(),
            2
        );
    };

    setup.runtime().run(check);
    check();
}

fn a_receiver_is_iterated(setup: Setup) {
    setup.runtime().run(|| {
        let (sender, receiver) = channel::bounded(2);
        let fiber = spawn(move || (0..10).for_each(|n| sender.send(n).unwrap()));
        let mut seen = Vec::new();

        for n in &receiver {
            seen.push(n);
            if n == 3 {
                break;
            }
        }

        seen.extend(receiver.iter().take(2));
        seen.extend(receiver);
        assert_eq!(seen, (0..10).collect::<Vec<_>>());
        fiber.join().unwrap();
        let (sender, receiver) = channel::unbounded();
        (0..3).for_each(|n| sender.send(n).unwrap());
        assert_eq!(
            receiver.try_iter().collect::<Vec<_>>(),
            [0, 1, 2],
            "and it does not wait for more"
        );
    });
}

fn an_iteration_ends_when_it_is_cancelled(setup: Setup) {
    setup.runtime().run(|| {
        for bound in [0, 1] {
            let (sender, receiver) = channel::bounded::<u8>(bound);
            let fiber = spawn(move || {
                let received = receiver.iter().count();
                (received, receiver.recv().map_err(std::io::Error::from))
            });

            pause();
            fiber.cancel();
            let (received, after) = fiber.join().unwrap();
            assert_eq!(received, 0);
            assert!(is_cancelled(&after.expect_err("cancelled")));
            drop(sender);
        }
    });
}

fn both_halves_tell_the_state(_: Setup) {
    let (sender, receiver) = channel::bounded(2);
    assert_eq!((sender.capacity(), receiver.capacity()), (Some(2), Some(2)));
    assert!(sender.is_empty() && receiver.is_empty() && !sender.is_full() && !receiver.is_full());
    (0..2).for_each(|n| sender.send(n).unwrap());
    assert_eq!((sender.len(), receiver.len()), (2, 2));
    assert!(sender.is_full() && receiver.is_full() && !receiver.is_empty());
    let other = sender.clone();

    drop(sender);
    assert!(!receiver.is_closed() && !other.is_closed());
    drop(other);
    assert!(receiver.is_closed(), "with values left");
    assert_eq!(receiver.iter().count(), 2);
    let (sender, receiver) = channel::unbounded::<u8>();

    assert_eq!(sender.capacity(), None);
    assert!(!sender.is_full());
    drop(receiver);
    assert!(sender.is_closed());
    let (sender, receiver) = channel::bounded::<u8>(0);

    assert_eq!((sender.capacity(), sender.len()), (Some(0), 0));
    assert!(receiver.is_empty() && receiver.is_full());
}

/// Waits in a destructor while it panics: the wait is as any other, and its end leaves the channel
/// as it should be.
fn a_panicking_waiter_leaves_the_channel_usable(setup: Setup) {
    struct Receives(channel::Receiver<u32>, channel::Sender<u32>);
    impl Drop for Receives {
        fn drop(&mut self) {
            self.1.send(self.0.recv().unwrap() + 1).unwrap();
        }
    }
    setup.runtime().run(|| {
        for bound in [0, 1] {
            let (to, there) = channel::bounded(bound);
            let (back, from) = channel::bounded(bound);
            let fiber = spawn(move || {
                let _receives = Receives(there, back);
                panic!("with a receiver");
            });

            pause();
            to.send(1).unwrap();
            assert_eq!(from.recv().unwrap(), 2);
            assert!(fiber.join().unwrap_err().is_panic());
            assert!(from.recv().unwrap_err().is_closed());
            assert!(to.send(3).unwrap_err().is_closed());
        }
    });
}
