//! `select!` over sockets, beside channels and timers.

#![expect(
    unsafe_code,
    reason = "tests call what is unsafe, and say at each call why it is sound"
)]

use std::io::{ErrorKind, Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::common::*;
use plainweave::net::TcpStream;
use plainweave::signal::{SIGUSR1, SIGUSR2, Signals};
use plainweave::sync::{channel, select};
use plainweave::time::with_timeout;
use plainweave::{Io, Runtime, is_cancelled, spawn};

on_every_setup!(
    a_readable_stream_is_chosen,
    both_streams_become_readable_at_once,
    a_writable_stream_is_chosen,
    a_listener_is_readable,
    a_stream_that_ends_or_closes_is_ready,
    a_losing_socket_keeps_its_data,
    a_wait_for_sockets_is_cancelled_or_late,
    cancelled_selects_lose_no_byte,
    cancelled_selects_lose_no_connection,
    threads_select_sockets_too,
    a_signal_is_chosen,
    cancelled_selects_lose_no_signal,
);

const LONG: Duration = Duration::from_secs(3600);

fn a_readable_stream_is_chosen(setup: Setup) {
    setup.runtime().run(|| {
        let (a, mut to_a) = connected();
        let (b, mut to_b) = connected();
        for n in 0..20_u8 {
            let first = n % 2 == 0;
            let ours = [a.try_clone().unwrap(), b.try_clone().unwrap()];
            let reader = spawn(move || {
                let mut buf = [0; 8];
                let chosen = select! {
                    readable(ours[0]) => (true, (&ours[0]).read(&mut buf).unwrap()),
                    readable(ours[1]) => (false, (&ours[1]).read(&mut buf).unwrap()),
                    after(LONG) => unreachable!(),
                };
                (chosen.unwrap(), buf[0])
            });

            if n % 3 == 0 {
                pause();
            }
            if first { &mut to_a } else { &mut to_b }
                .write_all(&[n])
                .unwrap();
            assert_eq!(reader.join().unwrap(), ((first, 1), n));
        }
    });
}

/// A driver that reports two of a select's descriptors together ends neither twice.
fn both_streams_become_readable_at_once(setup: Setup) {
    setup.workers(1).run(|| {
        for _ in 0..200 {
            let (a, mut to_a) = connected();
            let (b, mut to_b) = connected();
            let waits = spawn(move || {
                let mut buf = [0; 8];
                let chosen = select! {
                    readable(a) => (&a).read(&mut buf).unwrap(),
                    readable(b) => (&b).read(&mut buf).unwrap(),
                };
                // What the select has left must not meet what comes next.
                let later = select! {
                    readable(a) => 1,
                    readable(b) => 2,
                };
                (chosen.unwrap(), later.unwrap())
            });
            // It waits; then both come before the worker looks again.
            plainweave::yield_now();
            to_a.write_all(b"x").unwrap();
            to_b.write_all(b"x").unwrap();
            let (chosen, later) = waits.join().unwrap();
            assert!(chosen == 1 && later > 0);
        }
    });
}

fn a_writable_stream_is_chosen(setup: Setup) {
    setup.runtime().run(|| {
        let (stream, mut theirs) = connected();
        assert!(select! { writable(stream) => true, after(LONG) => false }.unwrap());
        // Full, until the peer reads. On a busy machine what is under way to the peer makes room a
        // little later: full is what stays so.
        let block = [0; 1 << 16];
        let mut written = 0;

        for round in 0.. {
            assert!(round < 10_000, "never full");
            let wrote = select! {
                writable(stream) => with_timeout(ms(1), || (&stream).write(&block)).unwrap_or(0),
                default => 0,
            }
            .unwrap();
            written += wrote;
            if wrote == 0 && select! { writable(stream) => false, after(ms(20)) => true }.unwrap() {
                break;
            }
        }

        assert!(written > 0);
        let writer = stream.try_clone().unwrap();
        let waiter =
            spawn(move || select! { writable(writer) => true, after(LONG) => false }.unwrap());
        pause();
        stream.shutdown(std::net::Shutdown::Read).unwrap();
        let reader = std::thread::spawn(move || {
            let mut total = 0;
            let mut buf = vec![0; 1 << 16];
            while total < written {
                total += theirs.read(&mut buf).unwrap();
            }
        });

        assert!(waiter.join().unwrap());
        plainweave::blocking(move || reader.join().unwrap()).unwrap();
    });
}

fn a_listener_is_readable(setup: Setup) {
    setup.runtime().run(|| {
        let listener = listener();
        let address = listener.local_addr().unwrap();
        assert!(select! { readable(listener) => false, after(ms(1)) => true }.unwrap());
        let client = spawn(move || TcpStream::connect(address).unwrap());
        let accepted = select! {
            readable(listener) => listener.accept(),
            after(LONG) => unreachable!(),
        };

        let (stream, _) = accepted.unwrap().unwrap();
        assert_eq!(
            stream.peer_addr().unwrap(),
            client.join().unwrap().local_addr().unwrap()
        );
    });
}

fn a_stream_that_ends_or_closes_is_ready(setup: Setup) {
    setup.runtime().run(|| {
        let read = |stream: TcpStream| {
            spawn(move || {
                select! {
                    readable(stream) => (&stream).read(&mut [0; 8]),
                    after(LONG) => unreachable!(),
                }
                .unwrap()
            })
        };

        let (ours, theirs) = connected();
        let reader = read(ours);
        pause();
        drop(theirs);
        assert_eq!(reader.join().unwrap().unwrap(), 0, "the end of the stream");

        for before in [true, false] {
            let (ours, _theirs) = connected();
            if before {
                ours.close();
            }
            let reader = read(ours.try_clone().unwrap());
            pause();
            ours.close();
            assert_eq!(
                reader.join().unwrap().unwrap_err().kind(),
                ErrorKind::NotConnected
            );
        }
    });
}

/// Data and messages come at random; a select that takes the one leaves the other.
fn a_losing_socket_keeps_its_data(setup: Setup) {
    const EACH: u64 = 1000;
    let (ours, mut theirs) = connected();
    let (sender, receiver) = channel::bounded(1);
    let writer =
        std::thread::spawn(move || (0..EACH).for_each(|n| theirs.write_all(&[n as u8]).unwrap()));
    let (read, received) = setup.runtime().run(move || {
        let fiber = spawn(move || (0..EACH).for_each(|n| sender.send(n).unwrap()));
        let mut read = 0;

        let mut received = 0;
        while read < EACH || received < EACH {
            let mut buf = [0; 3];
            select! {
                readable(ours) => {
                    let n = (&ours).read(&mut buf).unwrap();
                    assert!(n > 0 || read == EACH);
                    assert!((0..n).all(|i| buf[i] == (read + i as u64) as u8), "in order");
                    read += n as u64;
                }
                recv(receiver) -> result => received += u64::from(result.is_ok()),
            }
            .unwrap();
        }

        fiber.join().unwrap();
        (read, received)
    });

    writer.join().unwrap();
    assert_eq!((read, received), (EACH, EACH));
}

fn a_wait_for_sockets_is_cancelled_or_late(setup: Setup) {
    let runtime = setup.runtime();
    let wait = || {
        let ((a, _to_a), (b, _to_b)) = (connected(), connected());
        let (_sender, receiver) = channel::bounded::<u8>(0);
        select! {
            readable(a) => (),
            readable(b) => (),
            recv(receiver) -> _ => (),
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
            std::thread::sleep(ms(5));
            fiber.cancel();
        }

        assert!(is_cancelled(&fiber.join().unwrap().expect_err("cancelled")));
    }

    assert_eq!(
        runtime
            .run(|| with_timeout(ms(5), wait))
            .expect_err("late")
            .kind(),
        ErrorKind::TimedOut
    );
    assert_eq!(
        with_timeout(ms(5), wait).expect_err("late").kind(),
        ErrorKind::TimedOut
    );
}

/// Fibers that read beside other waits and are cancelled at any moment: what they did not read, the
/// next one reads.
fn cancelled_selects_lose_no_byte(setup: Setup) {
    read_and_cancel(&setup.runtime());
    // Where fibers do not move.
    read_and_cancel(&setup.shared_workers(2));
}

fn read_and_cancel(runtime: &Runtime) {
    let (ours, mut theirs) = connected();
    let (_sender, receiver) = channel::bounded::<u8>(0);
    let read = Arc::new(AtomicU64::new(0));
    let mut written = 0;

    for round in 0..100 {
        let stream = ours.try_clone().unwrap();
        let receiver = receiver.clone();
        let count = read.clone();
        let fiber = runtime.spawn(move || {
            loop {
                // What is there is readable also to a cancelled fiber; that the read then fails
                // ends the loop.
                let done = select! {
                    readable(stream) => (&stream).read(&mut [0; 4]),
                    recv(receiver) -> _ => Ok(0),
                    after(ms(1)) => Ok(0),
                };

                match done.and_then(|done| done) {
                    Ok(n) => count.fetch_add(n as u64, Ordering::SeqCst),
                    Err(_) => return,
                };
            }
        });

        let mut random = Random::new(round + 1);
        for _ in 0..random.below(5) {
            theirs.write_all(&[1; 3]).unwrap();
            written += 3;
            random.spin(100);
        }

        random.spin(100);
        fiber.cancel();
        fiber.join().unwrap();
    }

    drop(theirs);
    let left = runtime.run(|| (&ours).read_to_end(&mut Vec::new()).unwrap() as u64);
    assert_eq!(read.load(Ordering::SeqCst) + left, written);
}

fn cancelled_selects_lose_no_connection(setup: Setup) {
    let runtime = setup.runtime();
    let listener = Arc::new(listener());
    let address = listener.local_addr().unwrap();
    let (stop, stopped) = channel::bounded::<()>(0);
    let accepted = Arc::new(AtomicU64::new(0));
    let mut clients = Vec::new();

    for round in 0..40 {
        let theirs = listener.clone();
        let stopped = stopped.clone();
        let count = accepted.clone();
        let fiber = runtime.spawn(move || {
            loop {
                let done = select! {
                    readable(theirs) => theirs.accept().map(|_| count.fetch_add(1, Ordering::SeqCst)),
                    recv(stopped) -> _ => return,
                };

                if done.and_then(|done| done).is_err() {
                    return;
                }
            }
        });

        let mut random = Random::new(round + 1);
        for _ in 0..random.below(3) {
            clients.push(std::net::TcpStream::connect(address).unwrap());
        }
        random.spin(200);
        fiber.cancel();
        fiber.join().unwrap();
    }

    drop(stop);
    let left = runtime.run(|| {
        let mut left = 0;
        while select! { readable(listener) => listener.accept().is_ok(), default => false }.unwrap()
        {
            left += 1;
        }
        left
    });

    assert_eq!(accepted.load(Ordering::SeqCst) + left, clients.len() as u64);
}

fn threads_select_sockets_too(setup: Setup) {
    const EACH: u64 = 300;
    let (ours, theirs) = stream_pair();
    let (sender, receiver) = channel::bounded(0);
    let thread = std::thread::spawn(move || {
        let mut read = 0;
        let mut received = 0;
        let mut late = 0;

        while read < EACH || received < EACH {
            select! {
                readable(ours) => read += (&ours).read(&mut [0; 2]).unwrap() as u64,
                recv(receiver) -> result => received += u64::from(result.is_ok()),
                after(ms(1)) => late += 1,
            }
            .unwrap();
        }

        (read, received, late)
    });

    setup.runtime().run(move || {
        for n in 0..EACH {
            (&theirs).write_all(&[n as u8]).unwrap();
            sender.send(n).unwrap();
            if n % 100 == 0 {
                pause();
            }
        }

        let (read, received, late) = plainweave::blocking(move || thread.join().unwrap()).unwrap();
        assert_eq!((read, received), (EACH, EACH));
        assert!(late > 0, "it waited, now and then");
    });
}

fn raise(signal: i32) {
    // SAFETY: a plain call; the signal is caught.
    assert_eq!(unsafe { libc::raise(signal) }, 0);
}

fn a_signal_is_chosen(setup: Setup) {
    if apart() {
        return;
    }
    let signals = Signals::new([SIGUSR1, SIGUSR2]).expect("signals");
    let check = move || {
        let (sender, receiver) = channel::bounded(1);
        assert!(select! { signal(signals) -> _ => false, default => true }.unwrap());
        // One branch is taken, and the other keeps what it has.
        raise(SIGUSR1);
        raise(SIGUSR2);
        sender.send(()).unwrap();
        let mut caught = Vec::new();

        for _ in 0..3 {
            select! {
                signal(signals) -> signal => caught.push(signal.unwrap()),
                recv(receiver) -> result => result.unwrap(),
            }
            .unwrap();
        }

        caught.sort_unstable();
        assert_eq!(caught, [SIGUSR1, SIGUSR2]);
        assert!(receiver.is_empty());

        // A byte that is left over from a plain wait ends no wait, and one that waits is woken.
        raise(SIGUSR1);
        assert_eq!(signals.wait().unwrap(), SIGUSR1);
        let late = select! { signal(signals) -> _ => false, after(ms(2)) => true };
        assert!(late.unwrap());
        let killer = std::thread::spawn(|| {
            std::thread::sleep(ms(3));
            raise(SIGUSR2);
        });

        let signal = select! {
            signal(signals) -> signal => signal.unwrap(),
            recv(receiver) -> _ => unreachable!("empty"),
        };

        assert_eq!(signal.unwrap(), SIGUSR2);
        plainweave::blocking(move || killer.join().unwrap()).unwrap();
        signals
    };

    let signals = setup.runtime().run(check);
    drop(signals);
}

/// Beside a plain waiter; each signal is caught once, by a select or afterwards.
fn cancelled_selects_lose_no_signal(setup: Setup) {
    if apart() {
        return;
    }
    let signals = Arc::new(Signals::new([SIGUSR1, SIGUSR2]).expect("signals"));
    for runtime in [setup.runtime(), setup.shared_workers(2)] {
        for round in 0..40 {
            let mut random = Random::new(round + 1);
            let caught = Arc::new([AtomicU64::new(0), AtomicU64::new(0)]);
            let count = |caught: &[AtomicU64; 2], signal: i32| {
                caught[usize::from(signal == SIGUSR2)].fetch_add(1, Ordering::SeqCst);
            };
            let fibers: Vec<_> = (0..3)
                .map(|n| {
                    let signals = signals.clone();
                    let caught = caught.clone();
                    runtime.spawn(move || {
                        let (_never, empty) = channel::bounded::<u8>(0);
                        loop {
                            let signal = if n == 0 {
                                signals.wait()
                            } else {
                                select! {
                                    signal(signals) -> signal => signal.unwrap(),
                                    recv(empty) -> _ => unreachable!("nobody sends"),
                                }
                            };

                            match signal {
                                Ok(signal) => count(&caught, signal),
                                Err(_) => return,
                            }
                        }
                    })
                })
                .collect();
            random.spin(100);
            raise(SIGUSR1);
            raise(SIGUSR2);
            random.spin(100);
            for fiber in fibers {
                fiber.cancel();
                fiber.join().unwrap();
            }

            while let Ok(signal) =
                select! { signal(signals) -> signal => signal.unwrap(), default => 0 }
            {
                if signal == 0 {
                    break;
                }
                count(&caught, signal);
            }
            assert_eq!(caught.each_ref().map(|n| n.load(Ordering::SeqCst)), [1, 1]);
        }
    }
}

/// The simulated driver has no network: a wait for a socket there ends, and the call that follows
/// says why.
#[test]
fn the_simulated_driver_refuses() {
    unless_it_hangs("the_simulated_driver_refuses", || {
        let runtime = Runtime::builder()
            .io(Io::Sim { seed: 1 })
            .workers(1)
            .build()
            .expect("a runtime");
        runtime.run(|| {
            let (ours, _theirs) = connected();
            let result = select! {
                readable(ours) => (&ours).read(&mut [0; 1]),
                after(LONG) => unreachable!(),
            };

            assert_eq!(result.unwrap().unwrap_err().kind(), ErrorKind::Unsupported);
            let signals = Signals::new([SIGUSR2]).unwrap();
            let result = select! {
                signal(signals) -> result => result,
                after(LONG) => unreachable!(),
            };

            assert_eq!(result.unwrap().unwrap_err().kind(), ErrorKind::Unsupported);
        });
    });
}
