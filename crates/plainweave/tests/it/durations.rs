//! Times that users choose: the longest of all is a usual way to say "for ever", and nowhere an
//! error.

use std::io::{Read, Write};
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::common::*;
use plainweave::dump::Options;
use plainweave::net::{self, TcpListener, TcpStream, UnixStream};
use plainweave::pools::{PoolSpec, Pools};
use plainweave::signal::{SIGUSR1, Signals};
use plainweave::sync::{channel, promise};
use plainweave::time::{now, saturating_add, sleep, with_timeout};
use plainweave::{is_cancelled, park_timeout, select, spawn};

const EVER: Duration = Duration::MAX;

on_every_driver!(
    waits_without_end_end_by_cancellation,
    what_comes_within_all_time_is_taken,
    a_runtime_with_every_time_at_its_longest,
    connections_may_be_idle_for_ever,
);

/// A wait that lasts until its fiber is cancelled; it returns whether that ended it.
type Endless = fn() -> bool;

fn waits_without_end_end_by_cancellation(setup: Setup) {
    let waits: [Endless; 8] = [
        || is_cancelled(&sleep(EVER).expect_err("nothing else ends it")),
        || is_cancelled(&with_timeout(EVER, || sleep(EVER)).expect_err("nothing else ends it")),
        || is_cancelled(&park_timeout(EVER).expect_err("no token")),
        || is_cancelled(&select! { after(EVER) => () }.expect_err("never")),
        || {
            let (_sender, receiver) = channel::bounded::<()>(1);
            receiver
                .recv_timeout(EVER)
                .expect_err("empty")
                .is_cancelled()
        },
        || {
            let (sender, _receiver) = channel::bounded(0);
            sender
                .send_timeout((), EVER)
                .expect_err("nobody receives")
                .is_cancelled()
        },
        || {
            let (_sender, promise) = promise::<()>();
            promise
                .wait_timeout(EVER)
                .expect_err("not kept")
                .is_cancelled()
        },
        || {
            let (mut ours, theirs) = UnixStream::pair().expect("a pair");
            for stream in [&ours, &theirs] {
                stream.set_read_timeout(Some(EVER)).expect("a timeout");
                stream.set_write_timeout(Some(EVER)).expect("a timeout");
            }
            is_cancelled(&ours.read(&mut [0; 1]).expect_err("nothing comes"))
        },
    ];
    setup.runtime().run(move || {
        for (n, wait) in waits.into_iter().enumerate() {
            let waiting = spawn(wait);
            sleep(ms(2)).expect("not cancelled");
            assert!(!waiting.is_finished(), "wait {n} ended by itself");
            waiting.cancel();
            assert!(waiting.join().expect("no panic"), "wait {n} was cancelled");
        }
    });
}

fn what_comes_within_all_time_is_taken(setup: Setup) {
    setup.runtime().run(|| {
        let listener = TcpListener::bind("127.0.0.1:0").expect("bind");
        let address = listener.local_addr().expect("an address");
        let mut client = TcpStream::connect_timeout(&address, EVER).expect("a listener");
        client.set_write_timeout(Some(EVER)).expect("a timeout");
        client.write_all(b"x").expect("room");
        let (sender, receiver) = channel::bounded(1);

        sender.send_timeout(1, EVER).expect("room");
        assert_eq!(receiver.recv_timeout(EVER).expect("a value"), 1);
        let signals = Signals::new([SIGUSR1]).expect("may be caught");

        rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::USR1)
            .expect("ourselves");
        assert_eq!(signals.wait_timeout(EVER).expect("it came"), SIGUSR1);
        let waiting = spawn(|| park_timeout(EVER));
        waiting.fiber().unpark();
        waiting.join().expect("no panic").expect("a token");
        assert!(saturating_add(now(), EVER) > now() + Duration::from_secs(1 << 32));
    });
    // Plain threads, which wait by themselves.
    let waiting = thread::spawn(|| {
        let (sender, receiver) = channel::bounded::<()>(1);
        spawn_later(move || sender.send(()).expect("room"));
        receiver.recv_timeout(EVER).expect("a value");
        let (_open, receiver) = channel::bounded::<()>(1);
        with_timeout(ms(1), || {
            select! { recv(receiver) -> _ => (), after(EVER) => () }.is_err()
        })
    });
    assert!(waiting.join().expect("no panic"));
}

fn spawn_later(f: impl FnOnce() + Send + 'static) {
    drop(thread::spawn(move || {
        thread::sleep(ms(5));
        f();
    }));
}

fn a_runtime_with_every_time_at_its_longest(setup: Setup) {
    // The one time that has a range, because it paces a thread: an error that says so.
    let error = setup
        .builder()
        .stall_after(Some(EVER))
        .build()
        .expect_err("out of range");
    assert!(error.to_string().contains("1 ms to 60 s"), "{error}");
    let build = || {
        setup
            .builder()
            .shutdown_timeout(EVER)
            .build()
            .expect("a runtime")
    };

    let runtime = build();
    let waiting = runtime.spawn(|| sleep(EVER));
    assert!(
        runtime
            .dump_with(&Options::new().limit(EVER))
            .missing
            .is_empty()
    );
    waiting.cancel();
    assert!(waiting.join().expect("no panic").is_err() && runtime.wait_idle(EVER));
    drop(runtime);
    let runtime = build();

    drop(runtime.spawn(|| sleep(EVER)));
    assert_eq!(runtime.shutdown(EVER).leaked_fibers, 0);
    let pools =
        Pools::build([PoolSpec::new("one").runtime(setup.builder().shutdown_timeout(EVER))])
            .expect("a pool");
    drop(pools.iter().next().expect("it").spawn(|| sleep(EVER)));

    assert!(
        pools
            .shutdown(EVER)
            .iter()
            .all(|left| left.leaked_fibers == 0)
    );
}

fn connections_may_be_idle_for_ever(setup: Setup) {
    static SEEN: AtomicUsize = AtomicUsize::new(0);
    let before = SEEN.load(Ordering::Relaxed);
    setup.runtime().run(move || {
        let (ours, mut theirs) = stream_pair();
        net::each_readable(ours, Some(EVER), |stream, outcome| {
            if outcome.is_err() {
                return ControlFlow::Break(()); // The runtime ends.
            }
            stream.read_exact(&mut [0; 1]).expect("one");
            SEEN.fetch_add(1, Ordering::Relaxed);
            ControlFlow::Continue(())
        });
        let start = Instant::now();

        for n in 1..=2 {
            theirs.write_all(b"x").expect("room");
            while SEEN.load(Ordering::Relaxed) < before + n {
                assert!(start.elapsed() < HANG, "byte {n} is not seen");
                sleep(ms(1)).expect("not cancelled");
            }
        }
    });
}
