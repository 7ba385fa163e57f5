//! Cancellation and deadlines through every blocking call, and their races with completion.

#![expect(
    unsafe_code,
    reason = "tests call what is unsafe, and say at each call why it is sound"
)]

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream as OsStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use crate::common::*;
use plainweave::net::{TcpListener, TcpStream};
use plainweave::signal::{SIGHUP, SIGUSR1, SIGUSR2, Signals};
use plainweave::{CancelReason, cancel_reason, is_cancelled, time};

in_pools_too!(
    every_blocked_call_is_cancelled,
    every_blocked_call_heeds_its_deadline,
    every_call_refuses_to_begin_when_cancelled,
    every_call_refuses_to_begin_when_late,
    what_does_not_block_goes_on,
    a_cancelled_fiber_can_still_be_joined,
    completion_against_cancel_loses_no_bytes,
    completion_against_deadline_loses_no_bytes,
    accept_against_cancel_loses_no_connection,
    close_against_read,
    close_against_accept,
    close_wakes_every_user,
    deadline_against_connect,
    cancel_against_connect,
    a_cancelled_write_sends_a_prefix,
    cancel_during_blocking_detaches_the_job,
    a_dropped_value_that_panics_costs_no_blocking_thread,
    read_and_write_timeouts,
    unpark_against_cancel,
    signals_reach_those_who_wait,
);

const LONG: Duration = Duration::from_secs(1000);

/// A call that blocks for ever, by name.
type Call = (&'static str, Box<dyn FnOnce() -> io::Result<()> + Send>);

/// Fills the socket's buffers until it takes no more.
fn fill(stream: &TcpStream) {
    stream.set_write_timeout(Some(ms(30))).expect("set");
    let block = vec![0; 1 << 16];
    while (&mut &*stream).write(&block).is_ok() {}
    stream.set_write_timeout(None).expect("set");
}

fn read_into_two(mut stream: &TcpStream) -> io::Result<()> {
    let mut a = [0; 4];
    let mut b = [0; 4];
    stream
        .read_vectored(&mut [io::IoSliceMut::new(&mut a), io::IoSliceMut::new(&mut b)])
        .map(drop)
}

/// One of each kind, ready to block. What they need is kept in the second part.
fn blocking_calls(runtime: &TestRuntime) -> (Vec<Call>, Box<dyn Send>) {
    let (reader, kept_reader) = connected();
    let (vectored, kept_vectored) = connected();
    let (poller, kept_poller) = connected();
    let (writer, kept_writer) = connected();
    runtime.run(|| fill(&writer));
    let writer_again = writer.try_clone().expect("clone");
    let listener = listener();
    let full = FullListener::new();
    let address = full.address();
    let parked = runtime.spawn(|| while plainweave::park().is_ok_and(|()| false) {});
    let parked_fiber = parked.fiber();
    let (finish, told) = mpsc::channel::<()>();
    let (finish_file, told_file) = mpsc::channel::<()>();
    let signals = Signals::new([SIGHUP]).expect("signals");
    let calls: Vec<Call> = vec![
        ("sleep", Box::new(|| time::sleep(LONG))),
        ("park", Box::new(plainweave::park)),
        ("park_timeout", Box::new(|| plainweave::park_timeout(LONG))),
        ("join", Box::new(move || parked.join().map_err(Into::into))),
        ("accept", Box::new(move || listener.accept().map(drop))),
        (
            "connect",
            Box::new(move || TcpStream::connect(address).map(drop)),
        ),
        (
            "read",
            Box::new(move || (&reader).read(&mut [0; 16]).map(drop)),
        ),
        ("read_vectored", Box::new(move || read_into_two(&vectored))),
        ("wait_readable", Box::new(move || poller.wait_readable())),
        (
            "write",
            Box::new(move || {
                loop {
                    // The buffers may yet grow.
                    let _taken = (&writer).write(&[1; 100_000])?;
                }
            }),
        ),
        (
            "write_vectored",
            Box::new(move || {
                loop {
                    let _taken =
                        (&writer_again).write_vectored(&[io::IoSlice::new(&[1; 70_000]); 2])?;
                }
            }),
        ),
        (
            "blocking",
            Box::new(move || {
                plainweave::blocking(move || {
                    let _ = told.recv();
                })
            }),
        ),
        (
            "blocking again",
            Box::new(move || {
                plainweave::blocking(move || {
                    let _ = told_file.recv();
                })
            }),
        ),
        ("signals", Box::new(move || signals.wait().map(drop))),
    ];

    struct Kept(plainweave::Fiber);
    impl Drop for Kept {
        fn drop(&mut self) {
            self.0.unpark();
        }
    }
    let more = (
        kept_reader,
        kept_vectored,
        kept_poller,
        kept_writer,
        finish,
        finish_file,
    );
    (calls, Box::new((Kept(parked_fiber), more, full)))
}

fn every_blocked_call_is_cancelled(setup: Setup) {
    let runtime = setup.tested();
    let (calls, kept) = blocking_calls(&runtime);
    let fibers: Vec<_> = calls
        .into_iter()
        .map(|(what, call)| (what, runtime.spawn(call)))
        .collect();
    std::thread::sleep(ms(30));

    for (what, fiber) in fibers {
        assert!(!fiber.is_finished(), "{what} does not block");
        fiber.cancel();
        fiber.cancel();
        let error = fiber.join().expect("no panic").expect_err(what);
        assert!(is_cancelled(&error), "{what}: {error:?}");
        assert_eq!(
            cancel_reason(&error),
            Some(CancelReason::Requested),
            "{what}"
        );
        assert!(
            !matches!(
                error.kind(),
                ErrorKind::Interrupted | ErrorKind::TimedOut | ErrorKind::WouldBlock
            ),
            "{what}"
        );
        assert!(error.to_string().contains("cancelled"), "{error}");
    }

    drop(kept);
}

fn every_blocked_call_heeds_its_deadline(setup: Setup) {
    let runtime = setup.tested();
    let (calls, kept) = blocking_calls(&runtime);
    let start = Instant::now();
    let late =
        |call: Box<dyn FnOnce() -> io::Result<()> + Send>| move || time::with_timeout(ms(30), call);

    let fibers: Vec<_> = calls
        .into_iter()
        .map(|(what, call)| (what, runtime.spawn(late(call))))
        .collect();
    for (what, fiber) in fibers {
        let error = fiber.join().expect("no panic").expect_err(what);
        assert_eq!(error.kind(), ErrorKind::TimedOut, "{what}: {error:?}");
        assert!(!is_cancelled(&error), "{what}");
        assert!(start.elapsed() >= ms(30), "{what} was early");
    }

    drop(kept);
}

fn every_call_refuses_to_begin_when_cancelled(setup: Setup) {
    let runtime = setup.tested();
    let (calls, kept) = blocking_calls(&runtime);
    runtime
        .spawn(move || {
            plainweave::current().cancel();
            for (what, call) in calls {
                assert!(is_cancelled(&call().expect_err(what)), "{what}");
            }
        })
        .join()
        .expect("no panic");
    drop(kept);
}

fn every_call_refuses_to_begin_when_late(setup: Setup) {
    let runtime = setup.tested();
    let (calls, kept) = blocking_calls(&runtime);
    runtime.run(|| {
        time::with_deadline(time::now(), || {
            for (what, call) in calls {
                assert_eq!(
                    call().expect_err(what).kind(),
                    ErrorKind::TimedOut,
                    "{what}"
                );
            }
        });
        pause();
    });
    drop(kept);
}

fn what_does_not_block_goes_on(setup: Setup) {
    setup.tested().run(|| {
        plainweave::spawn(|| {
            plainweave::current().cancel();
            plainweave::yield_now();
            // A token that is there, and a result that is there, are taken.
            plainweave::current().unpark();
            plainweave::park().expect("completion wins");
            let child = plainweave::spawn(|| 3);

            while !child.is_finished() {
                plainweave::yield_now();
            }
            assert_eq!(child.join().expect("completion wins"), 3);
        })
        .join()
        .expect("no panic");
    });
}

fn a_cancelled_fiber_can_still_be_joined(setup: Setup) {
    setup.tested().run(|| {
        let counts = Arc::new(Counts::default());
        let theirs = counts.clone();
        let fiber = plainweave::spawn(move || {
            let value = Counted::new(&theirs);
            let _ = plainweave::park();
            value
        });

        pause();
        fiber.cancel();
        drop(fiber.join().expect("its value"));
        assert!(counts.balanced() && counts.made() == 1);
    });
}

/// Reads to the end, counting, whatever number of times it is cancelled: each time another fiber
/// goes on.
fn completion_against_cancel_loses_no_bytes(setup: Setup) {
    let runtime = setup.tested();
    let mut random = Random::new(11);
    let (ours, mut theirs) = connected();

    // Until some reads have been cancelled, which takes longer where the reader seldom runs.
    let least = 1_000_000u64;
    let cancelled = Arc::new(AtomicUsize::new(0));
    let so_far = cancelled.clone();
    let sender = std::thread::spawn(move || {
        let mut random = Random::new(5);
        let mut sent = 0;
        let block = [7; 3000];

        while sent < least || so_far.load(Ordering::SeqCst) <= 5 && sent < 1000 * least {
            let n = random.below(3000) as usize + 1;
            theirs.write_all(&block[..n]).expect("write");
            sent += n as u64;
            random.spin(60);
        }

        theirs.shutdown(Shutdown::Write).expect("shutdown");
        (sent, theirs)
    });

    let mut received = 0;
    let mut ended = false;
    while !ended {
        let stream = ours.try_clone().expect("clone");
        let reader = runtime.spawn(move || {
            let mut got = 0;
            let mut buf = [0; 2048];
            loop {
                match (&stream).read(&mut buf) {
                    Ok(0) => return (got, true),
                    Ok(n) => got += n as u64,
                    Err(error) if is_cancelled(&error) => return (got, false),
                    Err(error) => panic!("{error}"),
                }
            }
        });

        random.spin(200);
        reader.cancel();
        let (got, end) = reader.join().expect("no panic");
        received += got;
        cancelled.fetch_add(usize::from(!end), Ordering::SeqCst);
        ended = end;
    }

    let (sent, _theirs) = sender.join().expect("sent");
    assert_eq!(received, sent);
    assert!(cancelled.load(Ordering::SeqCst) > 5, "{cancelled:?}");
}

fn completion_against_deadline_loses_no_bytes(setup: Setup) {
    let runtime = setup.tested();
    runtime.run(|| {
        let (mut ours, theirs) = stream_pair();
        let sender = plainweave::spawn(move || {
            let mut random = Random::new(9);
            for _ in 0..300 {
                (&theirs).write_all(b"abc").expect("write");
                time::sleep(Duration::from_micros(random.below(3000))).expect("slept");
            }
        });

        let mut received = 0;
        let mut late = 0;
        let mut random = Random::new(4);

        loop {
            let limit = Duration::from_micros(100 + random.below(3000));
            match time::with_timeout(limit, || ours.read(&mut [0; 64])) {
                Ok(0) => break,
                Ok(n) => received += n,
                Err(error) if error.kind() == ErrorKind::TimedOut => late += 1,
                Err(error) => panic!("{error}"),
            }
        }

        sender.join().expect("no panic");
        assert_eq!(received, 900);
        assert!(late > 0);
    });
}

/// Each client gets an answer, from whichever accept has got it.
fn accept_against_cancel_loses_no_connection(setup: Setup) {
    if apart() {
        return;
    }
    let before = descriptors();
    {
        let runtime = setup.tested_with(setup.builder().max_workers(2));
        let idle = descriptors();
        let listener = Arc::new(listener());
        let address = listener.local_addr().expect("address");
        let rounds = 200;
        let clients = std::thread::spawn(move || {
            let mut random = Random::new(21);
            for _ in 0..rounds {
                let mut client = OsStream::connect(address).expect("connect");
                client
                    .set_read_timeout(Some(Duration::from_secs(10)))
                    .expect("set");
                random.spin(100);
                assert_eq!(client.read(&mut [0; 8]).expect("an answer"), 1);
            }
        });

        let mut random = Random::new(8);
        let mut accepted = 0;
        let mut cancelled = 0;
        while accepted < rounds {
            let ours = listener.clone();
            let acceptor = runtime.spawn(move || match ours.accept() {
                Ok((stream, _)) => {
                    // Its own fiber is cancelled, perhaps: the connection is whole all the same.
                    plainweave::spawn(move || (&stream).write_all(b"!").expect("write"));
                    true
                }
                Err(error) => {
                    assert!(is_cancelled(&error), "{error}");
                    false
                }
            });

            random.spin(250);
            acceptor.cancel();
            let got = acceptor.join().expect("no panic");
            accepted += i32::from(got);
            cancelled += i32::from(!got);
        }

        clients.join().expect("all answered");
        assert!(cancelled > 0);
        drop(listener);
        eventually("no descriptor is left", || descriptors() <= idle);
    }
    eventually("nor of the runtime", || descriptors() <= before);
}

fn close_against_read(setup: Setup) {
    let runtime = setup.tested();
    let mut random = Random::new(31);
    for round in 0..300 {
        let (ours, mut theirs) = connected();
        if round % 3 == 0 {
            theirs.write_all(b"some").expect("write");
        }
        let reading = ours.try_clone().expect("clone");
        let reader = runtime.spawn(move || {
            let mut got = 0;
            loop {
                match (&reading).read(&mut [0; 3]) {
                    Ok(0) => return (got, None),
                    Ok(n) => got += n,
                    Err(error) => return (got, Some(error.kind())),
                }
            }
        });

        random.spin(100);
        ours.close();
        let (got, error) = reader.join().expect("no panic");
        assert_eq!(error, Some(ErrorKind::NotConnected));
        assert!(got <= 4);
        assert_eq!(
            (&ours).write(b"x").expect_err("closed").kind(),
            ErrorKind::NotConnected
        );
        assert_eq!(
            ours.wait_readable().expect_err("closed").kind(),
            ErrorKind::NotConnected
        );

        // The peer sees the end, or a reset if something was not read.
        theirs
            .set_read_timeout(Some(Duration::from_secs(10)))
            .expect("set");
        assert!(matches!(theirs.read(&mut [0; 8]), Ok(0) | Err(_)));
    }
}

fn close_against_accept(setup: Setup) {
    let runtime = setup.tested();
    let mut random = Random::new(41);
    for _ in 0..200 {
        let listener = listener();
        let accepting = listener.try_clone().expect("clone");
        let other = listener.try_clone().expect("clone");
        let fibers = [
            runtime.spawn(move || accepting.accept().map(drop)),
            runtime.spawn(move || other.accept().map(drop)),
        ];
        random.spin(100);
        listener.close();
        for fiber in fibers {
            let error = fiber.join().expect("no panic").expect_err("closed");
            assert_eq!(error.kind(), ErrorKind::NotConnected, "{error}");
        }

        assert!(listener.accept().is_err());
    }
}

fn close_wakes_every_user(setup: Setup) {
    let runtime = setup.tested();
    for _ in 0..30 {
        let (ours, theirs) = connected();
        runtime.run(|| fill(&ours));
        let users: Vec<_> = (0..12)
            .map(|n| {
                let ours = ours.try_clone().expect("clone");
                let user = move || match n % 4 {
                    0 => (&ours).read(&mut [0; 8]).map(drop),
                    1 => ours.wait_readable(),
                    2 => (&ours).write_all(&[1; 1 << 20]),
                    _ => time::with_timeout(LONG, || (&ours).read(&mut [0; 8]).map(drop)),
                };

                // A plain thread among them.
                if n < 10 {
                    Ok(runtime.spawn(user))
                } else {
                    Err(std::thread::spawn(user))
                }
            })
            .collect();
        std::thread::sleep(ms(2));
        ours.close();

        for user in users {
            let result = match user {
                Ok(fiber) => fiber.join().expect("no panic"),
                Err(thread) => thread.join().expect("no panic"),
            };
            assert!(result.is_err());
        }

        drop(theirs);
    }
}

fn deadline_against_connect(setup: Setup) {
    let runtime = setup.tested();
    let full = FullListener::new();
    runtime.run(|| {
        for n in 0..20 {
            let limit = ms(1 + n % 5);
            let start = Instant::now();
            let error = if n % 2 == 0 {
                time::with_timeout(limit, || TcpStream::connect(full.address())).expect_err("late")
            } else {
                TcpStream::connect_timeout(&full.address(), limit).expect_err("late")
            };

            assert_eq!(error.kind(), ErrorKind::TimedOut, "{error}");
            assert!(start.elapsed() >= limit);
        }

        // A connection that comes about is one, or an error; in either case the other side may
        // count on it.
        let listener = listener();
        let address = listener.local_addr().expect("address");
        let mut connected = 0;

        for n in 0..200 {
            match TcpStream::connect_timeout(&address, Duration::from_micros(1 + n % 50)) {
                Ok(client) => {
                    connected += 1;
                    drop(client);
                }
                Err(error) => assert_eq!(error.kind(), ErrorKind::TimedOut, "{error}"),
            }
        }

        for _ in 0..connected {
            listener.accept().expect("it stands in the queue");
        }
        // Nobody listens.
        let refused = listener.local_addr().expect("address");
        drop(listener);
        assert_eq!(
            TcpStream::connect(refused).expect_err("refused").kind(),
            ErrorKind::ConnectionRefused
        );
    });
}

fn cancel_against_connect(setup: Setup) {
    if apart() {
        return;
    }
    let runtime = setup.tested_with(setup.builder().max_workers(2));
    let before = descriptors();
    let listener = listener();
    let address = listener.local_addr().expect("address");
    let full = FullListener::new();
    let mut random = Random::new(51);

    for n in 0..200 {
        let address = if n % 2 == 0 { address } else { full.address() };
        let client = runtime.spawn(move || TcpStream::connect(address));
        random.spin(80);
        client.cancel();
        if let Err(error) = client.join().expect("no panic") {
            assert!(is_cancelled(&error), "{error}");
        }
    }

    drop((listener, full));
    eventually("no descriptor is left", || descriptors() <= before);
}

/// The receiver gets exactly what the writer was told that it has sent.
fn a_cancelled_write_sends_a_prefix(setup: Setup) {
    let runtime = setup.tested();
    let mut random = Random::new(61);
    for _ in 0..60 {
        let (ours, mut theirs) = connected();
        let writer = runtime.spawn(move || {
            let block = vec![5; 300_000];
            let mut sent = 0u64;
            loop {
                match (&ours).write(&block) {
                    Ok(n) => sent += n as u64,
                    Err(error) => {
                        assert!(is_cancelled(&error), "{error}");
                        return sent;
                    }
                }
            }
        });

        let reader = std::thread::spawn(move || {
            let mut buf = vec![0; 100_000];
            let mut got = 0u64;
            loop {
                match theirs.read(&mut buf).expect("read") {
                    0 => return got,
                    n => got += n as u64,
                }
            }
        });

        random.spin(3000);
        writer.cancel();
        let sent = writer.join().expect("no panic");
        assert_eq!(reader.join().expect("no panic"), sent);
    }
}

fn cancel_during_blocking_detaches_the_job(setup: Setup) {
    let runtime = setup.tested_with(setup.builder().blocking_threads(2));
    let counts = Arc::new(Counts::default());
    let finished = Arc::new(AtomicUsize::new(0));
    let mut random = Random::new(71);
    let mut cancelled = 0;

    for round in 0..200 {
        let theirs = counts.clone();
        let done = finished.clone();
        let spin = random.below(100);

        // The first job does not end before its caller, however fast the machine is.
        let (release, held) = mpsc::channel::<()>();
        let caller = runtime.spawn(move || {
            plainweave::blocking(move || {
                let value = Counted::new(&theirs);
                if round == 0 {
                    let _ = held.recv_timeout(HANG);
                }
                Random::new(spin).spin(100);
                done.fetch_add(1, Ordering::SeqCst);
                value
            })
            .map(drop)
        });

        random.spin(150);
        caller.cancel();
        match caller.join().expect("no panic") {
            Ok(()) => {}
            Err(error) => {
                assert!(is_cancelled(&error), "{error}");
                cancelled += 1;
            }
        }

        drop(release);
    }

    assert!(cancelled > 0);
    eventually("each that has begun ends, each value is dropped", || {
        counts.balanced() && finished.load(Ordering::SeqCst) == counts.made()
    });
    // A file is written in spite of a cancellation in mid-air, and nothing hangs.
    assert_eq!(
        runtime
            .run(|| plainweave::blocking(|| 1))
            .expect("free again"),
        1
    );
    let panic = runtime
        .spawn(|| plainweave::blocking(|| -> () { panic!("in the pool") }))
        .join();

    assert_eq!(
        panic_text(
            &*panic
                .expect_err("propagated")
                .into_panic()
                .expect("a panic")
        ),
        "in the pool"
    );
}

fn a_dropped_value_that_panics_costs_no_blocking_thread(setup: Setup) {
    struct Bomb;
    impl Drop for Bomb {
        fn drop(&mut self) {
            panic!("dropped by the pool");
        }
    }
    let runtime = setup.tested_with(setup.builder().blocking_threads(1));

    for _ in 0..3 {
        let (finish, told) = mpsc::channel::<()>();
        let caller = runtime.spawn(move || {
            time::with_timeout(ms(5), || {
                plainweave::blocking(move || {
                    let _ = told.recv();
                    Bomb
                })
            })
            .map(std::mem::forget)
        });

        assert_eq!(
            caller.join().expect("no panic").expect_err("late").kind(),
            ErrorKind::TimedOut
        );
        drop(finish);
        std::thread::sleep(ms(5));
    }

    assert_eq!(
        runtime
            .run(|| plainweave::blocking(|| 2))
            .expect("the thread lives"),
        2
    );
}

fn read_and_write_timeouts(setup: Setup) {
    setup.tested().run(|| {
        let (ours, theirs) = connected();
        assert_eq!((ours.read_timeout(), ours.write_timeout()), (None, None));
        assert_eq!(
            ours.set_read_timeout(Some(Duration::ZERO))
                .expect_err("zero")
                .kind(),
            ErrorKind::InvalidInput
        );
        ours.set_read_timeout(Some(ms(20))).expect("set");
        assert_eq!(ours.read_timeout(), Some(ms(20)));

        for _ in 0..3 {
            let start = Instant::now();
            assert_eq!(
                (&ours).read(&mut [0; 4]).expect_err("late").kind(),
                ErrorKind::TimedOut
            );
            assert_eq!(
                ours.wait_readable().expect_err("late").kind(),
                ErrorKind::TimedOut
            );
            assert!(start.elapsed() >= ms(40));
        }

        ours.set_write_timeout(Some(ms(20))).expect("set");
        let error = loop {
            if let Err(error) = (&ours).write(&[0; 1 << 16]) {
                break error;
            }
        };

        assert_eq!(error.kind(), ErrorKind::TimedOut);
        // The nearer of deadline and timeout counts.
        ours.set_read_timeout(Some(LONG)).expect("set");
        let late = time::with_timeout(ms(5), || (&ours).read(&mut [0; 4]));
        assert_eq!(late.expect_err("late").kind(), ErrorKind::TimedOut);
        ours.set_read_timeout(None).expect("set");
        (&theirs).write_all(b"data").expect("write");
        assert_eq!((&ours).read(&mut [0; 8]).expect("read"), 4);
    });
}

/// A park ends by the token or by the cancellation; a token is never lost to it.
fn unpark_against_cancel(setup: Setup) {
    let runtime = setup.tested();
    let mut random = Random::new(81);
    for _ in 0..500 {
        let stop = Arc::new(AtomicBool::new(false));
        let told = stop.clone();
        let fiber = runtime.spawn(move || {
            let first = plainweave::park();
            while !told.load(Ordering::SeqCst) {
                plainweave::yield_now();
            }
            // The token was taken before, or is there still.
            (first.is_ok(), plainweave::park().is_ok())
        });

        let handle = fiber.fiber();
        random.spin(30);
        let canceller = handle.clone();
        let a = random.below(2) == 0;
        let b = random.below(10);
        if a {
            canceller.cancel();
        }
        Random::new(b + 1).spin(b);
        handle.unpark();
        if !a {
            canceller.cancel();
        }
        stop.store(true, Ordering::SeqCst);
        let (first, second) = fiber.join().expect("no panic");

        assert!(first != second, "one token, taken once: {first} {second}");
    }
}

fn signals_reach_those_who_wait(setup: Setup) {
    if apart() {
        return;
    }
    let runtime = setup.tested();
    let signals = Arc::new(Signals::new([SIGUSR1, SIGUSR2]).expect("signals"));
    let raise = |signal: i32| {
        // SAFETY: a plain call; the signal is caught.
        assert_eq!(unsafe { libc::raise(signal) }, 0);
    };

    runtime.run(|| {
        raise(SIGUSR1);
        assert_eq!(signals.wait().expect("caught"), SIGUSR1);
        assert_eq!(
            signals.wait_timeout(ms(10)).expect_err("no second").kind(),
            ErrorKind::TimedOut
        );
        let waiting = signals.clone();
        let fiber = plainweave::spawn(move || waiting.wait());

        pause();
        raise(SIGUSR2);
        assert_eq!(fiber.join().expect("no panic").expect("caught"), SIGUSR2);
    });
    // Two at once, two who wait: one each.
    for _ in 0..50 {
        let waiters: Vec<_> = (0..2)
            .map(|_| {
                let signals = signals.clone();
                runtime.spawn(move || signals.wait())
            })
            .collect();
        std::thread::sleep(ms(1));
        raise(SIGUSR1);
        raise(SIGUSR2);
        let mut got: Vec<_> = waiters
            .into_iter()
            .map(|w| w.join().expect("no panic").expect("caught"))
            .collect();

        got.sort_unstable();
        assert_eq!(got, [SIGUSR1, SIGUSR2]);
    }

    // A plain thread.
    raise(SIGUSR1);
    assert_eq!(signals.wait().expect("caught"), SIGUSR1);
    assert!(Signals::new([libc::SIGKILL]).is_err());
}

/// Of `TcpListener::incoming`, and conversions.
#[test]
fn incoming_and_conversions() {
    unless_it_hangs("incoming_and_conversions", || {
        plainweave::run(|| {
            let listener = listener();
            let address = listener.local_addr().expect("address");
            let clients = plainweave::spawn(move || {
                (0..5)
                    .map(|_| TcpStream::connect(("localhost", address.port())).expect("connect"))
                    .collect::<Vec<_>>()
            });

            let served: Vec<_> = listener
                .incoming()
                .take(5)
                .map(|s| s.expect("accept"))
                .collect();
            let clients = clients.join().expect("no panic");
            assert_eq!(
                clients[0].local_addr().expect("ours"),
                served[0].peer_addr().expect("theirs")
            );
            served[0].set_nodelay(true).expect("set");
            assert!(served[0].nodelay().expect("get"));

            for (client, served) in clients.into_iter().zip(served) {
                let plain = client.into_std().expect("into_std");
                plain
                    .set_read_timeout(Some(Duration::from_secs(10)))
                    .expect("set");
                (&served).write_all(b"hello").expect("write");
                assert_eq!((&plain).read(&mut [0; 8]).expect("read"), 5);
                let back = TcpStream::from_std(plain).expect("from_std");

                back.shutdown(Shutdown::Write).expect("shutdown");
                assert_eq!((&served).read(&mut [0; 8]).expect("the end"), 0);
            }

            let plain = listener.into_std().expect("into_std");
            assert_eq!(plain.local_addr().expect("address"), address);
            let again = TcpListener::from_std(plain).expect("from_std");
            let late = time::with_timeout(ms(5), || again.accept()).expect_err("nobody");
            assert_eq!(late.kind(), ErrorKind::TimedOut);
            assert!(TcpStream::connect("no.such.name.invalid:80").is_err());
        });
    });
}
