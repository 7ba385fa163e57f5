//! Spare workers when something goes wrong: threads, memory or descriptors that the system does not
//! give, signals, forks, a shutdown with workers that are stuck. On both drivers. What changes the
//! process runs in a child.

#![expect(
    unsafe_code,
    reason = "tests call what is unsafe, and say at each call why it is sound"
)]
#![allow(clippy::print_stderr, reason = "a child process tells its parent")]

use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use crate::common::*;
use plainweave::{Io, Movement, Runtime, RuntimeBuilder, spawn, time, yield_now};

on_every_driver!(
    no_thread_can_be_started,
    the_limit_is_said_once,
    memory_for_a_thread_comes_later,
    descriptors_are_used_up,
    a_runtime_ends_while_spare_workers_start,
    spare_workers_that_are_stuck_are_counted,
    a_handler_runs_on_spare_workers,
    fibers_fork,
    fibers_run_commands,
);

fn builder(setup: Setup, workers: usize) -> RuntimeBuilder {
    setup
        .builder()
        .workers(workers)
        .own_storage()
        .movement(Movement::Anytime)
        .stall_after(Some(ms(2)))
}

fn runtime(setup: Setup, workers: usize) -> Runtime {
    setup.check(builder(setup, workers).build().expect("a runtime"))
}

/// Runs `body` in a process of its own. `test`: the name of the calling function.
fn in_own_process(setup: Setup, test: &str, env: &[(&str, &str)], body: impl FnOnce()) {
    let module = if setup.io == Io::Epoll {
        "epoll"
    } else {
        "uring"
    };

    let name = format!("{module}::{test}");
    if is_child(&name) {
        body();
        eprintln!("child is content");
        return;
    }

    let child = in_child(&name, &name, env);
    let text = stderr_of(&child);
    assert!(
        child.status.success() && text.contains("child is content"),
        "{:?}: {text}",
        child.status
    );
}

/// Without a thread for them, fibers wait until the blocking ones have ended.
fn no_thread_can_be_started(setup: Setup) {
    in_own_process(setup, "no_thread_can_be_started", &[], || {
        let refused = Arc::new(AtomicUsize::new(0));
        let runtimes = [1, 2].map(|workers| {
            let refused = refused.clone();
            let builder = builder(setup, workers);
            let builder = builder.on_stall(move |stall| {
                let error = std::io::Error::from_raw_os_error(libc::EAGAIN).kind();
                let expected = format!(
                    "all {workers} workers are held up, fibers are ready, and no spare worker can start: {error}"
                );
                refused.fetch_add(usize::from(stall.to_string().ends_with(&expected)), Ordering::SeqCst);
            });

            setup.check(builder.build().expect("a runtime"))
        });

        for call in [libc::SYS_clone, libc::SYS_clone3] {
            forbid_everywhere(call, libc::EAGAIN);
        }
        std::thread::Builder::new()
            .spawn(|| ())
            .expect_err("refused");
        for runtime in runtimes {
            for _ in 0..2 {
                let workers = runtime.workers();
                let blocked = Blocked::new(&runtime, 6);
                let behind: Vec<_> = (0..20).map(|n| runtime.spawn(move || n)).collect();
                let reports = refused.load(Ordering::SeqCst);
                eventually("all workers are held up", || blocked.running() == workers);
                eventually("a report says so", || {
                    refused.load(Ordering::SeqCst) > reports
                });
                assert_eq!(
                    (runtime.metrics().spare_workers, blocked.running()),
                    (0, workers)
                );
                blocked.end();
                let ended: Vec<_> = behind
                    .into_iter()
                    .map(|fiber| fiber.join().expect("no panic"))
                    .collect();

                assert_eq!(ended, (0..20).collect::<Vec<_>>());
            }

            let left = runtime.shutdown(HANG / 3);
            assert_eq!(
                (left.leaked_fibers, left.leaked_workers),
                (0, 0),
                "{left:?}"
            );
        }
    });
}

/// At the limit one line says so, in any build, and what to do.
fn the_limit_is_said_once(setup: Setup) {
    in_own_process(setup, "the_limit_is_said_once", &[], || {
        for _ in 0..2 {
            // As programs have it: tests' runtimes are silent.
            let builder = Runtime::builder()
                .io(setup.io)
                .workers(1)
                .max_workers(3)
                .stall_after(Some(ms(2)));
            let runtime = setup.check(builder.build().expect("a runtime"));
            let blocked = Blocked::new(&runtime, 3);
            eventually("all block", || blocked.running() == 3);
            let fresh = runtime.spawn(|| ());

            std::thread::sleep(ms(50)); // Long enough for some scans.
            blocked.end();
            fresh.join().expect("no panic");
        }
    });
    let module = if setup.io == Io::Epoll {
        "epoll"
    } else {
        "uring"
    };

    let name = format!("{module}::the_limit_is_said_once");
    if is_child(&name) {
        return;
    }
    let said = |env: &[(&str, &str)]| {
        let text = stderr_of(&in_child(&name, &name, env));
        text.lines()
            .filter(|line| line.starts_with("plainweave: "))
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };

    let lines = said(&[("PLAINWEAVE_REPORT", "")]);
    let at_limit: Vec<_> = lines
        .iter()
        .filter(|line| line.contains("max_workers allows no more"))
        .collect();
    assert!(
        at_limit.len() == 1 && at_limit[0].contains("3 workers are held up"),
        "{lines:?}"
    );
    assert_eq!(said(&[("PLAINWEAVE_REPORT", "none")]), [""; 0]);
}

/// Sets the soft limit of a resource and returns the one before it.
fn limit(resource: libc::__rlimit_resource_t, most: u64) -> u64 {
    let mut limits = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };

    // SAFETY: plain calls with valid arguments.
    unsafe {
        assert_eq!(libc::getrlimit(resource, &mut limits), 0);
        let before = std::mem::replace(&mut limits.rlim_cur, most);
        assert_eq!(libc::setrlimit(resource, &raw const limits), 0);
        before
    }
}

/// Bytes of address space in use.
fn address_space() -> u64 {
    let pages = fs::read_to_string("/proc/self/statm").expect("proc");
    pages
        .split(' ')
        .next()
        .expect("the size")
        .parse::<u64>()
        .expect("a number")
        * 4096
}

/// The watchdog tries again: when there is memory, the program goes on though all workers are still
/// held up.
fn memory_for_a_thread_comes_later(setup: Setup) {
    // A stack of 1 GiB does not fit into half of that; everything else does.
    in_own_process(
        setup,
        "memory_for_a_thread_comes_later",
        &[("RUST_MIN_STACK", "1073741824")],
        || {
            const COUNT: usize = 10;
            let runtime = runtime(setup, 1);
            let warm: Vec<_> = (0..2 * COUNT)
                .map(|_| runtime.spawn(|| time::sleep(ms(1))))
                .collect();
            warm.into_iter()
                .for_each(|fiber| fiber.join().expect("no panic").expect("slept"));
            let before = limit(libc::RLIMIT_AS, address_space() + (1 << 29));

            std::thread::Builder::new()
                .spawn(|| ())
                .expect_err("refused");
            let stalls = runtime.metrics().stalls;
            let blocked = Blocked::new(&runtime, COUNT);

            eventually("the watchdog notices", || runtime.metrics().stalls > stalls);
            std::thread::sleep(ms(20)); // Long enough for a try.
            // One each on the worker and, if this machine was busy a moment ago, on a spare one or
            // two from then.
            assert!(blocked.running() < COUNT / 2, "{}", blocked.running());
            limit(libc::RLIMIT_AS, before);
            assert_eq!(runtime.run(|| 5), 5);
            eventually("all block", || blocked.running() == COUNT);
            blocked.end();
        },
    );
}

/// The first spare workers need a few descriptors each, and the others none but those of one that
/// waits for them all. Some are kept for that one, so workers start when none is left: they may be
/// what closes some.
fn descriptors_are_used_up(setup: Setup) {
    in_own_process(setup, "descriptors_are_used_up", &[], || {
        for free in 0..6 {
            let runtime = runtime(setup, 1);
            runtime.run(yield_now);
            let before = limit(libc::RLIMIT_NOFILE, 64);
            let mut taken: Vec<_> = std::iter::from_fn(|| File::open("/dev/null").ok()).collect();
            taken.truncate(taken.len() - free);
            let blocked = Blocked::new(&runtime, 20);

            eventually("all block", || blocked.running() == 20);
            assert_eq!(runtime.run(|| time::sleep(ms(1)).map_or(0, |()| 5)), 5);
            blocked.end();
            drop(taken);
            limit(libc::RLIMIT_NOFILE, before);
        }
    });
}

/// At whatever moment: before the first spare worker starts, meanwhile, or when some are there.
fn a_runtime_ends_while_spare_workers_start(setup: Setup) {
    for round in 0..30 {
        let runtime = runtime(setup, 1 + round % 2);
        let blocked = Blocked::new(&runtime, 4);
        eventually("one blocks", || blocked.running() > 0);
        Random::new(round as u64 + 1).spin(8000);
        let Blocked {
            release, fibers, ..
        } = blocked;
        let ends = std::thread::spawn(move || {
            Random::new(round as u64 + 100).spin(2000);
            drop(release);
        });

        let left = runtime.shutdown(HANG / 3);
        assert_eq!(
            (left.leaked_fibers, left.leaked_workers),
            (0, 0),
            "{left:?}"
        );
        ends.join().expect("no panic");
        drop(fibers);
    }
}

/// A shutdown does not wait for threads that are stuck, spare ones included.
fn spare_workers_that_are_stuck_are_counted(setup: Setup) {
    const STUCK: usize = 4;
    let runtime = runtime(setup, 1);
    let blocked = Blocked::new(&runtime, STUCK);
    eventually("all block", || blocked.running() == STUCK);
    let left = runtime.shutdown(ms(20));
    assert_eq!(left.leaked_fibers, STUCK as u64);

    // One more may have been about to end.
    assert!(
        (STUCK..=STUCK + 1).contains(&left.leaked_workers),
        "{left:?}"
    );
    blocked.end();
}

/// Signals that the handler has seen, and the thread that saw the last one.
static SIGNALS: AtomicUsize = AtomicUsize::new(0);
static LAST_THREAD: AtomicU64 = AtomicU64::new(0);

extern "C" fn on_signal(_: libc::c_int) {
    // SAFETY: `gettid` has no preconditions; `errno` is the interrupted code's, which finds it as
    // it was.
    unsafe {
        let errno = libc::__errno_location();
        let before = errno.read();
        LAST_THREAD.store(libc::gettid() as u64, Ordering::SeqCst);
        libc::close(-1);
        errno.write(before);
    }
    SIGNALS.fetch_add(1, Ordering::SeqCst);
}

/// Handles SIGUSR2 as most programs do.
fn install_handler(flags: libc::c_int) {
    // SAFETY: a zeroed action with a handler that calls what is safe in one.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = on_signal as *const () as usize;
        action.sa_flags = flags;
        assert_eq!(
            libc::sigaction(libc::SIGUSR2, &raw const action, std::ptr::null_mut()),
            0
        );
    }
}

/// Threads of spare workers by their name, which ends in a number from `workers` on.
fn spare_threads(workers: usize) -> Vec<u64> {
    let is_spare = |name: &str| {
        let number = name
            .strip_prefix("plainweave-")
            .and_then(|number| number.parse::<usize>().ok());
        number.is_some_and(|number| number >= workers)
    };

    let spare = threads().into_iter().filter(|(_, name)| is_spare(name));
    spare
        .map(|(thread, _)| thread.as_raw_pid() as u64)
        .collect()
}

fn signal(thread: u64) {
    let before = SIGNALS.load(Ordering::SeqCst);
    // SAFETY: a plain call.
    let found = unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), thread, libc::SIGUSR2) };
    assert_eq!(found, 0);
    eventually("the handler runs", || {
        SIGNALS.load(Ordering::SeqCst) > before
    });
    assert_eq!(LAST_THREAD.load(Ordering::SeqCst), thread);
}

/// The program's own handler, on a spare worker that a fiber blocks in the kernel, and on one that
/// rests; with the alternate stack and on the stack of the fiber.
fn a_handler_runs_on_spare_workers(setup: Setup) {
    in_own_process(setup, "a_handler_runs_on_spare_workers", &[], || {
        const READERS: usize = 4;
        let runtime = runtime(setup, 1);
        for flags in [libc::SA_RESTART, libc::SA_RESTART | libc::SA_ONSTACK] {
            install_handler(flags);
            let reading = Arc::new(AtomicUsize::new(0));
            let (readers, mut writers): (Vec<_>, Vec<_>) = (0..READERS)
                .map(|_| UnixStream::pair().expect("a pair"))
                .unzip();
            let fibers: Vec<_> = readers
                .into_iter()
                .map(|mut reader| {
                    let reading = reading.clone();
                    runtime.spawn(move || {
                        reading.fetch_add(1, Ordering::SeqCst);
                        let mut byte = [0];
                        // Restarted by the kernel: not even `read` notices.
                        reader.read(&mut byte).map(|len| (len, byte[0]))
                    })
                })
                .collect();
            eventually("all read", || reading.load(Ordering::SeqCst) == READERS);
            let threads = spare_threads(1);

            assert!(threads.len() >= READERS - 1, "{threads:?}");
            threads.iter().for_each(|thread| signal(*thread));
            writers
                .iter_mut()
                .for_each(|writer| writer.write_all(&[7]).expect("sent"));
            let read = fibers
                .into_iter()
                .map(|fiber| fiber.join().expect("no panic").expect("read"));
            assert_eq!(read.collect::<Vec<_>>(), [(1, 7); READERS]);
            eventually("spare workers rest", || {
                runtime.run(yield_now);
                runtime.metrics().spare_workers == 0
            });
            threads.iter().for_each(|thread| signal(*thread));
        }

        // They still serve.
        let blocked = Blocked::new(&runtime, READERS);
        eventually("all block", || blocked.running() == READERS);
        assert_eq!(runtime.run(|| 5), 5);
        blocked.end();
    });
}

/// Forks. The new process writes a byte and ends; it calls nothing that is not safe in a signal
/// handler.
fn fork_and_wait() {
    let (mut read, write) = std::io::pipe().expect("a pipe");
    let fd = std::os::fd::AsRawFd::as_raw_fd(&write);
    // SAFETY: the child makes plain system calls and ends. `alarm` ends it if it hangs before that.
    let child = unsafe {
        let child = libc::fork();
        if child == 0 {
            libc::alarm(60);
            let byte = 42u8;
            libc::write(fd, (&raw const byte).cast(), 1);
            libc::_exit(7);
        }
        child
    };

    assert!(child > 0, "forked");
    drop(write);
    let mut bytes = Vec::new();
    read.read_to_end(&mut bytes).expect("read");
    let mut status = 0;
    let waited = loop {
        // SAFETY: a plain call.
        let waited = unsafe { libc::waitpid(child, &mut status, 0) };
        if waited != -1 || std::io::Error::last_os_error().kind() != std::io::ErrorKind::Interrupted
        {
            break waited;
        }
    };

    assert_eq!(
        (waited, libc::WIFEXITED(status), libc::WEXITSTATUS(status)),
        (child, true, 7)
    );
    assert_eq!(bytes, [42]);
}

/// Runs what starts processes on many fibers, beside spare workers and others' connections.
fn beside_spare_workers(setup: Setup, test: &str, start: fn()) {
    in_own_process(setup, test, &[], || {
        for workers in [1, 2] {
            let runtime = runtime(setup, workers);
            let blocked = Blocked::new(&runtime, 4);
            eventually("all block", || blocked.running() == 4);
            let (mut ours, mut theirs) = connected();
            let echo = runtime.spawn(move || {
                let mut byte = [0];
                while ours.read_exact(&mut byte).is_ok() && ours.write_all(&byte).is_ok() {}
            });

            let fibers: Vec<_> = (0..8)
                .map(|_| {
                    runtime.spawn(move || {
                        for _ in 0..3 {
                            start();
                            time::sleep(ms(1)).expect("not cancelled");
                        }
                    })
                })
                .collect();
            for n in 0..20 {
                theirs.write_all(&[n]).expect("sent");
                let mut byte = [0];
                theirs.read_exact(&mut byte).expect("answered");
                assert_eq!(byte, [n]);
            }

            fibers
                .into_iter()
                .for_each(|fiber| fiber.join().expect("no panic"));
            drop(theirs);
            echo.join().expect("no panic");
            blocked.end();
            assert_eq!(runtime.run(|| spawn(|| 5).join().expect("no panic")), 5);
        }
    });
}

fn fibers_fork(setup: Setup) {
    beside_spare_workers(setup, "fibers_fork", fork_and_wait);
}

fn fibers_run_commands(setup: Setup) {
    beside_spare_workers(setup, "fibers_run_commands", || {
        let output = Command::new("sh")
            .args(["-c", "echo 5; exit 7"])
            .output()
            .expect("it runs");
        assert_eq!(
            (output.status.code(), output.stdout),
            (Some(7), b"5\n".to_vec())
        );
    });
}
