//! Nothing is left behind: descriptors, stacks, fibers, results.

use std::io::{Read, Write};
use std::net::TcpStream as OsStream;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::common::*;
use plainweave::{Runtime, scope, time};

on_every_setup!(
    clients_that_vanish_leave_nothing,
    results_are_dropped_exactly_once,
    results_of_refused_fibers_too,
    what_a_shutdown_cuts_short_is_dropped,
    forgotten_handles_cost_no_fiber,
    a_runtime_gives_everything_back,
);

fn at_rest(runtime: &Runtime) {
    eventually("no fiber is left", || runtime.metrics().live_fibers == 0);
    eventually("no stack is in use", || {
        runtime.metrics().stacks_in_use == 0
    });
    eventually("nothing is parked", || {
        runtime.metrics().idle_connections == 0
    });
}

/// A little protocol: a length, then that number of bytes, and as many in answer. The client leaves
/// at a random byte.
fn clients_that_vanish_leave_nothing(setup: Setup) {
    if apart() {
        return;
    }
    let runtime = setup.without_spares();
    let before = descriptors();
    let listener = Arc::new(listener());
    let address = listener.local_addr().expect("address");
    let accepting = listener.clone();
    let failed = Arc::new(AtomicUsize::new(0));
    let failures = failed.clone();
    let server = runtime.spawn(move || {
        scope(|s| {
            while let Ok((mut stream, _)) = accepting.accept() {
                let failures = &failures;
                s.spawn(move || {
                    let mut serve = || -> std::io::Result<()> {
                        let mut body = [0; 100];
                        loop {
                            let mut len = [0];
                            stream.read_exact(&mut len)?;
                            let body = &mut body[..usize::from(len[0] % 100)];
                            stream.read_exact(body)?;
                            stream.write_all(body)?;
                        }
                    };
                    failures.fetch_add(usize::from(serve().is_err()), Ordering::SeqCst);
                });
            }
        });
    });

    std::thread::scope(|threads| {
        for seed in 0..2 {
            threads.spawn(move || {
                let mut random = Random::new(seed + 100);
                for n in 0..1000 {
                    let mut client = OsStream::connect(address).expect("connect");
                    let len = random.below(60) as u8;
                    let message: Vec<u8> = (0..4)
                        .flat_map(|_| [len].into_iter().chain((0..len).map(|b| b ^ 3)))
                        .collect();
                    let cut = random.below(message.len() as u64 + 1) as usize;
                    client.write_all(&message[..cut]).expect("write");

                    match n % 3 {
                        0 => {
                            client.set_nonblocking(true).expect("set");
                            let _ = client.read(&mut [0; 16]);
                        }
                        1 => socket2::SockRef::from(&client)
                            .set_linger(Some(Duration::ZERO))
                            .expect("reset"),
                        _ => {}
                    }

                    drop(client);
                    if n % 3 == 2 {
                        client_that_reads(address, &mut random);
                    }
                }
            });
        }
    });

    listener.close();
    server.join().expect("no panic");
    drop(listener);
    assert!(failed.load(Ordering::SeqCst) >= 2000);
    at_rest(&runtime);
    eventually("no descriptor is left", || descriptors() <= before);
}

fn client_that_reads(address: std::net::SocketAddr, random: &mut Random) {
    let mut client = OsStream::connect(address).expect("connect");
    let len = random.below(99) as u8 + 1;
    let body = vec![7; usize::from(len)];
    client
        .write_all(&[&[len], body.as_slice()].concat())
        .expect("write");
    let cut = random.below(u64::from(len)) as usize;

    client.read_exact(&mut vec![0; cut]).expect("read");
}

fn results_are_dropped_exactly_once(setup: Setup) {
    let counts = Arc::new(Counts::default());
    let runtime = setup.runtime();
    let mut random = Random::new(5);

    for round in 0..30 {
        let mut handles = Vec::new();
        for n in 0..60u64 {
            let captured = Counted::new(&counts);
            let theirs = counts.clone();
            let handle = runtime.spawn(move || {
                let local = Counted::new(&theirs);
                match n % 5 {
                    0 => {}
                    1 => plainweave::yield_now(),
                    2 => drop(plainweave::park()),
                    3 => std::panic::panic_any(Counted::new(&theirs)),
                    _ => drop(time::sleep(Duration::from_micros(n * 20))),
                }
                (captured, local)
            });

            match (n + round) % 4 {
                0 if n % 5 == 2 => handle.cancel(),
                0 => drop(handle),
                _ => handles.push(handle),
            }
        }

        random.spin(300);
        for handle in handles {
            handle.cancel();
            match random.below(3) {
                0 => drop(handle),
                1 => drop(handle.join()),
                _ => drop(time::with_timeout(Duration::from_micros(50), || {
                    handle.join()
                })),
            }
        }
    }

    at_rest(&runtime);
    eventually("each is dropped once", || counts.balanced());
    assert!(counts.made() > 3000);
}

fn results_of_refused_fibers_too(setup: Setup) {
    let counts = Arc::new(Counts::default());
    let runtime = setup.check(
        setup
            .builder()
            .workers(1)
            .max_fibers(8)
            .build()
            .expect("a runtime"),
    );
    let parked: Vec<_> = (0..8).map(|_| runtime.spawn(plainweave::park)).collect();
    eventually("all stacks are taken", || {
        runtime.metrics().stacks_in_use == 8
    });

    let handles: Vec<_> = (0..50)
        .map(|_| {
            let captured = Counted::new(&counts);
            runtime.spawn(move || captured)
        })
        .collect();
    for (n, handle) in handles.into_iter().enumerate() {
        if n % 2 == 0 {
            assert!(handle.join().expect_err("refused").is_refused());
        }
    }

    runtime.scope(|s| {
        for _ in 0..10 {
            let captured = Counted::new(&counts);
            assert!(
                s.spawn(move || captured)
                    .join()
                    .expect_err("refused")
                    .is_refused()
            );
        }
    });
    eventually("each closure is dropped once", || counts.balanced());
    assert_eq!(counts.made(), 60);
    parked.iter().for_each(|p| p.fiber().unpark());
    parked
        .into_iter()
        .for_each(|p| p.join().expect("no panic").expect("unparked"));
    at_rest(&runtime);
}

fn what_a_shutdown_cuts_short_is_dropped(setup: Setup) {
    for round in 0..20 {
        let counts = Arc::new(Counts::default());
        let runtime = setup.runtime();
        for n in 0..100u64 {
            let captured = Counted::new(&counts);
            let theirs = counts.clone();
            drop(runtime.spawn(move || {
                let local = Counted::new(&theirs);
                if n % 3 == 0 {
                    let more = Counted::new(&theirs);
                    drop(plainweave::spawn(move || {
                        let _ = plainweave::park();
                        more
                    }));
                }

                let _ = plainweave::park();
                (captured, local)
            }));
        }

        // Some have begun by then, some have not.
        Random::new(round).spin(round * 20);
        let left = runtime.shutdown(Duration::from_secs(20));
        assert_eq!(left, plainweave::Shutdown::default());
        assert!(
            counts.balanced(),
            "{} made, {} dropped",
            counts.made(),
            counts.dropped()
        );
    }
}

fn forgotten_handles_cost_no_fiber(setup: Setup) {
    let runtime = setup.runtime();
    let ran = Arc::new(AtomicUsize::new(0));
    for n in 0..500 {
        let ran = ran.clone();
        std::mem::forget(runtime.spawn(move || {
            ran.fetch_add(1, Ordering::SeqCst);
            assert!(n % 10 != 0, "expected");
            n
        }));
    }

    runtime.run(|| {
        scope(|s| {
            for _ in 0..100 {
                std::mem::forget(s.spawn(|| ran.fetch_add(1, Ordering::SeqCst)));
            }
        });
        // The scope has waited for them although nobody can join them.
        assert!(ran.load(Ordering::SeqCst) >= 100);
    });
    at_rest(&runtime);
    assert_eq!(ran.load(Ordering::SeqCst), 600);
    assert_eq!(
        runtime.shutdown(Duration::from_secs(10)),
        plainweave::Shutdown::default()
    );
}

fn a_runtime_gives_everything_back(setup: Setup) {
    if apart() {
        return;
    }
    let threads = || std::fs::read_dir("/proc/self/task").expect("proc").count();
    drop(setup.runtime());
    let before = (descriptors(), threads());

    for n in 0..30 {
        let runtime = setup.workers(1 + n % 4);
        let panic = catch_unwind(AssertUnwindSafe(|| {
            runtime.run(|| {
                let (ours, theirs) = stream_pair();
                scope(|s| {
                    s.spawn(|| echo(ours));
                    (&theirs).write_all(b"x").expect("write");
                    (&theirs).read_exact(&mut [0]).expect("read");
                    drop(theirs);
                });
                assert!(n % 2 == 0, "on purpose");
            });
        }));
        assert_eq!(panic.is_err(), n % 2 == 1);
    }

    // Threads of other tests come and go, so less than one for each round will do.
    eventually("descriptors are closed", || descriptors() < before.0 + 30);
    eventually("threads have ended", || threads() < before.1 + 30);
}
