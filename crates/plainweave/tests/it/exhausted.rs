//! Loops that go on after an error: what fails at once, again and again, leaves the worker to
//! others.

use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Instant;

use crate::common::*;
use plainweave::net::{TcpListener, TcpStream, UnixStream};
use plainweave::time::sleep;
use plainweave::{Io, Movement, Runtime};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// One worker and no spare ones: what keeps it keeps everything.
fn one_worker(io: Io) -> Runtime {
    let builder = Runtime::builder()
        .workers(1)
        .max_workers(1)
        .io(io)
        .report_stalls(false);
    builder
        .movement(Movement::BeforeStart)
        .build()
        .expect("a runtime")
}

/// Restores the limit on descriptors.
struct Restored(Rlimit);

impl Drop for Restored {
    fn drop(&mut self) {
        setrlimit(Resource::Nofile, self.0).expect("what it was");
    }
}

/// Opens files until there are no descriptors left.
fn hoard() -> (Vec<File>, Restored) {
    let before = getrlimit(Resource::Nofile);
    let few = Rlimit {
        current: Some(128),
        maximum: before.maximum,
    };

    setrlimit(Resource::Nofile, few).expect("fewer");
    let files: Vec<_> = std::iter::from_fn(|| File::open("/dev/null").ok()).collect();
    (files, Restored(before))
}

/// The connection stays in the kernel's queue, so each accept fails at once; the fibers that could
/// give descriptors back must run.
#[test]
fn accepts_without_descriptors_let_others_run() {
    if apart() {
        return;
    }
    for io in [Io::Epoll, Io::Uring] {
        one_worker(io).run(|| {
            let listener = TcpListener::bind("127.0.0.1:0").expect("bind");
            let address = listener.local_addr().expect("address");
            let client = TcpStream::connect(address).expect("connected by the kernel");
            let (files, restored) = hoard();
            assert!(!files.is_empty());

            let failures = Arc::new(AtomicUsize::new(0));
            let counted = failures.clone();
            let accepting = plainweave::spawn(move || {
                loop {
                    match listener.accept() {
                        Ok(accepted) => break accepted.1,
                        Err(error) => {
                            assert_eq!(error.raw_os_error(), Some(libc::EMFILE), "{error}")
                        }
                    }
                    counted.fetch_add(1, Ordering::Relaxed);
                }
            });

            for _ in 0..200 {
                sleep(ms(1)).expect("not cancelled");
            }
            let failed = failures.load(Ordering::Relaxed);
            // 1, 2, 4 and so on up to 64 ms, in a time of 200 ms or more.
            assert!(failed >= 1, "it was tried");
            let start = Instant::now();
            while failures.load(Ordering::Relaxed) < 9 {
                assert!(start.elapsed() < ms(20_000), "it tries again");
                sleep(ms(1)).expect("not cancelled");
            }

            drop(files);
            drop(restored);
            let peer = accepting.join().expect("no panic");
            assert_eq!(peer, client.local_addr().expect("address"));
        });
    }
    calls_that_fail_at_once_let_others_run();
    cancelled_fibers_let_others_run();
}

/// A call that fails.
type Failing = Box<dyn FnMut() -> std::io::Error + Send>;

/// A connect that is refused, a send to a peer that has gone: without a pause, but not without a
/// turn for others.
fn calls_that_fail_at_once_let_others_run() {
    for io in [Io::Epoll, Io::Uring] {
        one_worker(io).run(|| {
            let fails: [fn() -> Failing; 2] = [
                || {
                    Box::new(|| {
                        UnixStream::connect("/nobody/listens/here").expect_err("no such file")
                    })
                },
                || {
                    let listener = TcpListener::bind("127.0.0.1:0").expect("bind");
                    let mut ours = TcpStream::connect(listener.local_addr().expect("address"))
                        .expect("connected");
                    ours.shutdown(std::net::Shutdown::Write).expect("shut down");
                    Box::new(move || ours.write(b"x").expect_err("no direction to send in"))
                },
            ];
            for fail in fails {
                let over = Arc::new(AtomicBool::new(false));
                let theirs = over.clone();
                let mut fail = fail();
                let start = Instant::now();
                let trying = plainweave::spawn(move || {
                    while !theirs.load(Ordering::Relaxed) && start.elapsed() < ms(20_000) {
                        let kind = fail().kind();
                        assert!(
                            matches!(
                                kind,
                                ErrorKind::NotFound
                                    | ErrorKind::BrokenPipe
                                    | ErrorKind::ConnectionReset
                            ),
                            "{kind}"
                        );
                    }
                    theirs.load(Ordering::Relaxed)
                });

                for _ in 0..20 {
                    sleep(ms(1)).expect("not cancelled");
                }
                over.store(true, Ordering::Relaxed);
                assert!(trying.join().expect("no panic"), "nobody else ran");
            }
        });
    }
}

/// A fiber that ignores its cancellation, or that its time is over.
fn cancelled_fibers_let_others_run() {
    let calls: [fn() -> Failing; 10] = [
        || Box::new(|| sleep(ms(100_000)).expect_err("cancelled")),
        || Box::new(|| plainweave::park().expect_err("cancelled")),
        // It may have been done by the time that anybody looks.
        || {
            Box::new(|| {
                let done = || std::io::Error::other("done");
                plainweave::blocking(|| ()).err().unwrap_or_else(done)
            })
        },
        || Box::new(|| UnixStream::connect("/nobody/listens/here").expect_err("cancelled")),
        || Box::new(|| TcpStream::connect("127.0.0.1:1").expect_err("cancelled")),
        || {
            let listener = TcpListener::bind("127.0.0.1:0").expect("bind");
            Box::new(move || listener.accept().expect_err("cancelled"))
        },
        || {
            let (mut one, other) = UnixStream::pair().expect("a pair");
            Box::new(move || {
                let _ = &other;
                one.read(&mut [0; 8]).expect_err("cancelled")
            })
        },
        || {
            let (sender, receiver) = plainweave::sync::channel::bounded::<()>(1);
            Box::new(move || {
                let _ = &sender;
                std::io::Error::other(receiver.recv().expect_err("cancelled"))
            })
        },
        || {
            let lock = Arc::new(plainweave::sync::Semaphore::new(0));
            Box::new(move || lock.acquire().map(drop).expect_err("cancelled"))
        },
        || {
            let (one, other) = UnixStream::pair().expect("a pair");
            Box::new(move || {
                let _ = &other;
                plainweave::select! { readable(one) => () }.expect_err("cancelled")
            })
        },
    ];
    for io in [Io::Epoll, Io::Uring] {
        one_worker(io).run(move || {
            for (n, call, is_late) in calls
                .iter()
                .enumerate()
                .flat_map(|(n, call)| [(n, call, false), (n, call, true)])
            {
                let over = Arc::new(AtomicBool::new(false));
                let theirs = over.clone();
                let mut fail = call();
                let start = Instant::now();
                let again = move || {
                    while !theirs.load(Ordering::Relaxed) && start.elapsed() < ms(20_000) {
                        let _ = fail();
                    }
                    theirs.load(Ordering::Relaxed)
                };

                let trying = match is_late {
                    true => plainweave::spawn(move || plainweave::time::with_timeout(ms(0), again)),
                    false => plainweave::spawn(again),
                };

                if !is_late {
                    trying.cancel();
                }
                for _ in 0..5 {
                    sleep(ms(1)).expect("not cancelled");
                }
                over.store(true, Ordering::Relaxed);
                assert!(
                    trying.join().expect("no panic"),
                    "nobody else ran beside call {n}, {io:?}, late: {is_late}"
                );
            }
        });
    }
}
