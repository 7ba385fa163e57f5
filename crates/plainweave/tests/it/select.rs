//! `select!`: what is chosen, what losing branches keep, cancellation, and selects that meet each
//! other.

use std::io::ErrorKind;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::common::*;
use plainweave::sync::{channel, select};
use plainweave::time::with_timeout;
use plainweave::{Runtime, is_cancelled, spawn, yield_now};

on_every_setup!(
    a_ready_branch_is_chosen,
    each_ready_branch_is_chosen_at_times,
    a_default_is_chosen_when_nothing_is_ready,
    a_select_waits_for_the_first,
    a_timer_is_chosen_when_its_time_has_come,
    a_closed_channel_is_ready,
    a_losing_send_keeps_what_it_was_lent,
    a_select_is_cancelled_or_late,
    what_is_ready_is_given_also_to_the_cancelled,
    losing_branches_lose_nothing,
    cancelled_selects_lose_nothing,
    selects_meet_on_rendezvous_channels,
    cancelled_selects_on_rendezvous_channels_lose_nothing,
    a_select_never_meets_itself,
    a_plain_waiter_and_selects_all_make_progress,
    bodies_return_break_and_panic,
    threads_select_too,
    a_panicking_fiber_selects_for_a_bounded_time,
    a_disabled_branch_is_not_chosen,
    conditions_come_before_arguments,
    a_select_without_an_enabled_branch_is_refused,
);

fn a_ready_branch_is_chosen(setup: Setup) {
    setup.runtime().run(|| {
        let (sender, receiver) = channel::bounded(1);
        let (_never, empty) = channel::bounded::<u8>(1);
        let sent = select! {
            send(sender, 7) -> result => result.is_ok(),
            recv(empty) -> _ => false,
        };

        assert!(sent.unwrap());
        let got = select! {
            recv(empty) -> _ => unreachable!(),
            send(sender, 8) -> _ => unreachable!("full"),
            recv(receiver) -> result => result.unwrap(),
        };

        assert_eq!(got.unwrap(), 7);
    });
}

fn each_ready_branch_is_chosen_at_times(setup: Setup) {
    setup.runtime().run(|| {
        let channels: Vec<_> = (0..4).map(|_| channel::bounded(1)).collect();
        let [a, b, c, d] = &channels[..] else {
            unreachable!()
        };
        a.0.send(()).unwrap();
        b.0.send(()).unwrap();
        let mut counts = [0; 4];

        for _ in 0..2000 {
            let chosen = select! {
                recv(a.1) -> result => { result.unwrap(); a.0.send(()).unwrap(); 0 }
                recv(b.1) -> result => { result.unwrap(); b.0.send(()).unwrap(); 1 }
                send(c.0, ()) -> result => { result.unwrap(); c.1.recv().unwrap(); 2 }
                recv(d.1) -> _ => 3,
                after(Duration::ZERO) => 3,
            };
            counts[chosen.unwrap()] += 1;
        }

        // Each is expected 500 times.
        assert!(counts.iter().all(|n| (350..650).contains(n)), "{counts:?}");
    });
}

fn a_default_is_chosen_when_nothing_is_ready(setup: Setup) {
    setup.runtime().run(|| {
        let (sender, receiver) = channel::bounded(0);
        for _ in 0..10 {
            let chosen = select! {
                send(sender, 1) -> _ => "sent",
                recv(receiver) -> _ => "received",
                default => "neither",
            };
            assert_eq!(chosen.unwrap(), "neither");
        }

        let (sender, receiver) = channel::bounded(1);
        sender.send(5).unwrap();
        let chosen = select! {
            recv(receiver) -> result => result.unwrap(),
            default => 0,
        };

        assert_eq!(chosen.unwrap(), 5);
        assert_eq!(select! { default => 3 }.unwrap(), 3);
    });
}

fn a_select_waits_for_the_first(setup: Setup) {
    setup.runtime().run(|| {
        for bound in [0, 1, 5] {
            for first in 0..2 {
                let channels = [channel::bounded(bound), channel::bounded(bound)];
                let receivers = channels.each_ref().map(|(_, receiver)| receiver.clone());
                let fiber = spawn(move || {
                    select! {
                        recv(receivers[0]) -> result => (0, result.unwrap()),
                        recv(receivers[1]) -> result => (1, result.unwrap()),
                    }
                    .unwrap()
                });

                pause();
                channels[first].0.send(9).unwrap();
                assert_eq!(fiber.join().unwrap(), (first, 9));
            }

            // The same for senders, which wait for room.
            let (sender, receiver) = channel::bounded(bound);
            (0..bound).for_each(|n| sender.send(n).unwrap());
            let (_never, empty) = channel::bounded::<u8>(0);
            let fiber = spawn(move || {
                select! {
                    recv(empty) -> _ => false,
                    send(sender, 100) -> result => result.is_ok(),
                }
                .unwrap()
            });

            pause();
            assert_eq!(receiver.iter().last(), Some(100));
            assert!(fiber.join().unwrap());
        }
    });
}

fn a_timer_is_chosen_when_its_time_has_come(setup: Setup) {
    let check = || {
        let (_sender, receiver) = channel::bounded::<u8>(1);
        let start = Instant::now();
        let chosen = select! {
            recv(receiver) -> _ => "received",
            after(Duration::from_secs(3600)) => "an hour",
            after(ms(3)) => "a moment",
        };

        assert_eq!(chosen.unwrap(), "a moment");
        assert!(start.elapsed() >= ms(3));
        let chosen = select! {
            recv(receiver) -> _ => "received",
            at(plainweave::time::now() + ms(1)) => "in time",
            after(Duration::MAX) => "never",
        };

        assert_eq!(chosen.unwrap(), "in time");
    };

    setup.runtime().run(check);
    check();
}

fn a_closed_channel_is_ready(setup: Setup) {
    setup.runtime().run(|| {
        for bound in [0, 1] {
            let (sender, receiver) = channel::bounded::<u8>(bound);
            let (full, never_received) = channel::bounded(0);
            let waits = spawn(move || {
                select! {
                    recv(receiver) -> result => result.expect_err("closed").is_closed(),
                    send(full, 1) -> _ => false,
                }
                .unwrap()
            });

            pause();
            drop(sender);
            assert!(waits.join().unwrap());
            drop(never_received);
            let (sender, receiver) = channel::bounded(bound);
            (0..bound).for_each(|_| sender.send(0).unwrap());
            let waits = spawn(move || {
                select! {
                    send(sender, 7) -> result => result.expect_err("closed"),
                    after(Duration::from_secs(60)) => unreachable!(),
                }
                .unwrap()
            });

            pause();
            drop(receiver);
            let error = waits.join().unwrap();
            assert!(error.is_closed());
            assert_eq!(error.into_inner(), 7);
        }
    });
}

fn a_losing_send_keeps_what_it_was_lent(setup: Setup) {
    setup.runtime().run(|| {
        for bound in [0, 1] {
            let (sender, receiver) = channel::bounded(bound);
            (0..bound).for_each(|_| sender.send(Box::new(0)).unwrap());
            let mut slot = Some(Box::new(7));
            let lost = select! {
                send(sender, &mut slot) -> _ => false,
                after(ms(1)) => true,
            };

            assert!(lost.unwrap());
            assert_eq!(slot.as_deref(), Some(&7), "after a wait");
            let lost = select! {
                send(sender, &mut slot) -> _ => false,
                default => true,
            };

            assert!(lost.unwrap() && slot.is_some());
            let fiber = spawn(move || receiver.iter().last().unwrap());
            let sent = select! { send(sender, &mut slot) -> result => result.is_ok() };
            assert!(sent.unwrap() && slot.is_none());

            // With nothing to send, the branch cannot be done.
            let idle = select! {
                send(sender, &mut slot) -> _ => false,
                after(ms(1)) => true,
            };

            assert!(idle.unwrap());
            drop(sender);
            assert_eq!(*fiber.join().unwrap(), 7);
        }
    });
}

fn a_select_is_cancelled_or_late(setup: Setup) {
    let runtime = setup.runtime();
    let wait = || {
        let (full, _never_received) = channel::bounded(0);
        let (_never_sent, empty) = channel::bounded::<u8>(1);
        select! {
            recv(empty) -> _ => (),
            send(full, 1) -> _ => (),
            after(Duration::from_secs(3600)) => (),
        }
    };

    for already in [true, false] {
        let fiber = runtime.spawn(move || {
            if already {
                plainweave::current().cancel();
            }
            wait()
        });

        if !already {
            std::thread::sleep(ms(2));
            fiber.cancel();
        }

        assert!(is_cancelled(&fiber.join().unwrap().expect_err("cancelled")));
    }

    let error = runtime.run(|| with_timeout(ms(2), wait)).expect_err("late");
    assert_eq!(error.kind(), ErrorKind::TimedOut);
    assert_eq!(
        with_timeout(ms(2), wait).expect_err("late").kind(),
        ErrorKind::TimedOut
    );
}

fn what_is_ready_is_given_also_to_the_cancelled(setup: Setup) {
    setup.runtime().run(|| {
        let fiber = spawn(|| {
            plainweave::current().cancel();
            let (sender, receiver) = channel::bounded(1);
            select! { send(sender, 1) -> result => result.unwrap() }.unwrap();
            let (_other, empty) = channel::bounded::<u8>(0);
            let got = select! {
                recv(empty) -> _ => 0,
                recv(receiver) -> result => result.unwrap(),
            };

            assert_eq!(got.unwrap(), 1);
            assert_eq!(select! { recv(empty) -> _ => 0, default => 2 }.unwrap(), 2);
            assert_eq!(
                select! { recv(empty) -> _ => 0, after(Duration::ZERO) => 3 }.unwrap(),
                3
            );
        });
        fiber.join().unwrap();
    });
}

/// Two sources, several selects over both beside plain receivers: each value arrives once.
fn losing_branches_lose_nothing(setup: Setup) {
    const EACH: u64 = 2000;
    for bound in [0, 1, 3] {
        let (a, from_a) = channel::bounded(bound);
        let (b, from_b) = channel::bounded(bound);
        let total = setup.runtime().run(move || {
            let receivers: Vec<_> = (0..4)
                .map(|n| {
                    let from_a = from_a.clone();
                    let from_b = from_b.clone();
                    spawn(move || {
                        if n == 3 {
                            return from_a.iter().sum::<u64>();
                        }
                        let mut sum = 0;

                        let mut closed = [false; 2];
                        while closed != [true; 2] {
                            select! {
                                recv(from_a) -> result => result.map_or_else(|_| closed[0] = true, |n| sum += n),
                                recv(from_b) -> result => result.map_or_else(|_| closed[1] = true, |n| sum += n),
                            }
                            .unwrap();
                        }

                        sum
                    })
                })
                .collect();
            drop((from_a, from_b));
            let senders = [a, b].map(|sender| spawn(move || (1..=EACH).for_each(|n| sender.send(n).unwrap())));
            senders.into_iter().for_each(|fiber| fiber.join().unwrap());
            receivers.into_iter().map(|fiber| fiber.join().unwrap()).sum::<u64>()
        });

        assert_eq!(total, EACH * (EACH + 1), "bound {bound}");
    }
}

/// Selects that receive and send beside each other, each cancelled at some moment.
fn storm(runtime: &Runtime, bound: usize) {
    let counts = Arc::new(Counts::default());
    let sent = Arc::new(AtomicUsize::new(0));
    let got = Arc::new(AtomicUsize::new(0));
    let count = |counter: &AtomicUsize, done: bool| {
        counter.fetch_add(usize::from(done), Ordering::SeqCst);
    };

    // On a busy machine all may be cancelled before they have begun, in one round or in many.
    let is_enough = |round, sent: &AtomicUsize| match sent.load(Ordering::SeqCst) {
        0 => round >= 10_000,
        _ => round >= 60,
    };

    for round in (0..).take_while(|&round| !is_enough(round, &sent)) {
        let a = channel::bounded(bound);
        let b = channel::bounded(bound);
        let mut random = Random::new(round + 1);
        let fibers: Vec<_> = (0..8)
            .map(|n| {
                let (to, from) = if n % 2 == 0 {
                    (&a.0, &b.1)
                } else {
                    (&b.0, &a.1)
                };

                let to = to.clone();
                let from = from.clone();
                let made = counts.clone();
                let sent = sent.clone();
                let got = got.clone();
                runtime.spawn(move || {
                    for _ in 0..1000 {
                        let mut slot = Some(Counted::new(&made));
                        let done = select! {
                            send(to, &mut slot) -> result => count(&sent, result.is_ok()),
                            recv(from) -> result => count(&got, result.is_ok()),
                            after(Duration::from_micros(100)) => (),
                        };

                        if done.is_err() {
                            return;
                        }
                    }
                })
            })
            .collect();
        for fiber in &fibers {
            random.spin(100);
            fiber.cancel();
        }

        fibers.into_iter().for_each(|fiber| fiber.join().unwrap());
        got.fetch_add(
            a.1.try_iter().count() + b.1.try_iter().count(),
            Ordering::SeqCst,
        );
    }

    assert_eq!(got.load(Ordering::SeqCst), sent.load(Ordering::SeqCst));
    assert!(sent.load(Ordering::SeqCst) > 0);
    assert!(counts.balanced(), "{counts:?}");
}

fn cancelled_selects_lose_nothing(setup: Setup) {
    storm(&setup.runtime(), 1);
    // Where fibers do not move.
    storm(&setup.shared_workers(2), 1);
}

fn cancelled_selects_on_rendezvous_channels_lose_nothing(setup: Setup) {
    storm(&setup.runtime(), 0);
    storm(&setup.shared_workers(2), 0);
}

/// Both sides select, over channels without room and in opposite order: they meet, again and again.
fn selects_meet_on_rendezvous_channels(setup: Setup) {
    let a = channel::bounded::<u32>(0);
    let b = channel::bounded::<u32>(0);
    let to = a.0;
    let from = b.1;
    let back = b.0;
    let there = a.1;

    const ROUNDS: usize = 1000;
    let work = |to: channel::Sender<u32>, from: channel::Receiver<u32>, first: bool| {
        let mut sent = 0;
        let mut got = 0;
        while sent + got < ROUNDS {
            if first {
                select! {
                    send(to, 1) -> result => { result.unwrap(); sent += 1; }
                    recv(from) -> result => { result.unwrap(); got += 1; }
                }
            } else {
                select! {
                    recv(from) -> result => { result.unwrap(); got += 1; }
                    send(to, 1) -> result => { result.unwrap(); sent += 1; }
                }
            }
            .unwrap();
        }

        (sent, got)
    };

    let theirs = std::thread::spawn(move || work(back, there, false));
    let mine = setup.runtime().run(move || work(to, from, true));
    let theirs = theirs.join().unwrap();
    assert_eq!(
        (mine.0, mine.1),
        (theirs.1, theirs.0),
        "what one sent the other received"
    );
}

fn a_select_never_meets_itself(setup: Setup) {
    setup.runtime().run(|| {
        let (sender, receiver) = channel::bounded(0);
        for _ in 0..20 {
            let chosen = select! {
                send(sender, 1) -> _ => "sent",
                recv(receiver) -> _ => "received",
                after(Duration::from_micros(200)) => "nobody",
            };
            assert_eq!(chosen.unwrap(), "nobody");
        }
    });
}

/// Values come one at a time; whoever gets one passes it back. Nobody who waits is left waiting
/// while there is a value.
fn a_plain_waiter_and_selects_all_make_progress(setup: Setup) {
    setup.runtime().run(|| {
        let (sender, receiver) = channel::bounded(1);
        let (_never, other) = channel::bounded::<u8>(1);
        let fibers: Vec<_> = (0..6)
            .map(|n| {
                let sender = sender.clone();
                let receiver = receiver.clone();
                let other = other.clone();
                spawn(move || {
                    for _ in 0..200 {
                        let got = if n % 2 == 0 {
                            receiver.recv().unwrap()
                        } else {
                            select! { recv(other) -> _ => 0_u32, recv(receiver) -> result => result.unwrap() }.unwrap()
                        };

                        if n % 3 == 0 {
                            yield_now();
                        }
                        sender.send(got + 1).unwrap();
                    }
                })
            })
            .collect();
        sender.send(0).unwrap();
        fibers.into_iter().for_each(|fiber| fiber.join().unwrap());
        assert_eq!(receiver.recv().unwrap(), 1200);
    });
}

fn bodies_return_break_and_panic(setup: Setup) {
    fn first(receiver: &channel::Receiver<u8>) -> std::io::Result<u8> {
        loop {
            select! {
                recv(receiver) -> result => {
                    let n = result?;
                    if n > 2 {
                        return Ok(n);
                    }
                    continue;
                }
                after(Duration::from_secs(60)) => break,
            }?
        }
        unreachable!("not for a minute")
    }
    setup.runtime().run(|| {
        let (sender, receiver) = channel::bounded(8);
        (0..5).for_each(|n| sender.send(n).unwrap());
        assert_eq!(first(&receiver).unwrap(), 3);
        let theirs = receiver.clone();
        let fiber = spawn(move || {
            select! {
                recv(theirs) -> result => panic!("got {}", result.unwrap()),
                default => (),
            }
        });

        assert!(fiber.join().unwrap_err().is_panic());
        assert!(receiver.is_empty(), "the body had it");
        sender.send(9).unwrap();
        assert_eq!(receiver.recv().unwrap(), 9);

        // The bodies have what the branches used.
        let moved = select! {
            recv(receiver) -> _ => drop(receiver),
            default => drop((sender, receiver)),
        };

        moved.unwrap();
    });
}

fn threads_select_too(setup: Setup) {
    let (a, from_a) = channel::bounded(0);
    let (b, from_b) = channel::bounded(1);
    let thread = std::thread::spawn(move || {
        let mut sum = 0;
        loop {
            let more = select! {
                recv(from_a) -> result => result.map(|n: u64| sum += n).is_ok(),
                recv(from_b) -> result => result.map(|n: u64| sum += n).is_ok(),
            };

            if !more.unwrap() {
                return sum + from_a.iter().sum::<u64>() + from_b.iter().sum::<u64>();
            }
        }
    });

    setup.runtime().run(move || {
        let fibers =
            [a, b].map(|sender| spawn(move || (1..=500).for_each(|n| sender.send(n).unwrap())));
        fibers.into_iter().for_each(|fiber| fiber.join().unwrap());
    });
    assert_eq!(thread.join().unwrap(), 500 * 501);
}

/// Selects when it is dropped, with a timer that is far off.
struct SelectsLate(channel::Receiver<()>, Arc<AtomicUsize>);

impl Drop for SelectsLate {
    fn drop(&mut self) {
        let late = select! {
            recv(self.0) -> _ => (),
            after(Duration::from_secs(3600)) => (),
        };

        self.1
            .store(1 + usize::from(late.is_err()), Ordering::SeqCst);
    }
}

/// On shared storage it cannot suspend, and holds up its worker meanwhile.
fn a_panicking_fiber_selects_for_a_bounded_time(setup: Setup) {
    setup.shared_workers(1).run(|| {
        let outcome = Arc::new(AtomicUsize::new(0));
        let (_sender, receiver) = channel::bounded::<()>(1);
        let selects = SelectsLate(receiver, outcome.clone());
        let fiber = spawn(move || {
            let _selects = selects;
            panic!("on purpose");
        });

        assert!(fiber.join().is_err());
        assert_eq!(outcome.load(Ordering::SeqCst), 2, "the select gave up");
    });
}

/// Neither when it is ready nor when it becomes ready, and nobody meets it.
fn a_disabled_branch_is_not_chosen(setup: Setup) {
    setup.runtime().run(|| {
        let (sender, receiver) = channel::bounded(1);
        let (to_none, never) = channel::bounded::<u8>(0);
        sender.send(1).unwrap();

        for _ in 0..50 {
            let chosen = select! {
                recv(receiver) -> _, if false => "disabled",
                after(Duration::ZERO), if receiver.is_empty() => "disabled",
                recv(never) -> _, if true => "received",
                after(ms(1)), if !receiver.is_empty() => "late",
            };
            assert_eq!(chosen.unwrap(), "late");
        }

        assert_eq!(
            select! { recv(receiver) -> n, if true => n.unwrap(), default => 0 }.unwrap(),
            1
        );
        // Also for one that waits.
        let mut handle = spawn(|| 5);
        let theirs = receiver.clone();
        let waiter = spawn(move || {
            select! {
                recv(never) -> n => n.unwrap() + handle.join().unwrap(),
                recv(theirs) -> _, if false => unreachable!("disabled"),
                join(handle) -> _, if false => unreachable!("disabled"),
            }
            .unwrap()
        });

        sender.send(2).unwrap();
        pause();
        to_none.send(9).unwrap();
        assert_eq!(
            waiter.join().unwrap(),
            14,
            "a handle in a disabled branch is not used up"
        );
        assert_eq!(receiver.try_recv().unwrap(), 2);
    });
}

fn conditions_come_before_arguments(setup: Setup) {
    setup.runtime().run(|| {
        let order = std::cell::RefCell::new(String::new());
        let note = |what: &str| order.borrow_mut().push_str(what);
        let (sender, receiver) = channel::bounded(1);
        let mut slot = Some(3);

        for _ in 0..2 {
            // The conditions may use what the arguments borrow for writing.
            let done = select! {
                send(*{ note("a"); &sender }, &mut slot) -> result, if { note("1"); slot.is_some() } => {
                    result.unwrap();
                    "sent"
                }
                recv(*{ note("b"); &receiver }) -> result, if { note("2"); slot.is_none() } => {
                    assert_eq!(result.unwrap(), 3);
                    "received"
                }
            };
            note(done.unwrap());
        }

        assert_eq!(order.into_inner(), "12absent12abreceived");
    });
}

fn a_select_without_an_enabled_branch_is_refused(setup: Setup) {
    let select = |enabled: bool| {
        let (_sender, receiver) = channel::bounded::<u8>(1);
        select! {
            recv(receiver) -> _, if enabled => "received",
            after(ms(1)), if enabled => "late",
        }
    };

    let check = move || {
        assert_eq!(select(false).unwrap_err().kind(), ErrorKind::InvalidInput);
        assert_eq!(select(true).unwrap(), "late");
        assert_eq!(
            select! { after(ms(1)), if false => 1, default => 2 }.unwrap(),
            2
        );
    };

    setup.runtime().run(check);
    check();
}

/// What a select chooses among several that are ready is drawn from the runtime's seed.
#[test]
fn a_seed_gives_the_same_choices_each_time() {
    let choices = |seed| {
        let runtime = Runtime::builder()
            .workers(1)
            .io(plainweave::Io::Sim { seed })
            .build()
            .expect("a runtime");
        runtime.run(|| {
            let a = channel::unbounded();
            let b = channel::unbounded();
            let choose = |_| {
                a.0.send(()).unwrap();
                b.0.send(()).unwrap();
                select! { recv(a.1) -> _ => 0, recv(b.1) -> _ => 1 }.unwrap()
            };

            (0..64).map(choose).collect::<Vec<_>>()
        })
    };

    unless_it_hangs("a_seed_gives_the_same_choices_each_time", || {
        assert_eq!(choices(7), choices(7));
        assert_ne!(choices(7), choices(8));
    });
}
