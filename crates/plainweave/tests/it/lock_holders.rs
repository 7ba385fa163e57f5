//! A fiber holds a lock of `std` and waits for I/O, while every worker is blocked on that lock: the
//! one too whose driver has the fiber's operation. Its wait ends by something other than a
//! completion, so that operation must be cancelled before the fiber goes on. Or it waits for a
//! fresh fiber, while those are held back. On both drivers. Nothing here asserts a time; what hangs
//! ends the process.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream as OsStream;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::common::*;
use plainweave::net::{TcpListener, TcpStream};
use plainweave::sync::{JoinSet, channel, select};
use plainweave::{JoinHandle, Movement, Runtime, is_cancelled, spawn, time, yield_now};

on_every_driver!(
    its_deadline_comes,
    its_read_times_out,
    its_write_times_out,
    its_accept_has_a_deadline,
    it_is_cancelled,
    its_scope_is_cancelled,
    it_is_unparked,
    its_select_times_out,
    its_select_receives,
    its_select_finds_a_descriptor,
    its_select_is_woken_for_nothing,
    each_joins_a_fresh_fiber,
    each_has_a_scope_of_fresh_fibers,
    each_has_a_set_of_fresh_fibers,
    each_calls_on_a_big_stack,
    fresh_fibers_start_beside_many_that_sleep,
    fresh_fibers_start_beside_many_that_run,
);

const LONG: Duration = Duration::from_secs(600);
/// By then those that want the lock block their workers.
const SOON: Duration = Duration::from_millis(60);

/// What a test has to end the holder's wait.
struct Outside {
    /// The other end of the holder's connection.
    peer: OsStream,
    sender: channel::Sender<u8>,
    holder: JoinHandle<()>,
}

/// Has `hold` run with the lock, a connection and a channel; then has fibers ask for the lock, and
/// calls `end`.
fn with_lock_held(
    setup: Setup,
    hold: fn(TcpStream, channel::Receiver<u8>),
    end: impl Fn(&mut Outside),
) {
    for workers in [1, 2] {
        let runtime = runtime(setup, workers);
        let lock = Arc::new(Mutex::new(()));
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("its address");
        let (sender, receiver) = channel::bounded(1);
        let (holds, held) = std::sync::mpsc::channel();
        let holder = {
            let lock = lock.clone();
            runtime.spawn(move || {
                let stream = TcpStream::connect(address).expect("a connection");
                let _guard = lock.lock().expect("not poisoned");
                holds.send(()).expect("the test waits");
                hold(stream, receiver);
            })
        };

        let (peer, _) = listener.accept().expect("the holder connects");
        held.recv().expect("the holder holds the lock");
        let others: Vec<_> = (0..workers * 2)
            .map(|_| {
                let lock = lock.clone();
                runtime.spawn(move || drop(lock.lock().expect("not poisoned")))
            })
            .collect();
        let mut outside = Outside {
            peer,
            sender,
            holder,
        };

        std::thread::sleep(SOON / 2);
        end(&mut outside);
        outside.holder.join().expect("no panic");
        others
            .into_iter()
            .for_each(|other| other.join().expect("no panic"));
    }
}

fn runtime(setup: Setup, workers: usize) -> Runtime {
    with_most(setup, workers, 64)
}

fn with_most(setup: Setup, workers: usize, most: usize) -> Runtime {
    let builder = setup
        .builder()
        .workers(workers)
        .max_workers(most)
        .own_storage()
        .movement(Movement::Anytime);
    setup.check(builder.stall_after(Some(ms(2))).build().expect("a runtime"))
}

fn its_deadline_comes(setup: Setup) {
    let hold = |mut stream: TcpStream, _| {
        let read = time::with_timeout(SOON, || stream.read(&mut [0; 8]));
        assert_eq!(read.expect_err("nothing comes").kind(), ErrorKind::TimedOut);
    };
    with_lock_held(setup, hold, |_| ());
}

fn its_read_times_out(setup: Setup) {
    let hold = |mut stream: TcpStream, _| {
        stream.set_read_timeout(Some(SOON)).expect("not zero");
        for _ in 0..2 {
            assert_eq!(
                stream.read(&mut [0; 8]).expect_err("nothing comes").kind(),
                ErrorKind::TimedOut
            );
        }
    };
    with_lock_held(setup, hold, |_| ());
}

fn its_write_times_out(setup: Setup) {
    let hold = |mut stream: TcpStream, _| {
        stream.set_write_timeout(Some(SOON)).expect("not zero");
        let error = loop {
            if let Err(error) = stream.write(&[0; 65536]) {
                break error;
            }
        };
        assert_eq!(error.kind(), ErrorKind::TimedOut);
    };
    with_lock_held(setup, hold, |_| ());
}

fn its_accept_has_a_deadline(setup: Setup) {
    let hold = |_, _| {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let accepted = time::with_timeout(SOON, || listener.accept());
        assert_eq!(
            accepted.expect_err("nobody comes").kind(),
            ErrorKind::TimedOut
        );
    };
    with_lock_held(setup, hold, |_| ());
}

fn it_is_cancelled(setup: Setup) {
    let hold = |mut stream: TcpStream, _| {
        let error = stream.read(&mut [0; 8]).expect_err("nothing comes");
        assert!(is_cancelled(&error), "{error}");
    };
    with_lock_held(setup, hold, |outside| outside.holder.cancel());
}

fn its_scope_is_cancelled(setup: Setup) {
    let hold = |mut stream: TcpStream, receiver: channel::Receiver<u8>| {
        plainweave::scope(|scope| {
            let reads = scope.spawn(move || {
                let lock = Mutex::new(());
                let _guard = lock.lock().expect("not poisoned");
                let error = stream.read(&mut [0; 8]).expect_err("nothing comes");
                assert!(is_cancelled(&error), "{error}");
            });

            assert_eq!(receiver.recv().expect("it is sent"), 7);
            scope.cancel();
            reads.join().expect("no panic");
        });
    };

    with_lock_held(setup, hold, |outside| {
        outside.sender.send(7).expect("received")
    });
}

/// Ends the wait for a byte only after wake-ups that mean nothing to it.
fn unpark_it_and_send(outside: &mut Outside) {
    for _ in 0..3 {
        outside.holder.fiber().unpark();
        std::thread::sleep(ms(5));
    }
    outside.peer.write_all(b"x").expect("open");
}

fn it_is_unparked(setup: Setup) {
    let hold = |mut stream: TcpStream, _| assert_eq!(stream.read(&mut [0; 8]).expect("a byte"), 1);
    with_lock_held(setup, hold, unpark_it_and_send);
}

fn its_select_times_out(setup: Setup) {
    let hold = |stream: TcpStream, _| {
        let which = select! { readable(&stream) => 1, after(SOON) => 2 };
        assert_eq!(which.expect("not cancelled"), 2);
    };
    with_lock_held(setup, hold, |_| ());
}

fn its_select_receives(setup: Setup) {
    let hold = |stream: TcpStream, receiver: channel::Receiver<u8>| {
        let which = select! {
            readable(&stream) => 1,
            recv(receiver) -> value => value.expect("it is sent"),
            after(LONG) => 2,
        };
        assert_eq!(which.expect("not cancelled"), 7);
    };

    with_lock_held(setup, hold, |outside| {
        outside.sender.send(7).expect("received")
    });
}

fn its_select_finds_a_descriptor(setup: Setup) {
    let hold = |stream: TcpStream, _| {
        let other = TcpListener::bind("127.0.0.1:0").expect("a port");
        let which = select! {
            readable(&other) => 1,
            readable(&stream) => 2,
            after(LONG) => 3,
        };
        assert_eq!(which.expect("not cancelled"), 2);
    };

    with_lock_held(setup, hold, |outside| {
        outside.peer.write_all(b"x").expect("open")
    });
}

fn its_select_is_woken_for_nothing(setup: Setup) {
    let hold = |mut stream: TcpStream, _| {
        let which = select! { readable(&stream) => 1, after(LONG) => 2 };
        assert_eq!(which.expect("not cancelled"), 1);
        assert_eq!(stream.read(&mut [0; 8]).expect("a byte"), 1);
    };
    with_lock_held(setup, hold, unpark_it_and_send);
}

/// Most of the workers that there may be are blocked, so fresh fibers are held back; but not one
/// that is joined.
fn each_joins_a_fresh_fiber(setup: Setup) {
    each_waits_for_fresh_fibers(setup, || spawn(|| 1).join().expect("no panic"));
}

/// Nor all of those that a scope waits for, which have scopes of their own.
fn each_has_a_scope_of_fresh_fibers(setup: Setup) {
    each_waits_for_fresh_fibers(setup, || {
        let done = AtomicUsize::new(0);
        plainweave::scope(|s| {
            for _ in 0..3 {
                s.spawn(|| {
                    yield_now();
                    plainweave::scope(|s| _ = s.spawn(|| done.fetch_add(1, Ordering::SeqCst)));
                });
            }
        });

        assert_eq!(done.into_inner(), 3);
        1
    });
}

/// Nor those of a set, waited for one after the other.
fn each_has_a_set_of_fresh_fibers(setup: Setup) {
    each_waits_for_fresh_fibers(setup, || {
        let mut set = JoinSet::new();
        for _ in 0..2 {
            set.spawn(yield_now);
        }
        for _ in 0..3 {
            set.spawn_limited(2, yield_now).expect("not cancelled");
        }
        let ended = std::iter::from_fn(|| set.join_next());
        assert_eq!(ended.filter(Result::is_ok).count(), 5);
        1
    });
}

/// Nor the one that a call on a larger stack waits for.
fn each_calls_on_a_big_stack(setup: Setup) {
    each_waits_for_fresh_fibers(setup, || {
        plainweave::on_big_stack(1 << 20, || 1).expect("there is room")
    });
}

fn each_waits_for_fresh_fibers(setup: Setup, wait: fn() -> u32) {
    for (workers, most) in [(1, 3), (2, 16)] {
        let runtime = with_most(setup, workers, most);
        let lock = Arc::new(Mutex::new(0));
        let fibers = (0..60).map(|_| {
            let lock = lock.clone();
            runtime.spawn(move || {
                let mut count = lock.lock().expect("not poisoned");
                *count += wait();
            })
        });

        let fibers: Vec<_> = fibers.collect();
        fibers
            .into_iter()
            .for_each(|fiber| fiber.join().expect("no panic"));
        assert_eq!(*lock.lock().expect("not poisoned"), 60);
    }
}

/// More have started than there may be workers, and any of them may want what the blocked ones wait
/// for.
fn fresh_fibers_start_beside_many_that_sleep(setup: Setup) {
    let runtime = with_most(setup, 2, 12);
    let asleep: Vec<_> = (0..60)
        .map(|_| runtime.spawn(|| time::sleep(LONG)))
        .collect();
    start_beside_blocked_fibers(&runtime);
    asleep.into_iter().for_each(|fiber| {
        fiber.cancel();
        fiber.join().expect("no panic").expect_err("cancelled");
    });
}

/// No worker is asleep.
fn fresh_fibers_start_beside_many_that_run(setup: Setup) {
    let runtime = with_most(setup, 2, 12);
    let stop = Arc::new(AtomicBool::new(false));
    let run: Vec<_> = (0..30)
        .map(|_| {
            let stop = stop.clone();
            runtime.spawn(move || {
                while !stop.load(Ordering::SeqCst) {
                    yield_now();
                }
            })
        })
        .collect();
    start_beside_blocked_fibers(&runtime);
    stop.store(true, Ordering::SeqCst);

    run.into_iter()
        .for_each(|fiber| fiber.join().expect("no panic"));
}

fn start_beside_blocked_fibers(runtime: &Runtime) {
    let blocked = Blocked::new(runtime, 7);
    eventually("all block", || blocked.running() == 7);
    let fresh: Vec<_> = (0..50).map(|n| runtime.spawn(move || n)).collect();
    assert_eq!(
        fresh
            .into_iter()
            .map(|fiber| fiber.join().expect("no panic"))
            .sum::<i32>(),
        50 * 49 / 2
    );
    blocked.end();
}
