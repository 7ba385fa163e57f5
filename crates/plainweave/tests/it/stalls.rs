//! A worker held up by a fiber that computes: what waits with it goes on elsewhere. On both
//! drivers.

#![expect(
    unsafe_code,
    reason = "tests call what is unsafe, and say at each call why it is sound"
)]

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::TcpStream as OsStream;
use std::ops::ControlFlow;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::common::*;
use plainweave::net::TcpStream;
use plainweave::{Io, Movement, Runtime, net, time};
use rustix::process::{Pid, Signal, kill_process, setpriority_process};
use rustix::thread::sched_setaffinity;

on_every_driver!(
    parked_connections_of_a_stalled_worker_are_served_by_others,
    connections_that_come_to_a_stalled_worker_are_accepted_by_others,
    a_connection_taken_from_a_stalled_worker_can_be_closed,
    an_idle_time_ends_with_a_stalled_worker_too,
    fibers_that_sleep_with_a_stalled_worker_wake_elsewhere,
    fibers_that_read_with_a_stalled_worker_go_on_elsewhere,
    deadlines_come_with_a_stalled_worker_too,
    fibers_bound_by_a_timer_leave_a_worker_that_woke_them,
    fibers_bound_by_a_timer_are_handed_over_when_they_are_woken,
    fibers_bound_by_a_timer_are_free_once_their_worker_has_read_its_mail,
    a_stalled_worker_lets_others_go_first,
    a_storm_beside_stalls,
);

/// A wait that nothing has ended by now would go on for ever.
const PATIENCE: Duration = Duration::from_secs(20);
const STALL: Duration = Duration::from_millis(2);

/// Computes until the condition holds; whether it did in time.
fn compute_until(condition: impl Fn() -> bool) -> bool {
    let start = Instant::now();
    while !condition() && start.elapsed() < PATIENCE {
        std::hint::spin_loop();
    }
    condition()
}

fn runtime(io: Io, movement: Movement, workers: usize) -> Runtime {
    let builder = Runtime::builder()
        .workers(workers)
        .io(io)
        .movement(movement)
        .stall_after(Some(STALL));
    builder.build().expect("a runtime")
}

fn ask(mut stream: &OsStream, byte: u8) -> u8 {
    stream.set_read_timeout(Some(PATIENCE)).expect("set");
    stream.write_all(&[byte]).expect("sent");
    let mut answer = [0];
    stream.read_exact(&mut answer).expect("answered");
    answer[0]
}

/// Parks the connection with the calling worker; each byte is answered with the next one.
fn park(stream: TcpStream, idle: Option<Duration>, ended: &'static AtomicUsize) {
    net::each_readable(stream, idle, move |stream, outcome| {
        let mut byte = [0];
        if outcome.is_err() || stream.read_exact(&mut byte).is_err() {
            ended.fetch_add(1, Ordering::SeqCst);
            return ControlFlow::Break(());
        }

        stream
            .write_all(&[byte[0] + 1])
            .map_or(ControlFlow::Break(()), ControlFlow::Continue)
    });
}

fn parked_connections_of_a_stalled_worker_are_served_by_others(setup: Setup) {
    let ended: &AtomicUsize = Box::leak(Box::default());
    let runtime = runtime(setup.io, Movement::BeforeStart, 2);
    let listener = listener();
    let address = listener.local_addr().expect("address");
    let clients: Vec<_> = (0..8)
        .map(|_| OsStream::connect(address).expect("connected"))
        .collect();
    let answered = Arc::new(AtomicBool::new(false));
    let seen = answered.clone();
    let stalled = runtime.spawn(move || {
        (0..8).for_each(|_| park(listener.accept().expect("accepted").0, None, ended));
        compute_until(|| seen.load(Ordering::SeqCst))
    });

    // Several times over: a connection that was taken once parks with another worker, or with this
    // one again.
    for byte in 0..5 {
        assert!(clients.iter().all(|client| ask(client, byte) == byte + 1));
    }
    eventually("the stall is counted", || runtime.metrics().stalls >= 1);
    answered.store(true, Ordering::SeqCst);
    assert!(
        stalled.join().expect("no panic"),
        "no answer while the worker computed"
    );
    assert!(runtime.metrics().rescued >= 8, "{:?}", runtime.metrics());

    // The stalled worker has let go of what was taken: the connections end, and nothing is left.
    drop(clients);
    eventually("all connections to end", || {
        ended.load(Ordering::SeqCst) == 8
    });
    assert!(
        runtime.wait_idle(PATIENCE),
        "something is left: {:?}",
        runtime.metrics()
    );
}

/// The calling thread's slice of a processor, in nanoseconds; `None` where the kernel has none
/// (before Linux 6.12).
fn slice() -> Option<u64> {
    let mut attributes = [0u64; 6];
    // SAFETY: the kernel writes at most the 48 bytes of `struct sched_attr`, which the array has.
    let result =
        unsafe { libc::syscall(libc::SYS_sched_getattr, 0, attributes.as_mut_ptr(), 48, 0) };
    (result == 0 && attributes[3] > 0).then_some(attributes[3])
}

/// While it computes; then it is as quick as before.
fn a_stalled_worker_lets_others_go_first(setup: Setup) {
    let Some(usual) = slice() else { return };
    let runtime = runtime(setup.io, Movement::BeforeStart, 2);
    let stalled = runtime.spawn(move || {
        let usual = Some(usual);
        assert!(compute_until(|| slice() > usual), "{usual:?} ns until now");
        let start = Instant::now();
        while slice() != usual {
            assert!(start.elapsed() < PATIENCE, "it has gone on");
            time::sleep(ms(1)).expect("not cancelled");
        }
    });

    stalled.join().expect("no panic");
}

fn connections_that_come_to_a_stalled_worker_are_accepted_by_others(setup: Setup) {
    let runtime = runtime(setup.io, Movement::BeforeStart, 2);
    let listener = listener();
    let address = listener.local_addr().expect("address");
    let ended = Box::leak(Box::default());
    let answered = Arc::new(AtomicBool::new(false));
    let (ended, seen): (&'static AtomicUsize, _) = (ended, answered.clone());
    let stalled = runtime.spawn(move || {
        net::each_readable(listener, None, move |listener, outcome| {
            match outcome.and_then(|()| listener.try_accept()) {
                Ok((stream, _)) => park(stream, None, ended),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(_) => return ControlFlow::Break(()),
            }
            ControlFlow::Continue(())
        });
        compute_until(|| seen.load(Ordering::SeqCst))
    });

    for byte in 0..5 {
        let client = OsStream::connect(address).expect("connected");
        assert_eq!(ask(&client, byte), byte + 1);
    }

    answered.store(true, Ordering::SeqCst);
    assert!(
        stalled.join().expect("no panic"),
        "it was held up all the time"
    );
    runtime.close_idle_connections();
}

/// It ends for its client too: its old place, which the stalled worker still has, does not keep it
/// open for good.
fn a_connection_taken_from_a_stalled_worker_can_be_closed(setup: Setup) {
    let runtime = runtime(setup.io, Movement::BeforeStart, 2);
    let listener = listener();
    let mut client = OsStream::connect(listener.local_addr().expect("address")).expect("connected");
    let go_on = Arc::new(AtomicBool::new(false));
    let seen = go_on.clone();
    let stalled = runtime.spawn(move || {
        let stream = listener.accept().expect("accepted").0;
        net::on_readable(stream, None, |mut stream, outcome| {
            outcome
                .and_then(|()| stream.read_exact(&mut [0]))
                .and_then(|()| stream.write_all(b"bye"))
                .expect("sent");
        });
        compute_until(|| seen.load(Ordering::SeqCst))
    });

    client.set_read_timeout(Some(PATIENCE)).expect("set");
    client.write_all(b"?").expect("sent");
    client.read_exact(&mut [0; 3]).expect("answered");
    go_on.store(true, Ordering::SeqCst);
    assert!(stalled.join().expect("no panic"));
    assert_eq!(client.read(&mut [0]).expect("the end"), 0);

    assert!(
        runtime.wait_idle(PATIENCE),
        "something is left: {:?}",
        runtime.metrics()
    );
}

fn an_idle_time_ends_with_a_stalled_worker_too(setup: Setup) {
    let ended: &AtomicUsize = Box::leak(Box::default());
    let runtime = runtime(setup.io, Movement::BeforeStart, 2);
    let listener = listener();
    let client = OsStream::connect(listener.local_addr().expect("address")).expect("connected");
    let stalled = runtime.spawn(move || {
        park(
            listener.accept().expect("accepted").0,
            Some(Duration::from_millis(20)),
            ended,
        );
        compute_until(|| ended.load(Ordering::SeqCst) == 1)
    });

    assert!(
        stalled.join().expect("no panic"),
        "the idle time did not end"
    );
    drop(client);
    assert!(
        runtime.wait_idle(PATIENCE),
        "something is left: {:?}",
        runtime.metrics()
    );
}

/// Whatever they wait for, on whichever worker: all of these fibers end while one computes.
fn all_end_beside(runtime: &Runtime, wait: impl Fn(usize) + Send + Sync + 'static) {
    const FIBERS: usize = 16;
    let ended = Arc::new(AtomicUsize::new(0));
    let wait = Arc::new(wait);
    let seen = ended.clone();
    let before = runtime.metrics().rescued;

    // Until some had waited with the worker that then computed. (All others may have been on the
    // other one.)
    for _ in 0..50 {
        ended.store(0, Ordering::SeqCst);
        let ended = ended.clone();
        let wait = wait.clone();
        let seen = seen.clone();
        let computed = runtime.run(move || {
            for n in 0..FIBERS {
                let ended = ended.clone();
                let wait = wait.clone();
                plainweave::spawn(move || {
                    wait(n);
                    ended.fetch_add(1, Ordering::SeqCst);
                });
            }

            // All wait by now.
            time::sleep(Duration::from_millis(5)).expect("slept");
            compute_until(|| seen.load(Ordering::SeqCst) == FIBERS)
        });

        assert!(computed, "{:?}", runtime.metrics());
        if runtime.metrics().rescued > before {
            return;
        }
    }

    panic!("nothing was rescued: {:?}", runtime.metrics());
}

fn fibers_that_sleep_with_a_stalled_worker_wake_elsewhere(setup: Setup) {
    let runtime = runtime(setup.io, Movement::Anytime, 2);
    all_end_beside(&runtime, |n| {
        time::sleep(Duration::from_millis(10 + n as u64)).expect("slept")
    });
}

fn fibers_that_read_with_a_stalled_worker_go_on_elsewhere(setup: Setup) {
    let runtime = runtime(setup.io, Movement::Anytime, 2);
    let listener = Arc::new(listener());
    let address = listener.local_addr().expect("address");
    all_end_beside(&runtime, move |n| {
        let client = OsStream::connect(address).expect("connected");
        let mut served = listener.accept().expect("accepted").0;
        let answer = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(10));
            (&client).write_all(b"now").expect("sent");
            client
        });

        // Half of them with a deadline, and so with a timer, that is still armed when the bytes
        // come.
        served
            .set_read_timeout((n % 2 == 0).then_some(PATIENCE))
            .expect("set");
        let mut bytes = [0; 3];
        served.read_exact(&mut bytes).expect("read");
        assert_eq!(&bytes, b"now");
        drop(answer);
    });
}

fn deadlines_come_with_a_stalled_worker_too(setup: Setup) {
    let runtime = runtime(setup.io, Movement::Anytime, 2);
    all_end_beside(&runtime, |_| {
        let waited = time::with_timeout(Duration::from_millis(10), plainweave::thread::park);
        assert_eq!(
            waited.map_err(|e| e.kind()),
            Err(std::io::ErrorKind::TimedOut)
        );
    });
}

fn fibers_bound_by_a_timer_are_handed_over_when_they_are_woken(setup: Setup) {
    let runtime = runtime(setup.io, Movement::Anytime, 2);
    all_end_beside(&runtime, |_| {
        let me = plainweave::thread::current();
        std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(10));
            me.unpark();
        });
        plainweave::thread::park_timeout(PATIENCE).expect("unparked");
    });
}

/// They are woken from outside, all at once, and so by messages to the workers that have their
/// timers. The first one to run computes until the others have run too: those behind it on its
/// worker go on elsewhere.
fn fibers_bound_by_a_timer_are_free_once_their_worker_has_read_its_mail(setup: Setup) {
    const FIBERS: usize = 16;
    let runtime = runtime(setup.io, Movement::Anytime, 2);
    for _ in 0..10 {
        let waiting = Arc::new(AtomicUsize::new(0));
        let ended = Arc::new(AtomicUsize::new(0));
        let fibers: Vec<_> = (0..FIBERS)
            .map(|_| {
                let waiting = waiting.clone();
                let ended = ended.clone();
                runtime.spawn(move || {
                    waiting.fetch_add(1, Ordering::SeqCst);
                    plainweave::thread::park_timeout(PATIENCE * 2).expect("unparked");
                    ended.fetch_add(1, Ordering::SeqCst) > 0
                        || compute_until(|| ended.load(Ordering::SeqCst) == FIBERS)
                })
            })
            .collect();
        eventually("all wait", || waiting.load(Ordering::SeqCst) == FIBERS);
        std::thread::sleep(ms(2));
        fibers.iter().for_each(|fiber| fiber.fiber().unpark());
        for fiber in fibers {
            assert!(fiber.join().expect("no panic"), "{:?}", runtime.metrics());
        }
    }
}

/// It is the fiber that computes that wakes them: they are ready with its worker, and still have a
/// timer there.
fn fibers_bound_by_a_timer_leave_a_worker_that_woke_them(setup: Setup) {
    let runtime = runtime(setup.io, Movement::Anytime, 2);
    for _ in 0..20 {
        let ended = Arc::new(AtomicUsize::new(0));
        let seen = ended.clone();
        let computed = runtime.run(move || {
            let wait = || {
                let ended = ended.clone();
                plainweave::spawn(move || {
                    plainweave::thread::park_timeout(PATIENCE * 2).expect("unparked");
                    ended.fetch_add(1, Ordering::SeqCst);
                })
            };

            let waiting: Vec<_> = (0..8).map(|_| wait()).collect();
            // All wait by now.
            time::sleep(Duration::from_millis(5)).expect("slept");
            waiting.iter().for_each(|fiber| fiber.fiber().unpark());
            compute_until(|| seen.load(Ordering::SeqCst) == waiting.len())
        });

        assert!(computed, "{:?}", runtime.metrics());
    }
}

/// Where the kernel has no `membarrier` for us the workers use fences; where it has it no longer,
/// stalls stay.
#[test]
fn without_membarrier_stalls_end_by_themselves_at_worst() {
    let name = "without_membarrier_stalls_end_by_themselves_at_worst";
    if is_child("never") {
        forbid(libc::SYS_membarrier, libc::EPERM);
        parked_connections_of_a_stalled_worker_are_served_by_others(Setup {
            io: Io::Epoll,
            policy: "fifo",
            pooled: false,
        });
    } else if is_child("no longer") {
        drop(runtime(Io::Epoll, Movement::BeforeStart, 2));
        forbid(libc::SYS_membarrier, libc::ENOMEM);
        for io in [Io::Epoll, Io::Uring] {
            let ended: &AtomicUsize = Box::leak(Box::default());
            let runtime = runtime(io, Movement::BeforeStart, 2);
            let listener = listener();
            let client =
                OsStream::connect(listener.local_addr().expect("address")).expect("connected");
            let stalled = runtime.spawn(move || {
                park(listener.accept().expect("accepted").0, None, ended);
                let start = Instant::now();
                compute_until(|| start.elapsed() > STALL * 20)
            });

            assert!((0..100).all(|byte| ask(&client, byte) == byte + 1));
            assert!(stalled.join().expect("no panic"));
            assert_eq!(runtime.metrics().rescued, 0);
        }
    } else {
        for part in ["never", "no longer"] {
            let output = in_child(name, part, &[]);
            assert!(output.status.success(), "{part}: {}", stderr_of(&output));
        }
    }
}

/// The watchdog does not sit out its period.
#[test]
fn an_idle_runtime_ends_at_once_however_long_a_stall_may_be() {
    let start = Instant::now();
    let builder = Runtime::builder()
        .workers(2)
        .stall_after(Some(Duration::from_secs(60)));
    drop(builder.build().expect("a runtime"));
    let short = Runtime::builder()
        .workers(2)
        .stall_after(Some(STALL))
        .build()
        .expect("a runtime");
    std::thread::sleep(STALL * 20); // Its watchdog sleeps by now.
    drop(short);
    assert!(start.elapsed() < PATIENCE);
}

/// Connections come and go, time out and are cancelled, while fibers compute for longer than a
/// stall.
fn a_storm_beside_stalls(setup: Setup) {
    let ended: &AtomicUsize = Box::leak(Box::default());
    for movement in [Movement::BeforeStart, Movement::Anytime] {
        let runtime = Runtime::builder()
            .workers(3)
            .io(setup.io)
            .movement(movement);
        let runtime = runtime
            .stall_after(Some(Duration::from_millis(1)))
            .build()
            .expect("a runtime");
        let listener = listener();
        let address = listener.local_addr().expect("address");
        let acceptor = runtime.spawn(move || {
            for n in 0.. {
                let Ok((mut stream, _)) = listener.accept() else {
                    return;
                };
                if n % 2 == 0 {
                    park(stream, Some(Duration::from_millis(15 + n % 5)), ended);
                    continue;
                }

                plainweave::spawn(move || {
                    stream
                        .set_read_timeout(Some(Duration::from_millis(5 + n % 7)))
                        .expect("set");
                    let mut byte = [0];
                    while stream.read_exact(&mut byte).is_ok()
                        && stream.write_all(&[byte[0] + 1]).is_ok()
                    {}
                });
            }
        });

        let computing: Vec<_> = (0..2)
            .map(|n| {
                runtime.spawn(move || {
                    for _ in 0..40 {
                        let start = Instant::now();
                        compute_until(|| start.elapsed() > Duration::from_millis(3 + n));
                        let _ = time::sleep(Duration::from_millis(1));
                    }
                })
            })
            .collect();
        let clients: Vec<_> = (0..4)
            .map(|seed| std::thread::spawn(move || client(address, seed)))
            .collect();
        let answers: usize = clients
            .into_iter()
            .map(|c| c.join().expect("no panic"))
            .sum();
        computing
            .into_iter()
            .for_each(|fiber| fiber.join().expect("no panic"));
        assert!(answers > 0, "nobody was answered");
        let metrics = runtime.metrics();

        assert!(metrics.stalls > 0, "{metrics:?}");
        acceptor.cancel();
        let left = runtime.shutdown(PATIENCE);
        assert_eq!(
            (
                left.leaked_fibers,
                left.leaked_workers,
                left.leaked_operations
            ),
            (0, 0, 0),
            "{movement:?}"
        );
    }
}

/// Requests on connections that the server may end at any time; how many were answered, each with
/// the right byte.
fn client(address: std::net::SocketAddr, seed: u64) -> usize {
    let mut random = Random::new(seed + 1);
    let mut answers = 0;
    for _ in 0..12 {
        let mut stream = OsStream::connect(address).expect("connected");
        stream.set_read_timeout(Some(PATIENCE)).expect("set");
        for byte in 0..10 {
            std::thread::sleep(Duration::from_micros(random.below(3000)));
            let mut answer = [0];
            if stream.write_all(&[byte]).is_err() || stream.read_exact(&mut answer).is_err() {
                break; // Timed out.
            }
            assert_eq!(answer[0], byte + 1);
            answers += 1;
        }
    }

    answers
}

#[test]
fn a_limit_out_of_range_is_refused() {
    let error = Runtime::builder()
        .workers(2)
        .stall_after(Some(Duration::from_micros(10)))
        .build()
        .expect_err("refused");
    assert!(
        error.to_string().contains("stall_after") && error.to_string().contains("1 ms to 60 s"),
        "{error}"
    );
    Runtime::builder()
        .workers(2)
        .stall_after(None)
        .build()
        .expect("no watchdog")
        .run(|| ());
}

fn say(text: &str) {
    std::io::stdout()
        .write_all(text.as_bytes())
        .expect("written");
}

/// Fibers that leave the worker in time, in a process that is stopped again and again: as it would
/// be by a quota. If that time counted as a fiber's, most stops would be stalls.
#[test]
fn a_process_without_a_processor_is_not_stalled() {
    const AFTER: Duration = Duration::from_millis(40);
    if is_child("stopped") {
        let runtime = Runtime::builder()
            .workers(1)
            .stall_after(Some(AFTER))
            .build()
            .expect("a runtime");
        let done = Arc::new(AtomicBool::new(false));
        let seen = done.clone();
        let busy = runtime.spawn(move || {
            // The worker learns that fibers run for long, and polls its driver after each.
            for round in 0.. {
                compute(if round < 200 { AFTER / 100 } else { AFTER / 4 });
                plainweave::yield_now();
                if round == 200 {
                    say("ready\n");
                }
                if seen.load(Ordering::SeqCst) {
                    return;
                }
            }
        });

        std::io::stdin()
            .read_to_end(&mut Vec::new())
            .expect("the parent's end");
        done.store(true, Ordering::SeqCst);
        runtime.run(move || busy.join().expect("no panic"));
        say(&format!("stalls: {}\n", runtime.metrics().stalls));
        return;
    }

    let mut command = child_command("a_process_without_a_processor_is_not_stalled", "stopped");
    let mut child = OwnChild(
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the child runs"),
    );
    let output = BufReader::new(child.0.stdout.take().expect("piped"));
    let mut said = output
        .lines()
        .map(|line| line.expect("what the child says"));
    assert!(said.any(|line| line.ends_with("ready")), "the child ended");
    let signal = |signal| kill_process(Pid::from_child(&child.0), signal).expect("a child");

    for _ in 0..30 {
        std::thread::sleep(AFTER);
        signal(Signal::STOP);
        std::thread::sleep(AFTER * 3 / 2);
        signal(Signal::CONT);
    }

    drop(child.0.stdin.take());
    let stalls = said.find_map(|line| line.split_once("stalls: ")?.1.parse::<u32>().ok());
    // A busy machine may keep the worker from its processor, and the watchdog not.
    assert!(stalls.is_some_and(|stalls| stalls <= 5), "{stalls:?}");
}

/// Both workers share a processor with threads that the kernel prefers to them; the watchdog has
/// another. If the wait for it counted as a fiber's, each time that these threads compute would be
/// a stall of both. What else runs on the machine may keep the watchdog from looking in time, which
/// makes some stalls of others: hence more than one try.
#[test]
fn a_worker_without_a_processor_is_not_stalled() {
    const TIMES: usize = 10;
    let stalls: Vec<_> = (0..5)
        .map(|attempt| stalls_without_a_processor(attempt, TIMES))
        .take_while(|&stalls| stalls > 2 * TIMES as u64 / 4)
        .collect();
    assert!(stalls.len() < 5, "{stalls:?}");
}

/// Returns the stalls of two workers that are without a processor that many times. A worker of an
/// earlier attempt may still be ending, so theirs have names of their own.
fn stalls_without_a_processor(attempt: usize, times: usize) -> u64 {
    const AFTER: Duration = Duration::from_millis(20);
    let name = format!("preempted{attempt}");
    let builder = Runtime::builder()
        .workers(2)
        .max_workers(4)
        .thread_name(&name)
        .stall_after(Some(AFTER));
    let runtime = builder.build().expect("a runtime");
    let one = one_processor();
    let threads = threads();
    let workers = [0, 1].map(|n| format!("{name}-{n}"));
    let workers: Vec<_> = threads
        .iter()
        .filter(|(_, name)| workers.contains(name))
        .collect();

    assert_eq!(workers.len(), 2, "{threads:?}");
    for (worker, _) in workers {
        sched_setaffinity(Some(*worker), &one).expect("a thread of this process");
        setpriority_process(Some(*worker), 19).expect("less priority needs no right");
    }

    let done = Arc::new(AtomicBool::new(false));
    let turns = |done: Arc<AtomicBool>| {
        move || {
            while !done.load(Ordering::SeqCst) {
                compute(Duration::from_micros(100));
                plainweave::yield_now();
            }
        }
    };

    let busy = [0, 1].map(|_| runtime.spawn(turns(done.clone())));
    for _ in 0..times {
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    sched_setaffinity(None, &one).expect("its own processor");
                    compute(AFTER * 2);
                });
            }
        });
        std::thread::sleep(AFTER);
    }

    done.store(true, Ordering::SeqCst);
    runtime.run(|| {
        busy.into_iter()
            .for_each(|fiber| fiber.join().expect("no panic"))
    });
    runtime.metrics().stalls
}
