//! Our sockets in async code: they wait side by side, and what is dropped leaves nothing behind and
//! swallows nothing.

use std::future::{Future, poll_fn, ready};
use std::io::{ErrorKind, Read, Write};
use std::sync::mpsc;

use crate::common::*;
use futures_util::future::{Either, join, join_all, select};
use plainweave::net::{AsyncTcpListener, AsyncTcpStream, TcpStream};
use plainweave::{block_on, is_cancelled, spawn_future};

on_every_driver!(
    sockets_wait_side_by_side,
    a_large_transfer_waits_for_room,
    a_dropped_stream_leaves_nothing,
    a_dropped_read_swallows_nothing,
    a_closed_stream_ends_its_reader,
    the_end_of_the_runtime_ends_a_read,
    a_refused_connection,
    a_dropped_connect_is_cancelled,
    a_dropped_accept_swallows_nothing,
    a_stream_goes_on_on_another_runtime,
    a_stream_goes_on_where_a_runtime_was_before,
);

async fn read(stream: &mut AsyncTcpStream, buf: &mut [u8]) -> std::io::Result<usize> {
    poll_fn(|cx| stream.poll_read(cx, buf)).await
}

async fn write(stream: &mut AsyncTcpStream, buf: &[u8]) -> std::io::Result<usize> {
    poll_fn(|cx| stream.poll_write(cx, buf)).await
}

fn sockets_wait_side_by_side(setup: Setup) {
    let (ours, mut theirs): (Vec<_>, Vec<_>) = (0..4).map(|_| connected()).unzip();
    let gates: Vec<_> = ours.iter().map(|_| Gate::default()).collect();
    let readers = std::thread::spawn({
        let gates = gates.clone();
        move || {
            // All four wait before the first can be served: calls one after another would wait for
            // ever.
            gates
                .iter()
                .for_each(|gate| eventually("all wait", || gate.is_waited_for()));
            gates.iter().for_each(Gate::open);
            for (n, peer) in theirs.iter_mut().enumerate().rev() {
                peer.write_all(&[n as u8]).expect("room");
            }
            theirs
        }
    });

    let sum = setup.workers(1).run(move || {
        let reads = ours
            .into_iter()
            .zip(gates)
            .map(|(stream, gate)| async move {
                let mut stream = AsyncTcpStream::from(stream);
                let mut buf = [0; 1];
                let (_, n) = join(gate, read(&mut stream, &mut buf)).await;
                assert_eq!(n.expect("a byte"), 1);
                usize::from(buf[0])
            });

        block_on(join_all(reads))
            .expect("not cancelled")
            .into_iter()
            .sum::<usize>()
    });

    assert_eq!(sum, 6);
    readers.join().expect("no panic");
}

fn a_large_transfer_waits_for_room(setup: Setup) {
    const SIZE: usize = 8 << 20;
    let byte = |n: usize| (n % 251) as u8;
    let (a, b) = stream_pair();
    setup.runtime().run(move || {
        let sending = spawn_future(async move {
            let mut stream = AsyncTcpStream::from(a);
            let data: Vec<u8> = (0..SIZE).map(byte).collect();
            let mut sent = 0;
            while sent < SIZE {
                sent += write(&mut stream, &data[sent..]).await.expect("a peer");
            }
        });

        let mut stream = AsyncTcpStream::from(b);
        let mut got = 0;
        let mut buf = vec![0; 100_000];
        let receiving = async {
            loop {
                let n = read(&mut stream, &mut buf).await.expect("bytes");
                assert!(
                    buf[..n]
                        .iter()
                        .enumerate()
                        .all(|(at, b)| *b == byte(got + at))
                );
                got += n;
                if n == 0 {
                    return got;
                }
            }
        };

        assert_eq!(block_on(receiving).expect("not cancelled"), SIZE);
        sending.join().expect("no panic").expect("not cancelled");
    });
}

/// Polls once.
async fn once<T>(future: impl Future<Output = T>) -> Option<T> {
    match select(Box::pin(future), ready(())).await {
        Either::Left((value, _)) => Some(value),
        Either::Right(_) => None,
    }
}

fn a_dropped_stream_leaves_nothing(setup: Setup) {
    let runtime = setup.runtime();
    let (ours, mut theirs) = connected();
    theirs.set_read_timeout(Some(HANG / 2)).expect("a limit");
    runtime.run(move || {
        let mut stream = AsyncTcpStream::from(ours);
        let mut buf = [0; 8];
        assert!(
            block_on(once(read(&mut stream, &mut buf)))
                .expect("not cancelled")
                .is_none()
        );
        assert_eq!(
            plainweave::metrics().expect("a runtime").live_fibers,
            2,
            "this one, and one that waits"
        );
    });
    assert_eq!(
        theirs.read(&mut [0; 8]).expect("the end, not a timeout"),
        0,
        "the descriptor is closed"
    );
    eventually("no fiber is left", || runtime.metrics().live_fibers == 0);
}

fn a_dropped_read_swallows_nothing(setup: Setup) {
    let (ours, mut theirs) = connected();
    setup.workers(1).run(move || {
        let mut stream = AsyncTcpStream::from(ours);
        let mut buf = [0; 8];
        for round in 0..20 {
            assert!(
                block_on(once(read(&mut stream, &mut buf)))
                    .expect("not cancelled")
                    .is_none()
            );
            theirs.write_all(&[round]).expect("room");
            if round % 2 == 0 {
                // The other way to read, while a wait is under way.
                assert_eq!(stream.get_ref().read(&mut buf).expect("a byte"), 1);
            } else {
                assert_eq!(
                    block_on(read(&mut stream, &mut buf))
                        .expect("not cancelled")
                        .expect("a byte"),
                    1
                );
            }

            assert_eq!(buf[0], round);
        }
    });
}

fn a_closed_stream_ends_its_reader(setup: Setup) {
    let (ours, _theirs) = connected();
    setup.workers(1).run(move || {
        let other: TcpStream = ours.try_clone().expect("a handle");
        let reading = spawn_future(async move { read(&mut ours.into(), &mut [0; 8]).await });
        pause();
        other.close();
        let error = reading
            .join()
            .expect("no panic")
            .expect("not cancelled")
            .expect_err("closed");

        assert_eq!(error.kind(), ErrorKind::NotConnected);
    });
}

fn the_end_of_the_runtime_ends_a_read(setup: Setup) {
    let runtime = setup.runtime();
    let (ours, _theirs) = connected();
    let (send, ended) = mpsc::channel();
    let begun = Gate::default();
    let gate = begun.clone();
    runtime.spawn(move || {
        // It goes on when it is cancelled itself, and asks the socket.
        let mut stream = AsyncTcpStream::from(ours);
        let first = block_on(async {
            gate.open();
            read(&mut stream, &mut [0; 8]).await
        });

        let _ = send.send(match first {
            Ok(Err(error)) | Err(error) => is_cancelled(&error),
            Ok(Ok(_)) => false,
        });
    });
    block_on(begun).expect("no deadline");
    runtime.shutdown(HANG);
    assert!(ended.recv().expect("an end"), "an error that says why");
}

fn a_refused_connection(setup: Setup) {
    let address = listener().local_addr().expect("an address");
    let attempt = setup
        .runtime()
        .run(move || block_on(AsyncTcpStream::connect(address)));
    assert_eq!(
        attempt.expect("not cancelled").expect_err("refused").kind(),
        ErrorKind::ConnectionRefused
    );
}

fn a_dropped_connect_is_cancelled(setup: Setup) {
    let full = FullListener::new();
    let address = full.address();
    let runtime = setup.workers(1);
    runtime.run(move || {
        assert!(
            block_on(once(AsyncTcpStream::connect(address)))
                .expect("not cancelled")
                .is_none()
        );
    });
    eventually("no fiber is left", || runtime.metrics().live_fibers == 0);
}

fn a_dropped_accept_swallows_nothing(setup: Setup) {
    let listener = listener();
    let address = listener.local_addr().expect("an address");
    setup.workers(1).run(move || {
        let mut listener = AsyncTcpListener::from(listener);
        for _ in 0..10 {
            assert!(
                block_on(once(listener.accept()))
                    .expect("not cancelled")
                    .is_none()
            );
            let client = TcpStream::connect(address).expect("a listener");
            // Long enough for the wait that was dropped to notice.
            pause();
            let (accepted, peer) = block_on(listener.accept())
                .expect("not cancelled")
                .expect("a connection");
            assert_eq!(peer, client.local_addr().expect("an address"));
            assert_eq!(
                accepted.get_ref().local_addr().expect("an address"),
                address
            );
        }
    });
}

#[test]
fn a_plain_thread_cannot_wait_for_a_socket() {
    let (ours, mut theirs) = connected();
    let mut stream = AsyncTcpStream::from(ours);
    let mut buf = [0; 8];
    let error = block_on(read(&mut stream, &mut buf))
        .expect("no deadline")
        .expect_err("nothing to read");
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    theirs.write_all(b"x").expect("room");
    stream.get_ref().wait_readable().expect("a byte");

    assert_eq!(
        block_on(read(&mut stream, &mut buf))
            .expect("no deadline")
            .expect("a byte"),
        1
    );
}

/// A poll began to wait on one runtime, which has ended when the next one polls.
fn a_stream_goes_on_on_another_runtime(setup: Setup) {
    let (ours, mut theirs) = connected();
    let mut stream = AsyncTcpStream::from(ours);
    let first = setup.runtime();
    first.run(|| {
        block_on(poll_fn(|cx| {
            assert!(stream.poll_read(cx, &mut [0; 8]).is_pending());
            std::task::Poll::Ready(())
        }))
        .expect("not cancelled");
    });
    drop(first);
    let reading = std::thread::spawn(move || {
        let mut buf = [0; 8];
        let n = setup
            .runtime()
            .run(|| block_on(read(&mut stream, &mut buf)))
            .expect("not cancelled");
        n.map(|n| buf[..n].to_vec())
    });

    std::thread::sleep(ms(20));
    theirs.write_all(b"later").expect("room");
    assert_eq!(
        reading
            .join()
            .expect("no panic")
            .expect("this runtime lives"),
        b"later"
    );
}

/// Another runtime may lie where the one lay that the first poll waited on.
fn a_stream_goes_on_where_a_runtime_was_before(setup: Setup) {
    for _ in 0..40 {
        let (ours, mut theirs) = connected();
        let mut stream = AsyncTcpStream::from(ours);
        setup.runtime().run(|| {
            block_on(poll_fn(|cx| {
                assert!(stream.poll_read(cx, &mut [0; 8]).is_pending());
                std::task::Poll::Ready(())
            }))
            .expect("not cancelled");
        });
        theirs.write_all(b"x").expect("room");
        let n = setup
            .runtime()
            .run(|| block_on(read(&mut stream, &mut [0; 8])));

        assert_eq!(n.expect("not cancelled").expect("this runtime lives"), 1);
    }
}
