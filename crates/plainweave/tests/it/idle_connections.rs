//! Idle connections without a fiber.

#![expect(
    unsafe_code,
    reason = "tests call what is unsafe, and say at each call why it is sound"
)]

use std::collections::HashSet;
use std::io::{ErrorKind, Read, Write};
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::common::*;
use plainweave::net::{self, HasSocket, SocketRef, TcpListener, TcpStream, UnixListener};
use plainweave::{Runtime, is_cancelled};

on_every_setup!(
    readable,
    readable_at_once,
    a_connection_tells_whether_a_read_would_wait,
    a_read_that_does_not_wait_takes_what_is_there,
    a_listener_tells_how_many_wait,
    idle_time_out,
    end_of_stream,
    closed_by_another_handle,
    data_against_time_out,
    again_and_again,
    five_thousand_hold_no_stack,
    a_fresh_fiber_may_run_elsewhere,
    a_dropped_connection_state_is_dropped_once,
    each_time_it_is_readable,
    each_ends_by_time_by_panic_and_with_the_runtime,
    one_that_is_never_idle_is_closed,
    listeners_wait_without_a_fiber,
    one_that_a_thread_drops_is_closed_at_once,
);

/// A driver may keep something for a connection that has waited before: that does not keep it open
/// when its last handle is dropped elsewhere, while the worker sleeps.
fn one_that_a_thread_drops_is_closed_at_once(setup: Setup) {
    const TURNS: u8 = 4;
    let runtime = setup.runtime();
    let (conn, mut theirs) = connected();
    theirs.set_read_timeout(Some(A_WHILE)).expect("set");
    let (hand_over, handed_over) = mpsc::channel();

    runtime.run(|| {
        let mut conn = Some(conn);
        let socket = conn.as_ref().expect("just made").try_clone();
        let waiting = Shared(socket.expect("another handle"));
        net::each_readable(waiting, None, move |waiting, outcome| {
            outcome.expect("readable");
            let mut turn = [0];
            (&waiting.0).read_exact(&mut turn).expect("it is");
            (&waiting.0).write_all(&turn).expect("room");

            if turn[0] < TURNS {
                return ControlFlow::Continue(());
            }
            hand_over.send(conn.take()).expect("asked");
            ControlFlow::Break(())
        });
    });
    for turn in 1..=TURNS {
        theirs.write_all(&[turn]).expect("sent");
        theirs.read_exact(&mut [0]).expect("answered");
    }

    let last = handed_over.recv_timeout(A_WHILE).expect("handed over");
    eventually("no fiber is left", || runtime.metrics().live_fibers == 0);
    std::thread::spawn(move || drop(last))
        .join()
        .expect("no panic");
    assert_eq!(theirs.read(&mut [0]).expect("the end"), 0);
}

/// A handle of a connection that waits.
struct Shared(TcpStream);

impl HasSocket for Shared {
    fn socket(&self) -> SocketRef<'_> {
        self.0.socket()
    }
}

/// Parks `conn` and gives back what `on_readable` reports.
fn park(
    runtime: &Runtime,
    conn: TcpStream,
    idle: Option<Duration>,
) -> mpsc::Receiver<(TcpStream, std::io::Result<()>)> {
    let (tell, told) = mpsc::channel();
    runtime.run(|| {
        net::on_readable(conn, idle, move |conn, outcome| {
            tell.send((conn, outcome)).expect("asked")
        })
    });
    told
}

const A_WHILE: Duration = Duration::from_secs(20);

fn readable(setup: Setup) {
    let runtime = setup.runtime();
    let (conn, mut theirs) = connected();
    let told = park(&runtime, conn, None);
    eventually("it is parked", || runtime.metrics().idle_connections == 1);
    eventually("no fiber is left", || runtime.metrics().live_fibers == 0);
    assert!(told.recv_timeout(ms(10)).is_err());
    theirs.write_all(b"hello").expect("write");
    let (conn, outcome) = told.recv_timeout(A_WHILE).expect("woken");

    outcome.expect("readable");
    assert_eq!((&conn).read(&mut [0; 8]).expect("read"), 5);
    eventually("it is no longer parked", || {
        runtime.metrics().idle_connections == 0
    });
}

fn readable_at_once(setup: Setup) {
    let runtime = setup.runtime();
    for _ in 0..100 {
        let (conn, mut theirs) = connected();
        theirs.write_all(b"before").expect("write");
        let (conn, outcome) = park(&runtime, conn, Some(A_WHILE))
            .recv_timeout(A_WHILE)
            .expect("woken");
        outcome.expect("readable");
        assert_eq!((&conn).read(&mut [0; 8]).expect("read"), 6);
    }
}

/// Also between two waits, and without one: the driver has not seen then what has come.
fn a_read_that_does_not_wait_takes_what_is_there(setup: Setup) {
    let (mut conn, mut theirs) = connected();
    setup.runtime().run(|| {
        let mut buf = [0; 8];
        let nothing = |read: std::io::Result<usize>| read.map_err(|error| error.kind());
        for _ in 0..3 {
            assert_eq!(nothing(conn.try_read(&mut buf)), Err(ErrorKind::WouldBlock));
            theirs.write_all(b"data").expect("write");
            eventually("it is there", || {
                conn.try_read(&mut buf).is_ok_and(|n| n == 4)
            });

            theirs.write_all(b"more").expect("write");
            assert_eq!(conn.read(&mut buf[..2]).expect("it comes"), 2);
            assert_eq!(nothing(conn.try_read(&mut buf)), Ok(2));
        }

        drop(theirs);
        eventually("the end", || conn.try_read(&mut buf).is_ok_and(|n| n == 0));
        conn.close();
        assert_eq!(
            nothing(conn.try_read(&mut buf)),
            Err(ErrorKind::NotConnected)
        );
    });
}

fn a_connection_tells_whether_a_read_would_wait(setup: Setup) {
    let (conn, mut theirs) = connected();
    setup.runtime().run(|| {
        assert!(!conn.is_readable());
        theirs.write_all(b"data").expect("write");
        eventually("the data is there", || conn.is_readable());
        assert_eq!((&conn).read(&mut [0; 8]).expect("read"), 4);
        assert!(!conn.is_readable());
        drop(theirs);
        eventually("the end is there", || conn.is_readable());
        assert_eq!((&conn).read(&mut [0; 8]).expect("read"), 0);
    });
}

fn a_listener_tells_how_many_wait(setup: Setup) {
    let listener = listener();
    listener.set_backlog(2).expect("listen");
    let address = listener.local_addr().expect("address");
    assert_eq!(listener.queued().expect("asked"), 0);
    let _clients: Vec<_> = (0..2)
        .map(|_| std::net::TcpStream::connect(address).expect("connect"))
        .collect();

    eventually("both wait", || listener.queued().expect("asked") == 2);
    setup.runtime().run(|| listener.accept()).expect("accept");
    assert_eq!(listener.queued().expect("asked"), 1);
}

fn idle_time_out(setup: Setup) {
    let runtime = setup.runtime();
    let (conn, mut theirs) = connected();
    let start = Instant::now();
    let (conn, outcome) = park(&runtime, conn, Some(ms(30)))
        .recv_timeout(A_WHILE)
        .expect("woken");
    let error = outcome.expect_err("idle");

    assert_eq!(error.kind(), ErrorKind::TimedOut);
    assert!(!is_cancelled(&error) && start.elapsed() >= ms(30));

    // The connection is as good as before.
    theirs.write_all(b"late").expect("write");
    let (conn, outcome) = park(&runtime, conn, Some(A_WHILE))
        .recv_timeout(A_WHILE)
        .expect("woken");
    outcome.expect("readable");
    assert_eq!((&conn).read(&mut [0; 8]).expect("read"), 4);
}

fn end_of_stream(setup: Setup) {
    let runtime = setup.runtime();
    for reset in [false, true] {
        let (conn, theirs) = connected();
        let told = park(&runtime, conn, None);
        if reset {
            socket2::SockRef::from(&theirs)
                .set_linger(Some(Duration::ZERO))
                .expect("set");
        }

        drop(theirs);
        let (conn, outcome) = told.recv_timeout(A_WHILE).expect("woken");
        outcome.expect("an end is something to read");
        assert_eq!(
            (&conn).read(&mut [0; 8]).map_err(|e| e.kind()),
            if reset {
                Err(ErrorKind::ConnectionReset)
            } else {
                Ok(0)
            }
        );
    }
}

fn closed_by_another_handle(setup: Setup) {
    let runtime = setup.runtime();
    let (conn, _theirs) = connected();
    let other = conn.try_clone().expect("clone");
    let told = park(&runtime, conn, None);
    other.close();
    let (conn, _) = told.recv_timeout(A_WHILE).expect("woken");

    assert_eq!(
        (&conn).read(&mut [0; 8]).expect_err("closed").kind(),
        ErrorKind::NotConnected
    );

    assert!(
        park(&runtime, conn, None).recv_timeout(A_WHILE).is_ok(),
        "parking it again ends at once"
    );
}

/// Exactly one outcome each, and no byte lost.
fn data_against_time_out(setup: Setup) {
    let runtime = setup.runtime();
    let mut random = Random::new(7);
    let mut data = 0;
    let mut late = 0;

    for _ in 0..150 {
        let (conn, mut theirs) = connected();
        let told = park(
            &runtime,
            conn,
            Some(Duration::from_micros(1 + random.below(3000))),
        );
        random.spin(3000);
        theirs.write_all(b"x").expect("write");
        let (conn, outcome) = told.recv_timeout(A_WHILE).expect("woken");

        match outcome {
            Ok(()) => data += 1,
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::TimedOut);
                late += 1;
            }
        }

        assert_eq!((&conn).read(&mut [0; 8]).expect("read"), 1);
        assert!(told.recv_timeout(Duration::ZERO).is_err(), "told twice");
    }

    assert_eq!(data + late, 150);
}

struct Echo {
    stream: TcpStream,
    served: usize,
    done: Arc<AtomicUsize>,
}

impl HasSocket for Echo {
    fn socket(&self) -> SocketRef<'_> {
        self.stream.socket()
    }
}

/// One turn: answers what is there, parks again; a connection loop without a fiber in between.
fn serve(mut conn: Echo, outcome: std::io::Result<()>) {
    let mut buf = [0; 64];
    let n = outcome
        .and_then(|()| conn.stream.read(&mut buf))
        .unwrap_or(0);
    if n == 0 || conn.stream.write_all(&buf[..n]).is_err() {
        conn.done.fetch_add(conn.served, Ordering::SeqCst);
        return;
    }

    conn.served += 1;
    net::on_readable(conn, Some(A_WHILE), serve);
}

/// Starts a client that sends 200 bytes, one at a time, and checks that each comes back. Returns
/// its connection.
fn exchange_200_bytes(mut theirs: std::net::TcpStream) -> JoinHandle<std::net::TcpStream> {
    std::thread::spawn(move || {
        for n in 0..200u8 {
            theirs.write_all(&[n]).expect("write");
            let mut back = [0];
            theirs.read_exact(&mut back).expect("read");
            assert_eq!(back, [n]);
        }
        theirs
    })
}

fn again_and_again(setup: Setup) {
    let runtime = setup.runtime();
    let done = Arc::new(AtomicUsize::new(0));
    let clients: Vec<_> = (0..8)
        .map(|_| {
            let (stream, theirs) = connected();
            let conn = Echo {
                stream,
                served: 0,
                done: done.clone(),
            };

            runtime.run(|| net::on_readable(conn, None, serve));
            exchange_200_bytes(theirs)
        })
        .collect();
    clients
        .into_iter()
        .for_each(|c| drop(c.join().expect("served")));
    eventually("all have ended", || done.load(Ordering::SeqCst) == 1600);
    eventually("no fiber is left", || runtime.metrics().live_fibers == 0);

    eventually("nothing is parked", || {
        runtime.metrics().idle_connections == 0
    });
}

fn five_thousand_hold_no_stack(setup: Setup) {
    if apart() {
        return;
    }
    let runtime = setup.without_spares();
    let before = descriptors();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("bind");
    let address = listener.local_addr().expect("address");
    let count = 5000;
    let done = Arc::new(AtomicUsize::new(0));
    let mut clients = Vec::new();

    for _ in 0..count {
        clients.push(std::net::TcpStream::connect(address).expect("connect"));
        let stream = TcpStream::from_std(listener.accept().expect("accept").0).expect("from_std");
        let conn = Echo {
            stream,
            served: 0,
            done: done.clone(),
        };

        drop(runtime.spawn(move || net::on_readable(conn, None, serve)));
    }

    eventually("all are parked", || {
        runtime.metrics().idle_connections == count
    });
    eventually("no fiber is left", || runtime.metrics().live_fibers == 0);
    assert_eq!(runtime.metrics().stacks_in_use, 0);
    clients
        .iter_mut()
        .for_each(|c| c.write_all(b"you").expect("write"));

    for client in &mut clients {
        let mut back = [0; 3];
        client.read_exact(&mut back).expect("read");
        assert_eq!(&back, b"you");
    }

    eventually("all are parked again", || {
        runtime.metrics().idle_connections == count
    });
    drop(clients);
    eventually("each has served one", || {
        done.load(Ordering::SeqCst) == count as usize
    });
    eventually("no fiber is left", || runtime.metrics().live_fibers == 0);
    drop(listener);
    eventually("no descriptor is left", || descriptors() <= before);
}

/// Connections parked by one worker, which is then busy for a moment: others start their fibers.
fn a_fresh_fiber_may_run_elsewhere(setup: Setup) {
    let runtime = setup.runtime();
    let threads = Arc::new(Mutex::new(HashSet::new()));
    // On a busy machine the other worker may come late; that it never comes would be a hang.
    while threads.lock().expect("lock").len() < 2 {
        let served = Arc::new(AtomicUsize::new(0));
        runtime.run(|| {
            let mut others = Vec::new();
            for _ in 0..10 {
                let (conn, theirs) = connected();
                others.push(theirs);
                let threads = threads.clone();
                let served = served.clone();
                net::on_readable(conn, None, move |_, outcome| {
                    outcome.expect("readable");
                    // SAFETY: no preconditions.
                    threads
                        .lock()
                        .expect("lock")
                        .insert(unsafe { libc::gettid() });
                    Random::new(3).spin(200);
                    served.fetch_add(1, Ordering::SeqCst);
                });
            }

            others
                .iter_mut()
                .for_each(|o| o.write_all(b"x").expect("write"));
            pause();
        });
        eventually("all are served", || served.load(Ordering::SeqCst) == 10);
    }
}

fn a_dropped_connection_state_is_dropped_once(setup: Setup) {
    let counts = Arc::new(Counts::default());
    struct State(TcpStream, #[allow(dead_code)] Counted);
    impl HasSocket for State {
        fn socket(&self) -> SocketRef<'_> {
            self.0.socket()
        }
    }
    let told = Arc::new(AtomicBool::new(false));
    let runtime = setup.runtime();
    let mut others = Vec::new();

    for n in 0..60 {
        let (conn, mut theirs) = connected();
        let state = State(conn, Counted::new(&counts));
        let captured = Counted::new(&counts);
        let told = told.clone();
        let idle = (n % 3 == 0).then_some(ms(2));
        runtime.run(|| {
            net::on_readable(state, idle, move |_state, outcome| {
                let _captured = captured;
                told.store(true, Ordering::SeqCst);
                assert!(
                    n % 7 != 0,
                    "a panic in a idle connection's fiber: {outcome:?}"
                );
            });
        });
        if n % 3 == 1 {
            theirs.write_all(b"x").expect("write");
        }
        others.push(theirs);
    }

    std::thread::sleep(ms(5));
    assert_eq!(runtime.shutdown(A_WHILE), plainweave::Shutdown::default());
    assert!(counts.balanced() && counts.made() == 120);
}

/// As `again_and_again`, with one box for all turns.
fn each_time_it_is_readable(setup: Setup) {
    let runtime = setup.runtime();
    let counts = Arc::new(Counts::default());
    let clients: Vec<_> = (0..8)
        .map(|_| {
            let (stream, theirs) = connected();
            let mut served = 0;
            let counted = Counted::new(&counts);
            runtime.run(|| {
                net::each_readable(stream, Some(A_WHILE), move |stream, outcome| {
                    let _counted = &counted;
                    let mut buf = [0; 64];
                    let n = outcome.and_then(|()| stream.read(&mut buf)).expect("read");
                    stream.write_all(&buf[..n]).expect("write");
                    served += n;

                    if served < 200 {
                        ControlFlow::Continue(())
                    } else {
                        ControlFlow::Break(())
                    }
                });
            });
            exchange_200_bytes(theirs)
        })
        .collect();
    for client in clients {
        let mut theirs = client.join().expect("served");
        assert_eq!(theirs.read(&mut [0]).expect("closed after the last"), 0);
    }

    eventually("no fiber is left", || runtime.metrics().live_fibers == 0);
    eventually("nothing is parked", || {
        runtime.metrics().idle_connections == 0
    });
    assert!(counts.balanced() && counts.made() == 8);
}

fn each_ends_by_time_by_panic_and_with_the_runtime(setup: Setup) {
    let counts = Arc::new(Counts::default());
    let (told, outcomes) = mpsc::channel();
    let runtime = setup.runtime();
    let mut others = Vec::new();

    for n in 0..3 {
        let (conn, mut theirs) = connected();
        let counted = Counted::new(&counts);
        let told = told.clone();
        let idle = (n == 0).then_some(ms(2));
        runtime.run(|| {
            net::each_readable(conn, idle, move |conn, outcome| {
                let _counted = &counted;
                told.send((
                    n,
                    outcome
                        .as_ref()
                        .map_err(|error| (error.kind(), is_cancelled(error)))
                        .copied(),
                ))
                .expect("asked");
                assert!(n != 1, "a panic in a idle connection's fiber");
                let came = outcome.is_ok();
                match outcome.and_then(|()| conn.read(&mut [0; 8])) {
                    Ok(_) => ControlFlow::Continue(()),
                    Err(error) => {
                        // On a busy machine the end may come before it is parked again.
                        if came {
                            let end = Err((error.kind(), is_cancelled(&error)));
                            told.send((n, end)).expect("asked");
                        }
                        ControlFlow::Break(())
                    }
                }
            });
        });
        if n > 0 {
            theirs.write_all(b"x").expect("write");
        }
        others.push(theirs);
    }

    let mut first: Vec<_> = (0..3)
        .map(|_| outcomes.recv_timeout(A_WHILE).expect("woken"))
        .collect();
    first.sort_by_key(|(n, _)| *n);
    assert_eq!(
        first,
        [
            (0, Err((ErrorKind::TimedOut, false))),
            (1, Ok(())),
            (2, Ok(()))
        ]
    );
    eventually("one is parked again", || {
        runtime.metrics().idle_connections == 1
    });
    assert_eq!(runtime.shutdown(A_WHILE), plainweave::Shutdown::default());
    let last = outcomes.recv_timeout(A_WHILE).expect("told of the end");

    assert!(matches!(last, (2, Err((_, true)))), "{last:?}");
    assert!(counts.balanced() && counts.made() == 3);
}

/// Its peer always has the next byte under way; `close_idle_connections` reaches it all the same.
fn one_that_is_never_idle_is_closed(setup: Setup) {
    let runtime = setup.runtime();
    let (conn, mut theirs) = connected();
    let (told, outcomes) = mpsc::channel();
    runtime.run(|| {
        net::each_readable(conn, None, move |conn, outcome| {
            let mut bytes = [0; 64];
            let served = outcome
                .and_then(|()| conn.read(&mut bytes))
                .and_then(|len| conn.write_all(&bytes[..len]));
            match served {
                Ok(()) => ControlFlow::Continue(()),
                Err(error) => {
                    told.send(is_cancelled(&error)).expect("asked");
                    ControlFlow::Break(())
                }
            }
        });
    });
    theirs.set_read_timeout(Some(A_WHILE)).expect("set");

    // More bytes are on their way than the server reads at once, all the time.
    theirs.write_all(&[1; 4096]).expect("sent");
    let hammering = std::thread::spawn(move || {
        let mut bytes = [0; 4096];
        let mut rounds = 0;
        while let Ok(len @ 1..) = theirs.read(&mut bytes) {
            rounds += 1;
            if theirs.write_all(&bytes[..len]).is_err() {
                break;
            }
        }

        rounds
    });

    eventually("it is served", || runtime.metrics().finished_fibers > 100);
    runtime.close_idle_connections();
    assert!(runtime.wait_idle(A_WHILE));
    assert!(outcomes.recv_timeout(A_WHILE).expect("told"));
    assert!(hammering.join().expect("no panic") > 0);
}

/// What a listener's fresh fibers do: `try_accept` gives the number of connections, or why not.
fn count_connections<L: HasSocket + Send + 'static>(
    runtime: &Runtime,
    listener: L,
    try_accept: fn(&L) -> std::io::Result<()>,
) -> (Arc<AtomicUsize>, Arc<Counts>) {
    let accepted = Arc::<AtomicUsize>::default();
    let counts = Arc::<Counts>::default();
    let count = accepted.clone();
    let counted = Counted::new(&counts);
    runtime.run(|| {
        net::each_readable(listener, None, move |listener, outcome| {
            let _counted = &counted;
            outcome.expect("nothing ends the wait");
            loop {
                match try_accept(listener) {
                    Ok(()) => _ = count.fetch_add(1, Ordering::SeqCst),
                    Err(error) if error.kind() == ErrorKind::WouldBlock => {
                        return ControlFlow::Continue(());
                    }
                    Err(error) => {
                        assert_eq!(error.kind(), ErrorKind::NotConnected);
                        return ControlFlow::Break(());
                    }
                }
            }
        });
    });

    (accepted, counts)
}

fn listeners_wait_without_a_fiber(setup: Setup) {
    let runtime = setup.runtime();
    let listener = listener();
    let address = listener.local_addr().expect("an address");
    let error = listener.try_accept().expect_err("nobody has come");
    assert_eq!(error.kind(), ErrorKind::WouldBlock);
    let handle = listener.try_clone().expect("a handle");
    let (tcp, tcp_counts) = count_connections(&runtime, listener, |it: &TcpListener| {
        it.try_accept().map(drop)
    });

    let name = format!(
        "plainweave-{}-{:?}",
        std::process::id(),
        std::thread::current().id()
    );
    let path = std::env::temp_dir().join(name);
    let listener = UnixListener::bind(&path).expect("a listener");
    let unix_handle = listener.try_clone().expect("a handle");
    let (unix, unix_counts) = count_connections(&runtime, listener, |it: &UnixListener| {
        it.try_accept().map(drop)
    });

    for n in 1..=3 {
        eventually("no fiber is left", || runtime.metrics().live_fibers == 0);
        assert_eq!(runtime.metrics().idle_connections, 0, "a listener is none");
        let _tcp = std::net::TcpStream::connect(address).expect("connected");
        let _unix = std::os::unix::net::UnixStream::connect(&path).expect("connected");
        let all_are_there = || tcp.load(Ordering::SeqCst) == n && unix.load(Ordering::SeqCst) == n;
        eventually("they are accepted", all_are_there);
    }

    handle.close();
    unix_handle.close();
    eventually("their state is dropped", || {
        tcp_counts.balanced() && unix_counts.balanced()
    });
    std::fs::remove_file(path).expect("removed");
    assert_eq!(runtime.shutdown(A_WHILE), plainweave::Shutdown::default());
}
