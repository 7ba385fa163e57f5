//! Ordinary code that blocks its thread: what waits behind it, or for it, goes on on a spare
//! worker. On both drivers, with one, two and four workers. Nothing here asserts a time; what hangs
//! ends the process.

use std::io::{Read, Write};
use std::net::TcpStream as OsStream;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Barrier, Condvar, Mutex, OnceLock, mpsc};
use std::time::Duration;

use crate::common::*;
use plainweave::policy::{FamilyName, PRESETS};
use plainweave::sync::channel;
use plainweave::{JoinHandle, Movement, Runtime, spawn, time, yield_now};

on_every_driver!(
    a_lock_of_std_is_held_across_a_sleep,
    a_once_lock_is_filled_by_io,
    a_barrier_of_std_is_passed,
    a_condvar_of_std_is_notified,
    a_channel_of_std_delivers,
    blocking_reads_are_in_flight_at_once,
    connections_are_accepted_beside_a_blocked_worker,
    computations_are_held_up_by_nobody,
    spare_workers_rest_when_workers_are_back,
    what_waits_at_a_resting_worker_goes_on,
    more_than_the_most_workers_block,
    a_runtime_ends_with_spare_workers,
    a_destructor_blocks,
    every_policy_takes_back_what_spare_workers_ran,
    a_program_adds_workers,
    a_lock_is_held_across_a_sleep_by_hundreds,
    a_pool_of_ten_connections_serves_hundreds,
    hundreds_of_blocking_clients_ask_at_once,
    fibers_wait_on_workers_without_a_driver,
    whoever_holds_the_lock_gets_a_worker_at_the_limit,
    more_that_have_started_than_the_limit_block,
    fresh_fibers_start_again_after_the_limit,
    workers_without_a_driver_end,
);

/// With one, two and four workers.
fn on_workers(setup: Setup, test: impl Fn(&Runtime)) {
    for workers in [1, 2, 4] {
        test(&runtime(setup, workers, 64));
    }
}

fn runtime(setup: Setup, workers: usize, most: usize) -> Runtime {
    let builder = setup
        .builder()
        .workers(workers)
        .max_workers(most)
        .own_storage()
        .movement(Movement::Anytime);
    setup.check(builder.stall_after(Some(ms(2))).build().expect("a runtime"))
}

fn join_all<T>(fibers: impl IntoIterator<Item = JoinHandle<T>>) -> Vec<T> {
    // All of them exist before the first is waited for.
    let fibers: Vec<_> = fibers.into_iter().collect();
    fibers
        .into_iter()
        .map(|fiber| fiber.join().expect("no panic"))
        .collect()
}

/// Has that many fibers hold one lock of `std` across a sleep, one after the other.
fn hold_a_lock(runtime: &Runtime, fibers: usize, sleep: Duration) {
    let lock = Arc::new(Mutex::new(0));
    let all = (0..fibers).map(|_| {
        let lock = lock.clone();
        runtime.spawn(move || {
            let mut count = lock.lock().expect("not poisoned");
            time::sleep(sleep).expect("not cancelled");
            *count += 1;
        })
    });

    join_all(all);
    assert_eq!(*lock.lock().expect("not poisoned"), fibers);
}

fn a_lock_of_std_is_held_across_a_sleep(setup: Setup) {
    on_workers(setup, |runtime| hold_a_lock(runtime, 20, ms(1)));
}

fn a_once_lock_is_filled_by_io(setup: Setup) {
    on_workers(setup, |runtime| {
        let cell = Arc::new(OnceLock::new());
        let calls = Arc::new(AtomicUsize::new(0));
        let fibers = (0..20).map(|_| {
            let cell = cell.clone();
            let calls = calls.clone();
            runtime.spawn(move || {
                *cell.get_or_init(|| {
                    let (mut ours, mut theirs) = connected();
                    theirs.write_all(&[7]).expect("sent");
                    time::sleep(ms(5)).expect("not cancelled");
                    let mut byte = [0];
                    ours.read_exact(&mut byte).expect("received");
                    calls.fetch_add(1, Ordering::Relaxed);
                    byte[0]
                })
            })
        });

        assert_eq!(join_all(fibers), [7; 20]);
        assert_eq!(calls.load(Ordering::Relaxed), 1);
    });
}

fn a_barrier_of_std_is_passed(setup: Setup) {
    on_workers(setup, |runtime| {
        const COUNT: usize = 9;
        let barrier = Arc::new(Barrier::new(COUNT));
        let fibers = (0..COUNT).map(|_| {
            let barrier = barrier.clone();
            runtime.spawn(move || (0..3).filter(|_| barrier.wait().is_leader()).count())
        });

        assert_eq!(join_all(fibers).into_iter().sum::<usize>(), 3);
    });
}

fn a_condvar_of_std_is_notified(setup: Setup) {
    on_workers(setup, |runtime| {
        let shared = Arc::new((Mutex::new(0), Condvar::new()));
        // Each waits for its turn, the first for the last.
        let fibers = (0..8).rev().map(|turn| {
            let shared = shared.clone();
            runtime.spawn(move || {
                let mut next = shared.0.lock().expect("not poisoned");
                while *next != turn {
                    next = shared.1.wait(next).expect("not poisoned");
                }
                *next += 1;
                shared.1.notify_all();
            })
        });
        join_all(fibers);
    });
}

fn a_channel_of_std_delivers(setup: Setup) {
    on_workers(setup, |runtime| {
        let (sender, receiver) = mpsc::channel();
        let received = runtime.spawn(move || receiver.iter().sum::<usize>());
        let sent = runtime.spawn(move || {
            for n in 0..10 {
                time::sleep(ms(1)).expect("not cancelled");
                sender.send(n).expect("the receiver waits");
            }
        });

        sent.join().expect("no panic");
        assert_eq!(received.join().expect("no panic"), 45);
    });
}

/// Eight reads that block their threads are all under way before the first gets its byte, and
/// another fiber's clock ticks meanwhile.
fn blocking_reads_are_in_flight_at_once(setup: Setup) {
    on_workers(setup, |runtime| {
        const COUNT: usize = 8;
        let reading = Arc::new(AtomicUsize::new(0));
        let ticks = Arc::new(AtomicUsize::new(0));
        let returned = Arc::new(AtomicUsize::new(0));
        let stop = Arc::new(AtomicBool::new(false));
        let (readers, writers): (Vec<_>, Vec<_>) = (0..COUNT)
            .map(|_| UnixStream::pair().expect("a pair"))
            .unzip();
        let fibers: Vec<_> = readers
            .into_iter()
            .map(|mut reader| {
                let reading = reading.clone();
                let returned = returned.clone();
                runtime.spawn(move || {
                    reading.fetch_add(1, Ordering::SeqCst);
                    let mut byte = [0];
                    reader.read_exact(&mut byte).expect("received");
                    returned.fetch_add(1, Ordering::SeqCst);
                    byte[0]
                })
            })
            .collect();
        let ticker = {
            let ticks = ticks.clone();
            let stop = stop.clone();
            runtime.spawn(move || {
                while !stop.load(Ordering::SeqCst) {
                    time::sleep(ms(1)).expect("not cancelled");
                    ticks.fetch_add(1, Ordering::SeqCst);
                }
            })
        };

        eventually("all reads are in flight", || {
            reading.load(Ordering::SeqCst) == COUNT
        });
        let before = ticks.load(Ordering::SeqCst);
        eventually("the clock ticks", || {
            ticks.load(Ordering::SeqCst) >= before + 100
        });
        assert_eq!(returned.load(Ordering::SeqCst), 0);
        for (n, mut writer) in writers.into_iter().enumerate() {
            writer.write_all(&[n as u8]).expect("sent");
        }
        assert_eq!(join_all(fibers), (0..COUNT as u8).collect::<Vec<_>>());
        stop.store(true, Ordering::SeqCst);
        ticker.join().expect("no panic");
    });
}

/// Accepts and answers, a byte for a byte, a fiber for each connection.
fn echo(runtime: &Runtime) -> std::net::SocketAddr {
    let listener = runtime.run(listener);
    let address = listener.local_addr().expect("bound");
    drop(runtime.spawn(move || {
        while let Ok((mut stream, _)) = listener.accept() {
            spawn(move || {
                let mut byte = [0];
                while stream.read_exact(&mut byte).is_ok() && stream.write_all(&byte).is_ok() {}
            });
        }
    }));
    address
}

fn ask(mut stream: &OsStream, byte: u8) {
    stream.write_all(&[byte]).expect("sent");
    let mut answer = [0];
    stream.read_exact(&mut answer).expect("answered");
    assert_eq!(answer, [byte]);
}

fn connect(address: std::net::SocketAddr) -> OsStream {
    let stream = OsStream::connect(address).expect("connected");
    stream.set_read_timeout(Some(HANG / 3)).expect("set");
    stream
}

fn connections_are_accepted_beside_a_blocked_worker(setup: Setup) {
    on_workers(setup, |runtime| {
        let address = echo(runtime);
        let first = connect(address);
        ask(&first, 1);

        // All workers and some spare ones block.
        let (release, blocked) = block(runtime, 6);
        ask(&first, 2);
        for n in 0..20 {
            ask(&connect(address), n);
        }
        drop(release);
        join_all(blocked);
        ask(&first, 3);
    });
}

/// Fibers that compute until the last of them has started: each worker, and each spare one, is held
/// up by one.
fn computations_are_held_up_by_nobody(setup: Setup) {
    for workers in [1, 2] {
        let runtime = runtime(setup, workers, 64);
        const COUNT: usize = 4;
        let started = Arc::new(AtomicUsize::new(0));
        let fibers = (0..COUNT).map(|_| {
            let started = started.clone();
            runtime.spawn(move || {
                started.fetch_add(1, Ordering::SeqCst);
                while started.load(Ordering::SeqCst) < COUNT {
                    std::hint::spin_loop();
                }
            })
        });

        join_all(fibers);
    }
}

/// Spawns fibers that block their threads until the senders are dropped.
fn block(runtime: &Runtime, count: usize) -> (Vec<mpsc::Sender<()>>, Vec<JoinHandle<bool>>) {
    let blocked = (0..count).map(|_| {
        let (release, released) = mpsc::channel();
        (release, runtime.spawn(move || released.recv().is_err()))
    });
    blocked.unzip()
}

fn spare_workers_rest(runtime: &Runtime) {
    eventually("spare workers rest", || {
        runtime.run(yield_now);
        runtime.metrics().spare_workers == 0
    });
}

fn spare_workers_rest_when_workers_are_back(setup: Setup) {
    on_workers(setup, |runtime| {
        for _ in 0..3 {
            let (release, blocked) = block(runtime, 8);
            eventually("spare workers come", || runtime.metrics().spare_workers > 0);
            drop(release);
            join_all(blocked);
            spare_workers_rest(runtime);
        }
    });
}

/// Fibers that came to wait at a spare worker's driver, for data or a timer, go on after it has
/// been let go.
fn what_waits_at_a_resting_worker_goes_on(setup: Setup) {
    on_workers(setup, |runtime| {
        let address = echo(runtime);
        let (release, blocked) = block(runtime, 5);
        // Accepted and read by spare workers.
        let clients: Vec<_> = (0..20).map(|_| connect(address)).collect();
        clients.iter().for_each(|client| ask(client, 1));
        let sleeper = runtime.spawn(|| time::sleep(ms(300)));
        let cancelled = runtime.spawn(|| time::sleep(Duration::from_secs(1000)));

        drop(release);
        join_all(blocked);
        spare_workers_rest(runtime);
        clients.iter().for_each(|client| ask(client, 2));
        sleeper.join().expect("no panic").expect("not cancelled");

        // By now no spare worker wakes to give back memory: the cancellation itself has to wake the
        // one that it is for.
        std::thread::sleep(ms(700));
        cancelled.cancel();
        cancelled.join().expect("no panic").expect_err("cancelled");
        drop(clients);
    });
}

/// What cannot run waits until a thread is free; nothing is lost.
fn more_than_the_most_workers_block(setup: Setup) {
    let runtime = runtime(setup, 1, 3);
    let blocked = Blocked::new(&runtime, 9);
    eventually("as many as may block", || blocked.running() == 3);
    pause();
    assert_eq!(blocked.running(), 3);
    blocked.end();
}

fn a_runtime_ends_with_spare_workers(setup: Setup) {
    for workers in [1, 2] {
        let runtime = runtime(setup, workers, 64);
        let address = echo(&runtime);
        let (release, _) = block(&runtime, 4);
        let client = connect(address);
        ask(&client, 1);
        std::thread::spawn(move || {
            pause();
            drop(release);
        });
        let left = runtime.shutdown(HANG / 3);

        assert_eq!(
            (left.leaked_fibers, left.leaked_workers),
            (0, 0),
            "{left:?}"
        );
    }
}

/// A destructor that blocks, also while its fiber panics.
fn a_destructor_blocks(setup: Setup) {
    struct Blocks(mpsc::Receiver<()>);
    impl Drop for Blocks {
        fn drop(&mut self) {
            let _ = self.0.recv();
        }
    }
    on_workers(setup, |runtime| {
        let (release, fibers): (Vec<_>, Vec<_>) = (0..5)
            .map(|n| {
                let (release, released) = mpsc::channel();
                let blocks = Blocks(released);
                let body = move || {
                    let _blocks = blocks;
                    assert!(n % 2 == 0, "as expected");
                };

                (release, runtime.spawn(body))
            })
            .unzip();
        runtime.run(|| time::sleep(ms(5))).expect("a free worker");
        drop(release);
        let failed = fibers
            .into_iter()
            .map(|fiber| fiber.join().is_err())
            .filter(|failed| *failed)
            .count();
        assert_eq!(failed, 2);
    });
}

/// What spare workers run becomes ready on them too, and goes on where the policy knows the
/// workers.
fn every_policy_takes_back_what_spare_workers_ran(setup: Setup) {
    for preset in PRESETS {
        let runtime = runtime(
            Setup {
                policy: preset.name,
                ..setup
            },
            2,
            4,
        );
        let (ends, blocked) = block(&runtime, 2);
        let fibers = (0..20).map(|_| {
            runtime.spawn(|| {
                for _ in 0..10 {
                    yield_now();
                    time::sleep(ms(1)).expect("not cancelled");
                }
            })
        });

        let fibers: Vec<_> = fibers.collect();
        if preset.family == FamilyName::Local {
            drop(ends); // Its fibers never move.
            join_all(fibers);
        } else {
            join_all(fibers);
            drop(ends);
        }

        join_all(blocked);
    }
}

/// Nothing is held up: they come because they were asked for.
fn a_program_adds_workers(setup: Setup) {
    let builder = setup
        .builder()
        .workers(1)
        .max_workers(4)
        .own_storage()
        .stall_after(Some(Duration::from_secs(60)));
    let runtime = setup.check(builder.build().expect("a runtime"));
    for _ in 0..3 {
        let added = runtime.add_workers(2).expect("there may be four");
        assert_eq!((added.count(), runtime.workers()), (2, 1));
        // Each computes until the others do: one worker would never end.
        let together = Arc::new(AtomicUsize::new(0));
        let fibers = (0..3).map(|_| {
            let together = together.clone();
            runtime.spawn(move || {
                together.fetch_add(1, Ordering::SeqCst);
                while together.load(Ordering::SeqCst) < 3 {}
            })
        });

        join_all(fibers);
        eventually("both take part", || runtime.metrics().spare_workers == 2);
        assert!(
            runtime
                .add_workers(2)
                .expect_err("one too many")
                .to_string()
                .contains("max_workers, 4")
        );
        let third = runtime.add_workers(1).expect("four in all");
        eventually("the third takes part", || {
            runtime.metrics().spare_workers == 3
        });
        drop(third);
        eventually("it rests", || runtime.metrics().spare_workers == 2);
        drop(added);
        eventually("all rest", || runtime.metrics().spare_workers == 0);
    }
}

/// Far more fibers than workers with a driver of their own.
fn a_lock_is_held_across_a_sleep_by_hundreds(setup: Setup) {
    for workers in [1, 2] {
        let runtime = default_runtime(setup, workers);
        hold_a_lock(&runtime, 200, ms(2));
        let left = runtime.shutdown(HANG / 3);
        assert_eq!(
            (
                left.leaked_fibers,
                left.leaked_workers,
                left.leaked_operations
            ),
            (0, 0, 0)
        );
    }
}

fn default_runtime(setup: Setup, workers: usize) -> Runtime {
    setup.check(
        setup
            .builder()
            .workers(workers)
            .own_storage()
            .build()
            .expect("a runtime"),
    )
}

/// A pool as `r2d2` has it: a mutex, a condition variable, and what is free.
struct Connections(Mutex<Vec<usize>>, Condvar);

impl Connections {
    fn new(count: usize) -> Arc<Self> {
        Arc::new(Self(Mutex::new((0..count).collect()), Condvar::new()))
    }

    fn take(&self) -> usize {
        let mut free = self.0.lock().expect("not poisoned");
        loop {
            if let Some(connection) = free.pop() {
                return connection;
            }
            free = self.1.wait(free).expect("not poisoned");
        }
    }

    fn put(&self, connection: usize) {
        self.0.lock().expect("not poisoned").push(connection);
        self.1.notify_one();
    }
}

fn a_pool_of_ten_connections_serves_hundreds(setup: Setup) {
    // The limit is met in the second case.
    for most in [4096, 20] {
        let runtime = runtime(setup, 2, most);
        let connections = Connections::new(10);
        let fibers = (0..300).map(|n| {
            let connections = connections.clone();
            runtime.spawn(move || {
                let connection = connections.take();
                time::sleep(ms(5)).expect("not cancelled");
                connections.put(connection);
                n
            })
        });

        assert_eq!(join_all(fibers), (0..300).collect::<Vec<_>>());
        assert_eq!(connections.0.lock().expect("not poisoned").len(), 10);
    }
}

/// Clients of `std`, and a server of ours, on the same two workers: the server's fibers wait on
/// workers that the clients' leave.
fn hundreds_of_blocking_clients_ask_at_once(setup: Setup) {
    const COUNT: usize = 400;
    let runtime = default_runtime(setup, 2);
    let address = echo(&runtime);
    let all = Arc::new(Barrier::new(COUNT));
    let fibers = (0..COUNT).map(|n| {
        let all = all.clone();
        runtime.spawn(move || {
            let client = connect(address);
            (0..3).for_each(|_| ask(&client, n as u8));
            // Each has a thread by now.
            all.wait();
            ask(&client, 7);
        })
    });

    join_all(fibers);
}

/// All workers with a driver of their own are held up, so what waits for time, data, a connection,
/// several of them, or nothing in particular has begun to on a worker without one. Some is
/// cancelled, some is late.
fn fibers_wait_on_workers_without_a_driver(setup: Setup) {
    for workers in [1, 2] {
        let runtime = default_runtime(setup, workers);
        let (release, blocked) = block(&runtime, workers + 8);
        eventually("spare workers come", || runtime.metrics().spare_workers > 7);
        let address = echo(&runtime);
        let clients: Vec<_> = (0..20).map(|_| connect(address)).collect();
        for round in 0..3 {
            clients.iter().for_each(|client| ask(client, round));
        }
        let waits = runtime.spawn(move || {
            time::sleep(ms(20)).expect("not cancelled");
            let late = plainweave::park_timeout(ms(5)).expect_err("nobody wakes it");
            assert_eq!(late.kind(), std::io::ErrorKind::TimedOut);
            let (mut ours, theirs) = connected();
            let mut byte = [0];
            let late = time::with_timeout(ms(5), || ours.read(&mut byte));

            assert_eq!(
                late.expect_err("nothing was sent").kind(),
                std::io::ErrorKind::TimedOut
            );
            drop(theirs);
            assert_eq!(ours.read(&mut byte).expect("the end"), 0);

            // Readable, a timer, and a channel at once.
            let (sender, receiver) = plainweave::sync::channel::bounded::<u8>(1);
            let (first, mut second) = connected();
            plainweave::select! {
                readable(first) => panic!("nothing was sent"),
                recv(receiver) -> _ => panic!("nothing was sent"),
                after(ms(5)) => {}
            }
            .expect("not cancelled");
            second.write_all(&[1]).expect("sent");
            plainweave::select! {
                readable(first) => {}
                recv(receiver) -> _ => panic!("nothing was sent"),
            }
            .expect("not cancelled");
            drop(sender);
            first
        });

        drop(waits.join().expect("no panic"));
        let reads = runtime.spawn(|| {
            let (mut ours, _theirs) = connected();
            ours.read(&mut [0]).map(drop)
        });

        let sleeps = runtime.spawn(|| time::sleep(Duration::from_secs(1000)));
        pause();
        for fiber in [reads, sleeps] {
            fiber.cancel();
            let error = fiber.join().expect("no panic").expect_err("cancelled");
            assert!(plainweave::is_cancelled(&error), "{error}");
        }

        drop(release);
        join_all(blocked);
        clients.iter().for_each(|client| ask(client, 9));
    }
}

/// There may be six workers, and a hundred fibers block theirs for a lock that one holds which
/// sleeps.
fn whoever_holds_the_lock_gets_a_worker_at_the_limit(setup: Setup) {
    for (workers, most) in [(1, 2), (1, 6), (2, 12)] {
        let runtime = runtime(setup, workers, most);
        let lock = Arc::new(Mutex::new(0));
        let fibers = (0..100).map(|_| {
            let lock = lock.clone();
            runtime.spawn(move || {
                for _ in 0..2 {
                    let mut count = lock.lock().expect("not poisoned");
                    time::sleep(ms(1)).expect("not cancelled");
                    yield_now();
                    *count += 1;
                }
            })
        });

        join_all(fibers);
        assert_eq!(*lock.lock().expect("not poisoned"), 200);
    }
}

/// Four workers beyond the limit start one after the other for those that have started.
fn more_that_have_started_than_the_limit_block(setup: Setup) {
    for (workers, most) in [(1, 2), (1, 6), (2, 12)] {
        let runtime = runtime(setup, workers, most);
        let count = most + 3;
        let lock = Arc::new(Mutex::new(0));
        let started = Arc::<AtomicUsize>::default();
        let blocked = Arc::<AtomicUsize>::default();
        let (open, gate) = channel::bounded::<()>(1);
        let (let_go, held) = channel::bounded::<()>(1);

        let holder = runtime.spawn({
            let lock = lock.clone();
            move || {
                let mut passed = lock.lock().expect("not poisoned");
                assert!(held.recv().is_err());
                *passed += 1;
            }
        });

        eventually("the lock is held", || lock.try_lock().is_err());
        let others = (0..count).map(|_| {
            let lock = lock.clone();
            let gate = gate.clone();
            let started = started.clone();
            let blocked = blocked.clone();
            runtime.spawn(move || {
                started.fetch_add(1, Ordering::SeqCst);
                assert!(gate.recv().is_err());
                blocked.fetch_add(1, Ordering::SeqCst);
                *lock.lock().expect("not poisoned") += 1;
            })
        });

        let others: Vec<_> = others.collect();
        eventually("all have started", || {
            started.load(Ordering::SeqCst) == count
        });

        drop(open);
        eventually("all block", || blocked.load(Ordering::SeqCst) == count);
        drop(let_go);
        join_all(others.into_iter().chain([holder]));
        assert_eq!(*lock.lock().expect("not poisoned"), count + 1);
        spare_workers_rest(&runtime);
    }
}

/// They are delayed, not lost; and they start while one worker after another comes back.
fn fresh_fibers_start_again_after_the_limit(setup: Setup) {
    let runtime = runtime(setup, 2, 5);
    let mut blocked = Blocked::new(&runtime, 5);
    eventually("all block", || blocked.running() == 5);
    let started = Arc::new(AtomicUsize::new(0));
    let fresh: Vec<_> = (0..50)
        .map(|_| {
            let started = started.clone();
            runtime.spawn(move || started.fetch_add(1, Ordering::SeqCst))
        })
        .collect();

    pause();
    assert_eq!(started.load(Ordering::SeqCst), 0);
    let late = runtime.spawn(|| 1);

    // Two are back: one for fresh fibers, and the one that is kept stays.
    blocked.release.truncate(4);
    eventually("they start", || started.load(Ordering::SeqCst) == 50);
    assert_eq!(late.join().expect("no panic"), 1);
    blocked.end();
    join_all(fresh);
    spare_workers_rest(&runtime);
}

/// They cost a thread and no descriptor, and not even that when they are not needed any more.
fn workers_without_a_driver_end(setup: Setup) {
    if apart() {
        return;
    }

    const COUNT: usize = 150;
    let runtime = default_runtime(setup, 2);
    for _ in 0..2 {
        let before = (threads_of(&runtime), descriptors());
        let blocked = Blocked::new(&runtime, COUNT);
        eventually("all block", || blocked.running() == COUNT);
        let now = (threads_of(&runtime), descriptors());
        assert!(
            now.0 >= before.0.max(COUNT - 20) && now.1 < before.1 + 40,
            "{before:?}, {now:?}"
        );
        blocked.end();
        spare_workers_rest(&runtime);
        eventually("they end", || threads_of(&runtime) < 10);
    }
}

fn threads_of(runtime: &Runtime) -> usize {
    runtime.worker_threads().len()
}

#[test]
fn workers_are_not_added_where_nobody_would_start_them() {
    for builder in [
        Runtime::builder().workers(1).stall_after(None),
        Runtime::builder().workers(2).max_workers(2),
        Runtime::builder()
            .workers(1)
            .movement(Movement::BeforeStart),
        Runtime::builder().workers(1).policy("local-fifo"),
    ] {
        let error = builder
            .build()
            .expect("a runtime")
            .add_workers(1)
            .expect_err("refused");
        assert!(error.to_string().contains("Movement::Anytime"), "{error}");
    }
}
